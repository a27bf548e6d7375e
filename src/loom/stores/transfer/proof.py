"""What must be true of what others say of a store: messages, records and handles. Imports and the
doctor prove it here.

A handle is made from content and place, so it is made again and compared.
"""

from collections.abc import Callable, Iterator
from math import isclose
from typing import Any

from loom.conversation.canonical import from_json, to_json
from loom.conversation.handles import mint, texts_of
from loom.conversation.message import Carried, Message, Opaque, Reasoning, ToolCall, ToolResult
from loom.conversation.metadata import KIND as METADATA
from loom.conversation.metadata import read_metadata
from loom.stores.memory.uses import FORGOTTEN, USE
from loom.stores.sessions import Usage
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import UNREADABLE, decode_stored, read_rows
from loom.stores.summaries import Summary
from loom.stores.tasks import OUTCOME, TASK
from loom.stores.tree import marks
from loom.stores.tree.path import ancestor, nodes_by, to_message
from loom.stores.view_record import ViewRecord
from loom.stores.views import HandleTarget, handles_of, names

SPEAKERS = ("user", "assistant", "tool")
# places from which older versions made handles without keeping them
_SECTIONS, _PARTS, _INNER = 200, 64, 16
NOT_MADE = "it is not the handle of what it names"


_USES: dict[str, type[int]] = {USE: int, FORGOTTEN: bool}
# of records that this version reads; others stay
KINDS = frozenset(
    {*marks.KINDS, "usage", "summary", "digest", "response", METADATA, TASK, OUTCOME, *_USES}
)


# Messages and records


def check_message(message: Message) -> None:
    """Raises ValueError where nobody could have said this."""
    for part in message.parts:
        if isinstance(part, ToolResult) and message.role != "tool":
            raise ValueError(f"a message of the role {message.role} contains the result of a call")
        if isinstance(part, ToolCall | Reasoning) and message.role != "assistant":
            raise ValueError(
                f"a message of the role {message.role} contains what only a model says"
            )
        if isinstance(part, Opaque):
            from_json(part.json)
        else:
            _check_carried(part.carried)
        for inner in part.parts if isinstance(part, ToolResult) else ():
            if isinstance(inner, Opaque):
                from_json(inner.json)
            else:
                _check_carried(inner.carried)
    _check_carried(message.carried)


def _check_carried(carried: Carried | None) -> None:
    if carried is not None and carried.fields and not isinstance(from_json(carried.fields), dict):
        raise ValueError("what it carries is not an object")


def check_record(kind: str, name: str, data: str, depth: int) -> None:
    """Raises ValueError if this cannot be a record of a node of this depth."""
    if kind in marks.KINDS:
        decode_stored(data, marks.KINDS[kind])
    elif kind == "usage":
        decode_stored(data, Usage)
    elif kind == "summary":
        check_summary(decode_stored(data, Summary), depth)
    elif kind == "digest":
        decode_stored(data, str)
    elif kind == METADATA:
        read_metadata(data)
    elif kind in _USES:
        if decode_stored(data, _USES[kind]) not in range(2**53):
            raise ValueError("it is not a count")
    elif kind in (TASK, OUTCOME):
        decode_stored(data, dict[str, Any])
    (kind + name + data).encode()  # half of a surrogate pair is held by neither database
    if "\0" in kind + name + data:
        raise ValueError("no database keeps a zero")


def check_summary(summary: Summary, depth: int) -> None:
    """Raises ValueError where it does not tell of a stretch that ends with a node of this depth."""
    if not 0 <= summary.start < summary.stop == depth + 1:
        raise ValueError(
            f"it summarizes {summary.start} to {summary.stop}, and its node is at {depth}"
        )
    if not all(summary.start <= at < summary.stop for at in summary.hidden) or summary.dropped < 0:
        raise ValueError("what was hidden from it is not in its stretch")


# What was used


def spent_on(
    reader: Reader, tree: int, session: int, is_sound: Callable[[Row], bool] | None = None
) -> Usage | None:
    """What the answers of a session summarize to; none if some were purged or cannot be read.

    With `is_sound`, which looks at the node, kind, name, author, data and time of a record, only
    sound ones count.
    """
    spent = Usage()
    last = 0
    while rows := read_rows(reader, _USAGE, tree, session, last, _PAGE_ROWS):
        last = rows[-1][0]
        for _, *record in rows:
            if is_sound and not is_sound(tuple(record)):
                continue
            try:
                one = decode_stored(record[_DATA], Usage)
            except UNREADABLE:
                return None
            spent = Usage(
                spent.prompt + one.prompt,
                spent.completion + one.completion,
                spent.cached + one.cached,
                spent.cost + one.cost,
            )
    return spent


def is_spent(usage: Usage, spent: Usage) -> bool:
    if not isinstance(usage.cost, int | float):
        return False
    sums = (usage.prompt, usage.completion, usage.cached) == (
        spent.prompt,
        spent.completion,
        spent.cached,
    )
    return sums and isclose(usage.cost, spent.cost, rel_tol=1e-9, abs_tol=1e-9)


_PAGE_ROWS = 200
_DATA = 4  # the column of what a record says, after its key
_USAGE = """SELECT seq, node, kind, name, author, data, created FROM records r
    WHERE tree = $1 AND session = $2 AND kind = 'usage' AND seq > $3
    AND EXISTS (SELECT 1 FROM nodes n WHERE n.tree = r.tree AND n.seq = r.node) ORDER BY seq
    LIMIT $4"""


# Handles


def wrong_with_handle(
    reader: Reader, tree: int, handle: str, kind: str, kept: HandleTarget, sessions: tuple[str, ...]
) -> str:
    """Why a handle does not stand for this; "" if it does, or where the nodes of another tree
    that it names are not here.
    """
    wrong = _wrong_with_stretches(reader, tree, kept)
    if wrong:
        return wrong
    held = {"text": kept.text is not None, "part": kept.place is not None, "span": bool(kept.nodes)}
    if not held.get(kind) or sum((kept.place is not None, kept.text is not None)) > (
        kind != "span"
    ):
        return "what it names cannot be read"
    if kind == "part" and len(kept.nodes) != 1:
        return "what it names cannot be read"
    text = None
    if kept.place is not None:
        message = _message(reader, tree, kept.nodes[0][0])
        # purged, damaged, or in a tree that is not here: there is nothing that it could bring back
        if message is None:
            return ""
        text = dict(texts_of(message)).get(kept.place)
        if text is None:
            return f"it names the text {kept.place!r} of a node that has no such text"
    if names(handle, kept, text) or (
        not kept.minted_at and _was_made(handle, kept, text, sessions)
    ):
        return ""
    return NOT_MADE


def unknown_markers(reader: Reader, tree: int, view: ViewRecord) -> set[str]:
    """The handles in the markers of a view of which nothing is kept in its tree."""
    marked = sorted(handles_of(view))
    sql = "SELECT handle FROM handles WHERE tree = $1 AND handle IN {each:2}"
    return set(marked) - {handle for (handle,) in reader.all(sql, tree, to_json(marked))}


def _was_made(handle: str, kept: HandleTarget, text: str | None, sessions: tuple[str, ...]) -> bool:
    """Whether a handle was made from one of the places of older versions, which did not keep
    them.
    """
    content = kept.text if kept.text is not None else text
    if content is None:
        return any(mint(place, to_json(kept.nodes)) == handle for place in _spans(kept))
    return any(mint(place, content) == handle for place in _places(kept, sessions))


def _spans(kept: HandleTarget) -> Iterator[str]:
    yield "span"
    yield from (f"{what} {at}" for what in ("branch", "between") for at in (kept.at, ""))


def _places(kept: HandleTarget, sessions: tuple[str, ...]) -> Iterator[str]:
    if kept.nodes:
        first = kept.nodes[0][0]
        yield f"{first}."
        for part in range(_PARTS):
            yield f"{first}.{part}"
            yield from (f"{first}.{part}.{inner}" for inner in range(_INNER))
    yield from (f"section {number}" for number in range(_SECTIONS))
    yield from (f"result {session}" for session in sessions)


def _wrong_with_stretches(reader: Reader, tree: int, kept: HandleTarget) -> str:
    own = [stretch for stretch in kept.nodes if "/" not in stretch[0] and "/" not in stretch[1]]
    wanted = sorted({name for stretch in own for name in stretch} | set(filter(None, [kept.at])))
    if not wanted:
        return ""
    found = {name: tuple(place) for name, *place in reader.all(_ENDS, tree, to_json(wanted))}
    for name in wanted:
        if name not in found:
            return f"it names the node {name}, which is not there"
        if kept.text is not None and found[name][2]:
            return "what it names was purged, and its words are still there"
    for first, last in own:
        (begin, top, _), (end, bottom, _) = found[first], found[last]
        if top > bottom or ancestor(reader, tree, end, top) != begin:
            return f"it names the nodes from {first} to {last}, which are on no path"
    return ""


_ENDS = (
    f"SELECT n.id, n.seq, n.depth, CASE WHEN n.body IS NULL THEN 1 ELSE 0 END FROM {nodes_by('id')}"
)


def _message(reader: Reader, tree: int, name: str) -> Message | None:
    other, _, name = name.rpartition("/")
    sql = "SELECT body FROM nodes WHERE tree = $1 AND id = $2"
    if other:
        sql = """SELECT n.body FROM trees t
            JOIN trees o ON o.tenant = t.tenant AND o.project = t.project AND o.id = $3
            JOIN nodes n ON n.tree = o.key AND n.id = $2 WHERE t.key = $1"""
    rows = read_rows(reader, sql, tree, name, *([other] if other else []))
    try:
        if rows and rows[0][0] is not None:
            return to_message(rows[0][0])
        return None
    except UNREADABLE:
        return None
