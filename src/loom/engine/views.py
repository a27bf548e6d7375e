"""Views: what stood for what in the last request of an epoch, from what the store has of it and
back.
"""

from collections.abc import Mapping

from msgspec import Struct, convert
from msgspec.structs import asdict, astuple

from loom.context import Epoch, EpochTools, Item, Piece, Quote, Stretch
from loom.conversation.turns import Span
from loom.stores import (
    VIEW_VERSION,
    EpochProgress,
    EpochRecord,
    ItemRecord,
    MapRecord,
    MemoryRecord,
    PieceRecord,
    QuoteRecord,
    SpanRecord,
    StoredView,
    StretchRecord,
    TextRecord,
    ToolsRecord,
    ViewRecord,
)


class EpochMap(Struct, frozen=True):
    """The map of a project in the system text of an epoch, as it was when that began.

    `files` are those that it shows, with the names under each, and how what has such a name was
    declared, as a digest.
    """

    project: str
    text: str
    files: dict[str, dict[str, str]]


class EpochMemory(Struct, frozen=True):
    """The notes in the system text of an epoch, as they were when that began: their ids, and the
    text.
    """

    notes: tuple[str, ...]
    text: str


class EpochText(Struct, frozen=True):
    """A text of a source in the system text of an epoch, as it was when that began, and the names
    of what it is made of.
    """

    text: str
    names: tuple[str, ...] = ()


class View(Struct, frozen=True, kw_only=True):
    """One version of what stands for what: an epoch, and which stretches of the path were read for
    it.
    """

    epoch: Epoch
    ranges: tuple[tuple[int, int], ...]
    ratio: float
    total: int  # tokens of the path when the epoch began, as the store counts them
    node: int = 0
    session: int = 0
    as_of: int = 0  # when the epoch began: ages and counts in its headers are those of then
    shape: str = ""  # what was hidden and what came in besides the path
    # of the epoch's pieces, where on the path each stands
    positions: tuple[tuple[int, int], ...] = ()
    # stretches of the path that it left out, and what is known of them
    left: tuple[tuple[int, int, Stretch], ...] = ()
    # between the ranges, what is said of stretches that were not read
    holes: tuple[tuple[int, int, int, Stretch | None], ...] = ()
    told: str = ""  # summaries in its system text
    map: EpochMap | None = None
    memory: EpochMemory | None = None
    texts: Mapping[str, EpochText] = {}  # by the names of their sources
    given: str = ""  # the newest summary that a person wrote, by its name
    summaries: tuple[str, ...] = ()  # those that there were when it began, by their names
    shown: tuple[str, ...] = ()  # those of them that its requests show
    of: int = -1  # the epoch that this one brings back
    undone: bool = False  # and no request has told so yet


def find_reached(view: View) -> EpochProgress:
    """How far requests of a view went."""
    return EpochProgress(view.epoch.number, view.node, view.epoch.seen, view.epoch.hash)


def store_view(view: View) -> StoredView:
    """A view as the store takes it."""
    record = ViewRecord(
        version=VIEW_VERSION,
        epoch=_record_epoch(view.epoch),
        ranges=view.ranges,
        ratio=view.ratio,
        total=view.total,
        as_of=view.as_of,
        shape=view.shape,
        positions=view.positions,
        left=tuple((start, stop, _record_stretch(stretch)) for start, stop, stretch in view.left),
        holes=tuple(
            (at, start, stop, _record_stretch(known) if known else None)
            for at, start, stop, known in view.holes
        ),
        told=view.told,
        map=MapRecord(view.map.project, view.map.text, view.map.files) if view.map else None,
        memory=MemoryRecord(view.memory.notes, view.memory.text) if view.memory else None,
        texts={source: TextRecord(made.text, made.names) for source, made in view.texts.items()},
        given=view.given,
        summaries=view.summaries,
        shown=view.shown,
        of=view.of,
        undone=view.undone,
    )
    return StoredView(
        record=record,
        node=view.node,
        session=view.session,
        seen=view.epoch.seen,
        hash=view.epoch.hash,
    )


def restore_view(stored: StoredView) -> View:
    """A view from what the store has of it."""
    record = stored.record
    return View(
        epoch=_epoch(record.epoch, stored),
        ranges=record.ranges,
        ratio=record.ratio,
        total=record.total,
        node=stored.node,
        session=stored.session,
        as_of=record.as_of,
        shape=record.shape,
        positions=record.positions,
        left=tuple((start, stop, _stretch(stretch)) for start, stop, stretch in record.left),
        holes=tuple(
            (at, start, stop, _stretch(known) if known else None)
            for at, start, stop, known in record.holes
        ),
        told=record.told,
        map=EpochMap(record.map.project, record.map.text, record.map.files) if record.map else None,
        memory=EpochMemory(record.memory.notes, record.memory.text) if record.memory else None,
        texts={source: EpochText(made.text, made.names) for source, made in record.texts.items()},
        given=record.given,
        summaries=record.summaries,
        shown=record.shown,
        of=record.of,
        undone=record.undone,
    )


def _record_epoch(epoch: Epoch) -> EpochRecord:
    return EpochRecord(
        number=epoch.number,
        policy=epoch.policy,
        head_hash=epoch.head_hash,
        before_hash=epoch.before_hash,
        pieces=tuple(map(_record_piece, epoch.pieces)),
        pins=epoch.pins,
        given_up=epoch.given_up,
        widened=epoch.widened,
        input_window=epoch.input_window,
        tools=ToolsRecord(**asdict(epoch.tools)),
    )


def _epoch(record: EpochRecord, stored: StoredView) -> Epoch:
    return Epoch(
        number=record.number,
        policy=record.policy,
        head_hash=record.head_hash,
        before_hash=record.before_hash,
        pieces=tuple(map(_piece, record.pieces)),
        seen=stored.seen,
        hash=stored.hash,
        pins=record.pins,
        given_up=record.given_up,
        widened=record.widened,
        input_window=record.input_window,
        tools=EpochTools(**asdict(record.tools)),
    )


def _record_piece(piece: Piece) -> PieceRecord:
    is_whole = all(item.action == "kept" for item in piece.items)
    return PieceRecord(
        span=SpanRecord(piece.span.start, piece.span.stop),
        messages=() if is_whole else piece.without_quotes,
        items=tuple(map(_record_item, piece.items)),
        quotes=tuple(QuoteRecord(*astuple(quote)) for quote in piece.quotes),
    )


def _piece(record: PieceRecord) -> Piece:
    bare = Piece(
        Span(record.span.start, record.span.stop), record.messages, tuple(map(_item, record.items))
    )
    return bare.with_quotes(convert([astuple(quote) for quote in record.quotes], tuple[Quote, ...]))


def _record_item(item: Item) -> ItemRecord:
    return ItemRecord(
        place=item.place,
        zone=item.zone,
        action=item.action,
        rule=item.rule,
        before=item.before,
        after=item.after,
        handles=item.handles,
        returns_at=item.returns_at,
    )


def _item(record: ItemRecord) -> Item:
    return Item(
        place=record.place,
        zone=record.zone,
        action=record.action,
        rule=record.rule,
        before=record.before,
        after=record.after,
        handles=record.handles,
        returns_at=record.returns_at,
    )


def _record_stretch(stretch: Stretch) -> StretchRecord:
    return StretchRecord(
        messages=stretch.messages,
        tokens=stretch.tokens,
        own=stretch.own,
        exchanges=stretch.exchanges,
        answers=stretch.answers,
    )


def _stretch(record: StretchRecord) -> Stretch:
    return Stretch(
        messages=record.messages,
        tokens=record.tokens,
        own=record.own,
        exchanges=record.exchanges,
        answers=record.answers,
    )
