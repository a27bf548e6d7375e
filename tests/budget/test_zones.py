"""Zones: the seeds' numbers, scaling in small windows, flow between zones, and clear refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.budget.zones import DEFAULTS, allocate_budget, flow, history_budget, messages_that_fit
from loom.errors import ChoiceError

SONNET = "anthropic:claude-sonnet-4-6"


def test_the_seed_s_example_to_the_token() -> None:
    assert allocate_budget(SONNET).as_dict() == {
        "system_prompt": 2048,
        "decision_context": 1024,
        "repo_map": 2048,
        "tool_definitions": 2048,
        "reserved_output": 4096,
        "history": 188_736,
        "total": 200_000,
    }
    assert messages_that_fit(allocate_budget(SONNET)) == 1509
    assert allocate_budget(SONNET).notes == ()


@pytest.mark.parametrize(
    ("model", "options", "history"),
    [
        ("openai:gpt-4-turbo", {}, 116_736),
        (None, {}, 116_736),
        ("unknown:model", {}, 116_736),
        (SONNET, {"max_repo_map_tokens": 3072, "max_decision_tokens": 2048}, 186_688),
        (SONNET, {"max_repo_map_tokens": 50_000, "max_decision_tokens": 10_000}, 131_808),
        (
            "anthropic:claude-opus-4-6",
            {"max_decision_tokens": 2048, "max_repo_map_tokens": 4096, "reserved_output": 8192},
            181_568,
        ),
        (SONNET, {"zones": {"skills": 512}}, 188_224),
        ("openai:gpt-4-turbo", {"zones": {"skills": 512}}, 116_224),
        (SONNET, {"window": 100_000}, 88_736),
        (SONNET, {"system_prompt": 1000, "tool_definitions": 0}, 191_832),
    ],
)
def test_options_change_zones_and_history_gets_the_rest(
    model: str | None, options: dict[str, Any], history: int
) -> None:
    budget = allocate_budget(model, **options)
    assert budget.history == history
    assert sum(zone.tokens for zone in budget.zones) == budget.window


def test_the_legacy_limit_ignores_the_model() -> None:
    budget = allocate_budget(SONNET, max_tokens=50_000, system_tokens=1500)
    assert budget.history == 50_000 - 1500 - 4096
    assert allocate_budget(max_tokens=3000, system_tokens=1500, reserved_output=2000).history == 0


def test_in_a_small_window_zones_shrink_together_and_say_so() -> None:
    budget = allocate_budget(window=16_000)
    assert budget.history >= 8000
    assert budget["repo_map"] == budget["system_prompt"] == 2 * budget["decision_context"]
    assert budget.notes == (
        "fixed zones of 11264 tokens would leave history 4736 of 16000; they were scaled to 7998",
    )


def test_a_reserve_that_was_asked_for_is_kept() -> None:
    budget = allocate_budget(window=16_000, reserved_output=2000)
    assert (budget.reserved_output, budget.usable) == (2000, 14_000)
    assert budget.history >= 8000
    assert "reserved_output kept at 2000" in budget.notes[0]
    assert allocate_budget(window=16_000, reserved_output=15_000).history >= 750
    assert allocate_budget(window=8000, reserved_output=0).reserved_output == 0


@given(
    window=st.integers(1, 2_000_000),
    sizes=st.dictionaries(
        st.sampled_from(
            ["max_decision_tokens", "max_repo_map_tokens", "system_prompt", "tool_definitions"]
        ),
        st.integers(0, 10**6),
    ),
    zones=st.dictionaries(st.sampled_from(["skills", "memory"]), st.integers(0, 10**5)),
)
def test_zones_are_the_window_and_history_has_half(
    window: int, sizes: dict[str, Any], zones: dict[str, int]
) -> None:
    budget = allocate_budget(window=window, zones=zones, **sizes)
    assert sum(zone.tokens for zone in budget.zones) == window
    assert 2 * budget.history >= window
    assert all(zone.tokens >= 0 for zone in budget.zones)


@pytest.mark.parametrize(
    ("numbers", "history"),
    [
        (
            {
                "context_window": 128_000,
                "max_tokens": 8192,
                "system_prompt": 3000,
                "summary": 500,
                "tool_definitions": 2000,
            },
            114_308,
        ),
        ({"max_tokens": 8192}, 3 * 8192),
        ({"max_tokens": 0}, 3 * 8192),
        ({}, 3 * 32_768),
        ({"context_window": 8000, "max_tokens": 8192}, 0),
    ],
)
def test_the_turns_seed_s_history_formula(numbers: dict[str, int], history: int) -> None:
    assert history_budget(**numbers) == history


def test_what_decisions_do_not_need_goes_to_the_map_and_then_to_history() -> None:
    budget = allocate_budget(SONNET)
    full = flow(budget, {"decision_context": 100, "repo_map": 9000})
    assert (full["decision_context"], full["repo_map"], full.history) == (100, 2048 + 924, 188_736)
    small = flow(
        budget,
        {"decision_context": 100, "repo_map": 1000, "system_prompt": 500, "tool_definitions": 2048},
    )
    assert small.history == 188_736 + 924 + 1048 + 1548
    assert small.notes == ()


def test_sections_stay_within_their_zones() -> None:
    grown = flow(allocate_budget(SONNET), {"decision_context": 5000, "repo_map": 5000})
    assert (grown["decision_context"], grown["repo_map"]) == (1024, 2048)


def test_a_prompt_past_its_zone_warns_and_history_pays() -> None:
    budget = flow(allocate_budget(SONNET), {"system_prompt": 3000})
    assert budget.history == 188_736 - 952
    assert budget.notes == (
        "system_prompt takes 3000 tokens, 952 more than its zone of 2048; history pays for them",
    )
    huge = flow(allocate_budget(SONNET), {"system_prompt": 250_000})
    assert huge.history == 0
    assert "zones need 259216 of 200000 tokens" in huge.notes[-1]


@given(st.dictionaries(st.sampled_from([*DEFAULTS, "skills"]), st.integers(0, 20_000)))
def test_flow_keeps_the_window_whole(needs: dict[str, int]) -> None:
    budget = flow(allocate_budget(SONNET, zones={"skills": 512}), needs)
    assert sum(zone.tokens for zone in budget.zones) == 200_000
    assert budget.reserved_output == 4096


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": -5}, "window must be a number of tokens, 0 or more, found -5"),
        ({"window": 0}, "a window of 0 tokens holds nothing; give a positive window"),
        (
            {"window": 1000, "reserved_output": 1000},
            "reserved_output 1000 leaves nothing of 1000 tokens; lower it",
        ),
        (
            {"max_repo_map_token": 5},
            "no budget option named 'max_repo_map_token'; there are max_decision_tokens",
        ),
        (
            {"reserved_output": "many"},
            "reserved_output must be a number of tokens, 0 or more, found the text 'many'",
        ),
        ({"zones": {"history": 5}}, "history gets what the other zones leave"),
        ({"zones": {"skills": -1}}, "zone skills must be a number of tokens"),
        ({"max_tokens": True}, "max_tokens must be a number of tokens"),
    ],
)
def test_bad_input_is_one_clear_line_with_the_way_out(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ChoiceError, match=message) as raised:
        allocate_budget(SONNET, **options)
    assert "\n" not in str(raised.value)


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(ChoiceError, match="no zone named 'skills'; there are system_prompt"):
        allocate_budget(SONNET)["skills"]
