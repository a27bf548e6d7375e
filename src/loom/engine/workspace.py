"""What sessions and trees share: a store seen from one scope, a clock, new names, events, and work
in the background.
"""

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from loom.context import Caches
from loom.conversation.agents import Agent
from loom.conversation.checked import checks_arguments
from loom.decisions.pulse import Pulse
from loom.engine.answers import Order
from loom.engine.aware import Result
from loom.engine.indexer import Indexer
from loom.engine.knowledge import KnowledgeLookup
from loom.engine.recalling import Recaller
from loom.engine.remembered import RequestDefaults
from loom.engine.snapshots import Snapshots
from loom.engine.uses import UseLog
from loom.providers.models import Model
from loom.runtime import EventBus
from loom.runtime.threads import WORKERS, Threads
from loom.stores import DecisionScope, Scope, SessionRow, Store, StoredEvents

if TYPE_CHECKING:
    from loom.providers.knowledge import StoredKnowledgeBase

EventKind = Literal[
    "created",
    "appended",
    "conflict",
    "prepared",
    "compressed",
    "absorbed",
    "used",
    "recalled",
    "forked",
    "switched",
    "changed",
    "marked",
    "decided",
    "purged",
]
MAX_FAILURES = 3  # in a row, after which a session's background work rests

_T = TypeVar("_T")

# What a verb that runs in a thread leaves to the event loop that waits for it: events, and work
# behind the scenes.
_left_to_loop: ContextVar[list[Callable[[], object]] | None] = ContextVar(
    "left_to_loop", default=None
)


class Event(Struct, frozen=True):
    """Something that happened to a session: at which node, and what a listener may want to know of
    it.
    """

    kind: EventKind
    session: str
    node: str
    what: Mapping[str, Any]
    at: int


class Closable(Protocol):
    def close(self) -> None: ...


class Workspace:
    """A store, seen from one scope."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        now: Callable[[], int],
        fresh_id: Callable[[], str],
        model: Model | None = None,
        snapshots: Snapshots | None = None,
        *,
        carry_out: "Callable[[Any, Any, Agent, Order], tuple[Result, ...]]",
    ) -> None:
        """`carry_out` does what the `→` commands of an answer say, for a session of this workspace
        and its agent.
        """
        self.carry_out = carry_out
        self.store, self.scope, self.now, self.fresh_id = store, scope, now, fresh_id
        self.model, self.snapshots = model, snapshots
        self._listeners: list[Callable[[Event], None]] = []
        self._working: dict[str, asyncio.Task[bool]] = {}
        self._waiting: set[str] = set()  # what begins when the loop gets its turn
        self._failed: dict[str, int] = {}
        self._threads = Threads(WORKERS[store.database.name])
        self.caches = Caches()
        self.defaults = RequestDefaults()
        self.knowledge_lookup = KnowledgeLookup()
        self.uses = UseLog(store, scope, now)
        self.indexer = Indexer(store, scope)
        self.recaller = Recaller(
            store, lambda: self.indexer, searches=WORKERS[store.database.name] // 2
        )
        self._knowledge: StoredKnowledgeBase | None = None
        self._bus: EventBus | None = None
        self.emitters: list[Closable] = []
        # the last pulse of each graph of decisions: its revision, and until when it holds
        self.pulses: dict[DecisionScope, tuple[int, int, Pulse]] = {}

    def __repr__(self) -> str:
        scope = self.scope
        whose = f", agent {scope.agent}" if scope.agent else ""
        return (
            f"<{type(self).__name__} {self.store.database.address}, tenant {scope.tenant}, "
            f"project {scope.project}{whose}>"
        )

    async def run_off_loop(
        self, work: Callable[[], _T], turn: AbstractContextManager[Any] | None = None
    ) -> _T:
        """Run work on the store in a thread of the store, and wait for it without blocking the
        event loop.
        """
        left: list[Callable[[], object]] = []

        def run() -> _T:
            _left_to_loop.set(left)
            return work()

        future = self._threads.submit(turn or nullcontext(), run)
        future.add_done_callback(lambda _: [each() for each in left])
        return await asyncio.shield(future)

    @property
    def knowledge(self) -> "StoredKnowledgeBase":
        """The documents of the project, as a knowledge base."""
        if self._knowledge is None:
            from loom.providers.knowledge import StoredKnowledgeBase  # it takes long to load

            self._knowledge = StoredKnowledgeBase(
                self.store.documents, self.scope, self.now, self.indexer.named_embedder
            )
        return self._knowledge

    @property
    def bus(self) -> EventBus:
        """The events of the project: what agents publish, and the messages that they send."""
        if self._bus is None:
            self._bus = EventBus(StoredEvents(self.store.database, self.scope), now=self.now)
        return self._bus

    @checks_arguments
    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with every event from now on."""
        self._listeners.append(listener)

    def open_handle(self, handle: str, row: SessionRow | None = None) -> None:
        """Count that a handle was recalled, in a session or without one."""
        self.uses.open_handle(handle, row)
        if self.uses.is_due:
            self.indexer.start(self.uses.flush)

    def emit(self, kind: EventKind, session: str, node: str, **what: Any) -> None:
        """Let listeners know that something happened."""
        event = Event(kind, session, node, what, self.now())
        left = _left_to_loop.get()
        if left is None:
            self._deliver(event)
        else:
            left.append(lambda: self._deliver(event))

    def _deliver(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:  # what happened has happened; a listener cannot make it fail
                warnings.warn(
                    f"a listener failed on {event.kind!r}: {error!r}", RuntimeWarning, stacklevel=2
                )

    def start(self, session: str, work: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """Let work for a session continue behind the scenes, where there is a model for it and a
        loop to run in; one at a time. Returns whether it begins.

        The work says whether it went well. It is derived from what is stored, so that what a crash
        or a failure cuts short is done after a later turn.
        """
        if (
            self.model is None
            or session in self._working
            or session in self._waiting
            or self._failed.get(session, 0) >= MAX_FAILURES
        ):
            return False
        left = _left_to_loop.get()
        if left is not None:  # this is a thread, and the loop is elsewhere
            self._waiting.add(session)
            left.append(lambda: self._start_waiting(session, work))
            return True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        task = loop.create_task(work())
        self._working[session] = task
        task.add_done_callback(lambda done: self._end_task(session, done))
        return True

    def _start_waiting(self, session: str, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._waiting.discard(session)
        self.start(session, work)

    @property
    def can_start(self) -> bool:
        """Whether there is a model for work behind the scenes, and a loop to run it in."""
        if self.model is None:
            return False
        if _left_to_loop.get() is not None:
            return True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def _end_task(self, session: str, task: asyncio.Task[bool]) -> None:
        del self._working[session]
        if task.cancelled():
            return
        error = task.exception()
        if error or not task.result():
            self._failed[session] = self._failed.get(session, 0) + 1
        else:
            self._failed[session] = 0
        if error:  # nobody waits for it, so nobody else would hear of it
            self.emit(
                "compressed",
                session,
                "",
                path="background",
                reason="failed",
                failures=(repr(error),),
            )

    async def settle(self) -> None:
        """Wait until the background work is done."""
        while self._working:
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    def close(self) -> None:
        """Stop the background work, and close the store."""
        self._stop_work()
        self._close_store()

    async def aclose(self) -> None:
        """The same; this task waits, not the event loop."""
        self._stop_work()
        await asyncio.to_thread(self._close_store)

    def _stop_work(self) -> None:
        for task in self._working.values():
            task.cancel()

    def _close_store(self) -> None:
        if self._knowledge is not None:
            self._knowledge.stop()
        for emitter in self.emitters:
            emitter.close()
        if self._bus is not None:
            self._bus.close()
        self.indexer.close()
        self._threads.close()
        self.uses.flush()
        self.caches.clear()
        self.pulses.clear()
        self.recaller.forget()
        self.store.close()
