"""The loop of an agent: what it sends, what it runs, and how it ends, whatever goes wrong."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import (
    Agent,
    ChoiceError,
    Loom,
    LoomTree,
    Media,
    Message,
    Session,
    Text,
    ToolCall,
    ToolResult,
    dialect,
)
from loom.conversation.message import Conversation
from loom.dialects.input import Answer
from loom.errors import BrokenAnswer, RequestTooLong
from loom.loop import Function, Limits, Loop, LoopEvent, SessionDesk, TaskDesk, TreeDesk
from loom.loop.values import RequestMade
from loom.memory import LoomMemory
from loom.memory.task_context import MemoryContextSource, TaskContextManager
from loom.memory.tokenizer import TokenCounter
from loom.providers.scripted import BreakOff, ScriptedModel, TooLong
from loom.providers.scripted.steps import count_request
from loom.runtime import Task
from tests.shared import examples


def say(text: str, *calls: tuple[str, dict[str, Any]], prefix: str = "c") -> Message:
    made = [
        ToolCall(f"{prefix}{n}", name, json.dumps(arguments))
        for n, (name, arguments) in enumerate(calls)
    ]
    return Message("assistant", (*([Text(text)] if text else []), *made))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with Loom.open(tmp_path / "loom.db") as loom:
        yield loom.new(model="gpt-4o", system="You count.")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def results(session: Session) -> list[ToolResult]:
    return [result for node in session.path[:] if node.message for result in node.message.results]


def texts(session: Session) -> list[str]:
    return [part.text for result in results(session) for part in result.parts]


def run(session: Session, model: Any, *functions: Any, request: Any = "Go.", **more: Any):
    loop = Loop(SessionDesk(session, window=8000), model, functions, **more)
    return asyncio.run(loop.run(request))


def test_it_works_until_nothing_is_called(session: Session) -> None:
    with ScriptedModel(
        say("Both at once.", ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})),
        "3 and 7.",
    ) as model:
        outcome = run(session, model, add)
    assert (outcome.text, outcome.end, outcome.spent.steps) == ("3 and 7.", "done", 2)
    assert sorted(texts(session)) == ["3", "7"]
    assert {tool.name for tool in model.requests[0].tools} >= {"add", "recall", "pin"}
    assert outcome.spent.prompt == session.row.usage.prompt > 0


def test_each_call_is_answered_by_its_owner(session: Session) -> None:
    plan = {"progress": "half", "plan": None, "scratchpad": None}
    with ScriptedModel(
        say("", ("set_working_state", plan), ("add", {"a": 1, "b": 1}), ("fly", {})), "Done."
    ) as model:
        run(session, model, add)
    assert session.working.dashboard.goal_progress == "half"
    found = {result.call_id: result for result in results(session)}
    assert [found[name].error for name in ("c0", "c1", "c2")] == [False, False, True]
    assert "there is no tool 'fly'" in found["c2"].parts[0].text


def test_tools_run_side_by_side(session: Session) -> None:
    meeting = threading.Barrier(3, timeout=10)

    def meet() -> str:
        meeting.wait()
        return "met"

    with ScriptedModel(say("", ("meet", {}), ("meet", {}), ("meet", {})), "Done.") as model:
        run(session, model, meet)
    assert texts(session) == ["met"] * 3


def test_a_tool_that_hangs_raises_or_prints_without_end_is_a_result(session: Session) -> None:
    def hang() -> None:
        time.sleep(60)

    def fail() -> None:
        raise OSError("the disk is gone")

    def flood() -> str:
        return "x" * 5_000_000

    with ScriptedModel(say("", ("hang", {}), ("fail", {}), ("flood", {})), "Done.") as model:
        outcome = run(session, model, hang, fail, flood, limits=Limits(tool_seconds=0.3))
    assert outcome.end == "done"
    found = {result.call_id: result for result in results(session)}
    assert "did not end within 0.3 seconds" in found["c0"].parts[0].text
    assert found["c1"].parts[0].text == "OSError: the disk is gone"
    assert [found[name].error for name in ("c0", "c1", "c2")] == [True, True, False]
    assert len(found["c2"].parts[0].text) < 500_000


@pytest.mark.parametrize("answer", [False, "not today", True])
def test_a_person_decides_what_runs(session: Session, answer: bool | str) -> None:
    asked: list[str] = []

    async def approve(call: ToolCall) -> bool | str:
        asked.append(call.name)
        return answer

    with ScriptedModel(say("", ("add", {"a": 1, "b": 2})), "Done.") as model:
        run(session, model, add, approve=approve)
    assert asked == ["add"]
    expected = {
        False: "refused by the user",
        "not today": "refused by the user: not today",
        True: "3",
    }
    assert texts(session) == [expected[answer]]


def test_rules_of_the_project_are_obeyed_before_anybody_is_asked(session: Session) -> None:
    def write(path: str) -> str:
        return f"wrote {path}"

    def permit(operation: str, target: str) -> str:
        return f"{operation} {target} is denied" if target.endswith(".env") else ""

    function = Function(write, operation="write", target=lambda given: given["path"])
    with ScriptedModel(
        say("", ("write", {"path": "a.env"}), ("write", {"path": "a.py"})), "Done."
    ) as model:
        run(session, model, function, permit=permit, approve=lambda call: True)
    found = {result.call_id: result.parts[0].text for result in results(session)}
    assert found == {
        "c0": "refused by the rules of the project: write a.env is denied",
        "c1": "wrote a.py",
    }


@pytest.mark.parametrize(
    ("limits", "end", "steps"),
    [
        (Limits(steps=3), "steps", 3),
        (Limits(tokens=1), "tokens", 1),
        (Limits(cost=0.0), "cost", 0),
    ],
)
def test_a_run_ends_at_its_limits(session: Session, limits: Limits, end: str, steps: int) -> None:
    model = ScriptedModel.always(lambda request: say("More.", ("add", {"a": 1, "b": 1})))
    outcome = run(session, model, add, limits=limits)
    assert (outcome.end, outcome.spent.steps) == (end, steps)
    assert not session.resume().pending


def test_somebody_can_interrupt_a_run_from_outside(session: Session) -> None:
    def look(request: Conversation) -> Message:
        session.keep_working(session.working.interrupt())
        return say("", ("add", {"a": 1, "b": 1}))

    outcome = run(session, ScriptedModel(look), add)
    assert outcome.end == "interrupted"
    assert texts(session) == ["2"]  # the step that it was at is finished
    assert session.working.dashboard.last_hb_ts > 0


def test_a_request_that_is_refused_is_followed_by_a_shorter_one(session: Session) -> None:
    for n in range(60):
        session.append({"role": "user", "content": f"{n}: " + "word " * 200})
        session.append({"role": "assistant", "content": "yes"})
    with ScriptedModel(TooLong(limit=4000), TooLong(limit=2000), "Fine.") as model:
        outcome = run(session, model, request="The goal is tea.")
    assert outcome.end == "done"
    sizes = [len(request.messages) for request in model.requests]
    assert sizes[0] > sizes[1] > sizes[2]
    assert all(request.messages[-1].text == "The goal is tea." for request in model.requests)
    model = ScriptedModel.always(TooLong(limit=10))
    with pytest.raises(RequestTooLong):
        run(session, model, request="Again.", limits=Limits(overflows=0))


def test_an_overflow_in_the_words_of_an_sdk_is_one_too(session: Session) -> None:
    said = "Error code: 400 - maximum context length is 4000 tokens. However, you requested 9000"
    for n in range(40):
        session.append({"role": "user", "content": f"{n}: " + "word " * 100})
        session.append({"role": "assistant", "content": "yes"})
    with ScriptedModel(RuntimeError(f"{said} tokens"), "Fine.") as model:
        assert run(session, model).text == "Fine."
    assert count_request(model.requests[1]) < 4000 < count_request(model.requests[0])
    with pytest.raises(RuntimeError, match="odd"):
        run(session, ScriptedModel(RuntimeError("something odd")))


def test_an_answer_that_breaks_off_is_asked_for_again(session: Session) -> None:
    events: list[LoopEvent] = []
    with ScriptedModel(BreakOff("Half of it"), "All of it.") as model:
        outcome = run(session, model, listen=events.append)
    assert outcome.text == "All of it."
    assert [node.message.text for node in session.path[:] if node.message] == ["Go.", "All of it."]
    with pytest.raises(BrokenAnswer):
        run(
            session,
            ScriptedModel(BreakOff("Half")),
            limits=Limits(failures=0),
            listen=events.append,
        )
    assert [node.message.text for node in session.path[:] if node.message][-1] == "Go."


def test_calls_of_a_run_that_was_cut_short_are_answered_first(session: Session) -> None:
    """The one that was started is not run again: nobody knows whether it finished."""
    ran: list[str] = []

    def pay(amount: int) -> str:
        ran.append(f"pay {amount}")
        return "paid"

    def look() -> str:
        ran.append("look")
        return "seen"

    def wait() -> str:
        ran.append("wait")
        return "waited"

    session.append("Pay and look.")
    session.append(say("", ("pay", {"amount": 3}), ("look", {}), ("wait", {})))
    pay_call, look_call, _ = session.resume().pending
    assert session.start_call(pay_call)
    assert session.start_call(look_call)
    assert not session.start_call(pay_call)
    with ScriptedModel("Done.") as model:
        run(session, model, pay, Function(look, repeatable=True), wait, request=None)
    assert sorted(ran) == ["look", "wait"]
    found = {result.call_id: result.parts[0].text for result in results(session)}
    assert found["c1"] == "seen"
    assert found["c2"] == "waited"
    assert "nobody knows whether it finished" in found["c0"]


def test_it_works_in_a_tree_with_an_agent_that_knows_the_loom(tmp_path: Path) -> None:
    with Loom.open(tmp_path / "loom.db") as loom:
        loom.keep_agent(Agent(name="weaver", permissions=("loom_aware",)))
        tree = loom.new_tree("Tea")
        loom.keep_agent(Agent(name="ada", kind="human"))
        tree.say("Which tea?", agent="ada")
        with ScriptedModel(
            "→ help", say("Green.", ("add", {"a": 1, "b": 1})), "Green tea."
        ) as model:
            outcome = asyncio.run(Loop(TreeDesk(tree, "weaver"), model, [add]).run())
        assert outcome.text == "Green tea."
        assert len(model.requests) == 3


def test_it_works_on_a_task() -> None:
    memory = LoomMemory()
    manager = TaskContextManager(
        token_counter=TokenCounter("gpt-4o"),
        sources=[MemoryContextSource(memory=memory)],
        max_tokens=4000,
        system_prompt="You count.",
    )
    task = Task(action="execute", parameters={"content": "Add 1 and 2."}, session_id="sums")
    with ScriptedModel(say("I add.", ("add", {"a": 1, "b": 2})), "It is 3.") as model:
        outcome = asyncio.run(Loop(TaskDesk(manager, memory, task), model, [add]).run())
    assert outcome.text == "It is 3."
    [found] = memory.get_tasks([task.task_id], session_id="sums")
    assert (found.status, found.result) == ("completed", "It is 3.")
    assert "3" in [
        part.text
        for message in model.requests[1].messages
        for result in message.results
        for part in result.parts
    ]
    memory.close()


def test_a_long_run_in_a_small_window_keeps_its_goal(session: Session) -> None:
    """Each request is valid and within the window, and has the goal; the provider refuses one now
    and then.
    """
    steps = examples(300)
    goal = "Count the grains in every jar, and tell me the sum at the end."

    def weigh(jar: int) -> str:
        """Weigh a jar."""
        return f"jar {jar}: " + " ".join(str(jar * n) for n in range(150))

    def play(request: Conversation) -> Any:
        number = len(model.requests)
        limit = 6500 - 3 * number  # a provider that takes less and less
        if count_request(request) > limit:
            return TooLong(limit=limit)
        if number >= steps:
            return "The sum is told."
        return say(f"Jar {number}.", ("weigh", {"jar": number}), prefix=f"j{number}_")

    model = ScriptedModel.always(play)
    sizes: list[tuple[int, int]] = []

    def listen(event: LoopEvent) -> None:
        if isinstance(event, RequestMade):
            report = event.context.report
            sizes.append((report.input_tokens, report.window))
            problems = dialect("openai").check(event.context.openai())
            assert not [problem for problem in problems if problem.level == "error"]

    picture = Media("image", "data", "iVBORw0KGgo=", "image/png")
    asked = Message("user", (Text(goal), picture))
    outcome = run(session, model, weigh, request=asked, limits=Limits(steps=None), listen=listen)
    assert outcome.end == "done"
    for request in model.requests:
        [message] = [each for each in request.messages if goal in each.text]
        assert picture in message.parts
    assert all(used <= window for used, window in sizes)
    assert len(model.requests) > outcome.spent.steps  # some were refused
    assert len(results(session)) == outcome.spent.steps - 1


def test_an_agent_lets_the_model_continue(tmp_path: Path) -> None:
    """Each continuation is a branch; a continuation that asks for more is not obeyed."""
    branches = ScriptedModel("First.", "Second.\n→ continue", "Third.")
    with Loom.open(tmp_path / "loom.db", model=branches) as loom:
        granted = ("loom_aware", "loom_generate")
        loom.keep_agent(Agent(name="weaver", permissions=granted))
        loom.keep_agent(Agent(name="ada", kind="human"))
        tree = loom.new_tree("Tea")
        tree.say("Which tea?", agent="ada")
        with ScriptedModel("Let me see.\n→ continue n:3", "I take the second.") as model:
            outcome = asyncio.run(Loop(TreeDesk(tree, "weaver"), model).run())
        assert outcome.text == "I take the second."
        [first] = tree.children(tree.session("ada").path[0].id)
        continued = [node.message for node in tree.children(first.id) if node.message]
        assert [message.text for message in continued][:3] == ["First.", "Second.", "Third."]
        assert {message.role for message in continued[:3]} == {"assistant"}
        assert "3 continuations of" in json.dumps(
            [message.text for message in model.requests[1].messages]
        )
        branches.check_finished()


def open_tea_tree(loom: Loom) -> LoomTree:
    loom.keep_agent(Agent(name="weaver", permissions=("loom_aware", "loom_generate")))
    loom.keep_agent(Agent(name="ada", kind="human"))
    tree = loom.new_tree("Tea")
    tree.say("Which tea?", agent="ada")
    return tree


def test_continuations_count_in_the_run_that_asks_for_them(tmp_path: Path) -> None:
    branches = ScriptedModel("First.", "Second.", "Third.")
    with Loom.open(tmp_path / "loom.db", model=branches) as loom:
        tree = open_tea_tree(loom)
        model = ScriptedModel("→ continue n:3", "I take the second.")
        outcome = asyncio.run(Loop(TreeDesk(tree, "weaver"), model).run())
    assert (outcome.spent.steps, outcome.children.steps) == (2, 3)
    assert outcome.children.tokens > 0
    assert outcome.spent.tokens > outcome.children.tokens
    assert outcome.spent.unpriced == 5


def test_continuations_end_at_the_limits_of_the_run(tmp_path: Path) -> None:
    branches = ScriptedModel("First.", "Second.", "Third.")
    with Loom.open(tmp_path / "loom.db", model=branches) as loom:
        tree = open_tea_tree(loom)
        one = asyncio.run(Loop(TreeDesk(tree, "weaver"), ScriptedModel("Green.")).run())
        limits = Limits(tokens=one.spent.tokens * 3 // 2)  # reached by the first continuation
        model = ScriptedModel("→ continue n:3")
        outcome = asyncio.run(Loop(TreeDesk(tree, "weaver"), model, limits=limits).run())
        assert outcome.end == "tokens"
        assert outcome.children.steps == 1
        assert len(branches.requests) == 1


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (["First.", RuntimeError("the key is not valid")], "the key is not valid"),
        (["First.", Answer(messages=()), Answer(messages=())], "the model said nothing"),
    ],
)
def test_an_agent_is_told_which_continuations_failed(
    tmp_path: Path, script: list[Any], why: str
) -> None:
    with Loom.open(tmp_path / "loom.db", model=ScriptedModel(*script)) as loom:
        tree = open_tea_tree(loom)
        model = ScriptedModel("→ continue n:3", "Then I stay with the first.", "Bye.")
        asyncio.run(Loop(TreeDesk(tree, "weaver"), model).run())
        asyncio.run(Loop(TreeDesk(tree, "weaver"), model).run())
    second = model.requests[1].messages[-1].text
    assert "MODEL_ERROR: 1 of 3 continuations of" in second
    assert why in second
    assert "MODEL_ERROR" not in model.requests[2].messages[-1].text  # shown once


def test_continuations_that_are_not_written_are_refused(tmp_path: Path) -> None:
    branches = ScriptedModel("First.", "Second.")
    with Loom.open(tmp_path / "loom.db", model=branches) as loom:
        loom.keep_agent(Agent(name="weaver", permissions=("loom_aware", "loom_generate")))
        loom.keep_agent(Agent(name="ada", kind="human"))
        tree = loom.new_tree("Tea")
        tree.say("Which tea?", agent="ada")
        model = ScriptedModel("→ continue\n→ continue\n→ continue", "→ continue", "Green.")
        asyncio.run(Loop(TreeDesk(tree, "weaver"), model).run())
    seen = [request.messages[-1].text for request in model.requests[1:]]
    assert [text.count("1 continuation of") for text in seen] == [1, 1]
    assert [text.count("still busy with your last continuations") for text in seen] == [2, 0]
    branches.check_finished()


def test_without_a_model_or_a_loop_nothing_continues(tmp_path: Path) -> None:
    with Loom.open(tmp_path / "loom.db", model=ScriptedModel()) as loom:
        loom.keep_agent(Agent(name="weaver", permissions=("loom_aware", "loom_generate")))
        tree = loom.new_tree("Tea")
        tree.say("Which tea?", agent="weaver", role="user")
        [result] = tree.absorb(Message("assistant", (Text("→ continue"),)), agent="weaver").results
        assert result.failed
        assert "MODEL_ERROR: there is no model that could continue" in result.text
        with pytest.raises(ChoiceError, match="times must be from 1 to 10"):
            asyncio.run(tree.continue_at(times=11))


@pytest.mark.parametrize(
    ("said", "runs"), [(True, True), ("", True), (False, False), (None, False), ("no", False)]
)
@pytest.mark.parametrize("waits", [False, True])
def test_rules_that_answer_with_a_bool_are_understood(
    session: Session, said: Any, runs: bool, waits: bool
) -> None:
    async def permit_later(operation: str, target: str) -> Any:
        return said

    function = Function(add, operation="add")
    permit = permit_later if waits else (lambda operation, target: said)
    model = ScriptedModel(say("", ("add", {"a": 1, "b": 2})), "Done.")
    run(session, model, function, permit=permit)
    assert (texts(session) == ["3"]) == runs


@pytest.mark.parametrize(
    "wrong",
    [{"cost": float("nan")}, {"steps": 1.5}, {"steps": True}, {"tool_seconds": float("nan")}],
)
def test_limits_that_would_never_hold_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ChoiceError):
        Limits(**wrong)
