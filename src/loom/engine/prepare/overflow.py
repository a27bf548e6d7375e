"""What a request leaves out after a provider refused the last one as too long."""

from bisect import bisect_right
from collections.abc import Sequence

from loom.context import Policy, add_dropped_note, find_strategy
from loom.conversation.message import Message
from loom.conversation.turns import exchanges, newer_half
from loom.engine.reading import AssembledMessages
from loom.engine.summing import join_texts
from loom.stores import Summary


def find_newer_half(
    shown: Sequence[tuple[int, int]], assembled: AssembledMessages, policy: Policy
) -> int:
    """Where the newer half begins of the turns that the last request showed; of one turn, the newer
    half of its exchanges.

    Where turns are whole, no turn is divided: of one turn only its request stays.
    """
    seen = _seen_again(shown, assembled)
    if find_strategy(policy.strategy).takes_turns:
        # What stands apart from the others, the goal, is not of the history that the preset has
        # left.
        begin = max((n for n in seen if n - 1 not in seen), default=0)
        return max(begin + newer_half(assembled.messages[begin:]), 1)
    turns = [n for n in sorted(seen) if assembled.messages[n].role == "user"]
    if len(turns) > 1:
        return max(turns[len(turns) // 2], 1)
    starts = [span.start for span in exchanges(assembled.messages) if span.start in seen]
    if starts:
        return max(starts[len(starts) // 2], 1)
    return 1


def _seen_again(shown: Sequence[tuple[int, int]], assembled: AssembledMessages) -> set[int]:
    """The messages that the last request showed, by their places in what was read now; without one,
    all.
    """
    begins = [start for start, _ in shown]
    seen: set[int] = set()
    for n, spot in enumerate(assembled.places.spots):
        at = bisect_right(begins, spot.start) - 1
        if not spot.unread and (not shown or (at >= 0 and spot.start < shown[at][1])):
            seen.add(n)
    return seen


def note_overflow(
    summaries: Sequence[Summary], assembled: AssembledMessages, floor: int
) -> Summary:
    """What summaries told, with a note that an overflow cost what comes before a place."""
    before = assembled.places.spots[:floor]
    done = summaries[-1].stop if summaries else 0
    stop = max([done, *(spot.stop for spot in before)])
    gone = sum(spot.stop - spot.start for spot in before if spot.start >= done)
    if floor == len(assembled.messages):
        gone -= _still_there(assembled.messages)
    return Summary(
        text=add_dropped_note(join_texts(summaries), gone),
        start=0,
        stop=stop,
        by="an overflow",
        dropped=gone,
    )


def _still_there(messages: Sequence[Message]) -> int:
    """How many messages of a single turn stay: its request and its newest exchange."""
    users = [n for n, message in enumerate(messages) if message.role == "user"]
    last = exchanges(messages)[-1]
    return len({*users[-1:], *range(last.start, last.stop)})
