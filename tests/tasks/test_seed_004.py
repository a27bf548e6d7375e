"""Document 004 runs as it is printed: every Python block, its loop, its imports, its table.

The blocks are read from the document itself where it is at hand. What it leaves unbound is bound
here. No block needs a file or a network.
"""

import ast
import asyncio
import re
import socket
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from loom import CannotFit, Conversation, Message, Text, weave
from loom.memory import LoomMemory
from loom.memory.converter import convert_task
from loom.memory.task_context import (
    EventBusContextSource,
    MemoryContextSource,
    TaskContextManager,
)
from loom.memory.tokenizer import TokenCounter
from loom.memory.tools import MemoryTools
from loom.providers.knowledge import MemoryVectorStore, TextKnowledgeBase
from loom.runtime import EventBus, Task
from tests.shared import SHARED

DOCUMENT = next(iter(sorted((SHARED / "seeds").glob("004_*.txt"))), None)
needs_document = pytest.mark.skipif(DOCUMENT is None, reason="document 004 is not at hand")
TEXT = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT else ""
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
SYSTEM = "You are a helpful AI assistant"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Whoever connects to anything fails; whatever is written lands in an empty folder."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a block of the document used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.chdir(tmp_path)


class ScriptedLlm:
    """Calls a tool until it sees its result, then answers."""

    def __init__(self) -> None:
        self.seen: list[list[dict[str, Any]]] = []

    def answer(self, messages: list[dict[str, Any]]) -> SimpleNamespace:
        self.seen.append(messages)
        if any(message["role"] == "tool" for message in messages):
            return SimpleNamespace(content="It says 42.", tool_calls=[])
        call = SimpleNamespace(id="call_1", name="read_file", arguments={"path": "data.txt"})
        return SimpleNamespace(content="", tool_calls=[call])

    async def chat(self, messages: list[dict[str, Any]], tools: Any = None) -> SimpleNamespace:
        return self.answer(messages)


class Embedding:
    """Vectors of a few letters, as an embedding provider gives them."""

    async def embed(self, text: str) -> list[float]:
        return [float(text.lower().count(letter)) + 0.1 for letter in "aeioumnt"]

    async def embed_batch(self, texts: list[str]) -> list[list[float]]:
        return [await self.embed(text) for text in texts]


def make_names() -> dict[str, Any]:
    """What the document leaves unbound."""
    memory, bus = LoomMemory(), EventBus()
    memory_source = MemoryContextSource(memory=memory)
    event_source = EventBusContextSource(event_bus=bus)
    return {
        "Task": Task,
        "TaskContextManager": TaskContextManager,
        "TokenCounter": TokenCounter,
        "loom_memory": memory,
        "event_bus": bus,
        "memory_source": memory_source,
        "event_source": event_source,
        "knowledge_base": TextKnowledgeBase(),
        "embedding_provider": Embedding(),
        "vector_store": MemoryVectorStore(),
        "messages": [{"role": "user", "content": "hello"}],
        "llm": ScriptedLlm(),
        "available_tools": [],
        "executor": MemoryTools(memory),
        "context_manager": TaskContextManager(
            token_counter=TokenCounter(), sources=[memory_source], max_tokens=4000
        ),
        "current_task": Task(action="execute", parameters={"content": "Read file data.txt"}),
        **{name: {"role": "user", "content": name} for name in ("system", *_MESSAGES)},
    }


_MESSAGES = [f"msg{n}" for n in range(1, 9)]


def run_block(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block of the document, which may await at its top level."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(code, "document 004", "exec", flags=flags)
    found = eval(compiled, names)
    if found is not None:
        asyncio.run(found)
    return names


def is_program(block: str) -> bool:
    """Whether a block is Python; the table of conversions and the format of messages are not."""
    return "→" not in block and '"system" | "user"' not in block


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    made = make_names()
    yield made
    made["event_bus"].close()
    made["loom_memory"].close()


PROGRAMS = [block for block in BLOCKS if is_program(block)]


@needs_document
def test_the_document_has_the_blocks_that_are_tested() -> None:
    assert len(BLOCKS) == 12
    assert len(PROGRAMS) == 10


@needs_document
@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.strip().splitlines()[0][:40])
def test_every_block_runs_as_printed(block: str, names: dict[str, Any]) -> None:
    run_block(block, names)


@needs_document
def test_blocks_run_one_after_the_other_as_one_program(names: dict[str, Any]) -> None:
    for block in PROGRAMS:
        run_block(block, names)
    assert [message["role"] for message in names["messages"]] == ["user"]
    assert names["response"].tool_calls
    assert names["direct_msg"].priority == 0.8


@needs_document
def test_the_table_of_conversions_is_what_the_converter_does() -> None:
    [table] = [block for block in BLOCKS if "→ {" in block]
    rows = re.findall(r"^(Task\(.*\))\n→ (\{.*\})$", table, re.MULTILINE)
    assert len(rows) == 3
    for given, expected in rows:
        task = eval(given, {"Task": Task})
        assert convert_task(task) == ast.literal_eval(expected)
    assert "node.tool_result" in table
    assert convert_task(Task(action="node.tool_result", parameters={"content": "large"})) is None


@needs_document
def test_messages_have_the_format_that_the_document_prints() -> None:
    [block] = [block for block in BLOCKS if '"system" | "user"' in block]
    roles = set(re.findall(r'"(system|user|assistant)"', block))
    memory = LoomMemory()
    memory.add_task(Task(action="execute", parameters={"content": "earlier"}))
    memory.add_task(Task(action="node.thinking", parameters={"content": "hm"}))
    base = TextKnowledgeBase()
    base.add("Data files are in the folder data.", source="notes.md")
    manager = TaskContextManager(
        token_counter=TokenCounter(),
        sources=[MemoryContextSource(memory=memory)],
        system_prompt=SYSTEM,
        knowledge_base=base,
    )
    task = Task(action="execute", parameters={"content": "Read the data files"})
    messages = asyncio.run(manager.build_context(task))
    assert {message["role"] for message in messages} == roles
    assert all(set(message) == {"role", "content"} for message in messages)


LOOP = """\
while True:
  messages = context_manager.build_context(task)
  response = llm.chat(messages, tools)
  if not response.tool_calls: break
  execute_tools(response.tool_calls)
"""


def printed_loop() -> str:
    """The loop that the document draws in a box."""
    if not TEXT:
        return LOOP
    lines = [line.strip("│ \n") and line.strip("│\n") for line in TEXT.splitlines()]
    start = next(n for n, line in enumerate(lines) if "while True:" in line)
    return textwrap.dedent("\n".join(line.rstrip(" │") for line in lines[start : start + 5])) + "\n"


@pytest.mark.parametrize("by", ["add_task", "publish"])
def test_the_loop_of_the_document_ends(by: str, names: dict[str, Any]) -> None:
    assert printed_loop() == LOOP
    memory, bus, llm = names["loom_memory"], names["event_bus"], ScriptedLlm()
    task = Task(
        task_id="task_123",
        action="execute",
        parameters={"content": "Read file data.txt"},
        target_agent="agent-b",
    )
    manager = TaskContextManager(
        token_counter=TokenCounter(),
        sources=[names["memory_source"], names["event_source"]],
        max_tokens=4000,
        system_prompt=SYSTEM,
    )
    rounds = []

    def execute_tools(calls: list[Any]) -> None:
        """Results enter by add_task or publish, and in no other way."""
        rounds.append(calls)
        assert len(rounds) < 5, "the loop never ends"
        write = memory.add_task if by == "add_task" else bus.publish
        for call in calls:
            about = {"tool_name": call.name, "tool_call_id": call.id}
            made = {"parent_task_id": task.task_id, "source_agent": "agent-b"}
            write(
                Task(
                    action="node.tool_call",
                    parameters={**about, "arguments": call.arguments},
                    **made,
                )
            )
            write(Task(action="node.tool_result", parameters={**about, "content": "42"}, **made))

    local = {
        "context_manager": SimpleNamespace(
            build_context=lambda task: asyncio.run(manager.build_context(task))
        ),
        "llm": SimpleNamespace(chat=lambda messages, tools: llm.answer(messages)),
        "execute_tools": execute_tools,
        "task": task,
        "tools": [],
    }
    exec(printed_loop(), local)
    assert local["response"].content == "It says 42."
    assert len(rounds) == 1
    assert [message["role"] for message in llm.seen[-1]] == ["system", "user", "assistant", "tool"]


# ── defects of the project behind the document, and that they do not exist here ──


def test_defect_the_counter_of_the_document_can_be_made() -> None:
    assert TokenCounter().count_messages([{"role": "user", "content": "hello"}]) > 0


def test_defect_a_message_with_a_time_to_live_is_seen_and_then_expires() -> None:
    clock = [datetime.now(UTC)]
    bus = EventBus(now=lambda: int(clock[0].timestamp() * 1000))
    made = Task(
        source_agent="agent-a",
        target_agent="agent-b",
        action="node.message",
        parameters={"content": "Focus.", "ttl_seconds": 600},
    )
    assert bus.publish(made)  # nobody listens, and it is published all the same
    assert bus.query_by_target("agent-b") == [made]
    clock[0] += timedelta(seconds=601)
    assert bus.query_by_target("agent-b") == []
    bus.close()


def test_defect_layers_fill_without_duplicates_and_the_newest_of_equals_is_there() -> None:
    memory = LoomMemory()
    for n in range(200):
        memory.add_task(Task(action="execute", parameters={"content": f"task {n}"}))
    second = [task.content for task in memory.get_l2_tasks(50)]
    third = [summary.task_id for summary in memory.get_l3_summaries(500)]
    assert second[0] == "task 199"
    assert len(second) == len(set(second)) == 50
    assert len(third) == len(set(third)) == 200


def test_defect_knowledge_is_asked_with_the_words_of_the_task() -> None:
    asked: list[str] = []

    class Base:
        async def query(self, text: str, limit: int = 3) -> list[Any]:
            asked.append(text)
            return []

    manager = TaskContextManager(TokenCounter(), knowledge_base=Base())
    task = Task(action="execute", parameters={"content": "Migrate the database"})
    asyncio.run(manager.build_context(task))
    assert asked == ["Migrate the database"]


def test_defect_the_newest_of_l1_stay_and_the_oldest_go() -> None:
    memory = LoomMemory()
    for n in range(1, 8):
        memory.add_task(Task(action="execute", parameters={"content": f"msg{n} " + "word " * 600}))
    manager = TaskContextManager(TokenCounter(), [MemoryContextSource(memory=memory)], 2500, SYSTEM)
    task = Task(action="execute", parameters={"content": "msg8 " + "word " * 600})
    messages = asyncio.run(manager.build_context(task))
    assert [message["content"].split()[0] for message in messages] == [
        "You",
        "msg6",
        "msg7",
        "msg8",
    ]


def test_defect_l1_shows_one_session_only() -> None:
    memory = LoomMemory()
    for label in ("a", "b", None):
        task = Task(action="execute", parameters={"content": f"of {label}"}, session_id=label)
        memory.add_task(task)
    assert [task.content for task in memory.get_l1_tasks(10, "a")] == ["of a"]
    assert [task.content for task in memory.get_l1_tasks(10)] == ["of None"]


def test_defect_l4_finds_what_l1_and_l2_no_longer_show() -> None:
    memory = LoomMemory()
    memory.add_task(Task(action="execute", parameters={"content": "The heddle is broken"}))
    for n in range(150):
        memory.add_task(Task(action="execute", parameters={"content": f"other work {n}"}))
    assert "heddle" not in str(memory.get_l1_tasks(50)) + str(memory.get_l2_tasks(50))
    found = asyncio.run(MemoryTools(memory).execute("query_l4_memory", {"query": "heddle"}))
    assert found[0]["statement"] == "execute: The heddle is broken"


def test_defect_the_system_alone_is_never_sent_instead_of_the_task() -> None:
    """There, a system prompt that is too large is sent alone, without the task."""
    manager = TaskContextManager(TokenCounter(), max_tokens=100, system_prompt="word " * 200)
    with pytest.raises(CannotFit):
        asyncio.run(manager.build_context(Task(action="execute", parameters={"content": "Go"})))


def test_the_preset_keeps_what_the_document_prints_for_plain_messages() -> None:
    said = tuple(
        Message("user" if n % 2 else "assistant", (Text(f"msg{n} " + "word " * 500),))
        for n in range(1, 9)
    )
    context = weave(
        Conversation(messages=said, system=(Message("system", (Text(SYSTEM),)),)),
        policy="tasks",
        window=2200,
        reserve_output=0,
    )
    kept = [message.text.split()[0] for message in context.conversation.messages]
    assert kept == ["[5", "msg6", "msg7", "msg8"]
