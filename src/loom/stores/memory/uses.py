"""How often messages were used, and which are forgotten: records beside their nodes.

A session counts what it opens itself; the name of its records is a digest of its id. What is opened
without a session counts for all sessions that have the message. A purge takes these records with
the words, and an export has them.
"""

from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.errors import ChoiceError
from loom.recall.importance import PIN_USES
from loom.stores.sessions import Scope, SessionRow
from loom.stores.sql.database import Database, Reader
from loom.stores.sql.stored import UNREADABLE, decode_stored
from loom.stores.states import Pin
from loom.stores.tree import nodes
from loom.stores.tree.marks import FlagMark
from loom.stores.tree.path import OpenTransaction, Path
from loom.stores.views import HandleTarget

USE, FORGOTTEN = "use", "forgotten"  # kinds of records
ANYBODY = ""  # the name of records without a session
MAX_COUNT = 2**40
MAX_OPENED = 32  # messages under one handle; who opens more asks for none of them


class Use(Struct, frozen=True):
    """How often a message was used, and when last."""

    count: int
    last: int


class UsedNodes(Struct, frozen=True):
    """The messages of a tree that were used, and those that are forgotten, for one session."""

    uses: Mapping[int, Use]
    forgotten: frozenset[int]


class Uses:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add_handles(
        self, scope: Scope, opened: Mapping[tuple[str, int, int, str], int], now: int
    ) -> None:
        """Count that handles were recalled, each given with the key of its tree, and the key and id
        of the session; without a session these are 0 and empty.
        """
        counted: Counter[tuple[int, int, str, int]] = Counter()
        with self._database.read() as reader:
            for (handle, tree, key, session), count in opened.items():
                name = name_of(session) if session else ANYBODY
                for at, data in reader.all(_KEPT, scope.tenant, scope.project, handle, tree):
                    for node in _find_nodes(reader, at, decode_stored(data, HandleTarget)):
                        counted[at, key, name, node] += count
        rows = [
            (tree, node, USE, name, session, to_json(count), now)
            for (tree, session, name, node), count in sorted(counted.items())
        ]
        with self._database.write() as writer:
            writer.run_many(_ADD, rows)

    def find_nodes(self, tree: int, target: HandleTarget) -> list[int]:
        """The nodes that a handle stands for in a tree; none if they are many."""
        with self._database.read() as reader:
            return _find_nodes(reader, tree, target)

    def read(self, row: SessionRow) -> UsedNodes:
        """What a session used, pinned and forgot of its tree."""
        name = name_of(row.id)
        with self._database.read() as reader:
            found = reader.all(_READ, row.tree.key, name)
            pinned = _read_pins(reader, row)
        uses: dict[int, Use] = {}
        forgotten: set[int] = set()
        for node, kind, data, last in found:
            try:
                if kind == FORGOTTEN:
                    forgotten.update([node] if decode_stored(data, bool) else ())
                else:
                    before = uses.get(node, Use(0, 0))
                    count = min(before.count + decode_stored(data, int), MAX_COUNT)
                    uses[node] = Use(count, max(before.last, last))
            except UNREADABLE:  # damaged; the doctor tells of it
                continue
        for node in pinned:
            before = uses.get(node, Use(0, 0))
            uses[node] = Use(before.count + PIN_USES, before.last)
        return UsedNodes(uses, frozenset(forgotten))

    def forget(self, row: SessionRow, node: int, on: bool, now: int) -> None:
        """Let a session forget a message, or take that back."""
        values = (row.tree.key, node, FORGOTTEN, name_of(row.id), row.key, to_json(on), now)
        with self._database.write() as writer:
            writer.all(_MARK, *values)
            purged = "SELECT 1 FROM nodes WHERE tree = $1 AND seq = $2 AND body IS NULL"
            if writer.first_row(purged, row.tree.key, node):
                raise ChoiceError("that message was purged; there is nothing left to forget")


def _find_nodes(reader: Reader, tree: int, target: HandleTarget) -> list[int]:
    """The nodes of a tree that a handle stands for; none if they are too many to say anything of
    each.
    """
    found: dict[int, None] = {}
    for first, last in target.nodes:
        if "/" in last:  # in another tree
            continue
        try:
            start, end = (nodes.find(reader, tree, name) for name in (first, last))
        except ChoiceError:
            continue
        if end.depth - start.depth >= MAX_OPENED:
            return []
        path = Path(OpenTransaction(reader), tree, end)
        found.update((node.seq, None) for node in path.read(start.depth, end.depth + 1))
    return list(found) if len(found) <= MAX_OPENED else []


def name_of(session: str) -> str:
    """The name of the records of a session: it does not tell its id to who gets them."""
    said = session.encode(errors="surrogatepass")
    return blake2b(said, digest_size=8, person=b"uses").hexdigest()


def _read_pins(reader: Reader, row: SessionRow) -> set[int]:
    """The nodes of a tree that are pinned, or that a session has in view."""
    pinned: dict[int, bool] = {}
    for node, data in reader.all(_FLAGS, row.tree.key):
        try:
            mark = decode_stored(data, FlagMark)
        except UNREADABLE:
            continue
        if mark.flag == "pinned":
            pinned[node] = mark.on
    names = list[str]()
    for (data,) in reader.all(_PINS, row.key):
        try:
            names.append(decode_stored(data, Pin).node)
        except UNREADABLE:
            continue
    found = {node for node, on in pinned.items() if on}
    if any(names):
        found.update(seq for (seq,) in reader.all(_NAMED, row.tree.key, to_json(names)))
    return found


_FROM_NODE = """INSERT INTO records (tree, node, kind, name, session, author, data, created)
    SELECT n.tree, n.seq, $3, $4, CAST($5 AS BIGINT), '', $6, CAST($7 AS BIGINT) FROM nodes n
    WHERE n.tree = $1 AND n.seq = $2 AND n.body IS NOT NULL"""
_KEPT = """SELECT h.tree, min(h.data) FROM trees t JOIN handles h ON h.tree = t.key
    WHERE t.tenant = $1 AND t.project = $2 AND h.handle = $3 AND h.data IS NOT NULL
    AND (CAST($4 AS BIGINT) = 0 OR h.tree = $4) GROUP BY h.tree"""
_ADD = f"""{_FROM_NODE} ON CONFLICT (tree, node, kind, name) DO UPDATE
    SET data = CAST(CAST(records.data AS BIGINT) + CAST(excluded.data AS BIGINT) AS TEXT),
    created = excluded.created"""
_MARK = f"""{_FROM_NODE} ON CONFLICT (tree, node, kind, name) DO UPDATE
    SET data = excluded.data, created = excluded.created"""
_READ = """SELECT node, kind, data, created FROM records WHERE tree = $1
    AND kind IN ('use', 'forgotten') AND name IN ('', $2) AND data IS NOT NULL ORDER BY seq"""
_FLAGS = """SELECT node, data FROM records WHERE tree = $1 AND kind = 'flag'
    AND data LIKE '%"pinned"%' ORDER BY seq"""
_PINS = "SELECT data FROM states WHERE session = $1 AND kind = 'pin'"
_NAMED = "SELECT seq FROM nodes WHERE tree = $1 AND id IN {each:2}"
