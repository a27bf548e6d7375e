"""What the wires share when they fold the events of a stream into one response."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from loom.conversation.canonical import to_json
from loom.dialects.input import Answer, StopReason
from loom.providers.models import StreamEvent, WireChunk
from loom.providers.wires.sse import SseEvent

Json = dict[str, Any]


class AnswerFold(Protocol):
    """Folds the events of a stream. `is_ended`: the wire said that the answer is whole."""

    is_ended: bool

    def feed(self, data: Json) -> Iterator[StreamEvent]:
        """Take an event in, and say what it brings."""
        ...

    def response(self) -> Json:
        """The response so far, as it would be without a stream."""
        ...


class Wire(Struct, frozen=True, kw_only=True):
    """How one wire answers: where requests go, how its answers look, and how it streams them."""

    name: str
    # Where requests are posted, after the base URL of the provider.
    path: str
    # Begins to fold a stream.
    fold: Callable[[], AnswerFold]
    # The response of an answer; the events of a response, its texts cut by a function; the body of
    # an error. A client does not need them: they are what a server sends.
    render_answer: Callable[[Answer], Json]
    unfold: Callable[[Json, "Cutter"], Iterator[SseEvent]]
    render_error: Callable[[int, str, str], Json]


Cutter = Callable[[str], list[str]]


class GrowingText(list[str]):
    """A text whose pieces still come. They are joined once, however many they are."""


def grow(holder: Json, key: str, piece: str) -> None:
    """Let a text of an object grow."""
    text = holder.get(key)
    if not isinstance(text, GrowingText):
        text = holder[key] = GrowingText([text] if isinstance(text, str) else [])
    text.append(piece)


def settle(value: Any) -> Any:
    """A value with its growing texts as texts. It shares nothing that still grows."""
    match value:
        case GrowingText():
            return "".join(value)
        case dict():
            return {key: settle(each) for key, each in value.items()}
        case list():
            return [settle(each) for each in value]
    return value


def to_event(data: Json, name: str = "") -> SseEvent:
    return SseEvent(name, to_json(data))


def wire_chunk(data: Json, kind: object = None) -> WireChunk:
    return WireChunk(str(kind or data.get("type") or "chunk"), to_json(data))


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def object_of(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Json]:
    """The objects of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def place_of(value: object, usual: int) -> int:
    """An index that a server gave, or the usual one where it gave none."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return usual


def reason_for(stop: StopReason, names: Mapping[StopReason, str], calls: bool) -> str:
    """What a wire calls the reason; without one, whether the model waits for results."""
    return names[stop or ("calls" if calls else "end")]
