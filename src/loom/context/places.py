"""Where the messages of a history stand. Of a stored history only what a window can hold is read; the rest is one spot each."""

from collections.abc import Sequence

from msgspec import Struct

from loom.conversation.message import Message, Text
from loom.conversation.turns import Span


class Spot(Struct, frozen=True):
    """A message's place on its path, and the ids from its first node to its last: two where it stands for a stretch not read.

    `tokens` are those of such a stretch; a message that was read is counted instead.
    """

    start: int
    stop: int
    first: str
    last: str
    tokens: int = 0

    @property
    def unread(self) -> bool:
        return self.tokens > 0 or self.stop - self.start > 1


class Places(Struct, frozen=True):
    """A spot for each message of a history; none at all where each message stands at its index."""

    spots: tuple[Spot, ...] = ()

    @property
    def end(self) -> int:
        return self.spots[-1].stop if self.spots else 0

    def unread(self, index: int) -> Spot | None:
        return self.spots[index] if self.spots and self.spots[index].unread else None

    def count(self, index: int) -> int:
        """How many messages of the path this one stands for."""
        return self.spots[index].stop - self.spots[index].start if self.spots else 1

    def span(self, span: Span) -> Span:
        """The place on the path of a span of the history."""
        if not self.spots:
            return span
        found = self.spots[span.start : span.stop]
        return Span(min(spot.start for spot in found), max(spot.stop for spot in found))

    def label(self, span: Span) -> str:
        at = self.span(span)
        return f"messages[{at.start}]" if len(at) == 1 else f"messages[{at.start}:{at.stop}]"

    def moved(self, origins: Sequence[int]) -> "Places":
        """The places after repair, which tells from which message each comes."""
        return Places(tuple(self.spots[origin] for origin in origins)) if self.spots else self


EVERYWHERE = Places()


def stand_in(spot: Spot) -> Message:
    """What stands in a history for a stretch that was not read; never sent."""
    return Message("assistant", (Text(f"[{spot.stop - spot.start} messages not read: {spot.first} to {spot.last}]"),))
