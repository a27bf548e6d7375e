"""The OpenAI chat completions wire."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.dialects.blocks import keep_other_block
from loom.dialects.openai_rules import ROLES, RULES, check, check_messages
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
    without,
)
from loom.errors import WireError

NAME = "openai"
_EMPTY = Carried(NAME, form=("empty",))


# ── reading ──────────────────────────────────────────────────────────────────


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
    return (
        [Opaque(NAME, to_json(fields.pop("audio")), form=("audio",))]
        if isinstance(fields.get("audio"), dict)
        else []
    )


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
                arguments = "" if arguments is None else to_json(arguments)
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
    inner = dict(wire[kind]) if isinstance(wire.get(kind), dict) else {}
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
    schema = to_json(inner.pop("parameters")) if "parameters" in inner else ""
    return Tool(
        name,
        description,
        schema,
        carried=carry(NAME, _carry_levels(without(wire, "type", "function"), inner), form),
    )


# ── writing ──────────────────────────────────────────────────────────────────


def render(conversation: Conversation) -> RenderedRequest:
    losses: list[Loss] = []
    messages = list(render_messages([*conversation.system, *conversation.messages], losses))
    settings, form = translate_settings(conversation.settings, NAME, losses)
    wire: Json = {"model": conversation.model} if conversation.model else {}
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
            key = (
                "reasoning"
                if "reasoning" in carried_form(part.carried, NAME)
                else "reasoning_content"
            )
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
    return {"id": audio["id"]} if "id" in audio else audio


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
        key = "refusal" if "refusal" in carried_form(part.carried, NAME) else "text"
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
    if "whole" in form:
        return outer | ({} if "no-id" in form and not call.id else {"id": call.id})
    wire: Json = {} if "no-id" in form and not call.id else {"id": call.id}
    if "no-type" not in form:
        wire["type"] = "custom" if call.kind == "custom" else "function"
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


DIALECT = Dialect(
    name=NAME,
    title="OpenAI chat completions",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="messages",
    rules=RULES,
)
