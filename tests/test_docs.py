"""The documentation tells the truth: its examples run, its commands exist, its tables name what there is."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from loom.cli.main import cli
from loom.conversation.commands import SPECS
from loom.dialects import DIALECTS
from tests.shared import FIXTURES, ROOT

# Commands are loaded when they are asked for.
CLI = {name: command for name in cli.list_commands(click.Context(cli)) if (command := cli.get_command(click.Context(cli), name))}
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, example, FIXTURES / "cc_interrupted_resumed.jsonl"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "messages[1] kept" in done.stdout


def test_every_command_is_documented_and_every_documented_command_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\bloom ([a-z]+) (?:FILE|[\w.]+\.json|-)", text)) | set(re.findall(r"`loom ([a-z]+)", text))
    assert named <= set(CLI)
    assert set(CLI) <= set(re.findall(r"(?:loom|make) ([a-z]+)", text))


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in (CLI if group is cli else group.commands).values():
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


def test_every_command_of_a_session_is_documented() -> None:
    text = (ROOT / "docs" / "sessions.md").read_text()
    group = CLI["session"]
    assert isinstance(group, click.Group)
    assert set(group.commands) == set(re.findall(r"loom session ([a-z]+)", text))


def test_every_command_of_a_tree_is_documented() -> None:
    text = (ROOT / "docs" / "trees.md").read_text()
    group = CLI["tree"]
    assert isinstance(group, click.Group)
    assert set(group.commands) == set(re.findall(r"loom tree ([a-z]+)", text))


def test_every_command_of_an_agent_is_documented_as_it_is_written() -> None:
    text = (ROOT / "docs" / "trees.md").read_text()
    for spec in SPECS.values():
        form = spec.form.replace("|", "\\|")
        assert f"| `→ {form}` | {spec.about} | `{spec.needs}` |" in text


def test_every_option_is_documented() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for command in commands(cli):
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option != "--output":
                    assert option in text, f"{command.name} {option}"


def test_dialects_are_documented() -> None:
    text = (ROOT / "docs" / "convert.md").read_text()
    for name in DIALECTS:
        assert f"`{name}`" in text


def test_architecture_is_one_page_and_names_every_room() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 90
    for room in (ROOT / "src" / "loom").iterdir():
        if room.is_dir() and (room / "__init__.py").exists():
            assert f"  {room.name}/" in text


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
