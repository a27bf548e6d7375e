"""The command `loom`: argv in, text out."""

import sys
from io import TextIOWrapper
from typing import Any

import click

from loom.cli.budget import budget, count
from loom.cli.check import check
from loom.cli.convert import convert
from loom.cli.demo import demo
from loom.cli.doctor import doctor
from loom.cli.models import models
from loom.cli.policy import policy
from loom.cli.recall import recall
from loom.cli.replay import replay
from loom.cli.session import session
from loom.cli.show import show
from loom.cli.terminal import clean
from loom.cli.tree import tree
from loom.cli.weave import explain, weave
from loom.errors import LoomError, shorten


class _Failure(click.ClickException):
    """An error that ends the command with one line and the status 2; status 1 is for findings."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"loom: {clean(' '.join(self.format_message().split()))}", err=True)


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
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

    FILE is a transcript of any kind Loom knows, found from its content; FILE#N names one run (from 0) of a file that
    holds several; - is standard input.
    """


for command in (check, convert, show, weave, explain, replay, count):
    command.context_settings["ignore_unknown_options"] = True  # -#N names a run of standard input
    cli.add_command(command)
for command in (session, tree, recall, doctor, budget, models, policy, demo):
    cli.add_command(command)


def run() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # JSON is UTF-8 whatever the locale says
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    cli(prog_name="loom")
