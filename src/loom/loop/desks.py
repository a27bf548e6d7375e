"""Where a loop works: a session, a tree, or a task. Each desk makes requests, takes answers and
keeps results.
"""

from collections.abc import Sequence
from typing import Protocol, Unpack
from uuid import uuid4

from msgspec import Struct

from loom.context import Context
from loom.conversation.message import Message, Tool, ToolCall, ToolResult
from loom.dialects.input import Answer
from loom.engine.inputs import Given
from loom.engine.options import PrepareOptions
from loom.engine.sessions import Session
from loom.engine.tools import tools as own_tools
from loom.engine.trees import LoomTree


class TakenAnswer(Struct, frozen=True):
    """An answer that was stored: its calls, its words, and whether the model is to be asked again
    although it called nothing.
    """

    calls: tuple[ToolCall, ...]
    text: str
    more: bool = False


class Desk(Protocol):
    """What a loop needs of the place where it works."""

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        """Declare the tools; the calls of an earlier run that have no result yet. An error if
        another run works here.
        """
        ...

    async def close(self) -> None:
        """The run is over, however it ended."""
        ...

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context: ...
    async def absorb(self, answer: Answer) -> TakenAnswer: ...
    async def use(self, call: ToolCall) -> ToolResult | None:
        """The result of a call of one of Loom's tools; None if it is not one of them."""
        ...

    async def start(self, call: ToolCall) -> bool:
        """Note that a call is about to run; False if it was started before."""
        ...

    async def keep(self, result: ToolResult) -> None: ...
    async def beat(self) -> bool:
        """Note that the loop is alive; whether somebody asked it to stop."""
        ...

    async def finish(self, text: str) -> None: ...


class SessionDesk:
    """Works in a session."""

    def __init__(self, session: Session, **options: Unpack[PrepareOptions]) -> None:
        self.session, self._options = session, options
        self._owner = uuid4().hex

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        await self.session.aclaim_run(self._owner)
        declared = self.session.row.head.tools
        named = {tool.name for tool in declared}
        fresh = [tool for tool in (*tools, *own_tools()) if tool.name not in named]
        if fresh:
            await self.session.achange(tools=[*declared, *fresh])
        return (await self.session.aresume()).pending

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context:
        if overflow is not None:
            options = PrepareOptions(**self._options)
            options["overflow"] = overflow
            return await self.session.prepare(**options)
        return await self.session.prepare(request, **self._options)

    async def absorb(self, answer: Answer) -> TakenAnswer:
        nodes = await self.session.aabsorb(answer)
        messages = [node.message for node in nodes if node.message]
        calls = tuple(call for message in messages for call in message.calls)
        return TakenAnswer(calls, "\n\n".join(message.text for message in messages if message.text))

    async def use(self, call: ToolCall) -> ToolResult | None:
        node = await self.session.ause(call)
        if node is None or node.message is None:
            return None
        return next(result for result in node.message.results if result.call_id == call.id)

    async def start(self, call: ToolCall) -> bool:
        await self.session.aclaim_run(self._owner)
        return await self.session.astart_call(call)

    async def keep(self, result: ToolResult) -> None:
        await self.session.aclaim_run(self._owner)
        await self.session.aappend(Message("tool", (result,)))

    async def beat(self) -> bool:
        await self.session.aclaim_run(self._owner)
        return await self.session.abeat()

    async def close(self) -> None:
        await self.session.arelease_run(self._owner)

    async def finish(self, text: str) -> None:
        """Nothing is left to do: the session has the words."""


class TreeDesk(SessionDesk):
    """Works at an agent's place in a tree. The `→` commands of a loom-aware agent are run, and it
    is asked again to see what came of them.
    """

    def __init__(
        self, tree: LoomTree, agent: str | None = None, **options: Unpack[PrepareOptions]
    ) -> None:
        super().__init__(tree.session(agent), **options)
        self._tree, self._agent = tree, agent

    async def absorb(self, answer: Answer) -> TakenAnswer:
        outcome = await self._tree.aabsorb(answer, agent=self._agent)
        await self._tree.settle()  # continuations that it asked for are there when it looks
        await self.session.arefresh()
        messages = [node.message for node in outcome.nodes if node.message]
        calls = tuple(call for message in messages for call in message.calls)
        return TakenAnswer(calls, outcome.said, bool(outcome.results))
