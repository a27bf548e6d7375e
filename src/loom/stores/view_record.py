"""How a view is written down: a record with a version, apart from the values that a request is made with.

Rules of this file:
- The names of fields are names in databases. They stay, whatever the values are called in memory.
- A record without a version was written before there were versions. It has the fields of version 1.
- A record of a later version cannot be read. A view is a cache: the next request then begins an epoch.
- Whoever adds a field gives it a default. Whoever changes the meaning of a field raises VIEW_VERSION and converts older records.
"""

from typing import Literal

from msgspec import Struct

from loom.context.epochs import Epoch
from loom.context.places import Stretch
from loom.context.report import Item, Piece
from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.conversation.turns import Span
from loom.stores.stored import decode_stored

VIEW_VERSION = 1  # what this program writes


class Mapped(Struct, frozen=True):
    """The map of a project in the system text of an epoch, as it was when that began.

    `files` are those that it shows, with the names under each, and how what has such a name was declared, as a digest.
    """

    project: str
    text: str
    files: dict[str, dict[str, str]]


class View(Struct, frozen=True, kw_only=True):
    """One version of what stands for what: an epoch, and which stretches of the path were read for it."""

    epoch: Epoch
    ranges: tuple[tuple[int, int], ...]
    ratio: float
    total: int  # tokens of the path when the epoch began, as the store counts them
    node: int = 0
    session: int = 0
    as_of: int = 0  # when the epoch began: ages and counts in its headers are those of then
    shape: str = ""  # what was hidden and what came in beside the path
    positions: tuple[tuple[int, int], ...] = ()  # of the epoch's pieces, where on the path each stands
    left: tuple[tuple[int, int, Stretch], ...] = ()  # stretches of the path that it left out, and what is known of them
    holes: tuple[tuple[int, int, int, Stretch | None], ...] = ()  # between the ranges, what is said of stretches that were not read
    told: str = ""  # summaries in its system text
    map: Mapped | None = None
    given: str = ""  # the newest summary that a person wrote, by its name
    summaries: tuple[str, ...] = ()  # those that there were when it began, by their names
    shown: tuple[str, ...] = ()  # those of them that its requests show
    of: int = -1  # the epoch that this one brings back
    undone: bool = False  # and no request has told so yet


class _SpanRecord(Struct, frozen=True):
    start: int
    stop: int


class _ItemRecord(Struct, frozen=True, omit_defaults=True):
    place: str
    zone: str
    action: Literal["kept", "shrunk", "covered", "dropped", "repaired", "hidden"]
    rule: str
    before: int
    after: int
    handles: tuple[str, ...] = ()
    returns_at: int = 0


class _PieceRecord(Struct, frozen=True):
    """A piece. One that stands as it is in the history has no messages: they are in the nodes."""

    span: _SpanRecord
    messages: tuple[Message, ...]
    items: tuple[_ItemRecord, ...]


class _EpochRecord(Struct, frozen=True, kw_only=True):
    """An epoch. What grows with each request of it is in columns of the table: how far the history was seen, and its hash."""

    number: int
    policy: str
    head_hash: str
    pieces: tuple[_PieceRecord, ...]
    pins: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    widened: dict[str, int] = {}


class _StretchRecord(Struct, frozen=True):
    messages: int
    tokens: int
    own: int
    exchanges: int
    answers: int


class _MapRecord(Struct, frozen=True):
    project: str
    text: str
    files: dict[str, dict[str, str]]


class _ViewRecord(Struct, frozen=True, kw_only=True):
    version: int = 1
    epoch: _EpochRecord
    ranges: tuple[tuple[int, int], ...]
    ratio: float
    total: int
    as_of: int = 0
    shape: str = ""
    positions: tuple[tuple[int, int], ...] = ()
    left: tuple[tuple[int, int, _StretchRecord], ...] = ()
    holes: tuple[tuple[int, int, int, _StretchRecord | None], ...] = ()
    told: str = ""
    map: _MapRecord | None = None
    given: str = ""
    summaries: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    of: int = -1
    undone: bool = False


def encode_view(view: View) -> str:
    """A view as it is stored. Its session, its node and how far it goes are columns of the table."""
    return to_json(
        _ViewRecord(
            version=VIEW_VERSION,
            epoch=_record_epoch(view.epoch),
            ranges=view.ranges,
            ratio=view.ratio,
            total=view.total,
            as_of=view.as_of,
            shape=view.shape,
            positions=view.positions,
            left=tuple((start, stop, _record_stretch(stretch)) for start, stop, stretch in view.left),
            holes=tuple((at, start, stop, _record_stretch(known) if known else None) for at, start, stop, known in view.holes),
            told=view.told,
            map=_MapRecord(view.map.project, view.map.text, view.map.files) if view.map else None,
            given=view.given,
            summaries=view.summaries,
            shown=view.shown,
            of=view.of,
            undone=view.undone,
        )
    )


def decode_view(data: str) -> View:
    """A view from what is stored. Raises one of UNREADABLE."""
    record = decode_stored(data, _ViewRecord)
    if record.version != VIEW_VERSION:
        raise ValueError(f"a view of version {record.version}, and this program reads version {VIEW_VERSION}")
    return View(
        epoch=_epoch(record.epoch),
        ranges=record.ranges,
        ratio=record.ratio,
        total=record.total,
        as_of=record.as_of,
        shape=record.shape,
        positions=record.positions,
        left=tuple((start, stop, _stretch(stretch)) for start, stop, stretch in record.left),
        holes=tuple((at, start, stop, _stretch(known) if known else None) for at, start, stop, known in record.holes),
        told=record.told,
        map=Mapped(record.map.project, record.map.text, record.map.files) if record.map else None,
        given=record.given,
        summaries=record.summaries,
        shown=record.shown,
        of=record.of,
        undone=record.undone,
    )


def _record_epoch(epoch: Epoch) -> _EpochRecord:
    return _EpochRecord(
        number=epoch.number,
        policy=epoch.policy,
        head_hash=epoch.head_hash,
        pieces=tuple(map(_record_piece, epoch.pieces)),
        pins=epoch.pins,
        given_up=epoch.given_up,
        widened=epoch.widened,
    )


def _epoch(record: _EpochRecord) -> Epoch:
    return Epoch(
        number=record.number,
        policy=record.policy,
        head_hash=record.head_hash,
        pieces=tuple(map(_piece, record.pieces)),
        seen=0,
        pins=record.pins,
        given_up=record.given_up,
        widened=record.widened,
    )


def _record_piece(piece: Piece) -> _PieceRecord:
    is_whole = all(item.action == "kept" for item in piece.items)
    return _PieceRecord(
        span=_SpanRecord(piece.span.start, piece.span.stop),
        messages=() if is_whole else piece.messages,
        items=tuple(map(_record_item, piece.items)),
    )


def _piece(record: _PieceRecord) -> Piece:
    return Piece(Span(record.span.start, record.span.stop), record.messages, tuple(map(_item, record.items)))


def _record_item(item: Item) -> _ItemRecord:
    return _ItemRecord(
        place=item.place,
        zone=item.zone,
        action=item.action,
        rule=item.rule,
        before=item.before,
        after=item.after,
        handles=item.handles,
        returns_at=item.returns_at,
    )


def _item(record: _ItemRecord) -> Item:
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


def _record_stretch(stretch: Stretch) -> _StretchRecord:
    return _StretchRecord(
        messages=stretch.messages,
        tokens=stretch.tokens,
        own=stretch.own,
        exchanges=stretch.exchanges,
        answers=stretch.answers,
    )


def _stretch(record: _StretchRecord) -> Stretch:
    return Stretch(
        messages=record.messages,
        tokens=record.tokens,
        own=record.own,
        exchanges=record.exchanges,
        answers=record.answers,
    )
