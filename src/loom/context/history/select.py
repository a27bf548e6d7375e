"""Which of a history goes into a request: the epoch that goes on, or what the policy chooses and
the gate lets in.

A strategy takes the fitting and the last epoch. It returns what goes in, or why the epoch ends.
"""

from collections.abc import Callable

from msgspec.structs import replace

from loom.context.history.climb import climb
from loom.context.history.continuing import (
    expect,
    find_change,
    find_end,
    find_growth,
    weigh_new_epoch,
)
from loom.context.history.covering import choose, find_newest
from loom.context.history.epochs import Epoch, EpochEnds, Renewal, Selection
from loom.context.history.filling import leave_room_to_grow, returns_of
from loom.context.history.fitting import Fitting
from loom.context.history.pieces import FittedHistory, keep, lay, revive, up_to_last_cover
from loom.context.history.reasons import ALONE, CONTINUED
from loom.context.history.strategies import find_strategy
from loom.context.history.whole_turns import find_newer_half
from loom.conversation.turns import Span

_Select = Callable[[Fitting, Epoch | Renewal | None], Selection | EpochEnds]


def select(fitting: Fitting, previous: Epoch | Renewal | None) -> Selection | EpochEnds:
    """Continue the epoch of the previous request, or say why it ends; begin one where that is
    settled.
    """
    chosen: _Select = climb if find_strategy(fitting.policy.strategy).climbs else rank_and_gate
    return chosen(fitting, previous)


def rank_and_gate(fitting: Fitting, previous: Epoch | Renewal | None) -> Selection | EpochEnds:
    """Every strategy but the ladder: units are ranked by the policy's counter, and the gate lets
    them in.
    """
    match previous:
        case None:
            return Selection(
                choose(fitting),
                0,
                ALONE,
                expect(fitting),
                input_window=fitting.input_window,
            )
        case Renewal():
            return _begin(fitting, previous)
        case Epoch():
            return _go_on(fitting, previous)


def _begin(fitting: Fitting, renewal: Renewal) -> Selection:
    """What an epoch begins with: what stood and still stands, and what the strategy chooses."""
    if renewal.archive is not None:  # covers that stand keep their handles
        fitting.archive.add(renewal.archive)
    floor = max(fitting.floor, renewal.floor, find_newer_half(fitting, renewal.before))
    begun = replace(leave_room_to_grow(fitting), floor=floor)
    if renewal.early:  # of what would fit, only the newest stays as it is
        begun = replace(begun, floor=max(floor, find_newest(begun)))
    fitted = choose(begun, renewal.before, renewal.summaries)
    returns = None
    if up_to_last_cover(renewal.before):
        returns = returns_of(fitted.pieces, fitting)
    return Selection(
        fitted,
        renewal.number,
        renewal.reason,
        expect(fitting),
        returns=returns,
        input_window=fitting.input_window,
    )


def _go_on(fitting: Fitting, epoch: Epoch) -> Selection | EpochEnds:
    """What the last request showed, and what is new."""
    change, growth = find_change(fitting, epoch), find_growth(fitting, epoch)
    if change and growth:
        return replace(change, solid=growth.solid)
    end = change or growth
    if end:
        return end
    shown = revive(fitting, epoch.pieces)
    new = range(shown[-1].span.stop, len(fitting.history))
    pieces = [*shown, *(keep(fitting, Span(n, n + 1), "new in this epoch") for n in new)]
    outlook = weigh_new_epoch(fitting, pieces, expect(fitting).calls)
    end = find_end(fitting, epoch, pieces, outlook)
    if end:
        return end
    if epoch.archive is not None:
        fitting.archive.add(epoch.archive)
    fitted: FittedHistory = lay(fitting, pieces)
    return Selection(
        fitted,
        epoch.number,
        CONTINUED,
        outlook,
        is_continued=True,
        input_window=epoch.input_window,
        returns=returns_of(shown, fitting),
    )
