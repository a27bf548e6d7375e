"""The words of a text: whole, in parts, without endings, in any script."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.project.parse.terms import terms_of
from tests.shared import examples


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("get_user_id", "get_user_id get user id"),
        ("parseHTTPResponse", "parsehttpresponse pars http respons"),
        ("XMLHttpRequest", "xmlhttprequest xml http request"),
        ("__init__", "init"),
        ("_private", "privat"),
        ("MAX_SIZE", "max_size max size"),
        ("sha256 utf8", "sha256 sha 256 utf8 utf"),
        ("test_7231", "test_7231 test 7231"),
        ("a.b.c x+y", ""),
        ("foo.bar(baz)", "foo bar baz"),
        ("404 3.11", "404"),
        ("ÜberKlasse", "überklasse über klasse"),
        ("straße_größe", "straße_größe straße größe"),
        ("приветМир", "приветмир привет мир"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("用户登录", "用户 户登 登录"),
        ("用户_login", "用户 login"),
        ("字", "字"),
        ("ไทย", "ไท ทย"),
        ("“quoted”—word…", "quot word"),
        ("ｆｕｌｌ ﬁne", "full fine"),
        ("\udcff \x00", ""),
    ],
)
def test_what_a_text_says(text: str, terms: str) -> None:
    assert sorted(terms_of(text)) == sorted(terms.split())


@pytest.mark.parametrize(
    "words",
    [
        "parse parses parsed parsing",
        "name names named naming",
        "set sets setting settings",
        "query queries queried",
        "call calls called calling",
        "file files filed filing",
        "class classes",
        "cache caches cached caching",
        "fix fixes fixed fixing",
        "run runs running",
    ],
)
def test_english_endings_do_not_matter(words: str) -> None:
    assert len(terms_of(words)) == 1


@pytest.mark.parametrize(
    "words",
    [
        "string str",
        "speed spe",
        "status statu",
        "this thi",
        "used us",
        "class clas",
        "mode mod",
        "note not",
    ],
)
def test_what_only_looks_like_an_ending_stays(words: str) -> None:
    assert len(terms_of(words)) == 2


def test_data_has_no_words() -> None:
    assert terms_of("QWxhZGRpbjpvcGVuIHNlc2FtZQ" * 10) == {}
    assert "with" in terms_of("test_" + "_".join(["a_long_name_with_many_words"] * 10))


@settings(max_examples=examples(60))
@given(st.lists(st.text(max_size=40), max_size=5))
def test_lines_are_counted_one_by_one(lines: list[str]) -> None:
    together: Counter[str] = Counter()
    for line in lines:
        together.update(terms_of(line))
    assert terms_of("\n".join(lines)) == dict(together)
