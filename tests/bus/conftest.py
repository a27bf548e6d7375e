"""Every test of the bus runs on its three homes: this process, a file of SQLite, PostgreSQL."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import Loom
from loom.conversation.events import MAX_HISTORY_EVENTS
from loom.runtime import EventBus
from loom.stores import StoredEvents
from tests.stores.conftest import Server
from tests.stores.conftest import server as server

HOMES = ["process", "sqlite", "postgres"]


class Clock:
    """A clock that goes where a test wants it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=HOMES)
def make_bus(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> Iterator[Callable[..., EventBus]]:
    """Makes buses on one home, of one project unless another is named."""
    opened: list[Any] = []
    if request.param == "process":
        homes: dict[tuple[str, str], EventBus] = {}

        def in_process(
            history: int = MAX_HISTORY_EVENTS, tenant: str = "t", project: str = "p"
        ) -> EventBus:
            first = homes.setdefault((tenant, project), EventBus(history=history, now=clock))
            made = EventBus(first.home, now=clock)
            opened.append(made)
            return made

        yield in_process
    else:
        address, name = f"sqlite://{tmp_path / 'loom.db'}", ""
        if request.param == "postgres":
            running: Server = request.getfixturevalue("server")
            name = running.new_database()
            address = running.url(name)

        def in_store(
            history: int = MAX_HISTORY_EVENTS, tenant: str = "t", project: str = "p"
        ) -> EventBus:
            loom = Loom.open(address, tenant=tenant, project=project)
            made = EventBus(StoredEvents(loom.store.database, loom.scope, history), now=clock)
            opened.extend([loom, made])
            return made

        yield in_store
    for each in reversed(opened):
        each.close()
    if request.param == "postgres":
        running.give_back(name)


@pytest.fixture
def bus(make_bus: Callable[..., EventBus]) -> EventBus:
    return make_bus()
