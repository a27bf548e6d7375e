"""Claude.ai exports: chat messages that name their parents, or follow each other where they name
none.

One message of the model holds its calls and their results in a row; here it becomes several
messages.
"""

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.tree import Tree
from loom.dialects.wire import Json, carry, expect_list, expect_object, expect_text, without
from loom.errors import WireError
from loom.transcripts.linked import Record, drop_empty, grow, moment, name_of, text_of

FORMAT = "Claude.ai export"
NAME = "claude.ai"
_ROLES: dict[str, Role] = {
    "human": "user",
    "user": "user",
    "assistant": "assistant",
    "system": "system",
}
_BESIDE = ("attachments", "files")


def matches(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)


def trees(value: Json) -> Iterator[Tree]:
    model = text_of(value.get("model"))
    records = list(_records(value["chat_messages"], model))
    nodes, ends = grow(records)
    leaf = text_of(value.get("current_leaf_message_uuid")) or (records[-1].id if records else "")
    fields = without(
        value, "uuid", "name", "summary", "chat_messages", "model", "current_leaf_message_uuid"
    )
    if created := moment(value.get("created_at")):
        del fields["created_at"]
    yield Tree(
        id=text_of(value.get("uuid")) or expect_text(records[0].id if records else None, "uuid"),
        nodes=nodes,
        title=text_of(value.get("name")),
        description=text_of(value.get("summary")),
        current=ends.get(leaf, ""),
        model=model,
        created=created,
        carried=carry(NAME, drop_empty(fields)),
    )


def _records(wires: list[Any], model: str) -> Iterator[Record]:
    messages = [expect_object(wire, f"chat_messages[{n}]") for n, wire in enumerate(wires)]
    ids = [name_of(wire, "uuid", f"chat_messages[{n}]") for n, wire in enumerate(messages)]
    branches = any(isinstance(wire.get("parent_message_uuid"), str) for wire in messages)
    before: str | None = None
    for n, (wire, id) in enumerate(zip(messages, ids, strict=True)):
        place = f"chat_messages[{n}]"
        parent = before
        if branches and "parent_message_uuid" in wire:
            parent = wire["parent_message_uuid"]
        if parent is not None:
            parent = expect_text(parent, f"{place}.parent_message_uuid")
        role = _ROLES.get(str(wire.get("sender")))
        if role is None:
            raise WireError(f"{place}.sender", "human or assistant", wire.get("sender"))
        yield Record(
            id=id,
            place=place,
            messages=_messages(id, role, wire, place),
            parent=parent or "",  # where nothing is above, the client writes an id that is nobody's
            author=model if role == "assistant" else "",
            created=moment(wire.get("created_at")),
        )
        before = id


def _messages(id: str, role: Role, wire: Json, place: str) -> tuple[Message, ...]:
    parts = [part for key in _BESIDE for part in _media(wire.get(key), f"{place}.{key}")]
    blocks = expect_list(wire.get("content") or [], f"{place}.content")
    written = _blocks(id, role, blocks, f"{place}.content")
    text, texts = (
        text_of(wire.get("text")),
        [part.text for part in written if isinstance(part, Text)],
    )
    if text and not texts:
        parts.append(Text(text))
    runs = _divide_results(role, [*parts, *written])
    messages = [Message(speaker, run) for speaker, run in runs]
    if messages:
        fields = _rest_of(wire, text, texts)
        messages[-1] = replace(messages[-1], carried=carry(NAME, drop_empty(fields)))
    return tuple(messages)


def _divide_results(role: Role, parts: list[Part]) -> list[tuple[Role, tuple[Part, ...]]]:
    """The parts as messages: results are those of a tool. In a user's message they come before what
    the user says.
    """
    ordered = parts
    if role != "assistant":
        ordered = sorted(parts, key=lambda part: not isinstance(part, ToolResult))
    return [
        ("tool" if answers else role, tuple(run)) for answers, run in groupby(ordered, _is_result)
    ]


def _is_result(part: Part) -> bool:
    return isinstance(part, ToolResult)


def _rest_of(wire: Json, text: str, texts: list[str]) -> Json:
    """What a message has beyond its parts."""
    fields = without(wire, "uuid", "parent_message_uuid", "sender", "content", "text", *_BESIDE)
    if moment(fields.get("created_at")):
        del fields["created_at"]
    if fields.get("updated_at") == wire.get("created_at"):
        fields.pop("updated_at", None)
    if texts and text and "".join(text.split()) != "".join("".join(texts).split()):
        fields["text"] = text  # not what the blocks say
    return fields


def _blocks(id: str, role: Role, blocks: list[Any], place: str) -> list[Part]:
    """The parts of a message. Older exports have no ids of calls: there a result is that of the
    first call still open.
    """
    parts: list[Part] = []
    nameless: deque[str] = deque()
    for n, given in enumerate(blocks):
        block = expect_object(given, f"{place}[{n}]")
        match block:
            case {"type": "text", "text": str(text), **rest} if text:
                parts.append(Text(text, carry(NAME, drop_empty(rest))))
            case {"type": "text", "text": ""}:
                pass
            case {"type": "thinking", "thinking": str(text), **rest} if role == "assistant":
                signature = text_of(rest.pop("signature", ""))
                parts.append(
                    Reasoning(text, NAME, signature, carried=carry(NAME, drop_empty(rest)))
                )
            case {"type": "tool_use", "name": str(name), **rest} if role == "assistant":
                call_id = text_of(rest.pop("id", ""))
                if not call_id:
                    nameless.append(call_id := f"{id}-{n}")
                arguments = to_json(rest.pop("input", {}))
                parts.append(
                    ToolCall(call_id, name, arguments, carried=carry(NAME, drop_empty(rest)))
                )
            case {"type": "tool_result", **rest}:
                call_id = text_of(rest.pop("tool_use_id", "")) or (
                    nameless.popleft() if nameless else f"{id}-{n}"
                )
                parts.append(_result(call_id, rest, f"{place}[{n}]"))
            case _:
                parts.append(Opaque(NAME, to_json(block)))
    return parts


def _result(call_id: str, fields: Json, place: str) -> ToolResult:
    content = fields.pop("content", None)
    name, error = text_of(fields.pop("name", "")), fields.pop("is_error", False) is True
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts: list[Text | Media | Opaque] = []
    for n, given in enumerate(expect_list(content or [], f"{place}.content")):
        match expect_object(given, f"{place}.content[{n}]"):
            case {"type": "text", "text": str(text), **rest}:
                parts.append(Text(text, carry(NAME, drop_empty(rest))))
            case {"type": "image", "file_uuid": str(file), **rest}:
                parts.append(Media("image", "id", file, carried=carry(NAME, drop_empty(rest))))
            case piece:
                parts.append(Opaque(NAME, to_json(piece)))
    return ToolResult(call_id, tuple(parts), error, name, carried=carry(NAME, drop_empty(fields)))


def _media(files: Any, place: str) -> list[Part]:
    """What was handed over with a message: the text that was taken out of a file, or its name in
    the provider's store.
    """
    parts: list[Part] = []
    for n, given in enumerate(expect_list(files or [], place)):
        match expect_object(given, f"{place}[{n}]"):
            case {"extracted_content": str(text), **rest} if text:
                name = text_of(rest.pop("file_name", ""))
                parts.append(
                    Media("file", "text", text, "text/plain", name, carry(NAME, drop_empty(rest)))
                )
            case {"file_uuid": str(file), **rest} if file:
                name, image = text_of(rest.pop("file_name", "")), rest.get("file_kind") == "image"
                parts.append(
                    Media(
                        "image" if image else "file",
                        "id",
                        file,
                        name=name,
                        carried=carry(NAME, drop_empty(rest)),
                    )
                )
            case piece:
                parts.append(Opaque(NAME, to_json(piece)))
    return parts
