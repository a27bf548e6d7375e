"""The index on a store answers as documents in memory do, on both databases, however its messages
came into it; and never with what is out of scope.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from loom import Loom, Message, Session, Text
from loom.conversation.metadata import filter_terms
from loom.conversation.searchable import searchable_text
from loom.conversation.words import split_terms
from loom.recall.corpus import Corpus, CorpusEntry
from loom.stores.search import home, merging
from loom.stores.search.index import StoreIndex
from loom.stores.sessions import Scope
from tests.stores.tables import undo_search

WORDS = [
    "walrus",
    "zebra",
    "login",
    "token",
    "clock",
    "server",
    "parse_turn",
    "密码错误",
    "müßig",
    "4711",
    "running",
]


@contextmanager
def reading(loom: Loom, session: Session, where: Any = None) -> Iterator[Any]:
    overlay = session._place.overlay(session.path)
    terms = filter_terms(where or {})
    with loom.store.search.read_session(session.row, overlay, terms) as index:
        yield index


@contextmanager
def reading_all(loom: Loom, **scope: str) -> Iterator[StoreIndex]:
    with loom.store.search.read_project(Scope(**scope)) as index:
        yield index


def entries(session: Session, left_out: Sequence[int] = ()) -> list[CorpusEntry]:
    return [
        CorpusEntry(
            key=node.seq,
            session=session.id,
            place=node.depth,
            text=searchable_text(node.message),
            tokens=node.tokens,
            role=node.role,
            author=node.message.author,
            created=node.created,
        )
        for node in session.path
        if node.message is not None and node.depth not in left_out
    ]


def check_equal(index: Any, corpus: Corpus) -> None:
    terms = sorted({term for word in WORDS for term in split_terms(word)} | {"nowhere"})
    assert index.size() == corpus.size()
    assert index.frequencies(terms) == corpus.frequencies(terms)
    for limit in (1, 3, 1000):
        assert list(index.find_newest(limit)) == list(corpus.find_newest(limit))
        assert list(index.find_between(3, 9, limit)) == list(corpus.find_between(3, 9, limit))
        for term in terms:
            found = list(index.find_holding(term, limit))
            assert found == list(corpus.find_holding(term, limit)), term
    keys = list(corpus.find_newest(1000))
    by_key = {each.key: each for each in corpus.read(keys, terms)}
    assert {each.key: each for each in index.read(keys, terms)} == by_key
    for distance in (1, 3):
        near = {key: list(each) for key, each in corpus.find_near(keys, distance).items()}
        assert {key: list(each) for key, each in index.find_near(keys, distance).items()} == near
    assert index.texts(keys) == corpus.texts(keys)
    assert sorted(index.authors()) == sorted(corpus.authors())


def said(number: int) -> Message:
    role: Any = ("user", "assistant")[number % 2]
    words = " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 2, 3, number % 5 + 4))
    return Message(role, (Text(f"{number} {words}"),), ("", "ann", "bob")[number % 3])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and segments of a few messages."""
    monkeypatch.setattr(home, "MAX_BATCH_DOCUMENTS", 7)
    monkeypatch.setattr(merging, "MERGED_SEGMENTS", 2)
    monkeypatch.setattr(merging, "SMALLEST_SIZE", 4)


def clock() -> Any:
    ticks = iter(range(1, 10_000))
    return lambda: next(ticks) // 3


@pytest.mark.parametrize("indexed", [0, 10, 40])
def test_a_session_is_as_in_memory_whatever_is_indexed(
    address: str, indexed: int, small: None
) -> None:
    with Loom.open(address, now=clock()) as loom:
        session = loom.new()
        for number in range(40):
            session.append(said(number))
            if number == indexed:
                loom.store.search.index_all(loom.scope)
        if indexed == 40:
            loom.store.search.index_all(loom.scope)
            assert loom.store.search.index_all(loom.scope) == 0
        with reading(loom, session) as index:
            check_equal(index, Corpus(entries(session)))
            keys = {session.path[place].seq for place in (3, 4, 39)}
            assert index.keys_at([3, 4, 39, 40, 99]) == keys


def fork_at(session: Session, place: int, numbers: Sequence[int]) -> Session:
    made = session.fork(at=session.path[place].id)
    for number in numbers:
        made.append(said(number))
    return made


def test_a_fork_sees_its_own_path_only(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        first = loom.new()
        first.append(*(said(number) for number in range(12)))
        loom.store.search.index_all(loom.scope)
        second = fork_at(first, 5, range(100, 110))
        third = fork_at(second, 9, range(200, 203))
        fourth = fork_at(third, 3, range(300, 330))
        first.append(said(13))
        for step in range(3):
            for session in (first, second, third, fourth):
                with reading(loom, session) as index:
                    check_equal(index, Corpus(entries(session)))
            if step == 0:
                loom.store.search.index_next(loom.scope, 9)
            else:
                loom.store.search.index_all(loom.scope)


def test_all_sessions_are_found_once_each_message(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        sessions = [loom.new() for _ in range(5)]
        for number in range(60):
            sessions[number * 7 % 5].append(said(number))
        forked = fork_at(sessions[0], 3, range(100, 104))
        loom.store.search.index_next(loom.scope, 20)
        for _ in range(2):
            known: dict[int, CorpusEntry] = {}
            for session in (*sessions, forked):
                for entry in entries(session):
                    known.setdefault(entry.key, entry)
            with reading_all(loom) as index:
                assert index.size().documents == 64
                corpus = Corpus(sorted(known.values(), key=lambda entry: entry.key))
                keys = list(corpus.find_newest(1000))
                assert list(index.find_newest(1000)) == keys
                terms = split_terms(" ".join(WORDS))
                assert index.frequencies(terms) == corpus.frequencies(terms)
                assert sorted(index.read(keys, terms), key=lambda each: each.key) == sorted(
                    corpus.read(keys, terms), key=lambda each: each.key
                )
            loom.store.search.index_all(loom.scope)


def test_other_tenants_projects_and_agents_are_out_of_scope(address: str, small: None) -> None:
    scopes: list[dict[str, str]] = [
        {},
        {"tenant": "t"},
        {"project": "p"},
        {"agent": "a"},
        {"agent": "b"},
    ]
    for scope in scopes:
        with Loom.open(address, now=clock(), **scope) as loom:  # type: ignore[arg-type]
            loom.new().append(*(said(number) for number in range(9)))
            if scope.get("agent") != "b":
                loom.store.search.index_all(loom.scope)
    with Loom.open(address) as loom:
        for scope, count in zip(scopes, (27, 9, 9, 9, 9), strict=True):
            with reading_all(loom, **scope) as index:
                assert index.size().documents == count
                assert len(index.find_newest(100)) == count


def test_hidden_messages_and_versions(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        tree = loom.new_tree("t")
        for number in range(12):
            tree.say(said(number))
        session = tree.session()
        tree.exclude(session.path[2].id)
        tree.annotate(session.path[4].id, "walrus remark")
        tree.prune(session.path[9].id)
        for _ in range(2):
            session = tree.session()
            expected = [each for each in entries(session) if each.place != 2 and each.place < 9]
            with reading(loom, session) as index:
                check_equal(index, Corpus(expected))
            with reading_all(loom) as index:
                check_equal(index, Corpus(expected))
            loom.store.search.index_all(loom.scope)


def test_a_version_is_found_in_the_place_of_its_node(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        document = loom.new_tree("d", head={"mode": "buffer"})
        for number in range(9):
            document.say(f"{number} {WORDS[number]}")
        second = document.session().path[1].id
        edited = document.edit(second, "gnu stands here")
        for _ in range(2):
            session = document.session()
            with reading(loom, session) as index:
                assert list(index.find_holding("gnu", 9)) == [edited.seq]
                [found] = index.read([edited.seq], ["gnu"])
                assert (found.place, found.counts) == (1, {"gnu": 1})
                assert index.size().documents == 9
                assert index.find_holding("zebra", 9) == []
                assert len(index.find_near([edited.seq], 1)[edited.seq]) == 3
            with reading_all(loom) as index:
                assert index.find_holding("zebra", 9) == []
                assert list(index.find_holding("gnu", 9)) == [edited.seq]
            loom.store.search.index_all(loom.scope)


def test_metadata_narrows_the_scope(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        session = loom.new()
        for number in range(30):
            session.append(said(number), metadata={"n": number % 3, "tags": [f"t{number}"]})
        for _ in range(2):
            out = [number for number in range(30) if number % 3 != 1]
            with reading(loom, session, {"n": 1}) as index:
                check_equal(index, Corpus(entries(session, out)))
            out = [number for number in range(30) if number not in (4, 5)]
            with reading(loom, session, {"tags": ["t4", "t5"], "n": [1, 2]}) as index:
                check_equal(index, Corpus(entries(session, out)))
            loom.store.search.index_all(loom.scope)


def test_purged_messages_leave_the_index_with_their_words(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        first, second = loom.new(), loom.new()
        for number in range(20):
            first.append(said(number), metadata={"secret": number})
            second.append(said(number + 20))
        first.append("only here: xylophone", metadata={"x": "y"})
        loom.store.search.index_all(loom.scope)
        first.purge()
        with loom.store.database.read() as reader:
            words = {term for (term,) in reader.all("SELECT term FROM search_terms")}
        assert "xylophon" not in words
        assert not any(word.startswith("=") for word in words)
        with reading_all(loom) as index:
            check_equal(index, Corpus(entries(second)))
        second.purge()
        with loom.store.database.read() as reader:
            assert reader.all("SELECT 1 FROM search_terms") == []
            assert reader.all("SELECT 1 FROM search_segments") == []
        with reading_all(loom) as index:
            assert index.size().documents == 0


def test_a_store_of_an_older_version_is_indexed(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        session = loom.new()
        session.append(*(said(number) for number in range(30)))
        loom.store.search.index_all(loom.scope)
        with loom.store.database.write() as writer:
            undo_search(writer)
    with Loom.open(address) as loom:
        session = loom.session(session.id)
        with reading(loom, session) as index:
            check_equal(index, Corpus(entries(session)))
        assert loom.store.search.index_all(loom.scope) == 30
        with reading(loom, session) as index:
            check_equal(index, Corpus(entries(session)))


def test_segments_become_fewer(address: str, small: None) -> None:
    with Loom.open(address, now=clock()) as loom:
        session = loom.new()
        session.append(*(said(number) for number in range(100)))
        loom.store.search.index_all(loom.scope)
        with loom.store.database.read() as reader:
            states = reader.all("SELECT state, documents FROM search_segments")
        assert sum(count for _, count in states) == 100
        assert len(states) < 8
        with reading(loom, session) as index:
            check_equal(index, Corpus(entries(session)))
