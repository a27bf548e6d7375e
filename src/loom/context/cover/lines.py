"""What stands for messages that were left out: their telling lines, by the anchors that will be
needed, without any model.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from loom.context.cover.anchors import AnchorIndex, Memory
from loom.context.cover.extract import extract
from loom.conversation.growing import RecentHistories
from loom.conversation.message import Message
from loom.conversation.turns import Span

LEAST = 40  # tokens below which a cover tells nothing
# histories whose index is kept, for whoever weaves the same one again or what it has grown to
KEPT = 16


class IndexedHistory(Struct, frozen=True):
    """Messages, and the index that holds them."""

    messages: tuple[Message, ...]
    index: AnchorIndex

    @property
    def size(self) -> int:
        return self.index.size


class HistoryIndexes:
    """The indexes of the histories that were covered last, and the passages that were read last."""

    def __init__(self, size: int) -> None:
        self.recent: RecentHistories[IndexedHistory] = RecentHistories(KEPT, size)
        self.memory = Memory()

    def clear(self) -> None:
        self.recent.clear()
        self.memory.clear()


def cover(
    sources: Sequence[tuple[int, Message]],
    after: Sequence[Message],
    tokens: int,
    count: Callable[[str], int],
    goal: str,
    indexes: HistoryIndexes,
) -> str:
    """Lines of these messages, each known by its place, in at most so many tokens; `after` is what
    stays verbatim behind them.
    """
    if tokens < LEAST or not sources:
        return ""
    messages = tuple([message for _, message in sources])
    known = indexes.recent.take(messages)
    index = known.index if known else AnchorIndex(indexes.memory)
    for message in messages[len(index) :]:
        index.add(message)
    made = extract(
        index,
        Span(0, len(index)),
        tokens,
        count,
        after=after,
        goal=goal,
        name=lambda place: str(sources[place][0]),
    )
    indexes.recent.put(IndexedHistory(messages, index))
    return made.text
