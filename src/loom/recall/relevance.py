"""What of old messages clearly matters to a request: what may come back without being asked for.

Rules of this file:
- A search has a best hit for every question. Here a text matters only if it says more of the
  request than chance explains: of all passages of a conversation, less than `MAX_CHANCE` would
  say these terms if terms were spread at random. Several rare terms are what chance does not
  explain. In a long conversation, and for a long request, it explains more.
- A line that says nothing but what the request says adds nothing, so it does not count. Lines that
  are in the request already are left out first.
- What comes with the best passage is nearly as clear as that one.
- Words decide alone. That a text is near in meaning says too little: `bench/recalled.py` was tried
  with embedders, and more came back for nothing than was needed.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil, comb, inf, log

from msgspec import Struct

from loom.conversation.words import find_term_spans, split_terms
from loom.recall.choosing import CHARS_PER_TOKEN
from loom.recall.index import MAX_TEXT_CHARS, Document, Index
from loom.recall.passages import find_passage
from loom.recall.question import FUNCTION_WORDS, MAX_QUERY_CHARS, Question, read_question
from loom.recall.room import RecallRoom
from loom.recall.scoring import TermWeights, weigh_terms
from loom.recall.search import SearchRequest

MAX_REQUEST_CHARS = 4000  # of a request that are looked at
MAX_REQUEST_TERMS = 24  # the rarest ones that are looked for, if a request is long
MAX_LOOKED_AT = 12  # hits that may matter
MAX_CHOSEN = 3
MAX_PART_CHARS = 600  # of a message that come back; a longer one is a passage
MIN_PART_CHARS = 12
PASSAGE_TERMS = MAX_PART_CHARS // 8  # that a passage of this length has, about
# Only messages with a term are looked at that no more than this share of a path has, within bounds
RARE_SHARE, ALWAYS_RARE, NEVER_RARE = 0.02, 3, 200
MIN_TERMS = 2  # of the request that a text must say
MAX_CHANCE = 0.01  # passages that would say as much by chance
NEARLY_AS_CLEAR = 0.5  # of the logarithm of the best passage's chance
_QUOTATION_MARKS = re.compile('["“”]')


class Recollection(Struct, frozen=True):
    """A message that matters: its key, and the part of its text that does."""

    key: int
    text: str


def find_relevant(index: Index, request: SearchRequest, room: RecallRoom) -> list[Recollection]:
    """The messages that clearly matter to a request, best first, within the room."""
    query = choose_words(request.query, index)
    if not split_terms(query):
        return []
    judge = _Judge(index, read_question(query), request.query)
    keys = judge.find_candidates(request.excluded)[:MAX_LOOKED_AT]
    texts = index.texts(keys)
    parts: list[tuple[float, Recollection]] = []
    for key in keys:
        part = judge.find_part(texts.get(key, ""), room)
        chance = judge.measure_chance(part)
        if chance <= log(MAX_CHANCE):
            parts.append((chance, Recollection(key, part)))
    return _choose(parts, room)


def _choose(parts: Sequence[tuple[float, Recollection]], room: RecallRoom) -> list[Recollection]:
    """The clearest of these, and those that are nearly as clear, within the room."""
    found: list[Recollection] = []
    ordered = sorted(parts, key=lambda each: round(each[0], 6))
    left = room.tokens
    for chance, part in ordered:
        price = room.count(part.text) + room.frame
        is_clear = chance <= NEARLY_AS_CLEAR * ordered[0][0] or not found
        if is_clear and price <= left and not any(part.text in other.text for other in found):
            found.append(part)
            left -= price
        if len(found) == MAX_CHOSEN:
            break
    return found


def choose_words(request: str, index: Index) -> str:
    """What is looked for: the request, or the rarest words of a long one that others say too."""
    text = _QUOTATION_MARKS.sub(" ", request[:MAX_REQUEST_CHARS])
    if len(text) <= MAX_QUERY_CHARS:
        return text
    words: dict[str, str] = {}
    for start, stop, term in find_term_spans(text):
        if term not in FUNCTION_WORDS:
            words.setdefault(term, text[start:stop])
    often = index.frequencies(list(words))
    known = [term for term in words if often.get(term)]
    rarest = set(sorted(known, key=lambda term: (often[term], term))[:MAX_REQUEST_TERMS])
    query = ""
    for term in words:
        if term in rarest and len(query) + len(words[term]) < MAX_QUERY_CHARS:
            query += f" {words[term]}"
    return query.strip()


class _Judge:
    """Tells what of a text matters to a question, which the request `asks`."""

    def __init__(self, index: Index, question: Question, asks: str) -> None:
        self._index, self._question = index, question
        self._asked = frozenset(split_terms(asks[:MAX_REQUEST_CHARS]))
        size = index.size()
        often = index.frequencies(question.terms)
        worth: TermWeights = weigh_terms(question, often, size)
        self._weights: Mapping[str, float] = dict(zip(worth.terms, worth.weights, strict=True))
        self._max_holding = _limit_rare(size.documents)
        self._rare = [term for term in sorted(worth.terms) if often[term] <= self._max_holding]
        self._passages = max(size.length / PASSAGE_TERMS, size.documents, 1.0)
        # in how many passages each term is, about
        usual = max(worth.usual_length / PASSAGE_TERMS, 1.0)
        self._holding = {term: often[term] * usual for term in worth.terms}

    def find_candidates(self, excluded: Collection[int]) -> list[int]:
        """The keys of documents that say enough of the question as a whole, those that chance
        explains least first, of equals the newer. What only repeats others is left out.
        """
        holding = dict.fromkeys(
            key for term in self._rare for key in self._index.find_holding(term, self._max_holding)
        )
        documents = self._index.read(list(holding), list(self._weights))
        self._count_passages(documents)
        said: list[tuple[float, Document]] = []
        for document in documents:
            if document.echo or document.key in excluded:
                continue
            chance = self._measure(document.counts.keys())
            if chance <= log(MAX_CHANCE):
                said.append((chance, document))
        said.sort(key=lambda each: (round(each[0], 6), -each[1].place))
        return [document.key for _, document in said]

    def _count_passages(self, documents: Sequence[Document]) -> None:
        """Of rare terms all documents were read, so it is known where they are."""
        for term in self._rare:
            self._holding[term] = sum(
                min(document.counts[term], ceil(document.length / PASSAGE_TERMS))
                for document in documents
                if term in document.counts
            )

    def find_part(self, text: str, room: RecallRoom) -> str:
        """The part of a text that says most of the question and fits, without lines that are shown
        already; an empty text if there is none.
        """
        text = text[:MAX_TEXT_CHARS]
        chars = min((room.tokens - room.frame) * CHARS_PER_TOKEN, MAX_PART_CHARS)
        while chars > MIN_PART_CHARS:
            part = text.strip()
            if len(part) > chars:
                start, stop = find_passage(text, self._question, self._weights, chars)
                part = text[start : min(stop, start + chars)]
            if room.count(part) + room.frame <= room.tokens:
                kept = [line for line in part.splitlines() if not room.hides(line)]
                return "\n".join(kept).strip("\n")
            chars = min(chars, len(part)) * 3 // 4
        return ""

    def measure_chance(self, text: str) -> float:
        """The logarithm of how many passages would say as much by chance as a text does. What only
        says the request again does not count.
        """
        terms: set[str] = set()
        for line in text.splitlines():
            said = split_terms(line)
            if not self._asked.issuperset(said):
                terms.update(said)
        return self._measure(terms)

    def _measure(self, terms: AbstractSet[str]) -> float:
        """The same for a text with these terms.

        It is the number of passages, times the number of ways to choose as many terms of the
        request, times the chance of each term to be in a passage.
        """
        said = self._weights.keys() & terms
        if len(said) < MIN_TERMS:
            return inf
        least = inf
        chance = log(self._passages)
        for many, holding in enumerate(sorted(self._holding[term] for term in said), 1):
            chance += log(min(holding / self._passages, 1.0))
            least = min(least, chance + log(comb(len(self._weights), many)))
        return least


def _limit_rare(documents: int) -> int:
    return min(max(ALWAYS_RARE, int(RARE_SHARE * documents)), NEVER_RARE)
