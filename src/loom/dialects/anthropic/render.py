"""Write the Anthropic messages wire."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.canonical import from_json
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
from loom.dialects.anthropic.rules import NAME
from loom.dialects.settings import thinking_tokens, translate_settings
from loom.dialects.wire import (
    Json,
    Loss,
    RenderedRequest,
    carried_fields,
    carried_form,
    finish,
    foreign_to_tool,
    is_plain,
    note_foreign,
    placeholder,
    strictness,
    transcript,
)

DEFAULT_MAX_OUTPUT = 4096  # the wire demands a number; a transcript has none


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    wire: Json = {}
    if conversation.model:
        wire = {"model": conversation.model}
    settings, _ = translate_settings(conversation.settings, NAME, losses)
    wire |= settings
    if conversation.max_output is not None or "max_tokens" not in wire:
        # What is thought counts as answer, and the wire demands room for more than that.
        usual = DEFAULT_MAX_OUTPUT + thinking_tokens(conversation.settings)
        if conversation.max_output is not None:
            wire["max_tokens"] = conversation.max_output
        else:
            wire["max_tokens"] = usual
    if conversation.system:
        wire["system"] = _render_system(conversation.system, losses)
    wire["messages"] = list(render_messages(conversation.messages, losses))
    tools = [
        tool
        for n, t in enumerate(conversation.tools)
        if (tool := _render_tool(t, f"tools[{n}]", losses))
    ]
    if tools:
        wire["tools"] = tools
    return finish(wire, losses)


def _render_system(system: tuple[Message, ...], losses: list[Loss]) -> str | list[Json]:
    parts = [part for message in system for part in message.parts]
    losses += [
        Loss("system", f"the author {m.author} of a system message") for m in system if m.author
    ]
    for message in system:
        note_foreign(message.carried, NAME, "system", losses)
    return _render_content(parts, system[0].carried, "system", losses)


def render_messages(messages: Iterable[Message], losses: list[Loss]) -> Iterator[Json]:
    """Wire messages, one behind: the next of ours may still belong to the last of theirs."""
    index, last = -1, ""
    held: Json | None = None
    for message in messages:
        form = carried_form(message.carried, NAME)
        same = message.role == "tool" and last == "tool" and "apart" not in form
        if held is not None and (
            same
            or ("joined" in form and last in ("user", "tool") and message.role in ("user", "tool"))
        ):
            if isinstance(held["content"], str):
                held["content"] = [{"type": "text", "text": held["content"]}]
            held["content"] += _render_parts(
                message.parts, f"messages[{index}].content", losses, len(held["content"])
            )
        else:
            wire = _render_message(message, f"messages[{index + 1}]", losses)
            if message.parts and wire["content"] == []:
                losses.append(
                    Loss(
                        f"messages[{index + 1}]",
                        f"a whole message of the {message.role}: nothing in it has a form here",
                    )
                )
                continue
            if held is not None:
                yield held
            index, held = index + 1, wire
        held |= carried_fields(message.carried, NAME)
        last = message.role
    if held is not None:
        yield held


def _render_message(message: Message, place: str, losses: list[Loss]) -> Json:
    role = {"tool": "user", "developer": "system"}.get(message.role, message.role)
    note_foreign(message.carried, NAME, place, losses)
    if message.author:
        losses.append(Loss(place, f"the author {message.author}"))
    if message.role == "tool":
        return {"role": role, "content": _render_parts(message.parts, f"{place}.content", losses)}
    return {
        "role": role,
        "content": _render_content(message.parts, message.carried, f"{place}.content", losses),
    }


def _render_content(
    parts: Iterable[Part], carried: Carried | None, place: str, losses: list[Loss]
) -> str | list[Json]:
    parts = tuple(parts)
    plain = is_plain(parts)
    if "list" not in carried_form(carried, NAME):
        if plain is not None:
            return plain
        if not parts:
            return ""
    return _render_parts(parts, place, losses)


def _render_parts(parts: Iterable[Part], place: str, losses: list[Loss], at: int = 0) -> list[Json]:
    blocks: list[Json] = []
    for part in parts:
        if block := _render_block(part, f"{place}[{at + len(blocks)}]", losses):
            blocks.append(block)
    return blocks


def _render_block(part: Part, place: str, losses: list[Loss]) -> Json:
    if isinstance(part, Opaque):
        if part.wire == NAME:
            raw: Json = from_json(part.json)
            return raw
        if words := transcript(part, place, losses):
            return {"type": "text", "text": words}
        losses.append(Loss(place, placeholder(part)))
        return {}
    fields, form = carried_fields(part.carried, NAME), carried_form(part.carried, NAME)
    note_foreign(part.carried, NAME, place, losses)
    match part:
        case Text():
            return {"type": "text", "text": part.text, **fields}
        case Reasoning():
            if part.origin != NAME:
                losses.append(Loss(place, f"reasoning of the {part.origin} wire"))
                return {}
            if part.encrypted or "redacted" in form:
                return {"type": "redacted_thinking", "data": part.encrypted, **fields}
            if "unsigned" not in form:
                signature = {"signature": part.signature}
            else:
                signature = {}
            return {"type": "thinking", "thinking": part.text, **signature, **fields}
        case ToolCall():
            return {
                "type": "tool_use",
                "id": part.id,
                "name": part.name,
                "input": _input(part, place, losses),
                **fields,
            }
        case ToolResult():
            return _render_result(part, fields, form, place, losses)
        case Media():
            return _render_media(part, fields, place, losses)


def _input(call: ToolCall, place: str, losses: list[Loss]) -> Any:
    """The arguments as the object this wire demands."""
    if call.kind == "function" and not call.arguments.strip():
        return {}
    if "raw" in carried_form(call.carried, NAME):
        return from_json(call.arguments)
    try:
        value = None
        if call.kind == "function":
            value = from_json(call.arguments)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    losses.append(
        Loss(f"{place}.input", "arguments that are not a JSON object; they are text under `input`")
    )
    return {"input": call.arguments}


def _render_result(
    result: ToolResult, fields: Json, form: tuple[str, ...], place: str, losses: list[Loss]
) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": result.call_id}
    parts: list[Part] = []
    for part in result.parts:
        if isinstance(part, Opaque) and part.wire != NAME:
            losses.append(
                Loss(place, f"{placeholder(part)} inside a tool result; a placeholder replaces it")
            )
            parts.append(Text(placeholder(part)))
        else:
            parts.append(part)
    if parts or "absent" not in form:
        block["content"] = _render_content(parts, result.carried, f"{place}.content", losses)
    if result.error:
        block["is_error"] = True
    return block | fields


def _render_media(part: Media, fields: Json, place: str, losses: list[Loss]) -> Json:
    outer, inner = fields.get("outer", {}), fields.get("inner", {})
    source: Json = {}
    match part.kind, part.source:
        case "image" | "file", "data" if part.media_type:
            source = {"type": "base64", "media_type": part.media_type, "data": part.value}
        case "image" | "file", "url":
            source = {"type": "url", "url": part.value}
        case "image" | "file", "id" if part.carried is not None and part.carried.wire == NAME:
            source = {"type": "file", "file_id": part.value}
        case "file", "text":
            source = {"type": "text", "media_type": "text/plain", "data": part.value}
    if not source:
        losses.append(Loss(place, f"{part.kind} by {part.source}; a placeholder replaces it"))
        return {"type": "text", "text": placeholder(part)}
    if part.name and part.kind == "file":
        title = {"title": part.name}
    else:
        title = {}
    if part.name and not title:
        losses.append(Loss(place, f"the name {part.name} of an image"))
    return {
        "type": "image" if part.kind == "image" else "document",
        "source": source | inner,
        **title,
        **outer,
    }


def _render_tool(tool: Tool, place: str, losses: list[Loss]) -> Json:
    fields, form = carried_fields(tool.carried, NAME), carried_form(tool.carried, NAME)
    if tool.kind != "function":
        if not fields:
            losses.append(Loss(place, f"the {tool.kind} tool {tool.name}"))
        return fields
    losses += [Loss(place, f"the field {key}") for key in foreign_to_tool(tool, NAME)]
    wire: Json = {"name": tool.name}
    if "typed" in form:
        wire["type"] = "custom"
    if tool.description or "empty-description" in form:
        wire["description"] = tool.description
    if tool.schema:
        wire["input_schema"] = from_json(tool.schema)
    else:
        wire["input_schema"] = {"type": "object", "properties": {}}
    if strictness(tool):
        wire["strict"] = True
    return wire | fields
