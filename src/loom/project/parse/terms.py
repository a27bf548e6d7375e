"""The words of source code, so that what is asked for can be found in what is written: identifiers
whole and in parts, in any script. Single letters, short numbers and data are no words here.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from loom.conversation.words import MAX_TERM_CHARS, find_terms_of_run, split_runs

MIN_NUMBER_CHARS = 3
_REMEMBERED = 100_000


class _CodeTermCache(dict[str, tuple[str, ...]]):
    """The terms of each run that was met; those of a new one are found when it is asked for."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        terms = tuple([term for term in find_terms_of_run(run) if _says_something(term)])
        if len(self) >= _REMEMBERED:
            self.clear()
        if len(run) <= MAX_TERM_CHARS:
            self[run] = terms
        return terms


_known = _CodeTermCache()


def terms_of(text: str) -> dict[str, int]:
    """What a text says, and how often: words in lower case without English endings, identifiers
    also in their parts.

    Where no spaces part the words, pairs of characters stand for them.
    """
    return dict(Counter(terms_in(text)))


def terms_in(text: str) -> list[str]:
    """The terms of a text one by one, as often as it says them."""
    return terms_of_runs(split_runs(text))


def terms_of_runs(runs: Iterable[str]) -> list[str]:
    """The terms of what signs and blanks part in a text."""
    return list(chain.from_iterable(map(_known.__getitem__, runs)))


def _says_something(term: str) -> bool:
    if term.isascii():
        least = MIN_NUMBER_CHARS if term.isdigit() else 2
        return least <= len(term) < MAX_TERM_CHARS
    return True
