"""Summaries: what tells of a stretch of a path in a few words. Each is a record next to the last
node of its stretch.

They are never changed. One that was undone has a record that says so, and is not found any more.
"""

from collections.abc import Collection
from hashlib import blake2b

from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.checked import CheckedStruct
from loom.stores.sessions import SessionRow, lock_alive
from loom.stores.sql.database import Database, Reader, Writer
from loom.stores.sql.stored import read_stored
from loom.stores.tree.path import Node, Path
from loom.stores.views import origin_of

_MAX_RECENT_SUMMARIES = 512  # summaries of a tree that are looked through for those of a path
_MAX_FORKS = 16  # of forks whose summaries still hold


class Summary(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands on a path from `start` up to `stop` in a few words, by whom they are and why they
    were written.

    `hidden` are the places of it that were kept from whoever wrote it. `dropped` are messages that
    an overflow cost. Its `name` is its record's.
    """

    text: str
    start: int
    stop: int
    by: str
    why: str = ""
    hidden: tuple[int, ...] = ()
    dropped: int = 0
    name: str = ""

    def with_name(self, now: int) -> "Summary":
        """The same with the name that it gets if it is written at this time."""
        data = to_json(replace(self, name=""))
        digest = blake2b(
            f"{now} {data}".encode(errors="surrogatepass"), digest_size=8, person=b"summary"
        )
        return replace(self, name=digest.hexdigest())


class Summaries:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: SessionRow, node: Node, summary: Summary, now: int) -> None:
        """Keep a summary that ends with this node."""
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            put_summary(writer, row, node, summary, now)

    def on_path(self, row: SessionRow, path: Path, hidden: Collection[int] = ()) -> list[Summary]:
        """Those that hold on a path, one after the other from its beginning; what was hidden or
        shown since ends one.
        """
        with path.database.read() as reader:
            found = reader.all(_NEWEST, row.tree.key, str(_family(reader, row)))
            chain: list[Summary] = []
            for node, depth, name, data in found:
                summary = replace(
                    read_stored(data, Summary, f"a summary in session {row.id}"), name=name
                )
                if summary.stop != (chain[0].start if chain else summary.stop) or not path.holds(
                    node, depth
                ):
                    continue
                if {at for at in hidden if summary.start <= at < summary.stop} != set(
                    summary.hidden
                ):
                    continue
                chain.insert(0, summary)
                if summary.start == 0:
                    return chain
        return []

    def add_digest(self, row: SessionRow, node: Node, text: str, now: int) -> None:
        """Keep what a model says of a large message."""
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            writer.all(
                _PUT, row.tree.key, node.seq, "digest", "", row.key, row.agent, to_json(text), now
            )

    def digests(self, row: SessionRow, nodes: Collection[Node]) -> dict[int, str]:
        """What models said of large ones among these nodes, by their keys."""
        with self._database.read() as reader:
            if nodes:
                found = reader.all(_DIGESTS, row.tree.key, str([node.seq for node in nodes]))
            else:
                found = []
            return {
                node: read_stored(data, str, "what a model said of a message")
                for node, data in found
            }

    def retire(self, row: SessionRow, since: int, now: int) -> int:
        """Let no summary stand any more that this session wrote at a time or later; how many there
        were.
        """
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            found = writer.all(_SINCE, row.tree.key, row.key, since)
            gone = [
                (row.tree.key, node, "retired", name, row.key, row.agent, "true", now)
                for node, name in found
            ]
            if gone:
                writer.run_many(_PUT, gone)
            return len(gone)


def put_summary(writer: Writer, row: SessionRow, node: Node, summary: Summary, now: int) -> None:
    """Keep a summary in a transaction that locks the session."""
    data, name = to_json(replace(summary, name="")), summary.with_name(now).name
    writer.all(_PUT, row.tree.key, node.seq, "summary", name, row.key, row.agent, data, now)


_PUT = """INSERT INTO records (tree, node, kind, name, session, author, data, created)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (tree, node, kind, name) DO NOTHING"""
_STANDS = """NOT EXISTS (SELECT 1 FROM records o
    WHERE o.tree = r.tree AND o.node = r.node AND o.kind = 'retired' AND o.name = r.name)"""
_NEWEST = f"""SELECT n.seq, n.depth, r.name, r.data FROM records r
    JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
    WHERE r.tree = $1 AND r.kind = 'summary' AND r.data IS NOT NULL AND r.session IN {{each_int:2}}
    AND {_STANDS}
    ORDER BY r.seq DESC LIMIT {_MAX_RECENT_SUMMARIES}"""
_DIGESTS = """SELECT node, data FROM records
    WHERE tree = $1 AND node IN {each_int:2} AND kind = 'digest' AND data IS NOT NULL"""
_SINCE = f"""SELECT r.node, r.name FROM records r
    WHERE r.tree = $1 AND r.kind = 'summary' AND r.session = $2 AND r.created >= $3 AND {_STANDS}"""


def _family(reader: Reader, row: SessionRow) -> list[int]:
    """The session and those that it was forked from."""
    keys = [row.key]
    while (
        len(keys) <= _MAX_FORKS
        and (origin := origin_of(reader, row.tree.key, keys[-1])) is not None
    ):
        keys.append(origin)
    return keys
