"""`loom session export` and `loom session import`: sessions that move, and transcripts that become
sessions.
"""

from collections.abc import Iterable, Iterator
from os import fspath
from pathlib import Path
from typing import Any

import click

from loom.cli import terminal
from loom.cli.output import open_output
from loom.cli.progress import Progress
from loom.cli.store.where import Where, add_scope_options, in_store
from loom.cli.terminal import dim, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.engine.importing import import_run
from loom.engine.loom import Loom
from loom.errors import ChoiceError
from loom.stores import ImportedSession, is_export
from loom.transcripts import files
from loom.transcripts.formats import read_runs

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


@click.command(
    "import", context_settings={"ignore_unknown_options": True}
)  # -#N names a run of standard input
@click.argument("file")
@click.option(
    "--everywhere",
    is_flag=True,
    help="Put each session of an export into the tenant and project that it came from.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each session and its number of messages as JSON."
)
@add_scope_options
def import_command(where: Where, file: str, everywhere: bool, as_json: bool) -> None:
    """Import exported sessions, or any transcript, into the store.

    Sessions from `loom session export` keep their ids. Each run of a transcript becomes a session.
    FILE#N imports run N of a file with several runs. A single - is standard input.
    """
    path, number = files.locate(file)
    path = files.unpack_file(path)
    files.inspect(path)
    exported = is_export(_first_line(path))
    if exported and number is not None:
        raise ChoiceError(
            f"{path} is an export, which is imported as a whole; omit #{number}, which selects a "
            "run of a transcript"
        )
    if everywhere and not exported:
        raise ChoiceError(
            f"{path} is a transcript, which names no project; --everywhere works only with files "
            "of loom session export"
        )
    done: list[dict[str, Any]] = []
    with where.open(make=True) as loom:
        if exported:
            imports: Iterable[ImportedSession] = _import_export(loom, path, everywhere)
        else:
            imports = _import_transcript(loom, path, number)
        for imported in imports:
            done.append({"session": imported.session, "messages": imported.messages})
            if not as_json:
                title = ""
                if not everywhere:
                    title = loom.session(imported.session).row.title
                _print_import(imported, title)
    if as_json:
        say(to_json(done[0] if len(done) == 1 else done))


def _print_import(imported: ImportedSession, title: str) -> None:
    """A session that was imported, on one line."""
    size = f"{plural(imported.messages, 'message'):>15}"
    known = imported.messages - imported.new
    if known:
        size += dim(f", {plural(known, 'was', 'were')} already stored")
    title = one_line(title, max(terminal.width() - 40, 20))
    say(f"{style(imported.session, fg='blue')}{size}  {title}".rstrip())


def _import_export(loom: Loom, path: Path, everywhere: bool) -> list[ImportedSession]:
    with Progress(path.stat().st_size) as progress:
        return loom.import_lines(
            progress.reading(path), everywhere=everywhere, progress=progress.tell
        )


def _import_transcript(loom: Loom, path: Path, number: int | None) -> Iterator[ImportedSession]:
    for run in read_runs(f"{fspath(path)}#{number}" if number is not None else fspath(path)):
        with Progress() as progress:
            session = import_run(loom, run, progress.tell)
        yield ImportedSession(session.id, len(session.path), len(session.path))


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(1000).decode("utf-8-sig", errors="replace")
