"""Replay: a transcript played call by call, judged by what is sent, told as figures, a picture and
request bodies.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from loom import Context, Conversation, Loom, LoomError, Media, Message, Text, read_runs
from loom.budget.counting import gate_counter
from loom.budget.models import Figures as Prices
from loom.cli.main import cli
from loom.context.policy import policies
from loom.dialects import dialect
from loom.engine import measures
from loom.engine.replay import FIRST_TIME_MS, Call, replay
from tests.shared import AGENTS, SHARED, needs_shared

FIGURES = {
    "calls", "refused", "over_budget", "torn_pairs", "goal_missing", "usable", "mean_tokens",
    "cacheable_share",
    "uncached_per_call", "recache_factor", "recache_factor_with_tail", "tail_tokens", "epochs",
    "ms_per_call",
}  # fmt: skip
WINDOWS = (8_000, 16_000, 64_000)


def call(number: int, path: str) -> dict[str, Any]:
    return {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
    }


def session(steps: int, words: int = 60) -> list[dict[str, Any]]:
    """A goal, then a call and its result again and again, with a new request after every tenth."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are careful."},
        {"role": "user", "content": "The goal: read all pages."},
    ]
    for n in range(steps):
        content = f"line {n} of docs/page_{n}.md " * (words // 8)
        messages += [
            {
                "role": "assistant",
                "content": f"Now page {n}.",
                "tool_calls": [call(n, f"docs/page_{n // 3}.md")],
            },
            {
                "role": "tool",
                "tool_call_id": f"c{n}",
                "name": "read_file",
                "content": content,
            },
        ]
        if n % 10 == 9:
            messages += [
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": f"Go on behind page {n}."},
            ]
    return messages


def conversation(messages: list[dict[str, Any]]) -> Conversation:
    return dialect("openai").parse({"model": "gpt-4o", "messages": messages})


@pytest.fixture(autouse=True)
def no_models_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOOM_MODELS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def long(tmp_path: Path) -> Path:
    path = tmp_path / "long.json"
    path.write_text(json.dumps({"model": "gpt-4o", "messages": session(80)}))
    return path


@cache
def shared_measures() -> ModuleType:
    spec = spec_from_file_location("shared_measures", SHARED / "bench" / "measures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loom(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def figures_of(*arguments: str | Path) -> Any:
    done = loom("replay", *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


# ── the playing ──────────────────────────────────────────────────────────────


def test_before_every_message_of_the_model_there_is_a_call_with_everything_before_it() -> None:
    messages = session(25)
    seen: list[list[dict[str, Any]]] = []
    [played] = replay(
        conversation(messages),
        sent=lambda _, __, context: seen.append(context.openai()["messages"]),
    ).values()
    cuts = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    assert [call.message + 1 for call in played.calls] == cuts, (
        "the system text is no message of the history"
    )
    assert seen == [messages[:cut] for cut in cuts]


@pytest.mark.parametrize("policy", list(policies()))
def test_a_replay_sends_what_a_session_sends(policy: str, tmp_path: Path) -> None:
    given = conversation(session(40))
    sent: list[Any] = []
    replay(
        given,
        [policy],
        window=2_000,
        reserve_output=0,
        sent=lambda _, __, context: sent.append(context.openai()["messages"]),
    )
    ticks, ids = count(FIRST_TIME_MS), count()
    with Loom.open(
        tmp_path / "store.db", now=lambda: next(ticks), fresh_id=lambda: f"{next(ids):032x}"
    ) as home:
        kept = home.new(system="You are careful.")
        appended = 0
        for cut, wanted in zip(
            [n for n, each in enumerate(given.messages) if each.role == "assistant"],
            sent,
            strict=True,
        ):
            kept.append(*given.messages[appended:cut])
            appended = cut
            context = asyncio.run(
                kept.prepare(model="gpt-4o", window=2_000, reserve_output=0, policy=policy)
            )
            assert context.openai()["messages"] == wanted, cut


def test_what_always_fits_is_sent_once_and_read_from_the_cache_ever_after() -> None:
    messages = session(25)
    [played] = replay(conversation(messages)).values()
    figures = played.figures
    count = gate_counter("gpt-4o").count_text
    last = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    assert (figures.recache_factor, figures.epochs, figures.tail_tokens) == (1.0, 0, 0)
    assert played.calls[-1].tokens == sum(
        measures.message_tokens(message, count) for message in messages[:last]
    )
    assert (
        sum(each.new for each in played.calls)
        == sum(each.tokens - each.shared for each in played.calls)
        == played.calls[-1].tokens
    )


def test_a_small_window_makes_epochs_and_each_costs_the_cache() -> None:
    [played] = replay(conversation(session(80)), window=2_000, reserve_output=0).values()
    figures = played.figures
    assert figures.epochs == sum(each.renewed for each in played.calls) > 2
    assert figures.recache_factor is not None
    assert figures.recache_factor > 1
    assert (figures.over_budget, figures.torn_pairs, figures.goal_missing, figures.refused) == (
        0,
        0,
        0,
        0,
    )
    for before, each in zip(played.calls, played.calls[1:], strict=False):
        assert each.tokens <= 2_000
        assert each.renewed or each.shared == before.tokens, "within an epoch a request only grows"


@needs_shared
@pytest.mark.parametrize("policy", ["default", "tree"])
def test_figures_agree_with_the_shared_definitions_on_what_was_sent(policy: str) -> None:
    shared, count = shared_measures(), gate_counter("gpt-4o").count_text
    messages = session(120)
    texts, cuts = (
        shared.flatten(messages),
        [n for n, message in enumerate(messages) if message["role"] == "assistant"],
    )
    sent: list[list[dict[str, Any]]] = []

    def keep(_: str, __: int, context: Context) -> None:
        sent.append(context.openai()["messages"])

    [played] = replay(
        conversation(messages), [policy], window=2_000, reserve_output=0, sent=keep
    ).values()
    before: list[dict[str, Any]] = []
    recalls = []
    for cut, request, each in zip(cuts, sent, played.calls, strict=True):
        assert each.tokens == sum(shared.message_tokens(message, count) for message in request)
        assert each.shared == shared.shared_prefix_tokens(before, request, count)
        assert each.torn_pairs == (shared.torn_pairs(request) > 0)
        assert each.goal_missing == shared.goal_missing(
            request, [text for role, text in texts[:cut] if role == "user"][-1]
        )
        before = request
        if each.recall is not None:
            gold = shared.lookahead_gold(texts[1:], cut - 1)
            windows = shared.strict_windows(texts[1:cut], gold)
            recalls.append(
                shared.strict_recall(
                    "\n".join(text for _, text in shared.flatten(request)), windows, gold
                )
            )
            assert each.recall == recalls[-1]
    assert recalls
    assert played.figures.lookahead_recall == pytest.approx(sum(recalls) / len(recalls), abs=1e-4)


def test_what_cannot_fit_is_counted_as_refused_and_the_replay_goes_on() -> None:
    [none] = replay(conversation(session(3)), window=20, reserve_output=0).values()
    assert "choose a larger window" in none.calls[-1].refused
    assert (none.figures.refused, none.figures.calls, none.figures.mean_tokens) == (3, 3, None)
    assert set(none.figures.as_dict()) == {
        "calls",
        "refused",
        "over_budget",
        "torn_pairs",
        "goal_missing",
        "epochs",
    }


def test_a_long_system_message_inside_a_conversation_refuses_no_call() -> None:
    messages = session(12)
    messages.insert(2, {"role": "system", "content": "A law of many words. " * 60})
    messages.insert(2, {"role": "assistant", "content": "Yes?"})
    [played] = replay(conversation(messages), window=200, reserve_output=0).values()
    assert played.figures.refused == 0


def test_pictures_are_counted_by_the_formula_of_the_provider_and_not_by_their_letters() -> None:
    picture = Media("image", "data", "iVBORw0KGgo" * 20_000, "image/png")
    seen = Conversation(
        messages=(
            Message("user", (Text("What is it?"), picture)),
            Message("assistant", (Text("A cat."),)),
        )
    )
    [played] = replay(seen, model="gpt-4o", window=8_000).values()
    assert 0 < played.calls[0].tokens < 2_000
    assert not played.calls[0].bad


def test_costs_are_by_the_prices_of_the_model_and_left_out_where_there_are_none() -> None:
    given = conversation(session(25))
    prices = {"acme/big": Prices(window=50_000, input=2.0, cache_read=0.5, cache_write=3.0)}
    [played] = replay(given, model="acme:big", overrides=prices).values()
    calls, figures = played.calls, played.figures
    tokens, shared = sum(each.tokens for each in calls), sum(each.shared for each in calls)
    assert figures.cost_without_cache == pytest.approx(tokens * 2 / 1e6)
    assert figures.cost_with_cache == pytest.approx((shared * 0.5 + (tokens - shared) * 3) / 1e6)
    [unknown] = replay(given, model="nobody:knows").values()
    assert not {"cost_with_cache", "cost_without_cache"} & set(unknown.figures.as_dict())


def test_every_policy_is_played_from_the_beginning() -> None:
    given = conversation(session(40))
    together = replay(given, ["default", "tree"], window=2_000, reserve_output=0)
    alone = replay(given, ["tree"], window=2_000, reserve_output=0)

    def timeless(calls: tuple[Call, ...]) -> list[Call]:
        return [replace(each, seconds=0.0) for each in calls]

    assert timeless(together["tree"].calls) == timeless(alone["tree"].calls)
    with pytest.raises(LoomError, match="'tree' is named twice"):
        replay(given, ["tree", "tree"])


# ── the judge ────────────────────────────────────────────────────────────────

USER: dict[str, Any] = {"role": "user", "content": "go"}
ASKS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call(1, "a"), call(2, "b")],
}
RESULTS: list[dict[str, Any]] = [
    {"role": "tool", "tool_call_id": f"c{n}", "content": "ok"} for n in (1, 2)
]


@pytest.mark.parametrize(
    ("messages", "torn"),
    [
        ([USER, ASKS, *RESULTS], 0),
        ([USER, ASKS, *RESULTS[::-1], USER], 0),
        ([USER, ASKS, RESULTS[0]], 1),
        ([USER, ASKS, RESULTS[0], USER, RESULTS[1]], 2),
        ([USER, *RESULTS], 2),
        ([USER, ASKS], 2),
    ],
)
def test_a_torn_pair_is_seen(messages: list[dict[str, Any]], torn: int) -> None:
    assert measures.torn_pairs(messages) == torn


def test_a_goal_is_there_while_its_beginning_stands_in_a_user_message() -> None:
    goal = "Migrate the database of the shop to the new schema, and tell me when it is done."
    assert not measures.goal_missing([("user", goal)], f"  {goal}")
    assert not measures.goal_missing([("user", goal[:60] + " [cut; recall ~x]")], goal)
    assert measures.goal_missing([("user", goal[:50]), ("assistant", goal)], goal)


# ── the command ──────────────────────────────────────────────────────────────


def test_replay_tells_figures_as_json(long: Path) -> None:
    told = figures_of(long, "--window", "2000", "--reserve", "0", "--policy", "default,tree")
    assert (told["file"], told["window"], told["reserve"], told["model"]) == (
        str(long),
        2000,
        0,
        "gpt-4o",
    )
    assert list(told["policies"]) == ["default", "tree"]
    for figures in told["policies"].values():
        assert set(figures) >= FIGURES | {
            "cost_with_cache",
            "cost_without_cache",
            "lookahead_recall",
        }
        assert figures["calls"] == told["calls"] == 88
        assert [
            figures[name] for name in ("over_budget", "torn_pairs", "goal_missing", "refused")
        ] == [0] * 4
        assert figures["mean_tokens"] < figures["usable"] == 2000
        assert figures["cost_with_cache"] < figures["cost_without_cache"]


def test_replay_draws_the_calls_and_marks_epochs(long: Path) -> None:
    shown = loom(
        "replay", long, "--window", "2000", "--reserve", "0", "--policy", "default,window"
    ).stdout
    for piece in (
        "88 calls",
        "gpt-4o",
        "▁",
        "█",
        "▴",
        "default",
        "window",
        "0 / 0 / 0",
        "re-cache factor",
        "look-ahead recall",
        "$",
    ):
        assert piece in shown
    assert "✗" not in shown
    assert "\x1b[" not in shown, "no colour where there is no terminal"
    assert max(map(len, shown.splitlines())) <= 100


def test_replay_writes_each_request_as_it_was_measured(long: Path, tmp_path: Path) -> None:
    figures = figures_of(long, "--window", "2000", "--reserve", "0", "--dump", tmp_path / "one")[
        "policies"
    ]["default"]
    bodies = [json.loads(path.read_text()) for path in sorted((tmp_path / "one").iterdir())]
    assert [path.name for path in sorted((tmp_path / "one").iterdir())] == [
        f"{n:04}.json" for n in range(88)
    ]
    count = gate_counter("gpt-4o").count_text
    tokens = [
        sum(measures.message_tokens(message, count) for message in body["messages"])
        for body in bodies
    ]
    assert figures["mean_tokens"] == pytest.approx(sum(tokens) / 88, abs=0.1)
    assert loom("check", tmp_path / "one" / "0087.json").exit_code == 0
    (tmp_path / "one" / "0999.json").write_text("{}")
    again = loom("replay", long, "--dump", tmp_path / "one")
    assert (again.exit_code, "1 request of another replay" in again.stderr) == (0, True)
    figures_of(long, "--policy", "default,tree", "--dump", tmp_path / "two")
    assert {path.name: len(list(path.iterdir())) for path in (tmp_path / "two").iterdir()} == {
        "default": 88,
        "tree": 88,
    }


def test_refused_calls_are_told_and_no_error(long: Path) -> None:
    done = loom("replay", long, "--window", "15", "--reserve", "0")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "default refused 88 calls, first the one before message 1:" in done.stdout
    assert "choose a" in done.stdout
    assert (
        figures_of(long, "--window", "15", "--reserve", "0")["policies"]["default"]["refused"] == 88
    )


def test_several_runs_are_a_list_and_one_line_each(tmp_path: Path) -> None:
    one = {
        "traj": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}],
        "task_id": 1,
    }
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([one, one, one]))
    assert [told["file"] for told in figures_of(path)] == [f"{path}#{n}" for n in range(3)]
    assert figures_of(f"{path}#1")["calls"] == 1
    shown = loom("replay", path, "--dump", tmp_path / "out").stdout.splitlines()
    assert len(shown) == 5
    assert "3 runs, 3 calls  0 / 0 / 0" in shown[-1]
    assert sorted(
        str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.json")
    ) == [f"{n}/0000.json" for n in range(3)]


def test_a_transcript_without_a_call_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "go"}]}))
    assert figures_of(path)["calls"] == 0
    assert "no call to replay" in loom("replay", path).stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--window", "-5"), "number of tokens, 0 or more, found -5"),
        (("--policy", "zork"), "unknown policy 'zork'; choose one of default"),
        (("--policy", "tree,tree"), "'tree' is named twice"),
        (("--policy", ","), "--policy is empty"),
        (("--window", "2000", "--reserve", "2000"), "2000 leaves nothing of 2000 tokens"),
    ],
)
def test_what_cannot_be_played_is_told_in_one_line(
    long: Path, options: tuple[str, ...], told: str
) -> None:
    done = loom("replay", long, *options)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert told in done.stderr


def test_nothing_drives_the_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2Jb\u202ec\x07"
    said = [{"role": "user", "content": evil}, {"role": "assistant", "content": evil}]
    path, mine = tmp_path / "evil.json", tmp_path / "mine.toml"
    path.write_text(json.dumps({"model": evil, "messages": said}))
    mine.write_text(f'name = {json.dumps(evil)}\nabout = ""\nstrategy = "newest"\n')
    for window in ("900", "9"):
        done = loom("replay", path, "--policy", f"default,{mine}", "--window", window)
        assert done.exit_code == 0, done.stderr
        assert not {"\x1b", "\u202e", "\x07"} & set(done.stdout + done.stderr)


# ── the recorded sessions ────────────────────────────────────────────────────


def recorded(
    name: str, runs: int | None = None, messages: int | None = None
) -> Iterator[Conversation]:
    for run in islice(read_runs(str(AGENTS / name)), runs):
        whole = run.conversation()
        yield replace(whole, messages=whole.messages[:messages])


def nothing_goes_wrong(played: Iterator[Conversation], window: int) -> None:
    for given in played:
        [each] = replay(given, window=window, reserve_output=0).values()
        assert [made for made in each.calls if made.bad] == []


@needs_shared
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "given",
    [
        lambda: recorded("trail_1.json"),
        lambda: recorded("trail_2.json"),
        lambda: recorded("trail_3.json"),
        lambda: recorded("trail_4.json"),
        lambda: recorded("sweagent_function_calling_simple.traj"),
        lambda: recorded("taubench_airline_60.json", runs=6),
        lambda: recorded("pi_large_session.jsonl", messages=160),
    ],
    ids=["trail_1", "trail_2", "trail_3", "trail_4", "sweagent", "taubench", "pi"],
)
def test_recorded_sessions_are_never_over_never_torn_and_keep_their_goal(
    given: Callable[[], Iterator[Conversation]], window: int
) -> None:
    nothing_goes_wrong(given(), window)


@needs_shared
@pytest.mark.parametrize("messages", [360, pytest.param(None, marks=pytest.mark.long)])
def test_what_comes_back_in_the_tail_costs_little(messages: int | None) -> None:
    [given] = recorded("pi_large_session.jsonl", messages=messages)
    figures = replay(given, model="gpt-4o", window=16_000, reserve_output=0)["default"].figures
    assert figures.tail_tokens
    assert figures.recache_factor
    assert figures.recache_factor_with_tail
    assert figures.recache_factor_with_tail <= 1.30
    assert figures.recache_factor_with_tail <= 1.05 * figures.recache_factor


@needs_shared
@pytest.mark.long
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "name", sorted(path.name for path in AGENTS.iterdir()) if AGENTS.is_dir() else []
)
def test_whole_recorded_sessions_are_never_over_never_torn_and_keep_their_goal(
    name: str, window: int
) -> None:
    nothing_goes_wrong(recorded(name), window)
