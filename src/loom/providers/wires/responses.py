"""How OpenAI's responses wire answers, and how it streams an answer."""

from collections.abc import Iterator
from typing import Any

from loom.dialects import dialect
from loom.dialects.input import Answer
from loom.providers.models import CallChunk, ReasoningChunk, StreamEvent, TextChunk
from loom.providers.wires.folding import (
    Cutter,
    Json,
    Wire,
    grow,
    object_of,
    objects_of,
    place_of,
    settle,
    text_of,
    to_event,
    wire_chunk,
)
from loom.providers.wires.sse import SseEvent

_ENDINGS = ("response.completed", "response.incomplete", "response.failed")
_STATES = ("response.created", "response.in_progress", "response.queued", *_ENDINGS)
# By the type of an event: where in an item its text belongs (a list and the field of its parts, or
# a field of the item).
_TEXTS = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}
_ARGUMENTS = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
# What repeats whole what came in pieces; `response.output_item.done` has all of it.
_REPEATS = (
    "response.output_text.done",
    "response.refusal.done",
    "response.reasoning_text.done",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.function_call_arguments.done",
    "response.custom_tool_call_input.done",
)
_CALLS = ("function_call", "custom_tool_call")


class _ItemFold:
    def __init__(self) -> None:
        self.is_ended = False
        self._response: Json = {}
        self._items: dict[int, Json] = {}

    def feed(self, data: Json) -> Iterator[StreamEvent]:
        kind = text_of(data.get("type"))
        place = place_of(data.get("output_index"), max(self._items, default=0))
        if kind in _STATES:
            self._response |= object_of(data.get("response"))
            self.is_ended = self.is_ended or kind in _ENDINGS
        elif kind in _TEXTS:
            yield self._feed_text(kind, place, data)
        elif kind in _ARGUMENTS:
            item, field = self._item(place), _ARGUMENTS[kind]
            piece = text_of(data.get("delta"))
            grow(item, field, piece)
            yield CallChunk(place, arguments=piece)
        elif kind == "response.output_item.added":
            yield from self._begin_item(place, data)
        elif kind == "response.output_item.done":
            self._items[place] = object_of(data.get("item"))
        elif kind not in _REPEATS:
            yield wire_chunk(data)

    def _item(self, place: int) -> Json:
        return self._items.setdefault(place, {"type": "message", "role": "assistant"})

    def _begin_item(self, place: int, data: Json) -> Iterator[StreamEvent]:
        item = self._items[place] = dict(object_of(data.get("item")))
        if item.get("type") in _CALLS:
            yield CallChunk(place, text_of(item.get("call_id")), text_of(item.get("name")))
        elif item.get("type") not in ("message", "reasoning"):
            yield wire_chunk(data, item.get("type"))

    def _feed_text(self, kind: str, place: int, data: Json) -> StreamEvent:
        field, index, part_type, key = _TEXTS[kind]
        item = self._item(place)
        parts = item[field] = list(objects_of(item.get(field)))
        at = min(place_of(data.get(index), 0), len(parts))
        if at == len(parts):
            parts.append({"type": part_type, key: ""})
        piece = text_of(data.get("delta"))
        grow(parts[at], key, piece)
        return ReasoningChunk(piece) if "reasoning" in kind else TextChunk(piece)

    def response(self) -> Json:
        # The last event repeats the whole output; some servers leave it empty.
        if self._response.get("output") and self.is_ended:
            return self._response
        return self._response | {"output": [settle(self._items[at]) for at in sorted(self._items)]}


def _render_answer(answer: Answer) -> Json:
    items = list(dialect("responses").render_messages(list(answer.messages), []))
    output = [_as_output(item, f"{answer.id}_{n}") for n, item in enumerate(items)]
    reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
    reason = reasons.get(answer.stop)
    return {
        "id": answer.id,
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": answer.prompt,
            "input_tokens_details": {"cached_tokens": answer.cached},
            "output_tokens": answer.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt + answer.completion,
        },
    }


def _as_output(item: Json, name: str) -> Json:
    """An item of a request as an item of an answer, which has an id, a state and lists."""
    made = {"id": name, **item}
    if made.get("type") == "message":
        content = made.get("content")
        if isinstance(content, str):
            content = [{"type": "output_text", "text": content}]
        made["content"] = [
            {"annotations": [], **part} if part.get("type") == "output_text" else part
            for part in objects_of(content)
        ]
    if made.get("type") == "reasoning":
        made.setdefault("summary", [])
    if made.get("type") in ("message", *_CALLS):
        made.setdefault("status", "completed")
    return made


class _Numbers:
    """Numbers the events of one stream, as the wire demands."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> SseEvent:
        data = {"type": kind, "sequence_number": self._next, **fields}
        self._next += 1
        return to_event(data, kind)


def _unfold(response: Json, cut: Cutter) -> Iterator[SseEvent]:
    numbers = _Numbers()
    begun = response | {"status": "in_progress", "output": [], "usage": None}
    begun["incomplete_details"] = None
    yield numbers.event("response.created", response=begun)
    yield numbers.event("response.in_progress", response=begun)
    for index, item in enumerate(response["output"]):
        at = {"output_index": index}
        yield numbers.event("response.output_item.added", **at, item=_begin(item))
        about = at | {"item_id": item.get("id")}
        if item.get("type") == "message":
            yield from _unfold_message(numbers, item, about, cut)
        elif item.get("type") == "reasoning":
            yield from _unfold_reasoning(numbers, item, about, cut)
        elif item.get("type") in _CALLS:
            yield from _unfold_call(numbers, item, about, cut)
        yield numbers.event("response.output_item.done", **at, item=item)
    ending = "response.incomplete" if response["status"] == "incomplete" else "response.completed"
    yield numbers.event(ending, response=response)


def _begin(item: Json) -> Json:
    """An item before its texts came."""
    kind, begun = item.get("type"), dict(item)
    if kind == "message":
        begun |= {"content": [], "status": "in_progress"}
    elif kind == "reasoning":
        begun["summary"] = []
        if "content" in begun:
            begun["content"] = []
    elif kind in _CALLS:
        begun |= {"input" if kind == "custom_tool_call" else "arguments": ""}
        begun["status"] = "in_progress"
    return begun


def _unfold_message(numbers: _Numbers, item: Json, about: Json, cut: Cutter) -> Iterator[SseEvent]:
    for index, part in enumerate(item["content"]):
        at = about | {"content_index": index}
        kind = "refusal" if part.get("type") == "refusal" else "output_text"
        key = "refusal" if kind == "refusal" else "text"
        begun = part | {key: ""} if key in part else part
        yield numbers.event("response.content_part.added", **at, part=begun)
        more: Json = {"logprobs": []} if kind == "output_text" else {}
        for piece in cut(text_of(part.get(key))):
            yield numbers.event(f"response.{kind}.delta", **at, **more, delta=piece)
        yield numbers.event(f"response.{kind}.done", **at, **more, **{key: part.get(key)})
        yield numbers.event("response.content_part.done", **at, part=part)


def _unfold_reasoning(
    numbers: _Numbers, item: Json, about: Json, cut: Cutter
) -> Iterator[SseEvent]:
    for field, name in (("summary", "reasoning_summary"), ("content", "reasoning")):
        for index, part in enumerate(objects_of(item.get(field))):
            at = about | {f"{field}_index": index}
            text = text_of(part.get("text"))
            if field == "summary":
                begun = part | {"text": ""}
                yield numbers.event("response.reasoning_summary_part.added", **at, part=begun)
            for piece in cut(text):
                yield numbers.event(f"response.{name}_text.delta", **at, delta=piece)
            yield numbers.event(f"response.{name}_text.done", **at, text=text)
            if field == "summary":
                yield numbers.event("response.reasoning_summary_part.done", **at, part=part)


def _unfold_call(numbers: _Numbers, item: Json, about: Json, cut: Cutter) -> Iterator[SseEvent]:
    name, key = "function_call_arguments", "arguments"
    if item["type"] == "custom_tool_call":
        name, key = "custom_tool_call_input", "input"
    for piece in cut(text_of(item.get(key))):
        yield numbers.event(f"response.{name}.delta", **about, delta=piece)
    whole = about | {key: item.get(key)} | ({"name": item.get("name")} if key != "input" else {})
    yield numbers.event(f"response.{name}.done", **whole)


def _render_error(status: int, kind: str, message: str) -> Json:
    code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    usual = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind or usual, "param": None, "code": code}}


WIRE = Wire(
    name="responses",
    path="/responses",
    fold=_ItemFold,
    render_answer=_render_answer,
    unfold=_unfold,
    render_error=_render_error,
)
