"""JSON as models write it: with raw newlines and quotes in texts, comments, single quotes, Python's
names, commas that are too many, or cut off at a limit of length.
"""

import json
import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

MAX_DEPTH = 100
# Characters that may end a text, by the one that begins it.
_QUOTES = {'"': '"”', "'": "'’", "“": "”“", "”": "”“", "‘": "’‘", "`": "`"}
_SPACE = re.compile(r"(?:\s|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_BARE = re.compile(r"[^\s,:{}\[\]]+")
_NAMES = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_UNICODE = re.compile(r"u[0-9a-fA-F]{4}")
# What follows the end of a text: in an object, in a list, after a name.
_ENDS = {
    "object": re.compile(
        r"""\s*(?:\Z|,\s*(?:\Z|\}|//|/\*|#|["'“‘]?[\w.$ -]+["'”’“]?\s*:)|\}\s*(?:\Z|[,\]}`]))"""
    ),
    "list": re.compile(r"""\s*(?:\Z|,|\]\s*(?:\Z|[,\]}`]))"""),
    "name": re.compile(r"\s*:"),
}


class ReadValue(Struct, frozen=True):
    """A value, and whether it is whole: nothing of it was cut off. `end` is the character after
    it.
    """

    value: Any
    is_whole: bool
    end: int = 0


def read_lenient(text: str, start: int = 0) -> ReadValue:
    """The value that begins at this character. Raises ValueError if there is none."""
    reader = _JsonReader(text, start)
    return replace(reader.read("list", 0), end=reader.at)


class _JsonReader:
    def __init__(self, text: str, at: int) -> None:
        self._text, self.at = text, at

    def read(self, place: str, depth: int) -> ReadValue:
        """The next value. `place` is what it is in."""
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        match self._peek():
            case "":
                return ReadValue(None, False)
            case "{":
                return self._read_object(depth)
            case "[":
                return self._read_list(depth)
            case sign if sign in _QUOTES:
                return self._read_text(place)
        return self._read_bare()

    def _peek(self) -> str:
        """The next character that says something; "" at the end."""
        found = _SPACE.match(self._text, self.at)
        assert found is not None
        self.at = found.end()
        return self._text[self.at : self.at + 1]

    def _read_object(self, depth: int) -> ReadValue:
        self.at += 1
        made: dict[str, Any] = {}
        is_whole = False  # of an object without an end: what came of it last is whole
        while True:
            sign = self._peek()
            if sign in ("}", "]", ""):
                self.at += sign == "}"
                return ReadValue(made, is_whole or sign != "")
            if sign == ",":
                self.at += 1
                is_whole = False
                continue
            name = self._read_name()
            if name is None:
                return ReadValue(made, False)
            found = self.read("object", depth + 1)
            is_whole = found.is_whole
            if is_whole or isinstance(found.value, dict | list):
                made[name] = found.value

    def _read_name(self) -> str | None:
        """The name of a field, with its colon; None if the text ends in it."""
        sign = self._peek()
        found = self._read_text("name") if sign in _QUOTES else self._read_bare()
        after = self._peek()
        if after == "" or not found.is_whole:
            return None
        if after != ":":
            raise ValueError(f"a colon is missing at character {self.at}")
        self.at += 1
        return str(found.value)

    def _read_list(self, depth: int) -> ReadValue:
        self.at += 1
        made: list[Any] = []
        while True:
            sign = self._peek()
            if sign in ("]", "}", ""):
                self.at += sign == "]"
                return ReadValue(made, sign != "")
            if sign == ",":
                self.at += 1
                continue
            found = self.read("list", depth + 1)
            if found.is_whole:
                made.append(found.value)

    def _read_text(self, place: str) -> ReadValue:
        text, ends = self._text, _QUOTES[self._text[self.at]]
        self.at += 1
        made: list[str] = []
        while self.at < len(text):
            sign = text[self.at]
            self.at += 1
            if sign == "\\":
                made.append(self._read_escape())
            elif sign in ends and _ENDS[place].match(text, self.at):
                return ReadValue("".join(made), True)
            else:
                made.append(sign)
        return ReadValue("".join(made), False)

    def _read_escape(self) -> str:
        """What a backslash stands for. One that escapes nothing is itself."""
        text = self._text
        if found := _UNICODE.match(text, self.at):
            self.at = found.end()
            return chr(int(found[0][1:], 16))
        sign = text[self.at : self.at + 1]
        self.at += 1
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        return sign if sign in "\"'/\\\n" else f"\\{sign}"

    def _read_bare(self) -> ReadValue:
        """A number, a name such as true or None, or a text without quotes."""
        found = _BARE.match(self._text, self.at)
        if found is None:
            raise ValueError(f"a value is missing at character {self.at}")
        self.at = found.end()
        word = found[0]
        is_whole = self.at < len(self._text)
        if word.lower() in _NAMES:
            return ReadValue(_NAMES[word.lower()], is_whole)
        try:
            return ReadValue(json.loads(word), is_whole)
        except ValueError:
            return ReadValue(word, is_whole)
