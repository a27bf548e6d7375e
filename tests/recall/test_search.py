"""A search: which documents answer a question, in which order, within which budget."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.errors import ChoiceError
from loom.providers.embedders.static import StaticEmbedder
from loom.recall import search as engine
from loom.recall.choosing import Room
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.embedder import Vectors
from loom.recall.hits import Match
from loom.recall.search import SearchRequest, search
from loom.recall.times import DAY_MS, to_days
from tests.shared import examples

LINES = (
    ("Ann", "Hey Bob! How was your week?"),
    ("Bob", "Busy. I went to a pottery class on Sunday."),
    ("Ann", "Which one? I am looking for a hobby myself."),
    ("Bob", "The one in Mill Street. They had wheels for everyone."),
    ("Ann", "I painted a sunrise over the lake yesterday."),
    ("Bob", "Show me! What colours did you take?"),
    ("Ann", "Mostly orange and a dark violet."),
)


def talk(*sessions: Sequence[tuple[str, str]]) -> Corpus:
    """A corpus of sessions, a month apart from January 2023 on."""
    corpus, key = Corpus(), 0
    for number, lines in enumerate(sessions):
        for place, (author, text) in enumerate(lines):
            created = to_days(2023, number + 1, 10) * DAY_MS + place
            tokens = len(text.split()) + 2
            entry = CorpusEntry(key, f"s{number}", place, text, tokens, "user", author, created)
            corpus.add([entry])
            key += 1
    return corpus


def keys(matches: Sequence[Match]) -> list[int]:
    return [match.key for match in matches]


def lines_of(matches: Sequence[Match]) -> list[int]:
    return [key for match in matches for key in (*match.before, match.key, *match.after)]


def test_stems_find_other_forms_of_a_word() -> None:
    [first, *_] = search(talk(LINES), SearchRequest("Did she go painting?"))
    assert first.key == 4
    assert first.reason == "says painting"


def test_irregular_forms_are_found() -> None:
    [first, *_] = search(talk(LINES), SearchRequest("Where did he go?"))
    assert first.key == 1


def test_who_is_named_comes_first() -> None:
    corpus = talk([("Ann", "I bought a red bicycle."), ("Bob", "A red bell is what I bought.")])
    assert keys(search(corpus, SearchRequest("What red thing did Bob buy?"))) == [1, 0]
    assert keys(search(corpus, SearchRequest("What red thing did Ann buy?"))) == [0, 1]
    assert keys(search(corpus, SearchRequest("what red thing did ann buy?"))) == [0, 1]


def test_the_time_in_a_question_brings_messages_of_that_time_forward() -> None:
    said = [("Ann", "We went camping again.")]
    other = [("Ann", "We went camping at the lake.")]
    corpus = talk(said, other)
    assert keys(search(corpus, SearchRequest("When did Ann go camping in January 2023?"))) == [0, 1]
    assert keys(search(corpus, SearchRequest("When did Ann go camping in February 2023?"))) == [
        1,
        0,
    ]
    march = to_days(2023, 3, 5) * DAY_MS
    assert keys(search(corpus, SearchRequest("Where did we camp last January?", now=march))) == [
        0,
        1,
    ]
    assert (
        "from the time" in search(corpus, SearchRequest("camping last month", now=march))[0].reason
    )


def test_each_part_of_a_question_has_room() -> None:
    parser = [("Ann", f"the parser reads tokens, take {number}") for number in range(30)]
    corpus = talk([*parser, ("Bob", "the server listens on port 8080")])
    query = "How does the parser read tokens, and which port does the server listen on?"
    assert 30 in lines_of(search(corpus, SearchRequest(query, Room(tokens=60))))


def test_each_speaker_that_is_named_has_room() -> None:
    said = [("Ann", f"I like the sea and its waves, say {number}") for number in range(30)]
    corpus = talk([*said, ("Bob", "waves frighten me")])
    query = "What do Ann and Bob think of the sea and its waves?"
    assert 30 in lines_of(search(corpus, SearchRequest(query, Room(tokens=60))))


def test_what_is_near_what_matches_comes_with_it() -> None:
    asked = SearchRequest("Which colours did Ann take for the sunrise?", Room(tokens=32))
    found = lines_of(search(talk(LINES), asked))
    assert {4, 6} <= set(found)


def test_without_a_budget_only_what_matches_is_a_hit() -> None:
    [match] = search(talk(LINES), SearchRequest("pottery"))
    assert match.key == 1
    assert set(match.before + match.after) <= {0, 2}


def test_a_phrase_in_quotes_must_occur() -> None:
    corpus = talk([("Ann", "Mill Street"), ("Ann", "the street with the mill"), ("Ann", "a => b")])
    assert keys(search(corpus, SearchRequest('"Mill Street"'))) == [0]
    assert keys(search(corpus, SearchRequest('"=>"'))) == [2]
    assert search(corpus, SearchRequest('"Street Mill"')) == []


def test_a_name_as_it_is_written_comes_first() -> None:
    corpus = talk(
        [
            ("Ann", "see src and the file main.py in it, then src again"),
            ("Ann", "the fault is in src/main.py I think"),
            ("Ann", "main is in src, py is short"),
        ]
    )
    assert keys(search(corpus, SearchRequest("what of src/main.py?")))[0] == 1


def test_names_of_code_are_found_whole_and_by_their_words() -> None:
    corpus = talk(
        [("Ann", "call parse_turn first"), ("Ann", "parseTurn is older"), ("Ann", "turn")]
    )
    assert keys(search(corpus, SearchRequest("parse_turn")))[0] == 0
    assert keys(search(corpus, SearchRequest("parseTurn")))[0] == 1
    assert 0 in keys(search(corpus, SearchRequest("parse")))


def test_scripts_without_spaces_are_searched_by_pairs() -> None:
    corpus = talk([("Ann", "我昨天去了北京大学"), ("Ann", "今天天气很好"), ("Ann", "hello")])
    assert keys(search(corpus, SearchRequest("北京大学在哪里")))[0] == 0


def test_what_was_said_already_is_left_out() -> None:
    corpus = talk(
        [("Ann", "The code of the door is 4711, do not lose it.")],
        [("Bob", "the code of the door is 4711; do not lose it")],
        [("Ann", "The door is green.")],
    )
    assert keys(search(corpus, SearchRequest("code of the door", Room(tokens=500)))) == [1, 2]


def test_of_equals_the_newer_comes_first() -> None:
    corpus = talk([("Ann", "tea alpha")], [("Ann", "tea gamma")], [("Ann", "tea delta")])
    assert keys(search(corpus, SearchRequest("tea"))) == [2, 1, 0]


def test_what_is_excluded_is_not_found() -> None:
    corpus = talk(LINES)
    found = search(corpus, SearchRequest("pottery class", Room(tokens=400), excluded={1, 3}))
    assert not {1, 3} & set(lines_of(found))


def test_of_a_document_that_is_too_large_a_passage_is_chosen() -> None:
    filler = "\n".join(f"line {number} of a long log" for number in range(2000))
    text = f"{filler}\nERROR: the valve 17 is stuck\n{filler}"
    corpus = Corpus([CorpusEntry(0, "s", 0, text, 30_000)])
    [match] = search(corpus, SearchRequest("valve stuck", Room(tokens=400)))
    assert not match.is_whole
    assert "ERROR: the valve 17 is stuck" in text[slice(*match.passage)]
    assert match.tokens <= 50


def test_a_session_is_charged_once() -> None:
    corpus = talk(LINES, LINES[:1])
    alone = search(corpus, SearchRequest("pottery class", Room(tokens=60)))
    charged = search(corpus, SearchRequest("pottery class", Room(tokens=60, session_tokens=10)))
    assert sum(match.tokens for match in charged) <= 60
    assert len(lines_of(charged)) < len(lines_of(alone))


@pytest.mark.parametrize(
    ("query", "complaint"),
    [("", "needs words"), ("  ", "needs words"), ("?!", "no words"), ("x" * 501, "at most 500")],
)
def test_a_question_without_words_is_refused(query: str, complaint: str) -> None:
    with pytest.raises(ChoiceError, match=complaint):
        search(talk(LINES), SearchRequest(query))


def test_room_for_nothing_is_refused() -> None:
    for room in (Room(limit=0), Room(tokens=0)):
        with pytest.raises(ChoiceError, match="at least 1"):
            search(talk(LINES), SearchRequest("tea", room))


def test_a_question_of_which_nothing_is_said_has_no_hits() -> None:
    assert search(talk(LINES), SearchRequest("zeppelin", Room(tokens=1000))) == []
    assert search(talk(LINES), SearchRequest("zeppelin")) == []


def test_an_empty_scope_has_no_hits() -> None:
    assert search(Corpus(), SearchRequest("tea")) == []


# Meaning


class Meanings:
    """An embedder for tests: a direction for each group of words."""

    name = "meanings-1"
    dimensions = 3

    def embed(self, texts: Sequence[str]) -> Vectors:
        groups = (("dog", "puppy", "pup"), ("car", "automobile"), ("sea", "ocean"))
        rows = np.array(
            [[sum(word in text for word in group) for group in groups] for text in texts],
            dtype=np.float32,
        )
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def test_an_embedder_finds_other_words_for_the_same() -> None:
    lines = [("Ann", f"note {number} on the weather") for number in range(20)]
    lines[7] = ("Ann", "we got a puppy")
    corpus = Corpus(
        [CorpusEntry(n, "s", n, text, 5, author=who) for n, (who, text) in enumerate(lines)],
        Meanings(),
    )
    assert search(corpus, SearchRequest("the dog")) == []
    [first, *_] = search(corpus, SearchRequest("the dog"), Meanings())
    assert (first.key, first.reason) == (7, "near in meaning")


def test_messages_around_one_that_is_near_in_meaning_come_before_others() -> None:
    lines = ["note on the weather"] * 40
    lines[30] = "we got a puppy"
    corpus = Corpus(
        [CorpusEntry(n, "s", n, f"{text} {n}", 5) for n, text in enumerate(lines)], Meanings()
    )
    found = search(corpus, SearchRequest("the dog", Room(tokens=25)), Meanings())
    assert sorted(lines_of(found)) == [28, 29, 30, 31, 32]


def test_vectors_of_another_embedder_are_not_compared() -> None:
    class Other(Meanings):
        name = "meanings-2"

    corpus = Corpus([CorpusEntry(0, "s", 0, "we got a puppy", 5)], Meanings())
    assert corpus.vectors([0], "meanings-1")
    assert search(corpus, SearchRequest("the dog"), Other()) == []


# Large scopes, and laws


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_WHOLE_SCOPE", 50)
    monkeypatch.setattr(engine, "MAX_CANDIDATES", 20)


def test_of_a_large_scope_candidates_are_found_by_their_rarest_terms(small_limits: None) -> None:
    lines = [("Ann", f"the usual note {number}") for number in range(300)]
    lines[40] = ("Ann", "the usual note about the heron")
    lines[41] = ("Bob", "it stood by the pond")
    corpus = talk(lines)
    found = search(corpus, SearchRequest("which note is about a heron?", Room(tokens=30)))
    assert found[0].key == 40
    assert 41 in lines_of(found)


VOCABULARY = (
    "tea", "pot", "lake", "hill", "went", "go", "paint", "oil", "Ann", "Bob", "red", "4711",
    "北京", "the", "of",
)  # fmt: skip
WORDS = st.sampled_from(VOCABULARY)
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
TALKS = st.lists(
    st.lists(st.tuples(st.sampled_from(["Ann", "Bob"]), TEXTS), max_size=8), max_size=4
)


@settings(max_examples=examples(60), deadline=None)
@given(TALKS, TEXTS, st.integers(1, 80), st.integers(0, 9), st.none() | st.integers(1, 5))
def test_a_budget_is_kept_and_nothing_comes_twice(
    sessions: list[list[tuple[str, str]]], query: str, tokens: int, header: int, limit: int | None
) -> None:
    corpus = talk(*sessions)
    asked = SearchRequest(query, Room(tokens, limit, header))
    found = search(corpus, asked)
    assert sum(match.tokens for match in found) <= tokens
    assert limit is None or len(found) <= limit
    lines = lines_of(found)
    assert len(lines) == len(set(lines))
    documents = {one.key: one for one in corpus.read(lines, ())}
    price = sum(documents[match.key].tokens for match in found if match.is_whole)
    price += sum(documents[key].tokens for m in found for key in (*m.before, *m.after))
    price += header * len({one.session for one in documents.values()})
    assert price <= tokens + sum(not match.is_whole for match in found) * tokens
    texts = list(corpus.texts(keys(found)).values())
    assert len({text.lower() for text in texts}) == len(texts)
    assert search(talk(*sessions), asked) == found


@settings(max_examples=examples(40), deadline=None)
@given(TALKS, TEXTS)
def test_hits_are_in_order_of_score_and_then_of_age(
    sessions: list[list[tuple[str, str]]], query: str
) -> None:
    corpus = talk(*sessions)
    found = search(corpus, SearchRequest(query, Room(limit=5)))
    assert len(found) <= 5
    documents = {one.key: one for one in corpus.read(keys(found), ())}
    ranks = [(-m.score, -documents[m.key].created, -m.key) for m in found]
    assert ranks == sorted(ranks)


@settings(max_examples=examples(40), deadline=None)
@given(TALKS, TEXTS)
def test_a_home_in_another_order_gives_the_same(
    sessions: list[list[tuple[str, str]]], query: str
) -> None:
    """Only what a home answers counts, not in which order it reads."""

    class Backward(Corpus):
        def read(self, keys: Sequence[int], terms: Sequence[str]):  # type: ignore[no-untyped-def]
            return list(reversed(super().read(keys, terms)))

    corpus = talk(*sessions)
    backward = Backward()
    backward.__dict__.update(corpus.__dict__)
    for room in (Room(tokens=40), Room(limit=3)):
        assert search(corpus, SearchRequest(query, room)) == search(
            backward, SearchRequest(query, room)
        )


@pytest.mark.parametrize("documents", [1, 2, 3, 5])
def test_a_few_documents_are_found_by_meaning_too(documents: int) -> None:
    embedder = StaticEmbedder()
    texts = [
        "Our dog barks at the postman every morning.",
        "Invoices are paid within thirty days.",
        "The server restarts at midnight.",
        "Grandma bakes bread on Sundays.",
        "The museum is closed on Mondays.",
    ]
    entries = [CorpusEntry(n, "s", n, text, 10) for n, text in enumerate(texts[:documents])]
    corpus = Corpus(entries, embedder)
    found = search(corpus, SearchRequest("puppy noise"), embedder)
    assert [match.key for match in found] == [0]
    assert search(corpus, SearchRequest("quantum physics"), embedder) == []
