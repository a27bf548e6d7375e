"""Sections before the current request: with a role, in the form that each wire accepts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loom import ChoiceError, Loom, Policy, Section, weave
from loom.dialects import WIRES
from loom.dialects.openai import DIALECT as OPENAI

SECTIONS = [
    ("messages", "MESSAGE of another agent"),
    ("knowledge", "FACT one"),
    Section("knowledge", "FACT two"),
    ("working", "STATE"),
]
CALL = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "the file"},
]


def said(count: int, words: int = 4) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"msg{n + 1} " + "word " * words}
        for n in range(count)
    ]


def shape(wire: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for message in wire["messages"]:
        content = message["content"]
        if isinstance(content, list):
            content = content[0].get("text") or content[0]["type"]
        found.append((message["role"], (content or "call").split()[0]))
    return found


def test_they_are_directly_before_the_request_in_the_order_of_the_policy() -> None:
    context = weave(said(5), model="gpt-4o", policy="tasks", sections=SECTIONS)
    assert shape(context.openai()) == [
        ("user", "msg1"),
        ("assistant", "msg2"),
        ("user", "msg3"),
        ("assistant", "msg4"),
        ("system", "FACT"),
        ("system", "FACT"),
        ("user", "MESSAGE"),
        ("user", "msg5"),
        ("user", "STATE"),
    ]
    assert context.sections == (4, 7)
    assert context.tail == 1


def test_calls_after_the_request_do_not_move_them() -> None:
    context = weave([*said(1), *CALL], model="gpt-4o", policy="tasks", sections=SECTIONS[:1])
    assert shape(context.openai()) == [
        ("user", "MESSAGE"),
        ("user", "msg1"),
        ("assistant", "call"),
        ("tool", "the"),
    ]


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_every_wire_gets_a_form_that_it_accepts(wire: Any) -> None:
    given = [*said(3), *CALL]
    context = weave(given, model="gpt-4o", policy="tasks", sections=SECTIONS)
    found = wire.check(context.render(wire.name))
    assert [finding for finding in found if finding.level == "error"] == []


def test_anthropic_gets_them_as_words_of_the_user() -> None:
    context = weave(said(3), model="gpt-4o", policy="tasks", sections=SECTIONS, system="Be brief.")
    wire = context.anthropic()
    assert {message["role"] for message in wire["messages"]} == {"user", "assistant"}
    assert wire["system"][0]["text"] == "Be brief."


def test_they_are_parsed_back_as_they_were_sent() -> None:
    context = weave(said(3), model="gpt-4o", policy="tasks", sections=SECTIONS)
    assert OPENAI.parse(context.openai()).messages == context.conversation.messages


def test_an_epoch_goes_on_in_a_tool_loop_and_ends_with_the_next_request() -> None:
    options: dict[str, Any] = {"model": "gpt-4o", "policy": "tasks", "sections": SECTIONS[:3]}
    first = weave(said(3), **options)
    second = weave([*said(3), *CALL], previous=first, **options)
    before = first.conversation.messages
    assert second.report.epoch == first.report.epoch
    assert second.conversation.messages[: len(before)] == before
    third = weave([*said(3), *CALL, *said(5)[3:]], previous=second, **options)
    assert third.report.epoch == second.report.epoch + 1
    assert "before the request" in third.report.epoch_reason
    assert shape(third.openai())[-2:] == [("user", "MESSAGE"), ("user", "msg5")]


def test_other_words_before_the_request_begin_an_epoch_that_the_report_names() -> None:
    first = weave(said(3), model="gpt-4o", policy="tasks", sections=SECTIONS[:1])
    other = weave(
        [*said(3), *CALL], model="gpt-4o", policy="tasks", sections=SECTIONS[1:2], previous=first
    )
    assert other.report.epoch == 1
    assert "before the request" in other.report.epoch_reason


def test_a_session_goes_on_with_them_after_a_restart(tmp_path: Path) -> None:
    store, options = str(tmp_path / "store.db"), {"policy": "tasks", "sections": SECTIONS[:2]}
    with Loom.open(store) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*said(3))
        first = asyncio.run(session.prepare(**options))
    with Loom.open(store) as loom:
        session = loom.session(session.id)
        session.append(*CALL)
        second = asyncio.run(session.prepare(**options))
        assert second.report.epoch_reason == "continued"
        before = first.conversation.messages
        assert second.conversation.messages[: len(before)] == before
        session.append({"role": "assistant", "content": "done"}, *said(1))
        third = asyncio.run(session.prepare(**options))
        assert third.report.epoch == second.report.epoch + 1


def test_a_document_and_a_history_without_a_request_have_them_in_the_system_text() -> None:
    context = weave(
        [{"role": "assistant", "content": "hello"}], policy="tasks", sections=SECTIONS[:1]
    )
    assert "MESSAGE" in context.conversation.system[0].text


def test_a_role_that_is_neither_the_user_nor_the_system_is_refused() -> None:
    with pytest.raises(ChoiceError, match="before_request"):
        Policy.extends("default", name="mine", before_request={"knowledge": "assistant"})


def test_the_list_that_document_004_prints_comes_out_without_the_first_goal() -> None:
    messages = [{"role": "system", "content": "You are helpful."}, *said(8, 2_000)]
    context = weave(messages, policy="tasks", window=8_000, reserve_output=0)
    kept = [message.text.split()[0] for message in context.conversation.messages]
    assert kept == ["[5", "msg6", "msg7", "msg8"]
    assert context.conversation.system[0].text == "You are helpful."
    assert "msg1" in context.recall(context.report.items[1].handles[0])
