"""Metadata is stored beside a message, comes back as it was given, and never reaches a provider."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Loom, Message, Text
from loom.conversation.metadata import (
    MAX_METADATA_BYTES,
    check_filter,
    matches_filter,
    read_metadata,
    write_metadata,
)
from loom.errors import ChoiceError, TranscriptError, UnreadableWarning
from loom.stores.health.doctor import examine
from tests.shared import examples

TICKET = {"ticket": 4711, "tags": ["billing", "eu"], "from": {"team": "core"}}


def records(loom: Loom) -> list[tuple[Any, ...]]:
    with loom.store.database.read() as reader:
        return reader.all("SELECT data FROM records WHERE kind = 'metadata' ORDER BY seq")


def test_one_object_is_for_all_messages_and_a_list_for_each(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        first, second = session.append("one", "two", metadata=TICKET)
        third, fourth = session.append("three", "four", metadata=[{"n": 3}, None])
        assert [session.metadata(node.id) for node in (first, second, third, fourth)] == [
            TICKET,
            TICKET,
            {"n": 3},
            {},
        ]


def test_the_key_of_a_mapping_means_the_same_and_is_not_sent(address: str) -> None:
    given = {"role": "user", "content": "hello", "metadata": {"ticket": 1, "own": True}}
    with Loom.open(address) as loom:
        session = loom.new()
        [node] = session.append(given, metadata={"ticket": 2, "all": 1})
        assert session.metadata(node.id) == {"ticket": 1, "own": True, "all": 1}
        context = asyncio.run(session.prepare(given, model="gpt-4o"))
        assert len(session.path) == 1, "it is what was said last"
        for sent in (context.openai(), context.anthropic(), context.responses()):
            assert "metadata" not in json.dumps(sent["messages" if "messages" in sent else "input"])


def test_a_message_that_is_stored_already_keeps_what_it_has(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        [node] = session.append("one", after="", metadata={"a": 1})
        session.append("one", after="", metadata={"a": 2})
        assert session.metadata(node.id) == {"a": 1}
        assert len(records(loom)) == 1
        [other, _] = session.append("two", "three")
        session.switch(node.id)
        session.append("two", "three", "four", after=node.id, metadata={"a": 3})
        assert session.metadata(other.id) == {}
        assert session.metadata(session.path[-1].id) == {"a": 3}


def test_an_answer_has_metadata_too(address: str) -> None:
    answer = {
        "id": "a",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Copper it is."}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    with Loom.open(address) as loom:
        session = loom.new()
        session.append("Which metal?")
        [node] = session.absorb(answer, metadata=TICKET)
        assert session.metadata(node.id) == TICKET
        session.absorb(answer, metadata={"n": 2})  # the same answer is written once
        assert session.metadata(node.id) == TICKET
        assert [hit.metadata for hit in session.search("copper", where=TICKET)] == [TICKET]
        with pytest.raises(ChoiceError, match="must be an object of JSON"):
            session.absorb(answer, metadata=["no"])  # type: ignore[arg-type]
        [other] = loom.tree(session.row.tree.id).absorb("And then?", metadata={"n": 3}).nodes
        assert session.metadata(other.id) == {"n": 3}


def test_a_tree_takes_it_too(address: str) -> None:
    with Loom.open(address) as loom:
        tree = loom.new_tree("t")
        node = tree.say("one", metadata=TICKET)
        message = Message("assistant", (Text("two"),))
        other = tree.say(message, metadata={"n": 2})
        session = tree.session()
        assert session.metadata(node.id) == TICKET
        assert session.metadata(other.id) == {"n": 2}


@pytest.mark.parametrize(
    "bad",
    [
        3,
        "text",
        {"a": float("nan")},
        {"a": object()},
        {1: 2},
        {"": 1},
        {"a": "\ud800"},
        {"a": "nul\0"},
        {"a": 2**70},
        {"long": "x" * MAX_METADATA_BYTES},
        {"a": [[[[[[[[[1]]]]]]]]]},
        [{}, {}],
        [None, 3],
    ],
)
def test_what_is_no_metadata_is_refused_and_nothing_is_written(bad: Any) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        with pytest.raises(ChoiceError):
            session.append("one", metadata=bad)
        with pytest.raises(ChoiceError):
            loom.new_tree("t").say("one", metadata=bad)
        assert len(session.path) == 0


def test_system_text_has_none() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        told = {"role": "system", "content": "be brief"}
        with pytest.raises(ChoiceError, match="None for this one"):
            session.append(told, "one", metadata={"a": 1})
        session.append(told, "one", metadata=[None, {"a": 1}])
        assert session.metadata(session.path[0].id) == {"a": 1}


def test_it_is_exported_and_imported(address: str) -> None:
    with Loom.open(address) as loom, Loom.open(":memory:") as other:
        session = loom.new()
        session.append("one", "two", metadata=[TICKET, None])
        lines = list(session.export())
        other.import_lines(lines)
        copy = other.session(session.id)
        assert copy.metadata(copy.path[0].id) == TICKET
        assert not [problem for problem in examine(other.store) if not problem.note]
        assert list(copy.export()) == lines


def test_metadata_of_a_file_is_proved() -> None:
    with Loom.open(":memory:") as loom, Loom.open(":memory:") as other:
        session = loom.new()
        session.append("one", metadata={"a": 1})
        lines = [line.replace('{\\"a\\":1}', "[1]") for line in session.export()]
        with pytest.raises(TranscriptError, match="metadata"):
            other.import_lines(lines)


def test_a_purge_takes_it(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        session.append("one", metadata={"secret": "walrus"})
        session.purge()
        assert records(loom) == [(None,)]
        assert not [problem for problem in examine(loom.store) if not problem.note]


def test_damage_is_named_left_out_and_not_exported(address: str) -> None:
    with Loom.open(address) as loom:
        session = loom.new()
        [node] = session.append("one", metadata={"a": 1})
        with loom.store.database.write() as writer:
            writer.all("UPDATE records SET data = '{\"a\":' WHERE kind = 'metadata'")
        with pytest.warns(UnreadableWarning, match="metadata"):
            assert session.metadata(node.id) == {}
        assert [problem.what for problem in examine(loom.store)] == ["the metadata cannot be read"]
        missed: list[str] = []
        lines = list(session.export(missed))
        assert missed == [f"the metadata of node {node.short_id}"]
        with Loom.open(":memory:") as other:
            other.import_lines(lines)


_json: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc. é", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(100))
@given(st.dictionaries(st.text("abcé ", min_size=1, max_size=5), _json, max_size=4))
def test_what_is_written_is_read_and_found_by_itself(value: dict[str, Any]) -> None:
    text = write_metadata(value)
    if not value:
        assert text == ""
        return
    assert read_metadata(text) == value
    wanted = {name: [each] if isinstance(each, list) else each for name, each in value.items()}
    assert matches_filter(value, check_filter(wanted))
    assert not matches_filter(value, {**wanted, "absent": 1})


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, True),
        ({"ticket": 4711}, True),
        ({"ticket": [1, 4711]}, True),
        ({"ticket": "4711"}, False),
        ({"tags": "eu"}, True),
        ({"tags": ["us", "eu"]}, True),
        ({"tags": "us"}, False),
        ({"from.team": "core"}, True),
        ({"from.team": "other"}, False),
        ({"from.team.x": 1}, False),
        ({"from": {"team": "core"}}, True),
        ({"ticket": 4711.0}, True),
        ({"ticket": True}, False),
    ],
)
def test_a_filter_wants_equal_values(wanted: dict[str, Any], found: bool) -> None:
    assert matches_filter(TICKET, check_filter(wanted)) is found


@pytest.mark.parametrize("bad", [3, "a", ["a"], {1: 2}, {"a": object()}])
def test_a_filter_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ChoiceError):
        check_filter(bad)
