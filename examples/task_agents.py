"""An agent that works by tasks: it gets a message of another agent, calls a tool, and answers."""

import asyncio
from dataclasses import dataclass, field

from loom.memory import LoomMemory
from loom.memory.task_context import EventBusContextSource, MemoryContextSource, TaskContextManager
from loom.memory.tokenizer import TokenCounter
from loom.memory.tools import MemoryTools
from loom.providers.knowledge import TextKnowledgeBase
from loom.runtime import EventBus, Task

PROMPT = "You keep the ledger."
SESSION = "ledger-2026"


@dataclass
class Call:
    id: str
    name: str
    arguments: dict


@dataclass
class Response:
    content: str = ""
    tool_calls: list[Call] = field(default_factory=list)


class ScriptedLlm:
    """Stands in for a model: it reads the page, and answers when it has seen it."""

    async def chat(self, messages: list[dict], tools: list) -> Response:
        results = [message for message in messages if message["role"] == "tool"]
        if results:
            return Response(f"The page says: {results[-1]['content']}")
        return Response(tool_calls=[Call("c1", "read_page", {"page": 3})])


def read_page(page: int) -> str:
    return f"page {page}: paid 3017"


async def main() -> None:
    memory, bus, rules = LoomMemory(), EventBus(), TextKnowledgeBase()
    rules.add("Amounts on a page of the ledger are in pounds.", source="rules.md")
    manager = TaskContextManager(
        token_counter=TokenCounter("gpt-4o"),
        sources=[
            MemoryContextSource(memory=memory),
            EventBusContextSource(event_bus=bus, node_id="clerk"),
        ],
        max_tokens=2000,
        system_prompt=PROMPT,
        knowledge_base=rules,
    )

    done = Task(
        action="execute",
        parameters={"content": "Open the ledger"},
        result="It is open.",
        session_id=SESSION,
    )
    memory.add_task(done)
    bus.publish(
        Task(
            action="node.message",
            source_agent="chief",
            target_agent="clerk",
            parameters={"content": "Please look at page 3 first.", "priority": 0.8},
        )
    )

    task = Task(
        action="execute",
        parameters={"content": "Which amount was paid on the page?"},
        session_id=SESSION,
    )
    memory.add_task(task)
    llm, tools = ScriptedLlm(), []
    while True:
        messages = await manager.build_context(task)
        response = await llm.chat(messages, tools)
        if not response.tool_calls:
            break
        for call in response.tool_calls:
            about = {"tool_name": call.name, "tool_call_id": call.id}
            said = {"session_id": SESSION, "parent_task_id": task.task_id}
            made = {**about, "arguments": call.arguments}
            memory.add_task(Task(action="node.tool_call", parameters=made, **said))
            result = {**about, "content": read_page(**call.arguments)}
            memory.add_task(Task(action="node.tool_result", parameters=result, **said))

    for message in messages:
        print(
            f"{message['role']:9}", message["content"].replace("\n", "\n          ") or "(a call)"
        )
    print("answer:  ", response.content)

    executor = MemoryTools(memory, session_id=SESSION)
    for item in await executor.execute("query_l2_memory", {"limit": 2}):
        print("L2:      ", item["statement"])


asyncio.run(main())
