"""An agent in a few lines: Python functions are its tools, and Loom runs the loop.

    python examples/loop_agent.py

A script plays the model. For a real one, see docs/providers.md.
"""

import asyncio
from tempfile import TemporaryDirectory

import loom
from loom.loop import Limits, Loop, SessionDesk
from loom.providers.scripted import ScriptedModel


def read_page(page: int) -> str:
    """Read a page of the ledger."""
    lines = [f"page {page}, line {line}: paid {page * 1000 + line}" for line in range(1, 60)]
    return "\n".join(lines)


def call(number: int, page: int) -> loom.Message:
    arguments = f'{{"page": {page}}}'
    return loom.Message("assistant", (loom.ToolCall(f"call_{number}", "read_page", arguments),))


async def main() -> None:
    pages = range(1, 13)
    script = [*(call(number, page) for number, page in enumerate(pages)), "Line 17: paid 3017."]
    with TemporaryDirectory() as folder:
        async with await loom.Loom.aopen(f"{folder}/agent.db") as store:
            session = await store.anew("Ledger", model="gpt-4o", system="You keep the ledger.")
            desk = SessionDesk(session, window=6_000)
            loop = Loop(desk, ScriptedModel(*script), [read_page], limits=Limits(steps=50))
            outcome = await loop.run("Read all pages. What was paid in line 17 of page 3?")
            print(outcome.text)
            print(
                f"{outcome.spent.steps} answers, {outcome.spent.tokens:,} tokens; the session has "
                f"{len(session.path)} messages"
            )


if __name__ == "__main__":
    asyncio.run(main())
