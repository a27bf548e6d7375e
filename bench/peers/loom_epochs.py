"""Loom: weave, each call continuing the epoch of the last; a variant for each policy."""

from collections.abc import Callable
from functools import partial
from typing import Any

from timed import Message, run

from loom import Context, dialect, weave
from loom.context.policy import policies

_last: dict[str, Context] = {}


def woven(messages: list[Message], budget: int, *, policy: str) -> Callable[[], Any]:
    given = dialect("openai").parse({"messages": messages})
    previous = _last.get(policy)
    if previous is not None and len(previous.report.history) > len(given.messages):
        previous = None

    def call() -> Context:
        _last[policy] = weave(given, model="gpt-4o", window=budget, reserve_output=0, policy=policy, previous=previous)
        return _last[policy]

    return call


def chat(made: Context | list[Message]) -> list[Message]:
    return made.openai()["messages"] if isinstance(made, Context) else made


def floor(messages: list[Message], budget: int) -> Callable[[], Any]:
    """What an agent sends that manages nothing."""
    return lambda: messages


run("loomwright", {name: partial(woven, policy=name) for name in policies()} | {"nothing managed": floor}, chat)
