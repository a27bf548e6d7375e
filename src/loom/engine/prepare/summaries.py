"""What summaries tell in a request, and where."""

from collections.abc import Sequence

from loom.context import Context, Policy, SummarySpan
from loom.conversation.turns import Span
from loom.engine.prepare.standing import PathIndex, first_after
from loom.engine.reading import AssembledMessages
from loom.stores import Summary

BY_PERSON = "a person"  # who wrote a summary that no program made
_OPENING_CHARS = 60  # by which a summary is known in a request


def names_of(summaries: Sequence[Summary]) -> tuple[str, ...]:
    return tuple(summary.name for summary in summaries)


def written_by_person(summaries: Sequence[Summary]) -> str:
    """The name of the newest summary that a person wrote; "" if nobody did."""
    return next((summary.name for summary in reversed(summaries) if summary.by == BY_PERSON), "")


def place_summaries(
    summaries: Sequence[Summary], assembled: AssembledMessages, policy: Policy
) -> tuple[SummarySpan, ...]:
    """Summaries by their places in what was read now. If one has no place of its own, none is told:
    lines cover the gap.
    """
    # one message tells all of it, before whatever is left out first
    if policy.summary == "message":
        return tuple(
            _tell(0, first_after(assembled, summary.stop), summary) for summary in summaries
        )
    index = PathIndex(assembled)
    made: list[SummarySpan] = []
    for summary in summaries:
        first, last = index.at(summary.start), index.at(summary.stop)
        if first is None or last is None:
            return ()
        made.append(_tell(first, last, summary))
    return tuple(made)


def _tell(start: int, stop: int, summary: Summary) -> SummarySpan:
    return SummarySpan(Span(start, stop), summary.text, summary.by)


def shown_summaries(summaries: Sequence[Summary], context: Context) -> tuple[str, ...]:
    """The names of those that a request shows. One may be shortened at its end."""
    texts = [
        message.text for message in (*context.conversation.system, *context.conversation.messages)
    ]
    openings = ((summary.name, summary.text[:_OPENING_CHARS]) for summary in summaries)
    return tuple(name for name, opening in openings if any(opening in text for text in texts))
