"""How much each document says of a question.

A score is a sum. All parts are on one scale: a document of usual length that says each term of the
question once has 1.

| part | what it is |
|---|---|
| own | BM25 of the terms; a term's weight is the square of its rarity, a share of all weights |
| alone | the square of the weights of its terms: a document that has all needs no others |
| near | what the documents around it say and mean, falling with each place |
| together | the best that it or those around it say of each term: two may answer a question |
| speaker | it was said by someone whom the question names |
| time | it was created when the question says, or a little before or after |
| meaning | how much nearer in meaning it is than the others, by the embedder |
| fullness | longer documents say more, up to a limit |

A question may be made of several, and may name several speakers. Each of these parts has room: its
best documents come right after the best of all.

The weights are round numbers, found by trying on the five conversations of `bench/evidence.py`. Its
figures for these five are therefore not a test; other data is (`--others`, or another FILE).
"""

from collections.abc import Mapping, Sequence
from math import log

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.recall.index import Document, Size
from loom.recall.question import Question
from loom.recall.times import DAY_MS, TimeSpan

# of BM25: how soon saying it again adds nothing, and how much a long message is held to its length
SATURATION, LENGTH = 1.2, 0.75
PLACE_DECAY = 0.8  # what is left of what a document says, one place further
MAX_DISTANCE = 12  # places within which documents help each other
ALONE_WEIGHT, NEAR_WEIGHT, TOGETHER_WEIGHT = 0.5, 0.4, 0.5
SPEAKER_WEIGHT = 0.4
TIME_WEIGHT, HALF_TIME_DAYS = 0.6, 7
MEANING_WEIGHT, MEANING_SCALE = 0.7, 6.0  # the scale is in standard deviations
MIN_COMPARED = 32  # documents; of fewer the spread of their similarities says little
NEAR_MEANING_SHARE = 0.5  # of what a document means that counts for those around it
FULLNESS_WEIGHT = 0.2
PART_ROOM = 2  # documents that each part of a question has room for
PART_GAP = 0.001  # the best of all comes before the best of a part
ECHO_WEIGHT = 0.1  # what is left of the score of a document that only repeats others
ROUNDED_DIGITS = 4

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class ScoredDocument(Struct, frozen=True, gc=False):
    """A document with its score, and the parts of it that make a reason."""

    document: Document
    score: float
    own: float
    time: float
    meaning: float

    @property
    def rank(self) -> tuple[float, int, int]:
        """What orders documents: the greater score, then the newer."""
        return (-self.score, -self.document.created, -self.document.key)


class TermWeights(Struct, frozen=True):
    """What each term of a question is worth in a scope; together they are worth 1."""

    terms: tuple[str, ...]
    weights: tuple[float, ...]
    usual_length: float

    @property
    def pairs(self) -> list[tuple[float, str]]:
        return list(zip(self.weights, self.terms, strict=True))


def weigh_terms(question: Question, frequencies: Mapping[str, int], size: Size) -> TermWeights:
    """The rarer a term, the more it is worth. What is nowhere is worth nothing."""
    terms = tuple(term for term in question.terms if frequencies.get(term))
    squares = [_rarity(frequencies[term], size.documents) ** 2 for term in terms]
    total = sum(squares)
    return TermWeights(
        terms,
        tuple(square / total for square in squares),
        max(size.length / max(size.documents, 1), 1.0),
    )


def _rarity(frequency: int, documents: int) -> float:
    frequency = min(frequency, documents)
    return log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def score_documents(
    documents: Sequence[Document],
    question: Question,
    worth: TermWeights,
    similarities: Mapping[int, float],
    usual: Sequence[float] = (),
) -> list[ScoredDocument]:
    """Score documents, best first; of equals, the newer first.

    `similarities` are those of the embedder by key; a document without one is taken as usual.
    Those of texts that have nothing to do with the question are `usual`; they count if there are
    few documents.
    """
    if not documents:
        return []
    documents = _sort_by_place(documents)
    lengths = np.array([each.length for each in documents], dtype=np.float64)
    said = _measure_terms(documents, worth, lengths)
    meaning = _measure_meaning(documents, similarities, usual)
    time = _measure_times(documents, question.times)
    around = _Surroundings(documents)
    weights = np.array(worth.weights)
    own = weights @ said
    other = (
        SPEAKER_WEIGHT * np.array([each.author in question.speakers for each in documents])
        + TIME_WEIGHT * time
        + MEANING_WEIGHT * meaning
        + FULLNESS_WEIGHT * (lengths / (lengths + worth.usual_length))
    )
    meant = NEAR_MEANING_SHARE * MEANING_WEIGHT * meaning
    score = around.measure(weights, said, meant) + other
    best = _find_best_by_speaker(documents, question, score)
    for part in question.parts:
        if (shares := _shares_of_part(worth, part)) is not None:
            best.append(_best(around.measure(shares, said, meant) + other))
    if best:
        places = np.concatenate(best)
        score[places] = np.maximum(score[places], score.max() - PART_GAP)
    score = score * np.where([each.echo for each in documents], ECHO_WEIGHT, 1.0)
    score = np.round(score, ROUNDED_DIGITS)
    keys = np.array([each.key for each in documents])
    created = np.array([each.created for each in documents])
    order = np.lexsort((-keys, -created, -score))  # as `ScoredDocument.rank` has it
    columns = (score[order], own[order], time[order], meaning[order])
    ranked = [documents[place] for place in order.tolist()]
    return list(map(ScoredDocument, ranked, *(column.tolist() for column in columns)))


def _sort_by_place(documents: Sequence[Document]) -> list[Document]:
    """Documents in order of session, place and key."""
    numbers = {
        name: number for number, name in enumerate(sorted({each.session for each in documents}))
    }
    order = np.lexsort(
        (
            [each.key for each in documents],
            [each.place for each in documents],
            [numbers[each.session] for each in documents],
        )
    )
    return [documents[place] for place in order.tolist()]


def _measure_terms(documents: Sequence[Document], worth: TermWeights, lengths: Floats) -> Floats:
    """How much each document says of each term: a row for each term."""
    counts = np.zeros((len(worth.terms), len(documents)))
    starts = {term: row * len(documents) for row, term in enumerate(worth.terms)}
    places = [
        starts[term] + column
        for column, document in enumerate(documents)
        for term in document.counts
        if term in starts
    ]
    values = [
        often for document in documents for term, often in document.counts.items() if term in starts
    ]
    np.put(counts, places, values)
    held = SATURATION * (1 - LENGTH + LENGTH * lengths / worth.usual_length)
    said: Floats = counts * (SATURATION + 1) / (counts + held)
    return said


class _Surroundings:
    """Who is around whom among documents in the order of their sessions and places."""

    def __init__(self, documents: Sequence[Document]) -> None:
        numbers: dict[str, int] = {}
        sessions = np.array([numbers.setdefault(each.session, len(numbers)) for each in documents])
        places = np.array([each.place for each in documents])
        # what of a document is left so many documents further on, by their number
        self._shares: list[Floats] = []
        for step in range(1, min(MAX_DISTANCE, len(documents) - 1) + 1):
            gaps = np.clip(places[step:] - places[:-step], 0, 10 * MAX_DISTANCE)
            together = sessions[step:] == sessions[:-step]
            self._shares.append(np.where(together, PLACE_DECAY**gaps, 0.0))

    def measure(self, weights: Floats, said: Floats, meant: Floats) -> Floats:
        """What documents say of terms with these weights, alone and with those around them.

        `meant` is what counts of their meaning for others.
        """
        own = weights @ said
        heard = own + meant
        near, together = np.zeros_like(own), said.copy()
        for step, share in enumerate(self._shares, 1):
            near[step:] += share * heard[:-step]
            near[:-step] += share * heard[step:]
            np.maximum(together[:, step:], share * said[:, :-step], out=together[:, step:])
            np.maximum(together[:, :-step], share * said[:, step:], out=together[:, :-step])
        measured: Floats = (
            own
            + ALONE_WEIGHT * (weights @ (said > 0)) ** 2
            + NEAR_WEIGHT * near
            + TOGETHER_WEIGHT * (weights @ together)
        )
        return measured


def _shares_of_part(worth: TermWeights, part: Sequence[str]) -> Floats | None:
    """The weights of the terms of a part, together 1; None if nothing says any of them."""
    weights = np.array(
        [weight if term in part else 0.0 for weight, term in worth.pairs], dtype=np.float64
    )
    total = float(weights.sum())
    if total <= 0:
        return None
    shares: Floats = weights / total
    return shares


def _find_best_by_speaker(
    documents: Sequence[Document], question: Question, score: Floats
) -> list[Numbers]:
    """The best documents of each speaker, if a question names several."""
    if len(question.speakers) < 2:
        return []
    by = {name: np.array([each.author == name for each in documents]) for name in question.speakers}
    return [_best(np.where(are_theirs, score, -np.inf)) for are_theirs in by.values()]


def _best(score: Floats) -> Numbers:
    """The places of the few highest scores, the first of equals first."""
    places: Numbers = np.argsort(-np.round(score, ROUNDED_DIGITS), kind="stable")[:PART_ROOM]
    chosen: Numbers = places[np.isfinite(score[places])]
    return chosen


def _measure_times(documents: Sequence[Document], times: Sequence[TimeSpan]) -> Floats:
    """1 if a document was created in a time that the question names; less before and after it."""
    inside = np.zeros(len(documents))
    if not times:
        return inside
    created = np.array([each.created for each in documents], dtype=np.float64)
    for time in times:
        away = np.maximum(np.maximum(time.start - created, created - time.stop), 0.0)
        half = HALF_TIME_DAYS * DAY_MS + (time.stop - time.start) / 4
        inside = np.maximum(inside, 0.5 ** (away / half))
    return inside


def _measure_meaning(
    documents: Sequence[Document], similarities: Mapping[int, float], usual: Sequence[float]
) -> Floats:
    """How many standard deviations a document is nearer than the mean, on the scale of scores."""
    if not similarities:
        return np.zeros(len(documents))
    known = np.array([similarities.get(each.key, np.nan) for each in documents])
    compared = known
    if len(similarities) < MIN_COMPARED:
        compared = np.concatenate((known, np.array(usual, dtype=np.float64)))
    mean, deviation = float(np.nanmean(compared)), float(np.nanstd(compared))
    if not deviation > 1e-6:
        return np.zeros(len(documents))
    measured: Floats = np.nan_to_num((known - mean) / deviation / MEANING_SCALE)
    return measured
