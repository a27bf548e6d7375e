"""The rules of a project in requests of a session: what the epoch began with stays, and the tail
says what changed.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Context, ContextWindow, Loom, Session, weave
from loom.cli.main import cli
from loom.context.gathering import make_conversation
from loom.context.options import check_options
from loom.engine.sources import gather_single_rules
from loom.project.rules.changes import FOUND
from tests.shared import examples


@pytest.fixture
def loom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loom]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Loom.open(":memory:") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


WIDE = {"window": 128_000}  # in which zones need not be scaled


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1, 1))  # as if it had been there for long


def ask(session: Session, request: str | None, folder: Path, **options: Any) -> Context:
    options = {"model": "gpt-4o", "window": 32_000, **options}
    return asyncio.run(session.prepare(request, project=folder, **options))


def system(context: Context) -> str:
    return "\n".join(message.text for message in context.conversation.system)


def tail(context: Context) -> str:
    messages = context.conversation.messages
    return "\n".join(message.text for message in messages[len(messages) - context.tail :])


def check_prefix(last: Context, now: Context) -> None:
    """The new request is the last one without its tail, and more."""
    assert now.conversation.system == last.conversation.system
    kept = last.conversation.messages[: len(last.conversation.messages) - last.tail]
    assert now.conversation.messages[: len(kept)] == kept


def test_rules_and_agents_md_are_in_their_zones(loom: Loom, folder: Path) -> None:
    put(folder, ".loom.toml", '[rules]\nstyle = "Small functions"\n')
    put(folder, "AGENTS.md", "Run the tests.")
    context = ask(loom.new(system="You are an agent."), "fix it", folder)
    said = system(context)
    assert said.startswith("You are an agent.\n\n## Project Rules\n- Style: Small functions\n\n")
    assert "## Project Convention: AGENTS.md" in said
    zones = {line.zone: line.action for line in context.report.lines if line.place.startswith("se")}
    assert zones["rules"] == zones["memory"] == "kept"
    assert context.report.zones["rules"]["used"] <= context.report.zones["rules"]["budget"]


def test_a_folder_without_rules_adds_nothing(loom: Loom, folder: Path) -> None:
    context = ask(loom.new(system="You are an agent."), "fix it", folder)
    assert "Project Convention" not in system(context)
    assert not context.report.zones.get("rules", {}).get("used")
    assert not [note for note in context.report.notes if "rules" in note.lower()]


def test_what_the_system_prompt_says_is_not_told_again(loom: Loom, folder: Path) -> None:
    rule = "Every change has a test, a line in the change log and a page of documentation."
    put(folder, "AGENTS.md", f"# Agents\n\n{rule}")
    context = ask(loom.new(system=f"You are an agent.\n\n# Agents\n\n{rule}"), "fix it", folder)
    assert system(context).count(rule) == 1
    assert "AGENTS.md: it says nothing that is not said already, and was left out" in (
        context.report.notes
    )
    put(folder, "CLAUDE.md", rule)
    section = ("rules", f"# Agents\n{rule}")
    context = ask(loom.new(system="Be brief."), "fix it", folder, sections=[section])
    assert system(context).count(rule) == 1


def test_files_that_change_are_told_in_the_tail_until_the_next_epoch(
    loom: Loom, folder: Path
) -> None:
    put(folder, "CLAUDE.md", "# Rules\n\n- Use tabs.\n- Never push.\n")
    put(folder, "CONTRIBUTING.md", "Sign commits.")
    session = loom.new(system="You are an agent.")
    first = ask(session, "one", folder)
    assert "changed since" not in tail(first)
    session.append({"role": "assistant", "content": "done"})

    same = ask(session, "two", folder)
    check_prefix(first, same)
    assert "Rules of the project changed" not in tail(same)

    put(folder, "CLAUDE.md", "# Rules\n\n- Use spaces, four of them.\n- Never push.\n")
    put(folder, "LOOM.md", "## Rules\n- Ask first\n")
    (folder / "CONTRIBUTING.md").unlink()
    session.append({"role": "assistant", "content": "done"})
    changed = ask(session, "three", folder)
    check_prefix(same, changed)
    said = tail(changed)
    assert "CONTRIBUTING.md is no longer among the rules: what only it said does not hold." in said
    assert (
        'CLAUDE.md changed.\nNo longer in it: "- Use tabs."\nNew in it, and to be kept to:\n'
        in said
    )
    assert "```markdown\n- Use spaces, four of them.\n```" in said
    assert "Never push" not in said
    assert "## Rules\n- Ask first" in said
    assert changed.report.epoch == first.report.epoch

    session.append({"role": "assistant", "content": "done"})
    session.set_summary("The user asked three times.")
    renewed = ask(session, "four", folder)
    assert renewed.report.epoch == first.report.epoch + 1
    assert "Rules of the project changed" not in tail(renewed)
    assert "- Use spaces, four of them." in system(renewed)
    assert "## Rules\n- Ask first" in system(renewed)
    assert "Sign commits" not in system(renewed)


def test_rules_of_a_folder_that_comes_into_play_are_in_the_tail(loom: Loom, folder: Path) -> None:
    put(folder, "src/api/AGENTS.md", "Validate all input.")
    put(folder, "src/api/main.py", "def main(): ...\n")
    put(folder, "README.md", "hello")
    session = loom.new(system="You are an agent.")
    first = ask(session, "look around", folder)
    assert "Validate" not in system(first)
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"path": "src/api/main.py"}'},
            }
        ],
    }
    session.append(call)
    session.append({"role": "tool", "tool_call_id": "c1", "content": "def main(): ..."})
    second = ask(session, None, folder)
    check_prefix(first, second)
    assert "Rules for files in src/api/, from the file src/api/AGENTS.md." in tail(second)
    assert "Validate all input." in tail(second)
    other = loom.new(system="You are an agent.")
    assert "Validate all input." in system(ask(other, "fix src/api/main.py", folder))


def test_an_epoch_goes_on_after_a_restart_with_the_rules_that_it_began_with(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put(folder, "CLAUDE.md", "Use tabs.")
    with Loom.open(str(tmp_path / "a.db")) as loom:
        session = loom.new(system="You are an agent.")
        first = ask(session, "one", folder)
        session.append({"role": "assistant", "content": "done"})
    put(folder, "CLAUDE.md", "Use spaces now.")
    with Loom.open(str(tmp_path / "a.db")) as loom:
        second = ask(loom.session(session.id), "two", folder)
    check_prefix(first, second)
    assert "Use spaces now." in tail(second)
    assert "Use spaces now." not in system(second)


def test_a_large_file_stays_in_its_zone_and_is_reported(loom: Loom, folder: Path) -> None:
    put(folder, "CLAUDE.md", "\n".join(f"- rule {n}: say it plainly" for n in range(4000)))
    put(folder, "AGENTS.md", "\n".join(f"- habit {n}: keep it" for n in range(4000)))
    context = ask(loom.new(system="You are an agent."), "fix it", folder)
    zones = context.report.zones
    assert zones["rules"]["used"] <= 2048
    assert zones["memory"]["used"] <= 2048
    assert {line.action for line in context.report.lines if line.zone in ("rules", "memory")} == {
        "kept"
    }
    notes = [note for note in context.report.notes if "are in the request" in note]
    assert [note.split(":")[0] for note in notes] == ["CLAUDE.md", "AGENTS.md"]
    small = ask(loom.new(system="You are an agent."), "fix it", folder, window=3000)
    assert small.report.input_tokens <= small.report.usable


@pytest.mark.parametrize("window", [600, 1200, 2500])
def test_rules_never_make_a_request_too_large(loom: Loom, folder: Path, window: int) -> None:
    put(folder, "CLAUDE.md", "\n".join(f"- rule {n}: say it plainly" for n in range(400)))
    prompt = "word " * (window // 2)
    context = ask(loom.new(system=prompt), "fix it", folder, window=window, reserve_output=50)
    assert context.report.input_tokens <= context.report.usable


def test_notes_and_agents_md_share_the_memory(loom: Loom, folder: Path) -> None:
    put(folder, "AGENTS.md", "\n".join(f"- habit {n}: keep it" for n in range(4000)))
    session = loom.new(system="You are an agent.")
    session.memory.remember("The user likes short answers.", always=True)
    context = ask(session, "fix it", folder)
    assert "The user likes short answers." in system(context)
    assert "- habit 0: keep it" in system(context)
    assert context.report.zones["memory"]["used"] <= 2048
    lines = [line for line in context.report.lines if line.zone == "memory"]
    assert [line.action for line in lines] == ["kept", "kept"]


def test_a_broken_file_is_a_note_of_the_report(loom: Loom, folder: Path) -> None:
    put(folder, ".loom.toml", "[rules\n")
    (folder / "AGENTS.md").symlink_to("/etc/hostname")
    context = ask(loom.new(system="You are an agent."), "fix it", folder)
    notes = "\n".join(context.report.notes)
    assert ".loom.toml:1" in notes
    assert "AGENTS.md was not read: it is a link to a place outside of the project" in notes


def test_a_broken_settings_file_counts_as_it_was_until_it_is_corrected(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sizes = "[context]\nreserved_output_tokens = 3000\n"
    with Loom.open(tmp_path / "loom.db") as loom:
        session = loom.new()
        put(folder, ".loom.toml", f'[rules]\nstyle = "One"\n{sizes}')
        ask(session, "begin", folder, **WIDE)
        put(folder, ".loom.toml", f'[rules]\nstyle = "Two"\n{sizes}')
        changed = ask(session, "go on", folder, **WIDE)
        assert "- Style: Two" in tail(changed)
        put(folder, ".loom.toml", '[rules\nstyle = "Three"\n')
        broken = ask(session, "and on", folder, **WIDE)
        check_prefix(changed, broken)
        assert tail(broken) == tail(changed)
        assert broken.report.reserved_output == 3000
        [note] = broken.report.notes
        assert note.startswith(f"{folder / '.loom.toml'}:1: not valid TOML: ")
        assert "LOOM_IGNORE_PROJECT_FILE=1" in note
        assert note.endswith("; what it said before still counts")
    with Loom.open(tmp_path / "loom.db") as loom:  # after a restart, and in the next epoch
        session = loom.session(session.id)
        assert tail(ask(session, "still there?", folder, **WIDE)) == tail(changed)
        assert "- Style: Two" in tail(ask(session.fork(), "a branch", folder, **WIDE))
        begun = ask(session, "anew", folder, policy="window", **WIDE)
        assert "- Style: Two" in system(begun)
        assert begun.report.reserved_output == 3000
        put(folder, ".loom.toml", '[rules]\nstyle = "Three"\n')
        mended = ask(session, "mended", folder, **WIDE)
        assert "- Style: Three" in tail(mended)
        assert not mended.report.notes
        (folder / ".loom.toml").unlink()
        assert "no longer among the rules" in tail(ask(session, "gone", folder, **WIDE))
        put(folder, ".loom.toml", "[rules")
        assert "no longer among" not in tail(ask(session, "broken again", folder, **WIDE))


def test_with_the_settings_file_ignored_its_rules_are_too(
    loom: Loom, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, ".loom.toml", '[rules\nstyle = "One"\n')
    monkeypatch.setenv("LOOM_IGNORE_PROJECT_FILE", "1")
    assert not ask(loom.new(), "begin", folder, **WIDE).report.notes
    put(folder, ".loom.toml", '[rules]\nstyle = "One"\n')
    assert "- Style: One" not in system(ask(loom.new(), "begin", folder, **WIDE))
    given = make_conversation([], None, None)[0]
    assert not gather_single_rules(check_options(), given, folder)[0]


def test_a_zone_of_0_shows_no_rules_and_no_change_of_them(loom: Loom, folder: Path) -> None:
    put(folder, "CLAUDE.md", "Use tabs in all files of this project.")
    put(folder, "AGENTS.md", "Run the tests before each commit.")
    session = loom.new()
    context = ask(session, "begin", folder, zones={"rules": 0, "memory": 0}, **WIDE)
    assert context.report.notes == (
        "no rules of CLAUDE.md: the zone rules has 0 tokens",
        "no rules of AGENTS.md: the zone memory has 0 tokens",
    )
    put(folder, "CLAUDE.md", "Use blanks in all files of this project.")
    put(folder, "AGENTS.md", "Run the linter before each commit.")
    session.append({"role": "assistant", "content": "Yes."})
    context = ask(session, "go on", folder, **WIDE)
    assert context.report.epoch_reason == "continued"
    assert tail(context) == ""
    session.append({"role": "assistant", "content": "Yes."})
    context = ask(session, "go on", folder, zones={"rules": 500, "memory": 0}, **WIDE)
    assert "blanks" in tail(context)
    assert "linter" not in str(context.openai())


def test_rules_of_a_project_that_is_named_late_are_not_said_to_have_changed(
    loom: Loom, folder: Path
) -> None:
    put(folder, "CLAUDE.md", "Use tabs in all files of this project.")
    session = loom.new()
    asyncio.run(session.prepare("begin", model="gpt-4o", window=32_000))
    session.append({"role": "assistant", "content": "Yes."})
    said = tail(ask(session, "go on", folder))
    assert FOUND in said
    assert "Use tabs" in said
    assert "changed" not in said


def test_zones_without_room_are_told_of_in_one_note_each(loom: Loom, folder: Path) -> None:
    put(folder, ".loom.toml", '[rules]\nstyle = "One"\n')
    put(folder, "LOOM.md", "Be careful.\n\n## Rules\n- Use ruff\n\n## Denied\n- shell: git push\n")
    put(folder, "CLAUDE.md", "Use tabs in all files of this project.")
    put(folder, "AGENTS.md", "Run the tests before each commit.")
    zones = {"rules": 1, "memory": 1}
    notes = ask(loom.new(), "go", folder, zones=zones, **WIDE).report.notes
    about = [note for note in notes if note.startswith("no room in the zone ")]
    assert len(about) == 2
    assert len(notes) == 2
    assert about[0].startswith("no room in the zone rules for rules of .loom.toml (about ")


def test_a_tree_has_the_rules_too(loom: Loom, folder: Path) -> None:
    put(folder, "CLAUDE.md", "Use tabs.")
    tree = loom.new_tree("a title")
    tree.say("hello")
    context = asyncio.run(tree.prepare(project=folder, model="gpt-4o"))
    assert "Use tabs." in system(context)


def test_a_single_request_has_the_rules_too(folder: Path) -> None:
    put(folder, "CLAUDE.md", "Use tabs.")
    options = check_options(model="gpt-4o")
    given, _ = make_conversation([{"role": "user", "content": "hello"}], "Be brief.", None)
    sections, notes = gather_single_rules(options, given, folder)
    assert notes == []
    assert "Use tabs." in system(weave(given, model="gpt-4o", sections=sections))


def test_files_that_did_not_change_are_not_read_again(
    loom: Loom, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.project.rules import reading

    put(folder, "CLAUDE.md", "Use tabs.")
    os.utime(folder / "CLAUDE.md", (1, 1))
    monkeypatch.setattr(reading, "_SETTLED_SECONDS", -1e9)
    session = loom.new(system="You are an agent.")
    ask(session, "one", folder)
    monkeypatch.setattr(reading, "_read", lambda *_: pytest.fail("read again"))
    ask(session, "two", folder)


def test_a_folder_that_is_no_longer_at_work_keeps_its_rules_in_the_epoch(
    loom: Loom, folder: Path
) -> None:
    put(folder, "src/AGENTS.md", "Validate all input.")
    put(folder, "web/AGENTS.md", "Pages load fast.")
    session = loom.new(system="You are an agent.")
    first = ask(session, "fix src/a.py", folder)
    for n in range(3):
        session.append({"role": "assistant", "content": f"done {n}"})
        context = ask(session, f"now web/b{n}.py", folder)
        check_prefix(first, context)
        assert "no longer among the rules" not in tail(context)
        assert "Pages load fast." in tail(context)


def test_a_file_that_is_renamed_or_copied_is_no_news(loom: Loom, folder: Path) -> None:
    put(folder, "AGENTS.md", "Run the tests before you commit anything.")
    session = loom.new(system="You are an agent.")
    first = ask(session, "one", folder)
    session.append({"role": "assistant", "content": "done"})
    (folder / "AGENTS.md").rename(folder / "CLAUDE.md")
    renamed = ask(session, "two", folder)
    check_prefix(first, renamed)
    assert "Rules of the project changed" not in tail(renamed)
    put(folder, "AGENTS.md", "Run the tests twice.")
    put(folder, "CLAUDE.md", "Run the tests twice.")
    session.append({"role": "assistant", "content": "done"})
    changed = ask(session, "three", folder)
    check_prefix(renamed, changed)
    assert tail(changed).count("Run the tests twice.") == 1


def test_what_a_file_that_is_gone_said_is_told_again_where_another_says_it(
    loom: Loom, folder: Path
) -> None:
    rule = "Every change has a test, a line in the change log and a page of documentation."
    put(folder, "CLAUDE.md", rule)
    session = loom.new(system="You are an agent.")
    ask(session, "one", folder)
    session.append({"role": "assistant", "content": "done"})
    (folder / "CLAUDE.md").unlink()
    put(folder, "AGENTS.md", f"{rule}\n\nBe brief.")
    said = tail(ask(session, "two", folder))
    assert "CLAUDE.md is no longer among the rules" in said
    assert rule in said


def test_a_zone_of_no_tokens_switches_rules_off(loom: Loom, folder: Path) -> None:
    put(folder, "CLAUDE.md", "Use tabs.")
    put(folder, "AGENTS.md", "Run the tests.")
    zones = {"rules": 0, "memory": 0}
    context = ask(loom.new(system="You are an agent."), "fix it", folder, zones=zones)
    assert "tabs" not in system(context)
    assert "tests" not in system(context)


@pytest.mark.parametrize("policy", ["window", "partitions", "turns", "tree", "tasks"])
def test_every_policy_has_the_rules(loom: Loom, folder: Path, policy: str) -> None:
    put(folder, "CLAUDE.md", "Use tabs.")
    put(folder, "AGENTS.md", "Run the tests.")
    session = loom.new(system="You are an agent.")
    first = ask(session, "fix it", folder, policy=policy)
    assert "Use tabs." in system(first)
    assert "Run the tests." in system(first)
    session.append({"role": "assistant", "content": "done"})
    put(folder, "CLAUDE.md", "Use spaces.")
    second = ask(session, "more", folder, policy=policy)
    said = "\n".join(message.text for message in second.conversation.messages)
    assert "Use spaces." in said or "Use spaces." in system(second)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["LOOM.md", "AGENTS.md", "CLAUDE.md", "src/AGENTS.md", ".loom.toml"]),
        st.one_of(
            st.none(),
            st.binary(max_size=200),
            st.lists(
                st.sampled_from(
                    [
                        b"## Rules\n",
                        b"- Keep to it.\n",
                        b"```\n",
                        b"\n",
                        b"word " * 900,
                        b"@LOOM.md\n",
                    ]
                ),
                max_size=8,
            ).map(b"".join),
        ),
    ),
    max_size=6,
)


@settings(max_examples=examples(12), deadline=None)
@given(steps=st.lists(EDITS, min_size=2, max_size=4), window=st.sampled_from([2000, 8000, 64_000]))
def test_the_prefix_stays_whatever_happens_to_the_files(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[list[tuple[str, bytes | None]]],
    window: int,
) -> None:
    base = tmp_path_factory.mktemp("law")
    root = base / "project"
    (root / "src").mkdir(parents=True)
    last: Context | None = None
    with pytest.MonkeyPatch.context() as patch, Loom.open(":memory:") as loom:
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        session = loom.new(system="You are an agent.")
        for n, edits in enumerate(steps):
            for name, content in edits:
                if content is None:
                    (root / name).unlink(missing_ok=True)
                else:
                    (root / name).write_bytes(content)
            context = ask(session, f"step {n} of src/a.py", root, window=window)
            report = context.report
            assert report.input_tokens <= report.usable
            assert report.zones.get("rules_update", {"used": 0})["used"] <= 1024
            if last is not None and report.epoch == last.report.epoch:
                check_prefix(last, context)
            last = context
            session.append({"role": "assistant", "content": "done"})
    assert last is not None
    assert window == 2000 or last.report.epoch == 0


def test_a_line_that_changes_takes_none_of_its_neighbours_along(loom: Loom, folder: Path) -> None:
    put(folder, "AGENTS.md", "Use tabs everywhere.\nNever commit on Fridays.\n")
    session = loom.new()
    ask(session, "one", folder)
    session.append({"role": "assistant", "content": "done"})
    put(folder, "AGENTS.md", "Use blanks everywhere.\nNever commit on Fridays.\n")
    said = tail(ask(session, "two", folder))
    assert "Use blanks everywhere." in said
    assert '"Use tabs everywhere."' in said
    assert "Fridays" not in said


RULES = "\n".join(f"- Rule {n}: write the test of part {n} first." for n in range(30))
AGENTS = f"# Rules\n\n{RULES}"
CARRIED = f"# AGENTS.md instructions\n\n<INSTRUCTIONS>\n{AGENTS}\n</INSTRUCTIONS>"
NOT_REPEATED = "AGENTS.md: a message of the conversation has the same text already"


def test_rules_that_a_message_carries_are_not_repeated(loom: Loom, folder: Path) -> None:
    put(folder, "AGENTS.md", AGENTS)
    session = loom.new()
    session.append({"role": "user", "content": CARRIED})
    first = ask(session, "Fix the pump.", folder, **WIDE)
    assert "Rule 7" not in system(first)
    assert NOT_REPEATED in first.report.notes
    put(folder, "AGENTS.md", AGENTS.replace("Rule 7: write", "Rule 7: never write"))
    changed = ask(session, "Go on.", folder, **WIDE)
    check_prefix(first, changed)
    assert 'No longer in it: "- Rule 7: write the test of part 7 first."' in tail(changed)
    assert "- Rule 7: never write" in tail(changed)
    assert "Rule 6" not in tail(changed)


@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_only_users_and_system_messages_carry_rules(loom: Loom, folder: Path, role: str) -> None:
    put(folder, "AGENTS.md", AGENTS)
    session = loom.new()
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    said: dict[str, Any] = {"role": role, "content": CARRIED}
    if role == "tool":
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said["tool_call_id"] = "1"
    session.append(said)
    assert "Rule 7" in system(ask(session, "Fix the pump.", folder, **WIDE))


def test_a_message_with_some_of_the_lines_carries_nothing(loom: Loom, folder: Path) -> None:
    put(folder, "AGENTS.md", AGENTS)
    session = loom.new()
    session.append({"role": "user", "content": CARRIED.replace("- Rule 5: write", "- Rule 5: ask")})
    assert "Rule 7" in system(ask(session, "Fix the pump.", folder, **WIDE))


@pytest.mark.parametrize("policy", ["default", "window", "turns", "partitions"])
def test_rules_come_back_when_the_message_that_carries_them_leaves(
    loom: Loom, folder: Path, policy: str
) -> None:
    put(folder, "AGENTS.md", AGENTS)
    session = loom.new()
    session.append({"role": "user", "content": "Build a shop with a cart and a receipt."})
    session.append({"role": "assistant", "content": "I begin."})
    session.append({"role": "user", "content": CARRIED})
    session.append({"role": "assistant", "content": "I will."})
    seen, last = set(), None
    for n in range(16):
        sizes = {"window": 5_000, "reserve_output": 500}
        request = f"Request {n}. {'word ' * 300}"
        context = ask(session, request, folder, policy=policy, **sizes)
        history = "\n".join(message.text for message in context.conversation.messages)
        is_carried, is_written = AGENTS in history, "- Rule 0:" in system(context)
        assert is_carried or is_written
        if is_carried:
            assert (NOT_REPEATED in context.report.notes) is not is_written
        if last is not None and context.report.epoch == last.report.epoch:
            check_prefix(last, context)
        seen.add((is_carried, is_written))
        last = context
        session.append({"role": "assistant", "content": "done " * 100})
    assert {(True, False), (False, True)} <= seen


def test_single_requests_do_not_repeat_rules_that_a_message_carries(
    folder: Path, tmp_path: Path
) -> None:
    put(folder, "AGENTS.md", AGENTS)
    carrying = {"role": "user", "content": CARRIED}
    built = ContextWindow.build_messages([carrying], "Be brief.", project_path=folder)
    assert "Rule 7" not in built[0]["content"]
    assert NOT_REPEATED in built.context.report.notes
    more = [{"role": "user", "content": f"Request {n}. {'word ' * 300}"} for n in range(30)]
    many = [more[0], carrying, *more]
    built = ContextWindow.build_messages(many, "Be brief.", project_path=folder, max_tokens=5000)
    assert AGENTS in built[0]["content"]
    assert NOT_REPEATED not in built.context.report.notes
    for messages, window in (([carrying], "64000"), (many, "5000")):
        path = tmp_path / "asking.json"
        path.write_text(json.dumps({"model": "gpt-4o", "messages": messages}))
        given = ["weave", str(path), "--project", str(folder), "--window", window, "--json"]
        done = CliRunner().invoke(cli, [*given, "--reserve", "500"])
        assert done.exit_code == 0, done.output
        assert done.stdout.count("- Rule 7:") == 1
