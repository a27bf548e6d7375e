"""The knowledge base that a program builds from its own embeddings and vectors."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from loom.errors import ChoiceError
from loom.providers.knowledge import KnowledgeItem, MemoryVectorStore, VectorKnowledgeBase

WORDS = ("token", "window", "cache", "tree", "branch", "cat")


def count_words(text: str) -> list[float]:
    return [1.0 + text.lower().count(word) * 9 for word in WORDS]


class Counting:
    """Embeddings by the count of a few words."""

    def embed(self, text: str) -> list[float]:
        return count_words(text)


class CountingInBatches(Counting):
    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        return [count_words(text) for text in texts]


class CountingLater:
    async def embed(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        return count_words(text)

    async def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        return [await self.embed(text) for text in texts]


class VectorsOfOthers:
    """A store with `async` methods and hits as tuples."""

    def __init__(self) -> None:
        self.held = MemoryVectorStore()

    async def add(self, id: str, vector: Sequence[float], metadata: dict[str, Any]) -> None:
        self.held.add(id, vector, metadata)

    async def search(self, vector: Sequence[float], top_k: int) -> list[tuple[Any, ...]]:
        return [(hit.id, hit.score, hit.metadata) for hit in self.held.search(vector, top_k)]


@pytest.mark.parametrize("provider", [Counting(), CountingInBatches(), CountingLater()])
@pytest.mark.parametrize("store", [MemoryVectorStore, VectorsOfOthers])
def test_what_is_added_is_found_with_its_source(provider: Any, store: Any) -> None:
    kb = VectorKnowledgeBase(provider, store())
    kb.add("A token is a piece of a word.", source="glossary.md")
    kb.add("A tree has branches; a branch is a path.", source="trees.md")

    async def ask() -> list[KnowledgeItem]:
        return await kb.query("what is a token?", limit=1)

    [item] = asyncio.run(ask())
    assert (item.content, item.source) == ("A token is a piece of a word.", "glossary.md")
    assert 0.9 < item.score <= 1
    assert item.citation == "(Source: glossary.md)"


def test_adding_works_in_a_running_loop_too() -> None:
    kb = VectorKnowledgeBase(CountingLater(), MemoryVectorStore())

    async def run() -> list[KnowledgeItem]:
        kb.add("the cat", source="a")
        await kb.aadd("the tree", source="b")
        return await kb.query("cat")

    assert [item.source for item in asyncio.run(run())] == ["a", "b"]


def test_the_same_words_come_once() -> None:
    store = MemoryVectorStore()
    kb = VectorKnowledgeBase(Counting(), store)
    assert kb.add("the cat", source="a") == kb.add("the cat", source="a")
    kb.add("the cat", source="b")
    assert len(store) == 2
    assert len(asyncio.run(kb.query("cat", limit=3))) == 1


def test_long_texts_are_split_and_headings_are_found() -> None:
    kb = VectorKnowledgeBase(Counting(), MemoryVectorStore())
    text = "# Window\n" + "Some words.\n\n" * 300 + "# Cache\nIt is kept.\n"
    assert len(kb.add(text, source="g.md", kind="markdown")) > 2
    [item] = asyncio.run(kb.query("cache", limit=1))
    assert item.title == "Cache"


def test_what_is_no_provider_or_store_is_refused() -> None:
    with pytest.raises(ChoiceError, match="embedding_provider must have embed"):
        VectorKnowledgeBase(object(), MemoryVectorStore())
    with pytest.raises(ChoiceError, match="vector_store must have add and search"):
        VectorKnowledgeBase(Counting(), object())  # type: ignore[arg-type]

    class Short(Counting):
        def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
            return []

    with pytest.raises(ChoiceError, match="0 vectors for 1 texts"):
        VectorKnowledgeBase(Short(), MemoryVectorStore()).add("a")


def test_the_lines_of_the_source_document_run_as_they_are_printed() -> None:
    printed = """from loom.providers.knowledge import VectorKnowledgeBase

# Create knowledge base
kb = VectorKnowledgeBase(embedding_provider, vector_store)
"""
    names: dict[str, Any] = {
        "embedding_provider": CountingLater(), "vector_store": MemoryVectorStore()
    }  # fmt: skip
    exec(printed, names)
    names["kb"].add("the cat", source="a")
    assert [item.source for item in asyncio.run(names["kb"].query("cat"))] == ["a"]
