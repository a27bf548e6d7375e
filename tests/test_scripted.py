"""The scripted model answers from its script, remembers what it was asked, and minds being asked
too often or too seldom.
"""

import asyncio
import time

import pytest

from loom import Conversation, Message, Text, ToolCall, ToolResult
from loom.errors import ChoiceError
from loom.providers.scripted import ScriptedModel, Wait


def ask(words: str) -> Conversation:
    return Conversation(messages=(Message("user", (Text(words),)),))


def answer(model: ScriptedModel, request: Conversation) -> Message:
    return asyncio.run(model.answer(request)).message


CALL = Message("assistant", (ToolCall("call_1", "bash", '{"command":"ls"}'),))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("hello", "hello"),
        ("", ""),
        (Message("assistant", (Text("whole"),)), "whole"),
        (lambda request: f"you said {request.messages[-1].text}", "you said hi"),
        (lambda request: Message("assistant", (Text("made"),)), "made"),
        (Wait(0.0, "late"), "late"),
        (lambda request: Wait(0.0, lambda again: again.messages[0].text), "hi"),
    ],
)
def test_a_step_is_a_text_a_message_a_wait_or_a_function_of_the_request(
    step: object, said: str
) -> None:
    model = ScriptedModel(step)  # type: ignore[arg-type]
    got = answer(model, ask("hi"))
    assert (got.role, got.text) == ("assistant", said)
    assert model.requests == [ask("hi")]
    model.check_finished()


@pytest.mark.parametrize(
    "step",
    [
        RuntimeError("down"),
        RuntimeError,
        lambda request: RuntimeError("down"),
        Wait(0, RuntimeError()),
    ],
)
def test_an_exception_is_raised(step: object) -> None:
    with pytest.raises(RuntimeError):
        answer(ScriptedModel(step), ask("hi"))  # type: ignore[arg-type]


def test_waiting_takes_the_time_it_says() -> None:
    begun = time.monotonic()
    answer(ScriptedModel(Wait(0.05, "late")), ask("hi"))
    assert time.monotonic() - begun >= 0.05


def test_steps_come_in_their_order_and_one_request_too_many_is_told() -> None:
    model = ScriptedModel("one", "two")
    assert [answer(model, ask(words)).text for words in "ab"] == ["one", "two"]
    with pytest.raises(
        ChoiceError,
        match="has 2 steps and this is request 3, which ends with user: 'c'; write another step",
    ):
        answer(model, ask("c"))
    assert len(model.requests) == 3


def test_steps_that_are_left_over_are_told() -> None:
    with (
        pytest.raises(
            ChoiceError,
            match="has 2 steps and 1 were asked for; the next would have been the text 'two'",
        ),
        ScriptedModel("one", "two") as model,
    ):
        answer(model, ask("hi"))


def test_what_went_wrong_inside_is_not_hidden_by_the_steps_it_left() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedModel("never"):
        _ = 1 / 0


def test_always_answers_everything_the_same_way() -> None:
    with ScriptedModel.always(lambda request: request.messages[-1].text.upper()) as model:
        assert [answer(model, ask(words)).text for words in ("a", "b", "c")] == ["A", "B", "C"]
    with ScriptedModel.always("never asked"):
        pass


def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(ChoiceError, match="step 2 of the script is 7; give a text"):
        ScriptedModel("one", 7)  # type: ignore[arg-type]
    with pytest.raises(ChoiceError, match="answers request 1 with nothing"):
        answer(ScriptedModel(lambda request: None), ask("hi"))  # type: ignore[arg-type,return-value]


def test_it_drives_an_agent_that_calls_tools() -> None:
    async def agent(model: ScriptedModel) -> str:
        messages = [Message("user", (Text("list the files"),))]
        while True:
            said = (await model.answer(Conversation(messages=tuple(messages)))).message
            messages.append(said)
            if not said.calls:
                return said.text
            messages += [
                Message("tool", (ToolResult(call.id, (Text("a.txt"),), name=call.name),))
                for call in said.calls
            ]

    with ScriptedModel(
        CALL, lambda request: f"there is {request.messages[-1].results[0].parts[0].text}"
    ) as model:
        assert asyncio.run(agent(model)) == "there is a.txt"
    assert [len(request.messages) for request in model.requests] == [1, 3]
