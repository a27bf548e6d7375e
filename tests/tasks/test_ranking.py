"""Which events matter for a task, and how sources share the room."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.memory.event_ranking import rank_events, score_event
from loom.memory.shares import SourceTokens, share_room
from loom.runtime import Task

NOW = datetime(2026, 1, 28, 9, tzinfo=UTC)
ASKED = Task(
    action="execute",
    parameters={"content": "migrate the database"},
    source_agent="boss",
    created_at=NOW,
)


def event(action: str = "node.thinking", age: float = 0, **fields: Any) -> Task:
    content = fields.pop("content", "other words")
    return Task(
        action=action,
        parameters={"content": content, "tool_name": "read"},
        created_at=NOW - timedelta(seconds=age),
        **fields,
    )


def score(each: Task, reader: str = "me") -> float:
    return score_event(ASKED, each, reader, frozenset({"migrat", "databas"}), NOW)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (event(source_agent="x"), 0.40 + 0.25 + 0.15 * 0.5),
        (event(age=3600, source_agent="x"), 0.20 + 0.25 + 0.15 * 0.5),
        (event(age=7200, source_agent="x"), 0.10 + 0.25 + 0.15 * 0.5),
        (event("node.planning", source_agent="x"), 0.40 + 0.25 * 0.9 + 0.15 * 0.5),
        (event("node.tool_call", source_agent="x"), 0.40 + 0.25 * 0.8 + 0.15 * 0.5),
        (event("node.error", source_agent="x"), 0.40 + 0.25 * 0.7 + 0.15 * 0.5),
        (event("execute", source_agent="x"), 0.40 + 0.25 * 0.6 + 0.15 * 0.5),
        (event("of my own", source_agent="x"), 0.40 + 0.25 * 0.5 + 0.15 * 0.5),
        (event(source_agent="boss"), 0.40 + 0.25 + 0.15),
        (event(source_agent="me"), 0.40 + 0.25 + 0.15 * 0.8),
        (event(), 0.40 + 0.25 + 0.15 * 0.3),
        (event(source_agent="x", content="the database"), 0.40 + 0.25 + 0.10 + 0.15 * 0.5),
    ],
)
def test_the_score_is_the_stated_sum(given: Task, expected: float) -> None:
    assert score(given) == pytest.approx(expected, abs=1e-6)


def test_equal_events_have_the_newer_first_and_no_clock_changes_the_order() -> None:
    events = [event(age=age, task_id=f"t{age}", source_agent="x") for age in (300, 100, 200)]
    assert [each.task_id for each in rank_events(ASKED, events)] == ["t100", "t200", "t300"]


def test_words_count_in_any_script() -> None:
    asked = Task(action="execute", parameters={"content": "数据库迁移计划"}, created_at=NOW)
    near = event(content="数据库", source_agent="x", task_id="near", age=60)
    far = event(content="天气很好", source_agent="x", task_id="far", age=60)
    assert [each.task_id for each in rank_events(asked, [far, near])] == ["near", "far"]


def share(room: int, **needs: int) -> tuple[int, int, int, int]:
    found = share_room(room, SourceTokens(**needs), SourceTokens())
    return found.l1, found.messages, found.knowledge, found.events


def test_shares_bind_only_where_sources_compete() -> None:
    assert share(1000, l1=100, knowledge=800) == (100, 0, 800, 0)
    assert share(1000, l1=5000, knowledge=5000, events=5000) == (401, 0, 333, 266)
    assert share(1000, l1=5000, knowledge=100) == (900, 0, 100, 0)  # what is left flows to L1
    assert share(1000, l1=200, knowledge=5000) == (200, 0, 800, 0)


def test_direct_messages_come_first_in_the_share_of_l1() -> None:
    assert share(1000, l1=5000, messages=300, knowledge=5000, events=5000) == (101, 300, 333, 266)
    least = SourceTokens(messages=700)
    found = share_room(
        1000, SourceTokens(l1=5000, messages=900, knowledge=5000, events=5000), least
    )
    assert found.messages == 700  # at least one of them


TOKENS = st.integers(0, 10_000)


@given(room=TOKENS, l1=TOKENS, messages=TOKENS, knowledge=TOKENS, events=TOKENS)
def test_nobody_gets_more_than_it_needs_and_nothing_is_wasted(
    room: int, l1: int, messages: int, knowledge: int, events: int
) -> None:
    needs = SourceTokens(l1=l1, messages=messages, knowledge=knowledge, events=events)
    found = share_room(room, needs, SourceTokens())
    got = (found.l1, found.messages, found.knowledge, found.events)
    wanted = (l1, messages, knowledge, events)
    assert all(0 <= mine <= most for mine, most in zip(got, wanted, strict=True))
    assert sum(got) == min(room, sum(wanted))
