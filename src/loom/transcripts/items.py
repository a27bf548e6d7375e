"""Items of the OpenAI responses wire: as a request, as an answer, or as a bare list."""

from itertools import islice
from typing import Any

from loom.dialects import responses
from loom.dialects.input import is_item
from loom.transcripts.runs import SAMPLE_ITEMS, Run, make_run

FORMAT = "responses items"
_WIRE = "responses"


def is_response_item(value: Any) -> bool:
    """Whether a value is an item of the responses wire, a typed message included."""
    return is_item(value) or (isinstance(value, dict) and value.get("type") == "message")


def is_request(value: Any) -> bool:
    """Whether a value is a request, or an answer with its items."""
    if not isinstance(value, dict):
        return False
    asked = value.get("input")
    return (
        isinstance(asked, list) or (isinstance(asked, str) and "model" in value) or _answers(value)
    )


def _answers(value: dict[str, Any]) -> bool:
    return value.get("object") == "response" and isinstance(value.get("output"), list)


def read_request(number: int, value: dict[str, Any], _place: str) -> Run:
    if value.get("object") == "response" and "input" not in value:
        value = {"model": value.get("model", ""), "input": value["output"]}
    return make_run(number, "OpenAI responses JSON", _WIRE, responses.parse(value))


def are_items(value: Any) -> bool:
    return isinstance(value, list) and any(map(is_response_item, islice(value, SAMPLE_ITEMS)))


def read_items(number: int, value: list[Any], _place: str) -> Run:
    return make_run(number, FORMAT, _WIRE, responses.parse({"input": value}))
