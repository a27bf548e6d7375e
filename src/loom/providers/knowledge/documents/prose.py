"""Markdown, reStructuredText and plain text as blocks: paragraphs under their headings."""

import re
from collections.abc import Iterator, Sequence

from loom.providers.knowledge.documents.chunks import Block

MAX_HEADING_CHARS = 200
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINES = "=-~^\"'`*+#:._<>"
_FRONT_MARK = "---"


class Headings:
    """The headings above a place of a document, each with its level."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, title: str) -> None:
        """Go on under another heading; those of its level and below it are left."""
        self._open = [held for held in self._open if held[0] < level]
        title = " ".join(title.split())[:MAX_HEADING_CHARS]
        if title:
            self._open.append((level, title))

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._open)


def read_text(text: str) -> Iterator[Block]:
    """The paragraphs of a text."""
    lines = text.split("\n")
    for start, stop in _find_paragraphs(lines, 0, len(lines)):
        yield Block("\n".join(lines[start:stop]), (), start + 1, stop)


def _find_paragraphs(lines: Sequence[str], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank."""
    start = None
    for place in range(begin, end):
        if lines[place].strip():
            start = place if start is None else start
        elif start is not None:
            yield start, place
            start = None
    if start is not None:
        yield start, end


def read_markdown(text: str) -> Iterator[Block]:
    """The paragraphs, lists, tables and code of a Markdown text, each under its headings."""
    lines = text.split("\n")
    headings = Headings()
    place = _skip_front_matter(lines)
    start = place  # where the text under the newest heading begins
    while place < len(lines):
        if fence := _FENCE.match(lines[place]):
            place = _find_fence_end(lines, place, fence[1])
            continue
        level, title, length = _heading_at(lines, place)
        if level:
            yield from _blocks_between(lines, start, place, headings.path)
            headings.enter(level, title)
            start = place
        place += length
    yield from _blocks_between(lines, start, len(lines), headings.path)


def _skip_front_matter(lines: Sequence[str]) -> int:
    """The line after the settings that some pages begin with."""
    if lines[0].rstrip() != _FRONT_MARK:
        return 0
    for place, line in enumerate(lines[1:200], 1):
        if line.rstrip() == _FRONT_MARK:
            return place + 1
    return 0


def _find_fence_end(lines: Sequence[str], begin: int, mark: str) -> int:
    """The line after a block of code; after its beginning alone if it does not end."""
    for place in range(begin + 1, len(lines)):
        line = lines[place].strip()
        if line.startswith(mark) and not line.strip(mark[0]):
            return place + 1
    return begin + 1


def _heading_at(lines: Sequence[str], place: int) -> tuple[int, str, int]:
    """The level and the title of the heading at a line, and how many lines it has; level 0 if there
    is none.
    """
    if found := _HEADING.match(lines[place]):
        return len(found[1]), found[2] or "", 1
    below = lines[place + 1].rstrip() if place + 1 < len(lines) else ""
    is_alone = place == 0 or not lines[place - 1].strip()
    if below and below[0] in "=-" and not below.strip(below[0]) and is_alone:
        title = lines[place].strip()
        if title and title[0] not in "-|>*=" and len(below) > 1:
            return (1 if below[0] == "=" else 2), title, 2
    return 0, "", 1


def _blocks_between(
    lines: Sequence[str], start: int, stop: int, headings: tuple[str, ...]
) -> Iterator[Block]:
    """The paragraphs of some lines. Code between fences is one block, blank lines and all."""
    place = begin = start
    while place < stop:
        fence = _FENCE.match(lines[place])
        end = min(_find_fence_end(lines, place, fence[1]), stop) if fence else 0
        if end <= place + 1:
            place += 1
            continue
        yield from _paragraph_blocks(lines, begin, place, headings)
        yield Block("\n".join(lines[place:end]), headings, place + 1, end)
        place = begin = end
    yield from _paragraph_blocks(lines, begin, stop, headings)


def _paragraph_blocks(
    lines: Sequence[str], start: int, stop: int, headings: tuple[str, ...]
) -> Iterator[Block]:
    for first, end in _find_paragraphs(lines, start, stop):
        yield Block("\n".join(lines[first:end]), headings, first + 1, end)


def read_rst(text: str) -> Iterator[Block]:
    """The paragraphs of a reStructuredText, each under its headings: lines that are underlined."""
    lines = text.split("\n")
    headings, levels = Headings(), list[str]()
    start = 0
    for place, line in enumerate(lines[:-1]):
        mark = _underline_of(line, lines[place + 1])
        if not mark:
            continue
        is_over = place > 0 and lines[place - 1].strip() == lines[place + 1].strip()
        begin = place - 1 if is_over else place
        yield from _paragraph_blocks(lines, start, begin, headings.path)
        style = f"{mark}{is_over}"
        if style not in levels:
            levels.append(style)
        headings.enter(levels.index(style) + 1, line)
        start = begin
    yield from _paragraph_blocks(lines, start, len(lines), headings.path)


def _underline_of(line: str, below: str) -> str:
    """The sign that underlines a line; "" if it is not a heading."""
    title, mark = line.strip(), below.rstrip()
    if len(title) < 2 or len(mark) < max(len(title), 3) or mark[0] not in _UNDERLINES:
        return ""
    if mark.strip(mark[0]) or not title.strip(title[0]):
        return ""
    return mark[0]
