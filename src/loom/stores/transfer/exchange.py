"""Sessions out of a store and back in, as JSON lines with the same ids. A file of any size passes
in the memory of a few lines.

Out: one snapshot is read. What a project settles comes first. A tree is written once with all of
its sessions. A session without the others of its tree is written with its path, all that it wrote,
what that stands on, and what it can reach: what is read besides its path, handles it can recall.
Views are caches that nothing proves, and are not written. What else it names (what a node was
edited from, where a link leads, other trees) stays behind, and is missed by nobody. In: see
intake.py.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, groupby, islice
from typing import Any, TypeVar

import msgspec

from loom.conversation.canonical import to_json
from loom.conversation.tree import TreeHead
from loom.errors import LoomError
from loom.stores.sessions import Aside, Scope
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import (
    PAGE_ROWS,
    UNREADABLE,
    decode_stored,
    is_damage,
    is_garbled,
    read_paged,
    read_rows,
)
from loom.stores.states import Pin
from loom.stores.store import Store
from loom.stores.transfer.decisions import export_decisions, has_decisions
from loom.stores.transfer.documents import export_documents, has_documents
from loom.stores.transfer.events import export_events, has_events
from loom.stores.transfer.intake import ImportedSession as ImportedSession
from loom.stores.transfer.intake import import_lines as import_lines
from loom.stores.transfer.lines import (
    DOCUMENTS_VERSION,
    NOBODY,
    NOTES_VERSION,
    OLDER_VERSION,
    VERSION,
    WHAT,
    EndLine,
    First,
    HandleLine,
    KeptLine,
    NodeLine,
    RecordEntry,
    SessionLine,
    SettingLine,
    TreeLine,
)
from loom.stores.transfer.lines import is_export as is_export
from loom.stores.transfer.notes import export_notes, has_notes
from loom.stores.transfer.salvage import LeftOut, Salvage, sound_setting
from loom.stores.tree import nodes
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.overlay import Overlay
from loom.stores.tree.path import (
    BY_SEQ,
    CHUNK_NODES,
    Node,
    OpenTransaction,
    Path,
    ancestor,
    is_on_path,
    meeting,
)
from loom.stores.views import (
    MAX_TRIED_EPOCHS,
    HandleTarget,
    Reach,
    handles_of,
    origin_of,
    read_view,
)

_MAX_HELD_NODES = 20_000  # names of nodes held at once
_T = TypeVar("_T")

# Which nodes a tree has is told by an index, but not in their order; of a large tree the nodes
# themselves are looked through.
_IN_ORDER = {"sqlite": "nodes NOT INDEXED", "postgres": "nodes"}


def export_session(
    store: Store, tree: int, session: int, missed: list[str] | None = None
) -> Iterator[str]:
    """A session as lines: the nodes of its path, and every node that it wrote.

    What is damaged is left out, and named in `missed`; without that, it is told in an error after
    the last line.
    """
    left_out = LeftOut(missed)
    with store.database.read() as reader:
        [(tenant, project, name)] = read_rows(reader, _SCOPE, session)
        kept, version = list[KeptLine](), OLDER_VERSION
        if not is_garbled((tenant, project, name)):
            scope = Scope(tenant, project)
            kept += export_notes(reader, scope, False, left_out, name)
            kept += export_events(reader, scope, False, left_out, session)
            version = NOTES_VERSION if kept else OLDER_VERSION
            decisions = list(export_decisions(reader, scope, False, left_out, name))
            kept += decisions
            version = VERSION if decisions else version
        yield to_json(First(WHAT, version))
        part = _SessionExport(store, reader, tree, left_out, session)
        yield from _count_lines((), [part], False, kept)
    left_out.check()


def export_all(
    store: Store, scope: Scope, everywhere: bool = False, missed: list[str] | None = None
) -> Iterator[str]:
    """All sessions in scope as lines, and what is settled there; everywhere, those of every tenant
    and project.

    What is damaged is left out, and named in `missed`; without that, it is told in an error after
    the last line.
    """
    scope = Scope() if everywhere else scope
    left_out = LeftOut(missed)
    with store.database.read() as reader:
        yield to_json(First(WHAT, _find_version(reader, scope, everywhere), everywhere))
        settled = (
            line
            for line in _settings(reader, scope, everywhere, left_out)
            if sound_setting(line, left_out)
        )
        kept: Iterable[KeptLine] = chain(
            export_documents(reader, scope, everywhere, left_out),
            export_notes(reader, scope, everywhere, left_out),
            export_events(reader, scope, everywhere, left_out),
            export_decisions(reader, scope, everywhere, left_out),
        )
        yield from _count_lines(
            settled, _parts(store, reader, scope, everywhere, left_out), everywhere, kept
        )
    left_out.check()


def _find_version(reader: Reader, scope: Scope, everywhere: bool) -> int:
    """The oldest version of the format that has what there is to export."""
    if has_decisions(reader, scope, everywhere):
        return VERSION
    if has_notes(reader, scope, everywhere) or has_events(reader, scope, everywhere):
        return NOTES_VERSION
    if has_documents(reader, scope, everywhere):
        return DOCUMENTS_VERSION
    return OLDER_VERSION


def _settings(
    reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut
) -> Iterator[SettingLine]:
    """What projects settle. With an agent named, nothing of other agents."""
    if everywhere:
        projects = read_rows(reader, _PROJECTS)
    else:
        projects = [(scope.tenant, scope.project)]
    for tenant, project in projects:
        if is_garbled((tenant, project)):
            left_out.add(f"what project {tenant}/{project} settles")
            continue
        for kind, name, data, author, updated in read_rows(
            reader, _SETTINGS, tenant, project, scope.agent
        ):
            where = (tenant, project) if everywhere else ("", "")
            yield SettingLine(
                kind=kind,
                name=name,
                tenant=where[0],
                project=where[1],
                data=data,
                author=author,
                updated=updated,
            )


def _parts(
    store: Store, reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut
) -> Iterator["_TreeExport"]:
    if everywhere:
        tenant, project = "", ""
    else:
        tenant, project = scope.tenant, scope.project
    for (tree,) in read_paged(reader, _TREES, (0,), tenant, project):
        held = read_rows(
            reader, "SELECT key, agent FROM sessions WHERE tree = $1 ORDER BY key", tree
        )
        wanted = [key for key, agent in held if scope.agent in ("", agent)]
        if held and len(wanted) == len(held):
            yield _TreeExport(store, reader, tree, left_out)
        else:
            yield from (_SessionExport(store, reader, tree, left_out, key) for key in wanted)


def _count_lines(
    settings: Iterable[SettingLine],
    parts: Iterable["_TreeExport"],
    everywhere: bool,
    kept: Iterable[KeptLine] = (),
) -> Iterator[str]:
    sessions = nodes = lines = 0
    for line in map(to_json, settings):
        lines += 1
        yield line
    for part in parts:
        for line in part.lines(everywhere):
            lines += 1
            yield line
        sessions, nodes = sessions + part.sessions, nodes + part.nodes
    for line in map(to_json, kept):
        lines += 1
        yield line
    yield to_json(EndLine(sessions=sessions, nodes=nodes, lines=lines))


_SCOPE = "SELECT tenant, project, id FROM sessions WHERE key = $1"
_PROJECTS = """SELECT tenant, project FROM settings
    GROUP BY tenant, project ORDER BY tenant {binary}, project {binary}"""
_SETTINGS = """SELECT kind, name, data, author, updated FROM settings
    WHERE tenant = $1 AND project = $2 AND ($3 = '' OR kind <> 'agent' OR name = $3)
    ORDER BY kind {binary}, name {binary}"""
_STATES = (
    "SELECT kind, name, data, updated FROM states WHERE session = $1 "
    "ORDER BY kind {binary}, name {binary}"
)
_TREES = f"""SELECT key FROM trees
    WHERE key > $1 AND ($2 = '' OR tenant = $2) AND ($3 = '' OR project = $3)
    ORDER BY key LIMIT {PAGE_ROWS}"""
_SESSIONS = f"""SELECT s.key, s.id, s.agent, s.title, s.status, s.origin, s.cursor, s.head,
    s.asides, s.calibration, s.created, s.updated, s.prompt, s.completion, s.cached, s.cost
    FROM sessions s
    WHERE s.key > $1 AND s.tree = $2 AND (s.key = $3 OR $3 = 0) ORDER BY s.key LIMIT {PAGE_ROWS}"""
_WITH_PARENT = " LEFT JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent WHERE"
_NODES = f"""SELECT n.seq, n.id, p.id, n.local, n.session, n.body, n.generation, n.role, n.tokens,
    n.created, n.parent, n.depth
    FROM {BY_SEQ.replace(" WHERE", _WITH_PARENT)} ORDER BY n.seq"""
_RECORDS = """SELECT node, kind, name, session, author, data, created FROM records
    WHERE tree = $1 AND node IN {each_int:2}
    ORDER BY node, seq"""
_HANDLES = f"""SELECT handle, session, kind, data, created FROM handles
    WHERE (handle, session) > ($1, $2) AND tree = $3
    ORDER BY handle, session LIMIT {PAGE_ROWS}"""
_OWN_HANDLES = "SELECT handle FROM handles WHERE tree = $1 AND session = $2 AND handle IN {each:3}"
_LAST_VIEW = """SELECT v.data, v.digest, v.epoch, n.depth FROM views v
    JOIN nodes n ON n.tree = $2 AND n.seq = v.node
    WHERE v.session = $1 ORDER BY v.epoch DESC LIMIT 1"""
_VIEWS = f"""SELECT v.epoch, v.session, n.id, v.seen, v.hash, v.data, v.created, n.seq, n.depth,
    v.digest FROM views v
    JOIN nodes n ON n.tree = $2 AND n.seq = v.node WHERE v.epoch > $1 AND v.session = $3
    ORDER BY v.epoch LIMIT {PAGE_ROWS}"""


class _TreeExport:
    """A tree with all of its sessions; how many of them, and how many nodes, were written so
    far.
    """

    alone = 0
    nodes = 0

    def __init__(self, store: Store, reader: Reader, tree: int, left_out: LeftOut) -> None:
        self._database, self._reader, self._tree = store.database, reader, tree
        self._sound = Salvage(reader, tree, left_out, store.state_kinds)
        self._names: dict[int, str | None] = {}

    @property
    def sessions(self) -> int:
        return len(self._names)

    def lines(self, everywhere: bool) -> Iterator[str]:
        tree = self._sound.tree(self._tree_line(everywhere))
        for page in self._pages():
            self._sound.look_at(read_rows(self._reader, _NODES, self._tree, str(page)))
        sessions = self._session_lines() if tree else []
        if tree is None or not sessions:
            return
        yield to_json(tree)
        yield from map(to_json, sessions)
        for page in self._pages():
            for line in self._node_lines(page):
                self.nodes += 1
                yield to_json(line)
        names = tuple(line.id for line in sessions)
        handles = (
            self._sound.handle(line, names)
            for line in map(self._handle_line, self._handles())
            if line
        )
        yield from (to_json(line) for line in handles if line)

    def _pages(self) -> Iterator[list[int]]:
        seqs = self._seqs()
        while page := list(islice(seqs, PAGE_ROWS)):
            yield page

    def _session_lines(self) -> list[SessionLine]:
        """Its sessions; those that are left out are as if they were not in the tree."""
        found: list[SessionLine] = []
        for row in read_paged(self._reader, _SESSIONS, (0,), self._tree, self.alone):
            line = self._sound.session(row, read_rows(self._reader, _STATES, row[0]))
            if line is not None:
                self._names[row[0]] = line.id if self._names else None
                found.append(line)
        return found

    def _by(self, session: int) -> str | None:
        """Who wrote something. What a session wrote that is left out is the first one's: somebody
        has to take it away.
        """
        return self._names.get(session)

    # What there is to write, by the order of names in this store: an import gives new names in the
    # order of the lines.

    def _seqs(self) -> Iterator[int]:
        """The nodes; the name of a parent is smaller than those of its children."""
        return self._written_seqs(0)

    def _handles(self) -> Iterator[Row]:
        """What sessions may bring back. What one can only because its last request shows it, is its
        own from now on.
        """
        shown = self._shown_handles()
        for handle, several in groupby(self._kept_handles(), key=lambda row: row[0]):
            found = list(several)
            held = next((row for row in found if row[3] is not None), None)
            if held is not None and handle in shown:
                found += [(handle, session, *held[2:]) for session in shown[handle]]
            yield from sorted(found, key=lambda row: row[1])

    def _kept_handles(self) -> Iterator[Row]:
        return read_paged(self._reader, _HANDLES, ("", 0), self._tree)

    def _shown_handles(self) -> dict[str, list[int]]:
        """Of handles in the last requests of sessions, those sessions that do not keep them
        themselves.
        """
        shown: dict[str, list[int]] = {}
        for session in self._names:
            row = next(iter(read_rows(self._reader, _LAST_VIEW, session, self._tree)), None)
            view = read_view(*row) if row else None
            marked = sorted(handles_of(view)) if view else []
            own = (
                self._reader.all(_OWN_HANDLES, self._tree, session, to_json(marked))
                if marked
                else ()
            )
            for handle in set(marked) - {name for (name,) in own}:
                shown.setdefault(handle, []).append(session)
        return shown

    def _written_seqs(self, session: int) -> Iterator[int]:
        """The nodes of the tree that a session wrote, or all of them."""
        told = (
            "SELECT count(*), min(seq), max(seq) FROM nodes "
            "WHERE tree = $1 AND (session = $2 OR $2 = 0)"
        )
        row = self._reader.first_row(told, self._tree, session)
        count, first, last = row or (0, 0, 0)
        if count <= _MAX_HELD_NODES:
            sql = "SELECT seq FROM nodes WHERE tree = $1 AND (session = $2 OR $2 = 0) ORDER BY seq"
            yield from (seq for (seq,) in self._reader.all(sql, self._tree, session))
            return
        sql = f"""SELECT seq FROM {_IN_ORDER[self._database.name]}
            WHERE seq > $1 AND seq <= $2 AND tree = $3
            AND (session = $4 OR $4 = 0) ORDER BY seq LIMIT {PAGE_ROWS}"""
        yield from (
            seq for (seq,) in read_paged(self._reader, sql, (first - 1,), last, self._tree, session)
        )

    # Lines

    def _tree_line(self, everywhere: bool) -> TreeLine:
        sql = "SELECT tenant, project, id, title, data, created FROM trees WHERE key = $1"
        [row] = read_rows(self._reader, sql, self._tree)
        tenant, project = row[:2] if everywhere else ("", "")
        return TreeLine(
            id=row[2], tenant=tenant, project=project, title=row[3], data=row[4], created=row[5]
        )

    def _node_lines(self, page: list[int]) -> Iterator[NodeLine]:
        beside: dict[int, list[RecordEntry]] = {}
        page = [seq for seq in page if self._sound.is_sound(seq)]
        records = read_rows(self._reader, _RECORDS, self._tree, str(page))
        for node, kind, name, session, author, data, created in records:
            by = self._names.get(session, NOBODY)
            record = RecordEntry(
                kind=kind, name=name, by=by, author=author, data=data, created=created
            )
            beside.setdefault(node, []).append(record)
        rows = read_rows(self._reader, _NODES, self._tree, str(page))
        for (
            seq,
            identity,
            after,
            short_id,
            session,
            body,
            generation,
            role,
            tokens,
            created,
            _,
            depth,
        ) in rows:
            if not self._sound.is_sound(seq):
                continue
            # as it is stored; nothing is read on its way out
            said: Any = None
            if body is not None:
                said = msgspec.Raw(body.encode())
            gone = body is None
            line = NodeLine(
                id=identity,
                after=after or "",
                short_id=short_id,
                by=self._by(session),
                body=said,
                generation=generation,
                role=role if gone else "",
                tokens=tokens if gone else 0,
                created=created,
                records=tuple(beside.get(seq, ())),
            )
            yield self._sound.node(line, depth)

    def _handle_line(self, row: Row) -> HandleLine | None:
        handle, session, kind, data, created = row
        kept = self._sound.read_kept(handle, data)
        if kept is None and data is not None:
            return None
        return HandleLine(
            handle=handle, by=self._by(session), kind=kind, kept=kept, created=created
        )

    def _read_kept(self, handle: str, data: str | None) -> HandleTarget | None:
        if data is None:
            return None
        return self._decode(data, HandleTarget)

    @staticmethod
    def _decode(text: str, kind: type[_T]) -> _T | None:
        """None if it is damaged; it is left out where it would be written."""
        try:
            return decode_stored(text, kind)
        except UNREADABLE:
            return None


class _SessionExport(_TreeExport):
    """One session of a tree, without the others."""

    def __init__(
        self, store: Store, reader: Reader, tree: int, left_out: LeftOut, session: int
    ) -> None:
        self.alone = session
        super().__init__(store, reader, tree, left_out)
        rows = read_rows(reader, "SELECT cursor, asides FROM sessions WHERE key = $1", session)
        if rows:
            self._cursor, self._asides = rows[0]
        else:
            self._cursor, self._asides = None, "[]"
        self._end = self._last_sound(self._cursor)

    def _last_sound(self, seq: int | None) -> Node | None:
        """The node at which the session stands, or the last before it that can be read."""
        while seq is not None:
            place = self._or_damaged(nodes.place, self._reader, self._tree, seq)
            if place is not None:
                return place
            row = self._reader.first_row(
                "SELECT parent FROM nodes WHERE tree = $1 AND seq = $2 AND parent < seq",
                self._tree,
                seq,
            )
            seq = row[0] if row else None
        return None

    @staticmethod
    def _or_damaged(read: Callable[..., _T], *values: Any) -> _T | None:
        """What is read; none if it is damaged: it is left out where it would be written."""
        try:
            return read(*values)
        except LoomError as error:
            if not is_damage(error):
                raise
            return None

    def _by(self, session: int) -> str | None:
        """Whatever comes along is its own from now on: somebody has to take it away when the
        session is purged.
        """
        return self._names[self.alone]

    def _seqs(self) -> Iterator[int]:
        if (
            self._reader.first_row(
                "SELECT 1 FROM nodes WHERE tree = $1 AND session <> $2 LIMIT 1",
                self._tree,
                self.alone,
            )
            is None
        ):
            return self._written_seqs(0)
        if self._cursor is not None:
            standing = {self._cursor}
        else:
            standing = set[int]()
        found = merge(
            self._path(), self._written_seqs(self.alone), sorted(self._stood_on() | standing)
        )
        return (seq for seq, _ in groupby(found))

    def _path(self) -> Iterator[int]:
        if self._end is None:
            return
        for start in range(0, self._end.depth + 1, CHUNK_NODES):
            last = self._above(self._end, min(start + CHUNK_NODES - 1, self._end.depth))
            # Where the way up is damaged, all that is left of it is one stretch.
            yield from sorted(
                seq for seq, _ in self._reader.all(_UP, self._tree, last or self._end.seq, start)
            )
            if last is None:
                return

    def _above(self, end: Node, depth: int) -> int | None:
        """The node above another at a depth; none if the way there is damaged."""
        return self._or_damaged(ancestor, self._reader, self._tree, end.seq, depth)

    def _stood_on(self) -> set[int]:
        """Nodes of others besides the path, on which this session wrote, which it reads or refers
        to, and all above them.
        """
        found: set[int] = set()
        for (seq,) in self._reader.all(
            _STOOD_ON, self._tree, self.alone, to_json(sorted(self._referred_to()))
        ):
            shared, depth = self._or_damaged(self._meeting, seq) or (-1, 0)
            if depth <= shared:
                continue
            for at, session in self._reader.all(_UP, self._tree, seq, shared + 1):
                if session == self.alone or at in found:
                    break
                found.add(at)
        return found

    def _referred_to(self) -> set[str]:
        """The nodes, by id, that this session reads or refers to."""
        asides = self._decode(self._asides, tuple[Aside, ...]) or ()
        ids = {aside.after for aside in asides} | self._ids_beside() | self._at_hand()
        for handle, session, _, data, _ in self._handles():
            if kept := self._read_kept(handle, data):
                named = [*(last for _, last in kept.nodes), *filter(None, [kept.at])]
                ids.update(
                    name for name in named if session == self.alone or not self._passes(name)
                )
        return ids

    def _meeting(self, seq: int) -> tuple[int, int]:
        """The depth of the last node on the path that is above another one or is it, and the depth
        of that.
        """
        node = nodes.place(self._reader, self._tree, seq)
        if self._end is None:
            return -1, node.depth
        return meeting(self._reader, self._tree, node, self._end), node.depth

    def _ids_beside(self) -> set[str]:
        """What is read besides the path: remarks, what nodes were made from, and versions of nodes;
        also one that is excluded.
        """
        [row] = read_rows(
            self._reader,
            "SELECT key, tenant, project, id, data FROM trees WHERE key = $1",
            self._tree,
        )
        mode = (self._decode(row[4], TreeHead) or TreeHead()).mode
        path, tree = Path(OpenTransaction(self._reader), self._tree, self._end), TreeRow(*row[:4])
        overlay = None
        if not is_garbled(row[:4]):
            overlay = self._or_damaged(Overlay.read, path, tree, mode, self._chosen_versions())
        if overlay is None:
            return set()
        read = [
            *overlay.instructions,
            *(insertion.node for insertion in overlay.insertions() if not insertion.tree),
        ]
        ids = {node.id for node in read}
        if mode == "buffer":
            ids |= self._versions()
        return ids

    def _versions(self) -> set[str]:
        end = self._end
        if end is None:
            return set()
        found = self._reader.all(_VERSIONS, self._tree, end.depth)
        above = {depth: self._above(end, depth - 1) if depth else None for _, _, depth in found}
        return {name for name, parent, depth in found if parent == above[depth]}

    def _at_hand(self) -> set[str]:
        """The nodes that the session has in view, wherever they stand, and the versions that it
        chose.
        """
        held = (self._decode(data, Pin) for _, data in self._states("pin"))
        return {*(pin.node for pin in held if pin), *self._chosen_versions().values()}

    def _chosen_versions(self) -> dict[str, str]:
        read = ((name, self._decode(data, str)) for name, data in self._states("version"))
        return {name: version for name, version in read if version is not None}

    def _states(self, kind: str) -> list[Row]:
        found = read_rows(
            self._reader,
            "SELECT name, data FROM states WHERE session = $1 AND kind = $2",
            self.alone,
            kind,
        )
        return [row for row in found if not is_garbled(row)]

    def _handles(self) -> Iterator[Row]:
        """What the session may bring back, as `recall` has it: of each handle its own record, else
        one of others.
        """
        views = (read_view(row[5], row[9], row[0], row[8]) for row in self._views())
        marked = {handle for view in views if view for handle in handles_of(view)}
        reach = Reach(self._reader, self._tree, self.alone, self._end)
        for handle, several in groupby(self._kept_handles(), key=lambda row: row[0]):
            found = sorted(several, key=lambda row: (row[3] is None, row[1] != self.alone))
            for row in found:
                kept = self._read_kept(handle, row[3])
                if (
                    row[1] == self.alone
                    or handle in marked
                    or self._is_reached(reach, handle, kept)
                ):
                    yield row
                    break

    def _is_reached(self, reach: Reach, handle: str, kept: HandleTarget | None) -> bool:
        return kept is not None and bool(self._or_damaged(reach.holds, handle, kept))

    def _passes(self, name: str) -> bool:
        return bool(self._or_damaged(is_on_path, self._reader, self._tree, self._end, name))

    def _views(self) -> Iterator[Row]:
        key: int | None = self.alone
        while key is not None:
            if (
                self._reader.first_row("SELECT 1 FROM views WHERE session = $1 LIMIT 1", key)
                is not None
            ):
                found = read_paged(self._reader, _VIEWS, (-1,), self._tree, key)
                if key == self.alone:
                    return found
                return self._inherited_views(found)
            key = origin_of(self._reader, self._tree, key)
        return iter(())

    def _inherited_views(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in list(rows)[-MAX_TRIED_EPOCHS:]:
            seq, depth = row[7:9]
            end = self._end
            if end and depth <= end.depth and self._above(end, depth) == seq:
                yield row


# Where a session wrote after nodes of others, and what else of theirs it refers to.
_STOOD_ON = """SELECT p.seq FROM nodes n JOIN nodes p ON p.tree = n.tree AND p.seq = n.parent
        WHERE n.tree = $1 AND n.session = $2 AND p.session <> $2
    UNION SELECT n.seq FROM records r JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
        WHERE r.tree = $1 AND r.session = $2 AND n.session <> $2
    UNION SELECT n.seq FROM views v JOIN nodes n ON n.tree = $1 AND n.seq = v.node
    WHERE v.session = $2 AND n.session <> $2
    UNION SELECT seq FROM nodes WHERE tree = $1 AND session <> $2 AND id IN {each:3}"""
_VERSIONS = """SELECT n.id, n.parent, n.depth FROM records r
    JOIN nodes n ON n.tree = r.tree AND n.seq = r.node
    WHERE r.tree = $1 AND r.kind = 'edge' AND r.data LIKE '%"edge":"version"%' AND n.depth <= $2"""
_UP = """WITH RECURSIVE w (seq, parent, depth, session) AS (
    SELECT seq, parent, depth, session FROM nodes WHERE tree = $1 AND seq = $2
    UNION ALL
    SELECT p.seq, p.parent, p.depth, p.session FROM w
    JOIN nodes p ON p.tree = $1 AND p.seq = w.parent
    WHERE w.depth > $3 AND p.depth < w.depth)
    SELECT seq, session FROM w ORDER BY depth DESC"""
