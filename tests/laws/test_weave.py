"""The laws of a woven request, over random transcripts, budgets, policies and dialects, judged by
measures that are not our own.
"""

import json
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from splintr import Tokenizer

from loom import CannotFit, Conversation, Message, Text, is_over_context_budget, read_runs, weave
from loom.budget.counting import gate_counter
from loom.context.history.pieces import handles_in
from loom.context.history.point import must_stay
from loom.context.policy import Policy, policies
from loom.context.report import LEFT_OUT
from loom.context.request import Context
from loom.conversation.handles import to_lines
from loom.conversation.turns import exchanges
from loom.dialects import WIRES, dialect
from loom.dialects.repair import repair
from tests import strategies as our
from tests.shared import AGENTS, SHARED, examples, needs_shared

POLICIES = [name for name in policies() if policies()[name].strategy != "stop_at_limit"]
MARKER_TOKENS = 40  # at most, for what stands where something was left out
_encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary


def tokens(text: str) -> int:
    return len(_encode(text))


def measures() -> Any:
    """The shared definitions; a copy of the two that are needed stands in where they are not
    here.
    """
    sys.path.insert(0, str(SHARED / "bench"))
    try:
        return pytest.importorskip(
            "measures", reason="shared/bench/measures.py not found; set LOOM_SHARED"
        )
    finally:
        sys.path.pop(0)


def longer(conversation: Conversation, words: int) -> Conversation:
    """The conversation with its texts blown up, so that small windows have to cut."""
    if not words:
        return conversation
    filler = " lorem ipsum dolor" * words
    messages = [
        Message(
            m.role,
            tuple(Text(p.text + filler) if isinstance(p, Text) else p for p in m.parts),
            m.author,
            m.carried,
        )
        for m in conversation.messages
    ]
    return Conversation(
        messages=tuple(messages), system=conversation.system, tools=conversation.tools
    )


cases = st.tuples(
    st.one_of(
        our.conversations(), our.broken_histories.map(lambda h: Conversation(messages=tuple(h)))
    ),
    st.sampled_from([0, 5, 60, 400]),
    st.sampled_from([300, 600, 1200, 3000, 8000, 50_000]),
    st.sampled_from(POLICIES),
)


large_sections = st.lists(
    st.tuples(
        st.sampled_from(["rules", "memory", "skills", "knowledge", "working", "of my own"]),
        st.tuples(our.texts, st.sampled_from([1, 40, 1000])).map(lambda made: made[0] * made[1]),
    ),
    max_size=2,
)


def woven(
    conversation: Conversation, window: int, policy: str | Policy, **options: Any
) -> Context | None:
    """A context, or none where it cannot fit, which must be said with numbers."""
    try:
        return weave(
            conversation, model="gpt-4o", window=window, reserve_output=0, policy=policy, **options
        )
    except CannotFit as error:
        said = str(error)
    assert any(character.isdigit() for character in said) or "nothing to send" in said
    return None


@settings(max_examples=examples(250))
@given(case=cases)
def test_law_1_it_fits_and_law_2_it_is_whole(case: tuple[Conversation, int, int, str]) -> None:
    conversation, words, window, policy = case
    context = woven(longer(conversation, words), window, policy)
    if context is None:
        return
    measure = measures()
    wire = context.openai()
    # The shared measure knows texts and functions; lists of parts and custom calls are left to our
    # own count below.
    plain = [m for m in wire["messages"] if not isinstance(m.get("content"), list)]
    plain = [m for m in plain if all("function" in call for call in m.get("tool_calls") or ())]
    assert sum(measure.message_tokens(m, tokens) for m in plain) <= window
    assert measure.torn_pairs(wire["messages"]) == 0
    assert context.report.input_tokens <= window
    for target in WIRES:
        errors = [
            f
            for f in target.check(context.render(target.name))
            if f.level == "error" and f.rule != "no-messages"
        ]
        assert errors == [], target.name


@settings(max_examples=examples(250))
@given(case=cases)
def test_law_3_it_keeps_the_point(case: tuple[Conversation, int, int, str]) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    context = woven(given_, window, policy)
    if context is None:
        return
    sent = context.conversation
    assert (
        "".join(m.text for m in given_.system if m.text.strip())
        in "".join(m.text for m in sent.system)
        or not given_.system
    )
    mended = repair(given_).conversation.messages
    asked = [m for m in mended if m.role == "user"] or list(mended[:1])
    goals = [] if policies()[policy].goal == "request" else [asked[0]]
    for point in (*goals, asked[-1]):
        start = point.text.strip()[:10]  # letters of some scripts take several tokens each
        assert any(start in m.text for m in sent.messages if m.role == point.role), (
            "goal and request are there, whole or shrunk"
        )


@settings(max_examples=examples(150))
@given(case=cases)
def test_the_newest_exchange_is_whole_where_it_fits_beside_goal_and_request(
    case: tuple[Conversation, int, int, str],
) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    context = woven(given_, window, policy)
    if context is None:
        return
    history, counter = repair(given_).conversation.messages, gate_counter("gpt-4o")
    units, newest = exchanges(history), exchanges(history)[-1]
    must = must_stay(history, (), policies()[policy], False)
    named = [
        unit
        for unit in units
        if unit == newest or any(n in must for n in range(unit.start, unit.stop))
    ]
    needed = sum(
        counter.count_message(message)
        for unit in named
        for message in history[unit.start : unit.stop]
    )
    fixed = context.report.input_tokens - sum(
        i.after for i in context.report.items if i.place.startswith("messages[")
    )
    markers = MARKER_TOKENS * (len(named) + 2)
    if fixed + needed + markers > window:
        return
    point = [message for unit in named for message in history[unit.start : unit.stop]]
    sent = context.conversation
    if policy == "turns" and is_over_context_budget(
        window - markers, (*sent.system, *point), sent.tools
    ):
        return
    size = sum(counter.count_message(message) for message in history[newest.start : newest.stop])
    # covers keep their room beside what is so large
    if policies()[policy].cover and size > (window - fixed) // 2:
        return
    whole = {item.place for item in context.report.items if item.action == "kept"}
    # the seeds' strategies have formulas of their own, by which less may fit
    if policies()[policy].strategy != "newest":
        return
    assert {f"messages[{n}]" for n in range(newest.start, newest.stop)} <= whole


@settings(max_examples=examples(150))
@given(case=cases, counter=st.sampled_from(["tree", "best"]), sections=large_sections)
def test_stop_at_limit_cuts_nothing_or_says_that_it_cannot_fit(
    case: tuple[Conversation, int, int, str], counter: str, sections: list[tuple[str, str]]
) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    chosen = policies()["tree" if policy == "partitions" else policy]
    chosen = replace(chosen, name="whole", strategy="stop_at_limit", counter=counter)
    context = woven(given_, window, chosen, sections=sections)
    if context is not None:
        assert not context.report.truncated
        assert all(
            item.action == "kept"
            for item in context.report.items
            if item.place.startswith("sections[")
        )
        sent = "\n".join(
            message.text
            for message in (*context.conversation.system, *context.conversation.messages)
        )
        assert all(text in sent for _, text in sections)
        history = repair(given_).conversation.messages
        assert context.conversation.messages[: len(history)] == history


@settings(max_examples=examples(150))
@given(case=cases)
def test_laws_4_and_6_every_cut_has_a_line_and_a_way_back(
    case: tuple[Conversation, int, int, str],
) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    context = woven(given_, window, policy)
    if context is None:
        return
    history = repair(given_).conversation.messages
    items = [
        item
        for item in context.report.items
        if item.zone == "history" and item.action != "repaired"
    ]
    covered = []
    for item in items:
        inside = item.place.removeprefix("messages[").removesuffix("]")
        start, _, stop = inside.partition(":")
        covered += range(int(start), int(stop or int(start) + 1))
        if item.action in LEFT_OUT:
            assert context.recall(item.handles[0]) == to_lines(history[int(start) : int(stop)])
            assert item.returns_at > 0
    assert covered == list(range(len(history))), "every message has one line"
    assert context.report.dropped == sum(
        int(i.place[9:-1].split(":")[1]) - int(i.place[9:-1].split(":")[0])
        for i in items
        if i.action in LEFT_OUT
    )
    originals = {part.text for m in history for part in m.parts if isinstance(part, Text)}
    originals |= {m.text for m in history}
    originals |= {
        inner.text
        for m in history
        for r in m.results
        for inner in r.parts
        if isinstance(inner, Text)
    }
    originals |= {call.arguments for m in history for call in m.calls}
    for message in context.conversation.messages:
        for handle in handles_in(message):
            back = context.recall(handle)
            assert back in originals or back.startswith(('{"role"', '{"type":"media"')), handle
    assert context.report.truncated == any(
        item.action in (*LEFT_OUT, "shrunk") for item in context.report.items
    )


@settings(max_examples=examples(100))
@given(case=cases)
def test_law_7_the_same_input_gives_the_same_bytes(
    case: tuple[Conversation, int, int, str],
) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    first, second = woven(given_, window, policy), woven(given_, window, policy)
    assert (first is None) == (second is None)
    if first and second:
        assert json.dumps(first.anthropic()) == json.dumps(second.anthropic())
        assert first.report.as_dict() == second.report.as_dict()


@settings(max_examples=examples(100))
@given(case=cases)
def test_what_was_left_out_returns_at_the_window_that_the_report_names(
    case: tuple[Conversation, int, int, str],
) -> None:
    conversation, words, window, policy = case
    given_ = longer(conversation, words)
    context = woven(given_, window, policy)
    if context is None:
        return
    for item in context.report.items:
        if item.returns_at:
            again = woven(given_, item.returns_at, policy)
            assert again is not None
            places = {i.place for i in again.report.items if i.action == "kept"}
            inside = item.place.removeprefix("messages[").removesuffix("]")
            start, _, stop = inside.partition(":")
            assert {
                f"messages[{n}]" for n in range(int(start), int(stop or int(start) + 1))
            } <= places, item


SECTION_FRAME = 8  # tokens that a section takes beside its text


def leaves_room(context: Context, text: str, lacking: int) -> bool:
    """Whether a request has room for so many tokens more of a section, also by the policy's own
    counter.
    """
    report, sent = context.report, context.conversation
    if lacking > report.usable - report.margin - report.input_tokens:
        return False
    if report.policy == "turns":
        more = (*sent.system, *sent.messages, Message("user", (Text(text),)))
        return not is_over_context_budget(report.window, more, sent.tools, report.reserved_output)
    if report.policy == "partitions":
        return report.pressure + len(text) / 4 / report.window < 0.7
    return not report.dropped  # what a strategy leaves out by a counter of its own is no room


@settings(max_examples=examples(80), deadline=None)
@given(
    turns=st.integers(1, 12),
    words=st.sampled_from([3, 60, 400]),
    sections=st.lists(
        st.tuples(
            st.sampled_from(["memory", "working", "rules", "knowledge", "notes"]),
            st.sampled_from([30, 1500, 6000]),
        ),
        min_size=1,
        max_size=4,
    ),
    window=st.sampled_from([3000, 16_000, 50_000]),
    policy=st.sampled_from(POLICIES),
    model=st.sampled_from(["gpt-4o", "claude-sonnet-4-5"]),
)
@example(1, 3, [("memory", 6000), ("memory", 30)], 3000, "default", "gpt-4o")
def test_no_section_is_cut_while_the_request_has_room_for_the_whole_of_it(
    turns: int, words: int, sections: list[tuple[str, int]], window: int, policy: str, model: str
) -> None:
    said = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "word " * words}
        for n in range(2 * turns - 1)
    ]
    given_ = [(zone, f"section {n}: " + "fact " * size) for n, (zone, size) in enumerate(sections)]
    try:
        context = weave(said, model=model, window=window, policy=policy, sections=given_)
        plain = weave(
            said,
            model=model,
            window=window,
            policy=policy,
            sections=[(zone, text[:2000]) for zone, text in given_],
        )
    except CannotFit:
        return
    assert context.report.input_tokens <= context.report.usable
    for n, (_, text) in enumerate(given_):
        [item] = [item for item in context.report.items if item.place == f"sections[{n}]"]
        if item.action != "kept":
            assert not leaves_room(context, text, item.before + SECTION_FRAME - item.after), item
    kept = {
        item.place
        for item in plain.report.items
        if item.zone == "history" and item.action == "kept"
    }
    if plain.report.input_tokens + 4 * 2048 < plain.report.usable:
        assert kept <= {item.place for item in context.report.items if item.action == "kept"}, (
            "history does not pay for it"
        )


@settings(max_examples=examples(100))
@given(
    history=our.histories(max_turns=6),
    extra=our.histories(max_turns=3),
    window=st.sampled_from([600, 1500, 8000]),
)
def test_law_5_an_epoch_continues_the_previous_request(
    history: list[Message], extra: list[Message], window: int
) -> None:
    first = woven(
        longer(Conversation(messages=tuple(history)), 20),
        window,
        "default",
        sections=[("working", "step 1")],
    )
    if first is None:
        return
    renamed = [m for m in extra if m.role in ("user", "system")] or [
        Message("user", (Text("go on"),))
    ]
    grown = Conversation(
        messages=(*longer(Conversation(messages=tuple(history)), 20).messages, *renamed)
    )
    second = woven(
        grown, window, "default", sections=[("working", "step 2")], previous=first.report
    )
    if second is None:
        return
    before = first.conversation.messages[: len(first.conversation.messages) - first.tail]
    if second.report.epoch == first.report.epoch:
        assert second.conversation.messages[: len(before)] == before
        assert second.conversation.system == first.conversation.system
        assert second.report.epoch_reason == "continued"
        for item in second.report.items:
            if item.action in LEFT_OUT:
                assert second.recall(item.handles[0])
    else:
        assert second.report.epoch_reason


@needs_shared
@pytest.mark.parametrize("path", sorted(AGENTS.glob("*")), ids=lambda path: path.name)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_laws_hold_on_every_shared_file(path: Any, policy: str) -> None:
    measure = measures()
    for run in list(read_runs(str(path)))[:12]:
        conversation = run.conversation()
        asked = [m for m in repair(conversation).conversation.messages if m.role == "user"]
        for window in (8000, 16_000, 64_000):
            context = weave(
                conversation, model="gpt-4o", window=window, reserve_output=0, policy=policy
            )
            messages = context.openai()["messages"]
            assert sum(measure.message_tokens(m, tokens) for m in messages) <= window
            assert measure.torn_pairs(messages) == 0
            assert not measure.goal_missing(messages, asked[-1].text)
            for target in WIRES:
                assert [
                    f for f in target.check(context.render(target.name)) if f.level == "error"
                ] == []


@needs_shared
@pytest.mark.parametrize("name", ["giant_result", "long_turn", "parallel_calls"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_adversarial_cases_pass_at_8000_tokens(name: str, policy: str) -> None:
    measure = measures()
    sys.path.insert(0, str(SHARED / "bench"))
    import transcripts

    sys.path.pop(0)
    given_ = transcripts.adversarial()[name]
    request = [m["content"] for m in given_ if m["role"] == "user"][-1]
    context = weave(given_, model="gpt-4o", window=8000, reserve_output=0, policy=policy)
    messages = context.openai()["messages"]
    used = sum(measure.message_tokens(m, tokens) for m in messages)
    assert used <= 8000
    # The window preset sets half aside for its zones; a window that begins anew stays below the
    # lowest rung, by its own counter; the turns preset counts a token for 2.5 characters.
    assert used >= {"window": 0, "partitions": 3000, "turns": 2500}.get(policy, 4000), (
        "at least half is used"
    )
    assert measure.torn_pairs(messages) == 0
    assert not measure.goal_missing(messages, request)
    for target in WIRES:
        assert [
            f for f in dialect(target.name).check(context.render(target.name)) if f.level == "error"
        ] == []
