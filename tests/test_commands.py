"""Commands of loom-aware agents: what is one, what is not, what is wrong with it, and what is left
of the answer.
"""

from itertools import takewhile
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loom.conversation.agents import PERMISSIONS, Permission
from loom.conversation.commands import (
    LONGEST_BATCH,
    SPECS,
    Code,
    Command,
    Found,
    Mistake,
    Spec,
    Thought,
    describe_mistake,
    help_text,
    may_use,
    parse_commands,
    quote_word,
)
from loom.errors import ChoiceError
from tests.shared import examples


def one(answer: str) -> Found:
    """The only thing that an answer asks for."""
    text, [found] = parse_commands(answer)
    assert text == ""
    return found


def names(answer: str) -> list[str]:
    return [
        found.name if isinstance(found, Command) else type(found).__name__
        for found in parse_commands(answer)[1]
    ]


# Each command


RIGHT: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
    ("view a7x2", ("a7x2",), {}),
    ("view 1:mfrggzdfmztwq2lknnwg23tpobyxe43u", ("1:mfrggzdfmztwq2lknnwg23tpobyxe43u",), {}),
    ("list", (), {}),
    ("list siblings", ("siblings",), {}),
    ("list Branches", ("branches",), {}),
    ("tree", (), {}),
    ("tree a7x2", ("a7x2",), {}),
    ("tree depth:3", (), {"depth": "3"}),
    ("tree DEPTH:12 a7x2", ("a7x2",), {"depth": "12"}),
    ("switch a7x2", ("a7x2",), {}),
    ("switch a7x2 digest:yes", ("a7x2",), {"digest": "yes"}),
    ('search "two words"', ("two words",), {}),
    ("search word", ("word",), {}),
    ("pin a7x2", ("a7x2",), {}),
    ("pin result:2", (), {"result": "2"}),
    ("pin stash:ideas", (), {"stash": "ideas"}),
    ('pin stash:"my ideas"', (), {"stash": "my ideas"}),
    ('stash "my ideas" "the text"', ("my ideas", "the text"), {}),
    ('stash "my ideas" content-of:a7x2', ("my ideas",), {"content-of": "a7x2"}),
    ("stash summary-of:a7x2-k3mq ideas", ("ideas",), {"summary-of": "a7x2-k3mq"}),
    ('recall "my ideas"', ("my ideas",), {}),
    ("recall ~q7zx3wk5vj2p", ("~q7zx3wk5vj2p",), {}),
    ("recall ~q7zx3wk5vj2p from:200", ("~q7zx3wk5vj2p",), {"from": "200"}),
    ("drop pin:a7x2", (), {"pin": "a7x2"}),
    ('drop stash:"my ideas"', (), {"stash": "my ideas"}),
    ("memory", (), {}),
    ("memory trace", ("trace",), {}),
    ("memory stashed", ("stashed",), {}),
    ("help", (), {}),
    ("help respond", ("respond",), {}),
    ('respond "yes"', ("yes",), {}),
    ('respond to:a7x2 "yes"', ("yes",), {"to": "a7x2"}),
    ('respond "yes" to:a7x2', ("yes",), {"to": "a7x2"}),
    ('respond ""', ("",), {}),
    ('annotate a7x2 "here it turns"', ("a7x2", "here it turns"), {}),
    ("link a7x2 k3mq", ("a7x2", "k3mq"), {}),
    ('link a7x2 draft/k3mq "same scene"', ("a7x2", "draft/k3mq", "same scene"), {}),
    ('edit a7x2 "better"', ("a7x2", "better"), {}),
    ("bookmark a7x2", ("a7x2",), {}),
    ('bookmark a7x2 "the turn"', ("a7x2", "the turn"), {}),
    ("unbookmark a7x2", ("a7x2",), {}),
    ("prune a7x2", ("a7x2",), {}),
    ("restore a7x2", ("a7x2",), {}),
    ("continue", (), {}),
    ("continue n:1", (), {"n": "1"}),
    ("continue n:10", (), {"n": "10"}),
    ('read "notes.md"', ("notes.md",), {}),
    ('read "notes.md" from:40', ("notes.md",), {"from": "40"}),
    ('write "notes.md" "more"', ("notes.md", "more"), {}),
    ('write "notes.md" "other" over:a7x2', ("notes.md", "other"), {"over": "a7x2"}),
]


@pytest.mark.parametrize(("line", "words", "options"), RIGHT, ids=[case[0] for case in RIGHT])
def test_a_command_as_it_should_be(
    line: str, words: tuple[str, ...], options: dict[str, str]
) -> None:
    command = one(f"→ {line}")
    assert isinstance(command, Command)
    assert command.name == line.split()[0]
    assert command.words == words
    assert dict(command.options) == options
    assert command.source == f"→ {line}"
    assert hash(command)


WRONG: list[tuple[str, str]] = [
    ("view", "view takes 1 argument, found none"),
    ("view a7x2 k3mq", "view takes 1 argument, found 2"),
    ("list leaves", "list has no 'leaves'"),
    ("list continuations siblings", "list takes 0 to 1 argument, found 2"),
    ("tree a7x2 k3mq", "tree takes 0 to 1 argument, found 2"),
    ("tree depth:deep", "depth: takes a whole number from 1, found 'deep'"),
    ("tree depth:0", "depth: takes a whole number from 1, found '0'"),
    ("tree depth:-1", "depth: takes a whole number from 1, found '-1'"),
    ("tree depth:³", "depth: takes a whole number from 1, found '³'"),
    ("tree depth:", "depth: takes a whole number from 1, found ''"),
    ("tree depth:1 depth:2", "depth: is given 2 times to tree"),
    ("switch", "switch takes 1 argument, found none"),
    ("switch a7x2 digest:perhaps", "digest: takes yes or no, found 'perhaps'"),
    ("search", "search takes 1 argument, found none"),
    ("search two words", "search takes 1 argument, found 2"),
    ("pin", "pin takes 1 argument, found none"),
    ("pin a7x2 stash:ideas", "pin takes 1 argument, found 2"),
    ("pin result:last", "result: takes a whole number from 1, found 'last'"),
    ("pin stash:", "stash: takes a value right after its colon, found ''"),
    ('stash "my ideas"', "stash takes 2 arguments, found 1"),
    ("stash content-of:a7x2", "stash takes 2 arguments, found 1"),
    ('stash "my ideas" "the text" content-of:a7x2', "stash takes 2 arguments, found 3"),
    (
        "stash content-of:a7x2 summary-of:a7x2-k3mq",
        "stash takes one of content-of: and summary-of:, found 2",
    ),
    (
        'stash "my ideas" summary-of:a7x2',
        "summary-of: takes the first and the last node, as A-B, found 'a7x2'",
    ),
    ("recall", "recall takes 1 argument, found none"),
    ("recall ~q7zx3wk5vj2p from:top", "from: takes a whole number from 1, found 'top'"),
    ("drop", "drop takes 1 argument, found none"),
    ("drop a7x2", "drop takes one of pin: and stash:, found none"),
    ("drop pin:a7x2 stash:ideas", "drop takes 1 argument, found 2"),
    ("memory pinned", "memory has no 'pinned'"),
    ("help view list", "help takes 0 to 1 argument, found 2"),
    ("respond", "respond takes 1 argument, found none"),
    ("respond to:a7x2", "respond takes 1 argument, found none"),
    ("respond yes of course", "respond takes 1 argument, found 3"),
    ('respond to: a7x2 "yes"', "to: takes a value right after its colon, found ''"),
    ('respond to:"" "yes"', "to: takes a value right after its colon, found ''"),
    ("annotate a7x2", "annotate takes 2 arguments, found 1"),
    ("link a7x2", "link takes 2 to 3 arguments, found 1"),
    ("link a b c d", "link takes 2 to 3 arguments, found 4"),
    ('edit "better"', "edit takes 2 arguments, found 1"),
    ("bookmark", "bookmark takes 1 to 2 arguments, found none"),
    ("unbookmark", "unbookmark takes 1 argument, found none"),
    ("prune a7x2 k3mq", "prune takes 1 argument, found 2"),
    ("restore", "restore takes 1 argument, found none"),
    ("continue a7x2", "continue takes no argument, found 1"),
    ("continue n:many", "n: takes a whole number from 1, found 'many'"),
    ("read", "read takes 1 argument, found none"),
    ('write "notes.md"', "write takes 2 arguments, found 1"),
    ('write "notes.md" over:a7x2', "write takes 2 arguments, found 1"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_a_command_in_a_wrong_form_is_told_with_the_right_one(line: str, message: str) -> None:
    mistake = one(f"→ {line}")
    assert isinstance(mistake, Mistake)
    assert (mistake.code, mistake.message, mistake.source) == (
        "INVALID_SYNTAX",
        message,
        f"→ {line}",
    )
    assert mistake.hint == f"→ {SPECS[line.split()[0]].form}"


def test_every_command_is_tried_in_right_and_wrong_forms() -> None:
    assert {line.split()[0] for line, *_ in RIGHT} == set(SPECS) - {"think"}
    assert {line.split()[0] for line, _ in WRONG} == set(SPECS) - {"think"}
    tried = {(line.split()[0], key) for line, _, options in RIGHT for key in options}
    assert tried == {(spec.name, option) for spec in SPECS.values() for option in spec.options}


def test_an_option_that_was_not_given_has_the_default() -> None:
    command = Command("tree", (), (("depth", "3"),))
    assert (command.option("depth"), command.option("from"), command.option("from", "1")) == (
        "3",
        "",
        "1",
    )


@pytest.mark.parametrize("count", ["11", "999999999"])
def test_too_many_continuations_exceed_a_limit(count: str) -> None:
    assert one(f"→ continue n:{count}") == Mistake(
        "LIMIT_EXCEEDED",
        f"continue makes at most 10 continuations, found n:{count}",
        "→ continue n:10",
        f"→ continue n:{count}",
    )


@pytest.mark.parametrize(
    ("line", "name", "hint"),
    [
        ("veiw a7x2", "veiw", "did you mean: → view NODE"),
        ("RESPONT hi", "respont", 'did you mean: → respond [to:NODE] "TEXT"'),
        ("xyzzy", "xyzzy", "→ help lists the commands"),
        ("因此我们 x", "因此我们", "→ help lists the commands"),
        ("help veiw", "veiw", "did you mean: → view NODE"),
        ('xyzzy "never closed', "xyzzy", "→ help lists the commands"),
        ("x" * 100, "x" * 39 + "…", "→ help lists the commands"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(line: str, name: str, hint: str) -> None:
    assert one(f"→ {line}") == Mistake(
        "INVALID_SYNTAX", f"there is no command {name!r}", hint, f"→ {line}"
    )


# What is a command


@pytest.mark.parametrize(
    "line",
    [
        "→ view a7x2",
        "→view a7x2",
        "  →  view   a7x2  ",
        "\t→\tview\ta7x2",
        "→ VIEW a7x2",
        "→ View: a7x2",
        '→ view "a7x2"',
        "\u00a0→ view a7x2",
    ],
)
def test_spacing_case_and_quotes_do_not_matter(line: str) -> None:
    command = one(line)
    assert isinstance(command, Command)
    assert (command.name, command.words, command.source) == ("view", ("a7x2",), line.strip())


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "plain words\n\n\n\nand more  \n",
        "so → view a7x2 is how one looks",
        "> → view a7x2",
        "- → view a7x2",
        "→",
        "  →  \n\n\n",
        "→ 42 is the answer",
        '→ "view" a7x2',
        "→ → view a7x2",
        "← view a7x2",
        "-> view a7x2",
        "=> view a7x2",
        "```\n→ view a7x2\n```",
        "```text\n→ view a7x2\n```\n",
        "  ```\n  → view a7x2\n  ```",
        "````\n```\n→ view a7x2\n````",
        "```\n``` still inside\n→ view a7x2\n```",
        "~~~\n```\n→ view a7x2\n~~~",
        "```\n→ view a7x2",
        "```\r\n→ view a7x2\r\n```\r\n",
        "```\n→ think\n```\n←",
    ],
)
def test_an_answer_without_commands_is_unchanged(answer: str) -> None:
    assert parse_commands(answer) == (answer, ())


def test_a_fence_ends_where_it_closes() -> None:
    answer = (
        "Like this:\n```\n→ prune a7x2\n\n\n```\n→ view a7x2\n```` \n→ prune k3mq\n```\n`````\n→ "
        "view k3mq\n"
    )
    text, found = parse_commands(answer)
    assert [c.source for c in found if isinstance(c, Command)] == ["→ view a7x2", "→ view k3mq"]
    assert text == "Like this:\n```\n→ prune a7x2\n\n\n```\n```` \n→ prune k3mq\n```\n`````"


def test_code_on_a_line_of_its_own_is_no_fence() -> None:
    assert names("```x = 1```\n→ view a7x2") == ["view"]


# Words


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"plain"', "plain"),
        (r'"a \"quote_word\" word"', 'a "quote_word" word'),
        (r'"C:\\dir\\name"', r"C:\dir\name"),
        (r'"one\ntwo\tthree"', "one\ntwo\tthree"),
        (r'"\\n is not a line break"', r"\n is not a line break"),
        (r'"\d+ \u00e9"', r"\d+ \u00e9"),
        ('"two\nlines"', "two\nlines"),
        ('"two\r\nlines"', "two\r\nlines"),
        ('"a\n→ prune a7x2\nb"', "a\n→ prune a7x2\nb"),
        ('"```\n→ prune a7x2\n```"', "```\n→ prune a7x2\n```"),
        ('"→ think ←"', "→ think ←"),
        ('"  kept  "', "  kept  "),
        ('"to:a7x2"', "to:a7x2"),
        ('"日本語 🌱 ←"', "日本語 🌱 ←"),
        ("bare", "bare"),
        ('5"', '5"'),
        ("it's", "it's"),
        (r"C:\new", r"C:\new"),
        ("https://example.org/?a=b:c", "https://example.org/?a=b:c"),
        ("depth:3", "depth:3"),
        ('note:"of two words"', "note:of two words"),
        ("Subject:", "Subject:"),
    ],
)
def test_a_word(written: str, meant: str) -> None:
    for command in (one(f"→ respond {written}"), one(f"→ respond to:a7x2 {written}\r\n")):
        assert isinstance(command, Command)
        assert command.words == (meant,)


@given(st.text())
@example('\\"\n\t\r\\')
@example("a\u2028b\x85c\x0bd")
@settings(max_examples=examples(200))
def test_a_quoted_text_comes_back(text: str) -> None:
    assert "\n" not in quote_word(text)
    command = one(f"→ stash {quote_word(text)} {quote_word(text)}\n")
    assert isinstance(command, Command)
    assert command.words == (text, text)
    pinned = one(f"→ pin stash:{quote_word(text + '.')}")
    assert isinstance(pinned, Command)
    assert pinned.option("stash") == text + "."


def test_words_may_stand_behind_a_text_of_many_lines() -> None:
    text, [command] = parse_commands(
        'Look.\n→ write "notes.md" "# Notes\n\n- one\n" over:a7x2\nDone.'
    )
    assert text == "Look.\nDone."
    assert isinstance(command, Command)
    assert command.words == ("notes.md", "# Notes\n\n- one\n")
    assert command.option("over") == "a7x2"


@pytest.mark.parametrize(
    "line",
    [
        '→ respond "never closed',
        '→ respond "closed" "not',
        '→ respond to:"never',
        '→ respond "not closed\\"',
    ],
)
def test_a_quote_that_never_closes_takes_only_its_line(line: str) -> None:
    text, found = parse_commands(f"Before.\n{line}\nAfter.\n→ view a7x2")
    assert text == "Before.\nAfter."
    hint = 'end the text with ", and write \\" for a quote inside it'
    assert found == (
        Mistake("INVALID_SYNTAX", "a quote of respond does not close", hint, line),
        Command("view", ("a7x2",), (), "→ view a7x2"),
    )


def test_quotes_inside_a_text_must_be_escaped() -> None:
    mistake = one('→ respond "He said "hi" to me"')
    assert isinstance(mistake, Mistake)
    assert mistake.message == "respond takes 1 argument, found 4"
    assert mistake.hint == '→ respond [to:NODE] "TEXT"; write \\" for a quote inside a text'


def test_what_stands_in_the_text_of_a_wrong_command_is_not_run() -> None:
    text, found = parse_commands(
        '→ annotate "as in\n→ prune a7x2\nabove"\n→ note "or\n→ prune k3mq"\nDone.'
    )
    assert [type(item) for item in found] == [Mistake, Mistake]
    assert text == "Done."


# Thoughts


@pytest.mark.parametrize(
    ("answer", "thought"),
    [
        ("→ think it may rain ←", "it may rain"),
        ("→ think\nit may rain\n←", "it may rain"),
        ("→ think it may\n\n  → view a7x2\n```\n rain←\n\n", "it may\n\n  → view a7x2\n```\n rain"),
        ("  → THINK: it may rain ←  ", "it may rain"),
        ("→ think\r\nit may rain\r\n←\r\n", "it may rain"),
        ('→ think of "one quote ←', 'of "one quote'),
        ("→ think ←", ""),
        ("→think←", ""),
    ],
)
def test_a_thought_ends_at_the_arrow_back(answer: str, thought: str) -> None:
    assert one(answer) == Thought(thought)


def test_what_follows_a_thought_is_read_as_a_line() -> None:
    text, found = parse_commands(
        "→ think hm ← Well.\n→ think so ← → view a7x2\n→ think ← ```\n→ view k3mq\n```"
    )
    assert text == "Well.\n```\n→ view k3mq\n```"
    assert found == (
        Thought("hm"),
        Thought("so"),
        Command("view", ("a7x2",), (), "→ view a7x2"),
        Thought(""),
    )


def test_a_thought_without_an_end_takes_only_its_line() -> None:
    text, found = parse_commands('← It goes on.\n→ think it "may\nrain"\n→ view a7x2')
    assert text == '← It goes on.\nrain"'
    assert found == (
        Mistake("INVALID_SYNTAX", "the thought does not end", "end it with ←", '→ think it "may'),
        Command("view", ("a7x2",), (), "→ view a7x2"),
    )


# What is left


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("→ list\nHello.", "Hello."),
        ("Hello.\n→ list", "Hello."),
        ("\n\nHello.\n\n→ list\n\n", "Hello."),
        ("One.\n→ list\nTwo.", "One.\nTwo."),
        ("One.\n\n→ list\nTwo.", "One.\n\nTwo."),
        ("One.\n→ list\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\n→ list\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\n\n→ list\n \n→ tree\n\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\n\n\nTwo.\n→ list\nThree.", "One.\n\n\n\nTwo.\nThree."),
        ("One.\n\n→ think\nhm\n\n\n←\n\nTwo.", "One.\n\nTwo."),
        ("One.\n\n→ nonsense\n\nTwo.", "One.\n\nTwo."),
        ('One.\n→ respond "oops\n\n  - Two.', "One.\n\n  - Two."),
        ("One.\n→ think oops\n\n  - Two.", "One.\n\n  - Two."),
        ("One.\n→ list\n  - Two.", "One.\n  - Two."),
        ("One.\n→ think hm ←\n\n  - Two.", "One.\n\n  - Two."),
        ("One.\r\n\r\n→ list\r\n\r\nTwo.\r\n", "One.\r\n\r\nTwo."),
        ("→ list\n```\n\n\nx\n```\n→ list\n", "```\n\n\nx\n```"),
        ("→ list", ""),
    ],
)
def test_what_is_left_reads_well(answer: str, text: str) -> None:
    assert parse_commands(answer)[0] == text


def test_commands_come_in_their_order_from_anywhere_in_the_answer() -> None:
    assert names("→ view a\nText.\n→ think\n→ list\n←\n→ oops\n→ tree\n\nMore.\n→ help") == [
        *("view", "Thought", "Mistake", "tree", "help"),
    ]


def test_a_batch_has_a_limit_which_is_told_once() -> None:
    batch = "→ view a7x2\n" * LONGEST_BATCH
    assert names(batch) == ["view"] * LONGEST_BATCH
    text, found = parse_commands(
        f'{batch}One.\n→ prune a\n→ think hm ←\n→ oops\n→ respond "a\n→ prune b"\nTwo.\n'
    )
    assert text == "One.\nTwo."
    assert found[LONGEST_BATCH:] == (
        Thought("hm"),
        Mistake(
            "LIMIT_EXCEEDED",
            "an answer may contain 20 commands; 3 more were not run",
            "give at most 20 at a time",
            "→ prune a",
        ),
    )
    [last] = parse_commands(f"{batch}→ list")[1][LONGEST_BATCH:]
    assert isinstance(last, Mistake)
    assert last.message == "an answer may contain 20 commands; 1 more was not run"


def test_mistakes_count_as_commands() -> None:
    found = parse_commands("→ oops\n" * 500)[1]
    assert len(found) == LONGEST_BATCH + 1
    assert isinstance(found[-1], Mistake)
    assert "480 more were not run" in found[-1].message


# Laws


marks = ["→", "→ ", "\n→ ", "←", '"', '\\"', "\\", " ", "\n", "\r\n", "\n\n\n", "```", "~~~", ":"]
parts = [
    "view ",
    "think ",
    "respond ",
    "pin ",
    "continue ",
    "help ",
    "to:",
    "stash:",
    "n:",
    "a7x2",
    "١",
    "😀",
    "\ud800",
    "é",
]
pieces = st.sampled_from(marks) | st.sampled_from(parts)
answers = st.lists(pieces | st.text(max_size=5), max_size=30).map("".join)


@given(answers)
@settings(max_examples=examples(200))
def test_any_answer_can_be_read(answer: str) -> None:
    text, found = parse_commands(answer)
    assert len(text) <= len(answer)
    if not found:
        assert text == answer
    for item in found:
        if isinstance(item, Thought):
            assert item.text in answer
        else:
            assert item.source in answer
            assert item.source.startswith("→")
        if isinstance(item, Mistake):
            assert describe_mistake(item)


@given(answers)
@settings(max_examples=examples(200))
def test_what_was_run_means_the_same_alone(answer: str) -> None:
    for item in parse_commands(answer)[1]:
        if isinstance(item, Command):
            assert parse_commands(item.source) == ("", (item,))


@given(answers.map(lambda text: text.replace("→", "")))
@settings(max_examples=examples(100))
def test_text_without_arrows_is_unchanged(text: str) -> None:
    assert parse_commands(text) == (text, ())


@given(
    st.lists(st.sampled_from(["One.\n", "two\n", "\n", "```\n\n\n→ list\n```\n"])),
    st.lists(st.integers(0, 30), max_size=8),
)
@settings(max_examples=examples(100))
def test_taking_commands_out_loses_no_line(lines: list[str], places: list[int]) -> None:
    mixed = list(lines)
    for place in places:
        mixed.insert(place, "→ list\n")
    text, found = parse_commands("".join(mixed))
    assert len(found) == len(places)
    assert [line for line in text.split("\n") if line] == [
        line for line in "".join(lines).split("\n") if line
    ]


MEGABYTE = 1_000_000
HEAVY = {
    "arrows": "→",
    "lines of arrows": "→\n",
    "quotes in lines": '→ view "\n',
    "quotes that never close, opened anew by each line": '→ view x" "\n',
    "the same with keys": '→ view k:"x" k:"\n',
    "three quotes": '→ view " " "\n',
    "thoughts without an end": "→ think\n",
    "thoughts": "→ think ←",
    "unknown names": "→ veiw\n",
    "blank lines": "→ list\n\n\n\n",
    "fences": "```\n→ list\n",
    "unlike fences": "```\n````\n~~~ →\n",
}


@pytest.mark.parametrize("piece", HEAVY.values(), ids=HEAVY)
@pytest.mark.parametrize("before", ["", '→ respond "'], ids=["alone", "in a quote"])
def test_reading_takes_time_in_proportion_to_the_answer(before: str, piece: str) -> None:
    """A second or so; hours, if each line were to look through all that follow."""
    began = process_time()
    parse_commands(before + piece * (MEGABYTE // 8 // len(piece)))
    assert process_time() - began < 5


@pytest.mark.parametrize(
    "piece", ["→", '"', "\\", '\\"', "a", "to:", "to:x ", 'to:"', "`", " ", "\n", "9"]
)
def test_much_of_the_same_is_read_at_once(piece: str) -> None:
    began = process_time()
    text, [mistake] = parse_commands("→ tree depth:" + piece * (MEGABYTE // 4 // len(piece)))
    assert text == ""
    assert isinstance(mistake, Mistake)
    assert len(describe_mistake(mistake)) < 200
    assert process_time() - began < 5


# What agents are told


def test_a_mistake_is_told_with_its_hint_if_it_has_one() -> None:
    assert (
        describe_mistake(Mistake("NOT_FOUND", "there is no node [xyz9]"))
        == "✗ NOT_FOUND: there is no node [xyz9]"
    )
    assert (
        describe_mistake(Mistake("CONFLICT", "somebody was faster", "→ tree"))
        == "✗ CONFLICT: somebody was faster\n  hint: → tree"
    )


def test_help_lists_the_commands_that_an_agent_may_use() -> None:
    assert help_text(allowed=("loom_aware", "loom_generate")).splitlines() == [
        "→ view NODE                           show a node in full",
        "→ list [continuations|siblings|annotations|links|bookmarks|branches|trees|documents]",
        "                                      list these (default: continuations)",
        "→ tree [NODE] [depth:N]               draw the tree (default depth: 5)",
        "→ switch NODE [digest:yes]            move to a node; digest:yes sums up the branch "
        "that you leave",
        '→ search "WORDS"                      find nodes with these words',
        "→ think … ←                           think, on any number of lines; only you see it",
        "→ pin NODE | result:N | stash:LABEL   keep this in your memory",
        '→ stash "LABEL" "TEXT" | content-of:NODE | summary-of:A-B',
        "                                      save this for later",
        '→ recall "LABEL"|~HANDLE [from:LINE]  get back a stash, or what a handle names',
        "→ drop pin:NODE | stash:LABEL         remove this from your memory",
        "→ memory [trace|stashed]              show your memory",
        "→ help [COMMAND]                      list the commands, or explain one",
        "→ continue [n:N]                      let the model continue, up to 10 times",
    ]


NEEDS: dict[Permission, str] = {
    "loom_aware": "view list tree switch search think pin stash recall drop memory help",
    "loom_write": "respond annotate link edit bookmark unbookmark prune restore",
    "loom_generate": "continue",
    "doc_read": "read",
    "doc_write": "write",
}


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_each_command_needs_its_permission(permission: Permission) -> None:
    assert [spec.name for spec in SPECS.values() if spec.needs == permission] == NEEDS[
        permission
    ].split()
    listed = [
        line.split()[1]
        for line in help_text(allowed={"loom_aware", permission}).splitlines()
        if line.startswith("→")
    ]
    assert listed == [
        name for name, spec in SPECS.items() if spec.needs in ("loom_aware", permission)
    ]


def test_who_is_not_loom_aware_has_no_commands() -> None:
    assert (
        help_text(allowed=("doc_read", "doc_write"))
        == "no commands: they need loom_aware, which you do not have"
    )
    assert not may_use(SPECS["read"], {"doc_read"})
    assert may_use(SPECS["read"], {"loom_aware", "doc_read"})


def test_help_on_a_command_tells_its_permission() -> None:
    assert (
        help_text("Respond")
        == '→ respond [to:NODE] "TEXT"\n  say something here, or after a node\n  needs loom_write'
    )
    assert help_text("prune", {"loom_aware"}).endswith(
        "\n  needs loom_write, which you do not have"
    )
    with pytest.raises(
        ChoiceError, match="there is no command 'veiw'; choose one of view, list, tree"
    ):
        help_text("veiw")


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_form_begins_with_the_name_and_shows_every_option(spec: Spec) -> None:
    assert "".join(takewhile(str.isalpha, spec.form)) == spec.name
    assert all(f"{option}:" in spec.form for option in spec.options)
    assert "|".join(spec.choices) in spec.form
    assert spec.least <= spec.most


def test_all_codes_can_be_told() -> None:
    codes: tuple[Code, ...] = ("PERMISSION_DENIED", "CROSS_TREE", "MODEL_ERROR")
    assert [describe_mistake(Mistake(code, "no")) for code in codes] == [
        f"✗ {code}: no" for code in codes
    ]
