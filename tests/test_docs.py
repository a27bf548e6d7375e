"""The documentation tells the truth: its examples run, its commands exist, its tables name what
there is.
"""

import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from examples.scripted_server import Say, ScriptedServer

from loom.cli.main import cli
from loom.conversation.commands import SPECS
from loom.dialects import DIALECTS
from tests.shared import FIXTURES, ROOT

# Commands are loaded when they are asked for.
CLI = {
    name: command
    for name in cli.list_commands(click.Context(cli))
    if (command := cli.get_command(click.Context(cli), name))
}
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem != "scripted_server"
]
TRANSCRIPT = str(FIXTURES / "cc_interrupted_resumed.jsonl")


def run_python(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a program prints in a process of its own; it finds no key of whoever runs the tests, and
    no proxy on its way to loopback.
    """
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "ANTHROPIC_"))
    }
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", *arguments]
    env = known | {"NO_PROXY": "127.0.0.1"} | environment
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


RunHere = Callable[..., str]


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunHere:
    """What a program prints in this process, which has loaded the packages that it needs; else it
    is as in a process of its own.
    """

    def run(program: Path | str, *arguments: str, **environment: str) -> str:
        for name in os.environ:
            if name.startswith(("OPENAI_", "ANTHROPIC_")):
                monkeypatch.delenv(name)
        for name, value in {"NO_PROXY": "127.0.0.1", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(ROOT / "examples")
        monkeypatch.setattr(sys, "argv", [str(program), *arguments])
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
            if isinstance(program, Path):
                runpy.run_path(str(program), run_name="__main__")
            else:
                exec(compile(program, "page", "exec"), {"__name__": "__main__"})
        out, err = capsys.readouterr()
        assert not err
        return out

    return run


@pytest.mark.parametrize("arguments", [(), (TRANSCRIPT,)], ids=["alone", "with a file"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, arguments: tuple[str, ...], run_here: RunHere) -> None:
    if arguments and "sys.argv" not in example.read_text():
        pytest.skip("it takes no file")
    assert run_here(example, *arguments)


def test_an_example_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert run_python(str(ROOT / "examples" / "loop_agent.py"), cwd=tmp_path)


def test_every_example_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for example in EXAMPLES:
        assert f"(examples/{example.name})" in text


def readme_block(about: str) -> str:
    """The one Python block of the README that says this."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2, "each block of the README has its test here"
    [block] = [block for block in blocks if about in block]
    return block


def test_the_first_example_of_the_readme_runs(tmp_path: Path) -> None:
    assert "messages[1] kept" in run_python("-c", readme_block("loom.weave"), cwd=tmp_path)


def test_the_program_of_the_page_on_sessions_runs(run_here: RunHere) -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "sessions.md").read_text(), re.DOTALL
    )
    [program] = [block for block in blocks if "asyncio.run(" in block]
    assert run_here(program) == "The login fails after an hour. Why?\nr2\n"


@pytest.mark.long
def test_the_commands_of_the_page_on_sessions_can_be_copied(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sessions.md").read_text()
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fences if not language]
    copied = [block for block in blocks if "postgres" not in block]
    assert len(copied) == len(blocks) - 1
    loom = f"""loom() {{ {sys.executable} -c 'from loom.cli.main import run; run()' "$@"; }}"""
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join([loom, *copied])],
        cwd=tmp_path,
        env=os.environ | {"LOOM_STORE": str(tmp_path / "kept.db")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_on_moving_trees_reads_its_own_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "trees-exchange.md").read_text()
    [tree] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "conversations.json").write_text(tree)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "trees-exchange.md", "exec"), {})
    assert capsys.readouterr().out == "A pound of flour 6 1\n"


def test_the_agent_of_the_readme_runs(tmp_path: Path, run_here: RunHere) -> None:
    """The provider refuses the request with the whole page in it, and takes a shorter one."""
    pytest.importorskip("openai")
    code = readme_block("loom.Loom.aopen")
    assert len([line for line in code.splitlines() if line]) <= 30
    with ScriptedServer(
        [Say(calls=(("read_page", {"page": 3}),)), Say("It was 3017.")], window=2_300
    ) as server:
        printed = run_here(code, OPENAI_BASE_URL=server.openai_url, OPENAI_API_KEY="none")
    assert printed == "It was 3017.\n"
    assert server.refused
    first, last = server.requests
    goal = {"role": "user", "content": "What was paid on page 3, line 17?"}
    assert first["messages"] == [goal]
    asked, call, result = last["messages"]
    assert asked == goal
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "page 3, line 1: paid 3001" in result["content"]
    assert "recall ~" in result["content"]
    assert (tmp_path / "work.db").exists()


def test_every_command_is_documented_and_every_documented_command_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\bloom ([a-z]+) (?:FILE|[\w.]+\.json|-)", text)) | set(
        re.findall(r"`loom ([a-z]+)", text)
    )
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
