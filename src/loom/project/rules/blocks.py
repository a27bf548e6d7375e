"""A Markdown text as blocks: headings, items of lists, paragraphs, fenced code. Two texts are
compared by their lines, whatever the blanks in them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

MIN_REPEAT_CHARS = 60  # of blocks in a row that are left out because they were said before
MAX_LINE_PLACES = 64  # of a line that is said often: the places that are compared
MAX_ROW_BLOCKS = 400  # that are compared as one row
MAX_COMPARED_CHARS = 64_000  # of a text whose blocks are compared; what is beyond has seldom room
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+|$)")
_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s")


class MarkdownBlock(Struct, frozen=True):
    """Lines that belong together. `level` is that of a heading, 0 for anything else."""

    lines: tuple[str, ...]
    level: int = 0
    is_code: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def split_blocks(text: str) -> list[MarkdownBlock]:
    """The blocks of a text. What is in a fence is one block."""
    blocks: list[MarkdownBlock] = []
    lines: list[str] = []
    fence = ""

    def close(is_code: bool = False) -> None:
        if any(line.strip() for line in lines):
            blocks.append(MarkdownBlock(tuple(lines), 0, is_code))
        lines.clear()

    for line in text.split("\n"):
        if fence:
            lines.append(line)
            if closes_fence(line, fence):
                fence = ""
                close(is_code=True)
            continue
        opened = _FENCE.match(line)
        heading = _HEADING.match(line)
        if opened:
            close()
            fence = opened[1]
            lines.append(line)
        elif heading:
            close()
            blocks.append(MarkdownBlock((line,), len(heading[1])))
        elif not line.strip():
            close()
        else:
            if _ITEM.match(line):
                close()
            lines.append(line)
    close(is_code=bool(fence))
    return blocks


def closes_fence(line: str, fence: str) -> bool:
    """Whether a line closes a fence: the same sign, at least as often, and nothing else."""
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def join_blocks(blocks: Iterable[MarkdownBlock]) -> str:
    """The text of blocks; items of a list are on lines that follow each other."""
    made: list[str] = []
    last_is_item = False
    for block in blocks:
        is_item = not block.is_code and bool(_ITEM.match(block.lines[0]))
        if made and not (last_is_item and is_item):
            made.append("")
        made.extend(block.lines)
        last_is_item = is_item
    return "\n".join(made)


def normalize_lines(text: str) -> str:
    """The lines of a text that say something, each between line ends, with single blanks."""
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(("", *filter(None, lines), ""))


class SaidText:
    """What is said already, to be compared with what would be said again."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._text = ""
        self._places: dict[str, list[int]] = {}  # where each line is, at first
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        added = normalize_lines(text)
        place = len(self._text)
        for line in added.split("\n")[1:-1]:
            known = self._places.setdefault(line, [])
            if len(known) < MAX_LINE_PLACES:
                known.append(place)
            place += len(line) + 1
        self._text += added

    def has(self, text: str) -> bool:
        """Whether all lines of a text are there, one after the other."""
        return bool(self._text) and self._find(normalize_lines(text)) >= 0

    def count_following(self, texts: Sequence[str]) -> int:
        """How many of these texts are there one after the other, from the first one on."""
        end = -1
        for n, text in enumerate(texts):
            wanted = normalize_lines(text)
            if n == 0:
                end = self._find(wanted)
            if end < 0 or not self._text.startswith(wanted, end):
                return n
            end += len(wanted) - 1
        return len(texts)

    def _find(self, wanted: str) -> int:
        """Where lines are; -1 if they are not there, or say nothing."""
        first = wanted.split("\n", 2)[1]
        places = self._places.get(first, ())
        return next((at for at in places if self._text.startswith(wanted, at)), -1)

    def __bool__(self) -> bool:
        return bool(self._text)


def drop_repeats(text: str, said: SaidText) -> str:
    """The text without what is said already: "" if that is all of it. What is short stays, for it
    may mean something else elsewhere; a heading goes with all that is under it.
    """
    if not said:
        return text
    if said.has(text):
        return ""
    compared, rest = _split_off_rest(text)
    blocks = split_blocks(compared)
    repeated = _find_repeated(blocks, said)
    if not any(repeated):
        return text
    left = list(_drop_empty_headings(blocks, repeated))
    if not rest and all(block.level for block in left):
        return ""
    return "\n".join(filter(None, (join_blocks(left), rest)))


def _find_repeated(blocks: list[MarkdownBlock], said: SaidText) -> list[bool]:
    """For each block whether it is said already, in a row of blocks that is long enough."""
    texts = [block.text for block in blocks]
    repeated = [False] * len(blocks)
    n = 0
    while n < len(blocks):
        stop = n + said.count_following(texts[n : n + MAX_ROW_BLOCKS])
        if sum(map(len, texts[n:stop])) >= MIN_REPEAT_CHARS:
            repeated[n:stop] = [not block.level for block in blocks[n:stop]]
        n = max(stop, n + 1)
    return repeated


def _split_off_rest(text: str) -> tuple[str, str]:
    """What of a text is compared by its blocks, and what is not."""
    if len(text) <= MAX_COMPARED_CHARS:
        return text, ""
    cut = text.rfind("\n", 0, MAX_COMPARED_CHARS) + 1
    return text[:cut], text[cut:]


def _drop_empty_headings(
    blocks: list[MarkdownBlock], repeated: list[bool]
) -> Iterator[MarkdownBlock]:
    """The blocks that are not repeated, without headings of which all was repeated."""
    for n, block in enumerate(blocks):
        if repeated[n]:
            continue
        if block.level:
            under = _find_under(blocks, n)
            content = [at for at in under if not blocks[at].level]
            if content and all(repeated[at] for at in content):
                continue
        yield block


def _find_under(blocks: list[MarkdownBlock], heading: int) -> range:
    """The places of the blocks under a heading."""
    level = blocks[heading].level
    stop = heading + 1
    while stop < len(blocks) and not 0 < blocks[stop].level <= level:
        stop += 1
    return range(heading + 1, stop)
