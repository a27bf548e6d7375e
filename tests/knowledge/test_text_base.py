"""A knowledge base in memory that needs no embeddings."""

import asyncio

from loom import Loom
from loom.providers.knowledge import TextKnowledgeBase
from tests.knowledge.test_stored import ByFirstLetter


def test_texts_are_found_by_their_words_with_heading_and_source() -> None:
    base = TextKnowledgeBase()
    assert base.query("engine") == []
    assert (
        base.add("# Boat\nIt floats.\n\n## Engine\nTurn the key.\n", "boat.md", kind="markdown")
        == 2
    )
    assert base.add("Hoist the sail.", "sail.md") == 1
    [item] = base.query("How is the engine started, with which key?", limit=1)
    assert (item.source, item.title) == ("boat.md", "Boat › Engine")
    assert item.score > 0
    assert base.query("zeppelin") == []
    assert base.query("???") == []


def test_the_same_words_come_once() -> None:
    base = TextKnowledgeBase()
    assert [base.add("Never sail in a storm.", source) for source in "ab"] == [1, 0]
    assert [item.source for item in base.query("storm")] == ["a"]


def test_with_an_embedder_texts_are_found_by_meaning() -> None:
    base = TextKnowledgeBase(ByFirstLetter())
    for number in range(30):
        base.add(f"yyy {number}", f"y{number}")
    base.add("zzz zzz", "z")
    assert [item.source for item in base.query("zz", limit=1)] == ["z"]


def test_other_languages_and_long_questions() -> None:
    base = TextKnowledgeBase()
    base.add("启动发动机时请转动钥匙两次。", "zh")
    base.add("Der Anker ist schwer.", "de")
    assert [item.source for item in base.query("如何启动发动机")] == ["zh"]
    long = 'Please look at "this here" first. ' * 100 + "What is said of the Anker?"
    assert [item.source for item in base.query(long)] == ["de"]


def test_it_serves_requests() -> None:
    base = TextKnowledgeBase()
    base.add("Turn the key twice to start the engine.", "manual")
    with Loom.open(":memory:", knowledge=base, knowledge_seconds=5) as loom:
        context = asyncio.run(loom.new().prepare("How do I start the engine?"))
    assert "(Source: manual)" in str(context.openai()["messages"][-1]["content"])
