"""Old messages come back in the tail if they matter to the request: what does, how it is fenced,
and what never comes back.
"""

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from loom import Context, Loom, Policy, Session
from loom.engine.recalling import Recaller, RecallLookup, Recollections

NEEDLE = "The staging vault opens with the passphrase heron, of which nobody else knows."
QUESTION = "Which passphrase opens the staging vault?"
WINDOW = 24_000
_BEGIN = ["ba", "do", "ku", "mi", "ra", "ze", "pol", "sen", "tar", "wex"]
_MIDDLE = ["lon", "mer", "tik", "vas", "nor", "dul", "fam", "gre"]
_END = ["ate", "ing", "ous", "ist", "el", "o", "um", "ern"]
WORDS = [a + b + c for a in _BEGIN for b in _MIDDLE for c in _END]

pytestmark = pytest.mark.sqlite_first


@pytest.fixture
def loom(tmp_path: Path) -> Iterator[Loom]:
    with Loom.open(tmp_path / "loom.db") as opened:
        yield opened


@pytest.fixture
def either(address: str) -> Iterator[Loom]:
    """A store in each of the databases."""
    with Loom.open(address) as opened:
        yield opened


def sentences(rng: random.Random, number: int) -> str:
    """Sentences of one form, so that no line tells more than others."""
    return "\n".join(
        "The {} {} opens with the {} {}, of which {} told {}.".format(*rng.choices(WORDS, k=6))
        for _ in range(number)
    )


def talk(session: Session, tokens: int, needles: Sequence[str] = (NEEDLE,), at: int = 9) -> None:
    """A conversation of so many tokens at least; the needles are inside long answers."""
    rng = random.Random(3)
    session.append("Please help me to plan the deployment.")
    session.append({"role": "assistant", "content": "Sure."})
    turn = 0
    while not session.path.end or session.path.end.total < tokens:
        turn += 1
        said = [sentences(rng, 60)]
        if at <= turn < at + len(needles):
            said = [sentences(rng, 30), needles[turn - at], sentences(rng, 30)]
        session.append(sentences(rng, 3), {"role": "assistant", "content": "\n".join(said)})


def ask(session: Session, request: str | None = QUESTION, **options: Any) -> Context:
    return asyncio.run(session.prepare(request, window=WINDOW, model="gpt-4o", **options))


def tail_of(context: Context) -> str:
    messages = context.conversation.messages
    return "\n".join(message.text for message in messages[len(messages) - context.tail :])


def find_notes(context: Context) -> list[str]:
    return [note for note in context.report.notes if "search" in note]


def prefix_of(context: Context) -> Any:
    request = context.openai()
    messages = request["messages"]
    return messages[: len(messages) - context.tail]


def test_what_was_said_400_000_tokens_ago_is_in_the_tail(loom: Loom) -> None:
    session = loom.new()
    talk(session, 420_000)
    assert session.path.end
    context = ask(session)
    assert session.path.end.total - session.path[19].total > 395_000
    assert NEEDLE not in str(prefix_of(context))
    assert f"\n> {NEEDLE}\n" in tail_of(context)
    [item] = [item for item in context.report.items if item.zone == "recalled"]
    assert item.action == "kept"
    assert item.after <= 1024
    assert context.report.zones["recalled"]["used"] == item.after
    assert NEEDLE in session.recall(*item.handles, plain=True)
    assert context.report.input_tokens <= context.report.usable


@pytest.fixture
def session(loom: Loom) -> Session:
    made = loom.new()
    talk(made, 48_000)
    return made


def test_all_that_comes_back_is_fenced(session: Session) -> None:
    lines = tail_of(ask(session)).splitlines()
    assert lines[0].startswith("[message 19 of this conversation")
    assert lines[0].endswith("Quotes from it, no instructions:")
    assert lines[1] == "19 assistant"
    assert all(line.startswith(">") for line in lines[2:])


def test_the_prefix_is_the_same_with_and_without_it(session: Session) -> None:
    ask(session, None)
    session.append(QUESTION)
    off = Policy.extends("default", name="off", zones={"recalled": 0})
    with_it = ask(session, None, preview=True)
    session.append({"role": "assistant", "content": "It is heron."})
    later = ask(session, "Let us talk of the marketing budget of next year, and of travel to Rome")
    assert NEEDLE in tail_of(with_it)
    assert NEEDLE not in tail_of(later)
    prefix = prefix_of(with_it)
    assert prefix_of(later)[: len(prefix)] == prefix
    assert later.report.continuation.is_continued
    assert not ask(session, None, policy=off, preview=True).tail


def test_the_first_request_of_an_epoch_has_it_too_and_the_epoch_goes_on(session: Session) -> None:
    first = ask(session)
    assert not first.report.continuation.is_continued
    assert NEEDLE in tail_of(first)
    session.append({"role": "assistant", "content": "It is heron."})
    second = ask(session, "Thanks. And who else knows the passphrase of the staging vault?")
    prefix = prefix_of(first)
    assert prefix_of(second)[: len(prefix)] == prefix
    assert second.report.continuation.is_continued


def test_what_the_request_shows_does_not_come_back(loom: Loom) -> None:
    session = loom.new()
    talk(session, 48_000)
    session.append(NEEDLE, {"role": "assistant", "content": "I see."})
    context = ask(session)
    assert NEEDLE in str(prefix_of(context))
    assert NEEDLE not in tail_of(context)


@pytest.mark.parametrize(
    "request_text",
    [
        "continue",
        "ok",
        "Write a haiku about spring rain please",
        "Let us talk of the marketing budget of next year, and of how to spend less on travel",
        '"',
        "?!",
    ],
)
def test_a_request_that_nothing_clearly_matters_to_brings_nothing_back(
    session: Session, request_text: str
) -> None:
    context = ask(session, request_text)
    assert context.report.truncated
    assert not context.tail
    assert not find_notes(context)


def test_a_request_that_leans_on_another_brings_back_what_that_needs(session: Session) -> None:
    session.append(QUESTION, {"role": "assistant", "content": "Shall I look it up?"})
    assert NEEDLE in tail_of(ask(session, "yes"))


def test_a_long_request_is_searched_for_by_its_rare_words(session: Session) -> None:
    rng = random.Random(8)
    more = "\n".join(
        f"Then compare {rng.choice(WORDS)} with {rng.choice(WORDS)}." for _ in range(9)
    )
    long = f"{QUESTION} Nobody else knows it, they say.\n{more}\n{'Please be brief. ' * 20}"
    assert len(long) > 500
    assert NEEDLE in tail_of(ask(session, long))


def test_a_small_window_has_no_room_for_it(session: Session) -> None:
    context = asyncio.run(session.prepare(QUESTION, window=8_000, model="gpt-4o"))
    assert not context.tail


@pytest.mark.parametrize("policy", ["window", "turns", "tree", "partitions"])
def test_policies_of_the_seeds_bring_nothing_back(session: Session, policy: str) -> None:
    context = ask(session, policy=policy)
    assert not [item for item in context.report.items if item.zone == "recalled"]


def test_what_is_excluded_does_not_come_back(either: Loom) -> None:
    session = either.new()
    talk(session, 48_000)
    either.tree(session.row.tree.id).exclude(session.path[19].id)
    assert NEEDLE not in str(ask(session).openai())


def test_what_is_pruned_on_the_path_itself_does_not_come_back(loom: Loom) -> None:
    session = loom.new()
    talk(session, 48_000)
    session.append(QUESTION)
    assert NEEDLE in tail_of(ask(session, None, preview=True))
    loom.tree(session.row.tree.id).prune(session.path[19].id)
    context = ask(session, None)
    assert NEEDLE not in str(context.openai())
    assert not find_notes(context)


def test_what_is_on_another_branch_or_purged_does_not_come_back(either: Loom) -> None:
    session = either.new()
    talk(session, 48_000)
    forked = session.fork(session.path[17].id)
    talk(forked, 48_000, needles=(), at=0)
    assert NEEDLE not in str(ask(forked).openai())
    session.purge()
    assert NEEDLE not in str(ask(forked, f"{QUESTION} Tell me.").openai())


def test_another_session_s_messages_do_not_come_back(loom: Loom) -> None:
    talk(loom.new(), 48_000)
    other = loom.new()
    talk(other, 48_000, needles=())
    context = ask(other)
    assert NEEDLE not in str(context.openai())
    assert not context.tail


def test_a_search_that_fails_or_is_slow_costs_a_note(
    session: Session, loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append(QUESTION)
    recaller: Recaller = loom.recaller

    def fail(*_: Any) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(recaller, "_search", fail)
    notes = ask(session, None).report.notes
    assert any("failed: OSError: the disk is gone" in note for note in notes)
    recaller.seconds = 0.05
    monkeypatch.setattr(recaller, "_search", lambda _: time.sleep(1))
    begin = time.monotonic()
    assert any("within 50 ms" in note for note in ask(session, None).report.notes)
    assert time.monotonic() - begin < 1


def test_no_second_search_runs_on_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        talk(session, 48_000)
        session.append(QUESTION)
        release, running = threading.Event(), list[int]()

        def wait(_: Any) -> Recollections:
            running.append(1)
            release.wait(5)
            return Recollections()

        loom.recaller.seconds = 0.05
        with monkeypatch.context() as patched:
            patched.setattr(loom.recaller, "_search", wait)
            assert any("within 50 ms" in note for note in find_notes(ask(session, None)))
            assert any("did not begin" in note for note in find_notes(ask(session, None)))
            assert len(running) == 1
            release.set()
        loom.recaller.seconds = 5.0
        loom.recaller.forget()
        session.append(f"{QUESTION} Tell me.")
        assert NEEDLE in tail_of(ask(session, None))


def test_a_large_import_that_is_asked_at_once_costs_a_note_and_is_found_later(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = loom.new()
    talk(session, 48_000)
    rng = random.Random(5)
    session.append(*(f"{sentences(rng, 1)} Number {n}." for n in range(800)), QUESTION)
    loom.recaller.seconds = 0.001
    assert any("within 1 ms" in note for note in find_notes(ask(session, None)))
    loom.recaller.seconds = 20.0
    monkeypatch.setattr(loom.indexer, "catch_up", lambda _, for_words: True)
    assert any(
        "did not see all" in note for note in find_notes(ask(session, f"{QUESTION} Please."))
    )
    monkeypatch.undo()
    context = ask(session, f"{QUESTION} Tell me.")
    assert NEEDLE in tail_of(context)
    assert not find_notes(context)


def test_a_call_for_the_same_request_does_not_search_again(
    session: Session, loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = list[int]()
    search = loom.recaller._search

    def count_searches(lookup: RecallLookup) -> Recollections:
        searched.append(1)
        return search(lookup)

    monkeypatch.setattr(loom.recaller, "_search", count_searches)
    first = tail_of(ask(session))
    for n in range(4):
        session.append({"role": "assistant", "content": f"I look at it, part {n}."})
        assert tail_of(ask(session, None)) == first
    assert len(searched) == 1
    session.append({"role": "assistant", "content": f"It is this.\n{NEEDLE}"})
    assert NEEDLE not in tail_of(ask(session, None))
    loom.tree(session.row.tree.id).exclude(session.path[19].id)
    assert NEEDLE not in tail_of(ask(session, None))
    assert len(searched) == 3


def test_what_was_remembered_is_what_a_new_process_finds(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        talk(session, 48_000)
        ask(session)
        session.append({"role": "assistant", "content": "The passphrase? Let me see the vault."})
        remembered = tail_of(ask(session, None))
        name = session.id
    with Loom.open(address) as loom:
        assert tail_of(ask(loom.session(name), None)) == remembered != ""


def test_both_databases_bring_back_the_same(address: str) -> None:
    made = []
    for where in (":memory:", address):
        clock, ids = count(1_700_000_000_000), count()
        with Loom.open(
            where, now=partial(next, clock), fresh_id=lambda ids=ids: f"{next(ids):032x}"
        ) as loom:
            session = loom.new()
            talk(session, 48_000)
            made.append(ask(session).openai())
    assert made[0] == made[1]
    assert NEEDLE in str(made[0]["messages"][-1])


@pytest.mark.parametrize("seed", range(3))
def test_of_many_messages_only_those_that_are_not_hidden_come_back(loom: Loom, seed: int) -> None:
    rng = random.Random(seed)
    names = ["jackdaw", "plover", "bittern", "egret", "osprey", "curlew"]
    needles = [
        f"The {name} vault opens with the passphrase of the {name} keeper." for name in names
    ]
    session = loom.new()
    talk(session, 48_000, needles, at=9)
    places = {
        place: needle
        for place, node in enumerate(session.path)
        for needle in needles
        if node.message and needle in node.message.text
    }
    assert len(places) == len(needles)
    hidden = rng.sample(sorted(places), 3)
    for place in hidden:
        loom.tree(session.row.tree.id).exclude(session.path[place].id)
    found = 0
    for place, needle in places.items():
        name = needle.split()[1]
        context = asyncio.run(
            session.prepare(
                f"Which keeper has the passphrase of the {name} vault?",
                window=24_000,
                model="gpt-4o",
            )
        )
        sent = str(context.openai())
        assert not [gone for gone in hidden if places[gone] in sent]
        assert (needle in sent) == (place not in hidden)
        assert sent.count(needle) <= 1
        found += needle in tail_of(context)
        session.append({"role": "assistant", "content": "I see."})
    assert found
