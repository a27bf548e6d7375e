"""The command `loom`: argv in, text out."""

import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NamedTuple

import click

from loom.cli.groups import Group, name_unknown_option
from loom.cli.terminal import clean
from loom.errors import LoomError, UnreadableWarning, shorten


class _Failure(click.ClickException):
    """An error that ends the command with one line and the status 2; status 1 is for findings."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"loom: {clean(' '.join(self.format_message().split()))}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning in one line, without where in the code it came from."""
    click.echo(f"loom: {clean(' '.join(str(message).split()))}", err=True)


class _Home(NamedTuple):
    """The module of a command below `loom.cli`, and the function in it."""

    module: str
    function: str
    reads_file: bool = False  # its arguments may be -#N, a run of standard input


# Where each command is, so that only what is called is loaded. A command is a line here.
_HOMES = {
    "budget": _Home("request.budget", "budget"),
    "chat": _Home("agent.commands", "chat"),
    "check": _Home("transcript.check", "check", reads_file=True),
    "config": _Home("settings.config", "config"),
    "convert": _Home("transcript.convert", "convert", reads_file=True),
    "count": _Home("request.budget", "count", reads_file=True),
    "decisions": _Home("store.decisions", "decisions"),
    "demo": _Home("demo.commands", "demo"),
    "doctor": _Home("store.doctor", "doctor"),
    "events": _Home("store.events", "events"),
    "explain": _Home("request.weave", "explain", reads_file=True),
    "init": _Home("settings.config", "init"),
    "knowledge": _Home("store.knowledge", "knowledge"),
    "map": _Home("request.map", "map_command"),
    "memory": _Home("store.memory", "memory"),
    "message": _Home("store.messages", "message"),
    "models": _Home("settings.models", "models"),
    "policy": _Home("settings.policy", "policy"),
    "recall": _Home("request.recall", "recall"),
    "replay": _Home("request.replay", "replay", reads_file=True),
    "rules": _Home("project.rules", "rules"),
    "run": _Home("agent.commands", "run_task"),
    "search": _Home("request.search", "search"),
    "session": _Home("session.commands", "session"),
    "show": _Home("transcript.show", "show", reads_file=True),
    "skills": _Home("project.skills", "skills"),
    "task": _Home("store.tasks", "task"),
    "tree": _Home("tree.commands", "tree"),
    "weave": _Home("request.weave", "weave", reads_file=True),
}


class _Group(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _HOMES.get(cmd_name)
        if home is None:
            return None
        module = import_module(f"loom.cli.{home.module}")
        command: click.Command = getattr(module, home.function)
        if home.reads_file:
            command.context_settings["ignore_unknown_options"] = True
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UnreadableWarning)
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except click.UsageError as error:
            name_unknown_option(error)
            raise
        except LoomError as error:
            raise _Failure(str(error)) from None
        except RecursionError:
            raise _Failure("the input is nested too deeply to be read") from None
        except MemoryError:
            raise _Failure("the input does not fit into memory; write it as JSON lines") from None
        except BrokenPipeError:
            raise
        except OSError as error:
            name = shorten(str(error.filename or "input or output"), 200)
            raise _Failure(f"{name}: {error.strerror or error}") from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loomwright", prog_name="loom")
def cli() -> None:
    """Loom decides what a language model sees.

    Many commands take a FILE: a transcript in any format that Loom knows. The format is detected.
    FILE#N is run N of a file with several runs, counted from 0.
    A single - is standard input.
    """


def run() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # JSON is UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    cli(prog_name="loom")
