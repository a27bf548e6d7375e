"""Options are one value: every door names the same ones, and one checker knows what is wrong with
them.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest

from loom import Loom, Session, weave
from loom.context.options import AskedOptions, Options, check_options
from loom.errors import ChoiceError

NAMES = set(AskedOptions.__annotations__)


@pytest.mark.parametrize(("door", "without"), [(weave, set()), (Session.prepare, {"ratio"})])
def test_every_door_takes_the_same_options(door: Callable[..., Any], without: set[str]) -> None:
    assert set(signature(door).parameters) >= NAMES - without
    assert set(Options.__struct_fields__) >= NAMES


WRONG = {
    "model": 5, "window": -1, "reserve_output": 1.5, "policy": "nobody", "sections": [("rules",)], "overrides": [], "ratio": 9,
    "zones": {"history": 1},
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
