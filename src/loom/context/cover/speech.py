"""The user's words: which messages of a user a cover quotes whole, within so many tokens.

Rules of this file:
- While all of them fit, all are quoted as they are. What is pasted into a very long one is data,
  and is left out of it.
- If they do not fit, pasted data goes from all of them; then the longest are shortened, all to one
  size; then the oldest are left to be told by their lines.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from loom.context.quotes import Quote, name_speaker, render_quotes
from loom.conversation.message import Message, Text

PASTED_CHARS = 4000  # a longer message of a user holds pasted data
DATA_LINES = 6  # a block of fewer lines is taken to be words
MIN_PROSE_WORDS = 4  # a line with fewer is taken to be data, in a block of data
MIN_LETTERS = 0.75  # the share of letters and spaces in a line of words
MIN_SPEECH_TOKENS = 120  # a message is not shortened below this
MAX_SHORTENINGS = 6  # times that a message is shortened until it is as small as it should be
HEAD_SHARE = 0.6  # of what stays of a message that is shortened: its beginning
LEFT_OUT_OF_IT = "[… {lines} lines of pasted data …]"
# half of such a mark, at the end and at the beginning of a text
_BEGUN_MARK = re.compile(r"\[…[^\]\n]*$")
_ENDED_MARK = re.compile(r"^[^\[\n]*…\]")

Source = Message | Quote
Count = Callable[[str], int]


def find_speech(sources: Sequence[tuple[int, Source]]) -> dict[int, Quote]:
    """What users said in these messages, by index: each message as one quote."""
    found: dict[int, Quote] = {}
    for index, (place, source) in enumerate(sources):
        if isinstance(source, Quote):
            if source.is_speech:
                found[index] = source
        elif source.role == "user":
            text = "\n".join([part.text for part in source.parts if isinstance(part, Text)])
            if text.strip():
                found[index] = _quote(place, source.author, text.strip())
    return found


def _quote(place: int, author: str, text: str) -> Quote:
    if len(text) > PASTED_CHARS:
        text = leave_out_data(text)
    return Quote(place, "user", name_speaker("user", "user", author), "", (("user", text),), True)


def count_quote(quote: Quote, count: Count) -> int:
    """What a quote takes in a cover."""
    return count(render_quotes([quote])) + 1


def choose_speech(speech: dict[int, Quote], tokens: int, count: Count) -> dict[int, Quote]:
    """The quotes that fit so many tokens, as they are or shortened, by index."""
    costs = {index: count_quote(quote, count) for index, quote in speech.items()}
    if not speech or sum(costs.values()) <= tokens:
        return speech
    chosen = {index: _map_text(quote, leave_out_data) for index, quote in speech.items()}
    costs = {index: count_quote(quote, count) for index, quote in chosen.items()}
    cap = _find_cap(list(costs.values()), tokens)
    found: dict[int, Quote] = {}
    for index in reversed(chosen):
        quote = chosen[index]
        if costs[index] > cap:
            quote = _shorten(quote, cap, count)
        tokens -= count_quote(quote, count)
        if tokens < 0:
            break
        found[index] = quote
    return dict(sorted(found.items()))


def _find_cap(costs: Sequence[int], tokens: int) -> int:
    """The size to which the longest are shortened so that all fit, if it is large enough."""
    left = tokens
    for done, cost in enumerate(sorted(costs)):
        share = left // (len(costs) - done)
        if cost > share:
            return max(share, MIN_SPEECH_TOKENS)
        left -= cost
    return max(costs)


def _map_text(quote: Quote, change: Callable[[str], str]) -> Quote:
    return replace(quote, lines=(("user", change(quote.text)),))


def _shorten(quote: Quote, tokens: int, count: Count) -> Quote:
    """A quote with its beginning and its end, in so many tokens if they are not too few."""
    made, chars = quote, len(quote.text)
    for _ in range(MAX_SHORTENINGS):
        size = count_quote(made, count)
        if size <= tokens:
            break
        chars = chars * tokens // (size + 1)
        made = _keep_ends(quote, chars)
    return made


def _keep_ends(quote: Quote, chars: int) -> Quote:
    """A quote with so many characters of its beginning and its end."""
    text = quote.text
    head, tail = int(chars * HEAD_SHARE), int(chars * (1 - HEAD_SHARE))
    begin, end = text[:head], text[len(text) - tail :]
    begin = _BEGUN_MARK.sub("", begin.rpartition(" ")[0] or begin)
    end = _ENDED_MARK.sub("", end.partition(" ")[2] or end)
    return replace(quote, lines=(("user", f"{begin} … {end}"),))


def leave_out_data(text: str) -> str:
    """The words of a message without the logs, files and listings that were pasted into it."""
    made: list[str] = []
    for block, is_fenced in _split_blocks(text):
        if len(block) >= DATA_LINES and (is_fenced or not _is_prose(block)):
            last = len(block) - 1 if block[-1].strip() else len(block) - 2
            made += [block[0], LEFT_OUT_OF_IT.format(lines=last - 1), *block[last:]]
        else:
            made += block
    return "\n".join(made)


def _split_blocks(text: str) -> Iterator[tuple[list[str], bool]]:
    """The lines of a text in blocks: what stands between fences, and what blank lines part."""
    block: list[str] = []
    is_fenced = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(("```", "~~~"))
        if is_fence and not is_fenced:
            yield block, False
            block, is_fenced = [line], True
            continue
        block.append(line)
        if is_fence or (not is_fenced and not line.strip()):
            yield block, is_fenced
            block, is_fenced = [], False
    yield block, is_fenced


def _is_prose(block: Sequence[str]) -> bool:
    """Whether at least half of the lines are words that a person would write."""
    said = [line for line in block if line.strip()]
    return 2 * sum(map(_is_sentence, said)) >= len(said)


def _is_sentence(line: str) -> bool:
    words = line.split()
    letters = sum(char.isalpha() or char.isspace() for char in line)
    return len(words) >= MIN_PROSE_WORDS and letters >= MIN_LETTERS * len(line)
