"""`loom session resume`: what it tells after a crash, of which session, and which command it names
to go on.
"""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from loom.context.state.renewal import Handoff
from loom.context.state.working import Working
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.engine.loom import Loom
from loom.engine.snapshots import Snapshots, default_folder
from tests.test_session_cli import invoke, new, refused, run, store, told  # noqa: F401

WRITTEN = [
    Message(
        "assistant",
        (
            Text("I write the test first."),
            ToolCall("c1", "write", '{"path":"tests/test_login.py"}'),
        ),
    ),
    Message("tool", (ToolResult("c1", (Text("ok"),)),)),
]
INTERRUPTED = [
    *WRITTEN,
    Message(
        "assistant",
        (
            ToolCall("c2", "bash", '{"command":"make test"}'),
            ToolCall("c3", "read", '{"path":"a.py"}'),
        ),
    ),
    Message("tool", (ToolResult("c3", (Text("x = 1"),)),)),
]
KEPT = Handoff(
    goal="The goal of then.",
    sprint=7,
    progress_summary="Two of three are done.",
    produced_artifacts=("src/login.py",),
    open_tasks=("the third",),
    rho=0.97,
    error_count=1,
    depth=2,
    handoff_ts=1_700_000_000_000,
)


def working_on(
    *messages: Message, title: str = "The login", prepared: bool = False, **options: Any
) -> str:
    """A session with a goal, these messages, and the working state of an agent that is half
    done.
    """
    with Loom.open(**options) as loom:
        session = loom.new(title, model="gpt-4o")
        session.append("The login fails after an hour. Fix it.", *messages)
        session.keep_working(
            Working().assess(progress="the cause is found", plan=["write a test", "fix it"])
        )
        if prepared:
            asyncio.run(session.prepare())
        return session.id


def test_it_tells_all_that_is_needed_to_go_on() -> None:
    name = working_on(*INTERRUPTED)
    shown = run("session", "resume", name)
    assert shown.startswith(
        f"The login  {name}\n  goal       The login fails after an hour. Fix it.\n"
    )
    for piece in (
        "# Handoff Document (Sprint ",
        "## Progress Summary\nthe cause is found",
        "## Produced Artifacts\n- tests/test_login.py",
        "## Open Tasks\n- write a test\n- fix it",
        "## Dashboard\n- goal_progress: the cause is found",
        "## Current Plan\n1. write a test\n2. fix it",
        "! 1 call was never answered: ",
        '→ bash {"command":"make test"}',
        "  state      from the store\n",
    ):
        assert piece in shown
    assert "read {" not in shown, "that one was answered"
    assert shown.endswith(f"\nnext: loom weave --session {name}\n")


def test_as_json_it_is_one_object() -> None:
    name = working_on(*INTERRUPTED)
    report = told("session", "resume", name)
    assert set(report) == {
        "session", "title", "status", "goal", "handoff", "document", "working", "restored",
        "pending", "epoch", "next"
    }  # fmt: skip
    assert (report["session"], report["title"], report["status"]) == (name, "The login", "active")
    assert report["goal"] == report["handoff"]["goal"] == "The login fails after an hour. Fix it."
    assert report["handoff"]["produced_artifacts"] == ["tests/test_login.py"]
    assert report["document"].startswith("# Handoff Document (Sprint ")
    assert report["working"]["plan"] == ["write a test", "fix it"]
    assert report["pending"] == [
        {"id": "c2", "name": "bash", "arguments": '{"command":"make test"}'}
    ]
    assert (report["restored"], report["epoch"]) == (False, None)
    assert report["next"] == f"loom weave --session {name}"


def test_without_an_id_it_is_the_session_used_last() -> None:
    first, second = working_on(title="first"), working_on(title="second")
    assert told("session", "resume")["session"] == second
    run("session", "append", first, "And now?")
    assert told("session", "resume")["session"] == first
    assert told("session", "resume", second[:8])["session"] == second


def test_looking_changes_nothing() -> None:
    name = working_on(*INTERRUPTED)
    before = told("session", "show", name)
    first, second = run("session", "resume", name), run("session", "resume", name)
    assert first == second
    assert told("session", "show", name) == before


def test_it_tells_whether_the_window_goes_on() -> None:
    fresh, going = working_on(), working_on(prepared=True)
    assert "window     begins with the next request" in run("session", "resume", fresh)
    assert "window     epoch 0 continues while it fits" in run("session", "resume", going)
    assert told("session", "resume", going)["epoch"] == 0


def lost_state(store: Path) -> str:  # noqa: F811
    """A session whose working state is in its files only."""
    with Loom.open(str(store)) as loom:
        session = loom.new("The login")
        session.append("The login fails after an hour. Fix it.")
    folder = default_folder(str(store))
    assert folder
    Snapshots(folder).write(
        session.id, Working().assess(progress="two of three", plan=["the third"]), KEPT
    )
    return session.id


def test_what_was_kept_in_files_comes_back_where_the_store_has_none(store: Path) -> None:  # noqa: F811
    report = told("session", "resume", lost_state(store))
    assert report["restored"] is True
    assert report["working"]["plan"] == report["handoff"]["open_tasks"] == ["the third"]
    assert (report["handoff"]["sprint"], report["handoff"]["produced_artifacts"]) == (
        7,
        ["src/login.py"],
    )
    assert report["document"].startswith("# Handoff Document (Sprint 7)\n")


def test_that_state_came_back_from_files_is_said(store: Path) -> None:  # noqa: F811
    shown = run("session", "resume", lost_state(store))
    assert "state      restored from its files, because the store had none" in shown
    assert "## Open Tasks\n- the third\n" in shown


@pytest.mark.parametrize(
    ("messages", "command"),
    [
        ([], "loom weave --session {name}"),
        (WRITTEN, "loom weave --session {name}"),
        (INTERRUPTED, "loom weave --session {name}"),
        ([*WRITTEN, Message("assistant", (Text("Done."),))], "loom session append {name} TEXT"),
    ],
)
def test_the_next_command_is_whose_turn_it_is(messages: list[Message], command: str) -> None:
    name = working_on(*messages)
    assert told("session", "resume", name)["next"] == command.format(name=name)


def test_the_next_command_runs_as_it_is_printed(tmp_path: Path) -> None:
    address = tmp_path / "another store.db"
    name = working_on(url=str(address), project="my shop", tenant="acme", agent="coder")
    scope = ("--store", address, "--project", "my shop", "--tenant", "acme", "--agent", "coder")
    words = shlex.split(told("session", "resume", name, *scope)["next"])
    assert words[:3] == ["loom", "weave", "--session"]
    assert (
        "The login fails"
        in json.loads(run(*words[1:], "--json"))["request"]["messages"][0]["content"]
    )


def test_a_session_that_was_put_away_is_taken_back_first() -> None:
    name = working_on()
    run("session", "archive", name)
    words = shlex.split(told("session", "resume", name)["next"])
    assert invoke(*words[1:]).exit_code == 0
    assert told("session", "resume", name)["next"] == f"loom weave --session {name}"


def test_a_session_that_said_nothing_yet_can_be_gone_on_with() -> None:
    name = new("Empty")
    report = told("session", "resume", name)
    assert (report["pending"], report["working"], report["next"]) == (
        [],
        {},
        f"loom session append {name} TEXT",
    )
    shown = run("session", "resume", name)
    assert "  state      none yet; loom session working creates one\n" in shown
    assert "## Dashboard" not in shown


def test_nothing_hostile_reaches_the_terminal() -> None:
    hostile = "a\x1b[2Jb\x07\u202ec"
    arguments = json.dumps({"command": hostile}, ensure_ascii=False)
    name = working_on(
        Message("assistant", (Text(hostile), ToolCall("c", f"bash{hostile}", arguments))),
        title="a\u202eb",
    )
    with Loom.open() as loom:
        loom.session(name).keep_working(
            Working().assess(progress=hostile, plan=[hostile], scratchpad=f"{hostile}\nmore")
        )
    shown = run("session", "resume", name)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)


def test_it_says_what_is_missing(store: Path) -> None:  # noqa: F811
    assert f"there is no store at {store} yet" in refused("session", "resume")
    name = working_on()
    assert "there is no session 'nobody'" in refused("session", "resume", "nobody")
    assert (
        "there is no session in project shop to resume; loom session new TITLE creates one"
        in refused("session", "resume", "--project", "shop")
    )
    assert "there is no session of agent coder in project default" in refused(
        "session", "resume", "--agent", "coder"
    )
    run("session", "purge", name, "--yes")
    assert "was purged" in refused("session", "resume", name)
