"""ChatGPT exports: a conversation is a mapping of nodes that name their parents and list their
children.

Code that the model writes to a recipient, and anything else that a tool answers, is a call, and the
tool messages after it are its results. The file has no ids for calls, so a call has the id of its
node.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import (
    Carried,
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
from loom.conversation.tree import Flags, Tree, TreeNode
from loom.dialects.wire import Json, carry, expect_list, expect_object, expect_text, without
from loom.errors import WireError
from loom.transcripts.linked import (
    Record,
    drop_empty,
    grow,
    lift_system,
    list_of,
    moment,
    object_of,
    text_of,
)

FORMAT = "ChatGPT export"
NAME = "chatgpt"
_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
_NOBODY = ("", "all")  # recipients that are no tool

# Where the words of a content are: the first of these fields that has any. What is in the
# others is carried.
_WORDS: tuple[tuple[str, ...], ...] = (
    ("text",),
    ("result",),
    ("user_profile", "user_instructions"),
    ("model_set_context",),
    ("content",),
)


def matches(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def trees(value: Json) -> Iterator[Tree]:
    mapping = value["mapping"]
    id = (
        text_of(value.get("id")) or text_of(value.get("conversation_id")) or next(iter(mapping), "")
    )
    if not id:
        raise WireError("id", "the id of the conversation", value.get("id"))
    nodes, ends = grow(_records(mapping))
    weightless = {id for id, node in mapping.items() if _weight(node) == 0}
    system, nodes = lift_system(_pair_results(nodes), but=weightless)
    here = {node.id for node in nodes}
    current = ends.get(text_of(value.get("current_node")), "")
    model = text_of(value.get("default_model_slug")) or next(
        (node.author for node in nodes if node.author), ""
    )
    fields = without(value, "id", "mapping", "current_node", "title", "default_model_slug")
    if fields.get("conversation_id") == id:
        del fields["conversation_id"]
    if created := moment(value.get("create_time")):
        del fields["create_time"]
    yield Tree(
        id=id,
        nodes=nodes,
        title=text_of(value.get("title")),
        system_context=system,
        current=current if current in here else "",
        model=model,
        created=created,
        carried=carry(NAME, drop_empty(fields)),
    )


def _weight(node: Any) -> Any:
    return object_of(object_of(node).get("message")).get("weight")


def _records(mapping: Json) -> list[Record]:
    """A record for each node; those of one parent in the order in which it lists them."""
    # child -> its place among all children, and who lists it
    listed: dict[str, tuple[int, str]] = {}
    for id, node in mapping.items():
        place = f"mapping.{id}"
        for n, child in enumerate(
            expect_list(expect_object(node, place).get("children") or [], f"{place}.children")
        ):
            listed.setdefault(expect_text(child, f"{place}.children[{n}]"), (len(listed), id))
    order = {id: listed.get(id, (len(listed), ""))[0] for id in mapping}
    answered = {
        node.get("parent")
        for node in mapping.values()
        if _role(node) == "tool" and isinstance(node.get("parent"), str)
    }
    return [
        _record(id, mapping[id], listed, id in answered)
        for id in sorted(mapping, key=order.__getitem__)
    ]


def _role(node: Json) -> Any:
    match node:
        case {"message": {"author": {"role": role}}}:
            return role
    return None


def _record(id: str, node: Json, listed: dict[str, tuple[int, str]], answered: bool) -> Record:
    place = f"mapping.{id}"
    if "parent" in node:
        parent = node["parent"]
    else:
        parent = listed.get(id, (0, ""))[1]
    if parent is not None:
        parent = expect_text(parent, f"{place}.parent")
    if node.get("message") is None:
        return Record(id=id, place=place, messages=(), parent=parent or "")
    wire = expect_object(node["message"], f"{place}.message")
    metadata = object_of(wire.get("metadata"))
    message = _message(id, wire, metadata, answered, f"{place}.message")
    unseen = (
        metadata.get("is_visually_hidden_from_conversation") is True
        and metadata.get("is_user_system_message") is not True
    )
    return Record(
        id=id,
        place=place,
        messages=(message,) if message.parts else (),
        parent=parent or "",
        author=text_of(metadata.get("model_slug")) if message.role == "assistant" else "",
        flags=Flags(excluded=unseen or wire.get("weight") == 0),
        created=moment(wire.get("create_time")),
    )


def _message(id: str, wire: Json, metadata: Json, answered: bool, place: str) -> Message:
    author = expect_object(wire.get("author") or {}, f"{place}.author")
    role = _ROLES.get(str(author.get("role")))
    if role is None:
        raise WireError(
            f"{place}.author.role", "user, assistant, system or tool", author.get("role")
        )
    content = expect_object(wire.get("content") or {}, f"{place}.content")
    parts, used = _parts(content, f"{place}.content")
    # what the user wants every conversation to begin with
    if metadata.get("is_user_system_message") is True:
        role, parts = "system", parts or _custom_instructions(metadata)
    parts += _attachments(metadata, parts)
    name, recipient = text_of(author.get("name")), text_of(wire.get("recipient"))
    is_call = (
        role == "assistant"
        and recipient not in _NOBODY
        and (answered or content.get("content_type") == "code")
    )
    if is_call:
        parts, wire = _call(id, recipient, parts), without(wire, "recipient")
    elif role != "assistant":
        parts = list(map(_as_text, parts))
    carried = _carry_rest(id, wire, metadata, author, without(content, "content_type", *used))
    if role == "tool":
        inner = tuple(part for part in parts if isinstance(part, Text | Media | Opaque))
        return Message("tool", (ToolResult(id, inner, name=name),), carried=carried)
    return Message(role, tuple(parts), name, carried)


def _as_text(part: Part) -> Part:
    """Only a model thinks: the thoughts of anybody else are text."""
    if isinstance(part, Reasoning):
        return Text(part.text, part.carried)
    return part


def _carry_rest(id: str, wire: Json, metadata: Json, author: Json, content: Json) -> Carried | None:
    fields = without(wire, "author", "content", "metadata", "weight")
    if fields.get("id") == id:
        del fields["id"]
    if fields.get("recipient") == "all":
        del fields["recipient"]
    if moment(fields.get("create_time")):
        del fields["create_time"]
    if wire.get("weight") not in (None, 0, 1):
        fields["weight"] = wire["weight"]
    kind = text_of(object_of(wire.get("content")).get("content_type"))
    if kind not in ("", "text", "multimodal_text"):
        content = {"content_type": kind, **content}
    about = without(metadata, "is_visually_hidden_from_conversation")
    if text_of(author.get("role")) == "assistant" and isinstance(about.get("model_slug"), str):
        del about["model_slug"]
    inner = {
        "author": drop_empty(without(author, "role", "name")),
        "content": drop_empty(content),
        "metadata": drop_empty(about),
    }
    return carry(NAME, drop_empty({**fields, **inner}))


def _parts(content: Json, place: str) -> tuple[list[Part], tuple[str, ...]]:
    """What a content says, and the names of the fields that said it."""
    if content.get("content_type") == "thoughts" and isinstance(content.get("thoughts"), list):
        return [
            _read_thought(thought, f"{place}.thoughts[{n}]")
            for n, thought in enumerate(content["thoughts"])
        ], ("thoughts",)
    if content.get("content_type") == "reasoning_recap" and isinstance(content.get("content"), str):
        return [Reasoning(content["content"], NAME)], ("content",)
    if content.get("parts"):
        given = expect_list(content["parts"], f"{place}.parts")
        read = [
            _part(part, f"{place}.parts[{n}]")
            for n, part in enumerate(given)
            if part is not None and part != ""
        ]
        if read:
            return read, ("parts",)
    for fields in _WORDS:
        found: list[Part] = [
            Text(content[field]) for field in fields if text_of(content.get(field))
        ]
        if found:
            return found + _pictures(content, place), (*fields, "parts", "assets", "screenshot")
    return _pictures(content, place), ("parts", "assets", "screenshot")


def _pictures(content: Json, place: str) -> list[Part]:
    """What a tool showed besides its words."""
    shown = [*list_of(content.get("assets")), content.get("screenshot")]
    return [_part(picture, f"{place}.assets[{n}]") for n, picture in enumerate(shown) if picture]


def _part(part: Any, place: str) -> Part:
    match part:
        case str():
            return Text(part)
        case {"asset_pointer": str(pointer), **rest}:
            return _asset(pointer, rest)
        case {"audio_asset_pointer": {"asset_pointer": str(pointer)}}:
            return _asset(pointer, part)
        case {"text": str(text), **rest}:
            return Text(text, carry(NAME, drop_empty(rest)))
        case dict():
            return Opaque(NAME, to_json(part))
    raise WireError(place, "a text or an object", part)


def _asset(pointer: str, fields: Mapping[Any, Any]) -> Media:
    """Media that the export has besides the conversations, or nowhere."""
    kind = str(fields.get("content_type"))
    sort: Literal["image", "audio", "file"] = "file"
    if "image" in kind:
        sort = "image"
    elif "audio" in kind:
        sort = "audio"
    return Media(sort, "id", pointer, carried=carry(NAME, drop_empty(fields)))


def _read_thought(thought: Any, place: str) -> Reasoning:
    fields = expect_object(thought, place)
    key = next((key for key in ("content", "summary") if text_of(fields.get(key))), "")
    return Reasoning(
        text_of(fields.get(key)), NAME, carried=carry(NAME, drop_empty(without(fields, key)))
    )


def _custom_instructions(metadata: Json) -> list[Part]:
    """Older exports keep them out of the message's content."""
    given = object_of(metadata.get("user_context_message_data"))
    return [
        Text(given[key])
        for key in ("about_user_message", "about_model_message")
        if text_of(given.get(key))
    ]


def _attachments(metadata: Json, parts: list[Part]) -> list[Part]:
    """The files that came with a message and are not shown in it."""
    shown = " ".join(part.value for part in parts if isinstance(part, Media))
    found: list[Part] = []
    for file in map(object_of, list_of(metadata.get("attachments"))):
        id = text_of(file.get("id"))
        if id and id not in shown:
            kind = text_of(file.get("mimeType")) or text_of(file.get("mime_type"))
            found.append(Media("file", "id", id, kind, text_of(file.get("name"))))
    return found


def _call(id: str, recipient: str, parts: list[Part]) -> list[Part]:
    """What the model wrote to a tool, in one call; what is not a text comes before it."""
    arguments = "\n".join(part.text for part in parts if isinstance(part, Text))
    try:
        kind = "custom"
        if isinstance(from_json(arguments), dict):
            kind = "function"
    except ValueError:
        kind = "custom"
    others = [part for part in parts if not isinstance(part, Text)]
    return [*others, ToolCall(id, recipient, arguments, kind)]


def _pair_results(nodes: tuple[TreeNode, ...]) -> tuple[TreeNode, ...]:
    """The nodes with each result made out to the call it comes after; a result after no call
    keeps an id of its own.
    """
    asked: dict[str, ToolCall | None] = {}
    paired = []
    for node in nodes:
        if node.message.role == "tool":
            asked[node.id] = call = asked.get(node.parent)
            if call is not None:
                results = tuple(
                    replace(result, call_id=call.id, kind=call.kind)
                    for result in node.message.results
                )
                node = replace(node, message=replace(node.message, parts=results))
        else:
            asked[node.id] = next(iter(node.message.calls), None)
        paired.append(node)
    return tuple(paired)
