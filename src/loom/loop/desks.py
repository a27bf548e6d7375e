"""Where a loop works: a session, a tree, or a task. Each desk makes requests, takes answers and
keeps results.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, Unpack
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
from loom.errors import Conflict

_T = TypeVar("_T")


async def complete(work: Coroutine[Any, Any, _T]) -> _T:
    """Do work to its end, also if the run is cancelled meanwhile."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


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
        self._owner, self._is_open = uuid4().hex, False

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        if self._is_open:
            raise Conflict(
                self.session.id,
                self._owner,
                self._owner,
                f"a run of this desk works in session {self.session.id}; wait until it ends",
            )
        self._is_open = True
        try:
            await self._claim()
            await self._declare(tools)
            return (await self.session.aresume()).pending
        except BaseException:
            await self.close()
            raise

    async def _declare(self, tools: Sequence[Tool]) -> None:
        """Declare the tools of the run, and Loom's own where their names are free."""
        declared = self.session.row.head.tools
        wanted = {tool.name: tool for tool in (*declared, *tools)}  # a function may have changed
        for tool in own_tools():
            wanted.setdefault(tool.name, tool)
        if tuple(wanted.values()) != tuple(declared):
            await self.session.achange(tools=list(wanted.values()))

    async def _claim(self) -> None:
        """Note that this run works here. One that was closed meanwhile does not any more."""

        def claim() -> None:
            if self._is_open:
                self.session.claim_run(self._owner)

        await self.session.run_off_loop(claim)

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context:
        await self._catch_up()
        if overflow is not None:
            options = PrepareOptions(**self._options)
            options["overflow"] = overflow
            return await self._repeat(lambda: self.session.prepare(**options))
        return await self._repeat(lambda: self.session.prepare(request, **self._options))

    async def _catch_up(self) -> None:
        """Go on after what somebody else appended to the session. One that stands elsewhere now is
        an error.
        """
        end = self.session.cursor
        await self.session.arefresh()
        if end is not None and not self.session.path.holds(end.seq, end.depth):
            found = self.session.cursor
            raise Conflict(self.session.id, end.id, found.id if found else "")

    async def _repeat(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do work; once more if somebody else appended to the session meanwhile."""
        try:
            return await work()
        except Conflict:
            await self._claim()
            await self._catch_up()
        return await work()

    async def absorb(self, answer: Answer) -> TakenAnswer:
        nodes = await complete(self._repeat(lambda: self.session.aabsorb(answer)))
        messages = [node.message for node in nodes if node.message]
        calls = tuple(call for message in messages for call in message.calls)
        return TakenAnswer(calls, "\n\n".join(message.text for message in messages if message.text))

    async def use(self, call: ToolCall) -> ToolResult | None:
        node = await self._repeat(lambda: self.session.ause(call))
        if node is None or node.message is None:
            return None
        return next(result for result in node.message.results if result.call_id == call.id)

    async def start(self, call: ToolCall) -> bool:
        await self._claim()
        return await self.session.astart_call(call)

    async def keep(self, result: ToolResult) -> None:
        await self._claim()
        await self._repeat(lambda: self.session.aappend(Message("tool", (result,))))

    async def beat(self) -> bool:
        await self._claim()
        return await self.session.abeat()

    async def close(self) -> None:
        self._is_open = False
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
        outcome = await complete(self._tree.aabsorb(answer, agent=self._agent))
        await self._tree.settle()  # continuations that it asked for are there when it looks
        await self.session.arefresh()
        messages = [node.message for node in outcome.nodes if node.message]
        calls = tuple(call for message in messages for call in message.calls)
        return TakenAnswer(calls, outcome.said, bool(outcome.results))
