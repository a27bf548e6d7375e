"""One tree of an exported file brought into a store, with its sessions, nodes and handles.

The rules are those of `intake.py`.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.handles import is_handle
from loom.conversation.message import Message
from loom.conversation.names import plain_name
from loom.errors import ChoiceError, Diverged, StoreError, TranscriptError, shorten
from loom.stores import settings
from loom.stores.sessions import Scope, Usage
from loom.stores.sql.database import Row, Writer
from loom.stores.states import StateKinds
from loom.stores.transfer.line_checks import (
    check_given_name,
    check_node,
    check_session,
    check_states,
    prove,
)
from loom.stores.transfer.lines import (
    NOBODY,
    REFUSED,
    HandleLine,
    NodeLine,
    SessionLine,
    State,
    TreeLine,
    ViewLine,
)
from loom.stores.transfer.newcomers import FIND_PLACES, Keys, Newcomers, Place
from loom.stores.transfer.proof import (
    KINDS,
    check_record,
    is_spent,
    spent_on,
    wrong_with_handle,
)
from loom.stores.tree import marks, nodes
from loom.stores.tree.nodes import PlannedNode, TreeRow, insert_nodes
from loom.stores.tree.path import is_on_path
from loom.stores.views import PUT_HANDLE, HandleTarget

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


class ComingSession(Struct):
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


class TreeIntake:
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
        self.project = (scope.tenant, scope.project)
        self._tree = TreeRow(0, scope.tenant, scope.project, line.id)
        self.coming: dict[str, ComingSession] = {}
        self.begun: set[int] = set()
        self._newcomers = Newcomers(set())
        self._held = Keys()  # nodes that were here before and that the file holds too
        self._shared = False  # whether the tree has sessions that are not from this file
        self._left_out: set[str] = set()

    def take_sessions(self, writer: Writer, numbered: Sequence[tuple[int, SessionLine]]) -> None:
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
                    check_given_name(what, name)
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

    def _session(self, writer: Writer, number: int, line: SessionLine) -> ComingSession:
        agent = self._scope.agent or line.agent
        places = tuple(aside.after for aside in line.asides if aside.after)
        states, named = check_states(self._state_kinds, number, line)
        # One that was exported while it was still coming in has come in whole when this file has.
        status = "active"
        if line.status != "importing":
            status = line.status
        coming = ComingSession(
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
            plain_name(line.head.model),
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

    def _compare(self, writer: Writer, coming: ComingSession, agent: str, found: Row) -> None:
        """A session that is here may have continued since it was exported; it must not lack
        anything that the file has.
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

    def stand(self, writer: Writer, coming: ComingSession) -> tuple[int | None, int]:
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

    def _check_usage(self, writer: Writer, coming: ComingSession) -> None:
        """That a session used what its answers say."""
        row = writer.first_row(
            "SELECT prompt, completion, cached, cost FROM sessions WHERE key = $1", coming.key
        )
        spent = spent_on(writer, self._tree.key, coming.key)
        assert row is not None
        if spent is not None and not is_spent(Usage(*row), spent):
            number, kind = coming.unknown
            whose = ""
            if number:
                whose = (
                    f"line {number}: a record is of the kind {shorten(kind)!r}, which nobody "
                    "knows, and"
                )
            raise TranscriptError(
                f"{whose or f'line {coming.number}:'} session {coming.id} says that it used "
                f"{row[0]} + {row[1]} tokens, "
                f"and its answers add up to {spent.prompt} + {spent.completion} "
                f"({_told_of(coming)})"
            )

    # What belongs to them

    def take_nodes(self, writer: Writer, numbered: Sequence[tuple[int, NodeLine]]) -> None:
        writer.first_row("SELECT key FROM trees WHERE key = $1 {lock}", self._tree.key)
        names = {
            name for _, line in numbered for name in (line.id, line.after, *_edge_of(line)[1:])
        } - {""}
        found = self._find(writer, sorted(names))
        planned: dict[str, PlannedNode] = {}
        for number, line in numbered:
            check_node(number, line, self._tree.id)
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
        """Whether a node is one without words after what others here have said: nobody could write
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
        """What stands next to a node. Of a node that was here before, and of a remark on one,
        nothing is said that others read.
        """
        for record in line.records:
            if record.data is not None:
                what = f"the {shorten(record.kind)} of node {line.short_id}"
                prove(number, what, check_record, record.kind, record.name, record.data, place[1])
            if record.data is not None or new:
                whose = None
                if record.by != NOBODY:
                    whose = self._whose(number, record.by)
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

    def take_handles(self, writer: Writer, numbered: Sequence[tuple[int, HandleLine]]) -> None:
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
                kept = None
                if line.kept:
                    kept = to_json(line.kept)
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

    def take_views(self, writer: Writer, numbered: Sequence[tuple[int, ViewLine]]) -> None:
        """Nothing proves what a view says, and it would be sent: the first request after an import
        begins an epoch instead.
        """

    def _whose(self, number: int, by: str | None) -> ComingSession:
        if by is None:
            return next(iter(self.coming.values()))
        if by not in self.coming:
            raise TranscriptError(f"line {number}: there is no session {by!r} in its tree")
        return self.coming[by]


def _told_of(coming: ComingSession) -> str:
    """Where a file says what a session used."""
    if not coming.answers:
        return "no line names one"
    first, last = coming.answered
    told = f"{coming.answers} of them, in line {first}"
    if last > first:
        told += f" to line {last}"
    return told


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
