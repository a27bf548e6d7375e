"""When an epoch begins before it must: where it pays, and never while a call is in flight."""

import pytest

from loom import Message, Text, ToolCall, ToolResult
from loom.budget.models import model
from loom.context.history.outlook import (
    MAX_CALLS,
    Prices,
    Standing,
    calls_to_come,
    prices_of,
    weigh,
)
from loom.conversation.turns import in_flight

CHEAP_TO_READ = Prices(write=1.25, read=0.1)


@pytest.mark.parametrize(
    ("now", "after", "shared", "calls", "pays"),
    [
        (16_000, 6_000, 4_000, 20, True),  # much saved on many calls, little cached anew
        (16_000, 15_500, 0, 20, False),  # nearly all would be written again
        (16_000, 6_000, 0, 1, False),  # one call to come
        (16_000, 16_000, 0, 20, False),
    ],
)
def test_tokens_saved_on_the_calls_to_come_are_weighed_against_tokens_cached_anew(
    now: int, after: int, shared: int, calls: int, pays: bool
) -> None:
    standing = Standing(now=now, after=after, shared=shared, room=24_000, growth=300)
    found = weigh(standing, calls, CHEAP_TO_READ)
    assert found.pays is pays
    assert (found.saved, found.recached) == (now - after, after - shared)


def test_only_the_calls_until_the_next_epoch_that_must_be_count() -> None:
    full = Standing(now=15_900, after=6_000, shared=0, room=16_000, growth=300)
    assert not weigh(full, 50, CHEAP_TO_READ).pays


def test_what_a_provider_has_forgotten_is_written_anew_in_any_case() -> None:
    warm = Standing(now=10_000, after=9_000, shared=0, room=16_000, growth=300)
    cold = Standing(now=10_000, after=9_000, shared=0, room=16_000, growth=300, cold=True)
    assert not weigh(warm, 3, CHEAP_TO_READ).pays
    assert weigh(cold, 3, CHEAP_TO_READ).pays


def test_without_prices_nothing_pays() -> None:
    assert prices_of(model("nobody-knows-it")) is None
    assert not weigh(Standing(now=9000, after=10, shared=0, room=9999, growth=1), 50, None).pays
    assert prices_of(model("anthropic:claude-sonnet-4-5")) == Prices(write=3.75, read=0.3)


def test_as_many_calls_are_expected_as_were_made() -> None:
    assert [calls_to_come(made) for made in (0, 1, 7, 10_000)] == [1, 1, 7, MAX_CALLS]


def call(name: str) -> ToolCall:
    return ToolCall(name, "look", "{}")


def result(name: str) -> Message:
    return Message("tool", (ToolResult(name, (Text("seen"),)),))


@pytest.mark.parametrize(
    ("said", "waiting"),
    [
        ((Message("assistant", (call("a"),)),), True),
        ((Message("assistant", (call("a"), call("b"))), result("a")), True),
        ((Message("assistant", (call("a"), call("b"))), result("b"), result("a")), False),
        ((Message("assistant", (call("a"),)), Message("user", (Text("never mind"),))), False),
        ((Message("assistant", (Text("done"),)),), False),
        ((), False),
    ],
)
def test_a_call_is_in_flight_until_it_is_answered_or_somebody_goes_on(
    said: tuple[Message, ...], waiting: bool
) -> None:
    assert in_flight(said) is waiting
