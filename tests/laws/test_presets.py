"""The presets `turns` and `window` keep their seed's formula by their own counter, judged by
functions written from the seeds.
"""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import CannotFit, Context, Loom, allocate_budget, is_over_context_budget, weave
from loom.context.history import filling, whole_turns
from loom.context.history.gate import fit
from loom.context.report import LEFT_OUT
from tests.shared import examples

# ── the seeds' formulas, written from their text ─────────────────────────────

Chat = dict[str, Any]


def turns_message(message: Chat) -> int:
    """Seed 002: 2.5 characters a token, over content, calls, the id of a result and a frame of
    12.
    """
    characters = len(message.get("content") or "") + len(message.get("tool_call_id", "")) + 12
    for call in message.get("tool_calls", ()):
        function = call["function"]
        characters += (
            len(call["id"]) + len(call["type"]) + len(function["name"]) + len(function["arguments"])
        )
    return characters * 2 // 5


def turns_tools(tools: list[Chat]) -> int:
    texts = [
        (t["function"]["name"], t["function"]["description"], _compact(t["function"]["parameters"]))
        for t in tools
    ]
    return sum((sum(map(len, text)) + 20) * 2 // 5 for text in texts)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def history_budget(window: int, system: Chat | None, tools: list[Chat], max_tokens: int) -> int:
    """ContextWindow - system_prompt - summary - tool_definitions - MaxTokens; the summary is part
    of the system message.
    """
    return window - (turns_message(system) if system else 0) - turns_tools(tools) - max_tokens


def newest_turns(messages: list[Chat], budget: int) -> int:
    """Where the newest whole turns begin that fit; the active turn is never refused."""
    starts = [n for n, message in enumerate(messages) if message["role"] == "user"]
    starts = sorted({0, *starts})
    begin = starts[-1]
    for start in reversed(starts):
        if sum(map(turns_message, messages[start:])) > budget:
            break
        begin = start
    return begin


def window_message(message: Chat) -> int:
    """Seed 000: four characters a token, rounded down, and four for the frame; calls count
    nothing.
    """
    return len(message.get("content") or "") // 4 + 4


def select_recent(messages: list[Chat], available: int) -> int:
    used, begin = 0, len(messages)
    while begin and used + window_message(messages[begin - 1]) <= available:
        begin -= 1
        used += window_message(messages[begin])
    # An exchange is never torn: results whose call does not fit stay out.
    while begin < len(messages) and messages[begin]["role"] == "tool":
        begin += 1
    return begin


# ── transcripts ──────────────────────────────────────────────────────────────


@st.composite
def transcripts(draw: st.DrawFn) -> list[Chat]:
    made: list[Chat] = []
    words = st.integers(1, 220)
    for turn in range(draw(st.integers(1, 9))):
        made.append({"role": "user", "content": f"Request {turn}: " + "word " * draw(words)})
        for step in range(draw(st.integers(0, 3))):
            name, many = f"call_{turn}_{step}", draw(words)
            function = {"name": "read", "arguments": _compact({"path": "part " * (many // 10)})}
            made.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": name, "type": "function", "function": function}],
                }
            )
            made.append({"role": "tool", "tool_call_id": name, "content": "line " * many})
        made.append({"role": "assistant", "content": "Done. " + "word " * draw(words)})
    return made if draw(st.booleans()) else made[:-1]


TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a part. " * 9,
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
systems = st.sampled_from(["", "You are careful.", "You are careful. " * 40])
summaries = st.sampled_from(["", "They read parts. " * 5, "They read parts. " * 60])
tool_lists = st.lists(st.just(TOOL), max_size=1)


class Choices:
    """What a strategy hands to the gate: the messages of each choice, the first of a request
    first.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[set[int]] = []

        def watched(fitting: Any, ranking: Any) -> Any:
            chosen = [ranking.spans[unit] for unit in ranking.order[: ranking.kept]]
            self.made.append({n for span in chosen for n in range(span.start, span.stop)})
            return fit(fitting, ranking)

        for module in (filling, whole_turns):
            monkeypatch.setattr(module, "fit", watched)


def system_of(context: Context) -> Chat | None:
    first: Chat = context.openai()["messages"][0]
    return first if first["role"] == "system" else None


def assert_within_budget(context: Context, tools: list[Chat], window: int) -> None:
    """By the seed's own check, on values and on the wire."""
    sent = context.conversation
    answer = context.report.reserved_output
    assert not is_over_context_budget(window, (*sent.system, *sent.messages), sent.tools, answer)
    assert (
        sum(map(turns_message, context.openai()["messages"])) + turns_tools(tools) + answer
        <= window
    )


@settings(max_examples=examples(120), deadline=None)
@given(
    messages=transcripts(),
    window=st.sampled_from([900, 1500, 2500, 6000]),
    answer=st.sampled_from([0, 100, 400]),
    system=systems,
    summary=summaries,
    tools=tool_lists,
)
def test_turns_keeps_its_formula(
    messages: list[Chat], window: int, answer: int, system: str, summary: str, tools: list[Chat]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        choices = Choices(patch)
        options = {
            "sections": [("summary", summary)] if summary else [],
            "reserve_output": answer,
            "policy": "turns",
        }
        try:
            context = weave(
                messages, system=system, tools=tools, model="gpt-4o", window=window, **options
            )
        except CannotFit:
            return
    assert_within_budget(context, tools, window)
    if any(item.rule == "no room beside history" for item in context.report.items):
        return  # woven twice: the summary gave way to the request
    budget = history_budget(window, system_of(context), tools, answer)
    assert choices.made[0] == set(range(newest_turns(messages, budget), len(messages)))


@settings(max_examples=examples(120), deadline=None)
@given(messages=transcripts(), window=st.sampled_from([900, 3000, 6000, 12_000]), system=systems)
def test_window_keeps_the_newest_that_fit_its_zone(
    messages: list[Chat], window: int, system: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        choices = Choices(patch)
        weave(messages, system=system, model="gpt-4o", window=window, policy="window")
    history = allocate_budget("gpt-4o", window=window).history
    assert choices.made[0] == set(range(select_recent(messages, history), len(messages)))


# ── in sessions ──────────────────────────────────────────────────────────────


def half_of_turns(messages: list[Chat], start: int) -> int:
    """Seed 002's compression of what is over budget: the oldest half of the turns goes."""
    starts = [n for n in range(start, len(messages)) if messages[n]["role"] == "user"]
    return starts[len(starts) // 2] if len(starts) > 1 else start


def shown_from(context: Context) -> int:
    """Where the run of messages begins that stands behind whatever was left out."""
    gone = [
        item.place[9:-1].split(":")[1]
        for item in context.report.items
        if item.action in LEFT_OUT and ":" in item.place
    ]
    return max(map(int, gone), default=0)


def turn_by_turn(messages: list[Chat]) -> list[int]:
    """Where the model was asked: behind each user message and each result."""
    return [n + 1 for n, message in enumerate(messages) if message["role"] in ("user", "tool")]


MARKER = 35  # tokens, at most, of what stands where something was left out, by seed 002's counter


@settings(max_examples=examples(40), deadline=None)
@given(
    messages=transcripts(),
    window=st.sampled_from([1500, 2500, 4000]),
    system=systems,
    tools=tool_lists,
)
def test_turns_keeps_its_formula_in_sessions(
    messages: list[Chat], window: int, system: str, tools: list[Chat]
) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new("talk", system=system, tools=tools)
        written, start = 0, 0
        for called in turn_by_turn(messages):
            session.append(*messages[written:called])
            written = called
            try:
                context = asyncio.run(
                    session.prepare(
                        model="gpt-4o", window=window, reserve_output=100, policy="turns"
                    )
                )
            except CannotFit:
                return
            assert_within_budget(context, tools, window)
            budget = history_budget(window, system_of(context), tools, 100)
            said = messages[:called]
            if context.report.epoch_reason != "continued":
                half = half_of_turns(said, start) if context.report.epoch else 0
                begin = max(newest_turns(said, budget), half)
                request = max(n for n, message in enumerate(said) if message["role"] == "user")
                point = sum(turns_message(said[n]) for n in {0, request} if n < begin)
                if sum(map(turns_message, said[begin:])) + point + 3 * MARKER <= budget:
                    assert shown_from(context) == (begin if begin > 1 else 0), (
                        "where the goal alone was dropped it is back"
                    )
            start = shown_from(context)


@settings(max_examples=examples(40), deadline=None)
@given(messages=transcripts(), window=st.sampled_from([3000, 6000]), system=systems)
def test_window_keeps_the_newest_that_fit_its_zone_in_sessions(
    messages: list[Chat], window: int, system: str
) -> None:
    history = allocate_budget("gpt-4o", window=window).history
    with Loom.open(":memory:") as loom:
        session = loom.new("talk", system=system)
        written = 0
        for called in turn_by_turn(messages):
            session.append(*messages[written:called])
            written = called
            context = asyncio.run(session.prepare(model="gpt-4o", window=window, policy="window"))
            begin = select_recent(messages[:called], history)
            assert shown_from(context) == (begin if begin > 1 else 0), (
                "where the goal alone was evicted it is back"
            )


# ── the way back ─────────────────────────────────────────────────────────────


section_lists = st.lists(
    st.tuples(
        st.sampled_from(["memory", "rules", "working", "summary"]),
        st.sampled_from([20, 400, 3000]).map(lambda n: "note " * n),
    ),
    max_size=2,
)


@settings(max_examples=examples(24), deadline=None)
@given(
    messages=transcripts(),
    called=st.integers(1, 40),
    window=st.sampled_from([800, 1500, 4000]),
    reserve=st.sampled_from([None, 100]),
    system=systems,
    sections=section_lists,
    policy=st.sampled_from(["turns", "turns", "default", "partitions"]),
)
def test_what_was_left_out_returns_at_the_window_that_the_report_names_now(
    messages: list[Chat],
    called: int,
    window: int,
    reserve: int | None,
    system: str,
    sections: list[tuple[str, str]],
    policy: str,
) -> None:
    """Also with sections that a larger window has more room for, and late in an epoch: what came
    since is shown first.
    """
    asked: dict[str, Any] = {
        "model": "gpt-4o",
        "system": system,
        "sections": sections,
        "policy": policy,
        "reserve_output": reserve,
    }
    try:
        first = weave(messages[:called], window=window, **asked)
        context = weave(messages, window=window, previous=first.report, **asked)
    except CannotFit:
        return
    for item in context.report.items:
        if item.returns_at:
            again = weave(messages, window=item.returns_at, **asked)
            start, _, stop = item.place[9:-1].partition(":")
            back = {f"messages[{n}]" for n in range(int(start), int(stop or int(start) + 1))}
            assert back <= {
                found.place for found in again.report.items if found.action == "kept"
            }, item
