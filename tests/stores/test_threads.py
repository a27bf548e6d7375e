"""Verbs in a program with an event loop: each can be awaited, and none keeps the loop from
others.
"""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from loom import Conflict, Event, Loom, LoomTree, Session, StoreError
from loom.providers.scripted import ScriptedModel
from loom.types import (
    ProjectDecisions,
    ProjectMemory,
    SessionDecisions,
    SessionMemory,
    SessionSkills,
)

# What does no work of the store: names, listening, what has verbs of its own, and what is awaited
# already.
NO_WORK = {
    *(
        "start",
        "listen",
        "emit",
        "id",
        "row",
        "path",
        "title",
        "head",
        "cursor",
        "open",
        "close",
        "knowledge",
    ),
    *(
        "memory",
        "open_handle",
        "bus",
        "publish_events",
        "can_start",
        "decisions",
        "of_folder",
        "folder",
        "scope",
        "skills",
    ),
    "notify_agent",
}
WINDOW = {"window": 4000, "reserve_output": 500, "model": "gpt-4o"}


@pytest.mark.parametrize(
    "kind",
    [
        *(Loom, Session, LoomTree, ProjectMemory, SessionMemory),
        *(ProjectDecisions, SessionDecisions, SessionSkills),
    ],
)
def test_every_synchronous_verb_has_a_form_that_is_awaited(kind: type) -> None:
    for name, member in inspect.getmembers(kind):
        if (
            name.startswith("_")
            or name in NO_WORK
            or inspect.iscoroutinefunction(member)
            or inspect.isasyncgenfunction(member)
        ):
            continue
        awaited = getattr(kind, f"a{name}", None)
        assert awaited is not None, f"{kind.__name__}.{name} can only be called, not awaited"
        assert inspect.iscoroutinefunction(awaited) or inspect.isasyncgenfunction(awaited)
        verb = member.fget if isinstance(member, property) else member
        assert (
            inspect.signature(awaited).parameters.keys()
            == inspect.signature(verb).parameters.keys()
        )
        assert awaited.__doc__ == verb.__doc__


@contextmanager
def watch_threads(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The threads in which the store is read or written meanwhile."""
    seen: set[int] = set()
    database = loom.store.database
    for name in ("read", "write"):
        verb = getattr(database, name)

        def noted(verb: Any = verb) -> Any:
            seen.add(threading.get_ident())
            return verb()

        monkeypatch.setattr(database, name, noted)
    yield seen
    monkeypatch.undo()


def answer(number: int, text: str) -> dict[str, Any]:
    said = {"role": "assistant", "content": text}
    return {
        "id": f"a{number}",
        "choices": [{"message": said}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 2},
    }


async def work(loom: Loom, heard: list[tuple[str, int]]) -> None:
    """A little of everything, as a service would do it."""
    loom.listen(lambda event: heard.append((event.kind, threading.get_ident())))
    session = await loom.anew("work", system="Be brief.")
    for number in range(12):
        await session.aappend(f"question {number} " + "why " * 500)
        await session.prepare(**WINDOW)
        await session.aabsorb(answer(number, "because"))
    await loom.settle()
    await session.summarize()
    assert await session.asummary()
    again = await loom.asession(session.id)
    context = await again.prepare("And now?", **WINDOW)
    handle = next(handle for item in context.report.items for handle in item.handles)
    assert await again.arecall(handle)
    assert await again.asearch("question 3")
    await (await again.afork()).apurge()
    assert len([line async for line in again.aexport()]) > 20
    tree = await loom.anew_tree("a tree")
    said = await tree.asay("Hello")
    await tree.abookmark(said.id, "start")
    await tree.prepare(**WINDOW)
    assert [row.id for row in await loom.asessions()]


def test_no_work_of_the_store_is_done_on_the_loop(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        heard: list[tuple[str, int]] = []
        model = ScriptedModel(*["They spoke of why."] * 40)
        async with await Loom.aopen(address, model=model) as loom:
            with watch_threads(loom, monkeypatch) as seen:
                await work(loom, heard)
        assert seen
        assert threading.get_ident() not in seen
        assert {"created", "appended", "prepared", "absorbed", "compressed"} <= {
            kind for kind, _ in heard
        }
        assert {thread for _, thread in heard} == {threading.get_ident()}, (
            "events are delivered on the loop"
        )

    asyncio.run(run())


def test_what_one_session_is_asked_at_once_it_does_one_after_the_other(address: str) -> None:
    async def run() -> None:
        async with await Loom.aopen(address) as loom:
            session = await loom.anew()
            await asyncio.gather(*(session.aappend(f"number {number}") for number in range(20)))
            said = {node.message.text for node in session.path if node.message}
            assert said == {f"number {number}" for number in range(20)}

    asyncio.run(run())


def test_two_objects_of_one_session_get_a_conflict_and_lose_nothing(address: str) -> None:
    async def run() -> None:
        async with await Loom.aopen(address) as loom:
            one = await loom.anew()
            other = await loom.asession(one.id)
            conflicts: list[Event] = []
            loom.listen(lambda event: conflicts.append(event) if event.kind == "conflict" else None)
            await one.aappend("first")
            with pytest.raises(Conflict):
                await other.aappend("second")
            assert [event.session for event in conflicts] == [one.id]
            await (await other.arefresh()).aappend("second")
            assert [node.message.text for node in other.path if node.message] == ["first", "second"]

    asyncio.run(run())


def test_what_is_written_is_written_also_where_nobody_waits_any_more(address: str) -> None:
    async def run() -> None:
        heard: list[str] = []
        async with await Loom.aopen(address) as loom:
            session = await loom.anew()
            loom.listen(lambda event: heard.append(event.kind))
            task = asyncio.create_task(session.aappend("hello"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await session.aappend("again")  # its turn comes after the first
            assert [node.message.text for node in session.path if node.message] == [
                "hello",
                "again",
            ]
            assert heard == ["appended", "appended"]

    asyncio.run(run())


def test_a_closed_store_says_so_to_those_who_await_it(address: str) -> None:
    async def run() -> None:
        loom = await Loom.aopen(address)
        session = await loom.anew()
        await loom.aclose()
        with pytest.raises(StoreError, match="closed"):
            await session.aappend("too late")

    asyncio.run(run())
