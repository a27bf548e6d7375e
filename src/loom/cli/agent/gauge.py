"""The gauge of a talk: how full the window is.

In a terminal it is the last line of the screen while an answer comes, and it moves with the answer.
Elsewhere it is one plain line before each answer.
"""

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from loom.budget import models
from loom.budget.counting import gate_counter
from loom.cli.terminal import (
    amount,
    bar,
    columns_of,
    dim,
    one_line,
    plural,
    say,
    split_columns,
    wants_colour,
    width,
)
from loom.context import Context, Report
from loom.dialects.input import Answer

try:
    import termios
except ImportError:  # a system without it
    termios = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

BAR_COLUMNS = 20
NARROW_COLUMNS = 60  # a terminal with fewer has a shorter bar
DRAWS_PER_SECOND = 8
TAB_COLUMNS = 8
_LOCAL_MODES = 3  # where tcgetattr has the flag for what is typed


class Gauge:
    """Writes an answer, and shows below it how full the window is."""

    def __init__(self) -> None:
        self._console = _find_console()
        self._live: Live | None = None
        self._report: Report | None = None
        self._cost = 0.0  # of the session before this answer
        self._started = 0.0
        self._modes: list[Any] | None = None  # of the terminal, before the gauge changed them
        self._line = ""  # the words of the answer since its last line break
        self._counted = 0  # tokens of the answer before `_uncounted`
        self._uncounted = ""

    def begin(self, context: Context, cost: float) -> None:
        """Show the request that is about to be sent; `cost` is that of the session so far."""
        self.end()
        self._report, self._cost = context.report, cost
        self._started = time.monotonic()
        self._counted, self._uncounted = 0, ""
        if self._console is None:
            say(dim(draw_gauge(context.report, width(), cost=cost)), err=True)
            return
        from rich.live import Live

        self._live = Live(
            self,
            console=self._console,
            refresh_per_second=DRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._hide_typing()
        self._live.start(refresh=True)

    def write(self, text: str) -> None:
        """Print words of the answer. They must be safe to print."""
        self.count(text)
        *lines, self._line = f"{self._line}{text}".split("\n")
        if self._live is None:
            click.echo(text, nl=False)
            return
        for line in lines:
            self._print(line)

    def count(self, text: str) -> None:
        """Count words of the answer that are not printed, such as reasoning."""
        done, _, rest = f"{self._uncounted}{text}".rpartition("\n")
        if done:
            self._counted += gate_counter(None).count_text(done)
        self._uncounted = rest

    def end(self, answer: Answer | None = None, cost: float = 0.0) -> None:
        """End the answer. In a terminal a line stays that says what it took; `cost` is that of the
        session, with this answer.
        """
        live, self._live = self._live, None
        line, self._line = self._line, ""
        if live is None:
            if line:
                click.echo()
            return
        live.stop()
        self._show_typing()
        if line:
            self._print(line)
        if answer is not None and self._report is not None:
            taken = answer.completion or self.answer_tokens
            columns = width_of(self._console)
            say(dim(draw_gauge(self._report, columns, answer_tokens=taken, cost=cost)))

    @property
    def answer_tokens(self) -> int:
        """About how many tokens of the answer have come."""
        return self._counted + gate_counter(None).count_text(self._uncounted)

    # What a terminal shows while an answer comes

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        if self._line:
            # As the terminal will break it. Of a paragraph that is higher than the terminal, the
            # end: all of it is printed later.
            rows = split_columns(self._line.expandtabs(TAB_COLUMNS), options.max_width)
            for row in rows[-max(console.height - 2, 1) :]:
                yield Text(row, no_wrap=True, overflow="crop")
        seconds = int(time.monotonic() - self._started)
        drawn = self._draw(options.max_width, f"{seconds} s")
        yield Text(drawn, style=_dim_style(), no_wrap=True, overflow="crop")

    def _draw(self, columns: int, seconds: str) -> str:
        assert self._report is not None
        report, answer_tokens = self._report, self.answer_tokens
        price = models.model(report.model or None)
        cost = self._cost
        if price.known:
            cost += models.cost(price, report.input_tokens, answer_tokens)
        return draw_gauge(report, columns, answer_tokens=answer_tokens, cost=cost, seconds=seconds)

    def _hide_typing(self) -> None:
        """Do not show what is typed meanwhile, which would tear the gauge. It is not lost."""
        if termios is None or not sys.stdin.isatty():
            return
        with contextlib.suppress(termios.error):
            modes = termios.tcgetattr(sys.stdin)
            self._modes = list(modes)
            modes[_LOCAL_MODES] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)

    def _show_typing(self) -> None:
        modes, self._modes = self._modes, None
        if termios is not None and modes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)

    def _print(self, line: str) -> None:
        """Print a finished line above the gauge. The terminal breaks it where it must."""
        assert self._console is not None
        self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)


def draw_gauge(
    report: Report, columns: int, *, answer_tokens: int = 0, cost: float = 0.0, seconds: str = ""
) -> str:
    """How full the window is, on one line. What has no room is left out from the end."""
    used = report.input_tokens + answer_tokens
    share = used / max(report.window, 1)
    length, show, unit = BAR_COLUMNS, _show_exactly, " tokens"
    if columns < NARROW_COLUMNS:
        length, show, unit = BAR_COLUMNS // 2, amount, ""
    drawn = bar(share, length).ljust(length, "░")
    tokens = show(report.input_tokens)
    if answer_tokens:
        tokens += f" + {show(answer_tokens)}"
    parts = [f"{drawn} {share:.0%}", f"{tokens} of {show(report.window)}{unit}"]
    if cost:
        parts.append(f"${cost:.4f}")
    if seconds:
        parts.append(seconds)
    if report.dropped:
        parts.append(f"{plural(report.dropped, 'message')} left out")
    parts.append(f"epoch {report.epoch}")
    while len(parts) > 1 and columns_of(" · ".join(parts)) >= columns:
        parts.pop()
    return one_line(" · ".join(parts), columns)


def _show_exactly(count: int) -> str:
    return f"{count:,}"


def width_of(console: "Console | None") -> int:
    """The columns of a terminal, however narrow."""
    return width() if console is None else console.width


def _find_console() -> "Console | None":
    """The terminal, if lines on it can be drawn again."""
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    if console.is_dumb_terminal or not console.is_terminal:
        return None
    return console


def _dim_style() -> str:
    return "" if wants_colour() is False else "dim"
