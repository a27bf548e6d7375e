"""The words of definitions by their numbers, so that a request is compared with thousands of them
at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count
from threading import Lock

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.project.index.entries import Entry
from loom.project.parse.terms import terms_in

MIN_OUTER_CHARS = 8  # characters from which other words are looked for inside of a word

Floats = NDArray[np.float64]
Numbers = NDArray[np.int32]


class WordTable(Struct, frozen=True):
    """Rows of words one after the other, how many each row has, and how often each word is
    said.
    """

    words: Numbers
    sizes: Numbers
    times: Numbers

    @property
    def rows(self) -> Numbers:
        """The row of each word."""
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)


class Texts(Struct, frozen=True):
    """What the definitions of a file say: in their lines, in their names, in the last of the names
    around them.

    `longer` are the words of names that others may stand inside of.
    """

    bodies: WordTable
    names: WordTable
    around: WordTable
    longer: frozenset[str]


class Vocabulary:
    """The number of each word. It only grows, so several versions of an index share one."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._numbering = Lock()

    def texts(self, entry: Entry) -> Texts:
        definitions = entry.parsed.definitions
        names = [words_of(one.name) for one in definitions]
        around = [words_of(one.parent.rpartition(".")[2]) for one in definitions]
        longer = frozenset(
            word
            for word in chain.from_iterable(names)
            if len(word) >= MIN_OUTER_CHARS and "_" not in word
        )
        times = chain.from_iterable(body.values() for body in entry.bodies)
        with self._numbering:
            return Texts(
                self._table(entry.bodies, times), self._table(names), self._table(around), longer
            )

    def _table(self, rows: Sequence[Collection[str]], times: Iterable[int] = ()) -> WordTable:
        sizes = np.array([len(row) for row in rows], np.int32)
        words = np.fromiter(
            map(self._numbers.__getitem__, chain.from_iterable(rows)), np.int32, int(sizes.sum())
        )
        return WordTable(words, sizes, np.fromiter(times, np.int32))

    def values(self, given: Mapping[str, float]) -> Floats:
        """The value of each word by its number; 0 where none is given."""
        values = np.zeros(len(self._numbers))
        for word, value in given.items():
            if (number := self._numbers.get(word)) is not None and number < len(values):
                values[number] = value
        return values


def join_tables(tables: Sequence[WordTable]) -> WordTable:
    if not tables:
        return WordTable(*(np.zeros(0, np.int32) for _ in range(3)))
    return WordTable(
        np.concatenate([table.words for table in tables]),
        np.concatenate([table.sizes for table in tables]),
        np.concatenate([table.times for table in tables]),
    )


@lru_cache(maxsize=200_000)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, each once."""
    return tuple(dict.fromkeys(terms_in(name)))
