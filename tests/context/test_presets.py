"""What the presets keep of their seeds: numbers, order and wording, pinned."""

import ast
import copy
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom import (
    CannotFit,
    Context,
    ContextWindow,
    LoomError,
    Message,
    Section,
    Text,
    ToolCall,
    ToolResult,
    is_over_context_budget,
    weave,
)
from loom.budget.counting import Counter, gate_counter
from loom.budget.profiles import profile
from loom.context.history import ladder
from loom.context.history.pieces import handles_in
from loom.context.history.strategies import recent, truncate_middle
from loom.context.policy import Policy, find_policy, policies
from tests.shared import ROOT


def said(count: int, words: int = 50) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[n % 2], "content": f"message {n + 1} " + "word " * words}
        for n in range(count)
    ]


# ── seed 000 ─────────────────────────────────────────────────────────────────


def test_seed_000_keeps_the_newest_that_fit_and_stops_at_the_first_that_does_not() -> None:
    assert recent([10] * 20, 100) == 10  # the seed's picture: 20 messages, 10 fit, 11 to 20 stay
    assert recent([10, 200, 10, 10], 100) == 2
    assert recent([200], 100) == 1


def test_seed_000_enriches_one_system_message_in_its_order() -> None:
    sections = [
        ("rules", "## Project Rules\n- Style: plain"),
        ("repo_map", "## Project Files"),
        ("decision_context", "## Active Goals\nNone."),
    ]
    messages = ContextWindow.build_messages(
        said(4), "You are Loom.", model="anthropic:claude-sonnet-4-6", sections=sections
    )
    assert messages[0] == {
        "role": "system",
        "content": (
            "You are Loom.\n\n## Active Goals\nNone.\n\n## Project Files\n\n## Project Rules\n- "
            "Style: plain"
        ),
    }
    assert [m["content"] for m in messages[1:]] == [m["content"] for m in said(4)]


def test_seed_000_budget_and_limits_as_printed() -> None:
    budget = ContextWindow.allocate_budget("anthropic:claude-sonnet-4-6")
    assert budget.as_dict() == {
        "system_prompt": 2048,
        "decision_context": 1024,
        "repo_map": 2048,
        "tool_definitions": 2048,
        "reserved_output": 4096,
        "history": 188_736,
        "total": 200_000,
    }
    assert ContextWindow.model_limit("openai:gpt-4-turbo") == 128_000
    assert ContextWindow.model_limit("unknown:model") == 128_000
    assert ContextWindow.estimate_tokens("a" * 43) == 10


def test_seed_000_legacy_limit_stands_for_the_window() -> None:
    messages = ContextWindow.build_messages(said(400), "You are Loom.", max_tokens=8_000)
    assert messages[0]["content"] == "You are Loom."
    assert messages[-1]["content"] == said(400)[-1]["content"]
    assert len(messages) < 100


def test_seed_000_options_set_zones() -> None:
    budget = ContextWindow.allocate_budget(
        "anthropic:claude-opus-4-6",
        max_decision_tokens=2048,
        max_repo_map_tokens=4096,
        reserved_output=8192,
    )
    assert (budget["decision_context"], budget["repo_map"], budget.reserved_output) == (
        2048,
        4096,
        8192,
    )
    assert budget.history == 200_000 - 2048 - 2048 - 4096 - 2048 - 8192


def test_seed_000_a_reserve_that_is_asked_for_is_kept_beside_the_legacy_limit() -> None:
    messages = ContextWindow.build_messages(
        said(400), "You are Loom.", max_tokens=10_000, reserved_output=8_000
    )
    assert messages.context.report.reserved_output == 8_000
    available = max(10_000 - ContextWindow.estimate_tokens("You are Loom.") - 8_000, 0)
    assert (
        available
        == ContextWindow.allocate_budget(
            max_tokens=10_000, system_tokens=3, reserved_output=8_000
        ).history
    )
    fit = recent([ContextWindow.estimate_tokens(m["content"]) + 4 for m in said(400)], available)
    kept = [
        item.place
        for item in messages.context.report.items
        if (item.action, item.rule) == ("kept", "recent")
    ]
    assert kept[0] == f"messages[{fit}]"
    with pytest.raises(LoomError, match="leaves nothing"):
        ContextWindow.build_messages(
            said(2), "You are Loom.", max_tokens=1000, reserved_output=1000
        )
    assert (
        ContextWindow.build_messages(said(2), "", max_tokens=1000).context.report.reserved_output
        == 250
    ), "nobody asked for it"


def test_seed_000_map_and_decision_options_hold_beside_the_legacy_limit(tmp_path: Path) -> None:
    for n in range(60):
        (tmp_path / f"part_{n}.py").write_text(
            "".join(f"def function_{n}_{k}() -> None: ...\n" for k in range(9))
        )
    decisions = [("decision_context", "- [decision] Use JWT\n" * 400)]
    sizes = {}
    for tokens in (300, 1500):
        built = ContextWindow.build_messages(
            said(2),
            "You are Loom.",
            max_tokens=60_000,
            max_repo_map_tokens=tokens,
            max_decision_tokens=tokens,
            project_path=str(tmp_path),
            sections=decisions,
        )
        sizes[tokens] = {
            item.zone: item.after
            for item in built.context.report.items
            if item.place.startswith("sections")
        }
    for zone in ("repo_map", "decision_context"):
        assert sizes[300][zone] <= 310 < sizes[1500][zone] <= 1510


def test_seed_000_a_budget_is_a_mapping_with_the_names_that_it_prints() -> None:
    budget = ContextWindow.allocate_budget("anthropic:claude-sonnet-4-6")
    assert dict(budget) == {
        "system_prompt": 2048,
        "decision_context": 1024,
        "repo_map": 2048,
        "tool_definitions": 2048,
        "reserved_output": 4096,
        "history": 188_736,
    }
    assert isinstance(budget, Mapping)
    assert (budget.repo_map, budget["repo_map"], budget.get("repo_map"), budget.get("nope")) == (
        2048,
        2048,
        2048,
        None,
    )
    assert (len(budget), "history" in budget, "nope" in budget) == (6, True, False)
    assert sum(budget.values()) == 200_000
    assert list(budget) == list(budget.keys()) == [name for name, _ in budget.items()]
    with pytest.raises(AttributeError, match="its zones are system_prompt"):
        _ = budget.nope
    assert copy.deepcopy(budget) == budget == pickle.loads(pickle.dumps(budget))


def test_seed_000_no_messages_leave_the_system_message() -> None:
    built = ContextWindow.build_messages(
        [], "You are Loom.", sections=[("rules", "## Project Rules")]
    )
    assert built == [{"role": "system", "content": "You are Loom.\n\n## Project Rules"}]
    assert ContextWindow.build_messages([], "You are Loom.", max_tokens=8_000) == [
        {"role": "system", "content": "You are Loom."}
    ]


def test_seed_000_there_is_one_system_message_whatever_the_list_holds() -> None:
    given = [
        {"role": "system", "content": "First."},
        *said(3),
        {"role": "system", "content": "Then."},
        *said(2),
    ]
    built = ContextWindow.build_messages(
        given, "You are Loom.", sections=[("rules", "## Project Rules")]
    )
    assert [m["role"] for m in built].count("system") == 1
    assert built[0]["content"] == "You are Loom.\n\nFirst.\n\nThen.\n\n## Project Rules"
    assert [m["content"] for m in built[1:]] == [m["content"] for m in (*said(3), *said(2))]


def test_seed_000_what_was_evicted_comes_back_from_the_list() -> None:
    built = ContextWindow.build_messages(said(400), "You are Loom.", max_tokens=8_000)
    [handle] = [handle for item in built.context.report.items for handle in item.handles]
    first = built.recall(handle).partition("\n")[0]
    assert json.loads(first)["parts"][0]["text"] == said(2)[1]["content"]
    assert json.loads(json.dumps(built)) == list(built)


def test_seed_000_warns_past_50_evicted() -> None:
    report = weave(said(400), model="gpt-4o", window=8_000, policy="window").report
    assert report.dropped > 50
    warned = f"{report.dropped} messages evicted—consider summarization or archiving"
    assert warned in report.notes


# ── seed 001 ─────────────────────────────────────────────────────────────────


def worked(steps: int) -> list[Message]:
    """A goal, steps with a tool whose results are 4,000 characters long, and a request."""
    made = [Message("user", (Text("goal"),))]
    for n in range(steps):
        made.append(Message("assistant", (ToolCall(f"c{n}", "read", "{}"),)))
        made.append(
            Message("tool", (ToolResult(f"c{n}", (Text(f"{n} " + "abc " * 1000),), name="read"),))
        )
    return [*made, Message("user", (Text("now"),))]


def test_seed_001_levels_are_as_printed() -> None:
    partitions = find_policy("partitions")
    assert partitions.ladder == {"snip": 0.7, "micro": 0.8, "collapse": 0.9, "auto": 0.95}
    assert (partitions.strategy, partitions.counter, partitions.renew) == (
        "ladder",
        "partitions",
        1.0,
    )
    assert list(ladder.RUNGS) == ["snip", "micro", "collapse", "auto", "reactive"]
    assert (ladder.SNIP_CHARS, ladder.REACTIVE_SNIP_CHARS, ladder.PREVIEW_CHARS) == (2000, 500, 240)
    assert (ladder.FIRST_MESSAGES, ladder.LAST_MESSAGES, ladder.MAX_LINE_CHARS) == (3, 5, 120)
    assert (ladder.MIN_KEPT_UNITS, ladder.SCORE_WEIGHT, ladder.SCORE_DECAY) == (5, 1.0, 0.5)


@pytest.mark.parametrize(
    ("pressure", "reason", "rule"),
    [
        (0.69, "each call is its own", ""),
        (0.71, "pressure 0.71: snip", "snip"),
        (0.79, "pressure 0.79: snip", "snip"),
        (0.81, "pressure 0.81: micro", "micro"),
        (0.91, "pressure 0.91: collapse", "collapse"),
        (0.96, "pressure 0.96: auto", "auto"),
        (1.05, "pressure 1.05: renewed", "auto"),
    ],
)
def test_seed_001_takes_one_level_a_turn_by_its_own_count(
    pressure: float, reason: str, rule: str
) -> None:
    messages = worked(20)
    tokens = sum(map(Counter(profile("partitions")).count_message, messages))
    report = weave(
        messages,
        model="gpt-4o",
        window=round(tokens / pressure),
        reserve_output=0,
        policy="partitions",
    ).report
    assert report.epoch_reason == reason
    assert {item.rule for item in report.items if item.action != "kept"} == (
        {rule} if rule else set()
    )
    assert report.renewed == (pressure >= 1)


def test_seed_001_partitions_stand_in_the_order_of_its_formula_and_only_history_gives_way() -> None:
    sections = [("working", "WORKING"), ("skills", "SKILL"), ("memory", "MEMORY")]
    context = weave(
        worked(20),
        system="SYSTEM",
        model="gpt-4o",
        window=9_000,
        policy="partitions",
        sections=sections,
    )
    sent = context.openai()["messages"]
    assert sent[0] == {"role": "system", "content": "SYSTEM\n\nMEMORY\n\nSKILL"}
    assert (sent[1]["content"], sent[-2]["content"], sent[-1]["content"]) == (
        "goal",
        "now",
        "WORKING",
    )
    assert len(sent) < 20


# ── seed 002 ─────────────────────────────────────────────────────────────────


def test_seed_002_cuts_between_turns() -> None:
    context = weave(said(200), model="gpt-4o", window=4_000, reserve_output=0, policy="turns")
    kept = [
        item.place
        for item in context.report.items
        if item.action == "kept" and item.rule == "whole_turns"
    ]
    first = int(kept[0].removeprefix("messages[").removesuffix("]"))
    assert first % 2 == 0, "a turn starts at a user message"


def test_seed_002_numbers_are_as_printed() -> None:
    turns = find_policy("turns")
    assert (turns.strategy, turns.counter, turns.reserve) == ("whole_turns", "turns", 32_768)
    assert (turns.summarize_past, turns.summarize_above, turns.summarize_keep) == (20, 0.75, 4)


def test_seed_002_a_window_that_nobody_names_is_four_times_the_answer() -> None:
    assert weave(said(2), policy="turns").report.window == 4 * 32_768
    report = weave(said(2), policy="turns", model="nobody/knows-it", reserve_output=2000).report
    assert (report.window, report.reserved_output) == (8000, 2000)
    assert any("no window is known; 4 times the 2,000 tokens" in note for note in report.notes)
    assert weave(said(2), policy="turns", model="claude-sonnet-4-5").report.window == 200_000
    context = weave(said(2), policy="turns", window=9000)
    assert context.report.reserved_output == context.conversation.max_output == 2250, (
        "what is kept for an answer is its limit"
    )


def test_seed_002_system_text_summary_and_tools_are_charged_by_its_own_counter() -> None:
    tools = [
        {"name": "read", "description": "Read a part. " * 20, "input_schema": {"type": "object"}}
    ]
    for summary in ("", "They read parts. " * 60):
        context = weave(
            said(60),
            system="You are careful. " * 30,
            tools=tools,
            sections=[("summary", summary)],
            policy="turns",
            window=4000,
        )
        sent, answer = context.conversation, context.report.reserved_output
        assert not is_over_context_budget(4000, (*sent.system, *sent.messages), sent.tools, answer)
        assert is_over_context_budget(3700, (*sent.system, *sent.messages), sent.tools, answer), (
            "nothing is given away"
        )


def test_seed_002_what_its_formula_leaves_no_room_for_is_refused_with_numbers() -> None:
    with pytest.raises(
        CannotFit, match=r"counter of the policy 'turns'.* leave -?\d+ of 1,500 tokens"
    ):
        weave(
            said(2),
            system="careful " * 500,
            model="gpt-4o",
            window=1500,
            reserve_output=0,
            policy="turns",
        )


def test_seed_002_a_system_message_goes_before_the_goal_is_cut() -> None:
    words = " lorem ipsum dolor" * 60
    given = [
        {"role": "user", "content": f"Wait thirty seconds.{words}{words}"},
        {"role": "system", "content": f"A reminder.{words}"},
        {"role": "assistant", "content": f"I wait.{words}"},
        {"role": "user", "content": f"Go on.{words}"},
    ]
    # enough for goal and request, by the preset's own counter, and not for the reminder as well
    window = 1480
    context = weave(given, model="gpt-4o", window=window, reserve_output=0, policy="turns")
    whole = {item.place for item in context.report.items if item.action == "kept"}
    assert whole == {"messages[0]", "messages[3]"}


def test_seed_002_parts_of_the_system_text_stand_in_its_order_and_are_divided_as_printed() -> None:
    sections = [
        ("summary", "SUMMARY"),
        ("runtime", "RUNTIME"),
        ("memory", "MEMORY"),
        ("skills", "SKILLS"),
        ("workspace", "FILES"),
    ]
    context = weave(said(2), system="static", policy="turns", sections=sections, model="gpt-4o")
    assert context.openai()["messages"][0]["content"] == "\n\n---\n\n".join(
        ["static", "FILES", "SKILLS", "MEMORY", "RUNTIME", "SUMMARY"]
    )


def test_seed_002_a_summary_is_told_in_its_words() -> None:
    turns = find_policy("turns")
    assert (turns.summary, turns.summary_text) == (
        "system",
        "CONTEXT_SUMMARY: The following is an approximate summary of prior conversation for "
        "reference only. "
        "It may be incomplete or outdated — always defer to explicit instructions.\n\n{text}",
    )


# ── seed 003 ─────────────────────────────────────────────────────────────────


def test_seed_003_defaults_are_as_printed() -> None:
    tree = find_policy("tree")
    assert (tree.strategy, tree.minimum_recent_nodes, tree.reserve) == ("truncate_middle", 4, 1024)
    assert "[... earlier messages truncated ...]" in tree.marker


def test_seed_003_truncates_the_middle() -> None:
    assert truncate_middle([10] * 10, 100) == (6, 6)
    assert truncate_middle([10] * 10, 70) == (3, 6)
    assert truncate_middle([10] * 10, 70, marker=5) == (2, 6)
    assert truncate_middle([10] * 10, 20) == (0, 6), "the last four stay even if they are too long"
    assert truncate_middle([10] * 10, 60, minimum_recent=0) == (5, 9), "at least one stays"


def test_seed_003_keeps_beginning_and_end_of_a_conversation() -> None:
    context = weave(said(60), model="gpt-4o", window=2_000, reserve_output=0, policy="tree")
    texts = [m["content"].split(" word")[0] for m in context.openai()["messages"]]
    assert texts[0] == "message 1"
    assert texts[-4:] == ["message 57", "message 58", "message 59", "message 60"]
    assert any(text.startswith("[... earlier messages truncated ...]") for text in texts)
    assert context.report.truncated


@pytest.mark.parametrize("strategy", ["truncate_middle", "rolling_window", "stop_at_limit"])
def test_seed_003_strategies_on_messages(strategy: str) -> None:
    """On documents: tests/trees/test_seed_003.py, through the gate that makes them."""
    chosen = replace(find_policy("tree"), strategy=strategy)
    assert not weave(said(6), model="gpt-4o", window=50_000, policy=chosen).report.truncated
    if strategy == "stop_at_limit":
        with pytest.raises(CannotFit, match="refuses to cut"):
            weave(said(60), model="gpt-4o", window=2_000, policy=chosen)
        return
    assert weave(said(60), model="gpt-4o", window=2_000, policy=chosen).report.truncated


@pytest.mark.parametrize("name", list(policies()))
def test_a_system_text_larger_than_the_window_is_refused_with_numbers(name: str) -> None:
    with pytest.raises(CannotFit, match=r"system text \d,\d\d\d.*of 1,000 usable.*shorten"):
        weave(
            said(2),
            system="rule " * 3000,
            model="gpt-4o",
            window=1000,
            reserve_output=0,
            policy=name,
        )


def test_tools_larger_than_the_window_are_refused_with_numbers() -> None:
    tools = [{"name": "f", "description": "word " * 3000, "input_schema": {}}]
    policy = Policy.extends("default", name="all tools", tools="all")
    with pytest.raises(CannotFit, match=r"tools 3,\d\d\d"):
        weave(said(2), tools=tools, model="gpt-4o", window=1000, reserve_output=0, policy=policy)


# ── the gate ─────────────────────────────────────────────────────────────────


def test_the_gate_is_the_sole_maker_of_requests() -> None:
    makers, callers = set(), set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "loom.context.history.gate"
                and any(a.name == "fit" for a in node.names)
            ):
                callers.add(path.name)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Context":
                makers.add(path.name)
    assert makers == {"assemble.py"}
    assert callers == {"filling.py", "whole_turns.py"}


def test_a_prompt_past_its_zone_is_paid_for_by_history_and_said() -> None:
    notes = weave(said(2), system="rule " * 3000, model="gpt-4o", window=20_000).report.notes
    assert any("system_prompt takes" in note and "history pays" in note for note in notes)


def test_sections_live_within_their_zones() -> None:
    context = weave(
        said(2),
        model="gpt-4o",
        sections=[Section("knowledge", "fact " * 5000)],
        zones={"knowledge": 100},
    )
    item = next(item for item in context.report.items if item.zone == "knowledge")
    assert (item.action, item.after <= 120) == ("shrunk", True)
    assert context.recall(item.handles[0]) == "fact " * 5000
    assert context.openai()["messages"][-1]["content"].startswith("fact fact"), (
        "knowledge stands in the tail"
    )


@pytest.mark.parametrize("policy", ["default", "window", "turns", "tree", "partitions"])
@pytest.mark.parametrize("window", [2_200, 2_000])
def test_what_fits_at_the_end_is_kept_also_where_the_model_said_it(
    policy: str, window: int
) -> None:
    filler = " lorem ipsum dolor sit amet" * 123
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"{n}{filler}"} for n in range(8)]
    # which counts a token for 2.5 characters
    window = window * 11 // 5 if policy == "turns" else window
    context = weave(messages, model="gpt-4o", window=window, reserve_output=0, policy=policy)
    sent = [m["content"] for m in context.openai()["messages"]]
    # the tree's last nodes come before its goal
    for n in (6, 7) if policy == "tree" else (0, 6, 7):
        assert messages[n]["content"] in sent
    again = weave(
        messages,
        model="gpt-4o",
        window=window,
        reserve_output=0,
        policy=policy,
        previous=weave(messages[:6], window=2_200),
    )
    assert messages[7]["content"] in [m["content"] for m in again.openai()["messages"]]


def test_pins_stay_however_old() -> None:
    messages = said(200)
    context = weave(messages, model="gpt-4o", window=2_000, reserve_output=0, pins=[51])
    assert messages[51]["content"] in [m["content"] for m in context.openai()["messages"]]
    with pytest.raises(LoomError, match="pin 900 is not a message"):
        weave(messages, model="gpt-4o", pins=[900])


def test_cache_marks_stand_at_the_stable_boundaries() -> None:
    tools = [{"name": "f", "input_schema": {}}]
    body = weave(
        said(9),
        system="be brief",
        tools=tools,
        model="claude-sonnet-4-6",
        sections=[("working", "step 1")],
    ).anthropic()
    assert "cache_control" in body["tools"][-1]
    assert "cache_control" in body["system"][-1]
    marked = [
        n
        for n, m in enumerate(body["messages"])
        if isinstance(m["content"], list) and "cache_control" in m["content"][-1]
    ]
    assert marked == [6, 8], "the end of history and the user message before it; never the tail"
    assert body["messages"][-1]["content"] == "step 1"


def test_the_reserve_is_the_limit_that_is_sent() -> None:
    context = weave(said(2), model="gpt-4o", reserve_output=777)
    assert context.openai()["max_completion_tokens"] == 777
    assert context.responses()["max_output_tokens"] == 777
    assert context.anthropic()["max_tokens"] == 777
    assert context.report.window == 128_000


def test_bad_numbers_and_names_are_refused() -> None:
    for options, words in (
        ({"window": -5}, "number of tokens"),
        ({"window": 0}, "number of tokens"),
        ({"window": 100, "reserve_output": 100}, "leaves nothing"),
        ({"policy": "nope"}, "choose one of default"),
    ):
        with pytest.raises(LoomError, match=words):
            weave(said(2), model="gpt-4o", **options)
    with pytest.raises(LoomError, match="list of messages"):
        weave({"role": "user"}, model="gpt-4o")
    with pytest.raises(LoomError, match="unknown dialect"):
        weave(said(2)).render("klingon")
    with pytest.raises(LoomError, match="strategy: expected one of newest, recent"):
        Policy.from_toml('name = "x"\nabout = "y"\nstrategy = "guess"')


def test_nothing_to_send_is_an_error() -> None:
    with pytest.raises(CannotFit, match="nothing to send"):
        weave([{"role": "user", "content": " "}], model="gpt-4o")


def test_recall_of_an_unknown_handle_says_so() -> None:
    with pytest.raises(LoomError, match="nothing was left out under"):
        weave(said(2), model="gpt-4o").recall("~aaaaaaaaaaaa")


def test_models_without_a_public_tokenizer_keep_a_margin() -> None:
    report = weave(said(400), model="claude-sonnet-4-6", window=8000, reserve_output=0).report
    assert report.counter == "o200k_base"
    assert report.input_tokens <= 8000 * 0.92
    assert any("no public tokenizer" in note for note in report.notes)


def test_values_and_dictionaries_are_woven_alike() -> None:
    values = [Message(m["role"], (Text(m["content"]),)) for m in said(5)]  # type: ignore[arg-type]
    assert weave(values, model="gpt-4o").openai() == weave(said(5), model="gpt-4o").openai()


def test_policies_ship_with_the_package() -> None:
    assert list(policies()) == ["default", "partitions", "tasks", "tree", "turns", "window"]
    assert all(
        Path(ROOT / "src/loom/context/policies" / f"{name}.toml").exists() for name in policies()
    )


# ── what callers get wrong, and what went wrong once ─────────────────────────

BIG = "lorem ipsum dolor " * 2000


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_sections_behind_a_listed_system_text_are_counted_as_they_are_sent() -> None:
    odd = '"\n\\"é\t日本"' * 200
    system = {
        "role": "system",
        "content": [{"type": "text", "text": "You are"}, {"type": "text", "text": "careful"}],
    }
    context = weave(
        [system, user("go"), assistant(BIG), user("now")],
        model="gpt-4o",
        window=6000,
        reserve_output=0,
        sections=[("rules", odd), ("memory", odd)],
    )
    counter = gate_counter("gpt-4o")
    sent = context.conversation
    assert sum(map(counter.count_message, (*sent.system, *sent.messages))) <= 6000
    assert context.report.input_tokens <= 6000


def test_a_goal_of_many_parts_is_shrunk_rather_than_refused() -> None:
    parts = [{"type": "text", "text": f"{n} " + BIG} for n in range(40)]
    context = weave(
        [{"role": "user", "content": parts}, assistant("x"), user(BIG)],
        model="gpt-4o",
        window=3000,
        reserve_output=0,
    )
    assert context.report.input_tokens <= 3000


def test_handles_resolve_in_every_call_of_an_epoch() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    thought = {"role": "assistant", "content": "say", "reasoning_content": "hmm " * 900}
    first = weave(
        [{"role": "user", "content": [picture, {"type": "text", "text": "go"}]}, thought],
        model="gpt-4o",
        window=500,
        reserve_output=0,
    )
    grown = [
        {"role": "user", "content": [picture, {"type": "text", "text": "go"}]},
        thought,
        assistant("ok"),
    ]
    second = weave(grown, model="gpt-4o", window=500, reserve_output=0, previous=first)
    assert second.report.epoch_reason == "continued"
    named = {handle for message in second.conversation.messages for handle in handles_in(message)}
    assert named
    assert all(second.recall(handle) for handle in named)


def test_reasoning_that_does_not_fit_goes_behind_a_handle() -> None:
    thought = {"type": "thinking", "thinking": BIG, "signature": "c2ln"}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    messages = [
        user("go"),
        {"role": "assistant", "content": [thought, call]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}],
        },
    ]
    context = weave(messages, model="gpt-4o", window=1500, reserve_output=100)
    [item] = [item for item in context.report.items if item.action == "shrunk"]
    assert BIG[:200] in context.recall(item.handles[0])


def test_a_pin_that_is_too_big_does_not_end_every_epoch() -> None:
    messages = [user("goal"), assistant("x"), user(BIG), assistant("y"), user("now")]
    first = weave(messages, model="gpt-4o", window=3000, reserve_output=0, pins=[2])
    again = weave(
        messages, model="gpt-4o", window=3000, reserve_output=0, pins=[2], previous=first.report
    )
    assert again.report.epoch_reason == "continued"


def test_pins_follow_their_message_through_repair() -> None:
    call = {"id": "bad id!", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        user("goal"),
        {"role": "tool", "tool_call_id": "none", "content": "orphan"},
        assistant("ok"),
        {"role": "assistant", "content": "pinned words", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "bad id!", "content": "done"},
        *(assistant(BIG[:3000]) for _ in range(5)),
        user("now"),
    ]
    sent = weave(messages, model="gpt-4o", window=900, reserve_output=0, pins=[3]).openai()[
        "messages"
    ]
    assert any("pinned words" in str(m["content"]) for m in sent)


def test_system_text_inside_the_conversation_stays() -> None:
    messages = [
        user("go"),
        {"role": "system", "content": "NEVER DELETE"},
        assistant(BIG),
        assistant(BIG),
        user("now"),
    ]
    sent = weave(messages, model="gpt-4o", window=600, reserve_output=0).openai()["messages"]
    assert "NEVER DELETE" in [m["content"] for m in sent]


def test_the_limit_that_is_sent_fits_the_window_and_the_model() -> None:
    body = weave(
        [user("go"), assistant(BIG)], model="gpt-4o", window=5000, reserve_output=0
    ).anthropic()
    assert body["max_tokens"] <= 200
    assert weave([user("go")], model="gpt-4-turbo", policy="turns").report.reserved_output == 4096


def test_sections_never_overflow_a_zone_that_the_caller_sized() -> None:
    sections, zones = [("memory", "word " * 100)] * 200, {"memory": 2048}
    report = weave([user("go")], model="gpt-4o", sections=sections, zones=zones).report
    assert report.zones["memory"]["used"] <= 2048
    assert {item.action for item in report.items if item.zone == "memory"} == {
        "kept",
        "shrunk",
        "dropped",
    }


@pytest.mark.parametrize("zone", ["memory", "working", "rules", "notes"])
@pytest.mark.parametrize("name", list(policies()))
def test_what_a_window_has_free_flows_to_sections_that_need_it(zone: str, name: str) -> None:
    context = weave([user("go")], model="gpt-4o", policy=name, sections=[(zone, "fact " * 9000)])
    [item] = [item for item in context.report.items if item.zone == zone]
    assert (item.action, item.before) == ("kept", 9001)
    assert context.report.zones[zone] == {"budget": item.after, "used": item.after}


@pytest.mark.parametrize("name", list(policies()))
def test_history_gives_nothing_to_sections_that_are_larger_than_their_zone(name: str) -> None:
    long = [user(f"{n}: " + "word " * 300) for n in range(60)]
    options: Any = {"model": "gpt-4o", "window": 16_000, "policy": name}
    large, usual = (
        weave(long, sections=[("memory", "fact " * n)], **options) for n in (9000, 2030)
    )
    assert kept_places(usual) <= kept_places(large)


def kept_places(context: Context) -> set[str]:
    return {
        item.place
        for item in context.report.items
        if item.zone == "history" and item.action == "kept"
    }


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": -1},
        {"ratio": 0},
        {"ratio": float("nan")},
        {"sections": ["rules"]},
        {"sections": [("rules",)]},
        {"sections": [("history", "x")]},
        {"pins": ["0"]},
        {"zones": 5},
        {"zones": {"reserved_output": 3}},
        {"system": [{"type": "text"}]},
        {"tools": 5},
        {"model": 5},
        {"previous": 5},
    ],
)
def test_slips_of_callers_are_named(options: Any) -> None:
    with pytest.raises(LoomError, match=r"ratio|sections|pin|zones|system|tools|model|previous"):
        weave(said(2), **({"model": "gpt-4o"} | options))


def test_halves_of_characters_do_no_harm() -> None:
    assert (
        weave(
            [user("a \ud83d"), user("c")], model="gpt-4o", window=400, reserve_output=0
        ).report.input_tokens
        > 0
    )


@pytest.mark.parametrize("marker", ["{x} recall {handle}", "{", "cut"])
def test_a_marker_must_name_its_handle(marker: str) -> None:
    with pytest.raises(LoomError, match="marker"):
        replace(find_policy("default"), marker=marker)
