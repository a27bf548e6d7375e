"""How messages of a tree are read: neighbours of one author as one, a header above each, or a text
without roles.
"""

from msgspec.structs import replace

from loom.conversation.message import Media, Message, Part, Reasoning, Text

BETWEEN = "\n\n"


def merge(one: Message, other: Message) -> Message | None:
    """Both as one message where the same author spoke twice; none if another did, or where calls
    or reasoning are between.
    """
    if (one.role, one.author) != (other.role, other.author) or not (
        _is_spoken(one) and _is_spoken(other)
    ):
        return None
    match one.parts[-1], other.parts[0]:
        case Text(before, None), Text(behind, None):
            parts: tuple[Part, ...] = (
                *one.parts[:-1],
                Text(before + BETWEEN + behind),
                *other.parts[1:],
            )
        case _:
            parts = (*one.parts, *other.parts)
    return replace(one, parts=parts, carried=None)


def _is_spoken(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Text | Media) for part in message.parts)


def add_header(message: Message, header: str) -> Message:
    """The message with a header above its words. Reasoning stays first: wires insist on it."""
    if message.role == "tool" or not message.parts:
        return message
    at = next(
        (n for n, part in enumerate(message.parts) if not isinstance(part, Reasoning)),
        len(message.parts),
    )
    behind = message.parts[at:]
    match behind:
        case (Text(text, None), *_):
            return replace(message, parts=(*message.parts[:at], Text(header + text), *behind[1:]))
        case _:
            return replace(message, parts=(*message.parts[:at], Text(header.rstrip("\n")), *behind))


def as_text(message: Message) -> Message:
    """What a node adds to a document: its words as they are, and a word for what is none."""
    return Message("user", (Text("".join(map(_words, message.parts))),))


def _words(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case Media(source="text"):
            return part.value
        case Media():
            return f"[{part.kind} content]"
        case _:
            return ""
