"""The gauge of a talk: a line that moves in a terminal, and a plain one elsewhere."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from loom import Context, weave
from loom.cli.agent import gauge as gauges
from loom.cli.agent.gauge import Gauge, draw_gauge
from loom.cli.terminal import columns_of
from loom.dialects.input import Answer
from loom.providers.scripted import Drip, ScriptedServer

COMMAND = "from loom.cli.main import run; run()"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MOVES_UP = b"\x1b[1A"


@pytest.fixture
def context() -> Context:
    return weave([{"role": "user", "content": "Hello there"}], model="gpt-4o", window=8_000)


@pytest.mark.parametrize("columns", [1, 8, 20, 36, 59, 60, 80, 160])
def test_the_line_fits_however_narrow_the_terminal_is(context: Context, columns: int) -> None:
    line = draw_gauge(context.report, columns, answer_tokens=700, cost=0.25, seconds="12 s")
    assert columns_of(line) <= columns
    assert "\n" not in line
    if columns >= 36:
        assert "9%" in line  # the request and the answer together
    if columns >= 80:
        assert f"{context.report.input_tokens:,} + 700 of 8,000 tokens · $0.2500 · 12 s" in line


def draw(monkeypatch: pytest.MonkeyPatch, columns: int, *, no_color: bool = False) -> "Recorded":
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    console = Console(
        file=io.StringIO(), force_terminal=True, width=columns, height=10, color_system="standard"
    )
    monkeypatch.setattr(gauges, "_find_console", lambda: console)
    return Recorded(console)


class Recorded:
    """A gauge on a terminal that is a text."""

    def __init__(self, console: Console) -> None:
        self.console, self.gauge = console, Gauge()

    def rows(self) -> list[str]:
        """What the gauge shows now."""
        lines = self.console.render_lines(self.gauge, pad=False)
        return ["".join(segment.text for segment in line) for line in lines]


@pytest.mark.parametrize("columns", [12, 36, 80])
def test_the_line_moves_with_the_answer(
    context: Context, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    recorded = draw(monkeypatch, columns)
    gauge = recorded.gauge
    gauge.begin(context, 0.0)
    try:
        before = gauge.answer_tokens
        gauge.write("A line.\nAnd some words more")
        gauge.count("thoughts that nobody sees")
        assert gauge.answer_tokens > before
        rows = recorded.rows()
        assert "".join(rows[:-1]) == "And some words more"
        assert rows[-1][0] in "░▏▎▍▌█"
        gauge.write(", on and on" * 200)
        rows = recorded.rows()
        assert len(rows) <= recorded.console.height
        assert all(columns_of(row) <= columns for row in rows)
    finally:
        gauge.end(Answer(messages=(), completion=123), 0.5)
    printed = ESCAPE.sub("", recorded.console.file.getvalue())  # type: ignore[attr-defined]
    assert "A line.\n" in printed
    assert "And some words more" + ", on and on" * 200 in printed.replace("\r", "")


def test_without_colour_nothing_is_coloured(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = draw(monkeypatch, 80, no_color=True)
    with recorded.console.capture() as shown:
        recorded.gauge.begin(context, 0.0)
        recorded.gauge.write("Words")
        recorded.gauge.end(Answer(messages=(), completion=1))
    assert not re.search(r"\x1b\[[0-9;]*m", shown.get())


def start(folder: Path, server: ScriptedServer, **variables: str) -> tuple[int, int]:
    known = {
        **os.environ,
        "OPENAI_BASE_URL": server.openai_url,
        "OPENAI_API_KEY": "none",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "TERM": "xterm",
        **variables,
    }
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
    arguments = ["run", "Say something", "--model", "openai:gpt-4o", "--store", "loom.db"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        env=known,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    os.close(inner)
    return process.pid, outer


def read_all(outer: int, look: Callable[[bytes], None] | None = None) -> bytes:
    seen, deadline = b"", time.monotonic() + 40
    while time.monotonic() < deadline:
        try:
            seen += os.read(outer, 4096)
        except OSError:
            break
        if look is not None:
            look(seen)
    os.close(outer)
    return seen


def test_in_a_terminal_it_moves_and_survives_typing_and_a_new_size(tmp_path: Path) -> None:
    answer = Drip(0.04, "\n\n".join(f"Sentence {n} of the answer." for n in range(12)))
    with ScriptedServer(answer) as server:
        pid, outer = start(tmp_path, server)
        resized = False

        def look(seen: bytes) -> None:
            nonlocal resized
            if not resized and b"Sentence 2" in seen:
                resized = True
                os.write(outer, b"typed meanwhile")
                fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 56, 0, 0))

        seen = read_all(outer, look)
        _, status = os.waitpid(pid, 0)
    assert status == 0, seen.decode(errors="replace")
    assert resized
    assert b"typed" not in seen
    drawn = set(re.findall(r"\+ ([\d,]+) of 128", seen.decode(errors="replace")))
    assert len(drawn) > 2  # tokens of the answer, as they came
    assert MOVES_UP in seen or b"\x1b[2K" in seen
    assert "Sentence 11 of the answer." in ESCAPE.sub("", seen.decode(errors="replace"))
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h")  # the cursor is back


def test_in_a_dumb_terminal_it_is_a_plain_line(tmp_path: Path) -> None:
    with ScriptedServer("Short.") as server:
        pid, outer = start(tmp_path, server, TERM="dumb", NO_COLOR="1")
        seen = read_all(outer)
        os.waitpid(pid, 0)
    assert b"\x1b" not in seen
    assert seen.count(b"of 128,000 tokens") == 1
