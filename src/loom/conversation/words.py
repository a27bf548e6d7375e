"""The words of a text, in any script: one splitter for the search, the ladder and the map.

A term is what a word is compared by: in lower case, an English word without its ending. A name of
several words (`parse_turn`, `parseTurn`, `utf8`) is a term, and so are its words. Where no spaces
part the words, terms are pairs of characters; an index has each of these characters, too, so that
a question of one character finds it.
"""

import re
from collections.abc import Iterator
from itertools import chain, pairwise
from unicodedata import normalize

from loom.conversation.stems import stem

SPLITTER_VERSION = 3  # of the rules that make terms; another one means that indexes are made again
MAX_TERM_CHARS = 64  # of a longer run of characters without _, only the beginning is a term
_REMEMBERED_RUNS = 100_000

# Signs become blanks, and lines stay; so does what is not ASCII, which is looked at word by word.
# Several times faster than matching words.
_SIGNS = bytes(
    code if code >= 128 or chr(code).isalnum() or chr(code) in "_\n" else 32 for code in range(256)
)
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Marks are no letters for `re`, but the words of many scripts have them inside.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u096f\u0971-\u0df3\u0e31-\u0e3a"
    "\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3\u200c\u200d"
)
_WORDS = re.compile(rf"[\w{_MARKS}]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class _TermCache(dict[str, tuple[str, ...]]):
    """The terms of each run that was met; those of a new one are found when it is asked for."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        terms = find_terms_of_run(run)
        if len(self) >= _REMEMBERED_RUNS:
            self.clear()
        if len(run) <= MAX_TERM_CHARS:
            self[run] = terms
        return terms


def find_terms_of_run(run: str) -> tuple[str, ...]:
    """The terms of what signs and blanks part; nothing is remembered."""
    return tuple(_ascii_terms(run) if run.isascii() else _wide_terms(run))


_known = _TermCache()
terms_of_run = _known.__getitem__


def forget_words() -> None:
    """Let go of the words that are remembered with their terms."""
    _known.clear()


def split_terms(text: str) -> list[str]:
    """The terms of a text in order, as often as it says them."""
    return list(chain.from_iterable(map(terms_of_run, split_runs(text))))


def split_terms_for_index(text: str) -> list[str]:
    """The terms of a text as an index has them: with each character of the pairs."""
    terms = split_terms(text)
    if not text.isascii() and _UNSPACED.search(text):
        stretches = _UNSPACED.findall(normalize("NFKC", text))
        terms += [letter for stretch in stretches if len(stretch) > 1 for letter in stretch]
    return terms


def is_single_letter(term: str) -> bool:
    """Whether a term is one character of a script that does not part words by spaces."""
    return len(term) == 1 and _UNSPACED.match(term) is not None


def split_runs(text: str) -> list[str]:
    """What signs and blanks part in a text; signs that are not ASCII are left in."""
    return blank_signs(text).split()


def blank_signs(text: str) -> str:
    """A text with the same lines, and blanks for the signs in them; signs that are not ASCII are
    left in.
    """
    return text.encode(errors="surrogatepass").translate(_SIGNS).decode(errors="surrogatepass")


def find_term_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """The terms of a text in order, each with the run of characters that it comes from: where that
    begins and ends. Of a script without spaces, these are the two characters.
    """
    for match in _WORDS.finditer(text):
        run, start = match[0], match.start()
        if run.isascii():
            yield from ((start, match.end(), term) for term in terms_of_run(run))
        else:
            yield from _find_wide_spans(run, start)


def _find_wide_spans(run: str, start: int) -> Iterator[tuple[int, int, str]]:
    for match in re.finditer(rf"{_UNSPACED.pattern}|[^{_UNSPACED.pattern[1:-2]}]+", run):
        stretch = match[0]
        width = len(stretch)
        if _UNSPACED.match(stretch):
            width = min(2, width)
        for first in range(len(stretch) - width + 1):
            piece = stretch[first : first + width]
            begin = start + match.start() + first
            yield from ((begin, begin + width, term) for term in terms_of_run(piece))


def _ascii_terms(run: str) -> list[str]:
    if len(run) > MAX_TERM_CHARS and "_" not in run:
        return [run[:MAX_TERM_CHARS].lower()]
    if run.islower() and run.isalpha():
        return [stem(run)]
    pieces = _PIECES.findall(run)
    parts = [stem(piece.lower()) for piece in pieces]
    whole = run.strip("_").lower()
    if not whole or len(whole) > MAX_TERM_CHARS or len(pieces) == 1:
        return parts
    return [whole, *parts]


def _wide_terms(run: str) -> Iterator[str]:
    for word in _WORDS.findall(normalize("NFKC", run)):
        if word.isascii():
            yield from _ascii_terms(word)
        else:
            yield from _mixed_terms(word)


def _mixed_terms(run: str) -> Iterator[str]:
    for stretch in _UNSPACED.findall(run):
        if len(stretch) > 1:
            yield from (first + second for first, second in pairwise(stretch))
        else:
            yield stretch
    for rest in filter(None, _UNSPACED.split(run)):
        if rest.isascii():
            yield from _ascii_terms(rest)
            continue
        whole = rest.strip("_").lower()[:MAX_TERM_CHARS]
        parts = _split_humps(rest)
        if whole and parts != [whole]:
            yield whole
        yield from parts


def _split_humps(word: str) -> list[str]:
    """A word of any alphabet in lower case, cut at _ and before a capital that follows a small
    letter.
    """
    cut = "".join(
        "_" + letter if letter.isupper() and before.islower() else letter
        for before, letter in pairwise(" " + word)
    )
    return [part[:MAX_TERM_CHARS] for part in cut.lower().split("_") if part]
