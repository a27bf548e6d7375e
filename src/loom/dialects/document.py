"""The plain document: a conversation as one readable text. It is written, never read back."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.message import (
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.names import flatten
from loom.dialects.wire import (
    Dialect,
    Finding,
    Loss,
    RenderedRequest,
    finish,
    placeholder,
    transcript,
)
from loom.errors import ChoiceError

NAME = "document"


def parse(wire: Any) -> Conversation:
    raise ChoiceError(
        "a plain document cannot be read back as a conversation; convert from the transcript it "
        "was made of"
    )


def parse_messages(wires: Iterable[Any]) -> Iterator[Message]:
    raise ChoiceError(
        "a plain document cannot be read back as a conversation; convert from the transcript it "
        "was made of"
    )


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    blocks = list(render_messages([*conversation.system, *conversation.messages], losses))
    return finish("\n\n".join(blocks) + "\n" if blocks else "", losses)


def render_messages(messages: Iterable[Message], losses: list[Loss]) -> Iterator[str]:
    for index, message in enumerate(messages):
        author = flatten(message.author)
        title = f"## {message.role}{' ' + author if author else ''}"
        pieces = [
            title,
            *(_render_part(part, f"message {index}", losses) for part in message.parts),
        ]
        yield "\n\n".join(piece for piece in pieces if piece)


def to_plain_text(messages: Iterable[Message]) -> str:
    """Messages as a text to read: each under the role that speaks, calls and results on lines of
    their own.
    """
    return "".join(f"{text}\n\n" for text in render_messages(messages, []))


def _render_part(part: Part, place: str, losses: list[Loss]) -> str:
    match part:
        case Text():
            return part.text
        case Reasoning():
            if part.text:
                return "\n".join(f"> {line}".rstrip() for line in part.text.splitlines())
            losses.append(Loss(place, "encrypted reasoning"))
            return ""
        case ToolCall():
            return f"→ {part.name}({part.arguments})"
        case ToolResult():
            mark = "✗" if part.error else "←"
            text = "\n\n".join(_render_part(inner, place, losses) for inner in part.parts)
            return f"{mark} {part.name + ': ' if part.name else ''}{text}"
        case Media(source="text"):
            return part.value
        case Opaque() if words := transcript(part, place, losses):
            return words
        case Media() | Opaque():
            losses.append(Loss(place, f"{placeholder(part)}; a placeholder replaces it"))
            return placeholder(part)


def check(wire: Any) -> list[Finding]:
    """A text has no rules to break."""
    return []


def check_messages(messages: Iterable[Any]) -> Iterator[Finding]:
    return iter(())


DIALECT = Dialect(
    name=NAME,
    title="plain document",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="",
    rules={},
)
