"""Working state as seed 001 has it: its parts, what happens to them, how it reads, and that it
stays small.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Loom, Message, Text, ToolCall, ToolResult
from loom.budget.counting import Counter
from loom.budget.profiles import profile
from loom.context.policy import policies
from loom.context.state import working as w
from loom.context.state.working import Evidence, Incident, Working
from loom.errors import ChoiceError
from tests.shared import examples

count = Counter(profile("o200k_base")).count_text


def test_the_dashboard_has_what_the_seed_prints() -> None:
    assert w.Dashboard.__struct_fields__ == (
        "rho",
        "token_budget",
        "goal_progress",
        "error_count",
        "depth",
        "last_hb_ts",
        "interrupt_requested",
    )


def test_it_reads_as_the_seed_has_it() -> None:
    state = Working().assess(
        progress="half done", plan=["read", "write"], scratchpad="maybe the cache"
    )
    state = state.happen(
        Incident(event_id="e1", type="ci", summary="the build broke", urgency="high")
    )
    state = state.ask("why?").learn(
        Evidence(source="wiki", title="Retries", content="Retries are safe.", score=0.4),
        "wiki/12",
    )
    state = state.set_measures(0.756, 1200).add_errors(2).beat(1_700_000_000_000)
    assert state.render() == (
        "## Dashboard\n- rho: 0.76\n- token_budget: 1200\n- goal_progress: half done\n- "
        "error_count: 2\n- depth: 0\n"
        "- last_hb_ts: 1700000000000\n⚠️ **INTERRUPT REQUESTED**\n\n## Current Plan\n1. "
        "read\n2. write\n\n"
        "## Pending Events\n- [high] the build broke (e1)\n\n## Active Risks\n- [high] the "
        "build broke\n\n"
        "## Active Questions\n- why?\n\n## Knowledge Evidence\n- Retries: Retries are safe.\n\n"
        "## Knowledge Citations\n- wiki/12\n\n## Scratchpad\nmaybe the cache"
    )
    assert Working().render() == ""


def test_an_event_comes_up_once_and_an_urgent_one_interrupts() -> None:
    state = (
        Working()
        .happen(Incident(event_id="a", summary="x"))
        .happen(Incident(event_id="a", summary="y"))
    )
    assert [event.summary for event in state.pending_events] == ["x"]
    assert not state.dashboard.interrupt_requested
    state = state.happen(Incident(event_id="b", summary="fire", urgency="critical"))
    assert state.dashboard.interrupt_requested
    assert [risk.event_id for risk in state.active_risks] == ["b"]


def test_what_is_acknowledged_goes_and_the_decision_stays() -> None:
    state = Working().happen(Incident(event_id="b", summary="fire", urgency="critical"))
    state = state.acknowledge("b", "called the fire brigade")
    assert (state.pending_events, state.active_risks, state.dashboard.interrupt_requested) == (
        (),
        (),
        False,
    )
    assert state.recent_event_decisions == ("called the fire brigade",)
    with pytest.raises(ChoiceError, match="no pending event 'b'"):
        state.acknowledge("b", "again")
    for number in range(9):
        state = state.happen(Incident(event_id=f"e{number}")).acknowledge(
            f"e{number}", f"d{number}"
        )
    assert state.recent_event_decisions == ("d4", "d5", "d6", "d7", "d8"), "the last five"


def test_from_ten_pending_on_events_of_one_type_are_told_together() -> None:
    state = Working()
    for number in range(9):
        kind = "mail" if number < 6 else f"other {number}"
        state = state.happen(Incident(event_id=f"e{number}", type=kind, summary=f"s{number}"))
    assert len(state.pending_events) == 9
    state = state.happen(Incident(event_id="e9", type="mail", summary="the last"))
    assert [(event.type, event.count) for event in state.pending_events] == [
        ("mail", 7),
        ("other 6", 1),
        ("other 7", 1),
        ("other 8", 1),
    ]
    assert state.pending_events[0].summary == "7 mail events; the last: the last"


def test_the_same_evidence_comes_up_once_and_the_best_stay() -> None:
    state = Working()
    for number in range(14):
        state = state.learn(
            Evidence(source="s", title=f"t{number}", content="c", score=number / 10)
        )
        state = state.learn(Evidence(source="s", title=f"t{number}", content="c", score=0.9))
    assert len(state.evidence_packs) == 10
    assert {each.title for each in state.evidence_packs} == {f"t{n}" for n in range(4, 14)}


events = st.builds(
    lambda i, t, s, u: Incident(event_id=i, type=t, summary=s, urgency=u),
    st.text(max_size=5),
    st.sampled_from(["a", "b"]),
    st.text(max_size=2000),
    st.sampled_from(["low", "normal", "high", "critical"]),
)
verbs = st.one_of(
    events.map(lambda e: lambda s: s.happen(e)),
    st.text(max_size=9000).map(
        lambda t: lambda s: s.assess(progress=t, plan=[t] * 40, scratchpad=t)
    ),
    st.text(max_size=3000).map(lambda t: lambda s: s.learn(Evidence(source=t, content=t), t)),
    st.lists(st.text(max_size=900), max_size=30).map(lambda q: lambda s: s.ask(*q)),
)


@given(st.lists(verbs, max_size=60))
@settings(max_examples=examples(40), deadline=None)
def test_whatever_happens_it_stays_small(done: list) -> None:  # type: ignore[type-arg]
    state = Working()
    for verb in done:
        state = verb(state)
    assert len(state.render()) < 60_000
    assert len(state.pending_events) <= 20
    assert len(state.plan) <= 20


def test_with_nothing_but_working_state_the_tail_is_small() -> None:
    assert (
        count(
            Working()
            .assess(progress="reading the code", plan=["read", "fix", "test"])
            .set_measures(
                0.5,
                9999,
            )
            .render()
        )
        <= 150
    )


# ── in a session
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sessions_working_state_stands_at_the_end_and_is_kept() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new(model="gpt-4o")
        session.append("Fix it.")
        assert len(asyncio.run(session.prepare()).conversation.messages) == 1, (
            "without one nothing is shown"
        )
        session.keep_working(session.working.assess(progress="begun", plan=["read"]))
        first = asyncio.run(session.prepare(window=10_000, reserve_output=1000))
        assert first.conversation.messages[-1].text.startswith(
            "## Dashboard\n- goal_progress: begun"
        ), "nothing is measured yet"
        again = loom.session(session.id)
        assert again.working.dashboard.rho == round(first.report.pressure, 2)
        assert again.working.dashboard.token_budget == 9000 - first.report.input_tokens
        second = asyncio.run(again.prepare("Go on.", window=10_000, reserve_output=1000))
        assert second.report.epoch_reason == "continued", (
            "what changes every call is no part of the prefix"
        )


def test_the_preset_always_shows_its_dashboard() -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new(model="gpt-4o")
        session.append("Fix it.")
        context = asyncio.run(session.prepare(policy="partitions"))
        assert "## Dashboard" in context.conversation.messages[-1].text
        assert isinstance(session.working, Working)


@pytest.mark.parametrize("policy", list(policies()))
def test_there_is_one_pressure_and_it_is_not_told_before_it_is_measured(
    policy: str, tmp_path: Path
) -> None:
    with Loom.open(tmp_path / "loom.db") as loom:
        session = loom.new(model="gpt-4o")
        session.keep_working(Working().assess(progress="begun"))
        before = None
        for number in range(12):
            session.append(f"Request {number}.", {"role": "assistant", "content": "word " * 400})
            context = asyncio.run(
                session.prepare("Go on.", policy=policy, window=6000, reserve_output=500)
            )
            board, told = session.working.dashboard, context.conversation.messages[-1].text
            assert board.rho == round(context.report.pressure, 2)
            assert board.token_budget == context.report.usable - context.report.input_tokens
            if before is None:
                assert "rho" not in told
                assert "token_budget" not in told
            else:
                assert f"- rho: {before.rho:.2f}\n- token_budget: {before.token_budget}\n" in told
            before = board
    for file in tmp_path.rglob("working_state.json"):
        assert json.loads(file.read_text())["dashboard"]["token_budget"] > 0


def test_the_pressure_of_the_ladder_is_the_one_that_the_report_tells() -> None:
    """Seed 001: four characters a token, of the whole window."""
    with Loom.open(":memory:") as loom:
        session = loom.new(model="gpt-4o", system="You are careful.")
        for number in range(20):
            session.append(f"Request {number}.", {"role": "assistant", "content": "word " * 200})
            context = asyncio.run(
                session.prepare("Go on.", policy="partitions", window=8000, reserve_output=500)
            )
            counted = sum(len(message["content"]) // 4 for message in context.openai()["messages"])
            assert context.report.pressure == pytest.approx(counted / 8000, abs=0.001)


def test_what_a_model_has_not_acknowledged_is_named_and_goes_together() -> None:
    state = Working()
    for number in range(12):
        state = state.happen(
            Incident(event_id=f"e{number}", type="ci", summary=f"build {number}", urgency="high"),
        )
    shown = state.render()
    for event in (*state.pending_events, *state.active_risks):
        assert f"({event.event_id})" in shown, "what is shown can be acknowledged"
    for event in state.pending_events:
        state = state.acknowledge(event.event_id, "fixed")
    assert (state.pending_events, state.active_risks) == ((), ())


WIRES_OF_RESULTS: dict[str, Callable[[str, bool], list[Any]]] = {
    "openai": lambda text, wrong: [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": text},
    ],
    "anthropic": lambda text, wrong: [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "run", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": text, "is_error": wrong}
            ],
        },
    ],
    "responses": lambda text, wrong: [
        {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": text},
    ],
}


@pytest.mark.parametrize("wire", list(WIRES_OF_RESULTS))
def test_errors_of_tools_are_counted_on_every_wire_and_fall_when_work_succeeds(wire: str) -> None:
    made = WIRES_OF_RESULTS[wire]
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append("Fix it.")
        session.keep_working(Working().assess(progress="begun"))
        seen = []
        for text in (
            "Error: no such file",
            "Traceback (most recent call last):\n  …",
            "3 passed",
            "ok",
            "ok",
            "Error: again",
        ):
            session.append(*made(text, text.startswith(("Error", "Traceback"))))
            seen.append(session.working.dashboard.error_count)
        assert seen == [1, 2, 1, 0, 0, 1]


def test_errors_of_tools_are_counted_until_the_next_request() -> None:
    def failing(number: int, wrong: bool) -> list[Message]:
        call = ToolCall(f"c{number}", "run", "{}")
        return [
            Message("assistant", (call,)),
            Message("tool", (ToolResult(call.id, (Text("x"),), error=wrong),)),
        ]

    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append("Fix it.", *failing(1, True))
        assert session.working == Working(), "nobody asked for working state"
        session.keep_working(Working().assess(progress="begun"))
        session.append(*failing(2, True))
        session.append(*failing(3, False), *failing(4, True))
        session.append(*failing(5, True))
        assert session.working.dashboard.error_count == 2
        session.append("Go on.")
        assert session.working.dashboard.error_count == 0
