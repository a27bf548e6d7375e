"""`loom session import FOLDER`: every transcript in it, what was skipped and why, none twice."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom.cli.main import cli
from tests.shared import AGENTS, FIXTURES, SHARED, needs_shared

CHAT = [{"role": "user", "content": "Where is the heddle?"}]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "loom.db"))
    return tmp_path / "loom.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "transcripts"
    (made / "deep" / "er").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / ".git" / "chat.json").write_text(json.dumps(CHAT))
    (made / "chat.json").write_text(json.dumps(CHAT))
    shutil.copy(FIXTURES / "cc_simple.jsonl", made / "deep" / "session.jsonl")
    shutil.copy(FIXTURES / "codex_simple.jsonl", made / "deep" / "er" / ".hidden")
    (made / "note.txt").write_text("Dear diary")
    (made / "picture.png").write_bytes(bytes(range(256)))
    (made / "empty.jsonl").write_text("")
    (made / "broken.jsonl").write_text('{"role":"user","content":"a"}\n{"role":')
    os.symlink(made, made / "deep" / "loop")
    return made


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def told(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_transcript_of_a_folder_becomes_a_session(folder: Path) -> None:
    result = run("session", "import", folder)
    assert result.exit_code == 0, result.output
    assert "3 sessions imported from 3 files" in result.stdout
    assert "4 files skipped:" in result.stdout
    assert "2 × not a transcript that Loom knows" in result.stdout
    assert "1 × empty" in result.stdout
    assert "1 × line 2: not valid JSON" in result.stdout
    assert str(folder / "broken.jsonl") in result.stdout
    assert len(told("session", "list")) == 3


def test_nothing_is_imported_twice_and_a_file_that_grew_continues(folder: Path) -> None:
    first = told("session", "import", folder)
    assert {Path(skipped["file"]).name for skipped in first["skipped"]} == {
        "note.txt",
        "picture.png",
        "empty.jsonl",
        "broken.jsonl",
    }
    shutil.copy(folder / "deep" / "session.jsonl", folder / "copy.jsonl")
    (folder / "chat.json").write_text(json.dumps([*CHAT, {"role": "assistant", "content": "Up."}]))
    second = told("session", "import", folder)
    assert {each["session"] for each in first["sessions"]} == {
        each["session"] for each in second["sessions"]
    }
    assert sorted(each["new"] for each in second["sessions"]) == [0, 0, 0, 1]
    assert "0 sessions imported from 4 files, 4 already stored" in run(
        "session", "import", folder
    ).stdout.replace("1 session imported", "0 sessions imported")


def test_a_folder_without_a_transcript_makes_no_store(tmp_path: Path, store: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "note.txt").write_text("Dear diary")
    result = run("session", "import", tmp_path / "folder")
    assert (result.exit_code, store.exists()) == (0, False)
    assert "0 sessions imported from 0 files" in result.stdout


def test_of_several_files_those_that_fail_are_told_and_the_others_imported(folder: Path) -> None:
    result = run("session", "import", folder / "note.txt", folder / "chat.json", folder / "gone")
    assert result.exit_code == 1
    assert "1 session imported from 1 file" in result.stdout
    assert "1 × does not exist" in result.stdout
    alone = run("session", "import", folder / "note.txt")
    assert alone.exit_code == 2
    assert "is not a transcript that Loom knows" in alone.stderr


def test_exports_of_a_folder_are_imported_with_their_ids(folder: Path, tmp_path: Path) -> None:
    before = told("session", "import", folder)
    exports = tmp_path / "exports"
    exports.mkdir()
    assert run("session", "export", "--all", "-o", exports / "all.jsonl").exit_code == 0
    after = told("session", "import", exports, "--store", tmp_path / "other.db")
    assert {each["session"] for each in after["sessions"]} == {
        each["session"] for each in before["sessions"]
    }
    again = told("session", "import", exports, "--store", tmp_path / "other.db")
    assert {each["new"] for each in again["sessions"]} == {0}


@needs_shared
def test_the_shared_data_is_imported_as_it_lies() -> None:
    made = told("session", "import", AGENTS, SHARED / "data" / "exports", SHARED / "data" / "trees")
    assert len(made["sessions"]) > 160
    assert {Path(each["file"]).suffix for each in made["skipped"]} <= {".gz", ".json"}
    again = told("session", "import", AGENTS, SHARED / "data" / "exports")
    assert {each["new"] for each in again["sessions"]} == {0}
