"""The part of a text that says most of a question."""

from collections import Counter
from collections.abc import Mapping, Sequence

from loom.recall.question import Question, find_matches

PASSAGE_CHARS, MARGIN_CHARS = 300, 60  # of a passage, and of them before what was found
EXACT_WEIGHT = 1.0  # of a name or a phrase that is written exactly so; all terms together have 1


def find_passage(
    text: str, question: Question, weights: Mapping[str, float], chars: int = PASSAGE_CHARS
) -> tuple[int, int]:
    """Where the piece of a text begins and ends that says most of a question; of equals the first.

    It is a line, or, of a longer line, a piece of at most so many characters, from a space to a
    space where they are near. If there is room for more, lines around it come with it.
    """
    if len(text) <= chars and "\n" not in text:
        return _strip(text, 0, len(text))
    start, stop = _find_densest(find_matches(question, text), weights, chars - 2 * MARGIN_CHARS)
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", stop)
    if last < 0:
        last = len(text)
    if last - first > chars:
        return _cut_line(text, (first, last), (start, stop), chars)
    if chars > PASSAGE_CHARS:
        first, last = _add_lines(text, first, last, chars)
    return _strip(text, first, last)


def _find_densest(
    found: Sequence[tuple[int, int, str]], weights: Mapping[str, float], chars: int
) -> tuple[int, int]:
    """The shortest stretch of at most so many characters in which most is said; each term counts
    once.
    """
    best, begin, end = 0.0, 0, 0
    inside: Counter[str] = Counter()
    value, first = 0.0, 0
    for start, stop, term in found:
        value += weights.get(term, EXACT_WEIGHT) * (not inside[term])
        inside[term] += 1
        while found[first][0] < start:
            left = found[first][2]
            if stop - found[first][0] <= chars and inside[left] == 1:
                break  # it is said nowhere else in reach
            inside[left] -= 1
            value -= weights.get(left, EXACT_WEIGHT) * (not inside[left])
            first += 1
        if value > best + 1e-9:
            best, begin, end = value, found[first][0], stop
    return begin, end


def _cut_line(
    text: str, line: tuple[int, int], found: tuple[int, int], chars: int
) -> tuple[int, int]:
    low = max(min(found[0] - MARGIN_CHARS, line[1] - chars), line[0])
    high = low + chars
    if low > line[0] and (space := text.find(" ", low, found[0])) >= 0:
        low = space + 1
    if high < line[1]:
        space = text.rfind(" ", max(found[1], high - MARGIN_CHARS), high)
        if space >= 0:
            high = space
    return low, high


def _add_lines(text: str, first: int, last: int, chars: int) -> tuple[int, int]:
    """As many whole lines around a stretch as fit, after it and before it in turn."""
    grows_after = grows_before = True
    while grows_after or grows_before:
        if grows_after:
            stop = text.find("\n", last + 1)
            stop = len(text) if stop < 0 else stop
            grows_after = last < len(text) and stop - first <= chars
            if grows_after:
                last = stop
        if grows_before:
            start = text.rfind("\n", 0, max(first - 1, 0)) + 1
            grows_before = first > 0 and last - start <= chars
            if grows_before:
                first = start
    return first, last


def _strip(text: str, first: int, last: int) -> tuple[int, int]:
    piece = text[first:last]
    first += len(piece) - len(piece.lstrip())
    return first, max(first, first + len(piece.strip()))
