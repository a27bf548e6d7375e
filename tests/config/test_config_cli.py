"""`loom config show`, `loom init`, and commands that use what is configured. They run in this
process.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom
from loom.cli.agent.talk import Talk
from loom.cli.main import cli
from loom.cli.settings.config import example_file
from loom.config.keys import KEYS
from loom.config.project_file import PROJECT_FILE
from loom.config.settings import USER_FILE, resolve_configuration
from loom.providers.http.client import HttpModel


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project in which commands run, and no files of anybody else."""
    for key in KEYS:
        monkeypatch.delenv(key.variable, raising=False)
    for name in ("LOOM_PROJECT", "LOOM_TENANT", "LOOM_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "pump.py").write_text("def hum() -> None: ...\n")
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments], catch_exceptions=False)


def report(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def transcript(folder: Path, **fields: Any) -> Path:
    path = folder / "asking.json"
    messages = [{"role": "user", "content": "hum"}]
    path.write_text(json.dumps({"model": "gpt-4o", "messages": messages} | fields))
    return path


def test_in_an_empty_folder_everything_is_as_by_default(project: Path) -> None:
    shown = report("config", "show")
    assert (shown["project"], shown["user"], shown["rules"]) == (None, None, {})
    assert {each["origin"] for each in shown["values"]} == {"default"}
    done = run("config", "show")
    assert f"no {PROJECT_FILE} in {project}" in done.stdout
    assert "(not there)" in done.stdout


def test_each_value_says_where_it_comes_from(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / PROJECT_FILE).write_text('[context]\nwindow = 7000\n[rules]\nstyle = "plain"\n')
    user = tmp_path / "config" / USER_FILE
    user.parent.mkdir(parents=True)
    user.write_text('store = "postgres://me:secret@host/db"\n[context]\nwindow = 8000\n')
    monkeypatch.setenv("LOOM_WINDOW", "9000")
    values = {each["key"]: each for each in report("config", "show")["values"]}
    assert values["context.window"] == {
        "key": "context.window",
        "value": 9000,
        "origin": "LOOM_WINDOW",
        "default": "the window of the model",
        "variable": "LOOM_WINDOW",
        "lost": [
            {"value": 8000, "origin": f"{user}:3"},
            {"value": 7000, "origin": f"{project / PROJECT_FILE}:2"},
        ],
    }
    done = run("config", "show", "--project", project)
    assert "secret" not in done.stdout + json.dumps(values)
    assert "rules.style" in done.stdout
    assert "not used" in done.stdout


NOT_VALID = "not valid TOML: Invalid value (column 10); correct it, or set"


@pytest.mark.parametrize(
    "command",
    [
        ("config", "show"),
        ("session", "list"),
        ("search", "hum"),
        ("decisions", "log", "Use tabs"),
        ("chat",),
    ],
)
def test_a_broken_file_ends_a_command_that_needs_it(
    project: Path, command: tuple[str, ...]
) -> None:
    (project / PROJECT_FILE).write_text("[context]\nwindow = = 3\n")
    done = run(*command)
    assert done.exit_code == 2
    said = f"loom: {project / PROJECT_FILE}:2: {NOT_VALID} LOOM_IGNORE_PROJECT_FILE=1 to work"
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ("weave", "asking.json"),
        ("weave", "asking.json", "--project", "."),
        ("map", "."),
        ("budget", "gpt-4o"),
        ("count", "asking.json"),
        ("replay", "asking.json"),
        ("session", "list", "--store", "loom.db"),
        ("weave", "asking.json", "--project", ".", "--store", "loom.db"),
    ],
)
def test_a_command_that_can_do_without_a_broken_file_goes_on(
    project: Path, command: tuple[str, ...]
) -> None:
    transcript(project, model="")
    with Loom.open("loom.db"):
        pass
    (project / PROJECT_FILE).write_text("[context]\nwindow = = 3\n")
    done = run(*command)
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith(f"loom: {project / PROJECT_FILE}:2: {NOT_VALID} ")
    assert done.stderr.count(NOT_VALID) == 1


def test_a_command_and_prepare_agree_on_a_broken_file(project: Path) -> None:
    asking = transcript(project)
    (project / "AGENTS.md").write_text("Run the tests.")
    (project / PROJECT_FILE).write_text("[context]\nwindow = = 3\n")
    store = project.parent / "loom.db"
    with Loom.open(store) as loom:
        session = loom.new(model="gpt-4o")
        prepared = asyncio.run(session.prepare("hum", project=project))
    woven = report("weave", asking, "--project", ".", "--store", store)
    assert woven["request"] == prepared.openai()
    for notes in (woven["report"]["notes"], prepared.report.notes):
        [note] = notes
        assert NOT_VALID in note


def test_a_broken_file_is_ignored_if_that_is_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / PROJECT_FILE).write_text("[context]\nwindow = = 3\n")
    monkeypatch.setenv("LOOM_IGNORE_PROJECT_FILE", "1")
    assert run("decisions", "log", "Use tabs").exit_code == 0
    done = run("weave", transcript(project), "--project", ".")
    assert (done.exit_code, done.stderr) == (0, "")


def test_init_writes_a_file_that_changes_nothing(project: Path) -> None:
    assert run("init").stdout.strip() == PROJECT_FILE
    found = resolve_configuration(project)
    assert not any(setting.origin for setting in found.values.values())
    assert dict(found.project.rules) == {}
    (project / PROJECT_FILE).write_text("mine")
    again = run("init")
    assert (again.exit_code, (project / PROJECT_FILE).read_text()) == (2, "mine")
    assert "--force" in again.stderr
    assert report("init", "--force") == {"file": PROJECT_FILE}
    assert (project / PROJECT_FILE).read_text() == example_file()
    assert sorted(path.name for path in project.iterdir()) == [".git", PROJECT_FILE, "pump.py"]


def test_init_follows_no_link_and_says_what_it_hides(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("precious")
    (project / PROJECT_FILE).symlink_to(outside)
    assert run("init").exit_code == 2
    assert run("init", "--force").exit_code == 0
    assert outside.read_text() == "precious"
    (project / "inner").mkdir()
    assert "is no longer read" in run("init", "inner").stderr
    assert run("init", "nowhere").exit_code == 2


COMMENTED = [line for line in example_file().splitlines() if line[:1] == "#" and line[1:2] != " "]


def test_every_key_has_a_line_in_the_example() -> None:
    named = {line[1:].partition(" ")[0] for line in COMMENTED}
    assert named >= {key.name.rpartition(".")[2] for key in KEYS}
    assert len(COMMENTED) == len(KEYS) + 5


@pytest.mark.parametrize("line", [*COMMENTED, "all"])
def test_every_line_of_the_example_is_right(project: Path, line: str) -> None:
    lines = [
        each[1:] if each == line or (line == "all" and each in COMMENTED) else each
        for each in example_file().splitlines()
    ]
    (project / PROJECT_FILE).write_text("\n".join(lines))
    found = resolve_configuration(project)
    count = sum(bool(setting.origin) for setting in found.values.values())
    count += len(found.project.rules)
    assert count == (len(COMMENTED) if line == "all" else 1)


CONFIG = """\
store = "here.db"
[context]
model = "gpt-4o-mini"
window = 70000
reserved_output_tokens = 300
max_repo_map_tokens = 50
policy = "turns"
"""


def test_commands_use_what_is_configured(project: Path) -> None:
    (project / PROJECT_FILE).write_text(CONFIG)
    file = transcript(project, model="")
    woven = report("weave", file)["report"]
    assert (woven["model"], woven["window"], woven["policy"]) == ("gpt-4o-mini", 70000, "turns")
    assert woven["reserved_output"] == 300
    named = report("weave", file, "--window", 9000, "--policy", "default", "--model", "gpt-4o")
    told = named["report"]
    assert (told["model"], told["window"], told["policy"]) == ("gpt-4o", 9000, "default")
    assert report("map", ".")["tokens"] <= 50
    divided = report("budget")
    assert (divided["total"], divided["repo_map"], divided["reserved_output"]) == (70000, 50, 300)
    assert report("replay", file)["window"] == 70000
    assert report("count", file)["model"] == "gpt-4o-mini"
    session = report("session", "new", "hum")["session"]
    assert (project / "here.db").is_file()
    assert run("session", "append", session, "hum").exit_code == 0
    told = report("weave", "--session", session)["report"]
    assert (told["model"], told["window"], told["policy"]) == ("gpt-4o-mini", 70000, "turns")
    options = report("session", "options", session, "--window", 6000, "--zone", "rules=7")
    assert (options["window"], options["zones"]) == (6000, {"rules": 7})
    assert report("session", "show", session)["options"] == {
        name: value for name, value in options.items() if name != "session"
    }
    assert report("weave", "--session", session)["report"]["window"] == 6000
    assert report("weave", "--session", session, "--window", 5000)["report"]["window"] == 5000
    assert report("session", "options", session, "--forget", "all")["window"] is None
    assert report("weave", transcript(project))["report"]["model"] == "gpt-4o"


def test_a_session_remembers_its_folder_until_it_is_told_to_forget(project: Path) -> None:
    session = report("session", "new", "hum")["session"]
    run("session", "append", session, "hum")
    assert report("session", "options", session, "--folder", ".")["folder"] == str(project)
    assert "pump.py" in run("weave", "--session", session, "--json").stdout
    assert "folder" in run("session", "show", session).stdout
    refused = run("session", "options", session, "--folder", ".", "--forget", "folder")
    assert refused.exit_code == 2
    assert run("session", "options", session, "--zone", "rules").exit_code == 2
    assert report("session", "options", session, "--forget", "folder")["folder"] is None
    assert "not set" in run("session", "options", session).stdout


def test_the_weak_model_writes_the_summaries_of_a_talk(project: Path) -> None:
    (project / PROJECT_FILE).write_text('[context]\nweak_model = "ollama:small"\n')
    with Loom.open(":memory:", folder=project) as loom:
        talk = Talk(loom, loom.new(), project, tools=False, yes=False)
        assert loom.model is None
        talk.use_model("ollama:large")
        assert isinstance(loom.model, HttpModel)
        assert loom.model is not talk.model


def test_a_weak_model_without_a_key_is_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (project / PROJECT_FILE).write_text('[context]\nweak_model = "anthropic:small"\n')
    with Loom.open(":memory:", folder=project) as loom:
        Talk(loom, loom.new(), project, tools=False, yes=False).use_model("ollama:large")
        assert loom.model is None
    said = capsys.readouterr()
    assert "without the model anthropic:small" in said.err + said.out


def test_without_a_model_a_budget_needs_one(project: Path) -> None:
    done = run("budget")
    assert done.exit_code == 2
    assert "context.model" in done.stderr
