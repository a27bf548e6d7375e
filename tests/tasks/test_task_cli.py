"""`loom task`: tasks are added once, and the request for one is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loom import Loom
from loom.cli.main import cli
from loom.runtime import Task


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def run(*arguments: str, code: int = 0, text: str | None = None) -> str:
    done = CliRunner().invoke(cli, ["task", *arguments], input=text)
    assert done.exit_code == code, done.output
    return done.output


def test_a_task_is_added_once_and_its_outcome_is_updated(store: str) -> None:
    first = run("add", "Count the threads", "--id", "t1", "--session", "s", "--store", store)
    assert first == "✓ added to s t1\n"
    added = run(
        *("add", "Count the threads", "--id", "t1", "--session", "s", "--store", store),
        *("--status", "completed", "--result", "There are 40.", "--json"),
    )
    assert json.loads(added)["result"] == "There are 40."
    with Loom.open(store) as loom:
        [entry] = loom.tasks(session_id="s")
        assert (entry.task.status, entry.task.content) == ("completed", "Count the threads")


def test_the_context_shows_what_was_said_and_the_task(store: str) -> None:
    run("add", "Count the threads", "--session", "s", "--result", "There are 40.", "--store", store)
    run("add", "-", "--action", "node.thinking", "--session", "s", "--store", store, text="Hm.\n")
    shown = run(
        *("context", "Cut ten of them", "--session", "s", "--system", "Be brief.", "--json"),
        *("--store", store),
    )
    found: dict[str, Any] = json.loads(shown)
    assert [(each["role"], each["content"]) for each in found["messages"]] == [
        ("system", "Be brief."),
        ("user", "Count the threads"),
        ("assistant", "There are 40."),
        ("assistant", "Hm."),
        ("user", "Cut ten of them"),
    ]
    assert found["report"]["policy"] == "tasks"
    plain = run("context", "Cut ten of them", "--session", "s", "--store", store)
    assert "  Count the threads\n" in plain
    assert "tokens of 4,000" in plain


def test_a_stored_task_has_its_calls_and_messages_for_the_reader(store: str) -> None:
    run("add", "Read it", "--id", "t1", "--store", store)
    about = json.dumps({"tool_name": "read", "tool_call_id": "c1"})
    made = ("--parent", "t1", "--store", store, "--parameters", about)
    run("add", "--action", "node.tool_call", *made)
    run("add", "the file", "--action", "node.tool_result", *made)
    with Loom.open(store) as loom:
        loom.bus.publish(
            Task(
                action="node.message",
                source_agent="a",
                target_agent="b",
                parameters={"content": "Mind the end."},
            )
        )
    wire = json.loads(
        run("context", "--id", "t1", "--node", "b", "--to", "anthropic", "--store", store)
    )
    said = json.dumps(wire)
    assert all(each in said for each in ("Mind the end.", "tool_use", "the file"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add",), "the task says nothing"),
        (("add", "x", "--parameters", "[]"), "must be a JSON object"),
        (("add", "x", "--parameters", "{"), "not JSON"),
        (("context", "--id", "nobody"), "there is no task 'nobody'"),
        (("context", "x", "--id", "t"), "not both"),
        (("context", "x", "--max-tokens", "3"), "tokens"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    store: str, arguments: tuple[str, ...], message: str
) -> None:
    run("add", "Read it", "--id", "t", "--store", store)
    assert message in run(*arguments, "--store", store, code=2)


def test_a_task_that_was_there_is_not_said_to_be_added(store: str) -> None:
    same = ("add", "Go", "--id", "t1", "--store", store)
    assert run(*same) == "✓ added t1\n"
    assert run(*same) == "✓ was there already, nothing changed t1\n"
    done = run(*same, "--status", "completed", "--result", "Done.")
    assert done == "✓ was there already, its status is completed t1\n"
    assert run(*same, "--session", "other") == "✓ added to other t1\n"


def test_content_is_given_once(store: str) -> None:
    said = run(*("add", "Go", "--parameters", '{"content": "Stop"}', "--store", store), code=2)
    assert "not both" in said


def test_the_limit_of_messages_is_no_limit_of_the_answer(store: str) -> None:
    run("add", "Go", "--store", store)
    shown = run("context", "Next", "--to", "anthropic", "--max-tokens", "100", "--store", store)
    assert json.loads(shown)["max_tokens"] > 100
