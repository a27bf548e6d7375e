"""Pieces of rules as a model reads them, within a number of tokens.

Rules of this file:
- What a file says is in a fence that nothing in it can close. What is outside of the fence is
  Loom's: the heading, whose rules they are, and how much is missing.
- What does not fit is cut after a line, if possible before a heading, and a marker says how much
  is missing and in which file it is.
- Small pieces are complete before large ones get more than their share.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

Count = Callable[[str], int]

SEPARATOR = "\n\n"
MIN_PIECE_TOKENS = 40  # a piece that would get fewer is named, and not shown
MAX_TOKEN_CHARS = 16  # characters of a token, about the most; what is beyond is not counted
_BOUNDARY_SHARE = 0.7  # of what fits: a heading after it is a good place to cut
_MIN_FENCE = 3
_TICKS = re.compile("`+")
_HEADING = re.compile(r" {0,3}#{1,6}\s")


class RulesPiece(Struct, frozen=True):
    """One piece: the file that it is from, its heading, the line under that, and what it says.

    `weight` is its share of the room next to that of others. `unread_bytes` are missing at its end,
    for the file is too large to be read. `is_memory`: it belongs to the zone `memory`.
    """

    path: str
    heading: str
    lead: str
    body: str
    is_fenced: bool = True
    weight: int = 4
    unread_bytes: int = 0
    is_memory: bool = False

    def write(self, body: str, marker: str = "") -> str:
        """The piece with this of its body, and what is said after it."""
        parts = [self.heading, self.lead]
        if body and self.is_fenced:
            fence = make_fence(self.body)
            parts.append(f"{fence}markdown\n{body}\n{fence}")
        else:
            parts.append(body)
        parts.append(marker)
        return "\n".join(filter(None, parts))


class WrittenPiece(Struct, frozen=True):
    """A piece in a text: what is there of it, its tokens, and those of all of it.

    `text` is "" if there was no room for it.
    """

    piece: RulesPiece
    text: str
    tokens: int
    full_tokens: int
    left_out: str = ""  # what is missing, as a sentence


class WrittenRules(Struct, frozen=True):
    """Pieces as one text, and its tokens."""

    text: str = ""
    tokens: int = 0
    pieces: tuple[WrittenPiece, ...] = ()


def make_fence(body: str) -> str:
    """A row of backquotes that is longer than any in a text."""
    longest = max(map(len, _TICKS.findall(body)), default=0)
    return "`" * max(longest + 1, _MIN_FENCE)


def write_pieces(pieces: Sequence[RulesPiece], tokens: int, count: Count) -> WrittenRules:
    """The pieces in at most this many tokens."""
    shares = _share(pieces, tokens, count)
    while True:
        written = [
            write_piece(piece, share, count) for piece, share in zip(pieces, shares, strict=True)
        ]
        text = _join(written, tokens, count)
        used = count(text) if text else 0
        if used <= tokens:
            return WrittenRules(text, used, tuple(written))
        # Joined texts may count more than each of them.
        largest = max(range(len(shares)), key=lambda n: (written[n].tokens, n))
        shares[largest] = max(written[largest].tokens - max(used - tokens, 1), 0)


def write_piece(piece: RulesPiece, tokens: int, count: Count) -> WrittenPiece:
    """A piece in at most this many tokens: whole, cut, or nothing."""
    full = _count_full(piece, count)
    whole = piece.write(piece.body, _tell_unread(piece))
    if full <= tokens and count(whole) <= tokens:
        return WrittenPiece(piece, whole, count(whole), full, _tell_unread(piece))
    text, left_out = "", ""
    if tokens >= MIN_PIECE_TOKENS:
        text, left_out = _cut(piece, tokens, full, count)
    if not text:
        missing = f"{piece.path}, about {full:,} tokens, is not shown here; read the file for it"
        return WrittenPiece(piece, "", 0, full, f"[{missing}]")
    return WrittenPiece(piece, text, count(text), full, left_out)


def _count_full(piece: RulesPiece, count: Count) -> int:
    """The tokens of all of a piece; about, if it is large."""
    text = piece.write(piece.body)
    most = 64_000
    if len(text) <= most:
        return count(text)
    return count(text[:most]) * len(text) // most


def _share(pieces: Sequence[RulesPiece], tokens: int, count: Count) -> list[int]:
    """The tokens of each piece, by its weight. What one does not need the others get."""
    sizes = [_count_full(piece, count) for piece in pieces]
    weights = [piece.weight for piece in pieces]
    places = list(range(len(pieces)))
    joint = count(SEPARATOR)
    while places:
        left = max(tokens - joint * (len(places) - 1), 0)
        shares = _divide(left, places, sizes, weights)
        lacking = [n for n in places if shares[n] < min(sizes[n], MIN_PIECE_TOKENS)]
        if not lacking:
            return shares
        # One that would get next to nothing leaves its share to the others.
        places.remove(min(lacking, key=lambda n: (weights[n], -n)))
    return [0] * len(pieces)


def _divide(
    tokens: int, places: Sequence[int], sizes: Sequence[int], weights: Sequence[int]
) -> list[int]:
    """The tokens of each of these places, by its weight, as far as it needs them."""
    shares = [0] * len(sizes)
    places = list(places)
    while places:
        total = sum(weights[n] for n in places)
        fitting = [n for n in places if sizes[n] * total <= tokens * weights[n]]
        for n in fitting:
            shares[n] = sizes[n]
        if not fitting:
            for n in places:
                shares[n] = tokens * weights[n] // total
            break
        tokens -= sum(sizes[n] for n in fitting)
        places = [n for n in places if n not in fitting]
    return shares


def _join(written: Iterable[WrittenPiece], tokens: int, count: Count) -> str:
    """The pieces one after the other; then what has no room, if there is room to say so."""
    written = list(written)
    text = SEPARATOR.join(each.text for each in written if each.text)
    missing = "\n".join(each.left_out for each in written if not each.text)
    with_missing = SEPARATOR.join(filter(None, (text, missing)))
    if missing and count(with_missing) <= tokens:
        return with_missing
    return text


def _cut(piece: RulesPiece, tokens: int, full: int, count: Count) -> tuple[str, str]:
    """As many lines of a piece as fit, and what is said of the others; "" if none fits."""
    lines = piece.body[: tokens * MAX_TOKEN_CHARS].split("\n")
    frame = count(piece.write("x", _tell_cut(piece, "x", full, count)))
    fitting = _count_fitting(lines, tokens - frame, count)
    while fitting > 0:
        body = "\n".join(lines[: _find_boundary(lines, fitting)]).rstrip()
        text, marker = _write_cut(piece, body, full, count)
        if body and count(text) <= tokens:
            return text, marker
        fitting -= 1
    first = lines[0].lstrip()
    size = len(first)
    while size > 0:
        size = min(size * 3 // 4, (tokens - frame) * 4)
        text, marker = _write_cut(piece, f"{first[: max(size, 0)].rstrip()}…", full, count)
        if size > 0 and count(text) <= tokens:
            return text, marker
    return "", ""


def _write_cut(piece: RulesPiece, body: str, full: int, count: Count) -> tuple[str, str]:
    marker = _tell_cut(piece, body, full, count)
    return piece.write(body, marker), marker


def _count_fitting(lines: Sequence[str], room: int, count: Count) -> int:
    """How many lines fit, about."""
    for n, line in enumerate(lines):
        room -= count(f"{line}\n")
        if room < 0:
            return n
    return len(lines)


def _find_boundary(lines: Sequence[str], fitting: int) -> int:
    """Where to cut: before the last heading of what fits, unless that leaves much of it out."""
    for n in range(fitting, int(fitting * _BOUNDARY_SHARE), -1):
        if n < len(lines) and _HEADING.match(lines[n]):
            return n
    return fitting


def _tell_cut(piece: RulesPiece, body: str, full: int, count: Count) -> str:
    """How much of a piece is missing, and where it is."""
    lines = piece.body.count("\n") + 1
    missing = max(lines - body.count("\n") - 1, 0)
    tokens = max(full - count(piece.write(body)), 1)
    what = f"about {tokens:,} more {'token' if tokens == 1 else 'tokens'}"
    if missing:
        what = f"{missing:,} of {lines:,} lines ({what})"
    unread = ""
    if piece.unread_bytes:
        unread = f" and {piece.unread_bytes:,} bytes that were not read"
    return f"[{what}{unread} of {piece.path} are not shown here; read the file for them]"


def _tell_unread(piece: RulesPiece) -> str:
    if piece.unread_bytes:
        missing = f"the last {piece.unread_bytes:,} bytes of {piece.path} are not shown here"
        return f"[{missing}; read the file for them]"
    return ""
