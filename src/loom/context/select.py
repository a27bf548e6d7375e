"""Which of a history goes into a request: the epoch that goes on, or what the policy chooses and the gate lets in."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.budget.profiles import profile
from loom.budget.zones import DEFAULTS, Budget, left_for_history
from loom.context.caches import SHARED, Caches
from loom.context.cover import cover
from loom.context.epochs import Epoch, EpochEnds, Renewal, hash_of
from loom.context.gate import (
    POINT,
    SMALLEST_SHARE,
    Fitted,
    Room,
    Work,
    costs_of,
    cut_of_point,
    find_windows,
    fit,
    marker_for,
    stays,
)
from loom.context.handles import Archive
from loom.context.ladder import RUNGS, Ladder, Scene, Threshold, View, spared, whole
from loom.context.outlook import Outlook, Prices, Standing, calls_to_come, weigh
from loom.context.places import EVERYWHERE, Places, answers_of
from loom.context.policy import Policy
from loom.context.report import LEFT_OUT, Item, Piece, Returns
from loom.context.strategies import choose
from loom.context.told import Told, lay_summaries, told_first
from loom.conversation.handles import SAMPLE
from loom.conversation.message import Media, Message, Text, Tool
from loom.conversation.system_messages import newest_of_kinds
from loom.conversation.turns import Span, exchanges, turns
from loom.errors import CannotFit

VERBATIM = 2500  # of the newest tokens that stay as they are behind a cover, where there is room
_FRAME = 16  # tokens for what leads a cover in
_LONG = 3  # windows of a history of which the first cover tells at once as much as it would have come to
_CHANGED = "system text, tools, sections, model or policy changed"
_TRIES = 6  # times that the size of a cover is found again once it is known what it has to tell of


class Setup(Struct, frozen=True, kw_only=True):
    """What is settled before the history is looked at. `budget` is as allocated, `measured` once needs are known."""

    policy: Policy
    budget: Budget
    measured: Budget
    counter: Counter
    archive: Archive
    pins: tuple[int, ...]
    room: Room
    set_aside: int
    beside: int = 0  # by the policy's own counter, what stands beside history
    larger: int = 0  # the same at a window where no section has to be cut for its sake
    places: Places = EVERYWHERE
    caches: Caches = SHARED
    document: bool = False
    prices: Prices | None = None
    cold: bool = False  # a provider no longer has the last request in its cache
    busy: bool = False  # a call is in flight, and nothing moves that need not
    floor: int = 0  # what stands before it is left out, unless it must be in
    fills: int | None = None  # by the policy's own counter, what its strategy may fill, where that is measured
    formula: int | None = None  # the same as the most that history may take at all, goal and markers included


class Selected(Struct, frozen=True):
    """What of the history goes in, in which epoch, why, and what is expected of it."""

    fitted: Fitted
    epoch: int
    reason: str
    outlook: Outlook
    renewed: bool = False
    rho: float | None = None  # by which a ladder was climbed, as it is now
    returns: Returns | None = None


def select(history: tuple[Message, ...], setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> Selected:
    """Continue the epoch of the previous request, or say why it ends (EpochEnds); begin one where that is settled."""
    if setup.policy.strategy == "ladder":
        return climb(history, setup, previous, head_hash)
    expected = Outlook(calls_to_come(_calls_made(history, setup.places)))
    match previous:
        case None:
            return Selected(_choose(history, setup), 0, "each call is its own", expected)
        case Epoch():
            return _go_on(history, setup, previous, head_hash, expected)
    if previous.archive is not None:  # covers that stand keep their handles
        setup.archive.add(previous.archive)
    begun = replace(_refilled(setup), floor=max(previous.floor, _without_older_half(history, setup, previous.before)))
    begun = _sooner(history, begun) if previous.early else begun
    fitted = _choose(history, begun, previous.before, previous.told)
    if covered(previous.before):
        return Selected(fitted, previous.number, previous.reason, expected, returns=_returns(fitted.pieces, history, setup))
    return Selected(fitted, previous.number, previous.reason, expected)


def _go_on(history: tuple[Message, ...], setup: Setup, previous: Epoch, head_hash: str, expected: Outlook) -> Selected:
    """What the last request showed, and what is new."""
    _check_stands(history, setup, previous, head_hash)
    pieces = [piece if piece.messages else _revived(piece, history) for piece in previous.pieces]
    fresh = _appended(history, pieces[-1].span.stop, setup)
    tokens = cost_of((*pieces, *fresh))
    if setup.formula is not None and (counted := own_tokens((*pieces, *fresh), _own_counter(setup))) > setup.formula:
        raise EpochEnds(f"{counted:,} tokens by the policy's own counter no longer fit {setup.formula:,}", previous.seen)
    if tokens > setup.room.tokens:
        raise EpochEnds(f"{tokens:,} tokens no longer fit {setup.room.tokens:,}", previous.seen)
    if _evicts(history, setup, (*pieces, *fresh)):
        raise EpochEnds(f"by its own counter {setup.policy.name} leaves out more", previous.seen)
    expected = _outlook((*pieces, *fresh), tokens, expected.calls, setup)
    if expected.pays:
        why = f"it pays: about {expected.saved:,} tokens fewer a call, {expected.recached:,} cached anew"
        raise EpochEnds(why, previous.seen, early=True)
    if previous.archive is not None:
        setup.archive.add(previous.archive)
    fitted = Fitted((*pieces, *fresh), tokens, _dropped(pieces, setup.places))
    return Selected(fitted, previous.number, "continued", expected, returns=_returns(pieces, history, setup))


def _returns(pieces: Sequence[Piece], history: tuple[Message, ...], setup: Setup) -> Returns | None:
    """The windows at which what was cut returns now, where anything was."""
    cut = [(piece.span, item.place) for piece in pieces for item in piece.items if item.action != "kept"]
    return Returns(lambda: _find_windows(cut, history, setup)) if cut else None


def _find_windows(cut: Sequence[tuple[Span, str]], history: tuple[Message, ...], setup: Setup) -> dict[str, int]:
    setup = _refilled(setup)
    setup = replace(setup, room=replace(setup.room, told=_told_share(setup.policy)))
    ranked = _rank(history, setup, 0)
    chosen_at = _chosen_at(history, setup, ranked)
    windows = find_windows(_work(history, setup), ranked.order, chosen_at, ranked.spans, setup.pins)
    at = [window for span, window in zip(ranked.spans, windows, strict=True) for _ in range(len(span))]
    return {place: max(at[span.start : span.stop]) for span, place in cut}


def _without_older_half(history: tuple[Message, ...], setup: Setup, before: Sequence[Piece]) -> int:
    """Where the newer half begins of the turns that the last request showed, once they take more than the formula leaves; else 0.

    So much goes at once that the next requests only grow. Of one turn, which is the active one, half of its exchanges go.
    """
    if setup.formula is None or not before:
        return 0
    pieces = [piece if piece.messages else _revived(piece, history) for piece in before]
    stop = pieces[-1].span.stop
    counted = own_tokens(pieces, _own_counter(setup)) + sum(map(_own_counter(setup).count_message, history[stop:]))
    if counted <= setup.formula:
        return 0
    begin = max((piece.span.stop for piece in pieces if piece.items[0].action in LEFT_OUT), default=0)
    starts = [n for n in range(begin, len(history)) if history[n].role == "user"]
    if len(starts) < 2:
        starts = [span.start for span in exchanges(history) if span.start >= begin]
    return starts[len(starts) // 2]


def _told_share(policy: Policy) -> float:
    """What telling lines may take at most of the room, in a call that is its own as in an epoch."""
    return max(policy.once, policy.covers) if policy.cover else 0.0


def _check_stands(history: tuple[Message, ...], setup: Setup, previous: Epoch, head_hash: str) -> None:
    """See that what stood ahead of the history, the history itself and its pins allow the epoch to go on."""
    if previous.policy != setup.policy.name:
        raise EpochEnds(_CHANGED, 0)
    if previous.head_hash != head_hash:
        raise EpochEnds(_CHANGED, _unchanged(history, previous))
    before = history[: previous.seen]
    same = before == previous.history if previous.history is not None else hash_of(before) == previous.hash
    if not same:
        raise EpochEnds("the history changed before its end", _unchanged(history, previous))
    if not _stand(previous, setup.pins):
        raise EpochEnds("a pin changed", previous.seen)


def _unchanged(history: tuple[Message, ...], previous: Epoch) -> int:
    """How far the history is what it was: the exchange that was seen last may have been mended otherwise since.

    Where the history of then is not at hand, its messages are known by their places on a path, on which nothing ever changes.
    """
    before = history[: previous.seen]
    if before == previous.history or (previous.history is None and hash_of(before) == previous.hash):
        return previous.seen
    last = exchanges(before)[-1].start if before else 0
    return last if previous.history is None or before[:last] == previous.history[:last] else 0


def _evicts(history: tuple[Message, ...], setup: Setup, shown: Sequence[Piece]) -> bool:
    """Whether a strategy with a counter of its own would no longer choose something that stands, and need not."""
    if setup.policy.counter == "best":
        return False
    ranked = _rank(history, setup, 0)
    chosen = {index for unit in ranked.order[: ranked.kept] for index in range(ranked.spans[unit].start, ranked.spans[unit].stop)}
    must = stays(_work(history, setup), setup.pins)
    may = chosen | {
        n for span in ranked.spans for n in range(span.start, span.stop) if not must.keys().isdisjoint(range(span.start, span.stop))
    }
    may |= set(range(ranked.spans[-1].start, len(history)))
    standing = (piece.span for piece in shown if piece.items[0].action not in LEFT_OUT)
    return any(index not in may for span in standing for index in range(span.start, span.stop))


def _sooner(history: Sequence[Message], setup: Setup) -> Setup:
    """For an epoch that need not be yet: of what would fit, only the newest stays as it is."""
    return replace(setup, floor=max(setup.floor, _newest(history, setup)))


def _newest(history: Sequence[Message], setup: Setup) -> int:
    """Where the newest exchanges begin that stay as they are behind covers."""
    costs = costs_of(history, setup.places, setup.counter)
    left, begin = _verbatim(setup.policy, setup.room.tokens), len(history)
    for span in reversed(exchanges(history)):
        left -= sum(costs[span.start : span.stop])
        if left < 0:
            break
        begin = span.start
    return begin


def _calls_made(history: Sequence[Message], places: Places) -> int:
    """How often a model was asked; of what was never read, every other message is taken to be its answer."""
    return sum(answers_of(spot) if (spot := places.unread(n)) else m.role == "assistant" for n, m in enumerate(history))


def _outlook(pieces: Sequence[Piece], tokens: int, calls: int, setup: Setup) -> Outlook:
    """What an epoch that began now would bring, where the policy lets one begin before it must and no call is in flight."""
    chosen, most = setup.policy, setup.room.tokens
    early = chosen.cold if setup.cold else chosen.early
    # Where all of it would fit, a new epoch would leave nothing out.
    whole = sum(item.before for piece in pieces for item in piece.items)
    if setup.busy or early >= 1 or tokens < most * early or whole <= most:
        return Outlook(calls)
    standing = cost_of(covered(pieces))
    after, shared = int(most * chosen.refill), 0
    if chosen.cover:
        merged = standing + most * chosen.cover > most * chosen.covers
        told = most * chosen.covers / 2 if merged else standing + most * chosen.cover
        after, shared = int(told) + _verbatim(chosen, most), 0 if merged else standing
    said = sum(message.role == "assistant" for piece in pieces for message in piece.messages)
    growth = (tokens - standing) // max(said, 1)
    return weigh(Standing(now=tokens, after=after, shared=shared, room=most, growth=growth, cold=setup.cold), calls, setup.prices)


def _verbatim(chosen: Policy, most: int) -> int:
    """How much stays as it is behind covers."""
    return max(int(most * chosen.verbatim), min(VERBATIM, most // 2))


def climb(history: tuple[Message, ...], setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> Selected:
    """One rung of the policy's ladder where pressure has passed it, as many more as it takes to fit, and at last the gate.

    What a rung made smaller stays so. At the pressure at which the policy renews, a fresh window begins below the lowest rung.
    """
    steps = Ladder(tuple(Threshold(name, above) for name, above in setup.policy.ladder.items()))
    own = seed_counter(setup.policy.counter)
    scene = Scene(
        history=history,
        spared=spared(history, stays(_work(history, setup), setup.pins)),
        counter=setup.counter,
        archive=setup.archive,
        places=setup.places,
        goal=next((message.text for message in history if message.role == "user"), ""),
        starts=setup.places.starts(),
    )
    before, unread = _standing(scene, setup, own, previous, head_hash)
    pressure = _pressure(before, setup, own) + unread / setup.budget.window
    demanded = isinstance(previous, Renewal) and previous.renew
    renewed = bool(setup.policy.renew) and (demanded or pressure >= setup.policy.renew)
    overflowed = isinstance(previous, Renewal) and previous.floor > 0
    taken = "reactive" if overflowed else "auto" if renewed else steps.reached(pressure)
    view, taken = _smaller(before, scene, taken, steps, setup.room.tokens)
    lowest = steps.steps[0].above
    gated = cost_of(view) > setup.room.tokens or (renewed and _pressure(view, setup, own) >= lowest)
    reason = _reached(previous, pressure, taken if view != before or gated else "", renewed and not demanded, gated)
    if isinstance(previous, Epoch) and reason != "continued":
        raise EpochEnds(reason, previous.seen)
    if gated:
        fitted = _below(history, setup, own, lowest if renewed else 1.0)
        fitted = replace(fitted, pieces=_returning(fitted.pieces, history, setup, own, steps))
    else:
        fitted = Fitted(_returning(view, history, setup, own, steps), cost_of(view), _dropped(view, setup.places))
    expected = Outlook(calls_to_come(_calls_made(history, setup.places)))
    number = previous.number if previous else 0
    return Selected(fitted, number, reason, expected, renewed, _pressure(fitted.pieces, setup, own))


def _smaller(view: View, scene: Scene, taken: str, steps: Ladder, room: int) -> tuple[View, str]:
    """The view as a rung makes it, and as many rungs above that as it takes to fit; and the last one taken."""
    view = RUNGS[taken](view, scene) if taken else view
    names = [step.name for step in steps.steps]
    for name in names[names.index(taken) + 1 if taken in names else 0 :]:
        if cost_of(view) <= room:
            break
        view, taken = RUNGS[name](view, scene), name
    return view, taken


def _reached(previous: Epoch | Renewal | None, pressure: float, taken: str, renewed: bool, gated: bool) -> str:
    """Why a view is what it is."""
    if renewed:
        return f"pressure {pressure:.2f}: renewed"
    if gated and not (isinstance(previous, Renewal) and previous.renew):
        return "the ladder does not reach; the gate decides"
    if taken and not (isinstance(previous, Renewal) and previous.renew):
        return f"pressure {pressure:.2f}: {taken}"
    match previous:
        case None:
            return "each call is its own"
        case Renewal():
            return previous.reason
    return "continued"


def _pressure(view: View, setup: Setup, own: Counter) -> float:
    """By the policy's own counter, of the whole window; what that does not see, calls and media, with it."""
    said = sum(own.count_message(message) + _unseen(message, setup.counter) for piece in view for message in piece.messages)
    return (setup.beside + said) / setup.budget.window


def _unseen(message: Message, best: Counter) -> int:
    """What seed 001's counter takes for nothing."""
    calls = sum(best.count_text(f"{call.name}{call.arguments}") for call in message.calls)
    parts = [*message.parts, *(part for result in message.results for part in result.parts)]
    media = [part for part in parts if isinstance(part, Media)]
    return calls + (best.count_message(Message("user", tuple(media))) if media else 0)


def _below(history: tuple[Message, ...], setup: Setup, own: Counter, share: float) -> Fitted:
    """What the gate lets in, made smaller until the policy's own counter sees less than this share of the window too.

    Goal, request, pins and the newest exchange give nothing for that.
    """
    best, room, beside = _choose(history, setup), setup.room.tokens, setup.beside / setup.budget.window
    while share < 1 and (pressure := _pressure(best.pieces, setup, own)) >= share:
        room = int(room * min(0.97, max(share - beside, 0.05) / (pressure - beside)))
        try:
            smaller = _choose(history, replace(setup, room=replace(setup.room, tokens=room)))
        except CannotFit:  # goal and request alone take more
            return best
        if _lacking(smaller, history, setup, setup.room.tokens):
            return best
        best = smaller
    return best


def _standing(scene: Scene, setup: Setup, own: Counter, previous: Epoch | Renewal | None, head_hash: str) -> tuple[View, int]:
    """The view that the last request had, with what is new, or the history as it is; and the tokens of what was never read."""
    history = tuple(scene.history)
    pieces: Sequence[Piece] = ()
    if isinstance(previous, Epoch):
        _check_stands(history, setup, previous, head_hash)
        pieces = previous.pieces
    elif previous is not None and not _fits_raw(history, setup, own):
        pieces = _uncovered(previous.before, scene, setup.pins)
    if previous is not None and previous.archive is not None:
        setup.archive.add(previous.archive)
    pieces = [piece if piece.messages else _revived(piece, history) for piece in pieces]
    fresh = whole(scene, pieces[-1].span.stop if pieces else 0)
    unread = sum(spot.tokens for piece in fresh if (spot := setup.places.unread(piece.span.start)))
    return (*pieces, *fresh), unread


def _fits_raw(history: tuple[Message, ...], setup: Setup, own: Counter) -> bool:
    """Whether all of the history may stand as it is again, below the lowest rung; the window may have grown."""
    said = setup.beside + _said(history, setup, own)
    room = sum(costs_of(history, setup.places, setup.counter)) <= setup.room.tokens
    return room and said / setup.budget.window <= min(setup.policy.ladder.values())


def _said(history: Sequence[Message], setup: Setup, own: Counter) -> int:
    """What all of the history says, by the policy's own counter, and what that does not see."""
    return sum(
        spot.tokens if (spot := setup.places.unread(n)) else own.count_message(message) + _unseen(message, setup.counter)
        for n, message in enumerate(history)
    )


def _uncovered(pieces: Sequence[Piece], scene: Scene, pins: Sequence[int]) -> list[Piece]:
    """The pieces with what is pinned, and was cut, as it is."""
    made: list[Piece] = []
    for piece in pieces:
        cut = any(item.action != "kept" for item in piece.items)
        if cut and any(piece.span.start <= pin < piece.span.stop for pin in pins):
            made += whole(scene, piece.span.start, piece.span.stop)
        else:
            made.append(piece)
    return made


def _returning(view: View, history: Sequence[Message], setup: Setup, own: Counter, steps: Ladder) -> View:
    """The view with the window at which each thing would stand whole again: where the lowest rung is not reached, and all fits."""
    by_ladder = ceil((setup.larger + _said(history, setup, own)) / steps.steps[0].above) + 1
    inside = setup.room.beside + sum(costs_of(history, setup.places, setup.counter))
    back = max(by_ladder, ceil(inside / (1 - setup.room.margin)) + setup.room.reserve + 1)
    return tuple(
        replace(piece, items=tuple(item if item.action == "kept" else replace(item, returns_at=back) for item in piece.items))
        for piece in view
    )


def cost_of(view: View) -> int:
    return sum(item.after for piece in view for item in piece.items)


def _revived(piece: Piece, history: tuple[Message, ...]) -> Piece:
    return replace(piece, messages=history[piece.span.start : piece.span.stop])


def _refilled(setup: Setup) -> Setup:
    """A new epoch leaves room to grow."""
    return replace(setup, room=replace(setup.room, refill=setup.policy.refill))


def _stand(previous: Epoch, pins: Sequence[int]) -> bool:
    """Whether all that is newly pinned stands whole in the previous request, or is new."""
    fresh = [pin for pin in pins if pin < previous.seen and pin not in previous.pins]
    whole: set[int] = set(range(previous.pieces[-1].span.stop, previous.seen))
    for piece in previous.pieces if fresh else ():
        if all(item.action == "kept" for item in piece.items):
            whole.update(range(piece.span.start, piece.span.stop))
    return whole.issuperset(fresh)


def _appended(history: tuple[Message, ...], seen: int, setup: Setup) -> list[Piece]:
    pieces = []
    for index in range(seen, len(history)):
        cost = setup.counter.count_message(history[index])
        item = Item(setup.places.label(Span(index, index + 1)), "history", "kept", "new in this epoch", cost, cost)
        pieces.append(Piece(Span(index, index + 1), (history[index],), (item,)))
    return pieces


def _choose(history: tuple[Message, ...], setup: Setup, before: Sequence[Piece] = (), summaries: Sequence[Told] = ()) -> Fitted:
    """Let the policy's strategy choose by its own counter, and the gate fill by the best one.

    What was left out is covered, if the policy says so: summaries stand first, covers of the last epoch, among the pieces `before`,
    stand as they stood, and what is left out behind them gets one more; once they take too much, they become one.
    """
    chosen, counter = setup.policy, setup.counter
    if not chosen.cover:
        return told_first(lambda room: _fill(history, replace(setup, room=room), 0), _work(history, setup), summaries)
    costs = costs_of(history, setup.places, counter)
    if sum(costs) <= setup.room.tokens and not setup.floor:
        return _fill(history, setup, 0)
    most, once = setup.room.tokens, setup.room.refill == 1
    standing = covered(_unpinned(before, setup.pins))
    # What there is room for stays as it is, also where a summary tells of it.
    newest = max(_newest(history, setup), setup.floor) if summaries else 0
    told_of = [replace(one, span=Span(one.span.start, min(one.span.stop, newest))) for one in summaries if one.span.start < newest]
    if laid := lay_summaries(told_of, _work(history, setup), setup.pins):
        behind = [piece for piece in standing if piece.span.start >= laid[-1].span.stop]
        joined = bool(behind) and behind[0].span.start == laid[-1].span.stop
        before = standing = (*laid, *behind) if joined else laid
    # What is told of at another window is not known, but not more than this.
    bound = chosen.once if once else chosen.covers
    untold = replace(setup, room=replace(setup.room, told=bound))
    standing, told = tuple(_counted(piece, counter) for piece in standing), int(most * (chosen.once if once else chosen.cover))
    if once:  # to tell of what must go, no more than as much again should go
        told = min(told, sum(costs) - most)
    elif cost_of(standing) + told > most * chosen.covers or (not standing and sum(costs) > _LONG * most):
        standing, told = (), int(most * chosen.covers / 2)
    return _fill_beside_covers(history, setup, untold, _Covers(before, standing, told, once))


class _Covers(Struct, frozen=True):
    """What tells of what is left out: the pieces of the last request, those of them that stand, and the tokens for a new cover."""

    before: Sequence[Piece]
    standing: tuple[Piece, ...]
    tokens: int
    once: bool

    @property
    def stop(self) -> int:
        return self.standing[-1].span.stop if self.standing else 0

    def give(self, lack: int) -> "_Covers | None":
        """With so many tokens less: of the new cover, or of one in place of them all; none where there is no room for one."""
        if lack < self.tokens:
            return replace(self, tokens=self.tokens - lack)
        left = self.tokens + cost_of(self.standing) - lack
        return replace(self, standing=(), tokens=left) if self.standing and left > 0 else None


def _fill_beside_covers(history: tuple[Message, ...], setup: Setup, untold: Setup, planned: _Covers, yields: bool = True) -> Fitted:
    """Fill the room that covers leave. They give way to what must be in, and to the newest exchange.

    They do not where that would not help: where goal, request or pins are cut in any case.
    """
    most, covers = setup.room.tokens, planned
    verbatim = max(_verbatim(setup.policy, most), _spared_by_floor(history, setup))
    for _ in range(_TRIES):
        tokens = most - cost_of(covers.standing) - covers.tokens
        refill = 1.0 if covers.once else min(1.0, verbatim / max(tokens, 1))
        room = replace(setup.room, tokens=tokens, refill=refill, told=untold.room.told)
        try:
            fitted = _fill(history, replace(setup, room=room), covers.stop)
        except CannotFit:
            return _fill(history, untold, 0)
        if yields and (lack := _lacking(fitted, history, setup, most - cost_of(covers.standing))):
            less = covers.give(lack)
            if less is None:
                plain = _fill(history, untold, 0)
                if not _cut_of(plain):
                    return plain
                return _fill_beside_covers(history, setup, untold, planned, yields=False)
            covers = less
            continue
        lost = sum(piece.items[0].before for piece in fitted.pieces if piece.items[0].action == "dropped")
        if not lost and not covers.standing:  # nothing to tell of
            return _fill(history, untold, 0)
        if not lost or covers.tokens <= lost // 2 or not covers.once:
            break
        covers = replace(covers, tokens=min(lost // 2, covers.tokens - 1))  # what tells of little must not take the room of much
    free = most - cost_of(covers.standing) - fitted.tokens
    pieces = (*covers.standing, *cover_gaps(fitted.pieces, history, setup, covers.before, free, covers.tokens))
    used = cost_of(pieces) - cost_of(covers.standing) - fitted.tokens + _FRAME
    if covers.once and covers.tokens - used >= max(SMALLEST_SHARE, covers.tokens // 2):  # lines that are few leave room to messages
        return _fill_beside_covers(history, setup, untold, replace(covers, tokens=used), yields)
    return Fitted(pieces, cost_of(pieces), _dropped(pieces, setup.places))


def _spared_by_floor(history: tuple[Message, ...], setup: Setup) -> int:
    """What all takes that stands behind the floor, and what must be in before it: after an overflow that stays as it is."""
    if not setup.floor:
        return 0
    costs = costs_of(history, setup.places, setup.counter)
    before = [n for n in stays(_work(history, setup), setup.pins) if n < setup.floor]
    longest = Message("user", (Text(marker_for(setup.policy, max(len(history), setup.places.end) + 1000, SAMPLE)),))
    markers = (len(before) + 3) * (setup.counter.count_message(longest) + 4)
    return sum(costs[setup.floor :]) + sum(costs[n] for n in before) + markers


def _cut_of(fitted: Fitted) -> int:
    """How many tokens of goal, request and pins are cut."""
    return cut_of_point(item for piece in fitted.pieces for item in piece.items)


def _lacking(fitted: Fitted, history: Sequence[Message], setup: Setup, most: int) -> int:
    """How many tokens goal, request and pins lack to stand whole; and the newest exchange, where it would fit, else to be there."""
    cut = _cut_of(fitted)
    last = fitted.pieces[-1]
    if last.items[0].rule in POINT:
        return cut
    newest, gone = exchanges(history)[-1], last.items[0].action == "dropped"
    size = sum(map(setup.counter.count_message, history[newest.start : newest.stop]))
    lack = size - (0 if gone else cost_of((last,)))
    if size > setup.room.tokens // 2 and size > SMALLEST_SHARE:  # it would leave little room for all else
        lack = 0
    for missing in (lack, SMALLEST_SHARE if gone else 0):
        if fitted.tokens + cut + missing <= most:
            return cut + missing
    return cut


def _dropped(pieces: Sequence[Piece], places: Places) -> int:
    """How many messages are not in the request themselves."""
    gone = [piece.span for piece in pieces if piece.items[0].action in LEFT_OUT]
    if not places.spots:
        return sum(map(len, gone))
    return sum(places.count(index) for span in gone for index in range(span.start, span.stop))


def _counted(piece: Piece, counter: Counter) -> Piece:
    """A piece of the last epoch as it is counted now."""
    costs = [counter.count_message(message) for message in piece.messages]
    if len(costs) < len(piece.items):
        return piece
    return replace(piece, items=tuple(replace(item, after=cost) for item, cost in zip(piece.items, costs, strict=True)))


def _unpinned(pieces: Sequence[Piece], pins: Sequence[int]) -> Sequence[Piece]:
    """The pieces up to the first that leaves out something that is pinned now."""
    for n, piece in enumerate(pieces):
        if piece.items[0].action in LEFT_OUT and any(piece.span.start <= pin < piece.span.stop for pin in pins):
            return pieces[:n]
    return pieces


def covered(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces up to the last cover among them."""
    last = max((n for n, piece in enumerate(pieces) if piece.items[0].action == "covered"), default=-1)
    return tuple(pieces[: last + 1])


class _Ranked(Struct, frozen=True):
    """What a strategy chooses: exchanges and their sizes, those that it takes at once, and the order, of which some are kept."""

    spans: list[Span]
    weights: list[int]  # of exchanges
    groups: list[list[int]]
    sizes: list[int]  # of groups
    picked: tuple[int, ...]  # groups, in their order
    order: list[int]
    together: list[list[int]]  # the groups that are kept, the newest exchange of each first

    @property
    def kept(self) -> int:
        return sum(map(len, self.together))


def _rank(history: tuple[Message, ...], setup: Setup, start: int) -> _Ranked:
    """What the strategy chooses from a place on, by its own counter."""
    chosen, counter = setup.policy, setup.counter
    spans = [Span(start + span.start, start + span.stop) for span in exchanges(history[start:])]
    own = _own_counter(setup)
    groups = _groups(history, spans, chosen)
    costs = costs_of(history, setup.places, own, own is not counter)
    weights = [sum(costs[span.start : span.stop]) for span in spans]
    sizes = [sum(weights[unit] for unit in group) for group in groups]
    marker = own.count_text(chosen.marker)
    picked = choose(chosen.strategy, sizes, _available(setup, own), chosen.minimum_recent_nodes, marker)
    order = [unit for group in picked.order for unit in reversed(groups[group])]
    together = [groups[group][::-1] for group in picked.order[: picked.kept]]
    return _Ranked(spans, weights, groups, sizes, tuple(picked.order), order, together)


def _own_counter(setup: Setup) -> Counter:
    return setup.counter if setup.policy.counter == "best" else seed_counter(setup.policy.counter)


def _fill(history: tuple[Message, ...], setup: Setup, start: int) -> Fitted:
    """What the strategy chooses from a place on, as the gate lets it in."""
    ranked, own = _rank(history, setup, start), _own_counter(setup)
    spans, order, together = ranked.spans, ranked.order, ranked.together
    if setup.floor:
        together = [named for group in together if (named := [unit for unit in group if spans[unit].start >= setup.floor])]
        others = {unit for group in together for unit in group}
        order = [*(unit for group in together for unit in group), *(unit for unit in order if unit not in others)]
    work, chosen_at = _work(history, setup), _chosen_at(history, setup, ranked)
    if setup.formula is not None:
        return _fit_turns(work, replace(ranked, order=order, together=together), chosen_at, setup, own)
    return fit(work, order, sum(map(len, together)), chosen_at, spans, setup.pins)


def _chosen_at(history: tuple[Message, ...], setup: Setup, ranked: _Ranked) -> list[int]:
    """The window at which the strategy itself would choose each unit; 0 where it counts as the gate does."""
    chosen_at, own = [0] * len(ranked.spans), _own_counter(setup)
    if setup.formula is not None:
        return _whole_at(history, setup, [ranked.groups[group] for group in ranked.picked], ranked.spans)
    if own is setup.counter:
        return chosen_at
    # The strategy would take a unit where all that it ranks before, and itself, fit what it may fill, by its own counter.
    used = own.count_text(setup.policy.marker) + setup.set_aside
    for group in ranked.picked:
        used += ranked.sizes[group]
        for unit in ranked.groups[group]:
            chosen_at[unit] = used
    return chosen_at


def _available(setup: Setup, own: Counter) -> int:
    """What the strategy may fill, by the policy's own counter."""
    if setup.policy.history == "zone":
        return setup.budget.history
    if setup.fills is not None:
        return int(setup.fills * setup.room.refill)
    return setup.room.tokens if own is setup.counter else setup.measured.history


def _whole_at(history: tuple[Message, ...], setup: Setup, groups: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[int]:
    """The window at which each unit is in with all of its turn, by the policy's own counter and by the best one."""
    must = {*stays(_work(history, setup), setup.pins), *newest_of_kinds(history)}
    points = {n for n, span in enumerate(spans) if n == len(spans) - 1 or any(at in must for at in range(span.start, span.stop))}
    longest = Message("user", (Text(marker_for(setup.policy, max(len(history), setup.places.end) + 1000, SAMPLE)),))
    made = [0] * len(spans)
    for counter in (seed_counter(setup.policy.counter), setup.counter):
        costs = costs_of(history, setup.places, counter)
        weights = [sum(costs[span.start : span.stop]) for span in spans]
        used = sum(weights[n] for n in points) + (len(points) + 2) * (counter.count_message(longest) + 4)
        for n in points:
            made[n] = max(made[n], _window_for(used, setup, counter))
        for group in groups:
            used += sum(weights[unit] for unit in group if unit not in points)
            at = _window_for(used, setup, counter)
            for unit in group:
                made[unit] = made[unit] if unit in points else max(made[unit], at)
    return made


def _window_for(tokens: int, setup: Setup, counter: Counter) -> int:
    """The window of which history has so many tokens, by the best counter or by the policy's own."""
    room = setup.room
    if counter is not setup.counter:
        return setup.set_aside + ceil(tokens / room.refill)
    return ceil((tokens / room.refill + room.beside) / (1 - room.margin)) + room.reserve + 1


def _fit_turns(work: Work, ranked: _Ranked, chosen_at: list[int], setup: Setup, own: Counter) -> Fitted:
    """What the gate lets in of whole turns, in no more than the formula leaves by the policy's own counter.

    A turn that the gate would tear is left out. Only the active turn may be cut: between its exchanges, then inside the newest.
    System messages go before goal and request are cut.
    """
    assert setup.formula is not None
    groups, room = ranked.together, work.room
    while True:
        kept = sum(map(len, groups))
        try:
            fitted = fit(replace(work, room=room), ranked.order, kept, chosen_at, ranked.spans, setup.pins)
        except CannotFit:
            if room is work.room:
                raise
            raise _formula_leaves(setup) from None
        whole = _whole_groups(groups, fitted, ranked.spans)
        tokens = own_tokens(fitted.pieces, own)
        if whole < len(groups):
            groups = groups[:whole]
        elif tokens <= setup.formula:
            return fitted
        elif kept > 1:
            groups = _lighter(groups, tokens - setup.formula, ranked.weights)
        elif work.reminders:
            work = replace(work, reminders=False)
        else:
            share = min(0.97, max(setup.formula, 0) / tokens)
            room = replace(room, tokens=int(min(room.tokens, fitted.tokens) * share))


def own_tokens(pieces: Sequence[Piece], own: Counter) -> int:
    """What is sent of a history, by a policy's own counter."""
    return sum(own.count_message(message) for piece in pieces for message in piece.messages)


def _whole_groups(groups: Sequence[Sequence[int]], fitted: Fitted, spans: Sequence[Span]) -> int:
    """How many of the first groups are in as a whole; of the first of all, which the gate may cut, it is enough to be named."""
    kept = {piece.span.start for piece in fitted.pieces if piece.items[0].action not in LEFT_OUT}
    torn = (n for n, group in enumerate(groups) if n and any(spans[unit].start not in kept for unit in group))
    return next(torn, len(groups))


def _lighter(groups: list[list[int]], excess: int, sizes: Sequence[int]) -> list[list[int]]:
    """Without the last groups that are too much, but with the first; that alone is parted into its units."""
    if len(groups) == 1:
        groups = [[unit] for unit in groups[0]]
    left = len(groups)
    while left > 1 and excess > 0:
        left -= 1
        excess -= sum(sizes[unit] for unit in groups[left])
    return groups[:left]


def _formula_leaves(setup: Setup) -> CannotFit:
    window, answer = setup.budget.window, setup.budget.reserved_output
    return CannotFit(
        f"by the counter of the policy {setup.policy.name!r}, system text, tools and {answer:,} for the answer leave "
        f"{setup.formula:,} of {window:,} tokens for history, and goal and request take more even when shrunk; "
        "choose a larger window, or lower the reserve, the prompt or the tools"
    )


def _work(history: tuple[Message, ...], setup: Setup) -> Work:
    return Work(
        history=history,
        places=setup.places,
        room=setup.room,
        policy=setup.policy,
        counter=setup.counter,
        archive=setup.archive,
        document=setup.document,
    )


def cover_gaps(
    pieces: Sequence[Piece], history: Sequence[Message], setup: Setup, before: Sequence[Piece], free: int, told: int
) -> tuple[Piece, ...]:
    """The pieces with telling lines of what was left out in each gap, in at most so many tokens in all."""
    gaps = [n for n, piece in enumerate(pieces) if piece.items[0].action == "dropped"]
    lost = sum(pieces[n].items[0].before for n in gaps)
    goal = next((message.text for message in history if message.role == "user"), "")
    made = list(pieces)
    left = min(free, told)
    for n in gaps:
        piece = pieces[n]
        share = min(left, round(told * piece.items[0].before / max(lost, 1))) - _FRAME
        after = [message for later in pieces[n + 1 :] if later.items[0].action != "dropped" for message in later.messages]
        sources = _sources(piece.span, history, setup, before)
        text = cover(sources, after, share, setup.counter.count_text, goal, setup.caches.indexes)
        if not text:
            continue
        [marker] = piece.messages
        message = Message("user", (Text(f"{marker.text} In part, they said:\n{text}"),))
        cost = setup.counter.count_message(message)
        if cost - piece.items[0].after <= left:
            left -= cost - piece.items[0].after
            item = replace(piece.items[0], action="covered", after=cost)
            made[n] = Piece(piece.span, (message,), (item,))
    return tuple(made)


def _sources(span: Span, history: Sequence[Message], setup: Setup, before: Sequence[Piece]) -> list[tuple[int, Message]]:
    """What a cover is made from, with the place of each: messages that were read; of what was covered before, the cover."""
    made: list[tuple[int, Message]] = []
    at = span.start
    for piece in (piece for piece in before if piece.items[0].action == "covered" and span.start <= piece.span.start < span.stop):
        made += _read(at, piece.span.start, history, setup)
        told = piece.messages[0].text.partition("\n")[2]  # without its marker, which nobody said
        if told:
            made.append((setup.places.span(piece.span).start, Message("user", (Text(told),))))
        at = piece.span.stop
    return [*made, *_read(at, span.stop, history, setup)]


def _read(start: int, stop: int, history: Sequence[Message], setup: Setup) -> list[tuple[int, Message]]:
    if not setup.places.spots:
        return list(zip(range(start, stop), history[start:stop], strict=True))
    return [(setup.places.spots[n].start, history[n]) for n in range(start, stop) if not setup.places.unread(n)]


@lru_cache(maxsize=16)
def seed_counter(name: str) -> Counter:
    return Counter(profile(name))


def set_aside(
    chosen: Policy, measured: Budget, sizes: Mapping[str, int], reserve: int, fills: int | None, asked: int | None
) -> int:
    """What a strategy with a counter of its own leaves free beside history, at a window where nothing has to be scaled."""
    if fills is not None:
        return (asked or measured.window) - fills - measured.reserved_output + reserve
    if chosen.history == "zone":
        return sum((DEFAULTS | dict(sizes)).values()) - DEFAULTS["reserved_output"] + reserve
    return measured.window - measured.history - measured.reserved_output + reserve


def filled_by(chosen: Policy, budget: Budget, asked: int | None, beside: Sequence[Message], tools: Sequence[Tool]) -> int | None:
    """What the seeds' formulas leave for history by the policy's own counter; none for policies that measure nothing.

    Seed 002 charges system text with its summary, tail, tools and answer; seed 000, where no zones are set aside, the words of the
    system text and the answer. `asked` is the window where a provider took less than that: such a limit is in true tokens, which
    the gate counts.
    """
    if chosen.counter == "best" or chosen.history == "zone":
        return None
    own, window = seed_counter(chosen.counter), asked or budget.window
    if chosen.strategy == "whole_turns":
        system = sum(map(own.count_message, beside))
        return left_for_history(window, budget.reserved_output, system, own.count_tools(tools))
    if chosen.strategy == "recent":
        return max(0, left_for_history(window, budget.reserved_output, sum(own.count_text(one.text) for one in beside), 0))
    return None


def _groups(history: tuple[Message, ...], spans: list[Span], chosen: Policy) -> list[list[int]]:
    """What a strategy takes at once: exchanges, or the exchanges of a turn."""
    if chosen.strategy != "whole_turns":
        return [[n] for n in range(len(spans))]
    starts = {turn.start for turn in turns(history)}
    groups: list[list[int]] = []
    for n, span in enumerate(spans):
        if not groups or span.start in starts:
            groups.append([])
        groups[-1].append(n)
    return groups
