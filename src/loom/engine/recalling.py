"""Look for old messages that matter to a request, within a time limit.

Rules of this file:
- Nothing that a search does can fail a request: the store may be damaged, or a large import may not
  be indexed. It costs its time limit and a note.
- A search that is too late is left behind in its thread. What it finds is there for the next
  request. No more searches run at once than a store has connections for.
- What is found depends only on what was said before the request, and on what the request shows. So
  it is remembered, and a call with the same request searches again only if one of these changed.
"""

import os
import threading
from collections.abc import Callable, Hashable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.engine.indexer import Indexer
from loom.engine.knowledge import UserRequest
from loom.engine.search import CheckedSearch, RecalledMessage, search_relevant
from loom.errors import StoreError, shorten
from loom.recall.room import RecallRoom
from loom.stores import Overlay, SessionRow, Store

MAX_SECONDS = 1.0  # that a request waits
MAX_NOTE_CHARS = 200
MAX_REMEMBERED = 64  # searches
_NAME = "the search for messages that matter to the request"


class Recollections(Struct, frozen=True):
    """What was found, the best first, and what went wrong."""

    messages: tuple[RecalledMessage, ...] = ()
    notes: tuple[str, ...] = ()


class RecallLookup(Struct, frozen=True, kw_only=True):
    """What is looked for, and where: the first request that finds something counts, and only what
    was said before it is found. `shown` are places that the request shows, `around` is what it says
    besides its history.
    """

    row: SessionRow
    overlay: Overlay
    requests: Sequence[UserRequest]
    shown: frozenset[int]
    room: RecallRoom
    now: int
    around: str = ""

    def key(self) -> Hashable:
        """What a search depends on, as long as the request shows no more than before."""
        overlay = self.overlay
        before = max(each.place for each in self.requests)
        return (
            (self.row.key, overlay.path.tree),
            tuple(self.requests),
            frozenset(place for place in self.shown if place < before),
            frozenset(overlay.hidden),
            frozenset((place, each.node.seq) for place, each in overlay.versions.items()),
            (self.room.tokens, self.room.frame, self.room.count),
            self.around,
        )


class Recaller:
    """Searches for requests of one store."""

    def __init__(
        self,
        store: Store,
        indexer: Callable[[], Indexer],
        searches: int = 1,
    ) -> None:
        self._store, self._indexer, self.seconds = store, indexer, MAX_SECONDS
        self._searches = searches
        self._free = threading.Semaphore(searches)
        self._process = os.getpid()
        self._order = threading.Lock()
        self._remembered: dict[Hashable, Recollections] = {}

    def find(self, lookup: RecallLookup) -> Recollections:
        """What matters to a request, within the time limit."""
        if self._process != os.getpid():  # the threads of a parent process are not here
            self._process, self._free = os.getpid(), threading.Semaphore(self._searches)
        key = lookup.key()
        known = self._find_remembered(key, lookup)
        if known is not None:
            return known
        if not self._free.acquire(timeout=self.seconds):
            return Recollections(notes=(f"{_NAME} did not begin: an earlier one still runs",))
        found: list[Recollections] = []
        thread = threading.Thread(
            target=lambda: found.append(self._run(key, lookup)), name="loom-recall", daemon=True
        )
        thread.start()
        thread.join(self.seconds)
        if found:
            return found[0]
        limit = f"{round(self.seconds * 1000):,} ms"
        return Recollections(notes=(f"{_NAME} did not end within {limit}",))

    def forget(self) -> None:
        """Let go of what is remembered."""
        with self._order:
            self._remembered.clear()

    def _find_remembered(self, key: Hashable, lookup: RecallLookup) -> Recollections | None:
        """What the same search found before; None if that does not hold any longer."""
        with self._order:
            known = self._remembered.pop(key, None)
            if known is not None:
                self._remembered[key] = known
        if known is None or not known.messages:
            return known
        if any(_is_shown_now(each.text, lookup.room) for each in known.messages):
            return None
        try:
            nodes = lookup.overlay.path.nodes([each.seq for each in known.messages])
        except StoreError:
            return None
        is_whole = all(node.message is not None for node in nodes)  # nobody purged one
        return known if is_whole else None

    def _run(self, key: Hashable, lookup: RecallLookup) -> Recollections:
        try:
            found = self._search(lookup)
            if not found.notes:
                self._remember(key, found)
            return found
        except Exception as error:
            said = shorten(" ".join(f"{type(error).__name__}: {error}".split()), MAX_NOTE_CHARS)
            return Recollections(notes=(f"{_NAME} failed: {said}",))
        finally:
            self._free.release()

    def _remember(self, key: Hashable, found: Recollections) -> None:
        with self._order:
            self._remembered[key] = found
            while len(self._remembered) > MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    def _search(self, lookup: RecallLookup) -> Recollections:
        is_behind = self._indexer().catch_up(lookup.row.tree.key, for_words=True)
        notes = (f"{_NAME} did not see all: messages are being indexed",) if is_behind else ()
        for request in lookup.requests:
            whole = lookup.overlay.path
            overlay = replace(lookup.overlay, path=whole.until(min(request.place, len(whole))))
            found = search_relevant(
                self._store,
                lookup.row,
                overlay,
                CheckedSearch(request.text, None, None, (), lookup.now),
                frozenset(place for place in lookup.shown if place < request.place),
                lookup.room,
            )
            if found:
                return Recollections(tuple(found), notes)
        return Recollections(notes=notes)


def _is_shown_now(text: str, room: RecallRoom) -> bool:
    """Whether the request shows a line by now that was to come back."""
    return any(room.hides(line) for line in text.splitlines())
