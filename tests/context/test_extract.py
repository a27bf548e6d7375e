"""The lines that are kept of what was cut."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom.budget.tokenizers import tokenizer
from loom.context.cover.anchors import AnchorIndex
from loom.context.cover.extract import Extract, Focus, extract
from loom.conversation.message import Message, Text, ToolCall
from loom.conversation.turns import Span
from tests.context.test_anchors import original_lines, result, user
from tests.shared import AGENTS, examples, needs_shared
from tests.strategies import broken_histories, histories

count = tokenizer("o200k_base")


def assistant(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", (Text(text), *calls) if text else calls)


def indexed(messages: list[Message]) -> AnchorIndex:
    index = AnchorIndex()
    for message in messages:
        index.add(message)
    return index


NOTHING = Extract((), 0, ())


def kept(
    messages: list[Message],
    tokens: int,
    after: Sequence[Message] | None = None,
    goal: str = "",
    places: Sequence[int] = (),
) -> Extract:
    focus = Focus(after=after, goal=goal, places=places)
    return extract(indexed(messages), Span(0, len(messages)), tokens, count, focus)


def listing(start: int, lines: int) -> Message:
    return result("\n".join(f"build/object_{number}.o" for number in range(start, start + lines)))


def test_lines_stand_verbatim_in_order_behind_who_said_them() -> None:
    made = kept(
        [
            user("rename parse_line to read_line"),
            assistant("On it.", ToolCall("c1", "grep", '{"q":"parse_line"}')),
            result("src/lines.py:12: def parse_line(text):\nno more\nthat is all\n(end)"),
        ],
        300,
    )
    assert made.text.splitlines() == [
        "0 user",
        "> rename parse_line to read_line",
        "1 assistant",
        "> On it.",
        '2 grep {"q":"parse_line"}',
        "> src/lines.py:12: def parse_line(text):",
    ]
    assert made.tokens == count(made.text)
    assert [(line.message, line.line) for line in made.lines] == [(0, 0), (1, 0), (2, 0)]


def test_a_result_without_its_call_says_what_was_asked_and_that_it_failed() -> None:
    history = [
        assistant("", ToolCall("c1", "bash", '{"command":"make"}')),
        result("E1204: src/a.py is broken", error=True),
    ]
    made = extract(indexed(history), Span(1, 2), 100, count)
    assert made.text.splitlines() == [
        '1 bash {"command":"make"} (error)',
        "> E1204: src/a.py is broken",
    ]


def test_the_caller_says_where_the_messages_stand() -> None:
    made = kept([user("see src/a.py"), user("and src/b.py")], 100, places=[7, 30])
    assert made.text == "7 user\n> see src/a.py\n30 user\n> and src/b.py"


@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_nothing_is_kept_where_nothing_fits(tokens: int) -> None:
    assert kept([user("see src/a.py and src/b.py")], tokens) == NOTHING


def test_nothing_is_kept_of_nothing() -> None:
    assert kept([], 100) == NOTHING
    assert extract(indexed([user("see src/a.py")]), Span(1, 1), 100, count) == NOTHING
    assert kept([Message("user", ()), user(" \n\t")], 100) == NOTHING


def test_only_the_messages_asked_for_are_read() -> None:
    history = [user(f"file number_{place}.txt") for place in range(9)]
    made = extract(indexed(history), Span(3, 6), 1000, count)
    assert {line.message for line in made.lines} == {3, 4, 5}


def test_equal_lines_are_told_once_and_of_the_newest() -> None:
    made = kept(
        [result("exit code 1204\n\n\nmore\n"), user("hm"), result("exit code 1204\n\n\nmore\n")],
        300,
    )
    assert made.text.count("exit code 1204") == 1
    assert made.text.index("hm") < made.text.index("exit code 1204")


def test_what_people_say_beats_what_tools_list() -> None:
    history = [
        user("no, keep the retry budget at three"),
        listing(0, 400),
        assistant("I have set it in src/retry.py."),
        listing(400, 400),
    ]
    made = kept(history, 60)
    assert "no, keep the retry budget at three" in made.text
    assert "I have set it in src/retry.py." in made.text


def test_an_error_beats_what_surrounds_it() -> None:
    lines = [f"compiled module_{number}.c" for number in range(300)]
    lines[150] = "module_150.c:12: error: undeclared name"
    assert lines[150] in kept([result("\n".join(lines))], 60).text


def test_what_was_named_often_and_lately_beats_what_was_listed_once() -> None:
    history = [
        listing(0, 300),
        *[assistant(f"step {step}: edit src/core/engine.py") for step in range(5)],
        listing(300, 300),
    ]
    assert "src/core/engine.py" in kept(history, 50).text


def test_what_follows_need_not_be_told_again() -> None:
    history = [user("the key is in vault/alpha.pem"), user("the lock is in vault/omega.pem")]
    made = kept(history, 24, after=[assistant("reading vault/omega.pem now")])
    assert "alpha" in made.text
    assert "omega" not in made.text


def test_what_was_named_beside_what_follows_is_kept() -> None:
    history = [result(f"service_{n} listens on port {4000 + n}\n\n\n.") for n in range(60)]
    made = kept(history, 40, after=[user("restart service_7")])
    assert "service_7 listens on port 4007" in made.text


def test_what_the_goal_names_is_kept() -> None:
    history = [result(f"service_{n} listens on port {4000 + n}\n\n\n.") for n in range(60)]
    assert "port 4007" in kept(history, 40, after=(), goal="move service_7 to another host").text


def test_what_follows_is_read_from_the_index_where_it_is_not_given() -> None:
    history = [
        user("the key is in vault/alpha.pem"),
        user("the lock is in vault/omega.pem"),
        assistant("reading vault/omega.pem now"),
    ]
    index = indexed(history)
    assert extract(index, Span(0, 2), 24, count) == extract(
        index, Span(0, 2), 24, count, Focus(after=history[2:])
    )


def test_a_huge_line_is_cut_around_what_it_names() -> None:
    made = kept(
        [
            user(
                "word " * 5_000
                + "the code for vault 7 is NDL-8a3b99c0, keep it. "
                + "word " * 5_000
            )
        ],
        60,
    )
    assert "the code for vault 7 is NDL-8a3b99c0, keep it." in made.text
    assert "…" in made.text


def test_a_call_is_told_in_its_own_line_where_its_result_is_not_shown() -> None:
    history = [
        assistant("", ToolCall("c1", "edit", '{"path":"src/a.py","text":"' + "x_1 " * 30 + '"}')),
        result("ok"),
    ]
    assert extract(indexed(history), Span(0, 1), 300, count).text.startswith(
        '0 assistant\n> edit {"path":"src/a.py"'
    )


def test_pieces_of_one_line_are_joined_where_they_meet() -> None:
    line = "; ".join(f"set option_{number} to value_{number}" for number in range(12))
    assert kept([result(f"{line}\n\n\n.")], 1_000).text.splitlines()[1] == f"> {line}"


def test_chinese_is_kept_by_its_terms_numbers_and_latin_words() -> None:
    filler = [result("今天天气很好，我们继续工作。" * 40) for _ in range(20)]
    history = [
        user("把「重试预算」设为32000，不要改动Redis的配置。"),
        *filler,
        assistant("错误来自订单服务，已经记录在工单 ABC-1204 中。"),
        *filler,
    ]
    made = kept(history, 160)
    assert "「重试预算」设为32000" in made.text
    assert "ABC-1204" in made.text


@pytest.mark.parametrize(
    "noise",
    [
        "\x00\x01\x02\xff" * 4_000,
        "\ud800" * 500,
        "A7f/" * 9_000,
        "\u202e" * 3_000,
        "\x1b[31m" * 3_000,
    ],
)
def test_garbage_does_no_harm(noise: str) -> None:
    made = kept([result(noise), user("the report is in out/report_7.csv"), result(noise)], 100)
    assert "out/report_7.csv" in made.text
    assert made.tokens == count(made.text) <= 100


@pytest.mark.parametrize(
    "counter",
    [len, lambda text: 3 * len(text.split()) + text.count("\n"), lambda text: len(text) ** 2 // 50],
)
def test_any_counter_is_obeyed(counter: object) -> None:
    history = [user(f"file number_{place}.txt is ready") for place in range(50)]
    made = extract(indexed(history), Span(0, 50), 400, counter)  # type: ignore[arg-type]
    assert made.text
    assert made.tokens == counter(made.text) <= 400  # type: ignore[operator]


def test_the_budget_is_used() -> None:
    history = [user(f"file number_{place}.txt is ready") for place in range(500)]
    assert kept(history, 1_000).tokens > 950


def test_what_is_counted_grows_with_the_budget_and_not_with_the_history() -> None:
    def characters(messages: int) -> int:
        counted = 0

        def counting(text: str) -> int:
            nonlocal counted
            counted += len(text)
            return count(text)

        history = [
            result(f"object_{place} holds value_{place}\nlog\nlog\nlog")
            for place in range(messages)
        ]
        extract(indexed(history), Span(0, messages), 500, counting)
        return counted

    assert characters(4_000) <= 1.2 * characters(400)


@settings(max_examples=examples(60), deadline=None)
@given(broken_histories | histories(), st.integers(0, 400), st.data())
def test_extracts_fit_are_verbatim_ordered_and_the_same_each_time(
    history: list[Message], tokens: int, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, len(history)))
    start = data.draw(st.integers(0, stop))
    index = indexed(history)
    focus = Focus(after=history[stop:])
    made = extract(index, Span(start, stop), tokens, count, focus)
    assert made.tokens == count(made.text) <= tokens
    assert made == extract(index, Span(start, stop), tokens, count, focus)
    places = [(line.message, line.line) for line in made.lines]
    assert places == sorted(set(places))
    assert all(start <= line.message < stop for line in made.lines)
    assert [quote.place for quote in made.quotes] == sorted({line.message for line in made.lines})
    for quote in made.quotes:
        originals = "\n".join(original_lines(history[quote.place]))
        for line in quote.text.splitlines():
            assert all(piece in originals for piece in line.split("…"))


@needs_shared
@pytest.mark.parametrize("tokens", [500, 4_000])
def test_a_real_session_is_told_within_its_budget(tokens: int) -> None:
    run = next(loom.read_runs(str(AGENTS / "trail_2.json")))
    messages = list(run.messages())
    made = extract(indexed(messages), Span(0, len(messages) - 4), tokens, count)
    assert 0.95 * tokens < made.tokens == count(made.text) <= tokens
