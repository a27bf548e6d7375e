"""How new a line is for its speaker, and what quotes carry of that into later covers."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from loom.budget.tokenizers import tokenizer
from loom.context.cover.anchors import AnchorIndex, find_anchors
from loom.context.cover.extract import Focus, extract
from loom.context.cover.lines import HistoryIndexes, forget_printed, quote_lines
from loom.context.cover.novelty import NO_WORDS, SpokenWords, find_words
from loom.context.cover.speech import Source
from loom.context.quotes import Quote
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span
from tests.context.test_anchors import result, user

count = tokenizer("o200k_base")


def model(text: str) -> Message:
    return Message("assistant", (Text(text),))


def index_of(sources: Sequence[Source]) -> AnchorIndex:
    index = AnchorIndex()
    for source in sources:
        index.add(source)
    return index


def quotes_of(sources: Sequence[Source], tokens: int) -> tuple[Quote, ...]:
    focus = Focus(room=32_000)
    return extract(index_of(sources), Span(0, len(sources)), tokens, count, focus).quotes


def text_of(quotes: Sequence[Quote]) -> str:
    return "\n".join(quote.text for quote in quotes)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Let me look at src/app.py.", ("let", "me", "look", "at")),
        ("We keep 12 of the 40 keys, we do", ("we", "keep", "of", "the", "key", "do")),
        ("`parse_turn`", ()),
        ("", ()),
        ("先看一下", ("先看", "看一", "一下")),
    ],
)
def test_the_words_of_a_line_are_those_beside_names_and_numbers(
    line: str, words: tuple[str, ...]
) -> None:
    assert find_words(line, find_anchors(line)) == words


def test_a_line_is_new_by_its_rarest_words() -> None:
    vocabulary = SpokenWords()
    for _ in range(50):
        vocabulary.add(["let", "me", "look", "at"])
    vocabulary.add(["ledger", "let", "me", "keep"])
    common = vocabulary.novelty(["let", "me"])
    mixed = vocabulary.novelty(["let", "me", "ledger"])
    fresh = vocabulary.novelty(["let", "me", "look", "ledger", "keep"])
    assert 0 < common < 0.05 < mixed < fresh == 1
    assert vocabulary.novelty([]) == NO_WORDS


def test_all_is_new_to_a_speaker_of_whom_nothing_is_known() -> None:
    assert SpokenWords().novelty(["anything"]) == 1


# What is said all the time names as much that nobody else does as what is said once.
FORMULAS = [model(f"Let me look at src/module_{n}/handler_{n}.py.") for n in range(60)]
ONCE = model("The ledger of sales is blocked by CORE-48213.")
PLAIN = model("We write the index last so that a crash leaves nothing half done.")


def test_what_is_said_once_comes_before_what_is_said_all_the_time() -> None:
    said = text_of(quotes_of([*FORMULAS[:30], ONCE, PLAIN, *FORMULAS[30:]], 120))
    assert ONCE.text in said
    assert PLAIN.text in said


def test_a_quote_carries_what_was_found_when_its_message_was_read() -> None:
    made = quotes_of([result("found: build/known_7.o"), *FORMULAS[:20], ONCE], 400)
    quote = next(quote for quote in made if quote.text == ONCE.text)
    assert (quote.coined, quote.novelty) == (("CORE-48213",), (1.0,))
    formula = next(quote for quote in made if "module" in quote.text)
    assert formula.novelty[0] < 0.4
    assert all(quote.coined is None for quote in made if quote.voice == "result")


def test_what_a_tool_had_printed_is_not_coined_when_only_its_quote_is_left() -> None:
    printed = model("The culprit is CORE-11111 in the ledger.")
    made = quotes_of([result("CORE-11111 open\nCORE-11112 open"), printed, ONCE], 60)
    quotes = [replace(quote) for quote in made if quote.voice == "assistant"]
    traces = index_of(quotes).traces
    assert traces["CORE-48213"].is_coined
    assert not traces["CORE-11111"].is_coined
    unjudged = [replace(quote, coined=None, novelty=()) for quote in quotes]
    assert index_of(unjudged).traces["CORE-11111"].is_coined


def test_novelty_is_carried_and_not_judged_again_among_quotes() -> None:
    first = quotes_of([*FORMULAS, ONCE, PLAIN], 1_500)
    again = index_of(first)
    of_text = {passage.text: again.novelty(n) for n, passage in enumerate(again.passages)}
    assert of_text[ONCE.text] == of_text[PLAIN.text] == 1
    assert of_text[FORMULAS[-1].text] < 0.3


def test_a_quote_with_figures_for_other_lines_is_judged_by_its_words() -> None:
    quote = Quote(
        0, "assistant", "assistant", "", (("assistant", "We keep it."),), False, (), (0.1, 0.2)
    )
    assert index_of([quote]).novelty(0) == 1


def test_merges_do_not_lose_what_was_said_once() -> None:
    """Three times, what was quoted and new work share the room of one cover."""
    indexes = HistoryIndexes(1_000_000)
    sources: list[tuple[int, Source]] = list(enumerate([*FORMULAS, ONCE, PLAIN]))
    for merge in range(1, 4):
        quotes = quote_lines(sources, {}, 300, count, Focus(room=32_000), indexes)
        assert ONCE.text in text_of(quotes)
        assert PLAIN.text in text_of(quotes)
        place = merge * 1_000
        work = [model(f"Let me look at lib/part_{place + n}.py.") for n in range(60)]
        sources = [(quote.place, quote) for quote in quotes]
        sources += list(enumerate(work, place))


def test_what_a_tool_prints_later_is_no_longer_coined() -> None:
    [quote] = quotes_of([model("I name it ledger_v2 and ledger_v3.")], 100)
    assert quote.coined == ("ledger_v2", "ledger_v3")
    indexes = HistoryIndexes(1_000_000)
    later: list[tuple[int, Source]] = [(5, user("ledger_v3")), (6, result("ledger_v2 ok"))]
    [made] = forget_printed([quote], later, indexes)
    assert made == replace(quote, coined=("ledger_v3",))
    assert forget_printed([made], later, indexes) == (made,)
    [unjudged] = [replace(quote, coined=None)]
    assert forget_printed([unjudged], later, indexes) == (unjudged,)
