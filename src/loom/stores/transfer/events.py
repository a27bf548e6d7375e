"""Events of projects out of a store and back in.

Out: what has expired and what is damaged is left out. In: an event whose id is known here stays as
it is. With an agent named, none comes out.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.events import ACKNOWLEDGED, EXPIRED, NOTICE, OPEN, EventRow, check_event
from loom.errors import TranscriptError
from loom.stores.events import EVENT_COLUMNS, insert_events, lock_bus, read_event
from loom.stores.sessions import Scope
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, is_garbled, read_paged
from loom.stores.transfer.lines import REFUSED, EventLine, read_line
from loom.stores.transfer.salvage import LeftOut

_STATES: dict[int, Literal["open", "notice", "acknowledged"]] = {
    OPEN: "open",
    NOTICE: "notice",
    ACKNOWLEDGED: "acknowledged",
}
_SAME_NAMES = (
    *("id", "action", "source", "node", "target", "target_node", "parent", "session"),
    *("priority", "created", "expires", "data"),
)


def has_events(reader: Reader, scope: Scope, everywhere: bool) -> bool:
    """Whether an export of a scope has events."""
    return not scope.agent and next(_rows(reader, scope, everywhere), None) is not None


def export_events(
    reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut, session: int = 0
) -> Iterator[EventLine]:
    """The events of a scope, or of every tenant and project, in their order; with the key of a
    session, those that have its label.
    """
    if scope.agent:
        return
    for row in _rows(reader, scope, everywhere, session):
        try:
            if is_garbled(row):
                raise ValueError("a text is not UTF-8")
            event = read_event(row[4:])
            check_event(event)
            line = _line(event, *(row[2:4] if everywhere else ("", "")))
            read_line(0, to_json(line))  # as an import reads it
        except (*REFUSED, *UNREADABLE, TranscriptError):
            left_out.add(f"event {row[5]!s:.200}")
        else:
            yield line


def _rows(reader: Reader, scope: Scope, everywhere: bool, session: int = 0) -> Iterator[Row]:
    where = ("", "") if everywhere else (scope.tenant, scope.project)
    return read_paged(reader, _EVENTS, (0, 0), *where, session)


def _line(event: EventRow, tenant: str, project: str) -> EventLine:
    said = {name: getattr(event, name) for name in _SAME_NAMES}
    return EventLine(**said, state=_STATES[event.state], tenant=tenant, project=project)


def take_event(
    writer: Writer, scope: Scope, number: int, line: EventLine, now: int
) -> tuple[int, str] | None:
    """Bring an event into a scope; its bus and its id, or None if one of its id is known here."""
    state = next(each for each, name in _STATES.items() if name == line.state)
    event = EventRow(**{name: getattr(line, name) for name in _SAME_NAMES}, state=state)
    try:
        check_event(event)
    except (*REFUSED, *UNREADABLE) as error:
        raise TranscriptError(f"line {number}: event {line.id!s:.100}: {error}") from None
    bus, last = lock_bus(writer, scope.tenant, scope.project)
    made = insert_events(writer, bus, last, [replace(event, seq=0)], now)
    return (bus, event.id) if made else None


_EVENTS = f"""SELECT e.bus, e.seq, b.tenant, b.project, {
    ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
} FROM events e JOIN buses b ON b.key = e.bus
    WHERE (e.bus, e.seq) > ($1, $2) AND e.state <> {EXPIRED}
    AND ($3 = '' OR b.tenant = $3) AND ($4 = '' OR b.project = $4)
    AND (CAST($5 AS BIGINT) = 0 OR (e.session <> '' AND EXISTS (SELECT 1 FROM states x
    WHERE x.session = $5 AND x.kind = 'label' AND x.name = e.session)))
    ORDER BY e.bus, e.seq LIMIT 200"""
