"""A list of messages that grows, or changes, is parsed as if it had not been seen before, and only
where it is new.
"""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import weave
from loom.context.caches import SHARED
from loom.dialects import dialect
from loom.dialects.input import ParsedLists, parse_placed
from loom.errors import WireError
from tests.shared import examples
from tests.strategies import conversations

FIELDS = {"openai": "messages", "anthropic": "messages", "responses": "input"}
wires = st.sampled_from(sorted(FIELDS))


@st.composite
def wire_lists(draw: st.DrawFn) -> list[Any]:
    """The messages of a request on one of the wires, as its clients send them."""
    name = draw(wires)
    wire = dialect(name).render(draw(conversations())).wire
    values = wire[FIELDS[name]]
    return [{"role": "user", "content": values}] if isinstance(values, str) else list(values)


@settings(max_examples=examples(150), deadline=None)
@given(wire_lists(), wire_lists(), st.data())
def test_a_list_that_grows_or_changes_is_parsed_as_if_it_were_new(
    one: list[Any], other: list[Any], data: st.DataObject
) -> None:
    lists = ParsedLists(10**6)
    for _ in range(4):
        values = data.draw(st.sampled_from([one, other]))
        values = values[: data.draw(st.integers(0, len(values)))]
        values = values + other[: data.draw(st.integers(0, 2))]
        assert _parsed(copy.deepcopy(values), lists) == _parsed(values, None)
        if values and isinstance(values[-1], dict) and data.draw(st.booleans()):
            values[-1]["content"] = "changed in place"
            assert _parsed(values, lists) == _parsed(copy.deepcopy(values), None)


def _parsed(values: list[Any], lists: ParsedLists | None) -> Any:
    try:
        return list(parse_placed(values, lists))
    except WireError as error:
        return str(error)


def chat(count: int) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[n % 2], "content": f"message {n} " + "word " * 20}
        for n in range(count)
    ]


def test_of_a_list_that_grows_only_what_is_new_is_parsed() -> None:
    lists = ParsedLists(10**7)
    said = chat(200)
    before = list(parse_placed(said[:150], lists))
    after = list(parse_placed(copy.deepcopy(said), lists))
    assert all(one is other for (_, one), (_, other) in zip(before, after, strict=False)), (
        "the same values come back"
    )
    said[100]["content"] = "changed"
    changed = list(parse_placed(said, lists))
    assert all(one is other for (_, one), (_, other) in zip(before[:100], changed, strict=False))
    assert changed[100][1].text == "changed"


def test_a_request_heeds_a_message_that_was_changed_in_place() -> None:
    said = chat(9)
    assert "message 4 word" in str(weave(said, model="gpt-4o").openai())
    said[4]["content"] = [{"type": "text", "text": "other words"}]
    woven = str(weave(said, model="gpt-4o").openai())
    assert "other words" in woven
    assert "message 4 word" not in woven
    SHARED.clear()


def test_of_what_is_too_large_to_be_kept_the_rest_is_parsed_each_time() -> None:
    lists = ParsedLists(10_000)
    said = chat(50)
    first, second = (list(parse_placed(said, lists)) for _ in range(2))
    assert first == second
    assert first[0][1] is second[0][1]
    assert first[-1][1] is not second[-1][1]


def test_a_list_that_cannot_be_parsed_is_refused_each_time_in_the_same_words() -> None:
    lists = ParsedLists(10**6)
    said = [*chat(5), {"role": "nobody", "content": "x"}]
    refusals = []
    for _ in range(3):
        with pytest.raises(WireError) as refused:
            list(parse_placed(said, lists))
        refusals.append(str(refused.value))
    assert len(set(refusals)) == 1
    assert "messages[5]" in refusals[0]
