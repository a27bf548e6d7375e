"""`loom knowledge` adds, lists, searches and removes the documents of a project."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom
from loom.cli.main import cli
from loom.providers.embedders import StaticEmbedder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "loom.db"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "boat.md").write_text("# Boat\nTurn the key to start the engine.\n")
    (tmp_path / "docs" / "sail.txt").write_text("Hoist the sail.\n")
    return tmp_path


def run(*arguments: str, status: int = 0, given: str | None = None) -> Result:
    done = CliRunner().invoke(cli, ["knowledge", *arguments], input=given)
    assert done.exit_code == status, done.output
    return done


def run_json(*arguments: str, status: int = 0, given: str | None = None) -> Any:
    return json.loads(run(*arguments, "--json", status=status, given=given).stdout)


def test_documents_are_added_searched_changed_and_removed(here: Path) -> None:
    assert "2 added" in run("add", "docs").output
    assert "2 unchanged" in run("add", "docs").output
    assert "docs/boat.md" in run("list").output
    output = run("search", "start engine").output
    assert "docs/boat.md:1-2" in output
    assert "  Turn the key to start the engine." in output
    (here / "docs" / "boat.md").write_text("# Boat\nPush the button.\n")
    (here / "docs" / "sail.txt").unlink()
    assert run_json("add", "docs") == {
        "added": [], "changed": ["docs/boat.md"], "unchanged": 0, "removed": ["docs/sail.txt"],
        "chunks": 1, "failed": [], "notes": [],
    }  # fmt: skip
    [item] = run_json("search", "button", "--limit", "2")
    assert item["content"] == "# Boat\nPush the button."
    assert item["source"] == "docs/boat.md:1-2"
    assert run_json("search", '"key"', status=1) == []
    [row] = run_json("list")
    assert (row["source"], row["kind"], row["chunks"]) == ("docs/boat.md", "markdown", 1)
    assert run_json("remove", "docs", "--purge") == {"removed": 1}
    assert "no documents" in run("list").output
    assert b"button" not in (here / "loom.db").read_bytes()


def test_vectors_are_made_by_the_embedder_that_is_named(here: Path) -> None:
    run("add", "docs", "--embedder", "none")
    with Loom.open(here / "loom.db") as loom:
        assert loom.store.documents.count_without_vector(loom.scope, "any") == 2
    run("add", "docs")
    name = StaticEmbedder().name
    with Loom.open(here / "loom.db") as loom:
        assert loom.store.documents.count_without_vector(loom.scope, name) == 0
    assert "start the engine" in run("search", "engine", "--embedder", "none").output
    assert "no embedder" in run("search", "engine", "--embedder", "x y", status=2).output


def test_a_text_on_standard_input_is_added(here: Path) -> None:
    run("add", "-", "--source", "note", given="The harbour is closed.")
    [item] = run_json("search", '"harbour is"')
    assert item["source"] == "note:1-1"
    assert run_json("search", '"closed harbour"', status=1) == []


def test_a_text_that_is_too_large_or_no_text_is_refused(here: Path) -> None:
    assert "8 MiB" in run("add", "-", given="x" * (8 * 2**20 + 1), status=2).output
    assert "not a text" in run("add", "-", given="\x01" * 1000, status=2).output


def test_what_cannot_be_read_is_told(here: Path) -> None:
    (here / "docs" / "broken.pdf").write_bytes(b"nothing")
    done = run("add", "docs")
    assert "2 added" in done.output
    assert "✗ docs/broken.pdf: it cannot be read as a PDF" in done.output
    run("add", "docs/broken.pdf", status=1)
    assert "does not exist" in run("add", "none", status=2).output
    assert "no document 'none'" in run("remove", "none", status=2).output
    assert "give - as PATH" in run("add", "docs", "--source", "x", status=2).output


def test_a_request_shows_what_the_documents_say(here: Path) -> None:
    run("add", "docs")
    (here / "chat.json").write_text('[{"role": "user", "content": "How do I start the engine?"}]')
    with Loom.open(str(here / "loom.db")) as loom:
        session = loom.new()
        session.append("How do I start the engine?")
    for subject in (["chat.json"], ["--session", session.id], ["--tree", session.id]):
        done = CliRunner().invoke(cli, ["weave", *subject, "--knowledge", "--json"])
        assert done.exit_code == 0, done.output
        assert "(Source: docs/boat.md:1-2)" in done.stdout
        done = CliRunner().invoke(cli, ["weave", *subject, "--json"])
        assert "Source" not in done.stdout


def test_projects_are_apart(here: Path) -> None:
    run("add", "docs", "--project", "one")
    assert run_json("list", "--project", "two") == []
    assert run_json("search", "engine", "--project", "two", status=1) == []
    assert len(run_json("list", "--project", "one")) == 2
