"""LangChain: trim_messages, with the settings its docstring recommends for a history that goes back
to a model.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    convert_to_openai_messages,
    trim_messages,
)
from measures import message_tokens
from timed import Message, count, run

_counted: dict[str | None, int] = {}


def tokens_of(messages: list[BaseMessage]) -> int:
    """Cached by message id, which a LangChain history carries anyway: trim_messages asks for the
    same messages a dozen times.
    """
    for message in messages:
        if message.id not in _counted:
            calls = getattr(message, "tool_calls", [])
            written = [
                {"function": {"name": call["name"], "arguments": json.dumps(call["args"])}}
                for call in calls
            ]
            _counted[message.id] = message_tokens(
                {"content": message.content, "tool_calls": written}, count
            )
    return sum(_counted[message.id] for message in messages)


def trimming(messages: list[Message], budget: int, *, start_on: str | None) -> Callable[[], Any]:
    history = convert_to_messages(messages)
    for number, message in enumerate(history):
        message.id = f"{len(history)}-{number}"
    # include_system as documented; allow_partial left off, because it splits text at newlines
    # without regard to tool calls.
    return lambda: trim_messages(
        history, max_tokens=budget, token_counter=tokens_of, include_system=True, start_on=start_on
    )


run(
    "langchain-core",
    # start_on="human" is the documented way to a valid history; without it more survives, and a
    # result may lose its call.
    {
        "start_on=human": partial(trimming, start_on="human"),
        "no start_on": partial(trimming, start_on=None),
    },
    chat=convert_to_openai_messages,
)
