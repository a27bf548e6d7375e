"""How a view is written down: a record with a version, apart from the values that a request is made
with.

Rules of this file:
- The names of fields are names in databases. They stay, whatever the values are called in memory.
- A record without a version was written before there were versions. It has the fields of version 1.
- In version 1 a cover is its text. It says nothing to the next cover, so a record of version 1 with
  covers cannot be read.
- A record of a later version cannot be read. A view is a cache: the next request then begins an
  epoch.
- Whoever adds a field gives it a default. Whoever changes the meaning of a field raises
  VIEW_VERSION and converts older records.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.stores.sql.stored import decode_stored

VIEW_VERSION = 2  # what this program writes


class SpanRecord(Struct, frozen=True):
    start: int
    stop: int


class ItemRecord(Struct, frozen=True, omit_defaults=True):
    place: str
    zone: str
    action: Literal["kept", "shrunk", "covered", "dropped", "repaired", "hidden"]
    rule: str
    before: int
    after: int
    handles: tuple[str, ...] = ()
    returns_at: int = 0


class QuoteRecord(Struct, frozen=True, array_like=True):
    """What a cover shows of one message: its place, who speaks, and lines of it, each with its
    voice; and what was found out about them, in records since there is such a thing.
    """

    place: int
    voice: str
    speaker: str
    about: str
    lines: tuple[tuple[str, str], ...]
    is_speech: bool
    coined: tuple[str, ...] | None = None
    novelty: tuple[float, ...] = ()


class PieceRecord(Struct, frozen=True, omit_defaults=True):
    """A piece. One that stands as it is in the history has no messages: they are in the nodes.

    Of a cover, the message has the marker only; what it says is in its quotes.
    """

    span: SpanRecord
    messages: tuple[Message, ...]
    items: tuple[ItemRecord, ...]
    quotes: tuple[QuoteRecord, ...] = ()

    @property
    def is_cover(self) -> bool:
        return self.items[0].action == "covered"


class ToolsRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools an epoch declares, and what is known of their use."""

    selects: bool = False
    whole: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()
    until: int = 0
    fresh: tuple[str, ...] = ()


class EpochRecord(Struct, frozen=True, kw_only=True):
    """An epoch. What grows with each request of it is in columns of the table: how far the history
    was seen, and its hash.
    """

    number: int
    policy: str
    head_hash: str
    before_hash: str = ""
    pieces: tuple[PieceRecord, ...]
    pins: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    widened: dict[str, int] = {}
    input_window: int = 0
    tools: ToolsRecord = ToolsRecord()


class StretchRecord(Struct, frozen=True):
    messages: int
    tokens: int
    own: int
    exchanges: int
    answers: int


class MapRecord(Struct, frozen=True):
    project: str
    text: str
    files: dict[str, dict[str, str]]


class MemoryRecord(Struct, frozen=True):
    notes: tuple[str, ...]
    text: str


class TextRecord(Struct, frozen=True, omit_defaults=True):
    text: str
    names: tuple[str, ...] = ()


class ViewRecord(Struct, frozen=True, kw_only=True):
    """A view. Its session, its node and how far it goes are columns of the table."""

    version: int = 1
    epoch: EpochRecord
    ranges: tuple[tuple[int, int], ...]
    ratio: float
    total: int
    as_of: int = 0
    shape: str = ""
    positions: tuple[tuple[int, int], ...] = ()
    left: tuple[tuple[int, int, StretchRecord], ...] = ()
    holes: tuple[tuple[int, int, int, StretchRecord | None], ...] = ()
    told: str = ""
    map: MapRecord | None = None
    memory: MemoryRecord | None = None
    texts: dict[str, TextRecord] = {}
    given: str = ""
    summaries: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    of: int = -1
    undone: bool = False


class EpochProgress(Struct, frozen=True):
    """How far requests of an epoch went: the node that the last one ended with, the messages it
    saw, and their hash.
    """

    epoch: int
    node: int
    seen: int
    hash: str


class StoredView(Struct, frozen=True, kw_only=True):
    """A view in its row: whose it is, the node that its last request ended with, how far it goes,
    and the hash of all that.
    """

    record: ViewRecord
    node: int
    session: int = 0
    seen: int
    hash: str


def encode_view(record: ViewRecord) -> str:
    """A view as it is stored."""
    return to_json(record)


def decode_view(data: str) -> ViewRecord:
    """A view from what is stored. Raises one of UNREADABLE."""
    record = decode_stored(data, ViewRecord)
    if record.version == 1 and not any(piece.is_cover for piece in record.epoch.pieces):
        record = replace(record, version=VIEW_VERSION)
    if record.version != VIEW_VERSION:
        raise ValueError(
            f"a view of version {record.version}, and this program reads version {VIEW_VERSION}"
        )
    return record
