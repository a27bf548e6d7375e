"""Tools for the files of a project stay in its folder."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom import ChoiceError, Loom, Message, ProjectRules, ToolCall
from loom.loop import Loop, SessionDesk, project_tools
from loom.loop.confine import can_confine
from loom.loop.project_tools import MAX_OUTPUT_BYTES, ProjectTools
from loom.providers.scripted import ScriptedModel


@pytest.fixture
def tools(tmp_path: Path) -> ProjectTools:
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return ProjectTools(folder)


def test_files_are_read_listed_and_searched(tools: ProjectTools) -> None:
    assert tools.read_file("src/a.py") == "one = 1\ntwo = 2\nthree = 3"
    assert tools.read_file("src/a.py", 2, 1) == "two = 2\n[lines 2 to 2 of 3]"
    assert tools.list_folder("src") == "a.py"
    assert tools.search_files("tw[o]") == "src/a.py:2: two = 2"
    assert tools.search_files("(") == "(nothing matches '(')"


def test_a_file_that_is_too_large_to_read_is_searched(tools: ProjectTools) -> None:
    (tools.root / "large.txt").write_text("x" * 79 + "\n" + "filler\n" * 1_000_000 + "needle\n")
    with pytest.raises(ChoiceError, match="search it"):
        tools.read_file("large.txt")
    assert tools.search_files("needle") == "large.txt:1000002: needle"


def test_a_pattern_that_takes_forever_ends(
    tools: ProjectTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_tools, "SEARCH_SECONDS", 1)
    (tools.root / "a.txt").write_text("a" * 60 + "b\n")
    with pytest.raises(ChoiceError, match="did not end within 1 seconds"):
        tools.search_files("(a+)+$")


def test_files_are_written_and_edited(tools: ProjectTools) -> None:
    assert tools.write_file("new/b.py", "x\n") == "Wrote new/b.py, 1 lines."
    os.chmod(tools.root / "src/a.py", 0o755)
    assert tools.edit_file("src/a.py", "two = 2", "two = 22") == "Changed src/a.py."
    assert (tools.root / "src/a.py").read_text() == "one = 1\ntwo = 22\nthree = 3\n"
    assert (tools.root / "src/a.py").stat().st_mode & 0o777 == 0o755
    with pytest.raises(ChoiceError, match="3 times"):
        tools.edit_file("src/a.py", " = ", "")
    assert sorted(each.name for each in (tools.root / "src").iterdir()) == ["a.py"]


def test_what_git_runs_later_is_not_written(tools: ProjectTools) -> None:
    (tools.root / ".git" / "hooks").mkdir(parents=True)
    (tools.root / ".git" / "config").write_text("[core]\n")
    (tools.root / "g").symlink_to(".git")
    for path in (".git/hooks/pre-commit", "g/hooks/pre-commit", "src/../.git/hooks/x"):
        with pytest.raises(ChoiceError, match="belongs to git"):
            tools.write_file(path, "#!/bin/sh\n")
    with pytest.raises(ChoiceError, match="belongs to git"):
        tools.edit_file(".git/config", "[core]", "[core]\nhooksPath = /tmp")
    assert tools.write_file(".gitignore", "x\n").startswith("Wrote")


def test_an_edit_damages_no_other_encoding_and_no_line_ends(tools: ProjectTools) -> None:
    latin = tools.root / "latin.txt"
    latin.write_bytes(b"caf\xe9 one\ntwo\n")
    with pytest.raises(ChoiceError, match="not UTF-8"):
        tools.edit_file("latin.txt", "two", "2")
    assert latin.read_bytes() == b"caf\xe9 one\ntwo\n"
    windows = tools.root / "windows.txt"
    windows.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    tools.edit_file("windows.txt", "one\ntwo", "1\n2\n2.5")
    tools.edit_file("windows.txt", "three", "3\n4")
    assert windows.read_bytes() == b"1\r\n2\r\n2.5\r\n3\r\n4\r\n"


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "out/secret.txt", "/etc/passwd"])
def test_nothing_outside_of_the_folder_is_touched(tools: ProjectTools, path: str) -> None:
    for use in (
        lambda: tools.read_file(path),
        lambda: tools.write_file(path, "x"),
        lambda: tools.edit_file(path, "secret", "x"),
        lambda: tools.search_files("secret", path),
    ):
        with pytest.raises(ChoiceError, match="outside of the project"):
            use()
    assert (tools.root.parent / "secret.txt").read_text() == "secret"
    assert "secret" not in tools.search_files("secret").replace("'secret'", "")


@given(st.text(max_size=40))
def test_no_path_leads_out(path: str) -> None:
    tools = ProjectTools(Path(__file__).parent)
    try:
        found = tools._find(path, must_exist=False)
    except (ChoiceError, ValueError):
        return
    assert found.is_relative_to(tools.root)


def test_a_command_is_bounded_in_time_and_output(tools: ProjectTools) -> None:
    assert asyncio.run(tools.run_command("echo hello; exit 3")) == "hello\n[exit status 3]"
    flood = asyncio.run(tools.run_command("echo begin; yes | head -c 100000000; echo end"))
    assert len(flood) < MAX_OUTPUT_BYTES + 200
    assert flood.startswith("begin\ny")
    assert "bytes left out here" in flood
    assert flood.endswith("end\n[exit status 0]")
    began = time.monotonic()
    assert asyncio.run(tools.run_command("sleep 60 & sleep 60", 1)) == "[ended after 1 seconds]"
    assert time.monotonic() - began < 20
    assert asyncio.run(tools.run_command("kill -9 $$")) == "[exit status -9]"


def test_rules_speak_of_the_operation_and_its_target(tools: ProjectTools) -> None:
    by_name = {function.name: function for function in tools.functions()}
    assert by_name["run_command"].name_targets({"command": "make test"}) == ("make test",)
    assert by_name["write_file"].name_targets({"path": "src/../x.py"}) == ("x.py", "x.py")
    assert {function.operation for function in by_name.values()} == {
        "file_read",
        "file_write",
        "shell",
    }


def test_rules_hold_for_where_a_link_leads_and_for_what_a_search_reads(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / "a.txt").write_text("KEY of a song\n")
    (tmp_path / "link").symlink_to(".env")
    rules = ProjectRules(folder=str(tmp_path), denied={"file_read": (".env",)})
    tools = ProjectTools(tmp_path, permit=rules.is_allowed)
    [read_file] = [each for each in tools.reading() if each.name == "read_file"]
    assert read_file.name_targets({"path": "link"}) == ("link", ".env")
    found = tools.search_files("KEY")
    assert "a.txt:1: KEY of a song" in found
    assert "KEY=1" not in found
    assert "deny 1 files" in found
    model = ScriptedModel(
        Message("assistant", (ToolCall("c", "read_file", '{"path": "link"}'),)), "Done."
    )
    with Loom.open(tmp_path / "loom.db") as loom:
        session = loom.new(model="gpt-4o")
        loop = Loop(SessionDesk(session), model, tools.reading(), permit=rules.is_allowed)
        asyncio.run(loop.run("Read."))
        [result] = session.path[2].message.results  # type: ignore[union-attr]
    assert result.parts[0].text.startswith("refused by the rules")  # type: ignore[union-attr]


def test_a_command_ends_with_its_shell_and_with_its_call(tmp_path: Path) -> None:
    tools = ProjectTools(tmp_path)

    async def run() -> None:
        begun = time.monotonic()
        said = await tools.run_command("sleep 30 & echo started", 20)
        assert said == "started\n[exit status 0]"
        assert time.monotonic() - begun < 10
        assert await tools.run_command("echo so far; sleep 30", 1) == (
            "so far\n[ended after 1 seconds]"
        )
        with pytest.raises(TimeoutError):  # nobody waits any more
            await asyncio.wait_for(tools.run_command("sleep 2; touch late", 20), 0.3)
        await asyncio.sleep(2.2)
        assert not (tmp_path / "late").exists()

    asyncio.run(run())


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    tools = ProjectTools(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ChoiceError, match="is not a file"):
        tools.write_file("pipe", "x")
    with pytest.raises(ChoiceError, match="character 0"):
        tools.write_file("a\0b", "x")


@pytest.mark.skipif(not can_confine(), reason="this system cannot confine commands")
@pytest.mark.parametrize(
    "command",
    [
        "touch ../new.txt",
        "echo x > ../secret.txt",
        "rm ../secret.txt",
        "mv ../secret.txt .",
        "ln ../secret.txt hard.txt && echo x > hard.txt",
        "echo x > link.txt",
        "git -C .. init",
        "cd .. && mkdir new",
        "truncate -s 0 out/secret.txt",
        "sh -c \"sh -c 'echo x > ../secret.txt'\"",
        "(echo x > ../secret.txt) & wait",
    ],
)
def test_a_command_changes_nothing_outside_of_the_folder(tools: ProjectTools, command: str) -> None:
    before = sorted(each.name for each in tools.root.parent.iterdir())
    asyncio.run(tools.run_command(command))
    assert sorted(each.name for each in tools.root.parent.iterdir()) == before
    assert (tools.root.parent / "secret.txt").read_text() == "secret"


def test_a_command_works_in_the_folder_and_with_temporary_files(tools: ProjectTools) -> None:
    command = (
        "mkdir new && echo one > new/a && mv new/a b && ln b c && rm c && cat ../secret.txt "
        '&& echo two > "$TMPDIR/x" && cat "$TMPDIR/x" b > /dev/stderr && echo > /dev/null'
    )
    said = asyncio.run(tools.run_command(command))
    assert said == "secrettwo\none\n[exit status 0]"
    folder = asyncio.run(tools.run_command("echo $TMPDIR")).splitlines()[0]
    assert not Path(folder).exists()


def test_a_command_gets_no_keys_unless_it_is_unconfined(
    tools: ProjectTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("SHOP_MODE", "test")
    said = asyncio.run(tools.run_command("echo [$OPENAI_API_KEY] [$SHOP_MODE]"))
    assert said.splitlines()[0] == "[] [test]"
    free = ProjectTools(tools.root, confined=False)
    said = asyncio.run(free.run_command("echo [$OPENAI_API_KEY] && touch ../new.txt"))
    assert said == "[sk-1]\n[exit status 0]"
    assert (tools.root.parent / "new.txt").exists()
