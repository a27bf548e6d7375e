"""Every format is found from its content and read as it was said."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import LoomError, Reasoning, Text, ToolCall, ToolResult, read_runs, repair
from loom.dialects import WIRES, dialect
from loom.transcripts import files
from loom.transcripts.runs import Run
from tests import strategies as our
from tests.shared import AGENTS, FIXTURES, examples, needs_shared


def read(path: Path | str) -> Run:
    [run] = read_runs(str(path))
    return run


def told(run: Run) -> list[str]:
    """A conversation in shorthand: who, and the kinds of what was said."""
    kinds = {Text: "text", ToolCall: "call", ToolResult: "result", Reasoning: "reasoning"}
    return [
        f"{m.role}: {' '.join(kinds.get(type(p), 'other') for p in m.parts)}"
        for m in run.messages()
    ]


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "done"},
]
CLAUDE = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]},
]
ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "done"},
]
SAID = ["user: text", "assistant: call", "tool: result"]


@pytest.mark.parametrize(
    ("values", "wire", "format"),
    [
        ([{"messages": CHAT, "model": "m"}], "openai", "OpenAI chat JSON"),
        ([CHAT], "openai", "OpenAI chat JSON"),
        (CHAT, "openai", "chat JSON lines"),
        (
            [{"messages": CLAUDE, "system": "be brief", "max_tokens": 9}],
            "anthropic",
            "Anthropic messages JSON",
        ),
        ([CLAUDE], "anthropic", "Anthropic messages JSON"),
        (CLAUDE, "anthropic", "chat JSON lines"),
        (
            [{"input": ITEMS, "instructions": "be brief", "model": "m"}],
            "responses",
            "OpenAI responses JSON",
        ),
        ([ITEMS], "responses", "responses items"),
        (ITEMS[1:] + ITEMS[:1], "responses", "responses items"),
        (
            [{"object": "response", "model": "m", "output": ITEMS}],
            "responses",
            "OpenAI responses JSON",
        ),
        ([{"history": CHAT}], "openai", "SWE-agent trajectory"),
        ([{"traj": CHAT, "task_id": 1}], "openai", "tau-bench run"),
    ],
)
def test_a_format_is_found_from_its_content(
    tmp_path: Path, values: list[Any], wire: str, format: str
) -> None:
    run = read(write(tmp_path / "transcript", *values))
    assert (run.wire, run.format) == (wire, format)
    assert sorted(told(run)) == sorted(SAID)
    assert sorted(told(run)) == sorted(SAID), "messages can be read again"


def test_pretty_printed_documents_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        "\ufeff" + json.dumps({"messages": CHAT}, indent=2), encoding="utf-8"
    )
    assert told(read(tmp_path / "a.json")) == SAID


def test_a_file_with_several_runs_gives_all_or_the_one_named(tmp_path: Path) -> None:
    many = write(
        tmp_path / "many.jsonl", {"messages": CHAT}, {"messages": CHAT[:2]}, {"messages": CLAUDE}
    )
    assert [run.number for run in read_runs(str(many))] == [0, 1, 2]
    assert told(read(f"{many}#1")) == ["user: text"]
    as_list = write(tmp_path / "many.json", [{"messages": CHAT}, {"messages": CHAT[:2]}])
    assert told(read(f"{as_list}#1")) == ["user: text"]
    with pytest.raises(LoomError, match=r"has 2 runs; choose #0 to #1, not #7"):
        read(f"{as_list}#7")


def test_a_name_that_holds_a_number_sign_is_a_name(tmp_path: Path) -> None:
    assert told(read(write(tmp_path / "run#1", *CHAT))) == SAID


def test_messages_of_both_forms_may_stand_in_one_file(tmp_path: Path) -> None:
    assert told(read(write(tmp_path / "mixed.jsonl", *CHAT, *CLAUDE))) == SAID + SAID


def test_half_characters_that_programs_leave_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    path.write_text(
        '{"messages":[{"role":"user","content":"cut \\ud83d here, whole \\ud83d\\ude00"}]}'
    )
    assert next(read(path).messages()).text == "cut \ufffd here, whole 😀"


# ── sessions of real clients ─────────────────────────────────────────────────


def test_claude_code_parallel_calls_and_thinking_are_one_message() -> None:
    run = read(FIXTURES / "cc_parallel_thinking.jsonl")
    assert run.format == "Claude Code session"
    assert run.head.model == "claude-opus-4-8"
    assert told(run) == [
        "user: text",
        "assistant: reasoning text call call",
        "tool: result",
        "tool: result",
        "assistant: reasoning text",
    ]
    thought = next(part for m in run.messages() for part in m.parts if isinstance(part, Reasoning))
    assert thought.signature == "c2lnLTE="


def test_claude_code_reads_the_live_branch() -> None:
    texts = [
        m.text for m in read(FIXTURES / "cc_resumed_fork.jsonl").messages() if m.role == "user"
    ]
    assert texts == ["run echo", "a different second question"]


def test_claude_code_results_that_come_while_the_model_still_writes_stay_behind_it(
    tmp_path: Path,
) -> None:
    def line(uuid: str, parent: str | None, kind: str, content: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content} | (
            {"id": "msg_1", "model": "m"} if kind == "assistant" else {}
        )
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "isSidechain": False,
            "message": message,
        }

    call = {"type": "tool_use", "name": "f", "input": {}}
    path = write(
        tmp_path / "s.jsonl",
        line("1", None, "user", "go"),
        line("2", "1", "assistant", [call | {"id": "a"}]),
        line("3", "2", "user", [{"type": "tool_result", "tool_use_id": "a", "content": "A"}]),
        line("4", "2", "assistant", [call | {"id": "b"}]),
        line("5", "4", "user", [{"type": "tool_result", "tool_use_id": "b", "content": "B"}]),
    )
    assert told(read(path)) == [
        "user: text",
        "assistant: call call",
        "tool: result",
        "tool: result",
    ]


def test_a_killed_claude_code_session_ends_in_an_unanswered_call() -> None:
    for name in ("cc_interrupted", "cc_interrupted_resumed"):
        mended = repair(read(FIXTURES / f"{name}.jsonl").conversation())
        assert [change.rule for change in mended.changes] == ["unanswered-call"]


def test_a_compaction_is_not_told_twice() -> None:
    texts = [m.text for m in read(FIXTURES / "cc_compacted.jsonl").messages() if m.role == "user"]
    assert texts[0] == "run echo"
    assert not any("characters of client text" in text and "summary" in text for text in texts)


def test_a_sub_agent_of_claude_code_is_a_run_of_its_own(tmp_path: Path) -> None:
    [inner] = (FIXTURES / "cc_subagent").rglob("*.jsonl")
    assert told(read(inner))[0] == "user: text"
    both = tmp_path / "both.jsonl"
    both.write_text((FIXTURES / "cc_subagent.jsonl").read_text() + inner.read_text())
    assert [run.name for run in read_runs(str(both))] == ["", "a sub-agent"]


def test_each_sub_agent_of_claude_code_is_read_where_lines_do_not_name_it(tmp_path: Path) -> None:
    def line(uuid: str, parent: str | None, kind: str, text: str, side: bool) -> dict[str, Any]:
        message = {"role": kind, "content": text}
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "isSidechain": side,
            "message": message,
        }

    path = write(
        tmp_path / "s.jsonl",
        line("a1", None, "user", "main task", False),
        line("b1", None, "user", "first agent", True),
        line("c1", "a1", "user", "second agent", True),
        line("b2", "b1", "assistant", "first answer", True),
        line("c2", "c1", "assistant", "second answer", True),
        line("a2", "a1", "assistant", "main answer", False),
    )
    assert [[message.text for message in run.messages()] for run in read_runs(str(path))] == [
        ["main task", "main answer"],
        ["first agent", "first answer"],
        ["second agent", "second answer"],
    ]


def test_codex_items_are_read_once() -> None:
    run = read(FIXTURES / "codex_parallel_reasoning.jsonl")
    assert (run.format, run.wire, run.head.model) == ("Codex session", "responses", "gpt-5.1-codex")
    assert [line for line in told(run) if not line.startswith(("user", "system", "developer"))] == [
        "assistant: reasoning call call",
        "tool: result",
        "tool: result",
        "assistant: reasoning text",
    ]


def test_codex_custom_tools_are_calls() -> None:
    calls = [call for m in read(FIXTURES / "codex_patch.jsonl").messages() for call in m.calls]
    assert [(call.kind, call.name) for call in calls] == [("custom", "apply_patch")]
    assert calls[0].arguments.startswith("*** Begin Patch")


def test_pi_sessions_follow_the_branch_of_the_last_record(tmp_path: Path) -> None:
    def entry(id: str, parent: str | None, text: str) -> dict[str, Any]:
        return {
            "type": "message",
            "id": id,
            "parentId": parent,
            "message": {"role": "user", "content": text},
        }

    path = write(
        tmp_path / "pi.jsonl",
        {"type": "session", "version": 3, "id": "s", "cwd": "/"},
        entry("1", None, "first"),
        entry("2", "1", "left"),
        entry("3", "1", "right"),
    )
    assert [m.text for m in read(path).messages()] == ["first", "right"]


# ── the shared files ─────────────────────────────────────────────────────────


@needs_shared
@pytest.mark.parametrize("path", sorted(AGENTS.glob("*")), ids=lambda path: path.name)
def test_every_shared_file_is_read_and_mended(path: Path) -> None:
    for run in read_runs(str(path)):
        mended = repair(run.conversation())
        for wire in WIRES:
            findings = wire.check(wire.render(mended.conversation).wire)
            assert [f for f in findings if f.level == "error"] == []


@needs_shared
def test_the_18_unanswered_calls_of_the_pi_session_are_found_and_answered() -> None:
    run = read(AGENTS / "pi_large_session.jsonl")
    conversation = run.conversation()
    assert len(conversation.messages) == 914
    assert sum(len(m.calls) for m in conversation.messages) == 391
    wire = dialect(run.wire)
    findings = wire.check(wire.render(conversation).wire)
    assert sum(f.rule == "unanswered-call" for f in findings) == 18
    assert sum(change.rule == "unanswered-call" for change in repair(conversation).changes) == 18


@needs_shared
def test_tau_bench_gives_60_runs() -> None:
    runs = list(read_runs(str(AGENTS / "taubench_airline_60.json")))
    assert len(runs) == 60
    assert (
        sum(1 for run in runs for _ in run.messages()) + sum(len(run.head.system) for run in runs)
        == 1700
    )


# ── what cannot be read ──────────────────────────────────────────────────────

BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n", "is empty"),
    "binary": (b"\x89PNG\x00\x01", "is binary: byte 4"),
    "utf-16": ('{"messages":[]}'.encode("utf-16"), "is UTF-16"),
    "latin-1": (b'{"messages":[{"role":"user","content":"caf\xe9"}]}', "is not UTF-8: byte 42"),
    "latin-1 far in": (
        b'{"role":"user","content":"a"}\n' * 3000 + b'{"role":"user","content":"\xe9"}',
        "line 3001: not UTF-8",
    ),
    "truncated": (b'{"messages":[{"role":"user","con', "line 1, column .*: not valid JSON"),
    "truncated lines": (b'{"role":"user","content":"a"}\n{"role":"us', "line 2: not valid JSON"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "deep inside": (
        b'{"messages":[{"role":"user","content":"x","y":' + b"[" * 985 + b"]" * 985 + b"}]}",
        "nested too deeply",
    ),
    "prose": (b"Dear diary", "begins with 'Dear diary'. Looked for OpenAI chat"),
    "another object": (b'{"a":1}', "an object with the keys a. Looked for"),
    "numbers": (b"[1,2]", "a list that begins with 1. Looked for"),
    "an empty list": (b"[]", "an empty list"),
    "messages of another kind": (b'{"messages":"x"}', "an object with the keys messages"),
    "an unknown role": (
        b'{"messages":[{"role":"wizard","content":"x"}]}',
        r"messages\[0\].role: expected one of .* found the text 'wizard'",
    ),
    "a bad line": (
        b'{"role":"user","content":"a"}\n{"role":"user","content":5}\n',
        "line 2: message.content: expected a text or a list",
    ),
    "NaN": (b'{"messages":[{"role":"user","content":NaN}]}', "not valid JSON: NaN is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_in_one_line_that_says_where(
    tmp_path: Path, name: str
) -> None:
    content, reason = BAD[name]
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(LoomError, match=reason) as caught:
        _ = [list(run.messages()) for run in read_runs(str(path))]
    assert re.match(r"[^\n]+$", str(caught.value))


def test_an_unknown_file_is_told_every_format_that_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}')
    with pytest.raises(LoomError) as caught:
        read(path)
    assert str(caught.value).endswith(
        "Looked for OpenAI chat or Anthropic messages (JSON or JSON lines), OpenAI responses items,"
        " a session of aider, Claude Code, Codex, Loom or pi, an SWE-agent trajectory, tau-bench "
        "runs, trees of Loom, a ChatGPT export, a Claude.ai export, OpenAssistant trees, a Gemini "
        "CLI session"
    )


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoomError, match="does not exist"):
        read(tmp_path / "missing.json")
    with pytest.raises(LoomError, match="is a folder"):
        read(tmp_path)


def test_a_document_past_the_limit_is_refused_and_the_limit_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "big.json"
    with path.open("w") as file:
        file.write('{"messages":[\n')
        for _ in range(70):
            file.write(json.dumps({"role": "user", "content": "x" * 2**20}) + ",\n")
        file.write('{"role":"user","content":"x"}]}')
    with pytest.raises(
        LoomError, match="is one JSON document of 70 MiB; the limit for one document is 64 MiB"
    ):
        read(path)


def test_a_line_past_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_DOCUMENT", 1000)
    path = write(tmp_path / "a.jsonl", *CHAT, {"role": "user", "content": "x" * 2000})
    with pytest.raises(LoomError, match="line 5: longer than"):
        list(read(path).messages())


SESSIONS = [*sorted(FIXTURES.glob("*.jsonl")), *sorted(FIXTURES.glob("wire_*.json"))]


@settings(max_examples=examples(150))
@given(data=st.data())
def test_no_damage_to_a_file_makes_more_than_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    source = data.draw(st.sampled_from(SESSIONS))
    values = (
        [json.loads(line) for line in source.read_text().splitlines()]
        if source.suffix == ".jsonl"
        else [json.loads(source.read_text())]
    )
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] = data.draw(our.damaged(values[at]))
    path = write(tmp_path_factory.getbasetemp() / "damaged", *values)
    with contextlib.suppress(LoomError):
        for run in read_runs(str(path)):
            repair(run.conversation())


@pytest.mark.parametrize(
    ("request_body", "wire"),
    [
        (
            {
                "model": "m",
                "max_tokens": 9,
                "tools": [{"name": "x", "input_schema": {}}],
                "messages": CHAT[1:2],
            },
            "anthropic",
        ),
        ({"model": "m", "top_k": 9, "thinking": {"type": "enabled"}, "messages": CHAT}, "openai"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
                        ],
                    }
                ]
            },
            "anthropic",
        ),
    ],
)
def test_the_wire_of_a_request_is_told_by_what_only_it_has(
    tmp_path: Path, request_body: Any, wire: str
) -> None:
    assert read(write(tmp_path / "request", request_body)).wire == wire


def test_answers_of_providers_and_lone_messages_are_read(tmp_path: Path) -> None:
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "usage": {},
    }
    assert told(read(write(tmp_path / "a", answer))) == ["assistant: text"]
    completion = {
        "object": "chat.completion",
        "choices": [{"message": {"role": "assistant", "content": "hi"}}],
    }
    assert told(read(write(tmp_path / "b", completion))) == ["assistant: text"]
    assert told(read(write(tmp_path / "c", CHAT[1]))) == ["user: text"]


def test_claude_code_lines_without_message_ids_stay_apart(tmp_path: Path) -> None:
    def line(uuid: str, parent: str | None, kind: str, content: Any) -> dict[str, Any]:
        return {
            "type": kind,
            "uuid": uuid,
            "parentUuid": parent,
            "sessionId": "s",
            "message": {"role": kind, "content": content},
        }

    path = write(
        tmp_path / "s.jsonl",
        line("1", None, "assistant", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        line("2", "1", "user", [{"type": "tool_result", "tool_use_id": "a", "content": "A"}]),
        line("3", "2", "assistant", [{"type": "text", "text": "done"}]),
    )
    assert told(read(path)) == ["assistant: call", "tool: result", "assistant: text"]


def test_a_bad_codex_item_is_named_by_line_and_field(tmp_path: Path) -> None:
    items = [
        {"type": "session_meta", "payload": {}},
        {"type": "response_item", "payload": {"type": "function_call", "call_id": "a"}},
    ]
    with pytest.raises(LoomError, match="line 2: name: expected a text, found nothing"):
        list(read(write(tmp_path / "c.jsonl", *items)).messages())
