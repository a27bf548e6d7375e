"""Which of a history goes into a request: the epoch that goes on, or what the policy chooses and the gate lets in."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter
from loom.budget.profiles import profile
from loom.budget.zones import DEFAULTS, Budget
from loom.context.cover import cover
from loom.context.gate import Fitted, Room, Work, costs_of, fit
from loom.context.handles import Archive, to_lines
from loom.context.ladder import RUNGS, Ladder, Scene, Threshold, View, spared, whole
from loom.context.places import EVERYWHERE, Places
from loom.context.policy import Policy
from loom.context.report import LEFT_OUT, Item, Piece, Report
from loom.context.strategies import choose
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span, exchanges, turns
from loom.errors import CannotFit

VERBATIM = 2500  # of the newest tokens that stay as they are behind a cover, where there is room
_FRAME = 16  # tokens for what leads a cover in
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
    places: Places = EVERYWHERE
    document: bool = False


class Epoch(Struct, frozen=True, kw_only=True):
    """What must be known of the last request to go on from it: its pieces, and that history has not changed up to `seen`.

    Where the history itself is not at hand, its hash is; a piece without messages stands as it is in the history.
    """

    number: int
    policy: str
    head_hash: str
    pieces: tuple[Piece, ...]
    seen: int
    pins: tuple[int, ...] = ()
    history: tuple[Message, ...] | None = None
    hash: str = ""
    archive: Archive | None = None
    only: bool = False  # where it cannot go on, say so (EpochEnds) rather than begin another


class EpochEnds(Exception):
    """The last epoch cannot go on; the reason is its text. For callers that then read the history anew."""


class Renewal(Struct, frozen=True):
    """That an epoch begins, its number and why: the caller knows that the last one cannot go on, and read the history anew.

    `before` are the pieces of the last one up to its last cover, by their places in what was read now.
    """

    number: int
    reason: str
    before: tuple[Piece, ...] = ()


def epoch_of(report: Report) -> Epoch:
    return Epoch(
        number=report.epoch,
        policy=report.policy,
        head_hash=report.head_hash,
        pieces=report.pieces,
        seen=len(report.history),
        pins=report.pins,
        history=report.history,
        archive=report.archive,
    )


def hash_of(history: Sequence[Message]) -> str:
    return blake2b(to_lines(history).encode(errors="surrogatepass"), digest_size=12).hexdigest()


def select(history: tuple[Message, ...], setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> tuple[Fitted, int, str]:
    """Continue the epoch of the previous request where that still fits, else begin one."""
    if setup.policy.strategy == "ladder":
        return climb(history, setup, previous, head_hash)
    match previous:
        case None:
            return _choose(history, setup), 0, "each call is its own"
        case Renewal():
            return _choose(history, _refilled(setup), previous.before), previous.number, previous.reason
    before = history[: previous.seen]
    same = before == previous.history if previous.history is not None else hash_of(before) == previous.hash
    pieces: list[Piece] = []
    if previous.policy != setup.policy.name or previous.head_hash != head_hash:
        reason = "system text, tools, sections, model or policy changed"
    elif not same:
        reason = "the history changed before its end"
    elif not _stand(previous, setup.pins):
        reason = "a pin changed"
    else:
        pieces = [piece if piece.messages else _revived(piece, history) for piece in previous.pieces]
        fresh = _appended(history, pieces[-1].span.stop, setup)
        tokens = sum(item.after for piece in (*pieces, *fresh) for item in piece.items)
        if tokens <= setup.room.tokens:
            if previous.archive is not None:
                setup.archive.add(previous.archive)
            return Fitted((*pieces, *fresh), tokens, _dropped(pieces, setup.places)), previous.number, "continued"
        reason = f"{tokens:,} tokens no longer fit {setup.room.tokens:,}"
    if previous.only:
        raise EpochEnds(reason)
    if pieces and previous.archive is not None:  # covers that stand keep their handles
        setup.archive.add(previous.archive)
    return _choose(history, _refilled(setup), pieces), previous.number + 1, reason


def climb(history: tuple[Message, ...], setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> tuple[Fitted, int, str]:
    """One rung of the policy's ladder where pressure has passed it, as many more as it takes to fit, and at last the gate."""
    steps = Ladder(tuple(Threshold(name, above) for name, above in setup.policy.ladder.items()))
    own = seed_counter(setup.policy.counter)
    scene = Scene(
        history=history,
        spared=spared(history, setup.pins),
        counter=setup.counter,
        archive=setup.archive,
        places=setup.places,
        goal=next((message.text for message in history if message.role == "user"), ""),
    )
    view, number, reason = _standing(scene, setup, previous, head_hash)
    before = view
    pressure = (
        setup.beside + sum(own.count_message(message) for piece in view for message in piece.messages)
    ) / setup.budget.window
    taken = steps.reached(pressure)
    view = RUNGS[taken](view, scene) if taken else view
    names = [step.name for step in steps.steps]
    for name in names[names.index(taken) + 1 if taken else 0 :]:
        if cost_of(view) <= setup.room.tokens:
            break
        view, taken = RUNGS[name](view, scene), name
    if cost_of(view) > setup.room.tokens:
        fitted, reason = _choose(history, setup), "the ladder does not reach; the gate decides"
    else:
        fitted = Fitted(_returning(view, history, setup, own, steps), cost_of(view), _dropped(view, setup.places))
        if view != before:
            reason = f"pressure {pressure:.2f}: {taken}"
    moved = fitted.pieces != before and isinstance(previous, Epoch) and reason != "continued"
    return fitted, number + moved, reason


def _standing(scene: Scene, setup: Setup, previous: Epoch | Renewal | None, head_hash: str) -> tuple[View, int, str]:
    """The view that the last request had, with what is new; or the history as it is."""
    match previous:
        case None:
            return whole(scene), 0, "each call is its own"
        case Renewal():
            return whole(scene), previous.number, previous.reason
    before = tuple(scene.history[: previous.seen])
    same = before == previous.history if previous.history is not None else hash_of(before) == previous.hash
    if previous.policy != setup.policy.name or previous.head_hash != head_hash or not same or not _stand(previous, setup.pins):
        if previous.only:
            raise EpochEnds("system text, tools, model, policy, a pin or the history changed")
        return whole(scene), previous.number + 1, "system text, tools, model, policy, a pin or the history changed"
    if previous.archive is not None:
        setup.archive.add(previous.archive)
    pieces = [piece if piece.messages else _revived(piece, tuple(scene.history)) for piece in previous.pieces]
    return (*pieces, *whole(scene, pieces[-1].span.stop)), previous.number, "continued"


def _returning(view: View, history: Sequence[Message], setup: Setup, own: Counter, steps: Ladder) -> View:
    """The view with the window at which each thing would stand whole again: where the lowest rung is not reached, and all fits."""
    by_ladder = ceil((setup.beside + sum(map(own.count_message, history))) / steps.steps[0].above) + 1
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


def _choose(history: tuple[Message, ...], setup: Setup, before: Sequence[Piece] = ()) -> Fitted:
    """Let the policy's strategy choose by its own counter, and the gate fill by the best one.

    What was left out is covered, if the policy says so: covers of the last epoch, among the pieces `before`, stand as they stood,
    and what is left out behind them gets one more; once they take too much, they become one.
    """
    chosen, counter = setup.policy, setup.counter
    costs = costs_of(history, setup.places, counter)
    if not chosen.cover or sum(costs) <= setup.room.tokens:
        return _fill(history, setup, 0)
    most, once = setup.room.tokens, setup.room.refill == 1
    # What is told of at another window is not known, but not more than this.
    bound = chosen.once if once else chosen.covers
    untold = replace(setup, room=replace(setup.room, told=bound))
    standing, told = (
        tuple(_counted(piece, counter) for piece in covered(before)),
        int(most * (chosen.once if once else chosen.cover)),
    )
    if once:  # to tell of what must go, no more than as much again should go
        told = min(told, sum(costs) - most)
    elif cost_of(standing) + told > most * chosen.covers:
        standing, told = (), int(most * chosen.covers / 2)
    start = standing[-1].span.stop if standing else 0
    verbatim = max(int(most * chosen.verbatim), min(VERBATIM, most // 2))
    for _ in range(_TRIES):
        tokens = most - cost_of(standing) - told
        refill = 1.0 if once else min(1.0, verbatim / max(tokens, 1))
        room = replace(setup.room, tokens=tokens, refill=refill, told=bound)
        try:
            fitted = _fill(history, replace(setup, room=room), start)
        except CannotFit:
            return _fill(history, untold, 0)
        lost = sum(piece.items[0].before for piece in fitted.pieces if piece.items[0].action == "dropped")
        if not lost:  # nothing to tell of
            return _fill(history, untold, 0)
        if told <= lost // 2 or not once:
            break
        told = min(lost // 2, told - 1)  # what tells of little must not take the room of much
    pieces = cover_gaps(fitted.pieces, history, setup, before, most - cost_of(standing) - fitted.tokens, told)
    pieces = (*standing, *pieces)
    return Fitted(pieces, cost_of(pieces), _dropped(pieces, setup.places))


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


def covered(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces up to the last cover among them."""
    last = max((n for n, piece in enumerate(pieces) if piece.items[0].action == "covered"), default=-1)
    return tuple(pieces[: last + 1])


def _fill(history: tuple[Message, ...], setup: Setup, start: int) -> Fitted:
    """What the strategy chooses from a place on, as the gate lets it in."""
    chosen, counter, room = setup.policy, setup.counter, setup.room
    spans = [Span(start + span.start, start + span.stop) for span in exchanges(history[start:])]
    own = counter if chosen.counter == "best" else seed_counter(chosen.counter)
    available = setup.budget.history if chosen.history == "zone" else room.tokens if own is counter else setup.measured.history
    groups = _groups(history, spans, chosen)
    costs = costs_of(history, setup.places, own)
    sizes = [sum(costs[spans[group[0]].start : spans[group[-1]].stop]) for group in groups]
    marker = own.count_text(chosen.marker)
    picked = choose(chosen.strategy, sizes, available, chosen.minimum_recent_nodes, marker)
    order = [unit for group in picked.order for unit in reversed(groups[group])]
    kept = sum(len(groups[group]) for group in picked.order[: picked.kept])
    chosen_at = [0] * len(spans)
    if own is not counter:
        # The strategy would take a unit where all that it ranks before, and itself, fit what it may fill, by its own counter.
        used = marker + setup.set_aside
        for group in picked.order:
            used += sizes[group]
            for unit in groups[group]:
                chosen_at[unit] = used
    work = Work(
        history=history,
        places=setup.places,
        room=room,
        policy=chosen,
        counter=counter,
        archive=setup.archive,
        document=setup.document,
    )
    return fit(work, order, kept, chosen_at, spans, setup.pins)


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
        text = cover(_sources(piece.span, history, setup, before), after, share, setup.counter.count_text, goal)
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


def _sources(span: Span, history: Sequence[Message], setup: Setup, before: Sequence[Piece]) -> list[tuple[str, Message]]:
    """What a cover is made from, with the place of each: messages that were read; of what was covered before, the cover."""
    made: list[tuple[str, Message]] = []
    at = span.start
    for piece in (piece for piece in before if piece.items[0].action == "covered" and span.start <= piece.span.start < span.stop):
        made += _read(at, piece.span.start, history, setup)
        made.append((f"{setup.places.span(piece.span).start}", piece.messages[0]))
        at = piece.span.stop
    return [*made, *_read(at, span.stop, history, setup)]


def _read(start: int, stop: int, history: Sequence[Message], setup: Setup) -> list[tuple[str, Message]]:
    return [(f"{setup.places.span(Span(n, n + 1)).start}", history[n]) for n in range(start, stop) if not setup.places.unread(n)]


@lru_cache(maxsize=16)
def seed_counter(name: str) -> Counter:
    return Counter(profile(name))


def set_aside(chosen: Policy, measured: Budget, sizes: Mapping[str, int], reserve: int) -> int:
    """What a strategy with a counter of its own leaves free beside history, at a window where nothing has to be scaled."""
    if chosen.history == "zone":
        return sum((DEFAULTS | dict(sizes)).values()) - DEFAULTS["reserved_output"] + reserve
    return measured.window - measured.history - measured.reserved_output + reserve


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
