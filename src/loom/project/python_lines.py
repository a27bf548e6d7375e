"""What a Python text defines and uses, read without a grammar: the same as with it, in a tenth of the time.

Strings and comments are taken out first. Then a line that begins with a declaration is one, and it ends where a line stands no
deeper than it. A text of which that cannot be told for certain is left to the grammar.
"""

import re
from collections import Counter
from functools import cache
from itertools import accumulate

from msgspec import Struct

from loom.project.linewise import LONGEST_NAME, LONGEST_PATH, one_line
from loom.project.symbols import Definition, Kind, ParsedFile

_MOST_SIGNS = 50_000  # in one statement
_DEEPEST = 100
_TRIES = 50
_WITHIN = "\x01"  # begins a line in the midst of a string, or behind a backslash
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")

_STRING = (
    r'''"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*"""|"(?!"")[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|""(?!")'''
    r"""|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*'''|'(?!'')[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|''(?!')"""
)
_APART = re.compile(rf"{_STRING}|\#[^\n]*+|\\\n|[\"'\x01]", re.DOTALL)
_SIGNS = re.compile(r"[()\[\]{}:;\n#]")
_ALL_SIGNS = re.compile(rf"{_STRING}|\#[^\n]*+|\\\n|[()\[\]{{}}:;\n]", re.DOTALL)
_BEGINS = re.compile(
    r"""^([ \t]*+)(?:((?:async[ \t]++)?def|class)[ \t]++([^\W\d]\w*+) | (@)
    | (type)[ \t]++([^\W\d]\w*+)[ \t]*+(?=[\[=])
    | (?<![ \t])([^\W\d]\w*+)[ \t]*+(?:(?::[^=\n\#]*+)?=(?!=)[ \t]*+(lambda\b)?|:))""",
    re.MULTILINE | re.VERBOSE,
)
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]+")
_DECLARES = re.compile(r"[ \t]*+(?:(?:async[ \t]++)?def[ \t]|class[ \t])")
_BEFORE_NAME = re.compile(r"\b(?:def|class|async)[ \t]*+\Z")
_BEHIND_NAME = frozenset(" \t([:\n")
_IN_BRACKETS = re.compile(r",|.\s*+[)\]}]", re.DOTALL)
_NAMES = re.compile(r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]++")  # what is no ASCII passes for a letter


class _Unclear(Exception):
    """This text is better read by the grammar."""


def parse_python_lines(text: str) -> ParsedFile | None:
    """What a Python text defines and uses; None where the grammar should read it."""
    try:
        code = _APART.sub(_blank_out, text)
        if "\f" in code or ("\n\t" in code and "\n " in code):
            return None
        definitions = _PythonReader(text, code).definitions()
    except _Unclear:
        return None
    uses = Counter(_NAMES.findall(code))
    uses.subtract([definition.name for definition in definitions])
    kept = [item for item in uses.items() if item[1] > 0 and len(item[0]) <= LONGEST_NAME]
    return ParsedFile("python", tuple(definitions), dict(sorted(kept)))


def _blank_out(found: re.Match[str]) -> str:
    held = found[0]
    if held[0] == "#":
        return "#"
    if held[0] == "\\":
        if _BEFORE_NAME.search(found.string, max(0, found.start() - 20), found.start()):
            raise _Unclear
        return "\n" + _WITHIN
    if len(held) == 1:  # a string that does not end
        raise _Unclear
    lines = held.count("\n")
    return '""' + f"\n{_WITHIN}" * lines if lines else '""'


@cache
def _dedent(indent: int) -> re.Pattern[str]:
    """A line that stands no deeper than this, and is no rest of a longer one."""
    return re.compile(rf"\n(?=[ \t]{{0,{indent}}}+[^\s{_WITHIN}#)\]}}])")


class _OpenScope(Struct, frozen=True, gc=False):
    """A class or a function, and where in the code it ends."""

    path: str
    is_class: bool
    end: int


class _PythonReader:
    """A text, and its code: the same lines without what strings and comments say."""

    def __init__(self, text: str, code: str) -> None:
        self.text, self.code = text, code
        self.rows = code.split("\n")
        self._starts: list[int] = []  # of the lines of the text, once somebody asks for them

    def definitions(self) -> list[Definition]:
        code = self.code
        made: list[Definition] = []
        around: list[_OpenScope] = []
        decorated: tuple[int, str] | None = None
        row = at = done = counted = depth = 0
        for found in _BEGINS.finditer(code):
            start = found.start()
            row += code.count("\n", at, start)
            at = start
            indent, keyword, name, decorator, alias, alias_name, assigned, function = found.groups()
            if start < done:  # in the midst of what was assigned
                continue
            if decorator:
                depth += sum([code.count(sign, counted, start) for sign in _OPENING])
                depth -= sum([code.count(sign, counted, start) for sign in _CLOSING])
                counted = start
                if depth <= 0:  # else it is a product that goes on
                    decorated = decorated or (row, indent)
                continue
            while around and around[-1].end <= start:
                around.pop()
            parent = around[-1].path if around else ""
            first = row
            if keyword:
                if decorated and decorated[1] == indent:
                    first = decorated[0]
                if code[found.end() : found.end() + 1] not in _BEHIND_NAME:
                    raise _Unclear  # a name with signs that only few names have
                colon = self._sign(found.end(), ":")
                end, last = self._block(row, start, colon, len(indent))
                kind: Kind = "class" if keyword == "class" else "method" if around and around[-1].is_class else "function"
                signature = self._signature(row, found.start(2) - start, start, colon, ":")
                around.append(_OpenScope(f"{parent}.{name}" if parent else name, kind == "class", end))
            elif alias or function or (assigned and _CONSTANT.fullmatch(assigned)):
                name = alias_name or assigned
                kind = "type" if alias else "function" if function else "constant"
                done = self._sign(found.end(), "\n")
                if _IN_BRACKETS.match(code, done - 1):
                    continue  # an argument of a call, a key of a table
                last = row + code.count("\n", start, done)
                colon = self._sign(found.end(), ":") if function else done
                signature = self._signature(row, len(indent), start, colon, ":" if function else "\n", kind == "constant")
            else:
                continue
            decorated = None
            if len(around) > _DEEPEST:
                raise _Unclear
            if len(name) <= LONGEST_NAME and len(parent) <= LONGEST_PATH:
                made.append(Definition(name, kind, signature, self._first(first) + 1, last + 1, parent))
        return made

    def _sign(self, at: int, wanted: str) -> int:
        """Where the next colon stands outside of all brackets, or the statement ends."""
        code, depth = self.code, 0
        for number, found in enumerate(_SIGNS.finditer(code, at)):
            sign = found[0]
            if sign in _OPENING:
                depth += 1
            elif sign in _CLOSING:
                depth -= 1
                if depth < 0 and wanted == "\n":
                    return found.start()
            elif depth == 0 and sign == wanted == ":":
                return found.start()
            elif depth == 0 and sign != ":" and code[found.end() : found.end() + 1] != _WITHIN and wanted == "\n":
                return at + len(code[at : found.start()].rstrip())
            if depth < 0 or number > _MOST_SIGNS or (depth == 0 and sign in "\n;" and wanted == ":"):
                break
        else:
            if depth == 0 and wanted == "\n":
                return at + len(code[at:].rstrip())
        raise _Unclear

    def _block(self, row: int, start: int, colon: int, indent: int) -> tuple[int, int]:
        """Where what a colon begins ends, and its last line. Comments at the end belong to it as long as they stand in it."""
        code, rows = self.code, self.rows
        end = colon
        for _ in range(_TRIES):
            found = _dedent(indent).search(code, end)
            end = found.end() if found else len(code)
            if not found or _DECLARES.match(code, end) or _is_closed(code[colon:end]):
                break
        else:
            raise _Unclear
        head = row + code.count("\n", start, colon)
        limit = head + code.count("\n", colon, end) - (found is not None)
        last = limit
        while last > head and rows[last].strip() in ("", "#"):
            last -= 1
        is_block = not code[colon + 1 : code.find("\n", colon) + 1 or None].strip(" \t\n#")
        for number in range(last + 1, limit + 1 if is_block else 0):
            line = rows[number]
            if line and len(line) - len(line.lstrip()) <= indent and line.strip():
                break
            last = number if line.strip() else last
        return end, last

    def _first(self, row: int) -> int:
        """The first of the comments directly above a line."""
        while row and self.rows[row - 1].strip() == "#":
            row -= 1
        return row

    def _signature(self, row: int, column: int, start: int, stop: int, until: str, is_constant: bool = False) -> str:
        declared = self.code[start + column : stop]
        is_cut = "#" in declared
        if is_cut or '"' in declared:
            declared = self._as_written(row, column, until)
        if is_constant and "\n" in declared:
            declared = declared.partition("\n")[0].rstrip() + " …"
        return one_line(declared.replace(_WITHIN, ""), is_cut)

    def _as_written(self, row: int, column: int, until: str) -> str:
        """A declaration with its strings, without its comments."""
        if not self._starts:
            self._starts = list(accumulate(map(len, self.text.split("\n")), lambda total, size: total + size + 1, initial=0))
        text, at = self.text, self._starts[row] + column
        begin, depth, kept = at, 0, []
        for found in _ALL_SIGNS.finditer(text, at):
            sign = found[0]
            if sign in _OPENING:
                depth += 1
            elif sign in _CLOSING:
                depth -= 1
            elif sign[0] == "#":
                kept.append(text[begin : found.start()])
                begin = found.end()
            elif depth == 0 and (sign == until or (sign in "\n;" and until == "\n")):
                return " ".join([*kept, text[begin : found.start()]])
        return " ".join([*kept, text[begin:]])


def _is_closed(code: str) -> bool:
    return all(code.count(opening) <= code.count(closing) for opening, closing in ("()", "[]", "{}"))
