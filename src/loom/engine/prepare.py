"""Down the stair: from a stored path to the request that is sent now, reading only what the window needs."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.calibration import Calibration
from loom.budget.counting import Counter, gate_counter, text_counter
from loom.budget.profiles import Exact, profile_for
from loom.context.epochs import EpochEnds, Renewal, epoch_of, hash_of
from loom.context.gate import costs_of
from loom.context.handles import Cut, PathArchive
from loom.context.options import Options
from loom.context.places import EVERYWHERE, Stretch, answers_of, exchanges_of
from loom.context.policy import Policy, Strategy
from loom.context.report import LEFT_OUT, Continuation, Item, Piece
from loom.context.sections import Section
from loom.context.select import seed_counter
from loom.context.summaries import with_note
from loom.context.told import Told
from loom.context.weave import Context, budget_for, build, go_on
from loom.conversation.handles import texts_of
from loom.conversation.message import Message
from loom.conversation.turns import Span, exchanges, newer_half
from loom.engine.mapping import as_shown, drawn, with_map
from loom.engine.reading import (
    Assembled,
    Known,
    Reading,
    ReadingStyle,
    assemble,
    head_of,
    holes_of,
    newest_reminders,
    read_on,
    read_ranges,
    read_same,
    read_window,
    shape_of,
)
from loom.engine.summing import digests_of
from loom.engine.views import View, reached, restore_view
from loom.errors import CannotFit
from loom.stores.overlay import Overlay
from loom.stores.path import Node, Path
from loom.stores.sessions import Aside, SessionRow
from loom.stores.store import Store
from loom.stores.stored import read_stored
from loom.stores.summaries import Summary, joined, name_of
from loom.stores.views import Kept

if TYPE_CHECKING:
    from loom.project.maps import RankedProject

Standing = tuple[Piece, int, int]  # a piece of the last epoch, and where on the path it begins and ends
GIVEN = "a person"  # who wrote a summary that no program made
_OPENING = 60  # characters by which a summary is known in a request
UNDONE = "the last epoch was undone, and the one before it goes on"
DAMAGED_VIEW = "what the store kept of the last request is damaged"
_ALL = 1 << 62  # further than any path goes
_SURELY_TOO_MUCH = 3  # windows of new text; no tokenizer counts so much less than another


class Prepared(Struct, frozen=True):
    """What a session remembers of its last request, so that the next reads only what is new. `counted` is without correction."""

    reading: Reading
    view: View
    model: str
    counted: int
    note: Summary | None = None  # that an overflow cost messages, to be written down with the request


def prepare(
    store: Store,
    row: SessionRow,
    path: Path,
    wish: Options,
    style: ReadingStyle,
    pins: Sequence[Node],
    last: Prepared | None,
    fetch: Callable[[str], str],
    overflowed: bool = False,
    renewing: str = "",
    sight: "RankedProject | None" = None,
) -> tuple[Context, Prepared]:
    """The request, and what to remember of it. The last epoch goes on where it can; else one begins, from what is read anew.

    After an overflow one begins in any case, without the older half of what the last request showed; so does one that is
    `renewing`, for the reason given. Of a project that is in `sight` the map is in the system text, as it was when the epoch began.
    """
    reason, reading = "the first request on this path", None
    with path.snapshot() as now:
        if not store.views.is_newest(row, reached(last.view) if last else None, now):
            last = None
        overlay = style.overlay(now)
        if len(overlay.path) < len(now):
            reason = "what is pruned changed"
        now = overlay.path
        if now.end is None:
            raise CannotFit(f"there is nothing to send: {'; '.join(overlay.notes)}; restore it, or stand at another node")
        given = head_of(row, style, overlay, store.sessions.on_path(row, now) if style.document else row.asides)
        model = wish.model or given.model
        wish = replace(wish, document=style.document, ending=style.buffer)
        if not style.document:
            wish = _with_asides(wish, store.sessions.newest_asides(row, now))
        usable = budget_for(wish, given).usable
        pins = [pin for pin in pins if pin.depth < len(now)]  # what is pruned by now is not in any request
        pins += [pin for pin in overlay.pins if pin not in pins]
        view, is_damaged = (last.view, False) if last else _find_view(store, row, now)
        summaries = store.summaries.on_path(row, now, overlay.hidden)
        given_by = next((one.name for one in reversed(summaries) if one.by == GIVEN), "")
        ends = None
        try:
            if renewing:
                raise EpochEnds(renewing, _ALL)
            if overflowed:
                raise EpochEnds("the provider refused the last request as too long", _ALL)
            if view and given_by and view.given != given_by:
                raise EpochEnds("a summary was written", _ALL)
            if view and wish.policy.summary_replaces and view.summaries != _names(summaries):
                raise EpochEnds("there is another summary", _ALL)
            if view and view.map and sight and view.map.project != sight.root:
                raise EpochEnds("another project is mapped", _ALL)
            reading = _read_again(now, view, last, usable, pins, shape_of(overlay)) if view else None
        except EpochEnds as found:
            ends = found
        told = summaries if wish.policy.summary == "cover" or wish.policy.summary_replaces else []
        anew = None if reading else _read_anew(store, row, overlay, wish, model, usable, pins, view, told, overflowed)
        whole = now
    if view and reading:
        try:
            wish = replace(wish, ratio=view.ratio)
            asked = with_map(_with_summary(wish, view.told), given, view.map, sight)
            assembled = assemble(style, reading, overlay, view.as_of, wish.policy.merge)
            messages, pinned = replace(given, messages=assembled.messages), _pinned(pins, assembled)
            context = go_on(messages, asked, pinned, view.epoch, assembled.places, fetch)
            if view.undone:
                context = replace(context, report=replace(context.report, epoch_reason=UNDONE))
                view = replace(view, undone=False, session=0)
            return _told(context, overlay, sight), _remember(context, reading, wish, model, view)
        except EpochEnds as found:
            ends = found
    overlay = replace(overlay, path=Path(path.database, path.tree, whole.end))
    if anew is None:
        with overlay.path.snapshot() as now:
            anew = _read_anew(store, row, replace(overlay, path=now), wish, model, usable, pins, view, told, overflowed)
    wish, number, reading = anew
    number = max(number, view.epoch.number if view else -1) + 1
    wish = replace(wish, digests=digests_of(store, row, reading.nodes))
    assembled = assemble(style, reading, overlay, style.now, wish.policy.merge)
    floor, note = _half(_shown(view), assembled, wish.policy.strategy) if overflowed else 0, None
    if overflowed and wish.policy.summary != "cover" and wish.policy.strategy != "ladder":
        note = _noted(summaries, assembled, floor)
        note = replace(note, name=name_of(note, style.now))
        summaries = [note]
    if wish.policy.summary_replaces and summaries:
        floor = max(floor, _first_after(assembled, summaries[-1].stop))
    text = joined(summaries) if wish.policy.summary == "system" else ""
    begins = Renewal(
        number,
        str(ends) if ends else reason,
        before=_placed(_standing(view, wish, shape_of(overlay), ends), assembled),
        told=_summed(summaries, assembled, wish.policy) if wish.policy.summary != "system" else (),
        floor=floor,
        early=ends is not None and ends.early,
        renew=bool(renewing),
    )
    made = drawn(wish, given, sight)
    asked = with_map(_with_summary(wish, text), given, made, sight, begins=True)
    messages, pinned = replace(given, messages=assembled.messages), _pinned(pins, assembled)
    context = build(messages, asked, pinned, begins, assembled.places, fetch)
    if is_damaged:
        context = _with_damage(context, reason)
    began = _remember(context, reading, wish, model, None)
    kept = replace(
        began.view, as_of=style.now, shape=shape_of(overlay), told=text, map=as_shown(made, context.report), given=given_by
    )
    kept = replace(kept, summaries=_names(summaries), shown=_shown_summaries(summaries, context))
    return _told(context, overlay, sight), replace(began, view=kept, note=note)


def _with_asides(wish: Options, asides: Sequence[Aside]) -> Options:
    """What is asked for, with the system messages that older sessions keep beside what was said."""
    if not asides:
        return wish
    text = wish.policy.separator.join(aside.message.text for aside in asides)
    return replace(wish, sections=(*wish.sections, Section("system_messages", text, "system messages")))


def _with_damage(context: Context, usual: str) -> Context:
    """The context whose report says that its epoch began because a view is damaged, and what else there was beside the usual."""
    reason = context.report.epoch_reason
    why = DAMAGED_VIEW if reason == usual else f"{DAMAGED_VIEW}; {reason}"
    return replace(context, report=replace(context.report, epoch_reason=why))


def _with_summary(wish: Options, text: str) -> Options:
    """What is asked for, with what summaries tell in the system text."""
    if not text:
        return wish
    told = Section("summary", wish.policy.summary_text.format(text=text), "summaries")
    return replace(wish, sections=(*wish.sections, told))


def _names(summaries: Sequence[Summary]) -> tuple[str, ...]:
    return tuple(one.name for one in summaries)


def _shown_summaries(summaries: Sequence[Summary], context: Context) -> tuple[str, ...]:
    """The names of those that a request shows; one may be shortened at its end."""
    said = [message.text for message in (*context.conversation.system, *context.conversation.messages)]
    return tuple(one.name for one in summaries if any(one.text[:_OPENING] in text for text in said))


def _first_after(assembled: Assembled, depth: int) -> int:
    """The place of the first message that stands at this depth of the path or behind it."""
    spots = assembled.places.spots
    return next((n for n, spot in enumerate(spots) if spot.start >= depth), len(spots))


def _summed(summaries: Sequence[Summary], assembled: Assembled, policy: Policy) -> tuple[Told, ...]:
    """Summaries by their places in what was read now; where one has no place of its own, none: a gap is told of by its lines."""
    if policy.summary == "message":  # one message tells all of it, before whatever is left out first
        return tuple(Told(Span(0, _first_after(assembled, one.stop)), one.text, one.by) for one in summaries)
    index = _Index(assembled)
    placed = [(index.at(one.start), index.at(one.stop), one) for one in summaries]
    found = [Told(Span(first, last), one.text, one.by) for first, last, one in placed if first is not None and last is not None]
    return tuple(found) if len(found) == len(summaries) else ()


def _shown(view: View | None) -> list[tuple[int, int]]:
    """The stretches of the path that the last request showed word by word; all that came after them it showed too."""
    if view is None:
        return []
    pieces = zip(view.epoch.pieces, view.positions, strict=False)
    shown = [place for piece, place in pieces if piece.items[0].action not in LEFT_OUT]
    return [*shown, (view.positions[-1][1] if view.positions else 0, _ALL)]


def _half(shown: Sequence[tuple[int, int]], assembled: Assembled, strategy: Strategy) -> int:
    """Where the newer half begins of the turns that the last request showed; of one turn, the newer half of its exchanges.

    Where turns are whole, no turn is parted: of one turn only its request stays.
    """
    begins = [start for start, _ in shown]
    seen: set[int] = set()
    for n, spot in enumerate(assembled.places.spots):
        at = bisect_right(begins, spot.start) - 1
        if not spot.unread and (not shown or (at >= 0 and spot.start < shown[at][1])):
            seen.add(n)
    if strategy == "whole_turns":
        # What stands apart from the others, the goal, is not of the history that the preset has left.
        begin = max((n for n in seen if n - 1 not in seen), default=0)
        return max(begin + newer_half(assembled.messages[begin:]), 1)
    turns = [n for n in sorted(seen) if assembled.messages[n].role == "user"]
    if len(turns) > 1:
        return max(turns[len(turns) // 2], 1)
    starts = [span.start for span in exchanges(assembled.messages) if span.start in seen]
    return max(starts[len(starts) // 2], 1) if starts else 1


def _noted(summaries: Sequence[Summary], assembled: Assembled, floor: int) -> Summary:
    """What summaries told, with a note that an overflow cost what stands before a place."""
    before, kept = assembled.places.spots[:floor], 0
    if floor == len(assembled.messages):  # of the one turn its request and its newest exchange are still there
        users = [n for n, message in enumerate(assembled.messages) if message.role == "user"]
        kept = len({*users[-1:], *range(*_last_exchange(assembled.messages))})
    told = summaries[-1] if summaries else None
    stop = max(max((spot.stop for spot in before), default=0), told.stop if told else 0)
    gone = sum(spot.stop - spot.start for spot in before if not told or spot.start >= told.stop) - kept
    return Summary(text=with_note(joined(summaries), gone), start=0, stop=stop, by="an overflow", dropped=gone)


def _last_exchange(messages: Sequence[Message]) -> tuple[int, int]:
    last = exchanges(messages)[-1]
    return last.start, last.stop


def prepare_ending(row: SessionRow, path: Path, wish: Options, style: ReadingStyle, fetch: Callable[[str], str]) -> Context:
    """The request of a document of which nothing is committed yet."""
    given = head_of(row, style, style.overlay(path), ())
    return build(given, replace(wish, document=True, ending=style.buffer), (), None, EVERYWHERE, fetch)


def _told(context: Context, overlay: Overlay, sight: "RankedProject | None") -> Context:
    """The context with a line in its report for each thing that was kept from it, and what else is to be known."""
    notes = (*overlay.notes, *(sight.notes if sight else ()))
    if not overlay.hidden and not notes:
        return context
    hidden = [Item(f"messages[{depth}]", "history", "hidden", why, 0, 0) for depth, why in sorted(overlay.hidden.items())]
    report = replace(context.report, lines=(*context.report.lines, *hidden), notes=(*context.report.notes, *notes))
    return replace(context, report=report)


def calibration(row: SessionRow) -> Calibration:
    """What the session has learnt of how its models count."""
    return read_stored(row.calibration, Calibration, f"the calibration of session {row.id}") if row.calibration else Calibration()


def ratio_of(row: SessionRow, model: str) -> float:
    """What counts for a model are multiplied by. What a public tokenizer counts is never taken for less."""
    learnt = calibration(row).ratio(model)
    return max(learnt, 1.0) if isinstance(profile_for(model or None).text, Exact) else learnt


class NewHandles(Struct, frozen=True):
    """What markers of a request stand for that the store does not know yet, each with a hash of what was cut.

    `inherited` are handles that an older epoch made.
    """

    kept: dict[str, Kept]
    hashes: dict[str, int]
    inherited: frozenset[str]


def new_handles(context: Context, reading: Reading, known: Mapping[str, int]) -> NewHandles:
    """The handles of a request without those that are known already, with the hash of what they stand for."""
    archive = context.archive
    assert isinstance(archive, PathArchive)
    nodes = {node.id: node for node in reading.nodes}
    named = {handle for item in context.report.lines for handle in item.handles}
    hashes = {handle: hash(archive.cuts[handle]) for handle in sorted(named & archive.cuts.keys())}
    made = [handle for handle, digest in hashes.items() if known.get(handle) != digest]
    kept = {handle: _kept(archive.cuts[handle], nodes) for handle in made}
    inherited = frozenset(handle for handle in named if handle not in hashes and handle not in known)
    return NewHandles(kept, {handle: hashes[handle] for handle in made}, inherited)


def _kept(cut: Cut, nodes: Mapping[str, Node]) -> Kept:
    """What is stored of what was cut: stretches of nodes, the place of a text in a node, or the text."""
    if cut.kind == "span":
        return Kept(cut.nodes, at=cut.at, minted_at=cut.minted_at)
    place = None
    node = nodes.get(cut.nodes[0][0]) if cut.kind == "part" else None
    if node is not None and node.message is not None:
        place = next((place for place, text in texts_of(node.message) if text == cut.text), None)
    # What repair had changed before it was cut is in no node, so it is kept itself, until that node is purged.
    return Kept(cut.nodes, place, cut.text if place is None else None, cut.at, cut.minted_at)


def _find_view(store: Store, row: SessionRow, path: Path) -> tuple[View | None, bool]:
    """The newest view of a path that can be read, and whether there was one that is damaged."""
    found = store.views.find_newest(row, path)
    return (restore_view(found.view) if found.view else None), found.is_damaged


def _read_again(path: Path, view: View, last: Prepared | None, usable: int, pins: Sequence[Node], shape: str) -> Reading:
    """What the last request of this epoch was made from, and what has come since."""
    assert path.end is not None
    if view.shape != shape:
        raise EpochEnds("what is excluded, included, edited or made from elsewhere changed", 0)
    ranges = (*view.ranges[:-1], (view.ranges[-1][0], len(path)))
    if len(path) <= view.ranges[-1][0]:
        raise EpochEnds("the path now ends before what the last request showed", _ALL)
    if not all(any(start <= pin.depth < stop for start, stop in ranges) for pin in pins):
        raise EpochEnds("a pin changed", _ALL)
    if _is_too_much(view, path, usable):
        raise EpochEnds(f"about {path.end.total - view.total:,} tokens have come since, too many to append", _ALL)
    return (read_on(last.reading, path) if last else None) or read_same(path, ranges, view.holes)


def _read_anew(
    store: Store,
    row: SessionRow,
    overlay: Overlay,
    wish: Options,
    model: str,
    usable: int,
    pins: Sequence[Node],
    view: View | None,
    told: Sequence[Summary],
    overflowed: bool,
) -> tuple[Options, int, Reading]:
    """What an epoch that begins is made from, with the number of the last one, and the wish as counted from now on.

    That is what the window can hold, and what the last epoch showed; of what that left out, what is known of it.
    """
    path = overlay.path
    wish = replace(wish, ratio=ratio_of(row, model))
    count, own = counters(wish, model)
    left = _known(view, wish) if view and view.shape == shape_of(overlay) else ()
    edges = {edge for start, stop, _ in left for edge in (start, stop)}
    also = [(at, at + 1) for one in told for at in (one.start, one.stop) if at not in edges]
    also += _showing(view, path, usable) if (view and view.shape == shape_of(overlay)) or overflowed else []
    if not wish.document:
        pins = [*pins, *newest_reminders(path, overlay.hidden, wish.policy.system_messages == "keep")]
    from_start = wish.policy.strategy == "truncate_middle"
    ranges = read_window(path, usable, pins, from_start, count.count_message, overlay.hidden, also)
    reading = read_ranges(path, ranges, count.count_message, left, own.count_message)
    return wish, store.views.epoch(row, path), reading


def counters(wish: Options, model: str) -> tuple[Counter, Counter]:
    """The best counter for a model, and the policy's own."""
    best = (text_counter if wish.document else gate_counter)(model or None, wish.ratio)
    return best, best if wish.policy.counter == "best" else seed_counter(wish.policy.counter)


def _known(view: View, wish: Options) -> tuple[Known, ...]:
    """What a view of the same policy knows of what it left out, as it is counted now."""
    if view.epoch.policy != wish.policy.name:
        return ()
    if view.ratio == wish.ratio:
        return view.left
    factor = wish.ratio / view.ratio
    return tuple((start, stop, replace(known, tokens=ceil(known.tokens * factor))) for start, stop, known in view.left)


def _showing(view: View | None, path: Path, usable: int) -> list[tuple[int, int]]:
    """The stretches of a path that the last request showed, and what has come since, unless that is far too much."""
    shown = [(start, min(stop, len(path))) for start, stop in _shown(view) if start < len(path)]
    if view is not None and _is_too_much(view, path, usable):
        return [(start, stop) for start, stop in shown if stop < len(path)]
    return shown


def _is_too_much(view: View, path: Path, usable: int) -> bool:
    assert path.end is not None
    return (path.end.total - view.total) * min(view.ratio, 1) > _SURELY_TOO_MUCH * usable


def _standing(view: View | None, wish: Options, shape: str, ends: EpochEnds | None) -> list[Standing]:
    """The pieces of the last epoch that still stand, with their places on the path; none where what is hidden has changed."""
    if view is None or ends is None or view.shape != shape or view.epoch.policy != wish.policy.name:
        return []
    placed = zip(view.epoch.pieces, view.positions, strict=False)
    return [(piece, *place) for piece, place in placed if piece.span.stop <= ends.solid]


def _placed(standing: Sequence[Standing], assembled: Assembled) -> tuple[Piece, ...]:
    """Those pieces by their places in what was read now, up to the first that has no place of its own."""
    index = _Index(assembled)
    made: list[Piece] = []
    for piece, start, stop in standing:
        first, last = index.at(start), index.at(stop)
        if first is None or last is None or first != (made[-1].span.stop if made else 0) or first == last:
            break
        if piece.items[0].action not in LEFT_OUT and any(assembled.places.unread(n) for n in range(first, last)):
            break
        made.append(replace(piece, span=Span(first, last)))
    return tuple(made)


class _Index:
    """Where places on the path stand among what was read."""

    def __init__(self, assembled: Assembled) -> None:
        self._spots = assembled.places.spots
        self._starts = [spot.start for spot in self._spots]

    def at(self, place: int) -> int | None:
        """The first message at a place or behind it; none where the place is inside of a stretch that was not read."""
        found = bisect_left(self._starts, place)
        return found if not found or self._spots[found - 1].stop <= place else None


def _pinned(pins: Sequence[Node], assembled: Assembled) -> list[int]:
    """Where what is pinned stands in what was read."""
    at: dict[str, int] = {}
    for n, spot in enumerate(assembled.places.spots):
        if not spot.unread:
            at.setdefault(spot.anchor, n)
            at |= {first: n for first, last in spot.nodes if first == last}
    return [at[pin.id] for pin in pins if pin.id in at]


def _remember(context: Context, reading: Reading, wish: Options, model: str, view: View | None) -> Prepared:
    """The view with how far this request went; of a new epoch, the view as it begins."""
    report, end = context.report, reading.nodes[-1]
    found = context.continuation
    epoch = replace(epoch_of(report), archive=None, hash=hash_of(found.history))
    if view is None:
        places = [found.places.span(piece.span) for piece in found.pieces]
        positions = tuple((place.start, place.stop) for place in places)
        left = _left_out(found, wish, model)
        view = View(
            epoch=epoch,
            ranges=reading.ranges,
            ratio=wish.ratio,
            total=end.total,
            positions=positions,
            left=left,
            holes=holes_of(reading),
        )
    else:
        kept = view.session if epoch.pins == view.epoch.pins else 0
        view = replace(view, epoch=replace(epoch, pieces=view.epoch.pieces), ranges=reading.ranges, session=kept)
    return Prepared(reading, replace(view, node=end.seq), model, round(report.input_tokens / wish.ratio))


def _left_out(found: Continuation, wish: Options, model: str) -> tuple[Known, ...]:
    """What is known of each stretch that a request left out."""
    best, own = counters(wish, model)
    places, history = found.places, found.history
    tokens, own_tokens = costs_of(history, places, best), costs_of(history, places, own, own is not best)
    begins = {span.start for span in exchanges(history)}
    made: list[Known] = []
    for piece in found.pieces:
        if piece.items[0].action not in LEFT_OUT:
            continue
        inside, at = range(piece.span.start, piece.span.stop), places.span(piece.span)
        unread = [(n, places.unread(n)) for n in inside]
        stretch = Stretch(
            sum(map(places.count, inside)),
            sum(tokens[n] for n in inside),
            sum(own_tokens[n] for n in inside),
            sum(exchanges_of(spot) if spot else n in begins for n, spot in unread),
            sum(answers_of(spot) if spot else history[n].role == "assistant" for n, spot in unread),
        )
        made.append((at.start, at.stop, stretch))
    return tuple(made)
