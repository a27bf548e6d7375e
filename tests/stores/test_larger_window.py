"""A window that grew begins an epoch, in which what was left out returns."""

import asyncio
from typing import Any

import pytest

from loom import Context, Loom, Session, weave
from tests.stores.test_first_reading import work


def prepared(session: Session, window: int, **options: Any) -> Context:
    return asyncio.run(session.prepare(window=window, reserve_output=0, **options))


def grown(loom: Loom, window: int) -> Session:
    """A session of four windows that was prepared after every few turns."""
    session = loom.new(model="gpt-4o")
    said = work(100)
    for start in range(0, len(said), 16):
        session.append(*said[start : start + 16])
        prepared(session, window)
    return session


@pytest.mark.sqlite_first
@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_left_out_returns_in_a_much_larger_window(address: str, restarts: bool) -> None:
    with Loom.open(address) as loom:
        session = grown(loom, 4_000)
        before = prepared(session, 4_000).report
        assert before.dropped > 100
        name = session.id
        if not restarts:
            after = prepared(session, 100_000)
    if restarts:
        with Loom.open(address) as loom:
            after = prepared(loom.session(name), 100_000)
    assert after.report.dropped == 0
    assert after.report.epoch == before.epoch + 1
    assert after.report.epoch_reason == (
        "the window grew from 4,000 to 100,000 tokens; left-out text may return"
    )


@pytest.mark.sqlite_first
def test_an_epoch_goes_on_in_a_window_that_is_a_little_larger(address: str) -> None:
    with Loom.open(address) as loom:
        session = grown(loom, 4_000)
        before = prepared(session, 4_000)
        after = prepared(session, 5_900)
        assert after.report.epoch_reason == "continued"
        sent = before.conversation.messages
        assert after.conversation.messages[: len(sent)] == sent
        # it is the window of the beginning that counts, not the last one
        assert "the window grew" in prepared(session, 6_000).report.epoch_reason


def test_an_epoch_that_left_nothing_out_goes_on_in_any_window(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(4))
        prepared(session, 8_000)
        session.append(*work(5)[-4:])
        assert prepared(session, 80_000).report.epoch_reason == "continued"


@pytest.mark.sqlite_first
def test_a_larger_model_begins_with_what_was_left_out(address: str) -> None:
    with Loom.open(address) as loom:
        session = grown(loom, 4_000)
        after = prepared(session, 100_000, model="gpt-4.1")
        assert after.report.epoch_reason.startswith("system text, tools, sections, model")
        assert after.report.dropped == 0


def test_weave_begins_an_epoch_in_a_larger_window_too() -> None:
    said = work(100)
    first = weave(said[:-4], model="gpt-4o", window=4_000, reserve_output=0)
    assert first.report.dropped
    second = weave(said, model="gpt-4o", window=100_000, reserve_output=0, previous=first)
    assert "the window grew" in second.report.epoch_reason
    assert second.report.dropped == 0


@pytest.mark.sqlite_first
def test_the_first_request_of_a_long_session_fills_its_window_and_leaves_room_to_grow(
    address: str,
) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(400))
        report = prepared(session, 16_000).report
        assert 0.6 < report.input_tokens / report.usable < 0.85
        for n in range(3):
            session.append(*work(401 + n)[-4:])
            assert prepared(session, 16_000).report.epoch_reason == "continued"


def test_a_request_that_is_made_again_at_once_stays_as_it_is_however_old_the_answers_are(
    address: str,
) -> None:
    now = [1_000_000_000]
    with Loom.open(address, now=lambda: now[0]) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(400))
        now[0] = 2_000_000_000
        first = prepared(session, 16_000)
        now[0] += 1_000
        again = prepared(session, 16_000)
        assert again.report.epoch_reason == "continued"
        assert again.conversation.messages == first.conversation.messages
