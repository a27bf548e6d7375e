"""Which files use what others define, and how much each matters by that: PageRank, from everywhere
or from what was asked for.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import count, islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.project.index.entries import Entry
from loom.project.rank.words import Floats

MAX_DEFINERS = 15  # files that define a name; what more of them define is everybody's word
BACKWARD_FACTOR = 0.6  # how much a file that uses something gets from it, next to what it gives
# that a name is the one that is defined here, and not one of a library; that one of one word is
DOUBT, WORD = 4.0, 0.3
_ROUNDS = 12

Numbers = NDArray[np.int64]


class _FileNames(Struct, frozen=True):
    """What one file defines and what it uses of others and how often, by the numbers of the
    names.
    """

    entry: Entry
    defined: Numbers
    used: Numbers
    times: Numbers


class Graph:
    """The files of an index and the names between them. Of an index that changed only what is new
    is looked at.
    """

    def __init__(self, entries: Mapping[str, Entry], before: "Graph | None" = None) -> None:
        self._numbers: defaultdict[str, int] = (
            before._numbers if before else defaultdict(count().__next__)
        )
        held = before._files if before else {}
        self._files: dict[str, _FileNames] = {
            path: _reuse(held.get(path), entry) or self._hold(entry)
            for path, entry in entries.items()
        }
        words: NDArray[np.bool_] = before._is_word if before else np.zeros(0, bool)
        self._is_word: NDArray[np.bool_] = _extend_words(words, self._numbers)
        self._sources = self._targets = self._names = np.zeros(0, np.int64)
        self._weights = np.zeros(0)
        self._connect(list(self._files.values()))

    def _hold(self, entry: Entry) -> _FileNames:
        number = self._numbers.__getitem__
        defined = {definition.name for definition in entry.parsed.definitions}
        used = {
            name: times for name, times in entry.parsed.references.items() if name not in defined
        }
        return _FileNames(
            entry,
            np.fromiter(map(number, defined), np.int64, len(defined)),
            np.fromiter(map(number, used), np.int64, len(used)),
            np.fromiter(used.values(), np.int64, len(used)),
        )

    def _connect(self, files: list[_FileNames]) -> None:
        """The edges from who uses a name to who defines it. A name that few define says more, so it
        is worth more.
        """
        if not files:
            return
        names = len(self._numbers)
        definer = np.repeat(np.arange(len(files)), [len(file.defined) for file in files])
        defined = np.concatenate([file.defined for file in files])
        user = np.repeat(np.arange(len(files)), [len(file.used) for file in files])
        used = np.concatenate([file.used for file in files])
        weights = np.sqrt(np.concatenate([file.times for file in files]))
        definers = np.bincount(defined, minlength=names)
        is_telling = (definers[used] > 0) & (definers[used] <= MAX_DEFINERS)
        user, used, weights = user[is_telling], used[is_telling], weights[is_telling]
        by_name = np.argsort(defined, kind="stable")
        definer, first = definer[by_name], np.concatenate(([0], np.cumsum(definers)))
        times = definers[used]
        place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        self._sources = np.repeat(user, times)
        self._targets = definer[np.repeat(first[used], times) + place]
        self._names = np.repeat(used, times)
        self._weights = np.repeat(weights / times**2, times)

    def users(self) -> dict[tuple[str, str], float]:
        """How many files use each name of each file, those that are sure."""
        key = self._targets * len(self._numbers) + self._names
        keys, place = np.unique(key, return_inverse=True)
        sums = np.bincount(place, self._sure(), len(keys)).tolist()
        paths, names = list(self._files), list(self._numbers)
        targets, numbers = (part.tolist() for part in np.divmod(keys, max(1, len(names))))
        return {
            (paths[target], names[number]): total
            for target, number, total in zip(targets, numbers, sums, strict=True)
        }

    def _sure(self) -> Floats:
        """How sure it is that one file means the other by a name: by how much else it uses of it,
        and whether it is any word.
        """
        _, place, shared = np.unique(
            self._sources * len(self._files) + self._targets,
            return_inverse=True,
            return_counts=True,
        )
        squared = shared[place] ** 2.0
        words = np.where(self._is_word[self._names], WORD, 1.0)
        sure: Floats = squared / (squared + DOUBT) * words
        return sure

    def rank(
        self, wanted: Floats, follow: float, back: float = BACKWARD_FACTOR, sure: bool = False
    ) -> Floats:
        """How much each file matters, in their order, to one who begins at the wanted ones and
        follows names with this chance.
        """
        size, total = len(wanted), wanted.sum()
        if not size or not total:
            return np.zeros(size)
        start = wanted / total
        sources = np.concatenate((self._sources, self._targets))
        targets = np.concatenate((self._targets, self._sources))
        if sure:
            forth = self._weights * self._sure()
        else:
            forth = self._weights
        weights = np.concatenate((forth, back * forth))
        given = np.bincount(sources, weights, size)
        weights = weights / np.where(given > 0, given, 1)[sources]
        here: Floats = start
        for _ in range(_ROUNDS):
            here = (1 - follow) * start + follow * np.bincount(
                targets, here[sources] * weights, size
            )
        return here


def _extend_words(known: NDArray[np.bool_], numbers: Mapping[str, int]) -> NDArray[np.bool_]:
    """Whether each name is one word, by number. Names only come in at the end."""
    names = list(islice(numbers, len(known), None))
    return np.concatenate((known, np.fromiter(map(_is_word, names), bool, len(names))))


def _is_word(name: str) -> bool:
    """Whether a name is one word, such as any library may have: `push`, `Error`, `_HTML`."""
    bare = name.strip("_")
    return "_" not in bare and (bare[1:].islower() or bare.isupper())


def _reuse(held: _FileNames | None, entry: Entry) -> _FileNames | None:
    if held and held.entry is entry:
        return held
    return None
