"""Which store a command means, and whose things in it: the options that all commands on kept
sessions share.
"""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from loom.cli.settings.reading import find_configuration, read_configuration
from loom.cli.terminal import dim, say
from loom.engine.loom import Loom
from loom.engine.remembered import take_defaults
from loom.errors import StoreError
from loom.project.index.index_file import cache_folder
from loom.stores import STORE_VARIABLE, find_absent, open_database

PROJECT_VARIABLE, TENANT_VARIABLE = "LOOM_PROJECT", "LOOM_TENANT"
TRANSCRIPTS_SUFFIX = ".transcripts"  # of the index of transcripts next to a store
# What --agent does: for a command that may create sessions, and for one that only reads them.
CREATES_AS_AGENT = "Act as this agent: see only its sessions, and create new ones for it."
READS_AS_AGENT = "Act as this agent: see only its sessions."


class Where(Struct, frozen=True):
    """A store, and the scope in which it is looked at."""

    store: str | None
    project: str
    tenant: str
    agent: str
    folder: str = "."  # whose configuration is used

    def address(self) -> str | None:
        """The store that is named, or that is configured; None if neither.

        A project's file that is wrong may name one. Only if another origin does, which is stronger,
        the file is not needed.
        """
        if self.store is not None:
            return self.store
        found = find_configuration(self.folder)
        if found.problem and found.settings.store is None:
            raise found.problem.extend("it may name the store: --store names another")
        return found.settings.store

    def open(
        self, make: bool = False, creator: str = "loom session new", may_be_absent: bool = False
    ) -> Loom:
        """Only who has something to write makes a store where there is none; a slip in its name
        should not. `creator` is a command that makes one.

        If it `may_be_absent` and nobody names it, a store that is not there is an empty one.
        """
        address = self.address()
        if not make and (absent := self.absent()):
            said = f"there is no store at {absent} yet; {creator} creates one"
            if address is not None or not may_be_absent:
                raise StoreError(f"{said}, or choose another with --store")
            say(dim(said), err=True)
            address = ":memory:"
        found = read_configuration(self.folder)
        loom = Loom.open(address, tenant=self.tenant, project=self.project, agent=self.agent)
        loom.configuration, loom.defaults = found.settings, take_defaults(found.settings)
        return loom

    def transcript_index(self) -> Path:
        """The file with the index of transcripts: next to a store that is a file, and else with the
        caches of the user.
        """
        database = open_database(self.address())
        try:
            if database.name == "sqlite" and os.path.isabs(database.address):
                return Path(os.path.realpath(database.address) + TRANSCRIPTS_SUFFIX)
            return cache_folder() / "loom" / f"loom.db{TRANSCRIPTS_SUFFIX}"
        finally:
            database.close()

    def absent(self) -> str:
        """The file that the store would be, where there is none yet."""
        return find_absent(self.address())


def add_scope_options(
    command: Callable[..., None], project: str = "Project name", agent: str = CREATES_AS_AGENT
) -> Callable[..., None]:
    """Give a command the options of a store and a scope, as `where`; `project` says what its
    --project names, `agent` what its --agent does.
    """
    agent_help = agent
    said = f"{project.rstrip('.')} (default: ${PROJECT_VARIABLE}, or `default`)."

    @wraps(command)
    def run(store: str | None, project: str, tenant: str, agent: str, **given: Any) -> None:
        command(where=Where(store, project, tenant, agent), **given)

    for option in reversed(
        (
            click.option(
                "--store",
                metavar="URL",
                help=f"Path or postgres:// address of the store (default: ${STORE_VARIABLE}, or as "
                "configured (see `loom config show`), or a file in your data folder).",
            ),
            click.option(
                "--project", metavar="NAME", envvar=PROJECT_VARIABLE, default="default", help=said
            ),
            click.option(
                "--tenant",
                metavar="NAME",
                envvar=TENANT_VARIABLE,
                default="default",
                help=f"Tenant name (default: ${TENANT_VARIABLE}, or `default`).",
            ),
            click.option("--agent", metavar="NAME", default="", help=agent_help),
        )
    ):
        run = option(run)
    return run


def in_store(
    make: bool = False,
    agent: str = CREATES_AS_AGENT,
    creator: str = "loom session new",
    may_be_absent: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an open `loom`, closed after it; `agent` says what its --agent does.

    With `make`, the store is made where there is none. Else an error names the command `creator`,
    which makes one; with `may_be_absent`, there is nothing in it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(where: Where, **given: Any) -> None:
            with where.open(make, creator, may_be_absent) as loom:
                command(loom=loom, **given)

        return add_scope_options(run, agent=agent)

    return decorate
