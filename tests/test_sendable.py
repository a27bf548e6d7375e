"""Texts that UTF-8 cannot hold: whatever a caller gives, every wire makes a request that can be
sent.
"""

import asyncio
import json
from typing import Any

import pytest

from loom import Conversation, Loom, Message, Reasoning, Text, ToolCall, repair, weave
from loom.dialects import dialect

HALF = "half \ud83d of a sign"
WIRES = ("openai", "anthropic", "responses", "document")
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": HALF},
    {"role": "user", "content": "find x"},
    {
        "role": "assistant",
        "content": HALF,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "find", "arguments": json.dumps({"q": HALF})},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": HALF},
    {"role": "user", "content": [{"type": "text", "text": HALF}], "name": HALF},
]


def send(wire: Any) -> bytes:
    """What an SDK does with a request."""
    return (wire if isinstance(wire, str) else json.dumps(wire, ensure_ascii=False)).encode()


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_sends_half_of_a_surrogate_pair_as_a_replacement(wire: str) -> None:
    context = weave(
        MESSAGES,
        tools=[{"name": "find", "description": HALF, "input_schema": {}}],
        sections=[("memory", HALF)],
    )
    assert "half \ufffd of a sign".encode() in send(context.render(wire))
    repaired = [
        item for item in context.report.items if item.action == "repaired" and "U+FFFD" in item.rule
    ]
    assert [item.place for item in repaired] == ["given[1]", "given[2]", "given[3]", "settings"]
    with Loom.open(":memory:") as loom:
        session = loom.new(system=HALF)
        session.append(*MESSAGES)
        assert session.path[0].message == Message("user", (Text("find x"),))
        assert session.path[1].message is not None
        assert session.path[1].message.text == HALF  # the store has what was said
        prepared = asyncio.run(session.prepare(window=20_000))
        assert send(prepared.render(wire))
        assert any(
            item.action == "repaired" and "U+FFFD" in item.rule for item in prepared.report.items
        )


@pytest.mark.parametrize("wire", WIRES)
def test_what_was_not_repaired_is_sendable_too(wire: str) -> None:
    given = (
        Message("user", (Text(HALF),), HALF),
        Message(
            "assistant", (Reasoning(HALF, wire, "sig"), ToolCall("c1", HALF, '{"q":"\\ud83d"}'))
        ),
    )
    rendered = dialect(wire).render(Conversation(messages=given))
    send(rendered.wire)
    assert any("surrogate" in loss.what for loss in rendered.losses)


def test_halves_that_belong_together_become_their_sign_and_sound_texts_stay() -> None:
    [message] = repair([{"role": "user", "content": "\ud83e\uddf5 and 🧵"}]).conversation.messages
    assert message.text == "🧵 and 🧵"
    assert repair([{"role": "user", "content": "🧵 织机"}]).changes == ()


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Mary Ann\nX", "Mary_Ann_X"),
        ("代码员/主", "代码员_主"),
        ("x" * 100, "x" * 64),
        ("ok-1", "ok-1"),
    ],
)
def test_who_speaks_is_named_as_the_server_takes_it(name: str, sent: str) -> None:
    context = weave([{"role": "user", "content": "hi", "name": name}], model="gpt-4o")
    [message] = context.openai()["messages"]
    assert message["name"] == sent
    assert (name == sent) == (
        not [item for item in context.report.items if item.action == "repaired"]
    )
    assert dialect("openai").check(context.openai()) == []
    with Loom.open(":memory:") as loom:
        session = loom.new(model="gpt-4o")
        session.append(Message("user", (Text("hi"),), author=" ".join(name.split())))
        [message] = asyncio.run(session.prepare()).openai()["messages"]
    assert message["name"] == sent
