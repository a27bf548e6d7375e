"""Documents of projects out of a store and back in.

Out: those that are damaged are left out, and named. In: a document that is here already stays as it
is; its index is made again.
"""

from collections.abc import Iterator

from loom.conversation.canonical import to_json
from loom.errors import TranscriptError
from loom.stores.knowledge.documents import digest_of, find_document, put_document
from loom.stores.knowledge.rows import NewChunk, NewDocument
from loom.stores.sessions import Scope
from loom.stores.sql.database import Reader, Row, Writer
from loom.stores.sql.stored import UNREADABLE, decode_stored, is_garbled, read_paged, read_rows
from loom.stores.transfer.lines import REFUSED, ChunkEntry, DocumentLine, read_line
from loom.stores.transfer.salvage import LeftOut


def has_documents(reader: Reader, scope: Scope, everywhere: bool) -> bool:
    """Whether an export of a scope has documents. With an agent named, it has none."""
    return not scope.agent and next(_documents(reader, scope, everywhere), None) is not None


def export_documents(
    reader: Reader, scope: Scope, everywhere: bool, left_out: LeftOut
) -> Iterator[DocumentLine]:
    """The documents of a scope, or of every tenant and project."""
    if scope.agent:
        return
    for row in _documents(reader, scope, everywhere):
        try:
            if is_garbled(row):
                raise ValueError("a text is not UTF-8")
            line = _line(reader, row, everywhere)
            read_line(0, to_json(line))  # as an import reads it
        except (*REFUSED, *UNREADABLE, TranscriptError):
            left_out.add(f"document {row[3]!s:.200}")
        else:
            yield line


def _documents(reader: Reader, scope: Scope, everywhere: bool) -> Iterator[Row]:
    where = ("", "") if everywhere else (scope.tenant, scope.project)
    return read_paged(reader, _DOCUMENTS, (0,), *where)


def _line(reader: Reader, row: Row, everywhere: bool) -> DocumentLine:
    key, tenant, project, path, source, root, kind, title, digest, size, notes = row[:11]
    chunks: list[ChunkEntry] = []
    for known, headings, text, first, last in read_rows(reader, _CHUNKS, key):
        held = decode_stored(headings, tuple[str, ...])
        if is_garbled((known, text)) or digest_of(NewChunk(text, held)) != known:
            raise ValueError("a chunk is damaged")
        chunks.append(ChunkEntry(text=text, headings=held, first=first, last=last))
    if len(chunks) != row[11]:
        raise ValueError("a chunk is missing")
    return DocumentLine(
        path=path,
        source=source,
        root=root,
        tenant=tenant if everywhere else "",
        project=project if everywhere else "",
        kind=kind,
        title=title,
        digest=digest,
        size=size,
        notes=decode_stored(notes, tuple[str, ...]),
        created=row[12],
        updated=row[13],
        chunks=tuple(chunks),
    )


def import_document(writer: Writer, scope: Scope, number: int, line: DocumentLine) -> int:
    """Bring a document into a scope; its key, or 0 if one of its path is here already."""
    chunks = tuple(
        NewChunk(chunk.text, chunk.headings, chunk.first, chunk.last) for chunk in line.chunks
    )
    said = [line.path, line.source, line.root, line.kind, line.title, line.digest, *line.notes]
    for text in (*said, *(each for chunk in chunks for each in (chunk.text, *chunk.headings))):
        _check_text(number, text)
    if find_document(writer, scope, line.path) is not None:
        return 0
    new = NewDocument(
        path=line.path,
        source=line.source,
        root=line.root,
        kind=line.kind,
        title=line.title,
        digest=line.digest,
        size=line.size,
        notes=line.notes,
        chunks=chunks,
    )
    return put_document(writer, scope, new, line.updated, line.created).key


def _check_text(number: int, text: str) -> None:
    """Refuse what no column takes."""
    try:
        is_text = "\0" not in text and text.encode() is not None
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise TranscriptError(f"line {number}: a document has a character that no text has")


_DOCUMENTS = """SELECT d.key, b.tenant, b.project, d.path, d.source, d.root, d.kind, d.title,
    d.digest, d.size, d.notes, d.chunks, d.created, d.updated
    FROM documents d JOIN bases b ON b.key = d.base
    WHERE d.key > $1 AND ($2 = '' OR b.tenant = $2) AND ($3 = '' OR b.project = $3)
    ORDER BY d.key LIMIT 200"""
_CHUNKS = """SELECT c.digest, c.headings, c.text, x.first, x.last
    FROM document_chunks x JOIN chunks c ON c.key = x.chunk WHERE x.document = $1
    ORDER BY x.place"""
