"""The configuration of a folder for commands that can do without the project's file.

A file that cannot be read stops those commands that would otherwise do something else than it says:
they act for the project, or they need a store that it may name. A wrong key or value stops all that
use the configuration.
"""

import os
from os import PathLike

import click
from msgspec import Struct

from loom.cli.terminal import clean
from loom.config.project_file import IGNORE_PROJECT_VARIABLE
from loom.config.settings import (
    Configuration,
    find_project_file,
    resolve_configuration,
    settle_configuration,
)
from loom.errors import ConfigError

_WARNED = f"{__name__}.warned"  # what was said already while a command runs


class ReadConfiguration(Struct, frozen=True):
    """The configuration that is used, and why that of the project cannot be read."""

    settings: Configuration
    problem: ConfigError | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of it in a report."""
        return (_describe(self.problem),) if self.problem else ()


def read_configuration(folder: str | PathLike[str] = ".") -> ReadConfiguration:
    """The configuration of a folder. If the project's file cannot be read, a warning says so."""
    found = find_configuration(folder)
    warned = click.get_current_context().meta.setdefault(_WARNED, set())
    for said in found.notes:
        if said not in warned:
            warned.add(said)
            click.echo(f"loom: {clean(' '.join(said.split()))}", err=True)
    return found


def find_configuration(folder: str | PathLike[str] = ".") -> ReadConfiguration:
    """The same without a warning."""
    project = find_project_file(folder)
    if project.problem is None:
        return ReadConfiguration(settle_configuration(project))
    without = {**os.environ, IGNORE_PROJECT_VARIABLE: "1"}
    settings = resolve_configuration(folder, environment=without)
    return ReadConfiguration(settings, project.problem)


def _describe(problem: ConfigError) -> str:
    return f"{problem}; nothing of it is used"
