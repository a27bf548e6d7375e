"""Read the Anthropic messages wire."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.conversation.canonical import to_json
from loom.conversation.message import (
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
from loom.dialects.anthropic.rules import NAME
from loom.dialects.blocks import keep_other_block
from loom.dialects.wire import (
    Json,
    carry,
    expect_list,
    expect_object,
    expect_text,
    is_limit,
    is_plain,
    opaque,
    parse_content,
    take_head,
    without,
)
from loom.errors import WireError

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


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
