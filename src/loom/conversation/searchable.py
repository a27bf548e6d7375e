"""What a search reads of a message: all that it says in words, and whether it repeats others."""

from collections.abc import Iterator
from typing import Any, assert_never

from loom.conversation.canonical import from_json, to_json, to_sendable
from loom.conversation.message import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult

ECHOES = ("recall", "search_context")  # tools that repeat what stands elsewhere


def searchable_text(message: Message) -> str:
    """All that a message says in words, also in calls, results and files that are text."""
    return to_sendable("\n".join(filter(None, _texts(message))))


def asks_for_echo(message: Message) -> frozenset[str]:
    """The ids of calls in a message that ask for what was said elsewhere."""
    return frozenset(call.id for call in message.calls if call.name in ECHOES)


def is_echo(message: Message, asked: frozenset[str]) -> bool:
    """Whether a message does nothing but ask for what was cut, or repeat it.

    `asked` are the ids of calls before it that asked for such.
    """
    said = [part for part in message.parts if not isinstance(part, Reasoning)]
    return bool(said) and all(
        (isinstance(part, ToolCall) and part.name in ECHOES)
        or (isinstance(part, ToolResult) and (part.name in ECHOES or part.call_id in asked))
        for part in said
    )


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text() | Reasoning():
                yield part.text
            case ToolCall():
                yield f"{part.name} {_arguments(part)}"
            case ToolResult():
                yield from (inner.text for inner in part.parts if isinstance(inner, Text))
            case Media():
                yield part.name
                yield part.value if part.source == "text" else ""
            case Opaque():
                pass
            case _:
                assert_never(part)


def _arguments(call: ToolCall) -> str:
    """The arguments of a call; where JSON escapes something in them, as they read, for else an
    escape would stick to a word.
    """
    if "\\" not in call.arguments or call.kind != "function":
        return call.arguments
    try:
        return "\n".join(_leaves(from_json(call.arguments)))
    except ValueError:
        return call.arguments


def _leaves(value: Any) -> Iterator[str]:
    waiting = [("", value)]
    while waiting:
        key, value = waiting.pop()
        match value:
            case dict():
                waiting += reversed(list(value.items()))
            case list():
                waiting += [(key, each) for each in reversed(value)]
            case _:
                text = value if isinstance(value, str) else to_json(value)
                yield f"{key}: {text}" if key else text
