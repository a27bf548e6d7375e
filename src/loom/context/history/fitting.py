"""The fitting: all that is settled before messages of a history are chosen, as one value.

Whoever chooses, cuts, marks or covers looks at this and at nothing else. Another room, another
floor: `replace` makes another.
"""

from collections.abc import Sequence
from functools import cached_property
from math import ceil

from msgspec import Struct

from loom.budget.counting import Counter, seed_counter
from loom.context.caches import SHARED, Caches
from loom.context.handles import Archive
from loom.context.history.outlook import Prices
from loom.context.history.places import EVERYWHERE, Places
from loom.context.policy import Policy
from loom.conversation.message import Message
from loom.conversation.turns import Span

MAX_WORDS_ONCE = 0.6  # of a cover for a call that is its own, what users' words may take
WORDS_BEYOND = 0.5  # of users' words, what such a cover takes beyond its share
# so at most it takes so many times its share
MAX_COVER_ONCE = 1 + MAX_WORDS_ONCE * WORDS_BEYOND


class Fitting(Struct, frozen=True, kw_only=True, dict=True):
    """A history, how it is decided and counted, and the room that it may take."""

    history: tuple[Message, ...]
    policy: Policy
    counter: Counter  # the best one for the model
    archive: Archive
    places: Places = EVERYWHERE
    caches: Caches = SHARED
    goal: str = ""  # the words of the first request
    pins: tuple[int, ...] = ()
    document: bool = False
    head_hash: str = ""  # of what stands ahead of the history
    before_hash: str = ""  # of the sections before the current request, with its place

    # Tokens by the best counter.
    window: int = 0
    reserved_output: int = 0  # at this window
    reserve: int = 0  # at a larger window, which has the usual reserve
    margin: float = 0.0  # the share of the window that is kept free
    beside: int = 0  # what stands next to history at a window where no section has to be cut
    tools: int = 0  # of that, the definitions of tools
    all_tools: int = 0  # the same at a window where no tool is left out
    tools_share: float = 0.0  # the share of a window that definitions may take
    few_tools: int = 0  # what they may take in a small window
    room: int = 0  # what history may take
    room_with_covers: int = 0  # the same with covers, where the room is what these leave; else 0
    refill: float = 1.0  # the share of the room that a new epoch fills
    # the share of all that there is, next to the room, that tells of what is left out
    cover_share: float = 0.0
    cover_beyond: int = 0  # tokens that users' words may take beyond that share, at most

    # Tokens by the policy's own counter.
    zone: int = 0  # the zone of the history, as allocated
    rest: int = 0  # what all other zones, measured, leave
    fills: int | None = None  # what a strategy may fill, where that is measured
    # the same as the most that history may take at all, goal and markers included
    formula: int | None = None
    # what a strategy leaves free next to history, at a window where nothing is scaled
    set_aside: int = 0
    own_beside: int = 0  # what stands next to history
    own_larger: int = 0  # the same at a window where no section has to be cut

    floor: int = 0  # what stands before it is left out, unless it must be in
    compacted: int | None = None  # the message with the newest compaction of the provider
    # whether the newest system message of each kind is in where there is room for it
    reminders: bool = True
    spared: frozenset[int] = frozenset()  # messages that no rung of a ladder touches
    prices: Prices | None = None
    cold: bool = False  # a provider no longer has the last request in its cache
    busy: bool = False  # a call is in flight, and nothing moves that need not

    @property
    def own(self) -> Counter:
        """The policy's own counter; the best one where it has none."""
        if self.has_best_counter:
            return self.counter
        return seed_counter(self.policy.counter)

    @property
    def whole_room(self) -> int:
        """What history and its covers may take."""
        return self.room_with_covers or self.room

    @property
    def input_window(self) -> int:
        """What a request may take of the window."""
        return self.window - self.reserved_output

    @property
    def has_best_counter(self) -> bool:
        return self.policy.counter == "best"

    @cached_property
    def costs(self) -> list[int]:
        """What each message takes, by the best counter."""
        return self.places.costs(self.history, self.counter.count_message)

    @cached_property
    def own_costs(self) -> list[int]:
        """What each message takes, by the policy's own counter."""
        return self.places.costs(
            self.history, self.own.count_message, own=not self.has_best_counter
        )

    @cached_property
    def _starts(self) -> Sequence[int]:
        return self.places.starts()

    def messages(self, span: Span) -> tuple[Message, ...]:
        return self.history[span.start : span.stop]

    def cost(self, span: Span) -> int:
        """What the messages of a span take, by the best counter."""
        return sum(self.costs[span.start : span.stop])

    def count(self, span: Span) -> int:
        """How many messages of the whole history a span stands for."""
        return sum(map(self.places.count, range(span.start, span.stop)))

    def position(self, index: int) -> int:
        """Which message of the whole history this one is; after the last, how many there are."""
        if self._starts:
            return self._starts[index]
        return index

    @property
    def length(self) -> int:
        """How many messages the whole history has."""
        return self.position(len(self.history))

    @property
    def whole_at(self) -> int:
        """The window at which all of the history fits."""
        return self.window_for(sum(self.costs))

    def window_for(self, tokens: int) -> int:
        """The window that leaves so many tokens for history."""
        needed = tokens + self.beside + self._count_more_tools(tokens + self.beside)
        return -int(-needed // (1 - self.margin)) + self.reserve + 1

    def _count_more_tools(self, tokens: int) -> int:
        """What definitions take more at a window for so many tokens: a larger window has more of
        the tools.
        """
        if self.all_tools <= self.tools:
            return 0
        # at that window, the tools take their share of it
        usable = (tokens - self.tools) / (1 - self.margin - self.tools_share)
        shown = max(ceil(usable * self.tools_share), self.few_tools)
        return max(0, min(self.all_tools, shown) - self.tools)
