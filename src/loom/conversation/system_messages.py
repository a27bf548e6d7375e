"""System messages inside a conversation: they belong to their turn and leave with it, but for the
newest of each kind.

Two are of one kind if they carry the same name; without a name, if they begin with the same words:
at most four, up to the first digit or punctuation mark.
"""

import re
from collections.abc import Sequence

from loom.conversation.message import Message, ToolCall

SYSTEM_ROLES = ("system", "developer")
_KIND_WORDS = 4
_BEGINNING_CHARS = 200
_WORDS = re.compile(rf"[^\W\d_]+(?:\s+[^\W\d_]+){{0,{_KIND_WORDS - 1}}}")


def kind_of(message: Message) -> str:
    """What tells which system messages stand for the same thing."""
    if message.author:
        return f"name {message.author}"
    begins = _WORDS.search(message.text[:_BEGINNING_CHARS])
    if begins:
        return " ".join(begins.group().casefold().split())
    return ""


def newest_of_kinds(history: Sequence[Message]) -> list[int]:
    """The places of the newest system message of each kind, the newest first."""
    found: dict[str, int] = {}
    for index in reversed(range(len(history))):
        if history[index].role in SYSTEM_ROLES:
            found.setdefault(kind_of(history[index]), index)
    return list(found.values())


def order_behind_results(messages: Sequence[Message]) -> list[int]:
    """The places of messages in the order that wires demand: a system message between a call and
    its results comes after these.
    """
    order: list[int] = []
    waiting: list[int] = []
    is_calling = False
    for index, message in enumerate(messages):
        if message.role == "tool":
            order.append(index)
        elif is_calling and message.role in SYSTEM_ROLES:
            waiting.append(index)
        else:
            order += [*waiting, index]
            waiting = []
            is_calling = any(isinstance(part, ToolCall) for part in message.parts)
    return order + waiting
