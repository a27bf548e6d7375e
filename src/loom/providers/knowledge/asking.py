"""Ask knowledge bases within a time limit.

Rules of this file:
- Nothing that a knowledge base does can fail a request: it may hang, raise or answer nonsense. It
  costs its time limit and a note.
- All bases are asked at the same time.
- `async def query` runs on the caller's event loop, so that its connections work. A plain `query`
  runs in a thread of its own. The thread is left behind if it is too late.
- A base with too many threads left behind is not asked again until one of them ends.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from loom.errors import ChoiceError, describe, shorten
from loom.providers.knowledge.items import KnowledgeItem, read_items

MAX_ITEMS = 3  # in a request
DEFAULT_SECONDS = 0.1
MAX_LATE_THREADS = 4  # of one base
MAX_QUESTION_CHARS = 4000
MAX_NOTE_CHARS = 200


class KnowledgeBase(Protocol):
    """Anything with `query`, which may be `async` or not.

    It returns the items that fit the text best, the best first. An item has `content`, `source` and
    `score`.
    """

    def query(self, text: str, *, limit: int = MAX_ITEMS) -> Any: ...


class Findings(Struct, frozen=True):
    """What knowledge bases found for a question, the best first, and what went wrong."""

    items: tuple[KnowledgeItem, ...] = ()
    notes: tuple[str, ...] = ()


def check_bases(given: object) -> tuple[KnowledgeBase, ...]:
    """Knowledge bases, as a caller gives them: one, or a list of them."""
    if given is None:
        return ()
    bases = tuple(given) if isinstance(given, list | tuple) else (given,)
    for base in bases:
        if not callable(getattr(base, "query", None)) or isinstance(base, type):
            raise ChoiceError(
                f"knowledge must be an object with query(text, limit=…), found {describe(base)}"
            )
    return bases


async def ask_bases(
    bases: Sequence[KnowledgeBase],
    question: str,
    *,
    limit: int = MAX_ITEMS,
    seconds: float = DEFAULT_SECONDS,
) -> Findings:
    """What these bases find for a question within a time limit, and a note for each that failed."""
    question = question[:MAX_QUESTION_CHARS]
    if not bases or not question.strip() or limit < 1:
        return Findings()
    asked = [_ask_one(base, question, limit, seconds) for base in bases]
    answers = await asyncio.gather(*asked)
    found = [item for answer in answers for item in answer.items]
    unique = {item.content: item for item in reversed(found)}
    best = sorted(
        (item for item in found if unique[item.content] is item),
        key=lambda item: -round(item.score, 6),
    )
    return Findings(tuple(best[:limit]), tuple(note for each in answers for note in each.notes))


async def _ask_one(base: KnowledgeBase, question: str, limit: int, seconds: float) -> Findings:
    name = name_of(base)
    if _late_threads(base) >= MAX_LATE_THREADS:
        return Findings(notes=(f"{name} was not asked: it still has not answered earlier ones",))
    task = asyncio.ensure_future(_query(base, question, limit))
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
        # a base that ends with an error after its time is of no interest
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return Findings(notes=(f"{name} did not answer within {round(seconds * 1000):,} ms",))
    if task.cancelled():
        return Findings(notes=(f"{name} failed: it was cancelled",))
    error = task.exception()
    if error is not None:
        said = shorten(" ".join(f"{type(error).__name__}: {error}".split()), MAX_NOTE_CHARS)
        return Findings(notes=(f"{name} failed: {said}",))
    items, problems = task.result()
    return Findings(tuple(items), tuple(f"{name}: {problem}" for problem in problems))


def name_of(base: object) -> str:
    """What a knowledge base is called in a note."""
    name = getattr(base, "name", None)
    return f"knowledge base {name if isinstance(name, str) and name else type(base).__name__}"


async def _query(
    base: KnowledgeBase, question: str, limit: int
) -> tuple[list[KnowledgeItem], list[str]]:
    if iscoroutinefunction(base.query):
        found = await base.query(question, limit=limit)
    else:
        found = await run_in_thread(lambda: base.query(question, limit=limit), base)
        if isawaitable(found):
            found = await found
    # what an answer holds may be computed as it is read
    if isinstance(found, list | tuple):
        return read_items(found, limit)
    read = await run_in_thread(lambda: read_items(found, limit), base)
    assert isinstance(read, tuple)
    return read


# Threads that may be left behind

_late: "WeakKeyDictionary[object, set[threading.Thread]]" = WeakKeyDictionary()
_late_lock = threading.Lock()


def _late_threads(base: object) -> int:
    with _late_lock, suppress(TypeError):  # some objects cannot be referred to weakly
        alive = {thread for thread in _late.get(base, ()) if thread.is_alive()}
        _late[base] = alive
        return len(alive)
    return 0


async def run_in_thread(work: Callable[[], Any], base: object = None) -> Any:
    """What work returns that may hang. It runs in a thread that does not keep a program from
    ending, and that counts as late for `base` once nobody waits for it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
            if isinstance(raised, StopIteration):  # no future takes it
                error = RuntimeError(repr(raised))
        with suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=run, name="loom-knowledge", daemon=True)
    thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        with _late_lock, suppress(TypeError):
            _late.setdefault(base, set()).add(thread)
        raise


async def settle(value: "Awaitable[Any] | Any") -> Any:
    """A value, awaited if it has to be."""
    if isawaitable(value):
        return await value
    return value


def run_now(work: Callable[[], Awaitable[Any]]) -> Any:
    """What a coroutine returns, for a caller that is not asynchronous. It runs on a loop of its
    own, in a thread of its own where the caller's thread already has a loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_wait(work))
    result: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(_wait(work)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="loom-knowledge", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return result[0]


async def _wait(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()
