"""What a project's documents are: added, replaced when they change, listed and removed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

from loom.budget.counting import gate_counter
from loom.conversation.canonical import to_json
from loom.conversation.words import SPLITTER_VERSION, split_terms_for_index
from loom.stores.knowledge.index import (
    ChunkIndex,
    PlaceCache,
    read_chunks,
    read_headings,
    searched_text,
)
from loom.stores.knowledge.rows import DocumentRow, NewChunk, NewDocument, StoredChunk
from loom.stores.sessions import Scope
from loom.stores.sql.database import Database, Reader, Writer
from loom.stores.sql.stored import read_each, read_rows, read_stored

_PAGE_ROWS = 500
_T = TypeVar("_T")

_DOCUMENT = "key, path, source, root, kind, title, digest, size, chunks, notes, created, updated"


class Documents:
    """The documents of all projects in a store, each reached by its scope."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places = PlaceCache()

    def put(self, scope: Scope, new: NewDocument, now: int) -> DocumentRow:
        """Add a document. One of the same path is replaced, if it changed."""
        with self._database.write() as writer:
            return put_document(writer, scope, new, now)

    def find(self, scope: Scope, path: str) -> DocumentRow | None:
        """The document of a path."""
        with self._database.read() as reader:
            return find_document(reader, scope, path)

    def list_all(self, scope: Scope) -> list[DocumentRow]:
        """All documents of a project, by source and path."""
        with self._database.read() as reader:
            base = _find_base(reader, scope)
            sql = (
                f"SELECT {_DOCUMENT} FROM documents WHERE base = $1 "
                "ORDER BY source {binary}, path {binary}"
            )
            rows = read_rows(reader, sql, base) if base else []
        return read_each(rows, _read_document, lambda row: f"document {row[2]!r}")

    def remove(self, scope: Scope, keys: Collection[int]) -> int:
        """Remove documents by their keys; how many there were."""
        if not keys:
            return 0
        with self._database.write() as writer:
            base = _lock_base(writer, scope)
            sql = "SELECT key FROM documents WHERE base = $1 AND key IN {each_int:2}"
            found = [key for (key,) in writer.all(sql, base, str(sorted(keys)))]
            for key in found:
                held = _chunks_of(writer, key)
                writer.all("DELETE FROM document_chunks WHERE document = $1", key)
                writer.all("DELETE FROM documents WHERE key = $1", key)
                _remove_unused(writer, base, held)
            _count(writer, base, 0, 0)
            return len(found)

    def shed(self) -> None:
        """Remove what was deleted from the files of the database too."""
        self._database.shed()

    @contextmanager
    def read_index(self, scope: Scope) -> Iterator[ChunkIndex | None]:
        """The chunks of a project, as a search reads them; None if there are none."""
        self._renew_index(scope)
        with self._database.read() as reader:
            base = _find_base(reader, scope)
            yield ChunkIndex(reader, base, self._places) if base else None

    def read_chunks(self, scope: Scope, keys: Sequence[int]) -> dict[int, StoredChunk]:
        """Chunks by their keys, each with its first document."""
        with self._database.read() as reader:
            base = _find_base(reader, scope)
            return read_chunks(reader, base, keys) if base else {}

    def _renew_index(self, scope: Scope) -> None:
        """Make the index again if other rules made it."""
        with self._database.read() as reader:
            sql = "SELECT key FROM bases WHERE tenant = $1 AND project = $2 AND version <> $3"
            is_old = reader.first_row(sql, scope.tenant, scope.project, SPLITTER_VERSION)
        if is_old:
            with self._database.write() as writer:
                _lock_base(writer, scope)

    # Vectors

    def find_without_vector(self, scope: Scope, embedder: str, limit: int) -> list[tuple[int, str]]:
        """Chunks that an embedder has made no vector of, each with the text that is searched."""
        with self._database.read() as reader:
            base = _find_base(reader, scope)
            rows = reader.all(_WITHOUT_VECTOR, base, embedder, limit) if base else []
        return [(key, searched_text(read_headings(headings), text)) for key, headings, text in rows]

    def count_without_vector(self, scope: Scope, embedder: str) -> int:
        """How many chunks an embedder has made no vector of."""
        with self._database.read() as reader:
            base = _find_base(reader, scope)
            row = reader.first_row(_COUNT_WITHOUT_VECTOR, base, embedder)
        return int(row[0]) if row else 0

    def put_vectors(
        self, scope: Scope, embedder: str, vectors: Iterable[tuple[int, bytes]]
    ) -> None:
        """Keep vectors of chunks that are still there."""
        with self._database.write() as writer:
            base = _lock_base(writer, scope)
            given = dict(vectors)
            sql = "SELECT key FROM chunks WHERE base = $1 AND key IN {each_int:2}"
            found = writer.all(sql, base, str(sorted(given)))
            writer.run_many(_PUT_VECTOR, [(key, embedder, given[key]) for (key,) in found])


def find_document(reader: Reader, scope: Scope, path: str) -> DocumentRow | None:
    """The document of a path in a project."""
    base = _find_base(reader, scope)
    return _find_document(reader, base, path) if base else None


def put_document(
    writer: Writer, scope: Scope, new: NewDocument, now: int, created: int | None = None
) -> DocumentRow:
    """Add a document in a transaction. One of the same path is replaced, if it changed."""
    base = _lock_base(writer, scope)
    old = _find_document(writer, base, new.path)
    if old and (old.digest, old.source, old.root) == (new.digest, new.source, new.root):
        return old
    held = _chunks_of(writer, old.key) if old else []
    key = _put_row(writer, base, new, old, now)
    if created is not None:
        writer.all("UPDATE documents SET created = $2 WHERE key = $1", key, created)
    writer.all("DELETE FROM document_chunks WHERE document = $1", key)
    keys = _put_chunks(writer, base, new.chunks, now)
    references = [
        (key, place, keys[digest_of(chunk)], chunk.start, chunk.stop)
        for place, chunk in enumerate(new.chunks)
    ]
    writer.run_many(
        "INSERT INTO document_chunks (document, place, chunk, first, last) "
        "VALUES ($1, $2, $3, $4, $5)",
        references,
    )
    _remove_unused(writer, base, held)
    _count(writer, base, 0, 0)
    found = _find_document(writer, base, new.path)
    assert found is not None
    return found


def digest_of(chunk: NewChunk | StoredChunk) -> str:
    """What a chunk is known by in its base: a digest of its headings and its words."""
    said = to_json([chunk.headings, chunk.text]).encode(errors="replace")
    return blake2b(said, digest_size=16).hexdigest()


# Bases


def _find_base(reader: Reader, scope: Scope) -> int:
    """The key of what a project has; 0 if it has nothing."""
    sql = "SELECT key FROM bases WHERE tenant = $1 AND project = $2"
    row = reader.first_row(sql, scope.tenant, scope.project)
    return int(row[0]) if row else 0


def _lock_base(writer: Writer, scope: Scope) -> int:
    """The key of what a project has, which nobody else changes until this transaction ends. Its
    index is made again if other rules made it.
    """
    writer.all(
        "INSERT INTO bases (tenant, project, chunks, terms, version, revision) "
        "VALUES ($1, $2, 0, 0, $3, 0) ON CONFLICT (tenant, project) DO NOTHING",
        scope.tenant,
        scope.project,
        SPLITTER_VERSION,
    )
    sql = "SELECT key, version FROM bases WHERE tenant = $1 AND project = $2 {lock}"
    row = writer.first_row(sql, scope.tenant, scope.project)
    assert row is not None
    if row[1] != SPLITTER_VERSION:
        _index_again(writer, row[0])
    return int(row[0])


def _index_again(writer: Writer, base: int) -> None:
    writer.all("DELETE FROM chunk_terms WHERE base = $1", base)
    writer.all(
        "UPDATE bases SET chunks = 0, terms = 0, version = $2 WHERE key = $1",
        base,
        SPLITTER_VERSION,
    )
    last = 0
    while rows := writer.all(_NEXT_CHUNKS, base, last):
        _put_terms(writer, base, [(key, headings, text) for key, headings, text in rows])
        last = rows[-1][0]


# Documents


def _find_document(reader: Reader, base: int, path: str) -> DocumentRow | None:
    sql = f"SELECT {_DOCUMENT} FROM documents WHERE base = $1 AND path = $2"
    rows = read_rows(reader, sql, base, path)
    return _read_document(rows[0]) if rows else None


def _read_document(row: tuple[object, ...]) -> DocumentRow:
    values = dict(zip(DocumentRow.__struct_fields__, row, strict=True))
    values["notes"] = read_stored(
        values["notes"], tuple[str, ...], f"document {values['source']!r}"
    )
    return DocumentRow(**values)  # type: ignore[arg-type]


def _put_row(writer: Writer, base: int, new: NewDocument, old: DocumentRow | None, now: int) -> int:
    """Write what is known of a document; its key."""
    values = (
        new.source,
        new.root,
        new.kind,
        new.title,
        new.digest,
        new.size,
        len(new.chunks),
        to_json(new.notes),
    )
    if old:
        writer.all(_UPDATE, old.key, *values, now)
        return old.key
    writer.all(_INSERT, base, new.path, *values, now)
    sql = "SELECT key FROM documents WHERE base = $1 AND path = $2"
    row = writer.first_row(sql, base, new.path)
    assert row is not None
    return int(row[0])


# Chunks


def _chunks_of(reader: Reader, document: int) -> list[int]:
    sql = "SELECT DISTINCT chunk FROM document_chunks WHERE document = $1"
    return [chunk for (chunk,) in reader.all(sql, document)]


def _put_chunks(writer: Writer, base: int, chunks: Sequence[NewChunk], now: int) -> dict[str, int]:
    """Write the chunks that are new; the keys of all, by their digests."""
    given = {digest_of(chunk): chunk for chunk in chunks}
    known = dict(_find_keys(writer, base, given))
    count = gate_counter(None).count_text
    fresh = [(digest, chunk) for digest, chunk in given.items() if digest not in known]
    writer.run_many(
        "INSERT INTO chunks (base, digest, headings, text, tokens, length, created) "
        "VALUES ($1, $2, $3, $4, $5, 0, $6)",
        [
            (base, digest, to_json(chunk.headings), chunk.text, count(chunk.text), now)
            for digest, chunk in fresh
        ],
    )
    added = dict(_find_keys(writer, base, [digest for digest, _ in fresh]))
    _put_terms(
        writer,
        base,
        [(added[digest], to_json(chunk.headings), chunk.text) for digest, chunk in fresh],
    )
    return known | added


def _find_keys(reader: Reader, base: int, digests: Iterable[str]) -> Iterator[tuple[str, int]]:
    sql = """SELECT c.digest, c.key FROM {each:2} e CROSS JOIN chunks c
        WHERE c.base = $1 AND c.digest = e.value"""
    for page in _pages(digests):
        yield from ((digest, key) for digest, key in reader.all(sql, base, to_json(page)))


def _put_terms(writer: Writer, base: int, chunks: Sequence[tuple[int, str, str]]) -> None:
    """Index chunks, given by key, headings as JSON, and text."""
    total = 0
    for page in _pages(chunks):
        terms = [
            (key, split_terms_for_index(_join_headings(headings, text)))
            for key, headings, text in page
        ]
        rows = [
            (base, term, key, count)
            for key, found in terms
            for term, count in sorted(Counter(found).items())
        ]
        writer.run_many(
            "INSERT INTO chunk_terms (base, term, chunk, count) VALUES ($1, $2, $3, $4)", rows
        )
        writer.run_many(
            "UPDATE chunks SET length = $2 WHERE key = $1",
            [(key, len(found)) for key, found in terms],
        )
        total += sum(len(found) for _, found in terms)
    _count(writer, base, len(chunks), total)


def _remove_unused(writer: Writer, base: int, keys: Sequence[int]) -> None:
    """Remove those of these chunks that no document has any more."""
    for page in _pages(keys):
        rows = writer.all(_UNUSED, base, str(page))
        terms = [
            (base, term, key)
            for key, headings, text, _ in rows
            for term in set(split_terms_for_index(_join_headings(headings, text)))
        ]
        writer.run_many(
            "DELETE FROM chunk_terms WHERE base = $1 AND term = $2 AND chunk = $3", terms
        )
        gone = [(key,) for key, _, _, _ in rows]
        writer.run_many("DELETE FROM chunk_vectors WHERE chunk = $1", gone)
        writer.run_many("DELETE FROM chunks WHERE key = $1", gone)
        _count(writer, base, -len(rows), -sum(length for _, _, _, length in rows))


def _count(writer: Writer, base: int, chunks: int, terms: int) -> None:
    writer.all(
        "UPDATE bases SET chunks = chunks + $2, terms = terms + $3, revision = revision + 1 "
        "WHERE key = $1",
        base,
        chunks,
        terms,
    )


def _join_headings(headings: str, text: str) -> str:
    return searched_text(read_headings(headings), text)


def _pages(things: Iterable[_T]) -> Iterator[list[_T]]:
    left = iter(things)
    while page := list(islice(left, _PAGE_ROWS)):
        yield page


_INSERT = """INSERT INTO documents (base, path, source, root, kind, title, digest, size, chunks,
    notes, created, updated) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)"""
_UPDATE = """UPDATE documents SET source = $2, root = $3, kind = $4, title = $5, digest = $6,
    size = $7, chunks = $8, notes = $9, updated = $10 WHERE key = $1"""
_NEXT_CHUNKS = f"""SELECT key, headings, text FROM chunks WHERE base = $1 AND key > $2
    ORDER BY key LIMIT {_PAGE_ROWS}"""
_UNUSED = """SELECT c.key, c.headings, c.text, c.length FROM {each_int:2} e
    CROSS JOIN chunks c WHERE c.key = e.value AND c.base = $1
    AND NOT EXISTS (SELECT 1 FROM document_chunks d WHERE d.chunk = c.key)"""
_WITHOUT_VECTOR = """SELECT c.key, c.headings, c.text FROM chunks c WHERE c.base = $1
    AND NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.chunk = c.key AND v.embedder = $2)
    ORDER BY c.key LIMIT $3"""
_COUNT_WITHOUT_VECTOR = """SELECT count(*) FROM chunks c WHERE c.base = $1
    AND NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.chunk = c.key AND v.embedder = $2)"""
_PUT_VECTOR = """INSERT INTO chunk_vectors (chunk, embedder, data) VALUES ($1, $2, $3)
    ON CONFLICT (chunk, embedder) DO UPDATE SET data = excluded.data"""
