"""The strategy `ladder`: one rung where pressure has passed it, as many more as it takes to fit,
and at last the gate.

What a rung made smaller stays so. At the pressure at which the policy renews, a fresh window begins
below the lowest rung.
"""

from collections.abc import Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.context.history.continuing import expect, find_change
from loom.context.history.covering import choose, find_lack
from loom.context.history.epochs import Epoch, EpochEnds, Renewal, Selection
from loom.context.history.fitting import Fitting
from loom.context.history.ladder import RUNGS, Ladder, Threshold, View, find_spared, keep_whole
from loom.context.history.pieces import FittedHistory, cost_of, lay, revive
from loom.context.history.point import must_and_reminders
from loom.context.history.reasons import ALONE, CONTINUED, EpochReason
from loom.context.report import Piece
from loom.conversation.message import Media, Message
from loom.errors import CannotFit

MAX_SHRINKING = 0.97  # of the room, what is tried next at most where pressure is still too high
MIN_SHARE = 0.05  # of the window, what is tried for history at least


class _ClimbedView(Struct, frozen=True):
    """How a view became smaller: at which pressure, by which rung, and whether a fresh window
    begins or the gate decides.
    """

    view: View
    pressure: float
    rung: str
    is_changed: bool
    renewed: bool
    gated: bool


def climb(fitting: Fitting, previous: Epoch | Renewal | None) -> Selection | EpochEnds:
    fitting = replace(fitting, spared=find_spared(fitting.history, must_and_reminders(fitting)))
    if isinstance(previous, Epoch) and (change := find_change(fitting, previous)):
        return change
    steps = Ladder(tuple(Threshold(name, above) for name, above in fitting.policy.ladder.items()))
    climbed = _climb(fitting, previous, steps)
    reason = _explain(previous, climbed)
    if isinstance(previous, Epoch) and reason:
        return EpochEnds(reason, previous.seen)
    lowest = steps.steps[0].above
    if climbed.gated:
        fitted = _fill_below(fitting, lowest if climbed.renewed else 1.0)
    else:
        fitted = lay(fitting, climbed.view)
    fitted = replace(fitted, pieces=_with_windows(fitted.pieces, fitting, lowest))
    return Selection(
        fitted,
        number=previous.number if previous else 0,
        reason=reason or _reason_of(previous),
        outlook=expect(fitting),
        is_continued=isinstance(previous, Epoch),
        renewed=climbed.renewed,
        rho=_pressure(fitted.pieces, fitting),
    )


def _climb(fitting: Fitting, previous: Epoch | Renewal | None, steps: Ladder) -> _ClimbedView:
    """Take the rung that pressure has passed, and more until all fits."""
    view, unread = _find_standing(fitting, previous)
    pressure = _pressure(view, fitting) + unread / fitting.window
    is_demanded = isinstance(previous, Renewal) and previous.renew
    is_refused = isinstance(previous, Renewal) and previous.floor > 0
    renewed = bool(fitting.policy.renew) and (is_demanded or pressure >= fitting.policy.renew)
    rung = steps.find_reached(pressure)
    if renewed:
        rung = "auto"
    if is_refused:
        rung = "reactive"
    smaller, rung = _take_rungs(view, fitting, rung, steps)
    is_high = renewed and _pressure(smaller, fitting) >= steps.steps[0].above
    gated = is_high or cost_of(smaller) > fitting.room
    return _ClimbedView(smaller, pressure, rung, smaller != view, renewed, gated)


def _take_rungs(view: View, fitting: Fitting, rung: str, steps: Ladder) -> tuple[View, str]:
    """The view as a rung makes it, and as many rungs above that as it takes to fit; and the last
    one taken.
    """
    if rung:
        view = RUNGS[rung](view, fitting)
    names = [step.name for step in steps.steps]
    if rung in names:
        above = names[names.index(rung) + 1 :]
    else:
        above = names
    for name in above:
        if cost_of(view) <= fitting.room:
            break
        view, rung = RUNGS[name](view, fitting), name
    return view, rung


def _explain(previous: Epoch | Renewal | None, climbed: _ClimbedView) -> EpochReason | None:
    """Why a view is not what it was; None where it is, or where a fresh window was demanded for a
    reason of its own.
    """
    if isinstance(previous, Renewal) and previous.renew:
        return None
    if climbed.renewed:
        return EpochReason("renewed", {"pressure": climbed.pressure})
    if climbed.gated:
        return EpochReason("gate")
    if climbed.rung and climbed.is_changed:
        return EpochReason("rung", {"pressure": climbed.pressure, "rung": climbed.rung})
    return None


def _reason_of(previous: Epoch | Renewal | None) -> EpochReason:
    """Why a view that did not change is what it is."""
    match previous:
        case None:
            return ALONE
        case Renewal():
            return previous.reason
        case Epoch():
            return CONTINUED


def _pressure(view: View, fitting: Fitting) -> float:
    """By the policy's own counter, of the whole window; what that does not see, calls and media,
    with it.
    """
    messages = [message for piece in view for message in piece.messages]
    return (
        fitting.own_beside + sum(_count_said(message, fitting) for message in messages)
    ) / fitting.window


def _count_said(message: Message, fitting: Fitting) -> int:
    """What a message takes by the policy's own counter, and what that takes for nothing."""
    best = fitting.counter
    calls = sum(best.count_text(f"{call.name}{call.arguments}") for call in message.calls)
    parts = [*message.parts, *(part for result in message.results for part in result.parts)]
    media = tuple(part for part in parts if isinstance(part, Media))
    shown = 0
    if media:
        shown = best.count_message(Message("user", media))
    return fitting.own.count_message(message) + calls + shown


def _count_all_said(fitting: Fitting) -> int:
    """The same for all of the history; a stretch that was not read takes what is known of it."""
    said = 0
    for n, message in enumerate(fitting.history):
        spot = fitting.places.unread(n)
        said += spot.tokens if spot else _count_said(message, fitting)
    return said


def _fill_below(fitting: Fitting, share: float) -> FittedHistory:
    """What the gate lets in, made smaller until the policy's own counter sees less than this share
    of the window too.

    Goal, request, pins and the newest exchange give nothing for that.
    """
    best, room, beside = choose(fitting), fitting.room, fitting.own_beside / fitting.window
    while share < 1 and (pressure := _pressure(best.pieces, fitting)) >= share:
        room = int(room * min(MAX_SHRINKING, max(share - beside, MIN_SHARE) / (pressure - beside)))
        try:
            smaller = choose(replace(fitting, room=room))
        except CannotFit:  # goal and request alone take more
            return best
        if find_lack(smaller, fitting, fitting.room):
            return best
        best = smaller
    return best


def _find_standing(fitting: Fitting, previous: Epoch | Renewal | None) -> tuple[View, int]:
    """The view that the last request had, with what is new, or the history as it is; and the tokens
    of what was never read.
    """
    pieces: Sequence[Piece] = ()
    if isinstance(previous, Epoch):
        pieces = previous.pieces
    elif previous is not None and not _fits_raw(fitting):
        pieces = _uncover_pinned(previous.before, fitting)
    if previous is not None and previous.archive is not None:
        fitting.archive.add(previous.archive)
    pieces = revive(fitting, pieces)
    fresh = keep_whole(fitting, pieces[-1].span.stop if pieces else 0)
    unread = sum(
        spot.tokens for piece in fresh if (spot := fitting.places.unread(piece.span.start))
    )
    return (*pieces, *fresh), unread


def _fits_raw(fitting: Fitting) -> bool:
    """Whether all of the history may stand as it is again, below the lowest rung; the window may
    have grown.
    """
    said = fitting.own_beside + _count_all_said(fitting)
    return sum(fitting.costs) <= fitting.room and said / fitting.window <= min(
        fitting.policy.ladder.values()
    )


def _uncover_pinned(pieces: Sequence[Piece], fitting: Fitting) -> list[Piece]:
    """The pieces with what is pinned, and was cut, as it is."""
    made: list[Piece] = []
    for piece in pieces:
        is_pinned = any(piece.span.start <= pin < piece.span.stop for pin in fitting.pins)
        if is_pinned and not piece.is_whole:
            made += keep_whole(fitting, piece.span.start, piece.span.stop)
        else:
            made.append(piece)
    return made


def _with_windows(view: View, fitting: Fitting, lowest: float) -> View:
    """The view with the window at which each thing would stand whole again: where the lowest rung
    is not reached, and all fits.
    """
    by_ladder = ceil((fitting.own_larger + _count_all_said(fitting)) / lowest) + 1
    window = max(by_ladder, fitting.whole_at)
    return tuple(_with_window(piece, window) for piece in view)


def _with_window(piece: Piece, window: int) -> Piece:
    items = (
        item if item.action == "kept" else replace(item, returns_at=window) for item in piece.items
    )
    return replace(piece, items=tuple(items))
