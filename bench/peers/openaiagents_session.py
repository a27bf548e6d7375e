"""OpenAI Agents: SessionSettings(limit), which counts items (a text, a call, a result) and knows no
tokens.

`session.get_items` is the stored history under the limit, as a run that starts anew in the middle
of a turn finds it. `Runner.run` is a turn from its beginning: the limit holds for the earlier
turns, the current one is input, and the runner drops calls and results that lost their other half.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agents import (
    Agent,
    Model,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    set_tracing_disabled,
)
from timed import Message, run, split_system, tokens

Item = dict[str, Any]
_loop = asyncio.Runner()


class SentError(Exception):
    """The request has reached the model, which is as far as we go."""


class Recorder(Model):
    """A model that keeps what it is sent."""

    async def get_response(
        self, system_instructions: str | None, input: list[Item], *_: Any, **__: Any
    ) -> Any:
        self.system, self.items = system_instructions, input
        raise SentError

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def read(messages: list[Message]) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        content = message.get("content") or ""
        if message["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": content,
                }
            )
            continue
        items += [{"role": message["role"], "content": content}] if content else []
        for call in message.get("tool_calls", []):
            items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return items


def chat(items: list[Item]) -> list[Message]:
    """Calls join the assistant text just before them, as they were."""
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            messages.append(
                {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
            )
        elif kind == "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            function = {"name": item["name"], "arguments": item["arguments"]}
            messages[-1].setdefault("tool_calls", []).append(
                {"id": item["call_id"], "type": "function", "function": function}
            )
        else:
            messages.append({"role": item["role"], "content": item["content"]})
    return messages


def limit_for(history: list[Message], budget: int) -> SessionSettings:
    """The best a caller can do without a token count: as many items as fit at this history's mean
    size.
    """
    return SessionSettings(
        limit=max(0, budget * len(read(history)) // tokens(history)) if history else 0
    )


def stored(history: list[Message], settings: SessionSettings | None = None) -> SQLiteSession:
    session = SQLiteSession("bench", session_settings=settings)
    _loop.run(session.add_items(read(history)))
    return session


def resumed(messages: list[Message], budget: int) -> Callable[[], Any]:
    system, history = split_system(messages)
    session = stored(history, limit_for(history, budget - tokens(system)))
    return lambda: [*read(system), *_loop.run(session.get_items())]


def begun(messages: list[Message], budget: int) -> Callable[[], Any]:
    system, history = split_system(messages)
    newest = max(number for number, message in enumerate(history) if message["role"] == "user")
    earlier, turn = history[:newest], history[newest:]
    session, model = stored(earlier), Recorder()
    agent = Agent("bench", instructions=system[0]["content"], model=model)
    config = RunConfig(session_settings=limit_for(earlier, budget - tokens(system) - tokens(turn)))
    current = read(turn)

    def start() -> list[Item]:
        with suppress(SentError):
            _loop.run(Runner.run(agent, current, session=session, run_config=config))
        return [{"role": "system", "content": model.system}, *model.items]

    return start


set_tracing_disabled(True)
run("openai-agents", {"session.get_items": resumed, "Runner.run": begun}, chat)
