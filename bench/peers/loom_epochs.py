"""Loom: a session in memory that is appended to and asked call by call; a variant for each
policy.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from timed import Message, run

from loom import Context, Loom, Session, dialect
from loom.context.policy import policies
from loom.engine.replay import FIRST_TIME_MS

_runner = asyncio.Runner()


class _Kept:
    """The session of one policy, and how much of the transcript it has."""

    def __init__(self) -> None:
        # so that handles, and with them all figures, are the same in each run
        clock, ids = count(FIRST_TIME_MS), count()
        self.loom = Loom.open(
            ":memory:", now=lambda: next(clock), fresh_id=lambda: f"{next(ids):032x}"
        )
        self.session: Session = self.loom.new()
        self.appended = 0

    async def prepare(self, messages: list[Message], budget: int, policy: str) -> Context:
        given = dialect("openai").parse({"messages": messages[self.appended :]})
        await self.session.aappend(*given.system, *given.messages)
        self.appended = len(messages)
        return await self.session.prepare(
            model="gpt-4o", window=budget, reserve_output=0, policy=policy
        )


_kept: dict[str, _Kept] = {}


def woven(messages: list[Message], budget: int, *, policy: str) -> Callable[[], Any]:
    kept = _kept.get(policy)
    if kept is None or kept.appended >= len(messages):
        kept = _kept[policy] = _Kept()
    return lambda: _runner.run(kept.prepare(messages, budget, policy))


def chat(made: Context | list[Message]) -> list[Message]:
    return made.openai()["messages"] if isinstance(made, Context) else made


def floor(messages: list[Message], budget: int) -> Callable[[], Any]:
    """What an agent sends that manages nothing."""
    return lambda: messages


run(
    "loomwright",
    {name: partial(woven, policy=name) for name in policies()} | {"nothing managed": floor},
    chat,
)
