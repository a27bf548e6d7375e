"""Write the OpenAI responses wire."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from loom.conversation.canonical import from_json
from loom.conversation.message import (
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
from loom.dialects.responses.rules import (
    BY_KIND,
    NAME,
    USER_ITEMS,
)
from loom.dialects.settings import translate_settings
from loom.dialects.wire import (
    Json,
    Loss,
    RenderedRequest,
    carried_fields,
    carried_form,
    data_url,
    finish,
    foreign_to_tool,
    is_plain,
    note_foreign,
    placeholder,
    strictness,
    transcript,
)


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    wire: Json = {}
    if conversation.model:
        wire = {"model": conversation.model}
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
    """What a user, a system or a developer says: an item, or none if nothing of it has a form
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
    """The item that a message of one opaque part came as, where that is not a message."""
    match message.parts:
        case (Opaque() as part,) if part.wire == NAME:
            raw: Json = from_json(part.json)
            if raw.get("type") in USER_ITEMS:
                return raw
            return None
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
    """A part that is written inside a message; None if it is an item of its own."""
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
    item: Json = {}
    if "untyped" not in block.form:
        item = {"type": "message"}
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
                if part.encrypted:
                    encrypted = {"encrypted_content": part.encrypted}
                else:
                    encrypted = {}
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
        if "null-parameters" in form:
            wire["parameters"] = None
        else:
            wire["parameters"] = {"type": "object", "properties": {}}
    if "no-strict" not in form:
        # Left out, this server makes a schema strict and every field of it required; the other
        # wires do not.
        wire["strict"] = strictness(tool) or False
    return wire | fields
