"""Vectors in memory."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loom.conversation.canonical import from_json
from loom.providers.knowledge.vectors.store import (
    Floats,
    VectorHit,
    check_id,
    check_top_k,
    check_vector,
    metadata_json,
    pick_nearest,
)


class MemoryVectorStore:
    """A vector store that lasts as long as its object. All vectors are compared."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Floats, str]] = {}
        self._dimensions: int | None = None
        self._matrix: Floats | None = None  # made when it is next needed
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any]) -> None:
        """Keep a vector. One of the same id is replaced."""
        identity, held = check_id(id), metadata_json(metadata)
        with self._lock:
            numbers = check_vector(vector, self._dimensions if self._rows else None)
            self._dimensions = numbers.size
            self._rows.pop(identity, None)
            self._rows[identity] = (numbers, held)
            self._matrix = None

    def remove(self, id: str) -> bool:
        """Remove a vector; whether there was one."""
        with self._lock:
            self._matrix = None
            return self._rows.pop(id, None) is not None

    def search(self, vector: Sequence[float], top_k: int) -> list[VectorHit]:
        """The nearest vectors, the nearest first."""
        top_k = check_top_k(top_k)
        with self._lock:
            if not self._rows:
                return []
            numbers = check_vector(vector, self._dimensions)
            if self._matrix is None:
                self._matrix = np.stack([row for row, _ in self._rows.values()])
            matrix, ids = self._matrix, list(self._rows)
            held = [self._rows[identity][1] for identity in ids]
        return [
            VectorHit(ids[row], score, from_json(held[row]))
            for row, score in pick_nearest(numbers, matrix, top_k)
        ]
