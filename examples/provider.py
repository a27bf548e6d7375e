"""A model of a provider by its name: an answer as a stream, a wait that the provider asks for, and
a request that is too long.

    python examples/provider.py
    MODEL=anthropic:claude-sonnet-4-5 python examples/provider.py

Without a name, a local script plays the provider. With one, its key is read from the environment.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import loom
from loom.errors import RequestTooLong
from loom.providers.scripted import Refuse, ScriptedServer
from loom.types import AnswerEnd, HttpModel, TextChunk

WINDOW = 4_000  # tokens; the script refuses longer requests than this


async def ask(llm: HttpModel, session: loom.Session, request: str) -> None:
    """Ask, print the answer while it comes, and store it."""
    context = await session.prepare(request)
    while True:
        try:
            async for event in llm.stream(context):
                match event:
                    case TextChunk(text):
                        print(text, end="", flush=True)
                    case AnswerEnd(answer):
                        await session.aabsorb(answer)
                        print(f"  [{answer.prompt:,} tokens read, stop: {answer.stop}]")
            return
        except RequestTooLong as error:
            before = context.report.input_tokens
            context = await session.prepare(overflow=error)
            print(f"too long: {before:,} tokens, now {context.report.input_tokens:,}")


async def main() -> None:
    with find_model() as llm:
        async with llm, await loom.Loom.aopen(":memory:") as store:
            session = await store.anew("Ledger", model=llm.name)
            for page in range(1, 60):
                await session.aappend(
                    {"role": "user", "content": f"Page {page}: " + "paid to the mill; " * 20},
                    {"role": "assistant", "content": f"Page {page} is read."},
                )
            await ask(llm, session, "Which page was the last?")
            await ask(llm, session, "Thank you. How many are there?")
            usage = session.row.usage
            print(f"{usage.prompt:,} tokens read and {usage.completion:,} written in all")


@contextmanager
def find_model() -> Iterator[HttpModel]:
    """The model that was named, or one that a script plays."""
    if name := os.environ.get("MODEL"):
        yield loom.connect(name)
        return
    steps = ("The last one was page 59.", Refuse(429, retry_after=0.2), "There are 59 pages.")
    with ScriptedServer(*steps, window=WINDOW) as server:
        yield loom.connect("local:gpt-4o", base_url=server.openai_url)


if __name__ == "__main__":
    asyncio.run(main())
