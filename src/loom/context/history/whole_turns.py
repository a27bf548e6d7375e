"""Whole turns: what is in by a formula of the policy's own counter, a turn as a whole or not at
all.
"""

from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.context.history.fitting import Fitting
from loom.context.history.gate import Ranking, fit
from loom.context.history.pieces import MARKER_FRAME, FittedHistory, longest_marker, revive
from loom.context.history.point import must_and_reminders
from loom.context.history.ranking import RankedUnits
from loom.context.report import Piece
from loom.conversation.system_messages import newest_of_kinds
from loom.conversation.turns import Span, exchanges
from loom.errors import CannotFit

MAX_SHRINKING = 0.97  # of the room, what is tried next at most where the formula leaves less


def own_tokens(pieces: Sequence[Piece], own: Counter) -> int:
    """What is sent of a history, by a policy's own counter."""
    return sum(own.count_message(message) for piece in pieces for message in piece.messages)


def fit_turns(fitting: Fitting, ranked: RankedUnits, chosen_at: list[int]) -> FittedHistory:
    """What the gate lets in of whole turns, in no more than the formula leaves by the policy's own
    counter.

    A turn that the gate would tear is left out. Only the active turn may be cut: between its
    exchanges, then inside the newest. System messages go before goal and request are cut.
    """
    assert fitting.formula is not None
    groups, room, most = ranked.together, fitting.room, fitting.formula
    while True:
        kept = sum(map(len, groups))
        try:
            fitted = fit(
                replace(fitting, room=room), Ranking(ranked.spans, ranked.order, kept, chosen_at)
            )
        except CannotFit:
            if room == fitting.room:
                raise
            raise _formula_leaves(fitting) from None
        whole = _count_whole(groups, fitted, ranked.spans)
        tokens = own_tokens(fitted.pieces, fitting.own)
        if whole < len(groups):
            groups = groups[:whole]
        elif tokens <= most:
            return fitted
        elif kept > 1:
            groups = _lighten(groups, tokens - most, ranked.weights)
        elif fitting.reminders:
            fitting = replace(fitting, reminders=False)
        else:
            share = min(MAX_SHRINKING, max(most, 0) / tokens)
            room = int(min(room, fitted.tokens) * share)


def _count_whole(
    groups: Sequence[Sequence[int]], fitted: FittedHistory, spans: Sequence[Span]
) -> int:
    """How many of the first groups are in as a whole; of the first of all, which the gate may cut,
    it is enough to be named.
    """
    kept = {piece.span.start for piece in fitted.pieces if not piece.is_left_out}
    torn = (
        n
        for n, group in enumerate(groups)
        if n and any(spans[unit].start not in kept for unit in group)
    )
    return next(torn, len(groups))


def _lighten(groups: list[list[int]], excess: int, sizes: Sequence[int]) -> list[list[int]]:
    """Without the last groups that are too much, but with the first; that alone is parted into its
    units.
    """
    if len(groups) == 1:
        groups = [[unit] for unit in groups[0]]
    left = len(groups)
    while left > 1 and excess > 0:
        left -= 1
        excess -= sum(sizes[unit] for unit in groups[left])
    return groups[:left]


def _formula_leaves(fitting: Fitting) -> CannotFit:
    return CannotFit(
        f"by the counter of the policy {fitting.policy.name!r}, system text, tools and "
        f"{fitting.reserved_output:,} for the answer "
        f"leave {fitting.formula:,} of {fitting.window:,} tokens for history, and goal and "
        "request take more even when shrunk; "
        "choose a larger window, or lower the reserve, the prompt or the tools"
    )


def find_whole_windows(fitting: Fitting, ranked: RankedUnits) -> list[int]:
    """The window at which each unit is in with all of its turn, by the policy's own counter and by
    the best one.
    """
    must = {*must_and_reminders(fitting), *newest_of_kinds(fitting.history)}
    spans, last = ranked.spans, len(ranked.spans) - 1
    points = {
        n
        for n, span in enumerate(spans)
        if n == last or not must.isdisjoint(range(span.start, span.stop))
    }
    by_own = _windows_by(fitting.own, fitting, ranked, points)
    return [
        max(pair)
        for pair in zip(by_own, _windows_by(fitting.counter, fitting, ranked, points), strict=True)
    ]


def _windows_by(
    counter: Counter, fitting: Fitting, ranked: RankedUnits, points: set[int]
) -> list[int]:
    """The same by one counter; `points` are units that have to be in."""
    costs = fitting.places.costs(fitting.history, counter.count_message)
    weights = [sum(costs[span.start : span.stop]) for span in ranked.spans]
    marker = counter.count_message(longest_marker(fitting)) + MARKER_FRAME
    used = sum(weights[n] for n in points) + (len(points) + 2) * marker
    windows = [_window_for(used, fitting, counter)] * len(ranked.spans)
    for picked in ranked.picked:
        others = [unit for unit in ranked.groups[picked] if unit not in points]
        used += sum(weights[unit] for unit in others)
        for unit in others:
            windows[unit] = _window_for(used, fitting, counter)
    return windows


def _window_for(tokens: int, fitting: Fitting, counter: Counter) -> int:
    """The window of which history has so many tokens, by the best counter or by the policy's
    own.
    """
    if counter is not fitting.counter:
        return fitting.set_aside + ceil(tokens / fitting.refill)
    return (
        ceil((tokens / fitting.refill + fitting.beside) / (1 - fitting.margin))
        + fitting.reserve
        + 1
    )


def find_newer_half(fitting: Fitting, before: Sequence[Piece]) -> int:
    """Where the newer half begins of the turns that the last request showed, once they take more
    than the formula leaves; else 0.

    So much goes at once that the next requests only grow. Of one turn, which is the active one,
    half of its exchanges go.
    """
    if fitting.formula is None or not before:
        return 0
    pieces = revive(fitting, before)
    new = fitting.history[pieces[-1].span.stop :]
    counted = own_tokens(pieces, fitting.own) + sum(map(fitting.own.count_message, new))
    if counted <= fitting.formula:
        return 0
    begin = max((piece.span.stop for piece in pieces if piece.is_left_out), default=0)
    starts = [n for n in range(begin, len(fitting.history)) if fitting.history[n].role == "user"]
    if len(starts) < 2:
        starts = [span.start for span in exchanges(fitting.history) if span.start >= begin]
    if starts:
        return starts[len(starts) // 2]
    return 0
