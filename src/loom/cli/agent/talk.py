"""A talk: a session, a model and tools, and what a person sees while they work."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from loom.cli.agent.gauge import Gauge
from loom.cli.agent.question import ask_about, take_typed
from loom.cli.terminal import dim, make_printable, note, one_line, plural, say, style, width
from loom.config.settings import Configuration, resolve_configuration
from loom.context import Context
from loom.conversation.message import Conversation, Message, Text, ToolCall
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.errors import ChoiceError, LoomError
from loom.loop import Function, Limits, Loop, LoopEvent, LoopOutcome, SessionDesk
from loom.loop.functions import make_error
from loom.loop.project_tools import MAX_SECONDS, ProjectTools
from loom.loop.values import (
    AnswerFailed,
    AnswerTaken,
    CallEnded,
    CallStarted,
    RequestMade,
    RequestRefused,
)
from loom.project.rules.watching import WatchedRules
from loom.providers.http.connecting import MissingKey, connect
from loom.providers.models import CallChunk, Model, ReasoningChunk, TextChunk
from loom.providers.scripted import ScriptedModel

SYSTEM = (
    "You are a helpful agent. Say what you do in few words, read before you write, and make small "
    "changes."
)
TALK_LIMITS = Limits(tool_seconds=MAX_SECONDS + 10)  # a command ends by its own limit
SCRIPTED = "scripted"  # the name of the model that is used without a key
INTERRUPTED = (
    "the user interrupted this call; it may have done a part of its work, or nothing; do not call "
    "it again unless the user says so"
)
MAX_SHOWN_LINES = 4  # of the result of a tool


class Talk:
    """One person, one model, one session."""

    def __init__(
        self,
        loom: Loom,
        session: Session,
        folder: Path,
        *,
        tools: bool,
        yes: bool,
        confined: bool = True,
    ) -> None:
        self.loom, self.session, self.folder = loom, session, folder
        self.settings = resolve_configuration(folder)
        self.context: Context | None = None
        self._yes, self._always = yes, set[str]()
        self._rules = WatchedRules(folder) if tools else None
        self._tools = ProjectTools(folder, permit=self._permit, confined=confined)
        known = self._tools.functions()
        self._functions: tuple[Function, ...] = known if tools else ()
        self._tool_names = frozenset(function.name for function in known)
        asking = (*self._tools.writing(), *self._tools.running())
        self._asks = frozenset(function.name for function in asking)
        self._asking = asyncio.Lock()  # one question at a time
        self._held: list[LoopEvent] | None = None  # what happened while one is on the screen
        self._last_call = ""  # the id of the call that was shown last
        self.typed = ""  # before a question came: the next lines of the talk
        self.model: Model = ScriptedModel.always(answer_by_script)
        self.model_name = SCRIPTED
        self._gauge = Gauge()

    def use_model(self, name: str) -> None:
        """Talk to another model from now on."""
        if name == SCRIPTED:
            self.model, self.model_name = ScriptedModel.always(answer_by_script), SCRIPTED
            return
        self.model, self.model_name = connect(name), name
        self._use_weak_model()

    def _use_weak_model(self) -> None:
        """Let the configured weak model write the summaries, if it can be reached."""
        weak = self.settings.weak_model
        if weak is None:
            return
        try:
            self.loom.model = connect(weak)
        except LoomError as error:
            note(f"summaries are made without the model {weak}: {error}")

    async def say(self, request: str | None, limits: Limits | None = None) -> LoopOutcome:
        """Say something, and let the model work until it is done."""
        options: dict[str, Any] = {}
        if self._functions:
            options["project"] = self.folder
        if self.model_name != SCRIPTED:
            options["model"] = self.model_name
        await self._drop_old_tools()
        loop = Loop(
            SessionDesk(self.session, **options),
            self.model,
            self._functions,
            approve=self._approve,
            permit=self._permit,
            limits=limits or TALK_LIMITS,
            listen=self._show,
        )
        try:
            return await loop.run(request)
        finally:
            self._gauge.end()

    async def _drop_old_tools(self) -> None:
        """Declare no tools for files that an earlier talk of this session had, and this one has
        not, or has otherwise.
        """
        offered = {function.name: function.tool for function in self._functions}
        declared = self.session.row.head.tools
        kept = [
            tool
            for tool in declared
            if tool.name not in self._tool_names or offered.get(tool.name) == tool
        ]
        if len(kept) < len(declared):
            await self.session.achange(tools=kept)

    # What may run

    def _permit(self, operation: str, target: str) -> str:
        if self._rules is None:
            return ""
        verdict = self._rules.judge(operation, target)
        return "" if verdict.is_allowed else verdict.why

    async def _approve(self, call: ToolCall) -> bool | str:
        if self._yes or call.name not in self._asks:
            return True
        if not sys.stdin.isatty():
            return "nobody can be asked here; run with --yes to allow writing and running"
        async with self._asking:
            if call.name in self._always:
                return True
            self._gauge.end()
            self.typed += take_typed()
            self._held = []
            try:
                consent = await ask_about(call, self._tools)
            finally:
                self._show_held()
        if consent.word == "always":
            self._always.add(call.name)
        return consent.word in ("yes", "always") or consent.reason

    async def end_calls(self) -> None:
        """Answer the calls of a turn that was interrupted, so that the next turn runs none."""
        for call in (await self.session.aresume()).pending:
            await self.session.aappend(Message("tool", (make_error(call, INTERRUPTED),)))

    # What is shown

    def _show(self, event: LoopEvent) -> None:
        if self._held is None:
            self._print_event(event)
        else:
            self._held.append(event)

    def _show_held(self) -> None:
        """Show what happened while a question was on the screen."""
        held, self._held = self._held or [], None
        for event in held:
            self._print_event(event)

    def _print_event(self, event: LoopEvent) -> None:
        match event:
            case RequestMade(context):
                self.context = context
                self._gauge.begin(context, self.session.row.usage.cost)
            case TextChunk(text):
                self._gauge.write(make_printable(text))
            case ReasoningChunk(text) | CallChunk(arguments=text):
                self._gauge.count(text)
            case CallStarted(call):
                self._gauge.end()
                self._say_call(call)
            case CallEnded(call, result):
                if call.id != self._last_call:  # others ran beside it
                    self._say_call(call)
                for line in _first_lines(result.parts, result.error):
                    say(dim(f"    {line}"))
            case RequestRefused(error) | AnswerFailed(error):
                self._gauge.end()
                note(str(error))
            case AnswerTaken(answer):
                self._gauge.end(answer, self.session.row.usage.cost)

    def _say_call(self, call: ToolCall) -> None:
        self._last_call = call.id
        shown = one_line(call.arguments, width() - len(call.name) - 6)
        say(f"  {style(call.name, fg='yellow')} {dim(shown)}")


def choose_model(model: str | None, session: Session | None, settings: Configuration) -> str:
    """The name of the model: as given, as the session had it, or as configured. Without a key it is
    the script, and the person is told why.
    """
    name = model or _find_last_model(session) or settings.model
    if name is None:
        say_scripted("no model is named (--model provider:model)")
        return SCRIPTED
    if name == SCRIPTED:
        say_scripted("you asked for it")
        return SCRIPTED
    try:
        connect(name)
    except MissingKey as error:
        say_scripted(str(error).partition(", or give")[0])
        return SCRIPTED
    except LoomError as error:
        if model is not None:
            raise
        say_scripted(str(error))
        return SCRIPTED
    return name


def _find_last_model(session: Session | None) -> str | None:
    if session is None:
        return None
    return session.remembered_options.model or session.row.head.model or None


def say_scripted(why: str) -> None:
    note(f"a script plays the model: {why}")


def answer_by_script(request: Conversation) -> str:
    """What the model without a key says."""
    said = next(
        (message.text for message in reversed(request.messages) if message.role == "user"), ""
    )
    return (
        f"I am a script, not a model. I see {plural(len(request.messages), 'message')} and "
        f"{plural(len(request.tools), 'tool')}. You said: {one_line(said, 200)}"
    )


def _first_lines(parts: Any, failed: bool) -> list[str]:
    text = "\n".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in parts)
    lines = text.splitlines() or [""]
    shown = [_indent_line(line) for line in lines[:MAX_SHOWN_LINES]]
    if failed:
        shown[0] = f"✗ {shown[0]}"
    if len(lines) > MAX_SHOWN_LINES:
        shown.append(f"… {plural(len(lines) - MAX_SHOWN_LINES, 'more line')}")
    return shown


def _indent_line(line: str) -> str:
    """A line as it is indented, within the terminal."""
    line = line.expandtabs(4)
    indent = min(len(line) - len(line.lstrip()), width() // 2)
    return " " * indent + one_line(line, width() - 6 - indent)


def check_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ChoiceError(f"{folder} is not a folder; give the root folder of a project")
    return folder
