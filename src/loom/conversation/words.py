"""The words of a text, in any script: one splitter for the search, the ladder and the map.

A term is what a word is compared by: in lower case, an English word without its ending. Where no
spaces part words, terms are pairs of characters.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from unicodedata import normalize

from loom.conversation.stems import stem

MAX_TERM_CHARS = 64  # of a longer word, only the beginning counts
_CACHED_WORDS = 1 << 16
_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def split_terms(text: str) -> list[str]:
    """The terms of a text in order.

    A name of several words (`parse_turn`, `parseTurn`, `utf8`) is one term, and so are its words.
    """
    terms: list[str] = []
    for run in _WORD.findall(text):
        terms += terms_of_run(run)
    return terms


def find_term_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """The terms of a text in order, each with the characters that it comes from: where they begin
    and end.
    """
    for match in _WORD.finditer(text):
        start, run = match.start(), match[0]
        if not run.isascii():
            plain = normalize("NFKC", run).lower()
            if len(plain) == len(run):
                yield from ((start + at, start + end, term) for at, end, term in _find_wide(plain))
                continue
        for term in terms_of_run(run):
            yield start, match.end(), term


def terms_of_run(run: str) -> tuple[str, ...]:
    """The terms of a run of letters and digits."""
    if len(run) > MAX_TERM_CHARS:
        if not run.isascii():
            return tuple(_wide_terms(normalize("NFKC", run).lower()))
        run = run[:MAX_TERM_CHARS]
    return _terms_of_short_run(run)


@lru_cache(maxsize=_CACHED_WORDS)
def _terms_of_short_run(run: str) -> tuple[str, ...]:
    if run.isascii():
        low = run.lower()
        if low.isalpha() and (run == low or run[1:] == low[1:] or run.isupper()):
            return (stem(low),)
        words = _HUMPS.findall(run)
        if len(words) < 2:
            return tuple(stem(word.lower()) for word in words) or (low,)
        return (low, *(stem(word.lower()) for word in words))
    return tuple(_wide_terms(normalize("NFKC", run).lower()))


def forget_words() -> None:
    """Let go of the words that are remembered with their terms."""
    _terms_of_short_run.cache_clear()


def _wide_terms(run: str) -> Iterator[str]:
    """The terms of a run that is not English only."""
    return (term for _, _, term in _find_wide(run))


def _find_wide(run: str) -> Iterator[tuple[int, int, str]]:
    """The same, with where each begins and ends."""
    start = 0
    for match in _UNSPACED.finditer(run):
        if match.start() > start:
            yield start, match.start(), stem(run[start : match.start()][:MAX_TERM_CHARS])
        stretch, start = match[0], match.start()
        if len(stretch) == 1:
            yield start, start + 1, stretch
        for at, pair in enumerate(pairwise(stretch), start):
            yield at, at + 2, "".join(pair)
        start = match.end()
    if start < len(run):
        yield start, len(run), stem(run[start:][:MAX_TERM_CHARS])


def find_words(text: str) -> frozenset[str]:
    """The words of a text in any script: runs of letters and digits; where no spaces part them,
    pairs of characters.
    """
    found: set[str] = set()
    for run in _WORD.findall(text.lower()):
        wide = _UNSPACED.findall(run)
        found.update(a + b for stretch in wide for a, b in pairwise(stretch))
        found.update(stretch for stretch in wide if len(stretch) == 1)
        found.update(part for part in _UNSPACED.split(run) if part)
    return frozenset(found)
