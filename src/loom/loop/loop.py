"""The loop of an agent: prepare a request, ask the model, run its tools, store what came; until it
calls nothing any more.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, Unpack

from msgspec.structs import replace

from loom.budget import models
from loom.context import Context
from loom.conversation.checked import refuse_unknown
from loom.conversation.message import ToolCall, ToolResult
from loom.dialects.input import Answer
from loom.engine.inputs import Given
from loom.errors import BrokenAnswer, ChoiceError, RequestTooLong, shorten
from loom.loop.desks import Desk, TakenAnswer
from loom.loop.functions import Function, as_function, make_error
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
        self._gate = asyncio.Semaphore(self._limits.tools_at_once)

    def interrupt(self) -> Self:
        """Let the run end after the step that it is at."""
        self._stopping = True
        return self

    async def run(self, request: Given | None = None) -> LoopOutcome:
        """Work until the model calls nothing any more, or a limit is reached.

        The request is a text, or a message in any form. Calls of an earlier run that have no result
        yet are answered first. Without a request, the loop goes on where the session stands.
        """
        self._stopping = False
        spent, text = Spending(), ""
        calls = await self._desk.open([each.tool for each in self._functions.values()])
        while True:
            await asyncio.gather(*map(self._answer_call, calls))
            end = await self._why_end(spent)
            if end is not None:
                return LoopOutcome(text, end, spent)
            context = await self._desk.prepare(request)
            request = None
            answer = await self._ask(context)
            spent = add_answer(spent, answer)
            taken: TakenAnswer = await self._desk.absorb(answer)
            self._tell(AnswerTaken(answer, spent))
            calls, text = taken.calls, taken.text or text
            if not calls and not taken.more and answer.stop != "pause":
                await self._desk.finish(text)
                return LoopOutcome(text, "done", spent)

    async def _why_end(self, spent: Spending) -> LoopEnd | None:
        """The limit that is reached, or that somebody asked the loop to stop."""
        limits = self._limits
        if await self._desk.beat() or self._stopping:
            return "interrupted"
        if limits.steps is not None and spent.steps >= limits.steps:
            return "steps"
        if limits.tokens is not None and spent.tokens >= limits.tokens:
            return "tokens"
        if limits.cost is not None and spent.cost >= limits.cost:
            return "cost"
        return None

    # The model

    async def _ask(self, context: Context) -> Answer:
        """The answer to a request, or to a shorter one if it is refused as too long."""
        overflows = failures = 0
        while True:
            self._tell(RequestMade(context))
            try:
                return await self._receive(context)
            except RequestTooLong as error:
                overflows += 1
                if overflows > self._limits.overflows:
                    raise
                self._tell(RequestRefused(error))
                context = await self._desk.prepare(None, overflow=error)
            except BrokenAnswer as error:
                failures += 1
                if failures > self._limits.failures:
                    raise
                self._tell(AnswerFailed(error))

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

    async def _answer_call(self, call: ToolCall) -> None:
        """Let the owner of a call answer it, and store the result."""
        async with self._gate:
            self._tell(CallStarted(call))
            result = None
            if call.name not in self._functions:
                result = await self._desk.use(call)
            if result is None:
                result = await self._run_function(call)
                await self._desk.keep(result)
            self._tell(CallEnded(call, result))

    async def _run_function(self, call: ToolCall) -> ToolResult:
        """The result of a call of a function. Whatever goes wrong is a result, too."""
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
        if self._permit is not None and function.operation:
            denied = self._permit(function.operation, function.name_target(arguments))
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


def add_answer(spent: Spending, answer: Answer) -> Spending:
    """What was spent, with one more answer."""
    cost = answer.cost
    if cost is None:
        cost = models.cost(
            models.model(answer.model),
            answer.prompt,
            answer.completion,
            answer.cached,
            answer.written,
        )
    return replace(
        spent,
        steps=spent.steps + 1,
        prompt=spent.prompt + answer.prompt,
        completion=spent.completion + answer.completion,
        cached=spent.cached + answer.cached,
        cost=spent.cost + (cost or 0.0),
    )
