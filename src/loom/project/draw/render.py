"""The map as a model reads it: files with the best of what they define, within a hard budget of
tokens.

What is shown is decided piece by piece, each time the piece with the most chance of being what the
work will touch per token: a file with its best definition, one more name in a file that is shown,
or the whole signature in place of a name. So a small budget shows names, a larger one signatures of
what matters; and many files rather than few in full.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from unicodedata import category

from msgspec import Struct

from loom.project.parse.symbols import Definition
from loom.project.rank.shares import RankedFile, Relevance

HEADER = "## Project Files\n\n"
PATH_WEIGHT = 0.8  # what showing a path is worth beside showing all that the file defines
SIGNATURE_WEIGHT = 0.3  # what a signature is worth next to the name
# what a name is worth that stands under the same path already, in another class
REPEATED_WEIGHT = 0.4
# names of one file; of more each is worth less, so that there is room for other files
FULL_WORTH_NAMES = 30
MAX_SIGNATURE_CHARS = 140  # characters of a signature
SPARE_PART = 50  # what is left of a budget is used where it is more than this part of it
_MIN_FILE_TOKENS = 5  # tokens that no file takes less than
_TAKEN_BACK_PART = 4  # of the pieces at most one part of so many is left out at once
_MAX_HEADING_NAMES = 6  # names around a definition that its heading has
_MISSES = 40  # pieces in a row that do not fit, before no more are tried

_HIDDEN = frozenset(("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # words of several scripts have them inside

Count = Callable[[str], int]


class ShownFile(Struct, frozen=True):
    """A file of a map, and the symbols under it by their dotted names, best first."""

    path: str
    relevance: Relevance
    symbols: tuple[str, ...] = ()


class Map(Struct, frozen=True):
    """The text of a map, its size, and what it shows."""

    text: str = ""
    tokens: int = 0
    files: tuple[ShownFile, ...] = ()


def render_map(
    ranked: Sequence[RankedFile], tokens: int, count: Count, header: str = HEADER
) -> Map:
    """The map of what was ranked, never more than these tokens by this counter; empty where not
    even one file fits.
    """
    files = _Files(ranked, header, count)
    made = _fill_budget(files, tokens, tokens)
    spare = tokens - made.tokens
    if made.files and spare > tokens // SPARE_PART:
        fuller = _fill_budget(files, tokens + spare, tokens)
        made = fuller if fuller.tokens > made.tokens else made
    return made


def _fill_budget(files: "_Files", wanted: int, tokens: int) -> Map:
    """The map of pieces that are this many tokens together, without the last of them where the
    whole is too large.
    """
    pieces = _fitting(files, wanted)
    while pieces:
        made = _write_map(files, pieces)
        if made.tokens <= tokens:
            return made
        _take_back(pieces, made.tokens - tokens)
    return Map()


class _Piece(Struct, frozen=True):
    """One more thing to show: the definition at `place` among those of a file, and whether as a
    signature. None: only the path.
    """

    file: int
    place: int | None
    is_signature: bool
    cost: int


def _take_back(pieces: list[_Piece], tokens: int) -> None:
    """Leave out the last pieces, about this many tokens of them: a sum of parts is not quite the
    size of the whole. Never more than a part of them at once: the whole may be far larger than its
    parts, and leaving out few of them may be enough.
    """
    least = len(pieces) * (_TAKEN_BACK_PART - 1) // _TAKEN_BACK_PART
    while len(pieces) > least and tokens > 0:
        tokens -= pieces.pop().cost


# Choosing


class _Symbol(Struct, frozen=True, gc=False):
    """A definition with its name, what it is worth, the names around it without those of
    namespaces, and its own after these.
    """

    definition: Definition
    name: str
    worth: float
    around: str
    path: str


class _Files:
    """The files that may be shown. What each defines is only looked at where it comes into
    question, each text counted once.
    """

    def __init__(self, ranked: Sequence[RankedFile], heading: str, count: Count) -> None:
        self.ranked, self.heading, self.count = ranked, heading, count
        self._symbols: dict[int, list[_Symbol]] = {}
        self._sizes: dict[str, int] = {}

    def size(self, text: str) -> int:
        if text not in self._sizes:
            self._sizes[text] = max(1, self.count(text))
        return self._sizes[text]

    def header(self, number: int) -> str:
        given = self.ranked[number]
        return f"### {printable(given.path)} (relevance: {given.relevance})\n"

    def symbols(self, number: int) -> list[_Symbol]:
        """What a file defines, each by its name once, best first."""
        if number not in self._symbols:
            self._symbols[number] = _symbols(self.ranked[number])
        return self._symbols[number]


def _symbols(given: RankedFile) -> list[_Symbol]:
    shares = given.shares or (1 / max(1, len(given.definitions)),) * len(given.definitions)
    spaces = sorted(
        {one.path for one in given.definitions if one.kind == "module"},
        key=lambda space: (-len(space), space),
    )
    found: dict[str, _Symbol] = {}
    names: set[str] = set()
    for one, share in zip(given.definitions, shares, strict=True):
        name = printable(one.name)
        around = printable(_inside(one.parent, spaces) if spaces else one.parent)
        path = f"{around}.{name}" if around else name
        if path not in found:
            found[path] = _Symbol(
                one,
                name,
                round(share * REPEATED_WEIGHT if name in names else share, 9),
                around,
                path,
            )
            names.add(name)
    # Stable: what is worth the same stays in the order of the ranking.
    return sorted(found.values(), key=attrgetter("worth"), reverse=True)


def _inside(parent: str, spaces: Sequence[str]) -> str:
    """The names around a definition without those of the namespace that they are in: it says what
    the path says.
    """
    return next(
        (parent[len(space) + 1 :] for space in spaces if parent.startswith(f"{space}.")), parent
    )


def _fitting(files: _Files, tokens: int) -> list[_Piece]:
    """What is shown, in the order in which it was chosen. The sizes of pieces are added up; the
    whole is counted by the caller.
    """
    groups: set[tuple[int, str]] = set()
    waiting: list[_Offer] = []
    opened, most = 0, min(len(files.ranked), max(0, tokens) // _MIN_FILE_TOKENS)
    left, misses, pieces = tokens - files.size(files.heading), 0, list[_Piece]()
    while misses < _MISSES:
        while opened < most and (not waiting or -waiting[0][0] <= _at_most(files.ranked[opened])):
            heappush(waiting, _first(opened, files))
            opened += 1
        if not waiting:
            break
        piece = _with_heading(heappop(waiting)[-1], files, groups)
        if piece.cost > left:
            misses += 1
            continue
        misses, left = 0, left - piece.cost
        pieces.append(piece)
        if piece.place is None or piece.is_signature:
            continue
        symbol = files.symbols(piece.file)[piece.place]
        groups.add((piece.file, symbol.around))
        if not symbol.around:  # it becomes the heading of its group where it is
            groups.add((piece.file, symbol.path))
        for offer in _next_offers(piece.file, piece.place, files):
            heappush(waiting, offer)
    return pieces


def _with_heading(piece: _Piece, files: _Files, groups: set[tuple[int, str]]) -> _Piece:
    """A piece that also pays for the name of its group, if that is not shown yet."""
    if piece.place is None or piece.is_signature:
        return piece
    around = files.symbols(piece.file)[piece.place].around
    if not around or (piece.file, around) in groups:
        return piece
    return _Piece(piece.file, piece.place, False, piece.cost + files.size(f"{_heading(around)}: "))


def _next_offers(number: int, place: int, files: _Files) -> "Iterator[_Offer]":
    """After the name of a definition: its signature, and the next definition of the file."""
    size, score, symbols = files.size, files.ranked[number].score, files.symbols(number)
    symbol = symbols[place]
    longer = max(1, size(f" {_signature(symbol)}\n") - size(f", {symbol.name}"))
    yield _offer(_Piece(number, place, True, longer), SIGNATURE_WEIGHT * score * symbol.worth)
    if place + 1 < len(symbols):
        following = symbols[place + 1]
        worth = score * following.worth * min(1.0, (FULL_WORTH_NAMES / (place + 1)) ** 2)
        yield _offer(_Piece(number, place + 1, False, size(f", {following.name}")), worth)


def _at_most(given: RankedFile) -> float:
    """What a file can be worth per token before anything of it is counted."""
    return given.score * (PATH_WEIGHT + 1) / _MIN_FILE_TOKENS


def _first(number: int, files: _Files) -> "_Offer":
    """A file with its best symbol: no file that has any is shown without one."""
    given, size = files.ranked[number], files.size
    cost = size(f"{files.header(number)}\n")
    if not given.definitions:
        return _offer(_Piece(number, None, False, cost), given.score * PATH_WEIGHT / 2)
    worth = PATH_WEIGHT + (given.shares[0] if given.shares else 1 / len(given.definitions))
    return _offer(
        _Piece(number, 0, False, cost + size(f", {given.definitions[0].name}")), given.score * worth
    )


_Offer = tuple[float, int, bool, int, _Piece]


def _offer(piece: _Piece, worth: float) -> _Offer:
    """A piece as it waits: what is worth the most per token comes first, and of equals what was
    ranked before.
    """
    return (-round(worth / piece.cost, 12), piece.file, piece.is_signature, piece.place or 0, piece)


# Writing


def _write_map(files: _Files, pieces: Sequence[_Piece]) -> Map:
    chosen: dict[int, dict[int, bool]] = {}
    for piece in pieces:
        places = chosen.setdefault(piece.file, {})
        if piece.place is not None:
            places[piece.place] = piece.is_signature
    texts, shown = [files.heading], []
    for number in sorted(chosen):
        symbols = [
            (files.symbols(number)[place], is_signature)
            for place, is_signature in sorted(chosen[number].items())
        ]
        texts.append(files.header(number) + "".join(f"{line}\n" for line in _lines(symbols)) + "\n")
        given = files.ranked[number]
        shown.append(
            ShownFile(given.path, given.relevance, tuple(symbol.path for symbol, _ in symbols))
        )
    text = "".join(texts).rstrip("\n")
    return Map(text, files.count(text), tuple(shown))


def _lines(shown: Sequence[tuple[_Symbol, bool]]) -> Iterator[str]:
    """The symbols of a file under the names around them, in the order of its lines."""
    by_place = sorted(shown, key=lambda one: (one[0].definition.start, -one[0].definition.stop))
    around = {symbol.around for symbol, _ in by_place}
    heads = {symbol.path: _signature(symbol) for symbol, is_signature in by_place if is_signature}
    groups: dict[str, list[tuple[_Symbol, bool]]] = {"": []}
    for symbol, is_signature in by_place:
        if symbol.path in around:
            groups.setdefault(symbol.path, [])
        else:
            groups.setdefault(symbol.around, []).append((symbol, is_signature))
    for group, members in groups.items():
        yield from _group_lines(group, members, heads)


def _group_lines(
    group: str, members: Sequence[tuple[_Symbol, bool]], heads: Mapping[str, str]
) -> Iterator[str]:
    signatures = [_signature(symbol) for symbol, is_signature in members if is_signature]
    names = ", ".join(symbol.name for symbol, is_signature in members if not is_signature)
    if not group:
        yield from filter(None, (*signatures, names))
    elif signatures or group in heads:
        # What is inside of two others is named by all of them: its declaration alone would not say
        # where it is.
        head = _heading(group)
        if "." not in group:
            head = heads.get(group, group)
        yield f"{head}:"
        yield from (f" {line}" for line in (*signatures, names) if line)
    elif names:
        yield f"{_heading(group)}: {names}"
    else:
        yield f"{_heading(group)}:"


def _heading(group: str) -> str:
    """The names around definitions; of many only the outermost and the innermost."""
    names = group.split(".")
    if len(names) <= _MAX_HEADING_NAMES:
        return group
    return ".".join((names[0], "…", *names[2 - _MAX_HEADING_NAMES :]))


def _signature(symbol: _Symbol) -> str:
    told = printable(symbol.definition.signature).rstrip(" :{=")
    if len(told) > MAX_SIGNATURE_CHARS:
        told = f"{told[: MAX_SIGNATURE_CHARS - 1]}…"
    if symbol.name in told:
        return told
    return f"{symbol.name} {told}".rstrip()


def printable(text: str) -> str:
    """A text on one line, with nothing in it that would turn or hide what stands next to it."""
    if text.isprintable():
        return text
    return "".join(map(_printable_sign, text))


def _printable_sign(sign: str) -> str:
    if category(sign) in _HIDDEN and sign not in _JOINERS:
        return "?"
    return sign
