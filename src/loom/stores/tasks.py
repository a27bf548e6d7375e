"""Tasks: each is a node in the session of its label, with the task's id as generation key.

A label is kept as a state of its session. A session is made when its label is first named; its id
is made from agent and label, so that two programs that name a label at once make one session. What
a task is, and what became of it, are records beside its node.
"""

from base64 import b32encode
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.conversation.names import flatten, plain_name
from loom.errors import ChoiceError, shorten
from loom.stores.sessions import NewSession, Scope, SessionRow, Sessions, by_key, lock, write_beside
from loom.stores.settings import put_states
from loom.stores.sql.database import Database, Reader, Row
from loom.stores.sql.stored import read_each, read_rows
from loom.stores.states import LABEL
from loom.stores.tree import nodes
from loom.stores.tree.nodes import Draft
from loom.stores.tree.path import OF_N, Node, to_node
from loom.stores.tree.together import bring_along

TASK = "task"  # the kind of the record that says what a task is
OUTCOME = "task_outcome"  # the kind of the records that say what became of it; the last one holds


class NewTask(Struct, frozen=True, kw_only=True):
    """A task that is to be written. `data` and `outcome` are the JSON of its records."""

    id: str
    label: str
    message: Message
    tokens: int
    data: str
    outcome: str
    created: int


class StoredTask(Struct, frozen=True, kw_only=True):
    """A task as it is stored. `outcome` is the JSON of what became of it last."""

    id: str
    label: str
    session: str
    agent: str
    node: Node
    data: str
    outcome: str


class Tasks:
    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database, self._sessions = database, sessions

    def add(self, scope: Scope, new: NewTask, now: int) -> tuple[StoredTask, bool]:
        """Write a task after the last one of its session; the task, and whether it is new. One that
        is there already is found, and stays as it is.
        """
        row = self.session_of(scope, new.label) or self._make_session(scope, new.label, now)
        with self._database.write() as writer:
            cursor, _ = lock(writer, row, importing=False)
            found = _find(writer, scope, new.id, row.key)
            if found is not None:
                return found, False
            after = nodes.get_or_none(writer, row.tree.key, cursor)
            draft = Draft(new.message, new.tokens, new.id, created=new.created)
            [node], _ = nodes.append(writer, row.tree, after, [draft], row.key, now)
            writer.all(
                "UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1",
                row.key,
                node.seq,
                now,
            )
            bring_along(writer, row.tree.key, row.key, [cursor], node.seq)
            write_beside(writer, row, node.seq, [(TASK, new.data)], now)
            write_beside(writer, row, node.seq, [(OUTCOME, new.outcome)], now, _number(0))
            made = StoredTask(
                id=new.id,
                label=new.label,
                session=row.id,
                agent=row.agent,
                node=node,
                data=new.data,
                outcome=new.outcome,
            )
            return made, True

    def put_outcome(self, scope: Scope, task: StoredTask, outcome: str, now: int) -> bool:
        """Write what became of a task; whether nobody else wrote that since `task` was read."""
        with self._database.write() as writer:
            found = writer.first_row(
                "SELECT key FROM sessions WHERE tenant = $1 AND project = $2 AND id = $3",
                scope.tenant,
                scope.project,
                task.session,
            )
            if found is None:
                return False
            row = by_key(writer, found[0])
            lock(writer, row, importing=False)
            rows = writer.all(_OUTCOMES, row.tree.key, str([task.node.seq]), OUTCOME)
            if rows and rows[-1][1] != task.outcome:
                return False
            write_beside(writer, row, task.node.seq, [(OUTCOME, outcome)], now, _number(len(rows)))
            return True

    def get(self, scope: Scope, name: str, label: str | None = None) -> StoredTask | None:
        """The task of this id; with a label, only in its session. The newest, if it is in
        several.
        """
        with self._database.read() as reader:
            return _find(reader, scope, name, label=label)

    def get_all(self, scope: Scope, name: str, label: str | None = None) -> list[StoredTask]:
        """The tasks of this id in all sessions, or in those of a label, the newest first."""
        with self._database.read() as reader:
            values = (*_scope_values(scope), name, 0, label or "", _every(label))
            return _read(reader, read_rows(reader, _BY_ID, *values))

    def list_newest(
        self, scope: Scope, label: str | None, limit: int, before: int | None = None
    ) -> list[StoredTask]:
        """The newest tasks of a label, or of all of them, the newest first; with `before`, those
        before the node of this key.
        """
        until = 2**62 if before is None else before
        found: list[StoredTask] = []
        with self._database.read() as reader:
            for (tree,) in reader.all(_LABELLED, *_scope_values(scope), label or "", _every(label)):
                rows = read_rows(reader, _NEWEST, *_scope_values(scope), tree, until, limit)
                found += _read(reader, rows)
        found.sort(key=lambda task: -task.node.seq)
        return found[:limit]

    def at(self, scope: Scope, session: str, node: str) -> StoredTask | None:
        """The task at a node of a session, given by its id or its short id."""
        with self._database.read() as reader:
            for sql in (_AT_SHORT_ID, _AT_ID):
                found = _read(reader, read_rows(reader, sql, *_scope_values(scope), session, node))
                if found:
                    return found[0]
        return None

    def label_of(self, scope: Scope, session: str) -> str | None:
        """The label of a session; None if it has none."""
        with self._database.read() as reader:
            row = reader.first_row(_LABEL_OF, scope.tenant, scope.project, session)
            return None if row is None else row[0]

    def session_of(self, scope: Scope, label: str) -> SessionRow | None:
        """The session of this label and the scope's agent, if there is one."""
        with self._database.read() as reader:
            return _find_session(reader, scope, label)

    def _make_session(self, scope: Scope, label: str, now: int) -> SessionRow:
        """Make the session of a label, in a transaction of its own: it locks the tree first, and
        who writes locks the session first.
        """
        with self._database.write() as writer:
            for number in count():
                name = _session_id(scope.agent, label, number)
                tree = self._sessions.make_tree(writer, scope, name, now)  # one at a time
                found = _find_session(writer, scope, label)
                if found is not None:
                    return found
                if writer.first_row("SELECT 1 FROM sessions WHERE tree = $1", tree.key) is None:
                    new = NewSession(id=name, title=plain_name(flatten(label)))
                    row = self._sessions.insert(writer, scope, tree, new, now)
                    put_states(writer, row.key, [(LABEL, {label: "true"})], now)
                    return row
        raise AssertionError("the numbers do not end")


def _session_id(agent: str, label: str, number: int) -> str:
    """The id of the session of a label. A purged session leaves its id behind, so the next one has
    another.
    """
    said = to_json([agent, label, number]).encode()
    return b32encode(blake2b(said, digest_size=10, person=b"label").digest()).decode().lower()


def _find_session(reader: Reader, scope: Scope, label: str) -> SessionRow | None:
    row = reader.first_row(_SESSION, scope.tenant, scope.project, scope.agent, label)
    if row is None:
        return None
    return by_key(reader, row[0])


def _find(
    reader: Reader, scope: Scope, name: str, session: int = 0, label: str | None = None
) -> StoredTask | None:
    rows = read_rows(
        reader, _BY_ID, *_scope_values(scope), name, session, label or "", _every(label)
    )
    found = _read(reader, rows)
    if found:
        return found[0]
    if rows and session:
        raise ChoiceError(
            f"task {shorten(name)!r} was purged, and a purge is final; give the task another id"
        )
    return None


def _read(reader: Reader, rows: Sequence[Row]) -> list[StoredTask]:
    """Tasks from their rows, with what became of each. Those that were purged are left out."""
    made = read_each(rows, _to_task, lambda row: f"task {row[5]}")
    made = [task for task in made if task.node.message is not None and task.data]
    trees = {row[_SEQ]: row[0] for row in rows}
    outcomes: dict[int, str] = {}
    for tree in sorted(set(trees.values())):
        nodes_of_tree = [seq for seq, at in trees.items() if at == tree]
        outcomes |= dict(read_rows(reader, _OUTCOMES, tree, str(nodes_of_tree), OUTCOME))
    return [replace(task, outcome=outcomes.get(task.node.seq, "")) for task in made]


def _to_task(row: Row) -> StoredTask:
    return StoredTask(
        id=row[5],
        label=row[3],
        session=row[1],
        agent=row[2],
        node=to_node(row[_SEQ:]),
        data=row[4] or "",
        outcome="",
    )


def _scope_values(scope: Scope) -> tuple[str, str, str]:
    return scope.tenant, scope.project, scope.agent


def _every(label: str | None) -> int:
    return int(label is None)


def _number(place: int) -> str:
    return f"{place:06}"


_SEQ: Any = 6  # the column of the node's key, where those of the node begin
_ALIVE = "s.status IN ('active', 'archived')"
_SESSION = f"""SELECT s.key FROM states x JOIN sessions s ON s.key = x.session
    WHERE x.kind = 'label' AND x.name = $4 AND s.tenant = $1 AND s.project = $2 AND s.agent = $3
    AND {_ALIVE} ORDER BY s.key LIMIT 1"""
_LABELLED = f"""SELECT s.tree FROM states x JOIN sessions s ON s.key = x.session
    WHERE x.kind = 'label' AND (x.name = $4 OR CAST($5 AS BIGINT) = 1)
    AND s.tenant = $1 AND s.project = $2 AND ($3 = '' OR s.agent = $3) AND {_ALIVE}"""
_LABEL_OF = """SELECT x.name FROM sessions s JOIN states x ON x.session = s.key
    WHERE s.tenant = $1 AND s.project = $2 AND s.id = $3 AND x.kind = 'label'"""
_ROWS = f"""SELECT n.tree, s.id, s.agent, x.name, r.data, n.generation, {OF_N} FROM nodes n
    JOIN records r ON r.tree = n.tree AND r.node = n.seq AND r.kind = 'task' AND r.name = ''
    JOIN sessions s ON s.tree = n.tree
    JOIN states x ON x.session = s.key AND x.kind = 'label'
    WHERE s.tenant = $1 AND s.project = $2 AND ($3 = '' OR s.agent = $3) AND {_ALIVE}"""
_BY_ID = f"""{_ROWS} AND n.generation = $4 AND n.generation <> ''
    AND (CAST($5 AS BIGINT) = 0 OR s.key = $5)
    AND (x.name = $6 OR CAST($7 AS BIGINT) = 1) ORDER BY n.seq DESC LIMIT 20"""
_NEWEST = f"{_ROWS} AND n.tree = $4 AND n.seq < $5 ORDER BY n.seq DESC LIMIT $6"
_AT_SHORT_ID = f"{_ROWS} AND s.id = $4 AND n.local = $5"
_AT_ID = f"{_ROWS} AND s.id = $4 AND n.id = $5"
_OUTCOMES = """SELECT node, data FROM records
    WHERE tree = $1 AND node IN {each_int:2} AND kind = $3 AND data IS NOT NULL ORDER BY seq"""
