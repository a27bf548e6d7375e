"""Estimate how many tokens a text has, without a vocabulary, for models whose tokenizer is not to
be had.

Tokenizers first split text into pieces (a word with the sign before it, up to three digits, a run
of signs, a run of blanks) and then cut rare pieces further. The split is the same everywhere and is
made here exactly; only the further cuts are guessed, from the letters of the piece and its script.
The result leans a few percent high, because too low costs a failed request.
"""

import re
from bisect import bisect_right
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil

from loom.budget import letters

# What the guess is raised by, so that a kind of text it knows less well still comes out high rather
# than low.
MARGIN_FACTOR = 1.04

_LOWER = "a-zß-öø-ɏḀ-ỿ\u0300-\u036f"
_UPPER = "A-ZÀ-ÖØ-Þ"
_CASED = "\u0370-\u052f"
_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"
_HANGUL = "\uac00-\ud7a3\u1100-\u11ff\u3130-\u318f"
# The joiners belong to the words of Arabic and Indian scripts.
_OTHER = "\u0530-\u1dff\u200c\u200d\ua000-\ua97f\ua9e0-\uabff\ufb1d-\ufdff\ufe70-\ufefc"


def _pieces(lower: str, upper: str, others: tuple[str, ...]) -> re.Pattern[str]:
    # Runs are bounded so that a megabyte without a blank is many small pieces, each worth
    # remembering, and not one. The branches begin with a set of characters each, which lets the
    # matcher skip the wrong ones at the first character.
    taken = "".join(("0-9", lower, upper, *others))
    word = f"[{lower}]{{1,32}}+|[{upper}]{{1,32}}+[{lower}]{{0,32}}+" + "".join(
        f"|[{script}]{{1,32}}+" for script in others
    )
    return re.compile(
        f"{word}|[0-9]{{1,3}}+|[^\r\n{taken}](?:{word})"
        f"| ?[^\\s{taken}]{{1,64}}+[\r\n/]*+"
        r"|\s*[\r\n]++|\s+(?!\S)|\s+"
    )


_ASCII_PIECES = _pieces("a-z", "A-Z", ())


# Sets of letters this large take many milliseconds to compile, so that is left to the first use.
@cache
def _wide_pieces() -> re.Pattern[str]:
    return _pieces(_LOWER, _UPPER, (_CASED, _HAN, _KANA, _HANGUL, _OTHER))


@cache
def _wide_letter() -> re.Pattern[str]:
    return re.compile(f"[{_LOWER}{_UPPER}{_CASED}{_HAN}{_KANA}{_HANGUL}{_OTHER}]")


# Random data in letters (base64, keys, signatures) has no words, so its pieces fall apart more than
# their letters suggest, and one stretch of it is like the next.
_LONG_RUN = re.compile(r"[A-Za-z0-9+/_-]{24,}+")
_RANDOM_TOKENS_PER_CHARACTER = 0.09
_SAMPLE = 2048

_RARE_CYRILLIC = re.compile(letters.CYRILLIC_REST)
_TRADITIONAL = re.compile(letters.TRADITIONAL)
# What a run of signs is made of: an escaped quote, or one sign and its repetitions.
_SEGMENTS = re.compile(r'(?:\\["n])+|(.)\1*', re.DOTALL)
_JSON_SIGNS = frozenset('"\\{}[]:,')
_MARKUP_SIGNS = frozenset("`|*#<>")
_BLOCK_STARTS = [start for start, _, _ in letters.BLOCKS]


class _Accents(dict[int, str]):
    """Folds each letter beyond a to z into the one that stands for its block in the table of
    cuts.
    """

    def __missing__(self, code: int) -> str:
        if code < 0x80:
            fold = chr(code)
        elif code < 0x100:
            fold = "\x01"
        elif code < 0x300:
            fold = "\x02"
        else:
            fold = "\x03"
        self[code] = fold
        return fold


_ACCENTS = _Accents()


def estimate_tokens(text: str) -> int:
    """About as many tokens as o200k would count, rather a few percent more than fewer; linear in
    the length of the text.
    """
    tokens = 0.0

    def set_aside(match: re.Match[str]) -> str:
        nonlocal tokens
        run = match.group()
        sample = run[:_SAMPLE]
        if sample in (sample.lower(), sample.upper()):
            return run
        pieces = _ASCII_PIECES.findall(sample)
        if len(sample) > 3 * len(pieces):
            return run
        tokens += len(run) * (
            sum(map(_piece_tokens, pieces)) / len(sample) + _RANDOM_TOKENS_PER_CHARACTER
        )
        return ""

    rest = _LONG_RUN.sub(set_aside, text)
    if rest.isascii():
        plain, wide = rest, ""
    else:
        lines = rest.splitlines(keepends=True)
        plain = "".join(filter(str.isascii, lines))
        wide = "".join([line for line in lines if not line.isascii()])
    tokens += sum(map(_piece_tokens, _ASCII_PIECES.findall(plain)))
    if wide:
        tokens += sum(map(_piece_tokens, _wide_pieces().findall(wide)))
    return ceil(tokens * MARGIN_FACTOR)


def forget_pieces() -> None:
    """Let go of the pieces of words that were estimated last."""
    _piece_tokens.cache_clear()


@lru_cache(maxsize=65_536)
def _piece_tokens(piece: str) -> float:
    first, last = piece[0], piece[-1]
    if last.isdecimal() and last.isascii():
        return 1.0
    if not _is_letter(last):
        if piece.isspace():
            return 1.0 + len(piece) // 80
        # A fence of code is one token and never one with what follows it, not even the end of its
        # line.
        fence = 0.0
        if "```" in piece and piece.strip(" ") != "```":
            fence = 0.9
        return fence + _sign_tokens(piece.strip(" \r\n"))
    if _is_letter(first):
        return _word_tokens("", piece)
    if first == "\\" and piece[1] in "nrtu":
        # An escape in quoted text is a token of its own, and the word behind it stands bare.
        return 1.0 + (_word_tokens("", piece[2:]) if len(piece) > 2 else 0.0)
    return _word_tokens(first, piece[1:])


def _is_letter(character: str) -> bool:
    if character.isascii():
        return character.isalpha()
    return _wide_letter().match(character) is not None


def _word_tokens(lead: str, word: str) -> float:
    if word[-1] >= "\u0370" and not "\u1e00" <= word[-1] < "\u1f00":
        # A sign before a word of these scripts is often one with the first letters.
        return _run_tokens(word) + (0.0 if lead in " " else 0.5 * _sign_tokens(lead))
    lower = word.lower()
    capitals = len(word) > 1 and word.isupper()
    common = len(word) == 1 or lower in _common_words()
    tokens = 1.0 if lead in " " else 1.0 + _glue_tokens(lead, common)
    if capitals:
        if common:
            readiness = letters.COMMON_CAPITALS
        else:
            readiness = letters.CAPITALS
    elif common:
        return tokens
    else:
        readiness = letters.AFTER_SIGN if lead else letters.BARE
    if not lower.isascii():
        lower = lower.translate(_ACCENTS)
        tokens += letters.RARE_ACCENT_TOKENS * lower.count("\x02")
    return (
        tokens
        + sum(map(letters.CUTS.__getitem__, pairwise(lower))) * readiness[min(len(word), 12) - 2]
    )


def _glue_tokens(lead: str, common: bool) -> float:
    if not lead.isascii() and lead not in letters.LEADS:
        return _sign_tokens(lead)
    before_common, before_other = letters.LEADS.get(lead, letters.OTHER_LEAD)
    if common:
        return before_common
    return before_other


def _run_tokens(word: str) -> float:
    """A run of one script other than Latin."""
    start, per_run, per_character = letters.BLOCKS[bisect_right(_BLOCK_STARTS, ord(word[-1])) - 1]
    tokens = per_run + per_character * len(word)
    if start == 0x0400 and _RARE_CYRILLIC.search(word):
        tokens += letters.CYRILLIC_REST_TOKENS
    elif start == 0x4E00:
        tokens += letters.TRADITIONAL_TOKENS * len(_TRADITIONAL.findall(word))
    return max(1.0, tokens)


def _sign_tokens(signs: str) -> float:
    """A run of signs: one token where it is short or repeats itself, more the more it changes."""
    segments = [match.group() for match in _SEGMENTS.finditer(signs)]
    if signs.isascii():
        if _JSON_SIGNS.issuperset(signs):
            # So much training text is JSON that its usual runs are whole.
            return 1.0 + 0.45 * max(0, len(segments) - 3) + len(signs) // 40
        markup = 0.0
        if len(segments) > 1 and not _MARKUP_SIGNS.isdisjoint(signs):
            markup = 0.2
        return 1.0 + markup + 0.6 * max(0, len(segments) - 2) + len(signs) // 40
    tokens = 0.0
    for segment in segments:
        _, per_run, per_character = letters.BLOCKS[
            max(0, bisect_right(_BLOCK_STARTS, ord(segment[0])) - 1)
        ]
        # Drawn lines and dotted leaders repeat one sign, and vocabularies have long pieces of
        # those.
        repeats = len(segment) if per_character > 1.5 else 1 + (len(segment) - 1) / 4
        tokens += per_run + (0.6 if segment[0] < "\x80" else per_character) * repeats
    return max(1.0, tokens)


@cache
def _common_words() -> frozenset[str]:
    return letters.common_words()
