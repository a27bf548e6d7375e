"""Which units of a history a policy would keep, by their sizes alone; the same for messages, turns
and nodes of a document.

A strategy names the units in the order in which they may claim room. The gate, which all policies
share, fills in that order.
"""

from collections.abc import Sequence

from msgspec import Struct

from loom.context.policy import Strategy, StrategyFunction
from loom.conversation.message import Message
from loom.errors import CannotFit, ChoiceError, describe


class Choice(Struct, frozen=True):
    """All units in the order in which they may claim room, and how many of them are kept."""

    order: tuple[int, ...]
    kept: int


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


def choose(
    strategy: Strategy, sizes: Sequence[int], available: int, minimum_recent: int, marker: int
) -> Choice:
    count = len(sizes)
    newest_first = tuple(reversed(range(count)))
    match strategy:
        case "newest" | "ladder":  # of a ladder that does not reach, the newest stay
            return Choice(newest_first, count)
        case "recent" | "rolling_window":
            return Choice(newest_first, count - recent(sizes, available))
        case "whole_turns":  # the active turn is never refused; the gate cuts inside it
            return Choice(newest_first, max(count - recent(sizes, available), min(count, 1)))
        case "truncate_middle":
            head, tail = truncate_middle(sizes, available, minimum_recent, marker)
            return Choice((*reversed(range(tail, count)), *range(tail)), count - tail + head)
        case "stop_at_limit":
            if sum(sizes) > available:
                raise refuse_to_cut(sum(sizes), available)
            return Choice(newest_first, count)


def choose_by(
    function: StrategyFunction,
    units: Sequence[Sequence[Message]],
    sizes: Sequence[int],
    available: int,
) -> Choice:
    """What a function of the caller chooses: the units that it names, in its order. It may leave
    out any of them.
    """
    found = tuple(function(units, sizes, available))
    wrong = [unit for unit in found if type(unit) is not int or not 0 <= unit < len(units)]
    if wrong or len(set(found)) < len(found):
        what = describe(wrong[0]) if wrong else "an index twice"
        raise ChoiceError(
            f"a strategy must return indexes of the {len(units)} exchanges that it was given, "
            f"each once; found {what}"
        )
    named = set(found)
    return Choice(
        (*found, *(unit for unit in reversed(range(len(units))) if unit not in named)), len(found)
    )


def refuse_to_cut(tokens: int, available: int) -> CannotFit:
    """What the strategy `stop_at_limit` says instead of leaving something out."""
    return CannotFit(
        f"the context takes {tokens:,} tokens of {available:,}, and the strategy stop_at_limit "
        "refuses to cut; "
        "exclude messages or choose a model with a larger window"
    )
