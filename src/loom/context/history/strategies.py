"""Strategies: which units of a history a policy would keep, by their sizes alone; the same for
messages, turns and nodes of a document.

A strategy names the units in the order in which they may claim room. The gate, which all policies
share, fills in that order. What else differs from strategy to strategy is a property of it, and
others ask that property: a new strategy is an entry of `STRATEGIES` and its name in `policy.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from loom.conversation.message import Message
from loom.errors import CannotFit, ChoiceError, describe

# Takes the exchanges of a history from the oldest on, the tokens of each, and the tokens that they
# may fill. Returns the indexes of those that may stay, the most important first.
StrategyFunction = Callable[[Sequence[Sequence[Message]], Sequence[int], int], Iterable[int]]


class Units(Struct, frozen=True, kw_only=True):
    """The units that a strategy chooses from: their sizes, and what they may fill, in tokens."""

    sizes: Sequence[int]
    available: int
    minimum_recent: int = 1
    marker: int = 0  # tokens of a marker
    messages: Callable[[], Sequence[Sequence[Message]]] = tuple  # of each unit


class Choice(Struct, frozen=True):
    """All units in the order in which they may claim room, and how many of them are kept."""

    order: tuple[int, ...]
    kept: int


class Strategy(Struct, frozen=True, kw_only=True):
    """How units are chosen, and what others have to know of that."""

    choose: Callable[[Units], Choice]
    # Units are turns, which are in as a whole or not at all. If not, they are exchanges.
    takes_turns: bool = False
    # All of it is in, or `CannotFit`: nothing is cut, and no section gives way.
    refuses_to_cut: bool = False
    # The last nodes are in after the request, as many as fit, before anything else.
    keeps_last_nodes: bool = False
    # Room is filled from the oldest unit on, so the start of a history is read too.
    fills_from_start: bool = False
    # Of the first unit that does not fit whole, so much is in as there is room for.
    cuts_last_unit: bool = False
    # The rungs of the policy's ladder make the history smaller before units are chosen.
    climbs: bool = False
    # With a counter of its own: what its formula charges of what stands ahead of the history.
    charges: Literal["nothing", "words", "messages"] = "nothing"


def recent(sizes: Sequence[int], available: int) -> int:
    """Where the newest run begins that fits: from the end back to the first unit that does not,
    none skipped.
    """
    used, start = 0, len(sizes)
    while start > 0 and used + sizes[start - 1] <= available:
        start -= 1
        used += sizes[start]
    return start


def truncate_middle(
    sizes: Sequence[int], available: int, minimum_recent: int = 4, marker: int = 0
) -> tuple[int, int]:
    """Where the head ends and the tail begins: the last units whatever their size, then from the
    oldest what fits beside them.
    """
    tail = max(0, len(sizes) - max(1, minimum_recent))
    if sum(sizes) <= available:
        return tail, tail
    room = available - sum(sizes[tail:]) - marker
    head = 0
    while head < tail and sizes[head] <= room:
        room -= sizes[head]
        head += 1
    return head, tail


def _newest_first(units: Units, kept: int) -> Choice:
    return Choice(tuple(reversed(range(len(units.sizes)))), kept)


def _choose_all(units: Units) -> Choice:
    return _newest_first(units, len(units.sizes))


def _choose_recent(units: Units) -> Choice:
    return _newest_first(units, len(units.sizes) - recent(units.sizes, units.available))


def _choose_turns(units: Units) -> Choice:
    """The active turn is never refused; the gate cuts inside it."""
    count = len(units.sizes)
    return _newest_first(units, max(count - recent(units.sizes, units.available), min(count, 1)))


def _choose_ends(units: Units) -> Choice:
    sizes, count = units.sizes, len(units.sizes)
    head, tail = truncate_middle(sizes, units.available, units.minimum_recent, units.marker)
    return Choice((*reversed(range(tail, count)), *range(tail)), count - tail + head)


def _choose_all_or_refuse(units: Units) -> Choice:
    if sum(units.sizes) > units.available:
        raise refuse_to_cut(sum(units.sizes), units.available)
    return _choose_all(units)


def _choose_by(function: StrategyFunction, units: Units) -> Choice:
    """What a function of the caller chooses: the units that it names, in its order. It may leave
    out any of them.
    """
    count = len(units.sizes)
    found = tuple(function(units.messages(), units.sizes, units.available))
    wrong = [unit for unit in found if type(unit) is not int or not 0 <= unit < count]
    if wrong or len(set(found)) < len(found):
        what = describe(wrong[0]) if wrong else "an index twice"
        raise ChoiceError(
            f"a strategy must return indexes of the {count} exchanges that it was given, "
            f"each once; found {what}"
        )
    named = set(found)
    others = (unit for unit in reversed(range(count)) if unit not in named)
    return Choice((*found, *others), len(found))


def refuse_to_cut(tokens: int, available: int) -> CannotFit:
    """What the strategy `stop_at_limit` says instead of leaving something out."""
    return CannotFit(
        f"the context takes {tokens:,} tokens of {available:,}, and the strategy stop_at_limit "
        "refuses to cut; "
        "exclude messages or choose a model with a larger window"
    )


STRATEGIES: Mapping[str, Strategy] = {
    "newest": Strategy(choose=_choose_all, cuts_last_unit=True),
    "recent": Strategy(choose=_choose_recent, charges="words"),
    "rolling_window": Strategy(choose=_choose_recent),
    # the same next to all else, counted as messages
    "recent_beside": Strategy(choose=_choose_recent, charges="messages"),
    "truncate_middle": Strategy(choose=_choose_ends, keeps_last_nodes=True, fills_from_start=True),
    "stop_at_limit": Strategy(choose=_choose_all_or_refuse, refuses_to_cut=True),
    "whole_turns": Strategy(choose=_choose_turns, takes_turns=True, charges="messages"),
    # where its rungs do not reach, the newest stay
    "ladder": Strategy(choose=_choose_all, climbs=True),
}


def find_strategy(given: str | StrategyFunction) -> Strategy:
    """The strategy of a policy: the one of this name, or one that a function of the caller is."""
    if isinstance(given, str):
        return STRATEGIES[given]
    return Strategy(choose=partial(_choose_by, given))
