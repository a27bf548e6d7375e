"""Trees as they are stored: found by id, described, and looked at as a whole without reading what
is said in them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.names import check_name
from loom.conversation.outline import OutlineNode
from loom.conversation.tree import TreeHead
from loom.errors import ChoiceError, shorten
from loom.stores.sessions import Scope
from loom.stores.sql.database import Database, Reader, Row
from loom.stores.sql.stored import damage_error, read_each, read_head, read_rows, read_stored
from loom.stores.tree import nodes
from loom.stores.tree.marks import EdgeMark, Mark, Marks, marks_in, marks_of, sum_marks
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.overlay import kept_back, marked_in
from loom.stores.tree.path import (
    BY_SEQ,
    OF_N,
    TREE,
    Node,
    OpenTransaction,
    Path,
    meeting,
    nodes_by,
    to_node,
)

_COLUMNS = "t.key, t.tenant, t.project, t.id, t.title, t.data, t.created"
_SCOPED = """t.tenant = $1 AND t.project = $2
    AND ($3 = '' OR EXISTS (SELECT 1 FROM sessions s
    WHERE s.tree = t.key AND s.agent IN ('', $3)))"""


class StoredTree(Struct, frozen=True):
    """A tree's row, its title and what it says of itself."""

    row: TreeRow
    title: str
    head: TreeHead
    created: int


class ListedTree(Struct, frozen=True):
    """A tree in a list: how many nodes it has, and when a session on it was last used."""

    tree: StoredTree
    nodes: int
    updated: int


class Kin(Struct, frozen=True):
    """How many are attached to a node: continuations and annotations."""

    continuations: int = 0
    annotations: int = 0


@lru_cache(maxsize=256)
def _head(text: str, tree: str) -> TreeHead:
    return read_head(text, tree)


def _to_tree(row: Row) -> StoredTree:
    return StoredTree(TreeRow(*row[:4]), row[4], _head(row[5], row[3]), row[6])


def tree_of(reader: Reader, tree: TreeRow) -> StoredTree:
    row = reader.first_row(f"SELECT {_COLUMNS} FROM trees t WHERE t.key = $1", tree.key)
    if row is None:
        raise damage_error(f"tree {tree.id}")
    return _to_tree(row)


class Trees:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, scope: Scope, name: str) -> StoredTree:
        """The tree of this id, or of the one that begins so."""
        check_name("tree's id", name)
        scoped = (scope.tenant, scope.project, scope.agent)
        with self._database.read() as reader:
            rows = reader.all(
                f"SELECT {_COLUMNS} FROM trees t WHERE {_SCOPED} AND t.id = $4", *scoped, name
            )
            if not rows and len(name) >= 4:
                begins = (
                    f"SELECT {_COLUMNS} FROM trees t WHERE {_SCOPED} AND t.id >= $4 AND t.id < $5 "
                    "ORDER BY t.id LIMIT 3"
                )
                rows = reader.all(begins, *scoped, name, name + "\uffff")
        if not rows:
            raise ChoiceError(
                f"there is no tree {shorten(name)!r} in project {scope.project!r}; loom tree "
                "list shows them"
            )
        if len(rows) > 1:
            matching = ", ".join(row[3] for row in rows)
            raise ChoiceError(
                f"{shorten(name)!r} matches several trees ({matching}); give more characters"
            )
        return _to_tree(rows[0])

    def find_titled(self, scope: Scope, title: str) -> list[StoredTree]:
        """The trees of this title or this id, the newest first."""
        with self._database.read() as reader:
            found = reader.all(
                f"SELECT {_COLUMNS} FROM trees t WHERE {_SCOPED} AND (t.title = $4 "
                "OR t.id = $4) ORDER BY t.key DESC",
                scope.tenant,
                scope.project,
                scope.agent,
                title,
            )
            return list(map(_to_tree, found))

    def list_all(self, scope: Scope, limit: int = 0) -> list[ListedTree]:
        """The trees in scope that hold anything or were made as trees, the one used last first."""
        with self._database.read() as reader:
            found = read_rows(
                reader,
                f"""SELECT {_COLUMNS}, (SELECT count(*) FROM nodes n WHERE n.tree = t.key),
                    (SELECT max(s.updated) FROM sessions s WHERE s.tree = t.key) AS used
                    FROM trees t
                    WHERE {_SCOPED} AND EXISTS (SELECT 1 FROM sessions s
                    WHERE s.tree = t.key AND s.status <> 'purged')
                    ORDER BY used DESC, t.key DESC LIMIT $4""",
                scope.tenant,
                scope.project,
                scope.agent,
                limit or 1_000_000_000,
            )
            return read_each(
                found,
                lambda row: ListedTree(_to_tree(row), row[7], row[8]),
                lambda row: f"tree {row[3]}",
            )

    def head(self, tree: TreeRow) -> StoredTree:
        """A tree as it is now."""
        with self._database.read() as reader:
            return tree_of(reader, tree)

    def change(
        self, tree: TreeRow, title: str | None = None, head: TreeHead | None = None
    ) -> StoredTree:
        """Give a tree another title or head. Its mode stays what it was made with."""
        with self._database.write() as writer:
            writer.first_row("SELECT key FROM trees WHERE key = $1 {lock}", tree.key)
            living = (
                "SELECT count(*), sum(CASE WHEN status = 'purged' THEN 0 ELSE 1 END) FROM sessions "
                "WHERE tree = $1"
            )
            held = writer.first_row(living, tree.key)
            if held and held[0] and not held[1]:
                raise ChoiceError(
                    f"all sessions of tree {tree.id} were purged, so it cannot be changed; "
                    "create another tree"
                )
            before = tree_of(writer, tree)
            if title is not None:
                check_name("title", title)
                head = replace(head or before.head, full_title="")
            if head is not None and head.mode != before.head.mode:
                raise ChoiceError(
                    f"tree {tree.id} is in {before.head.mode} mode, which cannot be changed; "
                    "create another tree"
                )
            writer.all(
                "UPDATE trees SET title = coalesce($2, title), data = coalesce($3, data) "
                "WHERE key = $1",
                tree.key,
                title,
                None if head is None else to_json(head),
            )
            return tree_of(writer, tree)

    # Looking at a tree

    def node(self, tree: int, name: str) -> Node:
        """A node by its id, or a beginning of it."""
        with self._database.read() as reader:
            return nodes.find(reader, tree, name)

    def path(self, tree: int, end: Node | None) -> Path:
        return Path(self._database, tree, end)

    def read(self, tree: int, seqs: Iterable[int]) -> dict[int, Node]:
        """Nodes with what they say."""
        with self._database.read() as reader:
            return {
                row[0]: to_node(row)
                for row in reader.all(f"SELECT {OF_N} FROM {BY_SEQ}", tree, str(list(seqs)))
            }

    def marks(self, tree: int, seqs: Iterable[int], until: int | None = None) -> dict[int, Marks]:
        """What holds of these nodes."""
        with self._database.read() as reader:
            return sum_marks(marks_of(reader, tree, seqs, until))

    def history(self, tree: int, node: Node) -> list[Mark]:
        """What was said of a node, by whom and when."""
        with self._database.read() as reader:
            return marks_of(reader, tree, [node.seq])

    def children(self, tree: int, node: Node | None) -> list[Node]:
        """What is attached to a node, the oldest first; on none, the roots."""
        where, seq = "n.parent IS NULL AND $2 = 0", 0
        if node:
            where, seq = "n.parent = $2", node.seq
        with self._database.read() as reader:
            rows = reader.all(
                f"SELECT {OF_N} FROM nodes n WHERE n.tree = {TREE} AND {where} ORDER BY n.seq",
                tree,
                seq,
            )
            return list(map(to_node, rows))

    def kin(self, tree: int, seqs: Iterable[int], until: int) -> dict[int, Kin]:
        """How many are attached to each of these nodes, of those that were there then."""
        with self._database.read() as reader:
            found = reader.all(
                """SELECT n.parent, coalesce(r.data, ''), count(*) FROM nodes n
                    LEFT JOIN records r ON r.tree = n.tree AND r.node = n.seq AND r.kind = 'edge'
                    WHERE n.tree = $1 AND n.parent IN {each_int:2} AND n.created <= $3
                    GROUP BY n.parent, coalesce(r.data, '')""",
                tree,
                str(list(seqs)),
                until,
            )
        counted: dict[int, dict[str, int]] = {}
        for parent, data, count in found:
            edge = "continuation"
            if data:
                edge = read_stored(data, EdgeMark, "how a node hangs in its tree").edge
            of = counted.setdefault(parent, {})
            of[edge] = of.get(edge, 0) + count
        return {
            seq: Kin(of.get("continuation", 0), of.get("annotation", 0))
            for seq, of in counted.items()
        }

    def twigs(self, tree: int) -> list[OutlineNode]:
        """Every node without what it says, parents before children."""
        with self._database.read() as reader:
            rows = reader.all(
                """SELECT n.seq, n.parent, n.local, n.role, n.author, s.agent FROM nodes n
                    LEFT JOIN sessions s ON s.key = n.session
                    WHERE n.tree = $1 ORDER BY n.seq""",
                tree,
            )
            marks = sum_marks(marks_in(reader, tree))
            edited = {
                seq: mark.edge_mark.edited_from
                for seq, mark in marks.items()
                if mark.edge_mark.edge == "version"
            }
            originals = to_json(sorted(set(edited.values())))
            seqs: dict[str, int] = {}
            if edited:
                seqs = dict(
                    reader.all(f"SELECT n.id, n.seq FROM {nodes_by('id')}", tree, originals)
                )
        pruned: set[int] = set()
        made: list[OutlineNode] = []
        usual = Marks()
        for seq, parent, short_id, role, author, agent in rows:
            mark = marks.get(seq, usual)
            original = None
            if seq in edited:
                original = seqs.get(edited[seq], parent)
            if (
                mark.flags.pruned
                or parent in pruned
                or (original in pruned and original not in edited)
            ):
                pruned.add(seq)
            if original is not None:
                parent = original  # drawn next to what it stands for
            made.append(
                OutlineNode(
                    key=seq,
                    parent=parent,
                    short_id=short_id,
                    role=role,
                    author=mark.origin.author or author or agent or "",
                    edge=mark.edge_mark.edge,
                    flags=mark.flags,
                    pruned=seq in pruned,
                )
            )
        return made

    def counts(self, tree: int) -> tuple[int, int]:
        """How many nodes a tree has, and how many branches: nodes that are no remarks, and after
        which nothing continues.
        """
        with self._database.read() as reader:
            row = reader.first_row(
                "SELECT count(*), count(DISTINCT parent) FROM nodes WHERE tree = $1", tree
            )
            beside = reader.all(
                """SELECT n.seq, n.parent FROM records r
                    JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
                    WHERE r.tree = $1 AND r.kind = 'edge' AND r.data LIKE '%"edge":%'""",
                tree,
            )
            above = [parent for _, parent in beside if parent is not None]
            hang = (
                "SELECT parent, count(*) FROM nodes WHERE tree = $1 AND parent IN {each_int:2} "
                "GROUP BY parent"
            )
            hanging: dict[int, int] = dict(
                reader.all(hang, tree, str([*above, *(seq for seq, _ in beside)]))
            )
        count, parents = row or (0, 0)
        # Who has only remarks after it has nothing that continues; and a remark is no branch,
        # whatever is said after it.
        silent = sum(hanging[parent] == count for parent, count in Counter(above).items())
        answered = sum(seq in hanging for seq, _ in beside)
        return count, count - len(beside) - (parents - silent - answered)

    def count_shared(self, tree: int, one: Node, other: Node) -> int:
        """How many nodes the paths to two nodes share."""
        with self._database.read() as reader:
            return meeting(reader, tree, one, other) + 1

    def kept_from_models(self, tree: int, nodes: Sequence[Node]) -> dict[int, str]:
        """Those of these nodes that no model is to see, and why."""
        if not nodes:
            return {}
        with self._database.read() as reader:
            marked = marked_in(reader, tree)
            if not marked:
                return {}
            why = {
                node.seq: kept_back(Path(OpenTransaction(reader), tree, node), marked)
                for node in nodes
            }
        return {seq: reason for seq, reason in why.items() if reason}

    def read_all(self, tree: int) -> tuple[list[Node], dict[int, Marks], dict[int, str]]:
        """All of a tree: its nodes as they were written, what holds of them, and the agents of its
        sessions.
        """
        with self._database.read() as reader:
            read = [
                to_node(row)
                for row in reader.all(
                    f"SELECT {OF_N} FROM nodes n WHERE n.tree = $1 ORDER BY n.seq", tree
                )
            ]
            agents: dict[int, str] = dict(
                reader.all("SELECT key, agent FROM sessions WHERE tree = $1 AND agent <> ''", tree)
            )
            return read, sum_marks(marks_in(reader, tree)), agents

    def responses(self, tree: int) -> dict[int, str]:
        """The providers' answers that made nodes of a tree, as they came."""
        with self._database.read() as reader:
            sql = (
                "SELECT node, data FROM records WHERE tree = $1 AND kind = 'response' "
                "AND name = '' AND data IS NOT NULL"
            )
            return dict(reader.all(sql, tree))

    def agents_of(self, tree: int) -> dict[int, str]:
        """The agents of a tree's sessions, by the key of the session."""
        with self._database.read() as reader:
            return dict(
                reader.all("SELECT key, agent FROM sessions WHERE tree = $1 AND agent <> ''", tree)
            )

    def sessions_on(self, tree: int) -> Sequence[Row]:
        """The sessions that stand on a tree: id, agent, node and when they were last used."""
        with self._database.read() as reader:
            return reader.all(
                """SELECT s.id, s.agent, n.local, s.updated FROM sessions s
                    LEFT JOIN nodes n ON n.tree = s.tree AND n.seq = s.cursor
                    WHERE s.tree = $1 AND s.status = 'active' ORDER BY s.updated DESC, s.key""",
                tree,
            )
