"""The users' words: whole while they fit, without what was pasted into them, then shortened, then
the newest.
"""

import pytest

from loom.budget.tokenizers import tokenizer
from loom.context.cover.speech import (
    LEFT_OUT_OF_IT,
    MIN_SPEECH_TOKENS,
    PASTED_CHARS,
    choose_speech,
    count_quote,
    find_speech,
    leave_out_data,
)
from loom.context.quotes import Quote
from loom.conversation.message import Media, Message, Text

count = tokenizer("o200k_base")
LOG = "\n".join(
    f"2026-11-16T12:00:{n:02} [INFO] worker-{n}: 0x{n:08x} /var/lib/{n}.db" for n in range(40)
)
PROSE = "\n".join(f"This is what I want for page {word} of it" for word in "abcdefghij")
LONG = "please keep the retry budget at three and do not touch the vault " * 20


def user(text: str, author: str = "") -> Message:
    return Message("user", (Text(text),), author)


def speech_of(*texts: str) -> dict[int, Quote]:
    return find_speech([(n, user(text)) for n, text in enumerate(texts)])


def cost_of(*quotes: Quote) -> int:
    return sum(count_quote(quote, count) for quote in quotes)


# ── what is speech ───────────────────────────────────────────────────────────


def test_messages_of_users_are_speech_and_quotes_of_them_that_were() -> None:
    spoken = Quote(3, "user", "user", "", (("user", "as it was said"),), True)
    told = Quote(4, "user", "user", "", (("user", "a line of it"),))
    sources = [
        (3, spoken),
        (4, told),
        (7, Message("assistant", (Text("mine"),))),
        (9, user("  \n two\n\nlines \n", "ann")),
        (10, user(" \n ")),
        (11, Message("user", (Media("image", "url", "https://example.org/a.png"),))),
        (12, Message("user", (Text("a"), Text("b")))),
    ]
    assert find_speech(sources) == {
        0: spoken,
        3: Quote(9, "user", "user ann", "", (("user", "two\n\nlines"),), True),
        6: Quote(12, "user", "user", "", (("user", "a\nb"),), True),
    }


def test_what_is_pasted_into_a_very_long_message_is_data() -> None:
    pasted = f"Why does this fail?\n\n{LOG}\n{LOG}\n\nFix it, please."
    assert len(pasted) > PASTED_CHARS
    [quote] = speech_of(pasted).values()
    first, last = LOG.splitlines()[0], LOG.splitlines()[-1]
    assert quote.text.splitlines() == [
        "Why does this fail?",
        "",
        first,
        LEFT_OUT_OF_IT.format(lines=2 * 40 - 2),
        last,
        "",
        "Fix it, please.",
    ]


def test_what_is_pasted_into_a_short_message_stays() -> None:
    [quote] = speech_of(f"Why?\n\n{LOG[:900]}").values()
    assert quote.text == f"Why?\n\n{LOG[:900]}"


# ── data ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fence", ["```", "~~~", "  ```python"])
def test_what_stands_between_fences_is_data_even_where_it_reads_like_words(fence: str) -> None:
    close = fence.strip().rstrip("python")
    made = leave_out_data(f"See this.\n{fence}\n{PROSE}\n{close}\nAnd fix it.")
    assert made.splitlines() == [
        "See this.",
        fence,
        LEFT_OUT_OF_IT.format(lines=10),
        close,
        "And fix it.",
    ]


def test_a_fence_that_is_never_closed_goes_to_the_end() -> None:
    made = leave_out_data(f"See this.\n```\n{LOG}")
    assert made.splitlines()[:2] == ["See this.", "```"]
    assert len(made.splitlines()) == 4


@pytest.mark.parametrize("text", [PROSE, "a\nb\nc", "```\nx = 1\n```", "", f"{PROSE}\n\n{PROSE}"])
def test_words_and_small_blocks_stay(text: str) -> None:
    assert leave_out_data(text) == text


def test_a_log_without_fences_is_data() -> None:
    made = leave_out_data(f"Look:\n\n{LOG}\n\nNow what?")
    assert len(made.splitlines()) < 10
    assert made.startswith("Look:\n")
    assert made.endswith("Now what?")


# ── what fits ────────────────────────────────────────────────────────────────


def test_all_is_quoted_as_it_is_while_it_fits() -> None:
    speech = speech_of("first", f"Look:\n\n{LOG[:1000]}", "third")
    assert choose_speech(speech, cost_of(*speech.values()), count) == speech


def test_data_goes_before_words_do() -> None:
    speech = speech_of("first", f"Look:\n\n{LOG}\n\nNow what?", "third")
    chosen = choose_speech(speech, cost_of(*speech.values()) - 1, count)
    assert [quote.text for quote in chosen.values()] == [
        "first",
        leave_out_data(speech[1].text),
        "third",
    ]


def test_the_longest_are_shortened_to_their_beginning_and_end() -> None:
    speech = speech_of("keep this", f"Begin with it. {LONG} End with it.", "and this")
    chosen = choose_speech(speech, 200, count)
    assert [chosen[0].text, chosen[2].text] == ["keep this", "and this"]
    begin, _, end = chosen[1].text.partition(" … ")
    assert begin.startswith("Begin with it.")
    assert end.endswith("End with it.")
    assert MIN_SPEECH_TOKENS // 2 < cost_of(*chosen.values()) <= 200
    assert all(quote.is_speech for quote in chosen.values())


def test_the_oldest_are_left_to_their_lines() -> None:
    speech = speech_of(*[f"{n}: {LONG}" for n in range(10)])
    chosen = choose_speech(speech, 3 * (MIN_SPEECH_TOKENS + 10), count)
    assert list(chosen) == [7, 8, 9], "the newest, in their order"
    assert cost_of(*chosen.values()) <= 3 * (MIN_SPEECH_TOKENS + 10)


@pytest.mark.parametrize("tokens", [-20, 0, 1, 5])
def test_nothing_is_quoted_where_nothing_fits(tokens: int) -> None:
    assert choose_speech(speech_of("hello there, how are you?"), tokens, count) == {}
    assert choose_speech({}, tokens, count) == {}


@pytest.mark.parametrize("tokens", range(60, 130, 3))
def test_no_half_of_our_own_mark_is_quoted(tokens: int) -> None:
    [quote] = speech_of(f"{LONG[:200]}\n```\n{LOG}\n```\n{LONG[:200]}").values()
    for chosen in choose_speech({0: quote}, tokens, count).values():
        rest = chosen.text.replace(LEFT_OUT_OF_IT.format(lines=40), "").replace(" … ", "")
        assert "…" not in rest
        assert "[" not in rest
