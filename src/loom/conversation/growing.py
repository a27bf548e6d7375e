"""Histories grow from call to call: what was computed of the last few is kept, to continue from
when there is more of one.

Whoever keeps such things holds users' words, so it has a limit in bytes and an owner that can clear
it.
"""

from itertools import count
from typing import Generic, Protocol, TypeVar

from loom.conversation.message import Message, Part, Reasoning
from loom.conversation.parts import text_of, walk_parts

PART_BYTES = 120  # about what a part takes besides its words, and a message besides its parts


def message_bytes(message: Message) -> int:
    """About how many bytes a message takes."""
    return PART_BYTES + sum([_part_bytes(part) for part in walk_parts(message.parts)])


def _part_bytes(part: Part) -> int:
    size = PART_BYTES + text_bytes(text_of(part))
    if isinstance(part, Reasoning):
        size += len(part.encrypted) + len(part.signature)
    return size


def text_bytes(text: str) -> int:
    """At most how many bytes a text takes."""
    if text.isascii():
        return len(text)
    return 4 * len(text)


class GrowingHistory(Protocol):
    """What was computed of a history as far as it was given, and about how many bytes it
    takes.
    """

    @property
    def messages(self) -> tuple[object, ...]: ...
    @property
    def size(self) -> int: ...


Kept = TypeVar("Kept", bound=GrowingHistory)


class RecentHistories(Generic[Kept]):
    """The last few, at most so many, which take at most this many bytes together.

    Each is lent to one taker at a time, who lets it grow and puts it back; another thread that asks
    meanwhile computes its own.
    """

    def __init__(self, most: int, size: int) -> None:
        self._most, self._size = most, size
        self._known: dict[int, Kept] = {}  # the newest last; a number is given once
        self._numbers = count()

    def take(self, messages: tuple[object, ...]) -> Kept | None:
        """The longest of those that these messages begin with."""
        known = list(self._known.items())
        # The same messages, not just equal ones, are compared at next to no cost.
        begun = [
            (len(each.messages), number)
            for number, each in known
            if messages[: len(each.messages)] == each.messages
        ]
        for _, number in sorted(begun, reverse=True):
            # else another thread was quicker
            if (found := self._known.pop(number, None)) is not None:
                return found
        return None

    def put(self, grown: Kept) -> None:
        """Keep it for the next taker, unless there is nothing of it yet or too much."""
        if not grown.messages or grown.size > self._size:
            return
        self._known[next(self._numbers)] = grown
        size = 0
        for place, (number, each) in enumerate(reversed(list(self._known.items()))):
            size += each.size
            if place >= self._most or size > self._size:
                self._known.pop(number, None)

    def clear(self) -> None:
        self._known.clear()
