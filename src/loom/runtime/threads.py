"""Verbs off the event loop: each synchronous verb of a kept thing has a form `a…` that runs in a
thread of the store's own.

Rules: the verbs of one object run one after the other, in the order in which they got their turn.
What is written is written, also where the task that waits for it is cancelled meanwhile. Events of
such a verb are delivered on the event loop that waits.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import update_wrapper
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

# Weaving is Python, and Python runs one thread at a time: more threads would only take turns away
# from the event loop. A second one lets short verbs pass a long one (an import, an export, a map).
# PostgreSQL is waited for, so more can wait at once.
WORKERS = {"sqlite": 2, "postgres": 6}
BATCH_LINES = 256  # of an export, fetched in one go

_P = ParamSpec("_P")
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class Threads:
    """The threads of one store. They begin with the first verb that needs one; a process that was
    forked has its own.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._process = os.getpid()
        self._pool: ThreadPoolExecutor | None = None

    def submit(
        self, turn: AbstractContextManager[Any], work: Callable[[], _T]
    ) -> "asyncio.Future[_T]":
        """Let work begin in a thread, when it is its object's turn."""

        def run() -> _T:
            with turn:
                return work()

        return asyncio.get_running_loop().run_in_executor(self._own(), copy_context().run, run)

    def _own(self) -> ThreadPoolExecutor:
        if self._pool is None or self._process != os.getpid():
            self._process = os.getpid()
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="loom")
        return self._pool

    def close(self) -> None:
        """Wait for what was asked for before."""
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown(wait=True)
        self._pool = None


class RunsOffLoop(Protocol):
    """A thing whose verbs can run off the event loop."""

    async def run_off_loop(self, work: Callable[[], _T]) -> _T: ...


_S = TypeVar("_S", bound=RunsOffLoop)


def async_form(
    verb: Callable[Concatenate[_S, _P], _T],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """The form `a…` of a verb: the same, awaited."""
    name = verb.__name__

    async def run(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        work: Callable[..., _T] = getattr(self, name)  # as the object's own class has it
        return await self.run_off_loop(lambda: work(*args, **kwargs))

    return _copy_description(run, verb)


def async_value(value: Callable[[_S], _T]) -> Callable[[_S], Coroutine[Any, Any, _T]]:
    """The form `a…` of a property that reads the store."""
    getter: Callable[[_S], _T] = value.fget if isinstance(value, property) else value

    async def run(self: _S) -> _T:
        return await self.run_off_loop(lambda: getter(self))

    return _copy_description(run, getter)


def async_lines(
    verb: Callable[Concatenate[_S, _P], Iterator[_T]],
) -> Callable[Concatenate[_S, _P], AsyncIterator[_T]]:
    """The form `a…` of a verb that gives many things, for `async for`."""
    name = verb.__name__

    async def run(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        work: Callable[..., Iterator[_T]] = getattr(self, name)
        lines = await self.run_off_loop(lambda: work(*args, **kwargs))
        while batch := await self.run_off_loop(lambda: list(islice(lines, BATCH_LINES))):
            for line in batch:
                yield line

    return _copy_description(run, verb)


def _copy_description(run: _F, verb: Callable[..., Any]) -> _F:
    """The function with the verb's signature and description, under its own name."""
    update_wrapper(run, verb)
    run.__name__ = f"a{verb.__name__}"
    run.__qualname__ = f"{verb.__qualname__.rpartition('.')[0]}.a{verb.__name__}"
    return run
