"""Every string of an index once, by its number."""

from collections.abc import Iterable, Mapping, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
Floats = NDArray[np.float64]


class StoredStrings:
    """Strings as they are kept: one after the other, with where each ends, and their checksums in
    order, so that none is made before it is asked for.
    """

    def __init__(
        self, data: bytes, ends: Numbers, checksums: NDArray[np.uint32], order: Numbers
    ) -> None:
        self.data, self.ends, self.checksums, self.order = data, ends, checksums, order

    @classmethod
    def of(cls, texts: Sequence[str]) -> "StoredStrings":
        encoded = [_encode(text) for text in texts]
        sums = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        order = np.argsort(sums, kind="stable").astype(np.int32)
        ends = np.cumsum([len(one) for one in encoded], dtype=np.int32)
        return cls(b"".join(encoded), ends, sums[order], order)

    def __len__(self) -> int:
        return len(self.ends)

    def find(self, text: str) -> int:
        """The number of a string; -1 if it is not here."""
        encoded = _encode(text)
        checksum = np.uint32(crc32(encoded))
        place = int(np.searchsorted(self.checksums, checksum))
        while place < len(self) and self.checksums[place] == checksum:
            number = int(self.order[place])
            if self._bytes_of(number) == encoded:
                return number
            place += 1
        return -1

    def __getitem__(self, number: int) -> str:
        return self._bytes_of(number).decode("utf-8", "surrogatepass")

    def _bytes_of(self, number: int) -> bytes:
        start = self.ends[number - 1] if number else 0
        return self.data[start : self.ends[number]]


class StringTable:
    """Strings and their numbers. It only grows, so several versions of an index share one. One
    thread may add strings while others look them up.
    """

    def __init__(self, stored: StoredStrings | None = None) -> None:
        self._stored = stored or StoredStrings.of(())
        self._added: list[str] = []
        self._numbers = _StringNumbers(self._stored, self._added)
        self._made: dict[int, str] = {}  # of the stored ones those that were asked for

    def __len__(self) -> int:
        return len(self._stored) + len(self._added)

    def __getitem__(self, number: int) -> str:
        text = self._made.get(number)
        if text is not None:
            return text
        if number >= len(self._stored):
            return self._added[number - len(self._stored)]
        self._made[number] = text = self._stored[number]
        return text

    def find(self, text: str) -> int:
        """The number of a string; -1 if it is not here."""
        number = self._numbers.get(text)
        if number is None:
            return self._stored.find(text)
        return number

    def add_all(self, texts: Iterable[str]) -> Numbers:
        """The numbers of strings, those of new ones too."""
        return np.fromiter(map(self._numbers.__getitem__, texts), np.int32)

    def find_long(self, numbers: Numbers, chars: int) -> list[str]:
        """Of these strings those with at least so many characters. Most that are shorter are told
        by their bytes, without making them.
        """
        stored = np.diff(self._stored.ends, prepend=0)
        sizes = np.concatenate((stored, np.array([len(one) for one in self._added], np.int32)))
        found = map(self.__getitem__, numbers[sizes[numbers] >= chars].tolist())
        return [text for text in found if len(text) >= chars]

    def spread(self, values: Mapping[str, float]) -> Floats:
        """The value of each string by its number; 0 where none is given."""
        found = np.zeros(len(self))
        for text, value in values.items():
            number = self.find(text)
            if 0 <= number < len(found):
                found[number] = value
        return found

    def store(self) -> StoredStrings:
        """All strings as they can be kept."""
        if not self._added:
            return self._stored
        return StoredStrings.of([self[number] for number in range(len(self))])


class _StringNumbers(dict[str, int]):
    """The numbers of strings that were met. A string that is new gets the next one."""

    def __init__(self, stored: StoredStrings, added: list[str]) -> None:
        super().__init__()
        self._stored, self._added = stored, added

    def __missing__(self, text: str) -> int:
        number = self._stored.find(text) if len(self._stored) else -1
        if number < 0:
            number = len(self._stored) + len(self._added)
            self._added.append(text)
        self[text] = number
        return number


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
