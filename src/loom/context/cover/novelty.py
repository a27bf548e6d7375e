"""Novelty: how much a line tells that its speaker does not say all the time.

"Let me look at …" says little, whatever it names: its speaker says it every few minutes. A word
counts the less the more messages of its speaker have it. No word counts for what it means.
"""

from collections.abc import Iterable, Sequence
from math import log

from loom.conversation.words import split_terms

RAREST_WORDS = 2  # words of a line that tell how new it is: a long line has common ones in any case
NO_WORDS = 0.5  # the novelty of a line that is nothing but names


def find_words(line: str, names: Iterable[tuple[int, int, str]]) -> tuple[str, ...]:
    """The words of a line in order, each once; without numbers, and without the names in it, by
    where they begin and end.
    """
    plain, at = "", 0
    for start, stop, _ in names:
        plain += line[at:start] + " "
        at = max(at, stop)
    plain += line[at:]
    return tuple(dict.fromkeys([term for term in split_terms(plain) if not term.isdigit()]))


class SpokenWords:
    """The words of a speaker, and in how many of his messages each of them is."""

    def __init__(self) -> None:
        self.messages = 0
        self._counts: dict[str, int] = {}

    def add(self, words: Iterable[str]) -> None:
        """Take in the words of the next message, each once."""
        self.messages += 1
        for word in words:
            self._counts[word] = self._counts.get(word, 0) + 1

    def novelty(self, words: Sequence[str]) -> float:
        """From 1, for a line with words that nobody else of his has, to 0, for one whose words are
        in every message.
        """
        if not words:
            return NO_WORDS
        counts = sorted([self._counts.get(word, 1) for word in words])[:RAREST_WORDS]
        most = log(self.messages + 2)
        return sum([1 - log(count) / most for count in counts]) / len(counts)
