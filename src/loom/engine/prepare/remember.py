"""What a session remembers of a request: for the next one, and in the store."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.calibration import Calibration
from loom.budget.profiles import Exact, profile_for
from loom.context import Context, Cut, Epoch, Options
from loom.conversation.handles import texts_of
from loom.engine.prepare.standing import counters
from loom.engine.reading import Reading, holes_of
from loom.engine.views import View
from loom.stores import HandleTarget, Node, SessionRow, Summary, read_stored


class LastRequest(Struct, frozen=True):
    """What a session remembers of its last request, so that the next reads only what is new.
    `counted` is without correction.
    """

    reading: Reading
    view: View
    model: str
    counted: int
    # that an overflow cost messages, to be written down with the request
    note: Summary | None = None


def remember(
    context: Context, reading: Reading, options: Options, model: str, view: View | None
) -> LastRequest:
    """The view with how far this request went; of a new epoch, the view as it begins."""
    report, end = context.report, reading.nodes[-1]
    found = context.continuation
    epoch = Epoch.of(report).for_store()
    if view is None:
        places = [found.places.span(piece.span) for piece in found.pieces]
        positions = tuple((place.start, place.stop) for place in places)
        best, own = counters(options, model)
        left = found.left_out(best.count_message, own.count_message)
        view = View(
            epoch=epoch,
            ranges=reading.ranges,
            ratio=options.ratio,
            total=end.total,
            positions=positions,
            left=left,
            holes=holes_of(reading),
        )
    else:
        kept = view.session if epoch.pins == view.epoch.pins else 0
        view = replace(
            view,
            epoch=replace(epoch, pieces=view.epoch.pieces),
            ranges=reading.ranges,
            session=kept,
        )
    return LastRequest(
        reading, replace(view, node=end.seq), model, round(report.input_tokens / options.ratio)
    )


class NewHandles(Struct, frozen=True):
    """What markers of a request stand for that the store does not know yet, each with a hash of
    what was cut.

    `inherited` are handles that an older epoch made.
    """

    kept: dict[str, HandleTarget]
    hashes: dict[str, int]
    inherited: frozenset[str]


def new_handles(context: Context, reading: Reading, known: Mapping[str, int]) -> NewHandles:
    """The handles of a request without those that are known already, with the hash of what they
    stand for.
    """
    archive = context.archive
    nodes = {node.id: node for node in reading.nodes}
    named = {handle for item in context.report.lines for handle in item.handles}
    hashes = {handle: hash(archive.cuts[handle]) for handle in sorted(named & archive.cuts.keys())}
    made = [handle for handle, digest in hashes.items() if known.get(handle) != digest]
    kept = {handle: _make_kept(archive.cuts[handle], nodes) for handle in made}
    inherited = frozenset(
        handle for handle in named if handle not in hashes and handle not in known
    )
    return NewHandles(kept, {handle: hashes[handle] for handle in made}, inherited)


def _make_kept(cut: Cut, nodes: Mapping[str, Node]) -> HandleTarget:
    """What is stored of what was cut: stretches of nodes, the place of a text in a node, or the
    text.
    """
    if cut.kind == "span":
        return HandleTarget(cut.nodes, at=cut.at, minted_at=cut.minted_at)
    place = None
    node = nodes.get(cut.nodes[0][0]) if cut.kind == "part" else None
    if node is not None and node.message is not None:
        place = next((place for place, text in texts_of(node.message) if text == cut.text), None)
    # What repair had changed before it was cut is in no node, so it is kept itself, until that node
    # is purged.
    return HandleTarget(
        cut.nodes, place, cut.text if place is None else None, cut.at, cut.minted_at
    )


def calibration(row: SessionRow) -> Calibration:
    """What the session has learnt of how its models count."""
    if row.calibration:
        return read_stored(row.calibration, Calibration, f"the calibration of session {row.id}")
    return Calibration()


def ratio_of(row: SessionRow, model: str) -> float:
    """What counts for a model are multiplied by. What a public tokenizer counts is never taken for
    less.
    """
    learnt = calibration(row).ratio(model)
    if isinstance(profile_for(model or None).text, Exact):
        return max(learnt, 1.0)
    return learnt
