"""Seed 001's ladder: every threshold and text it prints, and what must be true of each rung."""

import re
from itertools import pairwise
from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom import weave
from loom.budget.counting import Counter
from loom.budget.profiles import profile
from loom.context.handles import Archive
from loom.context.history import ladder
from loom.context.history.fitting import Fitting
from loom.context.history.ladder import (
    RUNGS,
    Ladder,
    Threshold,
    View,
    find_spared,
    keep_whole,
    score,
)
from loom.context.policy import policies
from loom.context.shorten.shrink import shrink_messages
from loom.conversation.handles import to_lines
from loom.conversation.message import (
    Conversation,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.turns import exchanges
from loom.conversation.words import split_terms
from loom.dialects import WIRES
from loom.dialects.repair import repair
from loom.errors import ChoiceError
from tests import strategies as our
from tests.laws.test_weave import longer
from tests.shared import examples

COUNTER = Counter(profile("o200k_base"))
SEED = Ladder(
    (
        Threshold("snip", 0.7),
        Threshold("micro", 0.8),
        Threshold("collapse", 0.9),
        Threshold("auto", 0.95),
    )
)


def said(role: str, text: str) -> Message:
    return Message(role, (Text(text),))  # type: ignore[arg-type]


def step(number: int, result: str, name: str = "read") -> list[Message]:
    call = ToolCall(f"c{number}", name, "{}")
    return [
        Message("assistant", (call,)),
        Message("tool", (ToolResult(call.id, (Text(result),), name=name),)),
    ]


def scene(history: list[Message], goal: str = "", pins: tuple[int, ...] = ()) -> Fitting:
    return Fitting(
        history=tuple(history),
        policy=policies()["partitions"],
        counter=COUNTER,
        archive=Archive(),
        goal=goal,
        spared=find_spared(history, pins),
    )


def texts(view: View) -> list[str]:
    return [
        part.text
        for piece in view
        for message in piece.messages
        for outer in message.parts
        for part in (outer.parts if isinstance(outer, ToolResult) else (outer,))
        if isinstance(part, Text)
    ]


# ── the numbers and texts that the seed prints
# ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pressure", "rung"),
    [
        (0.5, ""),
        (0.7, ""),
        (0.71, "snip"),
        (0.8, "snip"),
        (0.81, "micro"),
        (0.91, "collapse"),
        (0.95, "collapse"),
        (0.96, "auto"),
        (2, "auto"),
    ],
)
def test_the_highest_level_that_was_passed_is_taken(pressure: float, rung: str) -> None:
    assert SEED.find_reached(pressure) == rung


def test_thresholds_must_rise_and_name_rungs() -> None:
    for steps in (
        (Threshold("snip", 0.8), Threshold("micro", 0.7)),
        (Threshold("snip", 0.7), Threshold("micro", 0.7)),
        (Threshold("shrink", 0.7),),
        (Threshold("snip", 1.2),),
    ):
        with pytest.raises(ChoiceError):
            Ladder(steps)


def test_snip_leaves_2000_characters() -> None:
    long = "x" * 2001 + "y" * 600
    view = ladder.snip(
        keep_whole(s := scene([said("user", "go"), said("assistant", long), said("user", "on")])), s
    )
    assert re.fullmatch(
        r"x{2000}\n\[\.\.\.snipped 601 chars\] \(recall (~\w{12})\)", texts(view)[1]
    )
    assert s.archive.recall(view[1].items[0].handles[0]) == long
    assert texts(ladder.snip(keep_whole(s), s)) == texts(view)


def test_snip_spares_texts_of_2000_characters() -> None:
    view = keep_whole(
        s := scene([said("user", "go"), said("assistant", "x" * 2000), said("user", "on")])
    )
    assert ladder.snip(view, s) == view


def test_micro_names_results_that_came_before_and_previews_others() -> None:
    long = "first line\n\n" + "word " * 200
    history = [
        said("user", "go"),
        *step(1, long),
        *step(2, long),
        *step(3, "short"),
        *step(4, "word " * 100, "grep"),
        said("user", "on"),
    ]
    s = scene(history)
    view = ladder.micro(keep_whole(s), s)
    results = [text for text in texts(view) if text not in ("go", "on")]
    preview = " | ".join(["first line", ("word " * 200).strip()])[:240]
    assert results[0].startswith(f"[tool result cached: {len(long)} chars] {preview} (recall ~")
    assert results[1].startswith("[cached read result from c1] (recall ~")
    assert results[2] == "short"
    assert results[3].startswith("[tool result cached: 500 chars] word word")
    assert [m.results[0].call_id for p in view for m in p.messages if m.role == "tool"] == [
        "c1",
        "c2",
        "c3",
        "c4",
    ]


def test_what_was_cut_before_is_cut_again_with_the_handle_of_the_original() -> None:
    long = "a line of a log\n" * 300
    history = [
        said("user", "go"),
        *step(1, long),
        *step(2, long),
        said("assistant", long),
        said("user", "on"),
    ]
    s = scene(history)
    snipped = ladder.snip(keep_whole(s), s)
    assert all(len(text) < 2100 for text in texts(snipped))
    view = ladder.micro(snipped, s)
    assert texts(view)[1].startswith(
        f"[tool result cached: {len(long)} chars] a line of a log | a line"
    )
    assert texts(view)[2].startswith("[cached read result from c1]")
    for text in texts(view)[1:4]:
        handle = text[text.rindex("~") :].rstrip(")")
        assert s.archive.recall(handle) == long
    shorter = ladder.snip(snipped, s, 500)
    assert texts(shorter)[3].startswith(long[:500] + f"\n[...snipped {len(long) - 500} chars]")
    assert ladder.snip(shorter, s, 500) == shorter


@pytest.mark.parametrize(
    "spoken",
    [
        (Text("a line of a log\n" * 600),),
        (Text("a line of a log\n" * 300), Text("another line of it\n" * 300)),
        (Reasoning("so " * 900, "anthropic", signature="s"), Text("a line of a log\n" * 600)),
    ],
    ids=["a text", "two texts", "with reasoning"],
)
def test_what_the_gate_cut_before_is_snipped_with_the_handle_of_the_original(
    spoken: tuple[Part, ...],
) -> None:
    long = "a line of a log\n" * 600
    history = [said("user", "go"), *step(1, long), Message("assistant", spoken), said("user", "on")]
    s = scene(history)
    view = []
    for piece in keep_whole(s):
        made = shrink_messages(piece.messages, 900, piece.span.start, s.counter, s.archive)
        assert made is not None
        view.append(replace(piece, messages=made))
    words = {
        long,
        *(part.text for part in spoken if isinstance(part, Text)),
        Message("assistant", spoken).text,
    }
    snipped = [text for text in texts(ladder.snip(tuple(view), s, 500)) if "[...snipped" in text]
    assert len(snipped) >= 2
    for text in snipped:
        handle = text[text.rindex("~") :].rstrip(")")
        assert s.archive.recall(handle) in words


def test_micro_leaves_what_the_model_has_not_read() -> None:
    s = scene([said("user", "go"), *step(1, "word " * 400)])
    assert ladder.micro(keep_whole(s), s) == keep_whole(s)


def test_what_only_looks_cut_is_cut_like_any_other() -> None:
    snipped = f"{'x' * 2600}\n[...snipped 9 chars] (recall ~aaaaaaaaaaaa)"
    cached = f"[tool result cached: 9 chars] {'word ' * 200} (recall ~aaaaaaaaaaaa)"
    s = scene(
        [said("user", "go"), *step(1, cached), said("assistant", snipped), said("user", "on")]
    )
    for rung, text in ((ladder.snip, snipped), (ladder.micro, cached)):
        view = rung(keep_whole(s), s)
        (handle,) = [handle for piece in view for item in piece.items for handle in item.handles]
        assert s.archive.recall(handle) == text
        assert rung(view, s) == view


def test_collapse_keeps_the_first_three_and_the_last_five() -> None:
    history = [
        said("user", "Fix the login."),
        *(said("assistant", f"I look at file {n}. " + "It is long. " * 30) for n in range(20)),
        said("user", "on"),
    ]
    s = scene(history, goal="Fix the login.")
    view = ladder.collapse(keep_whole(s), s)
    assert [piece.span.start for piece in view] == [0, 1, 2, 3, 17, 18, 19, 20, 21]
    [covered] = [piece for piece in view if piece.items[0].action == "covered"]
    text = covered.messages[0].text
    assert text.startswith(
        "[collapsed 14 messages (goal: Fix the login.): [assistant] I look at file 2. | "
        "[assistant] I look at file 3. | "
    )
    assert s.archive.recall(covered.items[0].handles[0]) == to_lines(history[3:17])


def test_collapse_needs_nine_messages() -> None:
    s = scene([said("user", "go"), *(said("assistant", "word " * 99) for _ in range(7))])
    assert ladder.collapse(keep_whole(s), s) == keep_whole(s)


def test_auto_keeps_the_better_half_by_relevance_and_age() -> None:
    history = [said("user", "repair the retry budget")]
    history += [
        said(
            "assistant",
            f"{n} " + ("the retry budget is here " if n % 4 == 0 else "something else ") * 20,
        )
        for n in range(20)
    ]
    history.append(said("user", "on"))
    s = scene(history, goal="repair the retry budget")
    view = ladder.auto(keep_whole(s), s)
    kept = [piece.span.start for piece in view if piece.items[0].action == "kept"]
    assert len(kept) == 11
    assert {n + 1 for n in range(0, 20, 4)} <= set(kept), "what speaks of the goal stays"
    assert kept[-5:] == [17, 18, 19, 20, 21], "of the rest, what is newer"


def test_the_score_is_the_seeds() -> None:
    history = [said("user", "alpha beta"), said("assistant", "alpha"), said("assistant", "gamma")]
    s = scene(history, goal="alpha beta")
    pieces = keep_whole(s)
    assert score(pieces[1], s) == round(0.5 * exp(-0.5 * 2 / 3), 9)
    assert score(pieces[2], s) == 0
    assert score(pieces[2], scene(history)) == round(0.5 * exp(-0.5 / 3), 9), (
        "without a goal all are half relevant"
    )


def test_reactive_is_auto_and_snip_at_500() -> None:
    history = [
        said("user", "go"),
        *(said("assistant", f"{n} " + "word " * 300) for n in range(12)),
        said("user", "on"),
    ]
    s = scene(history)
    view = ladder.reactive(keep_whole(s), s)
    assert sum(piece.items[0].action == "shrunk" for piece in view) == 5
    assert all(len(text) < 600 for text in texts(view))


# ── defects of the described project that do not exist here
# ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("修复登录服务的重试预算", "重试预算在登录服务里被用了两次"),
        ("fix the authentication", "the authentication, as it is"),
        ("ログインを直す", "ログインの処理"),
        ("로그인 수정", "로그인 서비스"),
        ("исправь вход", "Вход сломан"),
    ],
)
def test_relevance_is_found_in_every_script_and_beside_punctuation(goal: str, text: str) -> None:
    assert set(split_terms(goal)) & set(split_terms(text))


def test_without_any_overlap_the_newest_stay() -> None:
    history = [
        said("user", "goal"),
        *(said("assistant", f"n{n} " + "word " * 50) for n in range(20)),
        said("user", "last"),
    ]
    s = scene(history, goal="completely different")
    view = ladder.auto(keep_whole(s), s)
    kept = [piece.span.start for piece in view if piece.items[0].action == "kept"]
    assert kept == [0, *range(12, 22)]


def test_calls_and_results_keep_their_ids_and_names() -> None:
    history = [said("user", "go")]
    for n in range(12):
        history += step(n, "word " * 900)
    history.append(said("user", "on"))
    for name, rung in RUNGS.items():
        s = scene(history)
        sent = [message for piece in rung(keep_whole(s), s) for message in piece.messages]
        calls = [call.id for message in sent for call in message.calls]
        assert calls == [result.call_id for message in sent for result in message.results], name
        assert all(result.name == "read" for message in sent for result in message.results)


# ── laws of every rung
# ──────────────────────────────────────────────────────────────────────────────────────────────────

histories = st.builds(
    lambda c, n: list(repair(longer(c, n)).conversation.messages),
    our.conversations(),
    st.sampled_from([0, 30, 900]),
)
many = st.lists(histories, min_size=1, max_size=4).map(
    lambda several: [message for history in several for message in history]
)


def cost(view: View) -> int:
    return sum(COUNTER.count_message(message) for piece in view for message in piece.messages)


@given(many, st.sampled_from(sorted(RUNGS)), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_a_rung_never_grows_keeps_pairs_and_changes_nothing_twice(
    history: list[Message], name: str, data: st.DataObject
) -> None:
    history = list(repair(Conversation(messages=tuple(history))).conversation.messages)
    if not history:
        return
    pins = tuple(data.draw(st.lists(st.integers(0, len(history) - 1), max_size=2)))
    s = scene(history, goal=next((m.text for m in history if m.role == "user"), ""), pins=pins)
    before = keep_whole(s)
    view = RUNGS[name](before, s)
    assert cost(view) <= cost(before)
    assert sum(item.after for piece in view for item in piece.items) == cost(view)
    assert RUNGS[name](view, s) == view
    assert view[0].span.start == 0
    assert all(a.span.stop == b.span.start for a, b in pairwise(view))
    assert view[-1].span.stop == len(history)
    standing = [message for piece in view for message in piece.messages]
    for index in s.spared:
        assert history[index] in standing, "what is spared stands as it was"
    sent = Conversation(messages=tuple(standing))
    units = {span.start for span in exchanges(history)}
    assert all(piece.span.start in units for piece in view)
    for piece in view:
        for item in piece.items:
            for handle in item.handles:
                assert s.archive.recall(handle)
            if item.action in ("covered", "dropped"):
                assert s.archive.recall(item.handles[0]) == to_lines(
                    history[piece.span.start : piece.span.stop]
                )
    for wire in WIRES:
        torn = [
            f for f in wire.check(wire.render(repair(sent).conversation).wire) if f.level == "error"
        ]
        assert torn == []


def test_a_ladder_words_its_markers_as_the_policy_says() -> None:
    policy = replace(
        policies()["partitions"], name="mine", marker="[gone: {count}; recall {handle}]"
    )
    history = [said(role, f"word_{n} " * 60) for n in range(30) for role in ("user", "assistant")]
    sent = weave(history, model="gpt-4o", window=2000, reserve_output=0, policy=policy).openai()[
        "messages"
    ]
    markers = [message["content"] for message in sent if "gone: " in message["content"]]
    assert markers
    assert not any("left out here" in message["content"] for message in sent)
