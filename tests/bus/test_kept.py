"""Events in a store travel with it, are proved by the doctor, and go with a purge."""

import pytest

from loom import Loom, LoomError
from loom.runtime import Task
from loom.stores.health.doctor import examine
from tests.bus.test_contract import message, names, notice
from tests.stores.conftest import address as address
from tests.stores.conftest import server as server


def fill(loom: Loom) -> None:
    loom.bus.publish_all(
        [
            message("open", session_id="s", priority=1.0, target_node_id="n"),
            message("read"),
            message("expired", ttl_seconds=0),
            notice("notice", source_agent="a", parent_task_id="p", parameters={"x": "\ud800\0"}),
        ]
    )
    loom.bus.acknowledge("read")


def test_events_come_out_and_in_as_they_were(address: str) -> None:
    with Loom.open(address) as loom, Loom.open(":memory:") as other:
        fill(loom)
        lines = list(loom.export())
        other.import_lines(lines)
        other.import_lines(lines)
        for bus in (loom.bus, other.bus):
            assert names(bus.recent(every_session=True)) == ["notice", "read", "open"]
            assert names(bus.inbox("b", session_id="s")) == ["open"]
        assert other.bus.recent() == loom.bus.recent()
        assert other.bus.publish(message("read")) is False
        assert list(examine(other.store)) == list(examine(loom.store)) == []
        assert [line for line in other.export() if '"event"' in line] == [
            line for line in lines if '"event"' in line
        ]
        everywhere = list(loom.export(everywhere=True))
        with Loom.open(":memory:") as third:
            third.import_lines(everywhere, everywhere=True)
            assert third.bus.recent() == loom.bus.recent()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":"open"', '"id":"other"'),
        ('"target":"b"', '"target":"c"'),
        ('"state":"open"', '"state":"lost"'),
        ('"priority":1.0', '"priority":7'),
    ],
)
def test_a_file_that_was_changed_is_refused_and_leaves_nothing(old: str, new: str) -> None:
    with Loom.open(":memory:") as loom, Loom.open(":memory:") as other:
        fill(loom)
        lines = list(loom.export())
        changed = [
            line.replace(old, new, 1) if '"line":"event"' in line else line for line in lines
        ]
        assert changed != lines
        with pytest.raises(LoomError, match="line 2"):
            other.import_lines(changed)
        assert other.bus.recent(every_session=True) == []
        other.import_lines(lines)
        assert len(other.bus.recent(every_session=True)) == 3


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE events SET data = '{' WHERE id = 'open'", "not what its row says"),
        ("UPDATE events SET target = 'c' WHERE id = 'open'", "target_agent"),
        ("UPDATE events SET state = 9 WHERE id = 'open'", "its state is 9"),
        ("DELETE FROM event_ids WHERE id = 'open'", "came again"),
        ("UPDATE buses SET last = 1", "the last is 1"),
        ("DELETE FROM buses", "not there"),
    ],
)
def test_the_doctor_finds_what_was_changed(statement: str, what: str) -> None:
    with Loom.open(":memory:") as loom:
        fill(loom)
        with loom.store.database.write() as writer:
            writer.all(statement)
        found = list(examine(loom.store))
        assert found
        assert any(what in problem.what for problem in found), found


def test_what_is_damaged_is_left_out_and_named() -> None:
    with Loom.open(":memory:") as loom:
        fill(loom)
        with loom.store.database.write() as writer:
            writer.all("UPDATE events SET data = '{}' WHERE id = 'open'")
        missed: list[str] = []
        lines = list(loom.export(missed=missed))
        assert missed == ["event open"]
        with pytest.warns(UserWarning, match="event open"):
            assert loom.bus.inbox("b", session_id="s") == []
        with Loom.open(":memory:") as other:
            other.import_lines(lines)
            assert names(other.bus.recent()) == ["notice", "read"]


def test_a_purge_takes_the_events_of_a_session_along(address: str) -> None:
    with Loom.open(address) as loom:
        said = Task(
            task_id="t", action="execute", session_id="s", parameters={"content": "a secret"}
        )
        entry = loom.add_task(said)
        loom.bus.publish(said)
        loom.bus.publish(message("in the session", session_id="s"))
        loom.bus.publish(message("elsewhere", session_id="s2"))
        loom.session(entry.session).purge()
        assert names(loom.bus.recent(every_session=True)) == ["elsewhere"]
        assert list(examine(loom.store)) == []


def test_a_session_is_exported_with_the_events_of_its_label() -> None:
    with Loom.open(":memory:") as loom, Loom.open(":memory:") as other:
        entry = loom.add_task({"action": "execute", "task_id": "t", "session_id": "s"})
        loom.bus.publish_all(
            [message("mine", session_id="s"), message("any"), message("c", to="c")]
        )
        lines = list(loom.session(entry.session).export())
        loom.session(entry.session).purge()
        other.import_lines(lines)
        assert names(other.bus.recent(every_session=True)) == ["mine"]
        assert names(loom.bus.recent(every_session=True)) == ["c", "any"]


def test_a_label_that_another_agent_has_keeps_its_events(address: str) -> None:
    with Loom.open(address, agent="a") as first, Loom.open(address, agent="b") as second:
        entry = first.add_task({"action": "execute", "task_id": "t", "session_id": "s"})
        second.add_task({"action": "execute", "task_id": "u", "session_id": "s"})
        first.bus.publish(message("shared", session_id="s"))
        first.bus.publish({"action": "execute", "task_id": "t", "session_id": "s"})
        first.session(entry.session).purge()
        assert names(second.bus.recent(every_session=True)) == ["shared"]
