"""`loom budget` and `loom count`: how a window is divided, and what a transcript takes of one."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Unpack

import click
from msgspec import Struct
from msgspec.structs import asdict

from loom.budget.models import model as find_model
from loom.budget.zones import MESSAGE_TOKENS, BudgetOptions, allocate_budget, messages_that_fit
from loom.cli.models import user_overrides
from loom.cli.terminal import COLOURS, bar, clean, dim, note, one_line, plural, say, style
from loom.context.weave import gate_counter
from loom.conversation.canonical import to_json
from loom.transcripts.formats import read_runs
from loom.transcripts.runs import Run

BAR = 40
ZONE_COLOURS = {"history": "green", "reserved_output": "yellow", "free": "white"}


@click.command()
@click.argument("model")
@click.option("--reserved-output", type=int, help="Tokens kept for the answer.")
@click.option("--max-repo-map-tokens", type=int, help="Tokens of the map of the repository.")
@click.option("--max-decision-tokens", type=int, help="Tokens of decisions.")
@click.option("--system-prompt", type=int, help="Tokens of the system text.")
@click.option("--tool-definitions", type=int, help="Tokens of the tools.")
@click.option("--window", type=int, help="The whole window; the model's by default.")
@click.option("--max-tokens", type=int, help="The legacy limit: it stands for the window, and no zones are set aside.")
@click.option("--json", "as_json", is_flag=True, help="Print zone and tokens, and the total, as JSON.")
def budget(model: str, as_json: bool, **given: Unpack[BudgetOptions]) -> None:
    """Divide a model's window into zones."""
    options: BudgetOptions = {"overrides": user_overrides()}
    options |= {name: value for name, value in given.items() if value is not None}  # type: ignore[typeddict-item]
    divided = allocate_budget(model, **options)
    if as_json:
        say(to_json(divided.as_dict()))
        return
    say(f"{style(model, bold=True)} {divided.window:,} tokens")
    for zone in divided.zones:
        print_zone(zone.name, zone.tokens, divided.window)
    fitting = plural(messages_that_fit(divided), "message")
    say(dim(f"  about {fitting} of {MESSAGE_TOKENS} tokens fit into history"))
    for text in divided.notes:
        note(text)


def print_zone(name: str, tokens: int, window: int) -> None:
    """A zone on one line: its tokens, and its share of the window as a bar."""
    share = tokens / window if window else 0.0
    drawn = bar(share, BAR) or ("▏" if tokens else "")
    say(f"  {clean(name):<17}{tokens:>10,} {share:>6.1%}  {style(drawn, fg=ZONE_COLOURS.get(name, 'blue'))}".rstrip())


def read_several(file: str) -> tuple[Iterator[Run], bool]:
    """The runs of a file, and whether there are several: those are told a line each."""
    runs = read_runs(file)
    first = list(islice(runs, 2))
    return chain(first, runs), len(first) > 1


class Counted(Struct):
    """What one run takes. `exact` is false where another tokenizer stands in for one that is not public."""

    run: int
    name: str
    format: str
    model: str
    counter: str
    exact: bool
    window: int
    system: int
    tools: int
    messages: dict[str, int]
    total: int


def count_run(run: Run, model: str | None, window: int, exact: bool) -> Counted:
    counter = gate_counter(model)
    by_role: Counter[str] = Counter()
    for message in run.messages():
        by_role[message.role] += counter.count_message(message)
    system, tools = sum(map(counter.count_message, run.head.system)), counter.count_tools(run.head.tools)
    total = system + tools + sum(by_role.values()) + counter.profile.per_list
    return Counted(
        run.number, run.name, run.format, model or "", counter.profile.name, exact, window, system, tools, dict(by_role), total
    )


@click.command()
@click.argument("file")
@click.option("--model", help="The model to count for; what the transcript names by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def count(file: str, model: str | None, as_json: bool) -> None:
    """Count the tokens of a transcript: system text, tools, and messages by role."""
    overrides = user_overrides()
    reports: list[dict[str, Any]] = []
    runs, several = read_several(file)
    if several and not as_json:
        say(dim(f"several runs: count one as {clean(file)}#N"))
    for run in runs:
        named = find_model(model or run.head.model or None, overrides)
        counted = count_run(run, model or run.head.model or None, named.window, bool(named.encoding))
        if as_json:
            reports.append(asdict(counted))
        elif several:
            name = one_line(counted.name, 40)
            drawn = style(bar(counted.total / counted.window, BAR), fg="blue")
            say(f"#{counted.run:<5} {name + ' ' if name else ''}{counted.total:>9,} tokens  {drawn}".rstrip())
        else:
            print_counted(counted)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))


def print_counted(counted: Counted) -> None:
    title = f"{one_line(f'#{counted.run} {counted.name}', 60)}: " if counted.run or counted.name else ""
    how = f"counted by {counted.counter}" if counted.exact else f"{counted.counter} stands in: no public tokenizer"
    about = f"({counted.format}, {clean(counted.model) or 'no model named'}, {how})"
    say(f"{title}{style(f'{counted.total:,} tokens', bold=True)} {dim(about)}")
    for name, tokens in (("system", counted.system), ("tools", counted.tools), *counted.messages.items()):
        share = tokens / (counted.total or 1)
        say(f"  {name:<10}{tokens:>10,} {share:>6.1%}  {style(bar(share, BAR), fg=COLOURS.get(name, 'blue'))}".rstrip())
    say(dim(f"  {counted.total / counted.window:.1%} of a window of {counted.window:,}"))
