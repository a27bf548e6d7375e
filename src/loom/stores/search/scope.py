"""What a search may see: the path of one session, or the paths of the sessions of a project.

A path is a stretch of each of a few lines, and its tail: the newest nodes, which are not indexed
yet. What is hidden on a path is not seen there. Where a version replaces a node, it is seen in the
place of the node.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from loom.conversation.searchable import asks_for_echo
from loom.conversation.tree import Mode, TreeHead
from loom.stores.search.indexing import (
    PendingNode,
    find_calls,
    to_indexed,
)
from loom.stores.search.segments import IndexedMessage
from loom.stores.sessions import Scope, SessionRow, metadata_of
from loom.stores.sql.database import Reader
from loom.stores.sql.stored import UNREADABLE, decode_stored
from loom.stores.tree import nodes
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.overlay import Overlay
from loom.stores.tree.path import TREE, Node, OpenTransaction, Path

MAX_TAIL_DOCUMENTS = 1000  # that are read because they are not indexed yet


class SearchedPath(Struct, frozen=True):
    """The path of a session to the node `end`: up to which depth it has which lines, the last line
    first; the depths that are not seen in it; and versions that are seen in the place of a node.
    """

    key: int
    session: str
    tree: int
    end: int
    stretches: Mapping[int, int]
    hidden: frozenset[int] = frozenset()
    versions: frozenset[int] = frozenset()


class TailMessage(Struct, frozen=True):
    """A message that is not indexed, or replaces one that is; `path` is the number of its path."""

    message: IndexedMessage
    path: int


class SearchScope(Struct, frozen=True):
    """All that one search may see, of one project."""

    tenant: str
    project: str
    paths: tuple[SearchedPath, ...]
    tail: tuple[TailMessage, ...]
    is_whole: bool  # whether it takes all sessions of the project
    tree: int = 0  # the tree that it takes all of, if it is one


def read_session_scope(reader: Reader, row: SessionRow, overlay: Overlay) -> SearchScope:
    """The path of one session with what bears on it."""
    session = (row.key, row.id, row.tree.key)
    path, tail = _read_path(reader, session, overlay, MAX_TAIL_DOCUMENTS)
    paths = () if path is None else (path,)
    messages = tuple(TailMessage(each, 0) for each in tail)
    return SearchScope(row.tree.tenant, row.tree.project, paths, messages, is_whole=False)


def read_project_scope(reader: Reader, scope: Scope) -> SearchScope:
    """The paths of all sessions in a scope that are not purged, the oldest session first."""
    marked = {
        key: (TreeRow(key, scope.tenant, scope.project, name), data)
        for key, name, data in reader.all(_MARKED, scope.tenant, scope.project)
    }
    paths, tail = list[SearchedPath](), list[TailMessage]()
    known: set[int] = set()
    for row in reader.all(_SESSIONS, scope.tenant, scope.project, scope.agent):
        key, name, tree, cursor, depth, line, parent = row
        if tree not in marked and line is not None and parent is None:
            paths.append(SearchedPath(key, name, tree, cursor, {line: depth}))
            continue
        overlay = Overlay(
            path=Path(OpenTransaction(reader), tree, nodes.place(reader, tree, cursor))
        )
        if tree in marked:
            overlay = _read_overlay(reader, key, *marked[tree], overlay.path)
        left = MAX_TAIL_DOCUMENTS - len(tail)
        path, behind = _read_path(reader, (key, name, tree), overlay, left)
        if path is not None:
            fresh = [each for each in behind if each.seq not in known]
            known.update(each.seq for each in fresh)
            tail += [TailMessage(each, len(paths)) for each in fresh]
            paths.append(path)
    return SearchScope(scope.tenant, scope.project, tuple(paths), tuple(tail), not scope.agent)


# Only marks of these kinds hide or replace a node.
_MARKED = """SELECT t.key, t.id, t.data FROM trees t WHERE t.tenant = $1 AND t.project = $2
    AND EXISTS (SELECT 1 FROM records r WHERE r.tree = t.key AND r.kind IN ('flag', 'edge'))"""
_SESSIONS = """SELECT s.key, s.id, s.tree, s.cursor, n.depth, d.line, h.parent FROM sessions s
    JOIN nodes n ON n.tree = s.tree AND n.seq = s.cursor
    LEFT JOIN search_documents d ON d.tree = s.tree AND d.seq = s.cursor
    LEFT JOIN nodes h ON h.tree = s.tree AND h.seq = d.line
    WHERE s.tenant = $1 AND s.project = $2 AND ($3 = '' OR s.agent = $3)
    AND s.status IN ('active', 'archived') ORDER BY s.created, s.id {binary}"""


def _read_overlay(reader: Reader, session: int, tree: TreeRow, data: str, path: Path) -> Overlay:
    mode: Mode = "dialogue"
    chosen: dict[str, str] = {}
    try:
        mode = decode_stored(data, TreeHead).mode
        for name, version in reader.all(
            "SELECT name, data FROM states WHERE session = $1 AND kind = 'version'", session
        ):
            chosen[name] = decode_stored(version, str)
    except UNREADABLE:  # damaged; the doctor tells of it
        pass
    return Overlay.read(path, tree, mode, chosen)


def _read_path(
    reader: Reader, session: tuple[int, str, int], overlay: Overlay, limit: int
) -> tuple[SearchedPath | None, list[IndexedMessage]]:
    """The path of a session, given by its key, id and tree, as it is searched; and the messages of
    its tail, at most so many.
    """
    key, name, tree = session
    end = overlay.path.end
    if end is None:
        return None, []
    upto = reader.first_row("SELECT upto FROM search_trees WHERE tree = $1", tree)
    found = reader.first_row(_INDEXED, tree, end.seq, upto[0] if upto else 0)
    stretches: dict[int, int] = {}
    start = 0
    if found is not None:
        seq, depth = found
        stretches = dict(reader.all(_STRETCHES, tree, seq, depth))
        start = depth + 1
    unseen = overlay.hidden.keys()
    path = SearchedPath(
        key,
        name,
        tree,
        end.seq,
        stretches,
        frozenset(unseen | overlay.versions.keys()),
        frozenset(entry.node.seq for entry in overlay.versions.values()),
    )
    behind = overlay.path.read(max(start, end.depth + 1 - limit), end.depth + 1)
    versions = {depth: entry.node for depth, entry in overlay.versions.items()}
    seen = [
        *(versions[depth] for depth in sorted(versions) if depth < start and depth not in unseen),
        *(versions.get(node.depth, node) for node in behind if node.depth not in unseen),
    ]
    return path, to_messages(reader, tree, behind, seen[-limit:] if limit > 0 else [])


# From the node $2 up to the first node that is indexed: $3 or older. Parents are older.
_TO_INDEXED = """CASE WHEN n.seq <= $3 THEN NULL WHEN n.jump > $3 THEN n.jump ELSE n.parent END"""
_INDEXED = f"""WITH RECURSIVE a (tree, seq, depth, next) AS (
        SELECT * FROM (SELECT n.tree, n.seq, n.depth, {_TO_INDEXED} FROM nodes n
            WHERE n.tree = {TREE} AND n.seq = $2 LIMIT 1) f
        UNION ALL
        SELECT n.tree, n.seq, n.depth, {_TO_INDEXED} FROM a CROSS JOIN nodes n
        WHERE n.tree = a.tree AND n.seq = a.next AND n.seq < a.seq)
    SELECT seq, depth FROM a WHERE seq <= $3"""
# The lines that lead to the node $2 of the depth $3, and how far each is on the way.
_STRETCHES = f"""WITH RECURSIVE s (tree, line, depth) AS (
        SELECT * FROM (SELECT d.tree, d.line, CAST($3 AS BIGINT) FROM search_documents d
            WHERE d.tree = {TREE} AND d.seq = $2 LIMIT 1) f
        UNION ALL
        SELECT d.tree, d.line, p.depth
        FROM s CROSS JOIN nodes h CROSS JOIN nodes p CROSS JOIN search_documents d
        WHERE h.tree = s.tree AND h.seq = s.line AND p.tree = h.tree AND p.seq = h.parent
        AND d.tree = p.tree AND d.seq = p.seq AND p.depth < s.depth)
    SELECT line, depth FROM s"""


def to_messages(
    reader: Reader, tree: int, path: Iterable[Node], seen: Sequence[Node]
) -> list[IndexedMessage]:
    """Nodes as the index would have them. `path` has the nodes among which they are."""
    metadata = metadata_of(reader, tree, [node.seq for node in seen]) if seen else {}
    asked = {
        node.seq: asks_for_echo(node.message)
        for node in path
        if node.message is not None and node.role != "tool"
    }
    made: list[IndexedMessage] = []
    for node in seen:
        if node.message is None:
            continue
        pending = _to_pending(node)
        calls = asks_for_echo(node.message)
        if node.role == "tool":
            calls = find_calls(reader, tree, pending, asked)
            asked[node.seq] = calls
        made.append(to_indexed(pending, tree, 0, calls, metadata.get(node.seq, {})))
    return made


def _to_pending(node: Node) -> PendingNode:
    return PendingNode(
        node.seq,
        node.parent,
        node.depth,
        node.role,
        node.message.author if node.message else "",
        node.tokens,
        node.created,
        node.message,
        node.message is None,
    )
