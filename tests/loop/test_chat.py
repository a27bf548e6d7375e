"""`loom chat` and `loom run`, as a person uses them."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loom import Loom, Message, Text, ToolCall
from loom.cli.main import cli
from loom.providers.scripted import ScriptedServer

COMMAND = "from loom.cli.main import run; run()"
Chat = Callable[..., Result]


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LOOM_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")

    def use(*arguments: str, lines: str = "") -> Result:
        store = ("--store", str(tmp_path / "loom.db"))
        return CliRunner().invoke(cli, [*arguments, "--folder", str(folder), *store], input=lines)

    return use


def call(name: str, number: int = 0, **arguments: Any) -> Message:
    return Message("assistant", (ToolCall(f"c{number}", name, json.dumps(arguments)),))


def test_without_a_key_a_script_plays_the_model_and_says_so(chat: Chat) -> None:
    done = chat("chat", lines="hello\n/cost\n/help\n/nope\n/quit\n")
    assert done.exit_code == 0
    assert "a script plays the model: no model is named" in done.output
    assert "You said: hello" in done.output
    assert "tokens read" in done.output
    assert "/recall HANDLE" in done.output
    assert "there is no command /nope" in done.output
    assert "of 128,000 tokens" in done.output  # the gauge


def test_a_talk_is_forked_undone_and_continued(chat: Chat, tmp_path: Path) -> None:
    done = chat("chat", lines="first\nsecond\n/undo\nthird\n/fork side\nfourth\n/context\n")
    assert done.exit_code == 0, done.output
    assert "2 messages are left" in done.output
    with Loom.open(tmp_path / "loom.db") as loom:
        said = {
            row.title: [
                node.message.text
                for node in loom.session(row.id).path[:]
                if node.message and node.message.role == "user"
            ]
            for row in loom.sessions()
        }
    assert said == {"first": ["first", "third"], "side": ["first", "third", "fourth"]}
    again = chat("chat", "--session", loom_id(tmp_path, "side"), lines="fifth\n/undo\n/undo\n")
    assert "You said: fifth" in again.output


def loom_id(folder: Path, title: str) -> str:
    with Loom.open(folder / "loom.db") as loom:
        return next(row.id for row in loom.sessions() if row.title == title)


def test_a_task_is_carried_out_with_a_real_wire(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [
        call("read_file", 1, path="a.txt"),
        call("write_file", 2, path="b.txt", text="two\n"),
        call("write_file", 3, path="../out.txt", text="no"),
        call("run_command", 4, command="rm -rf /tmp/nothing-here"),
        Message("assistant", (Text("Done: b.txt is there."),)),
    ]
    (tmp_path / "project" / "LOOM.md").write_text("## Denied Operations\nshell: rm *\n")
    with ScriptedServer(*steps) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        done = chat("run", "Make b.txt", "--model", "openai:gpt-4o", "--yes")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "project" / "b.txt").read_text() == "two\n"
    assert not (tmp_path / "out.txt").exists()
    assert "Done: b.txt is there." in done.output
    assert "outside of the project" in done.output
    assert "refused by the rules of the project" in done.output
    assert "5 answers" in done.output


def test_nothing_is_written_if_nobody_can_be_asked(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(call("write_file", path="b.txt", text="x"), "I could not.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        done = chat("run", "Write", "--model", "openai:gpt-4o")
    assert "nobody can be asked here" in done.output
    assert not (tmp_path / "project" / "b.txt").exists()


def test_in_a_terminal_commands_complete_and_a_person_is_asked(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with ScriptedServer(call("write_file", path="b.txt", text="x"), "Written.") as server:
        known = {
            **os.environ,
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_API_KEY": "none",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "TERM": "xterm",
        }
        outer, inner = pty.openpty()
        arguments = ["chat", "--tools", "--model", "openai:gpt-4o", "--store", "loom.db"]
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            cwd=tmp_path / "project",
            env=known,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        seen = b""

        def wait_for(text: bytes) -> None:
            nonlocal seen
            deadline = time.monotonic() + 40
            while text not in seen and time.monotonic() < deadline:
                try:
                    seen += os.read(outer, 4096)
                except OSError:
                    break
            assert text in seen, seen.decode(errors="replace")

        wait_for(b"> ")
        os.write(outer, b"write it\r")
        wait_for(b"yes, no, always")
        os.write(outer, b"yes\r")
        wait_for(b"Written.")
        os.write(outer, b"/co\t\t")
        wait_for(b"/compact")
        os.write(outer, b"st\r")
        wait_for(b"tokens read")
        os.write(outer, b"/quit\r")
        wait_for(b"continues")
        process.wait(20)
        os.close(outer)
    assert (tmp_path / "project" / "b.txt").read_text() == "x"
    assert "write it" in (tmp_path / "cache" / "loom" / "chat_history").read_text()


def test_the_demo_shows_an_agent_at_work() -> None:
    shown = CliRunner().invoke(cli, ["demo"])
    assert shown.exit_code == 0
    assert shown.output.count("read_page") == 12
    assert "left out" in shown.output
    assert "Line 17 of page 3: paid 3017." in shown.output
