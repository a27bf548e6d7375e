"""Seed 004's door to counting."""

from collections.abc import Iterable, Mapping
from typing import Any

from loom.budget.chat import as_message
from loom.budget.counting import counter_for
from loom.conversation.message import Message


class TokenCounter:
    """Counts tokens as the model does, or by a careful estimate where its tokenizer is not
    public.
    """

    def __init__(self, model: str | None = None) -> None:
        self.model = model
        self._counter = counter_for(model)

    @property
    def profile_name(self) -> str:
        """The name of the counter, as `loom count` lists them."""
        return self._counter.profile.name

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.count_text(text)

    def count_messages(self, messages: Iterable[Message | Mapping[str, Any]]) -> int:
        """Tokens of messages, given as values or as chat dictionaries."""
        return self._counter.count_messages(map(as_message, messages))
