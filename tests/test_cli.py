"""The command: argv in, text out. Where a terminal or a stream matters it is another process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loom.cli.main import cli
from loom.dialects import WIRES, dialect
from tests.shared import AGENTS, FIXTURES, needs_shared

LOOM = [sys.executable, "-c", "from loom.cli.main import run; run()"]
BROKEN = {
    "messages": [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a b", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "user", "content": "well?"},
    ]
}


def loom_process(
    *arguments: str | Path, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What the command does in a process of its own."""
    return subprocess.run(
        [*LOOM, *map(str, arguments)],
        capture_output=True,
        text=True,
        input=given,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def loom(
    *arguments: str | Path, given: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What the command does in this process, which starts at once."""
    words = list(map(str, arguments))
    done = CliRunner().invoke(cli, words, input=given, prog_name="loom", env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(BROKEN))
    return path


def test_the_command_does_the_same_in_a_process_of_its_own(broken: Path) -> None:
    here, there = loom("check", broken), loom_process("check", broken)
    assert (here.returncode, here.stdout, here.stderr) == (
        there.returncode,
        there.stdout,
        there.stderr,
    )
    assert here.returncode == 1


def test_check_finds_errors_and_ends_with_status_1(broken: Path) -> None:
    done = loom("check", broken)
    assert done.returncode == 1
    assert "1 error" in done.stdout
    assert "unanswered-call" in done.stdout
    assert "messages[1].tool_calls[0]" in done.stdout
    assert "\x1b[" not in done.stdout, "no colour where there is no terminal"


def test_check_of_a_valid_transcript_ends_with_status_0() -> None:
    done = loom("check", FIXTURES / "cc_parallel_thinking.jsonl")
    assert done.returncode == 0
    assert "no errors" in done.stdout


def test_check_prints_findings_as_json(broken: Path) -> None:
    done = loom("check", broken, "--dialect", "anthropic", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert {finding["rule"] for finding in report["findings"] if finding["level"] == "error"} == {
        "unanswered-call",
        "id-form",
    }
    assert report["errors"] == 2
    assert report["dialect"] == "anthropic"
    for finding in report["findings"]:
        assert set(finding) == {"rule", "level", "place", "text", "way_out"}


@pytest.mark.parametrize("wire", [w.name for w in WIRES])
def test_convert_repairs_into_a_request_that_the_checker_accepts(
    broken: Path, tmp_path: Path, wire: str
) -> None:
    out = tmp_path / "out.json"
    done = loom("convert", broken, "--to", wire, "--repair", "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "unanswered-call" in done.stderr
    assert "call-id" in done.stderr
    body = json.loads(out.read_text())
    assert [f for f in dialect(wire).check(body) if f.level == "error"] == []
    assert loom("check", out).returncode == 0


def test_convert_without_repair_is_faithful(broken: Path) -> None:
    body = json.loads(loom("convert", broken, "--to", "openai").stdout)
    assert body["messages"] == BROKEN["messages"]


def test_convert_json_holds_request_changes_losses_and_ids(broken: Path, tmp_path: Path) -> None:
    report = json.loads(loom("convert", broken, "--to", "anthropic", "--repair", "--json").stdout)
    assert report["request"]["messages"][0] == {"role": "user", "content": "go"}
    assert {change["rule"] for change in report["changes"]} == {"call-id", "unanswered-call"}
    assert list(report["ids"].values()) == ["a b"]
    aside = json.loads(
        loom(
            "convert", broken, "--to", "anthropic", "--repair", "--json", "-o", tmp_path / "o.json"
        ).stdout
    )
    assert "request" not in aside
    assert aside["changes"] == report["changes"]
    document = json.loads(loom("convert", broken, "--to", "document", "--json").stdout)
    assert document["request"].startswith("## user\n\ngo")


def test_convert_reports_what_the_target_cannot_hold() -> None:
    done = loom("convert", FIXTURES / "wire_cc_parallel_thinking.json", "--to", "openai")
    assert done.returncode == 0
    assert "not kept: reasoning of the anthropic wire" in done.stderr
    assert "not kept: the field cache_control" in done.stderr


def test_convert_writes_the_whole_file_or_none(tmp_path: Path) -> None:
    source, out = tmp_path / "a.jsonl", tmp_path / "out.json"
    out.write_text("before")
    source.write_text('{"role":"user","content":"a"}\n' * 500 + '{"role":"us')
    done = loom("convert", source, "--to", "openai", "-o", out)
    assert done.returncode == 2
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.json"]


def test_a_file_may_be_converted_onto_itself(broken: Path) -> None:
    assert loom("convert", broken, "--to", "anthropic", "--repair", "-o", broken).returncode == 0
    assert loom("check", broken).returncode == 0


def test_nothing_left_to_send_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "nothing.json"
    path.write_text('{"messages":[{"role":"user","content":" "}]}')
    done = loom("convert", path, "--to", "anthropic", "--repair")
    assert done.returncode == 2
    assert "nothing is left to send" in done.stderr


def test_standard_input_is_a_file_too(broken: Path) -> None:
    done = loom("check", "-", given=broken.read_text())
    assert done.returncode == 1
    assert "unanswered-call" in done.stdout


def test_show_tells_turns_exchanges_and_sizes() -> None:
    done = loom("show", FIXTURES / "cc_parallel_thinking.jsonl")
    assert done.returncode == 0
    for piece in (
        "Claude Code session",
        "5 messages, 1 turn, 2 exchanges, 2 calls",
        "turn 0",
        "→ Bash",
        "← 1 a",
        "∴ I need two",
    ):
        assert piece in done.stdout
    report = json.loads(loom("show", FIXTURES / "cc_parallel_thinking.jsonl", "--json").stdout)
    assert report["turns"] == [
        {
            "start": 0,
            "messages": 5,
            "exchanges": 2,
            "calls": 2,
            "unanswered": 0,
            "characters": report["characters"],
        }
    ]


def test_show_prints_nothing_that_drives_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    evil = "a\x1b[2Jb\u202ec\x07"
    call = {"id": "a", "type": "function", "function": {"name": evil, "arguments": evil}}
    told = [
        {"role": "user", "name": evil, "content": evil + "宽" * 200},
        {"role": "assistant", "content": evil, "tool_calls": [call]},
    ]
    path.write_text(json.dumps({"model": evil, "messages": told}))
    for arguments in ((), ("--turn", "0")):
        shown = loom("show", path, *arguments).stdout
        assert not {"\x1b", "\u202e", "\x07"} & set(shown)


@needs_shared
def test_several_runs_are_a_list_and_one_is_an_object() -> None:
    tau = AGENTS / "taubench_airline_60.json"
    assert len(json.loads(loom("check", tau, "--json").stdout)) == 60
    assert len(json.loads(loom("show", tau, "--json").stdout)) == 60
    assert len(json.loads(loom("convert", tau, "--to", "responses").stdout)) == 60
    assert json.loads(loom("show", f"{tau}#3", "--json").stdout)["run"] == 3
    assert "#59" in loom("show", tau).stdout


def test_check_sees_what_only_a_whole_request_shows(tmp_path: Path) -> None:
    mark = {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}
    path = tmp_path / "marks.json"
    path.write_text(
        json.dumps(
            {
                "model": "m",
                "max_tokens": 5,
                "system": "s",
                "messages": [{"role": "user", "content": [mark] * 6}],
            }
        )
    )
    assert "too-many-marks" in loom("check", path).stdout
    lines = tmp_path / "marks.jsonl"
    lines.write_text(
        "".join(
            json.dumps({"role": "user", "content": [mark, {"type": "document", "source": {}}]})
            + "\n"
            for _ in range(6)
        )
    )
    assert loom("check", lines).returncode == 1
    assert (
        loom(
            "convert", lines, "--to", "anthropic", "--repair", "-o", tmp_path / "out.json"
        ).returncode
        == 0
    )
    assert loom("check", tmp_path / "out.json").returncode == 0


def test_output_goes_through_links_and_pipes_and_keeps_rights(broken: Path, tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target.json", tmp_path / "link.json", tmp_path / "pipe"
    target.write_text("before")
    target.chmod(0o600)
    link.symlink_to(target)
    assert loom("convert", broken, "--to", "openai", "-o", link).returncode == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())
    assert target.stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert loom("convert", broken, "--to", "openai", "-o", pipe).returncode == 0
    assert json.loads(reader.communicate(timeout=30)[0])
    assert pipe.is_fifo()
    assert (
        "is not a folder"
        in loom("convert", broken, "--to", "openai", "-o", tmp_path / "none" / "x.json").stderr
    )


def test_a_run_of_standard_input_can_be_named(broken: Path) -> None:
    done = loom("check", "-#0", given=broken.read_text())
    assert (done.returncode, "unanswered-call" in done.stdout) == (1, True)
    assert loom("check", "-#4", given=broken.read_text()).returncode == 2


def test_a_turn_that_is_not_there_is_an_error(broken: Path) -> None:
    done = loom("show", broken, "--turn", "99")
    assert done.returncode == 2
    assert "there is no turn 99 of 2" in done.stderr


@pytest.mark.parametrize("command", [("check",), ("show",), ("convert", "--to", "openai")])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing", None),
        ("empty", b""),
        ("binary", b"\x00\x01"),
        ("truncated", b'{"messages":['),
        ("latin", b'{"messages":"\xe9"}'),
        ("deep", b"[" * 99_999),
    ],
)
def test_bad_input_gives_one_line_and_status_2(
    tmp_path: Path, command: tuple[str, ...], name: str, content: bytes | None
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    done = loom(command[0], path, *command[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("loom: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_unknown_dialects_and_options_are_refused(broken: Path) -> None:
    assert loom("check", broken, "--dialect", "klingon").returncode == 2
    assert loom("convert", broken).returncode == 2


def test_output_is_utf_8_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "chinese.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "重试预算 🧵"}]}))
    done = loom(
        "convert", path, "--to", "anthropic", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    assert json.loads(done.stdout)["messages"][0]["content"] == "重试预算 🧵"


def write_lines(path: Path, megabytes: float) -> None:
    """A chat of that size, one message a line."""
    written, n = 0, 0
    with path.open("w") as file:
        while written < megabytes * 2**20:
            call = {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            turn: list[dict[str, Any]] = [
                {"role": "user", "content": f"question {n} " + "word " * 100},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{n}", "content": "result " * 300},
            ]
            text = "".join(json.dumps(message) + "\n" for message in turn)
            file.write(text)
            written, n = written + len(text), n + 1


MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def peak(*arguments: str | Path) -> tuple[int, int]:
    """Exit status and the most memory in MiB. A small process starts the command: a fork counts
    what its parent held.
    """
    command = [sys.executable, "-c", MEASURE, *LOOM, *map(str, arguments)]
    measured = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    status, memory = map(int, measured.stdout.split())
    return status, memory


@pytest.mark.parametrize("megabytes", [24, pytest.param(1024, marks=pytest.mark.long)])
def test_lines_stream_in_bounded_memory(tmp_path: Path, megabytes: int) -> None:
    path = tmp_path / "big.jsonl"
    write_lines(path, megabytes)
    status, memory = peak("check", path)
    assert (status, memory < 80) == (0, True), f"{memory} MiB"
    status, memory = peak(
        "convert", path, "--to", "openai", "--repair", "-o", tmp_path / "out.json"
    )
    assert (status, memory < 80) == (0, True), f"{memory} MiB"
    path.unlink()
