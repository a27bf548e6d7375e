"""A path: the nodes from a root to a cursor, read only where one looks.

Each node points to its parent and, by `jump`, to an ancestor further up. Jumps are laid so that any
ancestor is found in about 2·log2(depth) steps (the skew-binary scheme: a jump as long as the two
before it together, where those are equally long), an append looks at two rows, and a fork costs
nothing. So the end, the beginning or the middle of a path of a million nodes is read without the
rest.

A rule for SQL that looks for nodes: the planner must not see which tree is meant. Of a tree that is
newer than its statistics it thinks that it has one node, and would look through all of it to find
that one. So a search begins with TREE rather than `$1`, and a row that leads to another brings its
tree along (`n.tree = w.tree`). Without statistics it takes a node for many, so where a walk begins
at one, `LIMIT 1` says so.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Protocol, overload

from msgspec import Struct

from loom.conversation.message import Message
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import UNREADABLE, damage_error, decode_stored

# places on a path that are looked up one by one; for more the path is walked
MAX_SINGLE_LOOKUPS = 24
CHUNK_NODES = 1000  # nodes read at once when a whole path is read
COLUMNS = (
    "seq, id, local, parent, jump, depth, goal, request, role, body, generation, tokens, total, "
    "session, created"
)
OF_N = ", ".join(f"n.{name}" for name in COLUMNS.split(", "))
TREE = "(SELECT CAST($1 AS BIGINT))"


def nodes_by(column: str, kind: str = "each", most: int = 1_000_000_000) -> str:
    """SQL: nodes `n` of the tree $1 whose column is one of the JSON array $2, which has at most so
    many.
    """
    # With `IN`, both databases may look through the whole tree. The limit keeps the planner from
    # seeing through to `$1`.
    each = f"(SELECT CAST($1 AS BIGINT) AS tree, value FROM {{{kind}:2}} x LIMIT {most})"
    return f"{each} e CROSS JOIN nodes n WHERE n.tree = e.tree AND n.{column} = e.value"


BY_SEQ = nodes_by("seq", "each_int")


class Node(Struct, frozen=True):
    """A message at a place in a tree; the message is none if it was purged. `seq`s are names
    inside this store.
    """

    seq: int
    id: str
    short_id: str
    parent: int | None
    jump: int | None
    depth: int
    goal: int | None
    request: int | None
    role: str
    message: Message | None
    generation: str
    tokens: int
    total: int
    session: int
    created: int


def to_node(row: Row) -> Node:
    if tuple(map(type, row)) not in _SOUND:
        _check_row(row)
    if row[5] < 0:
        raise damage_error(f"the row of node {row[2]}")
    values = list(row)
    try:
        if row[9] is not None:
            values[9] = to_message(row[9])
    except UNREADABLE:
        raise damage_error(f"message {row[2]}") from None
    return Node(*values)


# What the columns of a node hold; each way in which some of them may hold nothing is learnt when it
# is first seen.
_TYPES = (int, str, str, int, int, int, int, int, str, str, str, int, int, int, int)
_MAY_BE_NONE = frozenset({3, 4, 6, 7, 9})
_SOUND: set[tuple[type, ...]] = set()


def _check_row(row: Row) -> None:
    for at, (value, kind) in enumerate(zip(row, _TYPES, strict=True)):
        if type(value) is not kind and not (value is None and at in _MAY_BE_NONE):
            raise damage_error(f"the row of node {row[2]}")
    _SOUND.add(tuple(map(type, row)))


def to_message(body: str) -> Message:
    return decode_stored(body, Message)


class Readable(Protocol):
    def read(self) -> AbstractContextManager[Reader]:
        """One consistent snapshot."""


class Path:
    """The nodes of a tree from its root to `end`; a sequence that reads what is asked of it.
    Positions count from the root.
    """

    def __init__(
        self, database: Readable, tree: int, end: Node | None, fresh: Sequence[Node] = ()
    ) -> None:
        self.database = database
        self.tree = tree
        self.end = end
        self.fresh = fresh  # the newest nodes, where they are at hand

    def with_nodes(self, nodes: Sequence[Node]) -> "Path":
        """The path to the last of these nodes, which were written one after the other."""
        fresh: tuple[Node, ...] = tuple(nodes)
        if self.end is not None and nodes[0].parent == self.end.seq:
            fresh = (*self.fresh, *nodes)
        return Path(self.database, self.tree, nodes[-1], fresh[-CHUNK_NODES:])

    def until(self, length: int) -> "Path":
        """The beginning of this path, of this many nodes."""
        return Path(self.database, self.tree, self[length - 1] if length else None)

    def names_at(self, depths: Collection[int]) -> dict[int, tuple[int, str, int]]:
        """Which nodes stand at these places: short name, id, and tokens up to there. Places past
        its end are left out.
        """
        wanted = {depth for depth in depths if 0 <= depth < len(self)}
        if not wanted or self.end is None:
            return {}
        if len(wanted) <= MAX_SINGLE_LOOKUPS:
            read = [self[depth] for depth in wanted]
            return {node.depth: (node.seq, node.id, node.total) for node in read}
        with self.database.read() as reader:
            walked = reader.all(_WALK, self.tree, self.end.seq, min(wanted))
        return {depth: (seq, name, total) for seq, name, depth, total in walked if depth in wanted}

    @contextmanager
    def snapshot(self) -> "Iterator[Path]":
        """The same path for several questions: they are answered in one transaction, and nothing is
        read twice.
        """
        with ExitStack() as stack:
            yield _Snapshot(_OnDemand(self.database, stack), self.tree, self.end, self.fresh)

    def __len__(self) -> int:
        if self.end is None:
            return 0
        return self.end.depth + 1

    def __iter__(self) -> Iterator[Node]:
        for start in range(0, len(self), CHUNK_NODES):
            yield from self[start : start + CHUNK_NODES]

    @overload
    def __getitem__(self, where: int) -> Node: ...
    @overload
    def __getitem__(self, where: slice) -> list[Node]: ...
    def __getitem__(self, where: int | slice) -> Node | list[Node]:
        if isinstance(where, slice):
            start, stop, step = where.indices(len(self))
            if step > 0:
                return self.read(start, stop)[::step]
            return self.read(stop + 1, start + 1)[::-1][::-step]
        position = where
        if where < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"the path has {len(self)} nodes, there is none at {where}")
        return self.read(position, position + 1)[0]

    def read(self, start: int, stop: int) -> list[Node]:
        """The nodes at positions `start` up to `stop`."""
        if self.end is None or start >= stop:
            return []
        with self.database.read() as reader:
            found = reader.all(_STRETCH, self.tree, self.end.seq, stop - 1, start)
        if len(found) != stop - start:
            raise damage_error(f"the path to node {self.end.short_id}")
        return _in_order(found)

    def tail(self, tokens: int, start: int = 0) -> list[Node]:
        """The newest nodes with this many tokens or more, none before `start`; they do not begin
        with a tool's result.
        """
        if self.end is None:
            return []
        with self.database.read() as reader:
            return _in_order(
                reader.all(_TAIL, self.tree, self.end.seq, self.end.total - tokens, start)
            )

    def since(self, node: Node) -> list[Node] | None:
        """What has come after this node; none if it is not on the path."""
        if self.end is None or node.depth > self.end.depth:
            return None
        if self.fresh and node.depth >= self.fresh[0].depth - 1:
            behind = [new for new in self.fresh if new.depth > node.depth]
            last = behind[0].parent if behind else self.end.seq
            if node.seq != last:
                return None
            return behind
        with self.database.read() as reader:
            found = _in_order(reader.all(_SINCE, self.tree, self.end.seq, node.depth))
        if found[0].seq != node.seq:
            return None
        return found[1:]

    def holds(self, seq: int, depth: int) -> bool:
        """Whether the node of this name and depth stands on the path."""
        if self.end is None or not 0 <= depth <= self.end.depth:
            return False
        if depth == self.end.depth:
            return seq == self.end.seq
        with self.database.read() as reader:
            return ancestor(reader, self.tree, self.end.seq, depth) == seq

    def says(self, name: str) -> bool:
        """Whether the node of this id stands on the path."""
        with self.database.read() as reader:
            return is_on_path(reader, self.tree, self.end, name)

    def reminders(self, kinds: int, most: int) -> list[Node]:
        """The newest system message of each kind on the path, of at most so many kinds.

        For each kind the newest of the tree are looked at, `most` of them at most.
        """
        if self.end is None:
            return []
        with self.database.read() as reader:
            found = [kind for (kind,) in reader.all(_REMINDER_KINDS, self.tree, kinds)]
            rows = [reader.all(_REMINDERS, self.tree, self.end.depth, kind, most) for kind in found]
        nodes = [
            next((node for node in map(to_node, each) if self.holds(node.seq, node.depth)), None)
            for each in rows
        ]
        return [node for node in nodes if node is not None]

    def system_nodes(self) -> list[Node]:
        """All system messages on the path."""
        if self.end is None:
            return []
        with self.database.read() as reader:
            found = reader.all(_SYSTEM, self.tree, self.end.depth)
        return [node for node in map(to_node, found) if self.holds(node.seq, node.depth)]

    def requests(
        self, tokens: int, largest: int, most: int, below: Node | None = None
    ) -> tuple[list[Node], list[Node]]:
        """The newest messages of the user, up to so many tokens and so many messages; and the nodes
        next to them on the path, each of which ends a stretch between two of them.

        A message counts as at most `largest` tokens. The last one may go beyond the limit. Only
        what is at `below` or above it is looked at. Nothing else of the path is read.
        """
        last = below or self.end
        if last is None or tokens <= 0 or most <= 0:
            return [], []
        with self.database.read() as reader:
            rows = reader.all(_REQUESTS, self.tree, last.seq, tokens, largest, most)
        found = [(to_node(row[:-2]), row[-2] < tokens and row[-1] < most) for row in rows]
        asked = [node for node, counts in found if counts and node.seq == node.request]
        names = {node.seq for node in asked}
        return asked, [node for node, _ in found if node.seq not in names]

    def request_after(self, depth: int) -> Node | None:
        """The first message of the user after this place; None if there is none."""
        if self.end is None or self.end.request is None:
            return None
        with self.database.read() as reader:
            row = reader.first_row(_REQUEST_AFTER, self.tree, self.end.request, depth)
        if row is None or row[1] <= depth:
            return None
        return self.nodes([row[0]])[0]

    def nodes(self, seqs: list[int]) -> list[Node]:
        """Nodes by their names, whatever path they are on, in the order of their depth."""
        with self.database.read() as reader:
            found = _in_order(reader.all(f"SELECT {OF_N} FROM {BY_SEQ}", self.tree, str(seqs)))
        if {node.seq for node in found} != set(seqs):
            raise damage_error(f"a node that is named in tree {self.tree}")
        return found


class _Snapshot(Path):
    def __init__(
        self, database: Readable, tree: int, end: Node | None, fresh: Sequence[Node]
    ) -> None:
        super().__init__(database, tree, end, fresh)
        self._known = {end.depth: end} if end else {}

    def read(self, start: int, stop: int) -> list[Node]:
        missing = [position for position in range(start, stop) if position not in self._known]
        if missing:
            self._learn(super().read(missing[0], missing[-1] + 1))
        return [self._known[position] for position in range(start, stop)]

    def tail(self, tokens: int, start: int = 0) -> list[Node]:
        return self._learn(super().tail(tokens, start))

    def requests(
        self, tokens: int, largest: int, most: int, below: Node | None = None
    ) -> tuple[list[Node], list[Node]]:
        asked, edges = super().requests(tokens, largest, most, below)
        return self._learn(asked), self._learn(edges)

    def _learn(self, found: list[Node]) -> list[Node]:
        self._known.update((node.depth, node) for node in found)
        return found


class _OnDemand:
    """One transaction, begun when something is asked."""

    def __init__(self, database: Readable, stack: ExitStack) -> None:
        self._database, self._stack = database, stack
        self._reader: Reader | None = None

    def read(self) -> AbstractContextManager[Reader]:
        if self._reader is None:
            self._reader = self._stack.enter_context(self._database.read())
        return nullcontext(self._reader)


class OpenTransaction:
    """A transaction that is open already."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self) -> AbstractContextManager[Reader]:
        return nullcontext(self._reader)


def _in_order(rows: list[Row]) -> list[Node]:
    return sorted(map(to_node, rows), key=lambda node: node.depth)


def _upward(first: str, going: str) -> str:
    """SQL: the nodes from the first one up to where `going`, about the node `w`, no longer
    holds.
    """
    # Upwards the depth gets smaller at every step; where it does not, the store is damaged, and the
    # walk has an end all the same.
    return f"""w (tree, {COLUMNS}) AS (
            SELECT * FROM ({first} LIMIT 1) f
            UNION ALL
            SELECT n.tree, {OF_N} FROM w CROSS JOIN nodes n
            WHERE n.tree = w.tree AND n.seq = w.parent AND n.depth < w.depth AND {going})
        SELECT {COLUMNS} FROM w"""


# From the node $2 to its ancestor at the depth $3: each row names the next, by its jump where that
# does not lead too far.
_NEXT = """CASE
    WHEN (SELECT j.depth FROM nodes j WHERE j.tree = n.tree AND j.seq = n.jump LIMIT 1) >= $3
    THEN n.jump ELSE n.parent END"""
_UP = f"""a (tree, seq, depth, next) AS (
            SELECT * FROM (SELECT n.tree, n.seq, n.depth, {_NEXT} FROM nodes n
            WHERE n.tree = {TREE} AND n.seq = $2 LIMIT 1) f
            UNION ALL
            SELECT n.tree, n.seq, n.depth, {_NEXT} FROM a CROSS JOIN nodes n
            WHERE n.tree = a.tree AND n.seq = a.next AND n.depth < a.depth AND a.depth > $3)"""
_NODE = f"SELECT n.tree, {OF_N} FROM nodes n WHERE n.tree = {TREE} AND n.seq = $2"
_FOUND = "(SELECT tree, seq FROM a WHERE depth = $3 LIMIT 1)"
_AT = (
    f"SELECT n.tree, {OF_N} FROM {_FOUND} a CROSS JOIN nodes n "
    "WHERE n.tree = a.tree AND n.seq = a.seq"
)
_STRETCH = f"WITH RECURSIVE {_UP}, {_upward(_AT, 'w.depth > $4')}"
_SINCE = f"WITH RECURSIVE {_upward(_NODE, 'w.depth > $3')}"
_FITS = "w.depth > $4 AND (w.total - w.tokens > $3 OR w.role = 'tool')"
_TAIL = f"WITH RECURSIVE {_upward(_NODE, _FITS)}"
# From the node $2 up to older messages of the user, with the nodes next to each. `r` is the newest
# of them at or above the node `n`. By jumps, where those do not lead past it, the walk goes from
# one message to the first node after the next. `used` and `taken` count the messages below a node.
_TO_REQUEST = """CASE WHEN r.depth IS NULL THEN NULL WHEN n.depth <= r.depth + 1 THEN n.parent
    WHEN (SELECT j.depth FROM nodes j WHERE j.tree = n.tree AND j.seq = n.jump LIMIT 1) > r.depth
    THEN n.jump ELSE n.parent END"""
_WITH_REQUEST = "LEFT JOIN nodes r ON r.tree = n.tree AND r.seq = n.request"
_IS_EDGE = "w.seq = w.request OR n.depth <= r.depth + 1"
_EDGE_BODY = OF_N.replace("n.body", f"CASE WHEN {_IS_EDGE} THEN n.body END")
_REQUESTS = f"""WITH RECURSIVE w (tree, {COLUMNS}, next, edge, used, taken) AS (
        SELECT * FROM (SELECT n.tree, {OF_N}, {_TO_REQUEST}, 1, CAST(0 AS BIGINT), CAST(0 AS BIGINT)
            FROM nodes n {_WITH_REQUEST} WHERE n.tree = {TREE} AND n.seq = $2 LIMIT 1) f
        UNION ALL
        SELECT n.tree, {_EDGE_BODY}, {_TO_REQUEST}, CASE WHEN {_IS_EDGE} THEN 1 ELSE 0 END,
            w.used + CASE WHEN w.seq <> w.request THEN 0
                WHEN w.tokens > $4 THEN $4 ELSE w.tokens END,
            w.taken + CASE WHEN w.seq = w.request THEN 1 ELSE 0 END
        FROM w CROSS JOIN nodes n {_WITH_REQUEST}
        WHERE n.tree = w.tree AND n.seq = w.next AND n.depth < w.depth
            AND w.used < $3 AND w.taken < $5)
    SELECT {COLUMNS}, used, taken FROM w WHERE edge = 1"""


def _depth_of_request(of: str) -> str:
    """SQL: the depth of the newest message of the user at or above a node that `n` names."""
    return f"""(SELECT r.depth FROM nodes j CROSS JOIN nodes r
        WHERE j.tree = n.tree AND j.seq = n.{of} AND r.tree = j.tree AND r.seq = j.request
        LIMIT 1)"""


# From the node $2 up, as long as there is a message of the user after the depth $3 at or above it.
_UP_TO_FIRST = f"""CASE WHEN {_depth_of_request("jump")} > $3 THEN n.jump
    WHEN {_depth_of_request("parent")} > $3 THEN n.parent END"""
_REQUEST_AFTER = f"""WITH RECURSIVE a (tree, seq, depth, next) AS (
        SELECT * FROM (SELECT n.tree, n.seq, n.depth, {_UP_TO_FIRST} FROM nodes n
            WHERE n.tree = {TREE} AND n.seq = $2 LIMIT 1) f
        UNION ALL
        SELECT n.tree, n.seq, n.depth, {_UP_TO_FIRST} FROM a CROSS JOIN nodes n
        WHERE n.tree = a.tree AND n.seq = a.next AND n.depth < a.depth)
    SELECT seq, depth FROM a ORDER BY depth LIMIT 1"""
_SYSTEM = (
    f"""SELECT {OF_N} FROM nodes n WHERE n.tree = {TREE} AND n.reminder <> '' AND n.depth <= $2"""
)
_REMINDERS = f"{_SYSTEM} AND n.reminder = $3 ORDER BY n.depth DESC LIMIT $4"
# Each kind leads to the next, so that not all nodes of a kind are looked at.
_REMINDER_KINDS = f"""WITH RECURSIVE k (kind) AS (
        SELECT min(n.reminder) FROM nodes n WHERE n.tree = {TREE} AND n.reminder <> ''
        UNION ALL
        SELECT (SELECT min(n.reminder) FROM nodes n
        WHERE n.tree = {TREE} AND n.reminder <> '' AND n.reminder > k.kind)
        FROM k WHERE k.kind IS NOT NULL)
    SELECT kind FROM k WHERE kind IS NOT NULL LIMIT $2"""
_ANCESTOR = f"WITH RECURSIVE {_UP} SELECT seq FROM a WHERE depth = $3"


def ancestor(reader: Reader, tree: int, seq: int, depth: int) -> int:
    """The ancestor at this depth; the node itself where it is there."""
    row = reader.first_row(_ANCESTOR, tree, seq, depth)
    if row is None:
        raise damage_error(f"the path to node {seq} of tree {tree}")
    return int(row[0])


def is_on_path(reader: Reader, tree: int, end: Node | None, name: str) -> bool:
    """Whether the node of this id is on the path to `end`."""
    found = reader.first_row(
        f"SELECT seq, depth FROM nodes WHERE tree = {TREE} AND id = $2", tree, name
    )
    if found is None or end is None or found[1] > end.depth:
        return False
    return ancestor(reader, tree, end.seq, found[1]) == int(found[0])


def meeting(reader: Reader, tree: int, one: Node, other: Node) -> int:
    """The depth of the last node that two paths share; -1 where they share none."""
    low, high = -1, min(one.depth, other.depth)
    while low < high:
        middle = (low + high + 1) // 2
        if ancestor(reader, tree, one.seq, middle) == ancestor(reader, tree, other.seq, middle):
            low = middle
        else:
            high = middle - 1
    return low


_WALK = f"""WITH RECURSIVE w (tree, seq, id, parent, depth, total) AS (
        SELECT * FROM (SELECT tree, seq, id, parent, depth, total FROM nodes
        WHERE tree = {TREE} AND seq = $2 LIMIT 1) f
        UNION ALL
        SELECT n.tree, n.seq, n.id, n.parent, n.depth, n.total FROM w CROSS JOIN nodes n
        WHERE n.tree = w.tree AND n.seq = w.parent AND n.depth < w.depth AND w.depth > $3)
    SELECT seq, id, depth, total FROM w"""
