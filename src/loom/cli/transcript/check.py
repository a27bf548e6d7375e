"""`loom check`: what is wrong with a transcript."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.cli import terminal
from loom.cli.terminal import dim, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.dialects import DIALECTS, dialect
from loom.dialects.wire import Dialect, Finding, Loss
from loom.transcripts.formats import read_runs
from loom.transcripts.runs import Run

MAX_PLACES = 5  # places of a broken rule that a person sees
MAX_FINDINGS = 1000  # findings and the like that are kept in full; the rest is counted
# A transcript is not yet a request: what is only missing until it is sent is no news.
_UNSENT = {"no-model", "no-tools", "no-max-tokens"}


class Several(list[Any]):
    """A list that keeps its first entries and counts the rest, so that a file of any size is
    reported in bounded memory.
    """

    more = 0

    def append(self, item: Any) -> None:
        if len(self) < MAX_FINDINGS:
            super().append(item)
        else:
            self.more += 1

    def extend(self, items: Any) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Any) -> "Several":  # type: ignore[misc]  # anything
        self.extend(items)
        return self


class LossTally(list[Loss]):
    """A list of losses that holds none: it counts how often each was met, and keeps the place of
    the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, int]] = {}

    def append(self, loss: Loss) -> None:
        what = "other things"
        if loss.what in self.found or len(self.found) < MAX_FINDINGS:
            what = loss.what
        place, times = self.found.get(what, (loss.place, 0))
        self.found[what] = (place, times + 1)

    def extend(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            self.append(loss)

    def __iadd__(self, losses: Iterable[Loss]) -> "LossTally":  # type: ignore[misc,override]
        self.extend(losses)
        return self

    def report(self) -> list[dict[str, Any]]:
        return [
            {"what": what, "times": times, "first": place}
            for what, (place, times) in self.found.items()
        ]


class RunCheck(Struct):
    """One run, checked."""

    run: int
    name: str
    format: str
    dialect: str
    messages: int
    errors: int
    warnings: int
    findings: list[Finding]
    losses: LossTally


def check_run(run: Run, wire: Dialect) -> RunCheck:
    """Check a run: as a whole request where it is all here, else its messages as they pass."""
    losses, findings = LossTally(), Several()
    count = errors = warnings = 0

    def counted() -> Iterator[Message]:
        nonlocal count
        for message in run.messages():
            count += 1
            yield message

    found: Iterable[Finding]
    if run.streams:
        found = wire.check_messages(
            wire.render_messages(chain(_leading(run, wire), counted()), losses)
        )
    else:
        rendered = wire.render(replace(run.head, messages=tuple(counted())))
        losses += rendered.losses
        found = wire.check(rendered.wire)
    for finding in found:
        if finding.rule in _UNSENT and not run.head.model:
            continue
        errors += finding.level == "error"
        warnings += finding.level == "warning"
        findings.append(finding)
    if run.streams and count == 0 and "no-messages" in wire.rules:
        rule = wire.rules["no-messages"]
        findings.append(
            Finding("no-messages", rule.level, wire.messages_key, rule.demands, rule.way_out)
        )
        errors += 1
    return RunCheck(
        run.number, run.name, run.format, wire.name, count, errors, warnings, findings, losses
    )


def _leading(run: Run, wire: Dialect) -> tuple[Message, ...]:
    """The system messages that are messages or items on this wire, so that places are counted as
    they will be sent.
    """
    if wire.first_listed_system is None:
        return ()
    return run.head.system[wire.first_listed_system :]


@click.command()
@click.argument("file")
@click.option(
    "--dialect",
    "name",
    type=click.Choice(list(DIALECTS)),
    help="Dialect (API format) to check against (default: the dialect of the file).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(file: str, name: str | None, as_json: bool) -> None:
    """Check a transcript for errors, and show how to fix each one.

    The exit status is 1 if there is an error. It is 0 if there are
    only warnings, or no findings.
    """
    errors = 0
    reports = []
    for run in read_runs(file):
        checked = check_run(run, dialect(name or run.wire))
        errors += checked.errors
        if as_json:
            reports.append(to_report(checked))
        else:
            print_checked(checked)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))
    if errors:
        raise SystemExit(1)


def to_report(checked: RunCheck) -> dict[str, Any]:
    report = asdict(checked)
    report["findings"] = [asdict(finding) for finding in checked.findings]
    report["losses"] = checked.losses.report()
    return report


def print_checked(checked: RunCheck) -> None:
    title = ""
    if checked.run or checked.name:
        title = f"#{checked.run} {checked.name}".rstrip() + ": "
    about = (
        f"{checked.format}, {plural(checked.messages, 'message')}, as "
        f"{DIALECTS[checked.dialect].title}"
    )
    if checked.errors:
        verdict = style(plural(checked.errors, "error"), fg="red", bold=True)
    else:
        verdict = style("no errors", fg="green", bold=True)
    if checked.warnings:
        verdict += f", {plural(checked.warnings, 'warning')}"
    say(f"{title}{verdict} {dim('(' + about + ')')}")
    by_rule: dict[str, list[Finding]] = {}
    for finding in checked.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    for rule, found in sorted(by_rule.items(), key=lambda item: item[1][0].level):
        _print_rule(rule, found)
    if isinstance(checked.findings, Several) and checked.findings.more:
        say(dim(f"  {checked.findings.more:,} more findings are counted, but not listed"))


def _print_rule(rule: str, found: list[Finding]) -> None:
    """A rule that was broken, the first places, and the way out."""
    if found[0].level == "error":
        mark, colour = "✗", "red"
    else:
        mark, colour = "!", "yellow"
    demands, _, _ = found[0].text.partition(": ")
    head = f"{style(mark, fg=colour, bold=True)} {style(rule, fg=colour)}"
    say(f"  {head} ×{len(found)}: {demands}")
    for finding in found[:MAX_PLACES]:
        detail = one_line(
            finding.text[len(demands) + 2 :], terminal.width() - 10 - len(finding.place)
        )
        say(f"      {finding.place}  {dim(detail)}".rstrip())
    if len(found) > MAX_PLACES:
        say(dim(f"      and {len(found) - MAX_PLACES:,} more (all with --json)"))
    say(f"      {style('→', fg='green')} {found[0].way_out}")
