"""One search: a question in, the documents that answer it out, within a budget.

1. Read the question (`question.py`): terms, exact names, phrases, speakers, times.
2. Find candidates. A small scope is read as a whole. Of a large one: the documents with its terms,
   rarest term first; those from the times that it names; those whose vectors are nearest; and the
   documents around the best.
3. Score them (`scoring.py`).
4. Choose (`choosing.py`): best first, none twice, whole or a passage, neighbours with their hit.

Every step is linear in the candidates, whose number is bounded.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.errors import ChoiceError
from loom.recall.background import embed_background
from loom.recall.choosing import Chooser, Room
from loom.recall.embedder import compare_vectors
from loom.recall.hits import Match
from loom.recall.index import MAX_TEXT_CHARS, Document, Index, Size
from loom.recall.question import Question, read_question
from loom.recall.scoring import (
    MIN_COMPARED,
    ScoredDocument,
    TermWeights,
    score_documents,
    weigh_terms,
)

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder, Vector

DEFAULT_HITS = 10  # hits, where nobody says how many, nor how many tokens
MAX_WHOLE_SCOPE = 2048  # documents of a scope that is scored as a whole
MAX_CANDIDATES = 1024  # documents of a larger scope, found by their terms
MAX_FROM_TIMES = 256  # documents found by the times that a question names
MAX_NEAREST = 128  # documents found by an index of vectors
MAX_EXPANDED = 128  # best candidates whose surroundings are candidates too
EXPANDED_PLACES = 4
MAX_CHECKED = 256  # best documents whose texts are read for exact names
NAME_WEIGHT = 1.0  # of each name that is written exactly so


class SearchRequest(Struct, frozen=True):
    """What is asked for, and of what: `excluded` are keys that must not be found. `now` is what
    *yesterday* refers to.
    """

    query: str
    room: Room = Room(limit=DEFAULT_HITS)
    excluded: Collection[int] = frozenset()
    now: int | None = None


def search(
    index: Index,
    request: SearchRequest,
    embedder: "Embedder | None" = None,
    count_tokens: Callable[[str], int] | None = None,
) -> list[Match]:
    """The documents of a scope that answer a question, best first, of equals the newer."""
    _check_room(request.room)
    question = read_question(request.query, index.authors(), request.now)
    size = index.size()
    worth = weigh_terms(question, index.frequencies(question.terms), size)
    scored = _score(index, question, size, worth, embedder)
    excluded = frozenset(request.excluded)
    ranked = [each for each in scored if each.document.key not in excluded]
    ranked = _check_exact(index, question, ranked)
    count = count_tokens or gate_counter(None).count_text
    return Chooser(index, question, worth, request.room, count).choose(ranked)


def _check_room(room: Room) -> None:
    if room.limit is not None and room.limit < 1:
        raise ChoiceError(f"the limit of a search must be at least 1, found {room.limit}")
    if room.tokens is not None and room.tokens < 1:
        raise ChoiceError(f"the tokens of a search must be at least 1, found {room.tokens}")


def _score(
    index: Index,
    question: Question,
    size: Size,
    worth: TermWeights,
    embedder: "Embedder | None",
) -> list[ScoredDocument]:
    vector = None
    if embedder is not None:
        vector = embedder.embed([question.text])[0]
    if size.documents <= MAX_WHOLE_SCOPE:
        documents = index.read(index.find_newest(MAX_WHOLE_SCOPE), worth.terms)
    else:
        keys = _find_candidates(index, question, worth)
        if embedder is not None and vector is not None:
            keys = _join(keys, index.find_nearest(vector, embedder.name, MAX_NEAREST))
        documents = _read_with_surroundings(index, keys, question, worth)
    similarities: Mapping[int, float] = {}
    usual: Sequence[float] = ()
    if embedder is not None and vector is not None:
        vectors = index.vectors([each.key for each in documents], embedder.name)
        similarities = _compare(vectors, vector)
        if 0 < len(similarities) < MIN_COMPARED:
            usual = (embed_background(embedder) @ vector).tolist()
    return score_documents(documents, question, worth, similarities, usual)


def _compare(vectors: "Mapping[int, Vector]", vector: "Vector") -> Mapping[int, float]:
    """How near each of these is to a vector."""
    if not vectors:
        return {}
    scores = compare_vectors(list(vectors.values()), vector)
    return dict(zip(vectors, scores.tolist(), strict=True))


def _find_candidates(index: Index, question: Question, worth: TermWeights) -> list[int]:
    """The documents with the terms of a question, rarest first, up to a number; of each term the
    newest.
    """
    by_rarity = sorted(
        zip(worth.weights, worth.terms, strict=True), key=lambda each: (-each[0], each[1])
    )
    keys: dict[int, None] = {}
    for _, term in by_rarity:
        room = MAX_CANDIDATES - len(keys)
        if room <= 0:
            break
        keys.update(dict.fromkeys(index.find_holding(term, room)))
    for time in question.times:
        keys.update(dict.fromkeys(index.find_between(time.start, time.stop, MAX_FROM_TIMES)))
    if not keys or (question.phrases and not worth.terms):
        keys.update(dict.fromkeys(index.find_newest(MAX_CANDIDATES)))
    return list(keys)


def _read_with_surroundings(
    index: Index, keys: Sequence[int], question: Question, worth: TermWeights
) -> list[Document]:
    """The candidates, and what is around the best of them."""
    candidates = index.read(keys, worth.terms)
    first = score_documents(candidates, question, worth, {})
    best = [each.document.key for each in first[:MAX_EXPANDED]]
    around = index.find_near(best, EXPANDED_PLACES)
    known = set(keys)
    added = dict.fromkeys(key for each in best for key in around.get(each, ()) if key not in known)
    return [*candidates, *index.read(list(added), worth.terms)]


def _join(keys: Iterable[int], more: Iterable[int]) -> list[int]:
    return list(dict.fromkeys((*keys, *more)))


def _check_exact(
    index: Index, question: Question, ranked: Sequence[ScoredDocument]
) -> list[ScoredDocument]:
    """The ranking after a look at the texts: what lacks a phrase is dropped, and what has a name as
    it is written comes forward.
    """
    if not question.phrases and not question.names:
        return list(ranked)
    checked = len(ranked) if question.phrases else MAX_CHECKED
    texts = index.texts([each.document.key for each in ranked[:checked]])
    found: list[ScoredDocument] = []
    for each in ranked[:checked]:
        text = texts.get(each.document.key, "")[:MAX_TEXT_CHARS]
        if not all(phrase in text for phrase in question.phrases):
            continue
        exact = sum(pattern.search(text) is not None for pattern in question.names)
        found.append(_raise_score(each, NAME_WEIGHT * exact / max(len(question.names), 1)))
    return sorted(found, key=lambda each: each.rank) + list(ranked[checked:])


def _raise_score(scored: ScoredDocument, amount: float) -> ScoredDocument:
    if not amount:
        return scored
    return ScoredDocument(
        scored.document,
        round(scored.score + amount, 4),
        scored.own + amount,
        scored.time,
        scored.meaning,
    )
