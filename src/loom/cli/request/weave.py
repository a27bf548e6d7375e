"""`loom weave` and `loom explain`: the request that fits, and why it is what it is."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from loom.cli import terminal
from loom.cli.output import STANDARD_OUTPUT, open_output
from loom.cli.request.budget import print_zone
from loom.cli.request.covers import print_beginning, print_cover
from loom.cli.request.options import Subject, WeaveCommand, add_weave_options
from loom.cli.terminal import bar, clean, dim, note, one_line, plural, say, say_dim, style
from loom.cli.transcript.show import look
from loom.context import LEFT_OUT, Action, Item, Piece, Report
from loom.conversation.canonical import to_json
from loom.conversation.turns import Span
from loom.dialects import dialect, dialect_choices

MAX_SHOWN_PLACES = 4  # places of what is hidden by one rule
ACTION_COLUMNS = 8
MIN_WORDS_COLUMNS = 16  # with fewer, words are printed on a line of their own
# The colour of each action, and its mark in the strip that shows the whole history.
LOOKS: dict[Action, tuple[str, str]] = {
    "kept": ("green", "█"),
    "shrunk": ("yellow", "▒"),
    "covered": ("cyan", "▓"),
    "dropped": ("red", "░"),
    "repaired": ("blue", "█"),
    "hidden": ("magenta", " "),
}


class ReportStretch(Struct):
    """Neighbouring messages to which the same was done by the same rule.

    The span counts what was read, `messages` all.
    """

    span: Span
    messages: int
    action: Action
    rule: str
    before: int
    after: int
    handles: tuple[str, ...]
    returns_at: int


class ReportLine(Struct, frozen=True):
    """What is printed of an item or of a stretch: in columns, and after them."""

    action: Action
    place: str
    size: str
    rule: str
    words: str = ""
    way_back: str = ""
    cover: Piece | None = None


def find_stretches(report: Report) -> Iterator[ReportStretch]:
    """The history in stretches: kept messages in a row are one, what was cut or left out is told
    each by itself.
    """
    last: ReportStretch | None = None
    windows = {
        item.place: item.returns_at
        for item in report.items
        if item.zone == "history" and item.action != "hidden"
    }
    for span, item in _entries(report):
        if last is not None and last.action == item.action == "kept" and last.rule == item.rule:
            last.span = Span(last.span.start, span.stop)
            last.messages += len(span)
            last.before += item.before
            last.after += item.after
            continue
        if last is not None:
            yield last
        messages = sum(map(report.continuation.places.count, range(span.start, span.stop)))
        last = ReportStretch(
            span,
            messages,
            item.action,
            item.rule,
            item.before,
            item.after,
            item.handles,
            windows[item.place],
        )
    if last is not None:
        yield last


def _entries(report: Report) -> Iterator[tuple[Span, Item]]:
    for piece in report.continuation.pieces:
        if len(piece.items) < len(piece.span):  # one item for all of what was left out
            yield piece.span, piece.items[0]
            continue
        for index, item in zip(range(piece.span.start, piece.span.stop), piece.items, strict=True):
            yield Span(index, index + 1), item


@click.command()
@add_weave_options
@click.option(
    "--dialect",
    "name",
    metavar="NAME",
    help=f"Dialect (API format) of the request: {dialect_choices()} (default: the dialect of the "
    "input).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write the request to; - is standard output.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the request (without -o) and the report as one JSON object.",
)
def weave(asked: WeaveCommand, name: str | None, output: Path | None, as_json: bool) -> None:
    """Build a request that fits the window; show what was left out.

    The input is a transcript, a stored session or a stored tree.
    By default, a picture of the request is printed. To get the request itself, use -o or --json.
    """
    if name:
        dialect(name)  # an unknown one is refused before anything is read
    requests: list[Any] = []
    found: list[tuple[Subject, Report, str]] = []
    woven, several = asked.weave_all()
    for subject, context in woven:
        wire = dialect(name or subject.wire)
        if as_json or output:
            requests.append(context.render(wire.name))
        found.append((subject, context.report, wire.title))
    if output:  # before anything is printed: whoever reads that may stop listening
        with open_output(output) as out:
            out.write(_write_requests(requests))
    if not as_json:
        _print_all(found, several, asked.file or "", output == STANDARD_OUTPUT)
    elif output != STANDARD_OUTPUT:
        _print_json([] if output else requests, [report for _, report, _ in found])


def _print_json(requests: list[Any], reports: list[Report]) -> None:
    """One JSON object for each run: its report, and its request unless a file has it."""
    objects: list[dict[str, Any]] = [{"report": report.as_dict()} for report in reports]
    if requests:
        pairs = zip(requests, objects, strict=True)
        objects = [{"request": request} | report for request, report in pairs]
    say(to_json(objects[0] if len(objects) == 1 else objects))


def _print_all(
    found: list[tuple[Subject, Report, str]], several: bool, file: str, aside: bool
) -> None:
    """Print pictures of the requests; on standard error if standard output gets the requests."""
    with redirect_stdout(sys.stderr) if aside else nullcontext():
        if several:
            say(dim(f"several runs; weave one with {clean(file)}#N"))
        for subject, report, title in found:
            if several:
                _print_line(subject, report)
            else:
                print_request(subject, report, title)


def _write_requests(requests: list[Any]) -> str:
    """Requests as they go into a file: documents as text, several others as a list."""
    if all(isinstance(request, str) for request in requests):
        titles = [f"# run {n}\n\n" if len(requests) > 1 else "" for n in range(len(requests))]
        return "\n".join(title + request for title, request in zip(titles, requests, strict=True))
    return to_json(requests[0] if len(requests) == 1 else requests) + "\n"


@click.command()
@add_weave_options
@click.option(
    "--show",
    "show_covers",
    is_flag=True,
    help="Print the complete text that replaces messages that were left out, as the model reads "
    "it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def explain(asked: WeaveCommand, show_covers: bool, as_json: bool) -> None:
    """Explain what is in a request, what is not, and why.

    The input is a transcript, a stored session or a stored tree.
    Each part is shown with the rule that decided, and with the window at which it would be
    complete.
    """
    reports = []
    woven, several = asked.weave_all()
    if several and not as_json:
        say(dim(f"several runs; explain one with {clean(asked.file or '')}#N"))
    for subject, context in woven:
        if as_json:
            reports.append(context.report.as_dict())
        elif several:
            _print_line(subject, context.report)
        else:
            print_explained(subject, context.report, show_covers)
    if as_json:
        say(to_json(reports[0] if len(reports) == 1 else reports))


def print_request(subject: Subject, report: Report, title: str) -> None:
    _print_head(subject, report, f"as {title}")
    for name, zone in report.zones.items():
        if zone["used"]:
            print_zone(name, zone["used"], report.window)
    if report.margin:
        print_zone("margin", report.margin, report.window)
    print_zone("free", max(report.usable - report.margin - report.input_tokens, 0), report.window)
    say()
    found = list(find_stretches(report))
    say(f"  {_strip(report, found, min(terminal.width() - 4, 100))}")
    say(f"  {summary(report)}")
    _print_lines(
        [_line_of_stretch(report, stretch) for stretch in found if stretch.action != "kept"]
    )
    _print_repairs(report)
    _print_hidden(report)
    for text in report.notes:
        note(text)


def print_explained(subject: Subject, report: Report, show_covers: bool) -> None:
    _print_head(subject, report, f"by policy {report.policy}")
    covers = {
        piece.span: piece for piece in report.continuation.pieces if piece.action == "covered"
    }
    lines = [_line_of_item(item) for item in report.items if item.zone != "history"]
    for stretch in find_stretches(report):
        lines.append(_line_of_stretch(report, stretch, covers.get(stretch.span)))
    _print_lines(lines, show_covers)
    _print_repairs(report)
    _print_hidden(report)
    say(f"  {summary(report)}")
    say(
        dim(
            f"  a provider can cache the first {report.prefix_tokens:,} tokens "
            f"({report.prefix_hash})"
        )
    )
    say(
        dim(
            f"  about {plural(report.outlook.calls, 'more call')} expected; epoch {report.epoch}: "
            f"{clean(report.epoch_reason)}"
        )
    )
    for text in report.notes:
        note(text)


def summary(report: Report) -> str:
    """How many messages are kept, shrunk, left out (dropped or covered) and hidden."""
    counts: Counter[Action] = Counter()
    found = list(find_stretches(report))
    for stretch in found:
        counts[stretch.action] += stretch.messages
    hidden = sum(item.action == "hidden" for item in report.items)
    left_out = sum(
        stretch.before for stretch in find_stretches(report) if stretch.action in LEFT_OUT
    )
    covers = sum(item.after for item in report.items if item.action == "covered")
    text = f"{plural(counts['kept'], 'message')} kept, {counts['shrunk']:,} shrunk, "
    text += f"{counts['dropped'] + counts['covered']:,} left out"
    if left_out:
        cover_text = f", replaced by {covers:,}" if covers else ""
        text += f" ({left_out:,} tokens{cover_text})"
    if hidden:
        text += f", {hidden:,} hidden"
    return text


def _print_line(subject: Subject, report: Report) -> None:
    """One of several runs."""
    number, _, name = one_line(subject.title or "#0", 46).partition(" ")
    drawn = f"{bar(report.pressure, 16):<16}"
    lead = (
        f"{number:<6} {name + ' ' if name else ''}{report.input_tokens:>9,} of "
        f"{report.usable:,} tokens"
    )
    say(f"{lead}  {style(drawn, fg='blue')}  {summary(report)}")


def _print_head(subject: Subject, report: Report, how: str) -> None:
    title = ""
    if subject.title:
        title = f"{one_line(subject.title, 60)}: "
    say(
        f"{title}{style(f'{report.input_tokens:,} tokens', bold=True)} of {report.usable:,}, "
        f"{report.pressure:.0%} full"
    )
    say_dim(
        f"{subject.kind}, {report.model or 'no model named'}, {how}, counted by {report.counter}"
    )
    say_dim(
        f"a window of {report.window:,} tokens, {report.reserved_output:,} reserved for the answer"
    )


def _strip(report: Report, found: list[ReportStretch], columns: int) -> str:
    """The whole history from left to right, each stretch as wide as its tokens were: what is in,
    cut and out.
    """
    total = sum(stretch.before for stretch in found) or 1
    drawn, until, used = "", 0, 0
    for stretch in found:
        until += stretch.before
        wide = max(round(until / total * columns) - used, 1)
        used += wide
        colour, mark = LOOKS[stretch.action]
        drawn += style(mark * wide, fg=colour)
    return drawn


def _line_of_item(item: Item) -> ReportLine:
    """What is printed of an item outside history."""
    place, size = item.place, f"{item.after:,}"
    if place.startswith("sections"):
        place += f" {clean(item.zone)}"
    if item.before != item.after:
        size = f"{item.before:,} → {size}"
    return ReportLine(item.action, place, size, clean(item.rule))


def _line_of_stretch(
    report: Report, stretch: ReportStretch, cover: Piece | None = None
) -> ReportLine:
    """What is printed of a stretch of the history."""
    place, size = report.continuation.places.label(stretch.span), f"{stretch.before:,}"
    way_back = ""
    if stretch.action != "kept":
        size += f" → {stretch.after:,}"
        way_back = _way_back(stretch, report.reserved_output)
    words = _words(report, stretch)
    return ReportLine(stretch.action, place, size, stretch.rule, words, way_back, cover)


def _print_lines(lines: list[ReportLine], show_covers: bool = False) -> None:
    """Print lines in columns. Words for which there is little room get a line of their own."""
    places = max([len(line.place) for line in lines], default=0)
    sizes = max([len(line.size) for line in lines], default=0)
    indent = " " * (ACTION_COLUMNS + 4)
    for line in lines:
        begin = f" {line.place:<{places}}  {line.size:>{sizes}}  {line.rule}"
        room = terminal.width() - len(begin) - ACTION_COLUMNS - 4
        is_roomy = room >= MIN_WORDS_COLUMNS
        words = dim(one_line(line.words, room if is_roomy else terminal.width() - len(indent)))
        say(f"  {_label(line.action)}{begin}  {words if is_roomy else ''}".rstrip())
        if line.words and not is_roomy:
            say(indent + words)
        if line.way_back:
            say(dim(indent + line.way_back))
        if line.cover and show_covers:
            print_cover(line.cover, LOOKS[line.action][0])
        elif line.cover:
            print_beginning(line.cover, LOOKS[line.action][0])


def _way_back(stretch: ReportStretch, reserve: int) -> str:
    """How to get back what was cut: its handles, and the window at which it is complete."""
    handles = ", ".join(stretch.handles[:3])
    if len(stretch.handles) > 3:
        handles += f" and {len(stretch.handles) - 3} more"
    recall = f"recall {handles}; " if handles else ""
    return f"{recall}complete with --window {stretch.returns_at} --reserve {reserve}"


def _words(report: Report, stretch: ReportStretch) -> str:
    """Who speaks in a stretch; of one message also how it begins; of what was not read, only how
    much it is.
    """
    places = range(stretch.span.start, stretch.span.stop)
    if any(map(report.continuation.places.unread, places)):
        return plural(stretch.messages, "message")
    messages = [report.continuation.history[index] for index in places]
    if len(messages) == 1:
        return f"{messages[0].role}: " + " ".join(
            click.unstyle(mark) + text for mark, text in map(look, messages[0].parts)
        )
    roles = Counter(message.role for message in messages)
    return ", ".join(f"{count:,} {role}" for role, count in roles.items())


def _label(action: Action) -> str:
    """The name of an action, in its colour and in a column of its own."""
    return style(f"{action:<{ACTION_COLUMNS}}", fg=LOOKS[action][0])


def _print_repairs(report: Report) -> None:
    """Repairs by their rule, each with its first place."""
    by_rule: dict[str, list[Item]] = {}
    for item in report.items:
        if item.action == "repaired":
            by_rule.setdefault(item.rule.partition(": ")[0], []).append(item)
    for rule, mended in by_rule.items():
        place = mended[0].place + (f" and {len(mended) - 1:,} more" if len(mended) > 1 else "")
        what = mended[0].rule.removeprefix(f"{rule}: ")
        words = one_line(what, max(terminal.width() - len(rule) - 52, 12))
        say(f"  {_label('repaired')} {place:<36}  {clean(rule)}  {dim(words)}")


def _print_hidden(report: Report) -> None:
    """What is kept from every request by what was said of it, by the reason."""
    by_rule: dict[str, list[str]] = {}
    for item in report.items:
        if item.action == "hidden":
            by_rule.setdefault(item.rule, []).append(item.place)
    for rule, places in by_rule.items():
        told = ", ".join(places[:MAX_SHOWN_PLACES]) + (
            f" and {len(places) - MAX_SHOWN_PLACES:,} more"
            if len(places) > MAX_SHOWN_PLACES
            else ""
        )
        say(f"  {_label('hidden')} {told:<36}  {clean(rule)}")
