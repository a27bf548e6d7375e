"""A subscription: a thread that hands events to one handler, in their order.

It reads from where it stands in the history, so that whoever publishes never waits for it. One that
is slower than the history is long misses events, but no direct message.
"""

import asyncio
import inspect
import threading
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from loom.conversation.events import EventFilter, EventRow
from loom.errors import StoreError
from loom.runtime.home import EventHome
from loom.runtime.task import Task

Handler = Callable[[Task], Awaitable[None] | None]
CLOSE_SECONDS = 2.0  # that a handler has to end, before nobody waits for it
RETRY_PAUSES_SECONDS = (0.05, 0.5)  # before a handler that failed is called again
_PAGE_EVENTS = 100
_WAIT_SECONDS = 30.0  # for something to come, before the home is asked again
_RETRY_SECONDS = 1.0  # after a store could not be reached


class Subscription:
    """Events on their way to a handler. Close it, or use it in a `with` block."""

    def __init__(
        self,
        home: EventHome,
        wanted: EventFilter,
        handler: Handler,
        now: Callable[[], int],
        start: int,
        is_acknowledging: bool,
    ) -> None:
        self._home, self._wanted, self._handler, self._now = home, wanted, handler, now
        self._place, self._is_acknowledging = start, is_acknowledging
        self._is_closed = threading.Event()
        try:  # where a coroutine runs
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None
        self._thread = threading.Thread(target=self._run, name="loom-events", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it hands over nothing more."""
        return self._is_closed.is_set()

    def close(self) -> None:
        """Hand over nothing more. A handler that runs now is waited for, at most two seconds."""
        self._is_closed.set()
        self._home.wake()
        is_own = threading.current_thread() is self._thread
        if not is_own and self._loop is None:  # a coroutine may need the loop that waits here
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                _warn(f"a handler still runs {CLOSE_SECONDS:g} s after its subscription was closed")

    def _run(self) -> None:
        while not self.is_closed:
            try:
                self._hand_over_page()
            except StoreError as error:
                if self.is_closed:
                    return
                _warn(f"events cannot be read, and are asked for again: {error}")
                self._is_closed.wait(_RETRY_SECONDS)

    def _hand_over_page(self) -> None:
        place, wanted = self._place, self._wanted
        found, upto = self._home.read_after(place, wanted, self._now(), _PAGE_EVENTS)
        for event in found:
            if self.is_closed:
                return
            self._hand_over(event)
            self._place = event.seq
        self._place = max(self._place, upto)
        if not found:
            self._home.wait(self._place, _WAIT_SECONDS, self._is_closed)

    def _hand_over(self, event: EventRow) -> None:
        """Call the handler. One that raises harms nobody else: its event stays as it is. Where
        events are acknowledged, it is called again a few times.
        """
        pauses = iter(RETRY_PAUSES_SECONDS if self._is_acknowledging else ())
        while not event.has_expired(self._now()):
            try:
                self._call(Task.from_json(event.data))
            except BaseException as error:  # also one that wants to end the thread
                if self.is_closed:
                    return
                _warn(f"a handler failed on event {event.id}: {error!r}")
                pause = next(pauses, None)
                if pause is None or self._is_closed.wait(pause):
                    return
                continue
            if self._is_acknowledging:
                self._home.acknowledge([event.id], self._now())
            return

    def _call(self, task: Task) -> None:
        made: Any = self._handler(task)
        if not inspect.isawaitable(made):
            return
        if self._loop is None or self._loop.is_closed():
            asyncio.run(_wait_for(made))
        else:
            asyncio.run_coroutine_threadsafe(_wait_for(made), self._loop).result()


async def _wait_for(made: Awaitable[None]) -> None:
    await made


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
