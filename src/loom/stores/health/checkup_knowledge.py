"""What must be true of documents, their chunks, and the index of these."""

from collections.abc import Iterator

from loom.stores.health.checkup import COPY, NOT_UTF_8, CheckedTable, Problem, decoder, read
from loom.stores.knowledge.documents import digest_of
from loom.stores.knowledge.rows import NewChunk
from loom.stores.sql.database import Reader, Row
from loom.stores.sql.stored import is_garbled

_AGAIN = "remove it (loom knowledge remove SOURCE), and add it again"
_INDEX = "make the index again: UPDATE bases SET version = 0; it is made at the next search"


def _look_at_base(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    key, tenant, project, chunks, terms, version = values
    place = f"knowledge of {tenant}/{project}"
    if is_garbled((tenant, project)):
        yield Problem(place, f"its tenant or its project cannot be read: {NOT_UTF_8}", COPY)
        return
    found = reader.first_row(_COUNTED, key)
    assert found is not None
    counted = (found[0], int(found[1] or 0))
    if version and counted != (chunks, terms):
        what = f"{chunks} chunks with {terms} terms are told, and there are {counted[0]} with "
        yield Problem(place, f"{what}{counted[1]}", _INDEX)


def _look_at_document(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    key, path, source, title, notes, chunks, tenant, project = values
    place = f"document {source} in {tenant}/{project}"
    if is_garbled((path, source, title, notes)) or read(decoder(tuple[str, ...]), notes) is None:
        yield Problem(place, "what is known of it cannot be read", _AGAIN)
    elif tenant is None:
        yield Problem(place, "the project that it belongs to is not there", COPY)
    found = reader.first_row(_PLACES, key)
    if found is None or found[0] != chunks:
        yield Problem(place, f"it has {chunks} chunks, and not all of them are there", _AGAIN)


def _look_at_chunk(_: Reader, values: Row, __: int) -> Iterator[Problem]:
    key, digest, headings, text, source, tenant, project = values
    place = f"chunk {key} of {source or 'no document'} in {tenant}/{project}"
    if source is None:
        yield Problem(
            place, "no document has it", f"delete it by hand: DELETE FROM chunks WHERE key = {key}"
        )
        return
    held = None
    if not is_garbled((digest, headings, text)):
        held = read(decoder(tuple[str, ...]), headings)
    if held is None or digest_of(NewChunk(text, held)) != digest:
        yield Problem(place, "its words are not those that were added", _AGAIN)


_BASES = """SELECT key, tenant, project, chunks, terms, version FROM bases
    WHERE key > $1 ORDER BY key LIMIT $2"""
_COUNTED = """SELECT (SELECT count(*) FROM chunks WHERE base = $1),
    (SELECT sum(count) FROM chunk_terms WHERE base = $1)"""
_DOCUMENTS = """SELECT d.key, d.path, d.source, d.title, d.notes, d.chunks, b.tenant, b.project
    FROM documents d LEFT JOIN bases b ON b.key = d.base WHERE d.key > $1 ORDER BY d.key LIMIT $2"""
_PLACES = """SELECT count(*) FROM document_chunks x JOIN chunks c ON c.key = x.chunk
    WHERE x.document = $1"""
_CHUNKS = """SELECT c.key, c.digest, c.headings, c.text, (SELECT max(d.source)
    FROM document_chunks x JOIN documents d ON d.key = x.document WHERE x.chunk = c.key),
    b.tenant, b.project FROM chunks c LEFT JOIN bases b ON b.key = c.base
    WHERE c.key > $1 ORDER BY c.key LIMIT $2"""


def knowledge_tables() -> tuple[CheckedTable, ...]:
    """What there is to look at of documents."""
    return (
        CheckedTable("bases", (0,), _BASES, _look_at_base),
        CheckedTable("documents", (0,), _DOCUMENTS, _look_at_document),
        CheckedTable("chunks", (0,), _CHUNKS, _look_at_chunk),
    )
