"""How markers name the way back: a tool is named only where the request declares it.

Markers are made, counted and kept as `recall ~handle`. A request that declares no tool of that name
is sent with `handle ~handle` in its markers: as many characters, and no tool that the model would
call in vain.
"""

import re
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from loom.conversation.handles import HANDLE_CHARS
from loom.conversation.message import Conversation, Message, Part, Text, ToolResult

RECALL = "recall"
_NAMED = re.compile(rf"(?<=[; (]){RECALL} (?=(~[a-z2-7]{{{HANDLE_CHARS - 1}}}))")
_NEUTRAL = "handle "


def declares_recall(conversation: Conversation) -> bool:
    """Whether a request has the tool that markers name."""
    return any(tool.name == RECALL for tool in conversation.tools)


def without_tool(conversation: Conversation, handles: Collection[str]) -> Conversation:
    """A request whose markers give these handles and name no tool. What merely looks like a marker
    stays as it is.
    """
    if not handles:
        return conversation
    return replace(
        conversation,
        system=tuple(_neutral(conversation.system, handles)),
        messages=tuple(_neutral(conversation.messages, handles)),
    )


def _neutral(messages: Iterable[Message], handles: Collection[str]) -> Iterable[Message]:
    for message in messages:
        parts = tuple(_neutral_part(part, handles) for part in message.parts)
        changed = any(part is not before for part, before in zip(parts, message.parts, strict=True))
        yield replace(message, parts=parts) if changed else message


def _neutral_part(part: Part, handles: Collection[str]) -> Part:
    if isinstance(part, Text):
        return _neutral_text(part, handles)
    if isinstance(part, ToolResult):
        inner = tuple(
            _neutral_text(each, handles) if isinstance(each, Text) else each for each in part.parts
        )
        changed = any(each is not before for each, before in zip(inner, part.parts, strict=True))
        if changed:
            return replace(part, parts=inner)
        return part
    return part


def _neutral_text(part: Text, handles: Collection[str]) -> Text:
    if f"{RECALL} ~" not in part.text:
        return part
    text = _NAMED.sub(lambda found: _NEUTRAL if found[1] in handles else found[0], part.text)
    if text == part.text:
        return part
    return replace(part, text=text)
