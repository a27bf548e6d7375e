"""What must be true of events: each can be read, and is what its columns say."""

from collections.abc import Iterator

from loom.conversation.events import check_event
from loom.stores.events import EVENT_COLUMNS, read_event
from loom.stores.health.checkup import COPY, NOT_UTF_8, CheckedTable, Problem
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import UNREADABLE, is_garbled


def _look_at_event(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    bus, seq, last, tenant, project, *columns = values
    place = f"event {columns[1]!s:.200} in {tenant}/{project}"
    if is_garbled(values):
        yield Problem(place, f"its words or names cannot be read: {NOT_UTF_8}", _advise(bus, seq))
        return
    if last is None:
        yield Problem(place, "the project that it belongs to is not there", _advise(bus, seq))
        return
    if seq > last:
        fix = f"UPDATE buses SET last = {seq} WHERE key = {bus}"
        yield Problem(place, f"it has the number {seq}, and the last is {last}", fix)
    try:
        check_event(read_event(tuple(columns)))
    except UNREADABLE as error:
        yield Problem(place, f"it is not what its row says: {error}", _advise(bus, seq))
    if reader.first_row(_IS_KNOWN, bus, columns[1]) is None:
        fix = (
            f"INSERT INTO event_ids (bus, id, seq) SELECT bus, id, seq FROM events {_at(bus, seq)}"
        )
        yield Problem(place, "if it came again, it would be taken for another one", fix)


def _at(bus: int, seq: int) -> str:
    return f"WHERE bus = {bus} AND seq = {seq}"


def _advise(bus: int, seq: int) -> str:
    return f"{COPY}; or delete it by hand: DELETE FROM events {_at(bus, seq)}"


_IS_KNOWN = "SELECT 1 FROM event_ids WHERE bus = $1 AND id = $2"
_EVENTS = f"""SELECT e.bus, e.seq, b.last, b.tenant, b.project, {
    ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
} FROM events e LEFT JOIN buses b ON b.key = e.bus
    WHERE (e.bus, e.seq) > ($1, $2) ORDER BY e.bus, e.seq LIMIT $3"""


def event_tables() -> tuple[CheckedTable, ...]:
    """What there is to look at of events."""
    return (CheckedTable("events", (0, 0), _EVENTS, _look_at_event),)
