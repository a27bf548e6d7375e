"""The law of pins: what the caller names by its place in the list, as given, is in the request, on
every wire and after repair.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom import CannotFit, LoomError, weave
from loom.context.history.point import cut_of_point
from loom.context.policy import policies
from loom.context.request import Context
from tests.shared import examples

FILLER = " lorem ipsum dolor sit amet"
POLICIES = ["default", "window", "turns", "tree", "partitions"]


def words_of(tag: str, length: int) -> str:
    return f"<{tag}>{FILLER * length}"


class Wire:
    """Builds a list in one wire's form. Each value's words hold a tag of their own; a value that
    repair drops holds none.
    """

    def __init__(self, length: int) -> None:
        self.values: list[dict[str, Any]] = []
        self.tags: list[list[str]] = []
        self._length = length
        self._count = 0

    def say(self) -> tuple[str, str]:
        """A new tag, and words that hold it."""
        self._count += 1
        return f"t{self._count}", words_of(f"t{self._count}", self._length)

    def add(self, value: dict[str, Any], *tags: str) -> None:
        self.values.append(value)
        self.tags.append(list(tags))


class Chat(Wire):
    def user(self) -> None:
        tag, words = self.say()
        self.add({"role": "user", "content": words}, tag)

    def model(self, calls: int, answered: bool, late_words: bool) -> None:
        tag, words = self.say()
        ids = [f"call_{len(self.values)}_{n}" for n in range(calls)]
        made = [
            {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
        ]
        self.add(
            {"role": "assistant", "content": words} | ({"tool_calls": made} if made else {}), tag
        )
        for name in ids if answered else ids[1:]:
            tag, words = self.say()
            self.add({"role": "tool", "tool_call_id": name, "content": words}, tag)
        if late_words:
            self.user()

    def orphan(self) -> None:
        self.add({"role": "tool", "tool_call_id": "nobody", "content": "orphan"})


class Anthropic(Wire):
    def user(self) -> None:
        tag, words = self.say()
        self.add({"role": "user", "content": [{"type": "text", "text": words}]}, tag)

    def model(self, calls: int, answered: bool, late_words: bool) -> None:
        tag, words = self.say()
        ids = [f"call_{len(self.values)}_{n}" for n in range(calls)]
        made = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ids]
        self.add({"role": "assistant", "content": [{"type": "text", "text": words}, *made]}, tag)
        blocks, tags = [], []
        for name in ids if answered else ids[1:]:
            tag, words = self.say()
            blocks.append({"type": "tool_result", "tool_use_id": name, "content": words})
            tags.append(tag)
        if late_words:
            tag, words = self.say()
            blocks.append({"type": "text", "text": words})
            tags.append(tag)
        if blocks:
            self.add({"role": "user", "content": blocks}, *tags)

    def orphan(self) -> None:
        self.add(
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": "orphan"}],
            }
        )


class Responses(Wire):
    def user(self) -> None:
        tag, words = self.say()
        self.add({"role": "user", "content": [{"type": "input_text", "text": words}]}, tag)

    def model(self, calls: int, answered: bool, late_words: bool) -> None:
        tag, words = self.say()
        self.add(
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": words}],
            },
            tag,
        )
        ids = [f"call_{len(self.values)}_{n}" for n in range(calls)]
        for name in ids:
            tag, _ = self.say()
            self.add(
                {
                    "type": "function_call",
                    "call_id": name,
                    "name": "f",
                    "arguments": f'{{"q": "<{tag}>"}}',
                },
                tag,
            )
        for name in ids if answered else ids[1:]:
            tag, words = self.say()
            self.add({"type": "function_call_output", "call_id": name, "output": words}, tag)
        if late_words:
            self.user()

    def orphan(self) -> None:
        self.add({"type": "function_call_output", "call_id": "nobody", "output": "orphan"})


WIRES = {"openai": Chat, "anthropic": Anthropic, "responses": Responses}
steps = st.one_of(
    st.just("user"),
    st.just("orphan"),
    st.tuples(st.integers(0, 3), st.sampled_from([True, True, False]), st.booleans()),
)


@st.composite
def pinned_lists(draw: st.DrawFn) -> tuple[Wire, list[int]]:
    wire = WIRES[draw(st.sampled_from(sorted(WIRES)))](draw(st.sampled_from([3, 20, 60])))
    if draw(st.booleans()):
        wire.add({"role": "system", "content": "be brief <system>"}, "system")
    wire.user()
    for step in draw(st.lists(steps, min_size=2, max_size=14)):
        if isinstance(step, tuple):
            wire.model(*step)
        else:
            getattr(wire, step)()
    wire.user()
    return wire, draw(st.lists(st.integers(0, len(wire.values) - 1), min_size=1, max_size=3))


def texts_of(context: Context) -> str:
    sent = context.conversation
    return str((sent.system, sent.messages))


def recalled(context: Context) -> str:
    """All that was shrunk because nothing else could give, brought back."""
    shrunk = [item for item in context.report.items if item.action == "shrunk"]
    return str([context.recall(handle) for item in shrunk for handle in item.handles])


def cut_of(context: Context) -> int:
    return cut_of_point(context.report.items)


@settings(max_examples=examples(200))
@given(
    case=pinned_lists(), policy=st.sampled_from(POLICIES), window=st.sampled_from([400, 1000, 3000])
)
def test_a_pin_is_the_message_that_the_caller_named(
    case: tuple[Wire, list[int]], policy: str, window: int
) -> None:
    wire, pins = case
    asked: dict[str, Any] = {
        "model": "gpt-4o",
        "window": window,
        "reserve_output": 0,
        "policy": policy,
    }
    try:
        context = weave(wire.values, pins=pins, **asked)
    except CannotFit:
        return
    there, back = texts_of(context), recalled(context)
    wanted = [tag for pin in pins for tag in wire.tags[pin]]
    for tag in wanted:
        assert f"<{tag}>" in there or f"<{tag}>" in back, (
            f"{tag} of pins {pins} is neither there nor shrunk"
        )
    for piece in context.continuation.pieces:
        if piece.items[0].rule == "pin":
            words = str(
                (
                    piece.messages,
                    [context.recall(handle) for item in piece.items for handle in item.handles],
                )
            )
            assert any(f"<{tag}>" in words for tag in wanted), "nothing else is taken for a pin"
    if any(item.action == "covered" for item in context.report.items):
        bare = weave(
            wire.values, pins=pins, **(asked | {"policy": replace(policies()[policy], cover=0.0)})
        )
        assert cut_of(context) < 2 * cut_of(bare) or not cut_of(context), (
            "lines of what is left out give way first"
        )


def test_a_pin_on_results_and_words_of_one_anthropic_message_keeps_both() -> None:
    filler = FILLER * 100
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "the goal of all this"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "PINNED RESULT"},
                {"type": "text", "text": "PINNED WORDS"},
            ],
        },
        *(
            {"role": role, "content": f"{n}{filler}"}
            for n in range(6)
            for role in ("assistant", "user")
        ),
        {"role": "user", "content": "now"},
    ]
    sent = str(
        weave(messages, model="gpt-4o", window=1500, reserve_output=0, pins=[2]).anthropic()[
            "messages"
        ]
    )
    assert "PINNED RESULT" in sent
    assert "PINNED WORDS" in sent
    # Behind a message that became two, too.
    assert f"3{filler}" in str(
        weave(messages, model="gpt-4o", window=1500, reserve_output=0, pins=[9]).anthropic()[
            "messages"
        ]
    )


def test_a_pin_on_one_of_several_responses_items_keeps_their_message() -> None:
    filler = FILLER * 100
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "the goal"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"role": "user", "content": "THE PINNED ONE"},
        *(
            {"role": role, "content": f"{n}{filler}"}
            for n in range(6)
            for role in ("assistant", "user")
        ),
        {"role": "user", "content": "now"},
    ]
    sent = str(
        weave(items, model="gpt-4o", window=1500, reserve_output=0, pins=[4]).responses()["input"]
    )
    assert "THE PINNED ONE" in sent
    sent = str(
        weave(items, model="gpt-4o", window=1500, reserve_output=0, pins=[2]).responses()["input"]
    )
    assert "I look" in sent
    assert "'c1'" in sent


def test_a_pin_on_leading_system_text_is_kept_by_itself_and_one_outside_is_refused() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    assert (
        weave(messages, model="gpt-4o", pins=[0]).openai()["messages"][0]["content"] == "be brief"
    )
    with pytest.raises(
        LoomError, match="pin 2 is not a message of the conversation, which has 2 messages"
    ):
        weave(messages, model="gpt-4o", pins=[2])
