"""render(parse(wire)) == wire, and what one wire says another one keeps."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.conversation.canonical import to_sorted_json
from loom.conversation.message import Conversation, Media, Part, Text
from loom.dialects import DIALECTS, WIRES
from tests import strategies as our
from tests.shared import AGENTS, FIXTURES, examples, needs_shared


@pytest.mark.parametrize("name", our.WIRE_REQUESTS)
@settings(max_examples=examples(120))
@given(data=st.data())
def test_any_request_is_written_as_it_was_read(name: str, data: st.DataObject) -> None:
    wire = data.draw(our.WIRE_REQUESTS[name])
    before = to_sorted_json(wire)
    rendered = DIALECTS[name].render(DIALECTS[name].parse(wire))
    assert to_sorted_json(rendered.wire) == before
    assert to_sorted_json(wire) == before, "parsing must not change what it was given"
    assert rendered.losses == ()


@settings(max_examples=examples(120))
@given(conversation=our.conversations())
def test_what_we_render_reads_back_as_the_same_request(conversation: Conversation) -> None:
    for dialect in WIRES:
        wire = dialect.render(conversation).wire
        assert to_sorted_json(dialect.render(dialect.parse(wire)).wire) == to_sorted_json(wire)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("wire_*.json")), ids=lambda path: path.stem)
def test_requests_of_real_clients_are_written_as_they_were_read(path) -> None:
    wire = json.loads(path.read_text())
    name = "anthropic" if "wire_cc" in path.name else "responses"
    rendered = DIALECTS[name].render(DIALECTS[name].parse(wire))
    assert to_sorted_json(rendered.wire) == to_sorted_json(wire)


@needs_shared
def test_shared_transcripts_are_written_as_they_were_read() -> None:
    for path in AGENTS.glob("trail_*.json"):
        wire = json.loads(path.read_text())
        assert to_sorted_json(
            DIALECTS["openai"].render(DIALECTS["openai"].parse(wire)).wire
        ) == to_sorted_json(wire)


STAND_IN = re.compile(r"\[(image|audio|file)\b.*\]")


def texts(parts: tuple[Part, ...]) -> list[str]:
    """The texts, without those that stand for media which a wire could not hold."""
    return [
        part.text for part in parts if isinstance(part, Text) and not STAND_IN.fullmatch(part.text)
    ]


def spoken(conversation: Conversation) -> list[str]:
    return [text for message in conversation.messages for text in texts(message.parts)]


def called(conversation: Conversation) -> list[tuple[str, str]]:
    return [(call.id, call.name) for message in conversation.messages for call in message.calls]


def answered(conversation: Conversation) -> list[tuple[str, str]]:
    """Each result's id and words; media inside a result may have become a placeholder."""
    return [
        (r.call_id, "|".join(texts(r.parts)))
        for message in conversation.messages
        for r in message.results
    ]


def instructed(conversation: Conversation) -> str:
    """All system text; how it is divided is not kept where the wire has one field for it."""
    return "\n\n".join(
        part.text
        for message in conversation.system
        for part in message.parts
        if isinstance(part, Text)
    )


def pictured(conversation: Conversation) -> list[tuple[str, str]]:
    """Images that a user showed, which every wire holds by data and by address."""
    media = [
        part
        for message in conversation.messages
        for part in message.parts
        if isinstance(part, Media)
    ]
    return [(part.kind, part.value) for part in media if part.kind == "image"]


@settings(max_examples=examples(100))
@given(conversation=our.conversations())
def test_there_and_back_keeps_what_both_wires_hold(conversation: Conversation) -> None:
    for first in WIRES:
        start = first.parse(first.render(conversation).wire)
        for second in WIRES:
            back = first.parse(first.render(second.parse(second.render(start).wire)).wire)
            for kept in (spoken, called, answered, instructed, pictured):
                assert kept(back) == kept(start), (first.name, second.name)
            assert [(tool.name, tool.description) for tool in back.tools] == [
                (tool.name, tool.description) for tool in start.tools
            ]
            assert back.model == start.model
            if start.max_output is not None:
                assert back.max_output == start.max_output
