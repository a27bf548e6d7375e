"""Pydantic AI's harness: the compaction strategies that call no model, run outside of an agent with
compact_now.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai_harness.compaction import (
    ClampOversizedMessages,
    ClearToolResults,
    SlidingWindowCompaction,
    TieredCompaction,
    compact_now,
)
from timed import Message, count, run

_loop = asyncio.Runner()


def framed(text: str) -> int:
    """The harness counts text alone; four more for each piece of text stand for the frames of
    messages and calls.
    """
    return count(text) + 4


def read(messages: list[Message]) -> list[ModelMessage]:
    """As an agent records a run: the system prompt rides in the first request, the results of
    parallel calls share one.
    """
    history: list[ModelMessage] = []
    parts: list[Any] = []
    for message in messages:
        content = message.get("content") or ""
        match message["role"]:
            case "assistant":
                history += [ModelRequest(parts=parts)] if parts else []
                parts = []
                said: list[Any] = [TextPart(content)] if content else []
                calls = message.get("tool_calls", [])
                said += [
                    ToolCallPart(
                        call["function"]["name"], call["function"]["arguments"], call["id"]
                    )
                    for call in calls
                ]
                history.append(ModelResponse(parts=said))
            case "tool":
                parts.append(ToolReturnPart(message["name"], content, message["tool_call_id"]))
            case role:
                parts.append(
                    SystemPromptPart(content) if role == "system" else UserPromptPart(content)
                )
    return [*history, ModelRequest(parts=parts)] if parts else history


def chat(history: list[ModelMessage]) -> list[Message]:
    messages: list[Message] = []
    for message in history:
        if isinstance(message, ModelResponse):
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            said: Message = {"role": "assistant", "content": text}
            if calls := [written(part) for part in message.parts if isinstance(part, ToolCallPart)]:
                said["tool_calls"] = calls
            messages.append(said)
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": part.tool_call_id,
                        "content": part.model_response_str(),
                    }
                )
            else:
                role = "system" if isinstance(part, SystemPromptPart) else "user"
                messages.append({"role": role, "content": part.content})
    return messages


def written(part: ToolCallPart) -> Message:
    function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
    return {"id": part.tool_call_id, "type": "function", "function": function}


def window(budget: int) -> SlidingWindowCompaction[None]:
    # keep_tokens is a floor: the message that crosses it, the calls it belongs to, the first
    # request and the system prompt come on top. A tenth is enough for them in these transcripts.
    return SlidingWindowCompaction(
        max_tokens=budget, keep_tokens=budget * 9 // 10, tokenizer=framed
    )


def sliding(messages: list[Message], budget: int) -> Callable[[], Any]:
    history, strategy, model = read(messages), window(budget), TestModel()
    return lambda: _loop.run(compact_now(strategy, history, model=model, tokenizer=framed))


def tiered(messages: list[Message], budget: int) -> Callable[[], Any]:
    """The documented order of tiers, with the window where the summarizer would stand.
    DeduplicateFileReads is left out: it needs
    to be told what a file is, and these tools return other text each time. ToolOutputLimits works
    only while a tool runs.
    """
    tiers = [
        ClampOversizedMessages[None](max_part_tokens=budget // 4, tokenizer=framed),
        ClearToolResults[None](max_tokens=1, keep_pairs=3, tokenizer=framed),
        window(budget),
    ]
    history, strategy, model = (
        read(messages),
        TieredCompaction[None](tiers, target_tokens=budget, tokenizer=framed),
        TestModel(),
    )
    return lambda: _loop.run(compact_now(strategy, history, model=model, tokenizer=framed))


run("pydantic-ai-harness", {"SlidingWindowCompaction": sliding, "TieredCompaction": tiered}, chat)
