"""No knowledge base can fail a request or keep it waiting."""

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from loom.errors import ChoiceError
from loom.providers.knowledge import Findings, KnowledgeItem, ask_bases, check_bases
from loom.providers.knowledge.asking import MAX_LATE_THREADS
from loom.providers.knowledge.items import MAX_CONTENT_CHARS, read_items


class Base:
    """A knowledge base that answers as a function says."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def query(self, text: str, limit: int = 3) -> Any:
        return self.answer(text)


class LaterBase(Base):
    async def query(self, text: str, limit: int = 3) -> Any:
        return await self.answer(text)


def ask(*bases: Any, seconds: float = 0.1) -> Findings:
    return asyncio.run(ask_bases(check_bases(list(bases)), "what?", seconds=seconds))


def item(content: str, score: float = 0.5) -> dict[str, Any]:
    return {"content": content, "source": "s", "score": score}


async def answer_later(text: str) -> list[Any]:
    await asyncio.sleep(0.001)
    return [item("later", 0.7)]


def test_bases_of_all_kinds_are_asked_and_the_best_come_first() -> None:
    plain = Base(lambda text: [item("plain", 0.9), "a text alone", KnowledgeItem("own", "x", 0.8)])
    found = ask(plain, LaterBase(answer_later), Base(answer_later), seconds=5)
    assert [each.content for each in found.items] == ["plain", "own", "later"]
    assert found.notes == ()


def test_what_hangs_costs_its_time_limit() -> None:
    async def hang(text: str) -> list[Any]:
        await asyncio.sleep(30)
        return []

    ended = threading.Event()
    begun = time.perf_counter()
    found = ask(
        Base(lambda text: ended.wait(30)),
        LaterBase(hang),
        Base(lambda text: [item("fine")]),
    )
    assert time.perf_counter() - begun < 2
    assert [each.content for each in found.items] == ["fine"]
    assert found.notes == (
        "knowledge base Base did not answer within 100 ms",
        "knowledge base LaterBase did not answer within 100 ms",
    )
    ended.set()


def test_what_hangs_is_not_asked_without_end() -> None:
    ended = threading.Event()
    asked: list[str] = []

    def hang(text: str) -> None:
        asked.append(text)
        ended.wait(30)

    base = Base(hang)
    for _ in range(MAX_LATE_THREADS + 3):
        found = ask(base, seconds=0.01)
    assert len(asked) == MAX_LATE_THREADS
    assert "was not asked" in found.notes[0]
    ended.set()
    time.sleep(0.1)
    assert "did not answer" in ask(Base(lambda text: time.sleep(1)), seconds=0.01).notes[0]
    assert ask(base, seconds=1).notes == ()


def test_what_raises_is_a_note() -> None:
    def fail(text: str) -> None:
        raise ValueError("no index\n" + "x" * 1000)

    async def fail_later(text: str) -> None:
        raise KeyError("gone")

    async def cancel(text: str) -> None:
        raise asyncio.CancelledError

    def stop(text: str) -> None:
        raise StopIteration

    found = ask(Base(fail), LaterBase(fail_later), LaterBase(cancel), Base(stop), seconds=5)
    assert found.items == ()
    assert found.notes[0].startswith("knowledge base Base failed: ValueError: no index x")
    assert len(found.notes[0]) < 300
    assert found.notes[1] == "knowledge base LaterBase failed: KeyError: 'gone'"
    assert len(found.notes) == 4
    gc.collect()


def endless() -> Any:
    while True:
        yield item("again", 0.1)


@pytest.mark.parametrize(
    ("answer", "contents", "notes"),
    [
        (None, [], 0),
        (7, [], 1),
        ("a text", [], 1),
        ({"content": "x"}, [], 1),
        ([None, 3, {"source": "s"}, item("good")], [], 3),
        ([item(""), item(" "), item("good")], ["good"], 0),
        ([item("good"), item("good", 0.9)], ["good"], 0),
        (endless(), ["again"], 0),
    ],
)
def test_nonsense_is_a_note(answer: Any, contents: list[str], notes: int) -> None:
    found = ask(Base(lambda text: answer), seconds=5)
    assert [each.content for each in found.items] == contents
    assert len(found.notes) == notes


def test_items_are_bounded_and_clean() -> None:
    [one], _ = read_items(
        [{"content": "a\0b\ud800" + "x" * 10**6, "source": "a\nb" * 999, "score": float("nan")}], 3
    )
    assert len(one.content) == MAX_CONTENT_CHARS
    assert one.content.startswith("a b x")
    assert "\n" not in one.source
    assert len(one.source) <= 300
    assert one.score == 0
    one.content.encode()


@pytest.mark.parametrize("given", [3, object(), Base, [Base(None), "x"]])
def test_what_is_no_knowledge_base_is_refused(given: Any) -> None:
    with pytest.raises(ChoiceError, match="query"):
        check_bases(given)
