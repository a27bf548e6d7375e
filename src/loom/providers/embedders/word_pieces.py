"""Texts as numbers of word pieces, for models of the BERT family."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import splintr
from msgspec import Struct
from numpy.typing import NDArray

from loom.providers.embedders.texts import replace_surrogates

Ids: TypeAlias = NDArray[np.int64]


class Pieces(Struct, frozen=True):
    """The pieces of several texts, one after the other: those of text N are
    `ids[starts[N]:starts[N + 1]]`.
    """

    ids: Ids
    starts: Ids

    def of(self, number: int) -> Ids:
        return self.ids[self.starts[number] : self.starts[number + 1]]


class PieceSplitter:
    """Splits texts by a vocabulary, given as the bytes of a `tokenizer.json` that adds no tokens
    of its own: what a text says is never taken for a command to the model.
    """

    def __init__(self, tokenizer: bytes) -> None:
        self._tokenizer = splintr.from_json_bytes(tokenizer)

    def split(self, texts: Sequence[str]) -> Pieces:
        try:
            ids, starts = self._tokenizer.encode_batch_flat(list(texts))
        except UnicodeEncodeError:  # half of a pair of surrogates
            ids, starts = self._tokenizer.encode_batch_flat(list(map(replace_surrogates, texts)))
        return Pieces(
            np.frombuffer(ids, dtype="<u4").astype(np.int64),
            np.frombuffer(starts, dtype="<u8").astype(np.int64),
        )
