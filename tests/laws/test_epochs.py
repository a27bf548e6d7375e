"""The laws at each step of long epochs, with what breaks them most: pins that come and go, sections
of every zone that grow
and shrink, a reserve, a corrected counter, policies with counters of their own, histories to
repair, and restarts.
"""

import asyncio
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from splintr import Tokenizer

from loom import (
    CannotFit,
    Context,
    Conversation,
    Loom,
    Message,
    Text,
    ToolCall,
    ToolResult,
    repair,
    weave,
)
from loom.context.history.epochs import Renewal, place_after_repair
from loom.context.history.reasons import ALONE
from loom.context.policy import Policy, policies
from loom.context.report import Item, Piece
from loom.conversation.handles import to_lines
from loom.conversation.turns import Span
from loom.dialects import WIRES
from tests.shared import examples

MODEL = "gpt-4o"
SYSTEM = "You are careful."
LEFT_OUT = ("dropped", "covered")
MESSAGE_TOKENS = 4  # tokens that the frame of a message takes
_encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
_TAG = re.compile(r"<t\d+>")


def tokens(text: str) -> int:
    return len(_encode(text))


SEEDS = st.integers(0, 2**32)
STABLE_ZONES = [
    "rules",
    "skills",
    "memory",
    "repo_map",
    "decision_context",
    "summary",
    "handoff",
    "notes",
]
TAIL_ZONES = ["recalled", "knowledge", "messages", "working"]
WORDS = [2, 15, 40, 90]  # how long texts are, in pairs of words
TOOLS = ["read", "grep", "shot"]
FAULTS = ["", "", "orphan", "late", "never"]  # what is wrong with a call

# covers of several epochs stand
COVERING = replace(policies()["default"], name="covering", cover=0.12, covers=0.6)
# sections stand before the request
PLACING = replace(
    policies()["default"],
    name="placing",
    before_request={"knowledge": "system", "notes": "user", "messages": "user"},
)
ONE_RUNG = replace(policies()["partitions"], name="one rung", ladder={"collapse": 0.5}, renew=0.0)

# ── random sessions ──────────────────────────────────────────────────────────


class Step(Struct, frozen=True):
    """How many messages there are when a request is made, which of them are pinned, and what stands
    beside them.
    """

    length: int
    pins: tuple[int, ...] = ()
    sections: tuple[tuple[str, str], ...] = ()
    restart: bool = False


class Case(Struct, frozen=True):
    messages: tuple[Message, ...]
    steps: tuple[Step, ...]
    policy: Policy
    window: int
    reserve: int = 0
    ratio: float = 1.0


def text_of(n: int, words: int) -> Text:
    """Words that hold a tag of their own."""
    return Text(f"<t{n}> note_{n * 7} = {n * 13} " + "lorem ipsum " * words)


def messages_of(random: Random, broken: bool, most: int = 24) -> tuple[Message, ...]:
    """Turns with calls; broken: also results that nobody asked for, that never come, and that come
    late.
    """
    made = [Message("user", (text_of(0, random.choice(WORDS)),))]
    for _ in range(random.randint(most // 3, most)):
        at, fault = len(made), random.choice(FAULTS) if broken else ""
        match random.choice(["user", "answer", "call", "call"]):
            case "user":
                made.append(Message("user", (text_of(at, random.choice(WORDS)),)))
            case "answer":
                made.append(Message("assistant", (text_of(at, random.choice(WORDS)),)))
            case _:
                made += call_and_result(at, random.choice(WORDS), fault)
        if fault == "orphan":
            made.append(Message("tool", (ToolResult("nobody", (Text("orphan"),)),)))
    return tuple(made)


def call_and_result(at: int, words: int, fault: str) -> list[Message]:
    call = Message("assistant", (text_of(at, 3), ToolCall(f"c{at}", TOOLS[at % 3], "{}")))
    result = Message("tool", (ToolResult(f"c{at}", (text_of(at + 1, words),)),))
    if fault == "never":
        return [call]
    return (
        [call, Message("user", (text_of(at + 2, 3),)), result]
        if fault == "late"
        else [call, result]
    )


def sections_of(random: Random, zones: list[str]) -> tuple[tuple[str, str], ...]:
    found = [
        (random.choice(zones), random.choice([1, 30, 30, 300])) for _ in range(random.randint(0, 2))
    ]
    return tuple((zone, f"section {n} " + "fact " * words) for n, (zone, words) in enumerate(found))


def own_counters() -> list[Policy]:
    """The policies that ship, and some whose strategy counts otherwise than the gate."""
    shipped = policies()
    return [
        *shipped.values(),
        COVERING,
        replace(shipped["default"], name="default by turns", counter="turns"),
        replace(
            shipped["default"], name="default by tasks", counter="tasks", cover=0.2, refill=0.5
        ),
        replace(shipped["turns"], name="turns by window", counter="window"),
        ONE_RUNG,
        replace(shipped["tree"], name="tree by the best", counter="best"),
        PLACING,
        replace(shipped["partitions"], name="placing rungs", before_request=PLACING.before_request),
    ]


def make_case(seed: int) -> Case:
    """A session of many requests. Pins are set at any time; what is pinned may have been left out
    long ago.
    """
    random = Random(seed)
    messages = messages_of(random, broken=random.random() < 0.5)
    stable = sections_of(random, STABLE_ZONES)
    pins: tuple[int, ...] = ()
    steps: list[Step] = []
    length = random.randint(1, len(messages) // 2)
    while length < len(messages):
        length = min(length + random.randint(1, 3), len(messages))
        if random.random() < 0.3:
            pins = (*pins[-1:], random.randrange(length))
        if random.random() < 0.05:
            stable = sections_of(random, STABLE_ZONES)
        steps.append(
            Step(length, pins, stable + sections_of(random, TAIL_ZONES), random.random() < 0.3)
        )
    return Case(
        messages,
        tuple(steps),
        random.choice(own_counters()),
        random.choice([700, 1000, 1000, 1400, 3000]),
        random.choice([0, 0, 120]),
        random.choice([1.0, 1.0, 0.8, 1.3]),
    )


def make_repaired_case(seed: int) -> Case:
    """A session of many epochs in which covers stand, of a history that is repaired otherwise as it
    grows.
    """
    random = Random(seed)
    messages = messages_of(random, broken=True, most=48)
    lengths = [*range(2, len(messages), random.randint(1, 3)), len(messages)]
    steps = tuple(Step(length, restart=random.random() < 0.1) for length in lengths)
    return Case(messages, steps, COVERING, random.choice([700, 1000, 1400]))


# ── what must be true of each request ────────────────────────────────────────


def words_sent(context: Context) -> str:
    sent = context.conversation
    return to_lines((*sent.system, *sent.messages))


def text_in(message: Message) -> str:
    """The words of a message, or of the results in it."""
    return message.text or "".join(
        part.text for result in message.results for part in result.parts if isinstance(part, Text)
    )


def assert_fits(context: Context, case: Case) -> None:
    """By a count of our own: what is sent, corrected as asked, and the reserve."""
    sent = context.conversation
    texts = [text_in(message) for message in (*sent.system, *sent.messages)]
    counted = sum(map(tokens, texts)) + MESSAGE_TOKENS * len(sent.messages)
    assert int(counted * case.ratio) + case.reserve <= case.window
    assert context.report.input_tokens + case.reserve <= case.window


def assert_is_whole(context: Context) -> None:
    for target in WIRES:
        errors = [
            found for found in target.check(context.render(target.name)) if found.level == "error"
        ]
        assert errors == [], target.name


def find_orphans(context: Context) -> set[str]:
    """Results that the report calls orphans. In a session these are also late results whose calls
    were not read.
    """
    items = context.report.items
    return {item.place for item in items if item.action == "repaired" and "orphan" in item.rule}


def assert_has_pins(context: Context, messages: Sequence[Message], pins: Sequence[int]) -> None:
    """What is pinned is there, or shrunk; never left out, whenever it was pinned."""
    shrunk = [item for item in context.report.items if item.action == "shrunk"]
    there = words_sent(context) + "".join(
        context.recall(handle) for item in shrunk for handle in item.handles
    )
    orphans = find_orphans(context)
    for pin in pins:
        tag = text_in(messages[pin]).partition(" ")[0]
        if tag.startswith("<t") and f"given[{pin}]" not in orphans:  # repair drops what has no tag
            assert tag in there, f"message {pin} is pinned and neither there nor shrunk"


def assert_every_message_has_a_line(context: Context, history: Sequence[Message]) -> None:
    """Each message of the history, as repair left it, has one line, and what was left out comes
    back by its handle.
    """
    places: list[int] = []
    for item in context.report.items:
        if item.zone != "history" or item.action == "repaired":
            continue
        start, _, stop = item.place.removeprefix("messages[").removesuffix("]").partition(":")
        span = range(int(start), int(stop or int(start) + 1))
        places += span
        if item.action in LEFT_OUT:
            assert context.recall(item.handles[0]) == to_lines(history[span.start : span.stop])
        elif item.action == "kept":
            assert to_lines(history[span.start : span.stop]).strip() in words_sent(context)
    assert places == list(range(len(history)))


def assert_nothing_is_lost(context: Context, messages: Sequence[Message]) -> None:
    """Each message is in the request once, or comes back by a handle."""
    handles = [
        handle for item in context.report.items if item.zone == "history" for handle in item.handles
    ]
    back = "".join(map(context.recall, handles))
    # Neighbours of one author may be one message; markers and covers, which may quote, begin
    # otherwise.
    sent = [
        tag
        for text in map(text_in, context.conversation.messages)
        if text.startswith("<t")
        for tag in _TAG.findall(text)
    ]
    orphans = find_orphans(context)
    for n, message in enumerate(messages):
        tag = text_in(message).partition(" ")[0]
        if tag.startswith("<t") and f"given[{n}]" not in orphans:
            assert tag in sent or tag in back, f"message {n} is lost"
            assert sent.count(tag) <= 1, f"message {n} is there twice"


def assert_sections_are_counted(context: Context) -> None:
    """What the report says of sections is at least what they add to a request, with all that joins
    them to their neighbours.
    """
    sent, added = context.conversation, 0
    added += sum(tokens(message.text) for message in sent.system) - tokens(SYSTEM)
    tail = sent.messages[len(sent.messages) - context.tail :]
    before = sent.messages[slice(*context.sections)]
    added += sum(tokens(message.text) + MESSAGE_TOKENS for message in (*before, *tail))
    items = [item for item in context.report.items if item.place.startswith("sections[")]
    assert added <= sum(item.after for item in items)
    for zone in {item.zone for item in items}:
        used = sum(item.after for item in items if item.zone == zone)
        assert used == context.report.zones.get(zone, {"used": 0})["used"]


def assert_stand_before_request(context: Context) -> None:
    """Sections that stand before the request are directly before it, whatever comes after."""
    start, stop = context.sections
    if start == stop:
        return
    messages = context.conversation.messages
    assert messages[stop].role == "user"
    later = messages[stop + 1 : len(messages) - context.tail]
    assert not any(message.role == "user" and message.text.startswith("<t") for message in later)


def assert_continues(context: Context, last: Context | None) -> None:
    """While an epoch goes on a request only grows, but for its tail."""
    if last is None or context.report.epoch != last.report.epoch:
        return
    before = last.conversation.messages[: len(last.conversation.messages) - last.tail]
    assert context.report.epoch_reason == "continued"
    assert context.conversation.messages[: len(before)] == before
    assert context.conversation.system == last.conversation.system


def judge(context: Context, case: Case, step: Step, last: Context | None) -> None:
    assert_fits(context, case)
    assert_is_whole(context)
    assert_has_pins(context, case.messages[: step.length], step.pins)
    assert_stand_before_request(context)
    assert_continues(context, last)
    if case.ratio == 1:
        assert_sections_are_counted(context)


def weave_step(case: Case, step: Step, last: Context | None) -> Context | None:
    try:
        return weave(
            Conversation(
                messages=case.messages[: step.length], system=(Message("system", (Text(SYSTEM),)),)
            ),
            model=MODEL,
            window=case.window,
            reserve_output=case.reserve,
            policy=case.policy,
            sections=step.sections,
            pins=step.pins,
            previous=last,
            ratio=case.ratio,
        )
    except CannotFit:
        return None


def assert_laws_of_steps(case: Case) -> None:
    """Weave each step by itself, as the next one of the last."""
    last: Context | None = None
    for step in case.steps:
        context = weave_step(case, step, last)
        if context is None:
            continue
        judge(context, case, step, last)
        history = repair(Conversation(messages=case.messages[: step.length])).conversation.messages
        assert_every_message_has_a_line(context, history)
        last = context


def assert_laws_of_session(case: Case) -> None:
    """Prepare each step in a session, which is opened again before some of them."""
    last: Context | None = None
    with tempfile.TemporaryDirectory() as folder:
        address, written = str(Path(folder) / "store.db"), 0
        loom = Loom.open(address)
        session = loom.new("talk", model=MODEL, system=SYSTEM)
        for step in case.steps:
            if step.restart:
                loom.close()
                loom = Loom.open(address)
                session = loom.session(session.id)
            session.append(*case.messages[written : step.length])
            written = step.length
            options: dict[str, Any] = {
                "window": case.window,
                "reserve_output": case.reserve,
                "policy": case.policy,
            }
            pins = [session.path[pin].id for pin in step.pins]
            try:
                context = asyncio.run(session.prepare(sections=step.sections, pins=pins, **options))
            except CannotFit:
                continue
            judge(context, case, step, last)
            assert_nothing_is_lost(context, case.messages[: step.length])
            last = context
        loom.close()


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_the_laws_hold_at_each_step_of_an_epoch(seed: int) -> None:
    assert_laws_of_steps(make_case(seed))


@settings(max_examples=examples(16))
@given(seed=SEEDS)
def test_the_laws_hold_at_each_step_of_a_session_that_is_opened_again(seed: int) -> None:
    # A session corrects its counter by what providers report.
    assert_laws_of_session(replace(make_case(seed), ratio=1.0))


@settings(max_examples=examples(30))
@given(seed=SEEDS)
def test_covers_stand_for_what_they_did_while_the_history_is_repaired_otherwise(seed: int) -> None:
    assert_laws_of_steps(make_repaired_case(seed))


@settings(max_examples=examples(16))
@given(seed=SEEDS)
def test_covers_stand_for_what_they_did_in_a_session_that_is_repaired_otherwise(seed: int) -> None:
    assert_laws_of_session(make_repaired_case(seed))


# ── the way back ─────────────────────────────────────────────────────────────


def is_back(case: Case, step: Step, place: str, window: int) -> bool:
    """Whether what stood at this place is whole in a request for this window."""
    context = weave_step(replace(case, window=window), step, None)
    start, _, stop = place.removeprefix("messages[").removesuffix("]").partition(":")
    wanted = {f"messages[{n}]" for n in range(int(start), int(stop or int(start) + 1))}
    return context is not None and wanted <= {
        item.place for item in context.report.items if item.action == "kept"
    }


def make_cut_case(seed: int) -> Case:
    """One request in a window that is too small for the history, and for a large section."""
    random = Random(seed)
    messages = messages_of(random, broken=False)
    zone, words = random.choice([*STABLE_ZONES, *TAIL_ZONES]), random.choice([300, 1500, 4000])
    step = Step(len(messages), sections=((zone, "fact " * words),))
    policy = random.choice([*own_counters(), ONE_RUNG, ONE_RUNG])
    return Case(
        messages, (step,), policy, random.choice([700, 1000, 2000]), random.choice([0, 120])
    )


@settings(max_examples=examples(120))
@given(seed=SEEDS)
def test_what_was_left_out_returns_at_the_window_that_the_report_names_whatever_was_cut_beside_it(
    seed: int,
) -> None:
    case = make_cut_case(seed)
    context = weave_step(case, case.steps[0], None)
    for item in context.report.items if context else ():
        if item.returns_at:
            assert is_back(case, case.steps[0], item.place, item.returns_at), item


# by how much a report may name a window that is larger than it must be
RETURN_SHARE, RETURN_TOKENS = 0.1, 100


@settings(max_examples=examples(100))
@given(seed=SEEDS, policy=st.sampled_from(["default", "tree"]))
def test_the_window_that_the_report_names_is_about_the_least_where_no_section_is_cut(
    seed: int, policy: str
) -> None:
    case = replace(make_cut_case(seed), policy=replace(policies()[policy], counter="best"))
    step = replace(case.steps[0], sections=(("rules", "fact " * 40),))
    context = weave_step(case, step, None)
    item = (
        next((item for item in context.report.items if item.returns_at), None) if context else None
    )
    if item:
        least = int(item.returns_at * (1 - RETURN_SHARE)) - RETURN_TOKENS
        assert least <= case.window or not is_back(case, step, item.place, least), item


@pytest.mark.parametrize(
    ("origins", "stands"), [([0, 1], 1), ([0, 0, 1], 0), ([0], 0), ([1, 0], 0)]
)
def test_what_is_repaired_into_another_number_of_messages_does_not_stand(
    origins: list[int], stands: int
) -> None:
    """An exchange that stood word by word stands again only if it is as many messages as it was."""
    items = tuple(Item(f"messages[{n}]", "history", "kept", "fits", 1, 1) for n in range(2))
    said = (Message("user", (Text("goal"),)), Message("assistant", (Text("answer"),)))
    renewal = Renewal(1, ALONE, before=(Piece(Span(0, 2), said, items),))
    history = tuple(said[origin] for origin in origins)
    assert len(place_after_repair(renewal, origins, history).before) == stands


def test_a_marker_of_what_repair_leaves_out_does_not_stand() -> None:
    """A message that was never read may be empty, and repair leaves it out once it is read."""
    dropped = Item("messages[1:2]", "history", "dropped", "newest", 1, 9, ("~handle",))
    kept = Item("messages[2]", "history", "kept", "first goal", 1, 1)
    marker, goal = Message("user", (Text("[left out]"),)), Message("user", (Text("goal"),))
    before = (Piece(Span(0, 1), (marker,), (dropped,)), Piece(Span(1, 2), (goal,), (kept,)))
    placed = place_after_repair(Renewal(1, ALONE, before=before), [1], (goal,))
    assert [piece.span for piece in placed.before] == [Span(0, 1)]
    assert placed.before[0].messages == (goal,)
