"""The search index of a store: what the engine asks of it."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from loom.recall.embedder import Embedder
from loom.stores.search.index import SegmentCache, StoreIndex
from loom.stores.search.indexing import (
    MAX_BATCH_DOCUMENTS,
    count_pending,
    drop_index,
    is_outdated,
    pending_trees,
    read_batch,
    write_batch,
)
from loom.stores.search.merging import choose_merge, live_segments, merge_segments, remove_dead
from loom.stores.search.scope import (
    MAX_TAIL_DOCUMENTS,
    SearchScope,
    read_project_scope,
    read_session_scope,
)
from loom.stores.search.tree_scope import read_tree_scope
from loom.stores.search.vectors import embed_next, find_embedder_name
from loom.stores.sessions import Scope, SessionRow
from loom.stores.sql.database import Database
from loom.stores.tree.overlay import Overlay

MIN_BATCH_DOCUMENTS = 64  # fewer that are not indexed are read by each search
MAX_CAUGHT_UP = 8192  # messages that a search indexes before it begins
_MAX_PENDING_TREES = 512  # looked at for one batch
_MAX_ATTEMPTS = 3  # of a batch that others wrote or purged meanwhile


class SearchIndex:
    """The index of a store, kept up to date when somebody asks for it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = SegmentCache()
        self._order = threading.Lock()  # one thread of a process indexes at a time

    def count_pending(self, scope: Scope, limit: int, first: int = 0) -> int:
        """How many messages of a project are not indexed, counted up to a limit; of only one tree
        if it is given.
        """
        with self._database.read() as reader:
            trees = pending_trees(reader, scope.tenant, scope.project, _MAX_PENDING_TREES, first)
            if first:
                trees = [each for each in trees if each.tree == first]
            return count_pending(reader, trees, limit)

    def index_next(self, scope: Scope, limit: int = 0, first: int = 0) -> int:
        """Index some messages of a project; how many nodes were looked at. 0: there are none.

        A limit of 0 means MAX_BATCH_DOCUMENTS. The tree `first` comes first.
        """
        limit = limit or MAX_BATCH_DOCUMENTS
        with self._order:
            for _ in range(_MAX_ATTEMPTS):
                with self._database.read() as reader:
                    outdated = is_outdated(reader, scope.tenant, scope.project)
                if outdated:
                    drop_index(self._database, scope.tenant, scope.project)
                with self._database.read() as reader:
                    trees = pending_trees(
                        reader, scope.tenant, scope.project, _MAX_PENDING_TREES, first
                    )
                    batch = read_batch(reader, trees, limit)
                if not batch.lines:
                    return 0
                if write_batch(self._database, scope.tenant, scope.project, batch):
                    return len(batch.lines)
        return 0

    def merge_next(self, scope: Scope) -> bool:
        """Merge some segments; whether there were some to merge."""
        with self._order:
            remove_dead(self._database, scope.tenant, scope.project)
            live = live_segments(self._database, scope.tenant, scope.project)
            chosen = choose_merge(live)
            if not chosen:
                return False
            merged = merge_segments(self._database, scope.tenant, scope.project, chosen)
            remove_dead(self._database, scope.tenant, scope.project)
            return merged

    def embed_next(self, scope: Scope, embedder: Embedder) -> bool:
        """Make the vectors of some messages; whether there may be more to do."""
        return embed_next(self._database, scope.tenant, scope.project, embedder)

    def find_embedder_name(self, scope: Scope) -> str:
        """The name of the embedder that made the vectors of a project; an empty text if there are
        none.
        """
        with self._database.read() as reader:
            return find_embedder_name(reader, scope.tenant, scope.project)

    def drop(self, scope: Scope) -> None:
        """Remove the index of a project; it is built again."""
        with self._order:
            drop_index(self._database, scope.tenant, scope.project)
        self.forget()

    def forget(self) -> None:
        """Let go of what is in memory."""
        self._cache.clear()

    @contextmanager
    def read_session(
        self,
        row: SessionRow,
        overlay: Overlay,
        where: Sequence[Collection[str]] = (),
        embedder: Embedder | None = None,
    ) -> Iterator[StoreIndex]:
        """The messages on the path of a session, as a search reads them."""
        with self._database.read() as reader:
            scope = read_session_scope(reader, row, overlay)
            yield StoreIndex(reader, scope, self._cache, where, embedder)

    @contextmanager
    def read_tree(
        self, row: SessionRow, is_model: bool, embedder: Embedder | None = None
    ) -> Iterator[StoreIndex]:
        """The nodes of the tree of a session, on all branches; for a model, those that it may
        see.
        """
        with self._database.read() as reader:
            scope = read_tree_scope(reader, row, is_model)
            yield StoreIndex(reader, scope, self._cache, (), embedder)

    @contextmanager
    def read_project(
        self,
        scope: Scope,
        where: Sequence[Collection[str]] = (),
        embedder: Embedder | None = None,
    ) -> Iterator[StoreIndex]:
        """The messages of all sessions in a scope, as a search reads them."""
        with self._database.read() as reader:
            found: SearchScope = read_project_scope(reader, scope)
            yield StoreIndex(reader, found, self._cache, where, embedder)

    def catch_up(self, scope: Scope, first: int = 0) -> bool:
        """Index before a search what would be too much to read in it, MAX_CAUGHT_UP messages at
        most; only of one tree, if it is given.

        Returns whether more is left than a search reads.
        """
        left = self.count_pending(scope, MAX_TAIL_DOCUMENTS, first)
        if left < MIN_BATCH_DOCUMENTS:
            return False
        done = 0
        while left >= MIN_BATCH_DOCUMENTS and done < MAX_CAUGHT_UP:
            step = self.index_next(scope, first=first)
            if not step:
                break
            done += step
            left = self.count_pending(scope, MAX_TAIL_DOCUMENTS, first)
        return left >= MIN_BATCH_DOCUMENTS

    def index_all(
        self,
        scope: Scope,
        embedder: Embedder | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Index all messages of a project, and make their vectors; how many nodes were new."""
        count = 0
        while done := self.index_next(scope):
            count += done
            if progress:
                progress(count)
        while self.merge_next(scope):
            pass
        while embedder is not None and self.embed_next(scope, embedder):
            pass
        return count
