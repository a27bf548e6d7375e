"""A session is the stateless run: whoever appends and prepares step by step gets what
`weave(previous=)` makes of the same history.

Set aside are the letters of handles, which have the same length but not always as many tokens, so
here all handles are made of digits, of which the tokenizer takes three at a time; the first
request, which in a session leaves room to grow as every epoch does; and old history that a session
does not read because nothing of it can stand in the window: where more than three windows come at
once, what a pin brings back from there, and what was dropped in a small window and is covered
later.
"""

import asyncio
import itertools
import re
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from loom import CannotFit, Conversation, Loom, Message, Text, ToolCall, ToolResult
from loom.context import handles
from loom.context.history.epochs import Epoch, EpochEnds, Renewal, begin_after
from loom.context.history.places import Places, Spot
from loom.context.history.reasons import EpochReason
from loom.context.history.summary_covers import SummarySpan
from loom.context.options import Options
from loom.context.policy import policies
from loom.context.request import Context
from loom.context.weaving import build, go_on
from loom.conversation.handles import HANDLE_CHARS, SAMPLE, mint, to_lines
from loom.conversation.system_messages import order_behind_results
from loom.conversation.turns import Span
from loom.engine.prepare import request as preparing
from loom.engine.reading import join_neighbours, merge
from loom.errors import ChoiceError
from tests import strategies as our
from tests.laws.test_weave import longer
from tests.shared import examples

POLICIES = [name for name in policies() if policies()[name].strategy != "stop_at_limit"]
TOO_MUCH = "tokens have come since, too many to append"
FIRST = EpochReason("first")
MODEL = "gpt-4o"


class Step(Struct, frozen=True):
    """How many messages there are when a request is made, whether the store was opened anew before,
    and what else happens.
    """

    length: int
    restart: bool = False
    summary: str = ""
    pins: tuple[int, ...] = ()
    sections: tuple[tuple[str, str], ...] = ()
    window: int = 0  # where it is not that of the case


class Case(Struct, frozen=True):
    conversation: Conversation
    steps: tuple[Step, ...]
    policy: str
    window: int
    ratio: float = 1.0


def calls_of(conversation: Conversation) -> list[int]:
    """How many messages there were before each message of the model, and in the end."""
    said = [
        n for n, message in enumerate(conversation.messages) if message.role == "assistant" and n
    ]
    return [*said, len(conversation.messages)]


class Asked(Struct, frozen=True):
    """What a session asks the pure rooms for: to go on, or to begin, with these sections and all
    else that it wishes.
    """

    begins: bool
    options: Options


class Kept:
    """A session, with what it asked the pure rooms for."""

    def __init__(self, case: Case, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.case, self.address, self.asked = case, address, list[Asked]()
        self._ticks = itertools.count(1_700_000_000_000)
        for name, function in (("go_on", go_on), ("build", build)):
            monkeypatch.setattr(preparing, name, self._recorded(name == "build", function))
        monkeypatch.setattr(preparing, "ratio_of", lambda *_: case.ratio)
        self.loom = self._open()
        system = "\n".join(message.text for message in case.conversation.system) or None
        self.session = self.loom.new(model=MODEL, system=system, tools=case.conversation.tools)
        self.appended = 0

    def _recorded(self, begins: bool, function: Callable[..., Context]) -> Callable[..., Context]:
        def called(*values: Any) -> Context:
            self.asked.append(Asked(begins, values[1]))
            return function(*values)

        return called

    def _open(self) -> Loom:
        return Loom.open(self.address, now=lambda: next(self._ticks), tenant=str(id(self)))

    def request(self, step: Step) -> Context | None:
        self.asked.clear()
        if step.restart:
            self.loom.close()
            self.loom = self._open()
            self.session = self.loom.session(self.session.id)
        if step.length > self.appended:
            self.session.append(*self.case.conversation.messages[self.appended : step.length])
            self.appended = step.length
        with suppress(ChoiceError):  # there must be something to sum up
            if step.summary:
                self.session.set_summary(step.summary)
        try:
            return asyncio.run(
                self.session.prepare(
                    window=step.window or self.case.window,
                    reserve_output=0,
                    policy=self.case.policy,
                    sections=step.sections,
                    pins=[self.session.path[pin].id for pin in step.pins],
                )
            )
        except CannotFit:
            return None

    def told(self) -> tuple[SummarySpan, ...]:
        session = self.session
        found = session._store.summaries.on_path(session.row, session.path)
        return tuple(SummarySpan(Span(one.start, one.stop), one.text, one.by) for one in found)


class Stateless:
    """The same from the pure rooms alone, with all of the history at hand."""

    def __init__(self, case: Case, system: tuple[Message, ...]) -> None:
        self.given = Conversation(
            messages=(), system=system, tools=case.conversation.tools, model=MODEL
        )
        self.messages, self.policy = case.conversation.messages, policies()[case.policy]
        self.last: Context | None = None
        self.told: tuple[SummarySpan, ...] = ()

    def request(
        self, step: Step, asked: Sequence[Asked], told: tuple[SummarySpan, ...]
    ) -> Context | None:
        messages, pins, places = self._read(step)
        given = replace(self.given, messages=messages)
        made: Context | None = None
        ends: EpochEnds | None = None
        try:
            # with a fresh window a session asks once more, with the handoff in the system text
            for one in asked:
                if one.begins:
                    begun = self._begun(told, ends, made, one.options.window or 0)
                    made = build(given, one.options, pins, begun, places)
                else:
                    found = go_on(given, one.options, pins, self._standing(told), places)
                    made, ends = (made, found) if isinstance(found, EpochEnds) else (found, ends)
        except CannotFit:
            return None
        self.last, self.told = made, told
        return made

    def _read(self, step: Step) -> tuple[tuple[Message, ...], list[int], Places]:
        """The messages as a policy reads them, where the pins are in them, and the places of
        all.
        """
        messages = self.messages[: step.length]
        order = order_behind_results(messages)
        messages = tuple(messages[n] for n in order)
        places = Places(tuple(Spot(at, at + 1, ((f"{n}", f"{n}"),)) for at, n in enumerate(order)))
        if self.policy.merge:
            messages, places = join_neighbours(messages, places, merge)
        starts = [spot.start for spot in places.spots]
        return messages, [bisect_right(starts, order.index(pin)) - 1 for pin in step.pins], places

    def _standing(self, told: tuple[SummarySpan, ...]) -> Epoch:
        assert self.last is not None
        return replace(Epoch.of(self.last.report), summaries=told)

    def _begun(
        self,
        told: tuple[SummarySpan, ...],
        ends: EpochEnds | None,
        made: Context | None,
        window: int,
    ) -> Renewal:
        renewing = made.continuation.reason if made else None
        # a session knows of a summary, and of a pin on what it does not read, before it goes on
        known = EpochReason("pin" if self.told == told else "summary_written")
        # What a summary in the system text stands for need not be in the history.
        floor = told[-1].span.stop if told and self.policy.summary_replaces else 0
        if self.policy.summary == "system":
            told = ()
        if self.last is None:
            return Renewal(0, renewing or FIRST, summaries=told, floor=floor, renew=bool(renewing))
        epoch = self._standing(told)
        forced = EpochEnds(renewing or known, 0 if epoch.has_outgrown(window) else epoch.seen)
        begun = begin_after(epoch, forced if renewing or ends is None else ends)
        return replace(begun, floor=max(begun.floor, floor), renew=bool(renewing))


def mint_digits(place: str, content: str) -> str:
    """A handle of digits."""
    letters = mint(place, content)[1:].encode()
    return "~" + "".join("234567"[letter % 6] for letter in letters)


_FIGURE = re.compile(r"\d+(?:\.\d+)?")
_HANDLE = re.compile(f"~[2-7]{{{HANDLE_CHARS - 1}}}")


def without_handles(messages: Sequence[Message]) -> str:
    return _HANDLE.sub(SAMPLE, to_lines(messages))


def facts(context: Context | None) -> Any:
    if context is None:
        return None
    report = context.report
    # What is whole may be so for several reasons, and the report names one of them. What is not
    # read is not repaired. Where a pin parts what is not read, the parts are estimates of a whole.
    items = [
        (
            i.place,
            i.action,
            i.rule if i.action != "kept" else "",
            i.before if i.action != "dropped" else 0,
            i.after,
        )
        for i in report.items
        if i.action != "repaired"
    ]
    return {
        "epoch": (report.epoch, _FIGURE.sub("N", report.epoch_reason), report.renewed),
        "items": items,
        "dropped": sum(i.before for i in report.items if i.action == "dropped"),
        "sent": (
            without_handles(context.conversation.system),
            without_handles(context.conversation.messages),
        ),
        "tokens": report.input_tokens,
        # what is not read is counted as it was when it was written
        "pressure": pytest.approx(report.pressure, rel=0.01),
    }


def is_known(context: Context) -> bool:
    """Whether all of the history was read once, for this request or for one before it."""
    never = any(spot.unread and spot.stretch is None for spot in context.continuation.places.spots)
    return not never and TOO_MUCH not in context.report.epoch_reason


def compare(case: Case, address: str) -> list[Context | None]:
    made: list[Context | None] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(handles, "mint", mint_digits)
        kept = Kept(case, address, monkeypatch)
        try:
            alone = Stateless(case, kept.session.row.head.system)
            for number, step in enumerate(case.steps):
                context = kept.request(step)
                expected = alone.request(step, kept.asked, kept.told())
                if context and not is_known(context):
                    break
                found, wanted = facts(context), facts(expected)
                assert (found is None) == (wanted is None), f"call {number}"
                if found is None:
                    continue
                for key, value in wanted.items():
                    assert found[key] == value, f"call {number}: {key}"
                made.append(context)
        finally:
            kept.loom.close()
    return made


def worked(steps: int, words: int) -> Conversation:
    """A goal, then a call and its result again and again, with a new request after every tenth."""
    said = [
        Message(
            "user", (Text("The goal: read all pages and write down what they say about looms."),)
        )
    ]
    for n in range(steps):
        said.append(
            Message(
                "assistant",
                (
                    Text(f"Now page {n}."),
                    ToolCall(f"c{n}", "read_file", f'{{"path":"docs/page_{n}.md"}}'),
                ),
            )
        )
        text = f"line {n} of docs/page_{n}.md says loom_{n * 7} = {n * 13} " * (words // 8)
        said.append(Message("tool", (ToolResult(f"c{n}", (Text(text),), name="read_file"),)))
        if n % 10 == 9:
            said.append(Message("assistant", (Text("Done."),)))
            said.append(Message("user", (Text(f"Go on behind page {n}."),)))
    return Conversation(
        messages=tuple(said), system=(Message("system", (Text("You are careful."),)),)
    )


def reminded(conversation: Conversation) -> Conversation:
    """The conversation with system messages of two kinds behind requests, results and calls, and
    one of its own kind.
    """
    said: list[Message] = []
    for n, message in enumerate(conversation.messages):
        said.append(message)
        if message.role == "user":
            said.append(
                Message(
                    "system",
                    (Text(f"Rules for part {n}: never push, and ask before you remove page_{n}."),),
                )
            )
        if n % 6 == 2:
            said.append(Message("developer", (Text(f"Reminder {n}: mind the tests."),)))
        if n == 5:
            said.append(Message("system", (Text("The user went to lunch."),)))
    return replace(conversation, messages=tuple(said))


def steps_of(conversation: Conversation, restarts: int = 0, **what: Any) -> tuple[Step, ...]:
    """A step for each call, with a restart before each so many."""
    lengths = calls_of(conversation)
    return tuple(
        Step(length, restart=bool(restarts) and n % restarts == restarts - 1, **what)
        for n, length in enumerate(lengths)
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("window", "restarts"),
    [
        (1_200, 3),
        pytest.param(2_000, 0, marks=pytest.mark.long),
        pytest.param(4_000, 5, marks=pytest.mark.long),
    ],
)
def test_a_long_session_is_the_stateless_run_with_and_without_restarts(
    policy: str, window: int, restarts: int, tmp_path: Path
) -> None:
    conversation = worked(60, 60)
    made = compare(
        Case(conversation, steps_of(conversation, restarts), policy, window),
        str(tmp_path / "store.db"),
    )
    assert any(context and context.report.epoch > 0 for context in made)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("window", "restarts"), [(1_600, 3), pytest.param(3_000, 0, marks=pytest.mark.long)]
)
def test_a_long_session_with_system_messages_inside_is_the_stateless_run(
    policy: str, window: int, restarts: int, tmp_path: Path
) -> None:
    conversation = reminded(worked(40, 60))
    steps = steps_of(conversation, restarts)
    made = compare(Case(conversation, steps, policy, window), str(tmp_path / "store.db"))
    assert len(made) == len(steps)
    assert any(context and context.report.epoch > 0 for context in made)


@pytest.mark.parametrize("window", [500, pytest.param(700, marks=pytest.mark.long), 900])
def test_a_session_in_a_window_too_small_for_covers_is_the_stateless_run(
    window: int, tmp_path: Path
) -> None:
    conversation = worked(60, 60)
    steps = steps_of(conversation, restarts=3)
    made = compare(Case(conversation, steps, "default", window), str(tmp_path / "store.db"))
    assert len(made) == len(steps)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_session_in_windows_that_grow_and_shrink_is_the_stateless_run(
    policy: str, tmp_path: Path
) -> None:
    conversation = worked(60, 60)
    windows = [1_500] * 40 + [4_000] * 10 + [5_000] * 5 + [9_000] * 5 + [2_000] * 20
    steps = tuple(
        replace(step, window=window)
        for step, window in zip(steps_of(conversation, restarts=4), windows, strict=False)
    )
    made = compare(Case(conversation, steps, policy, 0), str(tmp_path / "store.db"))
    grown = [c for c in made if c and "the window grew" in c.report.epoch_reason]
    assert len(made) == len(steps)
    assert len(grown) == (0 if policy == "partitions" else 2)


def without_marks(conversation: Conversation) -> Conversation:
    """The conversation without cache marks: repair limits them by all of a history, also by what a
    session does not read.
    """
    messages = [
        replace(
            message,
            parts=tuple(
                replace(part, carried=None) if isinstance(part, Text) else part
                for part in message.parts
            ),
        )
        for message in conversation.messages
    ]
    return replace(conversation, messages=tuple(messages))


_zones = st.sampled_from(["rules", "memory", "knowledge", "skills"])
_sections = st.lists(st.tuples(_zones, our.words), max_size=2)
_lengths = st.sampled_from([0, 5, 30, 60])
_larger = st.sampled_from([0, 0, 0, 0, 0, 0, 1_000, 4_000])
_windows = st.sampled_from([300, 600, 1_000, 2_000, 4_000, 50_000])
_policies = st.sampled_from(POLICIES)
_ratios = st.sampled_from([1.0, 1.0, 0.8, 1.5])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    conversation = longer(draw(our.conversations(our.histories(8))), draw(_lengths))
    conversation = without_marks(conversation)
    steps: list[Step] = []
    pins: tuple[int, ...] = ()
    sections = tuple(draw(_sections))
    for length in calls_of(conversation):
        if draw(our.upto(5)) == 0:
            pins = (*pins, draw(our.upto(length - 1)))
        summary = draw(our.words) if draw(our.upto(7)) == 0 else ""
        restart = draw(our.upto(3)) == 0
        steps.append(Step(length, restart, summary, pins, sections, draw(_larger)))
    window = draw(_windows)
    return Case(conversation, tuple(steps), draw(_policies), window, draw(_ratios))


@settings(max_examples=examples(30))
@drawn(case=cases())
def test_a_session_is_the_stateless_run(case: Case) -> None:
    restarts = any(step.restart for step in case.steps)
    with tempfile.TemporaryDirectory() as folder:
        compare(case, str(Path(folder) / "store.db") if restarts else ":memory:")
