"""The engine publishes what happens to sessions, and urgent events come up in working states."""

import asyncio
from typing import Any

import pytest

from loom import Loom
from loom.runtime import EventBus, Task
from tests.bus.test_contract import message, names, notice

ANSWER = {
    "id": "r1",
    "choices": [{"message": {"role": "assistant", "content": "Yes."}}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2},
}


def prepare(session: Any, **options: Any) -> Any:
    return asyncio.run(session.prepare(window=8000, reserve_output=500, **options))


@pytest.mark.parametrize("on_store", [True, False])
def test_what_happens_to_sessions_is_published_in_order(on_store: bool) -> None:
    with Loom.open(":memory:", agent="a") as loom:
        bus = loom.bus if on_store else EventBus()
        loom.publish_events(None if on_store else bus)
        session = loom.new("a secret title")
        session.append("Is it so? " + "words and more of them " * 6000)
        handle = prepare(session).report.items
        session.absorb(ANSWER)
        shrunk = [each for item in handle for each in item.handles]
        session.recall(shrunk[0])
        labelled = loom.add_task({"action": "execute", "session_id": "s", "task_id": "t"})
        [emitter] = loom.emitters
        emitter.flush()  # type: ignore[attr-defined]
        found = bus.recent(every_session=True)[::-1]
        actions = [task.action.removeprefix("session.") for task in found]
        expected = ["created", "appended", "prepared", "used", "absorbed", "recalled", "appended"]
        assert [each for each in actions if each != "compressed"] == expected
        used = next(task for task in found if task.action == "session.used")
        assert (used.parameters["prompt"], used.parameters["completion"]) == (10, 2)
        assert {task.parameters["session"] for task in found} == {session.id, labelled.session}
        assert found[-1].session_id == "s"
        assert found[0].session_id is None
        assert not any("secret" in task.to_json() for task in found)
        assert names(bus.query_by_node(session.id))
        loom.search("anything")
        session.purge()
        emitter.flush()  # type: ignore[attr-defined]
        if on_store:
            assert [task.action for task in bus.query_by_node(session.id)] == ["session.purged"]


def test_what_waits_is_published_before_the_store_closes(tmp_path: Any) -> None:
    with Loom.open(tmp_path / "loom.db") as loom:
        loom.publish_events()
        for n in range(20):
            loom.new(f"s{n}")
    with Loom.open(tmp_path / "loom.db") as loom:
        assert len(loom.bus.recent()) == 20


def test_urgent_events_come_up_in_the_working_state_once() -> None:
    with Loom.open(":memory:", agent="b") as loom:
        session = loom.new()
        session.append("Go on.")
        loom.bus.publish_all(
            [
                message("calm", priority=0.5),
                message("urgent", priority=0.95),
                message("for c", to="c", priority=1),
                message("labelled", priority=1, session_id="s"),
                message("gone", priority=1, ttl_seconds=0, after=-5),
                notice(
                    "alarm",
                    "alert",
                    source_agent="watch",
                    target_agent="b",
                    parameters={"content": "The disk is full.", "urgency": "critical"},
                ),
            ]
        )
        preview = prepare(session, preview=True)
        assert session.working.is_empty
        assert "disk" not in str(preview.openai())
        text = str(prepare(session).openai())
        assert 'message from a: "words of urgent"' in text
        assert "[critical] alert of watch: The disk is full." in text
        working = session.working
        assert [each.event_id for each in working.pending_events] == ["urgent", "alarm"]
        assert working.dashboard.interrupt_requested
        done = working.acknowledge("urgent", "read it").acknowledge("alarm", "made room")
        session.keep_working(done)
        assert "disk" not in str(prepare(session).openai())
        assert session.working.pending_events == ()


def test_a_labelled_session_sees_its_own_urgent_events() -> None:
    with Loom.open(":memory:", agent="b") as loom:
        entry = loom.add_task(Task(action="execute", session_id="s", parameters={"content": "Go."}))
        loom.bus.publish_all(
            [
                message("mine", priority=1, session_id="s"),
                message("not mine", priority=1, session_id="s2"),
                message("all", priority=1),
            ]
        )
        session = loom.session(entry.session)
        prepare(session)
        assert [each.event_id for each in session.working.pending_events] == ["mine", "all"]


def test_without_an_agent_no_event_is_looked_for() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append("Go on.")
        loom.bus.publish(message("urgent", to="b", priority=1))
        prepare(session)
        assert session.working.is_empty
