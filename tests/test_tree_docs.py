"""The page on trees can be followed by copying: its commands, in their order, print what stands
there, ids too.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom.cli.main import cli
from tests.shared import ROOT

PAGE = ROOT / "docs" / "trees.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_AGES = re.compile(
    r"\bjust now\b|\b\d+[smh] ago\b|\bnow\b|\b\d+ s\b"
)  # a slow machine takes longer than the one that wrote the page


def read_steps(block: str) -> Iterator[tuple[str, str | None]]:
    """The commands of a block, each with what it prints; None where the block shows no output."""
    shown = block.startswith("$ ")
    command, output = "", list[str]()
    for line in block.splitlines():
        if command and is_open(command):
            command += f"\n{line}"
        elif not shown or line.startswith("$ "):
            if command:
                yield command, "\n".join(output) if shown else None
            command, output = line.removeprefix("$ "), []
        else:
            output.append(line)
    yield command, "\n".join(output) if shown else None


def is_open(command: str) -> bool:
    """Whether a quotation has not ended yet, so that the command goes on in the next line."""
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def run(command: str) -> str:
    """What a command prints, on both streams, as a terminal shows it."""
    name, *words = shlex.split(command)
    hidden = words[-2:] == [">", "/dev/null"]
    if name == "cat":
        return Path(words[0]).read_text()
    assert name == "loom", command
    done = CliRunner().invoke(cli, words[:-2] if hidden else words, catch_exceptions=False)
    assert done.exit_code == 0 or "✗" in done.output, f"{command}\n{done.output}"
    return done.stderr if hidden else done.output


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in _AGES.sub("AGE", text).strip("\n").splitlines())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "kept.db"))
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("LOOM_PROJECT", "LOOM_TENANT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("here")
def test_the_page_on_trees_can_be_followed_by_copying(capsys: pytest.CaptureFixture[str]) -> None:
    seen, printed = 0, list[str]()
    for language, block in _BLOCK.findall(PAGE.read_text()):
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})
            printed.append(capsys.readouterr().out)
            continue
        for command, expected in read_steps(block):
            found = run(command)
            seen += 1
            if expected is not None:
                assert plain(found) == plain(expected), command
    assert seen > 30
    assert [text.splitlines()[-1] for text in printed] == [
        'About 120 grams. stashed "unit" (5 characters)',
        "Yours Yours",
    ]
