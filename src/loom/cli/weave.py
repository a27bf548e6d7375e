"""`loom weave` and `loom explain`: the request that fits, and why it is what it is."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from loom.cli import terminal
from loom.cli.budget import print_zone, read_several
from loom.cli.convert import open_output
from loom.cli.models import user_overrides
from loom.cli.show import look
from loom.cli.store import Where, scoped
from loom.cli.terminal import bar, clean, dim, note, one_line, plural, say, style
from loom.context.policy import Policy, read_policy
from loom.context.report import Action, Item, Report
from loom.context.weave import Context
from loom.context.weave import weave as weave_request
from loom.conversation.canonical import to_json
from loom.conversation.turns import Span
from loom.dialects import dialect
from loom.errors import CannotFit, ChoiceError
from loom.stores.sessions import SessionRow
from loom.transcripts.runs import Run

LOOKS: dict[Action, tuple[str, str, str]] = {
    "kept": ("in", "green", "█"),
    "shrunk": ("cut", "yellow", "▒"),
    "dropped": ("out", "red", "░"),
    "repaired": ("mended", "blue", "█"),
}


class Stretch(Struct):
    """Neighbouring messages to which the same was done by the same rule. The span counts what was read, `messages` all."""

    span: Span
    messages: int
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
            last.messages += len(span)
            last.before += item.before
            last.after += item.after
            continue
        if last is not None:
            yield last
        messages = sum(map(report.places.count, range(span.start, span.stop)))
        last = Stretch(span, messages, item.action, item.rule, item.before, item.after, item.handles, item.returns_at)
    if last is not None:
        yield last


def _entries(report: Report) -> Iterator[tuple[Span, Item]]:
    for piece in report.pieces:
        if len(piece.items) < len(piece.span):  # one item for all of what was left out
            yield piece.span, piece.items[0]
            continue
        for index, item in zip(range(piece.span.start, piece.span.stop), piece.items, strict=True):
            yield Span(index, index + 1), item


class Subject(Struct, frozen=True):
    """What was woven: what to call it, what it was read from, and the wire that it speaks."""

    title: str
    kind: str
    wire: str


class Asked(Struct, frozen=True, kw_only=True):
    """What a command was asked to weave, and how."""

    file: str | None
    session: str | None
    pins: tuple[str, ...]
    where: Where
    model: str | None
    window: int | None
    reserve: int | None
    policy: str

    def woven(self) -> tuple[Iterator[tuple[Subject, Context]], bool]:
        """What was woven, and whether a file has several runs: those are told a line each."""
        overrides = user_overrides()
        chosen: str | Policy = self.policy
        if self.policy.endswith(".toml"):
            chosen = read_policy(Path(self.policy).read_text(encoding="utf-8"))
        if self.session is not None and self.file is None:
            return iter([self._session(self.session, chosen, overrides)]), False
        if self.file is None or self.session is not None:
            raise ChoiceError("give a FILE or --session ID" + (", not both" if self.file else ""))
        if self.pins:
            raise ChoiceError("--pin names a message of a session; give --session ID instead of a FILE")
        runs, several = read_several(self.file)
        return ((_subject(run), self._run(run, chosen, overrides)) for run in runs), several

    def _run(self, run: Run, policy: str | Policy, overrides: Any) -> Context:
        try:
            return weave_request(
                run.conversation(),
                model=self.model,
                window=self.window,
                reserve_output=self.reserve,
                policy=policy,
                overrides=overrides,
            )
        except CannotFit as error:
            if run.number or run.name:
                raise CannotFit(f"run #{run.number}: {error}") from None
            raise

    def _session(self, name: str, policy: str | Policy, overrides: Any) -> tuple[Subject, Context]:
        with self.where.open() as loom:
            session = loom.session(name)
            asked = session.prepare(
                model=self.model,
                window=self.window,
                reserve_output=self.reserve,
                policy=policy,
                pins=self.pins,
                overrides=overrides,
                preview=True,  # who looks must not disturb the agent that works
            )
            subject = Subject(session.row.title, f"session {session.id}", _wire_of(session.row, self.model))
            return subject, asyncio.run(asked)


def _subject(run: Run) -> Subject:
    return Subject(f"#{run.number} {run.name}" if run.number or run.name else "", run.format, run.wire)


def _wire_of(row: SessionRow, model: str | None) -> str:
    """The wire whose settings a session has, else that of its model."""
    if row.head.settings:
        return row.head.settings.wire
    return "anthropic" if "claude" in (model or row.model).lower() else "openai"


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What `weave` and `explain` share."""

    @wraps(command)
    def run(
        file: str | None,
        session: str | None,
        pins: tuple[str, ...],
        where: Where,
        model: str | None,
        window: int | None,
        reserve: int | None,
        policy: str,
        **given: Any,
    ) -> None:
        asked = Asked(
            file=file, session=session, pins=pins, where=where, model=model, window=window, reserve=reserve, policy=policy
        )
        command(asked=asked, **given)

    made = scoped(run)
    for option in reversed(
        (
            click.argument("file", required=False),
            click.option("--session", metavar="ID", help="A kept session, instead of a FILE; only looked at."),
            click.option("--pin", "pins", metavar="NODE", multiple=True, help="A message of the session that must stay; several."),
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
        made = option(made)
    return made


@click.command()
@_options
@click.option(
    "--dialect", "name", help="The dialect of the request: openai, responses, anthropic or document; the file's own by default."
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Where to write the request.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the request (unless -o takes it) and the report.")
def weave(asked: Asked, name: str | None, output: Path | None, as_json: bool) -> None:
    """Weave a request that fits, and tell what went and why.

    From a transcript, or from a kept session.
    The request is part of the JSON, or goes to -o; a picture of it is what a person sees.
    """
    if name:
        dialect(name)
    requests: list[Any] = []
    reports: list[dict[str, Any]] = []
    woven, several = asked.woven()
    with open_output(output) as out:
        if several and not as_json:
            say(dim(f"several runs: weave one as {clean(asked.file or '')}#N"))
        for subject, context in woven:
            wire = dialect(name or subject.wire)
            if as_json or output:
                requests.append(context.render(wire.name))
            if as_json:
                reports.append(context.report.as_dict())
            elif several:
                _print_line(subject, context.report)
            else:
                print_woven(subject, context.report, wire.title)
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
@_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def explain(asked: Asked, as_json: bool) -> None:
    """Tell what is in a request, what is not, and why.

    Of a transcript or a kept session: by which rule each part is in or out, and at which window it would return.
    """
    reports = []
    woven, several = asked.woven()
    if several and not as_json:
        say(dim(f"several runs: explain one as {clean(asked.file or '')}#N"))
    for subject, context in woven:
        if as_json:
            reports.append(context.report.as_dict())
        elif several:
            _print_line(subject, context.report)
        else:
            print_explained(subject, context.report)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))


def print_woven(subject: Subject, report: Report, title: str) -> None:
    _print_head(subject, report, f"as {title}")
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
    _print_stretches(report, [stretch for stretch in found if stretch.action != "kept"])
    _print_mended(report)
    for text in report.notes:
        note(text)


def print_explained(subject: Subject, report: Report) -> None:
    _print_head(subject, report, f"by the policy {report.policy}")
    for item in report.items:
        if item.zone != "history":
            label, colour, _ = LOOKS[item.action]
            size = f"{item.before:,} → {item.after:,}" if item.before != item.after else f"{item.after:,}"
            say(f"  {style(f'{label:<6}', fg=colour)} {item.place:<20} {size:>17}  {clean(item.rule)}")
    _print_stretches(report, list(stretches(report)))
    _print_mended(report)
    say(f"  {summary(report)}")
    say(dim(f"  a provider can cache the first {report.prefix_tokens:,} tokens ({report.prefix_hash})"))
    for text in report.notes:
        note(text)


def summary(report: Report) -> str:
    """How many messages are in, cut and out."""
    counts: Counter[Action] = Counter()
    for stretch in stretches(report):
        counts[stretch.action] += stretch.messages
    left_out = sum(stretch.before for stretch in stretches(report) if stretch.action == "dropped")
    return (
        f"{plural(counts['kept'], 'message')} kept, {counts['shrunk']:,} cut, {counts['dropped']:,} left out"
        f"{f' ({left_out:,} tokens)' if left_out else ''}"
    )


def _print_line(subject: Subject, report: Report) -> None:
    """One of several runs."""
    number, _, name = one_line(subject.title or "#0", 46).partition(" ")
    drawn = f"{bar(report.pressure, 16):<16}"
    lead = f"{number:<6} {name + ' ' if name else ''}{report.input_tokens:>9,} of {report.usable:,} tokens"
    say(f"{lead}  {style(drawn, fg='blue')}  {summary(report)}")


def _print_head(subject: Subject, report: Report, how: str) -> None:
    title = f"{one_line(subject.title, 60)}: " if subject.title else ""
    about = f"({subject.kind}, {clean(report.model) or 'no model named'}, {how}, counted by {report.counter})"
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


def _print_stretches(report: Report, found: list[Stretch]) -> None:
    places = [report.places.label(stretch.span) for stretch in found]
    wide = max([20, *map(len, places)])
    for place, stretch in zip(places, found, strict=True):
        label, colour, _ = LOOKS[stretch.action]
        size = f"{stretch.before:,}" if stretch.action == "kept" else f"{stretch.before:,} → {stretch.after:,}"
        told = f" {place:<{wide}} {size:>17}  {stretch.rule}  "
        words = one_line(_words(report, stretch), max(terminal.width() - len(told) - 8, 12))
        say(f"  {style(f'{label:<6}', fg=colour)}{told}{dim(words)}")
        if stretch.action != "kept":
            handles = ", ".join(stretch.handles[:3]) + (f" and {len(stretch.handles) - 3} more" if len(stretch.handles) > 3 else "")
            recall = f"recall {handles}; " if handles else ""
            say(dim(f"{'':<10}{recall}whole again with --window {stretch.returns_at} --reserve {report.reserved_output}"))


def _words(report: Report, stretch: Stretch) -> str:
    """Who speaks in a stretch; of one message also how it begins; of what was not read, only how much it is."""
    places = range(stretch.span.start, stretch.span.stop)
    if any(map(report.places.unread, places)):
        return plural(stretch.messages, "message")
    messages = [report.history[index] for index in places]
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
