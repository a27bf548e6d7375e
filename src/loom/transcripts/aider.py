"""Chat histories of aider (`.aider.chat.history.md`): Markdown, with several chats in one file.

A chat begins with `# aider chat started at DATE`. A line of the user begins with `#### `. What the
program says begins with `> `. Everything else is what the model says. The program ends its own
lines and those of the user with two spaces, so a heading or a quotation of the model is known as
such. In a chat without these spaces, which an editor removes, each line is what it begins with.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.message import Conversation, Message, Role, Text
from loom.dialects.wire import carry
from loom.errors import TranscriptError
from loom.transcripts import files
from loom.transcripts.linked import moment
from loom.transcripts.runs import Run

FORMAT = "aider chat"
NAME = "aider"
_USER, _PROGRAM, _BREAK = "#### ", "> ", "  "
_HEADER = re.compile(r"# aider chat started at (.*)")
_MODEL = re.compile(r"^(?:Main model|Model|Models): (\S+)", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
MAX_OUTPUT_LINES = 1000  # of what the program says at once
_BLANK = "<blank>"  # what the program writes for a request without words


class Speech(Struct):
    """Lines that one speaker says, one after the other."""

    role: Role  # "system" is the program
    lines: list[str]


def matches(start: str) -> bool:
    """Whether a file that begins with these words is a history of aider."""
    return _HEADER.match(start) is not None


def runs(path: Path) -> Iterator[Run]:
    for number, (started, lines) in enumerate(_chats(path)):
        head, messages = _read_chat(lines)
        yield Run(
            number=number,
            format=FORMAT,
            wire="openai",
            head=head,
            messages=messages.__iter__,
            name=started,
            streams=False,
            created=moment(started),
        )


def _chats(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each chat of a file: when it started, and its lines without their ends."""
    started, lines = "", list[str]()
    for number, raw in files.every_line(path):
        try:
            line = raw.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise TranscriptError(
                f"{path}, line {number}: not UTF-8 at byte {error.start}; save it as UTF-8"
            ) from None
        header = _HEADER.fullmatch(line)
        if header is None:
            lines.append(line)
            continue
        if started:
            yield started, lines
        started, lines = header[1].strip(), []
    if started:
        yield started, lines


def _read_chat(lines: list[str]) -> tuple[Conversation, list[Message]]:
    """What was said in a chat. What the program says before all else is carried, and not sent."""
    pieces = list(_divide(lines))
    before = list(takewhile(lambda piece: piece.role == "system", pieces))
    banner = "\n".join(_words(piece) for piece in before)
    messages = [
        Message(piece.role, (Text(words),))
        for piece in pieces[len(before) :]
        if (words := _words(piece))
    ]
    if messages and banner:
        messages[0] = replace(messages[0], carried=carry(NAME, {"started": banner}))
    model = _MODEL.search(banner)
    return Conversation(messages=(), model=model[1] if model else ""), messages


def _words(piece: Speech) -> str:
    """What a speaker says, without the marks of the file."""
    match piece.role:
        case "user":
            lines = [line[len(_USER) :].removesuffix(_BREAK) for line in piece.lines]
        case "system":
            lines = [line.removeprefix(_PROGRAM).removesuffix(_BREAK) for line in piece.lines]
        case _:
            lines = piece.lines
    text = "\n".join(lines).strip("\n")
    if piece.role == "user" and text == _BLANK:
        return ""
    return text


def _divide(lines: list[str]) -> Iterator[Speech]:
    """The lines of a chat by speaker. An empty line ends what the user says."""
    marked = _SpeakerMarks(lines)
    piece: Speech | None = None
    for n, line in enumerate(lines):
        if not line and piece is None:
            continue
        if not line and piece is not None and piece.role != "user":
            piece.lines.append(line)
            continue
        role = marked.speaker(n, piece) if line else None
        if piece is not None and role != piece.role:
            yield piece
            piece = None
        if role is not None:
            piece = piece or Speech(role, [])
            piece.lines.append(line)
    if piece is not None:
        yield piece


class _SpeakerMarks:
    """Which lines of a chat are marked as those of the user and of the program."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._strict = any(_is_marked(line, _USER) for line in lines)
        self._users = [n for n, line in enumerate(lines) if self._has_mark(line, _USER)]
        self._in_code = _find_code(lines, self._users if self._strict else [])
        self._output_until = -1  # the last line of what the program says in several

    def speaker(self, n: int, before: Speech | None) -> Role:
        """Who says a line, after this piece."""
        line = self._lines[n]
        if n <= self._output_until:
            return "system"
        if self._in_code[n]:
            return "assistant"
        if self._has_mark(line, _USER):
            return "user"
        if self._has_mark(line, _PROGRAM):
            return "system"
        if line.startswith(_PROGRAM) and self._begins_output(n, before):
            return "system"
        return "assistant"

    def _has_mark(self, line: str, mark: str) -> bool:
        if self._strict:
            return _is_marked(line, mark)
        return line.startswith(mark) or line == mark.rstrip()

    def _begins_output(self, n: int, before: Speech | None) -> bool:
        """Whether the program says several lines from here on: only the first is marked, and only
        the last ends with two spaces.
        """
        if before is not None and before.role == "assistant" and self._lines[n - 1]:
            return False  # a quotation inside a paragraph
        for end in range(n + 1, min(n + MAX_OUTPUT_LINES, len(self._lines))):
            line = self._lines[end]
            if line.startswith((_USER, _PROGRAM)):
                return False
            if line.endswith(_BREAK):
                self._output_until = end
                return True
        return False


def _is_marked(line: str, mark: str) -> bool:
    return line.startswith(mark) and line.endswith(_BREAK)


def _find_code(lines: list[str], users: list[int]) -> bytearray:
    """For each line, whether it is inside a fence that closes, with no line of the user in it."""
    closing: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if _FENCE.fullmatch(line.rstrip()):
            closing.setdefault(line.strip(), []).append(n)
    inside = bytearray(len(lines))
    n = 0
    while n < len(lines):
        fence = _FENCE.match(lines[n])
        end = _next_after(n, closing.get(fence[1], [])) if fence else None
        spoken = _next_after(n, users)
        if end is None or (spoken is not None and spoken < end):
            n += 1
            continue
        inside[n + 1 : end + 1] = bytes([True]) * (end - n)
        n = end + 1
    return inside


def _next_after(n: int, places: list[int]) -> int | None:
    """The first of these places, which are in order, after a place."""
    at = bisect_right(places, n)
    if at < len(places):
        return places[at]
    return None
