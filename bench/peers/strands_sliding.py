"""Strands Agents: SlidingWindowConversationManager, which counts messages and rewrites the history
of its agent.
"""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from strands.agent.conversation_manager import SlidingWindowConversationManager
from timed import Message, run, split_system, tokens


def read(messages: list[Message]) -> list[Any]:
    """Results of parallel calls share one message of the user."""
    held: list[Any] = []
    for message in messages:
        text = [{"text": message["content"]}] if message.get("content") else []
        if message["role"] == "tool":
            result = {
                "toolResult": {
                    "toolUseId": message["tool_call_id"],
                    "status": "success",
                    "content": text,
                }
            }
            if held and held[-1]["role"] == "user" and "toolResult" in held[-1]["content"][0]:
                held[-1]["content"].append(result)
            else:
                held.append({"role": "user", "content": [result]})
            continue
        uses = [
            {
                "toolUse": {
                    "toolUseId": c["id"],
                    "name": c["function"]["name"],
                    "input": json.loads(c["function"]["arguments"]),
                }
            }
            for c in message.get("tool_calls", [])
        ]
        held.append({"role": message["role"], "content": [*text, *uses]})
    return held


def chat(made: tuple[list[Message], list[Any]]) -> list[Message]:
    system, history = made
    messages = list(system)
    for held in history:
        text = "".join(content["text"] for content in held["content"] if "text" in content)
        results = [content["toolResult"] for content in held["content"] if "toolResult" in content]
        for result in results:
            said = "".join(piece["text"] for piece in result["content"])
            messages.append({"role": "tool", "tool_call_id": result["toolUseId"], "content": said})
        uses = [content["toolUse"] for content in held["content"] if "toolUse" in content]
        calls = [
            {
                "id": use["toolUseId"],
                "type": "function",
                "function": {"name": use["name"], "arguments": json.dumps(use["input"])},
            }
            for use in uses
        ]
        if not results:
            messages.append(
                {"role": held["role"], "content": text} | ({"tool_calls": calls} if calls else {})
            )
    return messages


def sliding(messages: list[Message], budget: int) -> Callable[[], Any]:
    # The best a caller can do without a token count: as many messages as fit at this history's mean
    # size.
    system, history = split_system(messages)
    held = read(history)
    size = max(2, (budget - tokens(system)) * len(held) // max(tokens(history), 1)) if held else 2
    agent: Any = SimpleNamespace(messages=held)

    def call() -> tuple[list[Message], list[Any]]:
        SlidingWindowConversationManager(window_size=size, per_turn=True).apply_management(agent)
        return system, agent.messages

    return call


run("strands-agents", {"SlidingWindowConversationManager": sliding}, chat)
