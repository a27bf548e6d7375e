"""Text for a terminal: fitted to its width, safe to print, coloured where colour is wanted."""

import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_REPLACEMENTS = {"\n": "⏎", "\t": " ", "\r": " "}  # of what cannot be printed
_BLINK = 0.05  # seconds between two looks of a bar
COLOURS = {
    "system": "magenta",
    "developer": "magenta",
    "user": "green",
    "assistant": "cyan",
    "tool": "yellow",
}


def width() -> int:
    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 160))


def wants_colour() -> bool | None:
    """None leaves the choice to whether the output is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return None


def one_line(text: str, columns: int) -> str:
    """The text on one line of at most this many columns, safe to print."""
    text = clean(text.strip()[: columns * 4])
    used, kept = 0, list[str]()
    for character in text:
        used += columns_of(character)
        if used > columns - 1 and len(kept) + 1 < len(text):
            return "".join(kept) + "…"
        kept.append(character)
    return "".join(kept)


def fit_end(text: str, columns: int) -> str:
    """The text on one line of at most this many columns; of a longer one, its end."""
    text = clean(text)
    if columns_of(text) <= columns:
        return text
    used, kept = 0, 0
    for character in reversed(text):
        used += columns_of(character)
        if used > columns - 1:
            break
        kept += 1
    return "…" + text[len(text) - kept :]


def columns_of(text: str) -> int:
    """How many columns a text takes."""
    return sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 1


def fit_columns(text: str, columns: int) -> str:
    """The text on one line of exactly this many columns."""
    text = one_line(text, columns)
    return text + " " * (columns - columns_of(text))


def age(then: int, now: int) -> str:
    """How long ago something was, in few characters; of what is older than a month, the day.

    Times are milliseconds since 1970.
    """
    seconds = max(now - then, 0) // 1000
    for unit, most, length in (
        ("s", 60, 1),
        ("min", 3600, 60),
        ("h", 86_400, 3600),
        ("d", 31 * 86_400, 86_400),
    ):
        if seconds < most:
            if seconds >= 10:
                return f"{seconds // length} {unit}"
            return "now"
    try:
        return datetime.fromtimestamp(then / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):  # a file from elsewhere may say anything
        return "long ago"


def amount(count: int) -> str:
    """A number of characters in few of them."""
    if count < 1000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


def plural(count: int, noun: str, several: str = "") -> str:
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def bar(share: float, columns: int) -> str:
    """A bar in eighths of a column."""
    eighths = round(max(0.0, min(share, 1.0)) * columns * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def reading() -> Callable[[int, int], None] | None:
    """A bar on the terminal that grows while files are read, and is gone when all are; none if
    nobody looks.
    """
    if not sys.stderr.isatty():
        return None
    shown = 0.0

    def show(done: int, total: int) -> None:
        nonlocal shown
        if done < total and time.monotonic() - shown < _BLINK:
            return
        shown = time.monotonic()
        line = f"reading {bar(done / max(total, 1), 24):<24} {done:,} of {total:,} files"
        sys.stderr.write(f"\r{line}" if done < total else f"\r{' ' * (width() - 1)}\r")
        sys.stderr.flush()

    return show


def clean(text: str) -> str:
    """The text with nothing in it that moves the cursor or turns the writing around."""
    return _UNPRINTABLE.sub(lambda found: _REPLACEMENTS.get(found[0], "�"), text)


def make_printable(text: str) -> str:
    """The text with its lines and tabs, and with nothing else that moves the cursor."""
    return "".join(letter if letter in "\n\t" else clean(letter) for letter in text)


def style(text: str, **looks: Any) -> str:
    if text:
        return click.style(clean(text), **looks)
    return ""


def dim(text: str) -> str:
    return click.style(clean(text), dim=True)


def say(text: str = "", err: bool = False) -> None:
    click.echo(text, err=err, color=wants_colour())


def say_dim(text: str, indent: int = 2) -> None:
    """A remark in as many lines as it takes, each within the terminal's width."""
    for line in wrap_lines(clean(text), width() - indent):
        say(dim(" " * indent + line))


def note(text: str) -> None:
    """Something the reader should know, in lines of its own."""
    mark = style("!", fg="yellow", bold=True)
    for line in wrap_lines(clean(text), width() - 4):
        say(f"  {mark} {line}")
        mark = " "


def wrap_lines(text: str, columns: int) -> list[str]:
    """The text in lines of at most this many columns, broken between words where that can be."""
    lines, line = list[str](), ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if columns_of(joined) <= columns:
            line = joined
            continue
        if line:
            lines.append(line)
        *full, line = split_columns(word, columns)
        lines += full
    if line:
        return [*lines, line]
    return lines


def split_columns(text: str, columns: int) -> list[str]:
    """A text in pieces of at most this many columns."""
    pieces, used = [""], 0
    for character in text:
        used += columns_of(character)
        if used > columns:
            pieces.append("")
            used = columns_of(character)
        pieces[-1] += character
    return pieces
