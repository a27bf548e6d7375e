"""Where events are: the small protocol of a home, and the home of one process."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from loom.conversation.events import (
    ACKNOWLEDGED,
    EXPIRED,
    FOUND_BY,
    MAX_HISTORY_EVENTS,
    MAX_REMEMBERED_IDS,
    OPEN,
    EventFilter,
    EventRow,
    sort_urgent,
)


class EventHome(Protocol):
    """Where events are kept.

    Every verb is told the time, and first marks for good what has expired by then: a clock that
    goes back shows nothing again.
    """

    def append(self, events: Sequence[EventRow], now: int) -> int:
        """Keep events in this order, all or none; those whose ids are known are left out. How many
        are new.
        """

    def find(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        """The newest events, the newest first."""

    def find_urgent(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        """The events that are not settled with the highest priority, of these the newest first."""

    def read_after(
        self, seq: int, wanted: EventFilter, now: int, limit: int
    ) -> tuple[list[EventRow], int]:
        """The first events after a place, in order; and up to which place this looked."""

    def acknowledge(self, ids: Sequence[str], now: int) -> list[str]:
        """Settle open direct messages; the ids of those that were open until now."""

    def last(self) -> int:
        """The place of the newest event."""

    def wait(self, seq: int, seconds: float, stop: threading.Event | None = None) -> bool:
        """Wait for an event after a place, at most so long; whether there is one. Who sets `stop`
        and then wakes everybody ends it.
        """

    def wake(self) -> None:
        """Let everybody who waits look again."""

    def close(self) -> None:
        """Let go of what waiting needed."""


class MemoryHome:
    """The events of one process."""

    def __init__(self, history: int = MAX_HISTORY_EVENTS) -> None:
        self._history = history
        self._events: dict[int, EventRow] = {}
        self._ids: dict[str, int] = {}
        self._by_name: dict[tuple[str, str], dict[int, None]] = {}  # places, by column and name
        self._expiring: list[tuple[int, int]] = []  # a heap: when, and which
        self._last = 0
        self._changed = threading.Condition()

    def append(self, events: Sequence[EventRow], now: int) -> int:
        with self._changed:
            self._expire(now)
            before = self._last
            for event in events:
                if event.id not in self._ids:
                    self._put(event, now)
            self._forget_ids()
            self._changed.notify_all()
            return self._last - before

    def find(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        with self._changed:
            return list(islice(self._select(wanted, now, backward=True), limit))

    def find_urgent(self, wanted: EventFilter, now: int, limit: int) -> list[EventRow]:
        with self._changed:
            found = self._select(replace(wanted, is_open=True), now)
            return sort_urgent(found, limit)

    def read_after(
        self, seq: int, wanted: EventFilter, now: int, limit: int
    ) -> tuple[list[EventRow], int]:
        with self._changed:
            found = list(islice(self._select(wanted, now, after=seq), limit))
            if len(found) < limit:
                return found, self._last
            return found, found[-1].seq

    def acknowledge(self, ids: Sequence[str], now: int) -> list[str]:
        with self._changed:
            self._expire(now)
            open_ids = [name for name in dict.fromkeys(ids) if self._is_open(name)]
            for name in open_ids:
                self._settle(self._ids[name], ACKNOWLEDGED)
            return open_ids

    def last(self) -> int:
        return self._last

    def wait(self, seq: int, seconds: float, stop: threading.Event | None = None) -> bool:
        with self._changed:
            if self._last <= seq and not (stop and stop.is_set()):
                self._changed.wait(seconds)
            return self._last > seq

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        self.wake()

    def _put(self, event: EventRow, now: int) -> None:
        self._last += 1
        self._ids[event.id] = self._last
        state = EXPIRED if event.has_expired(now) else event.state
        self._events[self._last] = replace(event, seq=self._last, state=state)
        if state == OPEN and event.expires is not None:
            heappush(self._expiring, (event.expires, self._last))
        for key in _names_of(event):
            self._by_name.setdefault(key, {})[self._last] = None
        old = self._events.get(self._last - self._history)
        if old is not None and old.state != OPEN:
            self._remove(old)

    def _remove(self, event: EventRow) -> None:
        del self._events[event.seq]
        for key in _names_of(event):
            places = self._by_name[key]
            del places[event.seq]
            if not places:
                del self._by_name[key]

    def _select(
        self, wanted: EventFilter, now: int, after: int = 0, backward: bool = False
    ) -> Iterator[EventRow]:
        self._expire(now)
        places: Iterable[int] = reversed(self._events) if backward else self._events
        names = wanted.names()
        if names:
            held = (self._by_name.get(name, {}) for name in names)
            places = sorted(set().union(*held), reverse=backward)
        for place in places:
            event = self._events[place]
            if place > after and event.state != EXPIRED and wanted.takes(event):
                yield event

    def _expire(self, now: int) -> None:
        while self._expiring and self._expiring[0][0] < now:
            _, seq = heappop(self._expiring)
            if seq in self._events and self._events[seq].state == OPEN:
                self._settle(seq, EXPIRED)

    def _is_open(self, name: str) -> bool:
        event = self._events.get(self._ids.get(name, 0))
        return event is not None and event.state == OPEN

    def _settle(self, seq: int, state: int) -> None:
        """What is settled is history, which is bounded."""
        if seq <= self._last - self._history:
            self._remove(self._events[seq])
        else:
            self._events[seq] = replace(self._events[seq], state=state)

    def _forget_ids(self) -> None:
        """Forget the ids of old events, some at a time."""
        if len(self._ids) <= 2 * MAX_REMEMBERED_IDS:
            return
        oldest = self._last - MAX_REMEMBERED_IDS
        self._ids = {
            name: seq for name, seq in self._ids.items() if seq > oldest or seq in self._events
        }


def _names_of(event: EventRow) -> list[tuple[str, str]]:
    """The columns by which an event is found."""
    return [(name, value) for name in FOUND_BY if (value := getattr(event, name))]
