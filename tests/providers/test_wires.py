"""A streamed answer is the answer that would have come at once, however its bytes are cut."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom.conversation.canonical import from_json, to_json
from loom.dialects.input import Answer, parse_answer
from loom.errors import BrokenAnswer, LoomError
from loom.providers.http.folding import StreamFolding
from loom.providers.models import CallChunk, ReasoningChunk, StreamEvent, TextChunk, WireChunk
from loom.providers.wires import WIRES, SseEvent, SseReader, write_event
from tests.providers.shapes import EVERY_RESPONSE, NAMES, Json


def fold(wire: str, events: list[SseEvent]) -> tuple[Json, list[StreamEvent], bool]:
    folding = WIRES[wire].fold()
    pieces: list[StreamEvent] = []
    for event in events:
        if event.data != "[DONE]":
            pieces += folding.feed(from_json(event.data))
    return folding.response(), pieces, folding.is_ended


def values(answer: Answer) -> tuple[Answer, Json]:
    """An answer for comparing: the order of the fields in its response is no part of it."""
    return replace(answer, raw=""), from_json(answer.raw)


def unfold(wire: str, response: Json, size: int) -> list[SseEvent]:
    def cut(text: str) -> list[str]:
        return [text[at : at + size] for at in range(0, len(text), size)]

    return list(WIRES[wire].unfold(response, cut))


def read(content: bytes, size: int) -> list[SseEvent]:
    reader = SseReader()
    return [
        event
        for at in range(0, len(content), size)
        for event in reader.feed(content[at : at + size])
    ]


@pytest.mark.parametrize(("wire", "response"), EVERY_RESPONSE, ids=NAMES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_stream_folds_into_the_response_that_it_came_from(
    wire: str, response: Json, size: int
) -> None:
    folded, pieces, ended = fold(wire, unfold(wire, response, size))
    assert ended
    assert folded == response
    answer = parse_answer(response)
    assert values(parse_answer(folded)) == values(answer)
    said = "".join(piece.text for piece in pieces if isinstance(piece, TextChunk))
    assert said == answer.text.replace("\n", "")
    thought = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningChunk))
    assert thought == "".join(
        part.text for part in answer.message.parts if type(part).__name__ == "Reasoning"
    )
    calls: dict[int, list[str]] = {}
    for piece in pieces:
        if isinstance(piece, CallChunk):
            call = calls.setdefault(piece.place, ["", "", ""])
            for at, text in enumerate((piece.id, piece.name, piece.arguments)):
                call[at] += text
    assert [(c[0], c[1], c[2] or "{}") for c in calls.values()] == [
        (call.id, call.name, call.arguments or "{}") for call in answer.tool_calls
    ]


@settings(max_examples=60, deadline=None)
@given(
    which=st.sampled_from(EVERY_RESPONSE),
    texts=st.integers(1, 40),
    parts=st.integers(1, 60),
    ends=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_however_a_stream_is_cut_the_answer_is_the_same(
    which: tuple[str, Json], texts: int, parts: int, ends: str
) -> None:
    wire, response = which
    sent = b"".join(write_event(event) for event in unfold(wire, response, texts))
    content = b": a comment\n\n" + sent
    events = read(content.replace(b"\n", ends.encode()) + b"\n", parts)
    folded, _, ended = fold(wire, events)
    assert ended
    assert values(parse_answer(folded)) == values(parse_answer(response))


@pytest.mark.parametrize(("wire", "response"), EVERY_RESPONSE, ids=NAMES)
def test_every_beginning_of_a_stream_can_be_read(wire: str, response: Json) -> None:
    events = unfold(wire, response, 3)
    for count in range(len(events)):
        folded, _, _ = fold(wire, events[:count])
        answer = parse_answer(folded) if "choices" not in folded or folded["choices"] else None
        assert answer is None or len(answer.text) <= len(parse_answer(response).text)


def test_an_event_counts_when_its_blank_line_has_come() -> None:
    reader = SseReader()
    assert list(reader.feed(b"\xef\xbb\xbfdata: one\ndata:two\nid: 7\n")) == []
    assert list(reader.feed(b"\nevent: x\n\ndata: cut off")) == [SseEvent("", "one\ntwo")]


def test_letters_of_several_bytes_may_be_cut_apart() -> None:
    assert read("data: naïve ✓\n\n".encode(), 1) == [SseEvent("", "naïve ✓")]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.providers.wires.sse.MAX_EVENT_BYTES", 100)
    with pytest.raises(BrokenAnswer, match="longer than"):
        list(SseReader().feed(b"data: " + b"x" * 200))


def chat(*deltas: Any, **more: Any) -> list[SseEvent]:
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    ending = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return [SseEvent("", to_json(chunk)) for chunk in (*chunks, ending | more)]


@pytest.mark.parametrize(
    "deltas",
    [
        # all calls under the index 0, told apart by their ids
        [
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]},
            {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
        ],
        # no index at all
        [
            {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]},
            {"tool_calls": [{"function": {"arguments": "}"}}]},
            {"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]},
        ],
        # the id and the name again in each chunk
        [
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]},
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}}]},
            {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
        ],
        # an index that begins with 1, and an empty id in what follows
        [
            {"tool_calls": [{"index": 1, "id": "a", "function": {"name": "f", "arguments": "{"}}]},
            {"tool_calls": [{"index": 1, "id": "", "function": {"arguments": "}"}}]},
            {"tool_calls": [{"index": 2, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
        ],
        # both in one chunk
        [
            {
                "tool_calls": [
                    {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
                    {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
                ]
            }
        ],
    ],
)
def test_servers_number_their_calls_in_many_ways(deltas: list[Any]) -> None:
    folded, _, _ = fold("openai", chat({"role": "assistant"}, *deltas))
    calls = parse_answer(folded).tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == [
        ("a", "f", "{}"),
        ("b", "g", "{}"),
    ]


def test_calls_without_ids_under_one_index_are_told_apart() -> None:
    """As Gemini sends them: each call is whole, and all have the index 0."""
    deltas = [
        {"tool_calls": [{"index": 0, "id": "", "function": {"name": "f", "arguments": text}}]}
        for text in ('{"x":1}', '{"x":2}')
    ]
    folded, pieces, _ = fold("openai", chat(*deltas))
    calls = parse_answer(folded).tool_calls
    assert [(call.name, call.arguments) for call in calls] == [("f", '{"x":1}'), ("f", '{"x":2}')]
    assert [piece.place for piece in pieces] == [0, 1]


def test_calls_with_one_id_and_several_indexes_are_told_apart() -> None:
    deltas = [
        {"tool_calls": [{"index": n, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}
        for n in range(2)
    ]
    folded, _, _ = fold("openai", chat(*deltas))
    assert [call.id for call in parse_answer(folded).tool_calls] == ["a", "a"]


def test_events_without_data_say_nothing() -> None:
    assert read(b"data:\n\ndata: \n\nevent: ping\n\ndata: x\n\n", 7) == [SseEvent("", "x")]


def test_fields_that_only_one_server_has_are_kept() -> None:
    details = [{"index": 0, "type": "reasoning.text", "text": "so"}]
    more = [{"index": 0, "text": " it is"}]
    events = chat({"reasoning_details": details}, {"reasoning_details": more}, {"content": "yes"})
    folded, pieces, _ = fold("openai", events)
    message = folded["choices"][0]["message"]
    assert message["reasoning_details"] == [
        {"index": 0, "type": "reasoning.text", "text": "so it is"}
    ]
    assert [type(piece) for piece in pieces] == [WireChunk, WireChunk, TextChunk]


def test_arguments_that_broke_off_are_kept_as_text() -> None:
    _, response = next(each for each in EVERY_RESPONSE if each[0] == "anthropic")
    events = unfold("anthropic", response, 3)
    cut = next(n for n, event in enumerate(events) if '"input_json_delta"' in event.data) + 1
    folded, _, ended = fold("anthropic", events[:cut])
    assert not ended
    [call] = parse_answer(folded).tool_calls
    assert from_json(call.arguments) == {"input": '{"c'}


def test_an_empty_output_at_the_end_is_filled_from_the_items() -> None:
    _, response = next(each for each in EVERY_RESPONSE if each[0] == "responses")
    events = unfold("responses", response, 5)
    last = from_json(events[-1].data)
    last["response"]["output"] = []
    folded, _, ended = fold("responses", [*events[:-1], SseEvent("", to_json(last))])
    assert ended
    assert folded == response


JUNK = [None, True, -1, 0, 10**20, 1.5, "", "x", [], [1], [None], {}, {"type": 3}, [{}]]


def damage(value: Any, chance: random.Random) -> Any:
    """A value with something else in the place of some of its parts."""
    if chance.random() < 0.06:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        return {key: damage(each, chance) for key, each in value.items() if chance.random() > 0.03}
    if isinstance(value, list):
        return [damage(each, chance) for each in value]
    return value


@pytest.mark.parametrize(("wire", "response"), EVERY_RESPONSE, ids=NAMES)
def test_a_damaged_stream_raises_nothing_but_typed_errors(wire: str, response: Json) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        folding = StreamFolding("provider", WIRES[wire])
        try:
            for event in unfold(wire, response, 4):
                data = event.data
                if data != "[DONE]":
                    data = to_json(damage(from_json(data), chance))
                list(folding.feed(write_event(SseEvent("", data))))
            folding.finish()
        except LoomError:
            pass
