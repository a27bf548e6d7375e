"""Summaries in a request: what tells of a stretch of the history in a few words, in its place or
before the first gap.
"""

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

from msgspec import Struct
from msgspec.structs import replace

from loom.context.history.fitting import Fitting
from loom.context.history.pieces import FittedHistory, cover, keep, lay, leave_out
from loom.context.history.point import must_and_reminders
from loom.context.report import Piece
from loom.context.shorten.cut import shrink_text
from loom.conversation.message import Role
from loom.conversation.turns import Span, exchanges
from loom.errors import CannotFit

_FRAME = 8  # tokens for what joins a summary to its marker


class SummarySpan(Struct, frozen=True):
    """A summary of a stretch of the history, and who made it."""

    span: Span
    text: str
    by: str

    @property
    def rule(self) -> str:
        return f"summary by {self.by}"


def lay_summaries(summaries: Sequence[SummarySpan], fitting: Fitting) -> tuple[Piece, ...]:
    """The history up to the last summary as pieces: each summary stands for what it tells of, but
    what must be in is complete.

    None at all where they do not follow one another from the beginning, or one would tear an
    exchange.
    """
    units = exchanges(fitting.history)
    if not summaries or not _cover_beginning(summaries) or not _keep_exchanges(summaries, units):
        return ()
    must = must_and_reminders(fitting)

    def rule_of(unit: Span) -> str:
        return next((must[n] for n in range(unit.start, unit.stop) if n in must), "")

    pieces: list[Piece] = []
    for summary in summaries:
        inside = [unit for unit in units if summary.span.start <= unit.start < summary.span.stop]
        pieces += _lay_summary(
            summary, [(rule, list(run)) for rule, run in groupby(inside, rule_of)], fitting
        )
    return tuple(pieces)


def _lay_summary(
    summary: SummarySpan, runs: Sequence[tuple[str, list[Span]]], fitting: Fitting
) -> list[Piece]:
    """What a summary says in the place of its first run of exchanges; markers for others, but runs
    with a rule are complete.
    """
    pieces: list[Piece] = []
    for rule, run in runs:
        if rule:
            pieces += [keep(fitting, unit, rule) for unit in run]
        else:
            pieces.append(_cover_run(run, summary, fitting))
            summary = replace(summary, text="")  # said once
    return pieces


def _cover_beginning(summaries: Sequence[SummarySpan]) -> bool:
    """Whether the first begins where the history does, and each where the last one ends."""
    joined = all(later.span.start == earlier.span.stop for earlier, later in pairwise(summaries))
    return summaries[0].span.start == 0 and joined


def _keep_exchanges(summaries: Sequence[SummarySpan], units: Sequence[Span]) -> bool:
    """Whether none of them tears an exchange, and something is left after them."""
    stops = {unit.stop for unit in units[:-1]}
    return all(summary.span.stop in stops for summary in summaries)


def _cover_run(run: Sequence[Span], summary: SummarySpan, fitting: Fitting) -> Piece:
    """What a summary says in the place of these exchanges; a marker where it was said before."""
    span = Span(run[0].start, run[-1].stop)
    marked = leave_out(fitting, span, summary.rule, fitting.cost(span), fitting.whole_at)
    text = marked.messages[0].text
    if summary.text:
        text = f"{text} In short, for reference only:\n{summary.text}"
    return cover(fitting, marked, text)


def cover_first_gap(
    fill: Callable[[Fitting], FittedHistory], fitting: Fitting, summaries: Sequence[SummarySpan]
) -> FittedHistory:
    """What is filled in, with all that summaries tell as one message where something was first left
    out.
    """
    fitted = fill(fitting)
    if not summaries or fitting.policy.summary != "message" or _first_gap(fitted) is None:
        return fitted
    text = fitting.policy.summary_text.format(
        text="\n\n".join(summary.text for summary in summaries)
    )
    # what tells of the history must not take its room
    count, most = fitting.counter.count_text, fitting.room // 2
    if count(text) + _FRAME > most:
        text = shrink_text(text, most - _FRAME, count, fitting.archive.keep_text("summary", text))
    try:
        fitted = fill(replace(fitting, room=fitting.room - count(text) - _FRAME))
    except CannotFit:
        return fitted
    first = _first_gap(fitted)
    assert first is not None
    gap = fitted.pieces[first]
    # As the model's own words, as seed 000 has it; but no wire lets a model speak first.
    role: Role = "assistant" if first else "user"
    covered = cover(fitting, gap, f"{text}\n{gap.messages[0].text}", summaries[-1].rule, role)
    return lay(fitting, (*fitted.pieces[:first], covered, *fitted.pieces[first + 1 :]))


def _first_gap(fitted: FittedHistory) -> int | None:
    return next((n for n, piece in enumerate(fitted.pieces) if piece.action == "dropped"), None)
