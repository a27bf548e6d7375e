"""`loom events` and `loom message`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom
from loom.cli.main import cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "loom.db"))
    return tmp_path


def run(*arguments: str, status: int = 0, given: str | None = None) -> Result:
    done = CliRunner().invoke(cli, arguments, input=given)
    assert done.exit_code == status, done.output
    return done


def run_json(*arguments: str, status: int = 0, given: str | None = None) -> Any:
    return json.loads(run(*arguments, "--json", status=status, given=given).stdout)


def test_messages_are_sent_read_and_acknowledged() -> None:
    said = ("message", "send", "b", "Look at the plan.", "--from", "a", "--id", "m1")
    assert "sent to b" in run(*said, "--priority", "0.8").output
    assert "was sent before" in run(*said).output
    sent = run_json(
        "message", "send", "b", "--agent", "c", "--session", "s", given="From a file.\n"
    )
    assert sent["sent"] is True
    assert sent["message"]["source_agent"] == "c"
    run("message", "send", "b", "x", "--agent", "c", "--ttl", "0", "--metadata", '{"reason": "r"}')
    output = run("message", "inbox", "b").output
    assert "Look at the plan." in output
    assert "priority 0.8" in output
    assert "From a file." in output
    found = run_json("message", "inbox", "--agent", "b", "--session", "other")
    assert [each["task_id"] for each in found] == ["m1"]
    assert "1 message acknowledged" in run("message", "inbox", "b", "--acknowledge", "m1").output
    again = run("message", "inbox", "b", "--acknowledge", "m1", status=1)
    assert "m1 is not an open message" in again.output
    [left] = run_json("message", "inbox", "b", "--acknowledge-shown")
    assert left["session_id"] == "s"
    assert "no messages for b" in run("message", "inbox", "b").output


def test_events_are_published_and_shown() -> None:
    output = run("events", "publish", "--action", "node.thinking", "--content", "I wonder.",
        "--source", "a", "--parent", "t", "--parameters", '{"more": 1}').output  # fmt: skip
    assert "1 published" in output
    lines = (
        '{"action": "execute", "task_id": "t", "target_agent": "b", "session_id": "s"}\n\n'
        '{"action": "note", "task_id": "n"}\n'
    )
    assert run_json("events", "publish", "-", given=lines) == {"published": 2, "ids": ["t", "n"]}
    assert "2 known already" in run("events", "publish", "-", given=lines).output
    output = run("events", "tail").output
    assert "node.thinking a" in output
    assert "I wonder." in output
    assert "execute - → b [s]" in output

    def shown(*options: str) -> list[str]:
        out = run("events", "tail", "--json", *options).stdout
        return [json.loads(line)["action"] for line in out.splitlines()]

    assert shown() == ["node.thinking", "execute", "note"]
    assert shown("--limit", "1") == ["note"]
    assert shown("--task", "t") == ["node.thinking", "execute"]
    assert shown("--target", "b") == ["execute"]
    assert shown("--node", "a", "--limit", "1") == ["node.thinking"]
    assert shown("--action", "note", "--action", "execute") == ["execute", "note"]
    assert shown("--session", "other") == ["node.thinking", "note"]
    assert shown("--session", "s", "--follow", "--seconds", "0.1")[-1] == "note"
    assert shown("--project", "other") == []


def test_what_comes_later_is_followed(here: Path) -> None:
    from threading import Timer

    def publish() -> None:
        with Loom.open(here / "loom.db") as loom:
            loom.bus.publish({"action": "late", "task_id": "later"})

    run("events", "publish", "--action", "early")
    timer = Timer(0.3, publish)
    timer.start()
    lines = run("events", "tail", "--follow", "--seconds", "3", "--json").stdout.splitlines()
    timer.join()
    assert [json.loads(line)["action"] for line in lines] == ["early", "late"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["message", "send", "b", "text"], "sender"),
        (["message", "send", "b", " ", "--from", "a"], "blank"),
        (["message", "send", "b", "x", "--from", "a", "--priority", "nan"], "--priority"),
        (["message", "inbox"], "whose messages"),
        (["events", "publish"], "--action"),
        (["events", "publish", "x"], "standard input"),
        (["events", "publish", "--action", "a", "--parameters", "["], "not JSON"),
        (["events", "publish", "--action", "a", "--parameters", "[]"], "object"),
        (["events", "publish", "--action", "node.message", "--content", "x"], "Task.source_agent"),
        (["message", "send", "b", "x", "--from", "a", "--metadata", "3"], "object"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], said: str) -> None:
    run("events", "publish", "--action", "first")
    output = run(*arguments, status=2).output
    assert said in output
    assert len(output.strip().splitlines()) == 1


def test_a_line_that_is_not_a_task_is_named_and_nothing_is_published() -> None:
    output = run("events", "publish", "-", status=2, given='{"action": "a"}\n{"x": 1}\n').output
    assert "line 2" in output
    assert "no events" in run("events", "tail").output
