"""Covers: telling lines in place of what was left out, one behind the other, so that what stands
before them does not move.
"""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from loom import Context, Loom, read_runs, weave
from loom.context.caches import SHARED
from loom.context.cover.extract import Focus
from loom.context.cover.lines import HistoryIndexes, quote_lines
from loom.context.cover.speech import find_speech
from loom.context.policy import find_policy
from loom.context.quotes import QUOTES_AND_WORDS, QUOTES_ONLY, Quote
from loom.context.report import LEFT_OUT
from loom.conversation.growing import RecentHistories
from loom.conversation.handles import to_lines
from loom.conversation.message import Message, Text
from loom.errors import ChoiceError
from loom.stores.health.doctor import examine
from tests.shared import AGENTS, examples, needs_shared
from tests.strategies import broken_histories, histories

WINDOW = 6000
# covers become one after a few epochs
MERGING = replace(find_policy("default"), name="merging", cover=0.08, covers=0.4)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def steps(start: int, stop: int) -> list[dict[str, str]]:
    """Work in which each step names a file that no other names."""
    filler = "the shuttle passes over and under the warp " * 8
    return [
        assistant(
            f"{filler}\nI changed src/part_{n:03}/module_{n:03}.py because of ERR-{n:04}.\n{filler}"
        )
        for n in range(start, stop)
    ]


def covers(context: Context) -> list[str]:
    introductions = (f"{QUOTES_ONLY}\n", f"{QUOTES_AND_WORDS}\n")
    return [
        message.text
        for message in context.conversation.messages
        if any(introduction in message.text for introduction in introductions)
    ]


def names(text: str) -> set[str]:
    return set(re.findall(r"ERR-\d{4}", text))


def test_what_is_left_out_is_told_in_its_place() -> None:
    messages = [user("Find the cause of ERR-0003."), *steps(0, 60), user("And now?")]
    context = weave(messages, model="gpt-4o", window=WINDOW, reserve_output=0)
    [told] = covers(context)
    assert re.match(r"\[\d+ messages left out here; recall ~", told)
    lines = [line for line in told.splitlines() if "ERR-" in line]
    assert len(lines) >= 20
    assert all(line.startswith("> ") for line in lines), "and marked as quotes"
    assert all(line.removeprefix("> ") in str(messages) for line in lines), "in their own words"
    [item] = [item for item in context.report.items if item.action == "covered"]
    assert context.report.dropped == 60 - sum(
        "ERR-" in m.text for m in context.conversation.messages[2:]
    )
    assert names(context.recall(item.handles[0])) >= names(told) - {"ERR-0003"}
    assert context.report.input_tokens <= WINDOW


def test_without_a_share_nothing_is_told() -> None:
    messages = [user("go"), *steps(0, 60), user("And now?")]
    plain = weave(
        messages,
        model="gpt-4o",
        window=WINDOW,
        reserve_output=0,
        policy=replace(find_policy("default"), cover=0.0),
    )
    assert covers(plain) == []
    assert {item.action for item in plain.report.items} == {"kept", "dropped"}


def played(count: int) -> list[Context]:
    """A conversation that grows by a few steps before each call."""
    messages = [user("Find the cause.")]
    made: list[Context] = []
    for call in range(count):
        messages = [*messages, *steps(call * 3, call * 3 + 3), user(f"step {call}")]
        made.append(
            weave(
                messages,
                model="gpt-4o",
                window=WINDOW,
                reserve_output=0,
                policy=MERGING,
                previous=made[-1] if made else None,
            )
        )
    return made


def test_covers_are_appended_behind_what_stands() -> None:
    made = played(60)
    moved = 0
    for before, after in pairwise(made):
        assert after.report.input_tokens <= WINDOW
        if after.report.epoch == before.report.epoch:
            assert (
                after.conversation.messages[: len(before.conversation.messages)]
                == before.conversation.messages
            )
        elif len(covers(after)) == len(covers(before)) + 1:
            assert covers(after)[:-1] == covers(before), (
                "an epoch adds a cover and leaves those before it"
            )
        else:
            moved += 1
            assert len(covers(after)) == 1, "or they become one"
    assert made[-1].report.epoch >= 5
    assert 0 < moved < made[-1].report.epoch / 2


def test_what_covers_told_is_told_again_when_they_become_one() -> None:
    made = played(60)
    at = next(
        n
        for n, (a, b) in enumerate(pairwise(made), 1)
        if len(covers(a)) > 1 and len(covers(b)) == 1
    )
    before, after = set().union(*map(names, covers(made[at - 1]))), names(covers(made[at])[0])
    assert len(before & after) >= 5


def test_a_pin_in_a_cover_parts_it_and_nothing_is_quoted_outside_its_place() -> None:
    messages = [user("Find the cause.")]
    for n in range(20):
        messages += [*steps(3 * n, 3 * n + 3), user(f"step {n}: mind ERR-{9000 + n}")]
    options: dict[str, Any] = {"model": "gpt-4o", "window": WINDOW, "reserve_output": 0}
    before = weave(messages, **options)
    covered = next(item for item in before.report.items if item.action == "covered")
    start, stop = map(int, re.findall(r"\d+", covered.place))
    pinned = (start + stop) // 2
    after = weave(messages, pins=[pinned], previous=before, **options)
    pieces = [piece for piece in after.continuation.pieces if piece.quotes]
    assert len(pieces) == 2
    for piece in pieces:
        assert all(piece.span.start <= quote.place < piece.span.stop for quote in piece.quotes)


def test_every_handle_of_every_epoch_still_resolves() -> None:
    made = played(40)
    for context in made[-8:]:
        for item in context.report.items:
            if item.action in LEFT_OUT:
                assert made[-1].recall(item.handles[0]) == context.recall(item.handles[0])


# ── a history that grows
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def words(text: str) -> int:
    return len(text.split())


@settings(max_examples=examples(40), deadline=None)
@given(broken_histories | histories(), st.integers(40, 400), st.data())
def test_what_grew_is_told_as_if_it_had_not_been_seen_before(
    history: list[Message], tokens: int, data: st.DataObject
) -> None:
    sources, indexes = list(enumerate(history)), HistoryIndexes(10**6)
    speech = find_speech(sources) if data.draw(st.booleans()) else {}

    def quoted(stop: int, indexes: HistoryIndexes) -> tuple[Quote, ...]:
        spoken = {place: quote for place, quote in speech.items() if place < stop}
        focus = Focus(after=history[stop:], goal="goal_1")
        return quote_lines(sources[:stop], spoken, tokens, words, focus, indexes)

    for stop in sorted(data.draw(st.lists(st.integers(0, len(history)), max_size=4))):
        quoted(stop, indexes)
    grown = quoted(len(history), indexes)
    assert grown == quoted(len(history), HistoryIndexes(1))
    assert [quote.place for quote in grown] == sorted({quote.place for quote in grown})
    assert [quote for quote in grown if quote.is_speech] == list(speech.values())


def test_threads_that_weave_the_same_history_do_not_disturb_each_other() -> None:
    def woven(stop: int) -> str:
        return str(
            weave(
                [user("go"), *steps(0, stop), user("And now?")],
                model="gpt-4o",
                window=WINDOW,
                reserve_output=0,
            ).openai()
        )

    stops = [40, 44, 41, 48, 40, 60, 52, 45, 60, 43, 40, 56] * 2
    expected = {}
    for stop in set(stops):
        SHARED.clear()
        expected[stop] = woven(stop)
    SHARED.clear()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(woven, stops)) == [expected[stop] for stop in stops]


class Noted(Struct):
    messages: tuple[Message, ...]
    size: int = 1


def said(count: int, text: str = "") -> tuple[Message, ...]:
    return tuple(Message("user", (Text(f"{text}{n}"),)) for n in range(count))


def test_the_longest_beginning_is_lent_and_to_one_at_a_time() -> None:
    recent: RecentHistories[Noted] = RecentHistories(4, 100)
    for count in (2, 5, 9):
        recent.put(Noted(said(count)))
    found = recent.take(said(7))
    assert found is not None
    assert found.messages == said(5)
    again = recent.take(said(7))
    assert again is not None
    assert again.messages == said(2)
    assert recent.take(said(7)) is None
    assert recent.take(said(9, "other")) is None
    recent.put(found)
    assert recent.take(said(7)) is found


def test_only_the_newest_are_kept_and_not_what_is_too_large() -> None:
    few: RecentHistories[Noted] = RecentHistories(3, 100)
    small: RecentHistories[Noted] = RecentHistories(100, 100)
    for number in range(20):
        few.put(Noted(said(1, f"{number}:")))
        small.put(Noted(said(1, f"{number}:"), 40))
    small.put(Noted(said(1, "huge"), 101))
    few.put(Noted(()))
    for recent, kept in ((few, 3), (small, 2)):
        there = [number for number in range(20) if recent.take(said(1, f"{number}:"))]
        assert there == list(range(20 - kept, 20))
    assert small.take(said(1, "huge")) is None
    assert few.take(said(1)) is None


# ── from a store
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def told_by(loom: Loom, name: str, calls: range) -> list[Context]:
    made = []
    for call in calls:
        session = loom.session(name)  # as if each call came from another process
        session.append(*steps(call * 3, call * 3 + 3), user(f"step {call}"))
        made.append(asyncio.run(session.prepare(model="gpt-4o", window=WINDOW, reserve_output=0)))
    return made


def test_covers_of_a_session_grow_from_epoch_to_epoch_and_after_restarts() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(user("Find the cause."))
        made = told_by(loom, session.id, range(45))
        seen = max(len(covers(context)) for context in made)
        assert seen >= 3
        for before, after in pairwise(made):
            assert after.report.input_tokens <= WINDOW
            if len(covers(after)) > 1:
                assert covers(after)[: len(covers(before))] == covers(before)[
                    : len(covers(after))
                ] or len(covers(after)) < len(covers(before))
        assert made[-1].conversation.messages[0].text == "Find the cause."
        assert len(names("".join(covers(made[-1])))) >= 8, "what was said long ago is still told"
        for item in made[-1].report.items:
            if item.action in LEFT_OUT:
                start, stop = map(int, re.findall(r"\d+", item.place))
                said = [
                    node.message
                    for node in loom.session(session.id).path[start:stop]
                    if node.message
                ]
                assert loom.session(session.id).recall(item.handles[0]) == to_lines(said)
        assert list(examine(loom.store)) == []


def look(call: int) -> list[dict[str, Any]]:
    """A step of work: words that are said all the time, and a tool that prints a lot."""
    asked = {"name": "grep", "arguments": f'{{"pattern": "part_{call}"}}'}
    called = {"id": f"c{call}", "type": "function", "function": asked}
    printed = "\n".join(f"lib/part_{call * 60 + n}.py: {n:08x} {call:08x}" for n in range(60))
    words = "\n".join(f"Let me look at src/part_{call}/module_{n}.py." for n in range(4))
    return [
        assistant(words) | {"tool_calls": [called]},
        {"role": "tool", "tool_call_id": f"c{call}", "content": printed},
    ]


def test_what_the_model_said_once_outlasts_merges_and_restarts() -> None:
    policy = replace(MERGING, cover=0.15)
    once = ["The ledger is blocked by CORE-48213.", "We write the index last, so nothing tears."]
    with Loom.open(":memory:") as loom:
        name, counts = loom.new().id, [0]
        loom.session(name).append(user("Find the cause."), *map(assistant, once))
        for call in range(45):
            session = loom.session(name)  # as if each call came from another process
            session.append(*look(2 * call), *look(2 * call + 1))
            context = asyncio.run(
                session.prepare(policy=policy, model="gpt-4o", window=24_000, reserve_output=0)
            )
            counts.append(len(covers(context)))
        merges = sum(after < before for before, after in pairwise(counts))
        assert merges >= 2
        text = "\n".join(covers(context))
        assert [line for line in once if line not in text] == []


def test_a_cover_that_stands_forgets_what_a_tool_prints_later() -> None:
    """The name is no longer taken for coined, and the request is what it was."""
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(user("Find the cause."), assistant("It is lib/part_905.py, I am sure."))
        coined = []
        for call in range(45):
            session.append(*look(call))
            context = asyncio.run(session.prepare(model="gpt-4o", window=12_000, reserve_output=0))
            pieces = context.report.continuation.pieces
            found = [quote for piece in pieces for quote in piece.quotes if quote.place == 1]
            coined += [quote.coined for quote in found]
        assert coined[0] == ("lib/part_905.py",)
        assert coined[-1] == ()


def test_what_is_excluded_is_uncovered() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append(user("Find the cause."))
        context = told_by(loom, session.id, range(20))[-1]
        named = sorted(names("".join(covers(context))))
        assert named
        tree = loom.tree(session.row.tree.id)
        gone = next(
            node
            for node in loom.session(session.id).path
            if node.message and named[0] in node.message.text
        )
        tree.exclude(gone.id)
        after = asyncio.run(
            loom.session(session.id).prepare(model="gpt-4o", window=WINDOW, reserve_output=0)
        )
        assert named[0] not in str(after.openai())
        assert "excluded" in after.report.epoch_reason


def test_shares_that_make_no_sense_are_refused() -> None:
    for field in ("cover", "once", "covers", "verbatim", "words"):
        with pytest.raises(ChoiceError, match=field):
            replace(find_policy("default"), **{field: 2.0})


def test_what_is_smaller_than_its_marker_stays_as_it_was_said() -> None:
    """A slash command before the goal takes fewer tokens than a marker in its place."""
    said = [user("/mode"), user("Mend src/parser.py: it reads commas twice"), *steps(0, 60)]
    context = weave(said, window=4000, reserve_output=0, model="gpt-4o")
    assert context.openai()["messages"][0]["content"] == "/mode"
    assert [item.action for item in context.report.items[:2]] == ["kept", "kept"]


def test_lines_are_chosen_where_the_most_is_to_be_told_whatever_parts_the_gaps() -> None:
    """A short gap before the end is told of as if nothing stood between it and a long one."""
    goal = "Mend src/parser.py: it reads commas twice and stops"
    late = assistant("I moved parse_quoted_field into src/fields/quoted_reader.py. " + "so " * 900)
    said = [user(goal), *steps(0, 150), user("Now write the page about it, in full"), late]
    said += [assistant("I read more of it. " + "and " * 700) for _ in range(3)]
    context = weave(said, window=4000, reserve_output=0, model="gpt-4o")
    assert len(covers(context)) == 2
    assert "src/fields/quoted_reader.py" in covers(context)[-1]


@needs_shared
def test_room_is_not_set_aside_for_words_that_are_in_the_request_anyway() -> None:
    """Goal and request are long, so they are shrunk; no cover quotes them as well."""
    [run] = read_runs(AGENTS / "trail_4.json")
    said = list(run.messages())[:16]
    context = weave(said, window=2000, reserve_output=0, model="gpt-4o")
    assert context.report.input_tokens > 0.9 * 2000
