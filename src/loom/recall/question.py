"""What a question asks: its terms, what must be written exactly so, who spoke, and when."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from loom.conversation.words import find_term_spans, is_single_letter, split_terms
from loom.errors import ChoiceError, describe, shorten
from loom.recall.times import TimeSpan, find_times

MAX_QUERY_CHARS = 500
MIN_NICKNAME_CHARS = 3
_PHRASE = re.compile(r'"([^"]+)"|“([^”]+)”')
_CAPITAL_RUN = re.compile(r"\w+")
# A path, a version, an address, a number with its unit: runs that punctuation holds together.
_NAME = re.compile(r"[\w~#@]*\w(?:[./:@#+~_\\-]+\w+)+|[#@~]\w+|\w*\d\w*")
_JOINT = re.compile(r"[,;?]|\b(?:and|or|but|as well as)\b", re.IGNORECASE)
MIN_PART_TERMS = 2  # of a part of a question that is a question by itself
MAX_PARTS = 4
FUNCTION_WORDS = frozenset(
    split_terms(
        """a about all also am an and any are as at be been being both but by can could did do does
        each for from had has have he her here him his how i if in into is it its just may me might
        more most much many my no not of on or other our own s same she should so some such t than
        that the their them then there these they this those to very was we were what when where
        which who whom whose why will with would you your"""
    )
)


class Question(Struct, frozen=True):
    """A question, read.

    `words` are the terms that are looked for, each with the word as it was written. `phrases` must
    occur as they are; `names` count for more where they do. `speakers` are authors of the scope
    that the question names. `parts` are the terms of questions that it is made of, if several.
    """

    text: str
    words: dict[str, str]
    phrases: tuple[str, ...]
    names: tuple[re.Pattern[str], ...]
    speakers: frozenset[str]
    times: tuple[TimeSpan, ...]
    parts: tuple[tuple[str, ...], ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(self.words)


def read_question(query: object, authors: Iterable[str] = (), now: int | None = None) -> Question:
    """Read a question. `authors` are those who speak in the scope."""
    if not isinstance(query, str) or not query.strip():
        raise ChoiceError(f"a search needs words to look for, found {describe(query)}")
    if len(query) > MAX_QUERY_CHARS:
        raise ChoiceError(
            f"a search takes at most {MAX_QUERY_CHARS} characters, found {len(query):,}; use only "
            "the most specific words"
        )
    phrases = tuple(
        dict.fromkeys(
            phrase for pair in _PHRASE.findall(query) for phrase in pair if phrase.strip()
        )
    )
    words = _find_terms(query)
    if not words and not phrases:
        raise ChoiceError(
            f"there are no words in {shorten(query)!r}; put symbols in quotes to find them exactly"
        )
    speakers = _find_speakers(query, authors)
    times = tuple(find_times(query, now))
    asked = _drop_common(words, speakers)
    return Question(
        query,
        asked,
        phrases,
        tuple(re.compile(_name_pattern(name)) for name in _find_names(query, times)),
        speakers,
        times,
        _find_parts(query, asked),
    )


def find_content_terms(text: str, limit: int) -> tuple[str, ...]:
    """The terms of a text that say something alone, each once, at most so many."""
    found = dict.fromkeys(term for term in split_terms(text) if term not in FUNCTION_WORDS)
    return tuple(found)[:limit]


def _find_terms(query: str) -> dict[str, str]:
    words: dict[str, str] = {}
    for start, stop, term in find_term_spans(query):
        words.setdefault(term, query[start:stop])
    return words


def _drop_common(words: dict[str, str], speakers: frozenset[str]) -> dict[str, str]:
    """The words without those that say nothing alone, and without the names of speakers: what they
    said is found by who said it. If nothing would be left, less is dropped.
    """
    names = {term for name in speakers for term in split_terms(name)}
    names |= {term for term, word in words.items() if _names_one_of(word, speakers)}
    plain = {term: word for term, word in words.items() if term not in FUNCTION_WORDS}
    asked = {term: word for term, word in plain.items() if term not in names}
    return asked or plain or words


def _find_speakers(query: str, authors: Iterable[str]) -> frozenset[str]:
    """The authors that a question names by a word of their name, or by its beginning."""
    said = _CAPITAL_RUN.findall(query)
    if query.islower():
        said = [word.title() for word in said]
    named = {word for word in said if word[:1].isupper()}
    return frozenset(
        author for author in authors if any(_names_one_of(word, (author,)) for word in named)
    )


def _names_one_of(word: str, authors: Iterable[str]) -> bool:
    """Whether a word is one of an author's names, or the beginning of the first."""
    low = word.lower()
    for author in authors:
        names = author.lower().split()
        if low in names:
            return True
        if len(low) >= MIN_NICKNAME_CHARS and names and names[0].startswith(low):
            return True
    return False


def _find_parts(query: str, words: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """The terms of each clause that says enough to be a question; nothing if there is only one."""
    parts: list[tuple[str, ...]] = []
    for clause in _JOINT.split(query):
        terms = tuple(dict.fromkeys(term for term in split_terms(clause) if term in words))
        if len(terms) >= MIN_PART_TERMS:
            parts.append(terms)
    return tuple(parts[:MAX_PARTS]) if len(parts) > 1 else ()


def _find_names(query: str, times: Iterable[TimeSpan]) -> list[str]:
    """What is a name, a path or a number in a question, outside of quotes and times."""
    spans = [time.place for time in times] + [each.span() for each in _PHRASE.finditer(query)]
    return list(
        dict.fromkeys(
            each[0]
            for each in _NAME.finditer(query)
            if not any(start <= each.start() < stop for start, stop in spans)
        )
    )


def _name_pattern(name: str) -> str:
    """A pattern for a name that is no part of a longer one. It begins with the name itself: that is
    found fast.
    """
    literal = re.escape(name)
    begin = rf"(?<!\w{literal})" if name[0].isalnum() else ""
    return literal + r"(?!\w)" + begin


def find_matches(question: Question, text: str) -> list[tuple[int, int, str]]:
    """Where a text says something of a question: begin, end, and the term or name; in order."""
    found = [
        (start, stop, term) for start, stop, term in find_term_spans(text) if term in question.words
    ]
    for letter in filter(is_single_letter, question.words):
        found += [(at, at + 1, letter) for at, each in enumerate(text) if each == letter]
    for pattern in question.names:
        found += [(match.start(), match.end(), match[0]) for match in pattern.finditer(text)]
    for phrase in question.phrases:
        found += [
            (match.start(), match.end(), phrase) for match in re.finditer(re.escape(phrase), text)
        ]
    return sorted(set(found))


def merge_stretches(found: Sequence[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """Stretches in order that do not overlap."""
    made: list[tuple[int, int]] = []
    for start, stop, _ in found:
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return made
