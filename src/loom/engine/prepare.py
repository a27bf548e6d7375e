"""Down the stair: from a stored path to the request that is sent now, reading only what the window needs."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from loom.budget.calibration import Calibration
from loom.context.handles import Cut, PathArchive
from loom.context.select import EpochEnds, Renewal, epoch_of, hash_of
from loom.context.weave import Context, Wish, budget_for, build, gate_counter
from loom.conversation.canonical import from_json
from loom.conversation.message import Conversation
from loom.stores.path import Node, Path
from loom.stores.reading import Reading, read_on, read_ranges, read_window
from loom.stores.sessions import SessionRow
from loom.stores.store import Store
from loom.stores.views import View

_SURELY_TOO_MUCH = 3  # windows of new text; no tokenizer counts so much less than another


class Prepared(Struct, frozen=True):
    """What a session remembers of its last request, so that the next reads only what is new. `counted` is without correction."""

    reading: Reading
    view: View
    model: str
    counted: int


def prepare(
    store: Store,
    row: SessionRow,
    path: Path,
    wish: Wish,
    pins: Sequence[Node],
    last: Prepared | None,
    fetch: Callable[[str], str],
) -> tuple[Context, Prepared]:
    """The request, and what to remember of it. The last epoch goes on where it can; else one begins, from what is read anew."""
    reason, reading = "the first request on this path", None
    with path.snapshot() as now:
        if not store.views.is_newest(row, last.view if last else None, now):
            last = None
        asides = store.sessions.on_path(row, now)
        given = replace(row.head, system=(*row.head.system, *(aside.message for aside in asides)))
        model = wish.model or given.model
        usable = budget_for(wish, given).usable
        view = last.view if last else store.views.newest(row, now)
        try:
            reading = _read_again(now, view, last, usable, pins) if view else None
        except EpochEnds as ends:
            reason = str(ends)
        anew = None if reading else _read_anew(store, row, now, wish, model, usable, pins)
    if view and reading:
        try:
            wish = replace(wish, ratio=view.ratio)
            context = _build(given, wish, reading, pins, view, fetch)
            return context, _remember(context, reading, wish, model, view)
        except EpochEnds as ends:
            reason = str(ends)
    if anew is None:
        with path.snapshot() as now:
            anew = _read_anew(store, row, now, wish, model, usable, pins)
    wish, number, reading = anew
    number = max(number, view.epoch.number if view else -1) + 1
    context = _build(given, wish, reading, pins, Renewal(number, reason), fetch)
    return context, _remember(context, reading, wish, model, None)


def calibration(row: SessionRow) -> Calibration:
    """What the session has learnt of how its models count."""
    return msgspec.convert(from_json(row.calibration), Calibration) if row.calibration else Calibration()


def cuts_of(context: Context, reading: Reading) -> dict[str, tuple[Cut, Node | None]]:
    """What the markers of a request stand for, each with the node that it was cut from."""
    archive = context.archive
    assert isinstance(archive, PathArchive)
    nodes = {node.id: node for node in reading.nodes}
    named = {handle for item in context.report.items for handle in item.handles if handle in archive.cuts}
    return {h: (cut := archive.cuts[h], nodes.get(cut.nodes[0][0]) if cut.kind == "part" else None) for h in sorted(named)}


def _read_again(path: Path, view: View, last: Prepared | None, usable: int, pins: Sequence[Node]) -> Reading:
    """What the last request of this epoch was made from, and what has come since."""
    assert path.end is not None
    ranges = (*view.ranges[:-1], (view.ranges[-1][0], len(path)))
    if len(path) <= view.ranges[-1][0]:
        raise EpochEnds("the path now ends before what the last request showed")
    if not all(any(start <= pin.depth < stop for start, stop in ranges) for pin in pins):
        raise EpochEnds("a pin changed")
    if (path.end.total - view.total) * min(view.ratio, 1) > _SURELY_TOO_MUCH * usable:
        raise EpochEnds(f"about {path.end.total - view.total:,} tokens have come since, too many to append")
    return (read_on(last.reading, path) if last else None) or read_ranges(path, ranges)


def _read_anew(
    store: Store, row: SessionRow, path: Path, wish: Wish, model: str, usable: int, pins: Sequence[Node]
) -> tuple[Wish, int, Reading]:
    """What an epoch that begins is made from, with the number of the last one, and the wish as counted from now on."""
    wish = replace(wish, ratio=calibration(row).ratio(model))
    count = gate_counter(model or None, wish.ratio).count_message
    ranges = read_window(path, usable, pins, wish.policy.strategy == "truncate_middle", count)
    return wish, store.views.epoch(row, path), read_ranges(path, ranges, count)


def _build(
    given: Conversation,
    wish: Wish,
    reading: Reading,
    pins: Sequence[Node],
    before: View | Renewal,
    fetch: Callable[[str], str],
) -> Context:
    at = {spot.first: n for n, spot in enumerate(reading.places.spots) if not spot.unread}
    epoch = replace(before.epoch, only=True) if isinstance(before, View) else before
    return build(replace(given, messages=reading.messages), wish, [at[pin.id] for pin in pins], epoch, reading.places, fetch)


def _remember(context: Context, reading: Reading, wish: Wish, model: str, view: View | None) -> Prepared:
    """The view with how far this request went; of a new epoch, the view as it begins."""
    report, end = context.report, reading.nodes[-1]
    epoch = replace(epoch_of(report), archive=None, hash=hash_of(report.history))
    if view is None:
        view = View(epoch=epoch, ranges=reading.ranges, ratio=wish.ratio, total=end.total)
    else:
        kept = view.session if epoch.pins == view.epoch.pins else 0
        view = replace(view, epoch=replace(epoch, pieces=view.epoch.pieces), ranges=reading.ranges, session=kept)
    return Prepared(reading, replace(view, node=end.seq), model, round(report.input_tokens / wish.ratio))
