"""`loom rules`, and the rules in `loom weave --project`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loom.cli.main import cli


def run(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(cli, arguments, prog_name="loom")
    assert done.exit_code == status, done.output
    return done.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    return made


def test_show_prints_the_rules_their_files_and_what_was_left_out(folder: Path) -> None:
    (folder / ".loom.toml").write_text('[rules]\nstyle = "Small functions"\n')
    (folder / "AGENTS.md").write_text("\n".join(f"- habit {n}: keep it" for n in range(999)))
    (folder / "src/AGENTS.md").write_text("Validate all input.")
    (folder / "CLAUDE.md").symlink_to("/etc/hostname")
    (folder / "LOOM.md").write_text("## Denied Operations\nshell: git push\n")
    shown = run("rules", "show", "--project", str(folder), "--for", "src/a.py")
    assert "## Project Rules\n- Style: Small functions\n" in shown
    assert "Validate all input." in shown
    assert "denied shell: git push" in shown
    assert "CLAUDE.md was not read: it is a link to a place outside of the project" in shown
    assert "AGENTS.md are not shown here; read the file for them]" in shown
    found = json.loads(run("rules", "show", "--project", str(folder), "--json"))
    assert found["zones"]["rules"]["pieces"][0]["file"] == ".loom.toml"
    [agents] = found["zones"]["memory"]["pieces"]
    assert agents["tokens"] <= found["zones"]["memory"]["room"] < agents["of"]
    assert found["denied"] == {"shell": ["git push"]}


def test_a_folder_without_rules_says_what_was_looked_for(folder: Path) -> None:
    shown = run("rules", "show", "--project", str(folder))
    assert "has no rules" in shown
    assert "AGENTS.md" in shown
    assert json.loads(run("rules", "show", "--project", str(folder), "--json"))["files"] == []


def test_check_says_whether_an_operation_is_allowed(folder: Path) -> None:
    (folder / "LOOM.md").write_text("## Denied Operations\nshell: git push\n")
    project = ("--project", str(folder))
    assert run("rules", "check", *project, "shell", "git push -f", status=1).startswith("denied")
    assert run("rules", "check", *project, "shell", "ls").startswith("allowed")


def test_weave_has_the_rules_of_its_project(folder: Path, tmp_path: Path) -> None:
    (folder / "CLAUDE.md").write_text("Use tabs.")
    (folder / "src/AGENTS.md").write_text("Validate all input.")
    file = tmp_path / "chat.json"
    request = [{"role": "user", "content": "fix src/a.py"}]
    file.write_text(json.dumps({"messages": request, "model": "gpt-4o"}))
    woven = run("weave", str(file), "--project", str(folder), "--json")
    assert "Use tabs." in woven
    assert "Validate all input." in woven
