"""The embedder that Loom ships: a table with a vector for each word piece.

The vector of a text is the sum of the vectors of its pieces. No model runs. The table comes from a
language model; `scripts/embedding_table.py` makes it, and `data/NOTICE.md` says what it is made of.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct

from loom.errors import EmbedderError
from loom.providers.embedders.tensors import Tensor, open_tensors
from loom.providers.embedders.texts import batch_texts, cut_texts
from loom.providers.embedders.word_pieces import Pieces, PieceSplitter

if TYPE_CHECKING:
    from loom.recall.embedder import Vectors

TABLE = Path(__file__).parent / "data" / "static.safetensors"
MAX_TEXT_CHARS = 32_000  # the words of a longer text say no more about its subject
_BATCH_TEXTS = 512
_BATCH_CHARS = 64_000  # about 16,000 pieces: 16 MB of vectors at a time


class PieceTable(Struct, frozen=True):
    """A row of bytes and a factor for each word piece, and what splits texts into pieces."""

    name: str
    rows: Tensor
    factors: Tensor
    splitter: PieceSplitter


class StaticEmbedder:
    """Embeds texts by a table of word pieces: about 30,000 short sentences per second, offline.

    It knows English best. Of a text without a known word, the vector is zeros.
    """

    def __init__(self, path: Path = TABLE) -> None:
        self._table = _open_table(path)
        self.name = self._table.name
        self.dimensions: int = self._table.rows.shape[1]

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """A row of length 1 for each text; only the first 32,000 characters of a text count."""
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        done = 0
        for batch in batch_texts(cut_texts(texts, MAX_TEXT_CHARS), _BATCH_TEXTS, _BATCH_CHARS):
            self._add_up(self._table.splitter.split(batch), rows[done : done + len(batch)])
            done += len(batch)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        lengths[lengths == 0] = 1
        rows /= lengths[:, None]
        return rows

    def _add_up(self, pieces: Pieces, rows: "Vectors") -> None:
        """Sum the vectors of each text in the order of its pieces: what a text becomes depends on
        no other text.
        """
        starts = pieces.starts[:-1]
        is_filled = starts < pieces.starts[1:]
        if is_filled.any():
            ids = pieces.ids
            vectors = self._table.rows[ids] * self._table.factors[ids, None]
            rows[is_filled] = np.add.reduceat(vectors, starts[is_filled], axis=0)


@cache
def _open_table(path: Path) -> PieceTable:
    try:
        opened = open_tensors(path)
        tensors = opened.tensors
        splitter = PieceSplitter(tensors["tokenizer"].tobytes())
        return PieceTable(opened.about["name"], tensors["table"], tensors["factors"], splitter)
    except (OSError, ValueError, KeyError, msgspec.DecodeError) as error:
        raise EmbedderError(f"the table {path.name} cannot be read: {error!r}") from None
