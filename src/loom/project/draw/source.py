"""The source of what matters most, after a map that has room for it: a large window need not be
asked for it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from loom.project.draw.render import Count, Map, printable, render_map
from loom.project.index.files import read_text
from loom.project.parse.symbols import Definition
from loom.project.rank.shares import FileRanking, RankedFile

MIN_SOURCE_TOKENS = 6000  # tokens from which on a map has source after it
NAMES = 0.5  # of a larger one that stay for files and symbols
HEADER = "## Source of the most relevant\n\n"
MAX_DEFINITION_LINES = 150  # of one definition
_MAX_DEFINITIONS = 8  # definitions of a file that come into question
_OF_CODE = frozenset(("function", "method", "macro", "class", "interface", "type"))
_FENCE = re.compile(r"^[ \t]*(`{3,})", re.MULTILINE)


class _Source(Struct, frozen=True):
    path: str
    definition: Definition


def packed_map(root: Path, ranked: FileRanking, tokens: int, count: Count) -> Map:
    """The map of what was ranked; where there is room, the source of the best of it after it.
    Never more than these tokens.
    """
    if tokens < MIN_SOURCE_TOKENS:
        return render_map(ranked, tokens, count)
    left = tokens - max(MIN_SOURCE_TOKENS, int(tokens * NAMES)) - count(f"\n\n{HEADER}")
    written: list[str] = []
    for one in _best(list(ranked.high())):
        block = _block(root, one)
        cost = count(f"{block}\n\n") if block else left + 1
        if cost <= left:
            written.append(block)
            left -= cost
    while written:
        source = f"\n\n{HEADER}" + "\n\n".join(written)
        # what source does not take the map may have
        made = render_map(ranked, tokens - count(source) - 1, count)
        whole = made.text + source
        if (size := count(whole)) <= tokens:
            return Map(whole, size, made.files)
        written.pop()
    return render_map(ranked, tokens, count)


def _best(files: Sequence[RankedFile]) -> Iterator[_Source]:
    """Definitions by what they are worth, none inside of another that came before it, nor around
    one.
    """
    worth = [
        (given.score * share, given.path, one)
        for given in files
        for one, share in list(zip(given.definitions, given.shares, strict=True))[:_MAX_DEFINITIONS]
        if one.kind in _OF_CODE and one.stop - one.start < MAX_DEFINITION_LINES
    ]
    taken: dict[str, list[Definition]] = {}
    for _, path, one in sorted(
        worth, key=lambda each: (-round(each[0], 9), each[1], each[2].start)
    ):
        if all(one.stop < other.start or other.stop < one.start for other in taken.get(path, ())):
            taken.setdefault(path, []).append(one)
            yield _Source(path, one)


def _block(root: Path, one: _Source) -> str:
    """The lines of a definition in a fence; "" if the file is no longer as it was read."""
    text = read_text(root, one.path)
    found = one.definition
    if text:
        lines = text.split("\n")[found.start - 1 : found.stop]
    else:
        lines = []
    body = "\n".join(lines)
    if found.name not in body:
        return ""
    fence = max((len(ticks) for ticks in _FENCE.findall(body)), default=2) + 1
    return (
        f"### {printable(one.path)}:{found.start}-{found.stop} "
        f"{printable(found.path)}\n{'`' * fence}\n{body}\n{'`' * fence}"
    )
