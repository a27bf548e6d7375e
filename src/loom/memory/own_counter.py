"""A counter of the caller's own, which counts lists of messages, as the engine counts texts."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from loom.budget.profiles import COUNTERS
from loom.errors import ChoiceError, LoomError, describe
from loom.memory.shortening import shorten_line
from loom.memory.tokenizer import TokenCounter

MAX_ERROR_CHARS = 200


class CountsMessages(Protocol):
    """Anything that counts the tokens of a list of chat messages."""

    def count_messages(self, messages: list[dict[str, Any]]) -> int: ...


class MessageCount:
    """Tokens of a text, by a counter that knows only messages: those of a message with this text,
    less those of an empty one, which are `per_message`.
    """

    def __init__(self, counter: CountsMessages) -> None:
        self._counter = counter
        self.__name__ = type(counter).__name__
        self.per_list = self._base()
        self.per_message = max(self.count([{"role": "user", "content": ""}]) - self.per_list, 0)

    def __call__(self, text: str) -> int:
        counted = self.count([{"role": "user", "content": text}])
        return max(counted - self.per_list - self.per_message, 0)

    def count(self, messages: Sequence[dict[str, Any]]) -> int:
        """Tokens of chat messages, as the caller's counter says."""
        try:
            counted: Any = self._counter.count_messages(list(messages))
        except LoomError:
            raise
        except Exception as error:
            said = shorten_line(f"{type(error).__name__}: {error}", MAX_ERROR_CHARS)
            raise _CounterFailed(
                f"token_counter {self.__name__}.count_messages failed: {said}"
            ) from error
        return _to_tokens(counted)

    def _base(self) -> int:
        """What a list costs without any message. Not every counter takes one."""
        try:
            return self.count([])
        except _CounterFailed:
            return 0


class _CounterFailed(ChoiceError):
    """A counter of the caller's raised an error."""


def _to_tokens(counted: Any) -> int:
    """What a counter returned, as a whole number: also where a library has its own type of them, or
    a float holds one.
    """
    try:
        number = int(counted) if isinstance(counted, float) else operator.index(counted)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(counted, bool) or number < 0 or number != counted:
        raise ChoiceError(
            "token_counter.count_messages must return a whole number of tokens, 0 or more, found "
            f"{describe(counted)}"
        )
    return number


def check_counter(given: object) -> CountsMessages:
    """A counter as a caller gives it; Loom's own, if none is given."""
    if given is None:
        return TokenCounter()
    if not callable(getattr(given, "count_messages", None)) or isinstance(given, type):
        raise ChoiceError(
            f"token_counter must have count_messages(list) -> int, found {describe(given)}"
        )
    counter: Any = given
    return counter  # type: ignore[no-any-return]


def policy_counter(counter: CountsMessages) -> str | Callable[[str], int]:
    """The counter of a policy that counts alike: a name, if Loom has that counter itself."""
    if isinstance(counter, TokenCounter) and counter.profile_name in COUNTERS:
        return counter.profile_name
    return MessageCount(counter)
