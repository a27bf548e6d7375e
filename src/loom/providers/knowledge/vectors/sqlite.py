"""Vectors in a file of SQLite."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from loom.conversation.canonical import from_json
from loom.errors import ChoiceError
from loom.providers.knowledge.vectors.store import (
    Floats,
    VectorHit,
    check_collection,
    check_id,
    check_top_k,
    check_vector,
    metadata_json,
    pick_nearest,
    to_bytes,
    to_matrix,
)
from loom.stores import Database, Reader, open_database

_TABLES = (
    """CREATE TABLE IF NOT EXISTS vectors (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, collection TEXT NOT NULL, id TEXT NOT NULL,
        dimensions INTEGER NOT NULL, vector BLOB NOT NULL, metadata TEXT NOT NULL,
        UNIQUE (collection, id))""",
    # Counts what was written, so that readers know when what they hold is old.
    """CREATE TABLE IF NOT EXISTS vector_changes (
        collection TEXT PRIMARY KEY, count INTEGER NOT NULL)""",
)
_CHANGED = """INSERT INTO vector_changes (collection, count) VALUES ($1, 1)
    ON CONFLICT (collection) DO UPDATE SET count = count + 1"""


class SqliteVectorStore:
    """A vector store in a file. All vectors of its collection are held in memory after the first
    search, and compared; other programs may write at the same time.

    The file may be a store of Loom; a file of its own is made if there is none.
    """

    def __init__(self, path: "str | os.PathLike[str]", collection: str = "knowledge") -> None:
        self._collection = check_collection(collection)
        self._database: Database = open_database(os.fspath(path))
        if self._database.name != "sqlite":
            raise ChoiceError("SqliteVectorStore takes a path; PgVectorStore takes postgres://…")
        self._lock = threading.Lock()
        self._held: tuple[int, list[int], Floats] | None = None
        with self._database.write() as writer:
            for statement in _TABLES:
                writer.all(statement)

    def __len__(self) -> int:
        with self._database.read() as reader:
            row = reader.first_row(
                "SELECT count(*) FROM vectors WHERE collection = $1", self._collection
            )
        return int(row[0]) if row else 0

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any]) -> None:
        """Keep a vector. One of the same id is replaced."""
        identity, held = check_id(id), metadata_json(metadata)
        with self._database.write() as writer:
            writer.all(
                "DELETE FROM vectors WHERE collection = $1 AND id = $2", self._collection, identity
            )
            numbers = check_vector(vector, self._dimensions(writer))
            writer.all(
                "INSERT INTO vectors (collection, id, dimensions, vector, metadata) "
                "VALUES ($1, $2, $3, $4, $5)",
                self._collection,
                identity,
                numbers.size,
                to_bytes(numbers),
                held,
            )
            writer.all(_CHANGED, self._collection)

    def remove(self, id: str) -> bool:
        """Remove a vector; whether there was one."""
        with self._database.write() as writer:
            gone = writer.all(
                "DELETE FROM vectors WHERE collection = $1 AND id = $2 RETURNING seq",
                self._collection,
                check_id(id),
            )
            writer.all(_CHANGED, self._collection)
        return bool(gone)

    def search(self, vector: Sequence[float], top_k: int) -> list[VectorHit]:
        """The nearest vectors, the nearest first."""
        top_k = check_top_k(top_k)
        with self._database.read() as reader:
            dimensions = self._dimensions(reader)
            if dimensions is None:
                return []
            numbers = check_vector(vector, dimensions)
            seqs, matrix = self._matrix(reader, dimensions)
            nearest = pick_nearest(numbers, matrix, top_k)
            keys = str([seqs[row] for row, _ in nearest])
            rows = reader.all(
                "SELECT seq, id, metadata FROM vectors WHERE seq IN {each_int:1}", keys
            )
        found = {seq: (identity, held) for seq, identity, held in rows}
        return [
            VectorHit(found[seqs[row]][0], score, from_json(found[seqs[row]][1]))
            for row, score in nearest
        ]

    def close(self) -> None:
        self._database.close()

    def _dimensions(self, reader: Reader) -> int | None:
        row = reader.first_row(
            "SELECT dimensions FROM vectors WHERE collection = $1 LIMIT 1", self._collection
        )
        return int(row[0]) if row else None

    def _matrix(self, reader: Reader, dimensions: int) -> tuple[list[int], Floats]:
        """All vectors of the collection, read again only if one was written."""
        row = reader.first_row(
            "SELECT count FROM vector_changes WHERE collection = $1", self._collection
        )
        version = int(row[0]) if row else 0
        with self._lock:
            if self._held and self._held[0] == version:
                return self._held[1:]
        rows = reader.all(
            "SELECT seq, vector FROM vectors WHERE collection = $1 ORDER BY seq", self._collection
        )
        seqs, matrix = [seq for seq, _ in rows], to_matrix((held for _, held in rows), dimensions)
        with self._lock:
            self._held = (version, seqs, matrix)
        return seqs, matrix
