"""The layers of memory: recent, important, summaries, across sessions. None has a duplicate, none
shows what belongs to others, and both databases give the same.
"""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loom import ChoiceError, Loom, Session
from loom.recall.importance import current_importance, rank_value
from loom.recall.ranking import RankedMessages, choose_important, rank_values
from loom.stores.health.doctor import examine
from tests.stores.test_notes import Clock

DAY = 86_400_000

pytestmark = pytest.mark.sqlite_first


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loom(address: str, clock: Clock) -> Iterator[Loom]:
    ids = iter(map(str, range(100, 999)))
    # an embedder would make vectors in the background, at any time
    with Loom.open(address, now=clock, fresh_id=ids.__next__, embedder="none") as opened:
        yield opened


def texts(items: list[Any]) -> list[str]:
    return [item.text for item in items]


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_each_layer_asks_the_same_messages(loom: Loom) -> None:
    session = loom.new()
    said = ["Fix the login bug", answer("I read the code"), "ok", answer("It works now"), "thanks"]
    session.append(*said)
    memory = session.memory
    assert texts(memory.recent(2)) == ["thanks", "It works now"]
    assert texts(memory.important(3)) == ["Fix the login bug", "It works now", "I read the code"]
    assert memory.summaries() == []
    for item in [*memory.recent(), *memory.important()]:
        assert item.text in session.recall(item.handle, plain=True)


def test_summaries_are_the_third_layer(loom: Loom) -> None:
    session = loom.new()
    for number in range(30):
        session.append(f"question {number} " + "why " * 50, answer(f"because {number}"))
    session.set_summary("They asked why.")
    [summary] = session.memory.summaries()
    assert (summary.text, summary.role, summary.message) == ("They asked why.", "summary", None)
    assert "question 0" in session.recall(summary.handle, plain=True)


def test_equal_texts_are_in_a_layer_once_and_the_newest(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    for number in range(40):
        clock.now += 1
        session.append(["Run the tests", "run  the tests", "Deploy it"][number % 3])
        session.append(answer("All tests passed"))
    memory = session.memory
    for items in (memory.recent(50), memory.important(50)):
        assert sorted({text.lower().split()[0] for text in texts(items)}) == [
            "all",
            "deploy",
            "run",
        ]
        assert len(items) == 3
        assert min(item.place for item in items) >= 74
    assert len(memory.important(50, repeats=True)) == 50
    assert len(memory.recent(50, repeats=True)) == 50
    assert len({item.node for item in memory.important(80, repeats=True)}) == 80
    assert len(memory.across("tests", 50)) == 2


def test_of_equal_importance_the_newer_comes_first(loom: Loom) -> None:
    session = loom.new()
    session.append(*[f"Task number {number} of the day" for number in range(50)])
    newest = [f"Task number {number} of the day" for number in range(49, 39, -1)]
    assert texts(session.memory.important(10)) == newest


def test_importance_falls_with_age_and_grows_with_use(loom: Loom, clock: Clock) -> None:
    session = loom.new()
    session.append("An old request of the user")
    clock.now += 8 * DAY
    session.append(answer("The newest words of the model"))
    memory = session.memory
    assert texts(memory.important())[0] == "The newest words of the model"
    old = memory.important()[1]
    assert old.importance == current_importance(0.85, 8 * DAY)
    session.recall(old.handle)
    assert texts(memory.important())[0] == "An old request of the user", "it is young again"
    assert memory.important()[0].uses == 1


def test_uses_survive_a_restart_and_leave_with_the_words(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append("Where is the key?", answer("In the drawer"))
        handle = next(item.handle for item in session.memory.recent() if item.role == "assistant")
        for _ in range(3):
            session.recall_shown(handle)
        loom.recall(handle)
        fork = session.fork()
    with Loom.open(address) as loom:
        again = loom.session(session.id)
        assert {item.text: item.uses for item in again.memory.important()} == {
            "Where is the key?": 0,
            "In the drawer": 4,
        }
        other = loom.session(fork.id).memory.important()
        assert max(item.uses for item in other) == 1, "what another session opened is its own"
        lines = list(loom.export())
        with Loom.open(":memory:") as copy:
            copy.import_lines(lines)
            assert list(copy.export()) == lines
            assert max(item.uses for item in copy.session(session.id).memory.important()) == 4
        loom.session(fork.id).purge()
        again.purge()
        with loom.store.database.read() as reader:
            counted = reader.all("SELECT data FROM records WHERE kind = 'use'")
        assert {data for (data,) in counted} == {None}
        assert [problem for problem in examine(loom.store) if not problem.note] == []


def test_a_pin_is_a_use(loom: Loom) -> None:
    tree = loom.new_tree("t")
    first = tree.say("The first thing")
    tree.say("The second thing")
    session = tree.session()
    assert texts(session.memory.important())[0] == "The second thing"
    tree.pin(first.id)
    assert texts(session.memory.important())[0] == "The first thing"


def test_what_is_forgotten_is_not_important_and_still_there(loom: Loom) -> None:
    session = loom.new()
    nodes = session.append("Keep this in mind", "Forget this one")
    memory = session.memory
    memory.forget(nodes[1].id)
    assert texts(memory.important()) == ["Keep this in mind"]
    assert memory.important(5, "forget") == []
    assert texts(memory.recent()) == ["Forget this one", "Keep this in mind"]
    assert session.search("forget", shown=True)
    other = session.fork()
    assert len(other.memory.important()) == 2, "another session has not forgotten it"
    memory.forget(memory.recent()[1].handle)
    assert memory.important() == []
    with pytest.raises(ChoiceError):
        memory.forget("~aaaaaaaaaaaa")


def test_what_is_hidden_is_in_no_layer(loom: Loom) -> None:
    tree = loom.new_tree("t")
    first = tree.say("The secret plan of the user")
    tree.say("Another request")
    tree.exclude(first.id)
    memory = tree.session().memory
    assert texts(memory.recent()) == texts(memory.important()) == ["Another request"]
    assert memory.across("secret") == []


def test_metadata_may_say_how_important_a_message_is(loom: Loom) -> None:
    session = loom.new()
    session.append(answer("a small remark"), metadata={"importance": 1.0})
    session.append("A request of the user")
    assert texts(session.memory.important()) == ["a small remark", "A request of the user"]


def test_an_index_of_yesterday_is_read_until_it_is_made_again(loom: Loom) -> None:
    import msgspec

    session = loom.new()
    session.append(*[f"message number {number}" for number in range(100)])
    loom.index()
    with loom.store.database.write() as writer:
        [(key, data)] = writer.all("SELECT key, data FROM search_segments")
        columns = msgspec.msgpack.decode(data)
        del columns["importance"], columns["digests"]
        sql = "UPDATE search_segments SET data = $2, version = 2, revision = 9 WHERE key = $1"
        writer.all(sql, key, msgspec.msgpack.encode(columns))
    assert len(session.memory.important(5)) == 5
    assert session.search("message number 7")
    session.append(*[f"more {number}" for number in range(100)])
    assert loom.index() == 200
    assert len(session.memory.important(200)) == 200


# Over random scopes


WHERE = [
    (tenant, project, agent)
    for tenant in ("acme", "umbrella")
    for project in ("web", "shop")
    for agent in ("ann", "bob")
]


def test_no_layer_leaks_over_random_scopes(address: str) -> None:
    chance = random.Random(11)
    looms = {
        place: Loom.open(address, tenant=place[0], project=place[1], agent=place[2])
        for place in WHERE
    }
    sessions: dict[tuple[str, ...], Session] = {}
    said: dict[tuple[str, ...], set[str]] = {}
    for place, loom in looms.items():
        for number in ("1", "2"):
            sessions[(*place, number)] = loom.new(number)
            said[(*place, number)] = set()
    for number in range(120):
        where = chance.choice(sorted(sessions))
        text = f"shared topic {chance.randrange(9)} by {'/'.join(where)}"
        sessions[where].append(text, answer(f"answer {number % 5} to {text}"))
        said[where] |= {text, f"answer {number % 5} to {text}"}
    for where, session in sessions.items():
        memory = session.memory
        for items in (memory.recent(200), memory.important(200)):
            assert len(items) == len(said[where]) == len(set(texts(items)))
            assert set(texts(items)) == said[where]
        for items in (memory.important(50, "shared topic"), session.search("shared topic", 50)):
            assert set(texts(items)) <= said[where]
        project = set().union(*(every for place, every in said.items() if place[:3] == where[:3]))
        found = [hit.message.text for hit in memory.across("shared topic", 200)]
        assert set(found) <= project
        assert len(found) == len(set(found))
    for loom in looms.values():
        loom.close()


def test_both_databases_give_the_same_layers(server: Any, tmp_path: Any) -> None:
    found: list[Any] = []
    name = server.new_database()
    for address in (str(tmp_path / "a.db"), server.url(name)):
        ids = iter(map(str, range(100, 999)))
        clock = Clock()
        with Loom.open(address, now=clock, fresh_id=ids.__next__, embedder="none") as loom:
            session = loom.new()
            chance = random.Random(3)
            for number in range(150):
                clock.now += chance.randrange(DAY)
                session.append(
                    f"task {chance.randrange(40)} {number % 7}", answer(f"plan {number}")
                )
            memory = session.memory
            for item in memory.important(5):
                session.recall(item.handle)
            found.append(
                (
                    memory.recent(30),
                    memory.important(30),
                    memory.important(10, "task 7"),
                    memory.across("plan 77"),
                )
            )
    server.give_back(name)
    assert found[0] == found[1]


# The pure part


def test_many_are_ranked_as_one_is() -> None:
    chance = random.Random(5)
    rows = [(chance.random(), chance.randrange(10**12), chance.randrange(50)) for _ in range(500)]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    assert rank_values(*columns).tolist() == pytest.approx([rank_value(*row) for row in rows])


def test_the_choice_of_the_most_important_is_that_of_sorting_all() -> None:
    chance = random.Random(6)
    for _ in range(60):
        count = chance.randrange(1, 400)
        keys = np.array(chance.sample(range(1, 10_000), count))
        created = np.array([chance.randrange(50) for _ in range(count)])
        ranks = np.array([float(chance.randrange(6)) for _ in range(count)])
        digests = np.array([chance.randrange(chance.choice([3, 1000])) for _ in range(count)])
        messages = RankedMessages(keys, created, ranks, digests, np.arange(count))
        limit = chance.randrange(1, 80)
        order = sorted(range(count), key=lambda at: (ranks[at], created[at], keys[at]))[::-1]
        assert choose_important(messages, limit, repeats=True).tolist() == order[:limit]
        groups: dict[int, list[int]] = {}
        for at in order:
            groups.setdefault(int(digests[at]) or -int(keys[at]), []).append(at)
        newest = [max(group, key=lambda at: (created[at], keys[at])) for group in groups.values()]
        assert choose_important(messages, limit, repeats=False).tolist() == newest[:limit]
