"""Models behind HTTP: they ask and read on three wires, mind their time, try again where that is
safe, and never tell their key.
"""

import asyncio
import socket
import threading
import time
from email.utils import formatdate
from typing import Any

import pytest
from msgspec.structs import replace

import loom
from loom import Conversation, Media, Message, Reasoning, Text, ToolCall, ToolResult
from loom.conversation.message import Carried
from loom.dialects.input import Answer
from loom.errors import (
    BrokenAnswer,
    ChoiceError,
    ProviderError,
    ProviderTimeout,
    RequestTooLong,
)
from loom.providers.http import PRESETS, HttpModel, split_model
from loom.providers.http.bodies import Target, make_body, make_headers
from loom.providers.http.retrying import Patience
from loom.providers.models import AnswerEnd, StreamEvent, TextChunk, collect
from loom.providers.refusals import find_error, is_passing, make_refusal, read_retry_after
from loom.providers.scripted import (
    BreakOff,
    Drip,
    Refuse,
    Reset,
    ScriptedServer,
    TooLong,
    Wait,
)
from tests.providers.shapes import ASKED, BOTH, CALL, SPEAK, THINKING

pytest.importorskip("aiohttp")
WIRES = ["openai", "responses", "anthropic"]
KEY = "sk-very-secret-0123456789"


def model(server: ScriptedServer, wire: str, **options: Any) -> HttpModel:
    url = server.url if wire == "anthropic" else server.openai_url
    options = {"retries": 0, "key": KEY} | options
    return loom.connect("local:some-model", base_url=url, wire=wire, **options)


def run(work: Any) -> Any:
    return asyncio.run(work)


async def pieces(llm: Any, request: Conversation = ASKED) -> list[StreamEvent]:
    return [event async for event in llm.stream(request)]


def values(answer: Answer) -> Answer:
    return replace(answer, raw="")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("step", [SPEAK, CALL, BOTH, ""])
def test_an_answer_is_the_same_at_once_and_streamed(step: Any, wire: str) -> None:
    said = step if isinstance(step, Message) else Message("assistant", ())
    fixed = Answer(messages=(said,), id="answer_1", prompt=7, completion=5, cached=2)
    with ScriptedServer(fixed, fixed, key=KEY) as server:
        llm = model(server, wire)
        whole, streamed = run(llm.answer(ASKED)), run(collect(llm.stream(ASKED)))
    assert values(whole) == values(streamed)
    assert whole.text == said.text
    assert [(c.id, c.name, c.arguments) for c in whole.tool_calls] == [
        (c.id, c.name, c.arguments) for c in said.calls
    ]
    assert whole.stop == ("calls" if said.calls else "end")
    assert (whole.prompt, whole.completion, whole.cached) == (7, 5, 2)
    first, second = server.received
    assert (first.body["model"], second.body["stream"]) == ("some-model", True)


@pytest.mark.parametrize("wire", WIRES)
def test_what_the_wire_takes_arrives_as_it_was_meant(wire: str) -> None:
    request = Conversation(
        system=(Message("system", (Text("Be brief."),)),),
        messages=(
            Message("user", (Text("what is this?"), Media("image", "data", "aWs=", "image/png"))),
            Message("assistant", (ToolCall("call_1", "bash", '{"command":"file x"}'),)),
            Message("tool", (ToolResult("call_1", (Text("a picture"),)),)),
        ),
        tools=ASKED.tools,
        max_output=500,
        settings=Carried("openai", '{"temperature":0.5}'),
    )
    with ScriptedServer("a picture") as server:
        run(model(server, wire).answer(request))
    [got] = server.requests
    assert got.messages[0].parts == (
        Text("what is this?"),
        Media("image", "data", "aWs=", "image/png", carried=got.messages[0].parts[1].carried),  # type: ignore[union-attr]
    )
    assert [call.id for call in got.messages[1].calls] == ["call_1"]
    assert [tool.name for tool in got.tools] == ["bash"]
    assert got.max_output == 500
    assert server.received[0].body["temperature"] == 0.5


def test_reasoning_comes_with_its_signature_and_is_sent_back() -> None:
    with ScriptedServer(THINKING, "on") as server:
        llm = model(server, "anthropic")
        answer = run(collect(llm.stream(ASKED)))
        assert answer.message.parts[0] == Reasoning("Let me see.", "anthropic", "c2ln")
        again = (*ASKED.messages, answer.message, Message("user", (Text("go on"),)))
        run(llm.answer(replace(ASKED, messages=again)))
    assert server.received[1].body["messages"][1]["content"][0] == {
        "type": "thinking",
        "thinking": "Let me see.",
        "signature": "c2ln",
    }


def test_a_context_is_sent_with_its_cache_marks() -> None:
    context = loom.weave(
        [{"role": "user", "content": "hello"}], model="anthropic:claude-sonnet-4-5", system="Be."
    )
    with ScriptedServer("hi") as server:
        run(model(server, "anthropic").answer(context))
    assert "cache_control" in str(server.received[0].body)


# Faults


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "fault", [Reset(), Refuse(429, retry_after=0.01), Refuse(500), Refuse(529), Refuse(503)]
)
def test_what_passes_is_tried_again(fault: Any, streamed: bool, wire: str) -> None:
    with ScriptedServer(fault, SPEAK) as server:
        llm = model(server, wire, retries=1)
        answer = run(collect(llm.stream(ASKED)) if streamed else llm.answer(ASKED))
    assert answer.text == SPEAK.text
    assert len(server.requests) == 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_does_not_pass_is_not_tried_again(status: int, streamed: bool) -> None:
    with ScriptedServer(Refuse(status, f"because {KEY}")) as server:
        llm = model(server, "openai", retries=3)
        with pytest.raises(ProviderError) as caught:
            run(collect(llm.stream(ASKED)) if streamed else llm.answer(ASKED))
    assert caught.value.status == status
    assert KEY not in str(caught.value)
    assert "because …" in str(caught.value)
    assert caught.value.__cause__ is None


def test_tries_end() -> None:
    with (
        ScriptedServer(Refuse(500), Refuse(500), Refuse(500)) as server,
        pytest.raises(ProviderError, match="answered 500: the script says so"),
    ):
        run(model(server, "openai", retries=2).answer(ASKED))
    assert len(server.requests) == 3


def test_a_provider_that_asks_to_wait_too_long_is_not_waited_for() -> None:
    begun = time.monotonic()
    with (
        ScriptedServer(Refuse(429, retry_after=3600)) as server,
        pytest.raises(ProviderError) as caught,
    ):
        run(model(server, "anthropic", retries=3).answer(ASKED))
    assert caught.value.retry_after == 3600
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("wire", WIRES)
def test_half_a_stream_carries_what_came_and_is_not_tried_again(wire: str) -> None:
    text = "a long answer, which breaks off somewhere in its middle, as some do"
    got: list[str] = []

    async def work(llm: HttpModel) -> None:
        async for event in llm.stream(ASKED):
            if isinstance(event, TextChunk):
                got.append(event.text)

    with (
        ScriptedServer(BreakOff(text, after=5)) as server,
        pytest.raises(BrokenAnswer, match="broke off") as caught,
    ):
        run(work(model(server, wire, retries=3)))
    partial = caught.value.partial
    assert partial.text == "".join(got)
    assert text.startswith(partial.text)
    assert 0 < len(partial.text) < len(text)
    assert partial.stop == ""


@pytest.mark.parametrize("wire", WIRES)
def test_half_an_answer_that_was_not_streamed_is_asked_for_again(wire: str) -> None:
    with ScriptedServer(BreakOff(SPEAK), SPEAK) as server:
        assert run(model(server, wire, retries=1).answer(ASKED)).text == SPEAK.text
    with ScriptedServer(BreakOff(SPEAK)) as server, pytest.raises(BrokenAnswer):
        run(model(server, wire).answer(ASKED))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_that_is_too_long_can_be_given_to_prepare(wire: str, streamed: bool) -> None:
    with ScriptedServer(TooLong(4000, 5000)) as server:
        llm = model(server, wire, retries=3)
        with pytest.raises(RequestTooLong) as caught:
            run(collect(llm.stream(ASKED)) if streamed else llm.answer(ASKED))
    assert (caught.value.limit, caught.value.asked) == (4000, 5000)


def test_a_session_goes_from_an_overflow_to_a_smaller_request() -> None:
    async def work(server: ScriptedServer) -> tuple[int, int]:
        llm = model(server, "openai")
        with loom.Loom.open(":memory:") as kept:
            session = kept.new(model="gpt-4o")
            for number in range(60):
                session.append({"role": "user", "content": f"question {number} " + "word " * 60})
                session.append({"role": "assistant", "content": f"answer {number} " + "so " * 60})
            context = await session.prepare("and now?")
            with pytest.raises(RequestTooLong) as caught:
                await llm.answer(context)
            smaller = await session.prepare(overflow=caught.value)
            session.absorb(await llm.answer(smaller))
            assert session.row.usage.prompt > 0
            return context.report.input_tokens, smaller.report.input_tokens

    with ScriptedServer("now this", window=3000) as server:
        before, after = run(work(server))
    assert after < 3000 < before


@pytest.mark.parametrize("wire", WIRES)
def test_a_provider_that_says_nothing_is_not_waited_for_forever(wire: str) -> None:
    begun = time.monotonic()
    with ScriptedServer(Wait(30, SPEAK), Wait(30, SPEAK)) as server:
        with pytest.raises(ProviderTimeout, match=r"did not finish its answer in 0\.2 seconds"):
            run(model(server, wire, timeout=0.2).answer(ASKED))
        with pytest.raises(ProviderTimeout, match=r"sent nothing for 0\.2 seconds"):
            run(collect(model(server, wire, chunk_timeout=0.2).stream(ASKED)))
    assert time.monotonic() - begun < 3


def test_a_stream_that_stops_in_its_middle_carries_what_came() -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"so far"}}]}\n\n'
    with _ServeOnce(event, "text/event-stream", more=100) as url:
        llm = loom.connect("local:m", base_url=url, chunk_timeout=0.2, retries=3)
        with pytest.raises(BrokenAnswer, match=r"sent nothing for 0\.2 seconds") as caught:
            run(collect(llm.stream(ASKED)))
    assert caught.value.partial.text == "so far"


def test_the_time_that_a_reader_takes_does_not_count() -> None:
    async def work(llm: HttpModel) -> str:
        said = ""
        async for event in llm.stream(ASKED):
            await asyncio.sleep(0.1)
            if isinstance(event, AnswerEnd):
                said = event.answer.text
        return said

    with ScriptedServer(SPEAK) as server:
        assert run(work(model(server, "openai", timeout=0.25))) == SPEAK.text


@pytest.mark.parametrize("streamed", [False, True])
def test_cancelling_closes_the_connection(streamed: bool) -> None:
    """A server of its own sees the connection end while it still waits."""
    ended = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            if streamed:
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b'\r\ndata: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
                )
            connection.settimeout(5)
            while connection.recv(65536):
                pass
            ended.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    async def work() -> None:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        llm = loom.connect("local:m", base_url=url)
        async with llm:
            task = asyncio.ensure_future(
                collect(llm.stream(ASKED)) if streamed else llm.answer(ASKED)
            )
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended.wait, 3)

    run(work())
    thread.join(5)
    listening.close()


def test_a_stream_that_is_closed_early_closes_its_connection() -> None:
    async def work(llm: HttpModel) -> None:
        stream = llm.stream(ASKED)
        await anext(stream)
        await stream.aclose()

    begun = time.monotonic()
    with ScriptedServer(Drip(0.3, SPEAK.text * 9)) as server:
        run(work(model(server, "openai")))
    assert time.monotonic() - begun < 2


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    llm = loom.connect("ollama:llama3", base_url=f"http://127.0.0.1:{port}/v1", retries=0)
    with pytest.raises(ProviderError, match="ollama cannot be reached") as caught:
        run(llm.answer(ASKED))
    assert caught.value.is_passing


def test_connections_are_kept_open_inside_of_async_with() -> None:
    async def work(llm: HttpModel) -> None:
        async with llm:
            for _ in range(3):
                await llm.answer(ASKED)

    with ScriptedServer("x", repeats=True) as server:
        run(work(model(server, "openai")))
    assert len(server.received) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<html>bad gateway</html>", "not JSON: <html>bad gateway"),
        (b'{"choices": []}', "another form"),
        (b'{"error": {"message": "no credit", "code": 402}}', "answered 402: no credit"),
        (b'{"error": {"message": "busy", "code": "rate_limit_exceeded"}}', "429: busy"),
        (
            b'{"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": '
            b'{"code": 502, "message": "upstream"}}]}',
            "502: upstream",
        ),
        (b'{"object": "error", "message": "no such model", "code": 404}', "404: no such model"),
    ],
)
def test_answers_of_no_form_are_told(content: bytes, says: str) -> None:
    with _ServeOnce(content) as url, pytest.raises(ProviderError, match=says):
        run(loom.connect("local:m", base_url=url, retries=0).answer(ASKED))


@pytest.mark.parametrize(
    ("wire", "events", "says"),
    [
        ("openai", b"data: no json\n\n", "not an object of JSON"),
        ("openai", b'data: {"error":{"message":"busy","code":503}}\n\n', "503: busy"),
        (
            "anthropic",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
            b'"message":"Overloaded"}}\n\n',
            "529: Overloaded",
        ),
        (
            "responses",
            b'data: {"type":"response.failed","response":{"status":"failed","error":'
            b'{"code":"server_error","message":"broken"}}}\n\n',
            "500: broken",
        ),
        ("responses", b'data: {"type":"error","message":"odd","code":"x"}\n\n', "500: odd"),
        ("openai", b": only a comment\n\n", "broke off"),
        # as OpenRouter ends an answer that failed
        (
            "openai",
            b'data: {"choices":[{"delta":{"content":"Half"}}]}\n\ndata: {"error":{"code":'
            b'"server_error","message":"gone"},"choices":[{"delta":{"content":""},'
            b'"finish_reason":"error"}]}\n\ndata: [DONE]\n\n',
            "500: gone",
        ),
        ("openai", b'data: {"choices":[{"finish_reason":"error"}]}\n\n', "with an error"),
        # as vLLM and llama.cpp did
        (
            "openai",
            b'data: {"object":"error","message":"odd","type":"BadRequestError","code":400}\n\n',
            "400: odd",
        ),
        ("openai", b'error: {"code":503,"message":"Loading model"}\n\n', "503: Loading model"),
        ("openai", b'event: error\ndata: {"message":"odd"}\n\n', "500: odd"),
        # one object in place of a stream
        ("openai", b'{"error": {"message": "no credit", "code": 402}}', "402: no credit"),
        ("openai", b'\n{"error": {"mess', "broke off"),
        ("openai", b"<html>\nWelcome</html>", "not JSON: <html> Welcome"),
    ],
)
def test_errors_in_a_stream_are_told(wire: str, events: bytes, says: str) -> None:
    with _ServeOnce(events, "text/event-stream") as url:
        llm = loom.connect("local:m", base_url=url, wire=wire, retries=0)
        with pytest.raises(ProviderError, match=says):
            run(collect(llm.stream(ASKED)))


@pytest.mark.parametrize(
    ("wire", "content"),
    [
        ("openai", b'{"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}'),
        (
            "anthropic",
            b'{"role": "assistant", "content": [{"type": "text", "text": "Hi."}], '
            b'"stop_reason": "end_turn"}',
        ),
        (
            "openai",
            b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\n'
            b"data:  [DONE] \n\n",
        ),
    ],
)
def test_an_answer_is_read_as_a_stream_or_as_one_object(wire: str, content: bytes) -> None:
    async def read(url: str) -> list[StreamEvent]:
        llm = loom.connect("local:m", base_url=url, wire=wire, retries=0)
        return [event async for event in llm.stream(ASKED)]

    with _ServeOnce(content) as url:
        *pieces, end = run(read(url))
    assert pieces == [TextChunk("Hi.")]
    assert isinstance(end, AnswerEnd)
    assert (end.answer.text, end.answer.stop) == ("Hi.", "end")


class _ServeOnce:
    """A server that answers one request with these bytes, and promises more of them."""

    def __init__(self, content: bytes, kind: str = "application/json", more: int = 0) -> None:
        self._content, self._kind, self._more = content, kind, more

    def __enter__(self) -> str:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            connection.recv(65536)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {self._kind}\r\nconnection: close\r\n"
            head += f"content-length: {len(self._content) + self._more}\r\n\r\n"
            connection.sendall(head.encode() + self._content)
            connection.settimeout(3)
            if self._more:
                connection.recv(65536)  # until the client has enough

    def __exit__(self, *_: object) -> None:
        self._thread.join(5)
        self._socket.close()


# Names and keys


@pytest.mark.parametrize(
    ("name", "provider", "own"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openai:gpt-4o", "openai", "gpt-4o"),
        ("ollama:mistral:7b", "ollama", "mistral:7b"),
        ("llama.cpp:qwen", "llama.cpp", "qwen"),
        ("openrouter:anthropic/claude-opus-4:free", "openrouter", "anthropic/claude-opus-4:free"),
        ("claude-haiku-4", "anthropic", "claude-haiku-4"),
        ("gpt-4o-mini", "openai", "gpt-4o-mini"),
        ("o3", "openai", "o3"),
        ("ollama", "ollama", ""),
        ("llama3:8b", "", "llama3:8b"),
    ],
)
def test_the_prefix_names_the_provider(name: str, provider: str, own: str) -> None:
    assert split_model(name) == (provider, own)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_provider_can_be_connected_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = PRESETS[name]
    if preset.key_variable:
        monkeypatch.setenv(preset.key_variable, KEY)
    llm = loom.connect(f"{name}:some-model")
    assert llm.name == f"{name}:some-model"
    assert (llm.provider, llm.wire) == (name, preset.wire)
    assert KEY not in repr(llm) + repr(vars(llm)["_target"])


def test_a_key_that_is_missing_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ChoiceError, match="set ANTHROPIC_API_KEY, or give key="):
        loom.connect("anthropic:claude-x")
    with pytest.raises(ChoiceError, match="'nobody:model' is not the name of a provider"):
        loom.connect("nobody:model")
    with pytest.raises(ChoiceError, match="contains a password"):
        loom.connect("local:m", base_url="https://user:pass@host/v1")
    with pytest.raises(ChoiceError, match="not the address"):
        loom.connect("local:m", base_url="host/v1")
    with pytest.raises(ChoiceError, match="timeout is 0"):
        loom.connect("ollama:m", timeout=0)
    with pytest.raises(ChoiceError, match="retries is -1"):
        loom.connect("ollama:m", retries=-1)
    with pytest.raises(ChoiceError, match="characters that no key has"):
        loom.connect("ollama:m", key="a\nb")


def target(name: str, **more: Any) -> Target:
    return Target(PRESETS[name], PRESETS[name].url, more.pop("model", "m"), more)


def test_habits_of_providers() -> None:
    request = replace(
        ASKED, system=(Message("developer", (Text("Be."),)),), max_output=9, model="openai:x"
    )
    body = make_body(target("openai"), request, streamed=True)
    assert body["max_completion_tokens"] == 9
    assert body["stream_options"] == {"include_usage": True}
    assert body["messages"][0]["role"] == "developer"
    body = make_body(target("mistral"), request, streamed=True)
    assert (body["max_tokens"], body["messages"][0]["role"]) == (9, "system")
    assert "stream_options" not in body
    assert make_body(target("openrouter"), request, streamed=False)["usage"] == {"include": True}
    thinking = make_body(target("openai-responses", model="gpt-5"), request, streamed=False)
    assert (thinking["store"], thinking["include"]) == (False, ["reasoning.encrypted_content"])
    assert "store" not in make_body(target("openai-responses"), request, streamed=False)
    assert make_body(target("ollama", model=""), request, streamed=False)["model"] == "x"
    with pytest.raises(ChoiceError, match="no model is named"):
        make_body(target("ollama", model=""), replace(ASKED, model=""), streamed=False)


def test_betas_are_named_where_they_are_used() -> None:
    edits = [{"type": "compact_20260112"}, {"type": "clear_tool_uses_20250919"}]
    body = {"messages": [], "context_management": {"edits": edits}}
    headers = make_headers(target("anthropic"), KEY, body, streamed=False)
    assert headers["anthropic-beta"] == "compact-2026-01-12,context-management-2025-06-27"
    assert headers["x-api-key"] == KEY
    kept = {"messages": [{"role": "assistant", "content": [{"type": "compaction"}]}]}
    mine = target("anthropic", **{"Anthropic-Beta": "mine"})
    assert make_headers(mine, KEY, kept, False)["anthropic-beta"] == "compact-2026-01-12,mine"
    plain = make_headers(target("anthropic"), "", {"messages": []}, streamed=True)
    assert "anthropic-beta" not in plain
    assert "x-api-key" not in plain


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), (2.5, 2.5), ("-1", None), ("soon", None), (None, None), ("nan", None)],
)
def test_retry_after_in_seconds(value: Any, seconds: float | None) -> None:
    assert read_retry_after(value) == seconds


def test_retry_after_as_a_date() -> None:
    now = 1_700_000_000.0
    assert read_retry_after(formatdate(now + 30, usegmt=True), now) == 30
    assert read_retry_after(formatdate(now - 30, usegmt=True), now) == 0


def test_waits_grow_jitter_and_are_bounded() -> None:
    patience = Patience(retries=6, longest_wait=4.0)
    error = ProviderError("x", is_passing=True)
    waits = [patience.wait_before(error, tries, lambda: 1.0) for tries in range(7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, None]
    assert patience.wait_before(error, 1, lambda: 0.0) == 0.5
    told = ProviderError("x", is_passing=True, retry_after=3)
    assert patience.wait_before(told, 0, lambda: 0.0) == 3
    assert patience.wait_before(ProviderError("x"), 0) is None


def test_an_empty_purse_does_not_pass() -> None:
    assert is_passing(429, "rate limit reached")
    assert not is_passing(429, "You exceeded your current quota, please check your plan")
    assert not make_refusal("openai", 429, "insufficient_quota").is_passing


def test_a_request_that_no_minute_allows_is_too_long_and_not_tried_again() -> None:
    said = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 61337."
    steps = (Refuse(429, said), "Shorter.")
    with ScriptedServer(*steps) as server:
        with pytest.raises(RequestTooLong) as raised:
            run(model(server, "openai").answer(ASKED))
        assert (raised.value.limit, raised.value.asked) == (30_000, 61_337)
        assert run(model(server, "openai").answer(ASKED)).text == "Shorter."


def test_an_error_is_found_only_where_there_is_no_answer() -> None:
    assert find_error({"output": [], "error": None}) is None
    ended = {"finish_reason": "stop"}
    assert find_error({"choices": [ended], "error": {"message": "late"}}) is None
    assert find_error({"choices": [], "error": {"message": "x"}}) == {"message": "x"}


def test_the_weak_model_writes_the_summaries() -> None:
    async def work(server: ScriptedServer) -> str:
        weak = model(server, "openai")
        llm = loom.connect("ollama:big", weak_model=weak)
        assert llm.weak_model is weak
        with loom.Loom.open(":memory:", model=llm) as kept:
            session = kept.new()
            for number in range(12):
                session.append({"role": "user", "content": f"question {number} " + "word " * 30})
                session.append({"role": "assistant", "content": f"answer {number} " + "so " * 30})
            return await session.summarize()

    with ScriptedServer("They asked twelve questions.", repeats=True) as server:
        assert "They asked twelve questions." in run(work(server))
    assert server.received[0].body["model"] == "some-model"


def test_a_store_takes_the_name_of_a_model() -> None:
    with loom.Loom.open(":memory:", model="ollama:small") as kept:
        assert repr(kept.model) == "<HttpModel ollama:small>"


@pytest.mark.parametrize("wire", WIRES)
def test_a_reader_that_fails_leaves_nothing_open(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(llm: HttpModel) -> None:
        async for _ in llm.stream(ASKED):
            raise LookupError("the reader's own")

    with ScriptedServer(SPEAK) as server, pytest.raises(LookupError):
        run(work(model(server, wire)))
    assert caplog.records == []


def test_an_error_that_leaves_no_time_for_another_try_is_told_as_it_is() -> None:
    with (
        ScriptedServer(Refuse(429, retry_after=20)) as server,
        pytest.raises(ProviderError, match="answered 429") as caught,
    ):
        run(model(server, "openai", retries=3, timeout=5).answer(ASKED))
    assert not isinstance(caught.value, ProviderTimeout)


def test_an_address_may_end_with_v1_on_every_wire() -> None:
    with ScriptedServer("yes") as server:
        llm = loom.connect("local:m", base_url=server.openai_url + "/", wire="anthropic")
        assert run(llm.answer(ASKED)).text == "yes"
