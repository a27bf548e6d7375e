"""A script: what a model answers, one step for each request, faults included."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.budget.models import wire_name
from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, Opaque, Reasoning, Text
from loom.conversation.parts import walk_parts
from loom.dialects.input import Answer
from loom.errors import ChoiceError, describe, shorten
from loom.providers.wires import WIRES

DEFAULT_MODEL = "scripted"


class Wait(Struct, frozen=True):
    """A step that takes so many seconds before it is `then`."""

    seconds: float
    then: "Step"


class Drip(Struct, frozen=True):
    """A step whose events come so many seconds apart, if the answer is streamed."""

    seconds: float
    then: "Step"


class BreakOff(Struct, frozen=True):
    """A step that breaks off: a stream after so many events, another answer after half of it."""

    then: "Step"
    after: int = 4


class Refuse(Struct, frozen=True):
    """A step that is an error of HTTP. `retry_after` is sent as the header of that name: seconds,
    or the text of a date.
    """

    status: int = 500
    message: str = "the script says so"
    # What the wire calls this error (default: what it calls the status).
    kind: str = ""
    retry_after: float | str | None = None


class TooLong(Struct, frozen=True):
    """A step that refuses the request as longer than the window, in the words of the wire."""

    limit: int = 8_000
    # Tokens of the request (default: as counted).
    asked: int = 0


class Reset(Struct, frozen=True):
    """A step that resets the connection before a byte of the answer."""


# A text, a message or an answer is answered, an exception is raised, a function is given the
# request and returns any of these.
Step: TypeAlias = (
    "str | Message | Answer | BaseException | Wait | Drip | BreakOff | Refuse | TooLong | Reset "
    "| Callable[[Conversation], Step]"
)
_STEPS = (str, Message, Answer, BaseException, Wait, Drip, BreakOff, Refuse, TooLong, Reset)


class Reply(Struct, frozen=True):
    """What a step became for one request, and how it is sent."""

    outcome: Answer | BaseException | Refuse | TooLong | Reset
    # The wire that the answer was made for.
    wire: str = "openai"
    # Seconds before the answer, and between the events of a stream.
    wait: float = 0
    drip: float = 0
    # How many events of a stream are sent before it breaks off.
    breaks_after: int | None = None


class Script:
    """Hands out the steps one after the other, to any thread, and remembers the requests."""

    def __init__(self, steps: Sequence[Step], *, repeats: bool = False) -> None:
        for number, step in enumerate(steps, 1):
            if not _is_step(step):
                raise ChoiceError(
                    f"step {number} of the script is {describe(step)}; give a text, a message, an "
                    "answer, an exception, a Wait, a fault or a function"
                )
        self.requests: list[Conversation] = []
        self.steps = tuple(steps)
        self.repeats = repeats
        self._lock = threading.Lock()

    def take(self, request: Conversation, wire: str = "") -> Reply:
        """The reply to the next request. Waiting is left to the caller."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if number > len(self.steps) and not self.repeats:
            raise ChoiceError(
                f"the script has {len(self.steps)} steps and this is request {number}, which ends "
                f"with {_ending(request)}; "
                "write another step, or use ScriptedModel.always"
            )
        step = self.steps[0 if self.repeats else number - 1]
        return self._resolve(step, request, number, wire)

    def _resolve(self, step: object, request: Conversation, number: int, wire: str) -> Reply:
        reply = Reply(Reset())
        while True:
            match step:
                case Wait():
                    reply, step = replace(reply, wait=reply.wait + step.seconds), step.then
                case Drip():
                    reply, step = replace(reply, drip=step.seconds), step.then
                case BreakOff():
                    reply, step = replace(reply, breaks_after=step.after), step.then
                case str() | Message() | Answer():
                    answer = _make_answer(step, request, number, wire)
                    return replace(reply, outcome=answer, wire=wire or _wire_of(answer))
                case TooLong():
                    asked = step.asked or count_request(request)
                    return replace(reply, outcome=replace(step, asked=asked))
                case Refuse() | Reset() | BaseException():
                    return replace(reply, outcome=step)
                case _ if callable(step):
                    step = step(request)
                case _:
                    raise ChoiceError(
                        f"the script answers request {number} with {describe(step)}; give a text, "
                        "a message or an answer"
                    )

    def check_finished(self) -> None:
        """Raise where steps are left: what was tested asked less often than it should have."""
        left = self.steps[len(self.requests) :]
        if left and not self.repeats:
            raise ChoiceError(
                f"the script has {len(self.steps)} steps and {len(self.requests)} were asked for; "
                f"the next would have been {describe(left[0])}"
            )


def count_request(request: Conversation) -> int:
    """Tokens of a request, as Loom counts them for the model that it names."""
    counter = gate_counter(request.model or None)
    messages = (*request.system, *request.messages)
    return counter.count_messages(messages) + counter.count_tools(request.tools)


def _make_answer(
    step: str | Message | Answer, request: Conversation, number: int, wire: str
) -> Answer:
    """The answer of a step, with the id, the model, the usage and the response that it lacks."""
    if isinstance(step, str):
        step = Message("assistant", (Text(step),) if step else ())
    if isinstance(step, Message):
        step = Answer(messages=(step,), prompt=count_request(request))
        step = replace(step, completion=gate_counter(None).count_message(step.message))
    answer = replace(
        step,
        id=step.id or f"scripted_{number}",
        model=step.model or wire_name(request.model) or DEFAULT_MODEL,
        stop=step.stop or ("calls" if step.tool_calls else "end"),
    )
    if answer.raw and not wire:
        return answer
    response = WIRES[wire or _wire_of(answer)].render_answer(answer)
    return replace(answer, raw=to_json(response))


def _wire_of(answer: Answer) -> str:
    """The wire that can hold an answer: that of its reasoning and of its opaque parts."""
    for message in answer.messages:
        for part in walk_parts(message.parts):
            if isinstance(part, Opaque) and part.wire in WIRES:
                return part.wire
            if isinstance(part, Reasoning) and part.origin in WIRES:
                return part.origin
    return "openai"


def _is_step(value: object) -> bool:
    return isinstance(value, _STEPS) or callable(value)


def _ending(request: Conversation) -> str:
    if not request.messages:
        return "nothing"
    last = request.messages[-1]
    return f"{last.role}: {shorten(' '.join(last.text.split()), 60)!r}"
