"""System messages inside a conversation: they leave with their turn, and the newest of each kind
stays.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom import CannotFit, Message, Text, ToolCall, ToolResult, weave
from loom.context.policy import find_policy, policies
from loom.conversation.system_messages import kind_of, order_behind_results
from tests.shared import examples

LEADING = "You are careful. Never delete a table."


def reminded(
    turns: int, reminder: str = "Reminder {n}: mind the tests, and say what you did."
) -> list[dict[str, Any]]:
    """A conversation with a system message in every turn, and one of another kind at its
    beginning.
    """
    messages = [{"role": "system", "content": LEADING}, {"role": "user", "content": "the goal"}]
    messages.append({"role": "system", "content": "Rules: NEVER PUSH"})
    for n in range(turns):
        messages.append({"role": "user", "content": f"question {n} " + "word " * 20})
        messages.append(
            {
                "role": "developer",
                "content": reminder.format(n=n, word=chr(97 + n % 26) * (n // 26 + 1)),
            }
        )
        messages.append({"role": "assistant", "content": f"answer {n}"})
    return messages


@pytest.mark.parametrize("name", policies())
def test_reminders_leave_with_their_turns_and_the_newest_of_each_kind_stays(name: str) -> None:
    messages = reminded(300)
    context = weave(messages, model="gpt-4o", window=4_000, reserve_output=0, policy=name)
    sent = context.openai()["messages"]
    texts = [message["content"] for message in sent]
    assert texts[0] == LEADING
    assert "Rules: NEVER PUSH" in texts
    assert messages[-2]["content"] in texts
    assert messages[3 + 3 * 150 + 1]["content"] not in texts
    assert len([text for text in texts if str(text).startswith("Reminder")]) < 150
    places = [messages.index(message) for message in sent if message in messages]
    assert places == sorted(places), "they keep their places"


@pytest.mark.parametrize("name", policies())
def test_system_messages_of_very_many_kinds_do_not_end_in_an_error(name: str) -> None:
    messages = reminded(
        400,
        reminder=(
            "{word} is what this message alone begins with, so that each is of a kind of its own"
        ),
    )
    context = weave(messages, model="gpt-4o", window=3_000, reserve_output=0, policy=name)
    texts = [message["content"] for message in context.openai()["messages"]]
    assert messages[-1]["content"] in texts
    assert messages[-3]["content"] in texts


def test_a_policy_may_keep_all_of_them() -> None:
    keeping = replace(find_policy("default"), name="strict", system_messages="keep")
    context = weave(reminded(40), model="gpt-4o", window=3_000, reserve_output=0, policy=keeping)
    texts = [message["content"] for message in context.openai()["messages"]]
    assert len([text for text in texts if text.startswith("Reminder")]) == 40
    with pytest.raises(
        CannotFit,
        match=r"the required messages take [\d,]+ tokens even when shrunk \(.*system text",
    ):
        weave(reminded(400), model="gpt-4o", window=3_000, reserve_output=0, policy=keeping)


@pytest.mark.parametrize("wire", ["openai", "responses", "anthropic"])
def test_a_system_message_in_its_place_does_not_change_the_leading_system_text(wire: str) -> None:
    messages = reminded(3)
    first = weave(messages, model="gpt-4o", window=8_000)
    grown = [
        *messages,
        {"role": "user", "content": "next"},
        {"role": "system", "content": "Reminder: now"},
    ]
    second = weave(grown, model="gpt-4o", window=8_000, previous=first)
    assert second.report.epoch_reason == "continued"
    assert second.conversation.system == first.conversation.system
    before, after = first.render(wire), second.render(wire)
    for field in ("system", "instructions"):
        assert before.get(field) == after.get(field)
    assert "Reminder: now" in str(after["input" if wire == "responses" else "messages"][-1])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Reminder 12: be brief", "Reminder 13: be brief", True),
        ("<system-reminder>a</system-reminder>", "<system-reminder>b</system-reminder>", True),
        ("[12:03] Time is short", "[12:04] Time is short", True),
        ("The user opened the file a.py", "The user opened the folder b", True),
        ("Rules: never push", "Reminder: never push", False),
        ("", "123", True),
    ],
)
def test_a_kind_is_how_a_message_begins(one: str, other: str, same: bool) -> None:
    kinds = [kind_of(Message("system", (Text(text),))) for text in (one, other)]
    assert (kinds[0] == kinds[1]) == same


def test_a_name_is_a_kind_of_its_own() -> None:
    named = Message("system", (Text("Reminder: a"),), "clock")
    assert kind_of(named) == kind_of(Message("system", (Text("Something else"),), "clock"))
    assert kind_of(named) != kind_of(Message("system", (Text("Reminder: a"),)))


@settings(max_examples=examples(60))
@given(
    kinds=st.lists(
        st.sampled_from(["Rules: {n}", "Reminder {n}", "Clock, {n}", "Budget: {n}"]),
        min_size=1,
        max_size=30,
    ),
    window=st.sampled_from([1500, 4000]),
    name=st.sampled_from(sorted(policies())),
)
def test_of_each_kind_the_newest_is_sent(kinds: list[str], window: int, name: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "the goal"}]
    newest: dict[str, str] = {}
    for n, kind in enumerate(kinds):
        newest[kind] = kind.format(n=n)
        messages.append({"role": "system", "content": newest[kind]})
        messages.append({"role": "assistant", "content": f"{n} " + "word " * 150})
    messages.append({"role": "user", "content": "now"})
    sent = [
        message["content"]
        for message in weave(messages, model="gpt-4o", window=window, policy=name).openai()[
            "messages"
        ]
    ]
    for text in newest.values():
        assert text in sent


def test_a_system_message_between_a_call_and_its_results_comes_after_them_and_no_other_moves() -> (
    None
):
    calls = Message("assistant", (ToolCall("a", "bash", "{}"), ToolCall("b", "bash", "{}")))
    note = Message("system", (Text("Reminder: be brief"),))
    result = Message("tool", (ToolResult("a", (Text("done"),)),))
    user, answer = Message("user", (Text("go on"),)), Message("assistant", (Text("yes"),))
    assert order_behind_results([user, note, calls, note, result, note, result, note, answer, note,
    user]) == [
        0, 1, 2, 4, 6, 3, 5, 7, 8, 9, 10,
    ]  # fmt: skip
    assert order_behind_results([answer, note, result, calls, note]) == [0, 1, 2, 3, 4]
    assert order_behind_results([]) == []
