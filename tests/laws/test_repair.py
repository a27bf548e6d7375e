"""Repair ends in a history that every wire accepts, is idempotent, loses and invents no word, and reports each change."""

from collections import Counter

from hypothesis import given, settings

from loom.conversation.message import Conversation, Message, Text
from loom.dialects import WIRES
from loom.dialects.repair import UNANSWERED, Mender, repair, restore_ids
from tests import strategies as our
from tests.shared import examples


def errors(conversation: Conversation) -> list[tuple[str, str, str]]:
    found = []
    for dialect in WIRES:
        found += [(dialect.name, f.rule, f.place) for f in dialect.check(dialect.render(conversation).wire) if f.level == "error"]
    return [f for f in found if f[1] != "no-messages"]


def words(messages: tuple[Message, ...], *roles: str) -> list[str]:
    return [part.text for m in messages if m.role in roles for part in m.parts if isinstance(part, Text) and part.text.strip()]


@settings(max_examples=examples(600))
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
    said = Counter(text for m in history for r in m.results for text in words((Message("user", r.parts),), "user"))
    kept = Counter(
        text for m in after.conversation.messages for r in m.results for text in words((Message("user", r.parts),), "user")
    )
    added = kept - said
    assert set(added) <= {UNANSWERED}
    assert added[UNANSWERED] == sum(change.rule == "unanswered-call" and UNANSWERED in change.what for change in after.changes)

    calls = [(call.name, call.arguments) for m in history for call in m.calls]
    assert [(call.name, call.arguments) for m in after.conversation.messages for call in m.calls] == calls
    restored = restore_ids(after.conversation, after.ids)
    assert [c.id for m in restored.messages for c in m.calls] == [c.id for m in history for c in m.calls]


@settings(max_examples=examples(300))
@given(conversation=our.conversations())
def test_a_valid_history_comes_back_unchanged(conversation: Conversation) -> None:
    if errors(conversation):
        return  # too many cache marks, or marks in a wrong order: judged by the next test
    after = repair(conversation)
    assert after.changes == ()
    assert after.conversation == conversation


@settings(max_examples=examples(200))
@given(conversation=our.conversations())
def test_surplus_and_misordered_cache_marks_are_mended(conversation: Conversation) -> None:
    after = repair(conversation)
    assert errors(after.conversation) == []
    assert {change.rule for change in after.changes} <= {"too-many-marks", "mark-order"}
    assert words(after.conversation.messages, "user", "assistant") == words(conversation.messages, "user", "assistant")


@settings(max_examples=examples(200))
@given(history=our.broken_histories)
def test_a_stream_is_repaired_like_the_whole(history: list[Message]) -> None:
    whole = Mender(reach=len(history))
    stream = Mender(reach=len(history) + 100)
    assert list(whole.mend(history)) == list(stream.mend(iter(history)))
    assert whole.changes == stream.changes
