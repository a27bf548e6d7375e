"""`loom show`: a transcript as a person reads it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from loom.cli import terminal
from loom.cli.terminal import COLOURS, amount, bar, dim, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.conversation.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.dialects.wire import placeholder
from loom.errors import ChoiceError
from loom.transcripts.formats import list_names, read_runs
from loom.transcripts.runs import Run


class Shape(Struct):
    """What a turn or a run holds, counted."""

    messages: int = 0
    exchanges: int = 0
    calls: int = 0
    unanswered: int = 0
    characters: int = 0

    def add(self, other: "Shape") -> None:
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


class Turn(Struct):
    number: int
    start: int
    shape: Shape


def size(parts: Iterable[Part]) -> int:
    """The characters of what is written: texts, reasoning, calls, results; media by their data."""
    total = 0
    for part in parts:
        match part:
            case Text() | Reasoning():
                total += len(part.text)
            case ToolCall():
                total += len(part.name) + len(part.arguments)
            case ToolResult():
                total += size(part.parts)
            case Media():
                total += len(part.value)
            case Opaque():
                total += len(part.json)
    return total


def turns(messages: Iterable[Message]) -> Iterator[Turn]:
    """The turns of a stream, counted as it passes."""
    turn = None
    waiting: Counter[str] = Counter()
    for index, message in enumerate(messages):
        if turn is None or message.role == "user":
            if turn is not None:
                turn.shape.unanswered = sum(waiting.values())
                yield turn
            turn = Turn(turn.number + 1 if turn else 0, index, Shape())
            waiting = Counter()
        shape = turn.shape
        shape.messages += 1
        shape.characters += size(message.parts)
        if message.role == "assistant":
            shape.exchanges += 1
        for call in message.calls:
            shape.calls += 1
            waiting[call.id] += 1
        for result in message.results:
            if waiting[result.call_id] > 0:
                waiting[result.call_id] -= 1
    if turn is not None:
        turn.shape.unanswered = sum(waiting.values())
        yield turn


@click.command()
@click.argument("file")
@click.option(
    "--turn",
    "only",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show turn N in full, counted from 0.",
)
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Show only the last N messages."
)
@click.option("--json", "as_json", is_flag=True, help="Print turns, exchanges and sizes as JSON.")
def show(file: str, only: int | None, last: int | None, as_json: bool) -> None:
    """Show the turns, exchanges and sizes of a transcript.

    If a file has several runs, they are listed. FILE#N shows run N.
    """
    if only is not None and last is not None:
        raise ChoiceError("--turn and --last both select what to show; give only one of them")
    if as_json:
        reports = [_report(run) for run in read_runs(file)]
        say(to_json(reports[0] if len(reports) == 1 else reports))
        return
    runs = read_runs(file)
    first = next(runs)
    second = next(runs, None)
    if second is None:
        _print_run(first, only, last)
        return
    if only is not None or last is not None:
        names = list_names((run.number, run.name) for run in (first, second, *runs))
        raise ChoiceError(
            f"{file} has several runs; choose one as {file}#N to show a part of it ({names})"
        )
    say(dim(f"{first.format}, several runs; show one with {file}#N"))
    for run in (first, second, *runs):
        whole = Shape()
        counted = 0
        for turn in turns(run.messages()):
            whole.add(turn.shape)
            counted += 1
        say(
            f"{style(f'#{run.number}', bold=True):<14} {one_line(run.name, 40):<24} "
            f"{_summary(whole, counted)}"
        )


def _report(run: Run) -> dict[str, Any]:
    whole, found = Shape(), []
    for turn in turns(run.messages()):
        whole.add(turn.shape)
        found.append({"start": turn.start, **asdict(turn.shape)})
    return {
        "run": run.number,
        "name": run.name,
        "format": run.format,
        "dialect": run.wire,
        "model": run.head.model,
        "system_characters": sum(size(message.parts) for message in run.head.system),
        "tools": len(run.head.tools),
        **asdict(whole),
        "turns": found,
    }


def _summary(shape: Shape, counted: int) -> str:
    waiting = ""
    if shape.unanswered:
        waiting = style(f" ({shape.unanswered:,} unanswered)", fg="red")
    return (
        f"{plural(shape.messages, 'message')}, {plural(counted, 'turn')}, "
        f"{plural(shape.exchanges, 'exchange')}, "
        f"{plural(shape.calls, 'call')}{waiting}, {amount(shape.characters)} characters"
    )


def _print_run(run: Run, only: int | None, last: int | None) -> None:
    """Two readings: one that counts, one that prints, so that no turn has to be held."""
    whole, found = Shape(), list[Turn]()
    for turn in turns(run.messages()):
        whole.add(turn.shape)
        found.append(turn)
    if only is not None and only >= len(found):
        raise ChoiceError(f"the turns are counted from 0; there is no turn {only} of {len(found)}")
    model = ""
    if run.head.model:
        model = f" {style(run.head.model, fg='blue')}"
    say(style(run.format, bold=True) + model)
    say(_summary(whole, len(found)))
    if last is not None:
        _print_last(run, found, whole.messages - last)
        return
    columns, is_full = terminal.width(), only is not None
    for message in run.head.system:
        print_message(message, columns, is_full)
    largest = _largest(found)
    for placed, message in _with_turns(run, found):
        if only is None or placed.turn.number == only:
            _print_step(placed, message, largest, is_full)


def _print_last(run: Run, found: list[Turn], begin: int) -> None:
    """The messages from the place `begin` on."""
    if begin > 0:
        say(dim(f"the first {plural(begin, 'message')} are not shown"))
    largest = _largest(found)
    for place, (placed, message) in enumerate(_with_turns(run, found)):
        if place >= begin:
            _print_step(placed, message, largest, is_full=False)


def _largest(found: list[Turn]) -> int:
    """The characters of the largest turn, which its bar is drawn for; at least 1."""
    return max((turn.shape.characters for turn in found), default=1) or 1


def _with_turns(run: Run, found: list[Turn]) -> Iterator[tuple["_PlacedTurn", Message]]:
    """Each message with its turn, and whether the turn begins with it."""
    numbers = iter(found)
    turn, following = None, next(numbers, None)
    for place, message in enumerate(run.messages()):
        if following is not None and place == following.start:
            turn, following = following, next(numbers, None)
        assert turn is not None, "the first turn begins with the first message"
        yield _PlacedTurn(turn, place == turn.start), message


class _PlacedTurn(Struct, frozen=True):
    """The turn of a message, and whether the message is its first."""

    turn: Turn
    begins: bool


def _print_step(placed: _PlacedTurn, message: Message, largest: int, is_full: bool) -> None:
    if placed.begins:
        _print_turn(placed.turn, largest)
    print_message(message, terminal.width(), is_full)


def _print_turn(turn: Turn, largest: int) -> None:
    detail = (
        f"{plural(turn.shape.exchanges, 'exchange')}, {amount(turn.shape.characters)} characters"
    )
    say(
        f"\n{style(f'turn {turn.number}', bold=True)} {dim(detail)} "
        f"{style(bar(turn.shape.characters / largest, 24), fg='blue')}"
    )


def print_message(message: Message, columns: int, full: bool) -> None:
    colour = COLOURS[message.role]
    who = style(f"{message.role:>9}", fg=colour)
    if message.author:
        who += dim(f" ({message.author})")
    if not message.parts:
        say(f"{who}  {dim('(empty)')}")
    for n, part in enumerate(message.parts):
        lead = who if n == 0 else " " * 9
        mark, text = look(part)
        if full and isinstance(part, Text | ToolResult | ToolCall):
            if isinstance(part, ToolResult):
                body = "\n".join(p.text for p in part.parts if isinstance(p, Text))
            else:
                body = text
            say(f"{lead}  {mark}")
            for line in body.splitlines():
                say("           " + terminal.one_line(line, 10_000))
            continue
        say(f"{lead}  {mark}{one_line(text, columns - 14 - len(click.unstyle(mark)))}")


def look(part: Part) -> tuple[str, str]:
    """A mark that tells the kind of a part, and its text."""
    match part:
        case Text():
            return "", part.text
        case Reasoning():
            return dim("∴ "), part.text or "(encrypted reasoning)"
        case ToolCall():
            return style(f"→ {part.name} ", fg="yellow"), part.arguments
        case ToolResult():
            text = " ".join(p.text if isinstance(p, Text) else placeholder(p) for p in part.parts)
            if part.error:
                mark = style("✗ ", fg="red")
            else:
                mark = style("← ", fg="yellow")
            return mark + dim(f"{part.name + ' ' if part.name else ''}{amount(len(text))} "), text
        case Media() | Opaque():
            return style("▣ ", fg="blue"), placeholder(part)
