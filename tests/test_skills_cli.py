"""`loom skills`, and skills in `loom weave`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loom.cli.main import cli
from tests.shared import ROOT

SKILLS = str(ROOT / "tests" / "fixtures" / "skills")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def test_a_list_tells_which_skills_a_request_gets_and_why() -> None:
    shown = run("skills", "list", "--project", SKILLS, "--for", "Merge these PDF files.")
    assert shown.exit_code == 0, shown.output
    assert "pdf-forms" in shown.output
    assert "yes: the request says" in shown.output
    given = run("skills", "list", "--project", SKILLS, "--for", "Merge these PDFs.", "--json")
    rows = json.loads(given.output)["skills"]
    assert len(rows) == 14
    assert {row["name"] for row in rows if row["match"].startswith("yes")} == {"pdf-forms"}
    assert all(row["tokens"] > 0 and row["file"].endswith("SKILL.md") for row in rows)


def test_an_empty_folder_has_no_skills_and_says_where_they_go(tmp_path: Path) -> None:
    shown = run("skills", "list", "--project", str(tmp_path))
    assert shown.exit_code == 0
    assert "no skills; put a folder with a SKILL.md into one of" in shown.output
    assert run("skills", "list", "--project", str(tmp_path / "none")).exit_code == 2


def test_a_skill_is_shown_as_a_model_reads_it(tmp_path: Path) -> None:
    shown = run("skills", "show", "pdf-forms", "--project", SKILLS)
    assert '<skill name="pdf-forms">' in shown.output
    wrong = run("skills", "show", "pdf-form", "--project", SKILLS)
    assert wrong.exit_code == 2
    assert "the nearest is pdf-forms" in wrong.output
    folder = f"{SKILLS}/.claude/skills"
    more = run("skills", "show", "PDF-forms", "--project", str(tmp_path), "--folder", folder)
    assert more.exit_code == 0, more.output
    full = run("skills", "show", "pdf-forms", "--project", SKILLS, "--json")
    assert json.loads(full.output)["files"] == ["scripts/fields.py"]


def test_problems_are_listed_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "skills" / "x").mkdir(parents=True)
    (tmp_path / "skills" / "x" / "SKILL.md").write_text("---\nname: x\n\x1b[2Jwords\n---\nText.\n")
    shown = run("skills", "list", "--project", str(tmp_path))
    assert "skills/x/SKILL.md:3:" in shown.output
    assert "\x1b[2J" not in shown.output


def test_weave_has_the_skills_that_a_transcript_asks_for(tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "Merge these PDF files."}]))
    made = run("weave", str(file), "--project", SKILLS, "--json")
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)
    assert '<skill name="pdf-forms">' in found["request"]["messages"][0]["content"]
    assert any("skill pdf-forms: in the request" in note for note in found["report"]["notes"])
    folder = f"{SKILLS}/.claude/skills"
    named = run("weave", str(file), "--skill-folder", folder, "--skill", "load-testing", "--json")
    assert '<skill name="load-testing">' in named.stdout.replace('\\"', '"')
    assert run("weave", str(file), "--skill", "none").exit_code == 2
