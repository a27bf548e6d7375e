"""`loom convert`: a transcript in the JSON of another provider, repaired on the way if asked."""

from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.cli import terminal
from loom.cli.output import STANDARD_OUTPUT, open_output
from loom.cli.terminal import dim, one_line, plural, say, style
from loom.cli.transcript.check import LossTally, Several
from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.dialects import DIALECTS, dialect
from loom.dialects.repair import Change, Mender, mend_marks_as_they_pass, repair
from loom.dialects.wire import Dialect
from loom.errors import TranscriptError
from loom.transcripts.formats import read_runs
from loom.transcripts.runs import Run


class Conversion(Struct):
    """What was done on the way."""

    run: int
    name: str
    messages: int
    changes: list[Change]
    losses: "LossTally"
    ids: dict[str, str]


def convert_run(run: Run, wire: Dialect, mend: bool, out: TextIO) -> Conversion:
    """Write one run as a request, message by message, so that a file of any size passes through."""
    losses = LossTally()
    changes: list[Change] = Several()
    head, messages, ids = run.head, run.messages(), {}
    if mend and not run.streams:
        mended = repair(run.conversation())
        changes += mended.changes
        head, messages, ids = (
            replace(mended.conversation, messages=()),
            iter(mended.conversation.messages),
            mended.ids,
        )
    elif mend:
        mender = Mender()
        mender.changes = changes
        head = replace(head, system=mender.mend_system(head.system))
        marks: list[tuple[str, str]] = _ChangeNotes(changes)
        messages, ids = mend_marks_as_they_pass(mender.mend(messages), marks), mender.ids
    count = _write(wire, head, messages, losses, out)
    # where the system messages are messages too
    if dialect(run.wire).first_listed_system == 0 and run.head.system:
        changes[:] = [
            replace(c, message=c.message + len(run.head.system)) if c.message >= 0 else c
            for c in changes
        ]
    if mend and count == 0:
        raise TranscriptError(
            f"run #{run.number}: nothing is left to send: the repair removed all messages "
            f"({plural(len(changes), 'change')})"
        )
    return Conversion(run.number, run.name, count, changes, losses, ids)


class _ChangeNotes(list[tuple[str, str]]):
    """Turns what is appended into changes."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__()
        self._changes = changes

    def append(self, change: tuple[str, str]) -> None:
        self._changes.append(Change(change[0], -1, change[1]))


def _write(
    wire: Dialect, head: Any, messages: Iterator[Message], losses: LossTally, out: TextIO
) -> int:
    count = 0

    def counted() -> Iterator[Message]:
        nonlocal count
        for message in messages:
            count += 1
            yield message

    if not wire.messages_key:
        for n, block in enumerate(wire.render_messages(chain(head.system, counted()), losses)):
            out.write(("\n" if n else "") + block + "\n")
        return count
    rendered = wire.render(head)
    losses += rendered.losses
    body = rendered.wire
    given = body.pop(wire.messages_key, [])
    first = given if isinstance(given, list) else []
    out.write("{")
    for key, value in body.items():
        out.write(f"{to_json(key)}:{to_json(value)},\n")
    out.write(f"{to_json(wire.messages_key)}:[")
    for n, item in enumerate(chain(first, wire.render_messages(counted(), losses))):
        out.write((",\n" if n else "\n") + to_json(item))
    out.write("\n]}")
    return count


@click.command()
@click.argument("file")
@click.option(
    "--to",
    "name",
    type=click.Choice(list(DIALECTS)),
    required=True,
    help="Dialect (API format) to write.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write (default: standard output).",
)
@click.option(
    "--repair", "mend", is_flag=True, help="Repair what no API accepts, and report each change."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the request (without -o), the changes and the losses as one JSON object.",
)
def convert(file: str, name: str, output: Path | None, mend: bool, as_json: bool) -> None:
    """Convert a transcript to the request format of a provider.

    What the dialect cannot express, and what was repaired, is printed to standard error.
    """
    wire, runs = dialect(name), read_runs(file)
    output = None if output == STANDARD_OUTPUT else output
    first = list(islice(runs, 2))
    several = len(first) > 1
    writer = _Writer(wire, mend, several, inside=as_json and output is None)
    with open_output(output) as out:
        done = writer.write(chain(first, runs), out)
    if as_json and output:
        reports = [to_report(converted) for converted in done]
        say(to_json(reports if several else reports[0]))
    elif not as_json:
        for converted in done:
            _tell(converted, wire)


class _Writer(Struct, frozen=True):
    """Writes runs as requests: alone, in a list, or inside the JSON objects that report on them."""

    wire: Dialect
    mend: bool
    several: bool
    inside: bool  # the request is a part of the JSON object

    def write(self, runs: Iterable[Run], out: TextIO) -> list[Conversion]:
        is_list = self.several and (self.is_json or self.inside)
        if is_list:
            out.write("[\n")
        done: list[Conversion] = []
        for run in runs:
            if done and is_list:
                out.write(",\n")
            done.append(
                self._write_inside(run, out) if self.inside else self._write_alone(run, out)
            )
        if is_list:
            out.write("\n]")
        if self.is_json or self.inside:
            out.write("\n")
        return done

    @property
    def is_json(self) -> bool:
        return bool(self.wire.messages_key)

    def _write_alone(self, run: Run, out: TextIO) -> Conversion:
        if self.several and not self.is_json:
            title = f": {run.name}" if run.name else ""
            out.write(f"# run {run.number}{title}\n\n")
        return convert_run(run, self.wire, self.mend, out)

    def _write_inside(self, run: Run, out: TextIO) -> Conversion:
        """The request and the report of a run as one JSON object; a document is a text in it."""
        out.write('{"request":')
        if self.is_json:
            converted = convert_run(run, self.wire, self.mend, out)
        else:
            text = StringIO()
            converted = convert_run(run, self.wire, self.mend, text)
            out.write(to_json(text.getvalue()))
        out.write("," + to_json(to_report(converted))[1:])
        return converted


def to_report(converted: Conversion) -> dict[str, Any]:
    report = asdict(converted)
    report["changes"] = [asdict(change) for change in converted.changes]
    report["losses"] = converted.losses.report()
    return report


def _tell(converted: Conversion, wire: Dialect) -> None:
    """The changes and losses of one run, on standard error."""
    where = ""
    if converted.run or converted.name:
        where = f"#{converted.run} {converted.name}".strip() + ": "
    say(f"{where}{plural(converted.messages, 'message')} as {wire.title}", err=True)
    for change in converted.changes:
        tell_change(change, 0, err=True)
    for what, (_, times) in converted.losses.found.items():
        count = f" ×{times:,}" if times > 1 else ""
        say(
            f"  {style('–', fg='yellow')} {dim('not kept:')} "
            f"{one_line(what, terminal.width() - 20)}{count}",
            err=True,
        )
    more = 0
    if isinstance(converted.changes, Several):
        more = converted.changes.more
    if more:
        say(dim(f"  and {more:,} more changes"), err=True)


def tell_change(change: Change, leading: int, err: bool = False) -> None:
    """One change on one line; `leading` system messages are counted with the history."""
    place = "request"
    if change.message >= 0:
        place = f"message {change.message + leading}"
    lead = f"{change.rule} {place}: "
    say(
        f"  {style('✓', fg='green')} "
        f"{style(lead, fg='green')}{one_line(change.what, terminal.width() - len(lead) - 5)}",
        err=err,
    )
