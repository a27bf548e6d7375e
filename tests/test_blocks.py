"""Blocks of content as callers write them: misspelt types, types that nobody knows, sound, nulls,
and results without names.
"""

import asyncio
from typing import Any

import pytest

from loom import Loom, LoomError, ToolCall, repair, weave
from loom.dialects import dialect
from loom.dialects.blocks import BLOCK_TYPES, nearest_type
from loom.dialects.repair import UNANSWERED
from loom.errors import WireError

USER = {"role": "user", "content": "find x"}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
AUDIO = {
    "id": "audio_1",
    "data": "UklGRg==" * 5000,
    "expires_at": 1,
    "transcript": "it is on the second shelf",
}


@pytest.mark.parametrize(
    ("misspelt", "right"),
    [
        ("txt", "text"),
        ("Text", "text"),
        ("image-url", "image_url"),
        ("tool_reuslt", "tool_result"),
        ("inputText", "input_text"),
    ],
)
def test_a_misspelt_type_of_a_block_is_refused_with_the_nearest(misspelt: str, right: str) -> None:
    message = {"role": "user", "content": [{"type": misspelt, "text": "find x"}]}
    for wire, body in (
        ("openai", {"messages": [message]}),
        ("anthropic", {"messages": [message]}),
        ("responses", {"input": [message]}),
    ):
        with pytest.raises(WireError, match=f"nearest is '{right}'.*found the text '{misspelt}'"):
            dialect(wire).parse(body)
    with pytest.raises(LoomError, match=rf"messages\[0\]\.content\[0\]\.type.*'{right}'"):
        weave([message])
    with Loom.open(":memory:") as loom, pytest.raises(LoomError, match=right):
        loom.new().append(message)


def test_a_misspelt_type_in_what_the_model_wrote_or_in_a_result_is_refused() -> None:
    written = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_txt", "text": "hi"}],
    }
    with pytest.raises(WireError, match="output_text"):
        dialect("responses").parse({"input": [written]})
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "imge", "source": {}}],
    }
    with pytest.raises(WireError, match="'image'"):
        dialect("anthropic").parse({"messages": [{"role": "user", "content": [result]}]})


def test_every_known_type_is_right_and_types_of_other_versions_are_not_taken_for_it() -> None:
    assert all(nearest_type(kind) in ("", kind) for kind in BLOCK_TYPES)
    assert [
        nearest_type(kind)
        for kind in ("widget", "video", "web_search_tool_result_20260101", "skill_call", "")
    ] == [""] * 5


@pytest.mark.parametrize("wire", ["openai", "anthropic", "responses"])
def test_a_type_that_nobody_knows_stays_on_its_wire_and_is_named_where_it_is_left_out(
    wire: str,
) -> None:
    widget = {"type": "widget", "shape": "round"}
    mark = {"text": "see", "type": "input_text" if wire == "responses" else "text"}
    mark |= {"cache_control": {"type": "ephemeral"}} if wire == "anthropic" else {}
    context = weave([{"role": "user", "content": [mark, widget, widget]}], model="gpt-4o")
    assert str(context.render(wire)).count("'shape': 'round'") == 2
    assert any(
        "2 blocks" in note and "2 widget" in note and f"the {wire} wire" in note
        for note in context.report.notes
    )
    for other in {"openai", "anthropic", "responses"} - {wire}:
        assert "round" not in str(context.render(other))
        losses = dialect(other).render(context.conversation).losses
        assert sum("widget" in loss.what for loss in losses) == 2


@pytest.mark.parametrize("calls", [5, "find", {"id": "c1"}, True])
def test_calls_that_are_no_list_are_refused(calls: Any) -> None:
    said = {"role": "assistant", "content": "hi", "tool_calls": calls}
    with pytest.raises(WireError, match=r"tool_calls: expected a list, found"):
        weave([USER, said, USER])
    with pytest.raises(WireError, match="function_call: expected an object"):
        dialect("openai").parse(
            {
                "messages": [
                    {"role": "assistant", "content": "hi", "function_call": calls} | bad(calls)
                ]
            }
        )


def bad(calls: Any) -> dict[str, Any]:
    """An object is a form of `function_call`, and any other value is not."""
    return {"function_call": 5} if isinstance(calls, dict) else {}


def test_what_a_model_said_aloud_goes_back_by_its_id_and_elsewhere_as_its_transcript() -> None:
    said = {"role": "assistant", "content": None, "audio": AUDIO}
    context = weave([USER, said, USER], model="gpt-4o")
    assert context.openai()["messages"][1]["audio"] == {"id": "audio_1"}
    assert context.anthropic()["messages"][1]["content"] == [
        {"type": "text", "text": AUDIO["transcript"]}
    ]
    assert AUDIO["transcript"] in str(context.responses()["input"][1])
    assert str(AUDIO["transcript"]) in context.document()
    assert context.report.input_tokens < 200  # the sound is not sent, and not counted
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(USER)
        session.absorb({"choices": [{"message": said}]})
        session.append("and then?")
        prepared = asyncio.run(session.prepare(window=20_000))
        assert prepared.openai()["messages"][1]["audio"] == {"id": "audio_1"}
        assert AUDIO["transcript"] in str(prepared.responses())


def test_results_that_loom_writes_have_no_name_and_those_of_callers_keep_theirs() -> None:
    said = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    mended = repair([USER, said, USER]).conversation
    [result] = [m for m in dialect("openai").render(mended).wire["messages"] if m["role"] == "tool"]
    assert result == {"role": "tool", "tool_call_id": "c1", "content": UNANSWERED}
    given = {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "found"}
    assert weave([USER, said, given]).openai()["messages"][-1] == given
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(USER)
        call = ToolCall("c2", "search_context", '{"query": "x"}')
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "c2"}]})
        node = session.use(call)
        assert node is not None
        assert node.message is not None
        assert node.message.results[0].name == ""


def test_nulls_of_answers_that_no_request_takes_are_not_sent_back() -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": None,
        "encrypted_content": "x",
        "status": None,
    }
    call = {
        "type": "function_call",
        "id": None,
        "call_id": "c1",
        "name": "find",
        "arguments": "{}",
        "namespace": None,
    }
    output = {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "found",
        "created_by": None,
    }
    part = {"type": "output_text", "text": "there", "annotations": [], "logprobs": None}
    said = {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "content": [part],
        "status": "completed",
    }
    items = weave([USER, thought, call, output, said, USER], window=20_000).responses()["input"]
    assert items[1] == {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    assert items[2] == {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}
    assert items[3] == {"type": "function_call_output", "call_id": "c1", "output": "found"}
    assert items[4] == said | {
        "content": [{"type": "output_text", "text": "there", "annotations": []}]
    }
    found = dialect("responses").check(
        {"model": "gpt-5", "input": [USER, thought, call, output, USER]}
    )
    assert {finding.place for finding in found if finding.rule == "null-field"} >= {
        "input[1].content",
        "input[2].id",
    }
