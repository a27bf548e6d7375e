"""A child has a window of its own and what it is handed, and hands back a short result."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom import ChoiceError, Loom, Message, Session, ToolCall
from loom.budget.counting import gate_counter
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


def test_a_child_that_fails_or_ends_early_says_so(loom: Loom, parent: Session) -> None:
    failing = Subagents(loom, parent, ScriptedModel(Refuse(400, "no such model")))
    assert "no such model" in asyncio.run(failing.run(HandDown(goal="x"))).text
    call = ToolCall("c", "search_context", '{"query": "x", "limit": null}')
    endless = ScriptedModel.always(Message("assistant", (call,)))
    early = Subagents(loom, parent, endless, limits=Limits(steps=2))
    result = asyncio.run(early.run(HandDown(goal="x")))
    assert (result.end, result.spent.steps) == ("steps", 2)
    assert "ended early: steps" in result.text
