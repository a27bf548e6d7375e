"""What stands for messages that were left out: their telling lines, by the anchors that will be needed, without any model."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from loom.context.anchors import AnchorIndex
from loom.context.extract import extract
from loom.conversation.message import Message

LEAST = 40  # tokens below which a cover tells nothing


@lru_cache(maxsize=2)
def _indexed(messages: tuple[Message, ...]) -> AnchorIndex:
    """The index of these messages, kept for whoever weaves the same history again: reading it takes most of the time."""
    index = AnchorIndex()
    for message in messages:
        index.add(message)
    return index


def cover(
    sources: Sequence[tuple[str, Message]], after: Sequence[Message], tokens: int, count: Callable[[str], int], goal: str
) -> str:
    """Lines of these messages, each known by its place, in at most so many tokens; `after` is what stays verbatim behind them."""
    if tokens < LEAST or not sources:
        return ""
    index = _indexed(tuple(message for _, message in sources))
    made = extract(index, 0, len(index), tokens, count, after=after, goal=goal, name=lambda place: sources[place][0])
    return made.text
