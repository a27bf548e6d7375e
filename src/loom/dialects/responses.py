"""The OpenAI responses wire: a list of items, where one model message is several.

What the model wrote in a row (reasoning, text, calls) is one message of ours. A text is an item of
its own, unless it shares one: the first of a list of content parts is marked `list`, the others
`with`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
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
from loom.dialects.parsed import Parsed
from loom.dialects.responses_rules import (
    BY_KIND,
    CALLS,
    KIND_OF_OUTPUT,
    RULES,
    USER_ITEMS,
    check,
    check_messages,
)
from loom.dialects.settings import translate_settings
from loom.dialects.wire import (
    Dialect,
    Json,
    Loss,
    RenderedRequest,
    carried_fields,
    carried_form,
    carry,
    data_url,
    expect_list,
    expect_object,
    expect_text,
    finish,
    foreign_to_tool,
    is_limit,
    is_plain,
    note_foreign,
    opaque,
    parse_content,
    placeholder,
    split_data_url,
    strictness,
    take_head,
    transcript,
    without,
)
from loom.errors import WireError

NAME = "responses"


# ── reading ──────────────────────────────────────────────────────────────────


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
    return parsed if isinstance(parsed, list) else (parsed,)


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
    return (
        Media("file", "data", value, name=name, carried=carry(NAME, rest, ["bare"]))
        if value
        else opaque(NAME, part)
    )


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
    id_key = "call_id" if isinstance(item.get("call_id"), str) else "id"
    call_id, value = item.get(id_key), item.get(key)
    if not isinstance(call_id, str):
        raise WireError(f"{place}.call_id", "a text", item.get("call_id"))
    name = item.get("name") if ours in ("function", "custom") else ours
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
    id_key = "call_id" if isinstance(item.get("call_id"), str) else "id"
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
            description = (
                rest.pop("description", "") if isinstance(rest.get("description", ""), str) else ""
            )
            if not description and "description" in wire and "description" not in rest:
                form.append("empty-description")
            given = rest.pop("parameters", None)
            if given is None and "parameters" in wire:
                form.append("null-parameters")
            schema = "" if given is None else to_json(given)
            return Tool(name, description, schema, carried=carry(NAME, rest, form))
        case {"type": str(kind)}:
            given = wire.get("name")
            name = given if isinstance(given, str) and given.strip() else kind
            return Tool(
                name, kind="unnamed" if kind == "function" else kind, carried=carry(NAME, wire)
            )
    raise WireError(place, "a tool with a type", wire)


# ── writing ──────────────────────────────────────────────────────────────────


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    wire: Json = {"model": conversation.model} if conversation.model else {}
    settings, form = translate_settings(conversation.settings, NAME, losses)
    wire |= settings
    system = list(conversation.system)
    if system and "item" not in carried_form(system[0].carried, NAME):
        wire["instructions"] = _instructions(system.pop(0), losses)
    messages = [*system, *conversation.messages]
    if (
        "text" in form
        and not system
        and len(messages) == 1
        and is_plain(messages[0].parts) is not None
    ):
        wire["input"] = is_plain(messages[0].parts)
    elif "text" in form and not system and len(messages) == 1 and not messages[0].parts:
        wire["input"] = ""
    elif messages or "no-input" not in form:
        wire["input"] = list(render_messages(messages, losses))
    if conversation.max_output is not None:
        wire["max_output_tokens"] = conversation.max_output
    tools = [
        tool
        for n, t in enumerate(conversation.tools)
        if (tool := _render_tool(t, f"tools[{n}]", losses))
    ]
    if tools:
        wire["tools"] = tools
    return finish(wire, losses)


def _instructions(message: Message, losses: list[Loss]) -> str:
    texts = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(part.text)
            note_foreign(part.carried, NAME, "instructions", losses)
        else:
            losses.append(Loss("instructions", placeholder(part)))
    note_foreign(message.carried, NAME, "instructions", losses)
    if message.author:
        losses.append(Loss("instructions", f"the author {message.author}"))
    if len(texts) > 1:
        losses.append(Loss("instructions", "where one system text ends and the next begins"))
    return "\n\n".join(texts)


def render_messages(messages: Iterable[Message], losses: list[Loss]) -> Iterator[Json]:
    index = 0
    for message in messages:
        for item in _render_items(message, f"input[{index}]", losses):
            yield item
            index += 1


def _render_items(message: Message, place: str, losses: list[Loss]) -> Iterator[Json]:
    note_foreign(message.carried, NAME, place, losses)
    if message.author:
        losses.append(Loss(place, f"the author {message.author}"))
    match message.role:
        case "assistant":
            yield from _render_written(message.parts, place, losses)
        case "tool":
            for result in message.results:
                yield _render_output(result, place, losses)
        case _:
            yield from _render_input(message, place, losses)


def _render_input(message: Message, place: str, losses: list[Loss]) -> Iterator[Json]:
    """What a user, a system or a developer says: an item, or none where nothing of it has a form
    here.
    """
    form = carried_form(message.carried, NAME)
    if not form and (item := _user_item(message)) is not None:
        yield item
        return
    lost = [part for part in message.parts if isinstance(part, Opaque) and part.wire != NAME]
    losses += [Loss(place, placeholder(part)) for part in lost]
    parts = [part for part in message.parts if part not in lost]
    if lost and not parts:
        losses.append(
            Loss(place, f"a whole message of the {message.role}: nothing in it has a form here")
        )
        return
    plain = is_plain(parts)
    content: str | list[Json] = plain or ""
    if (parts and plain is None) or "list" in form:
        content = _render_parts(parts, f"{place}.content", losses)
    item = {} if "untyped" in form else {"type": "message"}
    yield item | {"role": message.role, "content": content} | carried_fields(message.carried, NAME)


def _user_item(message: Message) -> Json | None:
    """The item that a message of one opaque part came as, where that is no message."""
    match message.parts:
        case (Opaque() as part,) if part.wire == NAME:
            raw: Json = from_json(part.json)
            return raw if raw.get("type") in USER_ITEMS else None
    return None


class _Block(Struct, frozen=True):
    """What a part adds to a message of the model: blocks of its content, how they were spelt, and
    fields of the message.
    """

    blocks: list[Json]
    form: tuple[str, ...]
    fields: Json
    text: str = ""


def _render_written(parts: Iterable[Part], place: str, losses: list[Loss]) -> Iterator[Json]:
    """The model's parts as items. An item is held back until the next part is known, which may be a
    part of it.
    """
    held: Json | None = None
    for part in parts:
        if isinstance(part, Opaque) and (words := transcript(part, place, losses)):
            part = Text(words)
        block = _render_block(part, place, losses)
        if (
            block is not None
            and "with" in block.form
            and held is not None
            and isinstance(held["content"], list)
        ):
            held["content"] += block.blocks
            continue
        if held is not None:
            yield held
        held = None if block is None else _begin_message(block)
        if block is None and (item := _render_item(part, place, losses)):
            yield item
    if held is not None:
        yield held


def _render_block(part: Part, place: str, losses: list[Loss]) -> _Block | None:
    """A part that is written inside a message; None where it is an item of its own."""
    if isinstance(part, Opaque) and part.wire == NAME and part.form:
        kept = from_json(part.json)
        return _Block([kept["part"]] if "part" in kept else [], part.form, kept.get("item", {}))
    if not isinstance(part, Text):
        return None
    form, kept = carried_form(part.carried, NAME), carried_fields(part.carried, NAME)
    note_foreign(part.carried, NAME, place, losses)
    block = {"type": _type(form, "output_text"), "text": part.text}
    if "refusal" in form:
        block = {"type": "refusal", "refusal": part.text}
    return _Block([block | kept.get("part", {})], form, kept.get("item", {}), part.text)


def _begin_message(block: _Block) -> Json:
    is_list = "list" in block.form or "with" in block.form
    item: Json = {} if "untyped" in block.form else {"type": "message"}
    return item | {
        "role": "assistant",
        "content": block.blocks if is_list else block.text,
        **block.fields,
    }


def _render_item(part: Part, place: str, losses: list[Loss]) -> Json:
    match part:
        case Opaque():
            if part.wire == NAME:
                raw: Json = from_json(part.json)
                return raw
            losses.append(Loss(place, placeholder(part)))
        case Reasoning():
            if part.origin == NAME:
                encrypted = {"encrypted_content": part.encrypted} if part.encrypted else {}
                return {"type": "reasoning", **carried_fields(part.carried, NAME), **encrypted}
            losses.append(Loss(place, f"reasoning of the {part.origin} wire"))
        case ToolCall():
            return _render_call(part, place, losses)
        case Media():
            losses.append(Loss(place, f"{part.kind} of the model; a placeholder replaces it"))
            return {"type": "message", "role": "assistant", "content": placeholder(part)}
    return {}


def _render_call(call: ToolCall, place: str, losses: list[Loss]) -> Json:
    form = carried_form(call.carried, NAME)
    note_foreign(call.carried, NAME, place, losses)
    kind, key, _ = BY_KIND[call.kind if call.kind in BY_KIND else "function"]
    if call.kind not in ("function", "custom") and "object" not in form:
        kind, key, _ = BY_KIND["function"]
    item: Json = {"type": kind, "id" if "by-id" in form else "call_id": call.id}
    if kind in ("function_call", "custom_tool_call"):
        item["name"] = call.name
    if "object" in form:
        item[key] = from_json(call.arguments)
    elif "no-arguments" not in form:
        item[key] = call.arguments
    return item | carried_fields(call.carried, NAME)


def _render_output(result: ToolResult, place: str, losses: list[Loss]) -> Json:
    form = carried_form(result.carried, NAME)
    note_foreign(result.carried, NAME, place, losses)
    if result.error:
        losses.append(Loss(place, "the error flag of a tool result"))
    if result.name:
        losses.append(Loss(place, f"the tool's name {result.name} in a result"))
    _, _, kind = BY_KIND[result.kind if result.kind in BY_KIND else "function"]
    item: Json = {"type": kind, "id" if "by-id" in form else "call_id": result.call_id}
    plain = is_plain(result.parts)
    if "whole" in form and len(result.parts) == 1 and isinstance(result.parts[0], Opaque):
        item |= from_json(result.parts[0].json)
    elif (result.parts and plain is None) or "list" in form:
        item["output"] = _render_parts(result.parts, f"{place}.output", losses)
    elif "absent" not in form:
        item["output"] = plain if plain is not None else ""
    return item | carried_fields(result.carried, NAME)


def _render_parts(parts: Iterable[Part], place: str, losses: list[Loss]) -> list[Json]:
    return [_render_part(part, f"{place}[{n}]", losses) for n, part in enumerate(parts)]


def _render_part(part: Part, place: str, losses: list[Loss]) -> Json:
    if isinstance(part, Opaque):
        if part.wire == NAME:
            raw: Json = from_json(part.json)
            return raw
        losses.append(Loss(place, f"{placeholder(part)}; a placeholder replaces it"))
        return {"type": "input_text", "text": placeholder(part)}
    assert isinstance(part, Text | Media), "reasoning, calls and results are items of their own"
    fields = carried_fields(part.carried, NAME)
    note_foreign(part.carried, NAME, place, losses)
    own = part.carried is not None and part.carried.wire in ("openai", "responses")
    if isinstance(part, Text):
        return {
            "type": _type(carried_form(part.carried, NAME), "input_text"),
            "text": part.text,
            **fields,
        }
    name = {"filename": part.name} if part.name else {}
    match part.kind, part.source:
        case "image", "data":
            return {"type": "input_image", "image_url": data_url(part), **_detail(part), **fields}
        case "image", "url":
            return {"type": "input_image", "image_url": part.value, **_detail(part), **fields}
        case "image", "id" if own:
            return {"type": "input_image", "file_id": part.value, **_detail(part), **fields}
        case "audio", "data" if part.carried is not None and part.carried.wire == NAME:
            # The published types have no audio here; only what came on this wire is sent on it
            # again.
            audio = {"data": part.value, "format": part.media_type.removeprefix("audio/")}
            return {"type": "input_audio", "input_audio": audio, **fields}
        case "file", "data":
            bare = "bare" in carried_form(part.carried, NAME) or "bare" in carried_form(
                part.carried, "openai"
            )
            return {
                "type": "input_file",
                "file_data": part.value if bare else data_url(part),
                **name,
                **fields,
            }
        case "file", "url":
            return {"type": "input_file", "file_url": part.value, **name, **fields}
        case "file", "id" if own:
            return {"type": "input_file", "file_id": part.value, **name, **fields}
        case "file", "text":
            losses.append(Loss(place, "the frame of a text document; its text is kept"))
            return {"type": "input_text", "text": part.value}
    losses.append(Loss(place, f"{part.kind} by {part.source}; a placeholder replaces it"))
    return {"type": "input_text", "text": placeholder(part)}


def _type(form: tuple[str, ...], usual: str) -> str:
    """The type a text was written with, where that was not the one of its side."""
    return next((spelling[3:] for spelling in form if spelling.startswith("as ")), usual)


def _detail(media: Media) -> Json:
    if "no-detail" in carried_form(media.carried, NAME):
        return {}
    return {
        "detail": carried_fields(media.carried, "openai").get("inner", {}).get("detail", "auto")
    }


def _render_tool(tool: Tool, place: str, losses: list[Loss]) -> Json:
    fields, form = carried_fields(tool.carried, NAME), carried_form(tool.carried, NAME)
    if tool.kind != "function":
        if not fields:
            losses.append(Loss(place, f"the {tool.kind} tool {tool.name}"))
        return fields
    losses += [Loss(place, f"the field {key}") for key in foreign_to_tool(tool, NAME)]
    wire: Json = {"type": "function", "name": tool.name}
    if tool.description or "empty-description" in form:
        wire["description"] = tool.description
    if tool.schema:
        wire["parameters"] = from_json(tool.schema)
    elif "no-parameters" not in form:
        wire["parameters"] = (
            None if "null-parameters" in form else {"type": "object", "properties": {}}
        )
    if "no-strict" not in form:
        # Left out, this server makes a schema strict and every field of it required; the other
        # wires do not.
        wire["strict"] = strictness(tool) or False
    return wire | fields


DIALECT = Dialect(
    name=NAME,
    title="OpenAI responses",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="input",
    rules=RULES,
)
