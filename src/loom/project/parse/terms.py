"""The words of a text, so that what is asked for can be found in what is written: identifiers whole
and in parts, in any script.
"""

import re
import unicodedata
from collections import Counter
from itertools import chain, pairwise

MAX_WORD_CHARS = 64  # a longer run of characters is data, not a word
_REMEMBERED = 100_000

# Signs become blanks; whatever is not ASCII stays and is looked at word by word. Several times
# faster than matching words.
_SIGNS = bytes(
    code if code >= 128 or chr(code).isalnum() or chr(code) == "_" else 32 for code in range(256)
)
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]{3,}")
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
_VOWEL = re.compile("[aeiouy]")
_SHORT = re.compile("[^aeiou][aeiouy][^aeiouwxy]")  # what may have lost its e: nam(e)ing, siz(e)d


class _TermCache(dict[str, tuple[str, ...]]):
    """The terms of each raw word that was met; those of a new one are found when it is asked
    for.
    """

    def __missing__(self, word: str) -> tuple[str, ...]:
        terms = tuple(
            _ascii_terms(word)
            if word.isascii()
            else chain.from_iterable(map(_run_terms, _runs(word)))
        )
        if len(self) >= _REMEMBERED:
            self.clear()
        if len(word) <= MAX_WORD_CHARS:
            self[word] = terms
        return terms


_known = _TermCache()


def terms_of(text: str) -> dict[str, int]:
    """What a text says, and how often: words in lower case without English endings, identifiers
    also in their parts.

    Where no spaces part the words, pairs of characters stand for them.
    """
    return dict(Counter(terms_in(text)))


def terms_in(text: str) -> list[str]:
    """The terms of a text one by one, as often as it says them."""
    raw = (
        text.encode(errors="surrogatepass").translate(_SIGNS).decode(errors="surrogatepass").split()
    )
    return list(chain.from_iterable(map(_known.__getitem__, raw)))


def _ascii_terms(word: str) -> list[str]:
    if len(word) > MAX_WORD_CHARS and "_" not in word:
        return []
    if word.islower() and word.isalpha():
        if len(word) > 1:
            return [stem(word)]
        return []
    pieces = _PIECES.findall(word)
    parts = [stem(piece.lower()) for piece in pieces if len(piece) > 1]
    whole = word.strip("_").lower()
    if (
        not pieces
        or len(whole) < 2
        or len(whole) > MAX_WORD_CHARS
        or (len(pieces) == 1 and len(pieces[0]) == len(whole))
    ):
        return parts
    return [whole, *parts]


def _runs(word: str) -> list[str]:
    return _WORDS.findall(unicodedata.normalize("NFKC", word))


def _run_terms(run: str) -> list[str]:
    if run.isascii():
        return _ascii_terms(run)
    terms = []
    for stretch in _UNSPACED.findall(run):
        terms += (
            [first + second for first, second in pairwise(stretch)]
            if len(stretch) > 1
            else [stretch]
        )
    for rest in filter(None, _UNSPACED.split(run)):
        if rest.isascii():
            terms += _ascii_terms(rest)
        elif len(whole := rest.strip("_").lower()) <= MAX_WORD_CHARS:
            parts = [part for part in _humps(rest) if len(part) > 1]
            terms += parts if parts == [whole] else [whole, *parts]
    return terms


def _humps(word: str) -> list[str]:
    """A word of any alphabet in lower case, cut at _ and before a capital that follows a small
    letter.
    """
    cut = "".join(
        "_" + letter if letter.isupper() and before.islower() else letter
        for before, letter in pairwise(" " + word)
    )
    return [part for part in cut.lower().split("_") if part]


def stem(word: str) -> str:
    """A lower-case English word without the endings s, ed, ing and a last e; so `parse`, `parses`,
    `parsed` and `parsing` agree.
    """
    if len(word) < 4 or word[-1] not in "sdge":
        return word
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("xes", "sses", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ing"):
        word = _fix_ending(word, word[:-3])
    elif word.endswith("ed") and not word.endswith("eed"):
        word = _fix_ending(word, word[:-2])
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word


def _fix_ending(word: str, left: str) -> str:
    """What is left of a word without its ending; the word where that is no word: `string`,
    `used`.
    """
    if len(left) < 3 or not _VOWEL.search(left):
        return word
    if left[-1] == left[-2] and left[-1] not in "lsz":
        return left[:-1]
    if _SHORT.fullmatch(left):
        return left + "e"
    return left
