"""Agents with the providers' own SDKs, against a scripted model on loopback: what they send is
whole, whatever they absorb.
"""

import asyncio
import importlib
import json
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from examples.scripted_server import Say, ScriptedServer

import loom
from tests.shared import ROOT, Package

anthropic = Package("anthropic")
openai = Package("openai")


@pytest.fixture(autouse=True, scope="module")
def sdks() -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")


LOOK_UP = loom.Tool(
    "look_up",
    "Look a word up.",
    '{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}',
)


def make_client(ask: Callable[..., Any], server: ScriptedServer) -> Any:
    if ask in ASKS["anthropic"]:
        direct = anthropic.DefaultAsyncHttpxClient(trust_env=False)
        return anthropic.AsyncAnthropic(
            base_url=server.anthropic_url, api_key="none", http_client=direct, max_retries=0
        )
    direct = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(
        base_url=server.openai_url, api_key="none", http_client=direct, max_retries=0
    )


async def create_openai(client: Any, context: loom.Context) -> Any:
    return await client.chat.completions.create(**context.openai())


async def stream_openai(client: Any, context: loom.Context) -> Any:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    async for chunk in await client.chat.completions.create(**context.openai(), **options):
        state.handle_chunk(chunk)
    return state.get_final_completion()


async def create_anthropic(client: Any, context: loom.Context) -> Any:
    return await client.messages.create(**context.anthropic())


async def stream_anthropic(client: Any, context: loom.Context) -> Any:
    async with client.messages.stream(**context.anthropic()) as stream:
        return await stream.get_final_message()


ASKS = {"openai": (create_openai, stream_openai), "anthropic": (create_anthropic, stream_anthropic)}
EVERY_WAY = [ask for both in ASKS.values() for ask in both]


async def talk(
    session: loom.Session, ask: Callable[..., Any], client: Any, requests: Iterable[str]
) -> None:
    """An agent's loop for each request: ask, absorb, answer what was called."""
    for request in requests:
        context = await session.prepare(request)
        while True:
            [node] = await session.aabsorb(await ask(client, context))
            assert node.message is not None
            if not node.message.calls:
                break
            for call in node.message.calls:
                word = json.loads(call.arguments)["word"]
                result = loom.ToolResult(
                    call.id, (loom.Text(f"{word} is a word."),), name=call.name
                )
                await session.aappend(loom.Message("tool", (result,)))
            context = await session.prepare()


def run_session(
    ask: Callable[..., Any], server: ScriptedServer, requests: Iterable[str]
) -> list[loom.Message]:
    """What a session holds after a talk."""
    model = "gpt-4o" if ask in ASKS["openai"] else "claude-sonnet-5"

    async def run() -> list[loom.Message]:
        async with await loom.Loom.aopen(":memory:") as store:
            session = await store.anew("Words", model=model, tools=[LOOK_UP, *loom.tools()])
            await talk(session, ask, make_client(ask, server), requests)
            return [node.message for node in session.path if node.message]

    return asyncio.run(run())


CALLS = (("look_up", {"word": "weft"}), ("look_up", {"word": "warp"}))


@pytest.mark.parametrize("wire", ASKS)
def test_a_streamed_answer_is_absorbed_like_a_whole_one(wire: str) -> None:
    heard, sent = [], []
    for ask in ASKS[wire]:
        with ScriptedServer([Say("I look.", CALLS), Say("Both are words.")]) as server:
            heard.append(run_session(ask, server, ["What are weft and warp?"]))
        sent.append([request["messages"] for request in server.requests])
    whole, streamed = heard
    plain = [
        [(message.role, message.text, message.calls, message.results) for message in each]
        for each in (whole, streamed)
    ]
    assert plain[0] == plain[1]
    assert [message.role for message in whole] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [json.loads(call.arguments) for call in whole[1].calls] == [
        {"word": "weft"},
        {"word": "warp"},
    ]


@pytest.mark.parametrize("ask", EVERY_WAY)
def test_what_an_sdk_adds_to_an_answer_is_not_sent_back(ask: Callable[..., Any]) -> None:
    with ScriptedServer([Say("I look.", CALLS), Say("Done.")]) as server:
        run_session(ask, server, ["What are weft and warp?"])
    wire = "openai" if ask in ASKS["openai"] else "anthropic"
    assert not loom.dialect(wire).check(server.requests[-1])
    said = json.dumps(server.requests[-1]["messages"])
    assert not re.findall(r'"(?:parsed\w*|index|annotations)"', said)


def test_arguments_that_are_called_like_such_fields_are_kept() -> None:
    arguments = {"parsed": 1, "index": 2, "parsed_output": 3, "parsed_arguments": 4}
    written = json.dumps(arguments)
    chat_call = {
        "id": "t",
        "type": "function",
        "function": {"name": "x", "arguments": written, "parsed_arguments": {}},
        "index": 0,
    }
    answers = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "x", "input": arguments}],
        },
        {"choices": [{"message": {"content": None, "tool_calls": [chat_call], "parsed": None}}]},
        {
            "output": [
                {
                    "type": "function_call",
                    "call_id": "t",
                    "name": "x",
                    "arguments": written,
                    "parsed_arguments": {},
                }
            ]
        },
    ]
    for answer in answers:
        with loom.Loom.open(":memory:") as store:
            session = store.new(model="gpt-4o")
            session.append("Call x.")
            [node] = session.absorb(answer)
            assert node.message is not None
            [call] = node.message.calls
            assert json.loads(call.arguments) == arguments
            assert "parsed" not in str(call.carried)


def test_fields_that_helpers_add_to_responses_are_dropped() -> None:
    text = {"type": "output_text", "text": '{"a":1}', "annotations": [], "parsed": {"a": 1}}
    output = [
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
    ]
    with loom.Loom.open(":memory:") as store:
        session = store.new(model="gpt-4o")
        session.append("Say it.")
        [node] = session.absorb({"id": "r", "output": output})
        context = asyncio.run(session.prepare("Again."))
        assert "parsed" not in json.dumps(context.responses())
        assert '"parsed"' in str(session.response(node.id))  # the answer as it came is kept


@pytest.mark.parametrize("ask", EVERY_WAY)
def test_ids_of_answers_that_come_again_lose_no_answer(ask: Callable[..., Any]) -> None:
    """Some local servers number their answers at random below 999, so that two of one session soon
    share an id.
    """
    number = random.Random(3)
    turns = 8
    steps = [
        step
        for turn in range(turns)
        for step in (Say(calls=CALLS[:1]), Say("Yes." if turn % 2 else f"It is {turn}."))
    ]
    requests = [f"Question {turn}?" for turn in range(turns)]
    with ScriptedServer(steps, answer_ids=iter(lambda: number.randrange(999) % 5, None)) as server:
        messages = run_session(ask, server, requests)
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * turns
    assert [message.text for message in messages if message.role == "user"] == requests
    told = [
        message.text for message in messages if message.role == "assistant" and not message.calls
    ]
    assert told == ["Yes." if turn % 2 else f"It is {turn}." for turn in range(turns)]
    wire = "openai" if ask in ASKS["openai"] else "anthropic"
    assert len(server.requests) == len(steps)
    assert not [
        finding for request in server.requests for finding in loom.dialect(wire).check(request)
    ]


@pytest.mark.parametrize("ask", EVERY_WAY)
def test_a_refusal_in_the_words_of_the_provider_is_known_as_one(ask: Callable[..., Any]) -> None:
    async def run() -> None:
        with (
            ScriptedServer([Say("Yes.")], window=800) as server,
            loom.Loom.open(":memory:") as store,
        ):
            client, session = make_client(ask, server), store.new(model="gpt-4o")
            for turn in range(20):
                session.append(
                    f"Question {turn}? " + "word " * 50,
                    {"role": "assistant", "content": "word " * 50},
                )
            context = await session.prepare("Is it so?")
            with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as refusal:
                await ask(client, context)
            shorter = await session.prepare(overflow=refusal.value)
            await ask(client, shorter)
            assert len(server.refused) == len(server.requests) == 1

    asyncio.run(run())


# ── the examples: what a model reads of them ─────────────────────────────────


@pytest.mark.parametrize("name", ["openai_agent", "anthropic_agent"])
def test_every_request_of_the_examples_has_its_goal_and_whole_pairs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    servers: list[ScriptedServer] = []

    class Watched(ScriptedServer):
        def __enter__(self) -> ScriptedServer:
            servers.append(self)
            return super().__enter__()

    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    example = importlib.import_module(name)
    monkeypatch.setattr(example, "ScriptedServer", Watched)
    asyncio.run(example.main())
    [server] = servers
    wire = name.partition("_")[0]
    goal = example.TASK if wire == "openai" else example.FIRST_DAY
    assert server.refused, "the example shows what to do when a provider refuses"
    for request in server.requests:
        assert not loom.dialect(wire).check(request)
        assert goal in json.dumps(request["messages"][:2], ensure_ascii=False)
        assert {"recall", "search_context", "set_working_state"} < {
            str(find_name(tool)) for tool in request["tools"]
        }
    assert "refused as too long" in capsys.readouterr().out


def find_name(tool: dict[str, Any]) -> Any:
    return tool.get("name") or tool["function"]["name"]
