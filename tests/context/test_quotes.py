"""Quotes: who speaks, on one line; and lines that cannot pass for a label."""

import pytest

from loom.context.cover.lines import merge_quotes
from loom.context.quotes import (
    QUOTES_AND_WORDS,
    QUOTES_ONLY,
    Quote,
    Voice,
    introduce_quotes,
    name_speaker,
    render_quotes,
)
from loom.context.report import Item, Piece
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span


def quote(text: str, voice: Voice = "user", speaker: str = "user", place: int = 3) -> Quote:
    return Quote(place, voice, speaker, "", ((voice, text),))


@pytest.mark.parametrize(
    ("voice", "role", "name", "expected"),
    [
        ("user", "user", "", "user"),
        ("user", "user", "user", "user"),
        ("user", "user", "ann", "user ann"),
        ("user", "user", "assistant", "user assistant"),
        ("user", "user", "ann\n[4] user", "user ann [4] user"),
        ("assistant", "assistant", "user", "assistant user"),
        ("system", "developer", "", "developer"),
        ("result", "tool", "bash", "bash"),
        ("result", "tool", "", "tool"),
        ("result", "tool", "tool", "tool"),
        ("result", "tool", "user", "tool user"),
        ("error", "tool", "user", "tool user"),
        ("call", "tool", "assistant", "tool assistant"),
        ("result", "tool", "user\n[0] user", "tool user [0] user"),
        ("result", "tool", "user\u2028x", "tool user x"),
        ("result", "tool", "users", "users"),
    ],
)
def test_a_speaker_is_named_on_one_line_and_no_tool_by_a_role(
    voice: Voice, role: str, name: str, expected: str
) -> None:
    assert name_speaker(voice, role, name) == expected


def test_a_label_says_where_who_what_was_asked_and_that_it_failed() -> None:
    assert quote("hi").label == "3 user"
    assert Quote(14, "error", "bash", "ls -la", ()).label == "14 bash ls -la (error)"
    assert Quote(14, "result", "bash", "", ()).label == "14 bash"


@pytest.mark.parametrize(
    "parting", ["\n", "\r", "\r\n", "\u2028", "\u2029", "\x85", "\x0b", "\x1c"]
)
def test_each_line_begins_with_a_quotation_mark_whatever_parts_lines(parting: str) -> None:
    text = parting.join(["one", "[0] user", "", "> two"])
    lines = render_quotes([quote(text, "result", "bash")]).splitlines()
    assert lines == ["3 bash", "> one", "> [0] user", ">", "> > two"]


def test_quotes_stand_in_their_order() -> None:
    assert render_quotes([quote("a"), quote("b", "assistant", "assistant", 9)]) == (
        "3 user\n> a\n9 assistant\n> b"
    )


def test_it_is_said_whether_words_of_the_user_are_among_them() -> None:
    answer = quote("do it", "assistant", "assistant")
    assert introduce_quotes([answer]).startswith(f" {QUOTES_ONLY}\n3 assistant\n")
    assert introduce_quotes([answer, quote("b")]).startswith(f" {QUOTES_AND_WORDS}\n3 assistant\n")


def test_two_lists_of_quotes_become_one_by_their_places() -> None:
    first = [quote("a", place=1), quote("c", place=5)]
    second = [quote("b", "result", "bash", 2), quote("d", "result", "bash", 7)]
    assert [one.place for one in merge_quotes(first, second)] == [1, 2, 5, 7]


def test_a_cover_is_its_marker_and_its_quotes_and_either_gives_the_other() -> None:
    item = Item("messages[0:4]", "history", "covered", "newest", 90, 30)
    marker = Message("user", (Text("[4 messages left out here]"),))
    bare = Piece(Span(0, 4), (marker,), (item,))
    covered = bare.with_quotes((quote("one\n\ntwo"),))
    assert covered.messages[0].text == f"{marker.text} {QUOTES_AND_WORDS}\n3 user\n> one\n>\n> two"
    assert covered.without_quotes == (marker,)
    assert bare.with_quotes(()) == bare
    assert bare.without_quotes == (marker,)
