"""`loom budget` and `loom count`: how a window is divided, and what a transcript takes of one."""

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Any, Unpack, cast

import click
from msgspec import Struct, to_builtins

from loom.budget.counting import gate_counter
from loom.budget.models import model as find_model
from loom.budget.zones import MESSAGE_TOKENS, BudgetOptions, allocate_budget, messages_that_fit
from loom.cli.settings.models import user_overrides
from loom.cli.settings.reading import read_configuration
from loom.cli.table import print_table
from loom.cli.terminal import (
    COLOURS,
    bar,
    clean,
    dim,
    note,
    one_line,
    plural,
    say,
    say_dim,
    style,
    width,
)
from loom.cli.transcript.show import look
from loom.conversation.canonical import to_json
from loom.conversation.message import Message, Text
from loom.errors import ChoiceError
from loom.transcripts.formats import read_runs
from loom.transcripts.runs import Run

BAR_COLUMNS = 40
ZONE_COLUMNS = 39  # of the line of a zone, before its bar
BEGINNING_CHARS = 200  # characters of a large message that tell which one it is
ZONE_COLOURS = {"history": "green", "reserved_output": "yellow", "free": "white"}


@click.command()
@click.argument("model", required=False)
@click.option(
    "--reserved-output", type=int, metavar="TOKENS", help="Tokens reserved for the answer."
)
@click.option(
    "--max-repo-map-tokens",
    type=int,
    metavar="TOKENS",
    help="Tokens for the map of the repository.",
)
@click.option("--max-decision-tokens", type=int, metavar="TOKENS", help="Tokens for decisions.")
@click.option("--system-prompt", type=int, metavar="TOKENS", help="Tokens for the system text.")
@click.option(
    "--tool-definitions", type=int, metavar="TOKENS", help="Tokens for the tool definitions."
)
@click.option(
    "--window",
    type=int,
    metavar="TOKENS",
    help="Size of the whole window (default: the model's window).",
)
@click.option(
    "--max-tokens",
    type=int,
    metavar="TOKENS",
    help="Legacy limit: the window is this number, and there are no zones except history.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the tokens of each zone and the total as JSON."
)
def budget(model: str | None, as_json: bool, **given: Unpack[BudgetOptions]) -> None:
    """Show how the window of a model is divided into zones.

    Without MODEL, the configured model is shown.
    """
    configured = read_configuration().settings
    model = model or configured.model
    if model is None:
        raise ChoiceError("name a MODEL, or configure context.model (see `loom config show`)")
    options: BudgetOptions = {
        "overrides": user_overrides(),
        **cast("BudgetOptions", configured.budget_sizes()),
    }
    named = {name: value for name, value in given.items() if value is not None}
    options |= named  # type: ignore[typeddict-item]
    divided = allocate_budget(model, **options)
    if as_json:
        say(to_json(divided.as_dict()))
        return
    say(f"{style(model, bold=True)} {divided.window:,} tokens")
    for zone in divided.zones:
        print_zone(zone.name, zone.tokens, divided.window)
    fitting = plural(messages_that_fit(divided), "message")
    say(dim(f"  history can have about {fitting} of {MESSAGE_TOKENS} tokens"))
    for text in divided.notes:
        note(text)


def print_zone(name: str, tokens: int, window: int) -> None:
    """A zone on one line: its tokens, and its share of the window as a bar."""
    share = tokens / window if window else 0.0
    columns = max(min(BAR_COLUMNS, width() - ZONE_COLUMNS), 1)
    drawn = bar(share, columns) or ("▏" if tokens else "")
    say(
        (
            f"  {clean(name):<17}{tokens:>10,} {share:>6.1%}  "
            f"{style(drawn, fg=ZONE_COLOURS.get(name, 'blue'))}"
        ).rstrip()
    )


def read_several(file: str) -> tuple[Iterator[Run], bool]:
    """The runs of a file, and whether there are several: those are told a line each."""
    runs = read_runs(file)
    first = list(islice(runs, 2))
    return chain(first, runs), len(first) > 1


class ToolUse(Struct):
    """What a tool takes of a run: how often it was called, and the tokens of its calls and of its
    results.
    """

    calls: int = 0
    call_tokens: int = 0
    result_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.call_tokens + self.result_tokens


class Large(Struct, order=True):
    """One of the largest messages: its tokens and its place, who speaks, the tools that it calls
    or answers, how it begins.
    """

    tokens: int
    message: int
    role: str
    tools: str
    begins: str


class RunCount(Struct):
    """What one run takes.

    `exact` is false where another tokenizer stands in for one that is not public.
    """

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
    by_tool: dict[str, ToolUse]
    largest: list[Large]


def count_run(run: Run, model: str | None, window: int, exact: bool, largest: int = 0) -> RunCount:
    counter = gate_counter(model)
    by_role: Counter[str] = Counter()
    uses = ToolUses(counter.count_text)
    found: list[Large] = []
    for place, message in enumerate(run.messages()):
        tokens = counter.count_message(message)
        by_role[message.role] += tokens
        names = uses.add(message)
        if largest:
            begins = " ".join(text for _, text in map(look, message.parts))[:BEGINNING_CHARS]
            heappush(found, Large(tokens, place, message.role, ", ".join(names), begins))
            if len(found) > largest:
                heappop(found)
    system, tools = (
        sum(map(counter.count_message, run.head.system)),
        counter.count_tools(run.head.tools),
    )
    total = system + tools + sum(by_role.values()) + counter.profile.per_list
    return RunCount(
        run=run.number,
        name=run.name,
        format=run.format,
        model=model or "",
        counter=counter.profile.name,
        exact=exact,
        window=window,
        system=system,
        tools=tools,
        messages=dict(by_role),
        total=total,
        by_tool=dict(sorted(uses.found.items(), key=lambda use: -use[1].tokens)),
        largest=sorted(found, reverse=True),
    )


class ToolUses:
    """What each tool takes, message by message.

    A result is its call's, and where that is not known, its own name's.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self.found: dict[str, ToolUse] = {}
        self._count = count
        self._names: dict[str, str] = {}

    def add(self, message: Message) -> list[str]:
        """Take in a message; the tools that it is about."""
        names: list[str] = []
        for call in message.calls:
            use = self.found.setdefault(call.name, ToolUse())
            use.calls += 1
            use.call_tokens += self._count(call.name) + self._count(call.arguments)
            self._names[call.id] = call.name
            names.append(call.name)
        for result in message.results:
            name = self._names.get(result.call_id) or result.name or "unknown"
            use = self.found.setdefault(name, ToolUse())
            use.result_tokens += sum(
                self._count(part.text) for part in result.parts if isinstance(part, Text)
            )
            names.append(name)
        return list(dict.fromkeys(names))


@click.command()
@click.argument("file")
@click.option(
    "--model", metavar="NAME", help="Model to count for (default: the one named in the transcript)."
)
@click.option(
    "--by",
    type=click.Choice(["role", "tool"]),
    default="role",
    show_default=True,
    help="Add up the tokens of each role or of each tool.",
)
@click.option(
    "--largest",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also show the N largest messages.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def count(file: str, model: str | None, by: str, largest: int, as_json: bool) -> None:
    """Count the tokens of a transcript, and show what uses the most.

    By default, it shows the tokens of the system text, the tools and each role.
    With --by tool, it shows the calls and results of each tool.
    """
    overrides = user_overrides()
    reports: list[dict[str, Any]] = []
    runs, several = read_several(file)
    if several and not as_json:
        say(dim(f"several runs; count one with {clean(file)}#N"))
    for run in runs:
        wanted = model or run.head.model or read_configuration().settings.model
        named = find_model(wanted, overrides)
        counted = count_run(run, wanted, named.window, bool(named.encoding), largest)
        if as_json:
            reports.append(to_builtins(counted))
        elif several:
            _print_short(counted)
        else:
            print_counted(counted, by)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))


def _print_short(counted: RunCount) -> None:
    """One of several runs, on one line."""
    name = one_line(counted.name, 40)
    lead = f"{name} " if name else ""
    drawn = style(bar(counted.total / counted.window, BAR_COLUMNS), fg="blue")
    say(f"#{counted.run:<5} {lead}{counted.total:>9,} tokens  {drawn}".rstrip())


def print_counted(counted: RunCount, by: str) -> None:
    title = ""
    if counted.run or counted.name:
        title = f"{one_line(f'#{counted.run} {counted.name}', 60)}: "
    say(
        f"{title}{style(f'{counted.total:,} tokens', bold=True)}, "
        f"{counted.total / counted.window:.1%} of {counted.window:,}"
    )
    if counted.exact:
        how = f"counted by {counted.counter}"
    else:
        how = f"{counted.counter} instead of a tokenizer that is not public"
    say_dim(f"{counted.format}, {counted.model or 'no model named'}, {how}")
    if by == "tool":
        _print_uses(counted)
    else:
        for name, tokens in (
            ("system", counted.system),
            ("tools", counted.tools),
            *counted.messages.items(),
        ):
            share = tokens / (counted.total or 1)
            say(
                (
                    f"  {name:<10}{tokens:>10,} {share:>6.1%}  "
                    f"{style(bar(share, BAR_COLUMNS), fg=COLOURS.get(name, 'blue'))}"
                ).rstrip()
            )
    for large in counted.largest:
        lead = f"  {large.tokens:>9,}  message {large.message:<6} {large.role:<9} "
        if large.tools:
            what = f"{large.tools}: {large.begins}"
        else:
            what = large.begins
        shown = style(lead, fg=COLOURS.get(large.role, "blue"))
        say(f"{shown}{one_line(what, width() - len(lead))}")


def _print_uses(counted: RunCount) -> None:
    """A line for each tool: how often it was called, and the tokens of its calls and results."""
    if not counted.by_tool:
        say_dim("no tool was called")
        return
    names = ["tool", "calls", "call tokens", "result tokens", "share"]
    rows = [
        [
            name,
            f"{use.calls:,}",
            f"{use.call_tokens:,}",
            f"{use.result_tokens:,}",
            f"{use.tokens / (counted.total or 1):.1%}",
        ]
        for name, use in counted.by_tool.items()
    ]
    print_table(names, rows, cut=0, right=(1, 2, 3, 4))
