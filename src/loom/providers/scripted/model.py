"""A model that answers from a script, and minds being asked too often or too seldom."""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

from loom.conversation.canonical import from_json
from loom.conversation.message import Conversation
from loom.dialects.input import Answer
from loom.errors import BrokenAnswer, ProviderError, RequestTooLong
from loom.providers.models import AnswerEnd, ChatModel, ModelRequest, StreamEvent, conversation_of
from loom.providers.partial import read_partial
from loom.providers.refusals import is_passing, read_retry_after
from loom.providers.scripted.steps import Refuse, Reply, Reset, Script, Step, TooLong
from loom.providers.wires import WIRES

PROVIDER = "scripted"
CHUNK_CHARS = 12  # of a text, in each event of a stream


class ScriptedModel(ChatModel):
    """Answers each request with the next step and remembers the request. As a context manager it
    checks that no step is left.

    It has the shape of every model: `answer`, `stream` and `chat`. A step that is a message may
    hold tool calls, so it drives an agent as well. Faults raise what a real provider raises.
    `weak_model` is another model, which writes the summaries.
    """

    def __init__(self, *steps: Step, weak_model: "ScriptedModel | None" = None) -> None:
        self.script = Script(steps)
        self.weak_model = weak_model

    @classmethod
    def always(cls, step: Step) -> Self:
        """A model that answers every request with the same step, however often it is asked."""
        made = cls(step)
        made.script = Script((step,), repeats=True)
        return made

    @property
    def requests(self) -> list[Conversation]:
        """What the model was asked, as values."""
        return self.script.requests

    async def answer(self, request: ModelRequest) -> Answer:
        """The answer of the next step."""
        reply = self.script.take(conversation_of(request))
        await asyncio.sleep(reply.wait)
        answer = _answer_of(reply)
        if reply.breaks_after is not None:
            raise BrokenAnswer("the script breaks off the answer", provider=PROVIDER)
        return answer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """The answer of the next step, in pieces."""
        reply = self.script.take(conversation_of(request))
        await asyncio.sleep(reply.wait)
        answer = _answer_of(reply)
        wire = WIRES[reply.wire]
        fold = wire.fold()
        for number, event in enumerate(wire.unfold(from_json(answer.raw), cut_text)):
            if number == reply.breaks_after:
                raise BrokenAnswer(
                    "the script breaks off the stream",
                    provider=PROVIDER,
                    partial=read_partial(fold.response()),
                )
            if number:
                await asyncio.sleep(reply.drip)
            if event.data != "[DONE]":
                for piece in fold.feed(from_json(event.data)):
                    yield piece
        yield AnswerEnd(answer)

    def check_finished(self) -> None:
        """Raise where steps are left: what was tested asked less often than it should have."""
        self.script.check_finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Where something went wrong already, steps are left for that reason.
        if error is None:
            self.check_finished()


def cut_text(text: str) -> list[str]:
    """A text in the pieces in which a script streams it."""
    return [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)]


def _answer_of(reply: Reply) -> Answer:
    """The answer, or the error that a client of a real provider raises."""
    match reply.outcome:
        case Answer():
            return reply.outcome
        case BaseException():
            raise reply.outcome
        case Refuse() as refusal:
            raise ProviderError(
                f"the scripted provider answered {refusal.status}: {refusal.message}",
                provider=PROVIDER,
                status=refusal.status,
                is_passing=is_passing(refusal.status),
                retry_after=read_retry_after(refusal.retry_after),
            )
        case TooLong(limit, asked):
            raise RequestTooLong(
                f"the request has {asked:,} tokens, more than the window of {limit:,}",
                provider=PROVIDER,
                status=400,
                limit=limit,
                asked=asked,
            )
        case Reset():
            raise ProviderError(
                "the scripted provider reset the connection", provider=PROVIDER, is_passing=True
            )
