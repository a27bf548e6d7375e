"""`loom doctor`: whether a store is whole, and what to do where it is not."""

from collections.abc import Mapping
from itertools import islice

import click
from msgspec.structs import asdict

from loom.cli import terminal
from loom.cli.store.where import READS_AS_AGENT, in_store
from loom.cli.terminal import amount, clean, dim, one_line, plural, say, style
from loom.cli.transcript.check import Several
from loom.conversation.canonical import to_json
from loom.engine.loom import Loom
from loom.stores import Problem, examine

SHOWN, PLACES = (
    20,
    5,
)  # kinds of problems that a person is told, and places of each; all are counted


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="Print the counts and the problems as one JSON object."
)
@in_store(agent=READS_AS_AGENT)
def doctor(loom: Loom, as_json: bool) -> None:
    """Check a store for damage.

    The check covers the whole store, and changes nothing. The options --project, --tenant and
    --agent do not limit it.
    The exit status is 0 if the store is sound, 1 if there is a problem, and 2 if the store cannot
    be opened.
    """
    found = examine(loom.store)
    problems: list[Problem] = Several()
    wrong = notes = 0
    for problem in found:
        notes += problem.note
        wrong += not problem.note
        problems.append(problem)
    database = loom.store.database
    if as_json:
        report = {"store": database.address, "bytes": database.size(), "looked": found.looked}
        report |= {"wrong": wrong, "notes": notes}
        say(to_json(report | {"problems": [asdict(problem) for problem in problems]}))
    else:
        say(f"{style(database.address, bold=True)} {dim(f'{amount(database.size())}B')}")
        _print_found(found.looked, problems, wrong, notes)
    if wrong:
        raise SystemExit(1)


def _print_found(
    looked: Mapping[str, int], problems: list[Problem], wrong: int, notes: int
) -> None:
    """What was checked, the problems by their kind, and the verdict."""
    counts = [
        plural(count, kind.removesuffix("s"), kind) for kind, count in looked.items() if count
    ]
    say(f"  checked {', '.join(counts) or 'nothing: the store is empty'}")
    by_what: dict[tuple[bool, str, str], list[str]] = {}
    for problem in problems:
        kind = (problem.note, problem.what, problem.remedy)
        by_what.setdefault(kind, []).append(problem.place)
    for (is_note, what, remedy), places in islice(by_what.items(), SHOWN):
        _print_problem(is_note, what, remedy, places)
    if len(by_what) > SHOWN or wrong + notes > len(problems):
        say(dim("  and more; --json lists the first thousand, and counts all"))
    if wrong:
        say(style(f"  ✗ {plural(wrong, 'problem')}", fg="red"))
    else:
        say(style("  ✓ no problems", fg="green"))


def _print_problem(is_note: bool, what: str, remedy: str, places: list[str]) -> None:
    mark, colour = ("!", "yellow") if is_note else ("✗", "red")
    say(
        f"  {style(mark, fg=colour, bold=True)} "
        f"{clean(what)}{f' ×{len(places):,}' if len(places) > 1 else ''}"
    )
    for place in places[:PLACES]:
        say(dim(f"      {one_line(place, terminal.width() - 6)}"))
    if len(places) > PLACES:
        say(dim(f"      and {len(places) - PLACES:,} more (with --json)"))
    say(f"      {style('→', fg='green')} {clean(remedy)}")
