"""The first request on a long stored path tells of far more than a window, and the next ones read
no more than they show.
"""

import asyncio
from typing import Any

import pytest

from loom import Context, Loom, Session
from loom.context import Spot
from loom.engine.prepare import request as preparing
from loom.engine.reading import ReadingPlan, read_window
from loom.engine.reading import ranges as reading

pytestmark = pytest.mark.sqlite_first

WINDOW = 8_000


def work(turns: int, wishes: dict[int, str] | None = None) -> list[dict[str, Any]]:
    """Turns of about 300 tokens: a request, a call, its result, an answer."""
    said: list[dict[str, Any]] = []
    for n in range(turns):
        wish = (wishes or {}).get(n, f"Look at part {n} of the work, please.")
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "run", "arguments": f'{{"path": "src/part_{n}.py"}}'},
        }
        said += [
            {"role": "user", "content": wish},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"c{n}",
                "content": f"value_{n} = {n}\n" + f"line of part {n} " * 40,
            },
            {"role": "assistant", "content": f"Part {n} is done. " + "It was plain work. " * 10},
        ]
    return said


def prepared(session: Session, **options: Any) -> Context:
    return asyncio.run(session.prepare(window=WINDOW, reserve_output=0, **options))


def unread(context: Context) -> list[Spot]:
    return [spot for spot in context.continuation.places.spots if spot.unread]


def test_covers_of_the_first_request_are_made_from_many_windows(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        end = session.path.end
        assert end is not None
        assert end.total > 5 * WINDOW
        context = prepared(session)
        assert not unread(context)
        assert context.report.dropped > 600


def test_what_is_older_than_a_first_reading_is_one_stretch(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "FIRST_WINDOWS", 2)
    monkeypatch.setattr(preparing, "USER_SHARE", 0)
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        newest = unread(prepared(session))[-1]
        assert newest.stop > 400
        assert len(session.path) - newest.stop < 3 * WINDOW // 75


def test_it_reads_no_more_messages_than_its_limit(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_FIRST_MESSAGES", 150)
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        path = session.path
        plan = ReadingPlan(tokens=1_000, count=lambda message: 75, first_tokens=10**6)
        start, stop = read_window(path, plan)[-1]
        assert stop == len(path)
        # an exchange is read whole
        assert 150 <= stop - start <= 152
        assert path[start].role != "tool"


def test_the_next_requests_read_only_what_is_shown(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        first = prepared(session)
        last = session._requests.last
        assert last is not None
        assert len(last.reading.messages) == sum(
            1 if piece.is_left_out else len(piece.span) for piece in first.continuation.pieces
        )
        session.append({"role": "assistant", "content": "Done."}, "And now the next one.")
        second = prepared(session)
        assert second.report.epoch_reason == "continued"
    with Loom.open(address) as loom:
        session = loom.session(session.id)
        session.append({"role": "assistant", "content": "Done."}, "And one more.")
        third = prepared(session)
        assert third.report.epoch_reason == "continued"
        sent = second.conversation.messages
        assert third.conversation.messages[: len(sent)] == sent


def test_messages_of_the_user_are_read_wherever_they_are(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "FIRST_WINDOWS", 1)
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        context = prepared(session)
        places = context.continuation.places
        read = {spot.start for spot in places.spots if not spot.unread}
        users = [node.depth for node in session.path if node.role == "user"]
        tokens = sum(session.path[depth].tokens for depth in users)
        assert tokens < WINDOW * preparing.USER_SHARE
        assert read.issuperset(users)
        for spot in places.spots:
            assert spot.unread or spot.stop == spot.start + 1


def test_the_newest_of_them_are_read_where_they_are_many(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(60, {n: f"Wish {n}: " + "more words " * 60 for n in range(60)}))
        path = session.path
        plan = ReadingPlan(tokens=2_000, count=lambda message: 75, user_tokens=3_000)
        ranges = read_window(path, plan)
        read = [n for start, stop in ranges for n in range(start, stop)]
        users = [node.depth for node in path if node.role == "user"]
        newest = [depth for depth in users if depth in read and depth > 7 * 4]
        assert 15 <= len(newest) <= 30
        assert newest == users[-len(newest) :]
        # and the first ones, among which the goal is found
        assert read[:8] == users[:8]


def test_what_is_excluded_is_not_read_as_a_message_of_the_user(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(60))
        path = session.path
        hidden = {40, 80}
        plan = ReadingPlan(tokens=1_000, count=lambda message: 75, hidden=hidden, user_tokens=9_000)
        read = {n for start, stop in read_window(path, plan) for n in range(start, stop)}
        assert read.isdisjoint(hidden)
        assert {36, 44, 76, 84} <= read


def test_all_of_it_is_read_again_after_something_was_excluded(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        session.append(*work(200))
        prepared(session)
        loom.tree(session.row.tree.id).exclude(session.path[201].id)
        again = prepared(session)
        assert "changed" in again.report.epoch_reason
        assert not unread(again)


@pytest.mark.sqlite_first
def test_a_session_that_grew_reads_what_its_last_epoch_showed_and_the_users_messages(
    address: str,
) -> None:
    with Loom.open(address) as loom:
        session = loom.new(model="gpt-4o")
        said = work(120)
        for start in range(0, len(said), 4):
            session.append(*said[start : start + 4])
            context = prepared(session)
            if context.report.epoch_reason != "continued":
                assert all(spot.stretch for spot in unread(context))
        assert context.report.epoch > 2
