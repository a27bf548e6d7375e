"""How far an import is, drawn while it runs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from loom.cli.terminal import bar, plural, style, wants_colour
from loom.errors import TranscriptError
from loom.transcripts import files

BAR_COLUMNS = 24
PAUSE_SECONDS = 0.1  # between two drawings


class Progress:
    """How far an import is, drawn on standard error while it runs, and only where that is a
    terminal.
    """

    def __init__(self, size: int = 0) -> None:
        self._size, self._read, self._draw_line = size, 0, 0.0
        self._shown = sys.stderr.isatty()

    def reading(self, path: Path) -> Iterator[str]:
        """The lines of a file, counted as they pass."""
        for number, line in files.raw_lines(path):
            self._read += len(line)
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise TranscriptError(
                    f"{path}, line {number}: not UTF-8 at byte {error.start}; export it again"
                ) from None

    def pass_over(self, size: int) -> None:
        """Count the bytes of a file that was read otherwise."""
        self._read += size

    def clear(self) -> None:
        """Take the bar away, before a line is printed."""
        if self._draw_line:
            click.echo(f"\r{'':<{BAR_COLUMNS + 25}}\r", nl=False, err=True)
            self._draw_line = 0.0

    def tell(self, messages: int) -> None:
        if not self._shown or time.monotonic() < self._draw_line + PAUSE_SECONDS:
            return
        self._draw_line = time.monotonic()
        share = ""
        if self._size:
            share = f"{bar(self._read / self._size, BAR_COLUMNS):<{BAR_COLUMNS}}  "
        click.echo(
            f"\r{style(share, fg='blue')}{plural(messages, 'message')}",
            nl=False,
            err=True,
            color=wants_colour(),
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class ShareProgress:
    """How much of how much is done, drawn as `Progress` is."""

    def __init__(self, verb: str) -> None:
        self._verb, self._drawn = verb, 0.0
        self._shown = sys.stderr.isatty()

    def tell(self, done: int, total: int) -> None:
        if not self._shown or done >= total or time.monotonic() < self._drawn + PAUSE_SECONDS:
            return
        self._drawn = time.monotonic()
        drawn = f"{bar(done / total, BAR_COLUMNS):<{BAR_COLUMNS}}"
        text = f"\r{self._verb} {style(drawn, fg='blue')}  {done / total:>4.0%}"
        click.echo(text, nl=False, err=True, color=wants_colour())

    def __enter__(self) -> "ShareProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            blank = " " * (len(self._verb) + BAR_COLUMNS + 30)
            click.echo(f"\r{blank}\r", nl=False, err=True)
