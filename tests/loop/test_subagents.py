"""A child has a window of its own and what it is handed, and hands back a short result."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom import ChoiceError, Loom, Message, Session, ToolCall
from loom.budget.counting import gate_counter
from loom.conversation.message import Conversation
from loom.loop import HandDown, Limits, Loop, SessionDesk, Subagents
from loom.loop.subagents import HANDED_TOKENS, RESULT_TOKENS
from loom.providers.scripted import Refuse, ScriptedModel


@pytest.fixture
def loom(tmp_path: Path) -> Iterator[Loom]:
    with Loom.open(tmp_path / "loom.db") as opened:
        yield opened


@pytest.fixture
def parent(loom: Loom) -> Session:
    session = loom.new(model="gpt-4o", system="You lead.")
    session.append("The secret word is heron.")
    session.append({"role": "assistant", "content": "Noted: heron."})
    return session


def test_a_child_sees_only_what_it_is_handed(loom: Loom, parent: Session) -> None:
    model = ScriptedModel("It is a bird.", "Also a bird.", "Both are birds.")
    children = Subagents(loom, parent, model, window=8_000)
    first = asyncio.run(children.run(HandDown(goal="What is an ibis?", constraints=("Be brief.",))))
    second = asyncio.run(children.run(HandDown(goal="And this?", nodes=(parent.path[0].id,))))
    third = asyncio.run(children.run(HandDown(goal="Compare.", siblings=(first.session,))))
    assert (first.text, first.end) == ("It is a bird.", "done")
    seen = ["\n".join(m.text for m in request.messages) for request in model.requests]
    assert "Goal: What is an ibis?\nConstraint: Be brief." in seen[0]
    assert ["heron" in text for text in seen] == [False, True, False]
    assert ["It is a bird." in text for text in seen] == [False, False, True]
    assert len({first.session, second.session, third.session, parent.id}) == 4
    with pytest.raises(ChoiceError, match="there is no child"):
        asyncio.run(children.run(HandDown(goal="x", siblings=(parent.id,))))


def test_what_is_handed_down_and_handed_back_is_bounded(loom: Loom, parent: Session) -> None:
    [large] = parent.append("word " * 5_000)
    [small] = parent.append("a small thing")
    model = ScriptedModel("result " * 3_000)
    children = Subagents(loom, parent, model, window=16_000)
    result = asyncio.run(children.run(HandDown(goal="Sum up.", nodes=(large.id, small.id))))
    count = gate_counter(None).count_text
    task = model.requests[0].messages[0].text
    assert result.left_out == (f"message {large.id}",)
    assert "a small thing" in task
    assert "no room for: message" in task
    assert count(task) < HANDED_TOKENS
    assert count(result.text) < RESULT_TOKENS + 60
    assert result.stash in result.text
    assert parent.stash(result.stash) == "result " * 3_000


def test_a_model_delegates_and_depth_is_counted(loom: Loom, parent: Session) -> None:
    ask = ToolCall(
        "d1", "delegate", json.dumps({"goal": "Look.", "constraints": [], "handles": []})
    )
    model = ScriptedModel(Message("assistant", (ask,)), "The child has looked.", "Thanks.")
    children = Subagents(loom, parent, model, window=8_000)
    loop = Loop(SessionDesk(parent, window=8_000), model, [children.function()])
    outcome = asyncio.run(loop.run("Let somebody look."))
    assert outcome.text == "Thanks."
    [row] = [row for row in loom.sessions() if row.id != parent.id]
    assert loom.session(row.id).working.dashboard.depth == 1
    [result] = parent.path[-2].message.results  # type: ignore[union-attr]
    assert result.parts[0].text == "The child has looked."  # type: ignore[union-attr]
    parent.keep_working(parent.working.deepen(3))
    with pytest.raises(ChoiceError, match="too deep"):
        asyncio.run(children.run(HandDown(goal="Deeper.")))


def delegate(n: int) -> Message:
    return Message("assistant", (ToolCall(f"d{n}", "delegate", '{"goal": "Look.\\nThen tell."}'),))


def test_children_may_have_children_down_to_a_level(loom: Loom, parent: Session) -> None:
    model = ScriptedModel(delegate(1), delegate(2), delegate(3), "third", "second", "first", "all")
    children = Subagents(loom, parent, model, window=8_000, levels=3)
    outcome = asyncio.run(Loop(SessionDesk(parent), model, [children.function()]).run("Go."))
    assert outcome.text == "all"
    assert (outcome.spent.steps, outcome.children.steps) == (2, 5)
    depths = [loom.session(row.id).working.dashboard.depth for row in loom.sessions()]
    assert sorted(depths) == [0, 1, 2, 3]
    offered = [any(t.name == "delegate" for t in request.tools) for request in model.requests]
    assert offered == [True, True, True, False, True, True, True]
    with pytest.raises(ChoiceError, match="levels must be from 1 to 3"):
        Subagents(loom, parent, model, levels=4)


def test_children_that_delegate_to_their_parents_children_end(loom: Loom, parent: Session) -> None:
    found: list[Subagents] = []

    async def delegate_on(goal: str) -> str:
        return (await found[0].run(HandDown(goal=goal))).text

    def answer(request: Conversation) -> Message | str:
        if any(message.results for message in request.messages):
            return "Enough."
        return Message("assistant", (ToolCall("d", "delegate_on", '{"goal": "On."}'),))

    model = ScriptedModel.always(answer)
    found.append(Subagents(loom, parent, model, [delegate_on], window=8_000))
    outcome = asyncio.run(Loop(SessionDesk(parent), model, [delegate_on]).run("Go."))
    assert outcome.text == "Enough."
    assert len(loom.sessions()) == 1 + 3
    deepest = max(
        (loom.session(row.id) for row in loom.sessions()), key=lambda s: s.working.dashboard.depth
    )
    assert "too deep" in deepest.path[-2].message.results[0].parts[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("goal", ["Find it.\nThen mend it.", "a\tb", " \n ", "x" * 500])
def test_a_goal_may_have_any_form(loom: Loom, parent: Session, goal: str) -> None:
    model = ScriptedModel("Done.")
    result = asyncio.run(Subagents(loom, parent, model, window=8_000).run(HandDown(goal=goal)))
    assert result.end == "done"
    assert model.requests[0].messages[0].text.startswith(f"Goal: {goal}".rstrip())


def test_a_child_that_fails_or_ends_early_says_so(loom: Loom, parent: Session) -> None:
    failing = Subagents(loom, parent, ScriptedModel(Refuse(400, "no such model")))
    assert "no such model" in asyncio.run(failing.run(HandDown(goal="x"))).text
    call = ToolCall("c", "search_context", '{"query": "x", "limit": null}')
    endless = ScriptedModel.always(Message("assistant", (call,)))
    early = Subagents(loom, parent, endless, limits=Limits(steps=2))
    result = asyncio.run(early.run(HandDown(goal="x")))
    assert (result.end, result.spent.steps) == ("steps", 2)
    assert "ended early: steps" in result.text
