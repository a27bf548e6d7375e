"""What a search promises of any store: the same hits on both databases, none from out of scope,
none twice; whatever was indexed, by whomever, however it ended.
"""

import asyncio
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import Loom, Message, Session, Text
from loom.conversation.searchable import searchable_text
from loom.engine import indexer
from loom.errors import StoreError
from loom.recall.choosing import Room
from loom.recall.corpus import Corpus
from loom.recall.hits import Hit
from loom.recall.search import SearchRequest, search
from loom.stores.health.doctor import examine
from loom.stores.search import home, merging
from tests.shared import examples
from tests.stores.test_search_index import entries

WORDS = ["walrus", "zebra", "login", "token", "clock", "parse_turn", "密码错误", "4711"]
_numbers = count()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and segments of a few messages."""
    monkeypatch.setattr(home, "MAX_BATCH_DOCUMENTS", 5)
    monkeypatch.setattr(merging, "MERGED_SEGMENTS", 2)
    monkeypatch.setattr(merging, "SMALLEST_SIZE", 4)


def said(number: int, words: Sequence[str]) -> Message:
    roles: Any = ("user", "assistant")
    text = f"{' '.join(words)} number{number}"
    return Message(roles[number % 2], (Text(text),), ("", "Ann")[number % 2])


def oracle(session: Session, query: str, limit: int) -> list[tuple[int, float]]:
    """What documents in memory find: places and scores."""
    corpus = Corpus(entries(session))
    matches = search(corpus, SearchRequest(query, Room(limit=limit), now=1))
    places = {node.seq: node.depth for node in session.path}
    return [(places[match.key], match.score) for match in matches]


def places(hits: Sequence[Hit]) -> list[tuple[int, float]]:
    return [(hit.place, hit.score) for hit in hits]


_scopes = st.tuples(st.sampled_from("st"), st.sampled_from("pq"), st.sampled_from(["", "a", "b"]))
_steps = st.lists(
    st.tuples(
        st.sampled_from(["new", "say", "say", "say", "fork", "index", "purge"]),
        _scopes,
        st.integers(0, 99),
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
    ),
    min_size=4,
    max_size=40,
)


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps, query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
def test_nothing_leaks_and_each_session_finds_what_memory_finds(
    address: str, steps: list[Any], query: list[str]
) -> None:
    run = f"run{next(_numbers)}"  # a store serves all examples, each in its own tenants
    ticks = count(1)
    looms: dict[tuple[str, str, str], Loom] = {}
    kept: dict[tuple[str, str, str], list[Session]] = {}

    def open_scope(scope: tuple[str, str, str]) -> Loom:
        if scope not in looms:
            tenant, project, agent = scope
            looms[scope] = Loom.open(
                address,
                embedder="none",
                tenant=f"{run}{tenant}",
                project=project,
                agent=agent,
                now=lambda: next(ticks) // 3,
            )
        return looms[scope]

    try:
        for step, scope, number, words in steps:
            loom, sessions = open_scope(scope), kept.setdefault(scope, [])
            if step == "index":
                loom.store.search.index_next(loom.scope, number % 7 + 1)
                loom.store.search.merge_next(loom.scope)
            elif step == "new" or not sessions:
                sessions.append(loom.new())
            elif step == "fork" and sessions[number % len(sessions)].path.end:
                old = sessions[number % len(sessions)]
                sessions.append(old.fork(at=old.path[number % len(old.path)].id))
            elif step == "purge":
                sessions.pop(number % len(sessions)).purge()
            else:
                session = sessions[number % len(sessions)]
                session.append(said(number, words), metadata={"scope": "".join(scope)})
        asked = " ".join(query)
        for _ in range(2):
            check_scopes(looms, kept, asked)
            for loom in looms.values():
                loom.index()
        for loom in list(looms.values())[:1]:
            assert not [each for each in examine(loom.store) if not each.note]
    finally:
        for loom in looms.values():
            loom.close()


def check_scopes(looms: dict[Any, Loom], kept: dict[Any, list[Session]], query: str) -> None:
    for scope, sessions in kept.items():
        loom = looms[scope]
        for session in sessions:
            hits = session.search(query, limit=20, shown=True)
            assert places(hits) == oracle(session, query, 20)
            assert all(hit.session == session.id for hit in hits)
        within = [
            session
            for other, several in kept.items()
            for session in several
            if other[:2] == scope[:2] and scope[2] in ("", other[2])
        ]
        hits = loom.search(query, limit=1000)
        known = {(session.id, node.short_id): node for session in within for node in session.path}
        assert all((hit.session, hit.node) in known for hit in hits), "it is on a path in scope"
        texts = [searchable_text(hit.message) for hit in hits]
        assert len(set(texts)) == len(texts), "nothing is found twice"
        for hit in hits:
            assert hit.metadata["scope"][:2] == "".join(scope[:2])
            assert loom.recall(hit.handle)


def fill(loom: Loom) -> list[Session]:
    sessions = [loom.new() for _ in range(4)]
    for number in range(80):
        words = [WORDS[number * step % len(WORDS)] for step in (1, 3, 5)]
        sessions[number % 4].append(said(number, words), metadata={"n": number % 5})
    sessions.append(sessions[0].fork(at=sessions[0].path[7].id))
    sessions[-1].append(*(said(number, ["clock", "zebra"]) for number in range(100, 110)))
    return sessions


def found_everywhere(loom: Loom, sessions: list[Session]) -> list[Any]:
    numbers = {session.id: number for number, session in enumerate(sessions)}
    made: list[Any] = []
    for query in (
        "zebra clock",
        "walrus 4711",
        '"密码错误"',
        "number42",
        "what did Ann say of login",
    ):
        for options in ({}, {"limit": 3}, {"tokens": 60}, {"where": {"n": [1, 2]}}):
            hits = loom.search(query, **options)  # type: ignore[arg-type]
            made.append([(numbers[hit.session], hit.place, hit.score, hit.text) for hit in hits])
            hits = sessions[-1].search(query, shown=True, **options)  # type: ignore[arg-type]
            made.append([(hit.place, hit.score, hit.text, hit.tokens) for hit in hits])
    return made


def test_both_databases_find_the_same_however_it_is_indexed(address: str, tmp_path: Path) -> None:
    results = []
    for place in (address, str(tmp_path / "other.db")):
        for indexed in (False, True):
            ticks, ids = count(1), count()
            scope = {"project": f"p{indexed}", "embedder": "none"}
            with Loom.open(
                place, now=lambda t=ticks: next(t), fresh_id=lambda i=ids: f"s{next(i):04}", **scope
            ) as loom:
                sessions = fill(loom)
                if indexed:
                    loom.index()
                results.append(found_everywhere(loom, sessions))
    assert results[0] == results[1] == results[2] == results[3]
    assert any(results[0])


def test_several_who_index_at_once_index_each_message_once(address: str) -> None:
    with Loom.open(address, embedder="none") as first, Loom.open(address) as second:
        sessions = fill(first)
        errors: list[BaseException] = []

        def index(loom: Loom) -> None:
            try:
                loom.index()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=index, args=(loom,)) for loom in (first, second) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        first.index()
        with first.store.database.read() as reader:
            live = reader.all("SELECT documents FROM search_segments WHERE state = 'live'")
        assert sum(documents for (documents,) in live) == 90
        assert not [each for each in examine(first.store) if not each.note]
        for session in sessions:
            assert places(session.search("zebra clock", 20, shown=True)) == oracle(
                session, "zebra clock", 20
            )


class Crash(BaseException):
    """As if the process ended."""


@pytest.mark.sqlite_first
@pytest.mark.parametrize("step", range(0, 40, 5))
def test_a_crash_in_the_middle_loses_nothing(
    address: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loom.open(address, embedder="none") as loom:
        sessions = fill(loom)
        database, left = loom.store.database, count()
        write = type(database).write

        def crash(self: Any) -> Any:
            if next(left) == step:
                raise Crash
            return write(self)

        with monkeypatch.context() as patched:
            patched.setattr(type(database), "write", crash)
            with suppress(Crash):
                loom.index()
        loom.index()
        monkeypatch.setattr(merging, "_ABANDONED_MILLISECONDS", -1)
        loom.index()
        with database.read() as reader:
            states = reader.all("SELECT state, documents FROM search_segments")
        assert {state for state, _ in states} == {"live"}
        assert sum(documents for _, documents in states) == 90
        assert places(sessions[-1].search("zebra clock", 20, shown=True)) == oracle(
            sessions[-1], "zebra clock", 20
        )


def test_a_damaged_index_is_named_and_built_again(address: str) -> None:
    with Loom.open(address, embedder="none") as loom:
        [session, *_] = fill(loom)
        loom.index()
        found = places(session.search("zebra"))
        with loom.store.database.write() as writer:
            writer.all("UPDATE search_segments SET data = $1, revision = 9", b"rubbish")
        assert {each.what for each in examine(loom.store)} == {"it cannot be read"}
        with pytest.raises(StoreError, match="build the index again"):
            session.search("zebra")
        loom.index(again=True)
        assert places(session.search("zebra")) == found
        assert list(examine(loom.store)) == []


def test_what_is_appended_is_indexed_behind_the_scenes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "MIN_WRITTEN", 20)
    with Loom.open(address, embedder="none") as loom:
        fill(loom)
        loom.indexer.wait()
        assert loom.store.search.count_pending(loom.scope, 100) < 20
        loom.indexer.start()
        loom.indexer.wait()
        assert loom.store.search.count_pending(loom.scope, 100) == 0


def test_a_search_runs_off_the_event_loop(address: str) -> None:
    async def run() -> None:
        async with await Loom.aopen(address) as loom:
            session = await loom.anew()
            await session.aappend("the walrus says 4711")
            hits = await asyncio.gather(
                session.asearch("walrus", shown=True), loom.asearch("walrus"), loom.aindex()
            )
            assert [len(each) for each in hits[:2]] == [1, 1]

    asyncio.run(run())


# Vectors


class Wheel:
    """An embedder that knows a few meanings; each dimension is one."""

    def __init__(self, name: str, *meanings: str) -> None:
        self.name, self._meanings = name, [meaning.split() for meaning in meanings]
        self.asked = 0

    @property
    def dimensions(self) -> int:
        return len(self._meanings)

    def embed(self, texts: Sequence[str]) -> Any:
        self.asked += len(texts)
        rows = [
            [float(any(word in text for word in words)) for words in self._meanings]
            for text in texts
        ]
        found = np.array(rows, dtype=np.float32).reshape(len(texts), len(self._meanings))
        sizes = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.maximum(sizes, 1e-9)


ANIMALS = ("walrus seal", "cat kitten", "loom weave")


def talk(loom: Loom) -> Session:
    session = loom.new()
    session.append(*(f"weather report {number} is dull" for number in range(40)))
    session.append("the walrus sleeps")
    session.append(*(f"weather report {number} is dull" for number in range(40, 80)))
    return session


@pytest.mark.parametrize("indexed", [False, True])
def test_a_message_is_found_by_its_meaning(address: str, indexed: bool) -> None:
    embedder = Wheel("wheel/1", *ANIMALS)
    with Loom.open(address, embedder=embedder) as loom:
        session = talk(loom)
        if indexed:
            loom.index()
        [hit, *_] = session.search("seal", limit=3, shown=True)
        assert (hit.text, "meaning" in hit.reason) == ("the walrus sleeps", True)
        loom.indexer.wait()
        assert loom.search("seal", limit=3)[0].text == "the walrus sleeps"
        loom.indexer.wait()


def vectors_of(loom: Loom) -> dict[str, int]:
    with loom.store.database.read() as reader:
        return dict(
            reader.all(
                """SELECT e.name, count(*) FROM search_vectors v
                    JOIN search_embedders e ON e.key = v.embedder GROUP BY e.name"""
            )
        )


def test_another_embedder_makes_all_vectors_again_and_none_are_mixed(address: str) -> None:
    with Loom.open(address, embedder=Wheel("wheel/1", *ANIMALS)) as loom:
        session = talk(loom)
        loom.index()
        assert vectors_of(loom) == {"wheel/1": 81}
    other = Wheel("wheel/2", "kitten", "walrus tusk", "x", "y", "z")
    with Loom.open(address, embedder=other) as loom:
        session = loom.session(session.id)
        with loom.store.search.read_session(
            session.row, session._place.overlay(session.path)
        ) as index:
            keys = index.find_newest(100)
            assert index.vectors(keys, "wheel/2") == {}
            assert len(index.vectors(keys, "wheel/1")) == 81
        loom.indexer.start()
        loom.indexer.wait()
        assert vectors_of(loom) == {"wheel/2": 81}
        assert session.search("tusk", limit=1, shown=True)[0].text == "the walrus sleeps"
        session.purge()
        assert vectors_of(loom) == {}


class Broken(Wheel):
    def embed(self, texts: Sequence[str]) -> Any:
        raise OSError("no answer")


def test_an_embedder_that_fails_costs_no_search(address: str) -> None:
    with Loom.open(address, embedder=Broken("broken", "x")) as loom:
        session = talk(loom)
        with pytest.warns(RuntimeWarning, match="goes by words"):
            [hit] = session.search("walrus", limit=1, shown=True)
        assert hit.text == "the walrus sleeps"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loom.indexer.wait()


def test_a_first_search_reads_little(address: str) -> None:
    with Loom.open(address, embedder="none") as loom:
        session = talk(loom)
        loom.index()
    with Loom.open(address, embedder="none") as loom:
        began = time.perf_counter()
        assert loom.session(session.id).search("walrus", limit=1)
        assert time.perf_counter() - began < 10


def test_scopes_of_nothing(address: str) -> None:
    with Loom.open(address, embedder="none") as loom:
        session = loom.new()
        assert session.search("walrus") == []
        assert loom.search("walrus") == []
        assert loom.index() == 0


@pytest.mark.parametrize("indexed", [False, True])
def test_a_question_of_one_character_finds_what_holds_it(address: str, indexed: bool) -> None:
    with Loom.open(address, embedder="none") as loom:
        session = loom.new()
        said = ["昨日は雨が降った", "東京へ行く", "龍", "赤い龍の話です", "nothing of it here"]
        session.append(*said)
        if indexed:
            loom.index()
        for letter, places in (("龍", {2, 3}), ("雨", {0}), ("京", {1}), ("話", {3})):
            hits = session.search(letter)
            assert {hit.place for hit in hits} == places
            assert all(letter in hit.text for hit in hits)
        assert [hit.place for hit in session.search("東京")] == [1]
