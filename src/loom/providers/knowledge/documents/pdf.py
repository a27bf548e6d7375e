"""PDF files as blocks: the paragraphs of each page.

A file is read by a process of its own, with limits on its time and its memory: a broken file ends
that process, and nothing else.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loom.errors import DocumentError
from loom.providers.knowledge.documents.chunks import Block
from loom.providers.knowledge.documents.prose import read_text

MAX_SECONDS = 60
MAX_PAGES = 2000
MAX_TEXT_CHARS = 8 * 2**20
MAX_MEMORY_BYTES = 2 * 2**30


def read_pdf(path: Path) -> tuple[str, list[Block], tuple[str, ...]]:
    """The title of a file, its paragraphs, and what is to be known of how it was read."""
    if find_spec("pypdf") is None:
        raise DocumentError("it is a PDF; to read it, pip install 'loomwright[pdf]'")
    command = [sys.executable, "-I", "-c", _READER, str(path)]
    limits = [str(number) for number in (MAX_PAGES, MAX_TEXT_CHARS, MAX_MEMORY_BYTES)]
    try:
        done = subprocess.run(
            [*command, *limits], capture_output=True, timeout=MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DocumentError(
            f"it could not be read as a PDF within {MAX_SECONDS} seconds; save it again, or as text"
        ) from None
    read = _parse_answer(done.stdout)
    if "error" in read:
        raise DocumentError(f"it cannot be read as a PDF: {read['error']}")
    notes: tuple[str, ...] = ()
    if read["left"]:
        notes = (f"only the first {len(read['pages']):,} pages were read",)
    return read["title"], list(_page_blocks(read["pages"])), notes


def _parse_answer(printed: bytes) -> dict[str, Any]:
    try:
        read = json.loads(printed)
    except ValueError:
        return {"error": "the file is broken, or it takes too much memory"}
    assert isinstance(read, dict)
    return read


def _page_blocks(pages: list[str]) -> Iterator[Block]:
    for number, text in enumerate(pages, 1):
        for block in read_text(text):
            yield Block(block.text, (f"page {number}",))


# Run by a Python of its own, without this package: it starts at once, and a broken file cannot
# reach anything.
_READER = """
import json, sys
path, pages, chars, memory = sys.argv[1], *map(int, sys.argv[2:])
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
except (ImportError, ValueError, OSError):
    pass
import logging
logging.disable(logging.CRITICAL)
try:
    from pypdf import PdfReader
    file = PdfReader(path)
    if file.is_encrypted and not file.decrypt(""):
        raise ValueError("it needs a password")
    title = str((file.metadata or {}).get("/Title") or "")
    texts, left = [], False
    for number, page in enumerate(file.pages):
        if number >= pages or chars <= 0:
            left = True
            break
        text = (page.extract_text() or "")[:chars]
        chars -= len(text)
        texts.append(text)
    told = {"title": title[:500], "pages": texts, "left": left}
except BaseException as error:
    told = {"error": (" ".join(str(error).split()) or type(error).__name__)[:300]}
sys.stdout.write(json.dumps(told))
"""
