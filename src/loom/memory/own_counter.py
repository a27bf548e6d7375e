"""A counter of the caller's own, which counts lists of messages, as the engine counts texts."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from loom.budget.profiles import COUNTERS
from loom.errors import ChoiceError, describe
from loom.memory.tokenizer import TokenCounter


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
        counted = self._counter.count_messages(list(messages))
        if not isinstance(counted, int) or isinstance(counted, bool) or counted < 0:
            raise ChoiceError(
                "token_counter.count_messages must return a number of tokens, 0 or more, found "
                f"{describe(counted)}"
            )
        return counted

    def _base(self) -> int:
        """What a list costs without any message. Not every counter takes one."""
        try:
            return self.count([])
        except (LookupError, ArithmeticError, ValueError, TypeError):
            return 0


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
