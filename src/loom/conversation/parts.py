"""The one walk over the parts of messages, and what each part holds."""

from collections.abc import Sequence
from typing import assert_never

from loom.conversation.message import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult


def walk_parts(parts: Sequence[Part]) -> Sequence[Part]:
    """Each part, and after a tool result the parts inside it."""
    if not any(isinstance(part, ToolResult) for part in parts):
        return parts
    found: list[Part] = []
    for part in parts:
        found.append(part)
        if isinstance(part, ToolResult):
            found += walk_parts(part.parts)
    return found


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
