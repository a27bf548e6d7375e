"""A session that looks up the documents of its project, cites them, and remembers what it cited."""

import asyncio
from pathlib import Path

import loom
from loom.providers.knowledge import MemoryVectorStore, VectorKnowledgeBase

MANUAL = """# Boat

## Engine
Turn the key twice to start the engine. In cold weather, wait ten seconds between the turns.

## Anchor
Drop the anchor in shallow water only.
"""


class LetterEmbeddings:
    """Stands in for a provider of embeddings: counts letters."""

    def embed(self, text: str) -> list[float]:
        return [text.lower().count(letter) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"]

    def embed_batch(self, texts: list[str]) -> list[list[float]]:
        return [self.embed(text) for text in texts]


class SlowWiki:
    """A knowledge base that never answers in time."""

    async def query(self, text: str, limit: int = 3) -> list[str]:
        await asyncio.sleep(60)
        return []


async def main() -> None:
    rules = VectorKnowledgeBase(LetterEmbeddings(), MemoryVectorStore(), name="rules")
    rules.add("Never start the engine in the harbour after ten.", source="rules.txt")

    async with await loom.Loom.aopen(":memory:", knowledge_seconds=0.3) as home:
        Path("boat.md").write_text(MANUAL)
        added = home.knowledge.add_path("boat.md")
        print("added", [f"{row.source}: {row.chunks} chunks" for row in added.added])

        session = home.new("The boat", model="gpt-4o")
        context = await session.prepare(
            "How do I start the engine in cold weather?", knowledge=[True, rules, SlowWiki()]
        )
        print(context.conversation.messages[-1].text, "\n")
        print("notes:", context.report.notes[-1])

        answer = "Turn the key twice, and wait in between (Source: boat.md:3-4)."
        session.absorb(loom.Message("assistant", (loom.Text(answer),)))
        print("cited:", session.working.citations)


asyncio.run(main())
