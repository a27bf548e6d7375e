"""`loom decisions`: log, list, search, show, supersede, pivot, pulse, draw and write up."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom
from loom.cli.main import cli
from loom.cli.terminal import columns_of

HELP = """\
Usage: decisions [OPTIONS] COMMAND [ARGS]...

  Log and look up what was decided, why, and what came of it.

  Each folder of a project has its own decisions. Requests show those that
  matter to them.

Options:
  -h, --help  Show this message and exit.

Commands:
  abandon     Give a decision up.
  confidence  Set how sure one is of a decision, from 0 to 100.
  export      Write decisions up for a pull request, or as JSON.
  graph       Draw decisions as a Mermaid flowchart.
  link        Make an edge from SOURCE to TARGET.
  list        List decisions, the newest first.
  log         Log a decision, or a goal, an option, an action and so on.
  pivot       Replace a decision because of something observed.
  pulse       Say how healthy the decisions are, and what to look at.
  search      Search decisions by their words, the best first.
  show        Show a decision with its edges and links.
  supersede   Replace the active decision OLD by the active decision NEW.
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "loom.db")


def run(store: str, *arguments: str, status: int = 0) -> Result:
    given = ["decisions", *arguments, "--store", store]
    result = CliRunner().invoke(cli, given, env={"COLUMNS": "80"})
    assert result.exit_code == status, result.output
    return result


def read(store: str, *arguments: str) -> Any:
    return json.loads(run(store, *arguments, "--json").stdout)


def test_the_help_is_this() -> None:
    shown = CliRunner().invoke(cli, ["decisions", "--help"], terminal_width=80)
    assert shown.stdout.partition("\n")[2] == HELP.partition("\n")[2]


def test_a_story_is_logged_looked_up_and_written_up(store: str, tmp_path: Path) -> None:
    goal = read(store, "log", "Add authentication", "--kind", "goal", "--confidence", "85")["id"]
    assert read(store, "log", "add authentication", "--kind", "goal")["id"] == goal
    under = ["--parent", goal[:6]]
    why = ["--edge", "rejected", "--why", "sticky"]
    read(store, "log", "Use cookies", "--kind", "option", *under, *why)
    jwt = read(store, "log", "Use JWT", *under, "--commit", "4fd1c2e9a7b0")["id"]
    listed = read(store, "list")
    assert [each["title"] for each in listed] == ["Use JWT", "Use cookies", "Add authentication"]
    assert [each["id"] for each in read(store, "list", "--commit", "4fd1c2e")] == [jwt]
    assert [each["id"] for each in read(store, "search", "jwt")] == [jwt]
    assert run(store, "search", "unheard", status=1).stdout.startswith("no decision")
    shown = run(store, "show", jwt[:8]).stdout
    assert "decision, active" in shown
    assert f"← leads_to {goal[:8]} Add authentication" in shown
    made = read(store, "pivot", jwt, "Not revocable", "Use sessions", "--confidence", "40")
    assert made["edge"]["kind"] == "supersedes"
    said = run(store, "supersede", jwt, goal, status=2).stderr
    assert f"superseded by {made['decision']['id']} already" in said
    pulse = read(store, "pulse")
    assert pulse["low_confidence"]["count"] == 1
    assert f"health {pulse['health']} of 100" in run(store, "pulse").stdout
    assert "-.->|supersedes|" in run(store, "graph").stdout
    assert "superseded by Use sessions: Not revocable" in run(store, "export").stdout
    out = tmp_path / "graph.json"
    run(store, "export", goal, "--format", "json", "-o", str(out))
    assert {each["title"] for each in json.loads(out.read_text())["decisions"]} >= {"Use JWT"}
    run(store, "abandon", made["decision"]["id"], "--why", "too slow")
    assert read(store, "list", "--status", "abandoned")[0]["metadata"] == {
        "abandoned_because": "too slow"
    }


def test_edges_and_confidence(store: str) -> None:
    one, two = (read(store, "log", name)["id"] for name in ("one", "two"))
    assert read(store, "link", one, two, "--kind", "requires", "--weight", "2")["weight"] == 2
    assert "✓" in run(store, "link", one, two).stdout
    said = run(store, "confidence", one, "30").stdout
    assert f"{two} is uncertain now: two" in said
    assert f"{two} is certain again: two" in run(store, "confidence", one, "80").stdout
    assert "Error" in run(store, "confidence", one, "101", status=2).stderr


def test_each_folder_has_its_own_decisions(store: str, tmp_path: Path) -> None:
    read(store, "log", "here", "--folder", str(tmp_path))
    assert read(store, "list") == []
    said = run(store, "list").stdout
    assert "nothing was decided in project default, no folder" in said
    assert f"1 decision with --folder {tmp_path}" in said.replace("\n", "")
    assert [each["title"] for each in read(store, "list", "--folder", str(tmp_path))] == ["here"]
    assert "loom decisions log" in run(store, "list", "--project", "other").stdout


def test_who_logs_without_a_folder_is_told_so(store: str, tmp_path: Path) -> None:
    assert "It belongs to no folder" in run(store, "log", "x").stdout
    assert "no folder" not in run(store, "log", "x", "--folder", str(tmp_path)).stdout
    said = run(str(tmp_path / "none.db"), "pulse", status=2).stderr
    assert "loom decisions log creates one" in said


def test_a_commit_may_have_a_name(store: str, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    made = read(store, "log", "x", "--commit", "HEAD", "--folder", str(tmp_path))
    assert len(made["commits"][0]) == 40
    said = run(store, "log", "x", "--commit", "nowhere", "--folder", str(tmp_path), status=2).stderr
    assert "not a commit that git knows here" in said


def test_a_session_logs_in_its_own_name(store: str) -> None:
    with Loom.open(store) as loom:
        session = loom.new("work")
    assert read(store, "log", "x", "--session", session.id[:8])["session"] == session.id
    read(store, "log", "y")
    assert [each["title"] for each in read(store, "list", "--session", session.id)] == ["x"]


def test_lines_fit_a_terminal(store: str) -> None:
    long = "实现 JWT 中间件，并为所有公共端点编写测试 " * 4
    one = read(store, "log", long, "--description", "word " * 60)["id"]
    read(store, "log", "x" * 200, "--parent", one, "--why", "because " * 30)
    for arguments in (["list"], ["show", one], ["pulse"], ["search", "中间件"]):
        lines = run(store, *arguments).stdout.splitlines()
        assert max(map(columns_of, lines)) <= 80, arguments


def test_without_a_store_there_are_no_decisions_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    for command in ("list", "pulse", "graph", "export"):
        done = CliRunner().invoke(cli, ["decisions", command])
        assert done.exit_code == 0, done.output
        assert "loom decisions log creates one" in done.stderr
    assert CliRunner().invoke(cli, ["decisions", "search", "x"]).exit_code == 1
    assert json.loads(CliRunner().invoke(cli, ["decisions", "list", "--json"]).stdout) == []
    assert not (tmp_path / "data").exists()
    named = CliRunner().invoke(cli, ["decisions", "list", "--store", str(tmp_path / "slip.db")])
    assert (named.exit_code, "there is no store at" in named.stderr) == (2, True)
