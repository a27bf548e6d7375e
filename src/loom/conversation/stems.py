"""English words without their endings, so that *planned* finds *planning*, and *went* finds *go*.

The steps are those of Porter (1980), "An algorithm for suffix stripping", but *play* keeps its y.
A table of irregular verbs and nouns comes before them. Words of other languages are left as they
are, except where they end as an English word does.
"""

import re
from functools import lru_cache

MIN_STEMMED_CHARS = 3
_CACHED_WORDS = 1 << 16

_IRREGULAR_FORMS = {
    "be": "am are is was were been being",
    "become": "became",
    "begin": "began begun",
    "bite": "bit bitten",
    "blow": "blew blown",
    "break": "broke broken",
    "bring": "brought",
    "build": "built",
    "buy": "bought",
    "catch": "caught",
    "child": "children",
    "choose": "chose chosen",
    "come": "came",
    "deal": "dealt",
    "do": "did done does",
    "draw": "drew drawn",
    "dream": "dreamt",
    "drink": "drank drunk",
    "drive": "drove driven",
    "eat": "ate eaten",
    "fall": "fell fallen",
    "feed": "fed",
    "feel": "felt",
    "fight": "fought",
    "find": "found",
    "fly": "flew flown",
    "foot": "feet",
    "forget": "forgot forgotten",
    "forgive": "forgave forgiven",
    "freeze": "froze frozen",
    "get": "got gotten",
    "give": "gave given",
    "go": "went gone goes",
    "good": "better best",
    "grow": "grew grown",
    "half": "halves",
    "hang": "hung",
    "have": "had has",
    "hear": "heard",
    "hide": "hid hidden",
    "hold": "held",
    "keep": "kept",
    "knife": "knives",
    "know": "knew known",
    "lead": "led",
    "learn": "learnt",
    "leave": "left",
    "lend": "lent",
    "life": "lives",
    "lose": "lost",
    "make": "made",
    "man": "men",
    "mean": "meant",
    "meet": "met",
    "mouse": "mice",
    "pay": "paid",
    "person": "people",
    "ride": "rode ridden",
    "ring": "rang rung",
    "rise": "rose risen",
    "run": "ran",
    "say": "said",
    "see": "saw seen",
    "seek": "sought",
    "sell": "sold",
    "send": "sent",
    "shake": "shook shaken",
    "shoot": "shot",
    "show": "shown",
    "sing": "sang sung",
    "sink": "sank sunk",
    "sit": "sat",
    "sleep": "slept",
    "speak": "spoke spoken",
    "spend": "spent",
    "stand": "stood",
    "steal": "stole stolen",
    "stick": "stuck",
    "strike": "struck",
    "swear": "swore sworn",
    "sweep": "swept",
    "swim": "swam swum",
    "take": "took taken",
    "teach": "taught",
    "tear": "tore torn",
    "tell": "told",
    "think": "thought",
    "throw": "threw thrown",
    "tooth": "teeth",
    "understand": "understood",
    "wake": "woke woken",
    "wear": "wore worn",
    "wife": "wives",
    "win": "won",
    "woman": "women",
    "write": "wrote written",
}
_IRREGULAR = {form: word for word, forms in _IRREGULAR_FORMS.items() for form in forms.split()}

_VOWEL = re.compile("[aeiou]|(?<=[^aeiou])y")
_MEASURE = re.compile("(?:[aeiou]|(?<=[^aeiou])y)+(?:[bcdfghjklmnpqrstvwxz]|(?<![^aeiou])y)+")
_SHORT_END = re.compile("[^aeiou][aeiouy][^aeiouwxy]$")
_CONSONANT_AND_Y = re.compile("(?<=.)[^aeiouy]y$")
_DOUBLE_END = re.compile(r"([^aeioulsz])\1$")

# Endings and what replaces them. The first that fits counts.
Step = tuple[tuple[str, str], ...]
_LONG_ENDINGS: Step = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("abli", "able"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
)  # fmt: skip
_MIDDLE_ENDINGS: Step = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""),
    ("ness", ""),
)  # fmt: skip
_LAST_ENDINGS: Step = tuple(
    (ending, "")
    for ending in (
        "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous",
        "ive", "ize", "ion", "al", "er", "ic", "ou",
    )
)  # fmt: skip

_PLURAL_OR_PAST = ("s", "ed", "ing")
_ANY_LONG_ENDING, _ANY_MIDDLE_ENDING, _ANY_LAST_ENDING = (
    tuple(ending for ending, _ in step) for step in (_LONG_ENDINGS, _MIDDLE_ENDINGS, _LAST_ENDINGS)
)


@lru_cache(maxsize=_CACHED_WORDS)
def stem(word: str) -> str:
    """An English word in lower case without its ending; any other word as it is."""
    word = _IRREGULAR.get(word, word)
    if len(word) < MIN_STEMMED_CHARS or not word.isascii() or not word.isalpha():
        return word
    # Most words have none of the endings: all of a step are looked at together first.
    if word.endswith(_PLURAL_OR_PAST):
        word = _strip_past(_strip_plural(word))
    if word.endswith("y") and _CONSONANT_AND_Y.search(word):
        word = word[:-1] + "i"
    if word.endswith(_ANY_LONG_ENDING):
        word = _replace_ending(word, _LONG_ENDINGS, 0)
    if word.endswith(_ANY_MIDDLE_ENDING):
        word = _replace_ending(word, _MIDDLE_ENDINGS, 0)
    if word.endswith(_ANY_LAST_ENDING):
        word = _replace_ending(word, _LAST_ENDINGS, 1)
    return _strip_final(word)


def _strip_plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == MIN_STEMMED_CHARS + 1 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _strip_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word.removesuffix(ending)
        if rest != word and _VOWEL.search(rest):
            return _restore_end(rest)
    return word


def _restore_end(word: str) -> str:
    """What a word ended with before *-ed* or *-ing* was added."""
    if word.endswith(("at", "bl", "iz")) or (len(word) == 2 and not _VOWEL.search(word[1])):
        return word + "e"
    if len(word) > MIN_STEMMED_CHARS and _DOUBLE_END.search(word):
        return word[:-1]
    if _measure(word) == 1 and _SHORT_END.search(word):
        return word + "e"
    return word


def _replace_ending(word: str, endings: Step, measure: int) -> str:
    for ending, other in endings:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if ending == "ion" and not rest.endswith(("s", "t")):
                return word
            return rest + other if _measure(rest) > measure else word
    return word


def _strip_final(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        measure = _measure(rest)
        if len(rest) < MIN_STEMMED_CHARS:
            return word
        if measure > 1 or (measure == 1 and not _SHORT_END.search(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        return word[:-1]
    return word


def _measure(word: str) -> int:
    """How many times consonants follow vowels."""
    return len(_MEASURE.findall(word))
