"""Documents become chunks by their structure, and no document can do harm."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.errors import DocumentError, DocumentTooLarge
from loom.providers.knowledge.documents import chunks, reading
from loom.providers.knowledge.documents.chunks import Chunk, size_of
from loom.providers.knowledge.documents.reading import parse_text, read_document
from tests.shared import ROOT


def headings(parsed: reading.ParsedDocument) -> list[tuple[str, ...]]:
    return [chunk.headings for chunk in parsed.chunks]


def test_markdown_is_split_at_its_headings_and_not_inside_code() -> None:
    text = (
        "---\ntitle: x\n---\n# Guide\nIntro.\n\n## Run\nDo it:\n"
        "```sh\n# no heading\n\nrun\n```\n\nEnd\n---\nBelow.\n"
    )
    parsed = parse_text(text, "markdown")
    assert parsed.title == "Guide"
    assert parsed.chunks == (
        Chunk("# Guide\nIntro.", ("Guide",), 4, 5),
        Chunk("## Run\nDo it:\n\n```sh\n# no heading\n\nrun\n```", ("Guide", "Run"), 7, 13),
        Chunk("End\n---\nBelow.", ("Guide", "End"), 15, 17),
    )


def test_restructured_text_is_split_at_underlined_lines() -> None:
    parsed = parse_text("=====\nTitle\n=====\n\nA.\n\nPart\n----\nB.\n", "rst")
    assert headings(parsed) == [("Title",), ("Title", "Part")]
    assert parsed.title == "Title"


def test_html_shows_what_a_person_reads() -> None:
    page = """<!DOCTYPE html><html><head><title>A &amp; B</title><style>p {}</style></head><body>
<nav>Menu</nav><h1>One</h1><p>Hello
there <b>you</b>.</p><script>steal()</script><div hidden>secret</div>
<div style="display: none">also</div><h2>Two</h2><table><tr><th>k</th><td>v</td></tr></table>
<pre>a
  b</pre></body></html>"""
    parsed = parse_text(page)
    assert (parsed.kind, parsed.title) == ("html", "A & B")
    first, second = parsed.chunks
    assert first == Chunk("One\n\nHello there you.", ("One",), 2, 3)
    assert second.text == "Two\n\nk | v\n\na\n  b"
    assert second.headings == ("One", "Two")


def test_code_is_split_at_definitions_with_the_comment_above() -> None:
    text = (
        '"""Doc."""\n\nX = 1\n\n\n# Says it.\n@cache\ndef speak():\n    return X\n\n\n'
        "class A:\n    def b(self):\n        pass\n"
    )
    parsed = parse_text(text, "code", "a.py")
    assert headings(parsed) == [(), ("speak",), ("A",)]
    assert parsed.chunks[1].text.startswith("# Says it.\n@cache\ndef speak")
    assert (parsed.chunks[1].start, parsed.chunks[1].stop) == (6, 9)


def test_a_class_that_is_too_large_is_split_at_its_methods() -> None:
    methods = "".join(f"    def m{n}(self):\n        return {'x' * 400!r}\n" for n in range(9))
    parsed = parse_text(f"class A:\n{methods}", "code", "a.py")
    assert ("A", "m8") in headings(parsed)


def test_files_of_this_project_are_documents() -> None:
    for path in ("docs/sessions.md", "src/loom/engine/loom.py", "pyproject.toml"):
        lines = (ROOT / path).read_text().split("\n")
        for chunk in read_document(ROOT / path).chunks:
            first = chunk.text.split("\n")[0]
            assert first in lines[chunk.start - 1]


@given(
    st.lists(st.sampled_from(["word", "# T", "```", "\n", "def f():", "<p>", "é水", "x" * 2500]))
)
def test_no_text_is_lost_and_chunks_are_bounded(parts: list[str]) -> None:
    text = "\n".join(parts)
    for kind in ("markdown", "text", "code", "rst"):
        parsed = parse_text(text, kind, "a.py")  # type: ignore[arg-type]
        assert all(size_of(chunk.text) <= chunks.MAX_CHUNK_SIZE for chunk in parsed.chunks)
        assert all(chunk.text.strip() for chunk in parsed.chunks)
        said = "".join("".join(chunk.text.split()) for chunk in parsed.chunks)
        assert said == "".join(text.split())


# Poisoned documents


def test_what_is_too_large_is_refused_with_its_limit(tmp_path: Path) -> None:
    large = tmp_path / "large.md"
    with large.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(DocumentTooLarge, match=r"100\.0 MiB.*8 MiB"):
        read_document(large)
    with pytest.raises(DocumentTooLarge, match="chunks"):
        parse_text("# a\nb\n\n# c\nd\n\n" * 12_000, "markdown")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text", "a\n" * 1_000_000),
        ("text", "a" * 1_000_000),
        ("markdown", "```\n" * 100_000),
        ("markdown", "- " * 200_000),
        ("html", "<a " * 100_000),
        ("html", '<a "' * 100_000),
        ("html", "<script>" * 50_000),
        ("html", "<!--" * 100_000),
        ("html", "<div>" * 100_000),
        ("html", "<td>x" * 50_000),
        ("code", "def f(): pass\n" * 10_000),
        ("code", "(" * 200_000),
    ],
)
def test_hostile_texts_are_read_in_bounded_time(kind: str, text: str) -> None:
    begun = time.perf_counter()
    parsed = parse_text(text, kind, "a.py")  # type: ignore[arg-type]
    assert time.perf_counter() - begun < 20
    assert len(parsed.chunks) <= chunks.MAX_CHUNKS


def test_encodings(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    for data, text, notes in (
        (b"\xef\xbb\xbfh\xc3\xa9", "hé", 0),
        ("héllo there".encode("utf-16"), "héllo there", 0),
        ("héllo there".encode("utf-16-le"), "héllo there", 1),
        ("caf\xe9 cr\xe8me".encode("latin-1"), "café crème", 1),
    ):
        file.write_bytes(data)
        parsed = read_document(file)
        assert parsed.chunks[0].text == text
        assert len(parsed.notes) == notes
    file.write_bytes(bytes(range(256)) * 10)
    with pytest.raises(DocumentError, match="not a text"):
        read_document(file)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="folder"):
        read_document(tmp_path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_document(tmp_path / "none.md")
    with pytest.raises(DocumentError, match="there is no kind"):
        parse_text("a", "pictures")  # type: ignore[arg-type]


def pdf_of(*pages: str) -> bytes:
    """A small PDF file with a line of text on each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Contents {len(objects) + 2} 0 R /Resources << /Font << /F1 "
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    data, places = b"%PDF-1.4\n", []
    for number, held in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{held}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    return (
        data
        + (
            f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
            f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
        ).encode()
    )


def test_a_pdf_is_read_page_by_page(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    file = tmp_path / "manual.pdf"
    file.write_bytes(pdf_of("Turn the key.", "Press the button."))
    parsed = read_document(file)
    assert parsed.chunks == (
        Chunk("Turn the key.", ("page 1",)),
        Chunk("Press the button.", ("page 2",)),
    )


@pytest.mark.parametrize(
    "data", [b"%PDF-1.4\nbroken", b"", b"\0" * 5000, b"%PDF-1.7" + b"<<" * 9999]
)
def test_a_broken_pdf_is_an_error_of_its_own(tmp_path: Path, data: bytes) -> None:
    pytest.importorskip("pypdf")
    file = tmp_path / "broken.pdf"
    file.write_bytes(data)
    with pytest.raises(DocumentError, match="PDF"):
        read_document(file)
