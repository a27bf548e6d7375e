"""`loom weave` and `loom explain`: the request that fits, and why it is what it is."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from loom.cli import terminal
from loom.cli.budget import print_zone, read_several
from loom.cli.convert import open_output
from loom.cli.models import user_overrides
from loom.cli.show import look
from loom.cli.terminal import bar, clean, dim, note, one_line, plural, say, style
from loom.context.policy import Policy, read_policy
from loom.context.report import Action, Item, Report
from loom.context.weave import Context
from loom.context.weave import weave as weave_request
from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.conversation.turns import Span
from loom.dialects import dialect
from loom.errors import CannotFit
from loom.transcripts.runs import Run

LOOKS: dict[Action, tuple[str, str, str]] = {
    "kept": ("in", "green", "█"),
    "shrunk": ("cut", "yellow", "▒"),
    "dropped": ("out", "red", "░"),
    "repaired": ("mended", "blue", "█"),
}


class Stretch(Struct):
    """Neighbouring messages to which the same was done by the same rule."""

    span: Span
    action: Action
    rule: str
    before: int
    after: int
    handles: tuple[str, ...]
    returns_at: int


def stretches(report: Report) -> Iterator[Stretch]:
    """The history in stretches: kept messages in a row are one, what was cut or left out is told each by itself."""
    last: Stretch | None = None
    for span, item in _entries(report):
        if last is not None and last.action == item.action == "kept" and last.rule == item.rule:
            last.span = Span(last.span.start, span.stop)
            last.before += item.before
            last.after += item.after
            continue
        if last is not None:
            yield last
        last = Stretch(span, item.action, item.rule, item.before, item.after, item.handles, item.returns_at)
    if last is not None:
        yield last


def _entries(report: Report) -> Iterator[tuple[Span, Item]]:
    for piece in report.pieces:
        if len(piece.items) < len(piece.span):  # one item for all of what was left out
            yield piece.span, piece.items[0]
            continue
        for index, item in zip(range(piece.span.start, piece.span.stop), piece.items, strict=True):
            yield Span(index, index + 1), item


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that `weave` and `explain` share."""
    for option in reversed(
        (
            click.option("--model", help="The model to weave for; what the transcript names by default."),
            click.option("--window", type=int, help="The whole window in tokens; the model's by default."),
            click.option("--reserve", type=int, help="Tokens of it kept for the answer; the policy's by default."),
            click.option(
                "--policy",
                default="default",
                show_default=True,
                help="What decides: a name of loom policy list, or a .toml of your own.",
            ),
        )
    ):
        command = option(command)
    return command


def _weave(run: Run, model: str | None, window: int | None, reserve: int | None, policy: str, overrides: Any) -> Context:
    chosen: str | Policy = policy
    if policy.endswith(".toml"):
        chosen = read_policy(Path(policy).read_text(encoding="utf-8"))
    try:
        return weave_request(
            run.conversation(), model=model, window=window, reserve_output=reserve, policy=chosen, overrides=overrides
        )
    except CannotFit as error:
        if run.number or run.name:
            raise CannotFit(f"run #{run.number}: {error}") from None
        raise


@click.command()
@click.argument("file")
@_options
@click.option(
    "--dialect", "name", help="The dialect of the request: openai, responses, anthropic or document; the file's own by default."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the request.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the request (unless -o takes it) and the report.")
def weave(
    file: str,
    model: str | None,
    window: int | None,
    reserve: int | None,
    policy: str,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Weave a transcript into a request that fits, and tell what went and why.

    The request is part of the JSON, or goes to -o; a picture of it is what a person sees.
    """
    if name:
        dialect(name)
    overrides = user_overrides()
    requests: list[Any] = []
    reports: list[dict[str, Any]] = []
    runs, several = read_several(file)
    with open_output(output) as out:
        if several and not as_json:
            say(dim(f"several runs: weave one as {clean(file)}#N"))
        for run in runs:
            context = _weave(run, model, window, reserve, policy, overrides)
            wire = dialect(name or run.wire)
            if as_json or output:
                requests.append(context.render(wire.name))
            if as_json:
                reports.append(context.report.as_dict())
            elif several:
                _print_line(run, context.report)
            else:
                print_woven(run, context.report, wire.title)
        if output:
            out.write(_written(requests))
    if as_json:
        told = [({} if output else {"request": r}) | {"report": t} for r, t in zip(requests, reports, strict=True)]
        say(to_json(told[0] if len(told) == 1 else told))


def _written(requests: list[Any]) -> str:
    """Requests as they go into a file: documents as text, several others as a list."""
    if all(isinstance(request, str) for request in requests):
        titles = [f"# run {n}\n\n" if len(requests) > 1 else "" for n in range(len(requests))]
        return "\n".join(title + request for title, request in zip(titles, requests, strict=True))
    return to_json(requests[0] if len(requests) == 1 else requests) + "\n"


@click.command()
@click.argument("file")
@_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def explain(file: str, model: str | None, window: int | None, reserve: int | None, policy: str, as_json: bool) -> None:
    """Tell what of a transcript is in the request and what is not, by which rule, and at which window it would return."""
    overrides = user_overrides()
    reports = []
    runs, several = read_several(file)
    if several and not as_json:
        say(dim(f"several runs: explain one as {clean(file)}#N"))
    for run in runs:
        report = _weave(run, model, window, reserve, policy, overrides).report
        if as_json:
            reports.append(report.as_dict())
        elif several:
            _print_line(run, report)
        else:
            print_explained(run, report)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))


def print_woven(run: Run, report: Report, title: str) -> None:
    _print_head(run, report, f"as {title}")
    for name, zone in report.zones.items():
        if zone["used"]:
            print_zone(name, zone["used"], report.window)
    if report.margin:
        print_zone("margin", report.margin, report.window)
    print_zone("free", max(report.usable - report.margin - report.input_tokens, 0), report.window)
    say()
    found = list(stretches(report))
    say(f"  {_strip(report, found, min(terminal.width() - 4, 100))}")
    say(f"  {summary(report)}")
    for stretch in found:
        if stretch.action != "kept":
            _print_stretch(report, stretch)
    _print_mended(report)
    for text in report.notes:
        note(text)


def print_explained(run: Run, report: Report) -> None:
    _print_head(run, report, f"by the policy {report.policy}")
    for item in report.items:
        if item.zone != "history":
            label, colour, _ = LOOKS[item.action]
            size = f"{item.before:,} → {item.after:,}" if item.before != item.after else f"{item.after:,}"
            say(f"  {style(f'{label:<6}', fg=colour)} {item.place:<20} {size:>17}  {clean(item.rule)}")
    for stretch in stretches(report):
        _print_stretch(report, stretch)
    _print_mended(report)
    say(f"  {summary(report)}")
    say(dim(f"  a provider can cache the first {report.prefix_tokens:,} tokens ({report.prefix_hash})"))
    for text in report.notes:
        note(text)


def summary(report: Report) -> str:
    """How many messages are in, cut and out."""
    counts: Counter[Action] = Counter()
    for stretch in stretches(report):
        counts[stretch.action] += len(stretch.span)
    left_out = sum(stretch.before for stretch in stretches(report) if stretch.action == "dropped")
    return (
        f"{plural(counts['kept'], 'message')} kept, {counts['shrunk']:,} cut, {counts['dropped']:,} left out"
        f"{f' ({left_out:,} tokens)' if left_out else ''}"
    )


def _print_line(run: Run, report: Report) -> None:
    """One of several runs."""
    name = one_line(run.name, 40)
    drawn = f"{bar(report.pressure, 16):<16}"
    lead = f"#{run.number:<5} {name + ' ' if name else ''}{report.input_tokens:>9,} of {report.usable:,} tokens"
    say(f"{lead}  {style(drawn, fg='blue')}  {summary(report)}")


def _print_head(run: Run, report: Report, how: str) -> None:
    title = f"{one_line(f'#{run.number} {run.name}', 60)}: " if run.number or run.name else ""
    about = f"({run.format}, {clean(report.model) or 'no model named'}, {how}, counted by {report.counter})"
    say(f"{title}{style(f'{report.input_tokens:,} tokens', bold=True)} of {report.usable:,} {dim(about)}")
    say(dim(f"  a window of {report.window:,}, {report.reserved_output:,} of it kept for the answer; {report.pressure:.0%} full"))


def _strip(report: Report, found: list[Stretch], columns: int) -> str:
    """The whole session from left to right, each stretch as wide as its tokens were: what is in, cut and out."""
    total = sum(stretch.before for stretch in found) or 1
    drawn, until, used = "", 0, 0
    for stretch in found:
        until += stretch.before
        wide = max(round(until / total * columns) - used, 1)
        used += wide
        _, colour, mark = LOOKS[stretch.action]
        drawn += style(mark * wide, fg=colour)
    return drawn


def _print_stretch(report: Report, stretch: Stretch) -> None:
    label, colour, _ = LOOKS[stretch.action]
    span = stretch.span
    place = f"messages[{span.start}]" if len(span) == 1 else f"messages[{span.start}:{span.stop}]"
    size = f"{stretch.before:,}" if stretch.action == "kept" else f"{stretch.before:,} → {stretch.after:,}"
    lead = f"  {label:<6} {place:<20} {size:>17}  {stretch.rule}  "
    words = one_line(_words(report.history[span.start : span.stop]), max(terminal.width() - len(lead), 12))
    say(f"  {style(f'{label:<6}', fg=colour)} {place:<20} {size:>17}  {stretch.rule}  {dim(words)}")
    if stretch.action != "kept":
        handles = ", ".join(stretch.handles[:3]) + (f" and {len(stretch.handles) - 3} more" if len(stretch.handles) > 3 else "")
        recall = f"recall {handles}; " if handles else ""
        say(dim(f"{'':<10}{recall}whole again with --window {stretch.returns_at} --reserve {report.reserved_output}"))


def _words(messages: tuple[Message, ...]) -> str:
    """Who speaks in a stretch; of one message also how it begins."""
    if len(messages) == 1:
        return f"{messages[0].role}: " + " ".join(click.unstyle(mark) + text for mark, text in map(look, messages[0].parts))
    roles = Counter(message.role for message in messages)
    return ", ".join(f"{count:,} {role}" for role, count in roles.items())


def _print_mended(report: Report) -> None:
    """Repairs by their rule, each with its first place."""
    by_rule: dict[str, list[Item]] = {}
    for item in report.items:
        if item.action == "repaired":
            by_rule.setdefault(item.rule.partition(": ")[0], []).append(item)
    for rule, mended in by_rule.items():
        place = mended[0].place + (f" and {len(mended) - 1:,} more" if len(mended) > 1 else "")
        label, colour, _ = LOOKS["repaired"]
        what = mended[0].rule.removeprefix(f"{rule}: ")
        words = one_line(what, max(terminal.width() - len(rule) - 52, 12))
        say(f"  {style(f'{label:<6}', fg=colour)} {place:<38}  {clean(rule)}  {dim(words)}")
