"""Messages and tools as callers hand them over: in any wire's form, mixed as they may be, or as our
own values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loom.conversation.message import Message, Tool, ToolCall
from loom.conversation.turns import Span
from loom.dialects import anthropic, openai, responses
from loom.dialects.input.answer_fields import drop_empty_answer_fields, drop_empty_fields_of_part
from loom.dialects.input.answers import parse_answer
from loom.dialects.input.parsed import ParsedList, ParsedLists, take_in
from loom.dialects.input.plain import to_plain
from loom.dialects.responses.rules import CALLS, KIND_OF_OUTPUT
from loom.dialects.wire import Json, Parsed, expect_object
from loom.errors import WireError

_ANTHROPIC_BLOCKS = {
    "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document",
    "search_result", "web_search_tool_result", "container_upload", "mcp_tool_use",
    "mcp_tool_result", "compaction",
}  # fmt: skip
_OPENAI_ROLES = {"tool", "function", "developer"}
_ITEMS = {
    "reasoning",
    *CALLS,
    *KIND_OF_OUTPUT,
    "web_search_call",
    "file_search_call",
    "item_reference",
}


def speaks_openai(message: Any) -> bool:
    """Whether a message has what only the chat wire has."""
    return isinstance(message, dict) and (
        str(message.get("role")) in _OPENAI_ROLES
        or bool(message.get("tool_calls") or message.get("function_call"))
    )


def speaks_anthropic(message: Any) -> bool:
    """Whether a message has blocks or marks that only Anthropic's wire has."""
    content = None
    if isinstance(message, dict):
        content = message.get("content")
    if not isinstance(content, list) or speaks_openai(message):
        return False
    blocks = [block for block in content if isinstance(block, dict)]
    return any(
        str(b.get("type")) in _ANTHROPIC_BLOCKS
        or "cache_control" in b
        or (b.get("type") == "image" and "source" in b)
        for b in blocks
    )


def is_item(value: Any) -> bool:
    """Whether a value is an item that only the responses wire has."""
    if not isinstance(value, dict):
        return False
    if str(value.get("type")) in _ITEMS:
        return True
    content = value.get("content")
    return isinstance(content, list) and any(
        isinstance(p, dict)
        and str(p.get("type")) in ("input_text", "output_text", "input_image", "input_file")
        for p in content
    )


def parse_one(value: Any, place: str, follows_results: bool = False) -> list[Message]:
    """A message in the chat or the Anthropic form; several where results and words share one."""
    if isinstance(value, Message):
        return [value]
    if is_answer(value):
        return list(parse_answer(value).messages)
    if speaks_anthropic(value):
        return anthropic.parse_message(value, place, follows_results)
    return [openai.parse_message(value, place)]


def parse_given(values: Iterable[Any]) -> Iterator[Message]:
    return (message for _, message in parse_placed(values))


def parse_placed(
    values: Iterable[Any], lists: ParsedLists | None = None
) -> Iterator[tuple[Span, Message]]:
    """The messages, each with the places of what it was read from: one value may become several
    messages, several values one.

    Of a list that begins like one of `lists`, only the rest is parsed. A value may be an object of
    an SDK, or have some inside; fields that only answers have, and that say nothing, are left out.
    """
    values = [
        value if type(value) is dict or isinstance(value, Message) else _to_plain(value, n)
        for n, value in enumerate(values)
    ]
    if any("output" in value and is_answer(value) for value in values if type(value) is dict):
        return _parse_with_outputs(values)
    if not values or isinstance(values[0], Message):  # our own values need no parsing
        lists = None
    if lists:
        known = lists.take(values, _find_item)
    else:
        known = ParsedList(_find_item(values))
    results = _parse_rest(values, known, lists)
    if known.first_item is not None:
        return responses.join_items(results)
    return (
        (Span(index, index + 1), message)
        for index, messages in enumerate(results)
        for message in messages
        if isinstance(message, Message)
    )


def _to_plain(value: Any, index: int) -> Any:
    """A value without objects of SDKs; of the usual message it is clear that it has none."""
    if type(value) is dict and len(value) == 2 and type(value.get("content")) is str:
        return value
    try:
        return to_plain(value)
    except RecursionError:
        raise WireError(
            f"messages[{index}]", "values that JSON can express", "one that contains itself"
        ) from None


def _parse_with_outputs(values: list[Any]) -> Iterator[tuple[Span, Message]]:
    """Where whole answers of the responses API are among the values, their items are in their
    place.
    """
    places: list[int] = []
    items: list[Any] = []
    for index, value in enumerate(values):
        if isinstance(value, dict) and "output" in value and is_answer(value):
            found = value["output"]
        else:
            found = [value]
        items += found
        places += [index] * len(found)
    for span, message in parse_placed(items):
        yield Span(places[span.start], places[span.stop - 1] + 1), message


def is_answer(value: Any) -> bool:
    """Whether a value is the whole answer of a provider, and not a message."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("choices"), list) or (
        isinstance(value.get("output"), list) and value.get("object") == "response"
    ):
        return "role" not in value
    return (
        value.get("type") == "message"
        and isinstance(value.get("content"), list)
        and "stop_reason" in value
    )


def parse_call(value: Any, place: str = "call") -> ToolCall:
    """A tool call: our own value, or in any wire's form."""
    if isinstance(value, ToolCall):
        return value
    wire = expect_object(_to_plain(value, 0), place)
    kind = str(wire.get("type"))
    found: object = None
    if kind == "tool_use":
        found = anthropic.parse_block(wire, place)
    elif kind in CALLS:
        found = next(responses.parse_messages([wire])).parts[0]
    else:
        found = openai.parse_message(
            {"role": "assistant", "content": None, "tool_calls": [wire]}, place
        ).parts[0]
    if not isinstance(found, ToolCall):
        raise WireError(place, "a tool call", wire)
    return found


def _find_item(values: Sequence[Any]) -> int | None:
    """The first value that only the responses wire has."""
    return next((index for index, value in enumerate(values) if is_item(value)), None)


def _parse_rest(
    values: Sequence[Any], known: ParsedList, lists: ParsedLists | None
) -> list[Parsed]:
    """What all values became, those that are known and the rest."""
    results = list(known.results)
    follows_results = _ends_in_results(results)
    grows = True
    try:
        for index in range(len(results), len(values)):
            value = _to_plain(values[index], index)
            if known.first_item is not None:
                results.append(_parse_item(value, f"input[{index}]"))
            else:
                parsed = parse_one(value, f"messages[{index}]", follows_results)
                messages = tuple(
                    drop_empty_answer_fields(each) if each.role == "assistant" else each
                    for each in parsed
                )
                if messages:
                    follows_results = messages[-1].role == "tool"
                results.append(messages)
            if lists is not None and grows:
                grows = take_in(known, value, results[-1], lists.size)
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError(
            f"messages[{len(results)}]", "values that JSON can express", str(error)
        ) from None
    finally:
        if lists is not None:
            lists.put(known)
    return results


def _parse_item(value: Any, place: str) -> Parsed:
    if isinstance(value, Message):
        return (value,)
    found = responses.parse_item(value, place)
    if isinstance(found, list):
        return [drop_empty_fields_of_part(part) for part in found]
    return tuple(drop_empty_answer_fields(message) for message in found)


def _ends_in_results(results: Sequence[Parsed]) -> bool:
    """Whether the last message so far holds results of tools."""
    last = next((each[-1] for each in reversed(results) if each), None)
    return isinstance(last, Message) and last.role == "tool"


def parse_tool(value: Tool | Mapping[str, Any], place: str) -> Tool:
    """A tool in whichever form it was given."""
    if isinstance(value, Tool):
        return value
    wire = expect_object(to_plain(value), place)
    try:
        return _parse_tool(wire, place)
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError(place, "values that JSON can express", str(error)) from None


def _parse_tool(wire: Json, place: str) -> Tool:
    if "input_schema" in wire or "type" not in wire:
        return anthropic.parse_tool(wire, place)
    if wire["type"] == "function" and isinstance(wire.get("name"), str):
        return responses.parse_tool(wire, place)
    if not isinstance(wire["type"], str):
        raise WireError(f"{place}.type", "the name of a kind of tool", wire["type"])
    return openai.parse_tool(wire, place)
