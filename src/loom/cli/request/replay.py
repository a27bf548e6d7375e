"""`loom replay`: a transcript played call by call, and what each policy would have sent."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from loom.cli import terminal
from loom.cli.request.budget import read_several
from loom.cli.request.options import read_policy
from loom.cli.settings.models import user_overrides
from loom.cli.settings.reading import read_configuration
from loom.cli.terminal import clean, columns_of, dim, note, one_line, plural, say, style
from loom.context import Context, Policy
from loom.conversation.canonical import to_json
from loom.engine.replay import PlayedPolicy, ReplayFigures
from loom.engine.replay import replay as play
from loom.errors import ChoiceError
from loom.transcripts.runs import Run

HEIGHTS = "▁▂▃▄▅▆▇█"
UNTOLD = "–"


@click.command()
@click.argument("file")
@click.option(
    "--window",
    type=int,
    metavar="TOKENS",
    help="Size of the whole window (default: the model's window).",
)
@click.option(
    "--reserve",
    type=int,
    metavar="TOKENS",
    help="Part of the window reserved for the answer (default: as the policy says).",
)
@click.option(
    "--policy",
    "names",
    metavar="NAMES",
    help="Policies to compare, as A,B,…; each is a name or a TOML file (see `loom policy list`). "
    "Default: the configured policy, or `default`.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="Model that gets the requests (default: the one named in the transcript, or gpt-4o).",
)
@click.option(
    "--dump",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the requests. Each is written as NNNN.json.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def replay(
    file: str,
    window: int | None,
    reserve: int | None,
    names: str | None,
    model: str | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    """Replay a transcript call by call, and measure policies on it.

    Each message of the model was the answer to a call. For each call, the request is built again
    from the messages before it.
    """
    configured, overrides = read_configuration().settings, user_overrides()
    policies = [configured.policy or "default"] if names is None else _policies(names)
    runs, several = read_several(file)
    if several and not as_json:
        say(
            dim(
                f"several runs; replay one with {clean(file)}#N. The three figures count calls "
                "over budget, with torn pairs, and without the goal"
            )
        )
    output = _Output(file, several, as_json)
    for run in runs:
        folder = dump / str(run.number) if dump and several else dump
        dumped = _Dump(folder, len(policies) > 1) if folder else None
        played = play(
            run.conversation(),
            policies,
            model=model or (None if run.head.model else configured.model),
            window=configured.window if window is None else window,
            reserve_output=configured.reserve_output if reserve is None else reserve,
            overrides=overrides,
            sent=dumped,
        )
        if dumped:
            dumped.tell_of_others()
        output.add(run, played)
    output.end()


class _Output:
    """Prints what was measured: a picture of one run, a line for each of several, or JSON."""

    def __init__(self, file: str, several: bool, as_json: bool) -> None:
        self._file, self._several, self._as_json = file, several, as_json
        self._reports: list[dict[str, Any]] = []
        self._sums: dict[str, list[ReplayFigures]] = {}

    def add(self, run: Run, played: dict[str, PlayedPolicy]) -> None:
        if self._as_json:
            if self._several:
                name = f"{self._file}#{run.number}"
            else:
                name = self._file
            self._reports.append(_as_dict(name, played))
        elif self._several:
            _print_lines(run, played)
            for name, each in played.items():
                self._sums.setdefault(name, []).append(each.figures)
        else:
            _print_picture(run, played)

    def end(self) -> None:
        if self._as_json:
            say(to_json(self._reports[0] if len(self._reports) == 1 else self._reports))
        for name, figures in self._sums.items():
            say(f"{style(name, fg='blue')}: {plural(len(figures), 'run')}, {_verdict(figures)}")


def _policies(names: str) -> list[str | Policy]:
    found: list[str | Policy] = []
    for name in filter(None, map(str.strip, names.split(","))):
        found.append(read_policy(name) if name.endswith(".toml") else name)
    if not found:
        raise ChoiceError(
            "--policy is empty; give a policy name, or several separated by commas (see loom "
            "policy list)"
        )
    return found


class _Dump:
    """Writes each request as it was measured, as chat; several policies in a folder each."""

    def __init__(self, folder: Path, several: bool) -> None:
        self._folder, self._several = folder, several
        self._written: dict[Path, set[str]] = {}

    def __call__(self, policy: str, number: int, context: Context) -> None:
        if self._several and (policy in ("", ".", "..") or Path(policy).name != policy):
            raise ChoiceError(
                f"the policy {policy!r} cannot name a folder; rename it, or replay it alone"
            )
        if self._several:
            home = self._folder / policy
        else:
            home = self._folder
        home.mkdir(parents=True, exist_ok=True)
        name = f"{number:04}.json"
        (home / name).write_text(to_json(context.openai()) + "\n", encoding="utf-8")
        self._written.setdefault(home, set()).add(name)

    def tell_of_others(self) -> None:
        """What an earlier replay left would be taken for ours."""
        for home, names in self._written.items():
            others = sum(
                path.stem.isdecimal() and path.name not in names for path in home.glob("*.json")
            )
            if others:
                say(
                    f"loom: {clean(str(home))} also contains {plural(others, 'request')} of "
                    "another replay",
                    err=True,
                )


def _as_dict(file: str, played: dict[str, PlayedPolicy]) -> dict[str, Any]:
    """The object that --json prints; window and reserve are null where the policies differ."""
    first = next(iter(played.values()))
    windows, reserves = (
        {each.window for each in played.values()},
        {each.reserve for each in played.values()},
    )
    return {
        "file": file,
        "window": first.window if len(windows) == 1 else None,
        "reserve": first.reserve if len(reserves) == 1 else None,
        "model": first.model,
        "calls": len(first.calls),
        "policies": {name: each.figures.as_dict() for name, each in played.items()},
    }


def _print_picture(run: Run, played: dict[str, PlayedPolicy]) -> None:
    first = next(iter(played.values()))
    title = ""
    if run.number or run.name:
        title = f"{one_line(f'#{run.number} {run.name}', 60)}: "
    about = f"({run.format}, {clean(first.model) or 'no model named'}, counted by {first.counter})"
    say(f"{title}{style(plural(len(first.calls), 'call'), bold=True)} {dim(about)}")
    if not first.calls:
        note("no message of the model follows another message, so there is no call to replay")
        return
    wide = max(map(columns_of, played))
    columns = min(terminal.width() - wide - 6, 100)
    say()
    for name, each in played.items():
        marks, heights = _strip(each, columns)
        say(f"  {style(name, fg='blue')}{' ' * (wide - columns_of(name))}  {heights}")
        if marks.strip():
            say(f"  {' ' * wide}  {marks}".rstrip())
    say(
        dim(
            f"  {' ' * wide}  tokens of each call; ▴ a new "
            f"epoch{', ✗ something wrong' if _any_bad(played) else ''}"
        )
    )
    say()
    _print_figures(played)
    for name, each in played.items():
        if each.figures.refused:
            call = next(call for call in each.calls if call.refused)
            refused = plural(each.figures.refused, "call")
            note(
                f"{name} refused {refused}, first the one before message {call.message}: "
                f"{call.refused}"
            )


def _strip(played: PlayedPolicy, columns: int) -> tuple[str, str]:
    """The calls from left to right, each column as high as its largest request, and below what
    happened there.
    """
    calls = played.calls
    columns = min(columns, len(calls))
    most = max(played.figures.usable or 1, *(call.tokens for call in calls), 1)
    marks, heights = "", ""
    for column in range(columns):
        here = calls[column * len(calls) // columns : (column + 1) * len(calls) // columns]
        bad, renewed = any(call.bad for call in here), any(call.renewed for call in here)
        tokens = max(call.tokens for call in here)
        drawn = " "
        if tokens:
            drawn = HEIGHTS[min(tokens * len(HEIGHTS) // most, len(HEIGHTS) - 1)]
        heights += style(drawn, fg="red" if bad else "green")
        marks += _mark(bad, renewed)
    return marks, heights


def _mark(bad: bool, renewed: bool) -> str:
    if bad:
        return style("✗", fg="red")
    if renewed:
        return style("▴", fg="yellow")
    return " "


def _any_bad(played: dict[str, PlayedPolicy]) -> bool:
    return any(call.bad for each in played.values() for call in each.calls)


def _print_figures(played: dict[str, PlayedPolicy]) -> None:
    """A column for each policy, a row for each figure."""
    rows: list[tuple[str, Callable[[ReplayFigures], str]]] = [
        (
            "over / torn / goal lost",
            lambda f: f"{f.over_budget:,} / {f.torn_pairs:,} / {f.goal_missing:,}",
        ),
        ("refused", lambda f: f"{f.refused:,}"),
        ("usable tokens", lambda f: _number(f.usable)),
        ("mean tokens", lambda f: _number(f.mean_tokens)),
        ("cacheable share", lambda f: _number(f.cacheable_share, ".1%")),
        ("uncached per call", lambda f: _number(f.uncached_per_call)),
        ("re-cache factor", lambda f: _number(f.recache_factor, ".2f")),
        ("  with the tail", lambda f: _number(f.recache_factor_with_tail, ".2f")),
        ("tail tokens", lambda f: _number(f.tail_tokens)),
        ("epochs", lambda f: f"{f.epochs:,}"),
        ("look-ahead recall", lambda f: _number(f.lookahead_recall, ".1%")),
        ("input with cache", lambda f: _dollars(f.cost_with_cache)),
        ("input without", lambda f: _dollars(f.cost_without_cache)),
        ("ms per call", lambda f: _number(f.ms_per_call, ".1f")),
    ]
    figures = [each.figures for each in played.values()]
    told = [(label, [write(each) for each in figures]) for label, write in rows]
    told = [(label, cells) for label, cells in told if any(cell != UNTOLD for cell in cells)]
    wide = [
        max(columns_of(name), *(len(cells[n]) for _, cells in told))
        for n, name in enumerate(played)
    ]
    names = "  ".join(
        f"{' ' * (w - columns_of(name))}{name}" for name, w in zip(played, wide, strict=True)
    )
    if len(played) > 1:
        say(f"  {'':<23}  {style(names, fg='blue')}")
    for label, cells in told:
        drawn = [
            _colour_cell(label, each, f"{cell:>{w}}")
            for each, cell, w in zip(figures, cells, wide, strict=True)
        ]
        say(f"  {label:<23}  {'  '.join(drawn)}")


def _colour_cell(label: str, figures: ReplayFigures, cell: str) -> str:
    if label.startswith("over"):
        return style(
            cell,
            fg="red"
            if figures.over_budget or figures.torn_pairs or figures.goal_missing
            else "green",
        )
    if label == "refused":
        return style(cell, fg="red" if figures.refused else "green")
    return cell


def _print_lines(run: Run, played: dict[str, PlayedPolicy]) -> None:
    """One of several runs, a line for each policy."""
    for name, each in played.items():
        figures = each.figures
        lead = f"{f'#{run.number}':<6}"
        if run.name:
            lead += one_line(run.name, 24) + " "
        if len(played) > 1:
            lead += f"{name} "
        told = (
            f"{_number(figures.mean_tokens)} tokens, {_number(figures.cacheable_share, '.0%')} "
            "cacheable, "
        )
        told += (
            f"re-cache {_number(figures.recache_factor, '.2f')}, {plural(figures.epochs, 'epoch')}"
        )
        say(f"{clean(lead)}{_verdict([figures])}  {dim(told)}")


def _verdict(figures: Sequence[ReplayFigures]) -> str:
    """How many calls, and how many of them are over budget, torn, or without their goal."""
    wrong = [
        sum(f.over_budget for f in figures),
        sum(f.torn_pairs for f in figures),
        sum(f.goal_missing for f in figures),
    ]
    refused = sum(f.refused for f in figures)
    told = style(" / ".join(f"{count:,}" for count in wrong), fg="red" if any(wrong) else "green")
    return (
        f"{plural(sum(f.calls for f in figures), 'call')}  "
        f"{told}{style(f', {refused:,} refused', fg='red') if refused else ''}"
    )


def _number(value: float | None, form: str = ",.0f") -> str:
    if value is None:
        return UNTOLD
    return f"{value:{form}}"


def _dollars(value: float | None) -> str:
    if value is None:
        return UNTOLD
    if value >= 1:
        return f"${value:,.2f}"
    return f"${value:.4f}"
