"""The line of each key in a TOML text. `tomllib` reads the values and names no lines.

The scanner reads tables, dotted and quoted keys, strings of all four kinds, arrays and inline
tables. It goes before `tomllib` and limits how long a key and how deep a value may be, which
`tomllib` does not. At a mistake it stops: `tomllib` then says what is wrong.
"""

import re
import tomllib
from bisect import bisect_right
from contextlib import suppress

MAX_KEY_PARTS = 16  # of a dotted key; the time to read one grows with the square of its parts
MAX_DEPTH = 16  # of arrays and inline tables in each other

KeyPath = tuple[str | int, ...]

_NEWLINE = re.compile("\n")
_BETWEEN_STATEMENTS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})|' r"'''.*?'''(?:'{0,2})|" + _LINE_STRING.pattern, re.DOTALL
)
_PLAIN_VALUE = re.compile(r"[^,\]}\r\n#]+")


class NestingError(Exception):
    """A key has too many parts, or a value is nested too deeply."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        super().__init__(text)


class _Mistake(Exception):
    """The text is not TOML here."""


class KeyLines:
    """The line of each key of a TOML text, by the path of the key. An element of an array is a
    number in that path.
    """

    def __init__(self, lines: dict[KeyPath, int]) -> None:
        self._lines = lines

    def find(self, *path: str | int) -> int:
        """The line of a key, or of the nearest thing around it; 1 if nothing around it has one."""
        for length in range(len(path), 0, -1):
            if line := self._lines.get(path[:length]):
                return line
        return 1

    def as_dict(self) -> dict[KeyPath, int]:
        """All paths that have a line."""
        return dict(self._lines)


def find_key_lines(text: str) -> KeyLines:
    """The line of each key, up to the first mistake."""
    scanner = _Scanner(text)
    with suppress(_Mistake):
        scanner.read_statements()
    return KeyLines(scanner.lines)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._newlines = [found.start() for found in _NEWLINE.finditer(text)]
        self._table_counts: dict[KeyPath, int] = {}  # of arrays of tables
        self.lines: dict[KeyPath, int] = {}

    def read_statements(self) -> None:
        table: KeyPath = ()
        self._skip(_BETWEEN_STATEMENTS)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._read_header()
            else:
                self._read_pair(table)
            self._skip(_BETWEEN_STATEMENTS)

    def _read_header(self) -> KeyPath:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        mark = 1 + is_array
        self._at += mark
        *above, last = self._read_key()
        self._expect("]" * mark)
        path = self._resolve(above)
        if is_array:
            array = (*path, last)
            number = self._table_counts.get(array, 0)
            self._table_counts[array] = number + 1
            self.lines.setdefault(array, line)
            path = (*array, number)
        else:
            path = self._resolve([*above, last])
        self.lines.setdefault(path, line)
        return path

    def _resolve(self, keys: list[str]) -> KeyPath:
        """The path of a table. In an array of tables the last one is meant."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            if path in self._table_counts:
                path = (*path, self._table_counts[path] - 1)
        return path

    def _read_pair(self, table: KeyPath, depth: int = 0) -> None:
        line = self._line()
        path = table
        for key in self._read_key():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._expect("=")
        self._read_value(path, depth)

    def _read_key(self) -> list[str]:
        line = self._line()
        parts = [self._read_key_part()]
        while self._text.startswith(".", self._at):
            if len(parts) == MAX_KEY_PARTS:
                raise NestingError(line, f"a key has more than {MAX_KEY_PARTS} parts")
            self._at += 1
            parts.append(self._read_key_part())
        return parts

    def _read_key_part(self) -> str:
        self._skip(_SPACES)
        found = _BARE_KEY.match(self._text, self._at) or _LINE_STRING.match(self._text, self._at)
        if found is None:
            raise _Mistake
        self._at = found.end()
        self._skip(_SPACES)
        return _unquote(found[0])

    def _read_value(self, path: KeyPath, depth: int) -> None:
        self._skip(_SPACES)
        if depth == MAX_DEPTH:
            raise NestingError(self._line(), f"a value is nested more than {MAX_DEPTH} levels deep")
        match self._text[self._at : self._at + 1]:
            case "[":
                self._read_array(path, depth + 1)
            case "{":
                self._read_inline_table(path, depth + 1)
            case '"' | "'":
                self._take(_STRING)
            case _:
                self._take(_PLAIN_VALUE)

    def _read_array(self, path: KeyPath, depth: int) -> None:
        self._at += 1
        number = 0
        while not self._ends_at("]"):
            self.lines.setdefault((*path, number), self._line())
            self._read_value((*path, number), depth)
            number += 1

    def _read_inline_table(self, path: KeyPath, depth: int) -> None:
        self._at += 1
        while not self._ends_at("}"):
            self._read_pair(path, depth)

    def _ends_at(self, mark: str) -> bool:
        """Go past the end of an array or an inline table if it is here, or to its next element."""
        self._skip(_BETWEEN_STATEMENTS)
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip(_BETWEEN_STATEMENTS)
        if self._text.startswith(mark, self._at):
            self._at += 1
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._text.startswith(mark, self._at):
            raise _Mistake
        self._at += len(mark)

    def _take(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _Mistake
        self._at = found.end()

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()

    def _line(self) -> int:
        return bisect_right(self._newlines, self._at - 1) + 1


def _unquote(key: str) -> str:
    if key.startswith("'"):
        return key[1:-1]
    if not key.startswith('"'):
        return key
    try:
        return str(tomllib.loads(f"key = {key}")["key"])
    except tomllib.TOMLDecodeError:
        raise _Mistake from None
