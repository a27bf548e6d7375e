"""What makes vectors of texts."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]  # one text: `dimensions` numbers
Vectors: TypeAlias = NDArray[np.float32]  # several texts: a row for each


class Embedder(Protocol):
    """Turns texts into vectors whose angle says how near they are in meaning.

    `name` names the model and its version. Vectors of different names are never compared.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row for each text, of length 1; a text without meaning may have zeros."""
        ...


def compare_vectors(rows: Sequence[Vector], vector: Vector) -> Vector:
    """How near each of these is to a vector.

    A few at a time: for a larger product the library wakes threads that take more time than they
    save.
    """
    step = max(_MULTIPLIED // max(len(vector), 1) // 4 * 4, 4)
    matrix = np.concatenate(rows).reshape(len(rows), -1)
    return np.concatenate(
        [matrix[start : start + step] @ vector for start in range(0, len(rows), step)]
    )


_MULTIPLIED = 8192  # numbers
