"""What a loop may spend, what it tells while it works, and how it ended."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context
from loom.conversation.checked import CheckedStruct
from loom.conversation.message import ToolCall, ToolResult
from loom.dialects.input import Answer, StopReason
from loom.errors import ChoiceError, describe
from loom.providers.models import StreamEvent

LoopEnd = Literal["done", "steps", "tokens", "cost", "interrupted"]


class Limits(CheckedStruct, frozen=True, kw_only=True):
    """What one run of a loop may take. None means no limit."""

    steps: int | None = 100  # answers of the model
    tokens: int | None = None  # read and written, of all answers, also those of children
    cost: float | None = None  # in US dollars, where prices are known, also of children
    tool_seconds: float = 120.0  # of one call of a tool
    tools_at_once: int = 8
    overflows: int = 5  # shorter requests after one that was refused as too long
    failures: int = 2  # answers that broke off and are asked for again

    def __post_init__(self) -> None:
        for name in ("steps", "tokens", "tools_at_once", "overflows", "failures"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise ChoiceError(f"the limit {name} must be an integer, found {describe(value)}")
        for name in ("steps", "tokens", "cost"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ChoiceError(f"the limit {name} must be 0 or more, found {describe(value)}")
        if not self.tool_seconds > 0 or self.tools_at_once < 1:
            raise ChoiceError(
                f"tool_seconds and tools_at_once must be more than 0, found "
                f"{self.tool_seconds:g} and {self.tools_at_once}"
            )
        if self.overflows < 0 or self.failures < 0:
            raise ChoiceError(
                f"overflows and failures must be 0 or more, found {self.overflows} and "
                f"{self.failures}"
            )


class Spending(Struct, frozen=True):
    """What a run has taken so far."""

    steps: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float = 0.0
    estimated: int = 0  # answers whose tokens were counted here, as the provider did not say
    unpriced: int = 0  # answers whose cost is not known; it is not in `cost`

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: "Spending") -> "Spending":
        names = self.__struct_fields__
        return Spending(*(getattr(self, name) + getattr(other, name) for name in names))

    def without_steps(self) -> "Spending":
        """The same without its answers, as a run counts what its children took."""
        return replace(self, steps=0)


class RequestMade(Struct, frozen=True):
    """A request is about to be sent."""

    context: Context


class RequestRefused(Struct, frozen=True):
    """A provider refused a request as too long, and a shorter one follows."""

    error: BaseException


class AnswerFailed(Struct, frozen=True):
    """An answer broke off, and is asked for again."""

    error: BaseException


class AnswerTaken(Struct, frozen=True):
    """An answer was stored."""

    answer: Answer
    spent: Spending


class CallStarted(Struct, frozen=True):
    """A tool is about to run."""

    call: ToolCall


class CallEnded(Struct, frozen=True):
    """A call has its result, and that is stored."""

    call: ToolCall
    result: ToolResult


LoopEvent: TypeAlias = (
    RequestMade
    | RequestRefused
    | AnswerFailed
    | StreamEvent
    | AnswerTaken
    | CallStarted
    | CallEnded
)
Listener: TypeAlias = Callable[[LoopEvent], None]
# Whether a call may run: True, False, or a text that says why not.
Approval: TypeAlias = Callable[[ToolCall], "bool | str | Awaitable[bool | str]"]

# What the rules of a project say of an operation and its target: why it is denied, "" if it is not;
# or whether it is allowed.
Permission: TypeAlias = Callable[[str, str], "str | bool | Awaitable[str | bool]"]


class LoopOptions(TypedDict, total=False):
    """Who watches over a loop."""

    # Asked before each call of a function (default: every call may run).
    approve: Approval | None
    # What the rules of the project say of an operation (default: nothing is denied).
    permit: Permission | None
    # What one run may take (default: `Limits()`).
    limits: Limits | None
    # Told what happens.
    listen: Listener | None


class LoopOutcome(Struct, frozen=True):
    """How a run ended: the last words of the model, why it ended, what it took.

    `stop` is why the last answer stopped: `length` if it was cut off, `refusal` if the model
    refused. `spent` includes what the runs of its tools and the continuations of a tree took,
    except their steps; `children` is that part, with steps.
    """

    text: str
    end: LoopEnd
    spent: Spending
    stop: StopReason = ""
    children: Spending = Spending()
