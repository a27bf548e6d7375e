"""What every model is: a request in, an answer out, at once or in pieces.

A request is a `Context` (what `prepare` and `weave` give) or a `Conversation`. A `Context` is sent
with its cache marks, and with markers that name only tools which the request declares.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context, make_conversation
from loom.conversation.canonical import to_json
from loom.conversation.message import Carried, Conversation, Message, Tool
from loom.dialects.input import Answer
from loom.errors import BrokenAnswer, ChoiceError, describe

ModelRequest: TypeAlias = Conversation | Context


class TextChunk(Struct, frozen=True):
    """A piece of what the model says."""

    text: str


class ReasoningChunk(Struct, frozen=True):
    """A piece of what the model thinks, or of a summary of it."""

    text: str


class CallChunk(Struct, frozen=True):
    """A piece of a tool call. The first piece of a call has its id and name; `arguments` is the
    next piece of its JSON text. Pieces of one call have the same `place`.
    """

    place: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class WireChunk(Struct, frozen=True):
    """What only its wire knows: citations, steps of server tools, a compaction. `json` is the
    event as it came.
    """

    kind: str
    json: str


class AnswerEnd(Struct, frozen=True):
    """The last event of every stream that did not fail: the whole answer."""

    answer: Answer


StreamEvent: TypeAlias = TextChunk | ReasoningChunk | CallChunk | WireChunk | AnswerEnd


class Model(Protocol):
    """Whatever answers a request."""

    async def answer(self, request: ModelRequest) -> Answer: ...


class StreamingModel(Model, Protocol):
    """A model that can hand out its answer in pieces. The last event has the same answer that
    `answer` returns. To stop early, close the stream (`aclose`), or cancel the task that reads it.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]: ...


class ChatModel(ABC):
    """The base of Loom's own models: `chat` for messages in any form."""

    # The names of settings are those of this wire.
    wire = "openai"

    @abstractmethod
    async def answer(self, request: ModelRequest) -> Answer:
        """Answer a request."""

    async def chat(
        self,
        messages: Conversation | Context | Iterable[Message | Mapping[str, Any]],
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        *,
        system: str | None = None,
        max_output: int | None = None,
        **settings: Any,
    ) -> Answer:
        """Answer messages in any form: of any wire, of SDKs, or of Loom.

        The answer has `content` (the text) and `tool_calls`. `settings` are fields of the request
        by the names of the provider, such as `temperature=0.2`.
        """
        if isinstance(messages, Context):
            if tools is not None or system is not None or max_output is not None or settings:
                raise ChoiceError(
                    "a Context has its tools, system text and settings; give them to prepare or "
                    "weave"
                )
            return await self.answer(messages)
        request, _ = make_conversation(messages, system, tools)
        if max_output is not None:
            request = replace(request, max_output=max_output)
        if settings:
            request = replace(request, settings=Carried(self.wire, to_json(settings)))
        return await self.answer(request)


def weak_model_of(model: Model | None) -> Model | None:
    """The model that writes summaries: the weak model of a model, or the model itself."""
    return getattr(model, "weak_model", None) or model


def conversation_of(request: ModelRequest) -> Conversation:
    """What a request says, as values, just as it is sent."""
    if isinstance(request, Context):
        return request.sent_conversation
    if not isinstance(request, Conversation):
        raise ChoiceError(
            f"a model answers a Context or a Conversation, found {describe(request)}; give "
            "messages to chat"
        )
    return request


async def collect(stream: AsyncIterator[StreamEvent]) -> Answer:
    """The answer at the end of a stream."""
    async for event in stream:
        if isinstance(event, AnswerEnd):
            return event.answer
    raise BrokenAnswer("the stream ended without an answer")
