"""Histories grow from call to call: what was worked out of the last few is kept, to go on from when there is more of one."""

from itertools import count
from typing import Generic, Protocol, TypeVar

from loom.conversation.message import Message


class Grown(Protocol):
    """What was worked out of a history as far as it was given, and its size."""

    @property
    def given(self) -> tuple[Message, ...]: ...
    @property
    def size(self) -> int: ...


Kept = TypeVar("Kept", bound=Grown)


class Recent(Generic[Kept]):
    """The last few, at most so many and of at most such a size together.

    Each is lent to one taker at a time, who lets it grow and puts it back; another thread that asks meanwhile works out its own.
    """

    def __init__(self, most: int, size: int) -> None:
        self._most, self._size = most, size
        self._known: dict[int, Kept] = {}  # the newest last; a number is given once
        self._numbers = count()

    def take(self, messages: tuple[Message, ...]) -> Kept | None:
        """The longest of those that these messages begin with."""
        known = list(self._known.items())
        # The same messages, not just equal ones, are compared at next to no cost.
        begun = [(len(each.given), number) for number, each in known if messages[: len(each.given)] == each.given]
        for _, number in sorted(begun, reverse=True):
            if (found := self._known.pop(number, None)) is not None:  # else another thread was quicker
                return found
        return None

    def put(self, grown: Kept) -> None:
        """Keep it for the next taker, unless there is nothing of it yet or too much."""
        if not grown.given or grown.size > self._size:
            return
        self._known[next(self._numbers)] = grown
        size = 0
        for place, (number, each) in enumerate(reversed(list(self._known.items()))):
            size += each.size
            if place >= self._most or size > self._size:
                self._known.pop(number, None)

    def clear(self) -> None:
        self._known.clear()
