"""LlamaIndex: ChatMemoryBuffer, which its agents still start with, and Memory, which its
documentation puts in its place.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from timed import Message, count, encode, run, split_system, tokens

_loop = asyncio.Runner()


def counted(text: str) -> range:
    """Only the length is looked at. For Memory, which asks message by message."""
    return range(count(text))


def read(message: Message) -> ChatMessage:
    """As LlamaIndex's own OpenAI class reads a reply: calls both as blocks and as extra arguments
    (the part that Memory counts).
    """
    blocks: list[Any] = [TextBlock(text=message["content"])] if message.get("content") else []
    extra = {
        key: message[key] for key in ("tool_calls", "tool_call_id", "name") if message.get(key)
    }
    for call in message.get("tool_calls", []):
        function = call["function"]
        blocks.append(
            ToolCallBlock(
                tool_call_id=call["id"],
                tool_name=function["name"],
                tool_kwargs=function["arguments"],
            )
        )
    return ChatMessage(role=message["role"], blocks=blocks, additional_kwargs=extra)


def chat(history: list[ChatMessage]) -> list[Message]:
    return [
        {"role": message.role.value, "content": message.content or "", **message.additional_kwargs}
        for message in history
    ]


def buffered(messages: list[Message], budget: int) -> Callable[[], Any]:
    """Agents keep the system prompt outside of memory; initial_token_count is how the buffer is
    told of it.
    """
    system, history = split_system(messages)
    # Counted afresh: the buffer joins all its texts into one string each time, and the next message
    # makes that another string.
    memory = ChatMemoryBuffer.from_defaults(
        [read(message) for message in history], token_limit=budget, tokenizer_fn=encode
    )
    return lambda: [*map(read, system), *memory.get(initial_token_count=tokens(system))]


def queued(messages: list[Message], budget: int) -> Callable[[], Any]:
    system, history = split_system(messages)
    # No memory blocks (they need a model), so the whole limit is for history; the flush size stays
    # at its default.
    memory = Memory.from_defaults(
        token_limit=budget - tokens(system), tokenizer_fn=counted, chat_history_token_ratio=1.0
    )
    _loop.run(memory.aset([read(message) for message in history[:-1]]))
    newest = read(history[-1])

    async def put_and_get() -> list[ChatMessage]:
        """Memory trims when a message is put."""
        await memory.aput(newest)
        return [*map(read, system), *await memory.aget()]

    return lambda: _loop.run(put_and_get())


run("llama-index-core", {"ChatMemoryBuffer": buffered, "Memory": queued}, chat)
