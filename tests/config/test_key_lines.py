"""The line of each key of a TOML text."""

import string
import time
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.config.key_lines import MAX_DEPTH, MAX_KEY_PARTS, KeyPath, NestingError, find_key_lines

WORDS = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=6)
KEYS = WORDS | st.text("a.b \"'#[]=é\t", min_size=1, max_size=6)
LONG = st.sampled_from(
    ['"""\nx = 1\n[table]\n"""', "'''\n# no comment\nkey = 2\n'''", '"""quoted ""\\" """""', '"#"']
)
PLAIN = st.sampled_from(["1", "true", "2.5", '"a = 1"', "'[b]'", "1979-05-27 07:32:00", '"\\"#"'])
VALUES = st.recursive(
    PLAIN | LONG,
    lambda inner: st.lists(inner, max_size=3).map(
        lambda each: "[\n  # c ]\n  " + ",\n  ".join(each) + "\n]"
    ),
    max_leaves=4,
)
BREAKS = st.sampled_from(["\n", "\n\n", "  # x = 1 [t]\n", "\n# \"\"\" '''\n"])


def quote(key: str) -> str:
    if all(letter in string.ascii_letters + string.digits + "_-" for letter in key):
        return key
    if "'" not in key and "\t" not in key:
        return f"'{key}'"
    return '"' + key.replace('"', '\\"').replace("\t", "\\t") + '"'


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[KeyPath, int]]:
    """A TOML text, and the line of each key in it."""
    text, lines = "", dict[KeyPath, int]()
    for table in draw(st.lists(KEYS, max_size=3, unique=True)):
        above: KeyPath = (table,)
        is_array = draw(st.booleans())
        for number in range(draw(st.integers(1, 2)) if is_array else 1):
            lines.setdefault(above, text.count("\n") + 1)
            path = (*above, number) if is_array else above
            lines[path] = text.count("\n") + 1
            mark = ("[[", "]]") if is_array else ("[", "]")
            text += f"{mark[0]} {quote(table)} {mark[1]}" + draw(BREAKS)
            for key in draw(st.lists(KEYS, max_size=3, unique=True)):
                below = draw(st.lists(KEYS, max_size=2))
                for length in range(len(below) + 1):
                    lines[(*path, key, *below[:length])] = text.count("\n") + 1
                dotted = " . ".join(map(quote, (key, *below)))
                text += f"  {dotted} = {draw(VALUES)}" + draw(BREAKS)
    return text, lines


@given(documents())
def test_each_key_has_its_line(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, lines = document
    tomllib.loads(text)
    found = find_key_lines(text).as_dict()
    assert {path: found.get(path) for path in lines} == lines


def paths(value: Any, above: KeyPath = ()) -> set[KeyPath]:
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return set()
    return {path for key, each in inner for path in ((*above, key), *paths(each, (*above, key)))}


@given(documents())
def test_every_value_that_is_read_has_a_line(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, _ = document
    assert set(find_key_lines(text).as_dict()) == paths(tomllib.loads(text))


@given(st.text("ab.=\"'[]{},#\n 1", max_size=60))
def test_any_text_ends_the_scanner_quietly(text: str) -> None:
    find_key_lines(text)


def test_inline_tables_have_lines() -> None:
    text = "a = {b = 1, c.d = [{e = 2},\n {e = 3}]}\nf = 1\n"
    lines = find_key_lines(text)
    assert (lines.find("a", "b"), lines.find("a", "c", "d", 1, "e"), lines.find("f")) == (1, 2, 3)
    assert lines.find("a", "nothing") == 1
    assert lines.find("nothing") == 1


def test_a_key_of_many_parts_is_refused_before_it_takes_long() -> None:
    begun = time.monotonic()
    with pytest.raises(NestingError, match=f"more than {MAX_KEY_PARTS} parts") as caught:
        find_key_lines("x = 1\n" + "a." * 100_000 + "a = 1")
    assert caught.value.line == 2
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize("mark", ["[", "{a="])
def test_a_deep_value_is_refused(mark: str) -> None:
    with pytest.raises(NestingError, match=f"more than {MAX_DEPTH} levels") as caught:
        find_key_lines("\n\nx = " + mark * 100_000)
    assert caught.value.line == 3
