"""An agent with the OpenAI SDK: its own tools and Loom's, a window that is too small for its work,
a provider that refuses.

    python examples/openai_agent.py

With OPENAI_API_KEY it talks to OpenAI, or to whatever OPENAI_BASE_URL names. Without a key a script
on loopback plays the model.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient

import loom
from scripted_server import Say, ScriptedServer, Step

MODEL = os.environ.get("OPENAI_MODEL", "gpt-4o")
# tokens, so that the ledger does not fit; leave it out to use the model's own window
WINDOW = 6_000
PAGES = 12
TASK = f"Read all {PAGES} pages of the ledger, one at a time. Then tell me what was paid in line 17 of page 3."


# The agent's own tools: functions, and what the model is told of them.


def read_page(page: int) -> str:
    if not 1 <= page <= PAGES:
        raise ValueError(f"there is no page {page}; the ledger has pages 1 to {PAGES}")
    return "\n".join(
        f"{page}.{line:02} paid {amount(page, line)} to mill {line}" for line in range(1, 41)
    )


def amount(page: int, line: int) -> int:
    return page * 7_919 + line * 104_729


OWN_TOOLS: dict[str, Callable[..., str]] = {"read_page": read_page}
DECLARED = loom.Tool(
    "read_page",
    "Read one page of the ledger.",
    '{"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]}',
)


def run_own_tool(call: loom.ToolCall) -> str:
    """The result of one of our tools; what goes wrong is told to the model."""
    try:
        return OWN_TOOLS[call.name](**json.loads(call.arguments))
    except (KeyError, TypeError, ValueError) as error:
        return f"Error: {error}"


# The agent's loop.


async def run_agent(client: AsyncOpenAI, session: loom.Session, request: str) -> str:
    """Ask the model and carry out what it calls, until it calls nothing."""
    context = await session.prepare(request, window=WINDOW)
    while True:
        answer = await ask(client, session, context)
        [node] = await session.aabsorb(answer)
        calls = node.message.calls
        if not calls:
            return node.message.text
        for call in calls:
            if await session.ause(call) is None:  # not one of Loom's tools, so it is one of ours
                result = run_own_tool(call)
                await session.aappend({"role": "tool", "tool_call_id": call.id, "content": result})
            print(f"  {call.name} {call.arguments}")
        context = await session.prepare(window=WINDOW)
        print(
            f"  {context.report.input_tokens:,} tokens to send, {context.report.dropped} messages left out"
        )


async def ask(client: AsyncOpenAI, session: loom.Session, context: loom.Context) -> Any:
    """The model's answer; a request that the provider refuses as too long is made shorter."""
    while True:
        try:
            return await client.chat.completions.create(**context.openai())
        except BadRequestError as error:
            # raises where the error is another
            context = await session.prepare(window=WINDOW, overflow=error)
            print(f"  refused as too long; now {context.report.input_tokens:,} tokens")


async def main() -> None:
    with TemporaryDirectory() as folder, connect() as client:
        async with await loom.Loom.aopen(f"{folder}/agent.db") as store:
            tools = [DECLARED, *loom.tools()]
            session = await store.anew(
                "The ledger", model=MODEL, system="You are a careful clerk.", tools=tools
            )
            print(f"→ {TASK}")
            print(f"← {await run_agent(client, session, TASK)}")
            usage = session.row.usage
            print(
                f"{len(session.path)} messages kept; {usage.prompt:,} tokens read and {usage.completion:,} written"
            )


@contextmanager
def connect() -> Iterator[AsyncOpenAI]:
    """A client of the provider, or of the script where there is no key."""
    if os.environ.get("OPENAI_API_KEY"):
        yield AsyncOpenAI()
        return
    with ScriptedServer(script(), window=3_500) as server:
        direct = DefaultAsyncHttpxClient(trust_env=False)  # not through a proxy
        yield AsyncOpenAI(base_url=server.openai_url, api_key="none", http_client=direct)


# What plays the model where there is no key.


def script() -> list[Step]:
    reading: list[Step] = [
        Say(calls=(("read_page", {"page": page}),)) for page in range(1, PAGES + 1)
    ]
    return [*reading, look_for_line, recall_first_hit, tell_what_was_found]


def look_for_line(_: dict[str, Any]) -> Say:
    return Say(
        "That page is gone from my view.",
        (("search_context", {"query": '"3.17 paid"', "limit": 1}),),
    )


def recall_first_hit(request: dict[str, Any]) -> Say:
    handles = re.findall(r"~[a-z2-7]{12}", request["messages"][-1]["content"])
    return Say(
        calls=tuple(
            ("recall", {"handle": handle, "from": None, "tokens": None}) for handle in handles
        )
    )


def tell_what_was_found(request: dict[str, Any]) -> Say:
    found = re.search(r"3\.17 paid (\d+)", request["messages"][-1]["content"])
    return Say(
        f"Line 17 of page 3: {found[1]} was paid to mill 17." if found else "I could not find it."
    )


if __name__ == "__main__":
    asyncio.run(main())
