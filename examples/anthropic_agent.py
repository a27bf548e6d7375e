"""An agent with the Anthropic SDK that streams its answers. It has its own tools and Loom's tools,
makes several calls at once, and continues on a second day.

    python examples/anthropic_agent.py

With ANTHROPIC_API_KEY, it uses Anthropic. Without a key, a local script plays the model.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from anthropic import AsyncAnthropic, BadRequestError, DefaultAsyncHttpxClient

import loom
from scripted_server import Say, ScriptedServer, Step

MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5")
WINDOW = 12_000  # in tokens; without it, the model's own window is used
FIRST_DAY = "Where are orders 1001 and 1002? Keep your plan in the working state."
SECOND_DAY = "Did order 1002 arrive? If not, is there another lamp in stock?"


# The agent's own tools: functions, and their descriptions for the model.


def find_order(number: int) -> str:
    """The events of an order, a long list."""
    items = {1001: "loom", 1002: "lamp"}
    if number not in items:
        raise ValueError(f"there is no order {number}; there are {', '.join(map(str, items))}")
    events = [
        f"day {day}: parcel {number}-{day * 37 % 11} scanned in depot {day * 13 % 29}"
        for day in range(1, 121)
    ]
    return "\n".join(
        [f"order {number}: one {items[number]}", *events, f"order {number}: still on its way"]
    )


def count_stock(item: str) -> str:
    return json.dumps({"item": item, "in_stock": {"loom": 2, "lamp": 5}.get(item, 0)})


OWN_TOOLS: dict[str, Callable[..., str]] = {"find_order": find_order, "count_stock": count_stock}
DECLARED = [
    {
        "name": "find_order",
        "description": "Find an order and all its events.",
        "input_schema": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
    {
        "name": "count_stock",
        "description": "Count how many of an item are in stock.",
        "input_schema": {
            "type": "object",
            "properties": {"item": {"type": "string"}},
            "required": ["item"],
        },
    },
]


def run_own_tool(call: loom.ToolCall) -> dict[str, Any]:
    """The result of one of our tools, in the format of Anthropic. An error is a result, too."""
    try:
        result, failed = OWN_TOOLS[call.name](**json.loads(call.arguments)), False
    except (KeyError, TypeError, ValueError) as error:
        result, failed = f"{type(error).__name__}: {error}", True
    block = {"type": "tool_result", "tool_use_id": call.id, "content": result, "is_error": failed}
    return {"role": "user", "content": [block]}


# The agent's loop.


async def run_agent(client: AsyncAnthropic, session: loom.Session, request: str) -> None:
    """Ask the model and run its calls, until it makes no more calls."""
    context = await session.prepare(request, window=WINDOW)
    while True:
        answer = await stream_answer(client, session, context)
        [node] = await session.aabsorb(answer)
        for call in node.message.calls:
            print(f"  {call.name} {call.arguments}")
            if await session.ause(call) is None:  # not one of Loom's tools, so it is one of ours
                await session.aappend(run_own_tool(call))
        if not node.message.calls:
            return
        context = await session.prepare(window=WINDOW)


async def stream_answer(
    client: AsyncAnthropic, session: loom.Session, context: loom.Context
) -> Any:
    """Print the answer as it comes, and return it. If the provider refuses a request as too long,
    send a shorter one.
    """
    while True:
        try:
            async with client.messages.stream(**context.anthropic()) as stream:
                async for text in stream.text_stream:
                    print(text, end="", flush=True)
                answer = await stream.get_final_message()
            if any(block.type == "text" for block in answer.content):
                print()
            return answer
        except BadRequestError as error:
            # raises the error if it has another cause
            context = await session.prepare(window=WINDOW, overflow=error)
            print(f"  refused as too long; now {context.report.input_tokens:,} tokens")


async def main() -> None:
    with TemporaryDirectory() as folder, connect() as client:
        file = f"{folder}/agent.db"
        async with await loom.Loom.aopen(file) as store:
            tools = [*DECLARED, *loom.tools()]
            session = await store.anew(
                "Orders", model=MODEL, system="You answer questions about orders.", tools=tools
            )
            print(f"→ {FIRST_DAY}")
            await run_agent(client, session, FIRST_DAY)
        async with await loom.Loom.aopen(file) as store:  # another process, another day
            session = await store.asession(session.id)
            print(f"→ {SECOND_DAY}")
            await run_agent(client, session, SECOND_DAY)
            usage = session.row.usage
            print(
                f"{len(session.path)} messages stored; {usage.prompt:,} tokens read and "
                f"{usage.completion:,} written"
            )


@contextmanager
def connect() -> Iterator[AsyncAnthropic]:
    """A client of the provider, or of the script if there is no key."""
    if os.environ.get("ANTHROPIC_API_KEY"):
        yield AsyncAnthropic()
        return
    with ScriptedServer(SCRIPT, window=4_500) as server:
        direct = DefaultAsyncHttpxClient(trust_env=False)  # not through a proxy
        yield AsyncAnthropic(base_url=server.anthropic_url, api_key="none", http_client=direct)


# The script that plays the model if there is no key.

PLAN = {"progress": "both orders found", "plan": ["ask again tomorrow"], "scratchpad": None}
SCRIPT: list[Step] = [
    Say(
        "I will look up both.", (("find_order", {"number": 1001}), ("find_order", {"number": 1002}))
    ),
    Say(calls=(("set_working_state", PLAN),)),
    Say("Both are still on their way."),
    Say(
        "Let me see.",
        (
            ("find_order", {"number": 1003}),
            ("find_order", {"number": 1002}),
            ("count_stock", {"item": "lamp"}),
        ),
    ),
    Say("Order 1002 has not arrived. There are 5 more lamps in stock."),
]


if __name__ == "__main__":
    asyncio.run(main())
