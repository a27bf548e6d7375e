"""Messages in the OpenAI chat or the Anthropic form, as requests, as bare lists, or one a line."""

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from loom.conversation.message import Conversation, Message
from loom.dialects import DIALECTS
from loom.dialects.input import is_item, parse_one, speaks_anthropic, speaks_openai
from loom.errors import TranscriptError, WireError
from loom.transcripts import files
from loom.transcripts.runs import SAMPLE_ITEMS, Run, make_run

FORMATS = {"anthropic": "Anthropic messages JSON", "openai": "OpenAI chat JSON"}  # by the wire
_ANSWER_BLOCKS = {
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
}
_ANTHROPIC_KEYS = {"system", "stop_sequences", "anthropic_version"}


def is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and not isinstance(value.get("messages"), list)
    )


def find_message(value: Any) -> Any:
    """The message in a provider's answer, or a message that stands alone."""
    match value:
        case {"choices": [{"message": dict(message)}, *_]}:
            return message
        case {"type": "message", "role": "assistant", "content": list(blocks)} if all(
            map(_is_answer_block, blocks)
        ):
            return {"role": "assistant", "content": blocks}
    if is_message(value) and "type" not in value:
        return value
    return None


def _is_answer_block(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("type")) in _ANSWER_BLOCKS


def wire_of(messages: Iterable[Any], request: Any = None) -> str:
    """Which of the two wires a list of messages, or the request around it, is written for."""
    messages = list(messages)
    if any(map(speaks_anthropic, messages)):
        return "anthropic"
    if any(map(speaks_openai, messages)):
        return "openai"
    if isinstance(request, dict):
        tools = request.get("tools")
        if isinstance(tools, list) and any(
            isinstance(tool, dict) and "input_schema" in tool for tool in tools
        ):
            return "anthropic"
        if _ANTHROPIC_KEYS & request.keys():
            return "anthropic"
    return "openai"


def parse_request(request: dict[str, Any]) -> tuple[str, Conversation]:
    wire = wire_of(request["messages"], request)
    return wire, DIALECTS[wire].parse(request)


def parse_stream(values: Iterable[tuple[str, Any]]) -> Iterator[Message]:
    """Messages of either form, mixed as they may be; each value comes with the place it was found
    at.
    """
    follows_results = False
    for place, value in values:
        try:
            parsed = parse_one(value, "message", follows_results)
        except WireError as error:
            raise TranscriptError(f"{place}: {error}") from None
        for message in parsed:
            yield message
            follows_results = message.role == "tool"


def is_system(message: Message) -> bool:
    return message.role in ("system", "developer")


def begins_with_message(sample: list[Any]) -> bool:
    return is_message(sample[0]) and "type" not in sample[0]


def runs(path: Path, sample: list[Any]) -> list[Run]:
    """One run: a message a line."""

    def read() -> Iterator[Message]:
        return parse_stream((f"{path}, line {n}", value) for n, value in files.lines(path))

    def messages() -> Iterator[Message]:
        leading = True
        for message in read():
            leading = leading and is_system(message)
            if not leading:
                yield message

    system = tuple(takewhile(is_system, read()))
    head = Conversation(messages=(), system=system)
    run = Run(
        number=0, format="chat JSON lines", wire=wire_of(sample), head=head, messages=messages
    )
    return [run]


def is_request(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("messages"), list)


def read_request(number: int, value: dict[str, Any], _place: str) -> Run:
    wire, conversation = parse_request(value)
    return make_run(number, FORMATS[wire], wire, conversation)


def are_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    is_chat = all(
        is_message(v) and v.get("type", "message") == "message" for v in islice(value, SAMPLE_ITEMS)
    )
    return is_chat and not any(map(is_item, value))


def read_messages(number: int, value: list[Any], place: str) -> Run:
    wire, conversation = parse_list(value, place)
    return make_run(number, FORMATS[wire], wire, conversation)


def parse_list(values: list[Any], place: str) -> tuple[str, Conversation]:
    """A bare list of messages."""
    messages = tuple(parse_stream((f"{place}[{n}]", value) for n, value in enumerate(values)))
    system = tuple(takewhile(is_system, messages))
    return wire_of(values), replace(Conversation(messages=messages[len(system) :]), system=system)
