"""What is known of a document and of a chunk."""

from msgspec import Struct


class NewChunk(Struct, frozen=True):
    """A chunk of a document that is added; its lines count from 1, and are 0 if it has none."""

    text: str
    headings: tuple[str, ...] = ()
    start: int = 0
    stop: int = 0


class NewDocument(Struct, frozen=True, kw_only=True):
    """A document that is added. `path` is what it is known by in its project, `source` what it is
    cited by, and `root` the folder that it was added with. `digest` tells whether it changed.
    """

    path: str
    source: str
    root: str = ""
    kind: str
    title: str = ""
    digest: str
    size: int
    notes: tuple[str, ...] = ()
    chunks: tuple[NewChunk, ...]


class DocumentRow(Struct, frozen=True):
    """A document that is stored. Times are milliseconds since 1970, `size` is in bytes."""

    key: int
    path: str
    source: str
    root: str
    kind: str
    title: str
    digest: str
    size: int
    chunks: int
    notes: tuple[str, ...]
    created: int
    updated: int


class StoredChunk(Struct, frozen=True):
    """A chunk with the first document that has it."""

    key: int
    text: str
    headings: tuple[str, ...]
    source: str
    title: str
    start: int
    stop: int
