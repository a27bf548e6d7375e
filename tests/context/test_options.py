"""Options are one value: every door names the same ones, and one checker knows what is wrong with
them.
"""

import asyncio
from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from loom import Loom, LoomTree, Session, weave
from loom.context.options import Options, RequestOptions, check_options
from loom.errors import ChoiceError, UnknownOption

SHARED = set(RequestOptions.__annotations__)
NAMES = {*SHARED, "policy", "ratio"}  # what `check_options` reads


@pytest.mark.parametrize("door", [weave, Session.prepare, LoomTree.prepare])
def test_every_door_takes_the_same_options(door: Callable[..., Any]) -> None:
    assert set(signature(door).parameters) >= {*SHARED, "policy", "pins"}
    assert set(Options.__struct_fields__) >= NAMES


def test_a_signature_names_each_option_with_its_type() -> None:
    window = signature(weave).parameters["window"]
    assert (window.kind, window.annotation) == (window.KEYWORD_ONLY, int | None)
    assert "options" not in signature(weave).parameters


def try_weave(loom: Loom) -> None:
    weave([{"role": "user", "content": "Hello."}], windw=5)  # type: ignore[call-arg]


def try_session(loom: Loom) -> None:
    asyncio.run(loom.new().prepare("Hello.", windw=5))  # type: ignore[call-arg]


def try_tree(loom: Loom) -> None:
    asyncio.run(loom.new_tree("A tree").prepare("Hello.", windw=5))  # type: ignore[call-arg]


@pytest.mark.parametrize("ask", [try_weave, try_session, try_tree])
def test_an_unknown_option_is_named_with_the_right_ones(ask: Callable[[Loom], None]) -> None:
    with Loom.open(":memory:") as loom, pytest.raises(UnknownOption) as found:
        ask(loom)
    assert "has no option 'windw'; its options are model, window, " in str(found.value)
    assert isinstance(found.value, TypeError)
    assert isinstance(found.value, ChoiceError)


def test_a_store_is_not_opened_with_an_unknown_option() -> None:
    with pytest.raises(UnknownOption, match="open has no option 'tennant'; its options are tenant"):
        Loom.open(":memory:", tennant="a")  # type: ignore[call-arg]


WRONG = {
    "model": 5, "window": -1, "reserve_output": 1.5, "policy": "nobody", "sections": [("rules",)],
    "overrides": [], "ratio": 9, "zones": {"history": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_wrong_option_is_named_by_every_door(name: str) -> None:
    wrong: Any = {name: WRONG[name]}
    with pytest.raises(ChoiceError) as found:
        check_options(**wrong)
    with pytest.raises(ChoiceError) as woven:
        weave([{"role": "user", "content": "Hello."}], **wrong)
    assert str(woven.value) == str(found.value)
    if name != "ratio":
        with Loom.open(":memory:") as loom, pytest.raises(ChoiceError) as prepared:
            loom.new().prepare(**wrong).send(None)
        assert str(prepared.value) == str(found.value)
