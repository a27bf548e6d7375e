"""What counts as an anchor, and what the index holds of a message."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.context.cover import anchors as module
from loom.context.cover.anchors import (
    MAX_ANCHOR_CHARS,
    MAX_WHOLE_CHARS,
    AnchorIndex,
    Memory,
    Passage,
    find_anchors,
    passages_of,
)
from loom.conversation.message import Message, Reasoning, Text, ToolCall, ToolResult
from tests.shared import examples
from tests.strategies import broken_histories, histories


def anchors(line: str, escaped: bool = False) -> list[str]:
    return [anchor for _, _, anchor in find_anchors(line, escaped)]


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def result(text: str, error: bool = False) -> Message:
    return Message("tool", (ToolResult("c1", (Text(text),), error),))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("see src/loom/engine.py:12:5 first", ["src/loom/engine.py"]),
        (
            "in ~/.config/app.toml, ./run.sh or /etc/hosts",
            ["~/.config/app.toml", "./run.sh", "/etc/hosts"],
        ),
        ("docs at https://example.org/a?b=c#d.", ["https://example.org/a?b=c#d"]),
        ("call read_runs, then getTheme and HTTPServer", ["read_runs", "getTheme", "HTTPServer"]),
        ("MAX_RETRIES and HTTP", ["MAX_RETRIES", "HTTP"]),
        ("commit 3ea751c087f3 of v1.4.2", ["3ea751c087f3", "v1.4.2"]),
        (
            "took 1,204 ms at 10:32:11 on 2026-11-15, port 8080",
            ["1,204", "10:32:11", "2026-11-15", "8080"],
        ),
        ("ticket ABC-123, code NDL-8a3b99c0", ["ABC-123", "NDL-8a3b99c0"]),
        ("write to ann@example.org with --dry-run", ["ann@example.org", "--dry-run"]),
        ("colour #81a2be in theme.toml", ["#81a2be", "theme.toml"]),
        ("run `npm test` again", ["npm test"]),
        ("self.settingsManager.reload()", ["settingsManager"]),
        ("请看src/foo.py文件", ["src/foo.py"]),
        ("使用 Redis 缓存「重试预算」为32000个", ["Redis", "重试预算", "32000"]),
        ("タイムアウトはtimeoutで決まる", ["timeout"]),
    ],
)
def test_exact_things_are_anchors(line: str, expected: list[str]) -> None:
    assert [anchor for anchor in anchors(line) if anchor in expected] == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        "the quick brown fox, read-only, e.g. 42 and so on",
        "…—–··",
        "a" * (MAX_ANCHOR_CHARS + 1),
        "`` ` ``",
    ],
)
def test_plain_words_and_blobs_are_none(line: str) -> None:
    assert anchors(line) == []


def test_an_anchor_says_where_it_stands() -> None:
    line = "open src/a.py and src/b.py"
    assert [line[start:stop] for start, stop, _ in find_anchors(line)] == anchors(line)


def test_escapes_in_arguments_are_no_part_of_a_name() -> None:
    written = r'edit {"path":"a/b.ts","text":"\tsetTheme(x)\nconst fooBar = \u00e9"}'
    assert {"a/b.ts", "setTheme", "fooBar"} <= set(anchors(written, escaped=True))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "word",
                "Word",
                "x",
                "I",
                "it's",
                "a.b",
                "a:b",
                "10:32",
                "1,204",
                "--flag",
                "-",
                "..",
                "~/x",
                "./a",
            ]
        )
    )
    | st.lists(st.sampled_from([*"aZ0 .,:;-+/@#~`'\"()[]{}<>=*|&%$^_\\é重“”\t", "://"])),
    st.sampled_from(["", " ", ", ", ". ", "-"]),
    st.booleans(),
)
def test_of_the_words_that_are_passed_over_none_is_a_name(
    pieces: list[str], between: str, escaped: bool
) -> None:
    line = between.join(pieces)
    quick, slow = (
        (module._runs(True, False), module._runs(True, True))
        if escaped
        else (module._runs(False, False), module._runs(False, True))
    )
    seen, all_runs = (
        {(m.span(m.lastgroup), m.lastgroup) for m in each.finditer(line) if m.lastgroup}
        for each in (quick, slow)
    )
    assert seen <= all_runs
    for (start, stop), kind in all_runs - seen:
        assert kind == "run"
        assert len(line[start:stop]) <= 2 or not module._names(line[start:stop])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "Errors",
                "fail",
                "FAILED",
                "not found",
                "cannot",
                "must",
                "[ ]",
                "Next step",
                "é",
                "decision",
                "x",
            ]
        )
    )
)
def test_a_quick_look_for_errors_and_tasks_finds_what_the_patterns_find(words: list[str]) -> None:
    for text in (" ".join(words), "".join(words)):
        assert module._tells(text, module._ERRORS, module._ERROR) == bool(
            module._ERROR.search(text)
        )
        assert module._tells(text, module._TASKS, module._TASK) == bool(module._TASK.search(text))


@pytest.mark.parametrize(
    ("pattern", "stems"), [(module._ERROR, module._ERRORS), (module._TASK, module._TASKS)]
)
def test_every_word_of_a_pattern_has_its_stem(
    pattern: re.Pattern[str], stems: tuple[str, ...]
) -> None:
    words = re.findall(
        r"[a-zA-Z][a-zA-Z ]{2,}", re.sub(r"\\b|\(\?:ed\|ure\|s\)", "", pattern.pattern)
    )
    assert len(words) >= 12
    for word in words:
        assert any(stem in word.lower() for stem in stems), word


def test_what_was_read_is_remembered_by_content() -> None:
    memory = Memory()
    assert passages_of(user("see src/a.py"), memory) is passages_of(user("see src/a.py"), memory)


def test_of_what_was_read_no_more_is_remembered_than_may_be() -> None:
    few, small = Memory(messages=10), Memory(held=100_000)
    for number in range(1_000):
        for memory in (few, small):
            [passage] = memory.passages((("user", False, f"see src/{number}.py"),))
            assert passage.anchors == (f"src/{number}.py",)
        assert len(few) <= 20
        assert len(small) <= 2 * 100_000 // module.PASSAGE_BYTES
    kept = len(small)
    small.passages((("user", False, "word " * 100_000),))
    assert len(small) == kept, "what is very large drives nothing out"


def test_all_that_is_said_becomes_passages_and_of_results_what_names_things() -> None:
    said = passages_of(user("please be quick\n\nand kind"), Memory())
    assert [(passage.line, passage.text) for passage in said] == [
        (0, "please be quick"),
        (2, "and kind"),
    ]
    shown = passages_of(result("nothing\nof\nnote\nsee src/a.py\nTypeError: no\nend"), Memory())
    assert [passage.text for passage in shown] == ["see src/a.py", "TypeError: no"]


def test_a_short_answer_of_a_tool_counts_for_its_words() -> None:
    assert [
        passage.text for passage in passages_of(result("the order was cancelled"), Memory())
    ] == ["the order was cancelled"]


def test_every_part_of_a_message_is_read() -> None:
    call = ToolCall("c1", "bash", '{"command":"make test_all"}')
    message = Message("assistant", (Reasoning("think of plan_b", "openai"), Text("run it"), call))
    assert [passage.voice for passage in passages_of(message, Memory())] == [
        "thought",
        "assistant",
        "call",
    ]
    assert [passage.line for passage in passages_of(message, Memory())] == [0, 1, 2]


def test_a_long_line_is_cut_around_its_anchors() -> None:
    line = "word " * 200 + "the code for vault 7 is NDL-8a3b99c0 and no other " + "word " * 200
    passages = passages_of(result(f"{line}\na\nb\nc"), Memory())
    assert [passage.anchors for passage in passages] == [("NDL-8a3b99c0",)]
    kept = passages[0].text[passages[0].start : passages[0].stop]
    assert len(kept) < MAX_WHOLE_CHARS
    assert "for vault 7 is NDL-8a3b99c0 and no other" in kept


def test_a_long_paragraph_is_cut_into_sentences() -> None:
    text = (
        "We keep the old name for now. " * 4
        + "Never touch config/prod.toml without asking me first. "
        + "It is late. " * 12
    )
    passages = passages_of(user(text), Memory())
    assert all(passage.stop - passage.start <= MAX_WHOLE_CHARS + 80 for passage in passages)
    assert {anchor for passage in passages for anchor in passage.anchors} == {"config/prod.toml"}
    assert passages[0].start == 0
    assert passages[-1].stop == len(text.strip())


@pytest.mark.parametrize(
    "line",
    [
        "x" * 300_000,
        "/" * 300_000,
        "`" * 300_000,
        "a/" * 150_000,
        "Aa1-" * 75_000,
        "\\" * 300_000,
        "\x00\x1b[0m" * 60_000,
        "重" * 300_000,
    ],
)
def test_a_huge_line_is_read_once(line: str) -> None:
    index = AnchorIndex()
    index.add(user(line))
    index.add(Message("assistant", (ToolCall("c1", "bash", line),)))
    assert sum(passage.stop - passage.start for passage in index.passages) <= 4 * len(line)


def test_the_index_tells_who_spoke_and_what_a_tool_was_asked() -> None:
    index = AnchorIndex()
    index.add(Message("user", (Text("go"),), "ann"))
    index.add(
        Message(
            "assistant",
            (
                ToolCall("c1", "bash", '{"command":"make"}'),
                ToolCall("c2", "read", '{"path":"a.py"}'),
            ),
        )
    )
    index.add(result("done"))
    index.add(Message("tool", (ToolResult("c1", (), True), ToolResult("c2", ()))))
    index.add(Message("tool", (ToolResult("c9", (Text("lost"),), name="grep"),)))
    names = [(origin.voice, origin.name, origin.about, origin.call) for origin in index.origins]
    assert names == [
        ("user", "user ann", "", -1),
        ("assistant", "assistant", "", -1),
        ("result", "bash", '{"command":"make"}', 1),
        ("error", "bash, read", "", 1),
        ("result", "grep", "", -1),
    ]


def test_a_long_call_is_told_by_its_main_argument() -> None:
    index = AnchorIndex()
    index.add(
        Message(
            "assistant",
            (ToolCall("c1", "edit", '{"n":1,"path":"src/a.py","text":"' + "x" * 500 + '"}'),),
        )
    )
    index.add(result("done"))
    assert index.origins[1].about == "src/a.py"


def test_mentions_are_kept_in_order_and_each_message_once() -> None:
    index = AnchorIndex()
    for text in ("use src/a.py\nyes, src/a.py", "nothing", "src/a.py again"):
        index.add(user(text))
    assert len(index) == 3
    assert index.traces["src/a.py"].messages == [0, 2]
    assert [index.passages[number].text for number in index.traces["src/a.py"].passages] == [
        "use src/a.py",
        "yes, src/a.py",
        "src/a.py again",
    ]


def original_lines(message: Message) -> set[str]:
    texts = [part.text for part in message.parts if isinstance(part, Text | Reasoning)]
    texts += [
        part.text for answer in message.results for part in answer.parts if isinstance(part, Text)
    ]
    texts += [f"{call.name} {call.arguments}" for call in message.calls]
    return {line.strip() for text in texts for line in text.splitlines()}


@settings(max_examples=examples(60), deadline=None)
@given(broken_histories | histories())
def test_every_passage_is_a_stretch_of_an_original_line(history: list[Message]) -> None:
    index = AnchorIndex()
    for place, message in enumerate(history):
        index.add(message)
        lines = original_lines(message)
        assert index.places[index.first[place] :] == [place] * len(index.of_message(place))
        for passage in index.of_message(place):
            assert passage.text in lines
            assert 0 <= passage.start < passage.stop <= len(passage.text)
            assert all(stands_within(passage, anchor) for anchor in passage.anchors)
    assert len(index) == len(history) == len(index.first) - 1


def stands_within(passage: Passage, anchor: str) -> bool:
    return anchor in passage.text[passage.start : passage.stop]
