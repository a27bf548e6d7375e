"""The commands that weave, explain, count and budget, run as their users run them."""

import json
from pathlib import Path
from typing import Any

import pytest

from loom.dialects import WIRES
from tests.shared import AGENTS, FIXTURES, needs_shared
from tests.test_cli import loom

SESSION = FIXTURES / "cc_parallel_thinking.jsonl"
SONNET = "anthropic:claude-sonnet-4-6"
REPORT = {
    "window",
    "reserved_output",
    "input_tokens",
    "pressure",
    "truncated",
    "dropped",
    "zones",
    "items",
    "notes",
}


@pytest.fixture(autouse=True)
def no_models_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOOM_MODELS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Fifty questions, each with a call and a result, of a model whose tokenizer is public."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "The goal: count all words."}]
    for n in range(50):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "count", "arguments": json.dumps({"text": f"page {n}"})},
        }
        messages += [
            {"role": "assistant", "content": f"Now page {n}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"line {n} " * 60},
        ]
    path = tmp_path / "long.json"
    path.write_text(
        json.dumps(
            {"model": "gpt-4o", "messages": [*messages, {"role": "user", "content": "How many?"}]}
        )
    )
    return path


def report_of(*arguments: str | Path, **environment: str) -> Any:
    done = loom(*arguments, "--json", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*arguments: str | Path, **environment: str) -> str:
    """The one line with which a command ends that cannot do what it was asked for."""
    done = loom(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("loom: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_budget_prints_the_zones_of_the_seed() -> None:
    assert report_of("budget", SONNET) == {
        "system_prompt": 2048,
        "decision_context": 1024,
        "repo_map": 2048,
        "tool_definitions": 2048,
        "reserved_output": 4096,
        "history": 188_736,
        "total": 200_000,
    }
    shown = loom("budget", SONNET).stdout
    for piece in ("200,000 tokens", "history", "188,736", "█", "about 1,509 messages"):
        assert piece in shown
    assert "\x1b[" not in shown, "no colour where there is no terminal"


def test_budget_takes_every_option() -> None:
    options = {
        "reserved-output": 8000,
        "max-repo-map-tokens": 100,
        "max-decision-tokens": 200,
        "system-prompt": 300,
    }
    given = [
        word
        for name, value in (options | {"tool-definitions": 400, "window": 50_000}).items()
        for word in (f"--{name}", value)
    ]
    divided = report_of("budget", SONNET, *map(str, given))
    assert divided == {
        "system_prompt": 300,
        "decision_context": 200,
        "repo_map": 100,
        "tool_definitions": 400,
        "reserved_output": 8000,
        "history": 41_000,
        "total": 50_000,
    }
    assert report_of("budget", SONNET, "--max-tokens", "10000")["history"] == 5904
    assert "they were scaled to" in loom("budget", SONNET, "--window", "8000", COLUMNS="160").stdout


def test_an_unknown_model_is_no_error_but_told(long: Path) -> None:
    assert report_of("budget", "nobody:knows")["total"] == 128_000
    assert "'nobody:knows' is unknown; a window of 128,000" in loom("budget", "nobody:knows").stdout
    woven = report_of("weave", long, "--model", "nobody:knows")["report"]
    assert woven["window"] == 128_000
    assert any("'nobody:knows' is unknown" in text for text in woven["notes"])
    assert not any("unknown;" in text for text in report_of("weave", long)["report"]["notes"])


def test_weave_gives_the_request_and_the_report(long: Path) -> None:
    woven = report_of("weave", long, "--window", "2000", "--reserve", "200")
    assert set(woven) == {"request", "report"}
    assert set(woven["report"]) >= REPORT
    assert woven["report"]["window"] == 2000
    assert woven["report"]["reserved_output"] == 200
    assert 900 < woven["report"]["input_tokens"] <= 1800
    assert woven["report"]["truncated"]
    assert woven["report"]["model"] == "gpt-4o"
    assert woven["request"]["messages"][0] == {
        "role": "user",
        "content": "The goal: count all words.",
    }
    assert woven["request"]["messages"][-1] == {"role": "user", "content": "How many?"}
    [gap] = [item for item in woven["report"]["items"] if item["action"] in ("dropped", "covered")]
    assert gap["handles"][0] in woven["request"]["messages"][1]["content"]


def test_weave_draws_zones_and_tells_what_went(long: Path) -> None:
    shown = loom("weave", long, "--window", "2000", "--reserve", "200").stdout
    for piece in (
        "of 1,800",
        "history",
        "reserved_output",
        "█",
        "▓",
        "left out",
        "recall ~",
        "complete with --window",
    ):
        assert piece in shown
    assert "\x1b[" not in shown


@pytest.mark.parametrize("wire", [w.name for w in WIRES])
def test_weave_writes_a_request_that_the_checker_accepts(
    long: Path, tmp_path: Path, wire: str
) -> None:
    out = tmp_path / "out.json"
    aside = report_of("weave", long, "--window", "2000", "--dialect", wire, "-o", out)
    assert set(aside) == {"report"}
    assert loom("check", out, "--dialect", wire).returncode == 0
    assert (
        "left out" in loom("weave", long, "--window", "2000", "--dialect", wire, "-o", out).stdout
    )


def test_weave_keeps_the_dialect_and_the_model_of_the_transcript(tmp_path: Path) -> None:
    woven = report_of("weave", SESSION)
    assert woven["request"]["messages"][0]["role"] == "user"
    assert woven["request"]["max_tokens"] >= woven["report"]["reserved_output"]
    assert woven["report"]["model"].startswith("claude")
    assert report_of("weave", SESSION, "--dialect", "document")["request"].startswith("## user\n\n")
    assert (
        loom("weave", SESSION, "--dialect", "document", "-o", tmp_path / "out.md").returncode == 0
    )
    assert (tmp_path / "out.md").read_text().startswith("## user\n\n")
    assert report_of("weave", SESSION, "--policy", "tree")["report"]["policy"] == "tree"


def test_explain_tells_what_is_in_and_out_by_which_rule_and_when_it_returns(long: Path) -> None:
    shown = loom("explain", long, "--window", "2000").stdout
    for piece in (
        "first goal",
        "current request",
        "newest",
        "out ",
        "recall ~",
        "complete with --window",
        "a provider can cache",
    ):
        assert piece in shown
    assert len(shown.splitlines()) < 22, "kept messages in a row are one line"
    explained = report_of("explain", long, "--window", "2000")
    assert explained == report_of("weave", long, "--window", "2000")["report"]
    [gap] = [item for item in explained["items"] if item["action"] in ("dropped", "covered")]
    reserve = str(explained["reserved_output"])
    again = report_of("explain", long, "--window", str(gap["returns_at"]), "--reserve", reserve)
    assert again["dropped"] == 0


def test_count_tells_tokens_by_role(long: Path) -> None:
    counted = report_of("count", long)
    assert counted["counter"] == "o200k_base"
    assert counted["exact"] is True
    assert set(counted["messages"]) == {"user", "assistant", "tool"}
    assert (
        counted["total"]
        == counted["system"] + counted["tools"] + sum(counted["messages"].values()) + 3
    )
    assert counted["total"] == report_of("weave", long)["report"]["input_tokens"]
    assert report_of("count", long, "--model", SONNET)["exact"] is False
    shown = " ".join(loom("count", long, "--model", SONNET).stdout.split())
    assert "o200k_base instead of a tokenizer" in shown


def test_models_tells_figures_or_names() -> None:
    assert report_of("models")["models"] > 1000
    known = report_of("models", SONNET)
    assert (known["window"], known["known"], known["tokenizer"]) == (200_000, True, None)
    assert "128,000 tokens" in loom("models", "gpt-4o").stdout
    part = report_of("models", "claude")
    assert (part["known"], len(part["names"]), part["more"] > 0) == (False, 40, True)
    assert "more" in loom("models", "claude").stdout.splitlines()[-1]
    assert "128,000" in loom("models", "zork").stdout


def test_figures_of_the_user_win(tmp_path: Path, long: Path) -> None:
    models = tmp_path / "models.toml"
    models.write_text('["acme:big"]\nwindow = 50000\n["gpt-4o"]\nwindow = 3000\n')
    assert report_of("budget", "acme:big", LOOM_MODELS=str(models))["total"] == 50_000
    assert report_of("models", "acme/big", LOOM_MODELS=str(models))["window"] == 50_000
    assert report_of("weave", long, LOOM_MODELS=str(models))["report"]["window"] == 3000
    assert report_of("count", long, LOOM_MODELS=str(models))["window"] == 3000
    home = tmp_path / "config" / "loom"
    home.mkdir(parents=True)
    models.rename(home / "models.toml")
    assert report_of("budget", "acme:big")["total"] == 50_000


@pytest.mark.parametrize(
    "content", [b"broken", b'["m"]\nwindow = "many"\n', b'["m"]\nwindow = 0\n', b"\xff", None]
)
@pytest.mark.parametrize(
    "command", [("budget", "m"), ("models",), ("count", SESSION), ("weave", SESSION)]
)
def test_a_broken_models_file_is_named(
    tmp_path: Path, command: tuple[str | Path, ...], content: bytes | None
) -> None:
    models = tmp_path / "mine.toml"
    if content is not None:
        models.write_bytes(content)
    assert "mine.toml: " in refused(*command, LOOM_MODELS=str(models))


def test_policies_are_listed_and_shown() -> None:
    listed = report_of("policy", "list")
    assert {one["name"] for one in listed} >= {"default", "window", "turns", "tree"}
    assert "Keeps the beginning and the last four nodes" in loom("policy", "list").stdout
    assert 'strategy = "truncate_middle"' in loom("policy", "show", "tree").stdout
    assert report_of("policy", "show", "tree")["minimum_recent_nodes"] == 4
    assert "choose one of default" in refused("policy", "show", "zork")


@pytest.mark.parametrize("command", ["weave", "explain"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--window", "-5"), "number of tokens, 0 or more, found -5"),
        (("--window", "0"), "positive number of tokens, found 0; leave it out"),
        (("--policy", "zork"), "unknown policy 'zork'; choose one of default"),
        (("--window", "2000", "--reserve", "2000"), "2000 leaves nothing of 2000 tokens; lower it"),
        (("--reserve", "-1"), "0 or more, found -1"),
        (("--window", "20"), "choose a larger window"),
    ],
)
def test_what_cannot_be_woven_is_told_in_one_line(
    command: str, options: tuple[str, ...], told: str
) -> None:
    assert told in refused(command, SESSION, *options)


def test_an_unknown_dialect_is_told_in_one_line() -> None:
    assert "choose one of openai, responses, anthropic, document" in refused(
        "weave", SESSION, "--dialect", "klingon"
    )


@pytest.mark.parametrize("what", ["system text 6,0", "tools 6,0"])
def test_system_text_or_tools_larger_than_the_window_are_told_with_numbers(
    tmp_path: Path, what: str
) -> None:
    words = "be good " * 3000
    body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
    if what.startswith("system"):
        body["messages"].insert(0, {"role": "system", "content": words})
    else:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": "f", "description": words, "parameters": {"type": "object"}},
            }
        ]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(body))
    policy = tmp_path / "all.toml"
    policy.write_text('extends = "default"\nname = "all"\ntools = "all"\n')
    line = refused("weave", path, "--window", "2000", "--policy", policy)
    assert what in line
    assert "2,000" in line
    assert "shorten them" in line


@pytest.mark.parametrize("options", [(), ("--window", "900")])
@pytest.mark.parametrize("command", ["weave", "explain", "count"])
def test_nothing_drives_the_terminal(
    tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    evil = "a\x1b[2Jb\u202ec\x07"
    call = {"id": evil, "type": "function", "function": {"name": evil, "arguments": evil}}
    told = [
        {"role": "user", "content": evil * 200},
        {"role": "assistant", "content": evil * 200, "tool_calls": [call]},
        {"role": "user", "content": evil},
    ]
    path = tmp_path / "evil.json"
    path.write_text(json.dumps({"model": evil, "messages": told}))
    done = loom(command, path, *(options if command != "count" else ()))
    assert done.returncode == 0, done.stderr
    assert not {"\x1b", "\u202e", "\x07"} & set(done.stdout + done.stderr)


def test_several_runs_are_a_list_and_one_line_each(tmp_path: Path) -> None:
    one = {
        "traj": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}],
        "task_id": 1,
    }
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([one, one]))
    for command in ("weave", "explain", "count"):
        assert len(report_of(command, path)) == 2
        assert isinstance(report_of(command, f"{path}#1"), dict)
        assert len(loom(command, path).stdout.splitlines()) == 3
    assert loom("weave", path, "-o", tmp_path / "out.json").returncode == 0
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2
    assert loom("weave", path, "--dialect", "document", "-o", tmp_path / "out.md").returncode == 0
    assert (tmp_path / "out.md").read_text().startswith("# run 0\n\n## user")


@needs_shared
@pytest.mark.parametrize(
    "name", sorted(path.name for path in AGENTS.iterdir()) if AGENTS.is_dir() else []
)
def test_recorded_sessions_fit_8000_tokens_and_are_whole(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out.json"
    told = report_of("weave", AGENTS / name, "--window", "8000", "--reserve", "0", "-o", out)
    for one in told if isinstance(told, list) else [told]:
        assert one["report"]["input_tokens"] <= 8000
    done = loom("check", out)
    assert done.returncode == 0, done.stdout


def test_a_policy_of_ones_own_is_a_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine"\nabout = "refuses to cut"\nstrategy = "stop_at_limit"\n')
    done = loom(
        "weave", FIXTURES / "wire_cc_simple.json", "--policy", mine, "--window", "20000", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["report"]["policy"] == "mine"
    mine.write_text('name = "mine"\nstrategy = "guess"\n')
    done = loom("weave", FIXTURES / "wire_cc_simple.json", "--policy", mine)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
