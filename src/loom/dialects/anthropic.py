"""The Anthropic messages wire.

Here tool results stand in user messages. A run of our `tool` messages becomes one of them; what a
user said in the same wire message is our next message, marked `joined`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import (
    Carried,
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.dialects.anthropic_rules import RULES, check, check_messages
from loom.dialects.blocks import keep_other_block
from loom.dialects.settings import thinking_tokens, translate_settings
from loom.dialects.wire import (
    Dialect,
    Json,
    Loss,
    RenderedRequest,
    carried_fields,
    carried_form,
    carry,
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
    strictness,
    take_head,
    transcript,
    without,
)
from loom.errors import WireError

NAME = "anthropic"
DEFAULT_MAX_OUTPUT = 4096  # the wire demands a number; a transcript has none

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


# ── reading ──────────────────────────────────────────────────────────────────


def parse(wire: Any) -> Conversation:
    body = expect_object(wire, "request")
    fields = without(body, "messages", "system", "model", "tools", "max_tokens")
    limit = body.get("max_tokens")
    if "max_tokens" in body and not is_limit(limit):
        fields["max_tokens"], limit = limit, None
    model, tools = take_head(body, fields, parse_tool)
    system: tuple[Message, ...] = ()
    if body.get("system") is not None:
        parts, form = _parse_content(body["system"], "system", parse_block)
        system = (Message("system", tuple(parts), carried=carry(NAME, form=form)),)
    elif "system" in body:
        fields["system"] = None
    return Conversation(
        messages=tuple(parse_messages(expect_list(body.get("messages"), "messages"))),
        system=system,
        tools=tools,
        model=model,
        max_output=limit,
        settings=carry(NAME, fields),
    )


def parse_messages(wires: Iterable[Any]) -> Iterator[Message]:
    follows_results = False
    for index, wire in enumerate(wires):
        for message in parse_message(wire, f"messages[{index}]", follows_results):
            yield message
            follows_results = message.role == "tool"


def parse_message(wire: Any, place: str, follows_results: bool = False) -> list[Message]:
    """One wire message as ours: several where tool results and a user's words share it."""
    message = expect_object(wire, place)
    role = _ROLES.get(str(message.get("role", "")))
    if role is None:
        raise WireError(f"{place}.role", "user, assistant or system", message.get("role"))
    if "content" not in message:
        raise WireError(f"{place}.content", "a text or a list of blocks", None)
    parts, form = _parse_content(message["content"], f"{place}.content", parse_block)
    fields = without(message, "role", "content")
    if role != "assistant" and any(isinstance(part, ToolCall | Reasoning) for part in parts):
        raise WireError(
            f"{place}.content",
            "calls and thinking only in assistant messages",
            f"them in a message of the {role}",
        )
    if role != "user" or not any(isinstance(part, ToolResult) for part in parts):
        misplaced = next((p for p in parts if isinstance(p, ToolResult)), None)
        if misplaced:
            raise WireError(
                f"{place}.content", "tool results only in user messages", misplaced.call_id
            )
        return [Message(role, tuple(parts), carried=carry(NAME, fields, form))]
    messages: list[Message] = []
    for answers, run in _runs(parts):
        spelling = []
        if messages:
            spelling = ["joined"]
        elif answers and follows_results:
            spelling = ["apart"]
        messages.append(
            Message("tool" if answers else "user", run, carried=carry(NAME, fields, spelling))
        )
        fields = {}
    return messages


def _runs(parts: list[Part]) -> Iterator[tuple[bool, tuple[Part, ...]]]:
    run: list[Part] = []
    for part in parts:
        if run and isinstance(run[-1], ToolResult) != isinstance(part, ToolResult):
            yield isinstance(run[-1], ToolResult), tuple(run)
            run = []
        run.append(part)
    yield isinstance(run[-1], ToolResult), tuple(run)


def _parse_content(content: Any, place: str, parse_part: Any) -> tuple[list[Part], list[str]]:
    if isinstance(content, str):
        return [Text(content)] if content else [], []
    if isinstance(content, list):
        parts = parse_content(content, place, parse_part)
        return parts, ["list"] if not parts or is_plain(parts) is not None else []
    raise WireError(place, "a text or a list of blocks", content)


def parse_block(block: Json, place: str) -> Part:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text, carry(NAME, without(block, "type", "text")))
        case {"type": "thinking", "thinking": str(text)}:
            signature, form = block.get("signature"), []
            fields = without(block, "type", "thinking", "signature")
            if not isinstance(signature, str):
                if "signature" in block:
                    fields["signature"] = signature
                else:
                    form.append("unsigned")
                signature = ""
            return Reasoning(text, NAME, signature, carried=carry(NAME, fields, form))
        case {"type": "redacted_thinking", "data": str(data)}:
            return Reasoning(
                "",
                NAME,
                encrypted=data,
                carried=carry(NAME, without(block, "type", "data"), ["redacted"]),
            )
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": value}:
            form = [] if isinstance(value, dict) else ["raw"]
            return ToolCall(
                call_id,
                name,
                to_json(value),
                carried=carry(NAME, without(block, "type", "id", "name", "input"), form),
            )
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            return _parse_result(block, call_id, place)
        case {"type": "image" | "document", "source": dict()}:
            return _parse_media(block)
        case {
            "type": "text" | "thinking" | "redacted_thinking" | "tool_use" | "tool_result" as kind
        }:
            raise WireError(place, f"a whole {kind} block", block)
        case {"type": str()}:
            return keep_other_block(NAME, block, place)
    raise WireError(f"{place}.type", "the name of a block", block.get("type"))


def _parse_result(block: Json, call_id: str, place: str) -> ToolResult:
    fields = without(block, "type", "tool_use_id", "content", "is_error")
    parts: list[Part] = []
    form = []
    if "content" not in block:
        form = ["absent"]
    elif block["content"] is None:
        fields["content"] = None
    else:
        parts, form = _parse_content(block["content"], f"{place}.content", parse_block)
    for n, part in enumerate(parts):
        if not isinstance(part, Text | Media | Opaque):
            raise WireError(
                f"{place}.content[{n}].type",
                "text, image, document or another piece of a result",
                type(part).__name__,
            )
    if "is_error" in block and block["is_error"] is not True:
        fields["is_error"] = block["is_error"]
    inner = tuple(part for part in parts if isinstance(part, Text | Media | Opaque))
    return ToolResult(
        call_id, inner, block.get("is_error") is True, carried=carry(NAME, fields, form)
    )


def _parse_media(block: Json) -> Media | Opaque:
    source, name = block["source"], block.get("title", "")
    outer, form = without(block, "type", "source"), []
    if block["type"] == "document" and isinstance(name, str) and name:
        del outer["title"]
    else:
        name = ""
    kind: Any = "image" if block["type"] == "image" else "file"
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data), **inner}:
            parsed = ("data", data, media_type)
        case {"type": "url", "url": str(url), **inner}:
            parsed = ("url", url, "")
        case {"type": "file", "file_id": str(file_id), **inner}:
            parsed, form = ("id", file_id, ""), ["own"]
        case {"type": "text", "media_type": "text/plain", "data": str(data), **inner} if (
            kind == "file"
        ):
            parsed = ("text", data, "text/plain")
        case _:
            return opaque(NAME, block)
    fields = {key: value for key, value in (("outer", outer), ("inner", inner)) if value}
    how: Any = parsed[0]
    return Media(kind, how, parsed[1], parsed[2], name, carry(NAME, fields, form))


def parse_tool(wire: Json, place: str) -> Tool:
    name = expect_text(wire.get("name"), f"{place}.name")
    kind = wire.get("type", "custom")
    if kind != "custom" or "input_schema" not in wire or not name.strip():
        return Tool(
            name if name.strip() else "unnamed",
            kind=str(kind) if kind != "custom" else "server",
            carried=carry(NAME, wire),
        )
    fields = without(wire, "name", "type", "description", "input_schema")
    description, form = wire.get("description", ""), ["typed"] if "type" in wire else []
    if not isinstance(description, str):
        fields["description"], description = description, ""
    elif "description" in wire and not description:
        form.append("empty-description")
    return Tool(name, description, to_json(wire["input_schema"]), carried=carry(NAME, fields, form))


# ── writing ──────────────────────────────────────────────────────────────────


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    wire: Json = {"model": conversation.model} if conversation.model else {}
    settings, _ = translate_settings(conversation.settings, NAME, losses)
    wire |= settings
    if conversation.max_output is not None or "max_tokens" not in wire:
        # What is thought counts as answer, and the wire demands room for more than that.
        usual = DEFAULT_MAX_OUTPUT + thinking_tokens(conversation.settings)
        wire["max_tokens"] = (
            conversation.max_output if conversation.max_output is not None else usual
        )
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
            signature = {} if "unsigned" in form else {"signature": part.signature}
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
        value = from_json(call.arguments) if call.kind == "function" else None
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
    title = {"title": part.name} if part.name and part.kind == "file" else {}
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
    wire["input_schema"] = (
        from_json(tool.schema) if tool.schema else {"type": "object", "properties": {}}
    )
    if strictness(tool):
        wire["strict"] = True
    return wire | fields


DIALECT = Dialect(
    name=NAME,
    title="Anthropic messages",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="messages",
    rules=RULES,
)
