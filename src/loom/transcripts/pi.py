"""pi session files: one record a line, a tree in newer versions, of which the branch of the last
record is read, or all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import (
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.tree import Tree
from loom.dialects import responses
from loom.dialects.wire import carry, expect_object, without
from loom.errors import TranscriptError, WireError
from loom.transcripts import files
from loom.transcripts.linked import Record, grow, list_of, moment, text_of
from loom.transcripts.runs import Run

FORMAT = "pi session"
NAME = "pi"
_WIRES = {
    "anthropic-messages": "anthropic",
    "openai-responses": "responses",
    "openai-codex-responses": "responses",
}


def matches(sample: list[Any]) -> bool:
    first = sample[0] if sample else None
    return isinstance(first, dict) and first.get("type") == "session" and "cwd" in first


def runs(path: Path, sample: list[Any]) -> list[Run]:
    first = sample[0]
    provider, model = first.get("provider"), first.get("modelId")
    for record in sample:
        if isinstance(record, dict) and record.get("type") == "model_change" and not model:
            provider, model = record.get("provider"), record.get("modelId")
    wire = "anthropic" if provider == "anthropic" else "openai"
    head = Conversation(messages=(), model=model if isinstance(model, str) else "")
    read = _reader(path)
    return [
        Run(
            number=0,
            format=FORMAT,
            wire=wire,
            head=head,
            messages=lambda: (message for message, _ in read()),
            timed=read,
        )
    ]


def _branch(path: Path) -> set[str] | None:
    """The ids on the way up from the last record, or none if the file is a plain list."""
    parents: dict[str, str] = {}
    last = ""
    for _, record in files.lines(path):
        if isinstance(record, dict) and isinstance(record.get("id"), str) and "parentId" in record:
            last = record["id"]
            if isinstance(record["parentId"], str):
                parents[last] = record["parentId"]
            else:
                parents[last] = ""
    if not parents:
        return None
    on_branch = set()
    while last and last not in on_branch:
        on_branch.add(last)
        last = parents.get(last, "")
    return on_branch


def _reader(path: Path) -> Callable[[], Iterator[tuple[Message, int]]]:
    branch = _branch(path)

    def read() -> Iterator[tuple[Message, int]]:
        for number, record in files.lines(path):
            if (
                not isinstance(record, dict)
                or record.get("type") != "message"
                or not isinstance(record.get("message"), dict)
            ):
                continue
            if branch is not None and record.get("id") not in branch:
                continue
            try:
                yield _parse(record["message"], f"line {number}"), moment(record.get("timestamp"))
            except WireError as error:
                raise TranscriptError(f"{path}, {error}") from None

    return read


class _SessionHead(Struct):
    """What a file says of its session."""

    id: str = ""
    title: str = ""
    model: str = ""

    def learn(self, record: dict[str, Any]) -> None:
        match record.get("type"):
            case "session":
                self.id = self.id or text_of(record.get("id"))
                self.model = self.model or text_of(record.get("modelId"))
            case "model_change":
                self.model = self.model or text_of(record.get("modelId"))
            case "session_info":
                self.title = text_of(record.get("name")) or self.title


def trees(path: Path) -> list[Tree]:
    """The session with every branch; older versions, which name no parents, in one line."""
    records: list[Record] = []
    head, last = _SessionHead(), ""
    try:
        for number, record in files.lines(path):
            if not isinstance(record, dict):
                continue
            head.learn(record)
            if record.get("type") == "session":
                continue
            records.append(_record(record, number, last))
            last = records[-1].id
        nodes, ends = grow(records)
    except WireError as error:
        raise TranscriptError(f"{path}, {error}") from None
    return [
        Tree(
            id=head.id or path.stem,
            nodes=nodes,
            title=head.title,
            current=ends.get(last, ""),
            model=head.model,
        )
    ]


def _record(record: dict[str, Any], number: int, last: str) -> Record:
    place, parent = f"line {number}", last
    messages: tuple[Message, ...] = ()
    if record.get("type") == "message" and isinstance(record.get("message"), dict):
        messages = (_parse(record["message"], place),)
    if "parentId" in record:
        parent = text_of(record["parentId"])
    id = text_of(record.get("id")) or place
    return Record(
        id=id,
        place=place,
        messages=messages,
        parent=parent,
        created=moment(record.get("timestamp")),
    )


def _parse(wire: dict[str, Any], place: str) -> Message:
    role, content = wire.get("role"), wire.get("content")
    blocks = list_of(content)
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    origin = _WIRES.get(str(wire.get("api")), "openai")
    parts = [
        _part(
            expect_object(block, f"{place}.message.content[{n}]"),
            origin,
            f"{place}.message.content[{n}]",
        )
        for n, block in enumerate(blocks)
    ]
    if role == "toolResult":
        inner = tuple(part for part in parts if isinstance(part, Text | Media | Opaque))
        fields = without(wire, "role", "content", "toolCallId", "toolName", "isError")
        result = ToolResult(
            str(wire.get("toolCallId", "")),
            inner,
            wire.get("isError") is True,
            str(wire.get("toolName", "")),
            carried=carry(NAME, fields),
        )
        return Message("tool", (result,))
    if role == "bashExecution":  # what the user ran and shared
        shared = f"$ {wire.get('command', '')}\n{wire.get('output', '')}"
        return Message(
            "user", (Text(shared),), carried=carry(NAME, without(wire, "role", "command", "output"))
        )
    # the client's account of what stands elsewhere
    if role in ("branchSummary", "compactionSummary"):
        return Message(
            "user",
            (Text(str(wire.get("summary", ""))),),
            carried=carry(NAME, without(wire, "role", "summary")),
        )
    if role == "custom":  # what an extension told the model
        return Message("user", tuple(parts), carried=carry(NAME, without(wire, "content")))
    if role not in ("user", "assistant"):
        raise WireError(
            f"{place}.message.role", "user, assistant, toolResult or bashExecution", role
        )
    return Message(role, tuple(parts), carried=carry(NAME, without(wire, "role", "content")))


def _part(block: dict[str, Any], origin: str, place: str) -> Part:
    match block:
        case {"type": "text", "text": str(text), **rest}:
            return Text(text, carry(NAME, rest))
        case {"type": "thinking", "thinking": str(text), **rest}:
            signature = text_of(rest.pop("thinkingSignature", ""))
            return _reasoning(text, signature, origin, rest)
        case {"type": "toolCall", "id": str(call_id), "name": str(name), **rest}:
            return ToolCall(
                call_id, name, to_json(rest.pop("arguments", {})), carried=carry(NAME, rest)
            )
        case {"type": "image", "data": str(data), "mimeType": str(media_type), **rest}:
            return Media("image", "data", data, media_type, carried=carry(NAME, rest))
        case {"type": str()}:
            return Opaque(NAME, to_json(block))
    raise WireError(f"{place}.type", "the name of a block", block.get("type"))


def _reasoning(text: str, signature: str, origin: str, rest: dict[str, Any]) -> Reasoning:
    """On the responses wire the signature is the whole item, as text."""
    if origin == "responses" and signature.startswith("{"):
        try:
            item = from_json(signature)
            parsed = next(responses.parse_messages([item])).parts[0]
            if isinstance(parsed, Reasoning):
                return parsed
        except (ValueError, WireError):
            pass
    return Reasoning(
        text, origin, signature if origin == "anthropic" else "", carried=carry(NAME, rest)
    )
