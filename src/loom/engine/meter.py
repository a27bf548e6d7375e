"""Who counts what a model takes for an agent besides its own answers."""

from contextvars import ContextVar
from typing import Protocol

from loom.context import Context
from loom.dialects.input import Answer


class Meter(Protocol):
    """Counts answers, and knows when there may be no more."""

    def add_answer(self, answer: Answer, context: Context) -> None:
        """Count an answer that another answer, or a tool, asked for."""
        ...

    @property
    def is_used_up(self) -> bool:
        """Whether a limit of tokens or cost is reached."""
        ...


# The meter of the run that this code works for. Tools and work behind the scenes inherit it.
CURRENT_METER: ContextVar[Meter | None] = ContextVar("loom_meter", default=None)
