"""Microsoft Agent Framework: SlidingWindowStrategy, which counts groups (a message, or a call with
its results).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from agent_framework import Content, SlidingWindowStrategy, apply_compaction
from agent_framework import Message as Held
from timed import Message, run, split_system, tokens

_loop = asyncio.Runner()


def read(messages: list[Message]) -> list[Held]:
    """Results of parallel calls share one message, as the framework's own loop writes them."""
    held: list[Held] = []
    for message in messages:
        if message["role"] == "tool":
            result = Content.from_function_result(
                message["tool_call_id"], result=message["content"]
            )
            if held[-1].role == "tool":
                held[-1].contents.append(result)
            else:
                held.append(Held("tool", [result]))
            continue
        contents: list[Any] = (
            [Content.from_text(message["content"])] if message.get("content") else []
        )
        for call in message.get("tool_calls", []):
            function = call["function"]
            contents.append(
                Content.from_function_call(
                    call["id"], function["name"], arguments=function["arguments"]
                )
            )
        held.append(Held(message["role"], contents))
    return held


def chat(history: list[Held]) -> list[Message]:
    messages: list[Message] = []
    for held in history:
        results = [content for content in held.contents if content.type == "function_result"]
        if results:
            messages += [
                {"role": "tool", "tool_call_id": each.call_id, "content": each.result}
                for each in results
            ]
            continue
        said: Message = {"role": str(held.role), "content": held.text}
        calls = [content for content in held.contents if content.type == "function_call"]
        if calls:
            functions = [{"name": each.name, "arguments": each.arguments} for each in calls]
            said["tool_calls"] = [
                {"id": each.call_id, "type": "function", "function": f}
                for each, f in zip(calls, functions, strict=True)
            ]
        messages.append(said)
    return messages


def sliding(messages: list[Message], budget: int) -> Callable[[], Any]:
    # The best a caller can do without a token count: as many groups as fit at this history's mean
    # size.
    system, history = split_system(messages)
    groups = sum(message["role"] != "tool" for message in history)
    keep = max(1, (budget - tokens(system)) * groups // max(tokens(history), 1)) if history else 1
    held = read(messages)
    return lambda: _loop.run(
        apply_compaction(held, strategy=SlidingWindowStrategy(keep_last_groups=keep))
    )


run("agent-framework-core", {"SlidingWindowStrategy": sliding}, chat)
