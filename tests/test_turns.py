"""Exchanges and turns, and the two functions that seed 002 defines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom import exchanges, find_safe_boundary, parse_turn_boundaries, turns
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.dialects.repair import Mender
from tests import strategies as our


def user() -> Message:
    return Message("user", (Text("hi"),))


def reply(*calls: str) -> Message:
    return Message("assistant", (Text("ok"), *(ToolCall(c, "bash", "{}") for c in calls)))


def result(call: str) -> Message:
    return Message("tool", (ToolResult(call, (Text("done"),)),))


def spans(history: list[Message]) -> list[tuple[int, int]]:
    return [(span.start, span.stop) for span in exchanges(history)]


def test_a_turn_starts_at_each_user_message() -> None:
    assert parse_turn_boundaries([user(), reply("a"), result("a"), user(), reply()]) == [0, 3]
    assert parse_turn_boundaries([]) == []
    assert parse_turn_boundaries([reply(), reply()]) == []


def test_turn_boundaries_are_found_in_dictionaries_too() -> None:
    history = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "x", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]},
        {"role": "user", "content": "b"},
    ]
    assert parse_turn_boundaries(history) == [0, 3]


# turns at 0, 4, 6
HISTORY = [user(), reply("a"), result("a"), reply(), user(), reply(), user(), reply()]


@pytest.mark.parametrize(
    ("target", "boundary"),
    [(-3, 0), (0, 0), (1, 4), (3, 4), (4, 4), (5, 4), (6, 6), (7, 6), (8, 8), (99, 8)],
)
def test_the_safe_boundary_is_the_last_turn_start_before_else_the_next(
    target: int, boundary: int
) -> None:
    assert find_safe_boundary(HISTORY, target) == boundary


def test_the_safe_boundary_of_a_history_without_turns_is_the_target() -> None:
    assert find_safe_boundary([reply(), reply(), reply()], 2) == 2


def test_a_single_turn_cannot_be_cut_safely() -> None:
    assert find_safe_boundary([user(), reply("a"), result("a"), reply()], 2) == 0


def test_an_exchange_is_a_model_message_with_all_its_results() -> None:
    assert spans([user(), reply("a", "b"), result("b"), result("a"), user()]) == [
        (0, 1),
        (1, 4),
        (4, 5),
    ]


def test_a_late_result_stretches_its_exchange() -> None:
    assert spans([reply("a"), user(), result("a"), user()]) == [(0, 3), (3, 4)]


def test_ids_used_again_do_not_join_exchanges() -> None:
    assert spans([reply("call_0"), result("call_0"), reply("call_0"), result("call_0")]) == [
        (0, 2),
        (2, 4),
    ]


@given(our.broken_histories)
def test_exchanges_cover_the_history_and_never_tear_a_pair(history: list[Message]) -> None:
    found = exchanges(history)
    assert [n for span in found for n in range(span.start, span.stop)] == list(range(len(history)))
    mended = list(Mender(reach=len(history)).mend(history))
    for span in exchanges(mended):
        part = mended[span.start : span.stop]
        assert {c.id for m in part for c in m.calls} == {r.call_id for m in part for r in m.results}


@given(our.broken_histories, st.integers(-5, 30))
def test_a_safe_boundary_never_lies_inside_a_turn(history: list[Message], target: int) -> None:
    cut = find_safe_boundary(history, target)
    starts = parse_turn_boundaries(history)
    assert cut in {0, len(history), *starts} or not starts
    assert sum(len(turn) for turn in turns(history)) == len(history)


def test_long_histories_are_linear() -> None:
    history = [message for n in range(20_000) for message in (reply(f"c{n}"), result(f"c{n}"))]
    assert len(exchanges(history)) == 20_000
