"""How important messages and notes are: by kind, author, age and use."""

from typing import Any

import pytest

from loom import Message, Reasoning, Text, ToolCall, ToolResult
from loom.recall.importance import (
    MESSAGE_HALF_LIFE_MS,
    base_importance,
    current_importance,
    note_importance,
    rank_value,
    score_note,
    use_factor,
)


def said(role: Any, *parts: Any) -> Message:
    return Message(role, tuple(Text(part) if isinstance(part, str) else part for part in parts))


@pytest.mark.parametrize(
    ("message", "importance"),
    [
        (said("tool", ToolResult("c", (Text("no such file"),), error=True)), 0.9),
        (said("user", "Rename the module"), 0.85),
        (said("assistant", "We will use PostgreSQL instead of files"), 0.8),
        (said("tool", ToolResult("c", (Text("3 files"),))), 0.75),
        (said("assistant", ToolCall("c", "bash", "{}")), 0.7),
        (said("assistant", "The module is renamed"), 0.6),
        (said("assistant", Reasoning("hm", "anthropic", "c2ln")), 0.55),
        (said("system", "Be brief"), 0.5),
        (said("user", "ok, go ahead!"), 0.3),
        (said("user", "\u597d\u7684\uff0c\u7ee7\u7eed"), 0.3),
        (said("assistant", "Done."), 0.3),
    ],
)
def test_the_importance_of_a_message_depends_on_its_kind_and_author(
    message: Message, importance: float
) -> None:
    assert base_importance(message, False, {}) == importance
    assert base_importance(message, True, {}) == 0.3, "an echo says nothing new"
    assert base_importance(message, True, {"importance": 1}) == 1
    for wrong in (True, "high", -1, 2, None):
        assert base_importance(message, False, {"importance": wrong}) == importance


def test_importance_halves_in_its_half_life_and_grows_with_use() -> None:
    assert current_importance(0.8, MESSAGE_HALF_LIFE_MS) == 0.4
    assert current_importance(0.8, 0) == 0.8
    assert current_importance(0.8, -5) == 0.8, "a clock that goes back makes nothing important"
    assert use_factor(0) == 1
    assert use_factor(1) == 1.25
    assert use_factor(10**6) == 2
    assert current_importance(0.9, 0, 100) == 1


def test_ranks_compare_as_importance_does_whatever_time_it_is() -> None:
    now = 1_800_000_000_000
    things = [(0.9, now - MESSAGE_HALF_LIFE_MS, 0), (0.6, now, 0), (0.5, now, 3), (0.3, now, 0)]
    by_rank = sorted(things, key=lambda each: rank_value(*each), reverse=True)
    for later in (0, 10**8):
        by_importance = sorted(
            things,
            key=lambda each: current_importance(each[0], now + later - each[1], each[2]),
            reverse=True,
        )
        assert by_rank == by_importance


def test_what_a_user_says_counts_for_more() -> None:
    assert note_importance("fact", "user") == 0.9
    assert note_importance("fact", "model") == 0.8
    assert note_importance("note", "user") == 0.8
    assert note_importance("note", "model") == 0.7


def test_a_note_matters_by_how_much_of_it_is_asked_for() -> None:
    holding = {"deploy": [1, 2], "friday": [1]}
    whole = score_note(["deploy", "friday"], holding, 10)
    part = score_note(["deploy", "monday"], holding, 10)
    assert whole == 1
    assert 0 < part < whole
    assert score_note(["cat"], holding, 10) == score_note([], holding, 10) == 0
