"""Events between agents in a store: what one program publishes, others find.

The events of a project are numbered in the order in which they were committed: who publishes holds
the row of the project's bus until then, so that nobody who has read up to a number misses a smaller
one. Who waits is woken by PostgreSQL; a file of SQLite is looked at for its last number, less and
less often while nothing comes.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.events import (
    ACKNOWLEDGED,
    EXPIRED,
    MAX_HISTORY_EVENTS,
    MAX_REMEMBERED_IDS,
    OPEN,
    EventFilter,
    EventRow,
    sort_urgent,
)
from loom.errors import StoreError
from loom.stores.sql.database import Database, NoticeListener, Reader, Row, Writer
from loom.stores.sql.stored import read_each, read_rows

if TYPE_CHECKING:
    from loom.stores.sessions import Scope

CHANNEL = "loom_events"
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.01, 0.25  # between two looks at a file
LISTENED_PAUSE_SECONDS = 5.0  # between two looks where a server tells of what comes
PRUNE_EVERY = 64  # events, after which old ones are removed
_PAGE_ROWS = 200


class StoredEvents:
    """The events of one project."""

    def __init__(
        self, database: Database, scope: "Scope", history: int = MAX_HISTORY_EVENTS
    ) -> None:
        self._database, self._history = database, history
        self._where = (scope.tenant, scope.project)
        self._bus = 0
        self._changed = threading.Condition()
        self._bell = 0  # rung when something may have come
        self._listener: NoticeListener | None = None

    def append(self, events: Sequence[EventRow], now: int) -> int:
        with self._database.write() as writer:
            bus, last = lock_bus(writer, *self._where)
            _expire(writer, bus, now)
            rows = insert_events(writer, bus, last, events, now)
            if not rows:
                return 0
            newest = rows[-1].seq
            if newest // PRUNE_EVERY > last // PRUNE_EVERY:
                self._prune(writer, bus, newest)
            if self._database.name == "postgres":
                writer.all("SELECT pg_notify($1, $2)", CHANNEL, str(bus))
        self.wake()
        return len(rows)

    def find(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        self._mark_expired(now)
        with self._database.read() as reader:
            return list(islice(self._select(reader, wanted, now), limit))

    def find_urgent(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        self._mark_expired(now)
        found: dict[int, EventRow] = {}
        with self._database.read() as reader:
            row = reader.first_row(_BUS, *self._where)
            bus, last = row or (0, 0)
            for column, name in wanted.names():
                rows = read_rows(
                    reader,
                    _URGENT.replace("[column]", column),
                    bus,
                    last - self._history,
                    name,
                    wanted.session or "",
                    int(wanted.session is None),
                    to_json(wanted.actions),
                    now,
                    limit,
                )
                read = read_each(rows, read_event, lambda row: f"event {row[1]}")
                found |= {event.seq: event for event in read if wanted.takes(event)}
        return sort_urgent(found.values(), limit)

    def read_after(
        self, seq: int, wanted: EventFilter, now: int, limit: int
    ) -> tuple[list[EventRow], int]:
        self._mark_expired(now)
        with self._database.read() as reader:
            last = self._read_last(reader)
            found = list(islice(self._select(reader, wanted, now, seq), limit))
        if len(found) < limit:
            return found, last
        return found, found[-1].seq

    def acknowledge(self, ids: Sequence[str], now: int) -> list[str]:
        with self._database.write() as writer:
            bus, _ = lock_bus(writer, *self._where)
            _expire(writer, bus, now)
            rows = writer.all(_ACKNOWLEDGE, bus, to_json(list(ids)), ACKNOWLEDGED)
        settled = {name for (name,) in rows}
        return [name for name in dict.fromkeys(ids) if name in settled]

    def last(self) -> int:
        with self._database.read() as reader:
            return self._read_last(reader)

    # Waiting

    def wait(self, seq: int, seconds: float, stop: threading.Event | None = None) -> bool:
        end, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            is_listening = self._listen()
            with self._changed:
                heard = self._bell
            if stop and stop.is_set():
                return False
            if self.last() > seq:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            longest = LISTENED_PAUSE_SECONDS if is_listening else pause
            if self._wait_for_bell(heard, min(left, longest)):
                return self.last() > seq
            pause = min(1.5 * pause, LAST_PAUSE_SECONDS)

    def _wait_for_bell(self, heard: int, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._bell != heard, seconds)

    def wake(self) -> None:
        with self._changed:
            self._bell += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wait no longer; the store stays open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(StoreError):
                listener.close()
        self.wake()

    def _listen(self) -> bool:
        """Let the server tell of what comes, where there is one; whether it does."""
        if self._listener is None or not self._listener.is_alive:
            self._listener = self._database.listen(CHANNEL, self.wake)
        return self._listener is not None

    # Reading

    def _read_last(self, reader: Reader) -> int:
        row = reader.first_row(_BUS, *self._where)
        return int(row[1]) if row else 0

    def _mark_expired(self, now: int) -> None:
        """Mark what has expired, if anything has: most reads write nothing."""
        with self._database.read() as reader:
            row = reader.first_row(_BUS, *self._where)
            if row is None or reader.first_row(_HAS_EXPIRED, row[0], now) is None:
                return
        with self._database.write() as writer:
            _expire(writer, row[0], now)

    def _select(
        self, reader: Reader, wanted: EventFilter, now: int, after: int | None = None
    ) -> Iterator[EventRow]:
        """What is asked for: the newest first, or in order after a place."""
        row = reader.first_row(_BUS, *self._where)
        if row is None:
            return
        bus, last = row
        found = [
            self._read_events(reader, sql, (bus, last - self._history, name), after)
            for sql, name in _statements(wanted, is_forward=after is not None)
        ]
        known = 0
        for event in merge(*found, key=_place_of, reverse=after is None):
            is_seen = event.state != EXPIRED and not event.has_expired(now)
            if is_seen and event.seq != known and wanted.takes(event):
                known = event.seq
                yield event

    @staticmethod
    def _read_events(
        reader: Reader, sql: str, values: tuple[int, int, str], after: int | None
    ) -> Iterator[EventRow]:
        """The events of one statement, a page at a time."""
        bus, oldest, name = values
        place = 2**62 if after is None else after
        while rows := read_rows(reader, sql, bus, place, oldest, name):
            place = rows[-1][0]
            yield from read_each(rows, read_event, lambda row: f"event {row[1]}")

    def _prune(self, writer: Writer, bus: int, last: int) -> None:
        writer.all(
            "DELETE FROM events WHERE bus = $1 AND seq <= $2 AND state <> 0",
            bus,
            last - self._history,
        )
        writer.all(_FORGET, bus, last - MAX_REMEMBERED_IDS)


def _statements(wanted: EventFilter, is_forward: bool) -> list[tuple[str, str]]:
    """The statements that find what is asked for, each with what its column must hold."""
    order = "seq > $2 {0} ORDER BY seq" if is_forward else "seq < $2 {0} ORDER BY seq DESC"
    made = []
    for column, name in wanted.names() or [("", "")]:
        by = f"AND {column} = $4 AND {column} <> ''" if column else "AND $4 = ''"
        made.append((f"{_SELECT} AND {order.format(by)} LIMIT {_PAGE_ROWS}", name))
    return made


def lock_bus(writer: Writer, tenant: str, project: str) -> tuple[int, int]:
    """The bus of a project and its last number, held until the transaction ends."""
    row = writer.first_row(f"{_BUS} {{lock}}", tenant, project)
    if row is None:
        writer.all(_MAKE_BUS, tenant, project)
        row = writer.first_row(f"{_BUS} {{lock}}", tenant, project)
    assert row is not None
    return int(row[0]), int(row[1])


def insert_events(
    writer: Writer, bus: int, last: int, events: Sequence[EventRow], now: int
) -> list[EventRow]:
    """Write events after the last one of a bus that is locked; those that are new."""
    rows = [
        replace(event, seq=seq, state=EXPIRED if event.has_expired(now) else event.state)
        for seq, event in enumerate(_leave_out_known(writer, bus, events), last + 1)
    ]
    if rows:
        writer.run_many(_INSERT, [(bus, *_to_columns(row)) for row in rows])
        writer.run_many(_REMEMBER, [(bus, row.id, row.seq) for row in rows])
        writer.all("UPDATE buses SET last = $2 WHERE key = $1", bus, rows[-1].seq)
    return rows


def remove_events(database: Database, events: Sequence[tuple[int, str]]) -> None:
    """Take back events that came with a file, given by bus and id."""
    if not events:
        return
    with database.write() as writer:
        for table in ("events", "event_ids"):
            writer.run_many(f"DELETE FROM {table} WHERE bus = $1 AND id = $2", events)


def take_events_of(
    writer: Writer, where: tuple[str, str], session: str, key: int, nodes: Sequence[int]
) -> None:
    """Take away what a session that is purged said in events: the tasks at these nodes, what comes
    from the session, and what has its label, unless another session has it too.
    """
    row = writer.first_row(_BUS, *where)
    if row is None:
        return
    bus = row[0]
    ids = writer.all(_TASK_IDS, key, str(list(nodes)))
    writer.run_many("DELETE FROM events WHERE bus = $1 AND id = $2", [(bus, i) for (i,) in ids])
    writer.all("DELETE FROM events WHERE bus = $1 AND node = $2 AND node <> ''", bus, session)
    for (label,) in writer.all(_OWN_LABELS, key, *where):
        writer.all("DELETE FROM events WHERE bus = $1 AND session = $2", bus, label)


def _leave_out_known(reader: Reader, bus: int, events: Sequence[EventRow]) -> list[EventRow]:
    """The events whose ids are not known yet, each once."""
    first = {event.id: event for event in reversed(events)}
    known = {name for (name,) in reader.all(_KNOWN, bus, to_json(list(first)))}
    return [event for event in events if event is first[event.id] and event.id not in known]


def _expire(writer: Writer, bus: int, now: int) -> None:
    writer.all(
        "UPDATE events SET state = 3 WHERE bus = $1 AND state = 0 AND expires IS NOT NULL "
        "AND expires < $2",
        bus,
        now,
    )


def _place_of(event: EventRow) -> int:
    return event.seq


def _to_columns(event: EventRow) -> Row:
    return tuple(getattr(event, name) for name in EVENT_COLUMNS)


def read_event(row: Row) -> EventRow:
    fields: dict[str, Any] = dict(zip(EVENT_COLUMNS, row, strict=True))
    if not isinstance(fields["data"], str) or not isinstance(fields["id"], str):
        raise ValueError("its row is not valid")
    return EventRow(**fields)


EVENT_COLUMNS = (
    "seq",
    "id",
    "action",
    "source",
    "node",
    "target",
    "target_node",
    "parent",
    "session",
    "priority",
    "created",
    "expires",
    "state",
    "data",
)
_NAMES = ", ".join(EVENT_COLUMNS)
_BUS = "SELECT key, last FROM buses WHERE tenant = $1 AND project = $2"
_MAKE_BUS = """INSERT INTO buses (tenant, project, last) VALUES ($1, $2, 0)
    ON CONFLICT (tenant, project) DO NOTHING"""
_INSERT = f"""INSERT INTO events (bus, {_NAMES}) VALUES
    ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"""
_REMEMBER = "INSERT INTO event_ids (bus, id, seq) VALUES ($1, $2, $3)"
_KNOWN = """SELECT i.id FROM {each:2} e CROSS JOIN event_ids i
    WHERE i.bus = $1 AND i.id = e.value"""
_SELECT = f"SELECT {_NAMES} FROM events WHERE bus = $1 AND (state = 0 OR seq > $3)"
# of what is for a target, or comes from somewhere; the column is put in
_URGENT = f"""SELECT {_NAMES} FROM events WHERE bus = $1 AND (state = 0 OR seq > $2)
    AND state IN (0, 1) AND [column] = $3 AND [column] <> ''
    AND (CAST($5 AS BIGINT) = 1 OR session = '' OR session = $4)
    AND ($6 = '[]' OR action IN {{each:6}}) AND (expires IS NULL OR expires >= $7)
    ORDER BY priority DESC, created DESC, seq DESC LIMIT $8"""
_HAS_EXPIRED = """SELECT 1 FROM events WHERE bus = $1 AND state = 0 AND expires IS NOT NULL
    AND expires < $2 LIMIT 1"""
_ACKNOWLEDGE = """UPDATE events SET state = $3 WHERE bus = $1 AND state = 0 AND id IN {each:2}
    RETURNING id"""
_FORGET = """DELETE FROM event_ids WHERE bus = $1 AND seq <= $2
    AND seq NOT IN (SELECT seq FROM events WHERE bus = $1 AND state = 0)"""
_TASK_IDS = """SELECT n.generation FROM sessions s CROSS JOIN {each_int:2} e CROSS JOIN nodes n
    WHERE s.key = $1 AND n.tree = s.tree AND n.seq = e.value AND n.generation <> ''"""
_OWN_LABELS = """SELECT x.name FROM states x WHERE x.session = $1 AND x.kind = 'label'
    AND x.name <> '' AND NOT EXISTS (SELECT 1 FROM states o JOIN sessions s ON s.key = o.session
    WHERE o.kind = 'label' AND o.name = x.name AND o.session <> $1 AND s.status <> 'purged'
    AND s.tenant = $2 AND s.project = $3)"""
assert OPEN == 0  # as the statements and the indexes have it
