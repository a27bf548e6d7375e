"""Records that name their parents, as the nodes of a tree."""

from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.message import Message, Text
from loom.conversation.tree import NO_FLAGS, Flags, TreeNode
from loom.dialects.wire import Json, expect_text
from loom.errors import WireError

_MAX_SECONDS = 253_402_300_800  # seconds: the year 10000


class Record(Struct, frozen=True, kw_only=True):
    """What a file says at one place of a tree: no message, one or several; and which record that
    place comes after.
    """

    id: str
    place: str
    messages: tuple[Message, ...]
    parent: str = ""
    author: str = ""
    flags: Flags = NO_FLAGS
    created: int = 0


def grow(records: Iterable[Record]) -> tuple[tuple[TreeNode, ...], dict[str, str]]:
    """The nodes, parents first and branches in the order of the records; and for each record the
    node that it ends in.

    A record without a message is not a node: what is attached to it is attached to the nearest node
    above. Of several messages the last has the record's id, because that is where what comes after
    the record hangs. A parent that is not here makes a root.
    """
    known = _by_id(records)
    children: dict[str, list[Record]] = {}
    roots: list[Record] = []
    for record in known.values():
        if record.parent in known:
            children.setdefault(record.parent, []).append(record)
        else:
            roots.append(record)
    nodes: list[TreeNode] = []
    ends: dict[str, str] = {}
    taken = set(known)
    # a stack and not a call for each: a line of ten thousand nodes is as deep
    waiting = roots[::-1]
    while waiting:
        record = waiting.pop()
        made = _nodes_of(record, ends.get(record.parent, ""), taken)
        nodes += made
        if made:
            ends[record.id] = made[-1].id
        else:
            ends[record.id] = ends.get(record.parent, "")
        waiting += reversed(children.get(record.id, ()))
    if len(ends) < len(known):
        lost = next(record for record in known.values() if record.id not in ends)
        raise WireError(lost.place, "a parent that is not below it", lost.parent)
    return tuple(nodes), ends


def _by_id(records: Iterable[Record]) -> dict[str, Record]:
    known: dict[str, Record] = {}
    for record in records:
        if not record.id:
            raise WireError(record.place, "an id", record.id)
        if known.setdefault(record.id, record) is not record:
            raise WireError(record.place, "an id of its own", record.id)
    return known


def _nodes_of(record: Record, above: str, taken: set[str]) -> list[TreeNode]:
    """A node for each message of a record, one after the other."""
    flags = NO_FLAGS
    if record.flags != NO_FLAGS:
        flags = record.flags
    made: list[TreeNode] = []
    for number, message in enumerate(record.messages, 1):
        name, author = record.id, record.author
        if number < len(record.messages):
            name = piece(record.id, number, taken)
        if message.role == "tool":
            author = ""
        made.append(
            TreeNode(
                id=name,
                message=message,
                parent=above,
                author=author,
                flags=flags,
                created=record.created,
            )
        )
        above = name
    return made


def piece(id: str, number: int, taken: set[str]) -> str:
    """A name for a part of a record that no other has."""
    name = f"{id}.{number}"
    while name in taken:
        name += "."
    taken.add(name)
    return name


def lift_system(
    nodes: tuple[TreeNode, ...], but: Container[str] = ()
) -> tuple[str, tuple[TreeNode, ...]]:
    """The system text before the first word, and the other nodes. Where branches differ in it, it
    stays in its places.
    """
    leading: dict[str, TreeNode] = {}
    first_words = []  # what they are attached to
    for node in nodes:
        if node.parent and node.parent not in leading:
            continue
        if _is_system_text(node) and node.id not in but:
            leading[node.id] = node
        else:
            first_words.append(node.parent)
    above, last = ["", *leading][:-1], ["", *leading][-1]
    if [node.parent for node in leading.values()] != above or any(
        parent != last for parent in first_words
    ):
        return "", nodes
    kept = [node for node in nodes if node.id not in leading]
    text = "\n\n".join(node.message.text for node in leading.values())
    return text, tuple(_as_root(node, leading) for node in kept)


def _is_system_text(node: TreeNode) -> bool:
    is_text = all(isinstance(part, Text) for part in node.message.parts)
    return is_text and node.message.role in ("system", "developer")


def _as_root(node: TreeNode, lifted: Container[str]) -> TreeNode:
    """The node, without its parent if that was lifted."""
    if node.parent in lifted:
        return replace(node, parent="")
    return node


def moment(value: Any) -> int:
    """Milliseconds since 1970 of a time as files write it: seconds, or a date in words of ISO 8601;
    0 where it is neither.
    """
    seconds = value
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
            if not when.tzinfo:
                when = when.replace(tzinfo=UTC)
            seconds = when.timestamp()
        except (ValueError, OverflowError):
            return 0
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < _MAX_SECONDS
    ):
        return 0
    return round(seconds * 1000)


def name_of(wire: Json, key: str, place: str) -> str:
    """The id that a record has in its file; where it has none, its place, since nothing can refer
    to it.
    """
    if wire.get(key) in (None, ""):
        return place
    return expect_text(wire[key], f"{place}.{key}")


def drop_empty(fields: Mapping[Any, Any]) -> Json:
    """The fields that say something."""
    return {
        key: value
        for key, value in fields.items()
        if value is not None and value != "" and value != [] and value != {}
    }


def text_of(value: Any) -> str:
    """A text, or "" if a file has something else in its place."""
    if isinstance(value, str):
        return value
    return ""


def object_of(value: Any) -> Json:
    """An object, or an empty one if a file has something else in its place."""
    if isinstance(value, dict):
        return value
    return {}


def list_of(value: Any) -> list[Any]:
    """A list, or an empty one if a file has something else in its place."""
    if isinstance(value, list):
        return value
    return []
