"""Where the messages of a history stand. Of a stored history only what a window can hold is read;
the rest is one spot each.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from msgspec import Struct

from loom.conversation.message import Message, Text
from loom.conversation.turns import Span


class Stretch(Struct, frozen=True):
    """What is known of messages that were read once and are not read now.

    How many they are, their tokens by the best counter and by the policy's own, how many exchanges,
    and how many are the model's.
    """

    messages: int
    tokens: int
    own: int
    exchanges: int
    answers: int


class Spot(Struct, frozen=True):
    """A message's place on its path, and the nodes it is made of: stretches, each by the ids of its
    first and its last.

    `tokens` are those of a stretch that was not read, and `stretch` what else is known of it; a
    message that was read is counted instead. What comes in beside the path
    (an annotation, a reference, a version that stands for the node at this place) says so, and `at`
    names the node it comes with.
    """

    start: int
    stop: int
    nodes: tuple[tuple[str, str], ...]
    tokens: int = 0
    beside: str = ""
    at: str = ""
    stretch: Stretch | None = None

    @property
    def unread(self) -> bool:
        return self.tokens > 0

    @property
    def anchor(self) -> str:
        """The node of the path that this place is known by."""
        return self.at or self.nodes[-1][1]

    @property
    def answers(self) -> int:
        """How many messages of a stretch are the model's; of what was never read, every other one
        is taken to be.
        """
        if self.stretch:
            return self.stretch.answers
        return (self.stop - self.start + 1) // 2

    @property
    def exchanges(self) -> int:
        """How many exchanges a stretch has; of what was never read, every other message is taken
        to begin one.
        """
        if self.stretch:
            return self.stretch.exchanges
        return (self.stop - self.start + 1) // 2

    def stand_in(self) -> Message:
        """What stands in a history for a stretch that was not read; never sent."""
        count, first, last = self.stop - self.start, self.nodes[0][0], self.nodes[-1][1]
        return Message("assistant", (Text(f"[{count} messages not read: {first} to {last}]"),))


class Places(Struct, frozen=True):
    """A spot for each message of a history; none at all where each message stands at its index.

    `hidden` are places on the path that nothing is shown of: what was excluded or pruned, and is no
    part of what was left out.
    """

    spots: tuple[Spot, ...] = ()
    hidden: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        return max((spot.stop for spot in self.spots), default=0)

    def unread(self, index: int) -> Spot | None:
        if self.spots and self.spots[index].unread:
            return self.spots[index]
        return None

    def count(self, index: int) -> int:
        """How many messages of the path this one stands for."""
        if not self.spots:
            return 1
        spot = self.spots[index]
        if spot.unread:  # a stretch of any length, so it must not be walked through
            if spot.stretch:
                return spot.stretch.messages
            return spot.stop - spot.start
        return (
            spot.stop
            - spot.start
            - sum(place in self.hidden for place in range(spot.start, spot.stop))
        )

    def costs(
        self, history: Sequence[Message], count: Callable[[Message], int], own: bool = False
    ) -> list[int]:
        """What each message takes; a stretch that was not read takes what is known of it, by the
        policy's `own` counter or the best.
        """
        counted = list(map(count, history))
        for index, spot in enumerate(self.spots):
            if spot.unread:
                if own and spot.stretch:
                    counted[index] = spot.stretch.own
                else:
                    counted[index] = spot.tokens
        return counted

    def span(self, span: Span) -> Span:
        """The place on the path of a span of the history."""
        if not self.spots:
            return span
        found = self.spots[span.start : span.stop]
        return Span(min(spot.start for spot in found), max(spot.stop for spot in found))

    def starts(self) -> list[int]:
        """Which message of the whole history each of these is, counted from 0, and behind them how
        many there are.
        """
        if self.spots:
            return list(accumulate(map(self.count, range(len(self.spots))), initial=0))
        return []

    def label(self, span: Span) -> str:
        at = self.span(span)
        beside = ""
        if self.spots and len(span) == 1:
            beside = self.spots[span.start].beside
        if len(at) == 1:
            return f"messages[{at.start}]{beside and '.'}{beside}"
        return f"messages[{at.start}:{at.stop}]"

    def after_repair(self, origins: Sequence[int]) -> "Places":
        """The places after repair, which tells from which message each comes."""
        if self.spots:
            return Places(tuple(self.spots[origin] for origin in origins), self.hidden)
        return self


EVERYWHERE = Places()
