"""A loop on a task: what is stored below the task, and how a run goes on after a crash."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from loom import ChoiceError, Media, Message, Text, ToolCall
from loom.conversation.message import Conversation
from loom.dialects.input import Answer
from loom.errors import Conflict
from loom.loop import Loop, LoopEvent, LoopOutcome, TaskDesk
from loom.loop.values import AnswerTaken, CallStarted
from loom.memory import LoomMemory
from loom.memory.task_context import MemoryContextSource, TaskContextManager
from loom.memory.tokenizer import TokenCounter
from loom.providers.scripted import ScriptedModel, TooLong
from loom.providers.scripted.steps import count_request
from loom.runtime import Task
from loom.runtime.messages import TOOL_RESULT

PICTURE = Media("image", "data", "iVBORw0KGgo=", "image/png")


@pytest.fixture
def memory() -> Iterator[LoomMemory]:
    found = LoomMemory()
    yield found
    found.close()


@pytest.fixture
def task() -> Task:
    return Task(action="execute", parameters={"content": "Count all jars."}, session_id="jars")


def call(name: str, arguments: Any, id: str = "1") -> ToolCall:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id, name, written)


def say(*calls: ToolCall) -> Message:
    return Message("assistant", calls)


def work(
    memory: LoomMemory,
    task: Task,
    model: ScriptedModel,
    *functions: Any,
    request: Any = None,
    max_tokens: int = 4000,
    **options: Any,
) -> LoopOutcome:
    manager = TaskContextManager(
        token_counter=TokenCounter("gpt-4o"),
        sources=[MemoryContextSource(memory=memory)],
        max_tokens=max_tokens,
        system_prompt="You count.",
    )
    loop = Loop(TaskDesk(manager, memory, task), model, functions, **options)
    return asyncio.run(loop.run(request))


def answers(request: Conversation) -> dict[str, str]:
    return {
        result.call_id: "".join(part.text for part in result.parts if isinstance(part, Text))
        for message in request.messages
        for result in message.results
    }


def words(request: Conversation) -> str:
    return "\n".join(message.text for message in request.messages)


def count(jar: int) -> str:
    """Count what is in a jar."""
    return f"jar {jar} has {jar * 7} beans"


def test_arguments_that_are_not_json_are_answered(memory: LoomMemory, task: Task) -> None:
    model = ScriptedModel(
        say(call("count", {"jar": 1}), call("count", '{"jar', "2"), call("count", "[3]", "3")),
        "Done.",
    )
    assert work(memory, task, model, count).text == "Done."
    found = answers(model.requests[1])
    assert found["1"] == "jar 1 has 7 beans"
    assert "that is not JSON" in found["2"]
    assert "it takes a JSON object" in found["3"]


def crash_at(kind: type) -> Any:
    def listen(event: LoopEvent) -> None:
        if isinstance(event, kind):
            raise RuntimeError("the process ends here")

    return listen


def test_a_call_that_did_not_run_runs_after_a_crash(memory: LoomMemory, task: Task) -> None:
    ran: list[int] = []

    def weigh(jar: int) -> int:
        ran.append(jar)
        return jar

    model = ScriptedModel(say(call("weigh", {"jar": 4})))
    with pytest.raises(RuntimeError):
        work(memory, task, model, weigh, listen=crash_at(AnswerTaken))
    assert ran == []
    model = ScriptedModel("Done.")
    assert work(memory, task, model, weigh).text == "Done."
    assert ran == [4]
    assert answers(model.requests[0]) == {"1": "4"}


def test_a_finished_tool_does_not_run_again_after_a_crash(memory: LoomMemory, task: Task) -> None:
    ran: list[int] = []

    def weigh(jar: int) -> int:
        ran.append(jar)
        if jar == 5:
            raise SystemExit
        return jar

    def die(event: LoopEvent) -> None:
        if isinstance(event, CallStarted) and event.call.id == "3":
            raise RuntimeError("the process ends here")

    model = ScriptedModel(
        say(call("weigh", {"jar": 4})), say(call("weigh", {"jar": 6}, "2")), say(call("x", {}, "3"))
    )
    with pytest.raises(RuntimeError):
        work(memory, task, model, weigh, listen=die)
    model = ScriptedModel("Done.")
    work(memory, task, model, weigh)
    assert ran == [4, 6]
    assert answers(model.requests[0]) | {"3": ""} == {"1": "4", "2": "6", "3": ""}


def test_a_tool_that_was_running_is_not_repeated(memory: LoomMemory, task: Task) -> None:
    memory.add_task(task)
    memory.add_task(
        Task(
            action="node.tool_call",
            parameters={"tool_name": "count", "tool_call_id": "9", "arguments": {"jar": 9}},
            session_id="jars",
            parent_task_id=task.task_id,
            status="running",
        )
    )
    model = ScriptedModel("Done.")
    work(memory, task, model, count)
    assert "nobody knows whether it finished" in answers(model.requests[0])["9"]


def test_a_request_is_stored_and_stays_with_the_task(memory: LoomMemory, task: Task) -> None:
    def fill(jar: int) -> str:
        return f"jar {jar}: " + "bean " * 150

    many = [say(call("fill", {"jar": n}, f"c{n}")) for n in range(12)]
    model = ScriptedModel(*many, "Done.")
    work(memory, task, model, fill, request="Only the red ones, please.", max_tokens=2600)
    for request in model.requests:
        assert "Count all jars." in words(request)
        assert "Only the red ones, please." in words(request)
    assert "messages left out" in words(model.requests[-1])


def test_a_later_request_follows_what_was_answered(memory: LoomMemory, task: Task) -> None:
    work(memory, task, ScriptedModel("There are 12 jars."))
    model = ScriptedModel(OSError("no network"), "Twelve.")
    with pytest.raises(OSError, match="no network"):
        work(memory, task, model, request="In words, please.")
    assert work(memory, task, model, request="In words, please.").text == "Twelve."
    for request in model.requests:
        said = [(message.role, message.text) for message in request.messages]
        assert said == [
            ("user", "Count all jars."),
            ("assistant", "There are 12 jars."),
            ("user", "In words, please."),
        ]


def test_half_an_answer_is_continued(memory: LoomMemory, task: Task) -> None:
    half = Answer(messages=(Message("assistant", (Text("There are"),)),), stop="pause")
    model = ScriptedModel(half, "12 jars.")
    work(memory, task, model)
    assert model.requests[1].messages[-1].text == "There are"


def test_a_request_is_stored_once_if_the_provider_failed(memory: LoomMemory, task: Task) -> None:
    for step in (OSError("no network"), "Done."):
        model = ScriptedModel(step)
        try:
            work(memory, task, model, request="Quick!")
        except OSError:
            continue
    assert [each.content for each in memory.get_l1_tasks(9, "jars")].count("Quick!") == 1
    with pytest.raises(ChoiceError, match="message of the user"):
        work(memory, task, ScriptedModel(), request=Message("assistant", (Text("I say."),)))


def test_an_overflow_is_answered_by_a_smaller_request(memory: LoomMemory, task: Task) -> None:
    def fill(jar: int) -> str:
        return f"jar {jar}: " + "bean " * 300

    steps = [say(call("fill", {"jar": n}, f"c{n}")) for n in range(3)]
    model = ScriptedModel(*steps, TooLong(2000, 3400), TooLong(1000, 2500), "Done.")
    assert work(memory, task, model, fill).text == "Done."
    sizes = list(map(count_request, model.requests))
    assert sizes[3] > sizes[4] > sizes[5]
    assert len(model.requests[5].tools) < len(model.requests[4].tools)
    assert all("Count all jars." in words(each) for each in model.requests)


def test_what_a_request_left_out_can_be_recalled(memory: LoomMemory, task: Task) -> None:
    def fill(jar: int) -> str:
        return f"jar {jar} UNIQUE{jar}: " + "bean " * 150

    def recall(request: Conversation) -> Message:
        [handle, *_] = re.findall(r"recall (~\w+)", words(request))
        return say(call("recall", {"handle": handle}, "back"))

    many = [say(call("fill", {"jar": n}, f"c{n}")) for n in range(10)]
    model = ScriptedModel(*many, recall, "Done.")
    work(memory, task, model, fill, max_tokens=2600)
    assert "UNIQUE0" in answers(model.requests[-1])["back"]


def test_errors_of_own_tools_are_results(memory: LoomMemory, task: Task) -> None:
    model = ScriptedModel(
        say(
            call("recall", {"handle": "~aaaaaaaaaaaa"}),
            call("query_memory", "{", "2"),
            call("query_l1_memory", {"limit": 1}, "3"),
        ),
        "Done.",
    )
    work(memory, task, model)
    found = answers(model.requests[1])
    assert "nothing was left out" in found["1"]
    assert "that is not JSON" in found["2"]
    assert isinstance(json.loads(found["3"]), list)


def test_images_of_results_and_requests_reach_the_model(memory: LoomMemory, task: Task) -> None:
    def draw() -> list[Text | Media]:
        return [Text("a jar"), PICTURE]

    model = ScriptedModel(say(call("draw", {})), "Done.")
    request = Message("user", (Text("Like this:"), PICTURE))
    work(memory, task, model, draw, request=request, max_tokens=20_000)
    [shown] = [result for message in model.requests[1].messages for result in message.results]
    assert PICTURE in shown.parts
    assert any(PICTURE in message.parts for message in model.requests[0].messages)


def test_a_cancelled_task_ends_its_run(memory: LoomMemory, task: Task) -> None:
    def cancel() -> str:
        memory.loom.update_task(task.task_id, session_id="jars", status="cancelled")
        return "cancelled"

    model = ScriptedModel(say(call("cancel", {})), "Never said.")
    assert work(memory, task, model, cancel).end == "interrupted"
    assert work(memory, task, ScriptedModel("Done.")).end == "done"


def make_desk(memory: LoomMemory, task: Task) -> TaskDesk:
    manager = TaskContextManager(
        token_counter=TokenCounter("gpt-4o"), sources=[MemoryContextSource(memory=memory)]
    )
    return TaskDesk(manager, memory, task)


def test_a_second_run_on_a_task_is_refused_until_the_first_is_over(
    memory: LoomMemory, task: Task
) -> None:
    desk, found = make_desk(memory, task), []
    sibling = Task(action="execute", parameters={"content": "Wash."}, session_id="jars")

    async def count() -> str:
        for other in (make_desk(memory, task), desk):
            with pytest.raises(Conflict, match="works on task") as refused:
                await Loop(other, ScriptedModel()).run()
            found.append(refused.value.session)
        washed = await Loop(make_desk(memory, sibling), ScriptedModel("Washed.")).run()
        return washed.text

    async def work_twice() -> list[str]:
        model = ScriptedModel(say(call("count", {})), "There are 3.")
        first = await Loop(desk, model, [count]).run()
        assert answers(model.requests[1]) == {"1": "Washed."}
        again = await Loop(make_desk(memory, task), ScriptedModel("Still 3.")).run("And now?")
        return [first.text, again.text]

    assert asyncio.run(work_twice()) == ["There are 3.", "Still 3."]
    assert len(found) == 2


def test_a_run_that_lost_its_task_stores_nothing_more(memory: LoomMemory, task: Task) -> None:
    async def count() -> str:
        session = memory.find_session("jars")
        assert session is not None
        [runner] = session._place.state._all("runner").values()
        session.release_run(json.loads(runner)["owner"], task=task.task_id)
        session.claim_run("somebody else", task=task.task_id)
        return "3"

    with pytest.raises(Conflict, match=f"on task {task.task_id}"):
        work(memory, task, ScriptedModel(say(call("count", {}))), count)
    assert not [each for each in memory.get_l1_tasks(99, "jars") if each.action == TOOL_RESULT]
