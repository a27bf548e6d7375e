"""HTML as blocks: what a person reads of a page, each paragraph under its headings.

Rules of this file:
- The text is read once from its beginning to its end, also where it is broken.
- Scripts, styles, menus and what a page hides from its readers are left out.
"""

import re
from collections.abc import Iterator
from html import unescape

from loom.providers.knowledge.documents.chunks import Block
from loom.providers.knowledge.documents.prose import Headings

_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]*)")
# No < in a tag, not even in quotes: so a page that is full of tags without an end is read once.
_TAG_END = re.compile(r"""[^<>"']*(?:"[^"<]*"[^<>"']*|'[^'<]*'[^<>"']*)*>""")
_HIDDEN = re.compile(
    r"""\s(?:hidden(?=[\s=>/])|aria-hidden\s*=\s*["']?true)
    |display\s*:\s*none|visibility\s*:\s*hidden""",
    re.IGNORECASE | re.VERBOSE,
)
_SPACES = re.compile(r"[ \t\f\v]*\n[ \t\f\v\n]*|[ \t\f\v]+")
# whose content is no text, or not of the page itself
_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "object", "head"))
_ASIDE = frozenset(("nav", "footer", "form", "button", "select"))
_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
)
# fmt: off
_BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt",
    "fieldset", "figure", "figcaption", "header", "hr", "html", "li", "main", "ol", "p", "pre",
    "section", "summary", "table", "tbody", "thead", "title", "tr", "ul",
    "h1", "h2", "h3", "h4", "h5", "h6",
))
# fmt: on
_CELLS = frozenset(("td", "th"))


def find_title(text: str) -> str:
    """What a page calls itself; "" if it does not."""
    begin = re.search(r"<title[^>]{0,200}>", text[:100_000], re.IGNORECASE)
    if begin is None:
        return ""
    return " ".join(unescape(text[begin.end() : begin.end() + 1000].partition("<")[0]).split())


def read_html(text: str) -> Iterator[Block]:
    """The paragraphs of a page, each under its headings."""
    page = _Page()
    place = 0
    while place < len(text):
        opened = text.find("<", place)
        if opened < 0:
            opened = len(text)
        page.add_text(text[place:opened])
        place = _read_markup(text, opened, page)
        yield from page.take_blocks()
    page.end_block()
    yield from page.take_blocks()


def _read_markup(text: str, place: int, page: "_Page") -> int:
    """Read what begins with < at a place; where it ends."""
    if place >= len(text):
        return place
    if text.startswith("<!--", place):
        return _go_past(text, "-->", place + 4, page)
    if text.startswith(("<!", "<?"), place):
        return _go_past(text, ">", place + 2, page)
    found = _TAG.match(text, place)
    end = _TAG_END.match(text, found.end()) if found else None
    if found is None or end is None:
        page.add_text("<")
        return place + 1
    page.add_lines(text, place, end.end())
    name = found[1].lower()
    if text[place + 1] == "/":
        page.close(name)
        return end.end()
    tag = text[place : end.end()]
    if name in _SKIPPED and not tag.endswith("/>"):
        return _skip_element(text, name, end.end(), page)
    is_hidden = name in _ASIDE or _HIDDEN.search(tag) is not None
    page.open(name, is_hidden and not tag.endswith("/>"))
    return end.end()


def _go_past(text: str, mark: str, place: int, page: "_Page") -> int:
    end = text.find(mark, place)
    stop = len(text) if end < 0 else end + len(mark)
    page.add_lines(text, place, stop)
    return stop


def _skip_element(text: str, name: str, place: int, page: "_Page") -> int:
    """Where an element ends whose content is not read. One without an end is looked for once: a
    script takes the rest of the page, of others the beginning is left out.
    """
    if name in page.unended:
        return place
    found = re.compile(f"</{name}\\s*>", re.IGNORECASE).search(text, place)
    if found is None:
        page.unended.add(name)
        return len(text) if name in ("script", "style") else place
    page.add_lines(text, place, found.end())
    return found.end()


class _Page:
    """How far a page was read: the headings above, the text of the block that is not ended yet."""

    def __init__(self) -> None:
        self.headings = Headings()
        self.unended: set[str] = set()
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        self._has_words = False
        self._line = self._start = 1
        self._heading = 0  # the level of the heading that is being read
        self._pre = 0
        self._hidden = ""  # the element that hides what is read, and how deep in it this is
        self._depth = 0

    def add_text(self, text: str) -> None:
        if not text:
            return
        if not self._hidden:
            words = text.lstrip()
            if words and not self._has_words:
                self._start = self._line + text.count("\n", 0, len(text) - len(words))
                self._has_words = True
            plain = unescape(text)
            if not self._pre:
                plain = _SPACES.sub(" ", plain)
            self._texts.append(plain)
        self._line += text.count("\n")

    def add_lines(self, text: str, start: int, stop: int) -> None:
        """Count the lines of what is not shown."""
        self._line += text.count("\n", start, stop)

    def open(self, name: str, is_hidden: bool) -> None:
        if self._hidden:
            self._depth += name == self._hidden
            return
        if is_hidden and name not in _VOID:
            self.end_block()
            self._hidden, self._depth = name, 1
        elif name == "br":
            self._texts.append("\n")
        elif name in _CELLS:
            self._texts += [" | "] if self._has_words else []
        elif name in _BLOCKS:
            self.end_block()
            self._pre += name == "pre"
            if len(name) == 2 and name[0] == "h" and name[1].isdigit():
                self._heading = int(name[1])

    def close(self, name: str) -> None:
        if self._hidden:
            self._depth -= name == self._hidden
            if not self._depth:
                self._hidden = ""
        elif name in _BLOCKS:
            self.end_block()
            self._pre = max(self._pre - (name == "pre"), 0)

    def end_block(self) -> None:
        text = "".join(self._texts).strip("\n" if self._pre else None)
        self._texts, self._has_words = [], False
        if not text.strip():
            return
        if self._heading:
            self.headings.enter(self._heading, text)
            self._heading = 0
        self._blocks.append(Block(text, self.headings.path, self._start, self._line))

    def take_blocks(self) -> list[Block]:
        """The blocks that ended since the last call."""
        taken, self._blocks = self._blocks, []
        return taken
