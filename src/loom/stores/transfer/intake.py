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

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter, gate_counter
from loom.conversation.agents import Agent
from loom.conversation.tree import TreeHead
from loom.errors import ChoiceError, Diverged, StoreError, TranscriptError
from loom.stores import settings
from loom.stores.events import remove_events
from loom.stores.sessions import Scope
from loom.stores.sql.database import Row, Writer
from loom.stores.states import StateKinds
from loom.stores.store import Store
from loom.stores.transfer.decisions import take_decision, take_edge
from loom.stores.transfer.documents import import_document
from loom.stores.transfer.events import take_event
from loom.stores.transfer.line_checks import check_given_name, decode_data
from loom.stores.transfer.lines import (
    DecisionEdgeLine,
    DecisionLine,
    DocumentLine,
    EndLine,
    EventLine,
    First,
    HandleLine,
    KeptLine,
    Line,
    NodeLine,
    NoteLine,
    SessionLine,
    SettingLine,
    TreeLine,
    ViewLine,
    read_first,
    read_line,
)
from loom.stores.transfer.notes import take_note
from loom.stores.transfer.tree_intake import TreeIntake

_BATCH_LINES = 1000  # in one transaction: between two of them other writers have their turn
_BATCH_CHARS = 4_000_000  # likewise: a few huge lines are as much as many small ones
_ScopedLine = SettingLine | TreeLine | KeptLine
# The lines of a section after its tree, in their order.
_ORDER: tuple[type[Line], ...] = (SessionLine, NodeLine, HandleLine, ViewLine)
_OTHERS = """SELECT key FROM sessions
    WHERE tenant = $1 AND project = $2 AND status <> 'purged' AND (agent = $3
    OR CAST($4 AS BIGINT) = 0)"""
# What the project has settled itself stays.
_SETTING = """INSERT INTO settings (tenant, project, kind, name, data, author, updated)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (tenant, project, kind, name) DO NOTHING"""


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
    intake: _Intake | None = None
    try:
        for first, batch in _batches(lines):
            intake = intake or _Intake(first, scope, everywhere, now, store.state_kinds)
            with store.database.write() as writer:
                intake.take(writer, batch)
            begun |= intake.begun
            if progress:
                progress(intake.nodes)
    except BaseException as error:
        # A store that failed may be back soon, and the same file then continues where it stopped; a
        # bad file never will.
        if not isinstance(error, StoreError) or isinstance(error, Diverged):
            # the first error is the one to hear of; `loom doctor` finds what could not be taken
            # back
            with suppress(StoreError):
                for tree in begun:
                    store.sessions.discard(tree)
                for where, key in intake.documents if intake else ():
                    store.documents.remove(where, [key])
                store.notes.remove(intake.notes if intake else ())
                store.decisions.remove(intake.decisions if intake else ())
                remove_events(store.database, intake.events if intake else ())
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
        self._section: TreeIntake | None = None
        self._stage = 0
        self._finals: list[Row] = []
        self._settled: list[Row] = []
        self.begun: set[int] = set()
        self.documents: list[tuple[Scope, int]] = []
        self.notes: list[int] = []
        self.decisions: set[int] = set()
        self.events: list[tuple[int, str]] = []
        self._fresh: dict[tuple[str, str], set[str]] = {}  # sessions that came with the file
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
            elif kind in get_args(KeptLine):
                for number, line in numbered:
                    self._take_kept(writer, number, line)
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
        takers = (
            section.take_sessions,
            section.take_nodes,
            section.take_handles,
            section.take_views,
        )
        takers[stage](writer, numbered)
        self.begun |= section.begun

    def _take_kept(self, writer: Writer, number: int, line: KeptLine) -> None:
        """Documents, notes, events and decisions come after the trees; what is here already
        stays.
        """
        self._close(writer, number)
        if isinstance(line, DocumentLine):
            scope = self._scope_of(number, "document", line)
            key = import_document(writer, scope, number, line)
            self.documents += [(scope, key)] if key else []
        elif isinstance(line, NoteLine):
            scope = self._scope_of(number, "note", line)
            fresh = self._fresh.get((scope.tenant, scope.project), set[str]())
            key = take_note(writer, scope, number, line, fresh)
            self.notes += [key] if key else []
        elif isinstance(line, EventLine):
            scope = self._scope_of(number, "event", line)
            made = take_event(writer, scope, number, line, self._now)
            self.events += [made] if made else []
        else:
            self._take_decision(writer, number, line)

    def _take_decision(
        self, writer: Writer, number: int, line: DecisionLine | DecisionEdgeLine
    ) -> None:
        """Decisions come before the edges between them."""
        if isinstance(line, DecisionLine):
            scope = self._scope_of(number, "decision", line)
            fresh = self._fresh.get((scope.tenant, scope.project), set[str]())
            key = take_decision(writer, scope, number, line, fresh)
            self.decisions |= {key} if key else set()
        else:
            scope = self._scope_of(number, "edge", line)
            take_edge(writer, scope, number, line, self.decisions)

    def _setting(self, number: int, line: SettingLine) -> Row:
        if self._section is not None or self.told:
            raise TranscriptError(f"line {number}: out of order; settings come before the trees")
        tenant, project = self._settled_in(number, line)
        try:
            check_given_name("kind of setting", line.kind)
            check_given_name(line.kind, line.name)
            check_given_name("agent", line.author)
        except ChoiceError as error:
            raise TranscriptError(f"line {number}: {error}") from None
        what = f"the {line.kind}"
        if line.name:
            what += f" {line.name!r}"
        settled = decode_data(number, what, line.data, settings.KINDS.get(line.kind, Any))
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

    def _scope_of(self, number: int, what: str, line: _ScopedLine) -> Scope:
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

    def _open_section(self, number: int, line: TreeLine) -> TreeIntake:
        scope = self._scope_of(number, "tree", line)
        try:
            check_given_name("tree", line.id)
            check_given_name("title", line.title)
        except ChoiceError as error:
            raise TranscriptError(f"line {number}: {error}") from None
        decode_data(number, f"what tree {line.id} says of itself", line.data, TreeHead)
        return TreeIntake(line, scope, self._now, self._count, self._state_kinds)

    def _close(self, writer: Writer, number: int) -> None:
        if self._section is None:
            return
        if not self._section.coming:
            raise TranscriptError(f"line {number}: out of order; the tree before it has no session")
        for coming in self._section.coming.values():
            seq, depth = self._section.stand(writer, coming)
            if not coming.here:
                self._finals.append((coming.key, coming.status, seq, coming.updated))
                self._fresh.setdefault(self._section.project, set()).add(coming.id)
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
