"""Read the OpenAI chat completions wire."""

from collections.abc import Iterable, Iterator, Mapping
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
from loom.dialects.blocks import keep_other_block
from loom.dialects.openai.rules import NAME, ROLES
from loom.dialects.wire import (
    Json,
    carry,
    expect_list,
    expect_object,
    is_limit,
    is_plain,
    opaque,
    parse_content,
    split_data_url,
    take_head,
    without,
)
from loom.errors import WireError

_EMPTY = Carried(NAME, form=("empty",))


def parse(wire: Any) -> Conversation:
    body = expect_object(wire, "request")
    messages = list(parse_messages(expect_list(body.get("messages"), "messages")))
    lead = next(
        (n for n, m in enumerate(messages) if m.role not in ("system", "developer")), len(messages)
    )
    fields = without(body, "messages", "model", "tools", "max_completion_tokens", "max_tokens")
    form = []
    limit = body.get("max_completion_tokens")
    if "max_completion_tokens" in body and not is_limit(limit):
        fields["max_completion_tokens"], limit = limit, None
    if limit is None and is_limit(body.get("max_tokens")):
        limit = body["max_tokens"]
        form.append("max_tokens")
    elif "max_tokens" in body:
        fields["max_tokens"] = body["max_tokens"]
    model, tools = take_head(body, fields, parse_tool)
    return Conversation(
        messages=tuple(messages[lead:]),
        system=tuple(messages[:lead]),
        tools=tools,
        model=model,
        max_output=limit,
        settings=carry(NAME, fields, form),
    )


def parse_messages(wires: Iterable[Any]) -> Iterator[Message]:
    for index, wire in enumerate(wires):
        yield parse_message(wire, f"messages[{index}]")


def parse_message(wire: Any, place: str) -> Message:
    if (plain := _parse_plain(wire)) is not None:
        return plain
    message = expect_object(wire, place)
    role: Any = message.get("role")
    if str(role) not in ROLES:
        raise WireError(f"{place}.role", f"one of {', '.join(sorted(ROLES))}", role)
    parts, form = _parse_text(message, place, role)
    if role in ("tool", "function"):
        return _parse_result(message, place, parts, form)
    fields = without(message, "role", "content", "name")
    if role == "assistant":
        parts = [
            *_take_reasoning(fields),
            *parts,
            *_take_refusal(fields),
            *_take_audio(fields),
            *_take_calls(fields, place),
        ]
    author = message.get("name", "")
    if not isinstance(author, str) or ("name" in message and not author):
        fields["name"], author = author, ""
    return Message(role, tuple(parts), author, carry(NAME, fields, form))


def _parse_plain(wire: Any) -> Message | None:
    """The usual message, which carries nothing: most of any history, read without looking for what
    it does not have.
    """
    if type(wire) is not dict:
        return None
    role, content = wire.get("role"), wire.get("content")
    if role == "assistant" and "tool_calls" in wire:
        return _parse_plain_calls(wire)
    if type(content) is not str or not content:
        return None
    if role == "tool":
        return _parse_plain_result(wire, content)
    if len(wire) == 2 and role in ("user", "assistant", "system"):
        return Message(role, (Text(content),))
    return None


def _parse_plain_calls(wire: Json) -> Message | None:
    calls, content = wire["tool_calls"], wire.get("content")
    if len(wire) != 3 or "content" not in wire or type(calls) is not list or not calls:
        return None
    if content is not None and type(content) is not str:
        return None
    parts = [_plain_call(given) for given in calls]
    plain = tuple([part for part in parts if part is not None])
    if len(plain) != len(parts):
        return None
    if content:
        return Message("assistant", (Text(content), *plain))
    return Message("assistant", plain, carried=None if content is None else _EMPTY)


def _parse_plain_result(wire: Json, content: str) -> Message | None:
    call_id, name = wire.get("tool_call_id"), wire.get("name")
    if type(call_id) is not str:
        return None
    if len(wire) == 3 and "name" not in wire:
        return Message("tool", (ToolResult(call_id, (Text(content),)),))
    if len(wire) == 4 and type(name) is str and name:
        return Message("tool", (ToolResult(call_id, (Text(content),), name=name),))
    return None


def _plain_call(wire: Any) -> ToolCall | None:
    if (
        type(wire) is dict
        and len(wire) == 3
        and wire.get("type") == "function"
        and type(call_id := wire.get("id")) is str
    ):
        function = wire.get("function")
        if type(function) is dict and len(function) == 2:
            name, arguments = function.get("name"), function.get("arguments")
            if type(name) is str and type(arguments) is str:
                return ToolCall(call_id, name, arguments)
    return None


def _parse_text(message: Json, place: str, role: str) -> tuple[list[Part], list[str]]:
    """The parts of `content`, and how it was spelt where that is not how we would."""
    content = message.get("content")
    if isinstance(content, list):
        parts = parse_content(content, f"{place}.content", parse_part)
        return parts, ["list"] if not parts or is_plain(parts) is not None else []
    if isinstance(content, str):
        if content:
            return [Text(content)], []
        return [], ["empty"] if role == "assistant" else []
    if content is not None:
        raise WireError(f"{place}.content", "a text or a list of parts", content)
    if "content" not in message:
        return [], ["absent"]
    return [], [] if role == "assistant" else ["null"]


def parse_part(part: Json, place: str) -> Text | Media | Opaque:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text, carry(NAME, without(part, "type", "text")))
        case {"type": "refusal", "refusal": str(text)}:
            return Text(text, carry(NAME, without(part, "type", "refusal"), ["refusal"]))
        case {"type": "image_url", "image_url": {"url": str(url), **inner}}:
            carried = carry(NAME, _carry_levels(without(part, "type", "image_url"), inner))
            if split := split_data_url(url):
                return Media("image", "data", split[1], split[0], carried=carried)
            return Media("image", "url", url, carried=carried)
        case {
            "type": "input_audio",
            "input_audio": {"data": str(data), "format": str(kind), **inner},
        }:
            carried = carry(NAME, _carry_levels(without(part, "type", "input_audio"), inner))
            return Media("audio", "data", data, f"audio/{kind}", carried=carried)
        case {"type": "file", "file": dict(file)}:
            return _parse_file(part, file)
        case {"type": str()}:
            return keep_other_block(NAME, part, place)
    raise WireError(f"{place}.type", "the name of a content part", part.get("type"))


def _parse_file(part: Json, file: Json) -> Media | Opaque:
    name = file.get("filename", "")
    inner, outer = without(file, "filename", "file_data", "file_id"), without(part, "type", "file")
    if not isinstance(name, str) or ("filename" in file and not name):
        return opaque(NAME, part)
    if isinstance(file.get("file_id"), str) and "file_data" not in file:
        return Media(
            "file",
            "id",
            file["file_id"],
            name=name,
            carried=carry(NAME, _carry_levels(outer, inner), ["own"]),
        )
    data = file.get("file_data")
    if isinstance(data, str) and "file_id" not in file:
        if split := split_data_url(data):
            return Media(
                "file", "data", split[1], split[0], name, carry(NAME, _carry_levels(outer, inner))
            )
        if data and not data.startswith("data:"):
            return Media(
                "file",
                "data",
                data,
                name=name,
                carried=carry(NAME, _carry_levels(outer, inner), ["bare"]),
            )
    return opaque(NAME, part)


def _carry_levels(outer: Mapping[Any, Any], inner: Mapping[Any, Any]) -> Json:
    return {key: value for key, value in (("outer", outer), ("inner", inner)) if value}


def _parse_result(message: Json, place: str, parts: list[Part], form: list[str]) -> Message:
    legacy = message["role"] == "function"
    fields = without(message, "role", "content", "tool_call_id", "name")
    call_id, name = message.get("tool_call_id", ""), message.get("name", "")
    if legacy:
        form = [*form, "function"]
        if "tool_call_id" in message:
            fields["tool_call_id"], call_id = call_id, ""
    elif not isinstance(call_id, str):
        fields["tool_call_id"], call_id = call_id, ""
    elif "tool_call_id" not in message:
        form = [*form, "no-id"]
    if not isinstance(name, str) or ("name" in message and not name):
        fields["name"], name = name, ""
    inner = tuple(part for part in parts if isinstance(part, Text | Media | Opaque))
    if any(isinstance(part, Media) for part in inner):
        form = [*form, "media"]
    return Message(
        "tool", (ToolResult(call_id, inner, name=name, carried=carry(NAME, fields, form)),)
    )


def _take_reasoning(fields: Json) -> list[Part]:
    """Reasoning under either of the names that compatible providers use."""
    found: list[Part] = []
    for key in ("reasoning_content", "reasoning"):
        if isinstance(fields.get(key), str) and fields[key]:
            found.append(
                Reasoning(
                    fields.pop(key),
                    NAME,
                    carried=carry(NAME, form=[] if key == "reasoning_content" else [key]),
                )
            )
    return found


def _take_refusal(fields: Json) -> list[Part]:
    if isinstance(fields.get("refusal"), str) and fields["refusal"]:
        return [Text(fields.pop("refusal"), carry(NAME, form=["refusal-field"]))]
    return []


def _take_audio(fields: Json) -> list[Part]:
    """What the model said aloud, which only this provider keeps, under an id."""
    if isinstance(fields.get("audio"), dict):
        return [Opaque(NAME, to_json(fields.pop("audio")), form=("audio",))]
    return []


def _take_calls(fields: Json, place: str) -> list[Part]:
    calls: list[Part] = []
    if fields.get("tool_calls") is not None and expect_list(
        fields["tool_calls"], f"{place}.tool_calls"
    ):
        for n, wire in enumerate(fields.pop("tool_calls")):
            at = f"{place}.tool_calls[{n}]"
            calls.append(_parse_call(expect_object(wire, at), at))
    match fields.get("function_call"):
        case {"name": str(name), "arguments": str(arguments), **rest}:
            del fields["function_call"]
            calls.append(
                ToolCall(
                    "",
                    name,
                    arguments,
                    carried=carry(NAME, _carry_levels({}, rest), ["function_call"]),
                )
            )
        case None | dict():
            pass
        case other:
            raise WireError(f"{place}.function_call", "an object with a name and arguments", other)
    return calls


def _parse_call(wire: Json, place: str) -> ToolCall:
    kind, form = wire.get("type", "function"), [] if "type" in wire else ["no-type"]
    call_id = wire.get("id", "")
    outer = without(wire, "id", "type", kind if isinstance(kind, str) else "")
    if "id" not in wire:
        form.append("no-id")
    elif not isinstance(call_id, str):
        outer["id"], call_id = call_id, ""
    match kind, wire:
        case "function", {"function": {"name": str(name), **inner}}:
            arguments = inner.pop("arguments", None)
            if not isinstance(arguments, str):
                form.append("no-arguments" if arguments is None else "object")
                if arguments is None:
                    arguments = ""
                else:
                    arguments = to_json(arguments)
            return ToolCall(
                call_id, name, arguments, carried=carry(NAME, _carry_levels(outer, inner), form)
            )
        case "custom", {"custom": {"name": str(name), "input": str(text), **inner}}:
            return ToolCall(
                call_id, name, text, "custom", carry(NAME, _carry_levels(outer, inner), form)
            )
    if not isinstance(kind, str):
        raise WireError(f"{place}.type", "function or custom", kind)
    if kind in ("function", "custom"):
        raise WireError(
            f"{place}.{kind}", "an object with a name and what it is called with", wire.get(kind)
        )
    return ToolCall(
        call_id,
        kind,
        to_json(wire.get(kind)),
        kind,
        carry(NAME, {"outer": without(wire, "id")}, ["whole", *form]),
    )


def parse_tool(wire: Json, place: str) -> Tool:
    kind = wire.get("type")
    if not isinstance(kind, str):
        raise WireError(place, "a tool with a type", wire)
    if isinstance(wire.get(kind), dict):
        inner = dict(wire[kind])
    else:
        inner = {}
    name = inner.pop("name", None)
    if kind != "function" or not isinstance(name, str) or not name.strip():
        return Tool(
            name if isinstance(name, str) and name.strip() else kind,
            kind=kind if kind != "function" else "unnamed",
            carried=carry(NAME, wire),
        )
    description, form = "", []
    if isinstance(inner.get("description"), str):
        description = inner.pop("description")
        form = [] if description else ["empty-description"]
    schema = ""
    if "parameters" in inner:
        schema = to_json(inner.pop("parameters"))
    return Tool(
        name,
        description,
        schema,
        carried=carry(NAME, _carry_levels(without(wire, "type", "function"), inner), form),
    )
