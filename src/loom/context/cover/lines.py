"""What stands for messages that were left out: their telling lines, by the anchors that will be
needed, without any model.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.context.cover.anchors import PRINTING, AnchorIndex, Memory, passages_of
from loom.context.cover.extract import Focus, extract
from loom.context.cover.speech import Source
from loom.context.quotes import Quote
from loom.conversation.growing import RecentHistories
from loom.conversation.message import Message
from loom.conversation.turns import Span

MIN_COVER_TOKENS = 40  # tokens below which a cover tells nothing
# histories whose index is kept, for whoever weaves the same one again or what it has grown to
MAX_INDEXES = 16


class IndexedHistory(Struct, frozen=True):
    """Messages, and the index that holds them."""

    messages: tuple[Source, ...]
    index: AnchorIndex

    @property
    def size(self) -> int:
        return self.index.size


class HistoryIndexes:
    """The indexes of the histories that were covered last, and the passages that were read last."""

    def __init__(self, size: int) -> None:
        self.recent: RecentHistories[IndexedHistory] = RecentHistories(MAX_INDEXES, size)
        self.memory = Memory()

    def clear(self) -> None:
        self.recent.clear()
        self.memory.clear()


def quote_lines(
    sources: Sequence[tuple[int, Source]],
    speech: Mapping[int, Quote],
    tokens: int,
    count: Callable[[str], int],
    focus: Focus,
    indexes: HistoryIndexes,
) -> tuple[Quote, ...]:
    """What a cover quotes of these messages, in their order: the users' `speech`, by index, and
    lines of the others in at most so many tokens.
    """
    if not sources:
        return ()
    if tokens < MIN_COVER_TOKENS:
        return tuple(speech.values())
    messages = tuple([source for _, source in sources])
    known = indexes.recent.take(messages)
    index = known.index if known else AnchorIndex(indexes.memory)
    for source in messages[len(index) :]:
        index.add(source)
    focus = replace(focus, places=[place for place, _ in sources], quoted=frozenset(speech))
    made = extract(index, Span(0, len(index)), tokens, count, focus)
    indexes.recent.put(IndexedHistory(messages, index))
    return merge_quotes(speech.values(), made.quotes)


def forget_printed(
    quotes: Sequence[Quote], sources: Iterable[tuple[int, Source]], indexes: HistoryIndexes
) -> tuple[Quote, ...]:
    """Quotes of before without what they coined, where a tool has printed it since."""
    if not any(quote.coined for quote in quotes):
        return tuple(quotes)
    printed = _find_printed(sources, indexes.memory)
    return tuple([_forget(quote, printed) for quote in quotes])


def _find_printed(sources: Iterable[tuple[int, Source]], memory: Memory) -> set[str]:
    """The names that tools print in these messages."""
    return {
        anchor
        for _, source in sources
        if isinstance(source, Message)
        for passage in passages_of(source, memory)
        if passage.voice in PRINTING
        for anchor in passage.anchors
    }


def _forget(quote: Quote, printed: set[str]) -> Quote:
    if not quote.coined or printed.isdisjoint(quote.coined):
        return quote
    return replace(quote, coined=tuple([name for name in quote.coined if name not in printed]))


def merge_quotes(first: Iterable[Quote], second: Iterable[Quote]) -> tuple[Quote, ...]:
    """Quotes of two lists that are each in order, by their places."""
    return tuple(heapq.merge(first, second, key=lambda quote: quote.place))
