"""What sessions and trees have in common: a store seen from one scope, a clock, new names, and who wants to hear of it."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from loom.stores.sessions import Scope
from loom.stores.store import Store

Happened = Literal["created", "appended", "conflict", "prepared", "absorbed", "forked", "switched", "changed", "marked", "purged"]


class Event(Struct, frozen=True):
    """Something that happened to a session: at which node, and what a listener may want to know of it."""

    kind: Happened
    session: str
    node: str
    what: Mapping[str, Any]
    at: int


class Home:
    """A store, seen from one scope."""

    def __init__(self, store: Store, scope: Scope, now: Callable[[], int], fresh_id: Callable[[], str]) -> None:
        self.store, self.scope, self.now, self.fresh_id = store, scope, now, fresh_id
        self._listeners: list[Callable[[Event], None]] = []

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

    def close(self) -> None:
        self.store.close()
