"""Exported sessions brought into a store, some lines at a time.

Rules: what a file says is proved or refused by its line. Every node's id and every handle is made
again and must be what its line says; records and what a session has at hand are read by their
types, and views, which nothing proves, stay behind. A file holds the path of every session in it:
nobody comes to stand on what others here have said. Until the last line is in, the sessions have
the status `importing`; where a line is bad they are taken back. A session that is here already is
never changed, and a file that says more of it than is here is refused. What was purged here stays
purged. Nothing comes in that others here would read: of a node that was here nothing new is said
(newcomers.py), a tree stays as it is described here, and what a project settles comes in with the
last line, only where nobody here is at work under it. What belongs to one store (folders of
snapshots) stays behind.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from loom.budget.calibration import HIGHEST, LOWEST
from loom.budget.counting import Counter, gate_counter
from loom.conversation.agents import Agent
from loom.conversation.canonical import from_json, to_json
from loom.conversation.handles import is_handle
from loom.conversation.identity import is_node_id, is_short_id, node_id
from loom.conversation.message import ROLES, Message
from loom.conversation.tree import TreeHead
from loom.errors import ChoiceError, Diverged, StoreError, TranscriptError, shorten
from loom.stores import settings
from loom.stores.sessions import Aside, Scope, Usage, check_name
from loom.stores.sql.database import Row, Writer
from loom.stores.states import LOCAL, StateKinds, read_state
from loom.stores.store import Store
from loom.stores.transfer.lines import (
    NOBODY,
    REFUSED,
    EndLine,
    First,
    HandleLine,
    Line,
    NodeLine,
    RecordEntry,
    SessionLine,
    SettingLine,
    State,
    TreeLine,
    ViewLine,
    read_first,
    read_line,
)
from loom.stores.transfer.newcomers import FIND_PLACES, Keys, Newcomers, Place
from loom.stores.transfer.proof import (
    KINDS,
    SPEAKERS,
    check_message,
    check_record,
    is_spent,
    spent_on,
    wrong_with_handle,
)
from loom.stores.tree import marks, nodes
from loom.stores.tree.nodes import PlannedNode, TreeRow, insert_nodes, plain
from loom.stores.tree.path import is_on_path
from loom.stores.views import PUT_HANDLE, HandleTarget

_BATCH_LINES = 1000  # in one transaction: between two of them other writers have their turn
_MAX_TOKENS = 2**53
_BATCH_CHARS = 4_000_000  # likewise: a few huge lines are as much as many small ones

# The lines of a section behind its tree, in their order.
_ORDER: tuple[type[Line], ...] = (SessionLine, NodeLine, HandleLine, ViewLine)


class ImportedSession(Struct, frozen=True):
    """A session that came in: how many messages its path has, and how many messages had to be
    written for it.
    """

    session: str
    messages: int
    new: int


def import_lines(
    store: Store,
    scope: Scope,
    lines: Iterable[str],
    now: int,
    everywhere: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[ImportedSession]:
    """Bring exported sessions into a scope, or everywhere: each to the tenant and project that it
    came from.

    `progress` is told how many messages have been looked at.
    """
    begun: set[int] = set()
    try:
        intake: _Intake | None = None
        for first, batch in _batches(lines):
            intake = intake or _Intake(first, scope, everywhere, now, store.state_kinds)
            with store.database.write() as writer:
                intake.take(writer, batch)
            begun |= intake.begun
            if progress:
                progress(intake.nodes)
    except BaseException as error:
        # A store that failed may be back soon, and the same file then goes on where it stopped; a
        # bad file never will.
        if not isinstance(error, StoreError) or isinstance(error, Diverged):
            # the first error is the one to hear of; `loom doctor` finds what could not be taken
            # back
            with suppress(StoreError):
                for tree in begun:
                    store.sessions.discard(tree)
        raise
    if intake is None:
        return []
    return intake.told


def _batches(lines: Iterable[str]) -> Iterator[tuple[First, list[tuple[int, Line]]]]:
    """The lines with their numbers, some at a time. The last is among the last ones, or the file is
    refused.
    """
    first: First | None = None
    batch, letters, number = list[tuple[int, Line]](), 0, 0
    ended = False
    for number, text in enumerate(lines, 1):
        if first is None:
            first = read_first(text)
        elif text and not text.isspace():
            if ended:
                raise TranscriptError(
                    f"line {number}: something comes after the end; each file has to be "
                    "imported by itself"
                )
            line = read_line(number, text)
            ended = isinstance(line, EndLine)
            if len(batch) >= _BATCH_LINES or letters >= _BATCH_CHARS:
                yield first, batch
                batch, letters = [], 0
            batch.append((number, line))
            letters += len(text)
    if first is None:
        raise TranscriptError("line 1: there is nothing to import")
    if not ended:
        raise TranscriptError(
            f"line {number}: the file ends too early, after this line; export it again, or "
            "fetch all of it"
        )
    yield first, batch


class _Intake:
    """How far a file has come in."""

    def __init__(
        self, first: First, scope: Scope, everywhere: bool, now: int, state_kinds: StateKinds
    ) -> None:
        if first.everywhere and not everywhere:
            raise ChoiceError(
                "line 1: the file contains every tenant and project of a store; import it "
                "everywhere, not into one project"
            )
        self._first, self._scope, self._now, self._state_kinds = first, scope, now, state_kinds
        # A counter that forgets: the usual one would remember more messages than should be held at
        # once.
        self._count = Counter(gate_counter(None).profile, remember=_BATCH_LINES).count_message
        self._section: _Section | None = None
        self._stage = 0
        self._finals: list[Row] = []
        self._settled: list[Row] = []
        self.begun: set[int] = set()
        self.nodes = self._lines = 0
        self.told: list[ImportedSession] = []

    def take(self, writer: Writer, batch: Sequence[tuple[int, Line]]) -> None:
        self._lines += len(batch)
        for kind, group in groupby(batch, key=lambda numbered: type(numbered[1])):
            numbered: Any = list(group)
            if kind is EndLine:
                self._end(writer, *numbered[0])
            elif kind is SettingLine:
                self._settled += [self._setting(number, line) for number, line in numbered]
            elif kind is TreeLine:
                for number, line in numbered:
                    self._close(writer, number)
                    self._section = self._open_section(number, line)
                    self._stage = 0
            else:
                self._put(writer, _ORDER.index(kind), numbered)

    def _put(self, writer: Writer, stage: int, numbered: Any) -> None:
        section = self._section
        if section is None or stage < self._stage or (stage and not section.coming):
            raise TranscriptError(
                f"line {numbered[0][0]}: out of order; a tree comes first, then its sessions, "
                "nodes, handles and views"
            )
        self._stage = stage
        if stage == 1:
            self.nodes += len(numbered)
        (section.sessions, section.nodes, section.handles, section.views)[stage](writer, numbered)
        self.begun |= section.begun

    def _setting(self, number: int, line: SettingLine) -> Row:
        if self._section is not None or self.told:
            raise TranscriptError(f"line {number}: out of order; settings come before the trees")
        tenant, project = self._settled_in(number, line)
        try:
            _check("kind of setting", line.kind)
            _check(line.kind, line.name)
            _check("agent", line.author)
        except ChoiceError as error:
            raise TranscriptError(f"line {number}: {error}") from None
        what = f"the {line.kind}"
        if line.name:
            what += f" {line.name!r}"
        settled = _decode(number, what, line.data, settings.KINDS.get(line.kind, Any))
        if isinstance(settled, Agent) and settled.name != line.name:
            raise TranscriptError(f"line {number}: {what} has the name {settled.name!r}")
        return (tenant, project, line.kind, line.name, line.data, line.author, line.updated)

    def _settled_in(self, number: int, line: SettingLine) -> tuple[str, str]:
        """The tenant and the project of a setting; preferences may be those of all projects of a
        tenant.
        """
        everywhere = (
            self._first.everywhere
            and line.kind == "preferences"
            and line.tenant
            and not line.project
        )
        if everywhere:
            scope = self._scope_of(number, "setting", replace(line, project="default"))
            return scope.tenant, settings.EVERY_PROJECT
        scope = self._scope_of(number, "setting", line)
        return scope.tenant, scope.project

    def _scope_of(self, number: int, what: str, line: SettingLine | TreeLine) -> Scope:
        try:
            if bool(line.tenant and line.project) != self._first.everywhere:
                raise ChoiceError(
                    f"a {what} names its tenant and its project in a file of everything, and "
                    "only there"
                )
            if self._first.everywhere:
                return Scope(line.tenant, line.project)
            return self._scope
        except ChoiceError as error:
            raise TranscriptError(f"line {number}: {error}") from None

    def _open_section(self, number: int, line: TreeLine) -> "_Section":
        scope = self._scope_of(number, "tree", line)
        try:
            _check("tree", line.id)
            _check("title", line.title)
        except ChoiceError as error:
            raise TranscriptError(f"line {number}: {error}") from None
        _decode(number, f"what tree {line.id} says of itself", line.data, TreeHead)
        return _Section(line, scope, self._now, self._count, self._state_kinds)

    def _close(self, writer: Writer, number: int) -> None:
        if self._section is None:
            return
        if not self._section.coming:
            raise TranscriptError(f"line {number}: out of order; the tree before it has no session")
        for coming in self._section.coming.values():
            seq, depth = self._section.stand(writer, coming)
            if not coming.here:
                self._finals.append((coming.key, coming.status, seq, coming.updated))
            self.told.append(ImportedSession(coming.id, depth + 1, coming.new))
        self._section = None

    def _end(self, writer: Writer, number: int, line: EndLine) -> None:
        self._close(writer, number)
        if (line.sessions, line.nodes, line.lines) != (len(self.told), self.nodes, self._lines - 1):
            raise TranscriptError(
                f"line {number}: the file should have {line.sessions} sessions and "
                f"{line.nodes} nodes in {line.lines} lines, "
                f"and has {len(self.told)} and {self.nodes} in {self._lines - 1}; export it "
                "again, or fetch all of it"
            )
        writer.run_many(_SETTING, [row for row in self._settled if self._is_free(writer, row)])
        writer.run_many(
            "UPDATE sessions SET status = $2, cursor = $3, updated = $4 WHERE key = $1",
            self._finals,
        )

    def _is_free(self, writer: Writer, setting: Row) -> bool:
        """Whether no session here is read by a setting as it stands now: what an agent is, or how
        trees are cut.
        """
        tenant, project, kind, name = setting[:4]
        others = writer.all(
            _OTHERS, tenant, project, name if kind == "agent" else "", int(kind == "agent")
        )
        return {key for (key,) in others} <= {final[0] for final in self._finals}


class _ComingSession(Struct):
    """A session that comes in. One that is `here` already is only compared."""

    number: int
    id: str
    key: int
    here: bool
    status: str
    cursor: str
    places: tuple[str, ...]
    updated: int
    new: int = 0
    answers: int = 0  # records of what it used, and the first and last line that has one
    answered: tuple[int, int] = (0, 0)
    # the first record of a kind that nobody knows: its line and its kind
    unknown: tuple[int, str] = (0, "")

    def count_record(self, number: int, kind: str) -> None:
        if kind == "usage":
            self.answers += 1
            self.answered = (self.answered[0] or number, number)
        elif kind not in KINDS and not self.unknown[0]:
            self.unknown = (number, kind)

    def diverge(self, number: int, why: str) -> Diverged:
        return Diverged(
            self.id,
            f"line {number}: session {self.id} is already stored and differs: {why}. "
            "What is stored was not changed; import the file into another project",
        )


class _Section:
    """A tree, and the sessions that come with it."""

    def __init__(
        self,
        line: TreeLine,
        scope: Scope,
        now: int,
        count: Callable[[Message], int],
        state_kinds: StateKinds,
    ) -> None:
        self._line, self._scope, self._now, self._count = line, scope, now, count
        self._state_kinds = state_kinds
        self._tree = TreeRow(0, scope.tenant, scope.project, line.id)
        self.coming: dict[str, _ComingSession] = {}
        self.begun: set[int] = set()
        self._newcomers = Newcomers(set())
        self._held = Keys()  # nodes that were here before and that the file holds too
        self._shared = False  # whether the tree has sessions that are not from this file
        self._left_out: set[str] = set()

    def sessions(self, writer: Writer, numbered: Sequence[tuple[int, SessionLine]]) -> None:
        if not self._tree.key:
            self._tree = replace(self._tree, key=self._insert_tree(writer))
            others = "SELECT 1 FROM sessions WHERE tree = $1 AND status <> 'importing' LIMIT 1"
            self._shared = writer.first_row(others, self._tree.key) is not None
        for number, line in numbered:
            try:
                for what, name in (
                    ("session", line.id),
                    ("title", line.title),
                    ("agent", line.agent),
                ):
                    _check(what, name)
            except ChoiceError as error:
                raise TranscriptError(f"line {number}: {error}") from None
            if line.id in self.coming:
                raise TranscriptError(f"line {number}: session {line.id} comes twice")
            check_session(number, line)
            self.coming[line.id] = self._session(writer, number, line)

    def _insert_tree(self, writer: Writer) -> int:
        line, scope = self._line, self._scope
        writer.all(
            """INSERT INTO trees (tenant, project, id, title, data, created)
                VALUES ($1, $2, $3, $4, $5, $6)
                ON CONFLICT (tenant, project, id) DO NOTHING""",
            scope.tenant,
            scope.project,
            line.id,
            line.title,
            line.data,
            line.created,
        )
        row = writer.first_row(
            "SELECT key FROM trees WHERE tenant = $1 AND project = $2 AND id = $3",
            scope.tenant,
            scope.project,
            line.id,
        )
        assert row is not None
        return int(row[0])

    def _session(self, writer: Writer, number: int, line: SessionLine) -> _ComingSession:
        agent = self._scope.agent or line.agent
        places = tuple(aside.after for aside in line.asides if aside.after)
        states, named = _states(self._state_kinds, number, line)
        # One that was exported while it was still coming in has come in whole when this file has.
        status = "active" if line.status == "importing" else line.status
        coming = _ComingSession(
            number, line.id, 0, False, status, line.cursor, (*places, *named), line.updated
        )
        found = writer.first_row(_SESSION, self._scope.tenant, self._scope.project, line.id)
        if found and found[1] != "importing":
            coming.key, coming.here = found[0], True
            self._compare(writer, coming, agent, found)
            return coming
        if found and (found[2], found[5]) != (self._tree.key, agent):
            raise coming.diverge(number, "it is being imported from another file")
        writer.all(
            _BEGIN,
            self._scope.tenant,
            self._scope.project,
            line.id,
            self._tree.key,
            agent,
            line.title,
            plain(line.head.model),
            line.origin,
            to_json(line.head),
            to_json(line.asides),
            line.usage.prompt,
            line.usage.completion,
            line.usage.cached,
            line.usage.cost,
            to_json(line.calibration) if line.calibration else "",
            line.created,
            self._now,
        )
        made = writer.first_row(_SESSION, self._scope.tenant, self._scope.project, line.id)
        assert made is not None
        coming.key = made[0]
        self._newcomers.sessions.add(coming.key)
        self.begun.add(self._tree.key)
        self._at_hand(writer, coming.key, states)
        return coming

    @staticmethod
    def _at_hand(writer: Writer, key: int, states: Sequence[State]) -> None:
        # An import that was interrupted may have brought others.
        writer.all("DELETE FROM states WHERE session = $1", key)
        writer.run_many(
            settings.PUT_STATE,
            [(key, state.kind, state.name, state.data, state.updated) for state in states],
        )

    def _compare(self, writer: Writer, coming: _ComingSession, agent: str, found: Row) -> None:
        """A session that is here may have gone on since it was exported; it must not lack anything
        that the file has.
        """
        _, status, tree, cursor, updated, whose = found
        if status == "purged" and coming.status != "purged":
            raise ChoiceError(
                f"line {coming.number}: session {coming.id} was purged here, and a purge is "
                "final; import it into another project"
            )
        if (tree, whose) != (self._tree.key, agent):
            raise coming.diverge(coming.number, "another session here has the same id")
        if coming.updated > updated or (coming.status == "purged") != (status == "purged"):
            raise coming.diverge(coming.number, "the file is newer")
        if (
            coming.updated == updated
            and coming.cursor
            and not self._is_on_path(writer, coming.cursor, cursor)
        ):
            raise coming.diverge(coming.number, "the session here is at another message")

    def _is_on_path(self, writer: Writer, name: str, cursor: int | None) -> bool:
        end = nodes.get_or_none(writer, self._tree.key, cursor)
        return is_on_path(writer, self._tree.key, end, name)

    def stand(self, writer: Writer, coming: _ComingSession) -> tuple[int | None, int]:
        """Where a session stands at last. All that it names must have come."""
        wanted = [*coming.places, *filter(None, [coming.cursor])]
        found = self._find(writer, wanted)
        for name in wanted:
            if not self._is_in_file(found.get(name)):
                raise TranscriptError(
                    f"line {coming.number}: session {coming.id} names the node {name}, which "
                    "is not in the file"
                )
        if not coming.here and coming.status != "purged":
            self._check_usage(writer, coming)
        if not coming.cursor:
            return None, -1
        return found[coming.cursor].seq, found[coming.cursor].depth

    def _find(self, writer: Writer, names: Sequence[str]) -> dict[str, Place]:
        rows = writer.all(FIND_PLACES, self._tree.key, to_json(names)) if names else ()
        return {name: Place(*place) for name, *place in rows}

    def _is_in_file(self, place: Place | None) -> bool:
        """Whether a node came with the file, and with it all above it."""
        return place is not None and (
            place.seq in self._held or not self._newcomers.are_guests_at(place)
        )

    def _check_usage(self, writer: Writer, coming: _ComingSession) -> None:
        """That a session used what its answers say."""
        row = writer.first_row(
            "SELECT prompt, completion, cached, cost FROM sessions WHERE key = $1", coming.key
        )
        spent = spent_on(writer, self._tree.key, coming.key)
        assert row is not None
        if spent is not None and not is_spent(Usage(*row), spent):
            number, kind = coming.unknown
            whose = (
                f"line {number}: a record is of the kind {shorten(kind)!r}, which nobody knows, and"
                if number
                else ""
            )
            raise TranscriptError(
                f"{whose or f'line {coming.number}:'} session {coming.id} says that it used "
                f"{row[0]} + {row[1]} tokens, "
                f"and its answers add up to {spent.prompt} + {spent.completion} "
                f"({_told_of(coming)})"
            )

    # What belongs to them

    def nodes(self, writer: Writer, numbered: Sequence[tuple[int, NodeLine]]) -> None:
        writer.first_row("SELECT key FROM trees WHERE key = $1 {lock}", self._tree.key)
        names = {
            name for _, line in numbered for name in (line.id, line.after, *_edge_of(line)[1:])
        } - {""}
        found = self._find(writer, sorted(names))
        planned: dict[str, PlannedNode] = {}
        for number, line in numbered:
            _verify(number, line, self._tree.id)
            if self._is_left_out(line, found):
                self._left_out.add(line.id)
                continue
            self._check_place(number, line, found, planned)
            if line.id in found:
                self._held.add(found[line.id].seq)
            elif line.id not in planned:
                self._check_edge(number, line, found)
                planned[line.id] = self._plan(number, line)
        places = {name: (place.seq, place.depth) for name, place in found.items()}
        places |= {
            node.id: (node.seq, node.depth)
            for node in insert_nodes(writer, self._tree, list(planned.values()))
        }
        records: list[tuple[bool, Row]] = []
        for number, line in numbered:
            if line.id not in self._left_out:
                place, edge, above = found.get(line.id), _edge_of(line)[0], found.get(line.after)
                told = self._records(number, line, places[line.id], line.id in planned)
                records += [
                    (self._newcomers.may_say(row[2], place, edge, above), row) for row in told
                ]
        writer.run_many(_RECORD, [row for fresh, row in records if fresh])
        writer.run_many(_OWNED, [(*row[:5], row[7]) for fresh, row in records if not fresh])

    def _check_place(
        self, number: int, line: NodeLine, found: dict[str, Place], planned: Container[str]
    ) -> None:
        """That a node comes after one of the file, and that it was not purged here."""
        if line.after and line.after not in planned and not self._is_in_file(found.get(line.after)):
            raise TranscriptError(
                f"line {number}: node {line.id} comes after {line.after}, which is not in the "
                "file before it"
            )
        if line.id in found and found[line.id].gone and line.body is not None:
            raise ChoiceError(
                f"line {number}: message {line.short_id} was purged here, and a purge is "
                "final; import it into another project"
            )

    def _plan(self, number: int, line: NodeLine) -> PlannedNode:
        whose = self._whose(number, line.by or None)
        if whose.here:
            raise whose.diverge(number, f"it lacks the message {line.short_id} of the file")
        whose.new += 1
        tokens, role = line.tokens, str(line.role)
        if line.body is not None:
            tokens, role = self._count(line.body), line.body.role
        return PlannedNode(
            line.id,
            line.after,
            role,
            line.body,
            line.generation,
            tokens,
            whose.key,
            line.created,
            line.short_id,
        )

    def _is_left_out(self, line: NodeLine, found: dict[str, Place]) -> bool:
        """Whether a node is one without words behind what others here have said: nobody could write
        what is said there next.
        """
        if line.body is not None or line.id in found:
            return False
        if not line.after:
            return self._shared
        return line.after in self._left_out or self._newcomers.are_guests_at(found.get(line.after))

    def _check_edge(self, number: int, line: NodeLine, found: dict[str, Place]) -> None:
        """That no new version stands for what others here have said: they would read it in its
        place.
        """
        edge, *originals = _edge_of(line)
        if not self._newcomers.may_stand_for(edge, map(found.get, originals)):
            raise self._whose(number, None).diverge(
                number, f"{line.short_id} is another version of a message that others here read"
            )

    def _records(
        self, number: int, line: NodeLine, place: tuple[int, int], new: bool
    ) -> Iterator[Row]:
        """What stands beside a node. Of a node that was here before, and of a remark on one,
        nothing is said that others read.
        """
        for record in line.records:
            if record.data is not None:
                what = f"the {shorten(record.kind)} of node {line.short_id}"
                _prove(number, what, check_record, record.kind, record.name, record.data, place[1])
            if record.data is not None or new:
                whose = None if record.by == NOBODY else self._whose(number, record.by)
                if whose:
                    whose.count_record(number, record.kind)
                key = whose.key if whose else 0
                yield (
                    self._tree.key,
                    place[0],
                    record.kind,
                    record.name,
                    key,
                    record.author,
                    record.data,
                    record.created,
                )

    def handles(self, writer: Writer, numbered: Sequence[tuple[int, HandleLine]]) -> None:
        rows: list[Row] = []
        found = self._find(
            writer, sorted({name for _, line in numbered for name in _nodes_named_by(line.kept)})
        )
        for number, line in numbered:
            whose = self._whose(number, line.by)
            strange = [
                name
                for name in _nodes_named_by(line.kept)
                if name in found and not self._is_in_file(found[name])
            ]
            if strange:
                why = f"it names the node {strange[0]}, which is not in the file"
            else:
                why = self._wrong_with(writer, line)
            if why:
                raise TranscriptError(
                    f"line {number}: handle {shorten(line.handle)} cannot be proved: {why}"
                )
            if not whose.here:
                kept = to_json(line.kept) if line.kept else None
                rows.append((self._tree.key, line.handle, whose.key, line.kind, kept, line.created))
        writer.run_many(PUT_HANDLE, rows)

    def _wrong_with(self, writer: Writer, line: HandleLine) -> str:
        if line.kept is None:
            if line.kind == "text" and is_handle(line.handle):
                return ""
            return "what it names is missing"
        try:
            # half of a surrogate pair is in no place, and in no handle
            (line.handle + line.kept.minted_at).encode()
            return wrong_with_handle(
                writer, self._tree.key, line.handle, line.kind, line.kept, tuple(self.coming)
            )
        except REFUSED as error:
            return f"what it names cannot be read: {error}"

    def views(self, writer: Writer, numbered: Sequence[tuple[int, ViewLine]]) -> None:
        """Nothing proves what a view says, and it would be sent: the first request after an import
        begins an epoch instead.
        """

    def _whose(self, number: int, by: str | None) -> _ComingSession:
        if by is None:
            return next(iter(self.coming.values()))
        if by not in self.coming:
            raise TranscriptError(f"line {number}: there is no session {by!r} in its tree")
        return self.coming[by]


_OTHERS = """SELECT key FROM sessions
    WHERE tenant = $1 AND project = $2 AND status <> 'purged' AND (agent = $3
    OR CAST($4 AS BIGINT) = 0)"""
# What the project has settled itself stays.
_SETTING = """INSERT INTO settings (tenant, project, kind, name, data, author, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, project, kind, name) DO NOTHING"""
_SESSION = """SELECT key, status, tree, cursor, updated, agent FROM sessions
    WHERE tenant = $1 AND project = $2 AND id = $3 {lock}"""
_BEGIN = """INSERT INTO sessions (tenant, project, id, tree, agent, title, model, status, origin,
    cursor, head, asides, prompt,
    completion, cached, cost, calibration, created, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'importing', $8, NULL, $9, $10, $11, $12, $13, $14, $15,
    $16, $17)
    ON CONFLICT (tenant, project, id) DO UPDATE
    SET title = excluded.title, model = excluded.model, origin = excluded.origin,
    head = excluded.head, asides = excluded.asides, prompt = excluded.prompt,
    completion = excluded.completion,
    cached = excluded.cached, cost = excluded.cost, calibration = excluded.calibration,
    created = excluded.created,
    updated = excluded.updated"""
# A record that came along with another session is given to its own when that comes.
_RECORD = """INSERT INTO records (tree, node, kind, name, session, author, data, created)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (tree, node, kind, name) DO UPDATE SET session = excluded.session
    WHERE records.session = 0 AND records.created = excluded.created"""
_OWNED = """UPDATE records SET session = $5
    WHERE tree = $1 AND node = $2 AND kind = $3 AND name = $4 AND session = 0 AND created = $6"""


def _check(what: str, name: str) -> None:
    check_name(what, name)
    if not name and what in ("tree", "session"):
        raise ChoiceError(f"the {what} has no id")


def _decode(number: int, what: str, data: str, kind: Any) -> object:
    """A thing from its JSON."""
    try:
        data.encode()  # half of a surrogate pair is held by neither database
        return msgspec.convert(from_json(data), kind)
    except REFUSED as error:
        raise TranscriptError(f"line {number}: {what} cannot be read: {error}") from None


def check_session(number: int, line: SessionLine) -> None:
    """That a session is one that this store could have written."""
    head = line.head
    words = (
        line.states,
        line.asides,
        line.cursor,
        line.title,
        line.calibration,
        head.system,
        head.tools,
        head.settings,
    )
    if line.status == "purged" and any(words):
        raise TranscriptError(
            f"line {number}: session {line.id} was purged, but the file still has content of it"
        )
    if head.messages:
        raise TranscriptError(f"line {number}: session {line.id} has messages that are not nodes")
    if head.max_output is not None and not 0 < head.max_output <= _MAX_TOKENS:
        raise TranscriptError(
            f"line {number}: session {line.id} sets a largest answer of {head.max_output} tokens"
        )
    for aside in (*line.asides, *(Aside("", message) for message in head.system)):
        if aside.message.role in SPEAKERS:
            raise TranscriptError(
                f"line {number}: session {line.id} has system text of the role {aside.message.role}"
            )
        _prove(number, "system text", check_message, aside.message)
    if not line.calibration:
        return
    for seen in line.calibration.models:
        if not LOWEST <= seen.ratio <= HIGHEST or not 0 < seen.reports <= _MAX_TOKENS:
            raise TranscriptError(
                f"line {number}: session {line.id} has a calibration for "
                f"{shorten(seen.model)!r} that no usage can give"
            )


def _prove(number: int, what: str, check: Callable[..., None], *given: object) -> None:
    try:
        check(*given)
    except REFUSED as error:
        raise TranscriptError(f"line {number}: {what} cannot be read: {error}") from None


def _states(kinds: StateKinds, number: int, line: SessionLine) -> tuple[list[State], list[str]]:
    """What a session has at hand, and the nodes that it names. What belongs to one store only is
    left behind.
    """
    states = [state for state in line.states if state.kind not in LOCAL]
    if len({(state.kind, state.name) for state in states}) < len(states):
        raise TranscriptError(f"line {number}: session {line.id} has the same state twice")
    named: list[str] = []
    for state in states:
        try:
            # half of a surrogate pair is held by neither database
            (state.name + state.data).encode()
            named += read_state(kinds, state.kind, state.name, state.data)[1]
        except REFUSED as error:
            raise TranscriptError(
                f"line {number}: the {shorten(state.kind)} of session {line.id} cannot be "
                f"read: {error}"
            ) from None
    newest = max((int(state.data) for state in states if state.kind == "recalled"), default=0)
    return list(begin_epochs_anew(states, newest)), named


def _told_of(coming: _ComingSession) -> str:
    """Where a file says what a session used."""
    if not coming.answers:
        return "no line names one"
    first, last = coming.answered
    told = f"{coming.answers} of them, in line {first}"
    if last > first:
        told += f" to line {last}"
    return told


def begin_epochs_anew(states: Iterable[State], newest: int) -> Iterator[State]:
    """What a session has at hand where its epochs are counted anew, for no view comes along.

    What was recalled in the newest epoch stands in the next one too.
    """
    for state in states:
        if state.kind != "recalled":
            yield state
        elif int(state.data) >= newest:
            yield replace(state, data="-1")


def _nodes_named_by(kept: HandleTarget | None) -> list[str]:
    """The nodes of its own tree that a handle names."""
    if kept is None:
        return []
    named = [name for stretch in kept.nodes for name in stretch if "/" not in name]
    if kept.at:
        named.append(kept.at)
    return named


def _edge_of(line: NodeLine) -> tuple[str, str, str]:
    """How a node hangs in its tree, and what it was edited from."""
    for record in line.records:
        if record.kind == "edge" and record.data is not None:
            with suppress(StoreError):  # told of where the record is proved
                edge: marks.EdgeMark = marks.read_data("edge", record.data)
                return edge.edge, edge.edited_from, edge.first
    return "continuation", "", ""


def _has_words(record: RecordEntry) -> bool:
    """Whether something is left of a record that a purge would have taken; an edge is a place
    without words.
    """
    return record.data is not None and record.kind != "edge"


def _verify(number: int, line: NodeLine, tree: str) -> None:
    """That a node is what its id says. The words of a tombstone are gone, so of that only the form
    can be looked at.
    """
    if (line.body.role if line.body else line.role) not in ROLES:
        raise TranscriptError(
            f"line {number}: neither a message nor the record of a purged message"
        )
    try:
        _check("generation", line.generation)
    except ChoiceError as error:
        raise TranscriptError(f"line {number}: {error}") from None
    if line.body is not None:
        _prove(number, f"node {shorten(line.short_id)}", check_message, line.body)
        identity = node_id(tree, line.after, line.body, line.generation)
        if identity != line.id:
            raise TranscriptError(
                f"line {number}: the content does not match its id {line.id}, but {identity}; "
                "it was changed"
            )
    elif (
        not is_node_id(line.id)
        or not line.role
        or any(_has_words(record) for record in line.records)
    ):
        raise TranscriptError(
            f"line {number}: neither a message nor the record of a purged message"
        )
    if not is_short_id(line.short_id, line.id):
        raise TranscriptError(
            f"line {number}: {line.short_id!r} cannot be a short name of {line.id}"
        )
