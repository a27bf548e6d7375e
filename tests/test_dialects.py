"""A dialect is a folder and its name: what else must know it is kept to a few places."""

import pytest
from msgspec.structs import replace

from loom import weave
from loom.conversation.message import WIRE_NAMES, Carried
from loom.dialects import DIALECTS, WIRES, dialect_choices, dialect_of_model, openai
from loom.dialects.settings import translate_settings
from loom.dialects.wire import Loss


def test_the_names_of_the_wires_are_those_of_the_dialects() -> None:
    assert tuple(wire.name for wire in WIRES) == WIRE_NAMES


def test_a_context_is_rendered_in_a_dialect_that_only_the_table_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DIALECTS, "new", replace(openai.DIALECT, name="new"))
    context = weave([{"role": "user", "content": "Hello"}])
    assert context.render("new") == context.openai()


@pytest.mark.parametrize(("source", "target"), [("openai", "new"), ("new", "openai")])
def test_settings_of_a_wire_without_a_column_are_reported_as_lost(source: str, target: str) -> None:
    losses: list[Loss] = []
    settings = Carried(source, '{"temperature":1,"tool_choice":"auto"}')
    assert translate_settings(settings, target, losses) == ({}, ())
    assert [loss.place for loss in losses] == ["temperature", "tool_choice"]


def test_a_model_has_the_dialect_of_its_api() -> None:
    assert dialect_of_model("Claude-Sonnet-4-5") == "anthropic"
    assert dialect_of_model("gpt-5") == dialect_of_model("") == "openai"


def test_the_choices_are_a_phrase() -> None:
    assert dialect_choices() == "openai, responses, anthropic or document"
