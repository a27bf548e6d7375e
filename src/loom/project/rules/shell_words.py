"""The commands in a line of the shell, word by word, as the shell would run them.

Quotes and backslashes are taken off. What only the shell knows (the value of a variable, the output
of another command, the files of a pattern) is WILD: it may be anything. Commands inside of others
(`$(…)`, backticks, `<(…)`, groups) are listed too. A line that a shell would refuse is cut roughly.
"""

import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct

WILD = "\0"  # stands for any characters, or none
WILD_WORD = "\1"  # the same in quotes: no blanks
SHELLS = frozenset(["ash", "bash", "dash", "eval", "fish", "ksh", "sh", "su", "zsh"])
MAX_DEPTH = 8  # of commands inside of commands
_ENDS = frozenset(";|&\n\r()")
_BLANKS = frozenset(" \t")
_PATTERN_SIGNS = frozenset("*?[{")
_NAME = re.compile(r"\w+|[@*#?$!-]")
_ROUGH_SIGNS = re.compile(r"[();|&\n\r`]")
_ESCAPED_IN_QUOTES = frozenset('$`"\\')


class ShellCommand(Struct, frozen=True):
    """One command: the text as it is written, and its words."""

    text: str
    words: tuple[str, ...]


def read_commands(line: str, depth: int = 0) -> list[ShellCommand]:
    """The commands of a line, with those inside of others."""
    if depth > MAX_DEPTH:
        return [ShellCommand(line, (WILD,))]
    try:
        return _LineReader(line, depth).read()
    except _NotShell:
        return list(_cut_roughly(line))


def _cut_roughly(line: str) -> Iterator[ShellCommand]:
    for part in _ROUGH_SIGNS.split(line):
        text = part.strip().strip("\"'$<> ")
        if text:
            yield ShellCommand(text, tuple(text.split()))


class _NotShell(Exception):
    """A quotation or a substitution does not end."""


class _LineReader:
    """Reads a line from left to right."""

    def __init__(self, line: str, depth: int) -> None:
        self._line, self._depth, self._at = line, depth, 0
        self._start = 0  # of the command
        self._words: list[str] = []
        self._word: str | None = None
        self._is_target = False  # the next word is that of a redirection
        self._found: list[ShellCommand] = []
        self._inner: list[ShellCommand] = []
        self._is_quoted = False
        self._is_here = False  # the next word ends a text that follows
        self._here_ends: list[tuple[str, bool]] = []  # and whether the shell reads the text
        self._texts: list[str] = []

    def read(self) -> list[ShellCommand]:
        while self._at < len(self._line):
            self._read_next()
        self._end_command()
        if any(posixpath.basename(w) in SHELLS for each in self._found for w in each.words):
            for text in self._texts:
                self._inner += read_commands(text, self._depth + 1)
        return [*self._found, *self._inner]

    def _read_next(self) -> None:
        sign = self._line[self._at]
        if self._read_expansion(sign) or self._read_quoted(sign):
            return
        if sign in "<>":
            self._begin_redirection()
        elif sign in _ENDS:
            self._end_command()
            self._at += 1
            if sign == "\n":
                self._read_texts()
            self._start = self._at
        elif sign in _BLANKS:
            self._end_word()
            self._at += 1
        elif sign == "#" and self._word is None:
            self._skip_comment()
        elif sign in _PATTERN_SIGNS:
            self._add_pattern(sign)
        else:
            self._add(sign)
            self._at += 1

    # Words

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _add_pattern(self, sign: str) -> None:
        """A sign that the shell replaces by the names of files, or by words."""
        self._at += 1
        ends_word = self._next() in (*_BLANKS, "\n", ";", "")
        is_command = sign in "[{" and self._word in (None, sign) and (ends_word or sign == "[")
        is_command = is_command and (ends_word or self._next() == "[")
        self._add(sign if is_command else WILD)
        if sign in "[{" and not is_command:
            close = "]" if sign == "[" else "}"
            end = self._line.find(close, self._at)
            blank = re.search(r"\s", self._line[self._at :])
            if end >= 0 and (blank is None or end < self._at + blank.start()):
                self._at = end + 1

    def _end_word(self) -> None:
        if self._word is None:
            return
        if self._is_here:
            is_plain = self._line[self._at - 1] not in "'\""
            self._here_ends.append((self._word, is_plain))
        elif not self._is_target:
            self._words.append(self._word)
        self._word, self._is_target, self._is_here = None, False, False

    def _end_command(self) -> None:
        self._end_word()
        text = self._line[self._start : self._at].strip()
        if self._words:
            self._found.append(ShellCommand(text, tuple(self._words)))
        self._words, self._is_target = [], False

    def _begin_redirection(self) -> None:
        if self._word is not None and self._word.isdigit():
            self._word = None  # the number of what is redirected
        self._end_word()
        start = self._at
        while self._next() in ("<", ">", "&", "|", "-"):
            self._at += 1
        self._is_target = True
        self._is_here = self._line[start : self._at] in ("<<", "<<-")

    def _read_texts(self) -> None:
        """The texts that follow a line with `<<END`, each up to its end."""
        for end, is_read in self._here_ends:
            lines: list[str] = []
            while self._at < len(self._line):
                line, newline, _ = self._line[self._at :].partition("\n")
                self._at += len(line) + len(newline)
                if line.strip("\t") == end:
                    break
                lines.append(line)
            text = "\n".join(lines)
            self._texts.append(text)
            if is_read:
                escaped = text.replace('"', '\\"')
                self._inner += _LineReader(f'"{escaped}"', self._depth + 1).read()[1:]
        self._here_ends = []

    def _skip_comment(self) -> None:
        end = self._line.find("\n", self._at)
        self._at = len(self._line) if end < 0 else end

    def _next(self) -> str:
        return self._line[self._at : self._at + 1]

    # Quotes

    def _read_quoted(self, sign: str) -> bool:
        if sign == "\\":
            escaped = self._line[self._at + 1 : self._at + 2]
            if escaped != "\n":  # that one joins two lines
                self._add(escaped)
            self._at += 2
        elif sign == "'":
            end = self._find("'", self._at + 1)
            self._add(self._line[self._at + 1 : end])
            self._at = end + 1
        elif sign == '"':
            self._at += 1
            self._read_double_quoted()
        else:
            return False
        return True

    def _read_double_quoted(self) -> None:
        self._add("")
        self._is_quoted = True
        while (sign := self._next()) != '"':
            if not sign:
                raise _NotShell
            if self._read_expansion(sign):
                continue
            if sign == "\\" and self._line[self._at + 1 : self._at + 2] in _ESCAPED_IN_QUOTES:
                self._at += 1
                sign = self._next()
            self._add(sign)
            self._at += 1
        self._is_quoted = False
        self._at += 1

    def _find(self, sign: str, start: int) -> int:
        end = self._line.find(sign, start)
        if end < 0:
            raise _NotShell
        return end

    # What the shell puts in

    def _read_expansion(self, sign: str) -> bool:
        """A variable, or a command whose output is put in."""
        pair = self._line[self._at : self._at + 2]
        if sign == "`":
            end = self._find_backtick()
            self._read_inner(self._line[self._at + 1 : end].replace("\\`", "`"), end + 1)
        elif pair == "$(" or (pair in ("<(", ">(") and not self._is_quoted):
            end = self._find_close(self._at + 2, "(", ")")
            self._read_inner(self._line[self._at + 2 : end], end + 1)
        elif pair == "${":
            end = self._find_close(self._at + 2, "{", "}")
            self._read_inner(self._line[self._at + 2 : end], end + 1)
        elif pair == "$'" and not self._is_quoted:
            self._read_escapes()
        elif sign == "$" and (name := _NAME.match(self._line, self._at + 1)):
            self._add_wild()
            self._at = name.end()
        elif pair == '$"' and not self._is_quoted:
            self._at += 1  # a text that is translated: the quotation follows
        else:
            return False
        return True

    def _read_inner(self, text: str, end: int) -> None:
        self._inner += read_commands(text, self._depth + 1)
        self._add_wild()
        self._at = end

    def _add_wild(self) -> None:
        self._add(WILD_WORD if self._is_quoted else WILD)

    def _find_backtick(self) -> int:
        at = self._at + 1
        while self._line[at : at + 1] != "`":
            if at >= len(self._line):
                raise _NotShell
            at += 2 if self._line[at] == "\\" else 1
        return at

    def _find_close(self, at: int, opening: str, closing: str) -> int:
        """Where a bracket closes, past quotations and other brackets."""
        depth = 1
        while at < len(self._line):
            sign = self._line[at]
            if sign == "\\":
                at += 1
            elif sign in "'\"":
                at = self._find(sign, at + 1)
            elif sign == opening:
                depth += 1
            elif sign == closing:
                depth -= 1
                if depth == 0:
                    return at
            at += 1
        raise _NotShell

    def _read_escapes(self) -> None:
        r"""A text such as $'\x70ush'."""
        end = self._at + 2
        while self._line[end : end + 1] != "'":
            if end >= len(self._line):
                raise _NotShell
            end += 2 if self._line[end] == "\\" else 1
        try:
            self._add(self._line[self._at + 2 : end].encode().decode("unicode_escape"))
        except UnicodeDecodeError:
            self._add(WILD)
        self._at = end + 1
