"""The benches that measure what of a conversation a request holds, on small inputs."""

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loom import Loom
from loom.engine.measures import torn_pairs
from tests.shared import AGENTS, ROOT, SHARED, needs_shared

Chat = dict[str, Any]

PLAN = "I would split the parser in two, and keep the old names. Shall I?"
HISTORY: list[Chat] = [
    {"role": "user", "content": "/mode"},
    {"role": "user", "content": "Please make the parser twice as fast, but keep its names."},
    {"role": "assistant", "content": f"I looked at it.\n\n{PLAN}"},
    {"role": "user", "content": "yes, do it"},
]


@pytest.fixture(autouse=True)
def benches_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture
def thread() -> Any:
    return import_module("thread")


@pytest.fixture
def needles() -> Any:
    return import_module("needles")


@pytest.fixture
def agent_sessions() -> Any:
    return import_module("agent_sessions")


def shared_thread() -> ModuleType:
    spec = spec_from_file_location("shared_thread", SHARED / "bench" / "thread.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(monkeypatch: pytest.MonkeyPatch, bench: Any, *arguments: str) -> str:
    """What a bench that misses a wanted figure ends with; nothing where it misses none."""
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    try:
        bench.main()
    except SystemExit as ending:
        return str(ending.code)
    return ""


# ── the thread ───────────────────────────────────────────────────────────────


def test_a_short_request_leans_on_the_last_long_one_and_on_the_models_words(thread: Any) -> None:
    request, words = thread.antecedent(HISTORY)
    assert request == HISTORY[1]["content"]
    assert words.endswith(PLAN)
    assert thread.antecedent(HISTORY[:2]) is None  # it says something by itself
    assert thread.antecedent(HISTORY[:1]) is None  # nothing stands before it


def test_a_request_is_judged_by_what_it_holds(thread: Any) -> None:
    whole = thread.judge_call(HISTORY, HISTORY)
    assert (whole["request"], whole["words"], whole["kept"], whole["missing"]) == (
        True,
        True,
        3,
        [],
    )
    last = thread.judge_call(HISTORY, HISTORY[-1:])
    assert (last["request"], last["words"], last["kept"], last["missing"]) == (
        False,
        False,
        1,
        [0, 1],
    )
    assert last["letters_kept"] == len("yes, do it")


@pytest.mark.parametrize(
    ("role", "content", "stands"),
    [
        ("user", "[2] user: yes, do it", True),
        ("user", "> yes, do it", True),
        ("assistant", "yes, do it", False),
        ("user", "yes, do it not", False),
        ("user", "they said yes, do it", False),
    ],
)
def test_words_of_the_user_count_as_whole_lines_under_the_users_role(
    thread: Any, role: str, content: str, stands: bool
) -> None:
    found = thread.judge_call(HISTORY[3:], [{"role": role, "content": content}])
    assert found["kept"] == stands


def test_pasted_data_is_not_what_the_user_said(thread: Any) -> None:
    pasted = {"role": "user", "content": "line of a log\n" * 500}
    assert thread.judge_call([pasted, *HISTORY], HISTORY)["said"] == 3


@needs_shared
def test_calls_are_judged_as_the_shared_definitions_do(thread: Any) -> None:
    theirs = shared_thread()
    [transcript] = thread.read(str(AGENTS / "pi_large_session.jsonl"))
    for number in range(5, len(transcript.calls), 40):
        end = transcript.calls[number]
        history = transcript.messages[:end]
        for request in (transcript.send_newest(end, 4_000), transcript.send_third(end, 4_000)):
            ours = thread.judge_call(history, request)
            judged = theirs.thread(history, request)
            assert {name: ours[name] for name in judged} == judged


def test_the_simple_ways_fit_and_the_third_holds_what_the_user_said(
    thread: Any, agent_sessions: Any
) -> None:
    transcript = thread.parse(agent_sessions.make_session("coding", 300, 1).messages)
    end = transcript.calls[-1]
    for make in (transcript.send_newest, transcript.send_third):
        request = make(end, 8_000)
        assert request[0]["role"] == "system"
        assert sum(thread.message_tokens(each, thread.tokens_of) for each in request) <= 8_000
    judged = thread.judge_call(transcript.messages[:end], transcript.send_third(end, 8_000))
    assert judged["missing"] == []


def test_the_bench_measures_a_file_at_every_call(
    thread: Any,
    agent_sessions: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "session.json"
    messages = agent_sessions.make_session("incident", 120, 1).messages
    path.write_text(json.dumps({"model": "gpt-4o", "messages": messages}))
    run(monkeypatch, thread, str(path), "--windows", "4000", "900000", "--json")
    out, err = capsys.readouterr()
    [row] = json.loads(out)["rows"]
    calls = sum(message["role"] == "assistant" for message in messages)
    assert row["replay"]["calls"] == calls
    assert {row["ways"][way]["calls"] for way in thread.WAYS} == {calls}
    assert row["ways"]["third"]["user_messages_kept_where_they_fit"] == 100
    faults = ("over_budget", "torn_pairs", "goal_missing", "refused")
    assert [row["replay"][name] for name in faults] == [0, 0, 0, 0]
    assert "all of it fits, not measured" in err
    assert len(row["ids"]) == 1


def test_without_shared_sessions_the_bench_says_so_and_goes_on(
    thread: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(thread, "SHARED", tmp_path)
    monkeypatch.setattr(thread, "GENERATED_MESSAGES", 240)
    run(monkeypatch, thread, "--quick", "--windows", "4000", "--ids")
    out, err = capsys.readouterr()
    assert "they are skipped" in err
    assert "made up: research at 4,000" in out
    assert "messages of the user, and calls that miss them" in out


# ── the sessions ─────────────────────────────────────────────────────────────


def test_made_up_sessions_are_whole_and_the_same_each_time(agent_sessions: Any) -> None:
    for kind in agent_sessions.KINDS:
        made = agent_sessions.make_session(kind, 400, 2)
        assert made == agent_sessions.make_session(kind, 400, 2)
        assert made != agent_sessions.make_session(kind, 400, 2, seed=2)
        assert torn_pairs(made.messages) == 0
        assert abs(len(made.messages) - 400) <= 3
        assert made.messages[-1]["role"] == "user"
        assert "{" not in made.messages[1]["content"]


def test_statements_are_made_once_by_both_in_all_shapes(agent_sessions: Any) -> None:
    for kind in agent_sessions.KINDS:
        made = agent_sessions.make_session(kind, 400, 8)
        whole = "\n".join(message["content"] for message in made.messages)
        assert len(made.needles) == 2 * 6 * 8
        for needle in made.needles:
            message = made.messages[needle.place]
            assert message["role"] == needle.speaker
            assert needle.sentence in message["content"]
            assert whole.count(needle.value) == 1
            assert (needle.value in needle.query) is False


def test_the_user_of_a_long_session_says_little(needles: Any, agent_sessions: Any) -> None:
    for kind in agent_sessions.KINDS:
        needles.check_session(agent_sessions.make_session(kind, 5_000))


# ── the needles ──────────────────────────────────────────────────────────────


@pytest.fixture
def small(needles: Any, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    monkeypatch.setattr(needles, "WINDOW", 4_000)
    return ("--only", "coding", "--messages", "160", "--seeds", "1", "--searched", "6")


def test_every_way_is_measured_and_everything_comes_back(
    needles: Any,
    small: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(monkeypatch, needles, *small, "--json")
    rows = {row["way"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == ["one shot", "grown", "imported", "newest", "third"]
    for way, row in rows.items():
        assert row["tokens"] <= 4_000
        shares = [row["user"][shape] for shape in (*needles.SHAPES, "all")]
        assert all(0 <= share <= 100 for share in shares)
        if way not in needles.BASELINES:
            assert [row[who]["recall"] for who in ("user", "assistant")] == [100, 100]


def test_what_is_missed_is_said(
    needles: Any,
    small: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(needles, "WANTED_MODEL", 101)
    verdict = run(monkeypatch, needles, *small, "--ways", "one shot", "newest", "--missed")
    assert "coding, one shot: identifiers of the model" in verdict
    assert "newest" not in verdict
    assert "] user: " in capsys.readouterr().out


def test_requests_get_the_skills_that_they_need_and_others_get_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench: Any = import_module("skills")
    figures = bench.measure(bench.HELD_OUT)
    assert figures["recall"] >= 0.9
    assert figures["precision"] >= 0.9
    assert figures["quiet"] == 1.0
    bench.main()
    assert "held out precision=" in capsys.readouterr().out


@needs_shared
def test_the_tool_that_was_called_next_is_among_those_that_fit() -> None:
    tools = import_module("tools")
    cases = tools.draw(tools.read_sessions(), held_out=True, seed=1)[::10]
    tally = tools.measure(cases, 1, missed=False)
    assert tally.cases == 10
    assert tally.hits >= 9
    assert tally.largest <= tools.ZONE


def test_the_section_of_a_graph_is_measured() -> None:
    bench = import_module("decision_context")
    chance = bench.random.Random(1)
    with Loom.open(":memory:") as loom:
        session = loom.new().id
        titles = bench.make_titles(600, chance)
        scope = bench.fill(loom, session, titles, chance)
        took = bench.measure(loom, session, scope, [titles[5], titles[300]])
    assert len(took) == 4
