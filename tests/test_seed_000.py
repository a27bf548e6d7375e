"""Document 000, block by block: every format and number that it prints, and every known defect of
the project behind it, which does not exist here.

Blocks are read from the document itself where it is at hand. They are Elixir, so that their names
and values are compared, and not run.
"""

import asyncio
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import ContextWindow, Loom, Message, Text, ToolCall, weave
from loom.budget.counting import Counter, gate_counter
from loom.budget.profiles import profile
from loom.budget.zones import DEFAULTS, messages_that_fit
from loom.errors import ChoiceError, UnknownOption
from loom.providers.scripted import ScriptedModel
from tests.shared import SHARED
from tests.test_pressure import answer

DOCUMENT = next(iter(sorted((SHARED / "seeds").glob("000_*.txt"))), None)
TEXT = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT else ""
needs_document = pytest.mark.skipif(DOCUMENT is None, reason="document 000 is not at hand")
START = 1772274600000  # 2026-02-28 10:30 UTC
SONNET = "anthropic:claude-sonnet-4-6"
count = gate_counter(None).count_text
Chat = dict[str, Any]

DECISIONS = """\
## Active Goals
- Add authentication to the API (confidence: 85%)
- Improve error handling (confidence: 90%)

## Recent Decisions
- [decision] Use JWT tokens for auth
- [action] Implement JWT middleware

## Session Context
[2026-02-28 10:30] goal: Add authentication to the API
[2026-02-28 10:35] decision: Use JWT tokens for auth (confidence: 85%)"""
MAP = """\
## Project Files

### lib/loom/session/session.ex (relevance: high)
Modules: Loom.Session
Functions: send_message/2, get_history/1, update_model/2

### lib/loom/session/context_window.ex (relevance: medium)
Modules: Loom.Session.ContextWindow
Functions: build_messages/3, allocate_budget/2"""
CONFIGURED_RULES = """\
[rules]
style = "Follow Elixir community style guide"
testing = "Write ExUnit tests for all public functions"
"""
RULES = """\
## Project Rules
- Style: Follow Elixir community style guide
- Testing: Write ExUnit tests for all public functions"""
SOURCES = {
    "session.ex": """\
defmodule Loom.Session do
  def send_message(session, text), do: {session, text}
  def get_history(session), do: session
  def update_model(session, model), do: {session, model}
end
""",
    "context_window.ex": """\
defmodule Loom.Session.ContextWindow do
  def build_messages(messages, system_prompt, opts), do: {messages, system_prompt, opts}
  def allocate_budget(model, opts), do: {model, opts}
end
""",
}
ASKED = "Fix get_history in lib/loom/session/session.ex for the context window"


class Clock:
    now = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loom(clock: Clock) -> Iterator[Loom]:
    with Loom.open(":memory:", now=clock) as made:
        yield made


@pytest.fixture(autouse=True)
def no_store_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "absent" / "loom.db"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "lib/loom/session").mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / "lib/loom/session" / name).write_text(text, encoding="utf-8")
    (folder / ".loom.toml").write_text(CONFIGURED_RULES, encoding="utf-8")
    return folder


def said(number: int, words: int = 100) -> list[Chat]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"{n} " + "word " * words} for n in range(number)]


def log_as_printed(loom: Loom, clock: Clock, folder: str = "") -> str:
    """Log what the document prints as decided; the session of it."""
    clock.now = START - 3_600_000
    elsewhere = loom.decisions.of_folder(folder)
    elsewhere.log("Improve error handling", kind="goal", confidence=90)
    elsewhere.log("Implement JWT middleware", kind="action")
    session = loom.new()
    clock.now = START
    here = session.decisions.of_folder(folder)
    here.log("Add authentication to the API", kind="goal", confidence=85)
    clock.now = START + 300_000
    here.log("Use JWT tokens for auth", confidence=85)
    return session.id


def as_printed(text: str) -> str:
    """A text in which the second file of the map matters as much as in the document: how much is
    for the ranking to say.
    """
    return re.sub(r"(context_window.ex \(relevance: )\w+", r"\1medium", text)


def numbers(block: str) -> dict[str, int]:
    """The names and numbers of a map of the document."""
    return {name: int(number) for name, number in re.findall(r"(\w+): (\d+)", block)}


# ── the blocks of the document ───────────────────────────────────────────────


@needs_document
@pytest.mark.parametrize("block", [DECISIONS, MAP, CONFIGURED_RULES, RULES], ids=lambda b: b[:20])
def test_what_is_tested_is_what_the_document_prints(block: str) -> None:
    assert block in TEXT


@needs_document
def test_zones_are_those_of_the_document() -> None:
    [block] = re.findall(r"@zone_defaults %\{(.*?)\}", TEXT, re.DOTALL)
    assert numbers(block) == DEFAULTS
    rows = {
        "System Prompt": "system_prompt",
        "Decision Context": "decision_context",
        "Repo Map": "repo_map",
        "Tool Definitions": "tool_definitions",
        "Reserved Output": "reserved_output",
        "Conversation History": "history",
        "Total": "total",
    }
    printed = ContextWindow.allocate_budget(SONNET).as_dict()
    for title, zone in rows.items():
        [tokens] = re.findall(rf"^{title}([\d,]+)[A-Z]", TEXT, re.MULTILINE)
        assert printed[zone] == int(tokens.replace(",", ""))
    assert sum(DEFAULTS.values()) == 11_264
    assert "= 11,264" in TEXT


@needs_document
def test_the_budget_prints_as_in_the_document() -> None:
    [block] = re.findall(r"IO\.inspect\(budget\)\n# => %\{(.*?)# \}", TEXT, re.DOTALL)
    assert dict(ContextWindow.allocate_budget(SONNET)) == numbers(block)
    assert messages_that_fit(ContextWindow.allocate_budget(SONNET)) == 1509
    assert "Can fit ~1509 messages" in TEXT


@needs_document
def test_model_limits_are_those_of_the_document() -> None:
    found = re.findall(r'model_limit\("([^"]+)"\)\n# => ([\d_]+)', TEXT)
    assert len(found) == 5
    for name, limit in found:
        assert ContextWindow.model_limit(name) == int(limit)
    assert ContextWindow.model_limit(None) == 128_000


def test_four_characters_are_a_token_and_a_message_costs_four_more() -> None:
    assert [ContextWindow.estimate_tokens("x" * n) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    rough = Counter(profile("window"))
    assert rough.count_message(Message("user", (Text("x" * 400),))) == 104


def test_of_20_messages_the_10_newest_stay_where_10_fit() -> None:
    messages = said(20, 400)
    each = ContextWindow.estimate_tokens(messages[-1]["content"]) + 4
    window = 10 * each + each // 2
    built = ContextWindow.build_messages(messages, "", max_tokens=window, reserved_output=0)
    shown = [message["content"].split()[0] for message in built]
    assert shown[-10:] == [str(n) for n in range(10, 20)]
    assert built.context.report.dropped in (9, 10)  # the goal may come back: laws outrank presets


def test_decisions_are_injected_as_printed(loom: Loom, clock: Clock) -> None:
    session = log_as_printed(loom, clock)
    built = ContextWindow.build_messages([], "You are Loom.", session_id=session, loom=loom)
    assert built == [{"role": "system", "content": f"You are Loom.\n\n{DECISIONS}"}]


def test_the_map_is_injected_as_printed(project: Path) -> None:
    built = ContextWindow.build_messages(
        [{"role": "user", "content": ASKED}], "You are Loom.", project_path=project
    )
    assert as_printed(built[0]["content"]).startswith(f"You are Loom.\n\n{MAP}")


def test_rules_are_injected_as_printed(project: Path) -> None:
    built = ContextWindow.build_messages([], "You are Loom.", project_path=project)
    assert built[0]["content"].endswith(f"\n\n{RULES}")


def test_all_pieces_come_together_in_the_order_of_the_document(
    loom: Loom, clock: Clock, project: Path
) -> None:
    session = log_as_printed(loom, clock, os.path.realpath(project))
    messages = [
        {"role": "user", "content": ASKED},
        {
            "role": "assistant",
            "content": "I'll add try/rescue blocks...",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "file_edit", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "content": "File edited", "tool_call_id": "call_1"},
    ]
    built = ContextWindow.build_messages(
        messages, "You are Loom.", session_id=session, project_path=project, loom=loom, model=SONNET
    )
    assert [message["role"] for message in built] == ["system", "user", "assistant", "tool"]
    system = as_printed(built[0]["content"])
    assert system.startswith(f"You are Loom.\n\n{DECISIONS}\n\n{MAP}\n\n")
    assert system.endswith(f"\n\n{RULES}")
    assert built[1:] == messages
    assert built.context.report.zones["decision_context"]["used"] > 0


def test_the_output_of_the_document_has_its_parts_in_order(
    loom: Loom, project: Path, clock: Clock
) -> None:
    folder = os.path.realpath(project)
    loom.decisions.of_folder(folder).log("Add authentication", kind="goal", confidence=85)
    built = ContextWindow.build_messages([], "You are Loom.", project_path=project, loom=loom)
    expected = [
        "You are Loom.",
        "## Active Goals\n- Add authentication (confidence: 85%)\n\n",
        "## Project Files",
        "### lib/loom/session/session.ex",
        "## Project Rules\n- ",
    ]
    places = [built[0]["content"].index(part) for part in expected]
    assert places == sorted(places)


def test_a_store_by_its_path_has_the_decisions_and_one_that_is_missing_is_not_made(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "loom.db"
    built = ContextWindow.build_messages([], "You are Loom.", session_id="s", store=path)
    assert built == [{"role": "system", "content": "You are Loom."}]
    assert any("there is no store" in note for note in built.context.report.notes)
    assert not path.exists()
    with Loom.open(path, now=clock) as loom:
        session = log_as_printed(loom, clock)
    built = ContextWindow.build_messages([], "You are Loom.", session_id=session, store=path)
    assert DECISIONS in built[0]["content"]


@pytest.mark.parametrize(
    "wrong",
    [{"session_id": 7}, {"session_id": "s", "loom": "loom.db"}, {"session_id": "s", "store": 7}],
)
def test_wrong_values_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ChoiceError, match=f"{list(wrong)[-1]} must be"):
        ContextWindow.build_messages([], "P", **wrong)
    with pytest.raises(UnknownOption, match="project_path"):
        ContextWindow.build_messages([], "P", project=".")  # type: ignore[call-arg]


def test_a_session_that_does_not_exist_is_named(loom: Loom) -> None:
    built = ContextWindow.build_messages([], "P", session_id="nosession", loom=loom)
    assert any("nosession" in note for note in built.context.report.notes)


def test_the_placeholder_of_a_summary_is_as_printed() -> None:
    messages = [{"role": "user", "content": "a" * 150}, {"role": "assistant", "content": "b" * 150}]
    assert ContextWindow.summarize_old_messages(messages) == (
        f"Summary of 2 earlier messages: {'a' * 150} {'b' * 49}..."
    )


def test_a_summary_is_a_message_of_the_model_at_the_start_of_history(loom: Loom) -> None:
    session = loom.new()
    for n in range(12):
        session.append({"role": "user", "content": f"{n} " + "word " * 300})
        session.append({"role": "assistant", "content": "Done."})
    words = "Earlier in this session, we added JWT authentication."
    asyncio.run(session.summarize(ScriptedModel.always(words)))
    session.append({"role": "user", "content": "Now add rate limiting"})
    context = asyncio.run(session.prepare(policy="window", window=4000, reserve_output=500))
    sent = context.openai()["messages"]
    summaries = [message for message in sent if "[Summary] " in str(message["content"])]
    assert [message["role"] for message in summaries] == ["assistant"]
    assert sent[-1]["content"] == "Now add rate limiting"


def test_the_options_of_the_document_set_zones_and_pay_from_history() -> None:
    model = "anthropic:claude-opus-4-6"
    asked = {"max_decision_tokens": 2048, "max_repo_map_tokens": 4096, "reserved_output": 8192}
    budget = ContextWindow.allocate_budget(model, **asked)
    assert [budget[name] for name in ("decision_context", "repo_map", "reserved_output")] == [
        *asked.values()
    ]
    assert sum(budget.values()) == ContextWindow.model_limit(model)
    built = ContextWindow.build_messages(said(3), "You are Loom.", model=model, **asked)
    assert built.context.report.reserved_output == 8192


def test_the_best_practices_count_right_where_the_document_slips() -> None:
    """It says about 185K and about 127K; the sums of its own numbers are these."""
    modest = ContextWindow.allocate_budget(
        SONNET, max_repo_map_tokens=3072, max_decision_tokens=2048
    )
    large = ContextWindow.allocate_budget(
        SONNET, max_repo_map_tokens=50_000, max_decision_tokens=10_000
    )
    assert (modest.history, large.history) == (186_688, 131_808)


def test_the_legacy_limit_ignores_the_model() -> None:
    built = ContextWindow.build_messages(said(9), "You are Loom.", max_tokens=50_000, model=SONNET)
    assert built.context.report.window == 50_000


def test_a_long_prompt_is_paid_for_by_history_and_warned_about() -> None:
    prompt = "[20 paragraphs of detailed instructions...] " * 300
    report = ContextWindow.build_messages(said(9), prompt, model="gpt-4o").context.report
    assert any("system_prompt takes" in note for note in report.notes)


def test_a_session_is_archived_and_continued_with_its_title(loom: Loom) -> None:
    session = loom.new(title="Authentication")
    following = session.carry_on()
    assert session.row.status == "archived"
    assert following.row.title == "Continue: Authentication"


def test_a_session_counts_tokens_and_dollars(loom: Loom) -> None:
    session = loom.new()
    session.append("Go.")
    asyncio.run(session.prepare(model="gpt-4o"))
    tokens = {"prompt_tokens": 1_000_000, "completion_tokens": 1000}
    session.absorb({**answer(1), "model": "gpt-4o", "usage": tokens})
    usage = session.row.usage
    assert (usage.prompt, usage.completion) == (1_000_000, 1000)
    assert usage.cost > 1


@needs_document
def test_more_than_50_evicted_messages_are_warned_about_once() -> None:
    [printed] = re.findall(r'IO\.warn\("#\{evicted\}(.*?)"\)', TEXT)
    messages = said(200)
    with pytest.warns(UserWarning, match="messages evicted") as caught:
        built = ContextWindow.build_messages(messages, "You are Loom.", max_tokens=8_000)
    evicted = built.context.report.dropped
    assert evicted > 50
    assert str(caught[0].message) == f"{evicted}{printed}"
    assert f"{evicted}{printed}" in built.context.report.notes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = [*messages, {"role": "user", "content": "Next"}]
        ContextWindow.build_messages(more, "You are Loom.", max_tokens=8_000)
        ContextWindow.build_messages(said(60), "You are Loom.", model="gpt-4o")


# ── defects of the project behind the document, and that they do not exist here ──


def log_many(loom: Loom, number: int, **fields: Any) -> None:
    for n in range(number):
        loom.decisions.log(f"Decide about component number {n}", kind="goal", **fields)


@pytest.mark.parametrize("tokens", [250, 1024, 2048])
def test_defect_max_decision_tokens_limits_the_decisions_themselves(
    loom: Loom, tokens: int
) -> None:
    log_many(loom, 400)
    built = ContextWindow.build_messages(
        [], "P", session_id="s", loom=loom, max_decision_tokens=tokens
    )
    section = built[0]["content"].removeprefix("P\n\n")
    assert tokens * 0.6 < count(section) <= tokens
    assert "[truncated...] Not shown: " in section
    assert any("max_decision_tokens" in note for note in built.context.report.notes)


def test_defect_the_map_follows_the_request(project: Path) -> None:
    texts = []
    for asked in (ASKED, "Change allocate_budget in lib/loom/session/context_window.ex"):
        messages = [{"role": "user", "content": asked}]
        texts.append(
            ContextWindow.build_messages(messages, "P", project_path=project)[0]["content"]
        )
    assert "session.ex (relevance: high)" in texts[0]
    assert "context_window.ex (relevance: high)" in texts[1]
    assert texts[0] != texts[1]


def test_defect_decisions_and_lessons_do_not_leak_between_projects(
    tmp_path: Path, clock: Clock
) -> None:
    store = tmp_path / "loom.db"
    with Loom.open(store, project="other", now=clock) as other:
        secret = other.decisions.log("A secret decision")
        other.decisions.log("A secret goal", kind="goal")
        other.decisions.abandon(other.decisions.log("A secret attempt").id, "a secret reason")
        other_session = other.new().id
    with Loom.open(store, now=clock) as loom:
        loom.decisions.log("My decision")
        for session in ("s", other_session, secret.id):
            built = ContextWindow.build_messages([], "P", session_id=session, loom=loom)
            assert "My decision" in built[0]["content"]
            assert "secret" not in built[0]["content"]


def test_defect_a_long_session_of_decisions_costs_no_more_than_its_zone(
    loom: Loom, clock: Clock
) -> None:
    """There, all nodes of a session and the noise of tools once cost 30,000 tokens."""
    session = loom.new()
    for n in range(400):
        clock.now += 60_000
        session.decisions.log(f"Ran tool {n}", kind="action", metadata={"auto": True})
        session.decisions.log(f"Decision {n}", description="because " * 40)
    context = asyncio.run(session.prepare("Go on.", model="gpt-4o"))
    assert 0 < context.report.zones["decision_context"]["used"] <= 1024
    assert "Ran tool" not in context.conversation.messages[-1].text


def test_defect_rules_are_never_in_a_request_twice(project: Path) -> None:
    built = ContextWindow.build_messages([], f"P\n\n{RULES}", project_path=project)
    assert built[0]["content"].count("Follow Elixir community style guide") == 1


def test_defect_there_is_one_system_message_and_none_trails() -> None:
    given = [*said(3), {"role": "system", "content": "Note."}, *said(4)]
    built = ContextWindow.build_messages(given, "P", max_tokens=2000, reserved_output=0)
    assert [message["role"] for message in built].count("system") == 1
    assert built[-1]["role"] != "system"


@pytest.mark.parametrize("window", [600, 2000, 4000])
def test_defect_the_newest_request_stays_and_what_stays_is_one_stretch(window: int) -> None:
    messages = said(41)
    report = weave(messages, policy="window", window=window, reserve_output=0).report
    kept = [
        int(re.findall(r"\d+", item.place)[0])
        for item in report.items
        if item.zone == "history" and item.action in ("kept", "shrunk")
    ]
    assert kept[-1] == 40
    after_goal = [place for place in kept if place > 0]
    assert after_goal == list(range(after_goal[0], 41))


def test_defect_building_a_request_calls_no_model_and_adds_nothing_after_the_budget(
    loom: Loom,
) -> None:
    """There, each build asked the main model for a summary, and added that after the budget."""
    session = loom.new()
    session.append(*said(200))
    for _ in range(3):
        context = asyncio.run(
            session.prepare(policy="window", window=8000, reserve_output=1000, model="gpt-4o")
        )
        report = context.report
        assert report.input_tokens + report.margin + report.reserved_output <= report.window


def test_defect_tools_and_calls_are_measured() -> None:
    tool = {"type": "function", "function": {"name": "t", "description": "d " * 1500}}
    large = weave(said(3), tools=[tool], model="gpt-4o", policy="window").report
    assert 1500 < large.zones["tool_definitions"]["used"] < 2048
    call = Message("assistant", (ToolCall("c", "t", json.dumps({"text": "word " * 2000})),))
    assert gate_counter("gpt-4o").count_message(call) > 2000


def test_defect_what_is_left_out_leaves_the_request_and_comes_back_in_order() -> None:
    """There, an offload copied messages and left them, and gave them back reversed."""
    built = ContextWindow.build_messages(said(120), "P", max_tokens=4000)
    [handle] = [handle for item in built.context.report.items for handle in item.handles]
    lines = [json.loads(line)["parts"][0]["text"] for line in built.recall(handle).splitlines()]
    places = [int(line.split()[0]) for line in lines]
    assert places == sorted(places)
    shown = {message["content"] for message in built}
    assert not shown & set(lines)


def test_defect_few_huge_messages_leave_no_empty_marker() -> None:
    """There, fewer than four huge messages made an empty keeper, and a marker in each call."""
    messages = [{"role": "user", "content": "Goal. " + "word " * 9000}]
    sizes = set()
    for _ in range(3):
        built = ContextWindow.build_messages(messages, "P", max_tokens=4000)
        sizes.add(len(built))
        assert built[1]["content"].startswith("Goal. ")
    assert sizes == {2}


def test_defect_rules_are_read_again_when_they_change(project: Path) -> None:
    first = ContextWindow.build_messages([], "P", project_path=project)[0]["content"]
    (project / ".loom.toml").write_text('[rules]\nstyle = "Be brief"\n', encoding="utf-8")
    second = ContextWindow.build_messages([], "P", project_path=project)[0]["content"]
    assert "Follow Elixir" in first
    assert "- Style: Be brief" in second
    assert "Follow Elixir" not in second


def test_defect_what_is_left_out_is_found_by_any_of_its_words(loom: Loom) -> None:
    """There, it was named by its first 60 characters."""
    session = loom.new()
    messages = said(120)
    messages[20]["content"] += "the heddle of the old machine is broken"
    session.append(*messages)
    context = asyncio.run(session.prepare("Go on.", policy="window", window=4000))
    assert "heddle" not in str(context.openai()["messages"])
    [hit] = loom.search("heddle")
    assert "the heddle of the old machine" in hit.text
