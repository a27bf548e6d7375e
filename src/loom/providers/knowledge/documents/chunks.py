"""Chunks: pieces of a document that are found and quoted alone.

Rules of this file:
- A chunk never crosses a heading, a function or a page. Neighbours under one heading are joined
  while they are small.
- A block that is too large is split at lines, then at sentences, then anywhere.
- No text is lost or repeated, and a document has at most MAX_CHUNKS.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from loom.errors import DocumentTooLarge

GOOD_CHUNK_SIZE = 1200  # neighbours are joined up to this size, in characters of Latin text
MAX_CHUNK_SIZE = 2000
MAX_CHUNKS = 20_000  # of one document
WIDE_SIZE = 3  # that a character counts which is a word or a syllable: it is a token by itself

_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+|(?<=[。！？])")


class Block(Struct, frozen=True):
    """A piece of a document that belongs together: a paragraph, a list, a table, a definition.

    `headings` are those above it, the highest first. `start` and `stop` are its first and last
    line, counted from 1; 0 where a document has no lines.
    """

    text: str
    headings: tuple[str, ...] = ()
    start: int = 0
    stop: int = 0


class Chunk(Struct, frozen=True):
    """A piece of a document that is found and quoted alone; its fields are those of a block."""

    text: str
    headings: tuple[str, ...] = ()
    start: int = 0
    stop: int = 0


def size_of(text: str) -> int:
    """About how much a text takes, in characters of Latin text."""
    if text.isascii():
        return len(text)
    return len(text) + (WIDE_SIZE - 1) * len(_WIDE.findall(text))


def make_chunks(blocks: Iterable[Block]) -> tuple[Chunk, ...]:
    """The chunks of a document from its blocks, in their order."""
    chunks: list[Chunk] = []
    for group in _group_blocks(piece for block in blocks for piece in _split_block(block)):
        if len(chunks) >= MAX_CHUNKS:
            raise DocumentTooLarge(
                f"it has more than {MAX_CHUNKS:,} chunks, the limit for one document; split it "
                "into several files"
            )
        first, last = group[0], group[-1]
        text = "\n\n".join(piece.text for piece in group)
        chunks.append(Chunk(text, first.headings, first.start, last.stop))
    return tuple(chunks)


def _group_blocks(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Neighbours under one heading, together at most GOOD_CHUNK_SIZE large."""
    group: list[Block] = []
    size = 0
    for block in blocks:
        added = size_of(block.text)
        if group and (block.headings != group[0].headings or size + added > GOOD_CHUNK_SIZE):
            yield group
            group, size = [], 0
        group.append(block)
        size += added
    if group:
        yield group


def _split_block(block: Block) -> Iterator[Block]:
    """A block as pieces that are small enough; nothing of one that has no words."""
    if not block.text.strip():
        return
    if size_of(block.text) <= MAX_CHUNK_SIZE:
        yield block
        return
    for lines, start in _split_lines(block.text.split("\n")):
        text = "\n".join(lines)
        if not text.strip():
            continue
        first = block.start and block.start + start
        stop = block.start and first + len(lines) - 1
        for piece in _split_text(text):
            yield Block(piece, block.headings, first, stop)


def _split_lines(lines: Sequence[str]) -> Iterator[tuple[Sequence[str], int]]:
    """Runs of lines that are at most GOOD_CHUNK_SIZE large, or one line; and where each begins."""
    begin, size = 0, 0
    for place, line in enumerate(lines):
        added = size_of(line) + 1
        if place > begin and size + added > GOOD_CHUNK_SIZE:
            yield lines[begin:place], begin
            begin, size = place, 0
        size += added
    yield lines[begin:], begin


def _split_text(text: str) -> Iterator[str]:
    """A text as pieces that are small enough: at ends of sentences where it has them."""
    if size_of(text) <= MAX_CHUNK_SIZE:
        yield text
        return
    piece, size = "", 0
    for sentence in _SENTENCE_END.split(text):
        for part in _split_anywhere(sentence):
            added = size_of(part) + 1
            if piece and size + added > GOOD_CHUNK_SIZE:
                yield piece
                piece, size = "", 0
            piece = f"{piece} {part}" if piece else part
            size += added
    if piece.strip():
        yield piece


def _split_anywhere(text: str) -> Iterator[str]:
    """A text without ends of sentences as pieces of equal length."""
    if size_of(text) <= MAX_CHUNK_SIZE:
        yield text
        return
    step = GOOD_CHUNK_SIZE if text.isascii() else GOOD_CHUNK_SIZE // WIDE_SIZE
    for start in range(0, len(text), step):
        yield text[start : start + step]
