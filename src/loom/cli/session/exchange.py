"""`loom session export`: sessions that move to another store."""

from pathlib import Path

import click

from loom.cli.output import open_output
from loom.cli.store.where import in_store
from loom.cli.terminal import one_line, plural, say
from loom.engine.loom import Loom
from loom.errors import ChoiceError

DAMAGED = 1  # status of an export that had to leave something out


@click.command("export")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--all", "every", is_flag=True, help="Export all sessions of the project.")
@click.option("--everywhere", is_flag=True, help="Export all sessions of every tenant and project.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write (default: standard output).",
)
@in_store()
def export_command(
    loom: Loom, name: str | None, every: bool, everywhere: bool, output: Path | None
) -> None:
    """Export sessions as JSON lines, for import into another store.

    All ids stay the same. The file is written completely, or not at all.
    """
    if (name is not None) + every + everywhere != 1:
        raise ChoiceError("name one session to export, or give --all or --everywhere")
    missed: list[str] = []
    lines = loom.export(name, everywhere=everywhere, missed=missed)
    with open_output(output) as out:
        for line in lines:
            out.write(line + "\n")
    for what in missed:
        say(f"not exported, because it is damaged: {one_line(what, 200)}", err=True)
    if missed:
        say(
            f"{plural(len(missed), 'thing')} could not be exported; the rest can be imported. "
            "loom doctor shows the damage",
            err=True,
        )
        raise SystemExit(DAMAGED)
