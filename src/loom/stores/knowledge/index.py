"""The chunks of a project as a search reads them, in one snapshot: an `Index` of `loom.recall`.

Age says nothing of a document, so all chunks are created at 0, and newer is what has the greater
key. A session is a document, and its places are those of its chunks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.recall.index import Document, Size
from loom.stores.knowledge.rows import StoredChunk
from loom.stores.sql.database import Reader
from loom.stores.sql.stored import read_stored

if TYPE_CHECKING:
    from loom.recall.embedder import Vector

ROLE = "document"
MAX_CACHED_CHUNKS = 50_000  # of a base whose places are held in memory
MAX_CACHED_BASES = 8
SCANNED_SHARE = 4  # where more than one of so many chunks are asked for, all are looked through
MAX_COMPARED_VECTORS = 5000  # the newest of a base, that a question is compared with
_SCORE_DIGITS = 6
_ADVICE = "loom doctor says which; remove that document, and add it again"


def read_headings(data: str) -> tuple[str, ...]:
    """The headings of a chunk, from its row."""
    return read_stored(data, tuple[str, ...], "a chunk of a document", _ADVICE)


def searched_text(headings: Sequence[str], text: str) -> str:
    """A chunk with its headings: what it is about is often said only there. The last heading may
    begin the text itself.
    """
    if headings and headings[-1] in text[: 2 * len(headings[-1]) + 20]:
        headings = headings[:-1]
    return "\n".join((*headings, text))


class ChunkPlace(Struct, frozen=True, gc=False):
    """Where a chunk is, its terms and its tokens: in the first document that has it."""

    document: int
    place: int
    length: int
    tokens: int


class PlaceCache:
    """The places of all chunks of some bases, each as it was at its last change."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, dict[int, ChunkPlace]]] = {}

    def fetch(self, reader: Reader, base: int, revision: int) -> dict[int, ChunkPlace]:
        """The places of all chunks of a base, by their keys."""
        held = self._held.pop(base, None)
        if held is None or held[0] != revision:
            held = (revision, _to_places(reader.all(_ALL_PLACES, base)))
        self._held[base] = held
        while len(self._held) > MAX_CACHED_BASES:
            self._held.pop(next(iter(self._held)), None)
        return held[1]


class ChunkIndex:
    """The chunks of one base. It is good for one search."""

    def __init__(self, reader: Reader, base: int, cache: PlaceCache) -> None:
        self._reader, self._base = reader, base
        row = reader.first_row("SELECT chunks, terms, revision FROM bases WHERE key = $1", base)
        assert row is not None
        self._size = Size(int(row[0]), int(row[1]))
        self._known: dict[int, ChunkPlace] | None = None
        if self._size.documents <= MAX_CACHED_CHUNKS:
            self._known = cache.fetch(reader, base, row[2])

    def size(self) -> Size:
        return self._size

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        return dict(self._reader.all(_FREQUENCIES, self._base, to_json(list(terms))))

    def find_holding(self, term: str, limit: int) -> Sequence[int]:
        return _first(self._reader.all(_HOLDING, self._base, term, limit))

    def find_newest(self, limit: int) -> Sequence[int]:
        sql = "SELECT key FROM chunks WHERE base = $1 ORDER BY key DESC LIMIT $2"
        return _first(self._reader.all(sql, self._base, limit))

    def find_between(self, start: int, stop: int, limit: int) -> Sequence[int]:
        if start <= 0 < stop:
            return self.find_newest(limit)
        return []

    def read(self, keys: Sequence[int], terms: Sequence[str]) -> Sequence[Document]:
        places = self._places(keys)
        counts = self._counts(places, terms)
        return [
            Document(
                key,
                str(found.document),
                found.place,
                ROLE,
                "",
                0,
                found.length,
                found.tokens,
                counts.get(key, {}),
            )
            for key, found in places.items()
        ]

    def find_near(self, keys: Sequence[int], distance: int) -> Mapping[int, Sequence[int]]:
        places = self._places(keys)
        wanted = {
            (found.document, found.place + step)
            for found in places.values()
            for step in range(-distance, distance + 1)
        }
        rows = self._reader.all(_AT_PLACES, to_json(sorted(wanted)))
        there = {(document, place): chunk for document, place, chunk in rows}
        return {
            key: list(dict.fromkeys(_around(found, distance, there)))
            for key, found in places.items()
        }

    def texts(self, keys: Sequence[int]) -> Mapping[int, str]:
        rows = self._reader.all(_TEXTS, self._base, str(list(keys)))
        return {key: searched_text(read_headings(headings), text) for key, headings, text in rows}

    def authors(self) -> Sequence[str]:
        return ()

    def vectors(self, keys: Sequence[int], embedder: str) -> Mapping[int, "Vector"]:
        import numpy as np

        rows = self._reader.all(_VECTORS, self._base, str(list(keys)), embedder)
        return {key: np.frombuffer(data, dtype="<f4") for key, data in rows}

    def find_nearest(self, vector: "Vector", embedder: str, limit: int) -> Sequence[int]:
        """There is no index of vectors: the newest are compared, up to MAX_COMPARED_VECTORS."""
        import numpy as np

        rows = self._reader.all(_NEWEST_VECTORS, self._base, embedder, MAX_COMPARED_VECTORS)
        rows = [row for row in rows if len(row[1]) == 4 * len(vector)]
        if not rows:
            return []
        matrix = np.frombuffer(b"".join(data for _, data in rows), dtype="<f4")
        scores = np.round(matrix.reshape(len(rows), -1) @ vector, _SCORE_DIGITS)
        order = sorted(range(len(rows)), key=lambda n: (-float(scores[n]), -rows[n][0]))
        return [rows[n][0] for n in order[:limit]]

    def _places(self, keys: Sequence[int]) -> dict[int, ChunkPlace]:
        if self._known is not None:
            return {key: self._known[key] for key in keys if key in self._known}
        return _to_places(self._reader.all(_PLACES, self._base, str(list(keys))))

    def _counts(self, keys: Collection[int], terms: Sequence[str]) -> dict[int, dict[str, int]]:
        """How often each of these terms occurs in each of these chunks."""
        counts: dict[int, dict[str, int]] = {}
        asked = to_json(list(terms))
        if len(keys) * SCANNED_SHARE > self._size.documents:
            rows = self._reader.all(_ALL_COUNTS, self._base, asked)
        else:
            rows = self._reader.all(_COUNTS, self._base, str(list(keys)), asked)
        for key, term, count in rows:
            if key in keys:
                counts.setdefault(key, {})[term] = count
        return counts


def read_chunks(reader: Reader, base: int, keys: Sequence[int]) -> dict[int, StoredChunk]:
    """Chunks by their keys, each with its first document."""
    found: dict[int, StoredChunk] = {}
    for key, headings, text, *rest in reader.all(_CHUNKS, base, str(list(keys))):
        if key not in found:
            held = read_headings(headings)
            found[key] = StoredChunk(key, text, held, *rest)
    return found


def _to_places(rows: Iterable[tuple[int, ...]]) -> dict[int, ChunkPlace]:
    """Chunks by key, each at its first place."""
    found: dict[int, ChunkPlace] = {}
    for key, length, tokens, document, place in rows:
        if key not in found:
            found[key] = ChunkPlace(document, place, length, tokens)
    return found


def _around(
    found: ChunkPlace, distance: int, there: Mapping[tuple[int, int], int]
) -> Iterator[int]:
    """The chunks around a place, in order."""
    for place in range(found.place - distance, found.place + distance + 1):
        if (found.document, place) in there:
            yield there[found.document, place]


def _first(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [row[0] for row in rows]


_FREQUENCIES = """SELECT t.term, count(*) FROM {each:2} e CROSS JOIN chunk_terms t
    WHERE t.base = $1 AND t.term = e.value GROUP BY t.term"""
_HOLDING = """SELECT chunk FROM chunk_terms WHERE base = $1 AND term = $2
    ORDER BY chunk DESC LIMIT $3"""
_COUNTS = """SELECT t.chunk, t.term, t.count FROM {each:3} w CROSS JOIN {each_int:2} k
    CROSS JOIN chunk_terms t WHERE t.base = $1 AND t.term = w.value AND t.chunk = k.value"""
_ALL_COUNTS = """SELECT t.chunk, t.term, t.count FROM {each:2} w CROSS JOIN chunk_terms t
    WHERE t.base = $1 AND t.term = w.value"""
_TEXTS = """SELECT c.key, c.headings, c.text FROM {each_int:2} e CROSS JOIN chunks c
    WHERE c.key = e.value AND c.base = $1"""
_PLACE = "SELECT c.key, c.length, c.tokens, x.document, x.place"
_PLACES = f"""{_PLACE} FROM {{each_int:2}} e CROSS JOIN chunks c CROSS JOIN document_chunks x
    WHERE c.key = e.value AND c.base = $1 AND x.chunk = c.key
    ORDER BY c.key, x.document, x.place"""
_ALL_PLACES = f"""{_PLACE} FROM chunks c JOIN document_chunks x ON x.chunk = c.key
    WHERE c.base = $1 ORDER BY c.key, x.document, x.place"""
_AT_PLACES = """SELECT x.document, x.place, x.chunk FROM {each_pair:1} e
    CROSS JOIN document_chunks x WHERE x.document = e.tree AND x.place = e.seq"""
_VECTORS = """SELECT v.chunk, v.data FROM {each_int:2} e CROSS JOIN chunks c
    CROSS JOIN chunk_vectors v
    WHERE c.key = e.value AND c.base = $1 AND v.chunk = c.key AND v.embedder = $3"""
_NEWEST_VECTORS = """SELECT c.key, v.data FROM chunks c JOIN chunk_vectors v ON v.chunk = c.key
    WHERE c.base = $1 AND v.embedder = $2 ORDER BY c.key DESC LIMIT $3"""
_CHUNKS = """SELECT c.key, c.headings, c.text, d.source, d.title, x.first, x.last
    FROM {each_int:2} e CROSS JOIN chunks c CROSS JOIN document_chunks x CROSS JOIN documents d
    WHERE c.key = e.value AND c.base = $1 AND x.chunk = c.key AND d.key = x.document
    ORDER BY c.key, x.document, x.place"""
