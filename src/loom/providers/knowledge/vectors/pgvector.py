"""Vectors in PostgreSQL, by the extension pgvector."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from loom.conversation.canonical import from_json
from loom.errors import ChoiceError, StoreError
from loom.providers.knowledge.vectors.store import (
    SCORE_DIGITS,
    Floats,
    VectorHit,
    check_collection,
    check_id,
    check_top_k,
    check_vector,
    metadata_json,
)
from loom.stores import Database, Reader, open_database

MAX_INDEXED_DIMENSIONS = 2000  # that an index of pgvector can hold
MIN_LOOKED_AT = 100  # vectors that the index looks at for one search
MAX_LOOKED_AT = 1000  # what pgvector allows
_LOCK = 7006012719  # any number, as long as it is always the same


class PgVectorStore:
    """A vector store in PostgreSQL, with an index: each collection is a table of its own.

    It needs the extension `vector`, which is created if the user may do that.
    """

    def __init__(self, url: str, collection: str = "knowledge") -> None:
        self._collection = check_collection(collection)
        self._table = f"vectors_{self._collection}"
        self._database: Database = open_database(url)
        if self._database.name != "postgres":
            raise ChoiceError("PgVectorStore takes postgres://…; SqliteVectorStore takes a path")
        self._dimensions: int | None = None

    def __len__(self) -> int:
        with self._database.read() as reader:
            if self._known_dimensions(reader) is None:
                return 0
            row = reader.first_row(f"SELECT count(*) FROM {self._table}")
        return int(row[0]) if row else 0

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any]) -> None:
        """Keep a vector. One of the same id is replaced."""
        identity, held = check_id(id), metadata_json(metadata)
        numbers = check_vector(vector, self._dimensions)
        if self._dimensions is None:
            numbers = check_vector(vector, self._make_table(numbers.size))
        with self._database.write() as writer:
            writer.all(f"DELETE FROM {self._table} WHERE id = $1", identity)
            writer.all(
                f"INSERT INTO {self._table} (id, vector, metadata) "
                "VALUES ($1, CAST($2::text AS vector), $3)",
                identity,
                _spell(numbers),
                held,
            )

    def remove(self, id: str) -> bool:
        """Remove a vector; whether there was one."""
        with self._database.write() as writer:
            if self._known_dimensions(writer) is None:
                return False
            gone = writer.all(
                f"DELETE FROM {self._table} WHERE id = $1 RETURNING seq", check_id(id)
            )
        return bool(gone)

    def search(self, vector: Sequence[float], top_k: int) -> list[VectorHit]:
        """The nearest vectors, the nearest first."""
        top_k = check_top_k(top_k)
        with self._database.read() as reader:
            dimensions = self._known_dimensions(reader)
            if dimensions is None:
                return []
            spelt = _spell(check_vector(vector, dimensions))
            looked_at = min(max(MIN_LOOKED_AT, 4 * top_k), MAX_LOOKED_AT)
            reader.all(f"SET LOCAL hnsw.ef_search = {looked_at}")
            # a few more than are wanted: of those that are equally near, the order is ours
            rows = reader.all(
                f"SELECT seq, id, metadata, 1 - (vector <=> CAST($1::text AS vector)) "
                f"FROM {self._table} ORDER BY vector <=> CAST($1::text AS vector) LIMIT $2",
                spelt,
                top_k + MIN_LOOKED_AT // 2,
            )
        scored = [(_score(found[3]), found) for found in rows]
        scored.sort(key=lambda each: (-each[0], -each[1][0]))
        return [VectorHit(row[1], score, from_json(row[2])) for score, row in scored[:top_k]]

    def close(self) -> None:
        self._database.close()

    def _known_dimensions(self, reader: Reader) -> int | None:
        """The length of the vectors in the table; None if there is no table yet."""
        if self._dimensions is None:
            row = reader.first_row(
                "SELECT a.atttypmod FROM pg_attribute a "
                "WHERE a.attrelid = to_regclass($1::text) AND a.attname = 'vector'",
                self._table,
            )
            self._dimensions = int(row[0]) if row else None
        return self._dimensions

    def _make_table(self, dimensions: int) -> int:
        """Make the table if there is none; how long its vectors are."""
        with self._database.read() as reader:
            known = self._known_dimensions(reader)
        if known is not None:
            return known
        self._make_extension()
        with self._database.write() as writer:
            writer.all(f"SELECT pg_advisory_xact_lock({_LOCK})")
            writer.all(
                f"CREATE TABLE IF NOT EXISTS {self._table} (seq {{serial}}, "
                f"id TEXT {{binary}} NOT NULL UNIQUE, vector vector({dimensions}) NOT NULL, "
                "metadata TEXT NOT NULL)"
            )
            if dimensions <= MAX_INDEXED_DIMENSIONS:
                writer.all(
                    f"CREATE INDEX IF NOT EXISTS {self._table}_near ON {self._table} "
                    "USING hnsw (vector vector_cosine_ops)"
                )
        with self._database.read() as reader:
            return self._known_dimensions(reader) or dimensions

    def _make_extension(self) -> None:
        with suppress(StoreError), self._database.write() as writer:
            writer.all(f"SELECT pg_advisory_xact_lock({_LOCK})")
            writer.all("CREATE EXTENSION IF NOT EXISTS vector")
        with self._database.read() as reader:
            if reader.first_row("SELECT 1 FROM pg_extension WHERE extname = 'vector'") is None:
                raise StoreError(
                    f"{self._database.address} has no extension `vector`; install pgvector on the "
                    "server and run CREATE EXTENSION vector"
                )


def _spell(vector: Floats) -> str:
    return "[" + ",".join(repr(float(number)) for number in vector) + "]"


def _score(similarity: float | None) -> float:
    """The cosine as it is told; a vector of zeros is near to nothing."""
    if similarity is None or similarity != similarity:
        return 0.0
    return round(float(similarity), SCORE_DIGITS)
