"""Objects of the openai and anthropic SDKs are taken wherever dictionaries are, and nothing that
providers refuse goes out.
"""

import asyncio
import json
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from loom import Loom, Session, repair, weave
from loom.conversation.message import Message, ToolCall
from loom.dialects import dialect
from tests.shared import Package

openai = Package("openai")
anthropic = Package("anthropic")


@pytest.fixture(autouse=True, scope="module")
def sdks() -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")


REFUSED = (
    "parsed",
    "parsed_arguments",
    "parsed_output",
    "function_call",
    "annotations",
    "refusal",
    "audio",
    "index",
)
USER = {"role": "user", "content": "find x"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}


class Find(BaseModel):
    q: str


class Count(BaseModel):
    a: int


CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q":"x"}'}}


@cache
def find_tool() -> Any:
    return openai.pydantic_function_tool(Find, name="find")


def completion(**message: Any) -> Any:
    from openai.types.chat import ChatCompletion

    said = {"role": "assistant", "content": None, "refusal": None, "annotations": []} | message
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": said}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o"}
    return ChatCompletion.model_validate({**head, "choices": [choice], "usage": usage})


def parsed_completion(made: Any, response_format: Any = None, tools: Any = None) -> Any:
    from openai.lib._parsing import parse_chat_completion

    return parse_chat_completion(
        response_format=response_format or openai.NOT_GIVEN,
        input_tools=tools or openai.NOT_GIVEN,
        chat_completion=made,
    )


def streamed_completion() -> Any:
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    state = ChatCompletionStreamState(input_tools=[find_tool()], response_format=openai.NOT_GIVEN)
    begun = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "find", "arguments": ""},
    }
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": None, "tool_calls": [begun]}, None),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"q":"x"}'}}]}, None),
        ({}, "tool_calls"),
    ]
    head = {"id": "chatcmpl-2", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    for delta, why in deltas:
        chunk = ChatCompletionChunk.model_validate(
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": why}]}
        )
        list(state.handle_chunk(chunk))
    return state.get_final_completion()


CHAT = {
    "plain words": lambda: completion(content="found it"),
    "a call": lambda: completion(tool_calls=[CALL]),
    "a parsed call": lambda: parsed_completion(completion(tool_calls=[CALL]), tools=[find_tool()]),
    "a parsed answer": lambda: parsed_completion(
        completion(content='{"a":1}'), response_format=Count
    ),
    "a stream": streamed_completion,
}


def response() -> Any:
    from openai.lib._parsing._responses import parse_response
    from openai.types.responses import Response

    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "abc"},
        {
            "id": "fc_1",
            "type": "function_call",
            "call_id": "c1",
            "name": "find",
            "arguments": '{"q":"x"}',
            "status": "completed",
        },
    ]
    words = {"type": "output_text", "text": '{"a":1}', "annotations": [], "logprobs": []}
    output.append(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [words],
        }
    )
    made = Response.model_validate(
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5",
            "output": output,
            "tools": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "status": "completed",
        }
    )
    find = {
        "type": "function",
        "name": "find",
        "strict": True,
        "parameters": Find.model_json_schema(),
    }
    return parse_response(text_format=Count, input_tools=[find], response=made)


def claude_message() -> Any:
    from anthropic.types import Message as ClaudeMessage

    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "let me see", "citations": None},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "x"}},
    ]
    head = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "stop_reason": "tool_use",
    }
    usage = {"input_tokens": 3, "output_tokens": 2}
    return ClaudeMessage.model_validate(
        {**head, "content": content, "stop_sequence": None, "usage": usage}
    )


def streamed_claude_message() -> Any:
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawMessageStreamEvent

    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {
        "id": "msg_2",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "stop_reason": None,
    }
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {**head, "content": [], "stop_sequence": None, "usage": usage},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": '{"a":1}'},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "find", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"q":"x"}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    reader, made, buffers = TypeAdapter(RawMessageStreamEvent), None, dict[int, bytes]()
    for event in events:
        read = reader.validate_python(event)
        made = accumulate_event(
            event=read, current_snapshot=made, json_bufs=buffers, output_format=Count
        )
    return made


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def check_sent(wire: str, request: Any) -> None:
    """That a request breaks no rule, and has no field of an SDK in its messages."""
    assert [found for found in dialect(wire).check(request) if found.level == "error"] == []
    said = request[dialect(wire).messages_key]
    if wire == "openai":
        assert not keys([m for m in said if m["role"] == "assistant"]) & set(REFUSED)
    assert not keys(said) & {"parsed", "parsed_arguments", "parsed_output", "usage", "stop_reason"}


def prepared(session: Session) -> Any:
    return asyncio.run(session.prepare(window=20_000))


def answered(history: list[Any], said: Message) -> list[Any]:
    return [*history, *([RESULT] if said.calls else []), {"role": "user", "content": "go on"}]


@pytest.mark.parametrize("name", CHAT)
def test_messages_of_the_openai_sdk_are_woven_appended_and_absorbed(name: str) -> None:
    made = CHAT[name]()
    message = made.choices[0].message
    for given in (message, message.model_dump(warnings=False), made):
        [said] = repair([USER, given]).conversation.messages[1:2]
        woven = weave(answered([USER, given], said), window=20_000)
        check_sent("openai", woven.openai())
        assert said.text or said.calls == (ToolCall("c1", "find", '{"q":"x"}'),)
    with Loom.open(":memory:") as loom:
        one, other = loom.new(), loom.new()
        one.append(USER)
        other.append(USER)
        [first], [second] = one.append(message), other.absorb(made)
        assert first.message == second.message
        assert other.response(second.id) is not None
        assert "chatcmpl" in str(other.response(second.id))
        one.append(*answered([], second.message)) if second.message else None
        check_sent("openai", prepared(one).openai())
        check_sent("anthropic", prepared(one).anthropic())


@pytest.mark.parametrize("make", [claude_message, streamed_claude_message])
def test_messages_and_blocks_of_the_anthropic_sdk_are_woven_appended_and_absorbed(
    make: Any,
) -> None:
    made = make()
    whole, blocks = made, {"role": "assistant", "content": made.content}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}],
    }
    for given in (whole, blocks, made.model_dump(warnings=False)):
        woven = weave([USER, given, result, USER], window=20_000, tools=[find_tool()])
        check_sent("anthropic", woven.anthropic())
        assert [call.id for call in woven.conversation.messages[1].calls] == ["c1"]
    with Loom.open(":memory:") as loom:
        tree = loom.new_tree("t")
        tree.say(USER)
        assert tree.say(blocks).message == tree.session().path[-1].message
        session = loom.new(tools=[find_tool()])
        session.append(USER)
        [node] = session.absorb(made)
        session.append(result)
        check_sent("anthropic", prepared(session).anthropic())
        assert node.message is not None
        assert node.message.calls[0].name == "find"


def test_items_of_the_responses_api_are_woven_appended_and_absorbed() -> None:
    made = response()
    result = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    for given in ([made], made.output, [item.model_dump(warnings=False) for item in made.output]):
        woven = weave([USER, *given, result, USER], window=20_000)
        check_sent("responses", woven.responses())
        assert [call.id for message in woven.conversation.messages for call in message.calls] == [
            "c1"
        ]
    with Loom.open(":memory:") as loom:
        one, other = loom.new(), loom.new()
        one.append(USER)
        other.append(USER)
        assert [node.message for node in one.append(*made.output)] == [
            node.message for node in other.absorb(made)
        ]
        one.append(result)
        check_sent("responses", prepared(one).responses())


def test_calls_are_used_as_the_sdks_give_them() -> None:
    from anthropic.types import ToolUseBlock
    from openai.types.chat import ChatCompletionMessageFunctionToolCall
    from openai.types.responses import ResponseFunctionToolCall

    query = json.dumps({"query": "find"})
    function = {"name": "search_context", "arguments": query}
    calls = [
        ChatCompletionMessageFunctionToolCall.model_validate(
            {"id": "c1", "type": "function", "function": function}
        ),
        ResponseFunctionToolCall(
            type="function_call", call_id="c1", name="search_context", arguments=query
        ),
        ToolUseBlock(type="tool_use", id="c1", name="search_context", input={"query": "find"}),
    ]
    with Loom.open(":memory:") as loom:
        for call in (*calls, *(call.model_dump() for call in calls)):
            session = loom.new()
            session.append(USER, Message("assistant", (ToolCall("c1", "search_context", query),)))
            node = session.use(call)
            assert node is not None
            assert node.message is not None
            assert node.message.results[0].call_id == "c1"


def test_annotations_that_say_something_are_kept_and_not_sent() -> None:
    where = {"url": "https://example.org", "title": "t", "start_index": 0, "end_index": 1}
    cited = [{"type": "url_citation", "url_citation": where}]
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(USER)
        [node] = session.append(
            completion(content="see there", annotations=cited).choices[0].message
        )
        assert node.message is not None
        assert "example.org" in str(node.message.carried)
        session.append("go on")
        context = prepared(session)
        assert "annotations" not in keys(context.openai()["messages"])


def test_an_object_in_place_of_a_list_of_messages_is_refused() -> None:
    with pytest.raises(Exception, match="messages must be a list"):
        weave(completion(content="hi").choices[0].message)


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (
            {
                "type": "search_result",
                "source": "s",
                "title": "t",
                "content": [{"type": "text", "text": "found"}],
            },
            "anthropic",
        ),
        ({"type": "container_upload", "file_id": "f1"}, "anthropic"),
        ({"type": "input_file", "file_id": "f1"}, "responses"),
    ],
)
def test_a_block_that_only_one_wire_has_comes_back_on_that_wire(
    block: dict[str, Any], wire: str
) -> None:
    """Nothing else in the message says which wire it is of."""
    request = weave([{"role": "user", "content": [block]}], model="gpt-4o").render(wire)
    [message] = request["messages" if wire == "anthropic" else "input"]
    assert message["content"] == [block]
