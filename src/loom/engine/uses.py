"""What was opened, counted later: a recall waits for no write.

Uses are collected in memory, and written together: in the background once there are some, before a
question that needs them, and when the store is closed. A crash loses those that were not written.
"""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from loom.errors import LoomError
from loom.stores import Scope, SessionRow, Store

MAX_PENDING = 32  # uses that wait until they are written in the background


class UseLog:
    """The uses that are not written yet."""

    def __init__(self, store: Store, scope: Scope, now: Callable[[], int]) -> None:
        self._store, self._scope, self._now = store, scope, now
        self._handles: Counter[tuple[str, int, int, str]] = Counter()
        self._notes: Counter[int] = Counter()
        self._order = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether enough waits to be written."""
        return len(self._handles) + len(self._notes) >= MAX_PENDING

    def open_handle(self, handle: str, row: SessionRow | None = None) -> None:
        """That a handle was recalled, in a session or without one."""
        tree, key, session = (row.tree.key, row.key, row.id) if row else (0, 0, "")
        with self._order:
            self._handles[handle, tree, key, session] += 1

    def open_note(self, key: int) -> None:
        """That a note was opened."""
        with self._order:
            self._notes[key] += 1

    def flush(self) -> None:
        """Write what waits. What cannot be written is not counted."""
        with self._order:
            handles, self._handles = self._handles, Counter()
            notes, self._notes = self._notes, Counter()
        if not handles and not notes:
            return
        with suppress(LoomError):
            now = self._now()
            if handles:
                self._store.uses.add_handles(self._scope, handles, now)
            if notes:
                self._store.notes.count_uses(notes, now)
