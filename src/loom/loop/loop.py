"""The loop of an agent: prepare a request, ask the model, run its tools, store what came; until it
calls nothing any more.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, Unpack

from msgspec.structs import replace

from loom.context import Context
from loom.conversation.canonical import from_json
from loom.conversation.checked import refuse_unknown
from loom.conversation.message import ToolCall, ToolResult
from loom.dialects.input import Answer, StopReason
from loom.engine.inputs import Given
from loom.engine.meter import CURRENT_METER
from loom.errors import BrokenAnswer, ChoiceError, LoomError, shorten
from loom.loop.desks import Desk, TakenAnswer, complete
from loom.loop.functions import Function, as_function, make_error
from loom.loop.ledger import Ledger, find_ledger, measure_answer
from loom.loop.values import (
    AnswerFailed,
    AnswerTaken,
    CallEnded,
    CallStarted,
    Limits,
    LoopEnd,
    LoopEvent,
    LoopOptions,
    LoopOutcome,
    RequestMade,
    RequestRefused,
    Spending,
)
from loom.providers.models import AnswerEnd, Model
from loom.providers.overflow import read_overflow

CUT_OFF = (
    "the answer was cut off at its limit of length before this call was complete, so it did not "
    "run; make it again with shorter arguments, or in several calls"
)
BEAT_SECONDS = 10  # between two signs of life during a step


class Loop:
    """Runs a model with tools, in a session, in a tree or on a task.

    `functions` are Python functions, or `Function` values. Loom's own tools are declared beside
    them. The options say who watches over it (`LoopOptions`).
    """

    def __init__(
        self,
        desk: Desk,
        model: Model,
        functions: Iterable[Function | Callable[..., Any]] = (),
        **options: Unpack[LoopOptions],
    ) -> None:
        refuse_unknown("Loop", options, LoopOptions)
        self._desk, self._model = desk, model
        self._functions = _by_name(map(as_function, functions))
        self._approve, self._permit = options.get("approve"), options.get("permit")
        self._limits = options.get("limits") or Limits()
        self._listen = options.get("listen")
        self._stopping = False
        self._ledger = Ledger(self._limits)
        self._cut_call = ""  # the id of a call that an answer was cut off in

    @property
    def spending(self) -> Spending:
        """What the run has taken so far, or the last run, also if it failed."""
        return self._ledger.spent

    def interrupt(self) -> Self:
        """Let the run end after the step that it is at."""
        self._stopping = True
        return self

    async def run(self, request: Given | None = None) -> LoopOutcome:
        """Work until the model calls nothing any more, or a limit is reached.

        The request is a text, or a message in any form. Calls of an earlier run that have no result
        yet are answered first. Without a request, the loop goes on where the session stands.
        """
        calls = await self._desk.open([each.tool for each in self._functions.values()])
        self._stopping = False
        self._ledger = Ledger(self._limits, find_ledger())
        token = CURRENT_METER.set(self._ledger)
        beating = asyncio.create_task(self._keep_beating())
        try:
            return await self._work(request, calls)
        finally:
            CURRENT_METER.reset(token)
            beating.cancel()
            await asyncio.wait([beating])
            await self._desk.close()

    async def _work(self, request: Given | None, calls: tuple[ToolCall, ...]) -> LoopOutcome:
        text = ""
        stop: StopReason = ""
        while True:
            await self._answer_calls(calls)
            end = await self._why_end()
            if end is not None:
                return self._end(text, end, stop)
            context = await self._desk.prepare(request)
            request = None
            answer = name_calls(await self._ask(context))
            taken: TakenAnswer = await self._desk.absorb(answer)
            self._tell(AnswerTaken(answer, self.spending))
            is_rest = stop == "pause" and text and taken.text
            text = f"{text}\n\n{taken.text}" if is_rest else taken.text or text
            calls, stop = taken.calls, answer.stop
            self._cut_call = find_cut_call(answer)
            if not calls and not taken.more and answer.stop != "pause":
                await self._desk.finish(text)
                return self._end(text, "done", stop)

    def _end(self, text: str, end: LoopEnd, stop: StopReason) -> LoopOutcome:
        return LoopOutcome(text, end, self.spending, stop, self._ledger.children)

    async def _keep_beating(self) -> None:
        """Give signs of life while a model or a tool takes long, and see who asks to stop."""
        with contextlib.suppress(LoomError):  # the next step meets it, too
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                if await self._desk.beat():
                    self._stopping = True

    async def _why_end(self) -> LoopEnd | None:
        """The limit that is reached, or that somebody asked the loop to stop."""
        if await self._desk.beat() or self._stopping:
            return "interrupted"
        return self._ledger.why_end()

    # The model

    async def _ask(self, context: Context) -> Answer:
        """The answer to a request, or to a shorter one if it is refused as too long."""
        overflows = failures = 0
        while True:
            self._tell(RequestMade(context))
            try:
                answer = await self._receive(context)
                self._ledger.add(measure_answer(answer, context))
                return answer
            except BrokenAnswer as error:
                failures += 1
                if failures > self._limits.failures:
                    raise
                self._tell(AnswerFailed(error))
            except Exception as error:  # of any SDK, too
                overflows += 1
                if read_overflow(error) is None or overflows > self._limits.overflows:
                    raise
                self._tell(RequestRefused(error))
                context = await self._desk.prepare(None, overflow=error)

    async def _receive(self, context: Context) -> Answer:
        """The answer, told piece by piece where somebody listens and the model can."""
        stream = getattr(self._model, "stream", None)
        if self._listen is None or stream is None:
            return await self._model.answer(context)
        events = stream(context)
        try:
            async for event in events:
                self._tell(event)
                if isinstance(event, AnswerEnd):
                    return event.answer
        finally:
            await events.aclose()
        raise BrokenAnswer("the stream ended without an answer")

    # Tools

    async def _answer_calls(self, calls: Iterable[ToolCall]) -> None:
        """Answer calls side by side. If one cannot be answered, none goes on by itself."""
        gate = asyncio.Semaphore(self._limits.tools_at_once)
        tasks = [asyncio.create_task(self._answer_call(call, gate)) for call in calls]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _answer_call(self, call: ToolCall, gate: asyncio.Semaphore) -> None:
        """Let the owner of a call answer it, and store the result."""
        async with gate:
            self._tell(CallStarted(call))
            result = None
            if call.name not in self._functions:
                result = await self._desk.use(call)
            if result is None:
                result = await self._run_function(call)
                await complete(self._desk.keep(result))
            self._tell(CallEnded(call, result))

    async def _run_function(self, call: ToolCall) -> ToolResult:
        """The result of a call of a function. Whatever goes wrong is a result, too."""
        if call.id == self._cut_call:
            return make_error(call, CUT_OFF)
        try:
            function = self._find(call)
            arguments = function.read(call)
            refusal = await self._why_refused(call, function, arguments)
            if refusal:
                return make_error(call, refusal)
            if not await self._desk.start(call) and not function.repeatable:
                return make_error(
                    call,
                    f"{call.name} was interrupted before, and nobody knows whether it finished; "
                    "look, and call it again if it must run",
                )
            parts = await function.answer(arguments, self._limits.tool_seconds)
        except Exception as error:
            return make_error(call, error)
        return ToolResult(call.id, parts, name=call.name, kind=call.kind)

    def _find(self, call: ToolCall) -> Function:
        function = self._functions.get(call.name)
        if function is None:
            names = ", ".join(sorted(self._functions)) or "none"
            raise ChoiceError(f"there is no tool {shorten(call.name)!r}; there are {names}")
        return function

    async def _why_refused(
        self, call: ToolCall, function: Function, arguments: Mapping[str, Any]
    ) -> str:
        """Why a call must not run; "" if it may. The rules are asked before the person."""
        for target in function.name_targets(arguments):
            denied = await self._why_denied(function.operation, target)
            if denied:
                return f"refused by the rules of the project: {denied}"
        if self._approve is None:
            return ""
        said = self._approve(call)
        if inspect.isawaitable(said):
            said = await said
        if said is True:
            return ""
        return f"refused by the user{f': {said}' if said else ''}"

    async def _why_denied(self, operation: str, target: str) -> str:
        """What the rules say against an operation; "" if nothing. In doubt it is denied."""
        if self._permit is None or not operation:
            return ""
        said: Any = self._permit(operation, target)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, str):
            return said
        if said is True:
            return ""
        return f"{operation} of {shorten(target, 80)} is not allowed"

    def _tell(self, event: LoopEvent) -> None:
        if self._listen is not None:
            self._listen(event)


def _by_name(functions: Iterable[Function]) -> dict[str, Function]:
    made: dict[str, Function] = {}
    for function in functions:
        if function.name in made:
            raise ChoiceError(f"two tools have the name {function.name!r}; rename one")
        made[function.name] = function
    return made


def name_calls(answer: Answer) -> Answer:
    """An answer whose calls have names of their own, so that each gets its own result. Some servers
    send calls without an id, or several with one.
    """
    found = [call.id for call in answer.tool_calls]
    if all(found) and len(set(found)) == len(found):
        return answer
    used = set(found)
    seen: set[str] = set()

    def rename(part: Any) -> Any:
        if not isinstance(part, ToolCall):
            return part
        name, number = part.id, 1
        while not name or name in seen or (name != part.id and name in used):
            number += 1
            name = f"{part.id or 'call'}_{number}"
        seen.add(name)
        return replace(part, id=name)

    messages = tuple(
        replace(message, parts=tuple(rename(part) for part in message.parts))
        for message in answer.messages
    )
    return replace(answer, messages=messages)


def find_cut_call(answer: Answer) -> str:
    """The id of the call in which an answer was cut off by its limit; "" if there is none."""
    if answer.stop != "length" or not answer.tool_calls:
        return ""
    last = answer.tool_calls[-1]
    return "" if _is_whole(last.arguments) else last.id


def _is_whole(arguments: str) -> bool:
    """Whether arguments are whole. Anthropic's wire holds objects only, so text that is not one is
    in the field `input` of an object.
    """
    try:
        found = from_json(arguments)
    except ValueError:
        return False
    match found:
        case {"input": str(text), **others} if not others and text.lstrip().startswith("{"):
            return _is_whole(text)
    return bool(found)
