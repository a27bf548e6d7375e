"""Two agents that share a store: one sends a message, the other sees it in its next request."""

import asyncio
from pathlib import Path

from loom import Loom
from loom.runtime import EventBus, Task

STORE = Path("two_agents.db")


def write_to(name: str, text: str, priority: float) -> Task:
    """A direct message of the planner."""
    return Task(
        source_agent="planner",
        target_agent=name,
        action="node.message",
        parameters={"content": text, "priority": priority, "ttl_seconds": 600},
        session_id="release-7",
    )


async def main() -> None:
    async with await Loom.aopen(STORE, agent="planner") as planner:
        await planner.bus.apublish(write_to("coder", "Start with the migration.", 0.5))
        await planner.bus.apublish(write_to("coder", "Stop: the tests are red.", 0.95))

    async with await Loom.aopen(STORE, agent="coder") as coder:
        entry = await coder.aadd_task(
            Task(
                action="execute",
                parameters={"content": "Write the release."},
                session_id="release-7",
            )
        )
        for message in coder.bus.inbox("coder", session_id="release-7"):
            print(f"{message.source_agent} says: {message.content}")

        # What is urgent is in the working state, which is at the end of every request.
        session = coder.session(entry.session)
        context = await session.prepare(window=8000, reserve_output=500)
        assert "tests are red" in str(context.openai())
        print("urgent:", [event.summary for event in session.working.pending_events])

        for message in coder.bus.inbox("coder", session_id="release-7"):
            assert coder.bus.acknowledge(message.task_id)
        print("left:", coder.bus.inbox("coder", session_id="release-7"))

    # In one process, a bus needs no store. A handler has a thread of its own.
    heard = asyncio.Event()
    bus = EventBus()

    async def hear(task: Task) -> None:
        print("heard:", task.action)
        heard.set()

    with bus.subscribe(hear, action="node.thinking"):
        bus.publish(Task(action="node.thinking", source_agent="coder"))
        await heard.wait()


asyncio.run(main())
