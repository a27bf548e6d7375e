"""What of a damaged tree can be exported: whatever an import will prove. What cannot is named and
left out.

A node goes with all after it; a session then stands at the last node before that. What else names
such a node goes too.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from loom.budget.calibration import Calibration
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.identity import is_node_id, is_short_id, node_id
from loom.conversation.message import ROLES, Conversation
from loom.conversation.names import check_name, plain_name
from loom.conversation.tree import TreeHead
from loom.errors import StoreError, TranscriptError
from loom.stores import settings
from loom.stores.sessions import Aside, Status, Usage
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import UNREADABLE, DamagedError, decode_stored
from loom.stores.states import LOCAL, StateKinds, read_state
from loom.stores.transfer.line_checks import begin_epochs_anew, check_session
from loom.stores.transfer.lines import (
    HandleLine,
    Moment,
    NodeLine,
    RecordEntry,
    SessionLine,
    SettingLine,
    State,
    Tokens,
    TreeLine,
    read_line,
)
from loom.stores.transfer.proof import (
    check_message,
    check_record,
    is_spent,
    spent_on,
    wrong_with_handle,
)
from loom.stores.tree.path import to_message
from loom.stores.views import HandleTarget

_T = TypeVar("_T")
_REFUSED = (*UNREADABLE, TranscriptError)
_MAX_NAMED_THINGS = 5  # things left out that an error names


class LeftOut:
    """What could not be exported, in the order in which it was met."""

    def __init__(self, things: list[str] | None = None) -> None:
        self._silent = things is not None  # whoever gave the list looks at it
        if things is None:
            things = []
        self.things = things

    def add(self, what: str) -> None:
        self.things.append(what)

    def check(self) -> None:
        """Raises if something was left out."""
        if self.things and not self._silent:
            named = "; ".join(self.things[:_MAX_NAMED_THINGS])
            if len(self.things) > _MAX_NAMED_THINGS:
                named += f" and {len(self.things) - _MAX_NAMED_THINGS} more"
            raise StoreError(
                f"the store is damaged, and {len(self.things)} of its things could not be "
                "exported: "
                f"{named}. The rest was written and can be imported; loom doctor shows the damage"
            )


def _can_be_read(line: object) -> bool:
    """Whether an import can read a line."""
    try:
        _read_again(line)
    except _REFUSED:
        return False
    return True


def _read_again(line: object) -> None:
    """As an import reads it."""
    found = read_line(0, to_json(line))
    if isinstance(found, SessionLine):
        check_session(0, found)
    if isinstance(found, SessionLine | TreeLine):
        check_name("id", found.id)
        check_name("title", found.title)
        if not found.id:
            raise ValueError("it has no id")


def sound_setting(line: SettingLine, left_out: LeftOut) -> bool:
    """Whether a setting can be read; it is left out else."""
    try:
        _read_again(line)
        held: Any = settings.KINDS.get(line.kind, Any)
        settled = decode_stored(line.data, held)
        if isinstance(settled, Agent) and settled.name != line.name:
            raise ValueError("it is another agent")
    except _REFUSED:
        left_out.add(f"the {line.kind} {line.name}".rstrip())
        return False
    return True


def _is_number(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


class _Seqs:
    """Keys of nodes, met in their order: eight bytes each, for a tree may be large."""

    def __init__(self) -> None:
        self._found = array("q")

    def add(self, seq: int) -> None:
        if not self._found or seq > self._found[-1]:
            self._found.append(seq)

    def __contains__(self, seq: int) -> bool:
        at = bisect_left(self._found, seq)
        return at < len(self._found) and self._found[at] == seq


def _can_be_written(record: RecordEntry, depth: int) -> bool:
    """Whether an import can read a record of a node of this depth."""
    try:
        if record.data is not None:
            check_record(record.kind, record.name, record.data, depth)
        msgspec.convert(msgspec.to_builtins(record), RecordEntry)
    except UNREADABLE:
        return False
    return True


class Salvage:
    """What is sound of one tree."""

    def __init__(
        self, reader: Reader, tree: int, left_out: LeftOut, state_kinds: StateKinds
    ) -> None:
        self._reader, self._tree, self._left_out, self._state_kinds = (
            reader,
            tree,
            left_out,
            state_kinds,
        )
        # not all nodes of the tree where a session goes alone or an index is damaged
        self._exported = _Seqs()
        self._id = ""

    def tree(self, line: TreeLine) -> TreeLine | None:
        self._id = line.id
        try:
            decode_stored(line.data, TreeHead)
        except UNREADABLE:
            self._left_out.add(f"what tree {line.id} says of itself")
            line = replace(line, data="{}")
        return self._or_none(
            replace(line, title=self._text(line.title, f"the title of tree {line.id}")),
            f"tree {line.id}",
        )

    def _text(self, text: Any, what: str) -> str:
        """A text that can be shown, whatever became of it."""
        if isinstance(text, str) and plain_name(text) == text:
            return text
        self._left_out.add(what)
        return plain_name(str(text))

    # Nodes

    def look_at(self, rows: Iterable[Row]) -> None:
        """Find the nodes of a page that cannot be proved, and those after them; parents come
        before their children.
        """
        for row in rows:
            seq, name, after, short_id, _, body, generation, role, tokens, _, parent, _ = row
            why = "what it comes after is left out"
            if parent is None or (after is not None and parent < seq and self.is_sound(parent)):
                why = self._wrong_with_node(name, after, short_id, body, generation, role)
                why = why or (
                    "" if body is not None or _is_number(tokens, Tokens) else "its tokens cannot be"
                )
            if why:
                self._left_out.add(f"node {short_id} of tree {self._id} ({why})")
            else:
                self._exported.add(seq)

    def _wrong_with_node(
        self,
        name: str,
        after: str | None,
        short_id: str,
        body: str | None,
        generation: str,
        role: str,
    ) -> str:
        try:
            if not is_short_id(short_id, name) or plain_name(generation) != generation:
                return "its name is not its own"
            if body is None:
                if is_node_id(name) and role in ROLES:
                    return ""
                return "it is neither a message nor a purged one"
            message = to_message(body)
            check_message(message)
            if (
                message.role not in ROLES
                or node_id(self._id, after or "", message, generation) != name
            ):
                return "it is not what its id says"
        except UNREADABLE:
            return "it cannot be read"
        return ""

    def is_sound(self, seq: int) -> bool:
        """Whether a node is exported."""
        return seq in self._exported

    def node(self, line: NodeLine, depth: int) -> NodeLine:
        """A node with those of its records that can be read."""
        kept = tuple(
            record for record in line.records if self._is_sound_record(line, record, depth)
        )
        if len(kept) == len(line.records) and _is_number(line.created, Moment):
            return line
        return replace(
            line,
            records=kept,
            created=self._moment(line.created, f"when node {line.short_id} was written"),
        )

    def _is_sound_record(self, line: NodeLine, record: RecordEntry, depth: int) -> bool:
        if not _can_be_written(record, depth):
            self._left_out.add(f"the {record.kind} of node {line.short_id}")
            return False
        return line.body is not None or record.data is None or record.kind == "edge"

    # Sessions

    def session(self, row: Row, states: Iterable[Row]) -> SessionLine | None:
        """A session as far as it can be read."""
        key, name = row[:2]
        what = f"session {name}"
        head = self._read(row[7], Conversation, f"the system text of {what}") or Conversation(
            messages=()
        )
        asides = self._read(row[8], tuple[Aside, ...], f"the system messages in {what}") or ()
        line = SessionLine(
            id=self._text(name, f"the id of {what}"),
            agent=self._text(row[2], f"the agent of {what}"),
            title=self._text(row[3], f"the title of {what}"),
            status=self._status(row[4], what),
            origin=self._text(row[5], f"the origin of {what}"),
            cursor=self._standing(row[6], what),
            head=head,
            asides=tuple(
                aside for aside in asides if not aside.after or self._is_here(aside.after)
            ),
            calibration=self._read(row[9], Calibration, f"the calibration of {what}")
            if row[9]
            else None,
            states=tuple(begin_epochs_anew(self._states(states, what), self._newest_epoch(key))),
            created=self._moment(row[10], f"when {what} began"),
            updated=self._moment(row[11], f"when {what} was last used"),
            usage=self._usage(key, Usage(*row[12:16]), what),
        )
        return self._or_none(line, what)

    def _moment(self, moment: Any, what: str) -> int:
        if _is_number(moment, Moment):
            return int(moment)
        self._left_out.add(what)
        return 0

    def _status(self, status: Any, what: str) -> Any:
        if status in get_args(Status):
            return status
        self._left_out.add(f"the status of {what}")
        return "active"

    def _standing(self, seq: int | None, what: str) -> str:
        """The node at which a session stands, or the last before it that is not left out."""
        while seq is not None and not self.is_sound(seq):
            row = self._reader.first_row(
                "SELECT parent FROM nodes WHERE tree = $1 AND seq = $2 AND parent < seq",
                self._tree,
                seq,
            )
            seq = row[0] if row else None
        if seq is None:
            return ""
        row = self._reader.first_row(
            "SELECT id FROM nodes WHERE tree = $1 AND seq = $2", self._tree, seq
        )
        if row is None:
            self._left_out.add(f"the current node of {what}")
        return row[0] if row else ""

    def _states(self, rows: Iterable[Row], what: str) -> Iterable[State]:
        for kind, name, data, updated in rows:
            if kind in LOCAL:
                continue
            try:
                sound = all(map(self._is_here, read_state(self._state_kinds, kind, name, data)[1]))
            except UNREADABLE:
                sound = False
            if sound:
                yield State(kind=kind, name=name, data=data, updated=updated)
            else:
                self._left_out.add(f"the {kind} {name} of {what}")

    def _newest_epoch(self, session: int) -> int:
        row = self._reader.first_row("SELECT max(epoch) FROM views WHERE session = $1", session)
        return row[0] if row and row[0] is not None else -1

    def _is_here(self, name: str) -> bool:
        """Whether a node is in the tree and is exported."""
        row = self._reader.first_row(
            "SELECT seq FROM nodes WHERE tree = $1 AND id = $2", self._tree, name
        )
        return row is not None and self.is_sound(row[0])

    def _usage(self, session: int, usage: Usage, what: str) -> Usage:
        spent = spent_on(self._reader, self._tree, session, self._is_sound_usage)
        if spent is None or is_spent(usage, spent):
            return usage
        self._left_out.add(f"what {what} used, beyond what its answers say")
        return spent

    def _is_sound_usage(self, row: Row) -> bool:
        node, kind, name, author, data, created = row
        record = RecordEntry(kind=kind, name=name, author=author, data=data, created=created)
        return self.is_sound(node) and _can_be_written(record, 0)

    # Handles

    def handle(self, line: HandleLine, sessions: tuple[str, ...]) -> HandleLine | None:
        wrong = line.kept is not None and self._is_wrong(line, line.kept, sessions)
        if wrong or not _can_be_read(line):
            self._left_out.add(f"handle {line.handle}")
            return None
        return line

    def _is_wrong(self, line: HandleLine, kept: HandleTarget, sessions: tuple[str, ...]) -> bool:
        named = {name for stretch in kept.nodes for name in stretch if "/" not in name} | set(
            filter(None, [kept.at])
        )
        if not all(map(self._is_here, named)):
            return True
        try:
            return bool(
                wrong_with_handle(self._reader, self._tree, line.handle, line.kind, kept, sessions)
            )
        except DamagedError:  # the way from one of its nodes to another
            return True

    def read_kept(self, handle: str, data: str | None) -> HandleTarget | None:
        if data is None:
            return None
        try:
            return decode_stored(data, HandleTarget)
        except UNREADABLE:
            self._left_out.add(f"handle {handle}")
            return None

    def _read(self, text: Any, kind: type[_T], what: str) -> _T | None:
        try:
            return decode_stored(text, kind)
        except UNREADABLE:
            self._left_out.add(what)
            return None

    def _or_none(self, line: _T, what: str) -> _T | None:
        if _can_be_read(line):
            return line
        self._left_out.add(what)
        return None
