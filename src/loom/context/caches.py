"""What weaving computes of a history is kept for the next request, for histories grow. It has an
owner and a limit in bytes.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from loom.budget.estimate import forget_pieces
from loom.context.cover.anchors import forget_names
from loom.context.cover.lines import HistoryIndexes
from loom.conversation.words import forget_words
from loom.dialects.input import ParsedLists
from loom.dialects.repair import SeenHistories

MAX_VALUES = 64  # of what sources made of what a store has
_T = TypeVar("_T")
CACHE_BYTES = 256_000_000  # about how much is kept; what is larger is computed again each time
MAX_FILES = 128  # small files that are kept


class FileTexts(dict[str, Any]):
    """What was made of small files, by their paths. If there are too many, it begins again."""

    def __setitem__(self, path: str, made: Any) -> None:
        if len(self) >= MAX_FILES:
            self.clear()
        super().__setitem__(path, made)


class NewestValues:
    """The values that were made last, by what they were made of."""

    def __init__(self, limit: int = MAX_VALUES) -> None:
        self._limit = limit
        self._values: dict[Hashable, object] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """The value of a key; it is made if it is not there."""
        missing = self
        found = self._values.pop(key, missing)
        value = make() if found is missing else cast("_T", found)
        self._values[key] = value
        # Another thread may change the values meanwhile; then one more stays for a while.
        if len(self._values) > self._limit:
            self._values.pop(next(iter(self._values.copy())), None)
        return value

    def clear(self) -> None:
        self._values.clear()


class Caches:
    """All that is kept between requests. A `Loom` has one of its own; requests that are woven
    without a store share one.

    It holds users' words. Clearing it costs time at the next request, and nothing else.
    """

    def __init__(self, size: int = CACHE_BYTES) -> None:
        self.seen = SeenHistories(size // 4)
        self.indexes = HistoryIndexes(size // 2)
        self.lists = ParsedLists(size // 4)
        self.values = NewestValues()
        self.files = FileTexts()

    def clear(self) -> None:
        """Let go of everything."""
        self.seen.clear()
        self.indexes.clear()
        self.lists.clear()
        self.values.clear()
        self.files.clear()
        forget_names()
        forget_words()
        forget_pieces()


SHARED = Caches()
