"""What a search over a whole tree may see: each line of it is a path of its own, and so is each
node that is not indexed yet.
"""

from collections.abc import Mapping
from typing import Any

from loom.stores.search.scope import (
    MAX_TAIL_DOCUMENTS,
    SearchedPath,
    SearchScope,
    TailMessage,
    to_messages,
)
from loom.stores.sessions import SessionRow
from loom.stores.sql.database import Reader
from loom.stores.tree import nodes
from loom.stores.tree.overlay import kept_back, marked_in
from loom.stores.tree.path import OF_N, Node, OpenTransaction, Path, to_node

_NO_LIMIT = 2**40  # a depth that no node has


def read_tree_scope(reader: Reader, row: SessionRow, is_model: bool) -> SearchScope:
    """All nodes of the tree that a session is on; for a model, without those that it is not to see.

    Handles of what is found belong to the session.
    """
    tree = row.tree.key
    marked = marked_in(reader, tree) if is_model else {}
    paths = [
        SearchedPath(row.key, row.id, tree, 0, {line: upto}, hidden)
        for line, (upto, hidden) in _read_lines(reader, tree, marked).items()
    ]
    tail: list[TailMessage] = []
    for node in _read_tail(reader, tree):
        if marked and kept_back(Path(OpenTransaction(reader), tree, node), marked):
            continue
        for message in to_messages(reader, tree, [node], [node]):
            tail.append(TailMessage(message, len(paths)))
            paths.append(SearchedPath(row.key, row.id, tree, node.seq, {}))
    return SearchScope(row.tree.tenant, row.tree.project, tuple(paths), tuple(tail), False, tree)


def _read_tail(reader: Reader, tree: int) -> list[Node]:
    """The newest nodes that are not indexed, the oldest of them first."""
    rows = reader.all(_TAIL, tree, MAX_TAIL_DOCUMENTS)
    return [to_node(row) for row in reversed(rows)]


_TAIL = f"""SELECT {OF_N} FROM nodes n WHERE n.tree = $1 AND n.body IS NOT NULL AND n.seq >
    coalesce((SELECT t.upto FROM search_trees t WHERE t.tree = $1), 0)
    ORDER BY n.seq DESC LIMIT $2"""
_LINES = """SELECT l.line, h.parent, d.line, p.depth FROM
    (SELECT DISTINCT line FROM search_lines WHERE tree = $1) l
    JOIN nodes h ON h.tree = $1 AND h.seq = l.line
    LEFT JOIN nodes p ON p.tree = h.tree AND p.seq = h.parent
    LEFT JOIN search_documents d ON d.tree = p.tree AND d.seq = p.seq ORDER BY l.line"""
_PLACES = """SELECT d.line, n.seq, n.depth FROM {each_int:2} e CROSS JOIN nodes n
    CROSS JOIN search_documents d
    WHERE n.tree = $1 AND n.seq = e.value AND d.tree = n.tree AND d.seq = n.seq"""


def _read_lines(
    reader: Reader, tree: int, marked: Mapping[int, Any]
) -> dict[int, tuple[int, frozenset[int]]]:
    """For each line of a tree up to which depth it may be seen, and the depths that are not."""
    pruned: dict[int, int] = {}
    excluded: dict[int, set[int]] = {}
    for line, seq, depth in reader.all(_PLACES, tree, str(list(marked))):
        mark = marked[seq]
        if mark.marks.flags.pruned:
            pruned[line] = min(depth, pruned.get(line, depth))
        if mark.marks.flags.excluded or mark.withdrawn:
            excluded.setdefault(line, set()).add(depth)
    limits: dict[int, int] = {}
    for line, parent, above, depth in reader.all(_LINES, tree):  # what is above a line is older
        limits[line] = pruned.get(line, _NO_LIMIT) - 1
        if above in limits:
            is_pruned = depth > limits[above]
        else:  # nothing is above, or all that the line above said was purged
            is_pruned = _is_pruned(reader, tree, parent, marked)
        if is_pruned:
            limits[line] = -1
    return {
        line: (upto, frozenset(excluded.get(line, ())))
        for line, upto in limits.items()
        if upto >= 0
    }


def _is_pruned(reader: Reader, tree: int, seq: int | None, marked: Mapping[int, Any]) -> bool:
    """Whether a node is pruned, by itself or with a node above it."""
    if seq is None or not marked:
        return False
    path = Path(OpenTransaction(reader), tree, nodes.place(reader, tree, seq))
    return kept_back(path, marked) == "pruned"
