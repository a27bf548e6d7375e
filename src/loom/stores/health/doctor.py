"""Whether everything in a store is as it was written, and what to do where it is not.

All of it is looked at, a page at a time; checkup.py and checkup_settled.py say what must be true of
a row. Where a page cannot be read, that is told, and the rest is looked at all the same.
"""

import time
from collections.abc import Iterator
from typing import Any

from loom.errors import StoreError
from loom.stores.health.checkup import COPY, CheckedTable, tables
from loom.stores.health.checkup import Problem as Problem
from loom.stores.health.checkup_decisions import decision_tables
from loom.stores.health.checkup_events import event_tables
from loom.stores.health.checkup_knowledge import knowledge_tables
from loom.stores.health.checkup_memory import memory_tables
from loom.stores.health.checkup_search import search_tables
from loom.stores.health.checkup_settled import settled_tables
from loom.stores.snapshots import folder_beside
from loom.stores.sql.stored import go_on_after, read_rows
from loom.stores.store import Store

_PAGE_ROWS = 200
# rows that cannot be read, one after the other, before larger steps are taken to find one that can
_PATIENCE = 1000
_MAX_FAILURES = 20_000

Place = tuple[Any, ...]  # the first values of a row, by which its table is ordered


class Examination(Iterator[Problem]):
    """The problems of a store, found while one asks for them; `looked` counts what was looked at so
    far, by kind.
    """

    def __init__(self, store: Store, now: int) -> None:
        self._database, self._now, self._state_kinds = store.database, now, store.state_kinds
        self.looked: dict[str, int] = {}
        self._problems = self._all()

    def __next__(self) -> Problem:
        return next(self._problems)

    def _all(self) -> Iterator[Problem]:
        try:
            for line in self._database.check():
                yield Problem(self._database.address, line, COPY)
        except StoreError as error:
            yield Problem(
                self._database.address, f"the database cannot look at itself: {error}", COPY
            )
        for table in (
            *tables(self._database.name),
            *settled_tables(folder_beside(self._database), self._state_kinds),
            *knowledge_tables(),
            *memory_tables(),
            *decision_tables(),
            *event_tables(),
            *search_tables(),
        ):
            yield from self._check_table(table)

    def _check_table(self, table: CheckedTable) -> Iterator[Problem]:
        """What is wrong with the rows of a table. What cannot be read is told of, and gone
        around.
        """
        self.looked[table.kind] = 0
        start: Place | None = table.start
        limit, failures, lost, why, skipped = _PAGE_ROWS, 0, table.start, "", 0
        while start is not None:
            try:
                with self._database.read() as reader:
                    rows = read_rows(
                        reader, f"{table.sql} OFFSET ${len(start) + 2}", *start, limit, skipped
                    )
                    found = [
                        problem for row in rows for problem in table.look(reader, row, self._now)
                    ]
            except StoreError as error:
                self._still_there()
                if limit > 1:
                    limit = max(1, limit // 6)
                else:
                    if not failures:
                        lost, why = start, str(error)
                    failures += 1
                    start, skipped = _behind(table, start, failures), 0
                continue
            if failures:
                yield _unreadable(table, lost, start, why)
                failures = 0
            yield from found
            self.looked[table.kind] += len(rows)
            if len(rows) == limit:
                start, skipped = go_on_after(rows, start, skipped)
            else:
                start, skipped = None, 0
            limit = _PAGE_ROWS
        if failures:
            yield _unreadable(table, lost, None, why)

    def _still_there(self) -> None:
        """Raises if it is not a page that cannot be read, but the whole database."""
        with self._database.read() as reader:
            reader.first_row("SELECT 1")


def examine(store: Store, now: int | None = None) -> Examination:
    """Look at everything in a store, in bounded memory."""
    return Examination(store, time.time_ns() // 1_000_000 if now is None else now)


def _behind(table: CheckedTable, start: Place, failures: int) -> Place | None:
    """Where to continue when the row after `start` cannot be read, and as many as that before it
    neither.
    """
    *group, last = start
    if isinstance(last, int) and failures < _PATIENCE + 45:
        return (*group, last + 2 ** max(0, failures - _PATIENCE))
    counted = group and isinstance(group[0], int)
    if not counted or failures >= _MAX_FAILURES:
        return None
    return (group[0] + 1, *table.start[1:])


def _unreadable(table: CheckedTable, lost: Place, until: Place | None, why: str) -> Problem:
    """`lost` is the last place that could be read, `until` the last that could not."""
    between, where = f"after {lost[-1]}", ""
    if until is not None:
        between += f" up to {until[-1]}"
    if len(lost) > 1:
        where = f" of {lost[0]}"
    return Problem(f"{table.kind} {between}{where}", f"cannot be read: {why}", COPY)
