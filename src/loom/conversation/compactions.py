"""Compactions: blocks by which a provider itself sums up what came before them.

The newest one is sent back unchanged, in its place. What stands before it is what it sums up, so it
is the first to go. Only the wire that wrote a compaction can read it.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.message import Conversation, Message, Opaque, Part


def is_compaction(part: Part) -> bool:
    """Whether a part is a compaction. One that failed has no content, and sums up nothing."""
    if not isinstance(part, Opaque) or '"compaction"' not in part.json:
        return False
    block = from_json(part.json)
    if not isinstance(block, dict) or block.get("type") != "compaction":
        return False
    return bool(block.get("content") or block.get("encrypted_content"))


def read_compaction(part: Opaque) -> str:
    """The words of a compaction; "" if they are sealed."""
    text = from_json(part.json).get("content")
    return text if isinstance(text, str) else ""


def find_compaction(history: Sequence[Message], wires: Collection[str]) -> int | None:
    """The place of the message with the newest compaction that these wires wrote."""
    for index in reversed(range(len(history))):
        for part in history[index].parts:
            if isinstance(part, Opaque) and part.wire in wires and is_compaction(part):
                return index
    return None


def leave_out_compactions(
    conversation: Conversation, wires: Collection[str]
) -> tuple[Conversation, dict[str, int]]:
    """The conversation without compactions that these wires cannot read, and how many there were by
    the wire that wrote them. The messages stay as many as they were.
    """
    found: dict[str, int] = {}
    messages = list(conversation.messages)
    for index, message in enumerate(messages):
        if not any(isinstance(part, Opaque) for part in message.parts):
            continue
        kept: list[Part] = []
        for part in message.parts:
            if isinstance(part, Opaque) and part.wire not in wires and is_compaction(part):
                found[part.wire] = found.get(part.wire, 0) + 1
            else:
                kept.append(part)
        if len(kept) < len(message.parts):
            messages[index] = replace(message, parts=tuple(kept))
    if not found:
        return conversation, found
    return replace(conversation, messages=tuple(messages)), found
