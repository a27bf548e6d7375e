"""`loom memory`: notes of a project or a session, and the layers of a session."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom
from loom.cli.main import cli


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "loom.db")


def run(store: str, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["memory", *arguments, "--store", store])
    assert result.exit_code == status, result.output
    return result


def read(store: str, *arguments: str) -> Any:
    return json.loads(run(store, *arguments, "--json").stdout)


def test_notes_are_added_listed_found_shown_and_forgotten(store: str) -> None:
    first = read(store, "add", "Deploys are forbidden on Fridays", "--fact", "--about", "deploys")
    added = ["add", "Deploys are forbidden on Sundays", "--supersedes", first["id"][:6]]
    second = read(store, *added, "--always", "--until", "2099-01-01")
    assert second["supersedes"] == first["id"]
    assert second["valid_until"] == 4_070_908_800_000
    assert [note["text"] for note in read(store, "list")] == ["Deploys are forbidden on Sundays"]
    assert len(read(store, "list", "--history")) == 2
    assert [note["id"] for note in read(store, "search", "may I deploy?")] == [second["id"]]
    shown = run(store, "show", second["id"][:8]).stdout
    assert "before: Deploys are forbidden on Fridays" in shown
    assert "holds until: 2099-01-01" in shown
    assert read(store, "show", second["id"])["history"][0]["id"] == first["id"]
    assert second["id"][:8] in run(store, "list").stdout
    run(store, "forget", second["id"])
    assert "nothing is remembered" in run(store, "list").stdout
    assert run(store, "search", "deploy", status=1).stdout.startswith("no note")
    run(store, "forget", first["id"], second["id"], "--purge")
    assert {note["state"] for note in read(store, "list", "--history")} == {"purged"}


def test_a_session_has_its_own_notes_and_its_layers(store: str) -> None:
    with Loom.open(store) as loom:
        session = loom.new("work")
        session.append("Please rename the module", {"role": "assistant", "content": "Renamed."})
    own = ["--session", session.id]
    read(store, "add", "The module is called loom", *own)
    assert read(store, "list") == []
    assert len(read(store, "list", *own)) == len(read(store, "list", "--all")) == 1
    assert len(read(store, "search", "module", "--all")) == 1
    recent = read(store, "list", *own, "--layer", "recent")
    assert [item["text"] for item in recent] == ["Renamed.", "Please rename the module"]
    assert (
        "Please rename" in run(store, "list", *own, "--layer", "important", "--limit", "1").stdout
    )
    assert "empty" in run(store, "list", *own, "--layer", "summaries").stdout
    run(store, "forget", recent[1]["handle"], *own)
    important = read(store, "list", *own, "--layer", "important")
    assert [item["text"] for item in important] == ["Renamed."]


def test_what_cannot_be_done_is_said(store: str) -> None:
    read(store, "add", "x")
    for arguments in (
        ["list", "--layer", "recent"],
        ["show", "zzzz"],
        ["add", "y", "--for", "agent"],
        ["add", "y", "--from", "soon"],
        ["add", "y", "--session", "nosuch"],
    ):
        assert "loom: " in run(store, *arguments, status=2).stderr


def test_the_command_speaks_of_its_own_options(store: str) -> None:
    first = run(store, "add", "Pay Ann").stdout
    assert "remembered again" not in first
    assert "remembered again" in run(store, "add", "pay ann").stdout
    assert "--until must be" in run(store, "add", "y", "--until", "yesterday", status=2).stderr
    assert "--for agent needs --agent" in run(store, "add", "y", "--for", "agent", status=2).stderr
    assert "no such note" in run(store, "list", "--kind", "fact").stdout
    assert "needs words" in run(store, "search", " ", status=2).stderr
    name = read(store, "list")[0]["id"]
    assert "1 note forgotten" in run(store, "forget", name, name).stdout


def test_projects_do_not_share_notes(store: str) -> None:
    read(store, "add", "only here", "--project", "web")
    assert read(store, "list") == []
    assert len(read(store, "list", "--project", "web")) == 1
    assert read(store, "list", "--project", "web", "--tenant", "other") == []
