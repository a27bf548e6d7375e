"""How messages come into the index: in batches, after they were written.

A batch is made outside of any transaction and written in one. It is thrown away if somebody else
indexed the same nodes meanwhile, or purged one. So a crash loses nothing, and nothing is indexed
twice.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.conversation.metadata import metadata_terms
from loom.conversation.names import plain_name
from loom.conversation.repeats import text_digest
from loom.conversation.searchable import asks_for_echo, is_echo, searchable_text
from loom.conversation.words import split_terms_for_index
from loom.recall.importance import base_importance
from loom.recall.index import MAX_TEXT_CHARS
from loom.stores.search.segments import (
    INDEX_VERSION,
    IndexedMessage,
    Segment,
    encode_segment,
    encode_terms,
    make_segment,
)
from loom.stores.sessions import metadata_of
from loom.stores.sql.database import Database, Reader, Writer
from loom.stores.sql.stored import UNREADABLE
from loom.stores.tree.path import to_message

MAX_BATCH_DOCUMENTS = 2048
MAX_BATCH_CHARS = 16_000_000  # of bodies; a few huge messages are as much as many small ones
_MAX_RESULTS = 64  # results after a call that are gone through to find it


class PendingTree(Struct, frozen=True):
    """A tree with nodes that are not indexed: those after `upto`."""

    tree: int
    upto: int


class PendingNode(Struct, frozen=True):
    """A node that is not indexed, with its message if it can be read."""

    seq: int
    parent: int | None
    depth: int
    role: str
    author: str
    tokens: int
    created: int
    message: Message | None
    is_purged: bool


class Batch(Struct, frozen=True):
    """What one transaction indexes: of each tree the nodes after `upto`, with their lines."""

    messages: tuple[IndexedMessage, ...]
    lines: tuple[tuple[int, int, int], ...]
    trees: tuple[tuple[PendingTree, int, int], ...]


def pending_trees(
    reader: Reader, tenant: str, project: str, limit: int, first: int = 0
) -> list[PendingTree]:
    """Trees of a project with nodes that are not indexed; the tree `first` comes first."""
    found = reader.all(_PENDING, tenant, project, first, limit)
    return [PendingTree(*row) for row in found]


# A tree that is being imported waits: the import may be taken back.
_PENDING = """SELECT s.tree, s.upto FROM search_trees s JOIN trees t ON t.key = s.tree
    WHERE s.pending = 1 AND t.tenant = $1 AND t.project = $2
    AND NOT EXISTS (SELECT 1 FROM sessions i WHERE i.tree = s.tree AND i.status = 'importing')
    ORDER BY CASE WHEN s.tree = $3 THEN 0 ELSE 1 END, s.tree LIMIT $4"""


def count_pending(reader: Reader, trees: Iterable[PendingTree], limit: int) -> int:
    """How many nodes of these trees are not indexed, counted up to a limit."""
    count = 0
    for pending in trees:
        found = reader.first_row(_COUNT, pending.tree, pending.upto, limit - count)
        count += found[0] if found else 0
        if count >= limit:
            break
    return count


_COUNT = "SELECT count(*) FROM (SELECT 1 FROM nodes n WHERE n.tree = $1 AND n.seq > $2 LIMIT $3) x"


def read_batch(reader: Reader, trees: Sequence[PendingTree], limit: int) -> Batch:
    """The next nodes of these trees, up to a limit, as they go into the index."""
    messages, lines = list[IndexedMessage](), list[tuple[int, int, int]]()
    taken, left, chars = list[tuple[PendingTree, int, int]](), limit, MAX_BATCH_CHARS
    for pending in trees:
        if left <= 0 or chars <= 0:
            break
        rows = reader.all(_NEXT, pending.tree, pending.upto, left)
        sizes = [len(row[7] or "") for row in rows]
        while len(rows) > 1 and sum(sizes) > chars:
            rows.pop()
            sizes.pop()
        if not rows:
            continue
        nodes = [_to_pending(row) for row in rows]
        made, placed = index_nodes(reader, pending.tree, nodes)
        messages += made
        lines += [(pending.tree, seq, line) for seq, line in placed.items()]
        taken.append((pending, nodes[-1].seq, sum(not node.is_purged for node in nodes)))
        left, chars = left - len(rows), chars - sum(sizes)
    messages.sort(key=lambda message: (message.created, message.seq))
    return Batch(tuple(messages), tuple(lines), tuple(taken))


_PENDING_COLUMNS = "n.seq, n.parent, n.depth, n.role, n.author, n.tokens, n.created, n.body"
_NEXT = f"""SELECT {_PENDING_COLUMNS} FROM nodes n
    WHERE n.tree = $1 AND n.seq > $2 ORDER BY n.seq LIMIT $3"""


def _to_pending(row: Sequence[Any]) -> PendingNode:
    message = None
    try:
        if row[7] is not None:
            message = to_message(row[7])
    except UNREADABLE:  # damaged; the doctor tells of it
        pass
    seq, parent, depth, role, author, tokens, created, body = row
    return PendingNode(
        seq, parent, depth, role, author, tokens, created, message, is_purged=body is None
    )


def index_nodes(
    reader: Reader, tree: int, nodes: Sequence[PendingNode]
) -> tuple[list[IndexedMessage], dict[int, int]]:
    """Nodes of a tree as they go into the index, and the line of each node."""
    lines = _find_lines(reader, tree, nodes)
    metadata = metadata_of(reader, tree, [node.seq for node in nodes])
    asked: dict[int, frozenset[str]] = {}
    made: list[IndexedMessage] = []
    for node in nodes:
        if node.message is None:
            continue
        calls = asks_for_echo(node.message)
        if node.role == "tool":
            calls = find_calls(reader, tree, node, asked)
        asked[node.seq] = calls
        made.append(to_indexed(node, tree, lines[node.seq], calls, metadata.get(node.seq, {})))
    return made, lines


def to_indexed(
    node: PendingNode,
    tree: int,
    line: int,
    asked: frozenset[str],
    metadata: Mapping[str, Any],
) -> IndexedMessage:
    """A node as it goes into the index. `asked` are calls before it that ask for echoes."""
    assert node.message is not None
    text = searchable_text(node.message)[:MAX_TEXT_CHARS]
    length, counts = count_terms(text, metadata)
    echoes = is_echo(node.message, asked)
    return IndexedMessage(
        seq=node.seq,
        tree=tree,
        line=line,
        depth=node.depth,
        created=node.created,
        tokens=node.tokens,
        role=node.role,
        author=plain_name(node.author),
        is_echo=echoes,
        length=length,
        counts=counts,
        importance=round(100 * base_importance(node.message, echoes, metadata)),
        digest=text_digest(node.role, text) if text.strip() else 0,
    )


def count_terms(text: str, metadata: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """How many terms the text of a message has, and how often each; with those of its metadata."""
    terms = split_terms_for_index(text)
    counts: dict[str, int] = Counter(terms)
    counts.update(dict.fromkeys(metadata_terms(metadata), 1))
    return len(terms), counts


def find_calls(
    reader: Reader, tree: int, node: PendingNode, asked: Mapping[int, frozenset[str]]
) -> frozenset[str]:
    """The calls that ask for echoes in the newest message of the model before a result."""
    parent = node.parent
    for _ in range(_MAX_RESULTS):
        if parent is None:
            break
        if parent in asked:
            return asked[parent]
        row = reader.first_row(_ONE, tree, parent)
        if row is None:
            break
        above = _to_pending(row)
        if above.role != "tool":
            return asks_for_echo(above.message) if above.message else frozenset()
        parent = above.parent
    return frozenset()


_ONE = f"SELECT {_PENDING_COLUMNS} FROM nodes n WHERE n.tree = $1 AND n.seq = $2"


def _find_lines(reader: Reader, tree: int, nodes: Sequence[PendingNode]) -> dict[int, int]:
    """The line of each node: that of its parent if the node is its first child, else a new one."""
    inside = {node.seq for node in nodes}
    parents = sorted({node.parent for node in nodes if node.parent is not None})
    outside = [seq for seq in parents if seq not in inside]
    lines: dict[int, int] = dict(reader.all(_LINES, tree, str(outside))) if outside else {}
    firsts: dict[int, int] = dict(reader.all(_FIRSTS, tree, str(parents))) if parents else {}
    for node in nodes:
        continues = node.parent is not None and firsts.get(node.parent) == node.seq
        if continues and node.parent in lines:
            lines[node.seq] = lines[node.parent]
        else:
            lines[node.seq] = node.seq
    return {seq: line for seq, line in lines.items() if seq in inside}


_LINES = """SELECT d.seq, d.line FROM {each_int:2} e CROSS JOIN search_documents d
    WHERE d.tree = $1 AND d.seq = e.value"""
_FIRSTS = """SELECT e.value, (SELECT min(n.seq) FROM nodes n
        WHERE n.tree = $1 AND n.parent = e.value)
    FROM {each_int:2} e"""


def write_batch(database: Database, tenant: str, project: str, batch: Batch) -> bool:
    """Write a batch; False if it is out of date, and nothing was written."""
    segment, terms = None, list[tuple[str, bytes]]()
    if batch.messages:
        segment, terms = make_segment(batch.messages), encode_terms(batch.messages)
    with database.write() as writer:
        if not all(_is_current(writer, *each) for each in _by_tree(batch)):
            return False
        if segment is not None:
            key = insert_segment(writer, tenant, project, segment, "live")
            writer.run_many(PUT_TERM, ((key, term, data) for term, data in terms))
            put_lines(writer, key, segment)
        writer.run_many(
            "INSERT INTO search_documents (tree, seq, line) VALUES ($1, $2, $3)", batch.lines
        )
        writer.run_many(_ADVANCE, [(pending.tree, last) for pending, last, _ in batch.trees])
    return True


PUT_TERM = "INSERT INTO search_terms (segment, term, data) VALUES ($1, $2, $3)"
_ADVANCE = """UPDATE search_trees SET upto = $2, pending = CASE
    WHEN EXISTS (SELECT 1 FROM nodes n WHERE n.tree = $1 AND n.seq > $2) THEN 1 ELSE 0 END
    WHERE tree = $1"""


def _by_tree(batch: Batch) -> list[tuple[PendingTree, int, int]]:
    """The trees of a batch in the order in which everybody locks them."""
    return sorted(batch.trees, key=lambda each: each[0].tree)


def _is_current(writer: Writer, pending: PendingTree, last: int, documents: int) -> bool:
    """Whether a tree is as it was read. Nobody writes to it until the transaction ends."""
    writer.first_row("SELECT key FROM trees WHERE key = $1 {lock}", pending.tree)
    upto = writer.first_row("SELECT upto FROM search_trees WHERE tree = $1", pending.tree)
    found = writer.first_row(_SPEAKING, pending.tree, pending.upto, last)
    return upto == (pending.upto,) and found == (documents,)


_SPEAKING = """SELECT count(*) FROM nodes n
    WHERE n.tree = $1 AND n.seq > $2 AND n.seq <= $3 AND n.body IS NOT NULL"""


def insert_segment(writer: Writer, tenant: str, project: str, segment: Segment, state: str) -> int:
    """Write the columns of a segment; its key."""
    [(key,)] = writer.all(
        """INSERT INTO search_segments
            (tenant, project, state, documents, revision, version, data, created)
            VALUES ($1, $2, $3, $4, 0, $5, $6, $7) RETURNING key""",
        tenant,
        project,
        state,
        len(segment),
        INDEX_VERSION,
        encode_segment(segment),
        time.time_ns() // 1_000_000,
    )
    return int(key)


def put_lines(writer: Writer, key: int, segment: Segment) -> None:
    """Write which lines a segment has messages of."""
    pairs = zip(segment.trees.tolist(), segment.lines.tolist(), strict=True)
    writer.run_many(
        "INSERT INTO search_lines (tree, line, segment) VALUES ($1, $2, $3)",
        [(tree, line, key) for tree, line in pairs],
    )


def drop_index(database: Database, tenant: str, project: str) -> None:
    """Remove the index of a project. All of it is indexed again."""
    with database.write() as writer:
        drop_segments(writer, tenant, project)


def drop_segments(writer: Writer, tenant: str, project: str) -> None:
    keys = [
        key
        for (key,) in writer.all(
            "SELECT key FROM search_segments WHERE tenant = $1 AND project = $2", tenant, project
        )
    ]
    writer.run_many("DELETE FROM search_terms WHERE segment = $1", [(key,) for key in keys])
    writer.run_many("DELETE FROM search_lines WHERE segment = $1", [(key,) for key in keys])
    writer.run_many("DELETE FROM search_embedded WHERE segment = $1", [(key,) for key in keys])
    writer.all("DELETE FROM search_segments WHERE tenant = $1 AND project = $2", tenant, project)
    own = "(SELECT key FROM trees WHERE tenant = $1 AND project = $2)"
    for table in ("search_documents", "search_vectors"):
        writer.all(f"DELETE FROM {table} WHERE tree IN {own}", tenant, project)
    writer.all(
        f"UPDATE search_trees SET upto = 0, pending = 1 WHERE tree IN {own}", tenant, project
    )


def is_outdated(reader: Reader, tenant: str, project: str) -> bool:
    """Whether another version of this program made the index."""
    return (
        reader.first_row(
            """SELECT 1 FROM search_segments
                WHERE tenant = $1 AND project = $2 AND version <> $3 LIMIT 1""",
            tenant,
            project,
            INDEX_VERSION,
        )
        is not None
    )


def each_page(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """The values, some at a time."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def pairs_of(values: Iterable[tuple[int, int]]) -> str:
    """Pairs of tree and seq as a parameter."""
    return to_json(list(values))
