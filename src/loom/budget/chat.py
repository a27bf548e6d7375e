"""Chat dictionaries as messages and tools, read leniently and only as far as counting needs."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from loom.conversation.canonical import to_json
from loom.conversation.message import (
    Carried,
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

_ROLES = ("system", "developer", "user", "assistant", "tool")
_READ = frozenset(
    ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning", "reasoning_content")
)


def as_message(value: Message | Mapping[str, Any]) -> Message:
    """A message as it is, or the message that an OpenAI or Anthropic chat dictionary says."""
    if isinstance(value, Message):
        return value
    role = str(value.get("role", "user"))
    content = value.get("content")
    listed = isinstance(content, list | tuple)
    thoughts = (value.get(key) for key in ("reasoning_content", "reasoning"))
    parts: list[Part] = [
        Reasoning(thought, "openai") for thought in thoughts if isinstance(thought, str)
    ]
    answer = value.get("tool_call_id")
    if answer is not None or role in ("tool", "function"):
        parts.append(
            ToolResult(
                str(answer or ""), tuple(_content(content)), name=str(value.get("name") or "")
            )
        )
        role = "tool"
    else:
        parts += _content(content)
    parts += [_call(call) for call in value.get("tool_calls") or ()]
    return Message(
        role=cast(Role, role) if role in _ROLES else "user",
        parts=tuple(parts),
        author=str(value.get("name") or "") if role != "tool" else "",
        carried=_carry_rest(
            {key: held for key, held in value.items() if key not in _READ and held}, listed
        ),
    )


def as_tool(value: Tool | Mapping[str, Any]) -> Tool:
    """A tool as it is, or the tool that an OpenAI or Anthropic definition says."""
    if isinstance(value, Tool):
        return value
    inner = value.get("function")
    body = inner if isinstance(inner, Mapping) else value
    schema = body.get("parameters", body.get("input_schema"))
    if schema is None:
        schema = ""
    elif not isinstance(schema, str):
        schema = to_json(schema)
    return Tool(
        name=_text_of(body, "name"), description=_text_of(body, "description"), schema=schema
    )


def _carry_rest(fields: dict[str, Any], listed: bool) -> Carried | None:
    """What else a dictionary says, as far as it is JSON, and whether its content was a list."""
    try:
        kept = to_json(fields) if fields else ""
    except TypeError:
        kept = to_json({key: str(held) for key, held in fields.items()})
    if not kept and not listed:
        return None
    return Carried("openai", kept, ("list",) if listed else ())


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    body = function if isinstance(function, Mapping) else call
    arguments = body.get("arguments", body.get("input", ""))
    return ToolCall(
        id=str(call.get("id") or ""),
        name=str(body.get("name") or ""),
        arguments=arguments if isinstance(arguments, str) else to_json(arguments),
        kind=str(call.get("type") or "function"),
    )


def _content(content: Any) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, str):
        if content:
            return [Text(content)]
        return []
    if isinstance(content, list | tuple):
        return [_piece(piece) for piece in content]
    return [Opaque("openai", to_json(content))]


def _piece(piece: Any) -> Part:
    if isinstance(piece, str):
        return Text(piece)
    if not isinstance(piece, Mapping):
        return Opaque("openai", to_json(piece))
    read = _PIECES.get(str(piece.get("type")))
    if read:
        return read(piece)
    return Opaque("openai", to_json(dict(piece)))


def _text_of(piece: Mapping[str, Any], key: str) -> str:
    """What stands under a key, as text; "" where nothing does."""
    return str(piece.get(key) or "")


def _inner_of(piece: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key; an empty one where there is none."""
    inner = piece.get(key)
    if isinstance(inner, Mapping):
        return inner
    return {}


def _read_image_url(piece: Mapping[str, Any]) -> Media:
    image = piece.get("image_url")
    if isinstance(image, Mapping):
        return _image(_text_of(image, "url"), to_json(image))
    return _image(str(image or ""), "")


def _read_image(piece: Mapping[str, Any]) -> Media:
    source = _inner_of(piece, "source")
    if source.get("type") == "base64":
        return Media("image", "data", _text_of(source, "data"), _text_of(source, "media_type"))
    return Media("image", "url", str(source.get("url", "")))


def _read_result(piece: Mapping[str, Any]) -> ToolResult:
    return ToolResult(_text_of(piece, "tool_use_id"), tuple(_content(piece.get("content"))))


def _read_text(piece: Mapping[str, Any]) -> Text:
    return Text(_text_of(piece, "text"))


_PIECES: dict[str, Callable[[Mapping[str, Any]], Part]] = {
    "text": _read_text,
    "input_text": _read_text,
    "output_text": _read_text,
    "image_url": _read_image_url,
    "input_image": _read_image_url,
    "image": _read_image,
    "input_audio": lambda piece: Media(
        "audio", "data", _text_of(_inner_of(piece, "input_audio"), "data")
    ),
    "thinking": lambda piece: Reasoning(
        _text_of(piece, "thinking"), "anthropic", _text_of(piece, "signature")
    ),
    "redacted_thinking": lambda piece: Reasoning(
        "", "anthropic", encrypted=_text_of(piece, "data")
    ),
    "tool_use": lambda piece: _call(piece),
    "tool_result": _read_result,
}


def _image(address: str, fields: str) -> Media:
    # The detail asked for stands beside the address, which is long and not repeated here.
    carried = None
    if '"detail":"low"' in fields:
        carried = Carried("openai", fields='{"detail":"low"}')
    if address.startswith("data:"):
        return Media(
            "image",
            "data",
            address.partition(",")[2],
            address[5:].partition(";")[0],
            carried=carried,
        )
    return Media("image", "url", address, carried=carried)
