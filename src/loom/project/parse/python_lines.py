"""What a Python text defines and uses, read without a grammar: the same as with it, in a tenth of
the time.

Strings and comments are taken out first. Then a line that begins with a declaration is one, and it
ends where a line stands no deeper than it. A text of which that cannot be told for certain is left
to the grammar.
"""

import re
from collections import Counter
from functools import cache
from itertools import accumulate

from msgspec import Struct

from loom.project.parse.linewise import MAX_NAME_CHARS, MAX_PATH_CHARS, one_line
from loom.project.parse.symbols import Definition, Kind, ParsedFile

_MAX_SIGNS = 50_000  # in one statement
_MAX_DEPTH = 100
_MAX_TRIES = 50
_WITHIN = "\x01"  # begins a line in the midst of a string, or after a backslash
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
# what a bracket adds to the depth
_DEPTHS = dict.fromkeys(_OPENING, 1) | dict.fromkeys(_CLOSING, -1)

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
# The groups of it.
_INDENT, _KEYWORD, _NAME, _DECORATOR, _ALIAS, _ALIAS_NAME, _ASSIGNED, _LAMBDA = range(1, 9)
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]+")
_DECLARES = re.compile(r"[ \t]*+(?:(?:async[ \t]++)?def[ \t]|class[ \t])")
_BEFORE_NAME = re.compile(r"\b(?:def|class|async)[ \t]*+\Z")
_BEHIND_NAME = frozenset(" \t([:\n")
_IN_BRACKETS = re.compile(r",|.\s*+[)\]}]", re.DOTALL)
# what is no ASCII passes for a letter
_NAMES = re.compile(r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]++")


class _Unclear(Exception):
    """This text is better read by the grammar."""


def parse_python_lines(text: str) -> ParsedFile | None:
    """What a Python text defines and uses; None if the grammar should read it."""
    try:
        code = _APART.sub(_blank_out, text)
        if "\f" in code or ("\n\t" in code and "\n " in code):
            return None
        definitions = _PythonReader(text, code).definitions()
    except _Unclear:
        return None
    uses = Counter(_NAMES.findall(code))
    uses.subtract([definition.name for definition in definitions])
    kept = [item for item in uses.items() if item[1] > 0 and len(item[0]) <= MAX_NAME_CHARS]
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
    if lines:
        return '""' + f"\n{_WITHIN}" * lines
    return '""'


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
        self._scopes: list[_OpenScope] = []  # around the place that is read
        # the row and the indent of the first decorator
        self._decorated: tuple[int, str] | None = None
        self._assigned = 0  # where the last assignment ends
        # how far brackets were counted, and how many are open there
        self._counted = self._depth = 0

    def definitions(self) -> list[Definition]:
        made: list[Definition] = []
        row = at = 0
        for found in _BEGINS.finditer(self.code):
            start = found.start()
            row += self.code.count("\n", at, start)
            at = start
            if start < self._assigned:  # in the midst of what was assigned
                continue
            if found[_DECORATOR]:
                self._note_decorator(found, row)
                continue
            one = self._read_declaration(found, row)
            if one and len(one.name) <= MAX_NAME_CHARS and len(one.parent) <= MAX_PATH_CHARS:
                made.append(one)
        return made

    def _note_decorator(self, found: re.Match[str], row: int) -> None:
        code, start, counted = self.code, found.start(), self._counted
        self._depth += sum([code.count(sign, counted, start) for sign in _OPENING])
        self._depth -= sum([code.count(sign, counted, start) for sign in _CLOSING])
        self._counted = start
        if self._depth <= 0:  # else it is a product that continues
            self._decorated = self._decorated or (row, found[_INDENT])

    def _read_declaration(self, found: re.Match[str], row: int) -> Definition | None:
        scopes = self._scopes
        while scopes and scopes[-1].end <= found.start():
            scopes.pop()
        if found[_KEYWORD]:
            made: Definition | None = self._read_block(found, row)
        elif found[_ALIAS] or found[_LAMBDA] or _CONSTANT.fullmatch(found[_ASSIGNED] or ""):
            made = self._read_assignment(found, row)
        else:
            return None
        if made:
            self._decorated = None
        if len(scopes) > _MAX_DEPTH:
            raise _Unclear
        return made

    def _read_block(self, found: re.Match[str], row: int) -> Definition:
        """A class or a function. What comes next may be in it."""
        code, start, indent, name = self.code, found.start(), found[_INDENT], found[_NAME]
        first = row
        if self._decorated and self._decorated[1] == indent:
            first = self._decorated[0]
        if code[found.end() : found.end() + 1] not in _BEHIND_NAME:
            raise _Unclear  # a name with signs that only few names have
        colon = self._find_colon(found.end())
        end, last = self._find_block(row, start, colon, len(indent))
        kind: Kind = "function"
        if found[_KEYWORD] == "class":
            kind = "class"
        elif self._scopes and self._scopes[-1].is_class:
            kind = "method"
        signature = self._signature(row, found.start(_KEYWORD) - start, start, colon, ":")
        made = Definition(name, kind, signature, self._first(first) + 1, last + 1, self._parent())
        self._scopes.append(_OpenScope(made.path, kind == "class", end))
        return made

    def _read_assignment(self, found: re.Match[str], row: int) -> Definition | None:
        """A type, a function without a name of its own, or a constant; None for an argument of a
        call or a key of a table.
        """
        start = found.start()
        self._assigned = end = self._find_end(found.end())
        if _IN_BRACKETS.match(self.code, end - 1):
            return None
        last = row + self.code.count("\n", start, end)
        kind: Kind = "constant"
        until, stop = "\n", end
        if found[_LAMBDA]:
            kind, until, stop = "function", ":", self._find_colon(found.end())
        if found[_ALIAS]:
            kind = "type"
        signature = self._signature(
            row, len(found[_INDENT]), start, stop, until, kind == "constant"
        )
        name = found[_ALIAS_NAME] or found[_ASSIGNED]
        return Definition(name, kind, signature, self._first(row) + 1, last + 1, self._parent())

    def _parent(self) -> str:
        if not self._scopes:
            return ""
        return self._scopes[-1].path

    def _find_colon(self, at: int) -> int:
        """Where the next colon is outside of all brackets."""
        depth = 0
        for number, found in enumerate(_SIGNS.finditer(self.code, at)):
            sign = found[0]
            depth += _DEPTHS.get(sign, 0)
            if depth == 0 and sign == ":":
                return found.start()
            if depth < 0 or number > _MAX_SIGNS or (depth == 0 and sign in "\n;"):
                break
        raise _Unclear

    def _find_end(self, at: int) -> int:
        """Where the statement ends."""
        code, depth = self.code, 0
        for number, found in enumerate(_SIGNS.finditer(code, at)):
            sign = found[0]
            depth += _DEPTHS.get(sign, 0)
            if depth < 0:
                return found.start()
            if depth == 0 and sign in "\n;#" and code[found.end() : found.end() + 1] != _WITHIN:
                return at + len(code[at : found.start()].rstrip())
            if number > _MAX_SIGNS:
                raise _Unclear
        if depth:
            raise _Unclear
        return at + len(code[at:].rstrip())

    def _find_block(self, row: int, start: int, colon: int, indent: int) -> tuple[int, int]:
        """Where what a colon begins ends, and its last line. Comments at the end belong to it as
        long as they are in it.
        """
        code = self.code
        end = colon
        for _ in range(_MAX_TRIES):
            found = _dedent(indent).search(code, end)
            end = found.end() if found else len(code)
            if not found or _DECLARES.match(code, end) or _is_closed(code[colon:end]):
                break
        else:
            raise _Unclear
        head = row + code.count("\n", start, colon)
        limit = head + code.count("\n", colon, end) - (found is not None)
        last = limit
        while last > head and self.rows[last].strip() in ("", "#"):
            last -= 1
        is_block = not code[colon + 1 : code.find("\n", colon) + 1 or None].strip(" \t\n#")
        if is_block:
            last = self._last_comment(last, limit, indent)
        return end, last

    def _last_comment(self, last: int, limit: int, indent: int) -> int:
        """The last line of a block with the comments at its end that stand deeper than it."""
        for number in range(last + 1, limit + 1):
            line = self.rows[number]
            if not line.strip():
                continue
            if len(line) - len(line.lstrip()) <= indent:
                break
            last = number
        return last

    def _first(self, row: int) -> int:
        """The first of the comments directly above a line."""
        while row and self.rows[row - 1].strip() == "#":
            row -= 1
        return row

    def _signature(
        self, row: int, column: int, start: int, stop: int, until: str, is_constant: bool = False
    ) -> str:
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
            self._starts = list(
                accumulate(
                    map(len, self.text.split("\n")), lambda total, size: total + size + 1, initial=0
                )
            )
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
    return all(
        code.count(opening) <= code.count(closing) for opening, closing in ("()", "[]", "{}")
    )
