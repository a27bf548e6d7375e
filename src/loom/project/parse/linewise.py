"""What a text defines by how its lines begin: for languages without a grammar here, and for texts
that a grammar gives up on.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import cast

from msgspec import Struct

from loom.project.parse.symbols import Definition, Kind, ParsedFile

MAX_SIGNATURE_CHARS = 200
MAX_NAME_CHARS = 200
MAX_PATH_CHARS = 1000
_MAX_LINE_CHARS = 500  # a longer one is data, not a declaration
_MAX_LINES = 200_000


class Form(Struct, frozen=True):
    """A language that is read line by line: what its files end with, kinds and patterns, and
    whether it is flat.
    """

    endings: tuple[str, ...]
    patterns: tuple[tuple[str, str], ...]
    flat: bool


def shorten_signature(signature: str) -> str:
    if len(signature) <= MAX_SIGNATURE_CHARS:
        return signature
    return signature[: MAX_SIGNATURE_CHARS - 1] + "…"


def one_line(declared: str, is_cut: bool = False) -> str:
    """A declaration on one line, without the signs that begin its body. `is_cut`: comments were
    taken out of it.
    """
    text = declared.strip()
    if "\n" in text or is_cut:
        text = _LOOSE.sub("", " ".join(text.split()))
    text = " ".join(text.split())
    if text[-1:] in _TAILS:
        text = _TAIL.sub("", text)
    return shorten_signature(text)


# what breaking a declaration into lines leaves
_LOOSE = re.compile(r"(?<=[(\[]) |,? (?=[)\]])| (?=,)")
_TAIL, _TAILS = re.compile(r"(?:[\s{:;,=\\]|=>|->|(?<=[\s,])do:?)+$"), frozenset("{:;,=\\>o")


@cache
def forms() -> dict[str, Form]:
    """The languages that can be read line by line."""
    made: dict[str, Form] = {}
    held = Path(__file__).with_name("queries").joinpath("lines.txt").read_text("utf-8")
    for block in re.split(
        r"\n(?=\w)",
        "\n".join(line for line in held.split("\n") if line and not line.startswith("#")),
    ):
        first, *rest = block.split("\n")
        name, _, about = first.partition(":")
        words = about.split()
        if words[:1] == ["like"]:
            made[name] = made[words[1]]
            continue
        patterns = tuple(
            (kind, pattern) for kind, pattern in (line.split(maxsplit=1) for line in rest)
        )
        made[name] = Form(
            tuple(word for word in words if word != "flat"), patterns, "flat" in words
        )
    return made


def parse_by_lines(language: str, text: str) -> ParsedFile:
    """What the lines of a text define, and names that are called in it."""
    form = forms().get(language)
    if form is None:
        return ParsedFile(language)
    definitions = tuple(_definitions(_pattern(language), form.flat, text))
    uses = Counter(_USE.findall(text))
    uses.subtract(definition.name for definition in definitions if definition.name in uses)
    return ParsedFile(
        language, definitions, {name: count for name, count in sorted(uses.items()) if count > 0}
    )


# Patterns

_CONTROL = (
    "if|else|for|foreach|while|switch|catch|return|new|throw|do|using|lock|when|await|yield"
    "|sizeof|typeof|assert|case"
)
_NAME = r"(?P<name>[^\W\d][\w$]*)"
_PATH = r"(?P<name>[^\W\d]\w*(?:(?:::~?|[.:\\])[^\W\d]\w*)*)"
_STANDS_FOR = {
    "MODS": r"(?:(?:[a-z]+|pub\([^)]*\)|@\w+)[ \t]+){0,8}?",
    "NAME": _NAME,
    "PATH": _PATH,
    "CAPS": r"(?P<name>[A-Z][A-Z0-9_]+)\b",
    "TYPED": rf"(?!(?:{_CONTROL}|package|import)\b)(?:[\w.:<>\[\],?*&@]+[ \t]+){{1,8}}?[*&]*{_PATH}"
    r"(?:<[^()]*>)?[ \t]*\((?:[^;]*$|[^;{]*\)[^;{]*(?:\{|=>))",
    "CALL": rf"(?!(?:{_CONTROL}|function)\b){_NAME}[ \t]*\((?:[^;]*\{{[ "
    r"\t]*$|[^;{}]*\)[^;{()]*\{)",
    " ": r"[ \t]+",
    "~": r"[ \t]*",
}
_SIGN = re.compile("|".join(_STANDS_FOR))
_GROUP = re.compile(r"\(\?P<(\w+)>")
_PARTS = re.compile(r"::|[.:\\]")
_USE = re.compile(r"[^\W\d]\w{1,99}(?=[ \t]?[(.!]|::)|\b[A-Z]\w{2,99}")
_GOES_ON = re.compile(
    r"[{})\]]|(?:end|else|elif|elsif|rescue|ensure|catch|except|finally|begin|do|then|where"
    r"|deriving|fi|done)\b"
    r"|(?:\w+ ){0,3}constructor\b"
)


@cache
def _pattern(language: str) -> re.Pattern[str]:
    """All patterns of a language in one; its groups are named by what they hold, a kind and a
    number.
    """
    made = []
    for number, (kind, pattern) in enumerate(forms()[language].patterns):
        full = _SIGN.sub(lambda found: _STANDS_FOR[found[0]], pattern.removeprefix("^"))
        named = _GROUP.sub(rf"(?P<\1_{kind}_{number}>", full)
        made.append(named if pattern.startswith("^") else rf"[ \t]*{named}")
    return re.compile("|".join(f"(?:{one})" for one in made))


# Definitions


class _OpenDefinition:
    """A definition whose end is not known yet."""

    __slots__ = ("indent", "kind", "name", "parent", "path", "signature", "start", "stop")

    def __init__(
        self, kind: str, name: str, parent: str, line: str, number: int, indent: int
    ) -> None:
        self.kind, self.name, self.parent, self.indent = kind, name, parent, indent
        self.path = f"{parent}.{name}" if parent else name
        self.start = self.stop = number
        self.signature = one_line(line)


def _definitions(pattern: re.Pattern[str], flat: bool, text: str) -> list[Definition]:
    made: list[_OpenDefinition] = []
    within: list[_OpenDefinition] = []
    last = 0  # the last line that was not blank
    for number, line in enumerate(text.split("\n", _MAX_LINES)[:_MAX_LINES], 1):
        if not line.strip():
            continue
        found = None
        if len(line) <= _MAX_LINE_CHARS:
            found = pattern.match(line)
        if not flat or found:
            _close_definitions(within, line, last, found is not None)
        last = number
        if found:
            one = _open_definition(found, within[-1] if within else None, line, number)
            if flat and made and (made[-1].path, made[-1].kind) == (one.path, one.kind):
                one = made.pop()  # another clause of the same
            made.append(one)
            within.append(one)
    for one in within:
        one.stop = last
    return [
        Definition(one.name, _kind(one), one.signature, one.start, one.stop, one.parent)
        for one in made
        if one.kind != "scope"
    ]


def _close_definitions(
    within: list[_OpenDefinition], line: str, last: int, is_declaration: bool
) -> None:
    """End the definitions that a line is no longer in."""
    bare = line.lstrip()
    indent = len(line) - len(bare)
    while within and indent <= within[-1].indent:
        if not is_declaration and indent == within[-1].indent and _GOES_ON.match(bare):
            break
        within.pop().stop = last


def _open_definition(
    found: re.Match[str], outer: _OpenDefinition | None, line: str, number: int
) -> _OpenDefinition:
    groups = {key: value for key, value in found.groupdict().items() if value}
    key = next(key for key in groups if key.startswith("name_"))
    *before, name = [part for part in _PARTS.split(groups[key]) if part] or [groups[key]]
    kind = key.split("_")[1]
    before = [value for key, value in groups.items() if key.startswith("parent_")] + before
    if kind == "function" and (before or (outer and outer.kind in _HOLDERS)):
        kind = "method"
    if outer:
        before = [outer.path, *before]
    return _OpenDefinition(
        kind, name, ".".join(before), line, number, len(line) - len(line.lstrip())
    )


_HOLDERS = ("class", "interface", "type", "scope")  # kinds whose functions are methods


def _kind(one: _OpenDefinition) -> Kind:
    if one.kind == "method" and not one.parent:
        return "function"
    return cast(Kind, one.kind)
