"""One contract for vector stores: in memory, in SQLite, in PostgreSQL."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom.errors import ChoiceError
from loom.providers.knowledge import MemoryVectorStore, PgVectorStore, SqliteVectorStore
from tests.stores.conftest import Server

Open = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite", "pgvector"])
def open_vectors(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the vector store of a collection; a second time it is the same, but for memory."""
    opened: list[Any] = []

    def remember(store: Any) -> Any:
        opened.append(store)
        return store

    if request.param == "memory":
        held: dict[str, MemoryVectorStore] = {}
        yield lambda collection="knowledge": held.setdefault(collection, MemoryVectorStore())
    elif request.param == "sqlite":
        file = tmp_path / "vectors.db"
        yield lambda *collection: remember(SqliteVectorStore(file, *collection))
    else:
        server: Server = request.getfixturevalue("server")
        name = server.new_database()
        yield lambda *collection: remember(PgVectorStore(server.url(name), *collection))
    for store in opened:
        store.close()
    if request.param == "pgvector":
        server.give_back(name)


def test_the_nearest_come_first_with_what_belongs_to_them(open_vectors: Open) -> None:
    store = open_vectors()
    assert store.search([1, 0], 3) == []
    assert len(store) == 0
    store.add("east", [2.0, 0.0], {"content": "E", "n": 1})
    store.add("north", (0.0, 1.0), {"content": "N", "tags": ["a"]})
    store.add("north-east", [1.0, 1.0], {"content": "NE"})
    hits = store.search([1.0, 0.1], 2)
    assert [(hit.id, hit.metadata) for hit in hits] == [
        ("east", {"content": "E", "n": 1}),
        ("north-east", {"content": "NE"}),
    ]
    assert hits[0].score == pytest.approx(1 / math.sqrt(1.01), abs=1e-5)
    assert [hit.id for hit in store.search([-1, 0.5], 9)] == ["north", "north-east", "east"]


def test_one_of_the_same_id_is_replaced_and_what_is_removed_is_gone(open_vectors: Open) -> None:
    store = open_vectors()
    store.add("a", [1, 0], {"v": 1})
    store.add("b", [0.9, 0.1], {})
    store.add("a", [0, 1], {"v": 2})
    assert len(store) == 2
    assert [(hit.id, hit.metadata) for hit in store.search([0, 1], 1)] == [("a", {"v": 2})]
    assert store.remove("a")
    assert not store.remove("a")
    assert [hit.id for hit in store.search([0, 1], 5)] == ["b"]


def test_of_equals_the_newer_comes_first(open_vectors: Open) -> None:
    store = open_vectors()
    for number in range(30):
        store.add(f"v{number}", [1, 2], {})
    assert [hit.id for hit in store.search([1, 2], 3)] == ["v29", "v28", "v27"]


def test_vectors_of_different_lengths_are_never_compared(open_vectors: Open) -> None:
    store = open_vectors()
    store.add("a", [1, 0], {})
    with pytest.raises(ChoiceError, match=r"3 numbers.*2"):
        store.add("b", [1, 0, 0], {})
    with pytest.raises(ChoiceError, match="different models"):
        store.search([1], 1)
    assert len(store) == 1


@pytest.mark.parametrize("vector", [[], [math.nan], [math.inf], "text", [[1.0]], ["a"]])
def test_what_is_no_vector_is_refused(open_vectors: Open, vector: Any) -> None:
    store = open_vectors()
    with pytest.raises(ChoiceError, match="vector"):
        store.add("a", vector, {})
    assert len(store) == 0


def test_ids_metadata_and_numbers_are_checked(open_vectors: Open) -> None:
    store = open_vectors()
    for identity, metadata in (("", {}), ("a\0", {}), ("a", {"x": object()}), ("a", [])):
        with pytest.raises(ChoiceError):
            store.add(identity, [1.0], metadata)
    with pytest.raises(ChoiceError, match="top_k"):
        store.search([1.0], 0)


def test_collections_are_apart_and_last(open_vectors: Open) -> None:
    first, second = open_vectors("first"), open_vectors("second")
    first.add("a", [1, 0], {})
    second.add("b", [1, 0, 0], {})
    assert [hit.id for hit in open_vectors("first").search([1, 0], 9)] == ["a"]
    assert [hit.id for hit in open_vectors("second").search([1, 0, 0], 9)] == ["b"]
    first.add("c", [1, 1], {})  # seen by whoever searched before
    assert len(open_vectors("first").search([1, 0], 9)) == 2


def test_many_vectors_give_the_same_hits_in_all_stores(open_vectors: Open) -> None:
    store, exact = open_vectors(), MemoryVectorStore()
    for number in range(300):
        vector = [math.sin(number * k + k) for k in range(1, 9)]
        for each in (store, exact):
            each.add(str(number), vector, {"n": number})
    for number in range(20):
        asked = [math.cos(number + k) for k in range(8)]
        hits, wanted = store.search(asked, 5), exact.search(asked, 5)
        assert [hit.id for hit in hits] == [hit.id for hit in wanted]
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=1e-5)
