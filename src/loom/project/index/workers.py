"""Reading many files at once: this process takes its part, and helpers on the other cores take
theirs.

Helpers are plain programs that talk through pipes. Python's own pools would need a main module that
can be imported again, or a fork, which is not safe beside threads. Tree-sitter does not let other
threads run, so threads would not help. A helper that cannot be started or dies is no error: what it
had is read here. Of what one fell silent over only the paths are known: it would silence this
process too.
"""

import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from loom.project.index.entries import Entry, digest_of, pack_entry, read_entry, unpack_entry
from loom.project.index.files import MAX_FILE_BYTES, FoundFile, read_text

# bytes to read for which helpers are started: less is read before they are awake
MIN_HELPED_BYTES = 2**20
MAX_HELPERS = 7
SILENT_SECONDS = 30.0
_OPENING = 1000  # bytes that could be read while a file is opened
_CHUNK_BYTES = 96 * 1024
_CHUNK_FILES = 48
_CHUNKS_AHEAD = 2  # chunks that a helper is given before it answers, so that it never waits for us
_AWAKE = b"loom reads\n"
_MAX_CHATTER_BYTES = 2**16  # bytes that whatever else runs in a helper may have said before
_LENGTH = struct.Struct("<I")
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from loom.project.index.workers import serve; "
    "serve(sys.argv[1])"
)

_Chunk = Sequence[str]
_encode = msgspec.msgpack.Encoder().encode
_paths = msgspec.msgpack.Decoder(list[str])
_answers = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]])


class Fresh(Struct, frozen=True, gc=False):
    """A file that was just read: its entry, the digest of its text, and the entry's bytes where
    they are at hand.
    """

    entry: Entry
    digest: bytes
    data: bytes | None = None


def read_all(
    root: Path, files: Sequence[FoundFile], words: dict[str, str]
) -> Generator[Fresh, None, None]:
    """Read files, in whatever order is quickest. Close this iterator if you leave it early."""
    chunks = deque(_chunks(files))
    answers: _Answers = queue.SimpleQueue()
    helpers = _start_helpers(root, sum(map(_cost, files)), chunks, answers)
    busy = len(helpers)
    try:
        while chunks or busy:
            with suppress(IndexError):
                yield from _read_here(root, chunks.popleft())
            answer = _next(answers, helpers, wait=not chunks and busy > 0)
            while answer:
                busy -= answer.is_last
                if answer.data:
                    yield from _read_there(answer, words)
                else:
                    yield from (_unread if answer.is_lost else _read_here)(root, answer.chunk)
                answer = _next(answers, helpers, wait=False)
    finally:
        for helper in helpers:
            helper.end()


def _next(answers: "_Answers", helpers: "Sequence[_Helper]", *, wait: bool) -> "_Answer | None":
    try:
        return answers.get(block=wait, timeout=SILENT_SECONDS)
    except queue.Empty:
        for helper in helpers if wait else ():
            helper.give_up()
        return None


def _cost(found: FoundFile) -> int:
    return _OPENING + (0 if found.size > MAX_FILE_BYTES else found.size)


def _chunks(files: Sequence[FoundFile]) -> Iterator[_Chunk]:
    """The largest files first, so that nobody is left with one when all others are done."""
    chunk: list[str] = []
    total = 0
    for found in sorted(files, key=_cost, reverse=True):
        chunk.append(found.path)
        total += _cost(found)
        if total >= _CHUNK_BYTES or len(chunk) >= _CHUNK_FILES:
            yield chunk
            chunk, total = [], 0
    if chunk:
        yield chunk


def _read_here(root: Path, chunk: _Chunk) -> Iterator[Fresh]:
    for path in chunk:
        digest, entry = read_entry(root, path)
        yield Fresh(entry, digest)


def _unread(root: Path, chunk: _Chunk) -> Iterator[Fresh]:
    for path in chunk:
        yield Fresh(Entry(path), digest_of(read_text(root, path)))


class _Answer(Struct, frozen=True):
    """What a helper read of a chunk; no data where it did not come to that, or fell silent over it.
    The last one has no chunk.
    """

    chunk: _Chunk = ()
    data: bytes = b""
    is_lost: bool = False

    @property
    def is_last(self) -> bool:
        return not self.chunk


_Answers = queue.SimpleQueue[_Answer]


def _read_there(answer: _Answer, words: dict[str, str]) -> Iterator[Fresh]:
    for path, (digest, data) in zip(answer.chunk, _answers.decode(answer.data), strict=True):
        yield Fresh(unpack_entry(path, data, words), digest, data)


# Helpers


def _start_helpers(
    root: Path, cost: int, chunks: "deque[_Chunk]", answers: _Answers
) -> "list[_Helper]":
    if cost < MIN_HELPED_BYTES or not _is_python(sys.executable):
        return []
    helpers: list[_Helper] = []
    # no more processes, an odd path, no more threads
    with suppress(OSError, ValueError, RuntimeError):
        for _ in range(min(_cores() - 1, MAX_HELPERS)):
            helpers.append(_Helper(root, chunks, answers))
    return helpers


def _is_python(program: str | None) -> bool:
    """Whether a program can be told to run our code; one with Python inside would start itself
    again.
    """
    return (
        bool(program)
        and not getattr(sys, "frozen", False)
        and Path(str(program)).name.lower().startswith(("python", "pypy"))
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Helper:
    """A process that reads chunks, and the thread that hands them to it and takes what it
    answers.
    """

    def __init__(self, root: Path, chunks: "deque[_Chunk]", answers: _Answers) -> None:
        self._chunks, self._answers = chunks, answers
        self._given: deque[_Chunk] = deque()
        self._awake = self._is_given_up = False
        self._process = subprocess.Popen(
            # -P: a file next to the user must not pass for a module of Python's.
            [
                sys.executable,
                "-P",
                "-c",
                _START,
                os.fspath(root),
                *(folder or os.getcwd() for folder in sys.path),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout
        self._thread = threading.Thread(target=self._talk, name="loom-index", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.kill()
            raise

    def _talk(self) -> None:
        try:
            for _ in range(_CHUNKS_AHEAD):
                self._give()
            while self._given and self._is_awake() and (data := _receive(self._from)):
                self._answers.put(_Answer(self._given.popleft(), data))
                self._give()
        except (OSError, ValueError):
            pass
        for chunk in self._given:
            self._answers.put(_Answer(chunk, is_lost=self._awake and self._is_given_up))
        self._answers.put(_Answer())

    def _is_awake(self) -> bool:
        said = 0
        while (
            not self._awake
            and said < _MAX_CHATTER_BYTES
            and (line := self._from.readline(_MAX_CHATTER_BYTES))
        ):
            said += len(line)
            self._awake = line.endswith(_AWAKE)
        return self._awake

    def _give(self) -> None:
        with suppress(IndexError):
            chunk = self._chunks.popleft()
            self._given.append(chunk)
            _send(self._to, _encode(chunk))

    def give_up(self) -> None:
        self._is_given_up = True
        self.kill()

    def kill(self) -> None:
        with suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._to, self._from):
            with suppress(OSError):  # what was not yet sent cannot be sent any more
                pipe.close()


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    """What the other side sent; nothing where it has ended."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) == length:
        return data
    return b""


def serve(root: str) -> None:
    """The helper itself: read what is asked for until nobody asks any more."""
    # whoever started it is interrupted too, and ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    answers.write(_AWAKE)
    while data := asked.get():
        read = (read_entry(Path(root), path) for path in _paths.decode(data))
        _send(answers, _encode([(digest, pack_entry(entry)) for digest, entry in read]))


def _listen(asked: "queue.SimpleQueue[bytes]") -> None:
    """Requests are taken at once: two that wait for each other to read would wait for ever."""
    while True:
        data = _receive(sys.stdin.buffer)
        asked.put(data)
        if not data:
            return
