"""Vectors of messages: who made them, in few bytes, and which are still to be made.

A vector is kept as whole numbers from -127 to 127 and the size of one step. Vectors of two
embedders are never compared: each has its own key here.
"""

from collections.abc import Sequence

import numpy as np

from loom.conversation.names import check_name
from loom.conversation.searchable import searchable_text
from loom.recall.embedder import Embedder, Vector, Vectors
from loom.stores.search.indexing import each_page, pairs_of
from loom.stores.search.segments import Segment, decode_segment, spread_lines
from loom.stores.sql.database import Database, Reader, Writer
from loom.stores.sql.stored import UNREADABLE
from loom.stores.tree.path import to_message

MAX_EMBEDDED_CHARS = 8192  # characters of a message that its vector is made of
_BATCH_TEXTS = 256  # in one call of an embedder, and in one transaction
_STEPS = 127


def encode_vector(vector: Vector) -> bytes:
    largest = float(np.abs(vector).max()) if len(vector) else 0.0
    if not largest or not np.isfinite(largest):
        return bytes(4 + len(vector))
    step = np.float32(largest / _STEPS)
    numbers: bytes = np.rint(vector / step).astype(np.int8).tobytes()
    return bytes(step.tobytes()) + numbers


def decode_vector(data: bytes) -> Vector:
    step = np.frombuffer(data, dtype="<f4", count=1)[0]
    numbers = np.frombuffer(data, dtype=np.int8, offset=4).astype(np.float32)
    vector: Vector = numbers * step
    return vector


def decode_vectors(data: Sequence[bytes]) -> Vectors:
    """Several vectors of one embedder at once: a row for each."""
    if not data:
        return np.empty((0, 0), dtype=np.float32)
    rows = np.frombuffer(b"".join(data), dtype=np.uint8).reshape(len(data), -1)
    steps = np.ascontiguousarray(rows[:, :4]).view("<f4")
    decoded: Vectors = rows[:, 4:].view(np.int8).astype(np.float32) * steps
    return decoded


class EmbedderKeys:
    """The keys of embedders in a store, by name."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def find(self, name: str) -> int | None:
        row = self._reader.first_row("SELECT key FROM search_embedders WHERE name = $1", name)
        return None if row is None else int(row[0])


def find_embedder_name(reader: Reader, tenant: str, project: str) -> str:
    """The name of the embedder that made the vectors of a project, of several the newest one; an
    empty text if there are no vectors.
    """
    row = reader.first_row(_EMBEDDER_OF, tenant, project)
    return "" if row is None else str(row[0])


_EMBEDDER_OF = """SELECT e.name FROM search_embedders e WHERE EXISTS (
        SELECT 1 FROM search_embedded d JOIN search_segments s ON s.key = d.segment
        WHERE d.embedder = e.key AND s.tenant = $1 AND s.project = $2)
    ORDER BY e.key DESC LIMIT 1"""


def _make_key(writer: Writer, name: str) -> int:
    [(key,)] = writer.all(
        """INSERT INTO search_embedders (name) VALUES ($1)
            ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING key""",
        check_name("embedder", name),
    )
    return int(key)


def embed_next(database: Database, tenant: str, project: str, embedder: Embedder) -> bool:
    """Make the vectors of some messages that have none of this embedder.

    Vectors of another embedder are removed when all messages of a segment have new ones. Returns
    whether there may be more to do.
    """
    with database.read() as reader:
        own = EmbedderKeys(reader).find(embedder.name)
        row = reader.first_row(_BARE, tenant, project, own or 0)
    if row is None:
        return False
    if own is None:
        with database.write() as writer:
            own = _make_key(writer, embedder.name)
    key, data = row
    segment = decode_segment(data, key)
    seqs = segment.seqs.tolist()
    trees = spread_lines(segment)[1].tolist()
    pairs = [(tree, seq) for tree, seq in zip(trees, seqs, strict=True) if seq]
    for page in each_page(pairs[::-1], _BATCH_TEXTS):
        _embed_page(database, page, own, embedder)
    with database.write() as writer:
        if writer.first_row(_STILL_LIVE, key) is not None:
            writer.all(
                """INSERT INTO search_embedded (segment, embedder) VALUES ($1, $2)
                    ON CONFLICT (segment, embedder) DO NOTHING""",
                key,
                own,
            )
            writer.all(
                "DELETE FROM search_embedded WHERE segment = $1 AND embedder <> $2", key, own
            )
            _remove_others(writer, segment, own)
    return True


_BARE = """SELECT s.key, s.data FROM search_segments s
    WHERE s.tenant = $1 AND s.project = $2 AND s.state = 'live' AND NOT EXISTS (
        SELECT 1 FROM search_embedded e WHERE e.segment = s.key AND e.embedder = $3)
    ORDER BY s.key DESC LIMIT 1"""
_STILL_LIVE = "SELECT 1 FROM search_segments WHERE key = $1 AND state = 'live' {lock}"


def _embed_page(
    database: Database, pairs: Sequence[tuple[int, int]], own: int, embedder: Embedder
) -> None:
    """Make the vectors of a few messages, outside of any transaction."""
    with database.read() as reader:
        rows = reader.all(_WITHOUT, pairs_of(pairs), own)
    texts = list[tuple[int, int, str]]()
    for tree, seq, body in rows:
        try:
            texts.append((tree, seq, searchable_text(to_message(body))[:MAX_EMBEDDED_CHARS]))
        except UNREADABLE:  # damaged; the doctor tells of it
            continue
    if not texts:
        return
    made = embedder.embed([text for _, _, text in texts])
    with database.write() as writer:
        writer.run_many(
            _PUT,
            [
                (own, tree, seq, encode_vector(vector))
                for (tree, seq, _), vector in zip(texts, made, strict=True)
            ],
        )


_WITHOUT = """SELECT n.tree, n.seq, n.body FROM {each_pair:1} e CROSS JOIN nodes n
    WHERE n.tree = e.tree AND n.seq = e.seq AND n.body IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM search_vectors v
        WHERE v.embedder = $2 AND v.tree = n.tree AND v.seq = n.seq)"""
# Not of what was purged meanwhile.
_PUT = """INSERT INTO search_vectors (embedder, tree, seq, data)
    SELECT CAST($1 AS BIGINT), n.tree, n.seq, $4 FROM nodes n
    WHERE n.tree = $2 AND n.seq = $3 AND n.body IS NOT NULL
    ON CONFLICT (embedder, tree, seq) DO NOTHING"""


def _remove_others(writer: Writer, segment: Segment, own: int) -> None:
    """Remove the vectors that other embedders made of the messages of a segment."""
    others = writer.all("SELECT key FROM search_embedders WHERE key <> $1", own)
    if not others:
        return
    trees = spread_lines(segment)[1].tolist()
    seqs = segment.seqs.tolist()
    writer.run_many(
        "DELETE FROM search_vectors WHERE embedder = $1 AND tree = $2 AND seq = $3",
        [
            (other, tree, seq)
            for (other,) in others
            for tree, seq in zip(trees, seqs, strict=True)
            if seq
        ],
    )
