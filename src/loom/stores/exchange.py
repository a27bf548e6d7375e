"""Sessions out of a store and back in, as JSON lines with the same ids. A file of any size passes in the memory of a few lines.

Out: one snapshot is read. What a project settles comes first. A tree is written once with all of its sessions. A session without
the others of its tree is written with its path, all that it wrote, what that stands on, and what it can reach: what is read beside
its path, views it goes on from, handles it can recall. What else it names (what a node was edited from, where a link leads, other
trees) stays behind, and is missed by nobody.
In: see intake.py.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from typing import Any, TypeVar

import msgspec

from loom.budget.calibration import Calibration
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Conversation
from loom.conversation.tree import TreeHead
from loom.errors import StoreError
from loom.stores import nodes
from loom.stores.bearing import bearing
from loom.stores.database import Reader, Row
from loom.stores.intake import Imported as Imported
from loom.stores.intake import import_lines as import_lines
from loom.stores.lines import (
    NOBODY,
    VERSION,
    WHAT,
    Beside,
    EndLine,
    First,
    HandleLine,
    NodeLine,
    SessionLine,
    SettingLine,
    State,
    TreeLine,
    ViewLine,
)
from loom.stores.lines import is_export as is_export
from loom.stores.nodes import TreeRow
from loom.stores.path import BY_SEQ, CHUNK, Opened, Path, ancestor, meeting, stands
from loom.stores.sessions import Aside, Scope, SessionRow, Usage
from loom.stores.settings import states_of
from loom.stores.states import LOCAL
from loom.stores.store import Store
from loom.stores.views import TRIED, Kept, Reach, View, handles_of, origin_of

_PAGE = 200  # rows read at once
_FEW = 20_000  # names of nodes held at once
_T = TypeVar("_T")

# Which nodes a tree has is told by an index, but not in their order; of a large tree the nodes themselves are looked through.
_IN_ORDER = {"sqlite": "nodes NOT INDEXED", "postgres": "nodes"}


def export_session(store: Store, row: SessionRow) -> Iterator[str]:
    """A session as lines: the nodes of its path, and every node that it wrote."""
    with store.database.read() as reader:
        yield to_json(First(WHAT, VERSION))
        yield from _told((), [_Alone(store, reader, row.tree.key, row.key)], False)


def export_all(store: Store, scope: Scope, everywhere: bool = False) -> Iterator[str]:
    """All sessions in scope as lines, and what is settled there; everywhere, those of every tenant and project."""
    scope = Scope() if everywhere else scope
    with store.database.read() as reader:
        yield to_json(First(WHAT, VERSION, everywhere))
        yield from _told(_settings(reader, scope, everywhere), _parts(store, reader, scope, everywhere), everywhere)


def _settings(reader: Reader, scope: Scope, everywhere: bool) -> Iterator[SettingLine]:
    """What projects settle. With an agent named, nothing of other agents."""
    projects = reader.all(_PROJECTS) if everywhere else [(scope.tenant, scope.project)]
    for tenant, project in projects:
        for kind, name, data, author, updated in reader.all(_SETTINGS, tenant, project, scope.agent):
            where = (tenant, project) if everywhere else ("", "")
            yield SettingLine(kind=kind, name=name, tenant=where[0], project=where[1], data=data, author=author, updated=updated)


def _parts(store: Store, reader: Reader, scope: Scope, everywhere: bool) -> Iterator["_Whole"]:
    tenant, project = ("", "") if everywhere else (scope.tenant, scope.project)
    for (tree,) in _paged(reader, _TREES, 0, tenant, project):
        held = reader.all("SELECT key, agent FROM sessions WHERE tree = $1 ORDER BY key", tree)
        wanted = [key for key, agent in held if scope.agent in ("", agent)]
        if held and len(wanted) == len(held):
            yield _Whole(store, reader, tree)
        else:
            yield from (_Alone(store, reader, tree, key) for key in wanted)


def _told(settings: Iterable[SettingLine], parts: Iterable["_Whole"], everywhere: bool) -> Iterator[str]:
    sessions = nodes = lines = 0
    for line in map(to_json, settings):
        lines += 1
        yield line
    for part in parts:
        for line in part.lines(everywhere):
            lines += 1
            yield line
        sessions, nodes = sessions + part.sessions, nodes + part.nodes
    yield to_json(EndLine(sessions=sessions, nodes=nodes, lines=lines))


_PROJECTS = """SELECT tenant, project FROM settings GROUP BY tenant, project ORDER BY tenant {binary}, project {binary}"""
_SETTINGS = """SELECT kind, name, data, author, updated FROM settings
    WHERE tenant = $1 AND project = $2 AND ($3 = '' OR kind <> 'agent' OR name = $3) ORDER BY kind {binary}, name {binary}"""
_STATES = "SELECT kind, name, data, updated FROM states WHERE session = $1 ORDER BY kind {binary}, name {binary}"
_TREES = f"""SELECT key FROM trees WHERE key > $1 AND ($2 = '' OR tenant = $2) AND ($3 = '' OR project = $3)
    ORDER BY key LIMIT {_PAGE}"""
_SESSIONS = f"""SELECT s.key, s.id, s.agent, s.title, s.status, s.origin, n.id, s.head, s.asides, s.calibration, s.created,
    s.updated, s.prompt, s.completion, s.cached, s.cost FROM sessions s LEFT JOIN nodes n ON n.tree = s.tree AND n.seq = s.cursor
    WHERE s.key > $1 AND s.tree = $2 AND (s.key = $3 OR $3 = 0) ORDER BY s.key LIMIT {_PAGE}"""
_NODES = f"""SELECT n.seq, n.id, p.id, n.local, n.session, n.body, n.generation, n.role, n.tokens, n.created
    FROM {BY_SEQ.replace(" WHERE", " LEFT JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent WHERE")} ORDER BY n.seq"""
_RECORDS = """SELECT node, kind, name, session, author, data, created FROM records WHERE tree = $1 AND node IN {each_int:2}
    ORDER BY node, seq"""
_HANDLES = f"""SELECT handle, session, kind, data, created FROM handles WHERE (handle, session) > ($1, $2) AND tree = $3
    ORDER BY handle, session LIMIT {_PAGE}"""
_VIEWS = f"""SELECT v.epoch, v.session, n.id, v.seen, v.hash, v.data, v.created, n.seq, n.depth FROM views v
    JOIN nodes n ON n.tree = $2 AND n.seq = v.node WHERE v.epoch > $1 AND v.session = $3 ORDER BY v.epoch LIMIT {_PAGE}"""


class _Whole:
    """A tree with all of its sessions; how many of them, and how many nodes, were written so far."""

    alone = 0
    nodes = 0

    def __init__(self, store: Store, reader: Reader, tree: int) -> None:
        self._database, self._reader, self._tree = store.database, reader, tree
        self._names: dict[int, str | None] = {}

    @property
    def sessions(self) -> int:
        return len(self._names)

    def lines(self, everywhere: bool) -> Iterator[str]:
        yield to_json(self._tree_line(everywhere))
        for row in _paged(self._reader, _SESSIONS, 0, self._tree, self.alone):
            line = self._session_line(row)
            self._names[row[0]] = line.id if self._names else None
            yield to_json(line)
        seqs = self._seqs()
        while page := list(islice(seqs, _PAGE)):
            yield from map(to_json, self._node_lines(page))
            self.nodes += len(page)
        yield from (to_json(self._handle_line(row)) for row in self._handles())
        yield from (to_json(self._view_line(row)) for row in self._views())

    def _by(self, session: int) -> str | None:
        return self._names.get(session, NOBODY)

    # What there is to write, by the order of names in this store: an import gives new names in the order of the lines.

    def _seqs(self) -> Iterator[int]:
        """The nodes; the name of a parent is smaller than those of its children."""
        return self._written(0)

    def _handles(self) -> Iterator[Row]:
        start: tuple[str, int] = ("", 0)
        while rows := self._reader.all(_HANDLES, *start, self._tree):
            yield from rows
            start = rows[-1][:2]

    def _views(self) -> Iterator[Row]:
        for session in self._names:
            yield from _paged(self._reader, _VIEWS, -1, self._tree, session)

    def _written(self, session: int) -> Iterator[int]:
        """The nodes of the tree that a session wrote, or all of them."""
        told = "SELECT count(*), min(seq), max(seq) FROM nodes WHERE tree = $1 AND (session = $2 OR $2 = 0)"
        row = self._reader.one(told, self._tree, session)
        count, first, last = row or (0, 0, 0)
        if count <= _FEW:
            sql = "SELECT seq FROM nodes WHERE tree = $1 AND (session = $2 OR $2 = 0) ORDER BY seq"
            yield from (seq for (seq,) in self._reader.all(sql, self._tree, session))
            return
        sql = f"""SELECT seq FROM {_IN_ORDER[self._database.name]} WHERE seq > $1 AND seq <= $2 AND tree = $3
            AND (session = $4 OR $4 = 0) ORDER BY seq LIMIT {_PAGE}"""
        yield from (seq for (seq,) in _paged(self._reader, sql, first - 1, last, self._tree, session))

    # Lines

    def _tree_line(self, everywhere: bool) -> TreeLine:
        row = self._reader.one("SELECT tenant, project, id, title, data, created FROM trees WHERE key = $1", self._tree)
        assert row is not None
        tenant, project = row[:2] if everywhere else ("", "")
        return TreeLine(id=row[2], tenant=tenant, project=project, title=row[3], data=row[4], created=row[5])

    def _session_line(self, row: Row) -> SessionLine:
        what = f"session {row[1]}"
        return SessionLine(
            id=row[1],
            agent=row[2],
            title=row[3],
            status=row[4],
            origin=row[5],
            cursor=row[6] or "",
            head=self._decoded(row[7], Conversation, what),
            asides=self._decoded(row[8], tuple[Aside, ...], what),
            calibration=self._decoded(row[9], Calibration, what) if row[9] else None,
            states=tuple(
                State(kind=kind, name=name, data=data, updated=updated)
                for kind, name, data, updated in self._reader.all(_STATES, row[0])
                if kind not in LOCAL
            ),
            created=row[10],
            updated=row[11],
            usage=Usage(*row[12:]),
        )

    def _node_lines(self, page: list[int]) -> Iterator[NodeLine]:
        beside: dict[int, list[Beside]] = {}
        for node, kind, name, session, author, data, created in self._reader.all(_RECORDS, self._tree, str(page)):
            by = self._names.get(session, NOBODY)
            record = Beside(kind=kind, name=name, by=by, author=author, data=data, created=created)
            beside.setdefault(node, []).append(record)
        for seq, identity, after, local, session, body, generation, role, tokens, created in self._reader.all(
            _NODES, self._tree, str(page)
        ):
            said: Any = None if body is None else msgspec.Raw(body.encode())  # as it is stored; nothing is read on its way out
            gone = body is None
            yield NodeLine(
                id=identity,
                after=after or "",
                local=local,
                by=self._by(session),
                body=said,
                generation=generation,
                role=role if gone else "",
                tokens=tokens if gone else 0,
                created=created,
                records=tuple(beside.get(seq, ())),
            )

    def _handle_line(self, row: Row) -> HandleLine:
        handle, session, kind, data, created = row
        return HandleLine(handle=handle, by=self._by(session), kind=kind, kept=self._kept(handle, data), created=created)

    def _view_line(self, row: Row) -> ViewLine:
        epoch, session, node, seen, digest, data, created = row[:7]
        view = self._decoded(data, View, f"epoch {epoch} of a session")
        return ViewLine(epoch=epoch, by=self._by(session), node=node, seen=seen, hash=digest, view=view, created=created)

    def _kept(self, handle: str, data: str | None) -> Kept | None:
        return self._decoded(data, Kept, f"handle {handle}") if data is not None else None

    def _decoded(self, text: str, kind: type[_T], what: str) -> _T:
        try:
            return msgspec.convert(from_json(text), kind)
        except (ValueError, msgspec.ValidationError):
            raise self._damaged(what) from None

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"{self._database.address}: {what} is damaged and cannot be exported; loom doctor says more")


class _Alone(_Whole):
    """One session of a tree, without the others."""

    def __init__(self, store: Store, reader: Reader, tree: int, session: int) -> None:
        super().__init__(store, reader, tree)
        self.alone = session
        row = reader.one("SELECT cursor, asides FROM sessions WHERE key = $1", session)
        cursor, self._asides = row or (None, "[]")
        self._end = nodes.get(reader, tree, cursor) if cursor is not None else None

    def _by(self, session: int) -> str | None:
        """Whatever comes along is its own from now on: somebody has to take it away when the session is purged."""
        return self._names[self.alone]

    def _seqs(self) -> Iterator[int]:
        if self._reader.one("SELECT 1 FROM nodes WHERE tree = $1 AND session <> $2 LIMIT 1", self._tree, self.alone) is None:
            return self._written(0)
        found = merge(self._path(), self._written(self.alone), sorted(self._stood_on()))
        return (seq for seq, _ in groupby(found))

    def _path(self) -> Iterator[int]:
        for start in range(0, self._end.depth + 1 if self._end else 0, CHUNK):
            assert self._end is not None
            last = ancestor(self._reader, self._tree, self._end.seq, min(start + CHUNK - 1, self._end.depth))
            yield from reversed([seq for seq, _ in self._reader.all(_UP, self._tree, last, start)])

    def _stood_on(self) -> set[int]:
        """Nodes of others beside the path, on which this session wrote, which it reads or refers to, and all above them."""
        asides = self._decoded(self._asides, tuple[Aside, ...], "a session")
        ids = {aside.after for aside in asides} | self._beside() | self._at_hand()
        for handle, session, _, data, _ in self._handles():
            if kept := self._kept(handle, data):
                ids.update(last for _, last in kept.nodes if session == self.alone or not self._passes(last))
        found: set[int] = set()
        for (seq,) in self._reader.all(_STOOD_ON, self._tree, self.alone, to_json(sorted(ids))):
            node = nodes.get(self._reader, self._tree, seq)
            shared = meeting(self._reader, self._tree, node, self._end) if self._end else -1
            for at, session in self._reader.all(_UP, self._tree, seq, shared + 1) if node.depth > shared else ():
                if session == self.alone or at in found:
                    break
                found.add(at)
        return found

    def _beside(self) -> set[str]:
        """What is read beside the path: remarks, what nodes were made from, and versions of nodes; also one that is excluded."""
        row = self._reader.one("SELECT key, tenant, project, id, data FROM trees WHERE key = $1", self._tree)
        assert row is not None
        mode = self._decoded(row[4], TreeHead, "a tree").mode
        path = Path(Opened(self._reader), self._tree, self._end)
        try:
            bears = bearing(path, TreeRow(*row[:4]), mode, self._chosen())
        except (ValueError, msgspec.ValidationError):
            raise self._damaged("what is said of a node") from None
        extras = [extra for of in (bears.before, bears.behind) for several in of.values() for extra in several]
        read = [*bears.instructions, *(extra.node for extra in extras if not extra.tree)]
        return {node.id for node in read} | (self._versions() if mode == "buffer" else set())

    def _versions(self) -> set[str]:
        end = self._end
        if end is None:
            return set()
        found = self._reader.all(_VERSIONS, self._tree, end.depth)
        above = {depth: ancestor(self._reader, self._tree, end.seq, depth - 1) if depth else None for _, _, depth in found}
        return {name for name, parent, depth in found if parent == above[depth]}

    def _at_hand(self) -> set[str]:
        """The nodes that the session has in view, wherever they stand, and the versions that it chose."""
        pins = states_of(self._reader, self.alone, "pin").values()
        return {*(self._decoded(data, dict[str, Any], "a pin").get("node", "") for data in pins), *self._chosen().values()}

    def _chosen(self) -> dict[str, str]:
        chosen = states_of(self._reader, self.alone, "version")
        return {name: self._decoded(data, str, "the choice of a version") for name, data in chosen.items()}

    def _handles(self) -> Iterator[Row]:
        """What the session may bring back, as `recall` has it: of each handle its own record, else one of others."""
        marked = {handle for row in self._views() for handle in handles_of(self._view_line(row).view)}
        reach = Reach(self._reader, self._tree, self.alone, self._end)
        for handle, several in groupby(super()._handles(), key=lambda row: row[0]):
            found = sorted(several, key=lambda row: (row[3] is None, row[1] != self.alone))
            for row in found:
                kept = self._kept(handle, row[3])
                if row[1] == self.alone or handle in marked or (kept and reach.holds(handle, kept)):
                    yield row
                    break

    def _passes(self, name: str) -> bool:
        return stands(self._reader, self._tree, self._end, name)

    def _views(self) -> Iterator[Row]:
        key: int | None = self.alone
        while key is not None:
            if self._reader.one("SELECT 1 FROM views WHERE session = $1 LIMIT 1", key) is not None:
                found = _paged(self._reader, _VIEWS, -1, self._tree, key)
                return found if key == self.alone else self._inherited(found)
            key = origin_of(self._reader, self._tree, key)
        return iter(())

    def _inherited(self, rows: Iterator[Row]) -> Iterator[Row]:
        for *row, seq, depth in list(rows)[-TRIED:]:
            end = self._end
            if end and depth <= end.depth and ancestor(self._reader, self._tree, end.seq, depth) == seq:
                yield (*row, seq, depth)


# Where a session wrote behind nodes of others, and what else of theirs it refers to.
_STOOD_ON = """SELECT p.seq FROM nodes n JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent
        WHERE n.tree = $1 AND n.session = $2 AND p.session <> $2
    UNION SELECT n.seq FROM records r JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
        WHERE r.tree = $1 AND r.session = $2 AND n.session <> $2
    UNION SELECT n.seq FROM views v JOIN nodes n ON n.tree = $1 AND n.seq = v.node WHERE v.session = $2 AND n.session <> $2
    UNION SELECT seq FROM nodes WHERE tree = $1 AND session <> $2 AND id IN {each:3}"""
_VERSIONS = """SELECT n.id, n.parent, n.depth FROM records r JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
    WHERE r.tree = $1 AND r.kind = 'edge' AND r.data LIKE '%"edge":"version"%' AND n.depth <= $2"""
_UP = """WITH RECURSIVE w (seq, parent, depth, session) AS (
    SELECT seq, parent, depth, session FROM nodes WHERE tree = $1 AND seq = $2
    UNION ALL
    SELECT p.seq, p.parent, p.depth, p.session FROM w JOIN nodes p ON p.tree = $1 AND p.seq = w.parent
    WHERE w.depth > $3 AND p.depth < w.depth)
    SELECT seq, session FROM w ORDER BY depth DESC"""


def _paged(reader: Reader, sql: str, start: Any, *values: Any) -> Iterator[Row]:
    """The rows of a statement that goes on behind $1, which is the first of its columns."""
    while True:
        rows = reader.all(sql, start, *values)
        yield from rows
        if len(rows) < _PAGE:
            return
        start = rows[-1][0]
