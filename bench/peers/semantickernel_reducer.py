"""Semantic Kernel: ChatHistoryTruncationReducer, which counts messages and knows no tokens."""

import asyncio
from collections.abc import Callable
from typing import Any

from semantic_kernel.contents import (
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)
from semantic_kernel.contents.history_reducer.chat_history_truncation_reducer import (
    ChatHistoryTruncationReducer,
)
from timed import Message, run, tokens

_loop = asyncio.Runner()


def read(message: Message) -> ChatMessageContent:
    content = message.get("content") or ""
    if message["role"] == "tool":
        items: list[Any] = [
            FunctionResultContent(id=message["tool_call_id"], name=message["name"], result=content)
        ]
    else:
        items = [TextContent(text=content)] if content else []
        for call in message.get("tool_calls", []):
            function = call["function"]
            items.append(
                FunctionCallContent(
                    id=call["id"], name=function["name"], arguments=function["arguments"]
                )
            )
    return ChatMessageContent(role=message["role"], items=items)


def chat(history: list[ChatMessageContent]) -> list[Message]:
    return [message.to_dict() for message in history]


def truncating(messages: list[Message], budget: int) -> Callable[[], Any]:
    # The best a caller can do without a token count: as many messages as fit at this transcript's
    # mean size. threshold_count stays 0, its default: it lets more messages through in order to
    # begin with a user message, and the budget is the point here.
    target = max(2, budget * len(messages) // tokens(messages))
    reducer = ChatHistoryTruncationReducer(
        messages=[read(message) for message in messages], target_count=target
    )

    def reduce() -> list[ChatMessageContent]:
        _loop.run(reducer.reduce())
        return reducer.messages

    return reduce


run("semantic-kernel", {"ChatHistoryTruncationReducer": truncating}, chat)
