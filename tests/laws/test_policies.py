"""The laws hold for policies that somebody writes: with rules, functions as strategies and as
counters.
"""

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from msgspec.structs import replace

from loom import Context, Conversation, Message, Policy, Rule, Text, repair
from loom.context.policy import policies
from loom.context.rules import find_kept
from tests.laws.test_epochs import (
    SEEDS,
    Case,
    assert_every_message_has_a_line,
    assert_laws_of_session,
    assert_laws_of_steps,
    judge,
    make_case,
    text_in,
    weave_step,
    words_sent,
)
from tests.shared import examples


def random_rules(random: Random) -> list[Rule]:
    made = []
    for _ in range(random.randint(0, 3)):
        keep = random.choice(["all", 1, 3])
        match random.choice(["role", "keep tool", "show tool", "show tool"]):
            case "role":
                made.append(Rule(role=random.choice(["user", "assistant", "tool"]), keep=keep))
            case "keep tool":
                made.append(Rule(tool=random.choice(["read", "gr*", "nothing"]), keep=keep))
            case _:
                made.append(
                    Rule(tool=random.choice(["shot", "gr*", "*"]), show_last=random.choice([1, 2]))
                )
    return made


def shuffle_some(
    units: Sequence[Sequence[Message]], sizes: Sequence[int], available: int
) -> list[int]:
    """A strategy without any sense: some of the exchanges, in an order that depends on nothing but
    their number.
    """
    random = Random(len(units))
    return random.sample(range(len(units)), random.randint(0, len(units)))


def largest_first(
    units: Sequence[Sequence[Message]], sizes: Sequence[int], available: int
) -> list[int]:
    return sorted(range(len(units)), key=lambda unit: -sizes[unit])


def count_thirds(text: str) -> int:
    return len(text) // 3


def make_policy(random: Random) -> Policy:
    base = random.choice([name for name in policies() if name != "partitions"])
    strategy = random.choice(
        [policies()[base].strategy, policies()[base].strategy, shuffle_some, largest_first]
    )
    counter = random.choice([policies()[base].counter, "best", "tasks", count_thirds])
    made = Policy.extends(
        base, name="written", strategy=strategy, counter=counter, rules=random_rules(random)
    )
    return (
        made
        if random.random() < 0.8
        else Policy.extends("partitions", name="written", rules=made.rules)
    )


def make_written_case(seed: int) -> Case:
    return replace(make_case(seed), policy=make_policy(Random(seed)))


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_the_laws_hold_for_written_policies_at_each_step_of_an_epoch(seed: int) -> None:
    assert_laws_of_steps(make_written_case(seed))


@settings(max_examples=examples(14))
@given(seed=SEEDS)
def test_the_laws_hold_for_written_policies_in_a_session_that_is_opened_again(seed: int) -> None:
    assert_laws_of_session(replace(make_written_case(seed), ratio=1.0))


def shown_whole(context: Context, history: Sequence[Message], tool: str) -> int:
    """How many results of a tool the request shows as they came."""
    names = {call.id: call.name for message in history for call in message.calls}
    sent = words_sent(context)
    results = [
        result
        for message in history
        for result in message.results
        if names.get(result.call_id) == tool
    ]
    texts = [
        "".join(part.text for part in result.parts if isinstance(part, Text)) for result in results
    ]
    return sum(text in sent for text in texts if len(text) > 100)


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_what_rules_keep_is_in_and_what_they_hide_is_not(seed: int) -> None:
    case = make_written_case(seed)
    rules = [
        Rule(role="user", keep="all"),
        Rule(tool="read", keep=2),
        Rule(tool="shot", show_last=1),
    ]
    case = replace(case, policy=Policy.extends(case.policy, rules=rules))
    last: Context | None = None
    for step in case.steps:
        context = weave_step(case, step, last)
        if context is None:
            continue
        judge(context, case, step, last)
        history = repair(Conversation(messages=case.messages[: step.length])).conversation.messages
        assert_every_message_has_a_line(context, history)
        assert shown_whole(context, history, "shot") <= 1
        actions = {item.place: item.action for item in context.report.items}
        for index in find_kept(rules, history):
            assert actions.get(f"messages[{index}]") in ("kept", "shrunk"), text_in(history[index])[
                :20
            ]
        last = context
