"""Lists of messages grow from call to call: what was parsed of the last few is kept, and only what
is new is parsed.

A list is known by what it says, not by being the same object: a message that was changed since is
parsed again, and so is what follows it. Of a list that is larger than the limit, the beginning is
kept.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from loom.conversation.growing import message_bytes, text_bytes
from loom.conversation.message import Message
from loom.dialects.wire import Parsed

MAX_LISTS = 8  # lists
_CONTAINER_BYTES = 120  # about what a dictionary or a list takes, and each thing in it
_ENTRY_BYTES = 60


class ParsedList:
    """A list as far as it was parsed: its values as they were then, and what each became."""

    def __init__(self, first_item: int | None) -> None:
        # the first value that only the responses wire has; none if all are messages
        self.first_item = first_item
        self.values: list[Any] = []
        self.results: list[Parsed] = []
        self.size = 0

    def begin(self, length: int) -> "ParsedList":
        """The beginning of this list, as one of its own."""
        made = ParsedList(self.first_item)
        made.values, made.results = self.values[:length], self.results[:length]
        made.size = self.size * length // max(1, len(self.values))
        return made

    def common_with(self, values: Sequence[Any]) -> int:
        """How many values the two begin with that are the same."""
        known = len(self.values)
        # at the speed of comparing pointers, where the texts are the same objects
        if self.values == values[:known]:
            return known
        for place, (one, other) in enumerate(zip(self.values, values, strict=False)):
            if one != other:
                return place
        return min(known, len(values))


class ParsedLists:
    """The lists that were parsed last. Each is lent to one taker at a time, who lets it grow and
    puts it back.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._known: dict[int, ParsedList] = {}  # the newest last
        self._numbers = count()

    def take(
        self, values: Sequence[Any], find_item: Callable[[Sequence[Any]], int | None]
    ) -> ParsedList:
        """What is known of the beginning of a list; an empty one where that is nothing."""
        found = [(each.common_with(values), number) for number, each in list(self._known.items())]
        length, number = max(found, default=(0, 0))
        known = self._known.get(number) if length else None
        if known is None:
            return ParsedList(find_item(values))
        # what made them items is no longer there
        if known.first_item is not None and known.first_item >= length:
            return ParsedList(find_item(values))
        if known.first_item is None and find_item(values[length:]) is not None:
            return ParsedList(find_item(values))
        if length == len(known.values) and self._known.pop(number, None) is known:
            return known
        return known.begin(length)

    def put(self, known: ParsedList) -> None:
        """Keep it for the next taker, unless there is nothing of it or too much."""
        if not known.values or known.size > self.size:
            return
        self._known[next(self._numbers)] = known
        size = 0
        for place, (number, each) in enumerate(reversed(list(self._known.items()))):
            size += each.size
            if place >= MAX_LISTS or size > self.size:
                self._known.pop(number, None)

    def clear(self) -> None:
        self._known.clear()


def take_in(known: ParsedList, value: Any, result: Parsed, most: int) -> bool:
    """Keep what a value became, with the value as it is now, where that can be done in so many
    bytes for all; whether it was.
    """
    copied, size = _copy(value)
    if size < 0 or known.size + size > most:
        return False
    known.values.append(copied)
    known.results.append(result)
    known.size += size
    return True


def _copy(value: Any) -> tuple[Any, int]:
    """A value that will not change with the one given, and about its bytes; less than none if it
    may be anything.
    """
    kind = type(value)
    if kind is str:
        return value, text_bytes(value)
    if kind is dict:
        copies, size = _copy_all(value.values())
        return dict(zip(value, copies, strict=False)), size
    if kind is list:
        return _copy_all(value)
    if kind in (int, float, bool, type(None)):
        return value, 0
    if kind is Message:
        return value, message_bytes(value)
    return None, -1


def _copy_all(values: Iterable[Any]) -> tuple[list[Any], int]:
    copies: list[Any] = []
    size = _CONTAINER_BYTES
    for value in values:
        if type(value) is str:  # most are
            copies.append(value)
            size += _ENTRY_BYTES + text_bytes(value)
            continue
        copied, more = _copy(value)
        if more < 0:
            return copies, -1
        copies.append(copied)
        size += _ENTRY_BYTES + more
    return copies, size
