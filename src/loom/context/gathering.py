"""What a caller has, as one conversation: messages in any form, system text, tools, and where its
pins are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from loom.context.caches import Caches
from loom.context.report import Report
from loom.conversation.message import Conversation, Message, Text, Tool
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.conversation.turns import Span
from loom.dialects.input import is_sdk_object, parse_placed, parse_tool
from loom.errors import ChoiceError, describe


def make_conversation(
    messages: Conversation | Iterable[Message | Mapping[str, Any]],
    system: str | None,
    tools: Iterable[Tool | Mapping[str, Any]] | None,
    caches: Caches | None = None,
) -> tuple[Conversation, list[Span] | None]:
    """One conversation from whatever the caller has; for each message of a list, leading system
    text too, where it was given.
    """
    if isinstance(messages, Conversation):
        conversation, spans = messages, None
    else:
        conversation, spans = _read_list(messages, caches)
    if system is not None and not isinstance(system, str):
        raise ChoiceError(
            f"system must be a text, found {describe(system)}; give blocks as a system message of "
            "the list"
        )
    if system:
        conversation = replace(
            conversation, system=(Message("system", (Text(system),)), *conversation.system)
        )
    if tools is not None:
        conversation = replace(conversation, tools=_read_tools(tools))
    return conversation, spans


def _read_list(messages: object, caches: Caches | None) -> tuple[Conversation, list[Span]]:
    """A conversation from a list, and for each of its messages where it was given. Leading system
    messages are system text.
    """
    is_single = isinstance(messages, Mapping | str | bytes) or is_sdk_object(messages)
    if is_single or not isinstance(messages, Iterable):
        raise ChoiceError(
            f"messages must be a list of messages or a Conversation, found {describe(messages)}"
        )
    placed = list(parse_placed(messages, caches.lists if caches else None))
    spans, parsed = [span for span, _ in placed], [message for _, message in placed]
    lead = next(
        (n for n, message in enumerate(parsed) if message.role not in SYSTEM_ROLES), len(parsed)
    )
    return Conversation(messages=tuple(parsed[lead:]), system=tuple(parsed[:lead])), spans


def _read_tools(tools: object) -> tuple[Tool, ...]:
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise ChoiceError(f"tools must be a list of tools, found {describe(tools)}")
    return tuple(parse_tool(tool, f"tools[{n}]") for n, tool in enumerate(tools))


def find_pinned(pins: Sequence[int], given: Conversation, spans: list[Span] | None) -> list[int]:
    """The messages that the pinned values of a list became. What became leading system text always
    stands.
    """
    if not pins:
        return []
    if spans is None:
        spans = [Span(index, index + 1) for index in range(len(given.messages))]
    count = spans[-1].stop if spans else 0
    for pin in pins:
        if not 0 <= pin < count:
            raise ChoiceError(
                f"pin {pin} is not a message of the conversation, which has {count} messages, "
                "counted from 0"
            )
    wanted, leading = set(pins), len(spans) - len(given.messages)
    return [
        n - leading
        for n, span in enumerate(spans)
        if n >= leading and not wanted.isdisjoint(range(span.start, span.stop))
    ]


def check_pins(pins: object, previous: object) -> None:
    if previous is not None and not isinstance(previous, Report):
        raise ChoiceError(
            f"previous must be the report of the last context, found {describe(previous)}"
        )
    if not isinstance(pins, Sequence) or not all(isinstance(pin, int) for pin in pins):
        raise ChoiceError(f"pins must be a list of places, found {describe(pins)}")
