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
