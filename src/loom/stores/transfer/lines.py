"""What the lines of an exported file say.

The first line says what the file is and the version of these rules. Then come the settings of its
projects, and sections: a tree, its sessions, its nodes (parents before children), its handles. Then
come the documents of its projects, their notes, their events, and their decisions with the edges
between them. The last line says how many of them there were, so that a file that was cut short is
known. `by` names the session of the section
that something belongs to; left out, it is the first of them. Version 1 had no settings and no
states; its files are read as they are. Older files have views of their sessions after the handles;
these are caches that nothing proves, and stay behind.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from loom.budget.calibration import Calibration
from loom.conversation.canonical import from_json
from loom.conversation.message import Conversation, Message, Role
from loom.decisions.values import (
    Confidence,
    DecisionBody,
    DecisionKind,
    DecisionStatus,
    EdgeKind,
)
from loom.errors import ChoiceError, TranscriptError, describe
from loom.stores.memory.rows import NoteBody, NoteKind, NoteSpeaker
from loom.stores.sessions import Aside, Status, Usage
from loom.stores.views import HandleTarget

VERSION = 5
NOTES_VERSION = 4  # of a file with notes or events and without decisions
# of a file with documents and without notes and events, which older versions read too
DOCUMENTS_VERSION = 3
OLDER_VERSION = 2  # of a file without all of these
WHAT = "sessions"
NOBODY = ""  # as `by`: a session that is not in the file
Whole = Annotated[int, Meta(ge=0, le=2**53)]  # what both databases can hold, and some sums of it
Tokens = Annotated[int, Meta(ge=0, le=2**40)]
# milliseconds, up to the end of the year 9999
Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
# of a task, which may be older than 1970
EventTime = Annotated[int, Meta(ge=-(2**53), le=2**53)]


MAX_CHUNK_CHARS = 100_000  # far more than a chunk has
MAX_DOCUMENT_CHUNKS = 100_000
Name = Annotated[str, Meta(max_length=10_000)]


class First(Struct, frozen=True, omit_defaults=True):
    """`everywhere` says that each tree and each setting names its tenant and project."""

    loom: str
    version: Annotated[int, Meta(ge=1)]
    everywhere: bool = False


class _ExportLine(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="line",
):
    pass


class SettingLine(_ExportLine, frozen=True, kw_only=True, tag="setting"):
    """An agent, or how trees are read: those of a project, or of a tenant where no project is
    named.

    settings.KINDS says what its data is.
    """

    kind: str
    name: str = ""
    tenant: str = ""
    project: str = ""
    data: str
    author: str = ""
    updated: Moment


class TreeLine(_ExportLine, frozen=True, kw_only=True, tag="tree"):
    id: str
    tenant: str = ""
    project: str = ""
    title: str = ""
    data: str = "{}"
    created: Moment


class State(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that a session has at hand, as JSON."""

    kind: str
    name: str = ""
    data: str
    updated: Moment


class SessionLine(_ExportLine, frozen=True, kw_only=True, tag="session"):
    id: str
    agent: str = ""
    title: str = ""
    status: Status
    origin: str = ""
    cursor: str = ""
    head: Conversation
    asides: tuple[Aside, ...] = ()
    usage: Usage = Usage()
    calibration: Calibration | None = None
    states: tuple[State, ...] = ()
    created: Moment
    updated: Moment


class RecordEntry(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A record of a node; marks.KINDS says what the data of some kinds is. A purged
    node keeps only its edge.
    """

    kind: str
    name: str = ""
    by: str | None = None
    author: str = ""
    data: str | None = None
    created: Moment


class NodeLine(_ExportLine, frozen=True, kw_only=True, tag="node"):
    """A message, or what is left of one that was purged: then its role and its tokens are told, for
    nothing else does.
    """

    id: str
    after: str = ""
    short_id: str = field(name="local")
    by: str | None = None
    body: Message | None = None
    generation: str = ""
    role: Role | Literal[""] = ""
    tokens: Tokens = 0
    created: Moment
    records: tuple[RecordEntry, ...] = ()


class HandleLine(_ExportLine, frozen=True, kw_only=True, tag="handle"):
    handle: str
    kind: Literal["span", "part", "text"]
    by: str | None = None
    kept: HandleTarget | None = None
    created: Moment


class ViewLine(_ExportLine, frozen=True, kw_only=True, tag="view", forbid_unknown_fields=False):
    """What stood for what in a request. Older versions wrote it; nothing proves what it says, so
    nobody reads it any more.
    """


class ChunkEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A chunk of a document, and its lines."""

    text: Annotated[str, Meta(max_length=MAX_CHUNK_CHARS)]
    headings: tuple[Name, ...] = ()
    first: Whole = 0
    last: Whole = 0


class DocumentLine(_ExportLine, frozen=True, kw_only=True, tag="document"):
    """A document of a project, with its chunks. Its index is made again where it comes in."""

    path: Name
    source: Name
    root: Name = ""
    tenant: str = ""
    project: str = ""
    kind: Name
    title: Name = ""
    digest: Name
    size: Whole
    notes: tuple[Name, ...] = ()
    created: Moment
    updated: Moment
    chunks: Annotated[tuple[ChunkEntry, ...], Meta(max_length=MAX_DOCUMENT_CHUNKS)] = ()


class NoteLine(_ExportLine, frozen=True, kw_only=True, tag="note"):
    """A note of a project, or of one of its sessions or agents; without `body` if it was purged."""

    id: str
    tenant: str = ""
    project: str = ""
    session: str = ""
    agent: str = ""
    kind: NoteKind
    by: NoteSpeaker
    supersedes: str = ""
    always: bool = False
    forgotten: bool = False
    valid_from: Moment | None = None
    valid_until: Moment | None = None
    uses: Whole = 0
    used: Moment = 0
    body: NoteBody | None = None
    created: Moment
    updated: Moment


class EventLine(_ExportLine, frozen=True, kw_only=True, tag="event"):
    """An event of a project, with the task as JSON; a direct message is open until somebody
    acknowledged it.
    """

    id: Name
    tenant: str = ""
    project: str = ""
    action: Name
    source: Name = ""
    node: Name = ""
    target: Name = ""
    target_node: Name = ""
    parent: Name = ""
    session: Name = ""
    priority: Annotated[float, Meta(ge=0, le=1)] = 0.5
    created: EventTime
    expires: EventTime | None = None
    state: Literal["open", "notice", "acknowledged"]
    data: str


class DecisionLine(_ExportLine, frozen=True, kw_only=True, tag="decision"):
    """A decision of a folder of a project; without `body` if it was purged."""

    id: str
    tenant: str = ""
    project: str = ""
    folder: Name = ""
    session: str = ""
    agent: str = ""
    kind: DecisionKind
    status: DecisionStatus = "active"
    confidence: Confidence | None = None
    parent: str = ""
    generation: Whole = 0
    body: DecisionBody | None = None
    placed: Moment
    created: Moment
    updated: Moment


class DecisionEdgeLine(_ExportLine, frozen=True, kw_only=True, tag="edge"):
    """An edge between two decisions; without `rationale` if that was purged."""

    source: str
    target: str
    tenant: str = ""
    project: str = ""
    folder: Name = ""
    kind: EdgeKind
    weight: float = 1.0
    session: str = ""
    agent: str = ""
    rationale: str | None = None
    created: Moment


class EndLine(_ExportLine, frozen=True, kw_only=True, tag="end"):
    """`lines` are those between the first and this one."""

    sessions: int
    nodes: int
    lines: int


# What reading a value from elsewhere may raise.
REFUSED = (ValueError, RecursionError, msgspec.ValidationError, ChoiceError)
# What comes after the trees.
KeptLine = DocumentLine | NoteLine | EventLine | DecisionLine | DecisionEdgeLine
Line = (
    SettingLine
    | TreeLine
    | SessionLine
    | NodeLine
    | HandleLine
    | ViewLine
    | DocumentLine
    | NoteLine
    | EventLine
    | DecisionLine
    | DecisionEdgeLine
    | EndLine
)
_decode = msgspec.json.Decoder(Line).decode


def is_export(first_line: str) -> bool:
    """Whether a file that begins with this line is one of ours, of whatever version."""
    try:
        found = from_json(first_line.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("loom") == WHAT


def read_first(line: str) -> First:
    """The first line; a file of something else, or of rules that are newer than these, is
    refused.
    """
    if not is_export(line):
        raise TranscriptError(
            "line 1: not a file of exported sessions; a transcript of another program is imported "
            "as one"
        )
    try:
        first = msgspec.convert(from_json(line.lstrip("\ufeff")), First)
    except msgspec.ValidationError as error:
        raise TranscriptError(f"line 1: {_reason(error)}") from None
    if first.version > VERSION:
        raise TranscriptError(
            f"line 1: exported by a newer Loom, in version {first.version} of the format, and "
            f"this one reads up to {VERSION}: "
            "upgrade loomwright"
        )
    return first


def read_line(number: int, text: str) -> Line:
    try:
        try:
            line: Line = _decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeError):  # halves of surrogate pairs; or it is not JSON
            value = from_json(text)
            if not isinstance(value, dict):
                raise ValueError(f"expected an object, found {describe(value)}") from None
            line = msgspec.convert(value, Line)
        return line
    except REFUSED as error:
        raise TranscriptError(f"line {number}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply to be read"
    reason = str(error).replace("`", "'")
    return reason[:1].lower() + reason[1:]
