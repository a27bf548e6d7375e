"""The protocol of vector stores, and what they share: hits, checks, and the order of hits."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.conversation.canonical import to_json
from loom.errors import ChoiceError, describe

Floats = NDArray[np.float32]
SCORE_DIGITS = 6  # scores are rounded to these before they are compared
MAX_DIMENSIONS = 16_000
_COLLECTION = re.compile(r"[a-z][a-z0-9_]{0,39}")


class VectorStore(Protocol):
    """Keeps vectors with what belongs to them, and finds the nearest. Both methods may be `async`.

    `search` returns hits with `id`, `score` and `metadata`, or tuples or mappings of those, the
    nearest first. `metadata` is a mapping of names to values that JSON can express.
    """

    def add(self, id: str, vector: Sequence[float], metadata: Mapping[str, Any]) -> Any: ...

    def search(self, vector: Sequence[float], top_k: int) -> Any: ...


class VectorHit(Struct, frozen=True):
    """A vector that is near: its id, the cosine of the angle, and what belongs to it."""

    id: str
    score: float
    metadata: Mapping[str, Any]


def check_vector(vector: object, dimensions: int | None = None) -> Floats:
    """A vector as numbers of length 1; zeros stay zeros."""
    try:
        numbers = np.asarray(vector, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise ChoiceError(f"a vector is a list of numbers, found {describe(vector)}") from None
    if numbers.ndim != 1 or not 1 <= numbers.size <= MAX_DIMENSIONS:
        raise ChoiceError(
            f"a vector has 1 to {MAX_DIMENSIONS:,} numbers, found the shape {numbers.shape}"
        )
    if not np.isfinite(numbers).all():
        raise ChoiceError("a vector has a number that is infinite or not a number")
    if dimensions is not None and numbers.size != dimensions:
        raise ChoiceError(
            f"a vector has {numbers.size} numbers, and the vectors of this store have "
            f"{dimensions}; vectors of different models cannot be compared"
        )
    length = float(np.linalg.norm(numbers.astype(np.float64)))
    if not length:
        return numbers
    return (numbers.astype(np.float64) / length).astype(np.float32)


def check_id(identity: object) -> str:
    if not isinstance(identity, str) or not identity or "\0" in identity:
        raise ChoiceError(f"the id of a vector is a text, found {describe(identity)}")
    return identity


def check_collection(name: str) -> str:
    """The name of a collection, which may be part of the name of a table."""
    if not isinstance(name, str) or not _COLLECTION.fullmatch(name):
        raise ChoiceError(
            f"a collection is named with lower-case letters, digits and _, found {describe(name)}"
        )
    return name


def check_top_k(top_k: object) -> int:
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise ChoiceError(f"top_k is how many hits are wanted, 1 or more; found {describe(top_k)}")
    return top_k


def metadata_json(metadata: object) -> str:
    """What belongs to a vector, as JSON."""
    if not isinstance(metadata, Mapping):
        raise ChoiceError(f"metadata must be a mapping, found {describe(metadata)}")
    try:
        return to_json(dict(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise ChoiceError(f"metadata must be values that JSON can express: {error}") from None


def pick_nearest(vector: Floats, matrix: Floats, top_k: int) -> list[tuple[int, float]]:
    """The rows of a matrix that are nearest to a vector, with their scores. Of equals the later
    row comes first.
    """
    if not len(matrix):
        return []
    scores = np.round(matrix @ vector, SCORE_DIGITS)
    if top_k < len(scores):
        # all that are as near as the last one, so that their order decides
        worst = np.partition(scores, len(scores) - top_k)[len(scores) - top_k]
        rows = np.flatnonzero(scores >= worst)
    else:
        rows = np.arange(len(scores))
    order = sorted(rows.tolist(), key=lambda row: (-float(scores[row]), -row))
    return [(row, float(scores[row])) for row in order[:top_k]]


def to_bytes(vector: Floats) -> bytes:
    return vector.astype("<f4").tobytes()


def to_matrix(rows: Iterable[bytes], dimensions: int) -> Floats:
    """Rows of bytes as one matrix."""
    held = b"".join(rows)
    return np.frombuffer(held, dtype="<f4").reshape(-1, dimensions).astype(np.float32, copy=False)
