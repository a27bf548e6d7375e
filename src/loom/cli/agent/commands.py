"""`loom chat` and `loom run`: talk with a model, or let it carry out a task."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from loom.cli.agent.lines import PROMPT, LineReader
from loom.cli.agent.slash import QUIT, complete_slash, is_slash, run_slash
from loom.cli.agent.talk import TALK_LIMITS, Talk, check_folder, choose_model, open_talk
from loom.cli.store.where import Where, add_scope_options
from loom.cli.terminal import dim, make_printable, note, plural, say
from loom.config.settings import resolve_configuration
from loom.errors import LoomError

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
    Without a key, a script plays the model.
    """
    with where.open(make=True) as loom, asyncio.Runner() as runner:
        talk = _open(loom, name, tools, given)
        say(dim(f"session {talk.session.id} · model {talk.model_name} · /help, /quit"))
        reader = LineReader(lambda line: complete_slash(talk, line))
        while True:
            line = _read_line(reader, talk)
            if line is None or line.strip() in QUIT:
                break
            if line.strip():
                _answer(runner, talk, line)
        runner.run(loom.settle())
        say(dim(f"loom chat --session {talk.session.id} continues"))


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
    with where.open(make=True) as loom, asyncio.Runner() as runner:
        talk = _open(loom, name, True, given)
        outcome = runner.run(talk.say(task, replace(TALK_LIMITS, steps=steps, cost=cost)))
        runner.run(loom.settle())
        spent, parts = outcome.spent, []
        parts.append(f"{plural(spent.steps, 'answer')}, {spent.tokens:,} tokens, ${spent.cost:.4f}")
        if outcome.end != "done":
            parts.append(f"ended at a limit: {outcome.end}")
        parts.append(f"loom run --session {talk.session.id} continues")
        say(dim(" · ".join(parts)))
        if outcome.end != "done":
            sys.exit(1)


def _open(loom: Any, name: str | None, tools: bool, given: dict[str, Any]) -> Talk:
    folder = check_folder(given["folder"])
    settings = resolve_configuration(folder)
    session = open_talk(loom, settings, folder, name, given["model"])
    confined = not given["unconfined"]
    talk = Talk(loom, session, folder, tools=tools, yes=given["yes"], confined=confined)
    choose_model(talk, given["model"])
    return talk


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
