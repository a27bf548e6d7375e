"""Reading files: this process reads what no grammar is needed for, helpers on the other cores read
the rest, and take their part of many files.

Helpers are plain programs that talk through pipes. Python's own pools would need a main module that
can be imported again, or a fork, which is not safe beside threads. Tree-sitter does not let other
threads run, so threads would not help. And a grammar may loop or take all memory over a text: a
helper has limits of both, so it ends, and this process does not wait. The file that a helper ended
or fell silent over is read by how its lines begin, all others by another helper. One helper waits
for the next change. Where none can be started, grammars are used here.
"""

import atexit
import gc
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from loom.project.index.entries import ReadFile, pack_entry, unpack_entry
from loom.project.index.files import MAX_FILE_BYTES, FoundFile
from loom.project.index.making import read_entry
from loom.project.parse.languages import Way, needs_grammar

# bytes to read for which helpers are started: less is read before they are awake
MIN_HELPED_BYTES = 2**20
MAX_HELPERS = 7
WAKE_SECONDS = 30.0  # that a helper may take to start
SILENT_SECONDS = 30.0  # that it may take for a file
MAX_FILE_SECONDS = 8  # of a processor, that a helper may take for one file
MAX_HELPER_BYTES = 2 * 2**30  # of memory that a helper may take
# files of one kind, and of any, that helpers end over before the rest is read without grammars
MAX_LOSSES_BY_ENDING, MAX_LOSSES = 2, 6
_OPENING = 1000  # bytes that could be read while a file is opened
_CHUNK_BYTES = 96 * 1024
_CHUNK_FILES = 48
_CHUNKS_AHEAD = 2  # chunks that a helper is given before it answers, so that it never waits for us
_AWAKE = b"loom reads\n"
_MAX_CHATTER_BYTES = 2**16  # bytes that whatever else runs in a helper may have said before
_LENGTH = struct.Struct("<I")
_START = (
    "import sys; sys.path[:] = sys.argv[3:]; from loom.project.index.workers import serve; "
    "serve(int(sys.argv[1]), int(sys.argv[2]))"
)

_Chunk = deque[str]
_encode = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(tuple[bytes, list[str]])
_answers = msgspec.msgpack.Decoder(tuple[bytes, bytes])


def read_all(root: Path, files: Sequence[FoundFile]) -> Generator[ReadFile, None, None]:
    """Read files, in whatever order is quickest. Close this iterator if you leave it early."""
    reading = _Reading(root, files)
    try:
        yield from reading.run()
    finally:
        reading.end()


class _Answer(Struct, frozen=True):
    """What a helper read of a file; no data if it ended over it. The last one of a helper has no
    path.
    """

    path: str = ""
    data: bytes = b""


_Answers = queue.SimpleQueue[_Answer]


class _Work:
    """The files that are still to be read: those that only helpers read, and those that anybody
    may.
    """

    def __init__(self, files: Sequence[FoundFile]) -> None:
        apart = [found for found in files if needs_grammar(found.path)]
        plain = [found for found in files if not needs_grammar(found.path)]
        self.cost_apart, self.cost = sum(map(_cost, apart)), sum(map(_cost, files))
        self.apart = deque(chunk for kind in _by_kind(apart) for chunk in _chunks(kind))
        self.plain = deque(_chunks(plain))

    def take(self) -> _Chunk | None:
        """The next chunk for a helper."""
        for chunks in (self.apart, self.plain):
            with suppress(IndexError):
                return chunks.popleft()
        return None

    def take_kind(self, ending: str) -> list[str]:
        """All that only helpers read, of files with this ending."""
        chunks, found = list[_Chunk](), list[str]()
        with suppress(IndexError):
            while True:
                chunks.append(self.apart.popleft())
        for chunk in chunks:
            found += [path for path in chunk if path.endswith(ending)]
            if rest := deque(path for path in chunk if not path.endswith(ending)):
                self.apart.append(rest)
        return found


class _Reading:
    """One reading of files: what is left, who helps, and what helpers were lost over."""

    def __init__(self, root: Path, files: Sequence[FoundFile]) -> None:
        self._root = root
        self._work = _Work(files)
        self._answers: _Answers = queue.SimpleQueue()
        self._helpers: list[_Helper] = []
        self._busy = 0
        self._is_alone = False  # no helper can be had
        self._is_held_up = False  # a helper did not start in time, so nothing here may take long
        self._lost: Counter[str] = Counter()
        self._start_helpers(_helpers_for(self._work))

    def run(self) -> Iterator[ReadFile]:
        work, later = self._work, deque[str]()
        while work.plain or work.apart or later or self._busy:
            with suppress(IndexError):
                yield from self._read_here(work.plain.popleft(), later)
            if not work.plain and later:
                work.apart.append(later)
                later = deque()
            if work.apart and not self._busy:
                yield from self._begin_again()
            yield from self._take_answers(wait=not work.plain and self._busy > 0)

    def end(self) -> None:
        for helper in self._helpers:
            helper.end()

    def _start_helpers(self, number: int) -> None:
        try:
            for _ in range(number):
                self._helpers.append(_Helper(self._root, self._work, self._answers))
                self._busy += 1
        # no more processes, an odd path, no more threads
        except (OSError, ValueError, RuntimeError):
            self._is_alone = not self._helpers

    def _begin_again(self) -> Iterator[ReadFile]:
        """Another helper for what is left, or what is left is read here."""
        if not self._is_alone and self._lost.total() < MAX_LOSSES:
            self._start_helpers(1)
        if not self._busy:
            way: Way = "grammar" if self._is_alone and not self._is_held_up else "lines"
            yield from _read_by(self._root, self._work.apart.popleft(), way)

    def _read_here(self, chunk: _Chunk, later: deque[str]) -> Iterator[ReadFile]:
        """Read files without grammars. Those that turn out to need one are for later."""
        for path in chunk:
            read = read_entry(self._root, path, "plain")
            if read is None:
                later.append(path)
            else:
                yield ReadFile(read[1], read[0])

    def _take_answers(self, *, wait: bool) -> Iterator[ReadFile]:
        """What helpers have answered so far; the first answer may be waited for."""
        answer = self._next(wait)
        while answer:
            if not answer.path:
                self._busy -= 1
                is_awake = any(helper.is_awake for helper in self._helpers)
                self._is_alone = self._is_alone or not is_awake
            elif answer.data:
                digest, data = _answers.decode(answer.data)
                yield ReadFile(unpack_entry(answer.path, data), digest, data)
            else:
                yield from self._read_lost(answer.path)
            answer = self._next(wait=False)

    def _read_lost(self, path: str) -> Iterator[ReadFile]:
        """Read by lines what a helper ended over, and all of its kind if it is not the first."""
        ending = os.path.splitext(path)[1] or path
        self._lost[ending] += 1
        paths = [path]
        if self._lost[ending] >= MAX_LOSSES_BY_ENDING:
            paths += self._work.take_kind(ending)
        yield from _read_by(self._root, paths, "lines")

    def _next(self, wait: bool) -> _Answer | None:
        try:
            return self._answers.get(block=wait, timeout=min(SILENT_SECONDS, WAKE_SECONDS))
        except queue.Empty:
            if wait:
                self._give_up_silent()
            return None

    def _give_up_silent(self) -> None:
        for helper in self._helpers:
            if helper.is_silent():
                helper.kill()
                self._is_held_up = self._is_held_up or not helper.is_awake


def _read_by(root: Path, paths: Iterable[str], way: Way) -> Iterator[ReadFile]:
    for path in paths:
        read = read_entry(root, path, way)
        assert read
        yield ReadFile(read[1], read[0])


def _cost(found: FoundFile) -> int:
    return _OPENING + (0 if found.size > MAX_FILE_BYTES else found.size)


def _by_kind(files: Iterable[FoundFile]) -> list[list[FoundFile]]:
    """Files with the same ending together, the kind with the most to read first: a helper takes
    long to learn a grammar, so not each should have to learn those of a few files.
    """
    kinds: dict[str, list[FoundFile]] = {}
    for found in files:
        kinds.setdefault(os.path.splitext(found.path)[1], []).append(found)
    return sorted(kinds.values(), key=lambda kind: -sum(map(_cost, kind)))


def _chunks(files: Sequence[FoundFile]) -> Iterator[_Chunk]:
    """The largest files first, so that nobody is left with one when all others are done."""
    chunk, total = _Chunk(), 0
    for found in sorted(files, key=_cost, reverse=True):
        chunk.append(found.path)
        total += _cost(found)
        if total >= _CHUNK_BYTES or len(chunk) >= _CHUNK_FILES:
            yield chunk
            chunk, total = _Chunk(), 0
    if chunk:
        yield chunk


# Helpers


def _helpers_for(work: _Work) -> int:
    """How many helpers reading is worth. Where most is for helpers alone, none of the cores is for
    this process.
    """
    if not _is_python(sys.executable):
        return 0
    if work.cost < MIN_HELPED_BYTES:
        return min(1, len(work.apart))
    others = _cores() - (work.cost_apart * 2 < work.cost)
    return min(MAX_HELPERS, max(others, min(1, len(work.apart))))


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


def _command() -> list[str]:
    # -P: a file next to the user must not pass for a module of Python's.
    limits = [str(MAX_FILE_SECONDS), str(MAX_HELPER_BYTES)]
    folders = [folder or os.getcwd() for folder in sys.path]
    return [sys.executable, "-P", "-c", _START, *limits, *folders]


class _Process:
    """The process of a helper, and the pipes to it and from it."""

    def __init__(self) -> None:
        self.is_awake = False
        self._command = _command()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        assert self._process.stdin
        assert self._process.stdout
        self.to, self.answers = self._process.stdin, self._process.stdout

    def wake(self) -> bool:
        """Whether it says what our helper says when it has started; that is waited for."""
        said = 0
        while (
            not self.is_awake
            and said < _MAX_CHATTER_BYTES
            and (line := self.answers.readline(_MAX_CHATTER_BYTES))
        ):
            said += len(line)
            self.is_awake = line.endswith(_AWAKE)
        return self.is_awake

    def is_usable(self) -> bool:
        """Whether it is there, and is what would be started now."""
        return self._process.poll() is None and self._command == _command()

    def kill(self) -> None:
        with suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        self.kill()
        self._process.wait()
        for pipe in (self.to, self.answers):
            with suppress(OSError):  # what was not yet sent cannot be sent any more
                pipe.close()


_idle: list[_Process] = []  # at most one, which waits for the next change


def _idle_process() -> _Process:
    """The process that waits, or a new one."""
    while True:
        try:
            process = _idle.pop()
        except IndexError:
            return _Process()
        if process.is_usable():
            return process
        process.end()


@atexit.register
def end_idle() -> None:
    """End the helper that waits."""
    while _idle:
        _idle.pop().end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # it is the helper of the parent


class _Helper:
    """A process that reads chunks, and the thread that hands them to it and takes what it
    answers.
    """

    def __init__(self, root: Path, work: _Work, answers: _Answers) -> None:
        self._root, self._work, self._answers = os.fsencode(root), work, answers
        self._given: deque[_Chunk] = deque()
        self._is_idle = False
        self._heard = time.monotonic()
        self._process = _idle_process()
        self._thread = threading.Thread(target=self._talk, name="loom-index", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._process.end()
            raise

    @property
    def is_awake(self) -> bool:
        return self._process.is_awake

    def _talk(self) -> None:
        with suppress(OSError, ValueError):
            for _ in range(_CHUNKS_AHEAD):
                self._give()
            is_awake = bool(self._given) and self._process.wake()
            self._heard = time.monotonic()
            while is_awake and self._given and (data := _receive(self._process.answers)):
                self._heard = time.monotonic()
                self._answers.put(_Answer(self._given[0].popleft(), data))
                if not self._given[0]:
                    self._given.popleft()
                    self._give()
        if self._given and self.is_awake:
            self._answers.put(_Answer(self._given[0].popleft()))
        self._is_idle = not self._given and self.is_awake
        self._work.apart.extend(filter(None, self._given))
        self._answers.put(_Answer())

    def is_silent(self) -> bool:
        """Whether nothing came from it for too long."""
        limit = SILENT_SECONDS if self.is_awake else WAKE_SECONDS
        return time.monotonic() - self._heard >= limit

    def _give(self) -> None:
        chunk = self._work.take()
        if chunk:
            self._given.append(chunk)
            _send(self._process.to, _encode((self._root, list(chunk))))

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Let the process wait for the next change if it is idle and none does; else end it."""
        if self._is_idle and not self._thread.is_alive() and not _idle:
            _idle.append(self._process)
            return
        self._process.kill()
        self._thread.join()
        self._process.end()


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


def serve(seconds: int, most_bytes: int) -> None:
    """The helper itself: read what is asked for until nobody asks any more, each file in so many
    seconds of a processor, and all in so many bytes of memory.
    """
    # whoever started it is interrupted too, and ends it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(most_bytes)
    gc.disable()  # nothing here refers to itself, and looking for that takes a tenth of the time
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    answers.write(_AWAKE)
    answers.flush()
    while data := asked.get():
        root, paths = _requests.decode(data)
        for path in paths:
            _limit_time(seconds)
            read = read_entry(Path(os.fsdecode(root)), path, "grammar")
            assert read
            _send(answers, _encode((read[0], pack_entry(read[1]))))


def _limit_memory(most_bytes: int) -> None:
    """End this process where it takes too much memory."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: int) -> None:
    """End this process where it takes too long from now on."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _listen(asked: "queue.SimpleQueue[bytes]") -> None:
    """Requests are taken at once: two that wait for each other to read would wait for ever."""
    while True:
        data = _receive(sys.stdin.buffer)
        asked.put(data)
        if not data:
            return
