"""The public fake: a model that answers from a script, and minds being asked too often or too
seldom.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeAlias

from msgspec import Struct

from loom.conversation.message import Conversation, Message, Text
from loom.errors import ChoiceError, describe, shorten


class Wait(Struct, frozen=True):
    """A step that takes so many seconds before it is `then`."""

    seconds: float
    then: "Step"


# A text or a message is answered, an exception is raised, a function is given the request and
# returns any of these.
Step: TypeAlias = "str | Message | BaseException | Wait | Callable[[Conversation], Step]"


class ScriptedModel:
    """Answers each request with the next step and remembers the request. As a context manager it
    checks that no step is left.

    It has the shape of every model: `answer`. A step that is a message may hold tool calls, so it
    drives an agent as well.
    """

    def __init__(self, *steps: Step) -> None:
        for number, step in enumerate(steps, 1):
            if not _is_step(step):
                raise ChoiceError(
                    f"step {number} of the script is {describe(step)}; give a text, a message, an "
                    "exception, a Wait or a function"
                )
        self.requests: list[Conversation] = []
        self._steps = steps
        self._always = False

    @classmethod
    def always(cls, step: Step) -> Self:
        """A model that answers every request with the same step, however often it is asked."""
        made = cls(step)
        made._always = True
        return made

    async def answer(self, request: Conversation) -> Message:
        self.requests.append(request)
        asked = len(self.requests)
        if asked > len(self._steps) and not self._always:
            raise ChoiceError(
                f"the script has {len(self._steps)} steps and this is request {asked}, which ends "
                f"with {_ending(request)}; "
                "write another step, or use ScriptedModel.always"
            )
        step = self._steps[0 if self._always else asked - 1]
        while not isinstance(step, Message):
            if isinstance(step, str):
                return Message("assistant", (Text(step),))
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                step = step.then
            elif callable(step):
                step = step(request)
            else:
                raise ChoiceError(
                    f"the script answers request {asked} with {describe(step)}; give a text or a "
                    "message"
                )
        return step

    def check_finished(self) -> None:
        """Raise where steps are left: what was tested asked less often than it should have."""
        left = self._steps[len(self.requests) :]
        if left and not self._always:
            raise ChoiceError(
                f"the script has {len(self._steps)} steps and {len(self.requests)} were asked for; "
                f"the next would have been {describe(left[0])}"
            )

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


def _is_step(value: object) -> bool:
    return isinstance(value, str | Message | BaseException | Wait) or callable(value)


def _ending(request: Conversation) -> str:
    if not request.messages:
        return "nothing"
    last = request.messages[-1]
    return f"{last.role}: {shorten(' '.join(last.text.split()), 60)!r}"
