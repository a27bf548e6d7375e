"""`loom tree import` and `loom tree export`: whole trees that come and go."""

from itertools import chain
from pathlib import Path

import click

from loom.cli import terminal
from loom.cli.output import open_output
from loom.cli.progress import Progress
from loom.cli.store.where import Where, add_scope_options, in_store
from loom.cli.terminal import dim, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.conversation.tree import Tree
from loom.engine.loom import Loom
from loom.errors import ChoiceError, LoomError, TranscriptError
from loom.transcripts.trees import read_trees, write_trees


class TreeTally:
    """What a file had so far."""

    def __init__(self) -> None:
        self.trees = self.nodes = self.branch_points = 0

    def add(self, tree: Tree) -> None:
        self.trees += 1
        self.nodes += len(tree.nodes)
        self.branch_points += tree.branch_points


@click.command(
    "import", context_settings={"ignore_unknown_options": True}
)  # -#N names a tree of standard input
@click.argument("file")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the number of trees, nodes and branch points in FILE as JSON.",
)
@add_scope_options
def import_trees(where: Where, file: str, as_json: bool) -> None:
    """Import every tree of a file.

    FILE is an export of ChatGPT or Claude.ai, a session file, OpenAssistant trees, an export of
    Loom, or any transcript.
    FILE#N imports tree N, counted from 0. A single - is standard input. A second import adds only
    what is new.
    """
    trees, tally = read_trees(file), TreeTally()
    first = next(trees, None)  # a file that cannot be read makes no store
    if first is not None:
        with where.open(make=True) as loom:
            try:
                for tree in chain([first], trees):
                    _bring(loom, tree, tally, as_json)
            except LoomError as error:
                raise TranscriptError(
                    f"{error}; imported before it: {plural(tally.trees, 'tree')}"
                ) from None
    if as_json:
        say(
            to_json(
                {"trees": tally.trees, "nodes": tally.nodes, "branch_points": tally.branch_points}
            )
        )
    else:
        forks = plural(tally.branch_points, "branch point")
        say(dim(f"{plural(tally.trees, 'tree')}, {plural(tally.nodes, 'node')}, {forks}"))


def _bring(loom: Loom, tree: Tree, tally: TreeTally, as_json: bool) -> None:
    with Progress() as progress:
        progress.tell(tally.nodes)
        brought, made = loom.import_tree(tree)
    tally.add(tree)
    if as_json:
        return
    known = len(tree.nodes) - made
    there = f", {known:,} already stored" if known else ""
    lead = f"{brought.id}  {plural(len(tree.nodes), 'node')}{there}  "
    title = one_line(tree.title or "(no title)", max(terminal.width() - len(lead), 20))
    say(f"{style(brought.id, fg='blue')}  {plural(len(tree.nodes), 'node')}{dim(there)}  {title}")


@click.command("export")
@click.argument("names", metavar="[TREE]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Export all trees of the project.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write (default: standard output).",
)
@in_store()
def export_trees(loom: Loom, names: tuple[str, ...], every: bool, output: Path | None) -> None:
    """Export trees as JSON lines, in Loom's own format.

    Trees that were imported keep their original ids. The file is written completely, or not at all.
    """
    if bool(names) == every:
        raise ChoiceError("name the trees to export, or give --all")
    if every:  # in the order in which they came, so that a second store gives the same file
        names = tuple(
            one.tree.row.id for one in sorted(loom.trees(), key=lambda one: one.tree.row.key)
        )
    else:
        names = tuple(loom.tree(name).id for name in names)
    with open_output(output) as out:
        for line in write_trees(loom.export_tree(name) for name in names):
            out.write(line + "\n")
