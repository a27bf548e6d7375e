"""Where a loop works on a task: calls, results and requests become tasks below it."""

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from loom.context import Context
from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Media, Message, Text, Tool, ToolCall, ToolResult
from loom.dialects.input import Answer
from loom.engine.inputs import Given, parse_messages
from loom.engine.sessions import Session
from loom.errors import CannotFit, ChoiceError, Conflict
from loom.loop.desks import TakenAnswer, complete
from loom.loop.functions import make_error
from loom.memory import LoomMemory
from loom.memory.converter import THINKING
from loom.memory.sources import MAX_READ_TASKS, split_flight
from loom.memory.task_context import TaskContextManager
from loom.memory.tools import MemoryTools
from loom.runtime import Task
from loom.runtime.messages import REQUEST, TOOL_CALL, TOOL_RESULT, call_id, media_of, tool_name
from loom.runtime.messages import tool_arguments as arguments_of
from loom.runtime.task import TaskStatus

LAST_TOOLS = ("recall", "search_context")  # of Loom's own, where there is no room for all of them


class TaskDesk:
    """Works on a task. Calls and results become tasks below it, and its end is stored.

    A call is `pending` until it runs, then `running`, then `completed` or `failed`: so another
    process knows what is left to do. To end a run, give the task the status `cancelled`.
    """

    def __init__(self, manager: TaskContextManager, memory: LoomMemory, task: Task) -> None:
        self._manager, self._memory, self._task = manager, memory, task
        self._own = MemoryTools(
            memory,
            session_id=task.session_id,
            recall=lambda handle: manager.recall(task, handle),
        )
        self._tools: tuple[Tool, ...] = ()
        self._own_names: frozenset[str] = frozenset()
        self._open: dict[str, Task] = {}  # calls without a result, by their ids
        self._has_prepared = False
        self._asked: Task | None = None  # a request that nothing has followed yet
        self._answered = ""  # the result of an earlier run
        self._owner, self._is_open = uuid4().hex, False
        self._session: Session | None = None  # that the task is in, once it is stored

    async def open(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        if self._is_open:
            raise Conflict(
                self._label,
                self._owner,
                self._owner,
                f"a run of this desk works on task {self._task.task_id}; wait until it ends",
            )
        self._is_open = True
        try:
            return await self._begin(tools)
        except BaseException:
            await self.close()
            raise

    async def _begin(self, tools: Sequence[Tool]) -> tuple[ToolCall, ...]:
        named = {tool.name for tool in tools}
        own = [tool for tool in self._own.tools() if tool.name not in named]
        self._tools = (*tools, *own)
        self._own_names = frozenset(tool.name for tool in own)
        await self._memory.aadd_task(self._task)
        await self._claim()
        entry = await self._memory.loom.atask(self._task.task_id, session_id=self._label)
        self._answered = ""
        if entry is not None and entry.task.status == "completed" and entry.task.result:
            result = entry.task.result
            self._answered = result if isinstance(result, str) else to_json(result)
        await self._update(self._task, "running")
        await self._read_flight()
        return tuple(
            ToolCall(name, tool_name(task), arguments_of(task)) for name, task in self._open.items()
        )

    async def _claim(self) -> None:
        """Note that this run works on the task. One that was closed meanwhile does not any more."""

        def claim() -> None:
            if self._session is None:
                self._session = self._memory.find_session(self._label)
            if self._session is not None and self._is_open:
                self._session.claim_run(self._owner, task=self._task.task_id)

        await self._memory.run_off_loop(claim)

    async def _read_flight(self) -> None:
        """Find what an earlier run left: calls without a result, and a request without an
        answer.
        """
        found = await self._memory.aget_l1_tasks(MAX_READ_TASKS, self._task.session_id)
        flight, _ = split_flight(self._task, found)
        self._open, self._asked = {}, None
        for task in flight:
            self._asked = task if task.action == REQUEST else None
            if task.action == TOOL_CALL and tool_name(task):
                self._open[call_id(task)] = task
            elif task.action == TOOL_RESULT:
                self._open.pop(call_id(task), None)

    async def prepare(
        self, request: Given | None, overflow: BaseException | None = None
    ) -> Context:
        if request is not None:
            await self._add_request(request)
        self._has_prepared = True
        try:
            return await self._manager.prepare(self._task, tools=self._tools, overflow=overflow)
        except CannotFit:
            if overflow is None or not self._drop_tools():
                raise
            return await self._manager.prepare(self._task, tools=self._tools, overflow=overflow)

    def _drop_tools(self) -> bool:
        """Declare fewer tools: of Loom's own, only those that bring back what is left out."""
        before = self._tools
        self._tools = tuple(
            tool for tool in before if tool.name not in self._own_names or tool.name in LAST_TOOLS
        )
        return len(self._tools) < len(before)

    async def _add_request(self, request: Given) -> None:
        """Store what a user adds to the task; once, if the same is asked again after an error."""
        for message in parse_messages([request]):
            if message.role != "user" or message.calls or message.results:
                raise ChoiceError(
                    f"a request must be a message of the user, found one of role {message.role}"
                )
            media = _list_media(message)
            again = self._asked
            if again and (again.content, media_of(again)) == (message.text, media):
                continue
            if self._answered:  # what the request is about
                await self._add(THINKING, content=self._answered)
                self._answered = ""
            self._asked = await self._add(REQUEST, content=message.text, **_write_media(media))

    async def absorb(self, answer: Answer) -> TakenAnswer:
        return await complete(self._store(answer))

    async def _store(self, answer: Answer) -> TakenAnswer:
        calls = tuple(call for message in answer.messages for call in message.calls)
        text = "\n\n".join(message.text for message in answer.messages if message.text)
        self._asked = None
        if text and (calls or answer.stop == "pause"):
            await self._add(THINKING, content=text)
        for call in calls:
            self._open[call.id] = await self._add(
                TOOL_CALL,
                tool_name=call.name,
                tool_call_id=call.id,
                arguments=_read_arguments(call),
            )
        return TakenAnswer(calls, text)

    async def use(self, call: ToolCall) -> ToolResult | None:
        if call.name not in self._own_names:
            return None
        if call.name == "recall" and not self._has_prepared:  # a handle of an earlier process
            await self.prepare(None)
        try:
            found = await self._own.execute(call.name, call.arguments or "{}")
        except ChoiceError as error:
            result = make_error(call, error)
        else:
            text = found if isinstance(found, str) else to_json(found)
            result = ToolResult(call.id, (Text(text or "(nothing)"),), kind=call.kind)
        await self.keep(result)
        return result

    async def start(self, call: ToolCall) -> bool:
        await self._claim()
        task = self._open[call.id]
        entry = await self._memory.loom.atask(task.task_id, session_id=self._label)
        if entry is not None and entry.task.status != "pending":
            return False
        await self._update(task, "running")
        return True

    async def keep(self, result: ToolResult) -> None:
        await self._claim()
        call = self._open.get(result.call_id)
        if call is None:  # it has its result
            return
        words = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        media = tuple(part for part in result.parts if isinstance(part, Media))
        failed = {"is_error": True} if result.error else {}
        await self._add(
            TOOL_RESULT,
            tool_name=tool_name(call),
            tool_call_id=result.call_id,
            content=words,
            **failed,
            **_write_media(media),
        )
        self._open.pop(result.call_id, None)
        await self._update(call, "failed" if result.error else "completed")

    async def beat(self) -> bool:
        await self._claim()
        entry = await self._memory.loom.atask(self._task.task_id, session_id=self._label)
        if entry is not None and entry.task.status == "cancelled":
            return True
        return self._session is not None and await self._session.abeat()

    async def close(self) -> None:
        self._is_open = False
        if self._session is not None:
            await self._session.arelease_run(self._owner, task=self._task.task_id)

    async def finish(self, text: str) -> None:
        await self._update(self._task, "completed", text)

    @property
    def _label(self) -> str:
        return self._task.session_id or ""

    async def _update(self, task: Task, status: TaskStatus, result: str | None = None) -> None:
        await self._memory.loom.aupdate_task(
            task.task_id, session_id=self._label, status=status, result=result
        )

    async def _add(self, action: str, **parameters: object) -> Task:
        return await self._memory.aadd_task(
            Task(
                action=action,
                parameters=parameters,
                session_id=self._task.session_id,
                parent_task_id=self._task.task_id,
                source_agent=self._task.target_agent,
            )
        )


def _read_arguments(call: ToolCall) -> object:
    """The arguments of a call as a task holds them: an object, or the text that came if it is
    none.
    """
    try:
        found = from_json(call.arguments or "{}")
    except ValueError:
        return call.arguments
    return found if isinstance(found, dict) else call.arguments


def _list_media(message: Message) -> tuple[Media, ...]:
    return tuple(part for part in message.parts if isinstance(part, Media))


def _write_media(media: Sequence[Media]) -> dict[str, object]:
    return {"media": [msgspec.to_builtins(each) for each in media]} if media else {}
