"""What a knowledge base finds: items, each with its source.

Knowledge bases of others answer in many forms. Here each becomes an item: bounded, and without
characters that no request can carry.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any

from msgspec import Struct

from loom.errors import describe

MAX_CONTENT_CHARS = 8000
MAX_SOURCE_CHARS = 300
NO_SOURCE = "unknown"
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class KnowledgeItem(Struct, frozen=True):
    """A piece of knowledge: its words, where it comes from, and how well it fits the question.

    `title` is the document or the heading that it is under.
    """

    content: str
    source: str = NO_SOURCE
    score: float = 0.0
    title: str = ""

    @property
    def citation(self) -> str:
        """How a model is asked to cite it."""
        return cite(self.source)


def cite(source: str) -> str:
    """The citation of a source."""
    return f"(Source: {source})"


def read_items(found: object, limit: int) -> tuple[list[KnowledgeItem], list[str]]:
    """The first items of what a knowledge base answered, and a line for each that is none.

    An item is an object or a mapping with `content`, or a text. The same words come once.
    """
    if found is None:
        return [], []
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        return [], [f"it answered with {describe(found)} and not with a list of items"]
    items: dict[str, KnowledgeItem] = {}
    problems: list[str] = []
    for place, given in enumerate(islice(found, limit)):
        item = _read_item(given)
        if item is None:
            problems.append(f"item {place} has no content: {describe(given)}")
        elif item.content:
            items.setdefault(item.content, item)
    return list(items.values()), problems


def _read_item(given: object) -> KnowledgeItem | None:
    if isinstance(given, str):
        return KnowledgeItem(_clean(given, MAX_CONTENT_CHARS))
    if isinstance(given, Mapping):
        read = given.get
    else:
        read = _attributes_of(given)
    content = read("content")
    if content is None:
        content = read("text")
    if not isinstance(content, str):
        return None
    return KnowledgeItem(
        _clean(content, MAX_CONTENT_CHARS),
        one_line(read("source"), MAX_SOURCE_CHARS) or NO_SOURCE,
        _number(read("score")),
        one_line(read("title"), MAX_SOURCE_CHARS),
    )


def _attributes_of(given: object) -> Any:
    return lambda name: getattr(given, name, None)


def one_line(text: object, limit: int) -> str:
    """A name on one line; "" if it is not a text."""
    if not isinstance(text, str):
        return ""
    return " ".join(_clean(text, limit).split())


def _clean(text: str, limit: int) -> str:
    text = text[: limit + 1].replace("\r\n", "\n").replace("\r", "\n")
    text = _UNPRINTABLE.sub(" ", text).strip()
    if len(text) > limit:
        return text[: limit - 1] + "…"
    return text


def _number(given: object) -> float:
    """The score of an item as a number; numbers of other libraries are taken too."""
    try:
        number = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if isfinite(number) else 0.0
