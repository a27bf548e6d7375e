"""Nodes: written once, never changed; written again, found."""

from collections.abc import Iterator, Sequence, Set
from hashlib import blake2b
from itertools import chain, islice

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.conversation.identity import VERSION, lost_key, match_key, node_id, root_key, short_ids
from loom.conversation.message import Message, check_carried
from loom.conversation.names import is_one_line, plain_name
from loom.conversation.system_messages import SYSTEM_ROLES, kind_of
from loom.errors import ChoiceError, describe, shorten
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import damage_error
from loom.stores.tree.path import COLUMNS, OF_N, TREE, Node, nodes_by, to_node


class Draft(Struct, frozen=True):
    """A message to be written, and what it takes; `generation` tells identical regenerations
    apart. `metadata` is the JSON of what is said of it. `created` is when it was said, if that is
    not now.
    """

    message: Message
    tokens: int
    generation: str = ""
    metadata: str = ""
    created: int = 0


class PlannedNode(Struct, frozen=True):
    """A node to be written whose id and place are settled; without a message, the tombstone of one
    that was purged.
    """

    id: str
    after: str
    role: str
    message: Message | None
    generation: str
    tokens: int
    session: int
    created: int
    short_id: str = ""


class TreeRow(Struct, frozen=True):
    """A tree as this store knows it: its key here, whose it is, and its id."""

    key: int
    tenant: str
    project: str
    id: str


def get(reader: Reader, tree: int, seq: int) -> Node:
    row = reader.first_row(
        f"SELECT {COLUMNS} FROM nodes WHERE tree = {TREE} AND seq = $2", tree, seq
    )
    if row is None:
        raise ChoiceError(f"the store has no node {seq} in tree {tree}; run loom doctor")
    return to_node(row)


def tree_name(reader: Reader, tree: int) -> str:
    """The id of a tree."""
    row = reader.first_row("SELECT id FROM trees WHERE key = $1", tree)
    if row is None:
        raise damage_error(f"tree {tree}")
    return str(row[0])


def get_or_none(reader: Reader, tree: int, seq: int | None) -> Node | None:
    """The node, or None if none is meant."""
    if seq is None:
        return None
    return get(reader, tree, seq)


def place(reader: Reader, tree: int, seq: int) -> Node:
    """Where a node stands, without what it says."""
    row = reader.first_row(
        f"SELECT {_BODILESS} FROM nodes n WHERE n.tree = {TREE} AND n.seq = $2", tree, seq
    )
    if row is None:
        raise damage_error(f"node {seq} of tree {tree}")
    return to_node(row)


def find(reader: Reader, tree: int, name: str) -> Node:
    """The node of this id, short id, or beginning of an id that no other has."""
    if not isinstance(name, str):
        raise ChoiceError(
            f"a node id must be a text, found {describe(name)}; give an id, or at least its "
            "first 4 characters"
        )
    letters = name.removeprefix(VERSION)
    if not is_one_line(name):  # no database could look for it
        raise ChoiceError(
            f"there is no node {shorten(name)!r} in this tree; give an id, or at least its "
            "first 4 characters"
        )
    rows = reader.all(
        f"SELECT {COLUMNS} FROM nodes WHERE tree = {TREE} AND local = $2", tree, letters
    )
    if not rows and len(letters) >= 4:
        low, high = VERSION + letters, VERSION + letters + "~"
        rows = reader.all(
            f"SELECT {COLUMNS} FROM nodes WHERE tree = {TREE} AND id >= $2 AND id < $3 "
            "ORDER BY id LIMIT 3",
            tree,
            low,
            high,
        )
    if not rows:
        raise ChoiceError(
            f"there is no node {shorten(name)!r} in this tree; give an id, or at least its "
            "first 4 characters"
        )
    if len(rows) > 1:
        told = ", ".join(row[2] for row in rows)
        raise ChoiceError(f"{shorten(name)!r} matches several nodes ({told}); give more characters")
    return to_node(rows[0])


def append(
    writer: Writer,
    tree: TreeRow,
    after: Node | None,
    drafts: Sequence[Draft],
    session: int,
    now: int,
) -> tuple[list[Node], int]:
    """Write a chain of messages after a node; the nodes, and how many of them had been there
    already.
    """
    if not drafts:
        return [], 0
    above = after.id if after else ""
    ids, places = list[str](), [above]
    for draft in drafts:
        ids.append(node_id(tree.id, places[-1], draft.message, draft.generation))
        places.append(ids[-1])
    around = writer.all(_AROUND, tree.key, to_json([ids[0], above]), ids[0], len(ids) + 1)
    nodes = _find_chain(writer, tree, ids, around)
    known = len(nodes)
    planned = [
        PlannedNode(
            ids[n],
            places[n],
            draft.message.role,
            draft.message,
            draft.generation,
            draft.tokens,
            session,
            draft.created or now,
        )
        for n, draft in enumerate(drafts[known:], known)
    ]
    return [*nodes, *insert_nodes(writer, tree, planned, None if known else around)], known


def _find_chain(
    reader: Reader, tree: TreeRow, ids: Sequence[str], around: Sequence[Row]
) -> list[Node]:
    """The beginning of a chain that is there already. None of it may have been purged."""
    rows = [row[:-1] for row in around if row[1] == ids[0]]
    # what is there is the beginning of the chain, so where the first is not, none is
    if rows and len(ids) > 1:
        rows = reader.all(_BY_ID, tree.key, to_json(ids))
    found = {row[1]: to_node(row) for row in rows}
    nodes = [found[name] for name in ids[: len(found)]]
    for node in nodes:
        if node.message is None:
            raise ChoiceError(
                f"message {node.short_id} was purged here, and a purge is final; write it into "
                "another project or session"
            )
    return nodes


_BY_ID = f"SELECT {OF_N} FROM {nodes_by('id')}"

# The node $3, if it is there, the one after which it comes, and as many jumps above as it takes to
# lay those of a chain. What was said there may be long, and is needed only of the first.
_BODILESS = OF_N.replace("n.body", "NULL")
_AROUND = f"""WITH RECURSIVE c (tree, {COLUMNS}, known, jumps) AS (
        SELECT * FROM (SELECT n.tree,
        {OF_N.replace("n.body", "CASE WHEN n.id = $3 THEN n.body END")}, n.known, 0
            FROM {nodes_by("id", most=2)} LIMIT 2) f
        UNION ALL
        SELECT n.tree, {_BODILESS}, n.known, c.jumps + 1 FROM c CROSS JOIN nodes n
        WHERE n.tree = c.tree AND n.seq = c.jump AND n.depth < c.depth AND c.jumps < $4)
    SELECT {COLUMNS}, known FROM c"""


def insert_nodes(
    writer: Writer,
    tree: TreeRow,
    planned: Sequence[PlannedNode],
    around: Sequence[Row] | None = None,
) -> list[Node]:
    """Write nodes that are not there yet, each after one that is, or that comes before it here;
    `around` was read already.
    """
    if not planned:
        return []
    if around is None:
        inside = {plan.id for plan in planned}
        around = writer.all(
            _BEHIND,
            tree.key,
            to_json(sorted({plan.after for plan in planned if plan.after not in inside})),
        )
    behind: dict[str, tuple[Node | None, str]] = {"": (None, root_key(tree.tenant, tree.project))}
    above = _Above(writer, tree.key)
    for row in around:
        node = to_node(row[:-1])
        behind[node.id] = (node, row[-1])
        above.learn(node)
    made, rows = list[Node](), list[Row]()
    for seq, short_id, plan in zip(
        writer.reserve(len(planned)), _name(writer, tree.key, planned), planned, strict=True
    ):
        last, key = behind[plan.after]
        if last is None:
            node = _make_root(seq, short_id, plan)
        else:
            node = _make_child(seq, short_id, plan, last, above.jump(last))
        above.learn(node)
        made.append(node)
        row, key = _make_row(tree.key, node, key)
        rows.append(row)
        behind[plan.id] = (node, key)
    writer.run_many(_INSERT, rows)
    writer.all(_TO_INDEX, tree.key)
    return made


# What is written is indexed later.
_TO_INDEX = """INSERT INTO search_trees (tree, upto, pending) VALUES ($1, 0, 1)
    ON CONFLICT (tree) DO UPDATE SET pending = 1 WHERE search_trees.pending = 0"""


def _make_root(seq: int, short_id: str, plan: PlannedNode) -> Node:
    asked = seq if plan.role == "user" else None
    return Node(
        seq=seq,
        id=plan.id,
        short_id=short_id,
        parent=None,
        jump=seq,
        depth=0,
        goal=asked,
        request=asked,
        role=plan.role,
        message=plan.message,
        generation=plan.generation,
        tokens=plan.tokens,
        total=plan.tokens,
        session=plan.session,
        created=plan.created,
    )


def _make_child(seq: int, short_id: str, plan: PlannedNode, last: Node, jump: int) -> Node:
    goal, request = last.goal, last.request
    if plan.role == "user":
        goal, request = goal or seq, seq
    return Node(
        seq=seq,
        id=plan.id,
        short_id=short_id,
        parent=last.seq,
        jump=jump,
        depth=last.depth + 1,
        goal=goal or None,
        request=request,
        role=plan.role,
        message=plan.message,
        generation=plan.generation,
        tokens=plan.tokens,
        total=last.total + plan.tokens,
        session=plan.session,
        created=plan.created,
    )


def _make_row(tree: int, node: Node, key: str) -> tuple[Row, str]:
    """The row of a node, and the key by which it is recognised, from that of its parent."""
    if node.message is None:
        key = lost_key(key, node.id)
        return _row(tree, node, None, "", key), key
    check_carried(node.message)
    key = match_key(key, node.message)
    return _row(tree, node, to_json(node.message), plain_name(node.message.author), key), key


_BEHIND = f"SELECT {_BODILESS}, n.known FROM {nodes_by('id')}"
_INSERT = """INSERT INTO nodes (seq, tree, id, local, parent, jump, depth, goal, request, role,
    author, body, generation, known,
    tokens, total, session, created, reminder)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"""


def _row(tree: int, node: Node, body: str | None, author: str, known: str) -> Row:
    where = (
        node.seq,
        tree,
        node.id,
        node.short_id,
        node.parent,
        node.jump,
        node.depth,
        node.goal,
        node.request,
    )
    said = (
        node.role,
        author,
        body,
        node.generation,
        known,
        node.tokens,
        node.total,
        node.session,
        node.created,
    )
    return (*where, *said, _reminder(node.message))


def _reminder(message: Message | None) -> str:
    """What tells the kinds of system messages apart, without their words."""
    if message is None or message.role not in SYSTEM_ROLES:
        return ""
    return blake2b(kind_of(message).encode(errors="surrogatepass"), digest_size=8).hexdigest()


class _Above:
    """Depth and jump of nodes further up, read when first needed: a jump is chosen from two of
    them.
    """

    def __init__(self, reader: Reader, tree: int) -> None:
        self._reader, self._tree = reader, tree
        self._seen: dict[int, tuple[int, int]] = {}

    def learn(self, node: Node) -> None:
        if node.jump is None:
            raise damage_error(f"the row of node {node.short_id}")
        self._seen[node.seq] = (node.depth, node.jump)

    def jump(self, parent: Node) -> int:
        """Where a child of this node jumps to: past two equal jumps at once, else to its parent."""
        self.learn(parent)
        assert parent.jump is not None
        near_depth, far = self._at(parent.jump)
        far_depth, _ = self._at(far)
        if parent.depth - near_depth == near_depth - far_depth:
            return far
        return parent.seq

    def _at(self, seq: int) -> tuple[int, int]:
        if seq not in self._seen:
            row = self._reader.first_row(
                f"SELECT depth, jump FROM nodes WHERE tree = {TREE} AND seq = $2", self._tree, seq
            )
            if row is None or row[0] is None or row[1] is None:
                raise damage_error(f"the path above node {seq} of tree {self._tree}")
            self._seen[seq] = (row[0], row[1])
        return self._seen[seq]


def _name(reader: Reader, tree: int, planned: Sequence[PlannedNode]) -> list[str]:
    """A short id for each: the shortest beginning of its hash that no other node of the tree is
    called by. It stays its own.

    A node that comes from elsewhere with a name keeps it where it is free.
    """
    asked, taken = set[str](), set[str]()
    while True:
        given = _free(planned, taken)
        fresh = [
            (plan, name) for plan, name in zip(planned, given, strict=True) if name not in asked
        ]
        if not fresh:
            return given
        # Most are free at once. Of many, a longer name is asked for only where the shorter one is
        # taken; of few, along with it.
        more = max(1, _FEW_NAMES // len(fresh))
        names = [longer for plan, name in fresh for longer in islice(_from(plan, name), more)]
        asked.update(names)
        sql = _FEW_TAKEN if len(names) <= _FEW_NAMES else _TAKEN
        taken.update(name for (name,) in reader.all(sql, tree, to_json(names)))


def _free(planned: Sequence[PlannedNode], taken: Set[str]) -> list[str]:
    """For each the first of its names that is neither taken nor given to one before it."""
    given = dict[str, None]()
    for plan in planned:
        names = chain((plan.short_id,) if plan.short_id else (), short_ids(plan.id))
        given[next(name for name in names if name not in taken and name not in given)] = None
    return list(given)


def _from(plan: PlannedNode, name: str) -> Iterator[str]:
    """This name of a plan, and its longer ones."""
    yield name
    yield from (longer for longer in short_ids(plan.id) if len(longer) > len(name))


_FEW_NAMES = 8
_FEW_TAKEN = f"SELECT n.local FROM {nodes_by('local', most=_FEW_NAMES)}"
_TAKEN = f"SELECT n.local FROM {nodes_by('local')}"


def recognise(
    reader: Reader, tenant: str, project: str, messages: Sequence[Message]
) -> tuple[int, Node | None, int]:
    """The stored path that says the most of the beginning of these messages: its tree, its end, and
    how many messages it says.
    """
    key, keys = root_key(tenant, project), []
    for message in messages:
        key = match_key(key, message)
        keys.append(key)
    # Whoever holds a key holds all before it, so the longest that is known is found by halving.
    best: tuple[int, Node | None, int] = (0, None, 0)
    low, high = 0, len(keys)
    while low < high:
        count = (low + high + 1) // 2
        row = reader.first_row(_KNOWN, keys[count - 1])
        if row is None:
            high = count - 1
        else:
            low, best = count, (row[0], to_node(row[1:]), count)
    return best


# The newest is the one that a client most likely continues with.
_KNOWN = (
    f"SELECT tree, {COLUMNS} FROM nodes WHERE known = $1 AND body IS NOT NULL ORDER BY seq DESC "
    "LIMIT 1"
)
