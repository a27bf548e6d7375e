"""`loom chat` and `loom run`, as a person uses them."""

import contextlib
import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from loom import Loom, Message, Text, ToolCall
from loom import tools as loom_tools
from loom.cli.agent.question import Consent, draw_call, read_consent
from loom.cli.agent.talk import SYSTEM
from loom.cli.main import cli
from loom.cli.terminal import columns_of, wants_colour
from loom.loop.project_tools import ProjectTools
from loom.providers.scripted import Refuse, ScriptedServer, Wait

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


def test_a_folder_brings_its_store_and_the_session_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LOOM_STORE", raising=False)
    folder = tmp_path / "my shop"
    folder.mkdir()
    (folder / ".loom.toml").write_text('store = "shop.db"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with ScriptedServer("first", "second") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        arguments = ["chat", "--folder", str(folder)]
        named = [*arguments, "--model", "openai:gpt-4o"]
        done = CliRunner().invoke(cli, named, input="hello\n")
        with Loom.open(folder / "shop.db") as loom:
            [row] = loom.sessions()
        assert f"--session {row.id} --folder '{folder}' continues" in done.output
        again = CliRunner().invoke(cli, [*arguments, "--session", row.id], input="more\n")
        assert "model openai:gpt-4o" in again.output
        assert "second" in again.output


def test_a_model_without_a_key_is_played_and_a_wrong_name_leaves_no_session(
    chat: Chat, tmp_path: Path
) -> None:
    done = chat("chat", "--model", "anthropic:claude-haiku-4-5", lines="hello\n")
    assert "a script plays the model: anthropic needs a key: set ANTHROPIC_API_KEY" in done.output
    assert "You said: hello" in done.output
    for arguments in (("chat", "--model", "nobody:x"), ("run", " ")):
        wrong = chat(*arguments)
        assert wrong.exit_code == 2, wrong.output
    assert "continues" not in chat("chat", lines="/quit\n").output  # nothing was said
    with Loom.open(tmp_path / "loom.db") as loom:
        assert [row.title for row in loom.sessions() if row.status == "active"] == ["hello"]


def test_a_task_that_fails_names_its_session(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(Refuse(401, "no")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        done = chat("run", "Try", "--model", "openai:gpt-4o")
    assert done.exit_code == 2
    assert "TASK continues" in done.output


def test_a_task_that_is_interrupted_names_its_session_and_ends_its_command(tmp_path: Path) -> None:
    with ScriptedServer(call("run_command", 1, command="echo $$ > pid; sleep 60")) as server:
        terminal = Terminal(tmp_path, server, "run", "wait", "--yes")
        terminal.wait_for("run_command")
        file = tmp_path / "project" / "pid"
        while not (file.exists() and file.read_text().strip()):
            time.sleep(0.05)
        terminal.type("\x03")
        terminal.wait_for("interrupted")
        terminal.wait_for("TASK continues")
        assert terminal.end() == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


class Terminal:
    """`loom` in a terminal."""

    def __init__(self, tmp_path: Path, server: ScriptedServer, *arguments: str) -> None:
        (tmp_path / "project").mkdir(exist_ok=True)
        known = {
            **os.environ,
            "OPENAI_BASE_URL": server.openai_url,
            "OPENAI_API_KEY": "none",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "TERM": "xterm",
            "PYTHONUNBUFFERED": "1",
        }
        self._outer, inner = pty.openpty()
        model = ("--model", "openai:gpt-4o", "--store", "loom.db")
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments, *model],
            cwd=tmp_path / "project",
            env=known,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inner)
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read until the text was shown, after what was waited for before."""
        deadline = time.monotonic() + 20
        while text not in self.seen and time.monotonic() < deadline:
            if not select.select([self._outer], [], [], 1)[0]:
                continue
            try:
                self.seen += os.read(self._outer, 4096).decode(errors="replace")
            except OSError:
                break
        assert text in self.seen, self.seen
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._outer, text.encode())

    def end(self) -> int:
        status = self.process.wait(20)
        os.close(self._outer)
        return status


@contextlib.contextmanager
def open_terminal(tmp_path: Path, *arguments: str, steps: Sequence[Any]) -> Iterator[Terminal]:
    """A chat in a terminal, to its end."""
    with ScriptedServer(*steps) as server:
        terminal = Terminal(tmp_path, server, *arguments)
        terminal.wait_for("> ")
        try:
            yield terminal
            terminal.type("/quit\r")
            terminal.wait_for("continues")
            assert terminal.end() == 0
        finally:
            terminal.process.kill()


def test_in_a_terminal_commands_complete_and_a_person_is_asked(tmp_path: Path) -> None:
    steps = [call("write_file", path="b.txt", text="x"), "Written."]
    with open_terminal(tmp_path, "chat", "--tools", steps=steps) as terminal:
        terminal.type("write it\r")
        terminal.wait_for("yes, no, always")
        terminal.type("yes\r")
        terminal.wait_for("Written.")
        terminal.wait_for("> ")
        terminal.type("/co\t\t")
        terminal.wait_for("/compact")
        terminal.type("st\r")
        terminal.wait_for("tokens read")
        terminal.wait_for("> ")
        terminal.type("/model scr\t\r")
        terminal.wait_for("The model is scripted.")
        terminal.wait_for("> ")
    assert (tmp_path / "project" / "b.txt").read_text() == "x"
    kept = (tmp_path / "cache" / "loom" / "chat_history").read_text()
    assert [json.loads(line) for line in kept.splitlines()][:2] == ["write it", "/cost"]


def test_ctrl_c_at_a_question_ends_the_turn_and_its_calls(tmp_path: Path) -> None:
    steps = [call("run_command", 1, command="touch ran"), "Something else, then."]
    with open_terminal(tmp_path, "chat", "--tools", steps=steps) as terminal:
        terminal.type("run it\r")
        terminal.wait_for("yes, no, always")
        terminal.type("\x03")
        terminal.wait_for("interrupted")
        terminal.wait_for("> ")
        terminal.type("leave it\r")
        terminal.wait_for("Something else, then.")
        assert "run_command?" not in terminal.seen
        terminal.wait_for("> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        time.sleep(0.3)  # Python misses a signal that comes while readline handles a key
        terminal.type("\x03")
        terminal.wait_for("Ctrl-D ends the talk")
        terminal.wait_for("> ")
    assert not (tmp_path / "project" / "ran").exists()


def test_pasted_lines_are_one_request_also_in_the_history(tmp_path: Path) -> None:
    def repeat(request: Any) -> str:
        return f"Got {json.dumps(request.messages[-1].text)}."

    with open_terminal(tmp_path, "chat", steps=[repeat]) as terminal:
        terminal.type("\x1b[200~def f():\n\treturn 1\x1b[201~\r")
        terminal.wait_for(r'Got "def f():\n\treturn 1".')
        terminal.wait_for("> ")
    with open_terminal(tmp_path, "chat", steps=[repeat]) as terminal:
        terminal.type("\x1b[A\x1b[A\r")  # the arrow key, twice: /quit is the last line
        terminal.wait_for(r'Got "def f():\n\treturn 1".')
        terminal.wait_for("> ")


def test_what_is_typed_before_a_question_does_not_answer_it(tmp_path: Path) -> None:
    steps = [
        Wait(1.5, call("run_command", 1, command="touch ran")),
        "Not run.",
        "The next one.",
    ]
    with open_terminal(tmp_path, "chat", "--tools", steps=steps) as terminal:
        terminal.type("run it\r")
        terminal.wait_for("tokens")
        terminal.type("yes\rhalf a ")
        terminal.wait_for("yes, no, always")
        terminal.type("no\r")
        terminal.wait_for("Not run.")
        terminal.wait_for("> yes")
        terminal.wait_for("The next one.")
        terminal.wait_for("> half a ")
        terminal.type("\x15")
    assert not (tmp_path / "project" / "ran").exists()


@pytest.mark.parametrize(
    ("said", "word", "reason"),
    [
        ("y\n", "yes", ""),
        (" YES ", "yes", ""),
        ("a", "always", ""),
        ("no", "no", ""),
        ("actually no", "", "actually no"),
        ("yet another file?", "", "yet another file?"),
        ("\n", "", ""),
    ],
)
def test_only_a_whole_word_allows_a_call(said: str, word: str, reason: str) -> None:
    assert read_consent(said) == Consent(word, reason)  # type: ignore[arg-type]


def test_a_question_shows_all_of_what_would_run_or_change(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    tools = ProjectTools(tmp_path)
    hidden = f"echo{' ' * 300}; rm -r src"
    drawn = list(draw_call(call("run_command", command=f"{hidden}\necho end").calls[0], tools))
    assert "rm -r src" in "".join(drawn)
    assert drawn[-1].strip() == "echo end"
    changed = list(
        draw_call(call("write_file", path="a.py", text="one\nTWO\nthree\n").calls[0], tools)
    )
    assert [click.unstyle(line) for line in changed][2:] == [
        "   one",
        "  -two",
        "  +TWO",
        "   three",
    ]
    edited = list(
        draw_call(call("edit_file", path="a.py", old="two", new="2\n\x1b[8m").calls[0], tools)
    )
    assert [click.unstyle(line) for line in edited][1:] == ["  -two", "  +2", "  +�[8m"]


def test_a_talk_without_tools_declares_none_of_an_earlier_one(chat: Chat, tmp_path: Path) -> None:
    chat("run", "first")
    session = loom_id(tmp_path, "first")
    plain = chat("chat", "--session", session, lines="more\n")
    with_tools = chat("chat", "--tools", "--session", session, lines="again\n")
    own = len(loom_tools())
    assert f"{own} tools" in plain.output
    assert f"{own + 6} tools" in with_tools.output


def test_calls_side_by_side_are_shown_with_their_results(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tuple(
        ToolCall(f"c{number}", "run_command", json.dumps({"command": command}))
        for number, command in enumerate(("sleep 0.5; echo slow", "echo quick"))
    )
    with ScriptedServer(Message("assistant", calls), "Done.") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        done = chat("run", "Run both", "--yes", "--model", "openai:gpt-4o")
    lines = [line.strip() for line in done.output.splitlines()]
    assert "echo slow" in lines[lines.index("slow") - 1]
    assert "echo quick" in lines[lines.index("quick") - 1]


def test_the_first_turn_can_be_undone_and_the_last_request_pinned(
    chat: Chat, tmp_path: Path
) -> None:
    done = chat("chat", lines="/undo\n/pin\nwrong\n/pin\n/pin\n/undo\nright\n/fork\n")
    assert "There is no turn yet." in done.output
    assert "say what to pin" in done.output
    assert "1 message pinned." in done.output
    assert "It was pinned already." in done.output
    assert "You said: right" in done.output
    with Loom.open(tmp_path / "loom.db") as loom:
        told = " ".join(done.output.split())  # sentences are broken at the edge of the terminal
        left = [row for row in loom.sessions() if f"{row.id} is as it was." in told]
        assert sorted(row.title for row in left) == ["right", "wrong"]
        (right,) = (loom.session(row.id) for row in left if row.title == "right")
        assert len(right.path) == 2
        assert right.row.head.system[0].text == SYSTEM


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", None), ("TERM", "dumb", False)],
)
def test_colours_are_left_out_where_nobody_wants_them(
    variable: str, value: str, wanted: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    assert wants_colour() is wanted


@pytest.mark.parametrize("command", ["/help", "/context", "/cost", "hello"])
def test_a_narrow_terminal_breaks_no_line(
    chat: Chat, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    done = chat("chat", lines=f"hello\n{command}\n")
    shown, _, _ = done.output.rpartition("loom chat --session")  # a command stays in one piece
    own = [line for line in shown.splitlines() if "I am a script" not in line]
    assert [line for line in own if columns_of(line) > 40] == []


def test_a_path_is_not_a_command(chat: Chat) -> None:
    done = chat("chat", lines="/etc/hosts holds what?\n/nope\n")
    assert "You said: /etc/hosts holds what?" in done.output
    assert "there is no command /nope" in done.output
