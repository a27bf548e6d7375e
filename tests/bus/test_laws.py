"""What is true of the bus whatever comes, in which order, and whatever the clock does."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Loom
from loom.runtime import EventBus, Task
from loom.runtime.checks import EPOCH
from tests.bus.conftest import Clock
from tests.shared import examples

AGENTS, LABELS = ["a", "b"], [None, "s", "s1", "S"]


@contextmanager
def open_bus(home: str, clock: Clock) -> Iterator[EventBus]:
    if home == "process":
        yield EventBus(now=clock, history=5)
    else:
        with Loom.open(":memory:", now=clock) as loom:
            yield loom.bus


@st.composite
def tasks(draw: st.DrawFn) -> dict[str, Any]:
    parameters: dict[str, Any] = {"content": "words"}
    if draw(st.booleans()):
        parameters["ttl_seconds"] = draw(st.integers(0, 20))
    if draw(st.booleans()):
        parameters["target_node_id"] = draw(st.sampled_from(AGENTS))
    parameters["priority"] = draw(st.sampled_from([0, 0.5, 1]))
    return {
        "action": draw(st.sampled_from(["node.message", "node.message", "node.thinking"])),
        "source_agent": draw(st.sampled_from(AGENTS)),
        "target_agent": draw(st.sampled_from(AGENTS)),
        "session_id": draw(st.sampled_from(LABELS)),
        "parameters": parameters,
        "age": draw(st.integers(-30, 30)),
    }


steps = st.lists(
    st.one_of(
        tasks(),
        st.integers(-25, 25),  # the clock goes on, or back
        st.sampled_from(["acknowledge", "look"]),
    ),
    min_size=1,
    max_size=25,
)


def every_query(bus: EventBus, label: str | None, every: bool) -> dict[str, list[Task]]:
    where: dict[str, Any] = {"session_id": label, "every_session": every, "limit": 1000}
    return {
        "target": bus.query_by_target("a", "a", **where),
        "inbox": bus.inbox("a", **where),
        "node": bus.query_by_node("a", **where),
        "task": bus.query_by_task("root", **where),
        "recent": bus.recent(**where),
    }


@pytest.mark.parametrize("home", ["process", "store"])
@settings(max_examples=examples(60))
@given(steps=steps)
def test_expired_messages_are_never_seen_and_session_filters_hold(
    home: str, steps: list[Any]
) -> None:
    clock = Clock()
    end_of_life: dict[str, int] = {}  # by id
    dead: set[str] = set()
    labels: dict[str, str | None] = {}
    with open_bus(home, clock) as bus:
        for number, step in enumerate(steps):
            if isinstance(step, int):
                clock.now += 1000 * step
                continue
            if isinstance(step, dict):
                fields = dict(step)
                made = EPOCH + timedelta(milliseconds=clock.now - 1000 * fields.pop("age"))
                name = f"t{number}"
                task = Task(task_id=name, created_at=made, parent_task_id="root", **fields)
                labels[name] = task.session_id
                if task.ttl_seconds is not None:
                    born = min(clock.now, clock.now - 1000 * step["age"])
                    end_of_life[name] = born + int(1000 * task.ttl_seconds)
                bus.publish(task)
            dead |= {name for name, end in end_of_life.items() if clock.now > end}
            if step == "acknowledge":
                for task in bus.inbox("a", every_session=True)[:1]:
                    assert task.task_id not in dead
                    assert bus.acknowledge(task.task_id)
                    assert not bus.acknowledge(task.task_id)
            for label in LABELS:
                for query, found in every_query(bus, label, False).items():
                    names = [task.task_id for task in found]
                    assert len(set(names)) == len(names), query
                    assert not dead & set(names), query
                    assert all(labels[name] in (None, label) for name in names), query
            for query, found in every_query(bus, None, True).items():
                assert not dead & {task.task_id for task in found}, query
            found = bus.query_by_target("a", "a", every_session=True, limit=1000)
            keys = [(task.priority, task.created_at) for task in found]
            assert keys == sorted(keys, reverse=True)
