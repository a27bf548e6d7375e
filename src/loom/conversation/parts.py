"""The one walk over the parts of messages, and what each part holds."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from loom.conversation.message import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult


def walk_parts(parts: Iterable[Part]) -> Iterator[Part]:
    """Each part, and after a tool result the parts inside it."""
    for part in parts:
        yield part
        if isinstance(part, ToolResult):
            yield from walk_parts(part.parts)


def text_of(part: Part) -> str:
    """The characters that a part itself holds: words, arguments, data or JSON. A result holds
    parts.
    """
    match part:
        case Text() | Reasoning():
            text = part.text
        case ToolCall():
            text = part.arguments
        case Media():
            text = part.value
        case Opaque():
            text = part.json
        case ToolResult():
            text = ""
        case _:
            assert_never(part)
    return text
