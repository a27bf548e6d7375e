"""What a task sees of a bus: direct messages to its reader, and thoughts and calls of others."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loom import Loom
from loom.memory import LoomMemory
from loom.memory.task_context import (
    EventBusContextSource,
    MemoryContextSource,
    TaskContextManager,
)
from loom.memory.tokenizer import TokenCounter
from loom.runtime import EventBus, Task


@pytest.fixture(params=["process", "store"])
def bus(request: pytest.FixtureRequest) -> Iterator[EventBus]:
    if request.param == "process":
        with EventBus() as made:
            yield made
        return
    with Loom.open(":memory:") as loom:
        yield loom.bus


def execute(content: str = "Migrate the database", **fields: Any) -> Task:
    return Task(action="execute", parameters={"content": content}, **fields)


def direct(content: str, *, priority: float = 0.5, **fields: Any) -> Task:
    parameters = {"content": content, "priority": priority, **fields.pop("more", {})}
    return Task(
        action="node.message",
        source_agent=fields.pop("source_agent", "agent-a"),
        target_agent=fields.pop("target_agent", "agent-b"),
        parameters=parameters,
        **fields,
    )


def think(content: str, **fields: Any) -> Task:
    return Task(action="node.thinking", parameters={"content": content}, **fields)


def contents(bus: EventBus, task: Task, **options: Any) -> list[str]:
    max_tokens = options.pop("max_tokens", 4000)
    source = EventBusContextSource(event_bus=bus, **options)
    manager = TaskContextManager(TokenCounter(), [source], max_tokens)
    return [message["content"] for message in asyncio.run(manager.build_context(task))]


def test_direct_messages_come_by_priority_then_time(bus: EventBus) -> None:
    start = datetime.now(UTC)
    bus.publish(direct("low", priority=0.1, created_at=start))
    bus.publish(direct("high, older", priority=0.9, created_at=start))
    bus.publish(direct("high, newer", priority=0.9, created_at=start + timedelta(seconds=1)))
    bus.publish(direct("for another", target_agent="agent-c"))
    *messages, current = contents(bus, execute(target_agent="agent-b"))
    assert [message.splitlines()[1] for message in messages] == [
        "> high, newer",
        "> high, older",
        "> low",
    ]
    assert all("agent-a, another agent" in message for message in messages)
    assert current == "Migrate the database"


@pytest.mark.parametrize(
    ("options", "task"),
    [
        ({"node_id": "agent-b"}, execute(target_agent="agent-z")),
        ({}, execute(target_agent="agent-b")),
        (
            {},
            Task(action="execute", parameters={"content": "Go", "node_id": "agent-b"}),
        ),
    ],
)
def test_the_reader_is_named_by_the_source_the_task_or_its_parameters(
    bus: EventBus, options: dict[str, Any], task: Task
) -> None:
    bus.publish(direct("hello"))
    bus.publish(direct("not yours", target_agent="agent-z"))
    messages = contents(bus, task, **options)
    assert any("> hello" in message for message in messages)
    assert not any("not yours" in message for message in messages)


def test_where_nobody_reads_a_note_says_so(bus: EventBus) -> None:
    bus.publish(direct("hello"))
    manager = TaskContextManager(TokenCounter(), [EventBusContextSource(event_bus=bus)])
    context = asyncio.run(manager.prepare(execute()))
    assert "hello" not in str(context.openai())
    assert any("node_id" in note for note in context.report.notes)


def test_a_target_node_is_a_target_too(bus: EventBus) -> None:
    bus.publish(direct("to the node", more={"target_node_id": "node-7"}))
    messages = contents(bus, execute(), node_id="node-7")
    assert "> to the node" in messages[0]


def test_expired_and_acknowledged_messages_are_not_seen(bus: EventBus) -> None:
    old = datetime.now(UTC) - timedelta(hours=1)
    bus.publish(direct("expired", more={"ttl_seconds": 600}, created_at=old))
    bus.publish(direct("for ever", created_at=old))
    seen = direct("acknowledged")
    bus.publish(seen)
    bus.acknowledge(seen.task_id)
    messages = contents(bus, execute(target_agent="agent-b"))
    assert [message.splitlines()[-1] for message in messages] == [
        "> for ever",
        "Migrate the database",
    ]


def test_a_message_with_a_session_is_seen_there_only_and_one_without_everywhere(
    bus: EventBus,
) -> None:
    bus.publish(direct("in s1", session_id="s1"))
    bus.publish(direct("in s2", session_id="s2"))
    bus.publish(direct("anywhere"))
    bus.publish(think("thought in s2", session_id="s2", source_agent="x"))

    def seen(session: str | None) -> str:
        return str(contents(bus, execute(target_agent="agent-b", session_id=session)))

    assert all(("in s1" in seen("s1"), "anywhere" in seen("s1"), "in s2" not in seen("s1")))
    assert "thought in s2" not in seen("s1")
    assert "thought in s2" in seen("s2")
    assert all(("anywhere" in seen(None), "in s1" not in seen(None), "s2" not in seen(None)))


def test_thoughts_and_calls_of_others_are_told_ranked_and_never_as_the_models(
    bus: EventBus,
) -> None:
    start = datetime.now(UTC)
    bus.publish(think("my own", source_agent="agent-b"))
    bus.publish(think("unrelated", source_agent="x", created_at=start))
    bus.publish(think("the database is locked", source_agent="x", created_at=start))
    bus.publish(
        Task(
            action="node.tool_call",
            parameters={"tool_name": "read", "arguments": {"path": "db.sql"}},
            source_agent="y",
            created_at=start,
        )
    )
    bus.publish(
        Task(action="node.tool_result", parameters={"content": "SECRET ROWS"}, source_agent="y")
    )
    source = EventBusContextSource(event_bus=bus, node_id="agent-b")
    manager = TaskContextManager(TokenCounter(), [source], 4000)
    messages = asyncio.run(manager.build_context(execute()))
    assert [(each["role"], each["content"]) for each in messages] == [
        ("user", "[x, another agent: thinking]\n> the database is locked"),
        ("user", "[x, another agent: thinking]\n> unrelated"),
        ("user", '[y, another agent: tool call]\n> [Calling read(path="db.sql")]'),
        ("user", "Migrate the database"),
    ]


def test_two_events_are_there_even_if_their_share_is_small(bus: EventBus) -> None:
    for n in range(6):
        bus.publish(think(f"thought {n} " + "word " * 30, source_agent="x"))
    memory = LoomMemory()
    for _ in range(20):
        memory.add_task(execute("word " * 40))
    sources = [
        MemoryContextSource(memory=memory),
        EventBusContextSource(event_bus=bus, node_id="agent-b"),
    ]
    manager = TaskContextManager(TokenCounter(), sources, max_tokens=250)
    text = str(asyncio.run(manager.build_context(execute())))
    assert text.count("another agent: thinking") >= 2


@pytest.mark.parametrize("has_parent", [True, False])
def test_results_that_are_published_reach_the_task_in_flight(
    bus: EventBus, has_parent: bool
) -> None:
    task = execute(target_agent="agent-b", created_at=datetime.now(UTC) - timedelta(milliseconds=5))
    parent: dict[str, Any] = {"parent_task_id": task.task_id} if has_parent else {}
    for step in range(60):
        bus.publish(
            Task(
                action="node.tool_call",
                parameters={"tool_name": "read", "tool_call_id": f"c{step}"},
                source_agent="agent-b",
                **parent,
            )
        )
        bus.publish(
            Task(
                action="node.tool_result",
                parameters={"content": f"result {step}", "tool_call_id": f"c{step}"},
                source_agent="agent-b",
                **parent,
            )
        )
    source = EventBusContextSource(event_bus=bus)
    manager = TaskContextManager(TokenCounter(), [source], 16_000)
    messages = asyncio.run(manager.build_context(task))
    assert [message["role"] for message in messages] == ["user", *["assistant", "tool"] * 60]
    assert [each["content"] for each in messages[2::2]] == [f"result {n}" for n in range(60)]


def test_a_bus_and_a_memory_that_hold_the_same_show_it_once(bus: EventBus) -> None:
    memory, task = LoomMemory(), execute(target_agent="agent-b")
    memory.add_task(task)
    bus.publish(task)
    message = direct("once only")
    call = Task(
        action="node.tool_call",
        parameters={"tool_name": "read", "tool_call_id": "c1"},
        parent_task_id=task.task_id,
        source_agent="agent-b",
    )
    result = Task(
        action="node.tool_result",
        parameters={"content": "the file", "tool_call_id": "c1"},
        parent_task_id=task.task_id,
        source_agent="agent-b",
    )
    for each in (message, call, result):
        memory.add_task(each)
        bus.publish(each)
    sources = [MemoryContextSource(memory=memory), EventBusContextSource(event_bus=bus)]
    manager = TaskContextManager(TokenCounter(), sources, 4000)
    messages = asyncio.run(manager.build_context(task))
    assert [each["role"] for each in messages] == ["user", "user", "assistant", "tool"]
    assert "> once only" in messages[0]["content"]
