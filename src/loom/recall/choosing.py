"""Which documents are chosen: the best that fit, none twice, and what comes with them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from loom.conversation.words import split_terms
from loom.recall.hits import Match
from loom.recall.index import MAX_TEXT_CHARS, Document, Index
from loom.recall.passages import find_passage
from loom.recall.question import Question
from loom.recall.scoring import ScoredDocument, TermWeights

MAX_WHOLE_SHARE = 0.25  # of the budget; of a larger document, a passage is chosen
PASSAGE_SHARE = 0.125  # of the budget that a passage may have
CHARS_PER_TOKEN = 3  # few, so that a passage seldom has to be made smaller
SHINGLE_TERMS = 4
SEEN_SHARE = 0.9  # of a document's shingles; one that says so much of what was said is a duplicate
MAX_NEIGHBOUR_DISTANCE = 3  # places
NEIGHBOUR_SCORE_SHARE = 0.5  # of the hit's score, from which a message next to it comes with it
MAX_NEIGHBOUR_TOKENS = 200  # of a message that nobody asked for
NEAR_MEANING = 0.35  # on the scale of scores, from which a document is near in meaning
READ_TOGETHER = 64  # texts that are asked for at once


class Room(Struct, frozen=True):
    """How much may be chosen: tokens, and hits. None is no limit.

    `session_tokens` is what each session costs that something is chosen from, for example by a line
    with its date.
    """

    tokens: int | None = None
    limit: int | None = None
    session_tokens: int | Mapping[str, int] = 0

    def price_session(self, session: str) -> int:
        if isinstance(self.session_tokens, int):
            return self.session_tokens
        return self.session_tokens.get(session, 0)


class _Choice(Struct, frozen=True):
    scored: ScoredDocument
    tokens: int
    passage: tuple[int, int]
    is_whole: bool

    @property
    def document(self) -> Document:
        return self.scored.document


class Chooser:
    """Chooses from scored documents, best first, until the room is used."""

    def __init__(
        self,
        index: Index,
        question: Question,
        worth: TermWeights,
        room: Room,
        count_tokens: Callable[[str], int],
    ) -> None:
        self._index = index
        self._question = question
        self._weights = dict(zip(worth.terms, worth.weights, strict=True))
        self._room = room
        self._count_tokens = count_tokens
        self._texts: dict[int, str] = {}
        self._unread: Iterator[int] = iter(())
        self._seen: set[tuple[str, ...]] = set()
        self._sessions: set[str] = set()
        self._used = 0
        self._least = 0  # tokens of the smallest result
        self._hits = 0

    def choose(self, ranked: Sequence[ScoredDocument]) -> list[Match]:
        """The matches, best first. `ranked` are documents, best first."""
        chosen: list[_Choice] = []
        self._unread = (each.document.key for each in ranked)
        if self._room.tokens is not None:
            self._least = min((self._least_price(each.document) for each in ranked), default=0)
        for scored in ranked:
            if self._is_full():
                break
            if self._room.tokens is None and not self._is_hit(scored):
                continue
            if (choice := self._consider(scored)) is not None:
                chosen.append(choice)
                self._hits += self._is_hit(scored)
        if self._room.tokens is None:
            neighbours = self._find_neighbours(chosen, ranked)
        else:
            neighbours = []
        if not self._hits and not self._question.speakers and not self._question.times:
            return []
        return self._gather(chosen + neighbours)

    def _least_price(self, document: Document) -> int:
        """The least that a document costs; of one that is too large, a passage may be short."""
        if self._is_small(document):
            return document.tokens
        return 1

    def _is_small(self, document: Document) -> bool:
        """Whether a document is small enough to be chosen as a whole."""
        budget = self._room.tokens
        return budget is None or document.tokens <= MAX_WHOLE_SHARE * budget

    def _is_full(self) -> bool:
        room = self._room
        if room.limit is not None and self._hits >= room.limit:
            return True
        return room.tokens is not None and self._used + max(self._least, 1) > room.tokens

    def _is_hit(self, scored: ScoredDocument) -> bool:
        """Whether a document answers by itself, not by what is around it."""
        return (
            scored.own > 0
            or scored.meaning >= NEAR_MEANING
            or (not self._weights and scored.time >= 1)
            or bool(self._question.phrases)
        )

    def _consider(self, scored: ScoredDocument) -> _Choice | None:
        """A document as it fits, or None if it does not fit, or says nothing new."""
        document = scored.document
        header = 0
        if document.session not in self._sessions:
            header = self._room.price_session(document.session)
        is_whole = self._is_small(document)
        if not is_whole and not self._is_hit(scored):
            return None
        if not self._fits(header + self._least_price(document)):
            return None
        text = self._read(document.key)
        shingles = _shingles(text)
        if self._repeats(text, shingles):
            return None
        passage, tokens = self._cut(document, text, is_whole)
        if not self._fits(header + tokens):
            return None
        self._used += header + tokens
        self._sessions.add(document.session)
        self._seen |= shingles
        return _Choice(scored, header + tokens, passage, is_whole)

    def _fits(self, tokens: int) -> bool:
        return self._room.tokens is None or self._used + tokens <= self._room.tokens

    def _cut(self, document: Document, text: str, is_whole: bool) -> tuple[tuple[int, int], int]:
        """The passage of a document, and the price of what is chosen of it."""
        budget = self._room.tokens
        if is_whole or budget is None:
            return find_passage(text, self._question, self._weights), document.tokens
        room = max(int(PASSAGE_SHARE * budget), 1)
        chars = room * CHARS_PER_TOKEN
        while True:
            start, stop = find_passage(text, self._question, self._weights, chars)
            stop = min(stop, start + chars)
            tokens = self._count_tokens(text[start:stop])
            if tokens <= room or chars == 1:
                return (start, stop), tokens
            chars //= 2

    def _repeats(self, text: str, shingles: set[tuple[str, ...]]) -> bool:
        """Whether a text says nothing, or what was said by those chosen."""
        if not shingles:
            return not text.strip()
        return len(shingles - self._seen) <= (1 - SEEN_SHARE) * len(shingles)

    def _read(self, key: int) -> str:
        """The text of a document. Texts are asked for in order of rank, many at once."""
        if key not in self._texts:
            keys = [key, *islice((one for one in self._unread if one != key), READ_TOGETHER - 1)]
            read = self._index.texts(keys)
            self._texts.update((each, read.get(each, "")[:MAX_TEXT_CHARS]) for each in keys)
        return self._texts[key]

    def _find_neighbours(
        self, chosen: Sequence[_Choice], ranked: Sequence[ScoredDocument]
    ) -> list[_Choice]:
        """The messages right before and after hits that say nearly as much with them."""
        beside = {choice.document.place + step for choice in chosen for step in (-1, 1)}
        at = {
            (each.document.session, each.document.place): each
            for each in ranked
            if each.document.place in beside
        }
        taken = {choice.document.key for choice in chosen}
        found: list[_Choice] = []
        for choice in chosen:
            document = choice.document
            for place in (document.place - 1, document.place + 1):
                other = at.get((document.session, place))
                if other is None or other.document.key in taken:
                    continue
                if (
                    other.score >= NEIGHBOUR_SCORE_SHARE * choice.scored.score
                    and other.document.tokens <= MAX_NEIGHBOUR_TOKENS
                    and not self._is_hit(other)
                ):
                    taken.add(other.document.key)
                    found.append(_Choice(other, other.document.tokens, (0, 0), True))
        return found

    def _gather(self, chosen: Sequence[_Choice]) -> list[Match]:
        """Matches with their neighbours: what is no hit goes with the hit that is next to it."""
        line = sorted(chosen, key=lambda each: (each.document.session, each.document.place))
        are_hits = [self._is_hit(each.scored) for each in line]
        groups: dict[int, list[_Choice]] = {}
        for choice, home in zip(line, _find_homes(line, are_hits), strict=True):
            if are_hits[home] or self._room.limit is None:
                groups.setdefault(home, []).append(choice)
        matches = [self._make_match(line[home], group) for home, group in groups.items()]
        ranks = {line[home].document.key: line[home].scored.rank for home in groups}
        return sorted(matches, key=lambda match: ranks[match.key])

    def _make_match(self, home: _Choice, group: Sequence[_Choice]) -> Match:
        place = home.document.place
        others = [each for each in group if each is not home]
        return Match(
            home.document.key,
            home.scored.score,
            self._explain(home.scored),
            tuple(each.document.key for each in others if each.document.place < place),
            tuple(each.document.key for each in others if each.document.place > place),
            home.passage,
            home.is_whole,
            sum(each.tokens for each in group),
        )

    def _explain(self, scored: ScoredDocument) -> str:
        """Why a document was chosen, for people."""
        question = self._question
        reasons = []
        words = [question.words[term] for term in self._weights if term in scored.document.counts]
        if words:
            reasons.append("says " + ", ".join(words))
        if question.phrases:
            reasons.append("has what is in quotes")
        if scored.document.author in question.speakers:
            reasons.append(f"by {scored.document.author}")
        if scored.time >= 1:
            reasons.append("from the time in question")
        if scored.meaning >= NEAR_MEANING:
            reasons.append("near in meaning")
        if not self._is_hit(scored):
            reasons.append("near messages that match")
        return "; ".join(reasons)


def _find_homes(line: Sequence[_Choice], are_hits: Sequence[bool]) -> list[int]:
    """For each choice the number of the hit that it goes with: itself, or the nearest hit in its
    session; of two as near, the one before it. Without one near enough, itself.
    """
    homes = list(range(len(line)))
    distance = [0 if is_hit else MAX_NEIGHBOUR_DISTANCE + 1 for is_hit in are_hits]
    forward = range(1, len(line))
    backward = range(len(line) - 2, -1, -1)
    for numbers, step in ((forward, -1), (backward, 1)):
        for n in numbers:
            other = n + step
            if line[other].document.session != line[n].document.session:
                continue
            gap = abs(line[other].document.place - line[n].document.place)
            if distance[other] + gap < distance[n]:
                distance[n], homes[n] = distance[other] + gap, homes[other]
    return homes


def _shingles(text: str) -> set[tuple[str, ...]]:
    """The runs of a few terms in a text; of a shorter one, all of it."""
    terms = split_terms(text)
    if len(terms) > SHINGLE_TERMS:
        return set(zip(*(terms[n:] for n in range(SHINGLE_TERMS)), strict=False))
    return {tuple(terms)} if terms else set()
