"""Which documents of an index fit a text best: the one search, asked with a user's words."""

import re

from loom.errors import ChoiceError
from loom.recall.choosing import Room
from loom.recall.embedder import Embedder
from loom.recall.index import Index
from loom.recall.question import MAX_QUERY_CHARS
from loom.recall.search import SearchRequest, search

_QUOTES = re.compile('["“”]')
# Of a longer text: what is wanted is said at the beginning, or at the end.
_BEGIN_CHARS = MAX_QUERY_CHARS * 3 // 5
_END_CHARS = MAX_QUERY_CHARS - _BEGIN_CHARS - 1


def find_best(
    index: Index, text: str, limit: int, embedder: Embedder | None, exact: bool = False
) -> list[tuple[int, float]]:
    """The keys and the scores of the best documents. A text is what a user says: what is in quotes
    need not be in a document, unless the search is `exact`.
    """
    if not exact:
        text = shorten_text(_QUOTES.sub(" ", text))
    try:
        found = search(index, SearchRequest(text, Room(limit=limit)), embedder)
    except ChoiceError:
        if exact:
            raise
        return []  # a text without words asks for nothing
    return [(match.key, match.score) for match in found]


def shorten_text(text: str) -> str:
    """A text that is short enough for a search."""
    text = " ".join(text.split())
    if len(text) <= MAX_QUERY_CHARS:
        return text
    return f"{text[:_BEGIN_CHARS]} {text[-_END_CHARS:]}"
