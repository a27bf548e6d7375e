"""Which skills a request asks for: those that it names, then those whose description says what the
request says.

Words are compared without their endings. A word counts for more in the name of a skill, and less
the more skills have it. Words that nearly every request has count for little. Unrelated requests
must match nothing, so one word is not enough, and a long request has to say more.
"""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from math import log, log2

from msgspec import Struct

from loom.conversation.words import find_term_spans, split_terms
from loom.project.skills.folders import Skill
from loom.recall.question import FUNCTION_WORDS

MAX_REQUEST_CHARS = 4000
MAX_SKILL_CHARS = 3000  # of a description and of when to use it, together
MIN_SCORE = 2.0
NAME_WEIGHT, WHOLE_NAME_SCORE = 1.5, 0.75
COMMON_WEIGHT = 0.25
USUAL_TERMS = 16  # of a request; a longer one needs a higher score
SCORE_PER_DOUBLING = 0.5
MIN_TERMS = 2
MAX_SHOWN_WORDS = 4
# words of requests of every kind, and of every description
COMMON_WORDS = frozenset(
    split_terms(
        """able add after again all always app application ask automatically available before best
        better bug build call change check class clean code come complete correct create current
        data different do document edit ensure error every example existing explain feature file
        find first fix folder follow function generate get give go good guide handle help
        implement improve include information input instruction keep kind know last let like line
        list long look make mention method mode multiple name necessary need new next note now old
        open output part path please possible problem process program project proper provide put
        question quick read really remove repo repository request result right run same save say
        see several set should show simple skill small something start step still support sure
        system take task tell text thing think time tool try turn two type update use useful user
        using value want way well whenever work write wrong yes"""
    )
)
_PLURAL_CAPITALS = re.compile(r"\b([A-Z]{2,})s\b")
_BEFORE_NAME = re.compile(r"(?:^|[\s(\"'`])[/$@]$")


class SkillMatch(Struct, frozen=True):
    """A skill that a request asks for, how clearly, and why."""

    skill: Skill
    score: float
    why: str
    is_named: bool = False


def match_skills(skills: Sequence[Skill], request: str) -> list[SkillMatch]:
    """The skills that a request asks for: those that it names in its order, then others, the
    clearest first.
    """
    request = request[:MAX_REQUEST_CHARS]
    named = _find_named(skills, request)
    others = [skill for skill in skills if skill not in named and not skill.is_manual]
    found = [SkillMatch(skill, 1.0, "the request names it", True) for skill in named]
    plain = _make_singular(request)
    words = {term: plain[start:stop] for start, stop, term in find_term_spans(plain)}
    asked = words.keys() - FUNCTION_WORDS
    if not asked or not others:
        return found
    terms = [_SkillTerms(skill) for skill in skills]
    rarity = _measure_rarity([each.all for each in terms])
    needed = MIN_SCORE + SCORE_PER_DOUBLING * log2(max(len(asked) / USUAL_TERMS, 1.0))
    scored = []
    for each in terms:
        score, terms_said = each.score(asked, rarity)
        if each.skill in others and score >= needed and len(terms_said) >= MIN_TERMS:
            said = (words[term] for term in terms_said[:MAX_SHOWN_WORDS])
            why = f"the request says {', '.join(dict.fromkeys(said))}"
            scored.append(SkillMatch(each.skill, round(score, 6), why))
    return found + sorted(scored, key=lambda match: (-match.score, match.skill.name))


class _SkillTerms:
    """The terms of a skill: of its name, and of what is said of it."""

    def __init__(self, skill: Skill) -> None:
        self.skill = skill
        self.name = frozenset(_split_name(skill.name)) - FUNCTION_WORDS
        about = f"{skill.description}\n{skill.when_to_use}"[:MAX_SKILL_CHARS]
        self.about = frozenset(split_terms(_make_singular(about))) - FUNCTION_WORDS
        self.all = self.name | self.about

    def score(self, asked: AbstractSet[str], rarity: dict[str, float]) -> tuple[float, list[str]]:
        """How much a request says of a skill, and by which terms, the rarest first."""
        weights: dict[str, float] = {}
        for term in sorted(self.all & asked):
            weight = rarity[term] * (COMMON_WEIGHT if term in COMMON_WORDS else 1.0)
            weights[term] = weight * (NAME_WEIGHT if term in self.name else 1.0)
        telling = self.name - COMMON_WORDS
        score = sum(weights.values())
        if len(telling) > 1 and telling <= asked:
            score += WHOLE_NAME_SCORE
        return score, sorted(weights, key=lambda term: (-weights[term], term))


def _make_singular(text: str) -> str:
    """A text with PDF for PDFs: the plural of a word in capitals is no name of two words."""
    return _PLURAL_CAPITALS.sub(r"\1", text)


def _split_name(name: str) -> list[str]:
    return split_terms(re.sub(r"[._-]+", " ", name))


def _measure_rarity(skills: Iterable[frozenset[str]]) -> dict[str, float]:
    """How much each term tells one skill from the others, up to 1."""
    counts: dict[str, int] = {}
    many = 0
    for terms in skills:
        many += 1
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
    return {term: log(1 + many / count) / log(1 + many) for term, count in counts.items()}


def _find_named(skills: Sequence[Skill], request: str) -> list[Skill]:
    """The skills that a request names, in its order."""
    places = [(_find_name(skill.name, request), skill) for skill in skills]
    named = [(place, skill) for place, skill in places if place is not None]
    return [skill for _, skill in sorted(named, key=lambda each: (each[0], each[1].name))]


def _find_name(name: str, request: str) -> int | None:
    """Where a request names a skill. A name that is a plain word must be marked as a name: /name,
    $name, in backticks, or next to the word skill.
    """
    is_word = name.isalpha() and name.islower()
    pattern = rf"(?<![\w.-]){re.escape(name)}(?![\w-])(?!\.\w)"
    for found in re.finditer(pattern, request, re.IGNORECASE):
        before, after = request[: found.start()][-24:], request[found.end() :][:12]
        if after.startswith(("/", "\\")):  # a part of a path
            continue
        if _BEFORE_NAME.search(before) or (not is_word and not before.endswith(("/", "\\"))):
            return found.start()
        if before.endswith("`") and after.startswith("`"):
            return found.start()
        if re.match(r"[\"'`]?\s+skills?\b", after, re.IGNORECASE):
            return found.start()
        if re.search(r"\bskill[:\s]+(?:named\s+|called\s+)?[\"'`]?$", before, re.IGNORECASE):
            return found.start()
    return None
