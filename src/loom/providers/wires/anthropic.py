"""How Anthropic's messages wire answers, and how it streams an answer."""

from collections.abc import Iterator, Mapping

from loom.conversation.canonical import from_json, to_json
from loom.dialects import dialect
from loom.dialects.input import Answer, StopReason
from loom.providers.models import CallChunk, ReasoningChunk, StreamEvent, TextChunk
from loom.providers.wires.folding import (
    Cutter,
    Json,
    Wire,
    grow,
    object_of,
    objects_of,
    place_of,
    reason_for,
    settle,
    text_of,
    to_event,
    wire_chunk,
)
from loom.providers.wires.sse import SseEvent

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# Fields of a text that a delta continues, by the type of the delta.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking"}
_REASONS: Mapping[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "stop": "stop_sequence",
    "refusal": "refusal",
    "pause": "pause_turn",
}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class _MessageFold:
    def __init__(self) -> None:
        self.is_ended = False
        self._message: Json = {"type": "message", "role": "assistant", "usage": {}}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}  # JSON text of calls that are not whole yet

    def feed(self, data: Json) -> Iterator[StreamEvent]:
        match data.get("type"):
            case "message_start":
                self._message |= object_of(data.get("message"))
                for block in objects_of(self._message.pop("content", None)):
                    self._blocks[len(self._blocks)] = block
            case "content_block_start":
                yield from self._begin_block(data)
            case "content_block_delta":
                yield from self._continue_block(data)
            case "content_block_stop":
                self._end_input(place_of(data.get("index"), 0))
            case "message_delta":
                self._end_message(data)
            case "message_stop":
                self.is_ended = True
            case "ping":
                pass
            case _:
                yield wire_chunk(data)

    def _begin_block(self, data: Json) -> Iterator[StreamEvent]:
        place, block = (
            place_of(data.get("index"), len(self._blocks)),
            object_of(data.get("content_block")),
        )
        self._blocks[place] = dict(block)
        match block.get("type"):
            case "tool_use":
                yield CallChunk(place, text_of(block.get("id")), text_of(block.get("name")))
            case "text":
                if block.get("text"):
                    yield TextChunk(text_of(block["text"]))
            case "thinking":
                if block.get("thinking"):
                    yield ReasoningChunk(text_of(block["thinking"]))
            case _:
                yield wire_chunk(data, block.get("type"))

    def _continue_block(self, data: Json) -> Iterator[StreamEvent]:
        place, delta = place_of(data.get("index"), 0), object_of(data.get("delta"))
        block = self._blocks.setdefault(place, {"type": "text", "text": ""})
        kind = text_of(delta.get("type"))
        if kind in _TEXTS:
            field = _TEXTS[kind]
            piece = text_of(delta.get(field))
            grow(block, field, piece)
            yield TextChunk(piece) if kind == "text_delta" else ReasoningChunk(piece)
        elif kind == "input_json_delta":
            piece = text_of(delta.get("partial_json"))
            self._inputs.setdefault(place, []).append(piece)
            if block.get("type") == "tool_use":
                yield CallChunk(place, arguments=piece)
            else:
                yield wire_chunk(data, kind)
        elif kind == "signature_delta":
            grow(block, "signature", text_of(delta.get("signature")))
        elif kind == "citations_delta":
            block["citations"] = [*objects_of(block.get("citations")), delta.get("citation")]
            yield wire_chunk(data, kind)
        else:  # a compaction, and what is newer than this table, is whole in one delta
            block |= {key: value for key, value in delta.items() if key != "type"}
            yield wire_chunk(data, kind)

    def _end_input(self, place: int) -> None:
        written = "".join(self._inputs.pop(place, ()))
        if written.strip():
            self._blocks[place]["input"] = _read_input(written)

    def _end_message(self, data: Json) -> None:
        self._message |= object_of(data.get("delta"))
        told = object_of(data.get("usage"))
        usage = {key: value for key, value in told.items() if value is not None}
        self._message["usage"] = {**object_of(self._message.get("usage")), **usage}
        others = {key: data[key] for key in data if key not in ("type", "delta", "usage")}
        self._message |= {key: value for key, value in others.items() if value is not None}

    def response(self) -> Json:
        blocks = {place: settle(block) for place, block in self._blocks.items()}
        for place, pieces in self._inputs.items():  # of a stream that broke off
            written = "".join(pieces)
            if written.strip():
                blocks[place]["input"] = _read_input(written)
        for block in blocks.values():
            if block.get("type") in _CALLS:
                block.setdefault("input", {})
        return self._message | {"content": [blocks[place] for place in sorted(blocks)]}


def _read_input(written: str) -> Json:
    """The arguments of a call. Text that is not an object is put into one, as in requests."""
    try:
        value = from_json(written)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"input": written}


def _render_answer(answer: Answer) -> Json:
    content: list[Json] = []
    for wire in dialect("anthropic").render_messages(list(answer.messages), []):
        said = wire["content"]
        content += [{"type": "text", "text": said}] if isinstance(said, str) and said else []
        content += said if isinstance(said, list) else []
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": reason_for(answer.stop, _REASONS, bool(answer.tool_calls)),
        "stop_sequence": None,
        "usage": {
            "input_tokens": max(answer.prompt - answer.cached - answer.written, 0),
            "cache_read_input_tokens": answer.cached,
            "cache_creation_input_tokens": answer.written,
            "output_tokens": answer.completion,
        },
    }


def _unfold(response: Json, cut: Cutter) -> Iterator[SseEvent]:
    start = response | {"content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = response["usage"] | {"output_tokens": 1}
    yield _event({"type": "message_start", "message": start})
    yield _event({"type": "ping"})
    for index, block in enumerate(response["content"]):
        begin, deltas = _split_block(block, cut)
        yield _event({"type": "content_block_start", "index": index, "content_block": begin})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    ending = {key: response.get(key) for key in ("stop_reason", "stop_sequence")}
    yield _event({"type": "message_delta", "delta": ending, "usage": response["usage"]})
    yield _event({"type": "message_stop"})


def _split_block(block: Json, cut: Cutter) -> tuple[Json, list[Json]]:
    """How a block begins, and what completes it."""
    match block:
        case {"type": "text", "text": str(text)}:
            cites = [
                {"type": "citations_delta", "citation": each}
                for each in block.get("citations") or []
            ]
            begin = block | {"text": ""} | ({"citations": []} if cites else {})
            return begin, [*({"type": "text_delta", "text": one} for one in cut(text)), *cites]
        case {"type": "thinking", "thinking": str(text)}:
            pieces: list[Json] = [{"type": "thinking_delta", "thinking": one} for one in cut(text)]
            if "signature" in block:
                pieces.append({"type": "signature_delta", "signature": block["signature"]})
                return block | {"thinking": "", "signature": ""}, pieces
            return block | {"thinking": ""}, pieces
        case {"type": str(kind), "input": value} if kind in _CALLS:
            begun = block | {"input": {}}
            written = to_json(value) if value else ""
            return begun, [{"type": "input_json_delta", "partial_json": p} for p in cut(written)]
        case {"type": "compaction"}:
            whole: Json = {
                key: block[key] for key in ("content", "encrypted_content") if key in block
            }
            return block | dict.fromkeys(whole), [{"type": "compaction_delta", **whole}]
    return block, []


def _event(data: Json) -> SseEvent:
    return to_event(data, data["type"])


def _render_error(status: int, kind: str, message: str) -> Json:
    usual = _ERRORS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind or usual, "message": message}}


WIRE = Wire(
    name="anthropic",
    path="/v1/messages",
    fold=_MessageFold,
    render_answer=_render_answer,
    unfold=_unfold,
    render_error=_render_error,
)
