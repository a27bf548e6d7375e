"""What every home of the bus does alike."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loom.errors import ChoiceError
from loom.runtime import EventBus, Task
from tests.bus.conftest import Clock

Make = Callable[..., EventBus]
START = datetime.fromtimestamp(1_700_000_000, UTC)


def message(name: str, to: str = "b", after: float = 0, **fields: Any) -> Task:
    parameters = {"content": f"words of {name}"}
    for key in ("priority", "ttl_seconds", "target_node_id", "parent_task_id"):
        if key in fields:
            parameters[key] = fields.pop(key)
    return Task(
        task_id=name,
        source_agent="a",
        target_agent=to,
        action="node.message",
        parameters=parameters,
        created_at=START + timedelta(seconds=after),
        **fields,
    )


def notice(name: str, action: str = "node.thinking", **fields: Any) -> Task:
    return Task(task_id=name, action=action, created_at=START, **fields)


def names(tasks: list[Task]) -> list[str]:
    return [task.task_id for task in tasks]


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_what_is_published_is_found_as_it_was_and_once_for_each_id(bus: EventBus) -> None:
    task = message("m", metadata={"reason": "handoff"}, session_id="s", priority=0.7)
    assert bus.publish(task) is True
    assert bus.publish(task.replace(parameters={"content": "other words"})) is False
    assert bus.query_by_target("b", session_id="s") == [task]
    assert bus.publish_all([task, message("n"), message("n")]) == 1
    assert bus.publish({"action": "execute", "task_id": "x"}) is True
    with pytest.raises(ChoiceError, match="action"):
        bus.publish({"task_id": "x"})


def test_direct_messages_are_a_union_sorted_by_priority_and_time(bus: EventBus) -> None:
    bus.publish_all(
        [
            message("old", after=-5),
            message("new"),
            message("weak", priority=0.1),
            message("strong", priority=0.9, after=-9),
            message("by node", to="somebody", target_node_id="b", after=-1),
            message("both", target_node_id="b", after=-2),
            message("for others", to="c"),
        ]
    )
    expected = ["strong", "new", "by node", "both", "old", "weak"]
    assert names(bus.query_by_target("b", "b")) == expected
    assert names(bus.query_by_target("b", "b", limit=2)) == ["strong", "new"]
    assert names(bus.query_by_target("", "b")) == ["by node", "both"]
    assert bus.query_by_target() == []
    assert names(bus.inbox("b")) == ["old", "new", "weak", "strong", "by node", "both"]


def test_the_usual_limit_is_fifty(bus: EventBus) -> None:
    bus.publish_all(message(f"m{n:03}") for n in range(60))
    assert len(bus.query_by_target("b")) == len(bus.recent()) == 50
    assert names(bus.query_by_target("b"))[0] == "m059"


def test_events_are_found_by_task_by_node_and_by_action(bus: EventBus) -> None:
    bus.publish_all(
        [
            notice("task-1", "execute"),
            notice("think", source_agent="a", parent_task_id="task-1"),
            notice(
                "call",
                "node.tool_call",
                source_agent="a",
                parameters={"node_id": "n", "parent_task_id": "task-1"},
            ),
            notice("other", source_agent="c"),
        ]
    )
    assert names(bus.query_by_task("task-1")) == ["call", "think", "task-1"]
    assert names(bus.query_by_task("task-1", limit=1)) == ["call"]
    assert names(bus.query_by_node("a")) == ["think"]
    assert names(bus.query_by_node("n")) == ["call"]
    assert names(bus.recent()) == ["other", "call", "think", "task-1"]
    assert names(bus.recent(action="node.thinking")) == ["other", "think"]
    assert names(bus.recent(action=["execute", "node.tool_call"])) == ["call", "task-1"]
    assert bus.query_by_task("task") == bus.query_by_node("") == []


def test_a_message_is_acknowledged_once_and_then_gone_from_its_target(
    make_bus: Make, bus: EventBus
) -> None:
    bus.publish_all([message("m"), message("n"), notice("e")])
    other = make_bus()
    assert other.acknowledge("m") is True
    assert bus.acknowledge("m") is False
    assert bus.acknowledge("e") is bus.acknowledge("unknown") is False
    assert names(bus.query_by_target("b")) == names(bus.inbox("b")) == ["n"]
    assert names(bus.query_by_task("m")) == ["m"]  # it is history
    assert bus.publish(message("m")) is False
    assert bus.acknowledge_all(["n", "m", "n"]) == ["n"]


def test_history_is_bounded_but_open_messages_stay(make_bus: Make) -> None:
    bus = make_bus(history=10)
    bus.publish_all([message("open"), message("read")])
    bus.acknowledge("read")
    bus.publish_all(notice(f"e{n:03}") for n in range(200))
    seen = names(bus.recent(limit=500))
    assert seen == [*(f"e{n:03}" for n in range(199, 189, -1)), "open"]
    assert names(bus.query_by_target("b")) == ["open"]
    assert bus.query_by_task("read") == []
    assert bus.publish(message("read")) is False, "its id is known for longer"
    assert bus.acknowledge("open") is True
    assert bus.query_by_task("open") == []


def test_an_expired_message_is_never_seen_again(bus: EventBus, clock: Clock) -> None:
    bus.publish_all(
        [message("short", ttl_seconds=10), message("long"), message("0", ttl_seconds=0)]
    )
    assert sorted(names(bus.inbox("b"))) == ["0", "long", "short"]
    clock.now += 10_000
    assert names(bus.inbox("b")) == ["short", "long"], "its age may be as long as its time"
    clock.now += 1
    assert names(bus.inbox("b")) == ["long"]
    clock.now -= 60_000
    assert names(bus.query_by_target("b")) == names(bus.inbox("b")) == ["long"]
    assert names(bus.recent()) == ["long"]
    assert bus.query_by_task("short") == []
    assert bus.acknowledge("short") is False
    assert bus.publish(message("late", ttl_seconds=5, after=-100)) is True
    assert names(bus.inbox("b")) == ["long"]


def test_a_message_from_a_clock_that_is_ahead_lives_no_longer(bus: EventBus, clock: Clock) -> None:
    bus.publish(message("m", ttl_seconds=10, after=3600))
    clock.now += 10_001
    assert bus.inbox("b") == []


def test_labels_are_matched_exactly(bus: EventBus) -> None:
    bus.publish_all(
        [message("s1", session_id="s1"), message("s10", session_id="s10"), message("any")]
    )
    bus.publish(notice("e1", session_id="s1", target_agent="b"))
    assert sorted(names(bus.query_by_target("b", session_id="s1"))) == ["any", "e1", "s1"]
    assert sorted(names(bus.query_by_target("b", session_id="s10"))) == ["any", "s10"]
    assert names(bus.query_by_target("b", session_id="s")) == ["any"]
    assert names(bus.query_by_target("b")) == ["any"]
    assert names(bus.inbox("b", session_id="s10")) == ["s10", "any"]
    assert len(bus.query_by_target("b", every_session=True)) == 4
    assert names(bus.recent(session_id="s1")) == ["e1", "any", "s1"]


def test_nothing_crosses_tenants_or_projects(make_bus: Make, bus: EventBus) -> None:
    bus.publish(message("m"))
    for other in (make_bus(project="q"), make_bus(tenant="u")):
        assert other.recent(every_session=True) == []
        assert other.acknowledge("m") is False
        assert other.publish(message("m")) is True
    assert names(bus.inbox("b")) == ["m"]


def test_subscribers_hear_what_comes_in_its_order(make_bus: Make, bus: EventBus) -> None:
    heard: list[str] = []
    others: list[str] = []
    with (
        bus.subscribe(lambda task: heard.append(task.task_id), target="b"),
        make_bus().subscribe(lambda task: others.append(task.task_id), action="node.thinking"),
    ):
        publisher = make_bus()
        for n in range(20):
            publisher.publish(message(f"m{n}"))
            publisher.publish(notice(f"e{n}"))
            publisher.publish(message(f"c{n}", to="c"))
            publisher.publish(notice(f"s{n}", session_id="s"))
        wait_until(lambda: len(heard) == len(others) == 20)
    assert heard == [f"m{n}" for n in range(20)]
    assert others == [f"e{n}" for n in range(20)]
    bus.publish(message("after"))
    time.sleep(0.05)
    assert len(heard) == 20


def test_a_slow_or_failing_handler_harms_nobody(bus: EventBus) -> None:
    gate = threading.Event()
    heard: list[str] = []

    def slow(task: Task) -> None:
        gate.wait(30)

    def fails(task: Task) -> None:
        raise RuntimeError("broken")

    with pytest.warns(RuntimeWarning, match="broken"):  # noqa: PT031
        subscriptions = [
            bus.subscribe(slow),
            bus.subscribe(fails, acknowledge=True),
            bus.subscribe(lambda task: heard.append(task.task_id)),
        ]
        began = time.monotonic()
        for n in range(5):
            bus.publish(message(f"m{n}"))
        assert time.monotonic() - began < 5
        wait_until(lambda: len(heard) == 5)
        time.sleep(0.1)
        gate.set()
        for subscription in subscriptions:
            subscription.close()
    assert len(bus.inbox("b")) == 5, "what a handler failed on is not acknowledged"


def test_messages_that_nobody_acknowledged_come_to_the_next_subscriber(bus: EventBus) -> None:
    bus.publish_all([message("m0"), message("m1"), message("m2")])
    bus.acknowledge("m1")
    heard: list[str] = []
    with bus.subscribe(
        lambda task: heard.append(task.task_id), target="b", since="unread", acknowledge=True
    ):
        wait_until(lambda: heard == ["m0", "m2"])
        bus.publish(message("m3"))
        wait_until(lambda: not bus.inbox("b"))
    assert heard == ["m0", "m2", "m3"]


def test_what_expires_on_its_way_is_not_handed_over(bus: EventBus, clock: Clock) -> None:
    bus.publish_all([message("first"), message("second", ttl_seconds=1), message("third")])
    heard: list[str] = []

    def handle(task: Task) -> None:
        heard.append(task.task_id)
        clock.now += 5000

    with bus.subscribe(handle, since="unread"):
        wait_until(lambda: "third" in heard)
    assert heard == ["first", "third"]


def test_verbs_are_awaited_and_coroutines_handle(bus: EventBus) -> None:
    async def run() -> list[str]:
        heard: list[str] = []
        done = asyncio.Event()

        async def handle(task: Task) -> None:
            heard.append(task.task_id)
            done.set()

        subscription = bus.subscribe(handle, target="b")
        assert await bus.apublish(message("m")) is True
        assert await bus.apublish_all([message("m")]) == 0
        await asyncio.wait_for(done.wait(), 20)
        subscription.close()
        assert names(await bus.aquery_by_target("b")) == names(await bus.ainbox("b")) == ["m"]
        assert names(await bus.aquery_by_task("m")) == names(await bus.aquery_by_node("a"))
        assert names(await bus.arecent()) == ["m"]
        assert await bus.await_for_event(0.01) is False
        assert await bus.aacknowledge("m") is True
        assert await bus.aacknowledge_all(["m"]) == []
        return heard

    assert asyncio.run(run()) == ["m"]


def test_a_handler_that_failed_is_asked_again_before_a_message_is_left(bus: EventBus) -> None:
    tries: list[str] = []

    def fails_at_first(task: Task) -> None:
        tries.append(task.task_id)
        if len(tries) == 1:
            raise SystemExit(3)  # which would end the thread

    with (  # noqa: PT031
        pytest.warns(RuntimeWarning, match="SystemExit"),
        bus.subscribe(fails_at_first, since="unread", acknowledge=True),
    ):
        bus.publish_all([message("m0"), message("m1")])
        wait_until(lambda: not bus.inbox("b"))
    assert tries == ["m0", "m0", "m1"]


def test_a_handler_that_hangs_keeps_nobody_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.subscription.CLOSE_SECONDS", 0.1)
    gate, begun = threading.Event(), threading.Event()

    def hang(task: Task) -> None:
        begun.set()
        gate.wait(30)

    bus = EventBus()
    subscription = bus.subscribe(hang)
    bus.publish(message("m"))
    assert begun.wait(20)
    with pytest.warns(RuntimeWarning, match="still runs"):
        subscription.close()
    gate.set()


def test_a_subscription_ends_at_once_whenever_it_is_closed(bus: EventBus) -> None:
    began = time.monotonic()
    for pause in (0, 0, 0.001, 0.002, 0.005, 0.02):
        subscription = bus.subscribe(print)
        time.sleep(pause)
        subscription.close()
        assert subscription.is_closed
    assert time.monotonic() - began < 15


def test_wrong_arguments_are_refused(bus: EventBus) -> None:
    with pytest.raises(ChoiceError, match="since"):
        bus.subscribe(print, since="ever")  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="handler"):
        bus.subscribe("print")  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="limit"):
        bus.recent(limit=-1)
    with pytest.raises(ChoiceError, match="session_id"):
        bus.recent(session_id="\0")
    with pytest.raises(ChoiceError):
        bus.query_by_target("a\ud800")
    with pytest.raises(ChoiceError, match="task_id"):
        bus.acknowledge("\0")
    for wrong in (message("m"), {"action": "a"}, 7):
        with pytest.raises(ChoiceError, match="a list of tasks"):
            bus.publish_all(wrong)  # type: ignore[arg-type]
