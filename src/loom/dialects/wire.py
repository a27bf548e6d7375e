"""What every dialect is made of: findings, losses, and the reading and writing of carried
fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from loom.conversation.canonical import from_json, to_json, to_sendable
from loom.conversation.checked import MAX_NUMBER
from loom.conversation.message import (
    Carried,
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Text,
    Tool,
)
from loom.errors import WireError

Json = dict[str, Any]
Level = Literal["error", "warning"]
# By the name of a field: the rule that it breaks, and whether only when it is empty.
AnswerFields = Mapping[str, tuple[str, bool]]
# What one value of a list became: messages; or parts of a message that the model wrote, which the
# next value may continue with.
Parsed = tuple[Message, ...] | list[Part]


class WireRule(Struct, frozen=True):
    """A rule of one wire: what it demands, what to do when it is broken, and where the servers say
    so.
    """

    level: Level
    demands: str
    way_out: str
    evidence: str


class Finding(Struct, frozen=True):
    """A broken rule at a place in a request."""

    rule: str
    level: Level
    place: str
    text: str
    way_out: str


class Loss(Struct, frozen=True):
    """Something that a wire cannot hold and that was left out, or written another way, in
    converting to it.
    """

    place: str
    what: str


class RenderedRequest(Struct, frozen=True):
    """A request body, and what it could not hold."""

    wire: Any
    losses: tuple[Loss, ...]


def finish(wire: Any, losses: list[Loss]) -> RenderedRequest:
    """What was rendered, in texts that can be sent: half of a surrogate pair has no form in UTF-8,
    so U+FFFD stands for it.
    """
    try:
        msgspec.json.encode(wire)
    except (UnicodeEncodeError, OverflowError, RecursionError, TypeError):
        sendable = _sendable(wire)
        if sendable != wire:
            losses.append(Loss("request", "halves of surrogate pairs; U+FFFD replaces each"))
        wire = sendable
    return RenderedRequest(wire, tuple(losses))


def _sendable(value: Any) -> Any:
    match value:
        case str():
            return to_sendable(value)
        case list():
            return [_sendable(each) for each in value]
        case dict():
            return {_sendable(key): _sendable(each) for key, each in value.items()}
    return value


class Dialect(Struct, frozen=True, kw_only=True):
    """The JSON of one API, both ways. The `_messages` forms work on streams, so that a long history
    need not be held.
    """

    name: str
    title: str
    parse: Callable[[Any], Conversation]
    render: Callable[[Conversation], RenderedRequest]
    check: Callable[[Any], list[Finding]]
    parse_messages: Callable[[Iterable[Any]], Iterator[Message]]
    render_messages: Callable[[Iterable[Message], list[Loss]], Iterator[Any]]
    check_messages: Callable[[Iterable[Any]], Iterator[Finding]]
    messages_key: str
    rules: Mapping[str, WireRule]
    # The first system message that is among the messages, as are those after it. None if all are in
    # a field of their own.
    first_listed_system: int | None = None
    # Words in the names of the models that this API serves.
    model_words: tuple[str, ...] = ()
    # What only answers have: fields of a message, and of its parts.
    answer_fields: AnswerFields = {}
    answer_part_fields: AnswerFields = {}
    # By the type of a part: forms that this wire refuses, though they were read from its own JSON.
    # Without them the part is written as the wire demands.
    refused_forms: Mapping[str, frozenset[str]] = {}


def finder(rules: Mapping[str, WireRule]) -> Callable[[str, str, str], Finding]:
    """A function that makes the finding for a rule of this table."""

    def find(rule: str, place: str, detail: str = "") -> Finding:
        row = rules[rule]
        return Finding(
            rule, row.level, place, f"{row.demands}{': ' + detail if detail else ''}", row.way_out
        )

    return find


def answer_fields_in(
    wire: Mapping[str, Any], table: Mapping[str, tuple[str, bool]]
) -> Iterator[tuple[str, str]]:
    """The fields of an object that only answers have, and the rule that each breaks; some only
    where they are empty.
    """
    for name, (rule, only_empty) in table.items():
        empty: tuple[Any, ...] = (None,) if rule == "null-field" else (None, [])
        if name in wire and (not only_empty or wire[name] in empty):
            yield name, rule


def carry(
    wire: str, fields: Mapping[str, Any] | None = None, form: Iterable[str] = ()
) -> Carried | None:
    """What to keep with a value; nothing where there is nothing to keep."""
    kept, spelling = to_json(fields) if fields else "", tuple(form)
    if kept or spelling:
        return Carried(wire, kept, spelling)
    return None


def carried_fields(carried: Carried | None, wire: str) -> Json:
    """The fields carried for this wire, as a fresh dictionary."""
    if carried is None or carried.wire != wire or not carried.fields:
        return {}
    fields: Json = from_json(carried.fields)
    return fields


def carried_form(carried: Carried | None, wire: str) -> tuple[str, ...]:
    if carried is not None and carried.wire == wire:
        return carried.form
    return ()


def note_foreign(carried: Carried | None, wire: str, place: str, losses: list[Loss]) -> None:
    """Add a loss for each field that another provider's wire carried and this one cannot hold."""
    if carried is None or carried.wire == wire or not carried.fields:
        return
    losses += [Loss(place, f"the field {name}") for name in _names(from_json(carried.fields))]


def _names(fields: Json) -> list[str]:
    """The names as the wire spells them: what stands one level down for order's sake is named
    without it.
    """
    names = []
    for key, value in fields.items():
        if key in ("outer", "inner", "item", "part") and isinstance(value, dict):
            names += _names(value)
        elif value not in (None, [], {}, ""):
            names.append(key)
    return names


def strictness(tool: Tool) -> bool | None:
    """Whether arguments are held to the schema, where the tool says so: every wire has the field,
    with a default of its own.
    """
    strict = _tool_fields(tool).get("strict")
    if isinstance(strict, bool):
        return strict
    return None


def foreign_to_tool(tool: Tool, wire: str) -> list[str]:
    """Names of the fields of a tool that another provider's wire carried and this one cannot
    hold.
    """
    if tool.carried is None or tool.carried.wire == wire:
        return []
    return [
        key
        for key, value in _tool_fields(tool).items()
        if key != "strict" and value not in (None, [], {}, "")
    ]


def _tool_fields(tool: Tool) -> Json:
    if tool.carried is None or not tool.carried.fields:
        return {}
    fields: Json = from_json(tool.carried.fields)
    nested = tool.carried.wire == "openai" and tool.kind == "function"
    if nested:
        return {**fields.get("outer", {}), **fields.get("inner", {})}
    return fields


def without(wire: Mapping[str, Any], *known: str) -> Json:
    return {key: value for key, value in wire.items() if key not in known}


def expect_object(value: Any, place: str) -> Json:
    if not isinstance(value, dict):
        raise WireError(place, "an object", value)
    return value


def expect_list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise WireError(place, "a list", value)
    return value


def expect_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise WireError(place, "a text", value)
    return value


def is_limit(value: Any) -> bool:
    """Whether a value can be how many tokens an answer may take."""
    return type(value) is int and 1 <= value <= MAX_NUMBER


def take_head(
    body: Json, fields: Json, parse_tool: Callable[[Json, str], Tool]
) -> tuple[str, tuple[Tool, ...]]:
    """The model and the tools of a request; where they say nothing, they are left among its other
    fields as they are spelt.
    """
    model, tools = body.get("model"), body.get("tools")
    if "model" in body and not (isinstance(model, str) and model):
        fields["model"] = model
    if "tools" in body and not tools:
        fields["tools"] = tools
    given = expect_list(tools, "tools") if tools else []
    parsed = tuple(
        parse_tool(expect_object(tool, f"tools[{n}]"), f"tools[{n}]")
        for n, tool in enumerate(given)
    )
    return model if isinstance(model, str) else "", parsed


def parse_content(
    content: list[Any], place: str, parse_part: Callable[[Json, str], Part]
) -> list[Part]:
    return [
        parse_part(expect_object(part, f"{place}[{n}]"), f"{place}[{n}]")
        for n, part in enumerate(content)
    ]


def is_plain(parts: Iterable[Part]) -> str | None:
    """The text, where the parts are one text and nothing is carried with it."""
    match tuple(parts):
        case (Text(text, None),):
            return text
    return None


def data_url(media: Media) -> str:
    return f"data:{media.media_type or 'application/octet-stream'};base64,{media.value}"


def split_data_url(url: str) -> tuple[str, str] | None:
    """Media type and base64 data of a data address in its usual spelling; none if writing it
    again would change it.
    """
    head, comma, data = url.partition(",")
    media_type = head[5 : -len(";base64")]
    if (
        comma
        and head.startswith("data:")
        and head.endswith(";base64")
        and media_type
        and ";" not in media_type
    ):
        return media_type, data
    return None


def placeholder(part: Part) -> str:
    """What replaces media or an opaque piece in a text."""
    if isinstance(part, Media):
        if part.source in ("url", "id"):
            where = part.value
        else:
            where = f"{len(part.value)} characters of data"
        return f"[{part.kind}{' ' + part.media_type if part.media_type else ''}: {where}]"
    if isinstance(part, Opaque):
        return f"[{from_json(part.json).get('type', 'piece')} of the {part.wire} wire]"
    raise TypeError(f"a {type(part).__name__} has a text of its own")


def transcript(part: Opaque, place: str, losses: list[Loss]) -> str:
    """The words of what a model said aloud, for a wire that cannot hold the sound; "" for any other
    piece.
    """
    words = None
    if part.wire == "openai" and "audio" in part.form:
        words = from_json(part.json).get("transcript")
    if not isinstance(words, str) or not words.strip():
        return ""
    losses.append(Loss(place, "the sound of what the model said; its transcript is kept"))
    return words


def opaque(wire: str, block: Json, form: Iterable[str] = ()) -> Opaque:
    """Keep a piece as it is; what a server's own tool was asked and answered is paired by id."""
    kind = block.get("type")
    call_id, answers = "", False
    if isinstance(kind, str):
        if kind.endswith("_tool_use"):
            call_id = _id_text(block.get("id"))
        elif kind.endswith("_tool_result"):
            call_id, answers = _id_text(block.get("tool_use_id")), True
    return Opaque(wire, to_json(block), call_id, answers, tuple(form))


def _id_text(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    return to_json(value)


def remember(seen: dict[str, None], call_id: str, limit: int = 100_000) -> None:
    """Remember an id, and forget the oldest past the limit, so that a stream of any length is
    checked in bounded memory.
    """
    seen[call_id] = None
    if len(seen) > limit:
        del seen[next(iter(seen))]
