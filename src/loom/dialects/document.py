"""The plain document: a conversation as one readable text. It is written, never read back."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.canonical import from_json, to_json
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
    """Messages as a text to read: each under the role that speaks, with the words as they were.

    Texts in the arguments of calls are not escaped, so that they can be copied.
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
            return "\n".join((f"→ {part.name}", *_render_arguments(part)))
        case ToolResult():
            title = f"{'✗' if part.error else '←'} {part.name or 'result'}"
            texts = [_render_part(inner, place, losses) for inner in part.parts]
            return f"{title}\n" + "\n\n".join(texts)
        case Media(source="text"):
            return part.value
        case Opaque() if words := transcript(part, place, losses):
            return words
        case Media() | Opaque():
            losses.append(Loss(place, f"{placeholder(part)}; a placeholder replaces it"))
            return placeholder(part)


def _render_arguments(call: ToolCall) -> list[str]:
    """The arguments of a call, one in each line; a text of several lines comes after its name."""
    if call.kind != "function":
        return [call.arguments]
    try:
        given = from_json(call.arguments)
    except ValueError:
        return [call.arguments]
    if not isinstance(given, dict):
        return [call.arguments]
    return [_render_argument(name, value) for name, value in _leaves(given)]


def _render_argument(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return f"{name}: {to_json(value)}"
    if "\n" in value:
        return f"{name}:\n{value}"
    return f"{name}: {value}"


def _leaves(given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each value that holds no others, with the way to it, as `edits[0].old_text`."""
    waiting = list(reversed(given.items()))
    while waiting:  # a stack and not a call for each: arguments may be nested deeply
        name, value = waiting.pop()
        if value and isinstance(value, dict):
            waiting += reversed([(f"{name}.{key}", inner) for key, inner in value.items()])
        elif isinstance(value, list) and any(map(_takes_lines, value)):
            waiting += reversed([(f"{name}[{n}]", inner) for n, inner in enumerate(value)])
        else:
            yield name, value


def _takes_lines(value: Any) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and "\n" in value)


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
