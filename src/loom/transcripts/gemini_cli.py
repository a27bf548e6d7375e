"""Gemini CLI sessions: one line of messages, those of the model with its thoughts, its calls and
their results.
"""

from collections.abc import Iterator
from typing import Any, Literal

from loom.conversation.canonical import to_json
from loom.conversation.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.tree import Flags, Tree
from loom.dialects.wire import Json, carry, expect_list, expect_object, expect_text, without
from loom.errors import WireError
from loom.transcripts.linked import Record, drop_empty, grow, moment, name_of, text_of

FORMAT = "Gemini CLI session"
NAME = "gemini-cli"
_NOTICES = ("info", "warning", "error")  # the client's own words, which the model never saw


def matches(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("messages"), list)
        and isinstance(value.get("sessionId"), str)
        and ("projectHash" in value or "startTime" in value)
    )


def trees(value: Json) -> Iterator[Tree]:
    records: list[Record] = []
    for n, wire in enumerate(value["messages"]):
        place = f"messages[{n}]"
        records.append(
            _record(expect_object(wire, place), records[-1].id if records else "", place)
        )
    nodes, ends = grow(records)
    fields = without(value, "sessionId", "messages", "summary")
    if created := moment(value.get("startTime")):
        del fields["startTime"]
    yield Tree(
        id=value["sessionId"] or expect_text(records[0].id if records else None, "sessionId"),
        nodes=nodes,
        title=text_of(value.get("summary")),
        current=ends[records[-1].id] if records else "",
        model=next((record.author for record in records if record.author), ""),
        created=created,
        carried=carry(NAME, drop_empty(fields)),
    )


def _record(wire: Json, parent: str, place: str) -> Record:
    kind = wire.get("type")
    content = _content(wire.get("content"), f"{place}.content")
    fields = without(wire, "id", "timestamp", "type", "content", "model", "thoughts", "toolCalls")
    if kind == "gemini":
        messages = _exchange(wire, content, fields, place)
    elif kind == "user":
        messages = [Message("user", tuple(content), carried=carry(NAME, drop_empty(fields)))]
    elif kind in _NOTICES:
        messages = [
            Message(
                "system", tuple(content), carried=carry(NAME, drop_empty({"type": kind, **fields}))
            )
        ]
    else:
        raise WireError(f"{place}.type", "user, gemini, info, warning or error", kind)
    return Record(
        id=name_of(wire, "id", place),
        place=place,
        messages=tuple(message for message in messages if message.parts),
        parent=parent,
        author=text_of(wire.get("model")),
        flags=Flags(excluded=kind in _NOTICES),
        created=moment(wire.get("timestamp")),
    )


def _exchange(wire: Json, content: list[Part], fields: Json, place: str) -> list[Message]:
    """A message of the model, and the results of its calls."""
    parts: list[Part] = []
    for n, thought in enumerate(expect_list(wire.get("thoughts") or [], f"{place}.thoughts")):
        told = expect_object(thought, f"{place}.thoughts[{n}]")
        words = [text_of(told.get(key)) for key in ("subject", "description")]
        rest = without(told, "subject", "description")
        parts.append(
            Reasoning("\n".join(filter(None, words)), NAME, carried=carry(NAME, drop_empty(rest)))
        )
    parts += content
    results: list[Part] = []
    for n, given in enumerate(expect_list(wire.get("toolCalls") or [], f"{place}.toolCalls")):
        at = f"{place}.toolCalls[{n}]"
        call = expect_object(given, at)
        id, name = (
            expect_text(call.get("id"), f"{at}.id"),
            expect_text(call.get("name"), f"{at}.name"),
        )
        parts.append(ToolCall(id, name, to_json(call.get("args", {}))))
        if call.get("result") is not None:
            rest = without(call, "id", "name", "args", "result")
            answer = _answer(call["result"], f"{at}.result")
            failed = call.get("status") == "error"
            results.append(
                ToolResult(id, answer, failed, name, carried=carry(NAME, drop_empty(rest)))
            )
    return [
        Message("assistant", tuple(parts), carried=carry(NAME, drop_empty(fields))),
        Message("tool", tuple(results)),
    ]


def _answer(result: Any, place: str) -> tuple[Text | Media | Opaque, ...]:
    parts: list[Text | Media | Opaque] = []
    for piece in _content(result, place):
        match piece:
            case Text() | Media() | Opaque():
                parts.append(piece)
    return tuple(parts)


def _content(content: Any, place: str) -> list[Part]:
    if isinstance(content, str):
        if content:
            return [Text(content)]
        return []
    return [
        _part(given, f"{place}[{n}]") for n, given in enumerate(expect_list(content or [], place))
    ]


def _part(given: Any, place: str) -> Part:
    match given:
        case str():
            return Text(given)
        case {"functionResponse": {"response": {"output": str(text), **others}}} if not others:
            return Text(text)
        case {"text": str(text), **rest}:
            return Text(text, carry(NAME, drop_empty(rest)))
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return Media(_SORTS.get(kind.partition("/")[0], "file"), "data", data, kind)
        case dict():
            return Opaque(NAME, to_json(given))
    raise WireError(place, "a text or an object", given)


# of media; another is a file
_SORTS: dict[str, Literal["image", "audio"]] = {"image": "image", "audio": "audio"}
