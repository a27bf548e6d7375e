"""What a search reads, and in which form: documents, and the protocol of their homes.

A home is bound to one scope: the path of a session, or the sessions of a project. Statistics count
the documents of the scope only. What is hidden, pruned, excluded or purged is in no answer.

All scores are computed in this room from what a home answers. Two homes with the same documents
give the same answers, so they give the same hits.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from loom.recall.embedder import Vector

MAX_TEXT_CHARS = 200_000  # of a text that are indexed and searched for passages


class Size(Struct, frozen=True):
    """How many documents a scope has, and how many terms they have together."""

    documents: int
    length: int


class Document(Struct, frozen=True, gc=False):
    """What an index says of a document, without its text.

    A home chooses the keys. `place` counts up in a session; neighbours are next to each other.
    `created` is in milliseconds since 1970. `length` is the number of terms, `tokens` the price of
    the whole document in a result. `counts` has the terms that were asked for and occur. An `echo`
    only asks for, or repeats, what is said elsewhere.
    """

    key: int
    session: str
    place: int
    role: str
    author: str
    created: int
    length: int
    tokens: int
    counts: Mapping[str, int]
    echo: bool = False


class Index(Protocol):
    """The documents of one scope. Newer means: created later; of equals, the greater key.

    Every answer is bounded by what is asked, never by the size of the scope.
    """

    def size(self) -> Size:
        """How many documents there are, and their terms."""
        ...

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        """In how many documents each term occurs; a term that is nowhere may be missing."""
        ...

    def find_holding(self, term: str, limit: int) -> Sequence[int]:
        """The keys of the newest documents with this term, newest first."""
        ...

    def find_newest(self, limit: int) -> Sequence[int]:
        """The keys of the newest documents, newest first."""
        ...

    def find_between(self, start: int, stop: int, limit: int) -> Sequence[int]:
        """The keys of the newest documents created in `start <= created < stop`, newest first."""
        ...

    def read(self, keys: Sequence[int], terms: Sequence[str]) -> Sequence[Document]:
        """These documents, with the counts of these terms, in any order; unknown keys are left
        out.
        """
        ...

    def find_near(self, keys: Sequence[int], distance: int) -> Mapping[int, Sequence[int]]:
        """The keys of the documents up to so many places before and after each of these in its
        session, in order of place, with the document itself.
        """
        ...

    def texts(self, keys: Sequence[int]) -> Mapping[int, str]:
        """The texts of these documents."""
        ...

    def authors(self) -> Sequence[str]:
        """The names of those who speak in the scope, at most a few hundred."""
        ...

    def vectors(self, keys: Sequence[int], embedder: str) -> Mapping[int, "Vector"]:
        """The vectors that the embedder of this name made; documents without one are left out."""
        ...

    def find_nearest(self, vector: "Vector", embedder: str, limit: int) -> Sequence[int]:
        """The keys of documents whose vectors of this embedder are near, nearest first; none if
        the home keeps no index of vectors.
        """
        ...
