"""`loom chat` and `loom run`: talk with a model, or let it carry out a task."""

import asyncio
import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from loom.budget.models import wire_name
from loom.cli.agent.lines import PROMPT, LineReader
from loom.cli.agent.slash import QUIT, complete_slash, is_slash, run_slash
from loom.cli.agent.talk import SCRIPTED, SYSTEM, TALK_LIMITS, Talk, check_folder, choose_model
from loom.cli.store.where import Where, add_scope_options
from loom.cli.terminal import dim, make_printable, note, plural, say, say_dim
from loom.config.settings import resolve_configuration
from loom.errors import ChoiceError, LoomError

INTERRUPTED_STATUS = 130  # as shells have it
_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder of the project (default: this folder).",
)
_MODEL = click.option("--model", metavar="NAME", help="Model, such as anthropic:claude-sonnet-4-5.")
_YES = click.option("--yes", is_flag=True, help="Write and run without asking.")
_UNCONFINED = click.option(
    "--unconfined",
    is_flag=True,
    help="Let commands change files outside of the folder, and see the keys of providers.",
)
_SESSION = click.option("--session", "name", metavar="ID", help="Continue this session.")


@click.command()
@_SESSION
@_MODEL
@_FOLDER
@click.option("--tools", is_flag=True, help="Let the model read, write and run in the folder.")
@_YES
@_UNCONFINED
@add_scope_options
def chat(where: Where, name: str | None, tools: bool, **given: Any) -> None:
    """Talk with a model.

    /help lists the commands within a talk. The session is stored; continue it with --session.
    The configuration of the folder is used, also its store. Without a key, a script plays the
    model.
    """
    with _open_talk(where, name, tools, given) as (talk, runner):
        say_dim(f"session {talk.session.id} · model {talk.model_name} · /help, /quit", indent=0)
        reader = LineReader(lambda line: complete_slash(talk, line))
        while True:
            line = _read_line(reader, talk)
            if line is None or line.strip() in QUIT:
                break
            if line.strip():
                _answer(runner, talk, line)
        if talk.session.path:
            say(dim(f"{_name_continuation(talk)} continues"))
        elif name is None:
            talk.session.change(archived=True)  # nothing was said in it


@click.command("run")
@click.argument("task")
@_SESSION
@_MODEL
@_FOLDER
@_YES
@_UNCONFINED
@click.option("--steps", type=click.IntRange(1), default=50, help="Most answers (default: 50).")
@click.option("--cost", type=click.FloatRange(0), help="Most dollars.")
@add_scope_options
def run_task(
    where: Where, task: str, name: str | None, steps: int, cost: float | None, **given: Any
) -> None:
    """Let a model carry out TASK in the folder.

    The model reads files there, and asks before it writes or runs anything. The rules of the
    project (LOOM.md) are obeyed. Without a key, a script plays the model.
    """
    if not task.strip():
        raise ChoiceError("the task is empty; say what to do")
    with _open_talk(where, name, True, given) as (talk, runner):
        continuation = f"{_name_continuation(talk, 'TASK')} continues"
        try:
            outcome = runner.run(talk.say(task, replace(TALK_LIMITS, steps=steps, cost=cost)))
        except LoomError:
            say(dim(continuation))
            raise
        except KeyboardInterrupt:
            _end_interrupted(runner, talk)
            say(dim(continuation))
            sys.exit(INTERRUPTED_STATUS)
        spent, parts = outcome.spent, []
        parts.append(f"{plural(spent.steps, 'answer')}, {spent.tokens:,} tokens, ${spent.cost:.4f}")
        if outcome.end != "done":
            parts.append(f"ended at a limit: {outcome.end}")
        say(dim(" · ".join((*parts, continuation))))
        if outcome.end != "done":
            sys.exit(1)


@contextlib.contextmanager
def _open_talk(
    where: Where, name: str | None, tools: bool, given: dict[str, Any]
) -> Iterator[tuple[Talk, asyncio.Runner]]:
    """A talk in the folder that is named, with its configuration and its store."""
    folder = check_folder(given["folder"])
    where = replace(where, folder=str(folder))
    with where.open(make=True) as loom, asyncio.Runner() as runner:
        settings = resolve_configuration(folder)
        session = None if name is None else loom.session(name)
        model = choose_model(given["model"], session, settings)
        if session is None:
            session = loom.new(
                "", model=wire_name(model) if model != SCRIPTED else "", system=SYSTEM
            )
        confined = not given["unconfined"]
        talk = Talk(loom, session, folder, tools=tools, yes=given["yes"], confined=confined)
        talk.use_model(model)
        yield talk, runner
        runner.run(loom.settle())


def _name_continuation(talk: Talk, task: str = "") -> str:
    """The command that continues a talk, with the options that it was started with."""
    context = click.get_current_context()
    words = ["loom", str(context.info_name), "--session", talk.session.id]
    for name in ("tools", "unconfined", "folder", "store", "project", "tenant", "agent"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            value = context.params[name]
            words += [f"--{name}"] if value is True else [f"--{name}", shlex.quote(str(value))]
    return " ".join((*words, task)).rstrip()


def _answer(runner: asyncio.Runner, talk: Talk, line: str) -> None:
    """Take one line of the user. An error ends the turn, and not the talk."""
    try:
        if is_slash(line):
            runner.run(run_slash(talk, line.strip()))
        else:
            runner.run(talk.say(line))
    except LoomError as error:
        note(str(error))
    except KeyboardInterrupt:
        _end_interrupted(runner, talk)


def _end_interrupted(runner: asyncio.Runner, talk: Talk) -> None:
    note("interrupted; what was stored stays")
    runner.run(talk.end_calls())


def _read_line(reader: LineReader, talk: Talk) -> str | None:
    """A line of the user; None at the end of the input. What was typed before a question came is
    first.
    """
    line, has_ended, rest = talk.typed.partition("\n")
    if not has_ended:
        talk.typed = ""
        return reader.read(line)
    talk.typed = rest
    say(f"{PROMPT}{make_printable(line)}")
    reader.remember(line)
    return make_printable(line)
