"""Write the OpenAI chat completions wire."""

from collections.abc import Iterable, Iterator, Sequence

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
from loom.dialects.openai.rules import NAME
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
)


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    messages = list(render_messages([*conversation.system, *conversation.messages], losses))
    settings, form = translate_settings(conversation.settings, NAME, losses)
    wire: Json = {}
    if conversation.model:
        wire = {"model": conversation.model}
    wire |= settings | {"messages": messages}
    if conversation.max_output is not None:
        wire["max_tokens" if "max_tokens" in form else "max_completion_tokens"] = (
            conversation.max_output
        )
    tools = [
        tool
        for n, t in enumerate(conversation.tools)
        if (tool := _render_tool(t, f"tools[{n}]", losses))
    ]
    if tools:
        wire["tools"] = tools
    return finish(wire, losses)


def render_messages(messages: Iterable[Message], losses: list[Loss]) -> Iterator[Json]:
    index = 0
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    yield _render_result(part, f"messages[{index}]", losses)
                    index += 1
            continue
        if wire := _render_message(message, f"messages[{index}]", losses):
            yield wire
            index += 1


def _render_message(message: Message, place: str, losses: list[Loss]) -> Json:
    wire: Json = {"role": message.role}
    content: list[Part] = []
    calls: list[Json] = []
    for part in message.parts:
        if isinstance(part, ToolCall) and not _is_legacy_call(part):
            calls.append(_render_call(part, f"{place}.tool_calls[{len(calls)}]", losses))
        elif _is_content(part):
            content.append(part)
        else:
            wire |= _render_field(part, place, losses)
    if message.parts and not content and not calls and len(wire) == 1:
        losses.append(
            Loss(place, f"a whole message of the {message.role}: nothing in it has a form here")
        )
        return {}
    form = carried_form(message.carried, NAME)
    is_null = "null" in form or (message.role == "assistant" and "empty" not in form)
    wire |= _render_content(content, form, is_null, place, losses)
    if calls:
        wire["tool_calls"] = calls
    if message.author:
        wire["name"] = message.author
    note_foreign(message.carried, NAME, place, losses)
    return wire | carried_fields(message.carried, NAME)


def _is_legacy_call(call: ToolCall) -> bool:
    """Whether it came as `function_call`, which has no id."""
    return "function_call" in carried_form(call.carried, NAME) and not call.id


def _is_content(part: Part) -> bool:
    """Whether a part is written into `content`. The others are fields of their own, or have no form
    here.
    """
    match part:
        case Text():
            return "refusal-field" not in carried_form(part.carried, NAME)
        case Opaque():
            return part.wire == NAME and "audio" not in part.form
    return not isinstance(part, Reasoning | ToolCall)


def _render_field(part: Part, place: str, losses: list[Loss]) -> Json:
    """A part that stands beside `content`, under its name."""
    match part:
        case Text():
            return {"refusal": part.text}
        case Reasoning() if part.origin == NAME:
            key = "reasoning_content"
            if "reasoning" in carried_form(part.carried, NAME):
                key = "reasoning"
            return {key: part.text}
        case Reasoning():
            losses.append(Loss(place, f"reasoning of the {part.origin} wire"))
        case ToolCall():
            inner = carried_fields(part.carried, NAME).get("inner", {})
            return {"function_call": {"name": part.name, "arguments": part.arguments, **inner}}
        case Opaque() if part.wire == NAME:
            return {"audio": _render_audio(part)}
        case Opaque():
            losses.append(Loss(place, placeholder(part)))
    return {}


def _render_content(
    parts: list[Part], form: Sequence[str], is_null: bool, place: str, losses: list[Loss]
) -> Json:
    """`content` as it was spelt: a text, a list, nothing (null or an empty text), or not there at
    all.
    """
    if not parts and "absent" in form:
        return {}
    if not parts and "list" in form:
        return {"content": []}
    if not parts:
        return {"content": None if is_null else ""}
    plain = is_plain(parts)
    if plain is not None and "list" not in form:
        return {"content": plain}
    blocks = [_render_part(part, f"{place}.content[{n}]", losses) for n, part in enumerate(parts)]
    return {"content": [block for block in blocks if block]}


def _render_audio(part: Opaque) -> Json:
    """What the model said aloud, by its id: a request has no more of it."""
    audio: Json = from_json(part.json)
    if "id" in audio:
        return {"id": audio["id"]}
    return audio


def _render_part(part: Part, place: str, losses: list[Loss]) -> Json:
    if isinstance(part, Opaque):
        raw: Json = from_json(part.json)
        return raw
    assert isinstance(part, Text | Media), (
        "reasoning, calls and results are written by their message"
    )
    fields = carried_fields(part.carried, NAME)
    note_foreign(part.carried, NAME, place, losses)
    if isinstance(part, Text):
        key = "text"
        if "refusal" in carried_form(part.carried, NAME):
            key = "refusal"
        return {"type": key, key: part.text, **fields}
    outer, inner = fields.get("outer", {}), fields.get("inner", {})
    if detail := carried_fields(part.carried, "responses").get("detail"):
        inner = {"detail": detail}
    match part.kind, part.source:
        case "image", "data":
            return {"type": "image_url", "image_url": {"url": data_url(part), **inner}, **outer}
        case "image", "url":
            return {"type": "image_url", "image_url": {"url": part.value, **inner}, **outer}
        case "audio", "data":
            audio = {"data": part.value, "format": part.media_type.removeprefix("audio/"), **inner}
            return {"type": "input_audio", "input_audio": audio, **outer}
        case "file", "data":
            bare = "bare" in carried_form(part.carried, NAME)
            file = {"filename": part.name} if part.name else {}
            return {
                "type": "file",
                "file": {"file_data": part.value if bare else data_url(part), **file, **inner},
                **outer,
            }
        case "file", "id" if part.carried is not None and part.carried.wire in (
            "openai",
            "responses",
        ):
            file = {"filename": part.name} if part.name else {}
            return {"type": "file", "file": {"file_id": part.value, **file, **inner}, **outer}
        case "file", "text":
            losses.append(Loss(place, "the frame of a text document; its text is kept"))
            return {"type": "text", "text": part.value}
    losses.append(Loss(place, f"{part.kind} by {part.source}; a placeholder replaces it"))
    return {"type": "text", "text": placeholder(part)}


def _render_result(result: ToolResult, place: str, losses: list[Loss]) -> Json:
    form = carried_form(result.carried, NAME)
    legacy = "function" in form and not result.call_id
    wire: Json = {"role": "function" if legacy else "tool"}
    parts = [_fit_result_part(part, "media" in form, place, losses) for part in result.parts]
    wire |= _render_content(parts, form, "null" in form, place, losses)
    if not legacy and ("no-id" not in form or result.call_id):
        wire["tool_call_id"] = result.call_id
    if result.name:
        wire["name"] = result.name
    if result.error:
        losses.append(Loss(place, "the error flag of a tool result"))
    note_foreign(result.carried, NAME, place, losses)
    return wire | carried_fields(result.carried, NAME)


def _fit_result_part(part: Part, with_media: bool, place: str, losses: list[Loss]) -> Part:
    """A part of a tool result as this wire takes it there: texts, and what came on this wire."""
    if isinstance(part, Text) or with_media or (isinstance(part, Opaque) and part.wire == NAME):
        return part
    if isinstance(part, Media) and part.source == "text":
        losses.append(
            Loss(place, "the frame of a text document inside a tool result; its text is kept")
        )
        return Text(part.value)
    losses.append(
        Loss(place, f"{placeholder(part)} inside a tool result; a placeholder replaces it")
    )
    return Text(placeholder(part))


def _render_call(call: ToolCall, place: str, losses: list[Loss]) -> Json:
    form, fields = carried_form(call.carried, NAME), carried_fields(call.carried, NAME)
    outer: Json = fields.get("outer", {})
    inner: Json = fields.get("inner", {})
    note_foreign(call.carried, NAME, place, losses)
    wire: Json = {}
    if call.id or "no-id" not in form:
        wire = {"id": call.id}
    if "whole" in form:
        return outer | wire
    if "no-type" not in form:
        if call.kind == "custom":
            wire["type"] = "custom"
        else:
            wire["type"] = "function"
    if call.kind == "custom":
        return wire | {"custom": {"name": call.name, "input": call.arguments, **inner}} | outer
    function: Json = {"name": call.name}
    if "object" in form:
        function["arguments"] = from_json(call.arguments)
    elif "no-arguments" not in form:
        function["arguments"] = call.arguments
    return wire | {"function": function | inner} | outer


def _render_tool(tool: Tool, place: str, losses: list[Loss]) -> Json:
    fields = carried_fields(tool.carried, NAME)
    if tool.kind != "function":
        if not fields:
            losses.append(Loss(place, f"the {tool.kind} tool {tool.name}"))
        return fields
    losses += [Loss(place, f"the field {key}") for key in foreign_to_tool(tool, NAME)]
    function: Json = {"name": tool.name}
    if tool.description or "empty-description" in carried_form(tool.carried, NAME):
        function["description"] = tool.description
    if tool.schema:
        function["parameters"] = from_json(tool.schema)
    if strictness(tool):
        function["strict"] = True
    return {
        "type": "function",
        "function": function | fields.get("inner", {}),
        **fields.get("outer", {}),
    }
