"""Documents in memory: the home of a search over what fits there."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from loom.conversation.words import split_terms_for_index
from loom.errors import ChoiceError
from loom.recall.embedder import Embedder, Vector
from loom.recall.index import MAX_TEXT_CHARS, Document, Size

MAX_AUTHORS = 300


class CorpusEntry(Struct, frozen=True):
    """A document as a caller gives it. `place` counts up in its session."""

    key: int
    session: str
    place: int
    text: str
    tokens: int
    role: str = "user"
    author: str = ""
    created: int = 0


class _StoredEntry(Struct, frozen=True):
    entry: CorpusEntry
    length: int
    counts: Mapping[str, int]


class Corpus:
    """An `Index` in memory. Documents are added in the order of their keys, and of their places
    within a session; what is added is found by the next search.
    """

    def __init__(
        self, entries: Iterable[CorpusEntry] = (), embedder: Embedder | None = None
    ) -> None:
        self._stored: dict[int, _StoredEntry] = {}
        self._length = 0
        self._holding: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self._sessions: defaultdict[str, list[int]] = defaultdict(list)
        self._authors: dict[str, None] = {}
        self._by_time: list[tuple[int, int]] = []
        self._is_sorted = True
        self._embedder = embedder
        self._vectors: dict[int, Vector] = {}
        self.add(entries)

    def add(self, entries: Iterable[CorpusEntry]) -> None:
        """Add documents; with an embedder, their vectors too."""
        added = list(entries)
        for entry in added:
            self._add(entry)
        if self._embedder and added:
            rows = self._embedder.embed([entry.text for entry in added])
            self._vectors.update((entry.key, row) for entry, row in zip(added, rows, strict=True))

    def _add(self, entry: CorpusEntry) -> None:
        if entry.key in self._stored:
            raise ChoiceError(f"a document of the key {entry.key} is there already")
        line = self._sessions[entry.session]
        if line and self._stored[line[-1]].entry.place >= entry.place:
            raise ChoiceError(
                f"documents of a session are added in the order of their places, found "
                f"{entry.place} after {self._stored[line[-1]].entry.place}"
            )
        terms = split_terms_for_index(entry.text[:MAX_TEXT_CHARS])
        counts = Counter(terms)
        line.append(entry.key)
        self._stored[entry.key] = _StoredEntry(entry, len(terms), counts)
        self._length += len(terms)
        for term in counts:
            self._holding[term].append(entry.key)
        if entry.author:
            self._authors[entry.author] = None
        newest = (entry.created, entry.key)
        self._is_sorted = self._is_sorted and (not self._by_time or self._by_time[-1] < newest)
        self._by_time.append(newest)

    def size(self) -> Size:
        return Size(len(self._stored), self._length)

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        return {term: len(self._holding[term]) for term in terms if term in self._holding}

    def find_holding(self, term: str, limit: int) -> Sequence[int]:
        if term not in self._holding:
            return []
        return self._newest_first(self._holding[term])[:limit]

    def find_newest(self, limit: int) -> Sequence[int]:
        return [key for _, key in islice(reversed(self._times()), limit)]

    def find_between(self, start: int, stop: int, limit: int) -> Sequence[int]:
        times = self._times()
        first = bisect_left(times, start, key=_time_of)
        last = bisect_left(times, stop, key=_time_of)
        return [key for _, key in reversed(times[max(first, last - limit) : last])]

    def read(self, keys: Sequence[int], terms: Sequence[str]) -> Sequence[Document]:
        wanted = frozenset(terms)
        return [_document(self._stored[key], wanted) for key in keys if key in self._stored]

    def find_near(self, keys: Sequence[int], distance: int) -> Mapping[int, Sequence[int]]:
        return {key: self._near(key, distance) for key in keys if key in self._stored}

    def _near(self, key: int, distance: int) -> Sequence[int]:
        """The documents around one; where places are missing, fewer."""
        entry = self._stored[key].entry
        line = self._sessions[entry.session]
        first = bisect_left(line, entry.place - distance, key=self._place)
        last = bisect_right(line, entry.place + distance, key=self._place)
        return line[first:last]

    def texts(self, keys: Sequence[int]) -> Mapping[int, str]:
        return {key: self._stored[key].entry.text for key in keys if key in self._stored}

    def authors(self) -> Sequence[str]:
        return list(islice(self._authors, MAX_AUTHORS))

    def vectors(self, keys: Sequence[int], embedder: str) -> Mapping[int, Vector]:
        if not self._embedder or self._embedder.name != embedder:
            return {}
        return {key: self._vectors[key] for key in keys if key in self._vectors}

    def find_nearest(self, vector: Vector, embedder: str, limit: int) -> Sequence[int]:
        """Keeps no index of vectors: all of them are compared."""
        if not self._embedder or self._embedder.name != embedder:
            return []
        scored = ((round(float(row @ vector), 6), key) for key, row in self._vectors.items())
        return [key for _, key in sorted(scored, reverse=True)[:limit]]

    def _place(self, key: int) -> int:
        return self._stored[key].entry.place

    def _times(self) -> list[tuple[int, int]]:
        if not self._is_sorted:
            self._by_time.sort()
            self._is_sorted = True
        return self._by_time

    def _newest_first(self, keys: Iterable[int]) -> list[int]:
        return sorted(keys, key=lambda key: (self._stored[key].entry.created, key), reverse=True)


def _time_of(stamp: tuple[int, int]) -> int:
    return stamp[0]


def _document(stored: _StoredEntry, terms: frozenset[str]) -> Document:
    entry, counts = stored.entry, stored.counts
    return Document(
        entry.key,
        entry.session,
        entry.place,
        entry.role,
        entry.author,
        entry.created,
        stored.length,
        entry.tokens,
        {term: counts[term] for term in terms if term in counts},
    )
