"""What must be true of each row of a store: what can be computed is computed again, and what is
named must be there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from loom.budget.calibration import Calibration
from loom.conversation.canonical import to_json
from loom.conversation.identity import is_node_id, is_short_id, match_key, node_id, root_key
from loom.conversation.message import Conversation, Message
from loom.conversation.names import plain_name
from loom.stores.sessions import Aside, Status, Usage
from loom.stores.sql.database import GarbledText, Reader, Row
from loom.stores.sql.stored import UNREADABLE as UNREADABLE
from loom.stores.sql.stored import DamagedError, decode_stored, read_rows
from loom.stores.transfer.proof import (
    NOT_MADE,
    check_record,
    is_spent,
    spent_on,
    unknown_markers,
    wrong_with_handle,
)
from loom.stores.tree import marks, nodes
from loom.stores.tree.path import OpenTransaction, Path, nodes_by, to_message
from loom.stores.view_record import ViewRecord, decode_view
from loom.stores.views import HandleTarget, check_view, digest_of

COPY = "restore the store from a copy, or export what can be read and import it into a new store"
_ANEW = "export the project and import it into a new store: it is computed again there"
_AGAIN = (
    "restore the store from a copy, or import the session again, from an export or its "
    "transcript, into another project"
)
_PURGE = "if it is not needed, purge the session; else restore the store from a copy"
NOT_UTF_8 = "the bytes are not UTF-8"
_HOUR_MILLISECONDS = 3_600_000  # milliseconds after which an import is no longer under way
_PAGE_ROWS = 200
_T = TypeVar("_T")

Wrong = tuple[str, str]  # what, and the remedy
_LEFT_BEHIND = (
    "nothing is damaged: it was exported without that node, or the node is in a tree that is not "
    "stored; import it to have it"
)


class Problem(Struct, frozen=True):
    """Something that is not as it should be: where, what, and the way out. A note is no damage,
    only something to look at.
    """

    place: str
    what: str
    remedy: str
    note: bool = False


class CheckedTable(Struct, frozen=True):
    """A kind of row: how its pages are read, and how a row is looked at.

    The statement continues after `start`, the first values of a row; its last parameter is a limit.
    """

    kind: str
    start: tuple[Any, ...]
    sql: str
    look: Callable[[Reader, Row, int], Iterator[Problem]]


def _wrong_with(
    look: Callable[[Reader, _T], Iterator[Wrong]], reader: Reader, row: _T
) -> Iterator[Wrong]:
    garbled = garbled_in(row)
    if garbled:
        yield f"its {', '.join(garbled)} cannot be read: {NOT_UTF_8}", COPY
        return
    try:
        yield from look(reader, row)
    except (*UNREADABLE, DamagedError) as error:  # a value of another kind than its column's
        yield f"its row is not valid: {error}", COPY


def _notes_on(
    look: Callable[[Reader, _T], Iterator[Wrong]], reader: Reader, row: _T
) -> Iterator[Wrong]:
    if garbled_in(row):
        return iter(())
    return _wrong_with(look, reader, row)


def garbled_in(row: object) -> list[str]:
    """The columns of a row whose text is not UTF-8."""
    if not isinstance(row, Struct):
        return []
    return [
        name
        for name, value in msgspec.structs.asdict(row).items()
        if isinstance(value, GarbledText)
    ]


# ── nodes
# ──────────────────────────────────────────────────────────────────────────────────────────────────


class _NodeRow(Struct, frozen=True):
    """A node; its tree; whether its writer is known; its parent `p`, where that jumps to `j`, and
    where that jumps to `f`.
    """

    seq: int
    tree: int
    id: str
    short_id: str
    parent: int | None
    jump: int | None
    depth: int
    goal: int | None
    request: int | None
    role: str
    author: str
    body: str | None
    generation: str
    known: str
    tokens: int
    total: int
    tenant: str | None
    project: str | None
    tree_id: str
    writer: int | None
    p_id: str | None
    p_known: str
    p_depth: int
    p_jump: int | None
    p_goal: int | None
    p_request: int | None
    p_total: int
    j_depth: int | None
    j_jump: int | None
    f_depth: int | None


def _look_at_node(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    row = _NodeRow(*values[-len(_NodeRow.__struct_fields__) :])
    for what, remedy in _wrong_with(_node, reader, row):
        yield Problem(
            _place(row.tenant, row.project, row.tree_id or row.tree, f"node {row.short_id}"),
            what,
            remedy,
        )


def _node(_: Reader, row: _NodeRow) -> Iterator[Wrong]:
    if row.tenant is None or row.project is None:
        yield f"its tree, {row.tree}, is not there", COPY
        return
    if row.parent is not None and row.p_id is None:
        yield f"the node that it comes after, {row.parent}, is not in its tree", _AGAIN
        return
    if row.writer is None:
        yield "the session that wrote it is not there", COPY
    if row.body is None:
        if row.author or not is_node_id(row.id):
            yield (
                "it was purged, but a part of it is still there",
                advise_update("nodes", "author = ''", f"tree = {row.tree} AND seq = {row.seq}"),
            )
    else:
        message = read(to_message, row.body)
        if message is None:
            yield "what was said cannot be read", _AGAIN
        else:
            yield from _check_words(row, message)
    if not is_short_id(row.short_id, row.id):
        yield f"its short name {row.short_id!r} is not a beginning of its id", _ANEW
    yield from _check_derived(row)


def _check_words(row: _NodeRow, message: Message) -> Iterator[Wrong]:
    if node_id(row.tree_id, row.p_id or "", message, row.generation) != row.id:
        yield (
            "its id does not match its content and its place: one of them was changed",
            _AGAIN,
        )
    if (message.role, plain_name(message.author)) != (row.role, row.author):
        yield (
            f"it is stored as said by {row.role} {row.author!r}, and was said by {message.role} "
            f"{message.author!r}",
            _ANEW,
        )
    assert row.tenant is not None
    assert row.project is not None
    if match_key(row.p_known or root_key(row.tenant, row.project), message) != row.known:
        yield "the key by which it is recognized is wrong", _ANEW


def _check_derived(row: _NodeRow) -> Iterator[Wrong]:
    """What follows from the parent's row."""
    asked = row.seq if row.role == "user" else None
    if row.parent is None:
        expected = {
            "depth": 0,
            "jump": row.seq,
            "goal": asked,
            "request": asked,
            "total": row.tokens,
        }
    else:
        if row.parent >= row.seq:
            yield f"it comes after {row.parent}, which was written later", COPY
        expected = {
            "depth": row.p_depth + 1,
            "goal": row.p_goal or asked,
            "request": asked or row.p_request,
            "total": row.p_total + row.tokens,
        }
        # Past two equal jumps at once, else to its parent. Where the parent's own jump leads
        # nowhere, it is told of there.
        if row.j_depth is not None and row.f_depth is not None:
            equal = row.p_depth - row.j_depth == row.j_depth - row.f_depth
            expected["jump"] = row.parent
            if equal:
                expected["jump"] = row.j_jump
        elif row.jump is None:
            expected["jump"] = row.parent
    for name, value in expected.items():
        if getattr(row, name) != value:
            yield f"its {name} is {getattr(row, name)}, and should be {value}", _ANEW


# ── records
# ──────────────────────────────────────────────────────────────────────────────────────────────────


class _RecordRow(Struct, frozen=True):
    seq: int
    tree: int
    node: int
    kind: str
    name: str
    session: int
    author: str
    data: str | None
    tenant: str | None
    project: str | None
    tree_id: str | None
    short_id: str | None
    gone: int
    writer: int | None
    status: str | None
    depth: int | None


def _look_at_record(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    row = _RecordRow(*values)
    place = _place(
        row.tenant,
        row.project,
        row.tree_id or row.tree,
        f"{row.kind} of node {row.short_id or row.node}",
    )
    for what, remedy in _wrong_with(_record, reader, row):
        yield Problem(place, what, remedy)
    for what, remedy in _notes_on(_named_by_record, reader, row):
        yield Problem(place, what, remedy, note=True)


def _record(_: Reader, row: _RecordRow) -> Iterator[Wrong]:
    if row.short_id is None:
        yield "the node that it belongs to is not there", COPY
    elif row.gone and (row.author or (row.data is not None and row.kind != "edge")):
        data = "" if row.kind == "edge" else "data = NULL, "
        yield (
            "its node was purged, and its words are still there",
            advise_update("records", f"{data}author = ''", f"seq = {row.seq}"),
        )
    if row.data is not None:
        yield from _check_record_data(row)
    if row.session and row.writer is None:  # 0: it came with another session, its own is not here
        yield "the session that it belongs to is not there", COPY


def _check_record_data(row: _RecordRow) -> Iterator[Wrong]:
    """That what a record says can be read, and that a purge took it along."""
    if _unsound(row):
        yield f"the {row.kind} cannot be read", _AGAIN
        return
    what = ""
    if row.kind in ("summary", "digest"):
        what = "words are"
    elif _label(row):
        what = "label is"
    if row.status == "purged" and what:
        remedy = advise_update("records", "data = NULL", f"seq = {row.seq}")
        yield f"its session was purged, and its {what} still there", remedy


def _unsound(row: _RecordRow) -> bool:
    try:
        check_record(row.kind, "", row.data or "", row.depth if row.depth is not None else -1)
    except UNREADABLE:
        return True
    return False


def _mark(row: _RecordRow) -> object:
    if row.kind not in marks.KINDS or row.data is None:
        return None
    return read(decoder(marks.KINDS[row.kind]), row.data)


def _label(row: _RecordRow) -> str:
    mark = _mark(row)
    if isinstance(mark, marks.FlagMark | marks.LinkMark):
        return mark.label
    return ""


def _named_by_record(reader: Reader, row: _RecordRow) -> Iterator[Wrong]:
    """What a record names in its own tree and is not there: it may have stayed behind when a
    session was exported alone.
    """
    match _mark(row):
        case marks.EdgeMark(_, name):
            named, what = [name], "its node was edited from"
        case marks.LinkMark(name, tree, on=True):
            named, what = [name] if tree in ("", row.tree_id) else [], "it leads to"
        case tuple() as sources:
            named, what = (
                [source.node for source in sources if source.tree in ("", row.tree_id)],
                "its node was made from",
            )
        case _:
            return
    for name in sorted(filter(None, named)):
        if (
            reader.first_row("SELECT 1 FROM nodes WHERE tree = $1 AND id = $2", row.tree, name)
            is None
        ):
            yield f"{what} the node {name}, which is not there", _LEFT_BEHIND


# ── sessions
# ──────────────────────────────────────────────────────────────────────────────────────────────────


class _SessionRow(Struct, frozen=True):
    key: int
    id: str
    tenant: str
    project: str
    agent: str
    title: str
    model: str
    status: str
    origin: str
    cursor: int | None
    head: str
    asides: str
    prompt: int
    completion: int
    cached: int
    cost: float
    calibration: str
    updated: int
    tree: int
    t_tenant: str | None
    t_project: str | None
    end: int | None


def _look_at_session(reader: Reader, values: Row, now: int) -> Iterator[Problem]:
    row = _SessionRow(*values)
    place = f"session {row.id} in {row.tenant}/{row.project}"
    for what, remedy in _wrong_with(_session, reader, row):
        yield Problem(place, what, remedy)
    if row.status == "importing" and now - row.updated > _HOUR_MILLISECONDS:
        hours = (now - row.updated) // _HOUR_MILLISECONDS
        what = (
            f"its import did not end; it last wrote something {hours} "
            f"{'hour' if hours == 1 else 'hours'} ago"
        )
        remedy = (
            "import its file again (it continues where it stopped), or delete it: loom "
            f"session purge {row.id}"
        )
        yield Problem(place, what, remedy, note=True)


def _session(reader: Reader, row: _SessionRow) -> Iterator[Wrong]:
    if row.status not in get_args(Status):
        yield f"its status is {row.status!r}, which does not exist", _PURGE
    yield from _check_position(row)
    head = read(decoder(Conversation), row.head)
    if head is None:
        yield (
            "its system text, tools and settings cannot be read",
            _AGAIN,
        )
    elif plain_name(head.model) != row.model and row.status != "purged":
        yield (
            f"its model is stored as {row.model!r} and as {head.model!r}",
            f"set it in Python: loom.session({row.id!r}).change(model=…)",
        )
    yield from _check_asides(reader, row)
    if row.calibration and read(decoder(Calibration), row.calibration) is None:
        yield "what it has learnt about the counts of its models cannot be read", _AGAIN
    if row.status == "purged" and (row.title, row.cursor, row.asides, row.calibration, head) != (
        "",
        None,
        "[]",
        "",
        _NOTHING,
    ):
        nothing = (
            "title = '', cursor = NULL, asides = '[]', calibration = '', head = "
            "'{\"messages\":[]}', model = ''"
        )
        yield (
            "it was purged, and its words are still there",
            advise_update("sessions", nothing, f"key = {row.key}"),
        )
    yield from _check_usage(reader, row)


def _check_position(row: _SessionRow) -> Iterator[Wrong]:
    """That a session is at a node of a tree of its own project."""
    if row.t_tenant is None:
        yield f"its tree, {row.tree}, is not there", COPY
    elif (row.t_tenant, row.t_project) != (row.tenant, row.project):
        yield f"its tree belongs to {row.t_tenant}/{row.t_project}", COPY
    if row.cursor is not None and row.end is None:
        yield f"its current node, {row.cursor}, is not in its tree", _AGAIN


def _check_asides(reader: Reader, row: _SessionRow) -> Iterator[Wrong]:
    """That the system messages of a session can be read, and come after nodes that are there."""
    asides = read(decoder(tuple[Aside, ...]), row.asides)
    if asides is None:
        yield "its later system messages cannot be read", _AGAIN
        return
    for name in sorted({aside.after for aside in asides if aside.after}):
        if not _has_node(reader, row.tree, name):
            yield f"a system message follows the node {name}, which is not there", _AGAIN


def _has_node(reader: Reader, tree: int, name: str) -> bool:
    return (
        reader.first_row("SELECT 1 FROM nodes WHERE tree = $1 AND id = $2", tree, name) is not None
    )


def _check_usage(reader: Reader, row: _SessionRow) -> Iterator[Wrong]:
    """That the sums of a session are those of its answers, where all of them are still there."""
    spent = spent_on(reader, row.tree, row.key)
    if spent is not None and not is_spent(
        Usage(row.prompt, row.completion, row.cached, row.cost), spent
    ):
        found = f"{row.prompt} + {row.completion} tokens, {row.cost:.6f} dollars"
        yield (
            f"its usage is {found}, and its answers add up to {spent.prompt} + "
            f"{spent.completion}, {spent.cost:.6f}",
            "restore the store from a copy, or trust the answers: they are what providers reported",
        )


_NOTHING = Conversation(messages=())


# ── views and handles
# ──────────────────────────────────────────────────────────────────────────────────────────────────


class _ViewRow(Struct, frozen=True):
    session: int
    epoch: int
    node: int
    data: str
    id: str | None
    status: str | None
    tenant: str | None
    project: str | None
    tree: int
    end: int | None
    depth: int | None
    digest: str
    hash: str


_MAX_DEPTH = 2**53


def _look_at_view(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    row = _ViewRow(*values)
    for what, remedy in _wrong_with(_view, reader, row):
        whose = f"session {row.session}"
        if row.id:
            whose = f"session {row.id} in {row.tenant}/{row.project}"
        yield Problem(f"view {row.epoch} of {whose}", what, remedy)


def _view(reader: Reader, row: _ViewRow) -> Iterator[Wrong]:
    # A view only saves work: without it the next request begins a new epoch.
    drop = (
        f"DELETE FROM views WHERE session = {row.session} "
        f"AND epoch = {row.epoch}; the next request then begins an epoch"
    )
    if row.id is None:
        yield "its session is not there", drop
        return
    if row.status == "purged":
        yield "its session was purged, and it is still there", drop
    if row.end is None:
        yield f"the node that it goes up to, {row.node}, is not in the tree", drop
    view = read(decode_view, row.data)
    if (
        view is None
        or view.epoch.number != row.epoch
        or (row.digest and digest_of(row.data) != row.digest)
    ):
        yield "it cannot be read", drop
        return
    try:
        check_view(view, row.epoch, row.depth if row.depth is not None else _MAX_DEPTH)
    except ValueError as error:
        yield f"it cannot be used: {error}", drop
    missing = unknown_markers(reader, row.tree, view)
    if missing:
        yield f"the meaning of its marker {min(missing)} is not known", drop
    if row.end is not None:
        yield from ((what, drop) for what in _find_invented(reader, row.tree, row.end, view))


def _find_invented(reader: Reader, tree: int, end: int, view: ViewRecord) -> Iterator[str]:
    """What a view would send that nobody said. Most pieces are not looked at: what is complete has
    no words in a view.
    """
    path: Path | None = None
    for piece, (start, stop) in zip(view.epoch.pieces, view.positions, strict=False):
        whole = bool(piece.messages) and all(item.action == "kept" for item in piece.items)
        system = _has_system(piece.messages)
        if not whole and not system:
            continue
        path = path or Path(OpenTransaction(reader), tree, nodes.get(reader, tree, end))
        said = [node.message for node in path[start:stop]]
        if whole and list(piece.messages) != said:
            yield (
                f"its messages from {start} to {stop} are complete, but are not those of the nodes "
                "there"
            )
        elif system and not _has_system(said):
            yield f"it has a system message from {start} to {stop}, and no node there is one"


def _has_system(messages: Sequence[Message | None]) -> bool:
    return any(message is not None and message.role == "system" for message in messages)


class _HandleRow(Struct, frozen=True):
    tree: int
    handle: str
    by: int
    kind: str
    data: str | None
    tenant: str | None
    project: str | None
    tree_id: str | None
    session: str | None
    status: str | None


def _look_at_handle(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    row = _HandleRow(*values)
    place = _place(row.tenant, row.project, row.tree_id or row.tree, f"handle {row.handle}")
    for what, remedy in _wrong_with(_handle, reader, row):
        yield Problem(place, what, remedy)
    for what, remedy in _notes_on(_foreign, reader, row):
        yield Problem(place, what, remedy, note=True)


def _handle(reader: Reader, row: _HandleRow) -> Iterator[Wrong]:
    if row.session is None:
        yield "the session that it belongs to is not there", COPY
    if row.data is None:
        if row.kind != "text":
            yield "what it names is missing", COPY
        return
    kept = read(decoder(HandleTarget), row.data)
    if kept is None or not _fits(kept, row.kind):
        yield "what it names cannot be read", COPY
        return
    if kept.at and not _has_node(reader, row.tree, kept.at):
        yield f"it was left out at the node {kept.at}, which is not there", _AGAIN
    own = [stretch for stretch in kept.nodes if not _is_foreign(stretch)]
    bodies = _bodies_of(reader, row.tree, own)
    lost = [[name for name in stretch if name not in bodies][:1] for stretch in own]
    for name in chain.from_iterable(lost):
        yield f"it names the node {name}, which is not there", _AGAIN
    if kept.text is not None and _is_purged(reader, row, kept, bodies):
        where = f"tree = {row.tree} AND handle = '{row.handle}' AND session = {row.by}"
        yield (
            "what it names was purged, and its words are still there",
            advise_update("handles", "data = NULL", where),
        )
    elif not any(lost):
        yield from _check_minted(reader, row, kept)


def _fits(kept: HandleTarget, kind: str) -> bool:
    """Whether a handle of this kind holds what one of the kind must."""
    held = {"text": kept.text is not None, "part": kept.place is not None, "span": bool(kept.nodes)}
    return held.get(kind, False)


def _bodies_of(
    reader: Reader, tree: int, stretches: Sequence[tuple[str, str]]
) -> dict[str, str | None]:
    """The words of the nodes that are the ends of these stretches, as far as they are there; none
    where they were purged.
    """
    ends = sorted({name for stretch in stretches for name in stretch})
    if not ends:
        return {}
    return dict(
        read_rows(reader, f"SELECT n.id, n.body FROM {nodes_by('id')}", tree, to_json(ends))
    )


def _is_purged(
    reader: Reader, row: _HandleRow, kept: HandleTarget, bodies: Mapping[str, str | None]
) -> bool:
    """Whether the nodes that a text was taken from, or the session of one that came from none, were
    purged.
    """
    if row.status == "purged" and not kept.nodes:
        return True
    return None in bodies.values() or any(
        there and there[0] is None for _, there in _elsewhere(reader, row, kept)
    )


def _check_minted(reader: Reader, row: _HandleRow, kept: HandleTarget) -> Iterator[Wrong]:
    """That a handle is made from what it stands for. Of what older versions kept without its place,
    that cannot always be told.
    """
    wrong = wrong_with_handle(
        reader, row.tree, row.handle, row.kind, kept, (row.session,) if row.session else ()
    )
    if wrong and (kept.minted_at or wrong != NOT_MADE):
        yield (
            wrong,
            f"{COPY}; if it came with a file that somebody changed, delete it: {_unhandle(row)}",
        )


def _unhandle(row: _HandleRow) -> str:
    return (
        f"DELETE FROM handles WHERE tree = {row.tree} AND handle = '{row.handle}' "
        f"AND session = {row.by}"
    )


def _is_foreign(stretch: tuple[str, str]) -> bool:
    return "/" in stretch[0] or "/" in stretch[1]


def _elsewhere(
    reader: Reader, row: _HandleRow, kept: HandleTarget
) -> Iterator[tuple[str, Row | None]]:
    """The nodes of other trees that a handle stands for, and what is said there, where they are
    here.
    """
    for whole in sorted(
        {name for stretch in kept.nodes if _is_foreign(stretch) for name in stretch}
    ):
        tree, _, name = whole.rpartition("/")
        found = read_rows(reader, _THERE, row.tenant, row.project, tree, name)
        yield whole, found[0] if found else None


_THERE = """SELECT n.body FROM trees t JOIN nodes n ON n.tree = t.key
    WHERE t.tenant = $1 AND t.project = $2 AND t.id = $3 AND n.id = $4"""


def _foreign(reader: Reader, row: _HandleRow) -> Iterator[Wrong]:
    kept = None
    if row.data is not None:
        kept = read(decoder(HandleTarget), row.data)
    if kept is None:
        return
    for name, found in _elsewhere(reader, row, kept):
        if found is None:
            yield f"it names the node {name}, which is not here", _LEFT_BEHIND


def _place(tenant: str | None, project: str | None, tree: object, what: str) -> str:
    if tenant is None:
        return f"{what} of tree {tree}"
    return f"{what} of tree {tree} in {tenant}/{project}"


def advise_update(table: str, columns: str, row: str) -> str:
    return f"delete them by hand: UPDATE {table} SET {columns} WHERE {row}; then VACUUM"


def decoder(kind: type[_T]) -> Callable[[str], _T]:
    return lambda text: decode_stored(text, kind)


def read(decode: Callable[[str], _T], text: str) -> _T | None:
    try:
        return decode(text)
    except UNREADABLE:
        return None


# ── tables
# ──────────────────────────────────────────────────────────────────────────────────────────────────

_NODE = """n.seq, n.tree, n.id, n.local, n.parent, n.jump, n.depth, n.goal, n.request, n.role,
    n.author, n.body, n.generation,
    n.known, n.tokens, n.total, t.tenant, t.project, t.id, s.key, p.id, p.known, p.depth, p.jump,
    p.goal, p.request, p.total,
    j.depth, j.jump, f.depth FROM nodes n LEFT JOIN trees t ON t.key = n.tree
    LEFT JOIN sessions s ON s.key = n.session AND s.tree = n.tree
    LEFT JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent
    LEFT JOIN nodes j ON j.tree = n.tree AND j.seq = p.jump
    LEFT JOIN nodes f ON f.tree = n.tree AND f.seq = j.jump"""
_IN_ORDER = {  # in which each database keeps its nodes
    "sqlite": ((0,), f"SELECT n.seq, {_NODE} WHERE n.seq > $1 ORDER BY n.seq LIMIT $2"),
    "postgres": (
        (0, 0),
        f"SELECT n.tree, n.seq, {_NODE} WHERE (n.tree, n.seq) > ($1, $2) "
        "ORDER BY n.tree, n.seq LIMIT $3",
    ),
}
_RECORDS = """SELECT r.seq, r.tree, r.node, r.kind, r.name, r.session, r.author, r.data, t.tenant,
    t.project, t.id, n.local,
    CASE WHEN n.body IS NULL THEN 1 ELSE 0 END, s.key, s.status, n.depth FROM records r
    LEFT JOIN trees t ON t.key = r.tree
    LEFT JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
    LEFT JOIN sessions s ON s.key = r.session AND s.tree = r.tree
    WHERE r.seq > $1 ORDER BY r.seq LIMIT $2"""
_SESSIONS = """SELECT s.key, s.id, s.tenant, s.project, s.agent, s.title, s.model, s.status,
    s.origin, s.cursor, s.head,
    s.asides, s.prompt, s.completion, s.cached, s.cost, s.calibration, s.updated, s.tree, t.tenant,
    t.project, n.seq FROM sessions s
    LEFT JOIN trees t ON t.key = s.tree LEFT JOIN nodes n ON n.tree = s.tree AND n.seq = s.cursor
    WHERE s.key > $1 ORDER BY s.key LIMIT $2"""
_VIEWS = """SELECT v.session, v.epoch, v.node, v.data, s.id, s.status, s.tenant, s.project, s.tree,
    n.seq, n.depth, v.digest, v.hash
    FROM views v LEFT JOIN sessions s ON s.key = v.session
    LEFT JOIN nodes n ON n.tree = s.tree AND n.seq = v.node
    WHERE (v.session, v.epoch) > ($1, $2) ORDER BY v.session, v.epoch LIMIT $3"""
_HANDLES = """SELECT h.tree, h.handle, h.session, h.kind, h.data, t.tenant, t.project, t.id, s.id,
    s.status FROM handles h
    LEFT JOIN trees t ON t.key = h.tree
    LEFT JOIN sessions s ON s.key = h.session AND s.tree = h.tree
    WHERE (h.tree, h.handle, h.session) > ($1, $2, $3) ORDER BY h.tree, h.handle, h.session
    LIMIT $4"""


def tables(database: str) -> tuple[CheckedTable, ...]:
    """What there is to look at in a database of this name; for the rest see checkup_settled.py."""
    return (
        CheckedTable("nodes", *_IN_ORDER[database], _look_at_node),
        CheckedTable("records", (0,), _RECORDS, _look_at_record),
        CheckedTable("sessions", (0,), _SESSIONS, _look_at_session),
        CheckedTable("views", (0, -1), _VIEWS, _look_at_view),
        CheckedTable("handles", (0, "", 0), _HANDLES, _look_at_handle),
    )
