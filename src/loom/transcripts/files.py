"""Files as bytes, lines and JSON documents, with errors that say where reading failed.

Lines are read one at a time, so a file of any size is read in the memory of its longest line. A
single JSON document has to be held whole, and one past MAX_DOCUMENT is refused; so is a line past
it.
"""

import atexit
import codecs
import gzip
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from loom.conversation.canonical import from_json
from loom.errors import TranscriptError, UnknownFormat, shorten

MAX_DOCUMENT = 64 * 2**20
MAX_UNPACKED = 16 * MAX_DOCUMENT  # of a packed file, which may hold a thousand times its own size
SAMPLE_LINES = 100  # lines looked at to tell a format
_PEEK = 2**16
_MAX_NAME_CHARS = 300  # of a path in an error


def locate(spec: str) -> tuple[Path, int | None]:
    """The file a FILE or FILE#N names, and N. A name that itself holds a # is taken as it is."""
    path, chosen = Path(spec), None
    head, mark, number = spec.rpartition("#")
    if mark and number.isdecimal() and not _exists(path):
        path, chosen = Path(head), int(number)
    if str(path) == "-":
        return _spool(sys.stdin.buffer), chosen
    if _exists(path) and (path.is_fifo() or path.is_char_device()):
        with path.open("rb") as pipe:
            return _spool(pipe), chosen
    return path, chosen


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no system has such a name
        return False


class _SpooledPath(type(Path())):  # type: ignore[misc]
    """A file that people know as what was sent."""

    def __str__(self) -> str:
        return "standard input"

    def __fspath__(self) -> str:
        return str(super().__str__())


def _spool(stream: BinaryIO) -> Path:
    """A stream, kept in a file so that it can be looked at before it is read."""
    # It outlives this call.
    held = tempfile.NamedTemporaryFile(prefix="loom-", suffix=".json", delete=False)  # noqa: SIM115
    with held:
        shutil.copyfileobj(stream, held)
    atexit.register(os.unlink, held.name)
    return _SpooledPath(held.name)


def unpack_file(path: Path) -> Path:
    """The file itself, or what is in it where it is packed with gzip, under the same name without
    its ending.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return path
    except OSError:
        return path  # inspect says why
    folder = Path(tempfile.mkdtemp(prefix="loom-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    held = folder / path.name.removesuffix(".gz")
    try:
        with gzip.open(path) as packed, held.open("wb") as out:
            while piece := packed.read(_PEEK):
                out.write(piece)
                if out.tell() > MAX_UNPACKED:
                    raise TranscriptError(
                        f"{path} unpacks to more than {MAX_UNPACKED // 2**20} MiB, the limit for "
                        "unpacking; unpack it and read the "
                        "result"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise TranscriptError(f"{path} is a damaged gzip file: {error}") from None
    return held


def inspect(path: Path) -> str:
    """The first words of a file. Raises if it cannot be a transcript whatever it says: missing,
    empty, binary and so on.
    """
    try:
        if path.is_dir():
            raise TranscriptError(f"{path} is a folder; name a file in it")
        with path.open("rb") as file:
            start = file.read(_PEEK)
            while start and start.isspace():
                start = file.read(_PEEK)
    except FileNotFoundError:
        raise TranscriptError(f"{path} does not exist") from None
    except OSError as error:
        raise TranscriptError(
            f"{shorten(str(path), _MAX_NAME_CHARS)} cannot be read: {error.strerror or error}"
        ) from None
    if not start.strip():
        raise TranscriptError(f"{path} is empty")
    for mark, name in (
        (codecs.BOM_UTF32_LE, "UTF-32"),
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
    ):
        if start.startswith(mark):
            raise TranscriptError(f"{path} is {name}; save it as UTF-8")
    if b"\0" in start:
        raise UnknownFormat(
            f"{path} is binary: byte {start.index(0)} is zero; a transcript is JSON or JSON lines "
            "in UTF-8"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=len(start) < _PEEK)
    except UnicodeDecodeError as error:
        raise UnknownFormat(
            f"{path} is not UTF-8: byte {error.start} is {start[error.start]:#04x}; save it as "
            "UTF-8"
        ) from None
    return start[:200].decode("utf-8-sig", "ignore").strip()


def lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The number and the JSON value of each line that is not blank."""
    for number, line in raw_lines(path):
        yield number, parse(path, line, f"line {number}")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The number and the bytes of each line that is not blank."""
    return ((number, line) for number, line in every_line(path) if not line.isspace())


def every_line(path: Path) -> Iterator[tuple[int, bytes]]:
    """The number and the bytes of each line."""
    with path.open("rb") as file:
        _skip_mark(file)
        number = 0
        while line := file.readline(MAX_DOCUMENT + 1):
            number += 1
            if len(line) > MAX_DOCUMENT:
                raise TranscriptError(
                    f"{path}, line {number}: longer than {MAX_DOCUMENT // 2**20} MiB, the limit "
                    "for a line"
                )
            yield number, line


def first_lines(path: Path) -> list[Any] | None:
    """The values of the first lines; nothing where the first line is not JSON value of its own."""
    with path.open("rb") as file:
        _skip_mark(file)
        first = file.readline(MAX_DOCUMENT + 1)
        while first.isspace():
            first = file.readline(MAX_DOCUMENT + 1)
        try:
            from_json(first)
        except ValueError:
            return None
        if len(first) > MAX_DOCUMENT:
            return None
    return [value for _, value in islice(lines(path), SAMPLE_LINES)]


def is_large(path: Path) -> bool:
    """Whether a file is too large to be read as one JSON document."""
    return path.stat().st_size > MAX_DOCUMENT


def list_objects(path: Path) -> Iterator[tuple[str, Any]]:
    """The objects of a file that is one JSON list of them, each with its place. They are read one
    at a time, so that the list may be of any size.
    """
    for number, text in enumerate(_split_list(path)):
        yield f"[{number}]", parse(path, text, f"[{number}]")


# A whole string, or a character that begins or ends something; a quote alone begins a string that
# is not complete yet.
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
_OPENING, _CLOSING = (b"[", b"{"), (b"]", b"}")
_READ_BYTES = 2**22


def _split_list(path: Path) -> Iterator[bytes]:
    """The texts of the objects of a list."""
    with path.open("rb") as file:
        _skip_mark(file)
        held, depth, start, at = b"", 0, 0, 0
        while more := file.read(_READ_BYTES):
            held = held[start:] + more
            at, start = at - start, 0
            if len(held) > MAX_DOCUMENT + _READ_BYTES:
                raise _too_long(path)
            for found in _STRUCTURE.finditer(held, at):
                at = found.start()
                if found[0] == b'"':
                    break
                at = found.end()
                if found[0] in _OPENING:
                    depth += 1
                    start = found.start() if depth == 2 else start
                elif found[0] in _CLOSING:
                    depth -= 1
                    if depth == 1 and at - start > MAX_DOCUMENT:
                        raise _too_long(path)
                    if depth == 1:
                        yield held[start:at]
                        start = at
                if depth == 0 and at:
                    return
            else:
                at = len(held)
            start = min(start, at) if depth > 1 else at
    raise TranscriptError(f"{path}: not valid JSON: the list does not end")


def _too_long(path: Path) -> TranscriptError:
    return TranscriptError(
        f"{path}: an object of the list is longer than {MAX_DOCUMENT // 2**20} MiB, the limit for "
        "one"
    )


def document(path: Path) -> Any:
    """The file as one JSON value."""
    size = path.stat().st_size
    if size > MAX_DOCUMENT:
        raise TranscriptError(
            f"{path} is one JSON document of {size / 2**20:,.0f} MiB; the limit for one document "
            f"is {MAX_DOCUMENT // 2**20} MiB. "
            "Write it as JSON lines, one message or one run in each line"
        )
    return parse(path, path.read_bytes().removeprefix(codecs.BOM_UTF8), "")


def parse(path: Path, text: bytes, where: str) -> Any:
    try:
        value = from_json(text)
        if b"\\ud" in text or b"\\uD" in text:
            return _whole_characters(value)
        return value
    except RecursionError:
        raise TranscriptError(
            f"{path}{', ' + where if where else ''}: not valid JSON: nested too deeply"
        ) from None
    except UnicodeDecodeError as error:
        raise TranscriptError(
            f"{path}{', ' + where if where else ''}: not UTF-8 at byte {error.start}; save it as "
            "UTF-8"
        ) from None
    except ValueError as error:
        place = where or _place(error)
        raise TranscriptError(
            f"{path}{', ' + place if place else ''}: not valid JSON: {_reason(error)}"
        ) from None


def _whole_characters(value: Any) -> Any:
    """The value without halves of surrogate pairs: programs that cut a character in two leave them,
    and no wire takes them.
    """
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    return value


def _skip_mark(file: BinaryIO) -> None:
    if file.read(3) != codecs.BOM_UTF8:
        file.seek(0)


def _place(error: ValueError) -> str:
    line, column = getattr(error, "lineno", None), getattr(error, "colno", None)
    if not line:
        return ""
    return f"line {line}, column {column}"


def _reason(error: ValueError) -> str:
    reason = str(getattr(error, "msg", error))
    if reason[:2].isupper() or reason.startswith("NaN"):
        return reason
    return reason[:1].lower() + reason[1:]
