"""`loom search` over stored sessions."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom, Message, Text
from loom.cli.main import cli


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "loom.db"))
    return tmp_path / "loom.db"


@pytest.fixture
def sessions(store: Path) -> list[str]:
    """Two sessions of a project, and one of another."""
    with Loom.open(str(store)) as loom:
        login = loom.new("Fix the login")
        login.append(
            "Why does the login fail?", Message("assistant", (Text("The token expires hourly."),))
        )
        weaving = loom.new("Weaving")
        weaving.append("How is a heddle threaded?", "The token of the loom is a shuttle.")
        weaving.change(archived=True)
    with Loom.open(str(store), project="other") as loom:
        loom.new("Secret").append("The other token is 4711.")
    return [login.id, weaving.id]


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def told(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_all_sessions_of_the_project_are_searched(sessions: list[str]) -> None:
    for words in ((), ("--all",)):
        found = told("search", "tokens", *words)
        assert {hit["session"] for hit in found} == set(sessions)
        assert not any("4711" in hit["text"] for hit in found)
    [secret] = told("search", "tokens", "--project", "other")
    assert secret["text"] == "The other token is 4711."


def test_one_session_is_searched_also_what_its_request_shows(sessions: list[str]) -> None:
    [hit] = told("search", "token", "--session", sessions[0][:6])
    assert (hit["session"], hit["place"], hit["role"]) == (sessions[0], 1, "assistant")
    assert set(hit) >= {"message", "metadata", "neighbours", "tokens", "score", "reason", "created"}
    assert run("recall", hit["handle"]).stdout == "## assistant\n\nThe token expires hourly.\n\n"
    assert "there is no session" in run("search", "x", "--session", "zork").stderr


def test_it_is_printed_for_people(sessions: list[str]) -> None:
    shown = CliRunner().invoke(cli, ["search", "token expiring"], color=True).stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "\x1b[1mtoken\x1b[0m \x1b[1mexpires\x1b[0m hourly" in shown
    first, *_ = plain.splitlines()
    assert re.fullmatch(
        rf"~[a-z2-7]{{12}}  assistant  message 1  \d{{4}}-\d\d-\d\d  {sessions[0]}  Fix the login",
        first,
    )
    assert "loom recall HANDLE prints one" in plain
    assert run("search", "zebra").stdout == "no message matches 'zebra'\n"


def test_tokens_and_limit_bound_what_is_shown(sessions: list[str]) -> None:
    assert len(told("search", "token", "--limit", 1)) == 1
    found = told("search", "token", "--tokens", 15)
    assert sum(hit["tokens"] for hit in found) <= 15
    assert run("search", "token", "--limit", 0).exit_code == 2


def test_messages_are_chosen_by_their_metadata(sessions: list[str], store: Path) -> None:
    with Loom.open(str(store)) as loom:
        loom.session(sessions[0]).append("another token", metadata={"ticket": 7, "kind": "bug"})
    for words in (("--where", "ticket=7"), ("--where", "kind=bug", "--where", "ticket=7")):
        [hit] = told("search", "token", *words)
        assert (hit["text"], hit["metadata"]) == ("another token", {"ticket": 7, "kind": "bug"})
    assert told("search", "token", "--where", "kind=wish") == []
    assert "--where takes KEY=VALUE" in run("search", "token", "--where", "kind").stderr


def test_what_is_hidden_is_not_found(sessions: list[str], store: Path) -> None:
    with Loom.open(str(store)) as loom:
        session = loom.session(sessions[0])
        loom.tree(session.id).exclude(session.path[1].id)
    assert [hit["session"] for hit in told("search", "token")] == [sessions[1]]


def test_agents_find_only_their_own(sessions: list[str]) -> None:
    assert told("search", "token", "--agent", "nobody") == []
