"""What must be true of the search index: each segment can be read, and has only messages that are
there.
"""

from collections.abc import Iterator

from loom.errors import StoreError
from loom.stores.health.checkup import CheckedTable, Problem
from loom.stores.sql.database import Reader, Row

_AGAIN = "the messages are not affected; build the index again in Python: Loom.index(again=True)"
_SEGMENTS = """SELECT key, tenant, project, state, documents FROM search_segments
    WHERE key > $1 ORDER BY key LIMIT $2"""
_LOST = """SELECT count(*) FROM {each_pair:1} e WHERE NOT EXISTS (
    SELECT 1 FROM nodes n WHERE n.tree = e.tree AND n.seq = e.seq AND n.body IS NOT NULL)"""
_TERMS = """SELECT term, data FROM search_terms WHERE segment = $1 AND term > $2
    ORDER BY term LIMIT 1000"""


def search_tables() -> tuple[CheckedTable, ...]:
    """What there is to look at in the index."""
    return (CheckedTable("search segments", (0,), _SEGMENTS, _look_at_segment),)


def _look_at_segment(reader: Reader, values: Row, _: int) -> Iterator[Problem]:
    key, tenant, project, state, documents = values
    if state == "live":
        place = f"search segment {key} in {tenant}/{project}"
        yield from (Problem(place, what, _AGAIN) for what in _wrong_with(reader, key, documents))


def _wrong_with(reader: Reader, key: int, documents: int) -> Iterator[str]:
    from loom.stores.search.indexing import pairs_of
    from loom.stores.search.segments import decode_segment, spread_lines

    row = reader.first_row("SELECT data FROM search_segments WHERE key = $1", key)
    try:
        segment = decode_segment(row[0] if row else b"", key)
    except StoreError:
        yield "it cannot be read"
        return
    if len(segment) != documents:
        yield f"it has {len(segment)} messages, and should have {documents}"
    seqs, trees = segment.seqs.tolist(), spread_lines(segment)[1].tolist()
    living = [pair for pair in zip(trees, seqs, strict=True) if pair[1]]
    lost = reader.first_row(_LOST, pairs_of(living))
    if lost and lost[0]:
        yield f"it has {lost[0]} messages that were purged, or are not there"
    if not _are_terms_sound(reader, key, seqs):
        yield "its terms name messages that it does not have"


def _are_terms_sound(reader: Reader, key: int, seqs: list[int]) -> bool:
    from loom.stores.search.segments import decode_postings

    last = ""
    while rows := reader.all(_TERMS, key, last):
        last = rows[-1][0]
        for _, data in rows:
            try:
                ordinals = decode_postings(data).ordinals.tolist()
            except (ValueError, IndexError):
                return False
            if not ordinals or ordinals[-1] >= len(seqs) or not all(seqs[at] for at in ordinals):
                return False
    return True
