"""Documents in memory answer as the protocol of an index says."""

import pytest

from loom.errors import ChoiceError
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.index import Index, Size

ENTRIES = [
    CorpusEntry(1, "a", 0, "Ann painted a sunrise", 6, "user", "Ann", 100),
    CorpusEntry(2, "a", 1, "Which paints did you use?", 7, "user", "Bob", 200),
    CorpusEntry(3, "a", 2, "Oil", 2, "user", "Ann", 300),
    CorpusEntry(4, "b", 0, "Bob went to paint", 5, "user", "Bob", 250),
]


@pytest.fixture
def index() -> Index:
    return Corpus(ENTRIES)


def test_sizes_and_frequencies_count_documents_and_terms(index: Index) -> None:
    assert index.size() == Size(4, 14)
    assert dict(index.frequencies(["paint", "oil", "none"])) == {"paint": 3, "oil": 1}


def test_the_newest_documents_come_first(index: Index) -> None:
    assert list(index.find_holding("paint", 10)) == [4, 2, 1]
    assert list(index.find_holding("paint", 2)) == [4, 2]
    assert list(index.find_newest(3)) == [3, 4, 2]
    assert list(index.find_between(200, 300, 10)) == [4, 2]
    assert list(index.find_between(200, 300, 1)) == [4]


def test_documents_say_how_often_the_terms_occur(index: Index) -> None:
    [document] = index.read([2, 99], ["paint", "oil"])
    assert (document.key, document.session, document.place) == (2, "a", 1)
    assert (document.author, document.created, document.length) == ("Bob", 200, 5)
    assert dict(document.counts) == {"paint": 1}


def test_neighbours_are_of_the_same_session(index: Index) -> None:
    near = index.find_near([1, 2, 4], 1)
    assert {key: list(keys) for key, keys in near.items()} == {1: [1, 2], 2: [1, 2, 3], 4: [4]}


def test_texts_and_authors(index: Index) -> None:
    assert dict(index.texts([3, 99])) == {3: "Oil"}
    assert list(index.authors()) == ["Ann", "Bob"]


def test_a_key_is_used_once_and_places_count_up() -> None:
    corpus = Corpus(ENTRIES)
    with pytest.raises(ChoiceError, match="key 1"):
        corpus.add([CorpusEntry(1, "c", 0, "again", 1)])
    with pytest.raises(ChoiceError, match="order of their places"):
        corpus.add([CorpusEntry(5, "a", 2, "again", 1)])
