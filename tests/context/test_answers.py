"""How long an answer may be: what the caller says, else what the model can give and the window
leaves.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import weave
from loom.budget.models import Figures, model
from loom.context.budgeting import budget_for
from loom.context.options import check_options
from loom.context.policy import policies
from loom.conversation.message import Conversation
from loom.dialects import DIALECTS
from loom.engine.pressure import fit_into
from tests.shared import examples

NAMES = {
    "openai": "max_completion_tokens",
    "responses": "max_output_tokens",
    "anthropic": "max_tokens",
}
# the others: the reserve is the limit
OPEN = [name for name, policy in policies().items() if not policy.window_per_reserve]
GO = [{"role": "user", "content": "go"}]
LONG = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "word " * 9_000},
    {"role": "user", "content": "on"},
]


def limits(messages: Any, **options: Any) -> dict[str, int]:
    context = weave(messages, **options)
    return {wire: context.render(wire)[name] for wire, name in NAMES.items()}


@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize(
    ("window", "reserve"), [(16_000, 777), (16_000, 8_192), (64_000, 30_000), (128_000, 4_096)]
)
def test_the_caller_s_reserve_is_the_limit_exactly(policy: str, window: int, reserve: int) -> None:
    context = weave(GO, model="gpt-4o", window=window, reserve_output=reserve, policy=policy)
    assert context.report.reserved_output == reserve
    assert {context.render(wire)[name] for wire, name in NAMES.items()} == {reserve}


@pytest.mark.parametrize("policy", OPEN)
@pytest.mark.parametrize("name", ["gpt-4o", "o3", "gpt-5", "gemini-2.5-pro"])
def test_without_a_reserve_the_model_s_own_limit_is_sent(policy: str, name: str) -> None:
    most = model(name).max_output
    assert most
    found = limits(GO, model=name, policy=policy)
    assert (found["openai"], found["responses"]) == (most, most)


@pytest.mark.parametrize(("window", "limit"), [(16_000, 4_000), (128_000, 16_384), (None, 16_384)])
def test_in_turns_the_limit_is_what_its_formula_keeps_for_the_answer(
    window: int | None, limit: int
) -> None:
    context = weave(GO, model="gpt-4o", window=window, policy="turns")
    assert context.openai()["max_completion_tokens"] == context.report.reserved_output == limit


@pytest.mark.parametrize("policy", OPEN)
def test_the_limit_is_at_most_what_the_window_leaves(policy: str) -> None:
    context = weave(GO, model="gpt-4o", window=16_000, policy=policy)
    assert context.openai()["max_completion_tokens"] == 16_000 - context.report.input_tokens
    full = weave(LONG, model="gpt-4o", window=12_000, policy=policy)
    assert (
        full.report.reserved_output
        <= full.openai()["max_completion_tokens"]
        <= 12_000 - full.report.input_tokens
    )


def test_a_request_s_own_limit_stays() -> None:
    body = {"model": "claude-sonnet-4-6", "max_tokens": 60_000, "messages": GO}
    assert weave(DIALECTS["anthropic"].parse(body)).anthropic()["max_tokens"] == 60_000
    small = weave(DIALECTS["anthropic"].parse({**body, "messages": LONG}), window=70_000)
    assert 40_000 < small.anthropic()["max_tokens"] < 60_000, "what the window leaves"
    chat = weave(
        DIALECTS["openai"].parse({"model": "gpt-4o", "max_tokens": 900, "messages": GO})
    ).openai()
    assert (chat["max_tokens"], chat.get("max_completion_tokens")) == (900, None)


def test_a_model_of_unknown_limit_gets_the_reserve_of_the_policy_and_the_report_says_so() -> None:
    context = weave(GO, model="acme-1", window=16_000)
    assert context.openai()["max_completion_tokens"] == 4096
    assert any(
        "the largest answer of acme-1 is not known: 4,096 tokens are allowed" in note
        for note in context.report.notes
    )
    own = weave(
        GO,
        model="acme-1",
        window=16_000,
        overrides={"acme-1": Figures(window=16_000, max_output=9_000)},
    )
    assert own.openai()["max_completion_tokens"] == 9_000


def test_an_answer_that_is_not_streamed_is_as_long_as_anthropic_s_client_accepts() -> None:
    assert limits(GO, model="claude-sonnet-4-6")["anthropic"] == 21_333
    old = {"claude-opus-4-20250514": Figures(window=200_000, max_output=32_000)}
    assert limits(GO, model="claude-opus-4-20250514", overrides=old)["anthropic"] == 8_192
    assert limits(GO, model="claude-sonnet-4-6", reserve_output=64_000)["anthropic"] == 64_000
    streamed = DIALECTS["openai"].parse(
        {"model": "claude-sonnet-4-6", "stream": True, "messages": GO}
    )
    assert weave(streamed).anthropic()["max_tokens"] == model("claude-sonnet-4-6").max_output


def test_anthropic_s_own_client_takes_the_request() -> None:
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(api_key="none")
    for name in ("claude-sonnet-4-6", "claude-opus-4-20250514", "claude-opus-4-7"):
        body = weave(GO, model=name).anthropic()
        most = anthropic._constants.MODEL_NONSTREAMING_TOKENS.get(body["model"])
        # raises where it would demand a stream
        client._calculate_nonstreaming_timeout(body["max_tokens"], most)


@pytest.mark.parametrize("budget", [2_000, 10_000, 30_000])
def test_an_answer_has_room_for_what_is_thought_before_it(budget: int) -> None:
    thinking = {"type": "enabled", "budget_tokens": budget}
    body = {"model": "claude-sonnet-4-6", "messages": LONG * 40, "thinking": thinking}
    context = weave(DIALECTS["anthropic"].parse(body))
    sent = context.anthropic()
    assert sent["thinking"] == thinking
    assert sent["max_tokens"] > budget
    assert context.report.reserved_output >= budget + 4096
    assert not [
        finding for finding in DIALECTS["anthropic"].check(sent) if finding.level == "error"
    ]


def test_thinking_is_lowered_where_the_answer_is_too_short_for_it() -> None:
    body = {
        "model": "claude-sonnet-4-6",
        "messages": GO,
        "thinking": {"type": "enabled", "budget_tokens": 10_000},
    }
    context = weave(DIALECTS["anthropic"].parse(body), reserve_output=6_000)
    assert context.anthropic()["max_tokens"] == 6_000
    assert context.anthropic()["thinking"]["budget_tokens"] == 3_000
    assert (
        "lowered thinking from 10,000 to 3,000 tokens: the answer may take 6,000"
        in context.report.notes
    )
    assert (
        "thinking" not in weave(DIALECTS["anthropic"].parse(body), reserve_output=900).anthropic()
    )


def test_a_window_that_a_refusal_made_smaller_does_not_limit_the_answer_to_its_reserve() -> None:
    options = check_options(model="gpt-4o")
    smaller = fit_into(options, budget_for(options, Conversation(messages=())), 50_000)
    assert (smaller.window, smaller.reserve_output, smaller.answer) == (54_096, 4_096, None)


@settings(max_examples=examples(60))
@given(
    words=st.integers(1, 6_000),
    window=st.sampled_from([None, 2_000, 9_000, 40_000]),
    reserve=st.sampled_from([None, 0, 300, 1_500]),
    name=st.sampled_from(["gpt-4o", "claude-sonnet-4-6", "acme-1", "ollama:llama3:8b", None]),
    policy=st.sampled_from(sorted(policies())),
)
def test_input_and_answer_never_exceed_the_window(
    words: int, window: int | None, reserve: int | None, name: str | None, policy: str
) -> None:
    messages = [
        *GO,
        {"role": "assistant", "content": "word " * words},
        {"role": "user", "content": "on"},
    ]
    if policies()[policy].strategy == "stop_at_limit":
        return
    context = weave(messages, model=name, window=window, reserve_output=reserve, policy=policy)
    report = context.report
    for wire, key in NAMES.items():
        limit = context.render(wire)[key]
        assert limit >= 1
        assert report.input_tokens + limit <= report.window
        assert (
            limit == reserve
            if reserve
            else limit >= min(report.reserved_output, model(name).max_output or 4096)
        )
