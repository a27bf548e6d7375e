"""Indexing behind the scenes: a thread that indexes what was written, merges, and makes vectors.

It begins when much was written or a search found much that is not indexed, and ends when all is
done. What it does is derived from what is stored, so that a crash only delays it.
"""

import os
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from loom.errors import EmbedderError, StoreError
from loom.providers.embedders import choose_embedder, find_local_choice
from loom.stores import Scope, Store

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder

MIN_WRITTEN = 256  # messages after which indexing begins by itself
_CLOSE_SECONDS = 10.0  # that a step may take until the store is closed


class Indexer:
    """Indexes one project of a store in a thread of its own."""

    def __init__(
        self, store: Store, scope: Scope, embedder: "Embedder | None" = None, is_named: bool = True
    ) -> None:
        """Without an embedder that `is_named`, the usual one is found when it is needed."""
        self._store, self._scope = store, scope
        self._embedder, self._is_chosen = embedder, is_named
        self.named_embedder = embedder
        self._choosing = threading.Lock()
        self._written = 0
        self._closed = False
        self._more = False
        self._first: Callable[[], None] | None = None
        self._order = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    @property
    def embedder(self) -> "Embedder | None":
        """What makes vectors; loaded at the first search if nobody named one."""
        with self._choosing:
            if not self._is_chosen:
                self._embedder, self._is_chosen = _find_usual(self._store, self._scope), True
            return self._embedder

    @embedder.setter
    def embedder(self, embedder: "Embedder | None") -> None:
        with self._choosing:
            self._embedder, self._is_chosen = embedder, True

    def count_written(self, messages: int) -> None:
        """That so many messages were written."""
        self._written += messages
        if self._written >= MIN_WRITTEN:
            self._written = 0
            self.start()

    def catch_up(self, tree: int = 0, *, for_words: bool = False) -> bool:
        """Index before a search what would be too much to read in it; if there is much more, the
        rest in the background. A store that cannot be written is searched all the same. A search
        that is only `for_words` needs no vectors.

        Returns whether there is much more.
        """
        left = False
        with suppress(StoreError):
            left = self._store.search.catch_up(self._scope, tree)
            if left or (not for_words and self.embedder is not None):
                self.start()
        return left

    def start(self, first: Callable[[], None] | None = None) -> None:
        """Index in the background, if nobody does so already. `first` is done there before."""
        with self._order:
            self._first = first or self._first
            if self._process != os.getpid():  # the thread of a parent process is not here
                self._process, self._thread = os.getpid(), None
            if self._closed:
                return
            self._more = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loom-index", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until the thread has nothing left to do."""
        thread = self._thread
        if thread is not None and self._process == os.getpid():
            thread.join()

    def close(self) -> None:
        """Let the thread end after its step."""
        self._closed = True
        thread = self._thread
        if thread is not None and self._process == os.getpid():
            thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while self._next_round():
                while not self._closed and self._work():
                    pass
        except Exception as error:  # of the store, or of an embedder; nobody waits for it
            with self._order:
                self._thread = None
            if not self._closed:
                warnings.warn(
                    f"indexing stopped, and goes on later: {error!r}", RuntimeWarning, stacklevel=1
                )

    def _next_round(self) -> bool:
        with self._order:
            if self._closed or not self._more:
                self._thread = None
                return False
            self._more = False
            first, self._first = self._first, None
        if first is not None:
            first()
        return True

    def _work(self) -> bool:
        """One step; whether there may be more to do."""
        search = self._store.search
        if search.index_next(self._scope):
            return True
        if search.merge_next(self._scope):
            return True
        # Who never searches needs no vectors: the usual embedder is found by the first search.
        return self._embedder is not None and search.embed_next(self._scope, self._embedder)


def _find_usual(store: Store, scope: Scope) -> "Embedder | None":
    """The embedder of a store for which nobody named one: the one that made its vectors, if that is
    on this machine; the table that Loom ships, if it has none. Vectors of an endpoint stay, and
    messages are found by words.
    """
    try:
        made_by = store.search.find_embedder_name(scope)
        return choose_embedder(find_local_choice(made_by) if made_by else "static")
    except (EmbedderError, StoreError) as error:
        warnings.warn(
            f"no embedder could be loaded, so messages are found by words: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
