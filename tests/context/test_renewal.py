"""Renewal: which files were written, what is handed over, how the document reads, and that working
state comes back exactly.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Message, Text, ToolCall, ToolResult, read_runs
from loom.context.state import renewal
from loom.context.state.renewal import (
    Handoff,
    artifacts,
    pending,
)
from loom.context.state.working import Dashboard, Evidence, Incident, Working
from loom.conversation.canonical import from_json, to_json
from loom.dialects.repair import UNANSWERED
from loom.errors import ChoiceError
from tests.shared import AGENTS, FIXTURES, examples, needs_shared
from tests.strategies import broken_histories


def called(name: str, arguments: Any, identity: str = "c", kind: str = "function") -> Message:
    text = arguments if isinstance(arguments, str) else to_json(arguments)
    return Message("assistant", (ToolCall(identity, name, text, kind),))


def answered(text: str = "ok", identity: str = "c", error: bool = False) -> Message:
    return Message("tool", (ToolResult(identity, (Text(text),), error),))


def said(text: str, role: Any = "assistant") -> Message:
    return Message(role, (Text(text),))


def wrote(name: str, arguments: Any, kind: str = "function") -> tuple[str, ...]:
    """The files that one call wrote."""
    return artifacts([called(name, arguments, kind=kind), answered()])


# Which files were written


@pytest.mark.parametrize(
    ("name", "arguments", "files"),
    [
        ("write", {"path": "a.py", "content": "x"}, "a.py"),
        ("edit", {"path": "a.py", "oldText": "x", "newText": "y"}, "a.py"),
        ("Write", {"file_path": "a.py", "content": "x"}, "a.py"),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, "a.py"),
        (
            "MultiEdit",
            {"file_path": "a.py", "edits": [{"old_string": "x", "new_string": "y"}]},
            "a.py",
        ),
        ("NotebookEdit", {"notebook_path": "a.ipynb", "new_source": "x"}, "a.ipynb"),
        ("create_file", {"filePath": "a.py", "content": "x"}, "a.py"),
        ("insert_edit_into_file", {"filePath": "a.py", "code": "x"}, "a.py"),
        ("edit_file", {"target_file": "a.py", "code_edit": "x"}, "a.py"),
        ("write_to_file", {"TargetFile": "a.py", "CodeContent": "x"}, "a.py"),
        ("search_replace", {"file_path": "a.py"}, "a.py"),
        ("replace", {"file_path": "a.py", "old_string": "x", "new_string": "y"}, "a.py"),
        ("create_text_file", {"relative_path": "a.py", "content": "x"}, "a.py"),
        ("mcp__filesystem__write_file", {"path": "a.py", "content": "x"}, "a.py"),
        (
            "write_files",
            {"files": [{"path": "a.py", "content": "x"}, {"path": "b.py", "content": "y"}]},
            "a.py b.py",
        ),
        ("apply_diff", {"args": {"file": [{"path": "a.py"}, {"path": "b.py"}]}}, "a.py b.py"),
        ("writefile", {"filename": "./a.py"}, "a.py"),
        (
            "write_json",
            {"path": "a.json", "data": {"path": "not/this", "file": "nor/this"}},
            "a.json",
        ),
        (
            "write",
            {"path": "docs.md", "content": "apply_patch\n*** Begin Patch\n*** Add File: x\n"},
            "docs.md",
        ),
        ("create", {"filename": "żółć/重试.py"}, "żółć/重试.py"),
        # What an editor of several commands does, its command says.
        ("str_replace_based_edit_tool", {"command": "create", "path": "a.py"}, "a.py"),
        ("str_replace_editor", {"command": "str_replace", "path": "a.py"}, "a.py"),
        ("str_replace_editor", {"command": "insert", "path": "a.py"}, "a.py"),
        ("str_replace_editor", {"command": "view", "path": "a.py"}, ""),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}, ""),
        ("memory", {"command": "create", "path": "/memories/a.md"}, "/memories/a.md"),
        ("file", {"operation": "write", "path": "a.py"}, "a.py"),
        ("edit_file", {"operation": "regex", "path": "a.py"}, "a.py"),
        # Moving and copying.
        ("move_file", {"source": "a.py", "destination": "b.py"}, "b.py"),
        ("rename_file", {"old_path": "a.py", "new_path": "b.py"}, "b.py"),
        ("copy_file", {"source": "a.py", "destination": "b.py"}, "b.py"),
        ("rename_symbol", {"relative_path": "a.py", "name_path": "f", "new_name": "g"}, "a.py"),
        # Not writing, or not a file.
        ("read", {"path": "a.py"}, ""),
        ("read_file", {"path": "a.py"}, ""),
        ("bash", {"command": "cat a.py", "path": "a.py"}, ""),
        ("create_directory", {"path": "a"}, ""),
        ("list_edits", {"path": "a.py"}, ""),
        ("TodoWrite", {"todos": [{"content": "write a.py", "status": "pending"}]}, ""),
        ("update_reservation_flights", {"reservation_id": "X", "cabin": "economy"}, ""),
        ("write", {"path": ""}, ""),
        ("write", {"path": 3}, ""),
        ("write", {"path": "x" * 5000}, ""),
        ("write", {"path": "a\nb"}, ""),
        ("write", '{"path": "a.p', ""),
        ("write", "[1, 2]", ""),
    ],
)
def test_what_a_call_wrote_is_told_by_its_name_and_arguments(
    name: str, arguments: Any, files: str
) -> None:
    assert wrote(name, arguments) == tuple(files.split())


PATCH = (
    "*** Begin Patch\n*** Add File: new.py\n+x\n*** Update File: src/old name.py\n@@\n-a\n+b\n*** "
    "End Patch"
)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("apply_patch", PATCH, "custom"),
        ("apply_patch", {"input": PATCH}, "function"),
        ("applypatch", {"patch": PATCH}, "function"),
        ("shell", {"command": ["apply_patch", PATCH]}, "function"),
        ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}, "function"),
        ("exec", "await tools.apply_patch(" + to_json(PATCH) + ");", "custom"),
    ],
)
def test_a_patch_tells_its_files_wherever_it_stands(name: str, arguments: Any, kind: str) -> None:
    assert wrote(name, arguments, kind) == ("new.py", "src/old name.py")


def test_a_patch_that_is_only_looked_at_writes_nothing() -> None:
    assert wrote("shell", {"command": f"cat <<'EOF'\n{PATCH}\nEOF"}) == ()


def test_a_patch_may_delete_and_move() -> None:
    gone = (
        "*** Begin Patch\n*** Delete File: a.py\n*** Update File: b.py\n*** Move to: "
        "c.py\n@@\n-x\n+y\n*** End Patch"
    )
    history = [called("write", {"path": path}) for path in ("a.py", "b.py")]
    said = [message for call in history for message in (call, answered())]
    assert artifacts([*said, called("apply_patch", gone, kind="custom"), answered()]) == ("c.py",)


def test_what_was_deleted_is_no_artifact_and_a_few_lines_are_no_file() -> None:
    said = [called("write", {"path": "a.py"}), answered()]
    for name, arguments, left in (
        ("delete_file", {"path": "a.py"}, ()),
        ("memory", {"command": "delete", "path": "./a.py"}, ()),
        ("delete_lines", {"path": "a.py"}, ("a.py",)),
    ):
        assert artifacts([*said, called(name, arguments), answered()]) == left


@pytest.mark.parametrize(
    "result",
    [
        answered("Successfully wrote 3 bytes", error=True),
        answered("Error: no such text in a.py"),
        answered("<tool_use_error>File has not been read yet.</tool_use_error>"),
        answered("Failed to apply the edit"),
        answered("Exit code: 1\nWall time: 0 seconds\nOutput:\n"),
        answered("Chunk ID: 3\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\n"),
        answered('{"output":"","metadata":{"exit_code":1,"duration_seconds":0.1}}'),
        answered("No replacement was performed, old_str did not appear verbatim in a.py."),
        answered(UNANSWERED),
        answered(identity="another"),
    ],
)
def test_a_call_that_failed_or_was_never_answered_wrote_nothing(result: Message) -> None:
    assert artifacts([called("write", {"path": "a.py"}), result]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Wrote errors.py",
        "error_handler.py was written",
        "Exit code: 0\nWall time: 0 seconds",
        '{"exit_code": 0}',
    ],
)
def test_a_result_that_names_errors_need_not_be_one(text: str) -> None:
    assert artifacts([called("write", {"path": "a.py"}), answered(text)]) == ("a.py",)


def test_each_file_is_told_once_the_one_written_last_at_the_end() -> None:
    history = []
    for path in ("a.py", "b.py", "./a.py"):
        history += [called("write", {"path": path}), answered()]
    assert artifacts(iter(history)) == ("b.py", "a.py")
    for number in range(100):
        history += [
            called("write", {"path": f"{number}.py"}, "same id each time"),
            answered(identity="same id each time"),
        ]
    assert artifacts(history) == tuple(f"{number}.py" for number in range(60, 100))


def test_an_editor_with_an_open_file_writes_that() -> None:
    opened = [called("open", {"path": "a.py"}), answered()]
    edited = [called("edit", {"search": "x", "replace": "y"}), answered()]
    assert artifacts([*opened, *edited]) == ("a.py",)
    assert artifacts(edited) == ()


def test_recorded_sessions_tell_their_files() -> None:
    [run] = read_runs(str(FIXTURES / "codex_patch.jsonl"))
    assert artifacts(run.messages()) == ("beta.txt",)
    [run] = read_runs(str(FIXTURES / "cc_parallel_thinking.jsonl"))
    assert artifacts(run.messages()) == ()


@needs_shared
def test_a_real_coding_session_tells_exactly_the_files_that_its_tools_say_they_wrote() -> None:
    [run] = read_runs(str(AGENTS / "pi_large_session.jsonl"))
    calls: dict[str, ToolCall] = {}
    written = set()
    for message in run.messages():
        calls |= {call.id: call for call in message.calls}
        for result in message.results:
            text = (
                result.parts[0].text if result.parts and isinstance(result.parts[0], Text) else ""
            )
            if text.startswith(("Successfully replaced", "Successfully wrote")):
                written.add(from_json(calls[result.call_id].arguments)["path"])
    assert set(artifacts(run.messages())) == written
    assert len(written) == 23
    [run] = read_runs(str(AGENTS / "sweagent_function_calling_simple.traj"))
    assert artifacts(run.messages()) == ("tests/missing_colon.py",)
    for run in read_runs(str(AGENTS / "taubench_airline_60.json")):
        assert artifacts(run.messages()) == (), "reservations are no files"


# Which calls wait


def test_calls_wait_until_they_are_answered_or_the_model_goes_on() -> None:
    both = Message(
        "assistant", (ToolCall("a", "bash", '{"command": "make"}'), ToolCall("b", "read", "{}"))
    )
    assert pending([both]) == ('bash {"command": "make"}', "read {}")
    assert pending([both, answered(identity="b")]) == ('bash {"command": "make"}',)
    assert pending([both, said("Go on.", "user")]) == ('bash {"command": "make"}', "read {}"), (
        "nobody answered yet"
    )
    assert pending([both, answered(UNANSWERED, "a"), answered(identity="b")]) == (
        'bash {"command": "make"}',
    )
    assert pending([both, said("Go on.", "user"), said("Fine.")]) == ()
    assert pending([called("bash", "{}", "a"), called("read", "{}", "b")]) == (
        "bash {}",
        "read {}",
    ), "one answer in two messages"
    assert pending([both, answered(identity="b"), called("bash", "{}", "c")]) == ("bash {}",)


def test_what_waits_is_told_in_a_few_words() -> None:
    calls = [
        ToolCall(f"c{n}", "write", to_json({"path": "a", "content": "line\n" * 10_000}))
        for n in range(50)
    ]
    told = pending([Message("assistant", tuple(calls))])
    assert len(told) == renewal.MAX_PENDING_CALLS
    assert all(len(line) <= renewal.MAX_CALL_CHARS and "\n" not in line for line in told)


@pytest.mark.parametrize("name", ["cc_interrupted.jsonl", "codex_interrupted.jsonl"])
def test_a_recorded_session_that_was_interrupted_has_a_call_that_waits(name: str) -> None:
    [run] = read_runs(str(FIXTURES / name))
    [call] = pending(run.messages())
    assert "sleep 30" in call


# What is handed over


def test_what_the_model_thinks_of_its_progress_comes_first() -> None:
    history = [
        said("Do it.", "user"),
        said("I begin."),
        called("bash", "{}"),
        answered("done"),
        said(" \n"),
    ]
    full = Working().assess(progress="half done", scratchpad="the cache?")
    assert Handoff.make(full, "g", history, 1, 0, "from a cover").progress_summary == "half done"
    assert (
        Handoff.make(
            Working().assess(scratchpad="the cache?"), "g", history, 1, 0, "from a cover"
        ).progress_summary
        == "the cache?"
    )
    assert (
        Handoff.make(Working(), "g", history, 1, 0, "from a cover").progress_summary
        == "from a cover"
    )
    assert Handoff.make(Working(), "g", history, 1, 0).progress_summary == "I begin."
    assert Handoff.make(Working(), "g", [], 1, 0).progress_summary == ""


def test_a_handoff_holds_what_the_seed_names() -> None:
    board = Dashboard(rho=0.934, error_count=2, depth=1)
    history = [
        said("Do it.", "user"),
        called("write", {"path": "a.py"}),
        answered(),
        called("bash", {"command": "make"}),
    ]
    made = Handoff.make(
        Working(dashboard=board, plan=("test", "ship")), "Do it.", history, 3, 1_700_000_000_000
    )
    assert made == Handoff(
        goal="Do it.",
        sprint=3,
        progress_summary="",
        produced_artifacts=("a.py",),
        open_tasks=("test", "ship"),
        pending=('bash {"command":"make"}',),
        rho=0.934,
        error_count=2,
        depth=1,
        handoff_ts=1_700_000_000_000,
    )


def test_however_much_there_is_a_handoff_stays_small() -> None:
    long = "word " * 50_000
    state = Working(dashboard=Dashboard(goal_progress=long), plan=(long,) * 500, scratchpad=long)
    history = []
    for number in range(200):
        history += [called("write", {"path": f"{'d' * 300}/{number}"}), answered(), said(long)]
    made = Handoff.make(state, long, history, 1, 0, long)
    assert (len(made.goal), len(made.progress_summary)) == (
        renewal.MAX_GOAL_CHARS,
        renewal.MAX_PROGRESS_CHARS,
    )
    assert made.goal.endswith("…")
    assert len(made.to_system_prompt()) < 30_000


@given(broken_histories)
@settings(max_examples=examples(60))
def test_of_any_history_a_handoff_can_be_made(history: list[Message]) -> None:
    made = Handoff.make(Working(), "Do it.", history, 1, 0)
    assert (made.produced_artifacts, made.pending) == (artifacts(history), pending(history))
    assert from_json(to_json(made))["goal"] == "Do it."
    assert made.to_system_prompt().startswith("# Handoff Document (Sprint 1)\n")


def test_the_document_reads_as_the_seed_has_it() -> None:
    made = Handoff(
        goal="Fix the login.\nIt fails after an hour.",
        sprint=3,
        progress_summary="The cause is found.",
        produced_artifacts=("src/login.py", "tests/test_login.py"),
        open_tasks=("write a test", "fix it"),
        pending=('bash {"command":"make test"}',),
        rho=0.934,
        error_count=2,
        depth=1,
        handoff_ts=1_700_000_000_000,
    )
    assert made.to_system_prompt() == (
        "# Handoff Document (Sprint 3)\n"
        "\n## Goal\nFix the login.\nIt fails after an hour.\n"
        "\n## Progress Summary\nThe cause is found.\n"
        "\n## Produced Artifacts\n- src/login.py\n- tests/test_login.py\n"
        "\n## Open Tasks\n- write a test\n- fix it\n"
        '\n## Pending\n- bash {"command":"make test"}\n'
        "\n## Context Snapshot\n- rho: 0.93\n- error_count: 2\n- depth: 1"
    )


def test_the_document_of_a_session_that_did_nothing_says_so() -> None:
    assert Handoff.make(Working(), "", [], 1, 5).to_system_prompt() == (
        "# Handoff Document (Sprint 1)\n\n## Goal\n(not stated)\n\n## Progress Summary\n(not "
        "assessed)\n"
        "\n## Produced Artifacts\n(none)\n\n## Open Tasks\n(none)\n"
        "\n## Context Snapshot\n- rho: 0.00\n- error_count: 0\n- depth: 0"
    )


def test_the_document_does_not_change_with_the_time() -> None:
    first, second = (
        Handoff.make(Working(), "g", [], 1, at).to_system_prompt() for at in (0, 1_700_000_000_000)
    )
    assert first == second


# As files

numbers = st.integers(0, 2**53)
shares = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=12)
lines = st.lists(texts, max_size=5).map(tuple)
incidents = st.builds(
    Incident,
    event_id=texts,
    type=texts,
    summary=texts,
    urgency=st.sampled_from(["low", "normal", "high", "critical"]),
    count=numbers,
)
boards = st.builds(
    Dashboard,
    rho=shares,
    token_budget=numbers,
    goal_progress=texts,
    error_count=numbers,
    depth=numbers,
    last_hb_ts=numbers,
    interrupt_requested=st.booleans(),
)
states = st.builds(
    Working,
    dashboard=boards,
    plan=lines,
    pending_events=st.lists(incidents, max_size=3).map(tuple),
    active_risks=st.lists(incidents, max_size=3).map(tuple),
    recent_event_decisions=lines,
    active_questions=lines,
    evidence_packs=st.lists(
        st.builds(Evidence, source=texts, title=texts, content=texts, score=shares), max_size=3
    ).map(tuple),
    citations=lines,
    scratchpad=st.text(max_size=40),
)


@given(states)
@settings(max_examples=examples(100))
def test_working_state_comes_back_from_its_files_exactly(state: Working) -> None:
    files = state.to_files()
    assert set(files) == {
        "working_state.json",
        "plan_state.json",
        "event_state.json",
        "knowledge_state.json",
    }
    assert (
        Working.from_files({name: from_json(to_json(content)) for name, content in files.items()})
        == state
    )


def test_the_files_hold_what_the_seed_puts_there() -> None:
    files = Working().to_files()
    assert set(files["working_state.json"]) == {"dashboard", "scratchpad"}
    assert set(files["working_state.json"]["dashboard"]) == set(Dashboard.__struct_fields__)
    assert files["plan_state.json"] == {"plan": ()}
    assert set(files["event_state.json"]) == {
        "pending_events",
        "active_risks",
        "recent_event_decisions",
    }
    assert set(files["knowledge_state.json"]) == {"active_questions", "evidence_packs", "citations"}
    assert {field for content in files.values() for field in content} == set(
        Working.__struct_fields__
    ), "all of it"


def test_of_decisions_the_last_five_are_kept() -> None:
    many = Working(recent_event_decisions=tuple("abcdefg"))
    assert Working.from_files(many.to_files()).recent_event_decisions == tuple("cdefg")


def test_a_missing_file_is_an_empty_part_of_the_state() -> None:
    state = Working().assess(progress="half", plan=["a"], scratchpad="b")
    files = state.to_files()
    del files["plan_state.json"]
    assert Working.from_files(files) == state.assess(plan=[])
    assert Working.from_files({}) == Working()
    assert Working.from_files({"plan_state.json": {}, "notes.json": 3}) == Working()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("working_state.json", {"dashboard": {"rho": "high"}}),
        ("working_state.json", None),
        ("plan_state.json", {"plan": "a step"}),
        ("event_state.json", {"pending_events": [{"summary": "without an id"}]}),
        ("knowledge_state.json", []),
    ],
)
def test_a_broken_file_is_named(name: str, content: Any) -> None:
    with pytest.raises(
        ChoiceError, match=f"^{name} is not a working state: .*; repair or remove it"
    ):
        Working.from_files(Working().to_files() | {name: content})
