"""Sessions: a cursor on a tree, with what belongs to it. Every question names its scope; nothing
crosses it.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, check_carried
from loom.conversation.metadata import KIND as METADATA
from loom.conversation.metadata import read_metadata
from loom.conversation.names import check_name, plain_name
from loom.conversation.system_messages import kind_of
from loom.conversation.tree import TreeHead
from loom.errors import ChoiceError, Conflict, shorten
from loom.stores.decisions.writing import take_decisions_of
from loom.stores.events import take_events_of
from loom.stores.health.purge import held_by, take_words
from loom.stores.memory.notes import take_notes_of
from loom.stores.sql.database import Database, Reader, Row, Writer
from loom.stores.sql.stored import (
    UNREADABLE,
    damage_error,
    is_garbled,
    name_unreadable,
    read_each,
    read_rows,
    read_stored,
)
from loom.stores.tree import nodes
from loom.stores.tree.nodes import Draft, TreeRow
from loom.stores.tree.path import BY_SEQ, Node, Path, ancestor, is_on_path, meeting
from loom.stores.tree.together import TAKES_PART, bring_along, join

Status = Literal["active", "archived", "importing", "purged"]


class Scope(Struct, frozen=True):
    """Whose things are meant. Nothing of another tenant or project is ever seen; with an agent
    named, nothing of other agents.
    """

    tenant: str = "default"
    project: str = "default"
    agent: str = ""

    def __post_init__(self) -> None:
        for what, name in (
            ("tenant", self.tenant),
            ("project", self.project),
            ("agent", self.agent),
        ):
            check_name(what, name)
            if not name and what != "agent":
                raise ChoiceError(f"the {what} must have a name; leave it out for 'default'")


class Usage(Struct, frozen=True):
    """What providers reported: tokens read (of them from their cache), tokens written, and
    dollars.
    """

    prompt: Annotated[int, Meta(ge=0, le=2**53)] = 0
    completion: Annotated[int, Meta(ge=0, le=2**53)] = 0
    cached: Annotated[int, Meta(ge=0, le=2**53)] = 0
    cost: Annotated[float, Meta(ge=0)] = 0.0


class Aside(Struct, frozen=True):
    """A system message that is not a node: one before the first message, system text of the
    session, with no id; or one after a node.

    Only a text, which has no roles, and older sessions have those after nodes. In a conversation
    they are nodes.
    """

    after: str
    message: Message


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session as it is stored. `head` is all of its conversation but the messages; `origin` the
    session it came from.
    """

    key: int
    id: str
    tree: TreeRow
    agent: str
    title: str
    model: str
    status: Status
    origin: str
    cursor: int | None
    head: Conversation
    asides: tuple[Aside, ...]
    usage: Usage
    calibration: str
    created: int
    updated: int

    def check_alive(self, status: str | None = None) -> None:
        """Raise if the session is purged; `status` is what it is by now, where that was read."""
        if (status or self.status) == "purged":
            raise ChoiceError(
                f"session {self.id} was purged; its messages are deleted for good, and nothing can "
                "be written to it"
            )


_EMPTY = Conversation(messages=())


class NewSession(Struct, frozen=True, kw_only=True):
    """A session that is to be made."""

    id: str
    title: str = ""
    head: Conversation = _EMPTY
    asides: tuple[Aside, ...] = ()
    origin: str = ""
    status: Status = "active"
    cursor: int | None = None


class Addition(Struct, frozen=True, kw_only=True):
    """What is written with messages.

    `title` is for a session that has none. `asides` are system messages, each with the number of
    messages before it. `usage` is what the answer cost. `records` belong to the last message.
    `calibration` is what was learnt of how models count.
    """

    title: str = ""
    asides: Sequence[tuple[int, Message]] = ()
    usage: Usage | None = None
    records: Sequence[tuple[str, str]] = ()
    calibration: str = ""


_COLUMNS = (
    "key, id, agent, title, model, status, origin, cursor, head, asides, prompt, completion, "
    "cached, cost, calibration, created, "
    "updated"
)
_OF_S = ", ".join(f"s.{name}" for name in _COLUMNS.split(", "))
_FROM = (
    f"SELECT {_OF_S}, t.key, t.tenant, t.project, t.id FROM sessions s "
    "JOIN trees t ON t.key = s.tree"
)
_TREE_KEY = 17  # the column of the tree's key in it
_SCOPED = "s.tenant = $1 AND s.project = $2 AND ($3 = '' OR s.agent = $3)"


def _to_row(row: Row, tree: TreeRow | None = None) -> SessionRow:
    """A session from its columns, and its tree from the next four where that is not known."""
    return SessionRow(
        key=row[0],
        id=row[1],
        tree=tree or TreeRow(*row[_TREE_KEY:]),
        agent=row[2],
        title=row[3],
        model=row[4],
        status=row[5],
        origin=row[6],
        cursor=row[7],
        head=_head(row[8], row[1]),
        asides=_asides(row[9], row[1]),
        usage=Usage(*row[10:14]),
        calibration=row[14],
        created=row[15],
        updated=row[16],
    )


@lru_cache(maxsize=64)
def _head(text: str, session: str) -> Conversation:
    """Read again with every change of a session, and almost always the same; tools can be long."""
    return read_stored(text, Conversation, f"the system text of session {session}")


def _asides(text: str, session: str) -> tuple[Aside, ...]:
    return read_stored(text, tuple[Aside, ...], f"the system messages in session {session}")


def lock_alive(writer: Writer, key: int) -> None:
    """Keep a session as it is until the transaction ends; one that was purged since its writer
    looked is refused.
    """
    found = writer.first_row("SELECT id, status FROM sessions WHERE key = $1 {lock}", key)
    if found is None:
        raise ChoiceError(f"the store has no session {key} to write to; run loom doctor")
    if found[1] == "purged":
        raise ChoiceError(
            f"session {found[0]} was purged; its messages are deleted for good, and nothing "
            "can be written to it"
        )


class Sessions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self,
        scope: Scope,
        new: "NewSession",
        *,
        now: int,
        tree: str = "",
        about: TreeHead | None = None,
        made: int | None = None,
    ) -> SessionRow:
        """A new session on a tree of its own, or on the tree of this id; `about` describes a tree
        made with it, `made` is when.
        """
        title = ""
        if about:
            title = check_name("title", new.title)
        if made is None:
            made = now
        with self._database.write() as writer:
            row = self.make_tree(writer, scope, tree or new.id, made, title, about)
            return self.insert(writer, scope, row, new, now)

    @staticmethod
    def make_tree(
        writer: Writer,
        scope: Scope,
        identity: str,
        now: int,
        title: str = "",
        about: TreeHead | None = None,
    ) -> TreeRow:
        """A tree of this id, or the one that is there already; others who want it wait until the
        transaction ends.
        """
        found = writer.all(
            # Setting it to what it is makes a tree that is there already a row like a new one.
            """INSERT INTO trees (tenant, project, id, title, data, created)
                VALUES ($1, $2, $3, $4, $5, $6)
                ON CONFLICT (tenant, project, id) DO UPDATE SET id = excluded.id
                RETURNING key, tenant, project, id""",
            scope.tenant,
            scope.project,
            check_name("tree's id", identity),
            title,
            to_json(about or TreeHead()),
            now,
        )
        return TreeRow(*found[0])

    def fork(
        self, scope: Scope, row: SessionRow, at: Node | None, identity: str, title: str, now: int
    ) -> SessionRow:
        """A second session on the same tree, of the same agent. No node is copied."""
        with self._database.write() as writer:
            lock(writer, row, importing=False)
            return self._fork(
                writer, replace(scope, agent=row.agent), row, at, identity, title, now
            )

    def join_as(self, scope: Scope, row: SessionRow, identity: str, now: int) -> SessionRow:
        """A session of the scope's agent that takes part in the conversation of a tree, from where
        the tree's own stands.
        """
        with self._database.write() as writer:
            held, _ = lock(writer, row, importing=False)
            at = nodes.get_or_none(writer, row.tree.key, held)
            made = self._fork(writer, scope, row, at, identity, row.title, now)
            join(writer, made.key, now)
            return made

    def _fork(
        self,
        writer: Writer,
        scope: Scope,
        row: SessionRow,
        at: Node | None,
        identity: str,
        title: str,
        now: int,
    ) -> SessionRow:
        if at is not None and at.message is None:
            raise ChoiceError(
                f"message {at.short_id} was purged, and a purge is final; fork at another"
            )
        asides = tuple(
            aside for aside in row.asides if self._is_before(writer, row.tree.key, at, aside.after)
        )
        new = NewSession(
            id=identity,
            title=title,
            head=row.head,
            asides=asides,
            origin=row.id,
            cursor=_seq_of(at),
        )
        return self.insert(writer, scope, row.tree, new, now)

    @staticmethod
    def insert(
        writer: Writer, scope: Scope, tree: TreeRow, new: "NewSession", now: int
    ) -> SessionRow:
        """A new session on a tree."""
        check_carried(*new.head.system, *(aside.message for aside in new.asides))
        found = writer.all(
            f"""INSERT INTO sessions (tenant, project, id, tree, agent, title, model, status,
                origin, cursor, head, asides, created,
                updated) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)
                ON CONFLICT (tenant, project, id) DO NOTHING RETURNING {_COLUMNS}""",
            scope.tenant,
            scope.project,
            check_name("session's id", new.id),
            tree.key,
            scope.agent,
            check_name("title", new.title),
            plain_name(new.head.model),
            new.status,
            check_name("session's origin", new.origin),
            new.cursor,
            to_json(new.head),
            to_json(new.asides),
            now,
        )
        if not found:
            raise ChoiceError(f"there is a session {new.id} in project {scope.project} already")
        return _to_row(found[0], tree)

    def on_tree(self, tree: TreeRow, agent: str, importing: bool = False) -> SessionRow | None:
        """The session of this agent that takes part in a tree's conversation, where there is one,
        else the one used last.

        With `importing`, one whose import has not come to its end.
        """
        status: Status = "importing" if importing else "active"
        with self._database.read() as reader:
            row = reader.first_row(
                f"""{_FROM} WHERE s.tree = $1 AND s.agent = $2 AND s.status = $3
                    ORDER BY CASE WHEN s.id = t.id THEN 0
                    WHEN {TAKES_PART} THEN 1 ELSE 2 END, s.updated DESC, s.key LIMIT 1""",
                tree.key,
                agent,
                status,
            )
            if row:
                return _to_row(row)
            return None

    def join(self, row: SessionRow, now: int) -> SessionRow:
        """Let a session take part in the conversation of its tree."""
        with self._database.write() as writer:
            lock(writer, row, importing=False)
            join(writer, row.key, now)
            return by_key(writer, row.key)

    def takes_part(self, row: SessionRow) -> bool:
        """Whether what is said where this session stands is where it continues."""
        with self._database.read() as reader:
            return (
                reader.first_row(
                    f"SELECT 1 FROM sessions s WHERE s.key = $1 AND {TAKES_PART}", row.key
                )
                is not None
            )

    def exists(self, scope: Scope, identity: str) -> bool:
        """Whether the project has a session of just this id, whatever became of it."""
        with self._database.read() as reader:
            sql = "SELECT 1 FROM sessions WHERE tenant = $1 AND project = $2 AND id = $3"
            return reader.first_row(sql, scope.tenant, scope.project, identity) is not None

    def get(self, scope: Scope, name: str) -> SessionRow:
        """The session of this id, or of the one that begins so."""
        with self._database.read() as reader:
            return _get(reader, scope, name)

    def find(self, scope: Scope, name: str) -> tuple[int, int]:
        """The keys of the tree and of the session of this id, or of the one that begins so,
        whatever is damaged in it.
        """
        with self._database.read() as reader:
            row = _find(reader, scope, name)
            return row[_TREE_KEY], row[0]

    def list_all(
        self, scope: Scope, statuses: Sequence[Status] = ("active",), limit: int = 0
    ) -> list[SessionRow]:
        """The sessions in scope, the one used last first."""
        with self._database.read() as reader:
            found = read_rows(
                reader,
                f"{_FROM} WHERE {_SCOPED} AND s.status IN {{each:4}} "
                "ORDER BY s.updated DESC, s.key DESC LIMIT $5",
                scope.tenant,
                scope.project,
                scope.agent,
                to_json(statuses),
                limit or 1_000_000_000,
            )
            return read_each(found, _to_row, lambda row: f"session {row[1]}")

    def sizes(self, rows: Sequence[SessionRow]) -> dict[int, tuple[int, int]]:
        """How many messages each of these sessions has said, and their tokens, by its key; one that
        said nothing is left out.
        """
        with self._database.read() as reader:
            found = reader.all(
                """SELECT s.key, n.depth + 1, n.total FROM sessions s
                    JOIN nodes n ON n.tree = s.tree AND n.seq = s.cursor
                    WHERE s.key IN {each_int:1}""",
                str([row.key for row in rows]),
            )
            return {key: (messages, tokens) for key, messages, tokens in found}

    def path(self, row: SessionRow, end: Node | None = None) -> Path:
        """What was said in this session, as far as its row knows. `end` is not read again where it
        is the node at the cursor.
        """
        if row.cursor is None:
            return Path(self._database, row.tree.key, None)
        if end is None or end.seq != row.cursor:
            with self._database.read() as reader:
                end = nodes.get(reader, row.tree.key, row.cursor)
        return Path(self._database, row.tree.key, end)

    def node(self, row: SessionRow, name: str) -> Node:
        """A node of the session's tree by its id, or a beginning of it."""
        with self._database.read() as reader:
            return nodes.find(reader, row.tree.key, name)

    def append(
        self,
        row: SessionRow,
        after: Node | None,
        drafts: Sequence[Draft],
        *,
        now: int,
        added: "Addition | None" = None,
        importing: bool = False,
        move: bool = True,
    ) -> tuple[SessionRow, list[Node]]:
        """Write messages after `after` and move the cursor there, all or nothing, with what is
        `added` to them.

        Without `move` the cursor stays where it is, wherever that is.
        A chain that this session holds already, after the same node, is found and not written
        again: a retry is safe.
        """
        added = added or Addition()
        with self._database.write() as writer:
            held, beside = lock(writer, row, importing)
            made, known = nodes.append(writer, row.tree, after, drafts, row.key, now)
            system = _asides(beside, row.id)
            fresh = _place_asides(after, made, added.asides)
            if move and held != _seq_of(after):
                is_retry = known == len(drafts) and all(aside in system for aside in fresh)
                if is_retry and self._is_passed(
                    writer, row.tree.key, held, made[-1] if made else after
                ):
                    return by_key(writer, row.key), made
                raise conflict(writer, row, after, held)
            system += tuple(aside for aside in fresh if aside not in system)
            end = made[-1].seq if made and move else held
            cost = _cost_to_charge(writer, row, made, added.usage)
            found = writer.all(
                f"""UPDATE sessions SET cursor = $2, updated = $3, title = CASE
                    WHEN title = '' THEN $4 ELSE title END,
                    asides = $5, prompt = prompt + $6, completion = completion + $7,
                    cached = cached + $8, cost = cost + $9,
                    calibration = CASE WHEN $10 = '' THEN calibration ELSE $10 END WHERE key = $1
                    RETURNING {_COLUMNS}, (SELECT count(*) FROM sessions o
                    WHERE o.tree = $11 AND o.key <> $1)""",
                row.key,
                end,
                now,
                added.title,
                to_json(system),
                *(cost.prompt, cost.completion, cost.cached, cost.cost),
                added.calibration,
                row.tree.key,
            )
            if made and move and found[0][-1]:
                bring_along(writer, row.tree.key, row.key, [held], end)
            write_metadata_of(writer, row, made[known:], drafts[known:], now)
            if made:
                write_beside(writer, row, made[-1].seq, added.records, now)
            return _to_row(found[0], row.tree), made

    def charge(
        self,
        row: SessionRow,
        node: Node,
        name: str,
        usage: Usage,
        records: Sequence[tuple[str, str]],
        calibration: str,
        now: int,
    ) -> SessionRow:
        """Count what an answer cost of which no node was made, once; its records belong to the
        node that it answers.
        """
        with self._database.write() as writer:
            lock(writer, row, importing=False)
            if not _is_charged(writer, row, node, name):
                writer.all(
                    """UPDATE sessions SET prompt = prompt + $2, completion = completion + $3,
                        cached = cached + $4,
                        cost = cost + $5, calibration = CASE WHEN $6 = '' THEN calibration
                        ELSE $6 END, updated = $7
                        WHERE key = $1""",
                    row.key,
                    usage.prompt,
                    usage.completion,
                    usage.cached,
                    usage.cost,
                    calibration,
                    now,
                )
            write_beside(writer, row, node.seq, records, now, name)
            return by_key(writer, row.key)

    def switch(self, row: SessionRow, to: Node | None, now: int) -> SessionRow:
        """Move the cursor to another node of the tree."""
        with self._database.write() as writer:
            held, _ = lock(writer, row, importing=False)
            if held != row.cursor:
                before = nodes.get_or_none(writer, row.tree.key, row.cursor)
                raise conflict(writer, row, before, held)
            if not row.agent:
                bring_along(writer, row.tree.key, row.key, [held], _seq_of(to))
            moved = (
                f"UPDATE sessions SET cursor = $2, updated = $3 WHERE key = $1 RETURNING {_COLUMNS}"
            )
            return _to_row(writer.all(moved, row.key, _seq_of(to), now)[0], row.tree)

    def change(
        self,
        row: SessionRow,
        *,
        now: int,
        title: str | None = None,
        status: Status | None = None,
        head: Conversation | None = None,
        calibration: str | None = None,
    ) -> SessionRow:
        """Give a session another title, status or head."""
        with self._database.write() as writer:
            lock(writer, row)
            new_head = new_model = None
            if head is not None:
                check_carried(*head.system)
                new_head, new_model = to_json(head), plain_name(head.model)
            if title is not None:
                check_name("title", title)
            writer.all(
                """UPDATE sessions SET title = coalesce($2, title), status = coalesce($3, status),
                    head = coalesce($4, head),
                    model = coalesce($5, model), calibration = coalesce($6, calibration),
                    updated = $7 WHERE key = $1""",
                row.key,
                title,
                status,
                new_head,
                new_model,
                calibration,
                now,
            )
            return by_key(writer, row.key)

    def records(self, row: SessionRow, node: Node, kind: str) -> list[str]:
        """The records of a node, by their kind."""
        with self._database.read() as reader:
            found = reader.all(
                """SELECT data FROM records
                    WHERE tree = $1 AND node = $2 AND kind = $3 AND name = '' AND data IS NOT NULL
                    ORDER BY seq""",
                row.tree.key,
                node.seq,
                kind,
            )
            return [data for (data,) in found]

    def metadata(self, tree: TreeRow, seqs: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The metadata of nodes of a tree, by their keys. Nodes without any are left out."""
        with self._database.read() as reader:
            return metadata_of(reader, tree.key, seqs)

    def recognise(
        self, scope: Scope, messages: Sequence[Message]
    ) -> tuple[list[SessionRow], Node | None, int]:
        """Where a resent history is known from: the sessions on that tree, the node, and how many
        of the messages it covers.
        """
        with self._database.read() as reader:
            tree, node, count = nodes.recognise(reader, scope.tenant, scope.project, messages)
            found = reader.all(
                f"{_FROM} WHERE {_SCOPED} AND s.tree = $4 AND s.status = 'active' "
                "ORDER BY s.updated DESC",
                scope.tenant,
                scope.project,
                scope.agent,
                tree,
            )
            return list(map(_to_row, found)), node, count

    def purge(self, row: SessionRow, now: int, notes: bool = False) -> tuple[int, int]:
        """Take away for good what only this session holds. How many messages went, and how many
        stay because others hold them. With `notes`, also notes for others that were remembered in
        it, or come from what goes.

        The rows stay as tombstones: ids and places without words. What the files of the database
        still hold of the words, `shed` removes; until all is gone, `purge_ended` is not called,
        and a note says so. All of it can be done again at any time.
        """
        tree = row.tree.key
        with self._database.write() as writer:
            cursor, _ = lock(writer, row, purged=True)
            others = writer.all(
                "SELECT cursor FROM sessions WHERE tree = $1 AND key <> $2 "
                "AND status <> 'purged' AND cursor IS NOT NULL",
                tree,
                row.key,
            )
            own: dict[int, int] = dict(
                writer.all(
                    "SELECT seq, depth FROM nodes WHERE tree = $1 AND session = $2 "
                    "AND body IS NOT NULL",
                    tree,
                    row.key,
                )
            )
            # What purged sessions wrote stayed because others stood on it; who goes takes along
            # what nobody stands on any more.
            own |= dict(writer.all(_LEFT, tree))
            kept = held_by(writer, tree, [seq for (seq,) in others], own)
            gone = {seq: depth for seq, depth in own.items() if seq not in kept}
            stay = 0
            if cursor is not None:
                said = nodes.get(writer, tree, cursor).depth + 1
                stay = said - len(held_by(writer, tree, [cursor], gone))
            where = (row.tree.tenant, row.tree.project)
            take_events_of(writer, where, row.id, row.key, sorted(gone))
            take_words(writer, row.tree, row.key, gone, now)
            _take_notes(writer, row, gone if notes else None)
            take_decisions_of(writer, *where, row.id)
            writer.all(
                """UPDATE sessions SET title = '', cursor = NULL, head = $2, asides = '[]',
                    calibration = '', model = '',
                    updated = CASE WHEN status = 'purged' THEN updated
                    ELSE $3 END, status = 'purged' WHERE key = $1""",
                row.key,
                to_json(_EMPTY),
                now,
            )
        return len(gone), stay

    def purge_ended(self, row: SessionRow) -> None:
        """That nothing of a purged session is left anywhere."""
        with self._database.write() as writer:
            writer.all("DELETE FROM states WHERE session = $1", row.key)

    def discard(self, tree: int) -> None:
        """Take back an import that did not come to its end: no trace of it is left. What others
        built on meanwhile stays.
        """
        with self._database.write() as writer:
            writer.first_row("SELECT key FROM trees WHERE key = $1 {lock}", tree)
            if writer.first_row(_BUILT_ON, tree) is not None:
                return
            coming = "(SELECT key FROM sessions WHERE tree = $1 AND status = 'importing')"
            for table in ("views", "states"):
                writer.all(f"DELETE FROM {table} WHERE session IN {coming}", tree)
            beside = f"node IN (SELECT seq FROM nodes WHERE tree = $1 AND session IN {coming})"
            writer.all(
                f"DELETE FROM records WHERE tree = $1 AND (session IN {coming} OR {beside})", tree
            )
            for table in ("handles", "nodes"):
                writer.all(f"DELETE FROM {table} WHERE tree = $1 AND session IN {coming}", tree)
            writer.all("DELETE FROM sessions WHERE tree = $1 AND status = 'importing'", tree)
            if writer.first_row("SELECT 1 FROM sessions WHERE tree = $1", tree) is None:
                writer.all("DELETE FROM trees WHERE key = $1", tree)
                writer.all("DELETE FROM search_trees WHERE tree = $1", tree)

    @staticmethod
    def _is_before(reader: Reader, tree: int, end: Node | None, name: str) -> bool:
        return not name or is_on_path(reader, tree, end, name)

    @staticmethod
    def _is_passed(reader: Reader, tree: int, held: int | None, node: Node | None) -> bool:
        """Whether a node is on the path to where a session is."""
        if held is None or node is None:
            return False
        depth = nodes.get(reader, tree, held).depth
        return node.depth <= depth and ancestor(reader, tree, held, node.depth) == node.seq

    def newest_asides(self, row: SessionRow, path: Path) -> tuple[Aside, ...]:
        """Of the asides that were said after a message of this path, the newest of each kind, in
        their order.
        """
        found: dict[str, Aside] = {}
        for aside in reversed(row.asides):
            kind = kind_of(aside.message)
            if aside.after and kind not in found and path.says(aside.after):
                found[kind] = aside
        return tuple(reversed(found.values()))

    def on_path(self, row: SessionRow, path: Path) -> tuple[Aside, ...]:
        """The asides whose place is on this path."""
        return tuple(aside for aside in row.asides if not aside.after or path.says(aside.after))

    def meeting(self, one: Path, other: Path) -> int:
        """How many nodes two paths of a tree share."""
        if one.end is None or other.end is None:
            return 0
        with self._database.read() as reader:
            return meeting(reader, one.tree, one.end, other.end) + 1


# Whether somebody else stands on a node of an import that is under way, wrote after it, or says
# something of it.
_BUILT_ON = """SELECT 1 FROM sessions i JOIN nodes n ON n.tree = i.tree AND n.session = i.key
    WHERE i.tree = $1 AND i.status = 'importing' AND (
        EXISTS (SELECT 1 FROM sessions s
        WHERE s.tree = n.tree AND s.cursor = n.seq AND s.status <> 'importing')
        OR EXISTS (SELECT 1 FROM nodes c JOIN sessions s ON s.key = c.session
            WHERE c.tree = n.tree AND c.parent = n.seq AND s.status <> 'importing')
        OR EXISTS (SELECT 1 FROM records r JOIN sessions s ON s.key = r.session
            WHERE r.tree = n.tree AND r.node = n.seq AND s.status <> 'importing')) LIMIT 1"""
_LEFT = """SELECT n.seq, n.depth FROM nodes n JOIN sessions s ON s.key = n.session
    WHERE n.tree = $1 AND s.status = 'purged' AND n.body IS NOT NULL"""


def _take_notes(writer: Writer, row: SessionRow, gone: Collection[int] | None) -> None:
    """Take away the notes of a session; with nodes that went, also those that come from it."""
    names = None
    if gone is not None:
        found = writer.all(f"SELECT n.id FROM {BY_SEQ}", row.tree.key, str(sorted(gone)))
        names = [f"{row.tree.id}/{name}" for (name,) in found]
    take_notes_of(writer, row.tree.tenant, row.tree.project, row.id, names)


def _seq_of(node: Node | None) -> int | None:
    if node is None:
        return None
    return node.seq


def _place_asides(
    after: Node | None, made: Sequence[Node], asides: Sequence[tuple[int, Message]]
) -> list[Aside]:
    """System messages after the messages that were written before them."""
    places = [after.id if after else "", *(node.id for node in made)]
    check_carried(*(message for _, message in asides))
    return [Aside(places[index], message) for index, message in asides]


def _cost_to_charge(
    reader: Reader, row: SessionRow, made: Sequence[Node], usage: Usage | None
) -> Usage:
    """What an answer cost, if that is not counted yet: it is where it is recorded, however often
    the same answer comes.
    """
    if usage is None or not made or _is_charged(reader, row, made[-1]):
        return Usage()
    return usage


def _get(reader: Reader, scope: Scope, name: str) -> SessionRow:
    row = _find(reader, scope, name)
    if is_garbled(row):
        raise damage_error(f"session {row[1]}")
    return _to_row(row)


def _find(reader: Reader, scope: Scope, name: str) -> Row:
    check_name("session's id", name)
    scoped = (scope.tenant, scope.project, scope.agent)
    rows = read_rows(reader, f"{_FROM} WHERE {_SCOPED} AND s.id = $4", *scoped, name)
    if not rows and len(name) >= 4:
        sql = f"{_FROM} WHERE {_SCOPED} AND s.id >= $4 AND s.id < $5 LIMIT 3"
        rows = read_rows(reader, sql, *scoped, name, name + "\uffff")
    if not rows:
        whose = f" of agent {scope.agent}" if scope.agent else ""
        raise ChoiceError(
            f"there is no session {shorten(name)!r}{whose} in project {scope.project!r}; loom "
            "session list shows them"
        )
    if len(rows) > 1:
        matching = ", ".join(str(row[1]) for row in rows)
        raise ChoiceError(
            f"{shorten(name)!r} matches several sessions ({matching}); give more characters"
        )
    return rows[0]


def by_key(reader: Reader, key: int) -> SessionRow:
    row = reader.first_row(f"{_FROM} WHERE s.key = $1", key)
    if row is None:
        raise damage_error(f"session {key}")
    return _to_row(row)


def lock(
    writer: Writer, row: SessionRow, importing: bool = True, purged: bool = False
) -> tuple[int | None, str]:
    """The cursor and the asides as they are stored, held until the transaction ends."""
    # The tree too: what two sessions write to it at once must not get one name twice.
    found = writer.first_row(
        "SELECT s.cursor, s.asides, s.status FROM sessions s JOIN trees t ON t.key = s.tree "
        "WHERE s.key = $1 {lock}",
        row.key,
    )
    if found is None or not purged:
        row.check_alive(found[2] if found else "purged")
    assert found is not None
    if found[2] == "importing" and not importing:
        raise ChoiceError(
            f"session {row.id} is still being imported; wait until it is done, or import its "
            "file again"
        )
    return found[0], found[1]


def conflict(reader: Reader, row: SessionRow, after: Node | None, held: int | None) -> Conflict:
    found = nodes.get_or_none(reader, row.tree.key, held)
    return Conflict(row.id, _name_of(after), _name_of(found))


def _name_of(node: Node | None) -> str:
    if node is None:
        return "its beginning"
    return node.short_id


def _is_charged(reader: Reader, row: SessionRow, node: Node, name: str = "") -> bool:
    """Whether it is recorded next to a node what its answer cost, or what one of this name cost
    that it is the question of.
    """
    sql = "SELECT 1 FROM records WHERE tree = $1 AND node = $2 AND kind = 'usage' AND name = $3"
    return reader.first_row(sql, row.tree.key, node.seq, name) is not None


def metadata_of(reader: Reader, tree: int, seqs: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The metadata of nodes, by their keys. What is damaged is named and left out."""
    return metadata_by_pairs(reader, to_json([(tree, seq) for seq in seqs]))


def metadata_by_pairs(reader: Reader, pairs: str) -> dict[int, dict[str, Any]]:
    """The same of nodes that are given as pairs of tree and key."""
    found: dict[int, dict[str, Any]] = {}
    for seq, data in read_rows(reader, _METADATA, pairs, METADATA):
        try:
            found[seq] = read_metadata(data)
        except UNREADABLE:
            name_unreadable(f"the metadata of node {seq}")
    return found


_METADATA = """SELECT r.node, r.data FROM {each_pair:1} e CROSS JOIN records r
    WHERE r.tree = e.tree AND r.node = e.seq AND r.kind = $2 AND r.name = ''
    AND r.data IS NOT NULL"""


def write_metadata_of(
    writer: Writer, row: SessionRow, made: Sequence[Node], drafts: Sequence[Draft], now: int
) -> None:
    """Write the metadata of new messages beside their nodes."""
    pairs = zip(made, drafts, strict=True)
    _write_records(
        writer,
        row,
        [(node.seq, METADATA, "", draft.metadata) for node, draft in pairs if draft.metadata],
        now,
    )


def write_beside(
    writer: Writer,
    row: SessionRow,
    node: int,
    records: Sequence[tuple[str, str]],
    now: int,
    name: str = "",
) -> None:
    """Write the records of a node, by kind."""
    _write_records(writer, row, [(node, kind, name, data) for kind, data in records], now)


def _write_records(
    writer: Writer, row: SessionRow, records: Sequence[tuple[int, str, str, str]], now: int
) -> None:
    if not records:
        return
    writer.run_many(
        """INSERT INTO records (tree, node, kind, name, session, author, data, created)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (tree, node, kind, name) DO NOTHING""",
        [
            (row.tree.key, node, kind, name, row.key, row.agent, data, now)
            for node, kind, name, data in records
        ],
    )
