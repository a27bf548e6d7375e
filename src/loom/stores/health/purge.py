"""What a purge removes: words, wherever they went. Ids and places stay, and so does how a node
hangs in its tree.
"""

from collections.abc import Container, Mapping, Sequence

from msgspec.structs import replace

from loom.conversation.canonical import from_json, to_json
from loom.conversation.tree import TreeHead
from loom.stores.sql.database import Reader, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored
from loom.stores.tree.marks import KINDS
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.path import BY_SEQ, TREE


def held_by(reader: Reader, tree: int, ends: Sequence[int], own: Mapping[int, int]) -> set[int]:
    """Which of these nodes, given with their depths, stand on a path to one of those ends. Walks up
    no further than they reach.
    """
    if not own:
        return set()
    top = min(own.values())
    kept: set[int] = set()
    for end in ends:
        seq: int | None = end
        while seq is not None and seq not in kept:
            rows = reader.all(_UPWARD, tree, seq, top)
            seq = None
            for at, parent in rows:
                if at in kept:
                    seq = None
                    break
                if at in own:
                    kept.add(at)
                seq = parent
            if len(rows) < 2000:
                break
    return kept


_UPWARD = f"""WITH RECURSIVE w (tree, seq, parent, depth, n) AS (
    SELECT * FROM (SELECT tree, seq, parent, depth, 1 FROM nodes WHERE tree = {TREE} AND seq = $2
    LIMIT 1) f
    UNION ALL
    SELECT p.tree, p.seq, p.parent, p.depth, w.n + 1 FROM w CROSS JOIN nodes p
    WHERE p.tree = w.tree AND p.seq = w.parent AND p.depth < w.depth AND w.n < 2000
    AND p.depth >= $3)
    SELECT seq, parent FROM w ORDER BY n"""


PURGING = "purging"  # the state of a purged session of which something may still be on disk
# the states by which older versions remembered folders; who wrote them cannot be known
FOLDERS = "snapshots"


def take_words(
    writer: Writer, tree: TreeRow, session: int, gone: Mapping[int, int], now: int
) -> None:
    """Take away the words of these nodes, given with their depths, and those that the session has
    next to them.
    """
    _take_from_index(writer, tree, gone)
    each = [(tree.key, seq) for seq in gone]
    writer.run_many(
        "UPDATE nodes SET body = NULL, author = '', reminder = '' WHERE tree = $1 AND seq = $2",
        each,
    )
    # An edge has no words, and without it a remark would look as if the conversation continued
    # there.
    writer.run_many(
        "UPDATE records SET data = CASE WHEN kind = 'edge' THEN data END, author = '' "
        "WHERE tree = $1 AND node = $2",
        each,
    )
    _take_texts(writer, tree, session, gone)
    writer.all("DELETE FROM views WHERE session = $1", session)
    writer.all(
        "DELETE FROM states WHERE session = $1 AND kind NOT IN ($2, $3)", session, PURGING, FOLDERS
    )
    writer.all(
        """INSERT INTO states (session, kind, name, data, updated) VALUES ($1, $2, '', 'true', $3)
            ON CONFLICT (session, kind, name) DO NOTHING""",
        session,
        PURGING,
        now,
    )
    _take_views(
        writer,
        tree,
        {
            **gone,
            **_take_labels(writer, tree.key, session),
            **_take_summaries(writer, tree.key, session),
        },
    )
    if (
        writer.first_row(
            "SELECT 1 FROM sessions WHERE tree = $1 AND key <> $2 AND status <> 'purged'",
            tree.key,
            session,
        )
        is None
    ):
        _take_head(writer, tree.key)


def _take_from_index(writer: Writer, tree: TreeRow, gone: Mapping[int, int]) -> None:
    """Take messages out of the search index, as long as their words are there."""
    indexed = writer.first_row(
        "SELECT 1 FROM search_segments WHERE tenant = $1 AND project = $2 LIMIT 1",
        tree.tenant,
        tree.project,
    )
    if indexed is not None:
        from loom.stores.search.forgetting import forget_nodes

        forget_nodes(writer, tree, gone)


def _take_labels(writer: Writer, tree: int, session: int) -> dict[int, int]:
    """Take away the labels that a session gave to nodes and links; the flags and the links stay.
    The nodes, with their depths.
    """
    found = writer.all(
        """SELECT r.seq, r.node, n.depth, r.kind, r.data FROM records r
            JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
            WHERE r.tree = $1 AND r.session = $2 AND r.kind IN ('flag', 'link')
            AND r.data LIKE '%"label":%'""",
        tree,
        session,
    )
    writer.run_many(
        "UPDATE records SET data = $2 WHERE seq = $1",
        [(seq, _without_label(kind, data)) for seq, _, _, kind, data in found],
    )
    return {node: depth for _, node, depth, _, _ in found}


def _take_summaries(writer: Writer, tree: int, session: int) -> dict[int, int]:
    """Take away what a session wrote to summarize. The nodes that it was kept beside, with their
    depths.
    """
    found = writer.all(
        """SELECT r.seq, r.node, n.depth FROM records r
            JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
            WHERE r.tree = $1 AND r.session = $2 AND r.kind IN ('summary', 'digest')
            AND r.data IS NOT NULL""",
        tree,
        session,
    )
    writer.run_many(
        "UPDATE records SET data = NULL WHERE seq = $1", [(seq,) for seq, _, _ in found]
    )
    return {node: depth for _, node, depth in found}


def _without_label(kind: str, data: str) -> str | None:
    try:
        return to_json(replace(decode_stored(data, KINDS[kind]), label=""))
    except UNREADABLE:  # damaged; what words are in it nobody knows
        return None


def _take_texts(writer: Writer, tree: TreeRow, session: int, gone: Mapping[int, int]) -> None:
    """Take away texts that were cut in this session from no node that stays, and by whomever from
    these nodes.
    """
    own = writer.all(
        "SELECT handle, data FROM handles WHERE tree = $1 AND session = $2 AND kind = 'text'",
        tree.key,
        session,
    )
    nodeless = [handle for handle, data in own if data is not None and not _names_nodes(data)]
    writer.run_many(_CLEAR, [(tree.key, handle, session) for handle in nodeless])
    if not gone:
        return
    ids = {name for (name,) in writer.all(f"SELECT n.id FROM {BY_SEQ}", tree.key, str(list(gone)))}
    for key, handle, by, data in writer.all(_TEXTS, tree.tenant, tree.project):
        if _is_from(data, tree, ids, is_own=key == tree.key):
            writer.all(_CLEAR, key, handle, by)


def _is_from(data: str, tree: TreeRow, ids: Container[str], is_own: bool) -> bool:
    """Whether a text came from one of these nodes of a tree. `is_own`: it is kept in that tree,
    whose nodes it names alone.
    """
    try:
        held = from_json(data)
        named = [name for stretch in held.get("nodes", ()) for name in stretch] + list(
            held.get("shows", ())
        )
        parted = [name.rpartition("/") for name in named]
    except UNREADABLE:  # what words are in it nobody knows
        return True
    return any(
        name in ids and (other == tree.id or (not other and is_own)) for other, _, name in parted
    )


_CLEAR = "UPDATE handles SET data = NULL WHERE tree = $1 AND handle = $2 AND session = $3"


def _names_nodes(data: str) -> bool:
    """Whether a text that was kept came from nodes: it goes when they go, for others may have its
    marker too.
    """
    try:
        return bool(from_json(data).get("nodes"))
    except UNREADABLE:  # damaged; what words are in it nobody knows
        return False


_TEXTS = """SELECT h.tree, h.handle, h.session, h.data FROM handles h JOIN trees t ON t.key = h.tree
    WHERE t.tenant = $1 AND t.project = $2 AND h.kind = 'text' AND h.data IS NOT NULL"""


def _take_views(writer: Writer, tree: TreeRow, worded: Mapping[int, int]) -> None:
    """Take away views in which these nodes may have been read: on a path, or beside one. The next
    request begins an epoch.
    """
    if not worded:
        return
    for key, epoch, node in writer.all(
        "SELECT v.session, v.epoch, v.node FROM views v JOIN sessions s ON s.key = v.session "
        "WHERE s.tree = $1",
        tree.key,
    ):
        if held_by(writer, tree.key, [node], worded):
            writer.all("DELETE FROM views WHERE session = $1 AND epoch = $2", key, epoch)
    # A view only tells that something came in besides its path, not what; it may come from another
    # tree.
    writer.all(
        """DELETE FROM views WHERE data LIKE '%"shape":"%' AND data NOT LIKE '%"shape":""%'
            AND session IN (SELECT key FROM sessions WHERE tenant = $1 AND project = $2)""",
        tree.tenant,
        tree.project,
    )


def _take_head(writer: Writer, tree: int) -> None:
    """Take away what a tree says of itself, but for its mode; all of its sessions are purged."""
    row = writer.first_row("SELECT data FROM trees WHERE key = $1", tree)
    try:
        mode = decode_stored(row[0] if row else "{}", TreeHead).mode
    except UNREADABLE:
        mode = "dialogue"
    writer.all(
        "UPDATE trees SET title = '', data = $2 WHERE key = $1", tree, to_json(TreeHead(mode=mode))
    )
