"""Code as blocks: each definition under its name, with the comment above it.

A class that is too large for a chunk is split at its methods. What is between definitions belongs
to the file.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from loom.project.parse.languages import language_of, parse
from loom.project.parse.symbols import Definition
from loom.providers.knowledge.documents.chunks import MAX_CHUNK_SIZE, Block

MAX_PARSED_CHARS = 2**20  # a longer file is read as text
_ABOVE = re.compile(
    r"[ \t]*(?:@|#|//|/\*|\*|--|;;|\"\"\")"
)  # what a comment or decorator begins with


class _CodeCut(Struct, frozen=True):
    """Where a definition begins and ends, in lines from 0, and what it is called with the names
    around it.
    """

    start: int
    stop: int
    names: tuple[str, ...]


def is_code(path: str, text: str) -> bool:
    """Whether a file is in a language that definitions are known of."""
    return bool(language_of(path, text))


def read_code(path: str, text: str) -> Iterator[Block]:
    """The definitions of a file, and what is between them."""
    lines = text.split("\n")
    place = 0
    for cut in _find_cuts(path, text, lines):
        if cut.start > place:
            yield _block(lines, place, cut.start, ())
        yield _block(lines, cut.start, cut.stop, cut.names)
        place = cut.stop
    yield _block(lines, place, len(lines), ())


def _block(lines: Sequence[str], start: int, stop: int, names: tuple[str, ...]) -> Block:
    while start < stop and not lines[start].strip():
        start += 1
    while stop > start and not lines[stop - 1].strip():
        stop -= 1
    return Block("\n".join(lines[start:stop]), names, start + 1, stop)


def _find_cuts(path: str, text: str, lines: Sequence[str]) -> Iterator[_CodeCut]:
    """The definitions at which a file is cut, one after the other."""
    if len(text) > MAX_PARSED_CHARS:
        return
    definitions = parse(path, text).definitions
    reached = 0
    for definition in sorted(definitions, key=lambda each: (each.start, -each.stop)):
        start, stop = definition.start - 1, min(definition.stop, len(lines))
        if start < reached or stop <= start or definition.kind == "constant":
            continue
        if _is_cut_inside(definition, definitions, lines):
            continue
        start = _find_comment(lines, start, reached)
        yield _CodeCut(start, stop, tuple(definition.path.split(".")))
        reached = stop


def _is_cut_inside(
    definition: Definition, definitions: Sequence[Definition], lines: Sequence[str]
) -> bool:
    """Whether a definition is too large for a chunk and has others inside."""
    size = sum(len(line) + 1 for line in lines[definition.start - 1 : definition.stop])
    if size <= MAX_CHUNK_SIZE:
        return False
    return any(
        definition.start <= each.start and each.stop <= definition.stop and each is not definition
        for each in definitions
        if each.kind != "constant"
    )


def _find_comment(lines: Sequence[str], start: int, reached: int) -> int:
    """The line where the comment and the decorators above a definition begin."""
    while start > reached and _ABOVE.match(lines[start - 1]):
        start -= 1
    return start
