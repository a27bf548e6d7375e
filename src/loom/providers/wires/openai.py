"""How OpenAI's chat completions wire answers, and how it streams an answer.

Many servers speak this wire, each with habits of its own. A chunk without an index continues what
came last; a call with a new id is a new call, whatever index it has; so is one with a name, where
the arguments of the last one are whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loom.conversation.canonical import from_json
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

_REASONING = ("reasoning_content", "reasoning")
_TEXTS = ("content", "refusal", *_REASONING)
_REASONS: Mapping[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "stop": "stop",
    "refusal": "content_filter",
    "pause": "stop",
}
_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class _ChatFold:
    def __init__(self) -> None:
        self.is_ended = False
        self._head: Json = {}
        self._choices: dict[int, Json] = {}

    def feed(self, data: Json) -> Iterator[StreamEvent]:
        for key, value in data.items():
            if key != "choices" and (value is not None or key not in self._head):
                self._head[key] = value
        for number, choice in enumerate(objects_of(data.get("choices"))):
            index = place_of(choice.get("index"), number)
            yield from self._feed_choice(index, choice)

    def _feed_choice(self, index: int, choice: Json) -> Iterator[StreamEvent]:
        folded = self._choices.setdefault(index, {"index": index, "message": {}})
        for key, value in choice.items():
            if key == "logprobs":
                folded[key] = _join_logprobs(folded.get(key), value)
            elif key not in ("index", "delta") and (value is not None or key not in folded):
                folded[key] = value
        if folded.get("finish_reason"):
            self.is_ended = True
        delta, message = object_of(choice.get("delta")), folded["message"]
        for event in _feed_delta(message, delta):
            # Pieces of other choices would be taken for pieces of the first.
            if index == 0:
                yield event

    def response(self) -> Json:
        choices = [
            settle(choice | {"message": {"role": "assistant", "content": None} | choice["message"]})
            for _, choice in sorted(self._choices.items())
        ]
        return self._head | {"object": "chat.completion", "choices": choices}


def _feed_delta(message: Json, delta: Json) -> Iterator[StreamEvent]:
    for key, value in delta.items():
        if key == "tool_calls":
            for call in objects_of(value):
                yield _feed_call(message.setdefault("tool_calls", _ChatCalls()), call)
        elif key in _TEXTS and isinstance(value, str):
            grow(message, key, value)
            if value:
                yield ReasoningChunk(value) if key in _REASONING else TextChunk(value)
        elif value is not None:
            message[key] = _join(message.get(key), value)
            if key == "function_call":
                call = object_of(value)
                name, arguments = text_of(call.get("name")), text_of(call.get("arguments"))
                yield CallChunk(0, name=name, arguments=arguments)
            elif key != "role":
                yield wire_chunk(delta, key)
        else:
            message.setdefault(key, None)


class _ChatCalls(list[Json]):
    """The calls of a message, and the index that the server gave to each."""

    def __init__(self) -> None:
        super().__init__()
        self._indexes: list[int] = []

    def find(self, chunk: Json) -> int:
        """The place of the call that a chunk belongs to; that of a new one if it begins one."""
        place = self._find_place(chunk)
        if place == len(self):
            self.append({})
            self._indexes.append(place_of(chunk.get("index"), place))
        return place

    def _find_place(self, chunk: Json) -> int:
        given, index = text_of(chunk.get("id")), place_of(chunk.get("index"), -1)
        places = [n for n, known in enumerate(self._indexes) if index in (-1, known)]
        if given:
            same = [n for n in places if self[n].get("id") == given]
            unnamed = [n for n in places if not self[n].get("id") and index >= 0]
            return (same or unnamed or [len(self)])[-1]
        begins = bool(_inner(chunk).get("name"))
        if not places or (begins and (index < 0 or self._is_whole(places[-1], chunk))):
            return len(self)
        return places[-1]

    def _is_whole(self, place: int, chunk: Json) -> bool:
        """Whether a call has all its arguments, so that more of them are those of another one:
        some servers give all calls one index, and no id.
        """
        inner = _inner(self[place])
        if not inner.get("name") or not _inner(chunk).get("arguments"):
            return False
        try:
            return isinstance(from_json(settle(inner.get("arguments"))), dict)
        except (TypeError, ValueError):
            return False


def _inner(call: Json) -> Json:
    """What a call or a chunk of one says: its name and arguments."""
    return object_of(call.get("function") or call.get("custom"))


def _feed_call(calls: _ChatCalls, chunk: Json) -> CallChunk:
    place, arguments = calls.find(chunk), ""
    call = calls[place]
    for key, value in chunk.items():
        if key in ("function", "custom") and isinstance(value, dict):
            inner = call[key] = object_of(call.get(key))
            for name, piece in value.items():
                if name in ("arguments", "input") and isinstance(piece, str):
                    grow(inner, name, piece)
                    arguments += piece
                elif piece is not None and inner.get(name) != piece:
                    inner[name] = _join(inner.get(name), piece)
        elif key != "index" and value is not None and (value != "" or key not in call):
            call[key] = value
    return CallChunk(place, text_of(chunk.get("id")), text_of(_inner(chunk).get("name")), arguments)


def _join(earlier: Any, value: Any) -> Any:
    """What a field is after its next piece: texts and lists grow, objects grow field by field."""
    if isinstance(earlier, str) and isinstance(value, str):
        return value if earlier == value else earlier + value
    if isinstance(earlier, dict) and isinstance(value, dict):
        return earlier | {key: _join(earlier.get(key), each) for key, each in value.items()}
    if isinstance(earlier, list) and isinstance(value, list):
        return _join_lists(earlier, value)
    return value


def _join_lists(earlier: list[Any], value: list[Any]) -> list[Any]:
    joined = list(earlier)
    for each in value:
        index = each.get("index") if isinstance(each, dict) else None
        if isinstance(index, int) and index < len(joined) and isinstance(joined[index], dict):
            joined[index] = _join(joined[index], each)
        else:
            joined.append(each)
    return joined


def _join_logprobs(earlier: Any, value: Any) -> Any:
    if not isinstance(earlier, dict) or not isinstance(value, dict):
        return earlier if value is None else value
    joined = dict(earlier)
    for key, each in value.items():
        if isinstance(joined.get(key), list) and isinstance(each, list):
            joined[key] = [*joined[key], *each]
        elif each is not None:
            joined[key] = each
    return joined


def _render_answer(answer: Answer) -> Json:
    spoken = list(dialect("openai").render_messages([answer.message], []))
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": 0,
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, "refusal": None}
                | (spoken[0] if spoken else {}),
                "logprobs": None,
                "finish_reason": reason_for(answer.stop, _REASONS, bool(answer.tool_calls)),
            }
        ],
        "usage": {
            "prompt_tokens": answer.prompt,
            "completion_tokens": answer.completion,
            "total_tokens": answer.prompt + answer.completion,
            "prompt_tokens_details": {"cached_tokens": answer.cached},
        }
        | ({} if answer.cost is None else {"cost": answer.cost}),
    }


def _unfold(response: Json, cut: Cutter) -> Iterator[SseEvent]:
    head = {key: response[key] for key in response if key not in ("choices", "usage", "object")}
    head["object"] = "chat.completion.chunk"
    for choice in response["choices"]:
        index = choice["index"]
        for delta in _split_message(choice["message"], cut):
            piece = {"index": index, "delta": delta, "finish_reason": None}
            yield to_event(head | {"choices": [piece]})
        ending = {key: value for key, value in choice.items() if key != "message"}
        yield to_event(head | {"choices": [ending | {"delta": {}}]})
    if "usage" in response:
        yield to_event(head | {"choices": [], "usage": response["usage"]})
    yield SseEvent("", "[DONE]")


def _split_message(message: Json, cut: Cutter) -> Iterator[Json]:
    yield {"role": "assistant"} | {key: None for key in message if message[key] is None}
    for key, value in message.items():
        if key in _TEXTS and isinstance(value, str):
            yield from ({key: piece} for piece in cut(value) or [""])
        elif key == "tool_calls" and isinstance(value, list):
            for index, call in enumerate(value):
                yield from ({"tool_calls": [piece]} for piece in _split_call(index, call, cut))
        elif key != "role" and value is not None:
            yield {key: value}


def _split_call(index: int, call: Json, cut: Cutter) -> Iterator[Json]:
    key, field = ("custom", "input") if "custom" in call else ("function", "arguments")
    inner = object_of(call.get(key))
    yield {"index": index, **call, key: {**inner, field: ""}}
    for piece in cut(text_of(inner.get(field))):
        yield {"index": index, key: {field: piece}}


def _render_error(status: int, kind: str, message: str) -> Json:
    usual, code = _ERRORS.get(status, ("invalid_request_error", None))
    if status >= 500:
        usual = "server_error"
    return {"error": {"message": message, "type": kind or usual, "param": None, "code": code}}


WIRE = Wire(
    name="openai",
    path="/chat/completions",
    fold=_ChatFold,
    render_answer=_render_answer,
    unfold=_unfold,
    render_error=_render_error,
)
