"""Repair ends in a history that every wire accepts, is idempotent, loses and invents no word, and
reports each change.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom.conversation.message import (
    Carried,
    Conversation,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.dialects import DIALECTS, WIRES
from loom.dialects.repair import (
    UNANSWERED,
    Mender,
    RepairedConversation,
    SeenHistories,
    repair,
    restore_ids,
)
from loom.dialects.repair.histories import sound_calls
from loom.errors import WireError
from tests import strategies as our
from tests.shared import examples


def errors(conversation: Conversation) -> list[tuple[str, str, str]]:
    found = []
    for dialect in WIRES:
        found += [
            (dialect.name, f.rule, f.place)
            for f in dialect.check(dialect.render(conversation).wire)
            if f.level == "error"
        ]
    return [f for f in found if f[1] != "no-messages"]


def words(messages: tuple[Message, ...], *roles: str) -> list[str]:
    return [
        part.text
        for m in messages
        if m.role in roles
        for part in m.parts
        if isinstance(part, Text) and part.text.strip()
    ]


@settings(max_examples=examples(400))
@given(history=our.broken_histories)
def test_every_wire_accepts_a_repaired_history(history: list[Message]) -> None:
    before = Conversation(messages=tuple(history))
    after = repair(before)
    assert errors(after.conversation) == []
    assert after.conversation == before or after.changes, "a change must be reported"

    again = repair(after.conversation)
    assert again.changes == ()
    assert again.conversation is after.conversation or again.conversation == after.conversation

    for role in ("user", "assistant", "system"):
        assert words(after.conversation.messages, role) == words(tuple(history), role)
    said = Counter(
        text
        for m in history
        for r in m.results
        for text in words((Message("user", r.parts),), "user")
    )
    kept = Counter(
        text
        for m in after.conversation.messages
        for r in m.results
        for text in words((Message("user", r.parts),), "user")
    )
    added = kept - said
    assert set(added) <= {UNANSWERED}
    assert added[UNANSWERED] == sum(
        change.rule == "unanswered-call" and UNANSWERED in change.what for change in after.changes
    )

    answers = sum(len(m.results) for m in history)
    about_results = ("orphan-result", "duplicate-result", "late-result")
    dropped = sum(
        change.rule in about_results and change.what.startswith("dropped")
        for change in after.changes
    )
    made = sum(
        change.rule == "unanswered-call" and UNANSWERED in change.what for change in after.changes
    )
    assert answers - dropped + made == sum(len(m.results) for m in after.conversation.messages), (
        "every result is accounted for"
    )

    calls = [(call.name, call.arguments) for m in history for call in m.calls]
    assert [
        (call.name, call.arguments) for m in after.conversation.messages for call in m.calls
    ] == calls
    restored = restore_ids(after.conversation, after.ids)
    assert [c.id for m in restored.messages for c in m.calls] == [
        c.id for m in history for c in m.calls
    ]


@settings(max_examples=examples(150))
@given(conversation=our.conversations())
def test_a_valid_history_comes_back_unchanged(conversation: Conversation) -> None:
    if errors(conversation):
        return  # too many cache marks, or marks in a wrong order: judged by the next test
    after = repair(conversation)
    assert after.changes == ()
    assert after.conversation == conversation


@settings(max_examples=examples(100))
@given(conversation=our.conversations())
def test_surplus_and_misordered_cache_marks_are_mended(conversation: Conversation) -> None:
    after = repair(conversation)
    assert errors(after.conversation) == []
    assert {change.rule for change in after.changes} <= {"too-many-marks", "mark-order"}
    assert words(after.conversation.messages, "user", "assistant") == words(
        conversation.messages, "user", "assistant"
    )


@settings(max_examples=examples(150))
@given(history=st.one_of(our.histories(), our.broken_histories))
def test_the_quick_look_is_never_too_kind(history: list[Message]) -> None:
    mender = Mender(reach=len(history))
    mended = list(mender.mend(history))
    if sound_calls(history) is not None:
        assert (mended, mender.changes) == (history, [])


@settings(max_examples=examples(100))
@given(history=our.broken_histories)
def test_a_stream_is_repaired_like_the_whole(history: list[Message]) -> None:
    whole = Mender(reach=len(history))
    stream = Mender(reach=len(history) + 100)
    assert list(whole.mend(history)) == list(stream.mend(iter(history)))
    assert whole.changes == stream.changes


@pytest.mark.parametrize("name", our.WIRE_REQUESTS)
@settings(max_examples=examples(120))
@given(data=st.data())
def test_a_request_that_is_spelt_wrongly_is_mended(name: str, data: st.DataObject) -> None:
    """Accidents on the wire itself: arguments that are objects, ids that are numbers, content that
    is missing, null or empty.
    """
    valid = DIALECTS[name].render(repair(data.draw(our.conversations())).conversation).wire
    wire = data.draw(our.misspelt(name, valid))
    try:
        conversation = DIALECTS[name].parse(wire)
    except WireError:
        return  # refused by name and place: test_rules holds that
    assert errors(repair(conversation).conversation) == []


@pytest.mark.parametrize("name", our.WIRE_REQUESTS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_no_json_value_anywhere_makes_more_than_a_wire_error(
    name: str, data: st.DataObject
) -> None:
    wire = data.draw(our.damaged(DIALECTS[name].render(data.draw(our.conversations())).wire))
    with contextlib.suppress(WireError):
        DIALECTS[name].check(wire)
    with contextlib.suppress(WireError):
        repair(DIALECTS[name].parse(wire))


def test_many_calls_of_one_id_are_named_in_linear_time() -> None:
    history = (Message("assistant", tuple(ToolCall("a", "f", "{}") for _ in range(4000))),)
    assert len(repair(Conversation(messages=history)).ids) == 3999


def test_what_waits_is_bounded_by_its_size_too() -> None:
    def stream() -> Iterator[Message]:
        yield Message("assistant", (ToolCall("a", "f", "{}"),))
        for n in range(100):
            yield Message("user", (Text(f"{n} " + "x" * 1000),))

    mender = Mender(reach=1000, weight=10_000)
    out = mender.mend(stream())
    assert next(out).calls
    assert len(mender._queue) < 15


def test_results_that_stand_twice_before_their_call_are_both_accounted_for() -> None:
    result = [Message("tool", (ToolResult("a", (Text(text),)),)) for text in ("R1", "R2")]
    history = (
        Message("user", (Text("go"),)),
        *result,
        Message("assistant", (ToolCall("a", "f", "{}"),)),
    )
    mended = repair(Conversation(messages=history))
    assert [change.rule for change in mended.changes] == ["late-result", "orphan-result"]
    assert [r.parts for m in mended.conversation.messages for r in m.results] == [(Text("R1"),)]


def test_the_same_call_made_twice_gets_both_results() -> None:
    call = Message("assistant", (ToolCall("a", "f", "{}"),))
    results = tuple(Message("tool", (ToolResult("a", (Text(text),)),)) for text in ("R1", "R2"))
    mended = repair(Conversation(messages=(call, call, *results)))
    assert "unanswered-call" not in {change.rule for change in mended.changes}
    assert sorted(r.parts[0].text for m in mended.conversation.messages for r in m.results) == [
        "R1",
        "R2",
    ]


# ── a history that grows ─────────────────────────────────────────────────────


@st.composite
def tangled(draw: st.DrawFn) -> list[Message]:
    """Few ids for many calls: used again, called side by side, answered late, early, twice or
    never.
    """
    ids = st.sampled_from(["a", "b", "c", "d e", ""])
    spoken = st.sampled_from(["yes", "", " "]).map(Text)
    asked = st.builds(lambda call_id: ToolCall(call_id, "f", "{}"), ids)
    server = st.builds(
        lambda call_id, answers: Opaque("anthropic", '{"x":1}', call_id, answers),
        st.sampled_from("st"),
        st.booleans(),
    )
    thought = st.sampled_from([Reasoning("r", "anthropic", "sig"), Reasoning("r", "openai")])
    answer = st.builds(
        lambda call_id, text: ToolResult(call_id, (Text(text),)),
        ids,
        st.sampled_from(["R1", "R2", ""]),
    )
    apart = st.sampled_from([None, None, Carried("anthropic", "", ("apart",))])
    message = st.one_of(
        st.builds(lambda part: Message("user", (part,)), spoken),
        st.builds(
            lambda parts: Message("assistant", tuple(parts)),
            st.lists(st.one_of(asked, asked, spoken, server, thought), max_size=4),
        ),
        st.builds(
            lambda parts, how: Message("tool", tuple(parts), "", how),
            st.lists(answer | spoken, max_size=3),
            apart,
        ),
    )
    return draw(st.lists(message, max_size=20))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(our.broken_histories, our.histories(), tangled(), tangled()),
    st.integers(1, 3),
    st.sampled_from(["", "be kind"]),
)
def test_a_history_that_grows_is_mended_as_if_it_had_not_been_seen_before(
    history: list[Message], step: int, system: str
) -> None:
    whole = Conversation(messages=tuple(history), system=(Message("system", (Text(system),)),))
    lengths = [*range(0, len(history), step), len(history)]
    anew = [repair(replace(whole, messages=whole.messages[:length])) for length in lengths]
    seen = SeenHistories()
    grown = [repair(replace(whole, messages=whole.messages[:length]), seen) for length in lengths]
    assert grown == anew
    for each in grown:
        assert len(each.origins) == len(each.conversation.messages)


def test_histories_that_part_are_mended_each_for_itself() -> None:
    """Two agents go on from the same beginning, in turn."""
    begin = (
        Message("user", (Text("go"),)),
        Message("assistant", (ToolCall("a", "f", "{}"),)),
        Message("user", (Text("well?"),)),
    )
    ends = [[Message("tool", (ToolResult("a", (Text(text),)),))] * 2 for text in ("R1", "R2")]
    conversations = [
        Conversation(messages=(*begin, *end[:length])) for length in range(3) for end in ends
    ]
    expected = [repair(conversation) for conversation in conversations]
    seen = SeenHistories()
    for _ in range(2):
        assert [repair(conversation, seen) for conversation in conversations] == expected


def test_threads_that_mend_the_same_history_do_not_disturb_each_other() -> None:
    history = [Message("user", (Text("go"),))]
    for n in range(60):
        history.append(
            Message("assistant", (ToolCall(f"c{n % 50}", "f", "{}"), ToolCall("never", "f", "{}")))
        )
        history.append(Message("tool", (ToolResult(f"c{n % 50}", (Text(f"R{n}"),)),)))
    conversations = [
        Conversation(messages=tuple(history[:length])) for length in range(1, len(history))
    ]
    expected = [repair(conversation) for conversation in conversations]
    seen = SeenHistories()
    with ThreadPoolExecutor(4) as pool:
        assert (
            list(pool.map(lambda conversation: repair(conversation, seen), conversations))
            == expected
        )


def test_of_a_history_that_grows_only_what_is_new_is_mended() -> None:
    """A call that is never answered early on, and much behind it."""
    history = [Message("assistant", (ToolCall("never", "f", "{}"),))]
    for n in range(400):
        history += [
            Message("assistant", (ToolCall(f"c{n}", "f", "{}"),)),
            Message("tool", (ToolResult(f"c{n}", (Text("R"),)),)),
        ]
    seen = SeenHistories()
    lengths = range(600, len(history))
    made: list[RepairedConversation] = [
        repair(Conversation(messages=tuple(history[:length])), seen) for length in lengths
    ]
    for before, after in pairwise(made):
        kept = before.conversation.messages[:-2]
        assert all(
            one is other for one, other in zip(kept, after.conversation.messages, strict=False)
        ), "nothing is made twice"
