"""The last gate, which every policy passes: it fits, it is whole, it keeps the point, or it says
why it cannot.

Rules of this file:
- Of a document, which knows no roles, its end takes the place of request and goal.
- The current request, the first goal and pins are in, whatever a strategy chose. If they alone do
  not fit they are shrunk in the
  order pins, first goal, current request; then CannotFit. So are all system messages, never shrunk,
  where the policy keeps them.
- What the request leans on and the current goal are in, each in a share of the room. They are left
  out before CannotFit.
- Else the newest system message of each kind is in, where there is room for it, in a share of the
  room.
- The strategy `truncate_middle` has its last nodes in after the request, as many as fit; goal and
  pins are shrunk for them.
- Then the newest exchange, shrunk inside if it must be. Then what the strategy ranked, in its
  order, until one does not fit.
- Under the strategy `stop_at_limit` all of it is in, or CannotFit.
- Exchanges are taken whole. Where something is left out a marker with a handle stands.
- Each pass either fits or lets go of something, so it ends.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct

from loom.context.history.fitting import MAX_COVER_ONCE, Fitting
from loom.context.history.pieces import (
    MARKER_FRAME,
    FittedHistory,
    keep_as,
    lay,
    leave_out,
    longest_marker,
)
from loom.context.history.point import (
    BACKGROUND,
    BACKGROUND_SHARE,
    REMINDER,
    SYSTEM_SHARE,
    MustRule,
    add_rule,
    find_must,
)
from loom.context.history.strategies import find_strategy, refuse_to_cut
from loom.context.report import Piece
from loom.context.shorten.shrink import shrink_messages, smallest
from loom.conversation.message import Message
from loom.conversation.system_messages import newest_of_kinds
from loom.conversation.turns import Span
from loom.errors import CannotFit

SMALLEST_SHARE = 200  # tokens below which a unit that does not fit is left out rather than cut


class Ranking(Struct, frozen=True):
    """Units of a history in the order in which they may claim room. The strategy keeps the first
    `kept` of them.
    """

    spans: Sequence[Span]
    order: Sequence[int]
    kept: int
    # the window at which the strategy itself would choose each unit; 0 where it counts as the gate
    chosen_at: Sequence[int]


class _Unit(Struct):
    """Messages that stay together, what they cost, and what they became."""

    span: Span
    cost: int
    unread: bool = False
    rule: str = ""
    made: tuple[Message, ...] | None = None
    # tokens of room at which it is whole: its own, and those of all that may claim room before it
    needs: int = 0
    chosen_at: int = 0


class _Claims(Struct, frozen=True):
    """What has to be in and why, reminders, all others in their order; and the tokens of a marker,
    and of all markers.
    """

    must: dict[int, MustRule]
    reminders: list[int]
    rest: list[int]
    marker: int
    markers: int


def fit(fitting: Fitting, ranking: Ranking) -> FittedHistory:
    """Fill the room with units in their order."""
    units = _units(fitting, ranking)
    total = sum(unit.cost for unit in units)
    if total <= fitting.room and ranking.kept == len(units):
        for unit in units:
            unit.rule, unit.made = "fits", fitting.messages(unit.span)
        return _lay_out(fitting, units)
    if find_strategy(fitting.policy.strategy).refuses_to_cut:
        raise refuse_to_cut(total, fitting.room)
    claims = _rank_units(fitting, units, ranking.order)
    free = fitting.room - claims.markers
    free -= _take_must(fitting, units, claims.must, free)
    free -= _take_reminders(fitting, units, claims, free)
    named = {len(units) - 1, *ranking.order[: ranking.kept]}
    rest = [n for n in claims.rest if n in named and units[n].made is None]
    _take_rest(fitting, units, rest, free)
    return _let_go(
        fitting, units, [n for n in (*claims.reminders, *rest) if units[n].made is not None]
    )


def find_windows(fitting: Fitting, ranking: Ranking) -> list[int]:
    """The window at which each unit would be whole."""
    units = _units(fitting, ranking)
    _rank_units(fitting, units, ranking.order)
    return [_returns_at(unit, fitting) for unit in units]


def _units(fitting: Fitting, ranking: Ranking) -> list[_Unit]:
    return [
        _Unit(span, fitting.cost(span), fitting.places.unread(span.start) is not None, chosen_at=at)
        for span, at in zip(ranking.spans, ranking.chosen_at, strict=True)
    ]


def _let_go(fitting: Fitting, units: list[_Unit], taken: list[int]) -> FittedHistory:
    """The units laid out, without the last of what was taken until all of it fits."""
    while True:
        laid = _lay_out(fitting, units)
        if laid.tokens <= fitting.room:
            return laid
        if not taken:
            raise CannotFit(
                f"goal, request and markers take {laid.tokens:,} tokens, and history has "
                f"{fitting.room:,}; "
                "choose a larger window or lower the reserve"
            )
        units[taken.pop()].made = None


def _rank_units(fitting: Fitting, units: list[_Unit], order: Sequence[int]) -> _Claims:
    """What is taken before what; and the room that each unit needs to be whole."""
    spans = [unit.span for unit in units]
    must = _must(fitting, spans)
    marker = fitting.counter.count_message(longest_marker(fitting)) + MARKER_FRAME
    last = _last_nodes(fitting, units)
    markers = marker * (_count_runs(must) + 2 + bool(last))
    must = _add_last(fitting, units, must, last, fitting.room - markers)
    reminders = [n for n in _reminders(fitting, spans) if n not in must]
    rest = [n for n in dict.fromkeys([len(units) - 1, *order]) if n not in must]
    reminded = sum(units[n].cost + marker for n in reminders)
    _set_needs(fitting, units, [*must, *rest], {*must, *last}, markers, reminded)
    total = sum(unit.cost for unit in units)
    for n, rule in must.items():
        if rule in BACKGROUND:  # it is whole where it fits its share of the room
            needs = max(units[n].needs, ceil(units[n].cost / BACKGROUND_SHARE) + 1)
            units[n].needs = min(needs, max(units[n].needs, total))
    return _Claims(must, reminders, rest, marker, markers)


def _must(fitting: Fitting, spans: Sequence[Span]) -> dict[int, MustRule]:
    """The units that have to be in, the most important first, and why: the current request, the
    first goal, system text, pins.
    """
    why = find_must(fitting)
    found: dict[int, MustRule] = {}
    for unit, rule in zip(_units_of(why, spans), why.values(), strict=True):
        if unit is not None:
            add_rule(found, unit, rule)
    return found


def _units_of(places: Iterable[int], spans: Sequence[Span]) -> list[int | None]:
    """The unit that each message is in; None where it stands before the first of them, and is
    settled already.
    """
    unit_of = {index: n for n, span in enumerate(spans) for index in range(span.start, span.stop)}
    return [unit_of.get(index) for index in places]


def _reminders(fitting: Fitting, spans: Sequence[Span]) -> list[int]:
    """The units with the newest system message of each kind, the newest first."""
    if fitting.document or fitting.policy.system_messages == "keep" or not fitting.reminders:
        return []
    found = _units_of(newest_of_kinds(fitting.history), spans)
    return [unit for unit in dict.fromkeys(found) if unit is not None]


def _take_reminders(fitting: Fitting, units: list[_Unit], claims: _Claims, free: int) -> int:
    """Take as many reminders as fit next to the newest unit, in a share of the room, with a marker
    each. Returns what they cost.
    """
    newest = units[-1]
    beside = 0
    if newest.made is None and newest.cost <= free:
        beside = newest.cost
    most = min(free - beside, int(fitting.room * SYSTEM_SHARE))
    used = 0
    for n in claims.reminders:
        if used + units[n].cost + claims.marker > most:
            break
        used += units[n].cost + claims.marker
        units[n].rule, units[n].made = REMINDER, fitting.messages(units[n].span)
    return used


def _last_nodes(fitting: Fitting, units: Sequence[_Unit]) -> list[int]:
    """The units that a strategy keeps because they are the last, the newest first."""
    # of a text its end is in already
    if not find_strategy(fitting.policy.strategy).keeps_last_nodes or fitting.document:
        return []
    return list(reversed(range(len(units))))[: fitting.policy.minimum_recent_nodes]


def _add_last(
    fitting: Fitting, units: list[_Unit], must: dict[int, MustRule], last: Sequence[int], free: int
) -> dict[int, MustRule]:
    """What has to be in with as many of the last nodes as fit after the request; goal and pins are
    shrunk for them.
    """
    if not last:
        return must
    first = {n: rule for n, rule in must.items() if rule in ("current request", "system text")}
    left = free - sum(units[n].cost for n in first)
    left -= sum(_smallest_cost(fitting, units[n]) for n in must if n not in first and n not in last)
    found: dict[int, MustRule] = {}
    for n in (n for n in last if n not in first):
        if not _is_room_for(fitting, units[n], left, can_be_cut=n == last[0]):
            break
        found[n] = must.get(n, "recent nodes")
        left -= units[n].cost
    return first | found | {n: rule for n, rule in must.items() if n not in found}


def _is_room_for(fitting: Fitting, unit: _Unit, tokens: int, can_be_cut: bool) -> bool:
    """Whether so many tokens hold a unit. The newest of all may be cut, and is then the only
    one.
    """
    if unit.unread:
        return False
    return unit.cost <= tokens or (can_be_cut and _smallest_cost(fitting, unit) <= tokens)


def _smallest_cost(fitting: Fitting, unit: _Unit) -> int:
    made = smallest(fitting.messages(unit.span), unit.span.start, fitting.counter, fitting.archive)
    return min(unit.cost, sum(map(fitting.counter.count_message, made)))


def _count_runs(units: Iterable[int]) -> int:
    """How many stretches of neighbours there are: as many gaps may lie before them."""
    ordered = sorted(units)
    return sum(n == 0 or unit != ordered[n - 1] + 1 for n, unit in enumerate(ordered))


def _take_must(fitting: Fitting, units: list[_Unit], must: dict[int, MustRule], free: int) -> int:
    """Take what has to be in, shrunk from the least important on where it does not fit. Returns
    what it costs.
    """
    needed = sum(units[n].cost for n in must)
    most = int(fitting.whole_room * BACKGROUND_SHARE)
    for n, rule in reversed(must.items()):
        unit = units[n]
        unit.rule, unit.made = rule, fitting.messages(unit.span)
        if rule in BACKGROUND and unit.cost > most:
            needed -= _shrink_context(fitting, unit, most)
    for n, rule in reversed(must.items()):
        if needed > free and rule != "system text":
            needed -= _shrink_further(fitting, units[n], needed - free)
    for n, rule in reversed(must.items()):
        if needed > free and rule in BACKGROUND:
            needed -= _made_cost(fitting, units[n])
            units[n].made = None
    if needed > free:
        raise _refuse_must(units, must, needed, free)
    return needed


def _shrink_context(fitting: Fitting, unit: _Unit, target: int) -> int:
    """Make a unit no larger than a target, the answers of tools before the words. Returns the
    tokens that this saves.
    """
    said, counter, archive = fitting.messages(unit.span), fitting.counter, fitting.archive
    words, answers = said[:1], said[1:]
    left = target - counter.count_message(said[0])
    answers = shrink_messages(
        answers, max(left, 0), unit.span.start + 1, counter, archive
    ) or smallest(answers, unit.span.start + 1, counter, archive)
    left = target - sum(map(counter.count_message, answers))
    cut = shrink_messages(words, max(left, 0), unit.span.start, counter, archive)
    if cut is None:
        return _shrink_unit(fitting, unit, target)
    saved = _made_cost(fitting, unit) - sum(map(counter.count_message, (*cut, *answers)))
    unit.made = (*cut, *answers)
    return saved


def _shrink_further(fitting: Fitting, unit: _Unit, lack: int) -> int:
    """Make a unit smaller by so many tokens, or as small as it gets. Returns the tokens that this
    saves.
    """
    now = _made_cost(fitting, unit)
    return _shrink_unit(fitting, unit, max(now - lack, 0))


def _made_cost(fitting: Fitting, unit: _Unit) -> int:
    return sum(map(fitting.counter.count_message, unit.made or ()))


def _shrink_unit(fitting: Fitting, unit: _Unit, target: int) -> int:
    """Make a unit no larger than a target, or as small as it gets. Returns the tokens that this
    saves.
    """
    said, counter, archive = fitting.messages(unit.span), fitting.counter, fitting.archive
    made = shrink_messages(said, target, unit.span.start, counter, archive)
    made = made or smallest(said, unit.span.start, counter, archive)
    saved = _made_cost(fitting, unit) - sum(map(counter.count_message, made))
    if saved <= 0:
        return 0
    unit.made = made
    return saved


def _refuse_must(
    units: list[_Unit], must: dict[int, MustRule], needed: int, free: int
) -> CannotFit:
    sums: dict[str, int] = {}
    for n, rule in must.items():
        sums[rule] = sums.get(rule, 0) + units[n].cost
    what = ", ".join(f"{rule} {cost:,}" for rule, cost in sums.items())
    return CannotFit(
        f"the required messages take {needed:,} tokens even when shrunk ({what}), and "
        f"{max(free, 0):,} are left for history; "
        "choose a larger window, or lower the reserve, the prompt or the tools"
    )


def _set_needs(
    fitting: Fitting,
    units: list[_Unit],
    order: list[int],
    must: set[int],
    markers: int,
    reminders: int,
) -> None:
    """What room each unit needs: what must be in is whole only where all of it is, and so is what
    comes first after it.

    `reminders` is what system messages may take before them, at a window where all of these fit.
    """
    refill, used = fitting.refill, markers + reminders
    together = sum(units[n].cost for n in must)
    total = sum(unit.cost for unit in units)
    for position, n in enumerate(order):
        used += units[n].cost
        needs = used
        if n in must:
            needs = markers + together
        # only a share is filled with these, unless all fits
        elif position > len(must) and refill < 1:
            if refill > 0:
                needs = min(ceil(used / refill) + 1, total)
            else:
                needs = total
        if fitting.cover_share:  # where all of it fits nothing has to be told
            needs = min(_add_covers(fitting, needs, total), max(total, needs))
        units[n].needs = needs


def _add_covers(fitting: Fitting, needs: int, total: int) -> int:
    """The room in which covers leave so many tokens. They take their share and something for users'
    words, or at most so many times their share, whatever is less.

    What an epoch leaves out may return in a call that is its own. There covers take no more than
    what is left out.
    """
    with_share = needs / (1 - fitting.cover_share)
    if not fitting.cover_beyond:
        return ceil(with_share) + 1
    once = fitting.policy.once
    alone = min((needs + fitting.cover_beyond) / (1 - once), needs / (1 - once * MAX_COVER_ONCE))
    if fitting.refill < 1:
        alone = max(with_share, min(alone, (needs + total) / 2))
    return ceil(alone) + 1


def _take_rest(fitting: Fitting, units: list[_Unit], order: list[int], free: int) -> None:
    """Fill what is free, in order, until something does not fit; the newest exchange may also take
    what a new epoch leaves free.
    """
    cuts_last = find_strategy(fitting.policy.strategy).cuts_last_unit
    spare = fitting.room - int(fitting.room * fitting.refill)
    for position, n in enumerate(order):
        unit, is_newest = units[n], n == len(units) - 1
        left = free if is_newest or position == 0 else free - spare
        if unit.unread:  # not read, because what is newer fills the window
            return
        rule = "newest exchange"
        if not is_newest:
            rule = fitting.policy.strategy_name
        if unit.cost <= left:
            unit.rule, unit.made = rule, fitting.messages(unit.span)
            free -= unit.cost
            continue
        # What does not fit whole is cut to what is left, if that is worth reading; nothing older is
        # taken then.
        if is_newest or (cuts_last and left >= SMALLEST_SHARE):
            free -= _cut_unit(fitting, unit, left, rule)
        if not is_newest:
            return


def _cut_unit(fitting: Fitting, unit: _Unit, tokens: int, rule: str) -> int:
    """Take a unit cut to so many tokens, if it can be. Returns what it costs."""
    said = fitting.messages(unit.span)
    made = shrink_messages(said, tokens, unit.span.start, fitting.counter, fitting.archive)
    if made is None:
        return 0
    unit.rule, unit.made = rule, made
    return sum(map(fitting.counter.count_message, made))


def _lay_out(fitting: Fitting, units: list[_Unit]) -> FittedHistory:
    """The units in their places, with a marker for each stretch that is left out."""
    pieces: list[Piece] = []
    gap: list[_Unit] = []
    for unit in units:
        if unit.made is None:
            gap.append(unit)
            continue
        pieces += _mark(fitting, gap)
        gap = []
        pieces.append(keep_as(fitting, unit.span, unit.made, unit.rule, _returns_at(unit, fitting)))
    return lay(fitting, [*pieces, *_mark(fitting, gap)])


def _mark(fitting: Fitting, gap: list[_Unit]) -> list[Piece]:
    """A marker for units that are left out, if there are any."""
    if not gap:
        return []
    span = Span(gap[0].span.start, gap[-1].span.stop)
    back = max(_returns_at(unit, fitting) for unit in gap)
    return [
        leave_out(fitting, span, fitting.policy.strategy_name, sum(unit.cost for unit in gap), back)
    ]


def _returns_at(unit: _Unit, fitting: Fitting) -> int:
    return max(fitting.window_for(unit.needs), unit.chosen_at)
