"""How important a message or a note is: by its kind and its author, less with age, more with use.

An importance is from 0 to 1. What is used is as young as its last use. Of two things of equal
importance the newer comes first. Forgetting changes the rank only; nothing is removed.
"""

import re
from collections.abc import Collection, Mapping
from math import log2

from loom.conversation.message import Message, Reasoning
from loom.conversation.words import split_terms

_HOUR_MS = 3_600_000
MESSAGE_HALF_LIFE_MS = 7 * 24 * _HOUR_MS
NOTE_HALF_LIFE_MS = 90 * 24 * _HOUR_MS
USE_WEIGHT = 0.25  # that each doubling of the uses adds
MAX_USE_FACTOR = 2.0
PIN_USES = 7  # that a pin counts for

ERROR, PLANNING, TOOL_RESULT, TOOL_CALL = 0.9, 0.8, 0.75, 0.7
EXECUTE, ANSWER, THINKING, OTHER = 0.65, 0.6, 0.55, 0.5
OF_USER = 0.2  # that is added to what a user asks for
SAYS_NOTHING = 0.3  # of an echo, and of what only agrees
FACT, NOTE, OF_USER_NOTE = 0.8, 0.7, 0.1
_MAX_PLAIN_CHARS = 24  # of what only agrees
_LOOKED_AT_CHARS = 4000
_COUNTED_TERMS = 8  # heaviest terms of a note: a long one need not be asked for as a whole
_PLAN_WORDS = (
    *("plan", "step", "steps", "approach", "decide", "decided", "decision", "agreed", "conclude"),
    *("conclusion", "instead of", "we will", "i will", "i'll", "let's", "going to", "todo"),
)
_PLAN = re.compile(rf"\b(?:{'|'.join(_PLAN_WORDS)})\b")
_AGREES = frozenset(
    split_terms(
        """ok okay yes no yep nope sure thanks thank you go ahead do it continue on please next
        great good fine nice done stop hi hello hey right correct ja nein oui non si 是 好的 继续"""
    )
)


def base_importance(message: Message, is_echo: bool, metadata: Mapping[str, object]) -> float:
    """The importance of a message by its kind and its author alone.

    `importance` in its metadata, a number from 0 to 1, says it otherwise.
    """
    given = metadata.get("importance")
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
        return float(given)
    if is_echo:
        return SAYS_NOTHING
    if any(result.error for result in message.results):
        return ERROR
    match message.role:
        case "user":
            return SAYS_NOTHING if only_agrees(message.text) else round(EXECUTE + OF_USER, 4)
        case "tool":
            return TOOL_RESULT
        case "assistant":
            return _importance_of_answer(message)
        case _:
            return OTHER


def _importance_of_answer(message: Message) -> float:
    text = message.text[:_LOOKED_AT_CHARS].lower()
    if any(word in text for word in _PLAN_WORDS) and _PLAN.search(text):
        return PLANNING
    if message.calls:
        return TOOL_CALL
    if message.parts and all(isinstance(part, Reasoning) for part in message.parts):
        return THINKING
    return SAYS_NOTHING if only_agrees(text) else ANSWER


def only_agrees(text: str) -> bool:
    """Whether a text is no more than a nod, such as "ok, go ahead"."""
    if len(text) > _MAX_PLAIN_CHARS:
        return False
    return all(term in _AGREES for term in split_terms(text))


def note_importance(kind: str, by: str) -> float:
    """The importance of a note by its kind and its author alone."""
    base = FACT if kind == "fact" else NOTE
    return round(base + OF_USER_NOTE, 4) if by == "user" else base


def use_factor(uses: int) -> float:
    """What uses multiply an importance by."""
    return min(1 + USE_WEIGHT * log2(1 + uses), MAX_USE_FACTOR)


def current_importance(
    base: float, age_ms: int, uses: int = 0, half_life_ms: int = MESSAGE_HALF_LIFE_MS
) -> float:
    """An importance now. `age_ms` is the time since it was said or last used."""
    decayed = base * use_factor(uses) * 2 ** (-max(age_ms, 0) / half_life_ms)
    return round(min(decayed, 1.0), 4)


def rank_value(
    base: float, moment_ms: int, uses: int = 0, half_life_ms: int = MESSAGE_HALF_LIFE_MS
) -> float:
    """A number by which things are ranked, the greater first, whatever time it is.

    It is the logarithm of the importance, so that very old things are still told apart. `moment_ms`
    is when it was said or last used.
    """
    return round(log2(max(base, 1e-6) * use_factor(uses)) + moment_ms / half_life_ms, 6)


def score_note(
    terms: Collection[str],
    holding: Mapping[str, Collection[int]],
    notes: int,
    asked: Collection[str] = (),
    counts: Mapping[str, int] = {},
) -> float:
    """How much a note matters to a question, from 0 to 1: how much of what it says is asked for, or
    half of how much of what is `asked` it says. A short question has few words of a long note.

    `holding` has the terms of the question that notes have, with the notes that have each. `notes`
    is how many there are. `counts` says how many notes have a term of which not all are held.
    """
    if not terms:
        return 0.0

    def weigh(term: str) -> float:
        return _weigh(counts.get(term, len(holding.get(term, ()))), notes)

    weights = {term: weigh(term) for term in terms}
    found = sum(weights[term] for term in terms if term in holding)
    heaviest = sorted(weights.values(), reverse=True)[:_COUNTED_TERMS]
    score = min(found / sum(heaviest), 1.0)
    if asked:
        wanted = sum(map(weigh, asked))
        score = max(score, found / wanted / 2)
    return round(score, 4)


def score_match(
    terms: Collection[str], asked: Collection[str], counts: Mapping[str, int], notes: int
) -> float:
    """How much of what is asked a text with these terms says, from 0 to 1: the rarer a term, the
    more. `counts` says how many texts have each term, and `notes` how many there are.
    """
    weights = {term: _weigh(counts.get(term, 0), notes) for term in asked}
    if not weights:
        return 0.0
    found = sum(weight for term, weight in weights.items() if term in terms)
    return round(found / sum(weights.values()), 4)


def choose_candidates(
    holding: Mapping[str, Collection[int]],
    notes: int,
    limit: int,
    counts: Mapping[str, int] = {},
) -> list[int]:
    """The notes that have the most of a question's terms, weighed by how rare these are; of equals
    the newer, which has the greater key. `counts` says how many notes have a term of which not all
    are held.
    """
    found: dict[int, float] = {}
    for term in sorted(holding):
        weight = _weigh(counts.get(term, len(holding[term])), notes)
        for key in holding[term]:
            found[key] = found.get(key, 0.0) + weight
    ranked = sorted(((round(weight, 4), key) for key, weight in found.items()), reverse=True)
    return [key for _, key in ranked[:limit]]


def _weigh(count: int, notes: int) -> float:
    """What a term is worth: the rarer, the more. One that no question has counts as one that is in
    a few notes.
    """
    return log2(1 + (notes + 1) / (max(count, 1) + 0.5))
