"""An agent with the OpenAI SDK. It has its own tools and Loom's tools, a window that is too small
for its work, and a provider that refuses long requests.

    python examples/openai_agent.py

With OPENAI_API_KEY, it uses OpenAI, or the provider at OPENAI_BASE_URL. Without a key, a local
script plays the model.
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
# In tokens. The ledger does not fit. Without it, the model's own window is used.
WINDOW = 6_000
PAGES = 12
TASK = (
    f"Read all {PAGES} pages of the ledger, one at a time. Then tell me what was paid in line 17 "
    "of page 3."
)


# The agent's own tools: functions, and their descriptions for the model.


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
    """The result of one of our tools. An error is a result, too."""
    try:
        return OWN_TOOLS[call.name](**json.loads(call.arguments))
    except (KeyError, TypeError, ValueError) as error:
        return f"Error: {error}"


# The agent's loop.


async def run_agent(client: AsyncOpenAI, session: loom.Session, request: str) -> str:
    """Ask the model and run its calls, until it makes no more calls."""
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
            f"  {context.report.input_tokens:,} tokens to send, {context.report.dropped} "
            "messages left out"
        )


async def ask(client: AsyncOpenAI, session: loom.Session, context: loom.Context) -> Any:
    """The answer of the model. If the provider refuses a request as too long, send a shorter
    one.
    """
    while True:
        try:
            return await client.chat.completions.create(**context.openai())
        except BadRequestError as error:
            # raises the error if it has another cause
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
                f"{len(session.path)} messages stored; {usage.prompt:,} tokens read and "
                f"{usage.completion:,} written"
            )


@contextmanager
def connect() -> Iterator[AsyncOpenAI]:
    """A client of the provider, or of the script if there is no key."""
    if os.environ.get("OPENAI_API_KEY"):
        yield AsyncOpenAI()
        return
    with ScriptedServer(script(), window=3_500) as server:
        direct = DefaultAsyncHttpxClient(trust_env=False)  # not through a proxy
        yield AsyncOpenAI(base_url=server.openai_url, api_key="none", http_client=direct)


# The script that plays the model if there is no key.


def script() -> list[Step]:
    reading: list[Step] = [
        Say(calls=(("read_page", {"page": page}),)) for page in range(1, PAGES + 1)
    ]
    return [*reading, look_for_line, recall_first_hit, tell_what_was_found]


def look_for_line(_: dict[str, Any]) -> Say:
    return Say(
        "I no longer see that page.",
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
