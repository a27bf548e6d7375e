"""The scripted model streams and fails like a provider, and the providers' own SDKs read what its
server sends.
"""

import asyncio
import threading
import time
from typing import Any

import pytest

from loom import Conversation, Loom, Message, Text
from loom.conversation.canonical import from_json
from loom.dialects.input import Answer, parse_answer
from loom.errors import BrokenAnswer, ChoiceError, ProviderError, RequestTooLong
from loom.providers.models import AnswerEnd, StreamEvent, TextChunk, collect
from loom.providers.overflow import read_overflow
from loom.providers.scripted import (
    BreakOff,
    Drip,
    Refuse,
    Reset,
    ScriptedModel,
    ScriptedServer,
    TooLong,
    Wait,
)
from tests.providers.shapes import ASKED, BOTH, CALL, COMPACTED, SPEAK, THINKING
from tests.shared import Package

TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}


def run(work: Any) -> Any:
    return asyncio.run(work)


async def pieces(model: ScriptedModel, request: Conversation = ASKED) -> list[StreamEvent]:
    return [event async for event in model.stream(request)]


@pytest.mark.parametrize("step", [SPEAK, CALL, BOTH, THINKING, COMPACTED, "words", ""])
def test_a_stream_ends_with_the_answer_that_would_have_come_at_once(step: Any) -> None:
    model = ScriptedModel(step, step)
    events = run(pieces(model))
    streamed = events[-1]
    assert isinstance(streamed, AnswerEnd)
    answer = run(model.answer(ASKED))
    assert streamed.answer.messages == answer.messages
    assert (answer.stop, answer.model) == ("calls" if answer.tool_calls else "end", "scripted")
    assert answer.prompt > 0
    said = "".join(event.text for event in events if isinstance(event, TextChunk))
    assert said == answer.content
    # the response that a session keeps says the same
    assert parse_answer(from_json(answer.raw)).text == answer.text


def test_chat_takes_messages_in_any_form_and_gives_content_and_calls() -> None:
    model = ScriptedModel(BOTH)
    response = run(
        model.chat(
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "look"}],
            tools=[{"type": "function", "function": {"name": "bash", "parameters": TOOL}}],
            temperature=0.1,
        )
    )
    assert response.content == "I look, and count."
    assert [call.name for call in response.tool_calls] == ["bash", "bash"]
    [asked] = model.requests
    assert [message.text for message in asked.system] == ["Be brief."]
    assert [tool.name for tool in asked.tools] == ["bash"]
    assert asked.settings is not None
    assert from_json(asked.settings.fields) == {"temperature": 0.1}


def test_chat_refuses_settings_of_a_context_that_has_its_own() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        context = run(session.prepare("hello"))
        with pytest.raises(ChoiceError, match="has its tools"):
            run(ScriptedModel("x").chat(context, temperature=1))
        model = ScriptedModel("hello to you")
        session.absorb(run(model.chat(context)))
        assert session.row.usage.prompt > 0
        assert [node.message.text for node in session.path if node.message][-1] == "hello to you"


@pytest.mark.parametrize(
    ("step", "kind", "fields"),
    [
        (Refuse(429, retry_after=2), ProviderError, {"status": 429, "retry_after": 2.0}),
        (Refuse(529), ProviderError, {"status": 529, "is_passing": True}),
        (Refuse(401, "bad key"), ProviderError, {"status": 401, "is_passing": False}),
        (Reset(), ProviderError, {"status": 0, "is_passing": True}),
        (TooLong(1000, 1200), RequestTooLong, {"limit": 1000, "asked": 1200}),
        (BreakOff("words"), BrokenAnswer, {"partial": None}),
    ],
)
def test_faults_raise_what_a_client_of_a_provider_raises(
    step: Any, kind: type[ProviderError], fields: dict[str, Any]
) -> None:
    with pytest.raises(kind) as caught:
        run(ScriptedModel(step).answer(ASKED))
    assert {name: getattr(caught.value, name) for name in fields} == fields


def test_half_a_stream_carries_what_came() -> None:
    with pytest.raises(BrokenAnswer) as caught:
        run(pieces(ScriptedModel(BreakOff("a text of some length, for certain", after=3))))
    assert caught.value.partial.text == "a text of some length, f"[:24]


def test_an_overflow_of_the_script_is_one_that_prepare_takes() -> None:
    with pytest.raises(RequestTooLong) as caught:
        run(ScriptedModel(TooLong(1000, 1200)).answer(ASKED))
    found = read_overflow(caught.value)
    assert found is not None
    assert (found.limit, found.asked) == (1000, 1200)


def test_a_stream_that_drips_can_be_given_up() -> None:
    async def work() -> float:
        stream = ScriptedModel(Drip(0.2, "many words, one after the other" * 9)).stream(ASKED)
        begun = time.monotonic()
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return time.monotonic() - begun

    assert run(work()) < 1


def test_a_stream_without_an_answer_is_an_error() -> None:
    async def empty() -> Any:
        return
        yield

    with pytest.raises(BrokenAnswer, match="without an answer"):
        run(collect(empty()))


# The server

openai = Package("openai")
anthropic = Package("anthropic")
ASK = [{"role": "user", "content": "look"}]


def chat_client(server: ScriptedServer, **options: Any) -> Any:
    return openai.OpenAI(base_url=server.openai_url, api_key="k", max_retries=0, **options)


def message_client(server: ScriptedServer, **options: Any) -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0, **options)


def ask(server: ScriptedServer, wire: str, streamed: bool = False) -> Any:
    """The response that an SDK makes of what the server sends."""
    if wire == "openai":
        client = chat_client(server)
        if not streamed:
            return client.chat.completions.create(model="m", messages=ASK)
        with client.chat.completions.stream(model="m", messages=ASK) as stream:
            stream.until_done()
            return stream.get_final_completion()
    if wire == "responses":
        client = chat_client(server)
        if not streamed:
            return client.responses.create(model="m", input=ASK)
        with client.responses.stream(model="m", input=ASK) as stream:
            return stream.get_final_response()
    client = message_client(server)
    if not streamed:
        return client.messages.create(model="m", messages=ASK, max_tokens=100)
    with client.messages.stream(model="m", messages=ASK, max_tokens=100) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize("step", [SPEAK, CALL, BOTH])
def test_the_sdks_read_every_answer_of_the_server(step: Message, wire: str, streamed: bool) -> None:
    with ScriptedServer(step) as server:
        answer = parse_answer(ask(server, wire, streamed))
    assert answer.text == step.text
    assert [(c.id, c.name, from_json(c.arguments)) for c in answer.tool_calls] == [
        (c.id, c.name, from_json(c.arguments)) for c in step.calls
    ]
    assert answer.stop == ("calls" if step.calls else "end")
    assert (answer.prompt, answer.id) != (0, "")
    [request] = server.requests
    assert request.messages[-1].text == "look"


def test_the_sdk_of_anthropic_reads_thinking_and_compaction() -> None:
    with ScriptedServer(THINKING, COMPACTED, COMPACTED) as server:
        message = ask(server, "anthropic", streamed=True)
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert message.content[0].signature == "c2ln"
        client = message_client(server).beta.messages
        options: Any = {"model": "m", "messages": ASK, "max_tokens": 100}
        whole = client.create(**options)
        assert whole.content[0].content == "They talked of files."
        with client.stream(**options) as stream:
            assert stream.get_final_message().content[0].content == "They talked of files."


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
def test_the_sdks_see_refusals_as_those_of_their_provider(wire: str) -> None:
    sdk: Any = anthropic if wire == "anthropic" else openai
    steps = [Refuse(429, retry_after=7), Refuse(500), Refuse(529), TooLong(10, 20), Reset()]
    with ScriptedServer(*steps) as server:
        with pytest.raises(sdk.RateLimitError) as limited:
            ask(server, wire)
        assert limited.value.response.headers["retry-after"] == "7"
        for status in (500, 529):
            with pytest.raises(sdk.InternalServerError) as failed:
                ask(server, wire)
            assert failed.value.status_code == status
        with pytest.raises(sdk.BadRequestError) as long:
            ask(server, wire)
        found = read_overflow(long.value)
        assert found is not None
        assert (found.limit, found.asked) == (10, 20)
        with pytest.raises(sdk.APIConnectionError):
            ask(server, wire)


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
def test_half_a_stream_is_an_error_for_the_sdks(wire: str) -> None:
    with (
        ScriptedServer(BreakOff(BOTH, 4), BreakOff(BOTH)) as server,
    ):
        for streamed in (True, False):
            with pytest.raises(Exception):  # noqa: B017, PT011
                ask(server, wire, streamed)


def test_the_server_refuses_what_a_provider_refuses_and_uses_no_step() -> None:
    orphan = [*ASK, {"role": "tool", "tool_call_id": "call_9", "content": "x"}]
    with ScriptedServer("fine", key="k") as server:
        with pytest.raises(openai.BadRequestError, match="call_9"):
            chat_client(server).chat.completions.create(model="m", messages=orphan)
        client = openai.OpenAI(base_url=server.openai_url, api_key="wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model="m", messages=ASK)
        with pytest.raises(openai.NotFoundError):
            chat_client(server).embeddings.create(model="m", input="x")
        assert ask(server, "openai").choices[0].message.content == "fine"
        assert [model.id for model in chat_client(server).models.list()] == ["scripted"]


def test_a_window_refuses_what_is_longer() -> None:
    with ScriptedServer("fine", window=50) as server:
        long = [{"role": "user", "content": "word " * 100}]
        with pytest.raises(openai.BadRequestError, match="maximum context length is 50 tokens"):
            chat_client(server).chat.completions.create(model="m", messages=long)
        assert ask(server, "openai").choices[0].message.content == "fine"


def test_steps_that_are_left_over_are_told_and_too_few_are_an_error_of_the_server() -> None:
    with pytest.raises(ChoiceError, match="1 steps and 0 were asked for"), ScriptedServer("x"):
        pass
    with (
        ScriptedServer() as server,
        pytest.raises(openai.InternalServerError, match="this is request 1"),
    ):
        ask(server, "openai")


def test_a_server_serves_the_script_of_a_model_and_several_clients_at_once() -> None:
    model = ScriptedModel.always(lambda request: request.messages[-1].text.upper())
    with ScriptedServer(model) as server:
        said: list[str] = []

        def work() -> None:
            said.append(ask(server, "openai").choices[0].message.content)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == ["LOOK"] * 4
    assert len(model.requests) == 4
    assert {each.path for each in server.received} == {"/v1/chat/completions"}


def test_a_server_ends_at_once_though_it_waits() -> None:
    begun = time.monotonic()
    with ScriptedServer(Wait(30, "late")) as server:
        client = chat_client(server, timeout=0.2)
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(model="m", messages=ASK)
    assert time.monotonic() - begun < 3
    with pytest.raises(ChoiceError, match="does not run"):
        _ = server.url


def test_an_answer_as_a_step_decides_its_usage_and_reason() -> None:
    step = Answer(
        messages=(Message("assistant", (Text("cut"),)),),
        prompt=70,
        completion=8,
        cached=30,
        written=10,
        stop="length",
        cost=0.5,
    )
    with ScriptedServer(step, step, step) as server:
        answers = [parse_answer(ask(server, wire)) for wire in ("openai", "responses", "anthropic")]
    assert {answer.stop for answer in answers} == {"length"}
    assert {(answer.prompt, answer.completion, answer.cached) for answer in answers} == {
        (70, 8, 30)
    }
    assert (answers[0].cost, answers[2].written) == (0.5, 10)
