"""Where a loop works: a session, a tree, or a task. Each desk makes requests, takes answers and
keeps results.
"""

from collections.abc import Sequence
from typing import Protocol, Unpack

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Context
from loom.conversation.canonical import from_json
from loom.conversation.message import Message, Text, Tool, ToolCall, ToolResult
from loom.dialects.input import Answer
from loom.engine.inputs import Given
from loom.engine.options import PrepareOptions
from loom.engine.sessions import Session
from loom.engine.tools import is_own_call
from loom.engine.tools import tools as own_tools
from loom.engine.trees import LoomTree
from loom.memory import LoomMemory
from loom.memory.task_context import TaskContextManager
from loom.memory.tools import MemoryTools
from loom.runtime import Task


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
        """Declare the tools; the calls of an earlier run that have no result yet."""
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

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
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
        return await self.session.astart_call(call)

    async def keep(self, result: ToolResult) -> None:
        await self.session.aappend(Message("tool", (result,)))

    async def beat(self) -> bool:
        return await self.session.abeat()

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


class TaskDesk:
    """Works on a task: calls and results become tasks below it, and its end is stored."""

    def __init__(self, manager: TaskContextManager, memory: LoomMemory, task: Task) -> None:
        self._manager, self._memory, self._task = manager, memory, task
        self._own = MemoryTools(memory, session_id=task.session_id)
        self._tools: tuple[Tool, ...] = ()
        self._names: dict[str, str] = {}

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        own = self._own.tools()
        named = {tool.name for tool in tools}
        self._tools = (*tools, *(tool for tool in own if tool.name not in named))
        self._memory.add_task(self._task)
        return ()

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context:
        if overflow is not None:
            raise overflow
        return await self._manager.prepare(self._task, tools=self._tools)

    async def absorb(self, answer: Answer) -> TakenAnswer:
        calls = tuple(call for message in answer.messages for call in message.calls)
        text = "\n\n".join(message.text for message in answer.messages if message.text)
        if calls and text:
            self._add("node.thinking", content=text)
        for call in calls:
            self._names[call.id] = call.name
            self._add(
                "node.tool_call",
                tool_name=call.name,
                tool_call_id=call.id,
                arguments=from_json(call.arguments or "{}"),
            )
        return TakenAnswer(calls, text)

    async def use(self, call: ToolCall) -> ToolResult | None:
        if not is_own_call(call, self._tools):
            return None
        said = await self._own.execute(call.name, call.arguments)
        result = ToolResult(call.id, (Text(str(said)),), name=call.name, kind=call.kind)
        await self.keep(result)
        return result

    async def start(self, call: ToolCall) -> bool:
        return True

    async def keep(self, result: ToolResult) -> None:
        words = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        self._add(
            "node.tool_result",
            tool_name=result.name or self._names.get(result.call_id, ""),
            tool_call_id=result.call_id,
            content=words,
        )

    async def beat(self) -> bool:
        return False

    async def finish(self, text: str) -> None:
        self._task = replace(self._task, status="completed", result=text)
        self._memory.add_task(self._task)

    def _add(self, action: str, **parameters: object) -> None:
        self._memory.add_task(
            Task(
                action=action,
                parameters=parameters,
                session_id=self._task.session_id,
                parent_task_id=self._task.task_id,
                source_agent=self._task.target_agent,
            )
        )
