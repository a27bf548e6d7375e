"""Files and texts as documents: of which kind each is, within limits that errors name."""

import os
import re
import stat
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from loom.conversation.encodings import count_control_bytes, decode_marked
from loom.errors import DocumentError, DocumentTooLarge
from loom.providers.knowledge.documents.chunks import Chunk, make_chunks
from loom.providers.knowledge.documents.code import is_code, read_code
from loom.providers.knowledge.documents.html import find_title, read_html
from loom.providers.knowledge.documents.pdf import read_pdf
from loom.providers.knowledge.documents.prose import read_markdown, read_rst, read_text

Kind = Literal["markdown", "rst", "html", "code", "pdf", "text"]
MAX_TEXT_BYTES = 8 * 2**20
MAX_PDF_BYTES = 64 * 2**20
MAX_TEXT_CHARS = 8 * 2**20
MAX_TITLE_CHARS = 200
_PROBE_BYTES = 2**16
_MAX_CONTROL_SHARE = 0.005  # of characters that no text has, in a file that is one

_ENDINGS: dict[str, Kind] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdx": "markdown",
    ".mdown": "markdown",
    ".rst": "rst",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".adoc": "text",
    ".org": "text",
    ".tex": "text",
    ".csv": "text",
    ".tsv": "text",
    ".json": "text",
    ".jsonl": "text",
    ".yaml": "text",
    ".yml": "text",
    ".toml": "text",
    ".ini": "text",
    ".cfg": "text",
    ".xml": "text",
}
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u2028\u2029\ud800-\udfff]")
_PAGE = re.compile(r"\s*(?:<!doctype html|<html[\s>])", re.IGNORECASE)


class ParsedDocument(Struct, frozen=True):
    """A document as chunks. `notes` say how it was read, where that is not plain."""

    kind: Kind
    title: str
    chunks: tuple[Chunk, ...]
    notes: tuple[str, ...] = ()


def kind_by_name(path: str) -> Kind | None:
    """The kind of document that a name tells; None if it tells none."""
    ending = os.path.splitext(path)[1].lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    return "code" if is_code(path, "") else None


def read_document(path: "str | os.PathLike[str]", kind: Kind | None = None) -> ParsedDocument:
    """Read a file as a document.

    Raises `DocumentError` if it is not a document, and `DocumentTooLarge` if it is beyond a limit.
    """
    named = Path(path)
    return parse_file(named, read_bytes(named, kind), kind)


def parse_file(path: Path, data: bytes, kind: Kind | None = None) -> ParsedDocument:
    """A document from the bytes of a file."""
    name = path.as_posix()
    kind = kind or kind_by_name(name)
    if kind == "pdf" or (kind is None and data.startswith(b"%PDF-")):
        title, blocks, notes = read_pdf(path)
        return ParsedDocument("pdf", title[:MAX_TITLE_CHARS], make_chunks(blocks), notes)
    text, notes = decode_text(data)
    return parse_text(text, kind, name, notes)


def parse_text(
    text: str, kind: Kind | None = None, name: str = "", notes: tuple[str, ...] = ()
) -> ParsedDocument:
    """A document from a text. Its kind is found out if nobody says it."""
    if len(text) > MAX_TEXT_CHARS:
        raise DocumentTooLarge(
            f"it has {len(text):,} characters, and the limit for one document is "
            f"{MAX_TEXT_CHARS:,}; split it"
        )
    if kind is not None and kind not in get_args(Kind):
        raise DocumentError(f"there is no kind {kind!r}; the kinds are {', '.join(get_args(Kind))}")
    text = _UNPRINTABLE.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    kind = kind or ("html" if _PAGE.match(text) else "text")
    title = ""
    if kind == "code":
        blocks = read_code(name, text)
    elif kind == "html":
        blocks, title = read_html(text), find_title(text)
    else:
        blocks = {"markdown": read_markdown, "rst": read_rst}.get(kind, read_text)(text)
    chunks = make_chunks(blocks)
    if not title and kind in ("markdown", "rst", "html"):
        title = next((chunk.headings[0] for chunk in chunks if chunk.headings), "")
    return ParsedDocument(kind, title[:MAX_TITLE_CHARS], chunks, notes)


def read_bytes(path: Path, kind: Kind | None = None) -> bytes:
    """What a file holds. Pipes and devices are refused, and so is what is too large."""
    is_pdf = (kind or kind_by_name(path.as_posix())) == "pdf"
    limit = MAX_PDF_BYTES if is_pdf else MAX_TEXT_BYTES
    try:
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        try:
            seen = os.fstat(handle)
            if not stat.S_ISREG(seen.st_mode):
                what = "a folder" if stat.S_ISDIR(seen.st_mode) else "not a file"
                raise DocumentError(f"it is {what}")
            check_size(seen.st_size, limit)
            data = bytearray()
            while len(data) <= limit and (piece := os.read(handle, limit + 1 - len(data))):
                data += piece
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # a name with a NUL in it is a ValueError
        why = getattr(error, "strerror", None) or error
        raise DocumentError(f"it cannot be read: {why}") from None
    check_size(len(data), limit)
    return bytes(data)


def check_size(size: int, limit: int = MAX_TEXT_BYTES) -> None:
    """Refuse a file or a text that is too large."""
    if size > limit:
        raise DocumentTooLarge(
            f"it has {size / 2**20:,.1f} MiB, and the limit for a file of its kind is "
            f"{limit // 2**20} MiB; split it"
        )


def decode_text(data: bytes) -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a note if it is not UTF-8. Raises if it is not a text."""
    marked = decode_marked(data)
    if marked is not None:
        return marked, ()
    if name := _guess_wide(data[:_PROBE_BYTES]):
        return data.decode(name, "replace"), (f"it was read as {name.upper()}",)
    sample = data[:_PROBE_BYTES]
    if count_control_bytes(sample) > _MAX_CONTROL_SHARE * len(sample):
        raise DocumentError("it is not a text: it has bytes that no text has")
    try:
        return data.decode(), ()
    except UnicodeDecodeError as error:
        return data.decode("cp1252", "replace"), (
            f"byte {error.start:,} is not UTF-8; it was read as Windows-1252",
        )


def _guess_wide(sample: bytes) -> str:
    """The encoding of a text without a mark in which every second byte is 0; "" if it is none."""
    half = len(sample) // 2
    if half < 4:
        return ""
    even, odd = sample[0 : 2 * half : 2].count(0), sample[1 : 2 * half : 2].count(0)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return ""
