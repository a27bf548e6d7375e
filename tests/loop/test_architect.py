"""One model plans with the whole context, another carries out each step with a small one."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom import ChoiceError, Loom, Message, Text, ToolCall, dialect
from loom.conversation.message import Conversation
from loom.dialects.input import Answer
from loom.loop import Architect, PlanStep, WorkPlan
from loom.loop.plan import read_plan
from loom.providers.scripted import BreakOff, Refuse, ScriptedModel

STEPS = [
    {"file": "a.py", "action": "create", "description": "Write a.", "details": "x = 1"},
    {"file": "b.py", "action": "edit", "description": "Change b.", "details": ""},
    {"file": "c.py", "action": "delete", "description": "Remove c."},
]
PLAN = json.dumps({"summary": "Three files.", "plan": STEPS})


@pytest.fixture
def loom(tmp_path: Path) -> Iterator[Loom]:
    with Loom.open(tmp_path / "loom.db") as opened:
        yield opened


@pytest.mark.parametrize(
    "text",
    [
        PLAN,
        f"Here is the plan.\n```json\n{PLAN}\n```\nShall I?",
        f"```\n{PLAN}\n```",
        f"I think {PLAN} is right.",
        PLAN.replace('"x = 1"}', '"x = 1",}').replace("}]}", "},]}"),
    ],
)
def test_a_plan_is_read_however_it_is_wrapped(text: str) -> None:
    assert read_plan(text).plan[0] == PlanStep("a.py", "create", "Write a.", "x = 1")


def test_a_summary_may_be_missing_and_a_plan_may_not() -> None:
    step = {"file": "a.py", "action": "edit", "description": "x"}
    assert read_plan(json.dumps({"plan": [step]})) == WorkPlan("", (PlanStep("a.py", "edit", "x"),))
    for wrong in ({}, [], {"plan": None}, {"plan": [{**step, "action": "burn"}]}, [1]):
        with pytest.raises(ChoiceError, match="the plan cannot be read"):
            read_plan(json.dumps(wrong))


def test_of_several_plans_the_last_one_with_steps_is_meant() -> None:
    example = (
        '{"summary": "Like this", "plan": [{"file": "x", "action": "edit", "description": ""}]}'
    )
    empty = '{"summary": "", "plan": []}'
    for text in (
        f"A plan looks like {example}. Mine is {PLAN}.",
        f"```json\n{example}\n```\nAnd now mine:\n```json\n{PLAN}\n```",
        f"The form is {example}.\n```json\n{PLAN}\n```\nNot {example}.",
        f"{example.replace('}]}', '},]}')}\n{PLAN.replace('}]}', '},]}')}",
        f"{PLAN} Then {empty}",
        f"{empty} {PLAN}",
    ):
        assert len(read_plan(text).plan) == 3, text
    cut = read_plan(f"{example}\n{PLAN[:-30]}")
    assert (cut.summary, cut.is_cut, len(cut.plan)) == ("Three files.", True, 2)


def test_a_plan_without_steps_says_that_there_is_nothing_to_do(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    architect = ScriptedModel('{"summary": "The cache is there.", "plan": []}')
    outcome = asyncio.run(Architect(loom, architect, ScriptedModel()).run(session, "Add a cache."))
    assert outcome.steps == ()
    assert outcome.report.startswith("The cache is there. There is nothing to do.\nTokens: ")
    assert len(architect.requests) == 1
    for broken in ('{"summary": "x", "plan": [', '{"plan": [{"file": "a.py", "act'):
        with pytest.raises(ChoiceError, match="the plan cannot be read"):
            read_plan(broken)


@given(st.text())
def test_no_text_makes_more_than_a_typed_error(text: str) -> None:
    for wrapped in (text, f"{{{text}}}", f"```json\n{text}```"):
        with pytest.raises(ChoiceError):
            read_plan(wrapped)


def test_each_step_is_carried_out_in_a_small_context(loom: Loom) -> None:
    files: dict[str, str] = {}

    def write(path: str, text: str) -> str:
        files[path] = text
        return "written"

    def edit(request: Conversation) -> Message | str:
        if request.messages[-1].results:
            return "Wrote the file."
        arguments = json.dumps({"path": "a.py", "text": "x = 1"})
        return Message("assistant", (ToolCall("w1", "write", arguments),))

    session = loom.new(model="gpt-4o", system="You build.")
    for n in range(40):
        session.append({"role": "user", "content": f"{n} " + "word " * 300})
        session.append({"role": "assistant", "content": "Yes."})
    architect = ScriptedModel("No plan.", PLAN)
    editor = ScriptedModel(edit, edit, "FAILED: there is no b.py", Refuse(400, "no"))
    outcome = asyncio.run(
        Architect(loom, architect, editor, [write]).run(session, "Build it.", window=64_000)
    )
    assert files == {"a.py": "x = 1"}
    assert [step.end for step in outcome.steps] == ["done", "failed", "failed"]
    assert [request.messages[0].text.split("\n")[0] for request in editor.requests] == [
        "Step: create a.py",
        "Step: create a.py",
        "Step: edit b.py",
        "Step: delete c.py",
    ]
    lines = outcome.report.split("\n")
    assert lines[0] == "Three files. 1 of 3 steps are done."
    assert lines[1] == "1. create a.py: Wrote the file."
    assert lines[2] == "2. [FAILED] edit b.py: there is no b.py"
    assert lines[3].startswith("3. [FAILED] delete c.py: ")
    assert outcome.architect.steps == 2
    assert outcome.full_tokens > 10_000
    assert outcome.architect.tokens + outcome.editors.tokens < outcome.single_tokens
    assert session.path[-1].message.text == outcome.report  # type: ignore[union-attr]
    assert all(row.usage.prompt < 10_000 for row in loom.sessions() if row.id != session.id)


def assert_sendable(request: Conversation) -> None:
    """A request in which each call has its result, and roles take turns."""
    for name in ("openai", "responses", "anthropic"):
        assert not dialect(name).check(dialect(name).render(request).wire)


def test_the_architect_may_use_the_tools_of_its_session(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    asked = Message("assistant", (ToolCall("r", "search_context", '{"query": "cache"}'),))
    architect = ScriptedModel(asked, BreakOff(PLAN, 1), "No.", PLAN)
    outcome = asyncio.run(
        Architect(loom, architect, ScriptedModel.always("ok")).run(session, "Add a cache.")
    )
    for request in architect.requests:
        assert_sendable(request)
    assert [step.end for step in outcome.steps] == ["done"] * 3
    roles = [node.role for node in session.path]
    assert roles == ["user", "assistant", "tool", "assistant", *["user", "assistant"] * 2]
    prompts = outcome.architect.prompt
    assert loom.session(session.id).row.usage.prompt == prompts  # of all answers that were paid for


def test_a_step_that_fails_in_any_way_is_recorded_with_what_it_took(loom: Loom) -> None:
    class Odd:
        """Answers twice, then fails as no provider does."""

        answers = 0

        async def answer(self, request: Any) -> Answer:
            self.answers += 1
            if self.answers == 2:
                raise ValueError("odd")
            if self.answers == 1:
                said = Message("assistant", (ToolCall("x", "look", "{}"),))
                return Answer(messages=(said,), model="gpt-4o", prompt=1000, completion=10)
            said = Message("assistant", (Text("I did"),))
            return Answer(messages=(said,), stop="length")

    def look() -> str:
        return "a file"

    session = loom.new(model="gpt-4o")
    outcome = asyncio.run(
        Architect(loom, ScriptedModel(PLAN), Odd(), [look]).run(session, "Add a cache.")
    )
    assert [step.end for step in outcome.steps] == ["failed"] * 3
    assert outcome.steps[0].text == "ValueError: odd"
    assert outcome.steps[0].spent.tokens == 1010
    assert "cut off" in outcome.steps[1].text
    assert session.path[-1].message.text == outcome.report  # type: ignore[union-attr]


def test_a_plan_that_is_never_right_is_an_error(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    model = ScriptedModel("a", "b", "c")
    with pytest.raises(ChoiceError, match="the plan cannot be read"):
        asyncio.run(Architect(loom, model, model).run(session, "Build it."))
    assert "cannot be read" in model.requests[1].messages[-1].text


def test_an_architect_that_is_interrupted_is_not_asked_for_a_plan_again(loom: Loom) -> None:
    session = loom.new(model="gpt-4o")
    session.keep_working(session.working.interrupt())
    model = ScriptedModel()
    with pytest.raises(ChoiceError, match=r"no plan: its run ended early \(interrupted\)"):
        asyncio.run(Architect(loom, model, model).run(session, "Build it."))


def test_a_step_may_name_its_file_in_any_form(loom: Loom) -> None:
    step = {"file": "a\nb.py", "action": "edit", "description": "Mend it."}
    model = ScriptedModel(json.dumps({"summary": "One step.", "plan": [step]}))
    architect = Architect(loom, model, ScriptedModel("Done."))
    outcome = asyncio.run(architect.run(loom.new(model="gpt-4o"), "Build it."))
    assert [each.end for each in outcome.steps] == ["done"]
