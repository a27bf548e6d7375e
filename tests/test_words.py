"""The words of a text: one splitter for the search, the ladder and the map."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.conversation.stems import stem
from loom.conversation.words import (
    MAX_TERM_CHARS,
    find_term_spans,
    split_terms,
    split_terms_for_index,
)


@pytest.mark.parametrize(
    "words",
    [
        "plan plans planned planning",
        "go goes went gone going",
        "child children",
        "woman women",
        "adopt adopts adopted adopting adoption",
        "try tries tried trying",
        "use uses used using",
        "agree agreed agrees",
        "add adds added adding",
        "relate relational",
    ],
)
def test_forms_of_a_word_are_one_term(words: str) -> None:
    assert len(set(split_terms(words))) == 1, split_terms(words)


@pytest.mark.parametrize("words", ["use us", "mode mod", "note not", "string str", "this thi"])
def test_what_only_looks_like_an_ending_stays(words: str) -> None:
    assert len(set(split_terms(words))) == 2


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("I have 42 of 3.14", "i have 42 of 3 14"),
        ("parse_turn", "parse_turn pars turn"),
        ("parseTurn", "parseturn pars turn"),
        ("utf8", "utf8 utf 8"),
        ("北京大学", "北京 京大 大学"),
        ("字", "字"),
        ("don't", "don t"),
        ("ÜBER", "über"),
        ("ＦＵＬＬ", "full"),
        ("", ""),
    ],
)
def test_terms_are_in_order(text: str, terms: str) -> None:
    assert split_terms(text) == terms.split()


def test_of_data_only_the_beginning_is_a_term() -> None:
    assert split_terms("QWxhZGRpbjpvcGVu" * 10) == [("QWxhZGRpbjpvcGVu" * 4).lower()]


@given(st.text(max_size=80))
def test_terms_are_short_and_found_where_they_are(text: str) -> None:
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in split_terms(text))
    for start, stop, term in find_term_spans(text):
        assert term in split_terms(text[start:stop])


@given(st.text("abcdeilnorstuy", max_size=12))
def test_a_stem_is_never_empty(word: str) -> None:
    assert bool(stem(word)) == bool(word)


def test_an_index_has_each_character_of_a_script_without_spaces_too() -> None:
    assert split_terms_for_index("東京へ go") == ["東京", "京へ", "go", "東", "京", "へ"]
    assert split_terms_for_index("龍") == ["龍"]
    assert split_terms_for_index("plain words") == split_terms("plain words")
