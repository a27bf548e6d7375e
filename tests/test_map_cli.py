"""`loom map` and `--project`, run as their users run them."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import LOOM, loom
from tests.test_session_cli import append, new, run
from tests.test_weave_cli import refused, report_of


@pytest.fixture(autouse=True)
def folders_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "store.db"))
    monkeypatch.delenv("LOOM_PROJECT", raising=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "cart.py").write_text(
        "class Cart:\n    def total(self) -> int:\n        return sum(self.items)\n"
    )
    (root / "mail.go").write_text(
        "package shop\n\nfunc SendReceipt(order Order) error {\n\treturn nil\n}\n"
    )
    return root


@pytest.fixture
def asking(tmp_path: Path) -> Path:
    path = tmp_path / "asking.json"
    path.write_text(
        json.dumps(
            {
                "model": "gpt-4o",
                "messages": [{"role": "user", "content": "The receipt is never sent"}],
            }
        )
    )
    return path


def system_of(woven: Any) -> str:
    return str(woven["request"]["messages"][0]["content"])


def test_map_prints_what_matters_for_a_request(shop: Path) -> None:
    done = loom("map", shop, "--query", "no receipt is sent")
    assert done.returncode == 0
    first, *_ = done.stdout.split("\n\n### ")[1:]
    assert first == "mail.go (relevance: high)\nfunc SendReceipt(order Order) error"
    assert done.stderr.endswith(" tokens, 2 files\n")


def test_map_in_json_has_the_text_its_size_and_the_files(shop: Path, tmp_path: Path) -> None:
    query = tmp_path / "query.txt"
    query.write_text("the total of the Cart")
    made = report_of("map", shop, "--query-file", query, "--tokens", "60")
    assert set(made) == {"map", "tokens", "files"}
    assert made["map"].startswith("## Project Files\n\n### cart.py (relevance: high)\n")
    assert made["tokens"] <= 60
    assert made["files"][0] == {
        "path": "cart.py",
        "relevance": "high",
        "symbols": ["Cart.total", "Cart"],
    }


def test_a_request_may_come_by_standard_input(shop: Path) -> None:
    done = subprocess.run(
        [*LOOM, "map", str(shop), "--query-file", "-", "--json"],
        input="no receipt is sent",
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["files"][0]["path"] == "mail.go"


def test_map_is_of_the_folder_that_one_is_in(shop: Path) -> None:
    done = subprocess.run([*LOOM, "map"], cwd=shop, capture_output=True, text=True)
    assert "### cart.py" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "nowhere is not a folder; give the root folder of a project"),
        (
            (".", "--query", "a", "--query-file", "b"),
            "--query and --query-file both give the request",
        ),
        (
            (".", "--query-file", "nowhere.txt"),
            "nowhere.txt cannot be read: No such file or directory",
        ),
    ],
)
def test_a_slip_is_named(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused("map", *arguments)


def test_an_empty_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "nothing to show" in loom("map", tmp_path / "empty").stderr


def test_watch_prints_the_map_again_when_a_file_changes(shop: Path) -> None:
    running = subprocess.Popen(
        [*LOOM, "map", str(shop), "--watch", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        # whoever runs the tests may ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert running.stdout
        before = json.loads(running.stdout.readline())
        (shop / "gift.py").write_text("def wrap():\n    pass\n")
        after = json.loads(running.stdout.readline())
        assert {one["path"] for one in after["files"]} - {
            one["path"] for one in before["files"]
        } == {"gift.py"}
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
        assert running.stdout.read() == ""
    finally:
        running.kill()
        running.wait()


def test_a_bar_is_shown_on_a_terminal_while_files_are_read_for_the_first_time(shop: Path) -> None:
    for n in range(200):
        (shop / f"more_{n}.py").write_text(f"def more_{n}():\n    return {n}\n" * 20)
    assert "of 202 files" in on_terminal("map", str(shop))
    assert "of 202 files" not in on_terminal("map", str(shop))


def on_terminal(*arguments: str) -> str:
    """What a command writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen([*LOOM, *arguments], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert running.wait(20) == 0
    return said.decode()


def test_weave_puts_the_map_of_a_project_into_the_request(shop: Path, asking: Path) -> None:
    woven = report_of("weave", asking, "--project", shop)
    assert "### mail.go (relevance: high)\nfunc SendReceipt(order Order) error" in system_of(woven)
    assert woven["report"]["zones"]["repo_map"]["used"] > 0
    small = report_of("weave", asking, "--project", shop, "--map-tokens", "30")
    assert small["report"]["zones"]["repo_map"]["used"] <= 30
    assert "sections[0] repo_map" in loom("explain", asking, "--project", shop).stdout


def test_weave_of_a_session_and_of_a_tree_takes_a_project_too(shop: Path) -> None:
    name = new("one", "--model", "gpt-4o")
    append(name, "The receipt is never sent")
    assert "### mail.go (relevance: high)" in system_of(
        report_of("weave", "--session", name, "--project", shop)
    )
    tree = run("tree", "new", "two").strip()
    run("tree", "say", tree, "The receipt is never sent")
    assert "### mail.go (relevance: high)" in system_of(
        report_of("weave", "--tree", tree, "--project", shop)
    )


def test_a_name_that_is_no_folder_is_the_project_of_a_session(shop: Path) -> None:
    name = new("one", "--model", "gpt-4o", "--project", "mine")
    run("session", "append", name, "Hello", "--project", "mine")
    assert "Hello" in json.dumps(report_of("weave", "--session", name, "--project", "mine"))
    assert "### cart.py" in system_of(
        report_of("weave", "--session", name, "--project", shop, LOOM_PROJECT="mine")
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--project", "nowhere"), "nowhere is not a folder; give the root folder of a project"),
        (("--map-tokens", "300"), "add --project PATH"),
        (
            ("--project", ".", "--map-tokens", "0"),
            "--map-tokens 0 leaves no room for a map; give at least 1",
        ),
        (
            ("--project", ".", "--map-tokens", "-5"),
            "--map-tokens -5 leaves no room for a map; give at least 1",
        ),
    ],
)
def test_what_cannot_be_mapped_is_named(
    asking: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused("weave", asking, *arguments)


@pytest.mark.parametrize("policy", ["default", "window", "partitions"])
@pytest.mark.parametrize("size", [("--map-tokens", "1"), ("--map-tokens", "9"), ("--window", "60")])
def test_a_zone_too_small_for_a_map_is_told_in_a_note(
    shop: Path, asking: Path, policy: str, size: tuple[str, str]
) -> None:
    woven = report_of("weave", asking, "--project", shop, "--policy", policy, *size)
    assert any(
        note.startswith("no map: no file of the project fits in its zone of ")
        for note in woven["report"]["notes"]
    )
    assert "## Project Files" not in json.dumps(woven["request"])
