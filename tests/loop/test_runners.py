"""One run at a time works in a session, and each call gets its own result."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom import Loom, Message, Session, Text, ToolCall, ToolResult
from loom.conversation.message import Conversation
from loom.dialects.input import parse_answer
from loom.engine.running import RUN_SECONDS, Runner
from loom.errors import Conflict
from loom.loop import Function, Limits, Loop, SessionDesk
from loom.loop.loop import name_calls
from loom.loop.values import CallEnded, CallStarted, LoopEvent
from loom.providers.scripted import ScriptedModel, Wait
from loom.stores import Path as TreePath


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Loom.open(tmp_path / "loom.db") as loom:
        yield loom.new(model="gpt-4o", system="You count.")


def calls(*made: tuple[str, int]) -> Message:
    return Message(
        "assistant", tuple(ToolCall(name, "note", json.dumps({"x": x})) for name, x in made)
    )


def answered(session: Session) -> dict[int, str]:
    """What each call got, by its argument, as the next request says it."""
    sent = asyncio.run(session.prepare("More.", window=200_000)).openai()["messages"]
    asked = {
        call["id"]: json.loads(call["function"]["arguments"])["x"]
        for message in sent
        for call in message.get("tool_calls", ())
    }
    return {asked[m["tool_call_id"]]: m["content"] for m in sent if m["role"] == "tool"}


@pytest.mark.parametrize("ids", [("1", "1", "1_2"), ("", "", ""), ("", "call_2", "call_2")])
def test_calls_with_one_id_or_none_get_each_its_own_result(
    session: Session, ids: tuple[str, ...]
) -> None:
    ran: list[int] = []

    def note(x: int) -> str:
        ran.append(x)
        return f"noted {x}"

    model = ScriptedModel(calls(*zip(ids, range(3), strict=True)), "Done.")
    asyncio.run(Loop(SessionDesk(session, window=100_000), model, [note]).run("Go."))
    assert sorted(ran) == [0, 1, 2]
    assert answered(session) == {n: f"noted {n}" for n in range(3)}


def test_an_answer_with_good_ids_stays_as_it_is() -> None:
    answer = parse_answer(calls(("a", 1), ("b", 2)))
    assert name_calls(answer) is answer
    renamed = [call.id for call in name_calls(parse_answer(calls(("a", 1), ("a", 2)))).tool_calls]
    assert renamed == ["a", "a_2"]


@pytest.mark.parametrize("number", [200, pytest.param(1_000, marks=pytest.mark.long)])
def test_many_calls_in_one_answer_are_answered(session: Session, number: int) -> None:
    def note(x: int) -> str:
        return f"noted {x}"

    model = ScriptedModel(calls(*((f"c{n}", n) for n in range(number))), "Done.")
    asyncio.run(Loop(SessionDesk(session, window=100_000), model, [note]).run("Go."))
    found = [result for node in session.path[:] if node.message for result in node.message.results]
    assert len(found) == number
    assert not any(result.error for result in found)


def test_of_many_calls_each_message_is_read_a_few_times(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = TreePath.__getitem__

    def count(path: TreePath, place: Any) -> Any:
        found = whole(path, place)
        read.append(len(found) if isinstance(place, slice) else 1)
        return found

    made = calls(*((f"c{n}", n) for n in range(150)))
    session.append("Go.", made)
    monkeypatch.setattr(TreePath, "__getitem__", count)
    for call in made.calls:
        assert session.start_call(call)
        assert not session.start_call(call)
        session.append(Message("tool", (ToolResult(call.id, (Text("ok"),)),)))
    assert sum(read) < 10 * len(made.calls)


def test_a_second_run_is_refused_until_the_first_is_over(session: Session) -> None:
    async def both() -> None:
        desk, other = SessionDesk(session), SessionDesk(session)
        inner: list[BaseException] = []

        async def note(x: int) -> str:
            try:
                await Loop(other, ScriptedModel("No.")).run("Me, too.")
            except Conflict as error:
                inner.append(error)
            return "noted"

        await Loop(desk, ScriptedModel(calls(("a", 1)), "Done."), [note]).run("Go.")
        assert "another run works in session" in str(inner[0])
        outcome = await Loop(other, ScriptedModel("Yes.")).run("Now me.")
        assert outcome.text == "Yes."

    asyncio.run(both())


def test_a_run_whose_process_ended_or_is_silent_is_over(session: Session) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    session.claim_run("first")
    with pytest.raises(Conflict):
        session.claim_run("second")
    session.claim_run("first")  # it goes on
    runner = Runner("first", os.uname().nodename, os.getpid(), at=1_000_000)
    assert not runner.is_over(1_000_000 + RUN_SECONDS * 1000)
    assert runner.is_over(1_000_001 + RUN_SECONDS * 1000)
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it ended, and nobody waited for it
    assert replace(runner, pid=ended.pid).is_over(1_000_000)
    ended.wait()
    assert replace(runner, pid=ended.pid).is_over(1_000_000)
    assert not replace(runner, pid=ended.pid, host="elsewhere").is_over(1_000_000)
    session.release_run("second")  # not its own
    with pytest.raises(Conflict):
        session.claim_run("second")
    session.release_run("first")
    session.claim_run("second")


def test_a_run_that_lost_its_session_stores_nothing_more(session: Session) -> None:
    async def note(x: int) -> str:
        [runner] = session._place.state._all("runner").values()
        session.release_run(json.loads(runner)["owner"])
        session.claim_run("somebody else")
        return "noted"

    with pytest.raises(Conflict):
        asyncio.run(Loop(SessionDesk(session), ScriptedModel(calls(("a", 1))), [note]).run("Go."))
    assert [call.id for call in session.resume().pending] == ["a"]


def test_a_listener_that_raises_leaves_no_tool_at_work(session: Session) -> None:
    going, stored = threading.Event(), list[Any]()

    async def note(x: int) -> str:
        if x:
            await asyncio.sleep(0.2)
            stored.append(x)
        return "noted"

    def listen(event: LoopEvent) -> None:
        if isinstance(event, CallEnded):
            going.set()
            raise RuntimeError("the screen is gone")

    async def run() -> None:
        model = ScriptedModel(calls(("a", 0), ("b", 1)))
        with pytest.raises(RuntimeError, match="screen"):
            await Loop(SessionDesk(session), model, [note], listen=listen).run("Go.")
        await asyncio.sleep(0.4)

    asyncio.run(run())
    assert going.is_set()
    assert stored == []
    assert [call.id for call in session.resume().pending] == ["b"]


def test_a_run_that_cannot_begin_leaves_its_session_free(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(session, "aresume", fail)
        with pytest.raises(OSError, match="away"):
            asyncio.run(Loop(SessionDesk(session), ScriptedModel("Hi.")).run("Go."))
    assert asyncio.run(Loop(SessionDesk(session), ScriptedModel("Hi.")).run("Go.")).end == "done"


def test_one_loop_does_not_run_twice_at_once(session: Session) -> None:
    loop = Loop(SessionDesk(session), ScriptedModel(Wait(0.2, "First."), "Third."))

    async def work() -> None:
        first = asyncio.create_task(loop.run("One."))
        await asyncio.sleep(0.05)
        with pytest.raises(Conflict, match="wait until it ends"):
            await loop.run("Two.")
        assert (await first).text == "First."
        assert (await loop.run("Three.")).text == "Third."

    asyncio.run(work())


def test_a_run_that_is_cancelled_stores_what_finished_and_leaves_its_session_free(
    session: Session,
) -> None:
    ran: list[int] = []

    def note(x: int) -> str:
        ran.append(x)
        return f"noted {x}"

    async def work() -> None:
        # The session is slow, so that the run is cancelled while it stores an answer or a result.
        for slow in ("absorb", "append"):
            begun, kept = asyncio.Event(), getattr(session, f"a{slow}")

            async def store(*given: Any, begun: Any = begun, kept: Any = kept) -> Any:
                begun.set()
                await asyncio.sleep(0.05)
                return await kept(*given)

            setattr(session, f"a{slow}", store)
            model = ScriptedModel(calls(("a", 1)), "Done.")
            run = asyncio.create_task(Loop(SessionDesk(session), model, [note]).run("Go."))
            await begun.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            setattr(session, f"a{slow}", kept)
            outcome = await Loop(SessionDesk(session), ScriptedModel("Done."), [note]).run()
            assert outcome.end == "done"

    asyncio.run(work())
    assert ran == [1, 1]  # one call each time
    noted = [
        part.text
        for node in session.path
        if node.message
        for result in node.message.results
        for part in result.parts
        if isinstance(part, Text)
    ]
    assert noted == ["noted 1", "noted 1"]


def test_tools_are_declared_once_and_as_they_are_now(session: Session) -> None:
    def recall_page(page: int) -> str:
        """Mine."""
        return f"page {page}"

    def recall_name(name: str) -> str:
        """Mine, changed."""
        return name

    for run in (recall_page, recall_name):
        model = ScriptedModel("Hi.")
        function = Function(run, name="recall")
        asyncio.run(Loop(SessionDesk(session), model, [function]).run("Go."))
    names = [tool.name for tool in model.requests[0].tools]
    assert len(names) == len(set(names))
    [found] = [tool for tool in model.requests[0].tools if tool.name == "recall"]
    assert found.description == "Mine, changed."
    assert "name" in found.schema


@pytest.mark.parametrize("when", ["request", "answer", "tool", "own tool", "last answer"])
def test_what_others_append_during_a_run_is_kept_and_the_run_goes_on(
    tmp_path: Path, when: str
) -> None:
    with Loom.open(tmp_path / "loom.db") as loom, Loom.open(tmp_path / "loom.db") as elsewhere:
        session = loom.new(model="gpt-4o")

        def write(now: str) -> None:
            if when == now:
                elsewhere.session(session.id).append("And the other one.")

        def note(x: int) -> str:
            write("tool")
            return f"noted {x}"

        def ask(request: Conversation) -> Message:
            write("answer")
            search = ToolCall("s", "search_context", '{"query": "jars"}')
            return Message("assistant", (*calls(("a", 1)).parts, search))

        def end(request: Conversation) -> str:
            write("last answer")
            return "Done."

        def listen(event: LoopEvent) -> None:
            if isinstance(event, CallStarted) and event.call.id == "s":
                write("own tool")
            if isinstance(event, CallEnded) and event.call.id == "a":
                write("request")

        model = ScriptedModel(ask, end)
        loop = Loop(SessionDesk(session), model, [note], listen=listen)
        assert asyncio.run(loop.run("Go.")).text == "Done."
        stored = [node.message for node in elsewhere.session(session.id).path if node.message]
        assert [m.text for m in stored if m.role == "user"] == ["Go.", "And the other one."]
        assert sorted(r.call_id for m in stored for r in m.results) == ["a", "s"]
        seen = [m.text for m in model.requests[1].messages if m.role == "user"]
        assert ("And the other one." in seen) == (when != "last answer")


def test_a_run_whose_session_was_moved_elsewhere_ends(tmp_path: Path) -> None:
    with Loom.open(tmp_path / "loom.db") as loom, Loom.open(tmp_path / "loom.db") as elsewhere:
        session = loom.new(model="gpt-4o")
        [first] = session.append("First.")
        session.append({"role": "assistant", "content": "Yes."})

        def note(x: int) -> str:
            elsewhere.session(session.id).switch(first.id)
            return "noted"

        loop = Loop(SessionDesk(session), ScriptedModel(calls(("a", 1)), "Done."), [note])
        with pytest.raises(Conflict, match="changed by somebody else"):
            asyncio.run(loop.run("Go."))
        assert [node.message.text for node in elsewhere.session(session.id).path] == ["First."]  # type: ignore[union-attr]


def test_one_loop_runs_on_several_event_loops(session: Session) -> None:
    def note(x: int) -> str:
        return f"noted {x}"

    many = [(str(n), n) for n in range(6)]
    model = ScriptedModel(calls(*many), "One.", calls(*many), "Two.")
    loop = Loop(SessionDesk(session), model, [note], limits=Limits(tools_at_once=2))
    assert [asyncio.run(loop.run("Go.")).text for _ in range(2)] == ["One.", "Two."]
