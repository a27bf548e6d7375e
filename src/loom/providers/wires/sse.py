"""Server-sent events, both ways: the lines by which providers stream an answer."""

import re
from collections.abc import Iterator

from msgspec import Struct

from loom.errors import BrokenAnswer

MAX_EVENT_BYTES = 64 * 2**20  # of one event; more is a fault of the server
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"[\r\n]")


class SseEvent(Struct, frozen=True):
    """One event: its name, "" if it has none, and its data, lines joined by line breaks."""

    name: str
    data: str


class SseReader:
    """Reads events from bytes, however these are cut. An event counts when the blank line after it
    has come; what comes after the last blank line is not an event.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._lines: list[bytes] = []
        self._size = 0
        self._scanned = 0  # bytes in which there is no end of a line
        self._is_first = True

    def feed(self, content: bytes) -> Iterator[SseEvent]:
        """The events that are whole now."""
        self._bytes += content
        while (line := self._take_line()) is not None:
            if line:
                self._lines.append(line)
                self._size += len(line)
            elif self._lines:
                event = _read_event(self._lines)
                self._lines, self._size = [], 0
                if event is not None:
                    yield event
            self._check_size()
        self._check_size()

    def _take_line(self) -> bytes | None:
        """The next whole line without its end. A line ends with LF, CR or both."""
        found = _LINE_END.search(self._bytes, self._scanned)
        if found is None:
            self._scanned = len(self._bytes)
            return None
        at, width = found.start(), 1
        if self._bytes[at : at + 1] == b"\r":
            if at + 1 == len(self._bytes):  # the LF that belongs to it may still come
                self._scanned = at
                return None
            width = 1 + (self._bytes[at + 1 : at + 2] == b"\n")
        line = bytes(self._bytes[:at])
        del self._bytes[: at + width]
        self._scanned = 0
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        return line

    def _check_size(self) -> None:
        if self._size + len(self._bytes) > MAX_EVENT_BYTES:
            raise BrokenAnswer(f"an event of the stream is longer than {MAX_EVENT_BYTES >> 20} MiB")


def _read_event(lines: list[bytes]) -> SseEvent | None:
    name, data = "", []
    for line in lines:
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        if field == b"event":
            name = text
        elif field == b"data":
            data.append(text)
        elif field == b"error":  # so llama.cpp names an error
            name = "error"
            data.append(text)
    if not any(data):  # a comment, or a name without data
        return None
    return SseEvent(name, "\n".join(data))


def write_event(event: SseEvent) -> bytes:
    """An event as it is sent."""
    lines = [f"event: {event.name}"] if event.name else []
    lines += [f"data: {line}" for line in event.data.split("\n")]
    return ("\n".join(lines) + "\n\n").encode(errors="replace")
