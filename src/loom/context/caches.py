"""What weaving computes of a history is kept for the next request, for histories grow. It has an
owner and a limit in bytes.
"""

from loom.budget.estimate import forget_pieces
from loom.context.cover.anchors import forget_names
from loom.context.cover.lines import HistoryIndexes
from loom.conversation.words import forget_words
from loom.dialects.input import ParsedLists
from loom.dialects.repair import SeenHistories

CACHE_BYTES = 256_000_000  # about how much is kept; what is larger is computed again each time


class Caches:
    """All that is kept between requests. A `Loom` has one of its own; requests that are woven
    without a store share one.

    It holds users' words. Clearing it costs time at the next request, and nothing else.
    """

    def __init__(self, size: int = CACHE_BYTES) -> None:
        self.seen = SeenHistories(size // 4)
        self.indexes = HistoryIndexes(size // 2)
        self.lists = ParsedLists(size // 4)

    def clear(self) -> None:
        """Let go of everything."""
        self.seen.clear()
        self.indexes.clear()
        self.lists.clear()
        forget_names()
        forget_words()
        forget_pieces()


SHARED = Caches()
