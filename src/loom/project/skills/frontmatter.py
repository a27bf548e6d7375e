"""The lines between `---` at the beginning of a SKILL.md, read strictly.

This is the part of YAML that SKILL.md files use: keys with texts, quoted or not, over several lines
too, lists, and one level of keys below a key. Anchors, tags and documents are not read: a file of a
project is not trusted, and none of them has a meaning here.
What is wrong is reported with its line, and all other keys are read.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

MAX_FRONTMATTER_LINES = 200
FENCE = "---"
Value = str | tuple[str, ...] | dict[str, str]
_KEY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*)|)$")
_BLOCK = re.compile(r"([|>])[+-]?[1-9]?[+-]?\s*(?:#.*)?$")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\n", "0": "", "e": "", "a": "", "b": ""}
_NOT_READ = ("&", "*", "!", "%", "@", "`", "{")


class LineProblem(Struct, frozen=True):
    """What is wrong in a file, and on which line, counted from 1."""

    line: int
    what: str


class Frontmatter(Struct, frozen=True):
    """The keys at the beginning of a file, the text after them, and what is wrong."""

    values: dict[str, Value]
    body: str
    problems: tuple[LineProblem, ...]


def split_frontmatter(text: str) -> Frontmatter:
    """The keys of a text, and its body. A text that does not begin with `---` is all body."""
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        missing = LineProblem(1, "the file does not begin with ---: it has no name or description")
        return Frontmatter({}, text, (missing,))
    ends = range(1, min(len(lines), MAX_FRONTMATTER_LINES + 1))
    end = next((n for n in ends if lines[n].rstrip() in (FENCE, "...")), None)
    if end is None:
        unclosed = LineProblem(
            1, f"no line --- ends the keys within {MAX_FRONTMATTER_LINES} lines; add one"
        )
        # The keys end where the first blank line or heading is.
        end = next((n for n in ends if not lines[n].strip() or lines[n].startswith("#")), 1)
        read = _Reader(lines[:end])
        return Frontmatter(read.values, "\n".join(lines[end:]), (unclosed, *read.problems))
    read = _Reader(lines[:end])
    return Frontmatter(read.values, "\n".join(lines[end + 1 :]), tuple(read.problems))


class _Reader:
    """Reads keys from line 2 on; the first line is the fence."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self._at = lines, 1
        self.values: dict[str, Value] = {}
        self.problems: list[LineProblem] = []
        while self._at < len(lines):
            self._read_key()

    def _read_key(self) -> None:
        line, number = self._lines[self._at].rstrip(), self._at + 1
        self._at += 1
        if not line or line.lstrip().startswith("#"):
            return
        found = _KEY.match(line)
        if found is None:
            self._skip_nested()
            self._report(number, "a line must be `key: value`, at the beginning of the line")
            return
        key, value = found[1], (found[2] or "").strip()
        read = self._read_value(value, number)
        if key in self.values:
            self._report(number, f"{key} is there twice; the first one counts")
        elif read is not None:
            self.values[key] = read

    def _read_value(self, value: str, number: int) -> Value | None:
        if _BLOCK.match(value):
            return self._read_block(folds=value[0] == ">")
        if not value or value.startswith("#"):
            return self._read_nested()
        if value[0] in "\"'":
            return self._read_quoted(value, number)
        if value.startswith("["):
            return self._read_list(value, number)
        if value.startswith(_NOT_READ):
            self._skip_nested()
            self._report(number, f"a value that begins with {value[0]} must be in quotes")
            return None
        more = [_COMMENT.sub("", line).strip() for line in self._take_nested()]
        return " ".join(filter(None, (_COMMENT.sub("", value).strip(), *more)))

    def _read_block(self, *, folds: bool) -> str:
        lines = self._take_nested()
        indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
        indent = min(indents, default=0)
        cut = [line[indent:].rstrip() for line in lines]
        if not folds:
            return "\n".join(cut).strip("\n")
        parts = "\n".join(cut).strip("\n").split("\n\n")
        return "\n".join(" ".join(part.split()) for part in parts)

    def _read_quoted(self, value: str, number: int) -> str | None:
        quote = value[0]
        text = " ".join([value, *(line.strip() for line in self._take_nested())])
        end = _find_quote_end(text)
        rest = text[end + 1 :].strip()
        if end < 0 or (rest and not rest.startswith("#")):
            self._report(number, f"a text in quotes must end with {quote}, and nothing after it")
            return None
        return _unquote(text[: end + 1])

    def _read_list(self, value: str, number: int) -> tuple[str, ...] | None:
        text = " ".join([value, *(line.strip() for line in self._take_nested())])
        text = _COMMENT.sub("", text).strip()
        if not text.endswith("]"):
            self._report(number, "a list that begins with [ must end with ]")
            return None
        return tuple(filter(None, (_unquote(part.strip()) for part in text[1:-1].split(","))))

    def _read_nested(self) -> Value:
        """A list with `- `, keys of a second level, or a text that begins on the next line."""
        first = self._at
        lines = self._take_nested(with_items=True)
        filled = [
            (first + n + 1, _COMMENT.sub("", line).strip())
            for n, line in enumerate(lines)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if filled and all(line == "-" or line.startswith("- ") for _, line in filled):
            return tuple(filter(None, (_unquote(line[1:].strip()) for _, line in filled)))
        if not filled or _KEY.match(filled[0][1]) is None:
            return " ".join(line for _, line in filled)
        made: dict[str, str] = {}
        for number, line in filled:
            found = _KEY.match(line)
            if found is None:
                self._report(number, "a line below a key must be `key: value`")
            else:
                made.setdefault(found[1], _unquote((found[2] or "").strip()))
        return made

    def _take_nested(self, *, with_items: bool = False) -> list[str]:
        """The next lines that are indented or empty; items of a list need not be indented."""
        start = self._at
        while self._at < len(self._lines) and self._is_nested(self._lines[self._at], with_items):
            self._at += 1
        return list(self._lines[start : self._at])

    @staticmethod
    def _is_nested(line: str, with_items: bool) -> bool:
        return not line.strip() or line[0] in " \t" or (with_items and line.startswith("- "))

    def _skip_nested(self) -> None:
        self._take_nested(with_items=True)

    def _report(self, line: int, what: str) -> None:
        self.problems.append(LineProblem(line, what))


def _find_quote_end(text: str) -> int:
    """Where the quote ends that a text begins with; -1 if it does not."""
    quote, at = text[0], 1
    while at < len(text):
        is_escaped = text[at] == "\\" if quote == '"' else text[at : at + 2] == "''"
        if is_escaped:
            at += 2
        elif text[at] == quote:
            return at
        else:
            at += 1
    return -1


def _unquote(text: str) -> str:
    """A text without the quotes around it."""
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        return text
    inner = text[1:-1]
    if text[0] == "'":
        return inner.replace("''", "'")
    return _ESCAPE.sub(_unescape, inner)


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)
