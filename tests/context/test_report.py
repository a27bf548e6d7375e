"""A report is written down as a whole, and whoever holds it or its context continues the epoch."""

import msgspec
import pytest

from loom import Media, Message, Text, ToolCall, ToolResult, weave
from loom.context.policy import policies
from loom.context.report import Report
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError

SAID = [
    {"role": role, "content": f"{role} says word_{n} " * 30}
    for n in range(12)
    for role in ("user", "assistant")
]
OPTIONS = {"model": "gpt-4o", "window": 2000, "reserve_output": 0}


@pytest.mark.parametrize(
    "policy", [name for name in policies() if policies()[name].strategy != "stop_at_limit"]
)
def test_a_report_is_read_back_as_it_was_written(policy: str) -> None:
    first = weave(SAID[:18], policy=policy, **OPTIONS)
    for context in (first, weave(SAID, policy=policy, previous=first, **OPTIONS)):
        written = to_json(context.report)
        assert "continuation" not in written
        assert msgspec.json.decode(written, type=Report) == context.report
        assert to_json(context.report.as_dict())


def test_the_report_and_the_context_continue_the_same_epoch() -> None:
    first = weave(SAID[:18], **OPTIONS)
    by_context = weave(SAID, previous=first, **OPTIONS)
    by_report = weave(SAID, previous=first.report, **OPTIONS)
    assert by_context.openai() == by_report.openai()
    assert by_context.report == by_report.report


def test_a_report_that_was_read_back_continues_nothing_and_says_so() -> None:
    report = msgspec.json.decode(to_json(weave(SAID, **OPTIONS).report), type=Report)
    assert report.items == report.lines
    with pytest.raises(ChoiceError, match="give the context itself"):
        weave(SAID, previous=report, **OPTIONS)


@pytest.mark.parametrize(
    ("name", "is_noted"),
    [
        ("gpt-4o", True),
        ("openai:gpt-5", True),
        ("openrouter:anthropic/claude-opus-4", True),
        ("openai-responses:gpt-5", False),
        ("claude-sonnet-4-5", False),
    ],
)
def test_a_report_names_images_in_results_that_chat_has_no_place_for(
    name: str, is_noted: bool
) -> None:
    picture = Media("image", "data", "iVBORw0KGgo=", "image/png")
    page = Media("file", "text", "Words.", "text/plain")
    messages = [
        Message("user", (Text("Look."), picture)),
        Message("assistant", (ToolCall("1", "look", "{}"),)),
        Message("tool", (ToolResult("1", (Text("Here."), picture, page)),)),
    ]
    notes = [note for note in weave(messages, model=name).report.notes if "results of" in note]
    assert [note.startswith("1 image in results of tools") for note in notes] == [True] * is_noted
