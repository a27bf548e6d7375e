"""Compactions of providers: kept and sent back as they came, what is before them goes first, and
nothing is lost.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import loom
from loom import CannotFit, Context, Loom, Message, Policy, Text, ToolCall, ToolResult, weave
from loom.context.policy import policies
from loom.conversation.canonical import from_json
from loom.conversation.compactions import find_compaction, is_compaction, read_compaction
from loom.conversation.message import Carried, Conversation, Opaque
from loom.dialects import compaction_wires, dialect
from loom.dialects.input import Answer
from loom.providers.http.presets import PRESETS
from loom.providers.models import AnswerEnd
from loom.providers.scripted import ScriptedModel, ScriptedServer

SEALED = Opaque("responses", '{"type":"compaction","id":"cmp_1","encrypted_content":"b3A="}')
OPEN = Opaque("anthropic", '{"type":"compaction","content":"They talked of files."}')
FAILED = Opaque("anthropic", '{"type":"compaction","content":null}')
MODELS = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5"}


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def model(*parts: Any) -> Message:
    return Message("assistant", parts)


def turns(count: int, words: int = 30) -> list[Message]:
    said: list[Message] = []
    for number in range(count):
        said.append(user(f"Please do task {number}: " + "word " * words))
        said.append(model(Text(f"Task {number} is done. " + "so " * words)))
    return said


def compacted_parts(context: Context) -> list[Opaque]:
    return [
        part
        for message in context.conversation.messages
        for part in message.parts
        if isinstance(part, Opaque)
    ]


@pytest.mark.parametrize("part", [OPEN, SEALED])
@pytest.mark.parametrize("policy", ["default", "window", "turns", "tree"])
def test_what_is_before_the_newest_compaction_goes_first(part: Opaque, policy: str) -> None:
    older = replace(part, json=part.json.replace("They talked", "Before, they talked"))
    messages = [
        *turns(8),
        user("on"),
        model(older, Text("Yes.")),
        *turns(8),
        user("go on"),
        model(part, Text("Done.")),
        *turns(3),
        user("What is left?"),
    ]
    context = weave(messages, model=MODELS[part.wire], policy=policy, window=200_000)
    assert compacted_parts(context) == [part]
    shown = context.conversation.messages
    place = next(n for n, message in enumerate(shown) if part in message.parts)
    assert shown[place].parts[0] == part
    # what comes after it is all there, before it only what has to be
    assert [message.text for message in shown[place + 1 :]] == [
        message.text for message in messages[-7:]
    ]
    assert len(shown[:place]) <= 5
    assert "Please do task 0" in shown[0].text
    note = next(note for note in context.report.notes if "compacted" in note)
    assert "the provider compacted the 35 messages before message 35" in note
    gone = [line for line in context.report.lines if line.action in ("covered", "dropped")]
    brought = "\n".join(context.recall(handle) for line in gone for handle in line.handles)
    for number in range(1, 8):
        assert f"Task {number} is done." in brought


def test_a_compaction_with_words_is_a_summary_in_the_report() -> None:
    messages = [*turns(8), user("on"), model(OPEN, Text("Yes.")), user("What is left?")]
    lines = weave(messages, model="claude-sonnet-4-5").report.lines
    assert "summary by the provider" in [line.rule for line in lines]
    assert read_compaction(OPEN) == "They talked of files."
    assert read_compaction(SEALED) == ""


def test_a_compaction_that_failed_sums_up_nothing() -> None:
    messages = [*turns(4), user("on"), model(FAILED, Text("Yes.")), user("What is left?")]
    context = weave(messages, model="claude-sonnet-4-5")
    assert len(context.conversation.messages) == len(messages)
    assert compacted_parts(context) == [FAILED]
    assert not is_compaction(FAILED)


@pytest.mark.parametrize(
    ("name", "wires"),
    [
        ("", ("anthropic", "responses")),
        ("anthropic:claude-opus-4", ("anthropic",)),
        ("openai-responses:gpt-5", ("responses",)),
        ("gpt-5", ("responses",)),
        ("openai:gpt-5", ()),
        ("groq:openai/gpt-oss-120b", ()),
        ("openrouter:anthropic/claude-opus-4", ()),
        ("o3", ("responses",)),
        ("ollama:llama3", ()),
    ],
)
def test_the_model_decides_which_compactions_can_be_read(name: str, wires: Any) -> None:
    assert compaction_wires(name) == wires


def test_no_provider_of_the_chat_wire_reads_compactions() -> None:
    chat = [preset.name for preset in PRESETS.values() if preset.wire == "openai"]
    assert "openai" in chat
    for provider in chat:
        for name in MODELS.values():
            assert compaction_wires(f"{provider}:{name}") == ()


def test_a_session_that_moves_to_the_chat_wire_gets_the_originals() -> None:
    with Loom.open() as store:
        session = store.new(model="openai-responses:gpt-5")
        for message in [*turns(4), user("on"), model(SEALED, Text("Yes."))]:
            session.append(message)
        before = asyncio.run(session.prepare("What is left?"))
        assert compacted_parts(before) == [SEALED]
        [note] = [note for note in before.report.notes if "compacted" in note]
        assert "On a wire other than responses" in note
        session.absorb(model(Text("Nothing.")))
        moved = asyncio.run(session.prepare("Sure?", model="openai:gpt-5"))
        sent = str(moved.openai())
        assert all(f"Task {number} is done." in sent for number in range(4))
        assert "1 compactions of the responses wire are left out" in str(moved.report.notes)
        session.absorb(model(Text("Sure.")))
        back = asyncio.run(session.prepare("And now?", model="openai-responses:gpt-5"))
        assert compacted_parts(back) == [SEALED]


@pytest.mark.parametrize("name", ["gpt-4o", "ollama:llama3"])
def test_another_provider_gets_the_originals(name: str) -> None:
    messages = [*turns(4), user("on"), model(OPEN), user("go on"), model(OPEN, Text("Yes."))]
    messages.append(user("What is left?"))
    context = weave(messages, model=name, window=50_000)
    assert compacted_parts(context) == []
    said = [message.text for message in context.conversation.messages]
    assert all(message.text in said for message in messages if message.text)
    assert any(
        "2 compactions of the anthropic wire are left out" in n for n in context.report.notes
    )


@pytest.mark.parametrize(("wire", "part"), [("anthropic", OPEN), ("responses", SEALED)])
def test_a_wire_gets_its_compaction_back_as_it_was(wire: str, part: Opaque) -> None:
    body = weave(
        [*turns(3), user("on"), model(part, Text("Yes.")), user("What?")], model=MODELS[wire]
    ).render(wire)
    blocks = body["input"] if wire == "responses" else _blocks(body)
    assert blocks.count(from_json(part.json)) == 1
    assert not [found for found in dialect(wire).check(body) if found.level == "error"]


def _blocks(body: Any) -> list[Any]:
    return [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]


def test_the_exchange_of_a_compaction_is_shrunk_around_it() -> None:
    call = model(OPEN, Text("I look."), ToolCall("call_1", "bash", "{}"))
    result = Message("tool", (ToolResult("call_1", (Text("line\n" * 5000),)),))
    messages = [*turns(3), user("on"), call, result, user("What is left?")]
    context = weave(messages, model="claude-sonnet-4-5", window=3000, reserve_output=500)
    assert compacted_parts(context) == [OPEN]
    place = find_compaction(context.conversation.messages, ("anthropic",))
    assert place is not None
    assert context.conversation.messages[place].parts[0] == OPEN
    assert context.report.input_tokens <= 2500


# Asking for it


def policy(compaction: str, **more: Any) -> Policy:
    return Policy.extends("default", name="mine", compaction=compaction, **more)


def test_a_policy_asks_for_compaction_on_both_wires() -> None:
    context = weave(turns(1), model="claude-sonnet-4-5", policy=policy("ask"), window=200_000)
    assert context.anthropic()["context_management"] == {
        "edits": [
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 160_000}}
        ]
    }
    assert context.responses()["context_management"] == [
        {"type": "compaction", "compact_threshold": 160_000}
    ]
    assert "context_management" not in context.openai()
    small = weave(turns(1), model="claude-sonnet-4-5", policy=policy("ask"), window=20_000)
    trigger = small.anthropic()["context_management"]["edits"][0]["trigger"]
    assert trigger["value"] == 50_000


def test_a_policy_forbids_compaction_and_leaves_other_edits() -> None:
    clear = {"type": "clear_tool_uses_20250919"}
    edits = {"context_management": {"edits": [clear, {"type": "compact_20260112"}]}}
    asked = Conversation(
        messages=tuple(turns(1)),
        model="claude-sonnet-4-5",
        settings=Carried("anthropic", loom.conversation.canonical.to_json(edits)),
    )
    assert weave(asked).anthropic()["context_management"] == edits["context_management"]
    forbidden = weave(asked, policy=policy("forbid")).anthropic()
    assert forbidden["context_management"] == {"edits": [clear]}
    both = weave(asked, policy=policy("ask", compact_at=0.5), window=200_000).anthropic()
    assert [edit["type"] for edit in both["context_management"]["edits"]] == [
        "clear_tool_uses_20250919",
        "compact_20260112",
    ]
    plain = weave(turns(1), model="claude-sonnet-4-5", policy=policy("forbid")).anthropic()
    assert "context_management" not in plain
    with pytest.raises(loom.ChoiceError, match="compaction"):
        policy("perhaps")


# Laws


@settings(max_examples=80, deadline=None)
@given(
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    words=st.integers(1, 80),
    window=st.integers(1500, 9000),
    name=st.sampled_from(sorted(policies())),
    part=st.sampled_from([OPEN, SEALED]),
    pin=st.booleans(),
)
def test_the_newest_compaction_is_in_every_request_that_fits(
    before: int, after: int, words: int, window: int, name: str, part: Opaque, pin: bool
) -> None:
    messages = [
        *turns(before, words),
        user("on"),
        model(part, Text("Yes.")),
        *turns(after, words),
        user("What is left?"),
    ]
    pins = (2,) if pin and before > 2 else ()
    try:
        context = weave(
            messages,
            model=MODELS[part.wire],
            window=window,
            reserve_output=500,
            policy=name,
            pins=pins,
        )
    except CannotFit:
        return
    shown = context.conversation.messages
    assert compacted_parts(context) == [part]
    place = find_compaction(shown, (part.wire,))
    assert place is not None
    assert shown[place] == messages[2 * before + 1]
    assert context.report.input_tokens + 500 <= window
    body = context.render(part.wire)
    assert not [found for found in dialect(part.wire).check(body) if found.level == "error"]
    # nothing from before it is kept while something from after it is left out, but what must be in
    lines = [line for line in context.report.lines if line.zone == "history"]
    must = ("first goal", "current goal", "pin", "the request leans on it", "system text")
    older = [
        line
        for line in lines
        if line.action == "kept" and _place(line.place) < 2 * before and line.rule not in must
    ]
    newer_gone = [
        line
        for line in lines
        if line.action in ("dropped", "covered") and _place(line.place) > 2 * before + 1
    ]
    assert not (older and newer_gone)
    for line in lines:
        for handle in line.handles:
            assert context.recall(handle)


def _place(place: str) -> int:
    return int(place.removeprefix("messages[").split(":")[0].rstrip("]").split("]")[0])


# Sessions


def test_a_session_keeps_the_compaction_and_the_originals() -> None:
    async def work() -> None:
        with Loom.open(":memory:") as kept:
            session = kept.new(model="claude-sonnet-4-5")
            for message in turns(10):
                session.append(message)
            first = await session.prepare("go on", window=6000, reserve_output=1000)
            llm = ScriptedModel(model(OPEN, Text("On it.")))
            session.absorb(await llm.answer(first))
            second = await session.prepare("and then?", window=6000, reserve_output=1000)
            assert compacted_parts(second) == [OPEN]
            assert second.report.epoch_reason == "the provider compacted what came before"
            session.append(model(Text("ok")))
            third = await session.prepare("again?", window=6000, reserve_output=1000)
            assert third.report.epoch_reason == "continued"
            gone = [line for line in second.report.lines if line.action == "covered"]
            brought = [session.recall(handle) for line in gone for handle in line.handles]
            assert "Task 3 is done." in "".join(brought)
            # long after, in many epochs, and after a restart
            for number in range(60):
                session.append(model(Text(f"Answer {number} " + "so " * 60)))
                context = await session.prepare(
                    f"question {number} " + "word " * 60, window=6000, reserve_output=1000
                )
                assert compacted_parts(context) == [OPEN], number
            session.append(model(Text("fine")))
            again = kept.session(session.id)
            context = await again.prepare("still there?", window=6000, reserve_output=1000)
            assert compacted_parts(context) == [OPEN]
            other = await again.prepare("you?", model="gpt-4o", window=60_000)
            assert compacted_parts(other) == []
            assert "Task 3 is done." in other.conversation.messages[7].text

    asyncio.run(work())


@pytest.mark.parametrize(("wire", "part"), [("anthropic", OPEN), ("responses", SEALED)])
def test_a_compaction_goes_over_the_wire_and_back(wire: str, part: Opaque) -> None:
    pytest.importorskip("aiohttp")

    async def work(server: ScriptedServer) -> None:
        url = server.url if wire == "anthropic" else server.openai_url
        llm = loom.connect(MODELS[wire], base_url=url, wire=wire, key="k")
        with Loom.open(":memory:") as kept:
            session = kept.new(model=MODELS[wire])
            for request in ("list the files", "and count them"):
                context = await session.prepare(request, policy=policy("ask"))
                async for event in llm.stream(context):
                    if isinstance(event, AnswerEnd):
                        session.absorb(event.answer)

    with ScriptedServer(model(part, Text("Two files.")), "Three.") as server:
        asyncio.run(work(server))
    first, second = server.received
    assert "compact" in str(first.body["context_management"])
    assert from_json(part.json) in (
        second.body["input"] if wire == "responses" else _blocks(second.body)
    )
    if wire == "anthropic":
        assert "compact-2026-01-12" in second.headers["anthropic-beta"]


def test_what_a_provider_compacted_does_not_teach_the_counter() -> None:
    async def work(*parts: Any) -> str:
        with Loom.open(":memory:") as kept:
            session = kept.new(model="claude-sonnet-4-5")
            for message in turns(10):
                session.append(message)
            await session.prepare("go on")
            session.absorb(Answer(messages=(model(*parts),), prompt=40, completion=3, raw="{}"))
            return session.row.calibration

    assert asyncio.run(work(Text("On it."))) != ""
    assert asyncio.run(work(OPEN, Text("On it."))) == ""
