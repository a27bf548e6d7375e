"""The commands on kept sessions: what each prints, what it keeps, and how it refuses."""

import asyncio
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner, Result

from loom.cli import terminal
from loom.cli.main import cli
from loom.cli.terminal import age, fit_columns
from loom.conversation.canonical import to_json
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.engine.loom import Loom
from tests.shared import FIXTURES
from tests.stores.conftest import Server
from tests.test_cli import loom_process as in_a_process

PARALLEL = FIXTURES / "cc_parallel_thinking.jsonl"
ROW = {
    "id", "title", "status", "messages", "tokens", "usage", "model", "tenant", "project",
    "agent", "tree", "origin", "created",
    "updated",
}  # fmt: skip
HOSTILE = {
    "quotes": "'\"`$(true)",
    "sql": "'; DROP TABLE sessions; --",
    "path": "../../../etc/passwd",
    "newline": "one\ntwo\r\n",
    "control": "a\x1b[2Jb\x07\u202ec",
    "emoji": "🧵🧵 żółć 重试",
    "half": "a\udc80b",
    "percent": "%s %d {0} {each:1} $1 ?1",
    "long": "x" * 10_000,
    "blank": " ",
    "option": "--",
}


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The store of whoever names none: a file in a folder that does not exist yet."""
    for variable in ("LOOM_MODELS", "LOOM_PROJECT", "LOOM_TENANT", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "deep" / "er" / "loom.db"
    monkeypatch.setenv("LOOM_STORE", str(path))
    return path


def invoke(*arguments: object, given: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(cli, list(map(str, arguments)), input=given, prog_name="loom")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "\x1b" not in result.output, (
        "no colour, and nothing that moves, where there is no terminal"
    )
    return result


def run(*arguments: object, given: str | bytes | None = None) -> str:
    """What a command that does its work writes to standard output."""
    result = invoke(*arguments, given=given)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def told(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--json"))


def refused(*arguments: object, given: str | bytes | None = None) -> str:
    """The one line with which a command ends that cannot do what it was asked for."""
    result = invoke(*arguments, given=given)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert re.fullmatch(r"loom: [^\n]+\n", result.stderr), result.stderr
    return result.stderr


def new(*arguments: object) -> str:
    return run("session", "new", *arguments).strip()


def append(name: str, *texts: str) -> list[str]:
    """Messages of the user; their ids."""
    return [run("session", "append", name, text).strip() for text in texts]


def long_session(exchanges: int = 200, **options: Any) -> str:
    """A goal, so many calls with a result each, and a last request."""
    said = [Message("user", (Text("The goal: count all words."),))]
    for n in range(exchanges):
        said.append(
            Message(
                "assistant", (Text(f"Now page {n}."), ToolCall(f"c{n}", "count", f'{{"page":{n}}}'))
            )
        )
        said.append(Message("tool", (ToolResult(f"c{n}", (Text(f"line {n} " * 30),)),)))
    with Loom.open(**options) as loom:
        session = loom.new("Count", model="gpt-4o", system="You are exact.")
        session.append(*said, "How many?")
        return session.id


# Finding


def test_a_store_that_does_not_exist_has_no_sessions_and_is_not_made_by_looking(
    store: Path,
) -> None:
    assert (
        run("session", "list")
        == "no sessions in project default; loom session new TITLE creates one\n"
    )
    assert told("session", "list") == []
    for command in (
        ("show", "abcd"),
        ("append", "abcd", "hi"),
        ("fork", "abcd"),
        ("purge", "abcd"),
        ("export", "--all"),
    ):
        assert f"there is no store at {store} yet" in refused("session", *command)
    for words in (("recall", "~abc"), ("doctor",), ("weave", "--session", "abcd")):
        assert "there is no store at" in refused(*words)
    assert not store.parent.exists()


def test_the_store_is_what_was_named_else_the_variable_else_in_the_data_folder(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new("by the variable")
    assert store.is_file()
    new("by the option", "--store", tmp_path / "other" / "my store.db")
    new("by a url", "--store", f"sqlite:///{tmp_path / 'other' / 'url.db'}")
    monkeypatch.delenv("LOOM_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    if sys.platform == "linux":
        new("by default")
        assert (tmp_path / "data" / "loom" / "loom.db").is_file()
        assert [row["title"] for row in told("session", "list")] == ["by default"]
    for at, title in (
        (store, "variable"),
        (tmp_path / "other" / "my store.db", "option"),
        (tmp_path / "other" / "url.db", "url"),
    ):
        [row] = told("session", "list", "--store", at)
        assert row["title"].endswith(title)


def test_a_list_is_a_table_of_the_newest_first() -> None:
    first, second = new("First things first", "--model", "gpt-4o"), new()
    append(second, "What now?\nAnd then?", "Go on.")
    lines = run("session", "list").splitlines()
    assert lines[0].split() == [
        "id",
        "title",
        "messages",
        "used",
        "model",
        "last",
        "used",
        "status",
    ]
    assert lines[1].split() == [second[:8], "What", "now?", "2", "–", "–", "now", "active"]
    assert lines[2].split() == [
        first[:8],
        "First",
        "things",
        "first",
        "0",
        "–",
        "gpt-4o",
        "now",
        "active",
    ]
    append(first, "hello")
    assert [row["id"] for row in told("session", "list")] == [first, second]
    assert [row["id"] for row in told("session", "list", "--limit", 1)] == [first]
    assert invoke("session", "list", "--limit", 0).exit_code == 2


def test_a_list_as_json_holds_everything() -> None:
    name = new("A title", "--model", "gpt-4o", "--agent", "coder", "--project", "shop")
    run("session", "append", name, "hi", "--project", "shop")
    [row] = told("session", "list", "--project", "shop")
    assert set(row) == ROW
    assert row["usage"] == {"prompt": 0, "completion": 0, "cached": 0, "cost": 0.0}
    assert (row["id"], row["title"], row["status"], row["messages"]) == (
        name,
        "A title",
        "active",
        1,
    )
    assert (row["model"], row["tenant"], row["project"], row["agent"]) == (
        "gpt-4o",
        "default",
        "shop",
        "coder",
    )
    assert row["tokens"] > 0
    assert row["created"] <= row["updated"]


def test_ids_in_a_list_are_as_long_as_they_must_be(store: Path) -> None:
    with Loom.open(str(store), fresh_id=iter(("abcdefghij", "abcdefghkl")).__next__) as loom:
        loom.new("one")
        loom.new("two")
    assert [line.split()[0] for line in run("session", "list").splitlines()[1:]] == [
        "abcdefghk",
        "abcdefghi",
    ]
    assert "matches several sessions" in refused("session", "show", "abcdefgh")
    assert "abcdefghij" in run("session", "show", "abcdefghi")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    new("重试预算" * 20, "--model", "anthropic:claude-sonnet-4-6-with-a-long-name")
    new("short")
    for line in run("session", "list").splitlines():
        assert terminal.columns_of(line) <= columns


def test_show_tells_what_is_known_and_the_last_messages() -> None:
    name = new("Two files", "--model", "gpt-4o", "--system", "You are careful.")
    run("session", "append", name, "--file", PARALLEL)
    shown = run("session", "show", name)
    for piece in (
        "Two files",
        name,
        "active",
        "default",
        "gpt-4o",
        "5 messages",
        "You are careful.",
        "∴ I need two",
        "→ Bash",
        "← 1 a",
    ):
        assert piece in shown
    report = told("session", "show", name, "--last", 2)
    assert set(report) == ROW | {"cursor", "options", "system", "tools", "last"}
    assert report["system"] == ["You are careful."]
    assert [set(node) for node in report["last"]] == [
        {"id", "local", "role", "tokens", "created", "message"}
    ] * 2
    assert report["cursor"] == report["last"][-1]["local"]
    assert report["last"][-1]["message"]["role"] == "assistant"
    for node in report["last"]:
        assert node["local"] in shown
    assert "3 earlier messages; --last 5 shows all" in run("session", "show", name, "--last", 2)
    assert told("session", "show", name, "--last", 0)["last"] == []
    assert "no messages yet" in run("session", "show", new("nothing"))


def test_show_tells_what_was_used(store: Path) -> None:
    with Loom.open(str(store)) as loom:
        session = loom.new("Asked", model="gpt-4o")
        asyncio.run(session.prepare("hi"))
        usage = {
            "prompt_tokens": 2000,
            "completion_tokens": 300,
            "prompt_tokens_details": {"cached_tokens": 1000},
        }
        session.absorb(
            {
                "id": "r",
                "model": "gpt-4o",
                "choices": [{"message": {"content": "hello"}}],
                "usage": usage,
            }
        )
    assert "2,000 tokens read (50% from a cache), 300 written, $0.00" in run(
        "session", "show", session.id
    )
    assert "2.3k" in run("session", "list")
    assert told("session", "show", session.id)["usage"]["cached"] == 1000


def test_ages_are_short() -> None:
    now = 1_800_000_000_000
    ages = [
        age(now - seconds * 1000, now)
        for seconds in (-5, 9, 59, 60, 7199, 86_400, 30 * 86_400, 90 * 86_400)
    ]
    assert ages == ["now", "now", "59 s", "1 min", "1 h", "1 d", "30 d", "2026-10-17"]
    assert age(-(10**18), now) == "long ago"
    assert fit_columns("重试", 6) == "重试  "


# Making, and going on


def test_new_prints_an_id_and_nothing_else(tmp_path: Path) -> None:
    result = invoke("session", "new")
    assert re.fullmatch(r"[a-z2-7]{16}\n", result.stdout)
    assert result.stderr == ""
    assert set(told("session", "new", "A title")) == {"session"}
    words, tools = tmp_path / "system.txt", tmp_path / "tools.json"
    words.write_text("Mind the gap.\n", encoding="utf-8")
    tool = {"name": "search", "description": "Search.", "input_schema": {"type": "object"}}
    for given in ([tool], {"tools": [tool]}):
        tools.write_text(json.dumps(given))
        made = told("session", "show", new("--system-file", words, "--tools", tools))
        assert (made["system"], made["tools"]) == (["Mind the gap.\n"], ["search"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--system", "a", "--system-file", "{file}"), "not both"),
        (("--system-file", "{none}"), "does not exist"),
        (("--tools", "{none}"), "does not exist"),
        (("--tools", "{file}"), "tools must be a list of tools"),
        (("--store", "{folder}"), "is a folder; name a file in it"),
        (("--store", "{file}"), "is not a database; it was left as it is"),
        (("--store", "mysql://localhost/x"), "'mysql://…' is not a store"),
        (("--project", ""), "the project must have a name"),
    ],
)
def test_what_new_cannot_do_is_told_in_one_line(
    tmp_path: Path, options: tuple[str, ...], line: str
) -> None:
    file = tmp_path / "file.json"
    file.write_text('{"no":"tools"}' + " " * 1000)
    where = {"file": file, "none": tmp_path / "none", "folder": tmp_path}
    assert line in refused("session", "new", *(option.format(**where) for option in options))


def test_append_takes_a_text_or_standard_input_and_prints_ids() -> None:
    name = new()
    assert run("session", "append", name, "Be brief.", "--role", "system") == ""
    [first] = append(name, "Fix the login")
    assert re.fullmatch(r"[a-z2-7]{4,}", first)
    run("session", "append", name, "I will.", "--role", "assistant")
    assert re.fullmatch(
        r"[a-z2-7]{4,}\n", run("session", "append", name, "Reminder: one", "--role", "system")
    )
    run("session", "append", name, "-", given="two\nlines\n")
    run("session", "append", name[:6], given="no argument 🧵")
    done = told("session", "append", name, "last")
    assert done == {
        "session": name,
        "nodes": [
            {"id": done["nodes"][0]["id"], "local": done["nodes"][0]["local"], "role": "user"}
        ],
    }
    shown = told("session", "show", name)
    said = [(node["role"], node["message"]["parts"][0]["text"]) for node in shown["last"]]
    assert said == [
        ("user", "Fix the login"), ("assistant", "I will."), ("system", "Reminder: one"),
        ("user", "two\nlines"),
        ("user", "no argument 🧵"), ("user", "last"),
    ]  # fmt: skip
    assert (shown["system"], shown["title"]) == (["Be brief."], "Fix the login")


def test_append_takes_messages_of_any_transcript(tmp_path: Path) -> None:
    name = new()
    for file, count in (
        (PARALLEL, 5),
        (FIXTURES / "wire_codex_simple.json", None),
        (FIXTURES / "codex_patch.jsonl", None),
    ):
        ids = run("session", "append", name, "--file", file).split()
        assert len(ids) == count if count else ids
    runs = tmp_path / "runs.json"
    runs.write_text(
        json.dumps([{"messages": [{"role": "user", "content": f"go {n}"}]} for n in range(3)])
    )
    assert f"choose one as {runs}#N" in refused("session", "append", name, "--file", runs)
    assert len(run("session", "append", name, "--file", f"{runs}#1").split()) == 1
    assert told("session", "show", name)["last"][-1]["message"]["parts"][0]["text"] == "go 1"


@pytest.mark.parametrize(
    ("options", "given", "line"),
    [
        (("",), None, "the text is blank"),
        (("-",), " \n", "the text is blank"),
        (("-",), b"caf\xe9", "not UTF-8: byte 3"),
        (("text", "--file", PARALLEL), None, "not both"),
        (("--role", "user", "--file", PARALLEL), None, "not both"),
        (("--file", "no such file"), None, "does not exist"),
        (("text", "--after", "zzzz"), None, "there is no node 'zzzz' in this tree"),
    ],
)
def test_what_cannot_be_appended_is_told_in_one_line(
    options: tuple[object, ...], given: str | bytes | None, line: str
) -> None:
    name = new()
    assert line in refused("session", "append", name, *options, given=given)
    assert told("session", "show", name)["messages"] == 0


def test_a_conflict_is_one_line_and_writes_nothing() -> None:
    name = new()
    first, second = append(name, "one", "two")
    line = refused("session", "append", name, "late", "--after", first)
    assert f"expected it at {first}, found it at {second}" in line
    assert "expected it at its beginning" in refused(
        "session", "append", name, "late", "--after", ""
    )
    assert told("session", "show", name)["messages"] == 2
    assert run("session", "append", name, "two", "--after", first).strip() == second, (
        "a retry finds what it wrote"
    )
    assert run("session", "append", name, "three", "--after", second)


def test_unknown_sessions_and_nodes_are_told_in_one_line() -> None:
    name = new()
    append(name, "hi")
    for command in (
        ("show",),
        ("append", "x"),
        ("fork",),
        ("archive",),
        ("rename", "x"),
        ("continue",),
        ("export",),
        ("purge", "--yes"),
    ):
        assert "there is no session 'zork'" in refused("session", command[0], "zork", *command[1:])
    for command in (("switch", name, "zork"), ("fork", name, "--at", "zork")):
        assert "there is no node 'zork'" in refused("session", *command)


# Branching, and putting away


def test_a_fork_shares_the_beginning_and_goes_its_own_way() -> None:
    name = new("Login")
    first, *_ = append(name, "one", "two", "three")
    other = run("session", "fork", name, "--at", first, "--title", "Another way").strip()
    append(other, "other two")
    shown = told("session", "show", other)
    assert [node["message"]["parts"][0]["text"] for node in shown["last"]] == ["one", "other two"]
    assert (shown["title"], shown["origin"], shown["tree"]) == (
        "Another way",
        name,
        told("session", "show", name)["tree"],
    )
    assert told("session", "show", run("session", "fork", name).strip())["messages"] == 3


def test_a_session_can_go_back_and_forth() -> None:
    name = new()
    first, second, _ = append(name, "one", "two", "three")
    result = invoke("session", "switch", name, first)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"is at {first}, 1 message" in result.stderr
    append(name, "another two")
    run("session", "switch", name, second)
    assert told("session", "show", name)["cursor"] == second


def test_what_is_put_away_is_not_listed_and_comes_back() -> None:
    name = new("Done")
    assert invoke("session", "archive", name).stdout == ""
    assert told("session", "list") == []
    assert [row["status"] for row in told("session", "list", "--archived")] == ["archived"]
    assert "archived" in run("session", "list", "--archived")
    run("session", "archive", name, "--undo")
    assert [row["id"] for row in told("session", "list")] == [name]
    assert run("session", "list", "--archived").startswith(
        "no sessions that are archived in project default"
    )


def test_continue_begins_anew_with_the_same_head() -> None:
    name = new("Login", "--model", "gpt-4o", "--system", "Be brief.")
    append(name, "hi")
    fresh = told("session", "show", run("session", "continue", name).strip())
    assert (fresh["title"], fresh["model"], fresh["system"], fresh["messages"]) == (
        "Continue: Login",
        "gpt-4o",
        ["Be brief."],
        0,
    )
    assert fresh["origin"] == name
    assert told("session", "show", name)["status"] == "archived"


def test_a_session_is_renamed() -> None:
    name = new("Before")
    assert invoke("session", "rename", name, "After 🧵").stdout == ""
    assert told("session", "show", name)["title"] == "After 🧵"


def test_a_purge_takes_what_no_other_session_holds() -> None:
    name = new("Secret")
    first, *_ = append(name, "shared", "secret one", "secret two")
    other = run("session", "fork", name, "--at", first).strip()
    assert "repeat with --yes" in refused("session", "purge", name)
    done = run("session", "purge", name, "--yes")
    assert done == (
        f"{name} was purged: 2 messages deleted for good, 1 stays because other sessions hold it\n"
    )
    assert told("session", "show", other)["messages"] == 1
    assert [row["id"] for row in told("session", "list")] == [other]
    assert "was purged; its messages are deleted for good" in refused(
        "session", "append", name, "more"
    )
    assert (
        run("session", "purge", name, "--yes")
        == f"{name} was purged: 0 messages deleted for good\n"
    ), "it may be repeated"
    assert "(purged)" not in run("session", "show", other)


def typed(words: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, type, and read what it shows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from loom.cli.main import run; run()", *arguments]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "80"}
    )
    os.close(theirs)
    os.write(ours, words.encode())
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux says so when the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return process.wait(timeout=60), shown.decode()


def test_a_purge_on_a_terminal_asks_for_the_first_letters_of_the_id() -> None:
    name = new("Secret")
    append(name, "a secret")
    status, shown = typed("y\n", "session", "purge", name)
    assert status == 2
    assert f"Type {name[:4]} to continue" in shown
    assert "nothing was purged" in shown
    assert told("session", "show", name)["messages"] == 1
    status, shown = typed(f"{name[:4]}\n", "session", "purge", name[:5])
    assert (status, "1 message deleted for good" in shown) == (0, True)


# Moving


def test_an_export_comes_back_with_the_same_ids(tmp_path: Path) -> None:
    name = new("Moves", "--model", "gpt-4o", "--system", "Be brief.")
    ids = append(name, "one", "zwei 🧵", "三\u2028")
    exported = run("session", "export", name)
    file, other = tmp_path / "out.jsonl", tmp_path / "other.db"
    assert run("session", "export", name[:6], "-o", file) == ""
    assert file.read_text(encoding="utf-8") == exported
    assert all(json.loads(line) for line in exported.split("\n")[:-1])
    assert told("session", "import", file, "--store", other) == {"session": name, "messages": 3}
    before, after = told("session", "show", name), told("session", "show", name, "--store", other)
    assert after["last"] == before["last"]
    assert [node["local"] for node in after["last"]] == ids
    assert {key: after[key] for key in ("title", "model", "system", "tree")} == {
        key: before[key] for key in ("title", "model", "system", "tree")
    }
    assert told("session", "import", file, "--store", other) == {"session": name, "messages": 3}
    assert "3 messages, 3 were already stored" in run("session", "import", file, "--store", other)
    assert run("session", "export", name, "--store", other) == exported
    assert (
        json.loads(
            run(
                "session", "import", "-", "--json", "--store", tmp_path / "piped.db", given=exported
            )
        )["messages"]
        == 3
    )


def test_all_sessions_or_those_of_everybody_are_exported(tmp_path: Path) -> None:
    mine = [new("one"), new("two")]
    theirs = new("three", "--project", "shop", "--tenant", "acme")
    for name in mine:
        append(name, f"I am {name}")
    run("session", "append", theirs, "I am theirs", "--project", "shop", "--tenant", "acme")
    file, other = tmp_path / "all.jsonl", tmp_path / "other.db"
    run("session", "export", "--all", "-o", file)
    assert theirs not in file.read_text()
    assert {
        one["session"]
        for one in told("session", "import", file, "--store", other, "--project", "guest")
    } == set(mine)
    assert {
        row["id"] for row in told("session", "list", "--store", other, "--project", "guest")
    } == set(mine)
    run("session", "export", "--everywhere", "-o", file)
    everywhere = tmp_path / "everywhere.db"
    assert len(told("session", "import", file, "--everywhere", "--store", everywhere)) == 3
    assert {row["id"] for row in told("session", "list", "--store", everywhere)} == set(mine)
    [row] = told("session", "list", "--store", everywhere, "--project", "shop", "--tenant", "acme")
    assert (row["id"], row["messages"]) == (theirs, 1)


@pytest.mark.parametrize("options", [(), ("abcd", "--all"), ("--all", "--everywhere")])
def test_an_export_names_one_or_all(options: tuple[str, ...]) -> None:
    new()
    assert "name one session to export, or give --all or --everywhere" in refused(
        "session", "export", *options
    )


def test_an_export_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    name, file = new(), tmp_path / "out.jsonl"
    append(name, "hi")
    file.write_text("before")
    refused("session", "export", "zork", "-o", file)
    assert file.read_text() == "before"
    assert "is not a folder" in refused(
        "session", "export", name, "-o", tmp_path / "none" / "out.jsonl"
    )


def test_any_transcript_becomes_a_session(tmp_path: Path) -> None:
    done = told("session", "import", PARALLEL)
    assert set(done) == {"session", "messages"}
    assert (done["messages"], list(done)) == (5, ["session", "messages"])
    shown = told("session", "show", done["session"])
    assert (shown["status"], shown["messages"], shown["model"][:6]) == ("active", 5, "claude")
    assert "echo a and read" in shown["title"]
    result = invoke("session", "import", FIXTURES / "codex_patch.jsonl")
    assert re.fullmatch(r"[a-z2-7]{16} +\d+ messages.*\n", result.stdout)
    assert result.stderr == "", "no progress where there is no terminal"
    runs = tmp_path / "runs.json"
    runs.write_text(
        json.dumps([{"messages": [{"role": "user", "content": f"go {n}"}]} for n in range(3)])
    )
    assert [one["messages"] for one in told("session", "import", runs)] == [1, 1, 1]
    assert told("session", "import", f"{runs}#2")["messages"] == 1
    assert len(run("session", "import", runs).splitlines()) == 3
    piped = json.loads(run("session", "import", "-#1", "--json", given=runs.read_text()))
    assert told("session", "show", piped["session"])["title"] == "go 1"


@pytest.mark.parametrize(
    ("content", "options", "line"),
    [
        (None, (), "does not exist"),
        (b"", (), "is empty"),
        (b"hello", (), "not a transcript that Loom knows"),
        (b'{"messages":[', (), "not valid JSON"),
        (
            b'{"messages":[{"role":"user","content":"hi"}]}',
            ("--everywhere",),
            "works only with files of loom session export",
        ),
        (b'{"loom":"nonsense"}\n', (), ""),
        (b'{"loom":1}\n{"never":"seen"}\n', (), ""),
        (b'{"loom":1}\n\xff\n', (), ""),
    ],
)
def test_what_cannot_be_imported_is_told_in_one_line(
    tmp_path: Path, content: bytes | None, options: tuple[str, ...], line: str
) -> None:
    file = tmp_path / "file.jsonl"
    if content is not None:
        file.write_bytes(content)
    assert line in refused("session", "import", file, *options)
    assert told("session", "list") == []


def test_an_export_has_no_runs_to_choose(tmp_path: Path) -> None:
    name, file = new(), tmp_path / "out.jsonl"
    append(name, "hi")
    run("session", "export", name, "-o", file)
    assert "imported as a whole" in refused("session", "import", f"{file}#0")


# Weaving


def test_a_session_is_woven_like_a_file(tmp_path: Path) -> None:
    name = long_session()
    woven = told("weave", "--session", name, "--window", 2000, "--reserve", 200)
    assert set(woven) == {"request", "report"}
    assert woven["report"]["input_tokens"] <= 1800
    assert woven["request"]["messages"][1]["content"] == "The goal: count all words."
    assert woven["request"]["messages"][-1]["content"] == "How many?"
    assert told("explain", "--session", name, "--window", 2000, "--reserve", 200) == woven["report"]
    shown = run("weave", "--session", name, "--window", 2000, "--reserve", 200)
    for piece in (
        "Count: ",
        f"session {name}",
        "of 1,800",
        "history",
        "█",
        "▓",
        "left out",
        "recall ~",
        "OpenAI chat",
    ):
        assert piece in shown
    out = tmp_path / "out.json"
    assert set(told("weave", "--session", name, "--dialect", "anthropic", "-o", out)) == {"report"}
    assert invoke("check", out, "--dialect", "anthropic").exit_code == 0
    claude = new("--model", "claude-sonnet-4-6")
    append(claude, "hi")
    assert "Anthropic messages" in run("weave", "--session", claude)


def test_what_a_stored_cover_says_is_shown(store: Path) -> None:
    name = long_session()
    with Loom.open(str(store)) as loom:
        context = asyncio.run(loom.session(name).prepare(window=2000, reserve_output=200))
    items = told("explain", "--session", name, "--window", 2000, "--reserve", 200)["items"]
    [cover] = [item for item in items if item["action"] == "covered"]
    assert cover["quotes"]
    assert items == json.loads(to_json(context.report.as_dict()))["items"]
    shown = run("explain", "--session", name, "--window", 2000, "--reserve", 200, "--show")
    assert "no instructions:" in " ".join(shown.replace("│", "").split())
    for quote in cover["quotes"]:
        assert f"│ {quote['place']} {quote['speaker']}" in shown


def test_places_are_those_on_the_path_however_little_was_read() -> None:
    name = long_session(3000)
    [gap] = [
        item
        for item in told("explain", "--session", name, "--window", 2000)["items"]
        if item["action"] in ("dropped", "covered")
    ]
    start, stop = map(int, re.findall(r"\d+", gap["place"]))
    assert start == 1
    assert 5900 < stop < 6000
    shown = run("explain", "--session", name, "--window", 2000)
    [line] = [line for line in shown.splitlines() if line.startswith(("  dropped ", "  covered "))]
    assert f"messages[1:{stop}]" in line
    assert line.endswith(f"{stop - 1:,} messages")
    assert "messages[6001] " in shown
    assert "current request  user: How many?" in shown
    found = re.search(r"([\d,]+) messages kept, (\d+) shrunk, ([\d,]+) left out", shown)
    assert found
    kept, cut, gone = (int(number.replace(",", "")) for number in found.groups())
    assert (kept + cut + gone, gone) == (6002, stop - 1)
    assert "messages not read" not in run("weave", "--session", name, "--window", 2000) + shown
    assert len(run("recall", gap["handles"][0], "--json").splitlines()) == stop - 1


def test_mended_places_are_those_on_the_path(store: Path) -> None:
    name = long_session(1000)
    with Loom.open(str(store)) as loom:
        session = loom.session(name)
        session.append({"role": "tool", "tool_call_id": "nobody", "content": "lost"}, "Well?")
        at = len(session.path) - 2
    report = told("explain", "--session", name, "--window", 2000)
    assert [item["place"] for item in report["items"] if item["action"] == "repaired"] == [
        f"given[{at}]"
    ]
    assert f"given[{at}]" in run("explain", "--session", name, "--window", 2000)


def test_pins_stay() -> None:
    name = long_session()
    node = told("session", "show", name, "--last", 300)["last"][0]["local"]
    places = {
        i["place"]: i["rule"]
        for i in told("explain", "--session", name, "--window", 3000, "--pin", node)["items"]
    }
    assert places["messages[102]"] == "pin"
    assert "there is no node 'zork'" in refused("weave", "--session", name, "--pin", "zork")


def test_looking_does_not_disturb_the_epoch_of_an_agent(store: Path) -> None:
    name = long_session()
    with Loom.open(str(store)) as loom:
        session = loom.session(name)
        first = asyncio.run(session.prepare(window=4000))
        run("weave", "--session", name, "--window", 1000)
        run("explain", "--session", name, "--policy", "tree", "--window", 2000)
    with Loom.open(str(store)) as loom:
        again = asyncio.run(loom.session(name).prepare(window=4000))
    assert (again.report.epoch, again.report.epoch_reason) == (first.report.epoch, "continued")
    assert again.openai() == first.openai()


@pytest.mark.parametrize("command", ["weave", "explain"])
def test_a_file_or_a_session_is_woven(command: str) -> None:
    name = new()
    assert "give a FILE or --session ID" in refused(command)
    assert "not both" in refused(command, PARALLEL, "--session", name)
    assert "--pin names a message of a session" in refused(command, PARALLEL, "--pin", "abcd")
    assert "has no messages yet" in refused(command, "--session", name)
    assert "there is no session 'zork'" in refused(command, "--session", "zork")
    append(name, "hi")
    assert "choose a larger window" in refused(command, "--session", name, "--window", 5)


# Bringing back


@pytest.mark.parametrize("ending", ["", "\n", "\r\n", "\n\n\n", " \t"])
def test_recall_gives_the_bytes_that_were_stored(store: Path, ending: str) -> None:
    log = "".join(f"line {n} 🧵 ü \u2028 \x1b[31m\r\n" for n in range(2000)) + ending
    with Loom.open(str(store)) as loom:
        session = loom.new(model="gpt-4o")
        session.append(
            "Look.",
            Message("assistant", (ToolCall("c", "read", "{}"),)),
            Message("tool", (ToolResult("c", (Text(log),)),)),
        )
        report = asyncio.run(session.prepare("Well?", window=4000)).report
    [handle] = [handle for item in report.items for handle in item.handles]
    for words in ((handle,), (handle.removeprefix("~"),), (handle, "--session", session.id)):
        result = CliRunner().invoke(cli, ["recall", *words])
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, log.encode(), "")
        assert json.loads(run("recall", *words, "--json")) == log
    run("session", "purge", session.id, "--yes")
    assert "gone for good" in refused("recall", handle)


def test_unknown_handles_are_told_in_one_line() -> None:
    name = long_session()
    [gap] = [
        item
        for item in told("explain", "--session", name, "--window", 2000)["items"]
        if item["action"] in ("dropped", "covered")
    ]
    handle = gap["handles"][0]
    assert run("recall", handle)
    other = new("other")
    for words in (
        ("~zork",),
        ("",),
        (handle, "--session", other),
        (handle, "--project", "shop"),
        (handle, "--tenant", "acme"),
    ):
        assert "nothing was left out under" in refused("recall", *words)
    assert "there is no session" in refused("recall", handle, "--session", "zork")


def test_what_was_cut_is_found_by_what_it_says(store: Path) -> None:
    name = new("Looms", "--model", "gpt-4o")
    append(
        name,
        "the goal",
        "The heddle, they say, has 4711 eyes.",
        "密码是芝麻开门。\nNext line.",
        *(f"{n} " + "word " * 40 for n in range(9)),
    )
    with Loom.open(str(store)) as loom:
        asyncio.run(
            loom.session(name).prepare(
                "How many eyes has the heddle?", window=500, reserve_output=100, policy="window"
            )
        )
    [hit] = told("recall", "--search", "HEDDLE eyes", "--session", name)
    assert set(hit) >= {"handle", "node", "place", "role", "score", "text", "session", "created"}
    assert (hit["place"], hit["role"], hit["text"]) == (
        1,
        "user",
        "The heddle, they say, has 4711 eyes.",
    )
    first, second, *_ = run("recall", "--search", "HEDDLE eyes", "--session", name).splitlines()
    assert re.fullmatch(rf"{hit['handle']}  user  message 1  [-\d]+  {name}", first)
    assert second == f"  {hit['text']}"
    shown = (
        CliRunner()
        .invoke(cli, ["recall", "--search", "heddle 4711", "--session", name[:6]], color=True)
        .stdout
    )
    assert "The \x1b[1mheddle\x1b[0m, they say, has \x1b[1m4711\x1b[0m eyes." in shown
    for words in ((hit["handle"],), (hit["handle"], "--session", name)):
        assert run("recall", *words) == f"## user\n\n{hit['text']}\n\n"
        assert json.loads(run("recall", *words, "--json")) == {
            "role": "user",
            "parts": [{"type": "text", "text": hit["text"]}],
        }
    assert "密码是芝麻开门。" in run("recall", "--search", "芝麻", "--session", name)
    assert len(told("recall", "--search", "word", "--session", name, "--limit", 2)) == 2
    assert (
        run("recall", "--search", '"they heddle"', "--session", name)
        == "no message that was left out matches '\"they heddle\"'\n"
    )
    assert told("recall", "--search", "heddle", "--session", new("other")) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "give a HANDLE or --search TEXT"),
        (
            ("~abc", "--search", "x", "--session", "{name}"),
            "give a HANDLE or --search TEXT, not both",
        ),
        (("--search", "x"), "--search needs a session; add --session ID"),
        (("--search", "x", "--session", "zork"), "there is no session 'zork'"),
        (("--search", " ", "--session", "{name}"), "a search needs words to look for"),
        (("--search", "…", "--session", "{name}"), "there are no words in '…'"),
        (("~abc", "--limit", "3"), "--limit works only with --search"),
    ],
)
def test_what_recall_cannot_do_is_told_in_one_line(words: tuple[str, ...], line: str) -> None:
    name = new()
    append(name, "hi")
    assert line in refused("recall", *(word.format(name=name) for word in words))
    assert invoke("recall", "--search", "x", "--session", name, "--limit", 0).exit_code == 2


# Keeping apart


def test_projects_tenants_and_agents_do_not_see_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = new("mine")
    theirs = new("theirs", "--project", "shop")
    tenants = new("tenants", "--tenant", "acme")
    coder = new("coder's", "--agent", "coder")
    assert {row["id"] for row in told("session", "list")} == {mine, coder}
    assert [row["id"] for row in told("session", "list", "--agent", "coder")] == [coder]
    assert told("session", "list", "--agent", "nobody") == []
    for name, scope in (
        (mine, ("--project", "shop")),
        (theirs, ()),
        (tenants, ()),
        (mine, ("--agent", "coder")),
        (mine, ("--tenant", "acme")),
    ):
        assert "there is no session" in refused("session", "show", name, *scope)
        assert "there is no session" in refused("session", "purge", name, "--yes", *scope)
        assert "there is no session" in refused("weave", "--session", name, *scope)
    monkeypatch.setenv("LOOM_PROJECT", "shop")
    assert [row["id"] for row in told("session", "list")] == [theirs]
    assert [row["id"] for row in told("session", "list", "--project", "default")] == [coder, mine]
    monkeypatch.setenv("LOOM_PROJECT", "default")
    monkeypatch.setenv("LOOM_TENANT", "acme")
    assert [row["id"] for row in told("session", "list")] == [tenants]


@pytest.mark.parametrize("evil", HOSTILE.values(), ids=HOSTILE)
def test_hostile_words_do_no_harm(evil: str, tmp_path: Path) -> None:
    name = new("harmless")
    append(name, "hi")

    def tried(*arguments: str) -> Result:
        result = invoke(*arguments)
        assert result.exit_code in (0, 2)
        assert not set("\x07\u202e\0") & set(result.output)
        if result.exit_code:
            assert result.stdout == ""
            assert len(result.stderr) < 1000 + 2 * len(evil) * ("Usage" in result.stderr)
        return result

    made = tried("session", "new", "--", evil)
    if made.exit_code == 0:
        shown = told("session", "show", made.stdout.strip())
        assert shown["title"] == evil
        assert run("session", "show", made.stdout.strip())
    tried("session", "rename", "--", name, evil)
    tried("session", "append", name, "--after", evil, "--", "x")
    tried("session", "fork", name, "--title", evil)
    tried("session", "new", "--model", evil)
    tried("session", "new", "--system", evil)
    for words in (("show",), ("export",), ("purge", "--yes"), ("continue",), ("archive",)):
        tried("session", words[0], *words[1:], "--", evil)
    tried("session", "switch", "--", name, evil)
    tried("session", "import", "--", evil)
    tried("session", "append", name, "--file", evil)
    for option in ("--project", "--tenant", "--agent"):
        assert "harmless" not in tried("session", "list", f"{option}={evil}").stdout
    tried("weave", f"--session={evil}")
    tried("weave", "--session", name, f"--pin={evil}")
    tried("recall", "--", evil)
    tried("recall", "--session", name, f"--search={evil}")
    tried("session", "list")
    row = told("session", "show", name)
    assert (row["messages"], row["last"][0]["message"]["parts"]) == (
        1,
        [{"type": "text", "text": "hi"}],
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"], (
        "nothing was written elsewhere"
    )


def test_a_text_may_hold_anything() -> None:
    text = "a\0b \x1b[2J \u2028 '; DROP TABLE nodes; -- 🧵 " + "x" * 100_000
    name = new()
    run("session", "append", name, "-", given=text)
    shown = told("session", "show", name)
    assert shown["last"][0]["message"]["parts"][0]["text"] == text
    assert "\0" not in shown["title"]
    assert told("weave", "--session", name)["request"]["messages"][0]["content"] == text


def test_nothing_in_a_message_drives_the_terminal() -> None:
    evil = "a\x1b[2Jb\u202ec\x07\x9b31m"
    name = new("--system", evil)
    run("session", "append", name, evil * 300)
    run("session", "append", name, "hi")
    for words in (
        ("session", "show", name),
        ("session", "list"),
        ("weave", "--session", name, "--window", 600),
        ("explain", "--session", name),
    ):
        assert not set("\x1b\u202e\x07\x9b") & set(run(*words))


# What can go wrong with a store


# Whoever may do everything must first become nobody, who may not be able to read what is loaded
# only when it is needed.
AS_NOBODY = """
import json, os, sys, loom.stores.sql.sqlite
from click.testing import CliRunner
from loom.cli.main import cli
loom.weave([{"role": "user", "content": "hi"}])
[cli.get_command(None, name) for name in cli.list_commands(None)]
if os.geteuid() == 0: os.setegid(65534); os.seteuid(65534)
done = [CliRunner().invoke(cli, words) for words in json.loads(sys.argv[1])]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in done]))
"""


def test_a_read_only_store_is_read_and_says_why_it_is_not_written() -> None:
    # not in tmp_path, which only its owner may enter
    folder = Path(tempfile.mkdtemp(prefix="loom-ro-"))
    try:
        store = folder / "loom.db"
        name = new("Kept", "--store", store)
        run("session", "append", name, "hi", "--store", store)
        store.chmod(0o444)
        folder.chmod(0o555)
        reads = [
            ["session", "list"],
            ["session", "show", name],
            ["session", "export", name],
            ["weave", "--session", name],
            ["doctor"],
        ]
        writes = [
            ["session", "new"],
            ["session", "append", name, "no"],
            ["session", "fork", name],
            ["session", "purge", name, "--yes"],
        ]
        command = [
            sys.executable,
            "-c",
            AS_NOBODY,
            json.dumps([[*words, "--store", str(store)] for words in (*reads, *writes)]),
        ]
        environment = {**os.environ, "XDG_CONFIG_HOME": str(folder)}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)
        for words, (status, shown, line) in zip(reads, results, strict=False):
            assert (status, bool(shown), line) == (0, True, ""), words
        for words, (status, shown, line) in zip(writes, results[len(reads) :], strict=True):
            assert (status, shown, line.count("\n")) == (2, "", 1), words
            assert "is read-only" in line
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_doctor_finds_nothing_wrong_with_a_store_that_is_whole() -> None:
    name = long_session(20)
    told("weave", "--session", name, "--window", 1000)
    run("session", "fork", name)
    report = told("doctor")
    assert set(report) == {"store", "bytes", "looked", "wrong", "notes", "problems"}
    assert (report["wrong"], report["problems"]) == (0, [])
    shown = run("doctor")
    assert "✓ no problems" in shown
    assert "checked " in shown


def test_a_doctor_tells_what_is_wrong_and_what_to_do(store: Path) -> None:
    append(new(), "the truth", "and nothing else")
    connection = apsw.Connection(str(store))
    connection.execute("UPDATE nodes SET body = replace(body, 'truth', 'trash')")
    connection.close()
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "✗" in result.stdout
    assert "→" in result.stdout
    done = invoke("doctor", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["wrong"] > 0) == (1, True)
    assert {frozenset(problem) for problem in report["problems"]} == {
        frozenset(("place", "what", "remedy", "note"))
    }


def test_a_doctor_says_so_where_there_is_no_store(tmp_path: Path) -> None:
    assert "there is no store" in refused("doctor")
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database " * 100)
    assert "is not a database" in refused("doctor", "--store", other)
    assert other.read_bytes() == b"not a database " * 100


def test_the_commands_work_on_postgresql(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server()
    try:
        monkeypatch.setenv("LOOM_STORE", server.url())
        assert told("session", "list") == []
        name = long_session(50)
        [gap] = [
            item
            for item in told("explain", "--session", name, "--window", 2000)["items"]
            if item["action"] in ("dropped", "covered")
        ]
        assert (
            len(run("recall", gap["handles"][0], "--json").splitlines())
            == told("explain", "--session", name, "--window", 2000)["dropped"]
        )
        fork = run(
            "session", "fork", name, "--at", told("session", "show", name)["last"][0]["local"]
        ).strip()
        assert f"{fork[:8]}  Count" in run("session", "list")
        assert "How many?" in run("session", "show", name)
        file = tmp_path / "all.jsonl"
        run("session", "export", "--all", "-o", file)
        assert len(told("session", "import", file, "--store", tmp_path / "other.db")) == 2
        assert told("session", "import", file, "--project", "copy")[0]["messages"] == 102
        assert "19 messages deleted for good, 83 stay because" in run(
            "session", "purge", name, "--yes"
        )
        assert told("doctor")["wrong"] == 0
        monkeypatch.setenv("LOOM_STORE", server.url("no_such_database"))
        assert "no_such_database" in refused("session", "list")
    finally:
        server.remove()


# As its users run it


def test_the_commands_work_in_a_shell_of_any_locale(store: Path) -> None:
    where = {
        "LOOM_STORE": str(store),
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii",
    }
    made = in_a_process("session", "new", **where)
    assert (made.returncode, made.stderr) == (0, "")
    name = made.stdout.strip()
    assert in_a_process("session", "append", name, "-", given="żółć 🧵\n", **where).returncode == 0
    listed = in_a_process("session", "list", **where)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "żółć 🧵" in listed.stdout
    assert "\x1b" not in listed.stdout


def test_an_import_on_a_terminal_shows_how_far_it_is_and_cleans_up(tmp_path: Path) -> None:
    lines = tmp_path / "long.jsonl"
    lines.write_text(
        "".join(
            json.dumps({"role": ("user", "assistant")[n % 2], "content": f"word {n}"}) + "\n"
            for n in range(5000)
        )
    )
    status, shown = typed("", "session", "import", str(lines))
    assert status == 0
    assert "1,000 messages" in shown
    assert re.fullmatch(
        r"[a-z2-7]{16} +5,000 messages  word 0", click.unstyle(shown.rstrip().rpartition("\r")[2])
    )


def test_working_state_is_set_shown_and_stands_in_the_request() -> None:
    name = run("session", "new", "--model", "gpt-4o").strip()
    run("session", "append", name, "Fix it.")
    assert "no working state yet" in run("session", "working", name)
    shown = run(
        "session",
        "working",
        name,
        "--progress",
        "begun",
        "--plan",
        "read",
        "--plan",
        "write",
        "--depth",
        "1",
    )
    assert "- goal_progress: begun\n" in shown
    assert "1. read\n2. write" in shown
    assert "INTERRUPT" in run(
        "session",
        "working",
        name,
        "--event",
        "e1:the build broke",
        "--urgency",
        "high",
        "--heartbeat",
    )
    told = json.loads(run("session", "working", name, "--acknowledge", "e1:fixed", "--json"))
    assert told["recent_event_decisions"] == ["fixed"]
    assert told["dashboard"]["depth"] == 1
    request = json.loads(run("weave", "--session", name, "--json"))["request"]
    assert request["messages"][-1]["content"].startswith("## Dashboard")
    assert "no working state yet" in run("session", "working", name, "--clear")
