"""What sessions and trees have in common: a store seen from one scope, a clock, new names, and who wants to hear of it."""

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

from msgspec import Struct

from loom.engine.snapshots import Snapshots
from loom.engine.summarize import Model
from loom.stores.sessions import Scope
from loom.stores.store import Store

Happened = Literal[
    "created", "appended", "conflict", "prepared", "compressed", "absorbed", "forked", "switched", "changed", "marked", "purged"
]
TIRED = 3  # failures in a row after which a session's background work rests


class Event(Struct, frozen=True):
    """Something that happened to a session: at which node, and what a listener may want to know of it."""

    kind: Happened
    session: str
    node: str
    what: Mapping[str, Any]
    at: int


class Home:
    """A store, seen from one scope."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        now: Callable[[], int],
        fresh_id: Callable[[], str],
        model: Model | None = None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.store, self.scope, self.now, self.fresh_id = store, scope, now, fresh_id
        self.model, self.snapshots = model, snapshots
        self._listeners: list[Callable[[Event], None]] = []
        self._working: dict[str, asyncio.Task[bool]] = {}
        self._failed: dict[str, int] = {}

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call this with every event from now on."""
        self._listeners.append(listener)

    def tell(self, kind: Happened, session: str, node: str, **what: Any) -> None:
        """Let listeners know that something happened."""
        for listener in self._listeners:
            try:
                listener(Event(kind, session, node, what, self.now()))
            except Exception as error:  # what happened has happened; a listener cannot make it fail
                warnings.warn(f"a listener failed on {kind!r}: {error!r}", RuntimeWarning, stacklevel=2)

    def begin(self, session: str, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Let work for a session go on behind the scenes, where there is a model for it and a loop to run in; one at a time.

        It says whether it went well. It is derived from what is stored, so that what a crash or a failure cuts short is done
        after a later turn.
        """
        if self.model is None or session in self._working or self._failed.get(session, 0) >= TIRED:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        task = loop.create_task(work())
        self._working[session] = task
        task.add_done_callback(lambda done: self._ended(session, done))

    def _ended(self, session: str, task: asyncio.Task[bool]) -> None:
        del self._working[session]
        if task.cancelled():
            return
        error = task.exception()
        self._failed[session] = self._failed.get(session, 0) + 1 if error or not task.result() else 0
        if error:  # nobody waits for it, so nobody else would hear of it
            self.tell("compressed", session, "", path="background", reason="failed", failures=(repr(error),))

    async def settle(self) -> None:
        """Wait for what goes on behind the scenes."""
        while self._working:
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    def close(self) -> None:
        for task in self._working.values():
            task.cancel()
        self.store.close()
