"""Read the OpenAI responses wire."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.canonical import to_json
from loom.conversation.message import (
    Carried,
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.conversation.turns import Span
from loom.dialects.blocks import check_block_type, keep_other_block
from loom.dialects.responses.rules import (
    CALLS,
    KIND_OF_OUTPUT,
    NAME,
    USER_ITEMS,
)
from loom.dialects.wire import (
    Json,
    Parsed,
    carry,
    expect_list,
    expect_object,
    expect_text,
    is_limit,
    is_plain,
    opaque,
    parse_content,
    split_data_url,
    take_head,
    without,
)
from loom.errors import WireError


def parse(wire: Any) -> Conversation:
    body = expect_object(wire, "request")
    fields = without(body, "input", "instructions", "model", "tools", "max_output_tokens")
    form = []
    given = body.get("input")
    if isinstance(given, str):
        form.append("text")
        messages = [Message("user", (Text(given),) if given else ())]
    elif "input" not in body:
        form.append("no-input")
        messages = []
    else:
        messages = list(parse_messages(expect_list(given, "input")))
    lead = next(
        (n for n, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages)
    )
    system = messages[:lead]
    if isinstance(body.get("instructions"), str):
        text = body["instructions"]
        system.insert(
            0,
            Message(
                "system", (Text(text),) if text else (), carried=carry(NAME, form=["instructions"])
            ),
        )
    elif "instructions" in body:
        fields["instructions"] = body["instructions"]
    limit = body.get("max_output_tokens")
    if "max_output_tokens" in body and not is_limit(limit):
        fields["max_output_tokens"], limit = limit, None
    model, tools = take_head(body, fields, parse_tool)
    return Conversation(
        messages=tuple(messages[lead:]),
        system=tuple(system),
        tools=tools,
        model=model,
        max_output=limit,
        settings=carry(NAME, fields, form),
    )


def parse_messages(wires: Iterable[Any]) -> Iterator[Message]:
    """Our messages; items the model wrote in a row are gathered into one."""
    return (message for _, message in parse_items(wires))


def parse_items(wires: Iterable[Any]) -> Iterator[tuple[Span, Message]]:
    """Our messages, each with the items that it is made of."""
    return join_items(parse_item(wire, f"input[{index}]") for index, wire in enumerate(wires))


def join_items(items: Iterable[Parsed]) -> Iterator[tuple[Span, Message]]:
    """Our messages from items that were parsed, each with the places of what it is made of."""
    written: list[Part] = []
    begin = index = 0
    for index, parsed in enumerate(items):
        if isinstance(parsed, list):
            begin = begin if written else index
            written += parsed
            continue
        if written:
            yield Span(begin, index), Message("assistant", tuple(written))
            written = []
        yield from ((Span(index, index + 1), message) for message in parsed)
    if written:
        yield Span(begin, index + 1), Message("assistant", tuple(written))


def parse_item(wire: Any, place: str) -> Parsed:
    """An item: parts of the model's message, or a message of somebody else."""
    parsed = _parse_item(expect_object(wire, place), place)
    if isinstance(parsed, list):
        return parsed
    return (parsed,)


def _parse_item(item: Json, place: str) -> Message | list[Part]:
    kind = item.get("type", "message" if "role" in item else None)
    match kind:
        case "message":
            return _parse_message(item, place)
        case "reasoning":
            return [_parse_reasoning(item)]
        case str() if kind in CALLS:
            return [_parse_call(item, kind, place)]
        case str() if kind in KIND_OF_OUTPUT:
            return Message("tool", (_parse_output(item, kind, place),))
        case str() if kind in USER_ITEMS:
            return Message("user", (opaque(NAME, item),))
        case str():
            return [keep_other_block(NAME, item, place)]
    raise WireError(f"{place}.type", "the name of an item", kind)


def _parse_message(item: Json, place: str) -> Message | list[Part]:
    role, content = item.get("role"), item.get("content")
    form = [] if "type" in item else ["untyped"]
    fields = without(item, "type", "role", "content")
    if role == "assistant":
        return _parse_written(content, fields, form, f"{place}.content")
    if role not in ("user", "system", "developer"):
        raise WireError(f"{place}.role", "user, assistant, system or developer", role)
    parts: list[Part] = []
    if isinstance(content, list):
        parts = parse_content(content, f"{place}.content", parse_part)
        if not parts or is_plain(parts) is not None:
            form.append("list")
    elif isinstance(content, str):
        parts = [Text(content)] if content else []
    else:
        raise WireError(f"{place}.content", "a text or a list of parts", content)
    return Message(
        role,
        tuple(parts),
        carried=carry(NAME, fields, [*form, *(["item"] if role != "user" else [])]),
    )


def _parse_written(content: Any, fields: Json, form: list[str], place: str) -> list[Part]:
    """What the model wrote in one item. Its fields and spelling stand with the first part."""
    if isinstance(content, str):
        return [Text(content, carry(NAME, {"item": fields} if fields else None, form))]
    first = (["list", *form], fields)
    parts: list[Part] = []
    for n, part in enumerate(expect_list(content, place)):
        spelling, item = first if not parts else (["with"], {})
        kept = {"item": item} if item else {}
        match expect_object(part, f"{place}[{n}]"):
            case {"type": "output_text", "text": str(text), **rest}:
                parts.append(
                    Text(text, carry(NAME, kept | ({"part": rest} if rest else {}), spelling))
                )
            case {"type": "refusal", "refusal": str(text), **rest}:
                parts.append(
                    Text(
                        text,
                        carry(
                            NAME, kept | ({"part": rest} if rest else {}), [*spelling, "refusal"]
                        ),
                    )
                )
            case {"type": "input_text" | "text" as kind, "text": str(text), **rest}:
                parts.append(
                    Text(
                        text,
                        carry(
                            NAME, kept | ({"part": rest} if rest else {}), [*spelling, f"as {kind}"]
                        ),
                    )
                )
            case other:
                check_block_type(other, f"{place}[{n}]")
                parts.append(Opaque(NAME, to_json(kept | {"part": other}), form=tuple(spelling)))
    return parts or [
        Opaque(NAME, to_json({"item": fields} if fields else {}), form=tuple(first[0]))
    ]


def parse_part(part: Json, place: str) -> Text | Media | Opaque:
    match part:
        case {"type": "input_text", "text": str(text), **rest}:
            return Text(text, carry(NAME, rest))
        case {"type": "output_text" | "text" as kind, "text": str(text), **rest}:
            return Text(text, carry(NAME, rest, [f"as {kind}"]))
        case {"type": "input_image", "image_url": str(url), **rest} if "file_id" not in rest:
            if split := split_data_url(url):
                return Media("image", "data", split[1], split[0], carried=_carry_detail(rest))
            return Media("image", "url", url, carried=_carry_detail(rest))
        case {"type": "input_image", "file_id": str(file_id), **rest} if "image_url" not in rest:
            return Media("image", "id", file_id, carried=_carry_detail(rest, ["own"]))
        case {
            "type": "input_audio",
            "input_audio": {"data": str(data), "format": str(kind)},
            **rest,
        } if len(part["input_audio"]) == 2:
            return Media("audio", "data", data, f"audio/{kind}", carried=carry(NAME, rest, ["own"]))
        case {"type": "input_file", **rest}:
            return _parse_file(part, rest)
        case {"type": str()}:
            return keep_other_block(NAME, part, place)
    raise WireError(f"{place}.type", "the name of a content part", part.get("type"))


def _carry_detail(rest: Json, form: Iterable[str] = ()) -> Carried | None:
    """The wire's types want a level of detail, so "auto" is what we would write; anything else is
    carried.
    """
    if rest.get("detail") == "auto":
        return carry(NAME, without(rest, "detail"), form)
    return carry(NAME, rest, form if "detail" in rest else [*form, "no-detail"])


def _parse_file(part: Json, rest: Json) -> Media | Opaque:
    named = [key for key in ("file_id", "file_data", "file_url") if key in rest]
    name = rest.pop("filename", "")
    if (
        len(named) != 1
        or not isinstance(rest[named[0]], str)
        or not isinstance(name, str)
        or (not name and "filename" in part)
    ):
        return opaque(NAME, part)
    value = rest.pop(named[0])
    if named[0] == "file_id":
        return Media("file", "id", value, name=name, carried=carry(NAME, rest, ["own"]))
    if named[0] == "file_url":
        return Media("file", "url", value, name=name, carried=carry(NAME, rest))
    if split := split_data_url(value):
        return Media("file", "data", split[1], split[0], name, carry(NAME, rest))
    if value:
        return Media("file", "data", value, name=name, carried=carry(NAME, rest, ["bare"]))
    return opaque(NAME, part)


def _parse_reasoning(item: Json) -> Reasoning:
    texts = []
    for key in ("summary", "content"):
        given = item.get(key)
        texts += (
            [p["text"] for p in given if isinstance(p, dict) and isinstance(p.get("text"), str)]
            if isinstance(given, list)
            else []
        )
    fields = without(item, "type")
    encrypted = fields.get("encrypted_content")
    if isinstance(encrypted, str) and encrypted:
        del fields["encrypted_content"]
    else:
        encrypted = ""
    return Reasoning("\n\n".join(texts), NAME, encrypted=encrypted, carried=carry(NAME, fields))


def _parse_call(item: Json, kind: str, place: str) -> ToolCall:
    ours, key, _ = CALLS[kind]
    id_key = "id"
    if isinstance(item.get("call_id"), str):
        id_key = "call_id"
    call_id, value = item.get(id_key), item.get(key)
    if not isinstance(call_id, str):
        raise WireError(f"{place}.call_id", "a text", item.get("call_id"))
    if ours in ("function", "custom"):
        name = item.get("name")
    else:
        name = ours
    fields = without(
        item, "type", id_key, key, *(["name"] if ours in ("function", "custom") else [])
    )
    form = [] if id_key == "call_id" else ["by-id"]
    if key not in item:
        form.append("no-arguments")
        arguments = ""
    elif ours not in ("function", "custom") or not isinstance(value, str):
        form.append("object")
        arguments = to_json(value)
    else:
        arguments = value
    return ToolCall(
        call_id, expect_text(name, f"{place}.name"), arguments, ours, carry(NAME, fields, form)
    )


def _parse_output(item: Json, kind: str, place: str) -> ToolResult:
    id_key = "id"
    if isinstance(item.get("call_id"), str):
        id_key = "call_id"
    call_id = expect_text(item.get(id_key), f"{place}.call_id")
    output = item.get("output")
    fields = without(item, "type", id_key, "output")
    form = [] if id_key == "call_id" else ["by-id"]
    parts: list[Part] = []
    if isinstance(output, str):
        parts = [Text(output)] if output else []
    elif isinstance(output, list) and all(
        isinstance(p, dict) and isinstance(p.get("type"), str) for p in output
    ):
        parts = parse_content(output, f"{place}.output", parse_part)
        if not parts or is_plain(parts) is not None:
            form.append("list")
    elif "output" in item:
        parts, form = [Opaque(NAME, to_json({"output": output}))], [*form, "whole"]
    else:
        form.append("absent")
    inner = tuple(part for part in parts if isinstance(part, Text | Media | Opaque))
    return ToolResult(call_id, inner, kind=KIND_OF_OUTPUT[kind], carried=carry(NAME, fields, form))


def parse_tool(wire: Json, place: str) -> Tool:
    match wire:
        case {"type": "function", "name": str(name), **rest} if name.strip():
            form = [f"no-{key}" for key in ("strict", "parameters") if key not in wire]
            description = ""
            if isinstance(rest.get("description", ""), str):
                description = rest.pop("description", "")
            if not description and "description" in wire and "description" not in rest:
                form.append("empty-description")
            given = rest.pop("parameters", None)
            if given is None and "parameters" in wire:
                form.append("null-parameters")
            schema = "" if given is None else to_json(given)
            return Tool(name, description, schema, carried=carry(NAME, rest, form))
        case {"type": str(kind)}:
            given = wire.get("name")
            if isinstance(given, str) and given.strip():
                name = given
            else:
                name = kind
            return Tool(
                name, kind="unnamed" if kind == "function" else kind, carried=carry(NAME, wire)
            )
    raise WireError(place, "a tool with a type", wire)
