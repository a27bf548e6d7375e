"""LangChain's agents: SummarizationMiddleware, which rewrites the history, and ClearToolUsesEdit,
which edits each request.
"""

from collections.abc import Callable
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, SummarizationMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage, convert_to_messages, convert_to_openai_messages
from measures import message_tokens
from timed import Message, count, run, split_system, tokens

# As long as the answer to its prompt is at least; what a real model would write is neither better
# nor worse for these figures.
_SUMMARY = (
    "The agent worked on the requests of the user, one after the other, and read files and "
    "searched for words. " * 8
)
_MODEL = FakeListChatModel(responses=[_SUMMARY])


def tokens_of(messages: Any, **_: Any) -> int:
    return sum(
        message_tokens(message, count) for message in convert_to_openai_messages(list(messages))
    )


def summarizing(messages: list[Message], budget: int) -> Callable[[], Any]:
    """Triggered where the request would not fit; the newest 20 messages are kept, which is the
    default.
    """
    system, history = split_system(messages)
    room = budget - tokens(system)
    middleware = SummarizationMiddleware(_MODEL, trigger=("tokens", room), token_counter=tokens_of)
    head, read = convert_to_messages(system), convert_to_messages(history)

    def call() -> list[BaseMessage]:
        changed = middleware.before_model({"messages": read}, None)  # type: ignore[typeddict-item,arg-type]
        # the first one says that all others are removed
        return [*head, *(changed["messages"][1:] if changed else read)]

    return call


def clearing(messages: list[Message], budget: int) -> Callable[[], Any]:
    """Triggered where the request would not fit; the newest three results are kept, which is the
    default.
    """
    read = convert_to_messages(messages)

    def call() -> list[BaseMessage]:
        ClearToolUsesEdit(trigger=budget).apply(read, count_tokens=tokens_of)
        return read

    return call


run(
    "langchain",
    {"SummarizationMiddleware": summarizing, "ClearToolUsesEdit": clearing},
    chat=convert_to_openai_messages,
)
