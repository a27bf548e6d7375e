"""What is said about nodes without changing them: how they hang in their tree, what they were made
from, flags and links.

Each is a record with who said it and when. An edge and its sources are written with their node and
stay. Flags and links are a log: what was said last holds, and what was said before can still be
read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.checked import CheckedStruct, check_fields
from loom.conversation.tree import Edge, Flags, Link, Reference
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import read_stored

Flag = Literal["bookmarked", "pruned", "excluded", "pinned", "included"]
_EDGES, _FLAGS = frozenset(get_args(Edge)), frozenset(get_args(Flag))


class EdgeMark(Struct, frozen=True, omit_defaults=True):
    """How a node hangs where it does not just continue; what it was edited from, and of a version
    of a version the node itself.
    """

    edge: Edge = "continuation"
    edited_from: str = ""
    first: str = ""

    def __post_init__(self) -> None:
        if (
            type(self.edge) is not str
            or self.edge not in _EDGES
            or not type(self.edited_from) is type(self.first) is str
        ):
            check_fields(self)


class FlagMark(Struct, frozen=True, omit_defaults=True):
    """A flag that was set or taken back."""

    flag: Flag
    on: bool
    label: str = ""

    def __post_init__(self) -> None:
        if (
            type(self.flag) is not str
            or self.flag not in _FLAGS
            or type(self.on) is not bool
            or type(self.label) is not str
        ):
            check_fields(self)

    @classmethod
    def of_flags(cls, flags: Flags) -> "list[FlagMark]":
        """The flags of a tree that comes from elsewhere, as they are written here."""
        return [
            cls(flag, getattr(flags, flag), flags.label if flag == "bookmarked" else "")
            for flag in get_args(Flag)
            if getattr(flags, flag) or (flag == "bookmarked" and flags.label)
        ]


class LinkMark(Struct, frozen=True, omit_defaults=True):
    """A link that was made or taken back."""

    target: str
    tree: str = ""
    label: str = ""
    on: bool = True

    def __post_init__(self) -> None:
        if (
            not type(self.target) is type(self.tree) is type(self.label) is str
            or type(self.on) is not bool
        ):
            check_fields(self)


class Origin(CheckedStruct, frozen=True, omit_defaults=True):
    """What a node was called where it came from, by whom it was said, and its generation there
    where it is another here.
    """

    id: str = ""
    author: str = ""
    generation: str | None = None


MarkData = EdgeMark | FlagMark | LinkMark | Origin | tuple[Reference, ...]
# What each kind of record holds. The doctor reads them too.
KINDS: dict[str, Any] = {
    "edge": EdgeMark,
    "sources": tuple[Reference, ...],
    "flag": FlagMark,
    "link": LinkMark,
    "origin": Origin,
}


_DECODERS = {kind: msgspec.json.Decoder(held) for kind, held in KINDS.items()}


class Mark(Struct, frozen=True):
    """A record of a node."""

    node: int
    kind: str
    data: Any
    author: str
    created: int


class Marks(Struct, frozen=True):
    """All that is said of one node."""

    edge_mark: EdgeMark = EdgeMark()
    sources: tuple[Reference, ...] = ()
    flags: Flags = Flags()
    links: tuple[Link, ...] = ()
    origin: Origin = Origin()


def read_mark(row: Row) -> Mark:
    node, kind, data, author, created = row
    return Mark(node, kind, read_data(kind, data), author, created)


def read_data(kind: str, data: str) -> Any:
    """What a record of this kind holds."""
    try:
        return _DECODERS[kind].decode(data)
    except (msgspec.DecodeError, UnicodeError):  # halves of surrogate pairs
        return read_stored(data, KINDS[kind], f"the {kind} of a node")


def marks_of(
    reader: Reader, tree: int, nodes: Iterable[int], until: int | None = None
) -> list[Mark]:
    """What is said of these nodes, in the order in which it was said; what was said later than
    `until` is left out.
    """
    found = reader.all(
        f"{_MARKS} AND r.node IN {{each_int:2}} ORDER BY r.seq", tree, str(list(nodes))
    )
    return [mark for mark in map(read_mark, found) if until is None or mark.created <= until]


def marks_in(reader: Reader, tree: int) -> list[Mark]:
    """What is said of any node of a tree."""
    return list(map(read_mark, reader.all(f"{_MARKS} ORDER BY r.seq", tree)))


_MARKS = f"""SELECT r.node, r.kind, r.data, r.author, r.created FROM records r
    WHERE r.tree = $1 AND r.kind IN ({", ".join(f"'{kind}'" for kind in KINDS)})
    AND r.data IS NOT NULL"""


def sum_marks(marks: Iterable[Mark]) -> dict[int, Marks]:
    """What holds now, by node."""
    found: dict[int, Marks] = {}
    for mark in marks:
        found[mark.node] = _with_mark(found.get(mark.node, _NO_MARKS), mark.data)
    return found


def _with_mark(before: Marks, data: MarkData) -> Marks:
    match data:
        case EdgeMark():
            return replace(before, edge_mark=data)
        case FlagMark(flag, on, label):
            flags = replace(before.flags, **{flag: on})
            if flag == "bookmarked":
                flags = replace(flags, label=label)
            return replace(before, flags=flags)
        case LinkMark():
            return replace(before, links=_with_link(before.links, data))
        case Origin():
            return replace(before, origin=data)
        case _:
            return replace(before, sources=data)


def _with_link(links: tuple[Link, ...], mark: LinkMark) -> tuple[Link, ...]:
    """The links with one that was made, or without those that were taken back: without a label, all
    to the same node.
    """
    link = Link("", mark.target, mark.tree, mark.label)
    if mark.on:
        return (*(each for each in links if each != link), link)
    if mark.label:
        return tuple(each for each in links if each != link)
    return tuple(each for each in links if (each.target, each.tree) != (mark.target, mark.tree))


_NO_MARKS = Marks()


def write_marks(
    writer: Writer,
    tree: int,
    session: int,
    author: str,
    now: int,
    marks: Sequence[tuple[int, MarkData]],
) -> None:
    """Write down what is said of nodes. What is written with a node is written once; a log
    grows.
    """
    logged = [node for node, data in marks if isinstance(data, FlagMark | LinkMark)]
    counted = {
        (node, kind): count
        for node, kind, count in writer.all(
            """SELECT node, kind, count(*) FROM records
                WHERE tree = $1 AND kind IN ('flag', 'link') AND node IN {each_int:2}
                GROUP BY node, kind""",
            tree,
            str(logged),
        )
    }
    rows: list[Row] = []
    for node, data in marks:
        kind, name = kind_of(data), ""
        if kind in ("flag", "link"):
            number = counted.get((node, kind), 0)
            counted[node, kind] = number + 1
            name = f"{number:06}"
        rows.append((tree, node, kind, name, session, author, to_json(data), now))
    writer.run_many(
        """INSERT INTO records (tree, node, kind, name, session, author, data, created)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (tree, node, kind, name) DO NOTHING""",
        rows,
    )


def kind_of(data: MarkData) -> str:
    """As what kind of record a thing is written down."""
    return next((kind for kind, held in KINDS.items() if held is type(data)), "sources")
