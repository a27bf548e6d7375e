"""What covers say, on a terminal: all of it as the model reads it, or how it begins."""

from collections.abc import Callable
from typing import Any

from loom.cli import terminal
from loom.cli.terminal import clean, columns_of, dim, one_line, plural, say, style, wrap_lines
from loom.context import Piece

PREVIEW_LINES = 4
INDENT = "    "
QUOTATION_MARK = "> "
COLOURS = {
    "user": "green",
    "assistant": "cyan",
    "thought": "cyan",
    "call": "cyan",
    "result": "yellow",
    "error": "red",
    "system": "magenta",
}


def print_cover(piece: Piece, colour: str) -> None:
    """Print all that a cover says, with a bar of this colour on the left. Long lines wrap."""
    for line in piece.introduction.splitlines():
        _print_wrapped(line, colour, dim)
    for quote in piece.quotes:
        _print_wrapped(quote.label, colour, _paint(fg=COLOURS[quote.voice], bold=True))
        for line in quote.text.splitlines():
            _print_wrapped(line, colour, clean, QUOTATION_MARK)


def print_beginning(piece: Piece, colour: str) -> None:
    """Print the first lines of what a cover says, and how many there are."""
    lines = piece.messages[0].text.splitlines()[1:]
    if piece.quotes:
        lines = piece.text_of_quotes.splitlines()
    columns = terminal.width() - len(INDENT) - 2
    for line in lines[:PREVIEW_LINES]:
        _print_row(one_line(line, columns), colour)
    more = len(lines) - PREVIEW_LINES
    if more > 0:
        _print_row(dim(f"… and {plural(more, 'more line')}; --show prints all"), colour)


def _paint(**looks: Any) -> Callable[[str], str]:
    return lambda text: style(text, **looks)


def _print_wrapped(line: str, colour: str, paint: Callable[[str], str], mark: str = "") -> None:
    columns = terminal.width() - len(INDENT) - 2 - len(QUOTATION_MARK)
    for row in _wrap(clean(line), columns):
        _print_row(mark + paint(row), colour)
        mark = " " * len(QUOTATION_MARK)


def _print_row(row: str, colour: str) -> None:
    say(f"{INDENT}{style('│', fg=colour)} {row}".rstrip())


def _wrap(line: str, columns: int) -> list[str]:
    """A line as it is if it fits; else several lines with the indent of the first."""
    if columns_of(line) <= columns:
        return [line]
    indent = min(len(line) - len(line.lstrip()), columns // 2)
    return [" " * indent + row for row in wrap_lines(line, columns - indent)]
