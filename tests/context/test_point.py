"""What has to be in a request, by which rule, and what of it gives way first."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from loom import CannotFit, Context, weave
from loom.context.history.point import BACKGROUND_SHARE, must_stay
from loom.context.policy import find_policy, policies
from loom.conversation.message import Message, Text, ToolCall, ToolResult

DEFAULT = find_policy("default")
TASK = "Please write a parser for the log files of the old weaving mill"
OTHER = (
    "Something else now: translate the manual of our dishwasher into plain French, "
    "keeping every table intact"
)
FILLER = "The shuttle passes over and under the warp. "


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


def rules(*messages: Message, policy: str = "default") -> dict[int, str]:
    return dict(must_stay(messages, (), policies()[policy], document=False))


def test_what_a_short_request_leans_on_has_a_rule_of_its_own() -> None:
    said = [user(TASK), assistant("Done."), user(OTHER), assistant("Shall I?"), user("yes, do it")]
    assert rules(*said) == {
        4: "current request",
        2: "the request leans on it",
        3: "the request leans on it",
        0: "first goal",
    }
    assert list(rules(*said)) == [4, 2, 3, 0], "the most important first"


def test_a_request_that_says_something_by_itself_leans_on_nothing() -> None:
    assert rules(user(TASK), assistant("Done."), user(OTHER)) == {
        2: "current request",
        0: "first goal",
    }


def test_the_goal_that_users_turned_to_last_is_in_beside_the_first() -> None:
    again = "For the dishwasher manual, please number the tables of every chapter on their own"
    said = [user(TASK), assistant("Done."), user(OTHER), assistant("Done."), user(again)]
    assert rules(*said) == {4: "current request", 2: "current goal", 0: "first goal"}


@pytest.mark.parametrize("later", ["yes", "and for the log files of the other mill, please"])
def test_the_first_goal_is_the_first_goal_whatever_else_it_is(later: str) -> None:
    found = rules(user("/mode"), user(TASK), assistant("Done."), user(later))
    assert found[1] == "first goal"
    assert 0 not in found


def test_a_policy_turns_each_rule_off() -> None:
    said = [user("hello"), user(TASK), assistant("Shall I?"), user("yes")]
    plain = replace(DEFAULT, name="plain", goal="first", leaned_on=False)
    assert must_stay(said, (), plain, document=False) == {3: "current request", 0: "first goal"}
    task = replace(DEFAULT, name="task", leaned_on=False)
    assert must_stay(said, (), task, document=False) == {3: "current request", 1: "first goal"}
    leaning = replace(DEFAULT, name="leaning", goal="first")
    assert must_stay(said, (), leaning, document=False) == {
        3: "current request",
        1: "the request leans on it",
        2: "the request leans on it",
        0: "first goal",
    }


def test_a_pin_is_a_pin_also_where_the_request_leans_on_it() -> None:
    said = [user("hello"), user(TASK), assistant("Shall I?"), user("yes")]
    assert must_stay(said, (2,), DEFAULT, document=False)[2] == "pin"


def test_a_pinned_result_keeps_the_exchange_that_the_request_leans_on() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": FILLER * 60},
        {"role": "assistant", "content": "I read it. Shall I go on?", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": FILLER * 30},
        {"role": "user", "content": "yes"},
    ]
    report = weave(said, model="gpt-4o", window=600, reserve_output=0, pins=[3]).report
    pinned = [item for item in report.items if item.place in ("messages[2]", "messages[3]")]
    assert {(item.action, item.rule) for item in pinned} == {("kept", "pin")}


def test_where_the_goal_is_the_request_no_older_message_is_kept_for_it() -> None:
    said = [user("hello"), user(TASK), assistant("Shall I?"), user("yes")]
    assert rules(*said, policy="tasks") == {3: "current request"}


@pytest.mark.parametrize(
    "policy", [name for name in policies() if name not in ("default", "tasks")]
)
def test_presets_keep_the_goal_of_their_seed(policy: str) -> None:
    said = [user("hello"), user(TASK), assistant("Shall I?"), user("yes")]
    assert rules(*said, policy=policy)[0] == "first goal"
    assert "the request leans on it" not in rules(*said, policy=policy).values()
    assert "current goal" not in rules(*said, policy=policy).values()


# ── at the gate ──────────────────────────────────────────────────────────────


def woven(messages: Sequence[Message], window: int) -> Context:
    return weave(messages, model="gpt-4o", window=window, reserve_output=0)


def work(steps: int) -> list[Message]:
    made: list[Message] = []
    for n in range(steps):
        made.append(Message("assistant", (ToolCall(f"c{n}", "bash", "{}"),)))
        made.append(Message("tool", (ToolResult(f"c{n}", (Text(FILLER * 5),)),)))
    return made


def size_by_rule(context: Context, rule: str) -> list[int]:
    return [item.after for item in context.report.items if item.rule == rule]


def test_what_the_request_leans_on_is_cut_to_a_share_of_the_room() -> None:
    plan = f"The plan begins. {FILLER * 200} Shall I begin with step_one?"
    said = [user(TASK), *work(60), user(OTHER), assistant(plan), user("ok, start"), *work(40)]
    context = woven(said, 4000)
    sizes = size_by_rule(context, "the request leans on it")
    assert len(sizes) == 2
    assert max(sizes) <= 4000 * BACKGROUND_SHARE
    text = "\n".join(message.text for message in context.conversation.messages)
    assert OTHER in text
    assert "Shall I begin with step_one?" in text, "the end of the plan, where the question is"
    assert TASK in text


def test_the_first_goal_is_not_cut_where_a_request_leans_on_it() -> None:
    goal = f"{TASK}. {FILLER * 60} Never touch vault_7."
    said = [user(goal), *work(60), assistant("Shall I go on?"), user("yes"), *work(20)]
    context = woven(said, 4000)
    assert size_by_rule(context, "first goal") == [
        item.before for item in context.report.items if item.rule == "first goal"
    ]
    assert goal in [message.text for message in context.conversation.messages]


def test_what_the_request_leans_on_is_left_out_before_nothing_fits() -> None:
    plan = f"The plan begins. {FILLER * 200}"
    said = [user(TASK), *work(5), user(OTHER), assistant(plan), user("ok, start"), *work(3)]
    least = next(window for window in range(40, 2000, 5) if fits(said, window))
    rules_in = {item.rule for item in woven(said, least).report.items if item.action != "dropped"}
    assert {"current request", "first goal"} <= rules_in
    assert "the request leans on it" not in rules_in
    assert least < 200


def fits(messages: Sequence[Message], window: int) -> bool:
    try:
        woven(messages, window)
    except CannotFit:
        return False
    return True


@pytest.mark.parametrize("window", [300, 350, 400, 500, 800])
def test_covers_give_way_so_that_a_part_of_the_newest_exchange_is_there(window: int) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "What was paid on page 3, line 17?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": "\n".join(f"page 3, line {n}: paid {3000 + n}" for n in range(100)),
        },
    ]
    first = weave(said[:1], model="gpt-4o", window=window, reserve_output=0)
    for previous in (None, first.report):
        context = weave(said, model="gpt-4o", window=window, reserve_output=0, previous=previous)
        result = context.report.items[-1]
        assert (result.action, result.rule) == ("shrunk", "newest exchange")
