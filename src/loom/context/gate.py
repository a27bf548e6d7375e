"""The last gate, which every policy passes: it fits, it is whole, it keeps the point, or it says why it cannot.

Rules of this file:
- Of a document, which knows no roles, its end takes the place of request and goal.
- The current request, the first goal and pins are in, whatever a strategy chose. If they alone do not fit they are shrunk in the
  order pins, first goal, current request; then CannotFit. So are all system messages, never shrunk, where the policy keeps them.
- Else the newest system message of each kind is in, where there is room for it, in a share of the room.
- The strategy `truncate_middle` has its last nodes in behind the request, as many as fit; goal and pins are shrunk for them.
- Then the newest exchange, shrunk inside if it must be. Then what the strategy ranked, in its order, until one does not fit.
- Under the strategy `stop_at_limit` all of it is in, or CannotFit.
- Exchanges are taken whole. Where something is left out a marker with a handle stands.
- Each pass either fits or lets go of something, so it ends.
"""

import re
from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct

from loom.budget.counting import Counter
from loom.context.handles import Archive
from loom.context.places import Places
from loom.context.policy import Policy
from loom.context.report import Item, Piece
from loom.context.shrink import shrink_messages, smallest
from loom.context.strategies import refuse_to_cut
from loom.conversation.handles import LENGTH, SAMPLE
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.conversation.system_messages import SYSTEM_ROLES, newest_of_kinds
from loom.conversation.turns import Span
from loom.errors import CannotFit

_HANDLE = re.compile(rf"recall (~[a-z2-7]{{{LENGTH - 1}}})")
POINT = ("current request", "first goal", "pin")  # the rules by which something is in that is never left out
REMINDER = "newest system message of its kind"
SYSTEM_SHARE = 0.25  # of the room for history, what the newest system messages of each kind may take
SMALLEST_SHARE = 200  # tokens below which a unit that does not fit is left out rather than cut


class Fitted(Struct, frozen=True):
    """The history as it will be sent, in pieces that cover all of it."""

    pieces: tuple[Piece, ...]
    tokens: int
    dropped: int


class _Unit(Struct):
    """Messages that stay together, what they cost, and what they became."""

    span: Span
    cost: int
    unread: bool = False
    rule: str = ""
    made: tuple[Message, ...] | None = None
    needs: int = 0  # tokens of room at which it is whole: its own, and those of all that may claim room before it
    chosen_at: int = 0  # the window at which the strategy itself would choose it


class Room(Struct, frozen=True, kw_only=True):
    """What history may take, and what is needed beside it to tell at which window something would return."""

    tokens: int
    refill: float  # the share of it that a new epoch fills
    told: float = 0.0  # the share of all that there is, beside these tokens, that tells of what is left out
    beside: int
    reserve: int
    margin: float


class Work(Struct, frozen=True, kw_only=True):
    """What the gate works on and with."""

    history: Sequence[Message]
    places: Places
    room: Room
    policy: Policy
    counter: Counter
    archive: Archive
    document: bool = False
    reminders: bool = True  # whether the newest system message of each kind is in where there is room for it

    def messages(self, span: Span) -> tuple[Message, ...]:
        return tuple(self.history[span.start : span.stop])


def fit(
    work: Work, order: Sequence[int], kept: int, chosen_at: Sequence[int], spans: Sequence[Span], pins: Sequence[int]
) -> Fitted:
    """Fill the room with units in their order, of which the strategy keeps the first `kept`; `pins` are indexes of messages."""
    room = work.room
    units = _units(work, chosen_at, spans)
    if sum(unit.cost for unit in units) <= room.tokens and kept == len(units):
        for unit in units:
            unit.rule, unit.made = "fits", work.messages(unit.span)
        return _lay_out(work, units)
    if work.policy.strategy == "stop_at_limit":
        raise refuse_to_cut(sum(unit.cost for unit in units), room.tokens)
    ranked = _rank_units(work, units, order, pins)
    must, reminders, rest, marker = ranked.must, ranked.reminders, ranked.rest, ranked.marker
    free = room.tokens - ranked.markers
    free -= _take_must(work, units, must, free)
    newest = len(units) - 1
    free -= _take_reminders(work, units, reminders, marker, free)
    named = {newest, *order[:kept]}
    rest = [n for n in rest if n in named and units[n].made is None]
    _take_rest(work, units, rest, free)
    taken = [n for n in (*reminders, *rest) if units[n].made is not None]
    while True:
        laid = _lay_out(work, units)
        if laid.tokens <= room.tokens:
            return laid
        if not taken:
            raise CannotFit(
                f"goal, request and markers take {laid.tokens:,} tokens, and history has {room.tokens:,}; "
                "choose a larger window or lower the reserve"
            )
        units[taken.pop()].made = None


class _Ranked(Struct, frozen=True):
    """What has to be in and why, reminders, all others in their order; and the tokens of a marker, and of all markers."""

    must: dict[int, str]
    reminders: list[int]
    rest: list[int]
    marker: int
    markers: int


def _units(work: Work, chosen_at: Sequence[int], spans: Sequence[Span]) -> list[_Unit]:
    costs = costs_of(work.history, work.places, work.counter)
    return [
        _Unit(span, sum(costs[span.start : span.stop]), work.places.unread(span.start) is not None, chosen_at=at)
        for span, at in zip(spans, chosen_at, strict=True)
    ]


def _rank_units(work: Work, units: list[_Unit], order: Sequence[int], pins: Sequence[int]) -> _Ranked:
    """What is taken before what; and the room that each unit needs to be whole."""
    spans = [unit.span for unit in units]
    must = _must(work, spans, pins)
    longest = marker_for(work.policy, max(len(work.history), work.places.end) + 1000, SAMPLE)
    marker = work.counter.count_message(Message("user", (Text(longest),))) + 4
    last = _last_nodes(work, units)
    markers = marker * (_runs(must) + 2 + bool(last))
    must = _add_last(work, units, must, last, work.room.tokens - markers)
    newest = len(units) - 1
    reminders = [n for n in _reminders(work, spans) if n not in must]
    rest = [n for n in dict.fromkeys([newest, *order]) if n not in must]
    _rank(units, [*must, *rest], {*must, *last}, markers, work.room, sum(units[n].cost + marker for n in reminders))
    return _Ranked(must, reminders, rest, marker, markers)


def find_windows(
    work: Work, order: Sequence[int], chosen_at: Sequence[int], spans: Sequence[Span], pins: Sequence[int]
) -> list[int]:
    """The window at which each unit would be whole."""
    units = _units(work, chosen_at, spans)
    _rank_units(work, units, order, pins)
    return [_returns_at(unit, work.room) for unit in units]


def cut_of_point(items: Iterable[Item]) -> int:
    """How many tokens of goal, request and pins were cut."""
    return sum(item.before - item.after for item in items if item.action == "shrunk" and item.rule in POINT)


def costs_of(history: Sequence[Message], places: Places, counter: Counter, own: bool = False) -> list[int]:
    """What each message takes; a stretch that was not read takes what is known of it, by the policy's `own` counter or the best."""
    counted = [counter.count_message(message) for message in history]
    for index, spot in enumerate(places.spots):
        if spot.unread:
            counted[index] = spot.stretch.own if own and spot.stretch else spot.tokens
    return counted


def _must(work: Work, spans: Sequence[Span], pins: Sequence[int]) -> dict[int, str]:
    """The units that have to be in, the most important first, and why: the current request, the first goal, system text, pins."""
    why = must_stay(work.history, pins, work.policy, work.document)
    found: dict[int, str] = {}
    for unit, rule in zip(_units_of(why, spans), why.values(), strict=True):
        if unit is not None:
            found.setdefault(unit, rule)
    return found


def _units_of(places: Iterable[int], spans: Sequence[Span]) -> list[int | None]:
    """The unit that each message is in; none where it stands before the first of them, and is settled already."""
    unit_of = {index: n for n, span in enumerate(spans) for index in range(span.start, span.stop)}
    return [unit_of.get(index) for index in places]


def _reminders(work: Work, spans: Sequence[Span]) -> list[int]:
    """The units with the newest system message of each kind, the newest first."""
    if work.document or work.policy.system_messages == "keep" or not work.reminders:
        return []
    return [unit for unit in dict.fromkeys(_units_of(newest_of_kinds(work.history), spans)) if unit is not None]


def _take_reminders(work: Work, units: list[_Unit], reminders: Sequence[int], marker: int, free: int) -> int:
    """Take as many of these units as fit beside the newest, in a share of the room, with a marker each. Returns what they cost."""
    newest = units[-1]
    beside = newest.cost if newest.made is None and newest.cost <= free else 0
    most = min(free - beside, int(work.room.tokens * SYSTEM_SHARE))
    used = 0
    for n in reminders:
        if used + units[n].cost + marker > most:
            break
        used += units[n].cost + marker
        units[n].rule, units[n].made = REMINDER, work.messages(units[n].span)
    return used


def stays(work: Work, pins: Sequence[int]) -> dict[int, str]:
    """The messages that have to be in and the newest system messages of each kind, by their places, and why."""
    why = must_stay(work.history, pins, work.policy, work.document)
    left = int(work.room.tokens * SYSTEM_SHARE)
    for index in newest_of_kinds(work.history) if not work.document else ():
        left -= work.counter.count_message(work.history[index])
        if left < 0:
            break
        why.setdefault(index, REMINDER)
    return why


def _last_nodes(work: Work, units: Sequence[_Unit]) -> list[int]:
    """The units that the strategy `truncate_middle` keeps whatever their size, the newest first."""
    if work.policy.strategy != "truncate_middle" or work.document:  # of a text its end is in already
        return []
    return list(reversed(range(len(units))))[: work.policy.minimum_recent_nodes]


def _add_last(work: Work, units: list[_Unit], must: dict[int, str], last: Sequence[int], free: int) -> dict[int, str]:
    """What has to be in with as many of the last nodes as fit behind the request; goal and pins are shrunk for them."""
    if not last:
        return must
    first = {n: rule for n, rule in must.items() if rule in ("current request", "system text")}
    left = free - sum(units[n].cost for n in first)
    left -= sum(_smallest_cost(work, units[n]) for n in must if n not in first and n not in last)
    found: dict[int, str] = {}
    for n in (n for n in last if n not in first):
        fits = units[n].cost <= left
        # The newest of all may be cut, and is then the only one.
        if units[n].unread or not (fits or (n == last[0] and _smallest_cost(work, units[n]) <= left)):
            break
        found[n] = must.get(n, "recent nodes")
        left -= units[n].cost
    return first | found | {n: rule for n, rule in must.items() if n not in found}


def _smallest_cost(work: Work, unit: _Unit) -> int:
    made = smallest(work.messages(unit.span), unit.span.start, work.counter, work.archive)
    return min(unit.cost, sum(map(work.counter.count_message, made)))


def must_stay(history: Sequence[Message], pins: Sequence[int], policy: Policy, document: bool) -> dict[int, str]:
    """The messages that have to be in, by their places, the most important first, and why."""
    users = [n for n, message in enumerate(history) if message.role == "user"]
    why: dict[int, str] = {}
    if document:
        why[len(history) - 1] = "the end of the text"
    elif history:
        why[users[-1] if users else 0] = "current request" if users else "first goal"
        why.setdefault(users[0] if users else 0, "first goal")
    for index, message in enumerate(history) if policy.system_messages == "keep" else ():
        if message.role in SYSTEM_ROLES:
            why.setdefault(index, "system text")
    for pin in pins:
        why.setdefault(pin, "pin")
    return why


def _runs(units: Iterable[int]) -> int:
    """How many stretches of neighbours there are: as many gaps may lie before them."""
    ordered = sorted(units)
    return sum(n == 0 or unit != ordered[n - 1] + 1 for n, unit in enumerate(ordered))


def _take_must(work: Work, units: list[_Unit], must: dict[int, str], free: int) -> int:
    """Take what has to be in, shrunk from the least important on where it does not fit. Returns what it costs."""
    counter, archive = work.counter, work.archive
    needed = sum(units[n].cost for n in must)
    for n, rule in reversed(must.items()):
        unit, given = units[n], work.messages(units[n].span)
        unit.rule, unit.made = rule, given
        if needed > free and rule != "system text":
            target = max(unit.cost - (needed - free), 0)
            made = shrink_messages(given, target, unit.span.start, counter, archive)
            made = made or smallest(given, unit.span.start, counter, archive)
            after = sum(map(counter.count_message, made))
            if after < unit.cost:
                unit.made = made
                needed -= unit.cost - after
    if needed > free:
        sums: dict[str, int] = {}
        for n, rule in must.items():
            sums[rule] = sums.get(rule, 0) + units[n].cost
        what = ", ".join(f"{rule} {cost:,}" for rule, cost in sums.items())
        raise CannotFit(
            f"the required messages take {needed:,} tokens even when shrunk ({what}), and {max(free, 0):,} are left for history; "
            "choose a larger window, or lower the reserve, the prompt or the tools"
        )
    return needed


def _rank(units: list[_Unit], order: list[int], must: set[int], marker: int, room: Room, reminders: int) -> None:
    """What room each unit needs: what must be in is whole only where all of it is, and so is what comes first behind it.

    `reminders` is what system messages may take before them, at a window where all of these fit.
    """
    refill = room.refill
    used = marker + reminders
    together = sum(units[n].cost for n in must)
    total = sum(unit.cost for unit in units)
    for position, n in enumerate(order):
        used += units[n].cost
        needs = used
        if n in must:
            needs = marker + together
        elif position > len(must) and refill < 1:  # only a share is filled with these, unless all fits
            needs = min(ceil(used / refill) + 1, total) if refill > 0 else total
        # Where all of it fits nothing has to be told.
        units[n].needs = min(ceil(needs / (1 - room.told)) + 1, max(total, needs)) if room.told else needs


def _take_rest(work: Work, units: list[_Unit], order: list[int], free: int) -> None:
    """Fill what is free, in order, until something does not fit; the newest exchange may also take what a new epoch leaves free."""
    counter, strategy = work.counter, work.policy.strategy
    spare = work.room.tokens - int(work.room.tokens * work.room.refill)
    for position, n in enumerate(order):
        unit = units[n]
        newest = n == len(units) - 1
        left = free if newest or position == 0 else free - spare
        given = work.messages(unit.span)
        if unit.unread:  # not read, because what is newer fills the window
            return
        if unit.cost <= left:
            unit.rule, unit.made = "newest exchange" if newest else strategy, given
            free -= unit.cost
            continue
        # What does not fit whole is cut to what is left, if that is worth reading; nothing older is taken then.
        if newest or (strategy == "newest" and left >= SMALLEST_SHARE):
            made = shrink_messages(given, left, unit.span.start, counter, work.archive)
            if made is not None:
                unit.rule, unit.made = "newest exchange" if newest else strategy, made
                free -= sum(map(counter.count_message, made))
            if newest:
                continue
        return


def _lay_out(work: Work, units: list[_Unit]) -> Fitted:
    """The units in their places, with a marker for each stretch that is left out."""
    pieces: list[Piece] = []
    tokens = dropped = 0
    gap: list[_Unit] = []
    for unit in (*units, None):
        if unit is not None and unit.made is None:
            gap.append(unit)
            continue
        if gap:
            span = Span(gap[0].span.start, gap[-1].span.stop)
            count = sum(map(work.places.count, range(span.start, span.stop)))
            piece = _gap(work, gap, span, count)
            tokens += piece.items[-1].after
            dropped += count
            pieces.append(piece)
            gap = []
        if unit is None:
            break
        piece = _kept(work, unit)
        tokens += sum(item.after for item in piece.items)
        pieces.append(piece)
    return Fitted(tuple(pieces), tokens, dropped)


def _kept(work: Work, unit: _Unit) -> Piece:
    items = []
    assert unit.made is not None
    for index, made in zip(range(unit.span.start, unit.span.stop), unit.made, strict=True):
        before, after = work.counter.count_message(work.history[index]), work.counter.count_message(made)
        whole = made is work.history[index]
        items.append(
            Item(
                work.places.label(Span(index, index + 1)),
                "history",
                "kept" if whole else "shrunk",
                unit.rule,
                before,
                after,
                () if whole else own_handles(work.archive, index, made),
                0 if whole else _returns_at(unit, work.room),
            )
        )
    return Piece(unit.span, unit.made, tuple(items))


def _gap(work: Work, gap: list[_Unit], span: Span, count: int) -> Piece:
    handle = work.archive.keep_span(span.start, work.messages(span))
    marker = Message("user", (Text(marker_for(work.policy, count, handle)),))
    before = sum(unit.cost for unit in gap)
    back = max(_returns_at(unit, work.room) for unit in gap)
    at = work.places.span(span)
    after = work.counter.count_message(marker)
    item = Item(f"messages[{at.start}:{at.stop}]", "history", "dropped", work.policy.strategy, before, after, (handle,), back)
    return Piece(span, (marker,), (item,))


def _returns_at(unit: _Unit, room: Room) -> int:
    inside = unit.needs + room.beside
    return max(-int(-inside // (1 - room.margin)) + room.reserve + 1, unit.chosen_at)


def marker_for(policy: Policy, count: int, handle: str) -> str:
    """What stands where so many messages were left out."""
    return policy.marker.format(count=f"{count:,} message{'s' if count != 1 else ''}", handle=handle)


def own_handles(archive: Archive, index: int, made: Message) -> tuple[str, ...]:
    """The handles of what was cut from the message at this index; what its own words look like does not count."""
    return tuple(sorted(handles_in(made).intersection(archive.parts_of(index))))


def handles_in(message: Message) -> set[str]:
    """The handles that a message names, in markers and in words that look like one."""
    found: set[str] = set()
    for part in message.parts:
        match part:
            case Text():
                found.update(_HANDLE.findall(part.text))
            case ToolCall():
                found.update(_HANDLE.findall(part.arguments))
            case ToolResult():
                for inner in part.parts:
                    if isinstance(inner, Text):
                        found.update(_HANDLE.findall(inner.text))
    return found
