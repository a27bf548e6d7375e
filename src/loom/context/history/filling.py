"""Filling: what the strategy ranks, as the gate lets it in; and at which window what is cut
returns.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from loom.context.history.fitting import MAX_COVER_ONCE, Fitting
from loom.context.history.gate import Ranking, find_windows, fit
from loom.context.history.pieces import FittedHistory
from loom.context.history.point import must_and_reminders
from loom.context.history.ranking import RankedUnits, rank
from loom.context.history.whole_turns import find_whole_windows, fit_turns
from loom.context.report import Piece, Returns
from loom.conversation.turns import Span


def fill(fitting: Fitting, start: int = 0) -> FittedHistory:
    """What the strategy chooses from a place on, as the gate lets it in."""
    ranked = rank(fitting, start)
    chosen_at = _find_chosen_at(fitting, ranked)
    if fitting.floor:
        ranked = _keep_above(ranked, fitting.floor)
    if fitting.formula is not None:
        return fit_turns(fitting, ranked, chosen_at)
    return fit(fitting, Ranking(ranked.spans, ranked.order, ranked.kept_units, chosen_at))


def _keep_above(ranked: RankedUnits, floor: int) -> RankedUnits:
    """What is ranked, without keeping what stands before a floor."""
    above = [
        [unit for unit in group if ranked.spans[unit].start >= floor] for group in ranked.together
    ]
    together = [group for group in above if group]
    first = [unit for group in together for unit in group]
    named = set(first)
    return replace(
        ranked,
        together=together,
        order=[*first, *(unit for unit in ranked.order if unit not in named)],
    )


def _find_chosen_at(fitting: Fitting, ranked: RankedUnits) -> list[int]:
    """The window at which the strategy itself would choose each unit; 0 where it counts as the gate
    does.
    """
    if fitting.formula is not None:
        return find_whole_windows(fitting, ranked)
    chosen_at = [0] * len(ranked.spans)
    if fitting.has_best_counter:
        return chosen_at
    # The strategy would take a unit where all that it ranks before, and itself, fit what it may
    # fill, by its own counter.
    used = fitting.own.count_text(fitting.policy.marker) + fitting.set_aside
    for group in ranked.picked:
        used += ranked.sizes[group]
        for unit in ranked.groups[group]:
            chosen_at[unit] = used
    return chosen_at


def evicts(fitting: Fitting, pieces: Sequence[Piece]) -> bool:
    """Whether a strategy with a counter of its own would no longer choose something that stands,
    and need not.
    """
    if fitting.has_best_counter:
        return False
    ranked = rank(fitting)
    must = must_and_reminders(fitting)
    kept = set(ranked.order[: ranked.kept_units])
    allowed = set(range(ranked.spans[-1].start, len(fitting.history)))
    for unit, span in enumerate(ranked.spans):
        inside = range(span.start, span.stop)
        if unit in kept or not must.keys().isdisjoint(inside):
            allowed.update(inside)
    standing = (piece.span for piece in pieces if not piece.is_left_out)
    return any(not allowed.issuperset(range(span.start, span.stop)) for span in standing)


def leave_room_to_grow(fitting: Fitting) -> Fitting:
    """The fitting of a new epoch, which later requests are appended to."""
    return replace(fitting, refill=fitting.policy.refill)


def returns_of(pieces: Sequence[Piece], fitting: Fitting) -> Returns | None:
    """The windows at which what was cut returns now, where anything was."""
    cut = [
        (piece.span, item.place)
        for piece in pieces
        for item in piece.items
        if item.action != "kept"
    ]
    if cut:
        return Returns(lambda: _find_returns(cut, fitting))
    return None


def _find_returns(cut: Sequence[tuple[Span, str]], fitting: Fitting) -> Mapping[str, int]:
    policy = fitting.policy
    share = 0.0
    if policy.cover:
        share = max(policy.once * MAX_COVER_ONCE, policy.covers)
    fitting = replace(leave_room_to_grow(fitting), cover_share=share)
    ranked = rank(fitting)
    ranking = Ranking(
        ranked.spans, ranked.order, ranked.kept_units, _find_chosen_at(fitting, ranked)
    )
    windows = find_windows(fitting, ranking)
    at = [
        window for span, window in zip(ranked.spans, windows, strict=True) for _ in range(len(span))
    ]
    return {place: max(at[span.start : span.stop]) for span, place in cut}
