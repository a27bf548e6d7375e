"""What runs spend: with their children, where nobody says what an answer took, and how an answer
stopped.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import Loom, Message, Session, Text, ToolCall
from loom.dialects.input import Answer
from loom.loop import HandDown, Limits, Loop, SessionDesk, Subagents
from loom.providers.models import ModelRequest
from loom.providers.scripted import Refuse, ScriptedModel


@pytest.fixture
def loom(tmp_path: Path) -> Iterator[Loom]:
    with Loom.open(tmp_path / "loom.db") as opened:
        yield opened


@pytest.fixture
def session(loom: Loom) -> Session:
    return loom.new(model="gpt-4o", system="You lead.")


def call(name: str, arguments: Any, id: str = "1") -> ToolCall:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id, name, written)


def answer(*parts: ToolCall | str, **fields: Any) -> Answer:
    said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Answer(messages=(Message("assistant", said),), **fields)


class Bare:
    """A model that hands out answers as they are."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def answer(self, request: ModelRequest) -> Answer:
        self.requests.append(request)
        return self._answers.pop(0)


def delegate(count: int, prefix: str) -> Answer:
    calls = [call("delegate", {"goal": f"part {n}"}, f"{prefix}{n}") for n in range(count)]
    return answer(*calls, prompt=10, completion=1, cost=0.01)


def test_children_spend_what_their_parent_may_spend(loom: Loom, session: Session) -> None:
    child = ScriptedModel.always(answer("found", prompt=1000, completion=500, cost=1.0))
    children = Subagents(loom, session, child)
    model = ScriptedModel(delegate(2, "a"), delegate(2, "b"), "Never asked.")
    limits = Limits(cost=1.5, tools_at_once=1)
    outcome = asyncio.run(
        Loop(SessionDesk(session), model, [children.function()], limits=limits).run("Go.")
    )
    assert outcome.end == "cost"
    assert len(model.requests) == 1
    assert outcome.spent.cost == pytest.approx(2.01)
    assert (outcome.spent.steps, outcome.spent.tokens) == (1, 3011)
    assert (outcome.children.steps, outcome.children.cost) == (2, 2.0)


def test_a_child_does_not_begin_once_the_budget_is_spent(loom: Loom, session: Session) -> None:
    child = ScriptedModel.always(answer("found", prompt=1000, completion=500, cost=1.0))
    model = ScriptedModel(delegate(3, "a"))
    limits = Limits(tokens=1200, tools_at_once=1)
    functions = [Subagents(loom, session, child).function()]
    asyncio.run(Loop(SessionDesk(session), model, functions, limits=limits).run("Go."))
    assert len(child.requests) == 1
    said = [
        part.text
        for node in session.path
        for result in node.message.results
        for part in result.parts
    ]  # type: ignore[union-attr]
    assert sum("ended early: tokens" in text for text in said) == 2


def test_a_child_that_fails_says_what_it_took(loom: Loom, session: Session) -> None:
    first = answer(call("look", {}), prompt=1000, completion=9, cost=1.0)

    def look() -> str:
        return "nothing"

    child = Subagents(loom, session, ScriptedModel(first, Refuse(500, "x")), [look])
    result = asyncio.run(child.run(HandDown(goal="Find it.")))
    assert result.end == "failed"
    assert result.text.startswith("The helper failed: ")
    assert (result.spent.tokens, result.spent.cost) == (1009, 1.0)


def test_tokens_are_counted_where_the_provider_does_not_say(session: Session) -> None:
    model = Bare(answer("word " * 50, model="gpt-4o"))
    outcome = asyncio.run(Loop(SessionDesk(session), model).run("Go."))
    assert outcome.spent.prompt > 500
    assert 50 <= outcome.spent.completion < 80
    assert outcome.spent.cost > 0
    assert (outcome.spent.estimated, outcome.spent.unpriced) == (1, 0)


def test_a_limit_holds_where_the_provider_does_not_say(session: Session) -> None:
    def look() -> str:
        return "more"

    many = [answer(call("look", {}, f"c{n}"), model="no-such-model") for n in range(9)]
    limits = Limits(tokens=2500)
    outcome = asyncio.run(Loop(SessionDesk(session), Bare(*many), [look], limits=limits).run("Go."))
    assert outcome.end == "tokens"
    assert outcome.spent.unpriced == outcome.spent.steps < 9


def test_an_outcome_says_why_the_answer_stopped(session: Session) -> None:
    for stop in ("end", "length", "refusal"):
        model = Bare(answer("Half a sent", prompt=1, completion=1, stop=stop))
        assert asyncio.run(Loop(SessionDesk(session), model).run("Go.")).stop == stop


def test_an_answer_after_a_pause_is_the_rest_of_it(session: Session) -> None:
    half = answer("I searched.", prompt=1, completion=1, stop="pause")
    model = Bare(half, answer("It is tea.", prompt=1, completion=1, stop="end"))
    outcome = asyncio.run(Loop(SessionDesk(session), model).run("Go."))
    assert (outcome.text, outcome.stop) == ("I searched.\n\nIt is tea.", "end")


# The last one as Anthropic's wire holds it.
@pytest.mark.parametrize("arguments", ["", "{}", '{"input": "hal', {"input": '{"input": "hal'}])
def test_a_call_that_was_cut_off_does_not_run(session: Session, arguments: Any) -> None:
    ran: list[str] = []

    def write(input: str = "") -> str:
        ran.append(input)
        return "written"

    whole = call("write", {"input": "whole"}, "a")
    cut = answer(whole, call("write", arguments, "b"), prompt=1, completion=1, stop="length")
    model = Bare(cut, answer("Done.", prompt=1, completion=1))
    asyncio.run(Loop(SessionDesk(session), model, [write]).run("Go."))
    assert ran == ["whole"]
    results = [result for node in session.path for result in node.message.results]  # type: ignore[union-attr]
    [told] = [result for result in results if result.call_id == "b"]
    assert "cut off" in told.parts[0].text  # type: ignore[union-attr]
