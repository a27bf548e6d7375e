"""`loom map`: which files and definitions of a project matter, for a request or at all."""

import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from loom.budget.zones import DEFAULTS
from loom.cli.settings.reading import read_configuration
from loom.cli.terminal import clean, dim, plural, reading, say, style
from loom.conversation.canonical import to_json
from loom.errors import ChoiceError
from loom.project.counting import CountingProcess

if TYPE_CHECKING:
    from loom.project.draw.render import Map

COLOURS = {"high": "green", "medium": "yellow", "low": None}
PAUSE_SECONDS = 0.5  # seconds between two looks


@click.command("map")
@click.argument("path", metavar="[PATH]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Largest size of the map, in tokens (default: as configured, or {DEFAULTS['repo_map']}).",
)
@click.option("--query", metavar="TEXT", help="Request that the map is for.")
@click.option(
    "--query-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the request; - is standard input.",
)
@click.option(
    "--watch", is_flag=True, help="Print the map again whenever a file changes. Stop with Ctrl-C."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the map, its tokens and its files as one JSON object.",
)
def map_command(
    path: Path,
    tokens: int | None,
    query: str | None,
    query_file: Path | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Show the files and definitions of a project that matter most.

    With --query or --query-file, the map shows what matters for that request.
    PATH is the folder of the project (default: the current folder). Its index is stored in your
    cache folder.
    """
    counting = CountingProcess()  # first, because it takes as long as all else together
    from loom.project.maps import notes, project_map  # here, because numpy takes long to load

    text = _query(query, query_file)
    if tokens is None:
        sizes = read_configuration(path).settings.zones
        tokens = sizes.get("repo_map") or DEFAULTS["repo_map"]
    last: Map | None = None
    with suppress(KeyboardInterrupt) if watch else nullcontext():  # that is how watching ends
        while True:
            made = project_map(path, text, tokens=tokens, count=counting.count, progress=reading())
            if made != last:
                if as_json:
                    say(
                        to_json(
                            {
                                "map": made.text,
                                "tokens": made.tokens,
                                "files": to_builtins(made.files),
                            }
                        )
                    )
                else:
                    print_map(made)
                for told in notes(path):
                    say(dim(told), err=True)
                last = made
            if not watch:
                return
            time.sleep(PAUSE_SECONDS)


def _query(query: str | None, file: Path | None) -> str:
    if query is not None and file is not None:
        raise ChoiceError("--query and --query-file both give the request; use only one of them")
    if file is None:
        return query or ""
    try:
        if str(file) == "-":
            held = sys.stdin.buffer.read()
        else:
            held = file.read_bytes()
    except OSError as error:
        raise ChoiceError(
            f"{file} cannot be read: {error.strerror}; give a file with the request"
        ) from None
    return held.decode(errors="replace")


def print_map(made: "Map") -> None:
    for line in made.text.splitlines():
        relevance = next((name for name in COLOURS if line.endswith(f"(relevance: {name})")), None)
        if line.startswith("### ") and relevance:
            head = line.removesuffix(f" (relevance: {relevance})")
            say(
                f"{style(clean(head), bold=True)} "
                f"{style(f'(relevance: {relevance})', fg=COLOURS[relevance])}"
            )
        else:
            say(clean(line))
    # To the terminal, and not into a file that is to hold the map.
    size = f"{made.tokens:,} tokens, {plural(len(made.files), 'file')}"
    say(dim(size if made.files else "nothing to show: there are no files, or none fits"), err=True)
