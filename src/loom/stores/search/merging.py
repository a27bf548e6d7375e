"""How segments become fewer: several of one size are merged into a larger one.

The new segment is written under the state `building`, in several transactions. One more puts it in
the place of the old ones, if these are as they were read. Then the terms of the old ones are
removed. What a crash leaves behind is removed by whoever merges next.
"""

import time
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby, islice

import numpy as np
from msgspec import Struct

from loom.stores.search.indexing import PUT_TERM, insert_segment, put_lines
from loom.stores.search.segments import (
    MAX_SEGMENT_DOCUMENTS,
    Numbers,
    Segment,
    arrange_lines,
    decode_postings,
    decode_segment,
    encode_postings,
    spread_lines,
)
from loom.stores.sql.database import Database, Writer

MERGED_SEGMENTS = 8  # of one size, at which they are merged
SMALLEST_SIZE = 64  # documents of the smallest size; the next is MERGED_SEGMENTS times that
_PAGE_TERMS = 4000  # terms in one transaction
_ABANDONED_MILLISECONDS = 600_000  # after which nobody is building a segment any more


class SegmentRow(Struct, frozen=True):
    """A live segment: its key, how many messages it has, and how often a purge changed it."""

    key: int
    documents: int
    revision: int


def live_segments(database: Database, tenant: str, project: str) -> list[SegmentRow]:
    with database.read() as reader:
        found = reader.all(_LIVE, tenant, project)
    return [SegmentRow(*row) for row in found]


_LIVE = """SELECT key, documents, revision FROM search_segments
    WHERE tenant = $1 AND project = $2 AND state = 'live' ORDER BY key"""


def choose_merge(segments: Sequence[SegmentRow]) -> list[SegmentRow]:
    """The segments to merge now: as many of one size as it takes, the smallest first."""
    by_size: dict[int, list[SegmentRow]] = {}
    for segment in segments:
        by_size.setdefault(_size_class(segment.documents), []).append(segment)
    for _, several in sorted(by_size.items()):
        chosen, documents = list[SegmentRow](), 0
        for segment in several:
            if documents + segment.documents <= MAX_SEGMENT_DOCUMENTS:
                chosen.append(segment)
                documents += segment.documents
        chosen = chosen[: 2 * MERGED_SEGMENTS]
        if len(chosen) >= MERGED_SEGMENTS:
            return chosen
    return []


def _size_class(documents: int) -> int:
    size, limit = 0, SMALLEST_SIZE * MERGED_SEGMENTS
    while documents >= limit:
        size, limit = size + 1, limit * MERGED_SEGMENTS
    return size


def merge_segments(
    database: Database, tenant: str, project: str, chosen: Sequence[SegmentRow]
) -> bool:
    """Merge segments into one; False if one of them was changed meanwhile."""
    old = _read_segments(database, chosen)
    if old is None:
        return False
    merged, places = _merge_columns(old)
    with database.write() as writer:
        key = insert_segment(writer, tenant, project, merged, "building")
    terms = _merge_terms(database, chosen, places)
    while page := list(islice(terms, _PAGE_TERMS)):
        with database.write() as writer:
            if not _is_building(writer, key):
                return False
            writer.run_many(PUT_TERM, ((key, term, data) for term, data in page))
    with database.write() as writer:
        if not _is_building(writer, key) or not _take_place(writer, chosen, key, merged):
            writer.all("UPDATE search_segments SET state = 'dead' WHERE key = $1", key)
            return False
    return True


def _read_segments(
    database: Database, chosen: Sequence[SegmentRow]
) -> list[tuple[int, Segment]] | None:
    found = list[tuple[int, Segment]]()
    for row in chosen:
        with database.read() as reader:
            data = reader.first_row(
                """SELECT data FROM search_segments
                    WHERE key = $1 AND revision = $2 AND state = 'live'""",
                row.key,
                row.revision,
            )
        if data is None:
            return None
        found.append((row.key, decode_segment(data[0], row.key)))
    return found


_JOINED_COLUMNS = ("seqs", "created", "lengths", "tokens", "kinds", "importance", "digests")


def _merge_columns(old: Sequence[tuple[int, Segment]]) -> tuple[Segment, dict[int, Numbers]]:
    """The columns of the merged segment, and for each old one its new ordinals; -1 for what was
    purged.
    """
    segments = [segment for _, segment in old]
    names = tuple(dict.fromkeys(name for segment in segments for name in segment.names))
    numbers = {name: number for number, name in enumerate(names)}
    renamed = [
        np.array([numbers[name] for name in segment.names], dtype="<u2")[segment.authors]
        for segment in segments
    ]
    spread = [spread_lines(segment) for segment in segments]
    lines = [segment.lines[each[0]] for segment, each in zip(segments, spread, strict=True)]
    columns = {
        name: np.concatenate([getattr(segment, name) for segment in segments])
        for name in _JOINED_COLUMNS
    }
    columns["authors"] = np.concatenate(renamed)
    seqs, created = columns["seqs"], columns["created"]
    order = np.lexsort((seqs, created))
    order = order[seqs[order] != 0]
    places = np.full(len(seqs), -1, dtype=np.int64)
    places[order] = np.arange(len(order))
    merged = arrange_lines(
        {name: column[order] for name, column in columns.items()},
        names,
        np.concatenate(lines)[order],
        np.concatenate([each[1] for each in spread])[order],
        np.concatenate([each[2] for each in spread])[order],
    )
    ends = np.cumsum([len(segment) for segment in segments])[:-1]
    split = np.split(places, ends)
    return merged, {key: part for (key, _), part in zip(old, split, strict=True)}


def _merge_terms(
    database: Database, chosen: Sequence[SegmentRow], places: dict[int, Numbers]
) -> Iterator[tuple[str, bytes]]:
    streams = [_read_terms(database, row.key) for row in chosen]
    for term, several in groupby(merge(*streams), key=lambda row: row[0]):
        ordinals, counts = list[Numbers](), list[Numbers]()
        for _, key, data in several:
            postings = decode_postings(data)
            ordinals.append(places[key][postings.ordinals])
            counts.append(postings.counts)
        joined, often = np.concatenate(ordinals), np.concatenate(counts)
        if len(joined) == 1:
            if joined[0] >= 0:
                yield term, encode_postings(joined, often)
            continue
        order = np.argsort(joined)
        order = order[np.searchsorted(joined, 0, sorter=order) :]
        if len(order):
            yield term, encode_postings(joined[order], often[order])


def _read_terms(database: Database, key: int) -> Iterator[tuple[str, int, bytes]]:
    last = ""
    while True:
        with database.read() as reader:
            rows = reader.all(_TERMS, key, last, _PAGE_TERMS)
        yield from ((term, key, data) for term, data in rows)
        if len(rows) < _PAGE_TERMS:
            return
        last = rows[-1][0]


_TERMS = """SELECT term, data FROM search_terms WHERE segment = $1 AND term > $2
    ORDER BY term LIMIT $3"""


def _is_building(writer: Writer, key: int) -> bool:
    found = writer.first_row("SELECT state FROM search_segments WHERE key = $1 {lock}", key)
    return found == ("building",)


def _take_place(writer: Writer, chosen: Sequence[SegmentRow], key: int, merged: Segment) -> bool:
    """Put a new segment in the place of old ones, if those are as they were."""
    found = {
        row[0]: tuple(row[1:])
        for row in writer.all(
            """SELECT key, revision, state FROM search_segments
                WHERE key IN {each_int:1} ORDER BY key {lock}""",
            str([row.key for row in chosen]),
        )
    }
    if any(found.get(row.key) != (row.revision, "live") for row in chosen):
        return False
    embedded = writer.all(_EMBEDDED, str([row.key for row in chosen]), len(chosen))
    for row in chosen:
        writer.all("UPDATE search_segments SET state = 'dead' WHERE key = $1", row.key)
        writer.all("DELETE FROM search_lines WHERE segment = $1", row.key)
        writer.all("DELETE FROM search_embedded WHERE segment = $1", row.key)
    put_lines(writer, key, merged)
    writer.run_many(
        "INSERT INTO search_embedded (segment, embedder) VALUES ($1, $2)",
        [(key, embedder) for (embedder,) in embedded],
    )
    writer.all("UPDATE search_segments SET state = 'live' WHERE key = $1", key)
    return True


# Those who made vectors of all messages of all of these segments.
_EMBEDDED = """SELECT embedder FROM search_embedded WHERE segment IN {each_int:1}
    GROUP BY embedder HAVING count(*) = $2"""


def remove_dead(database: Database, tenant: str, project: str) -> None:
    """Remove what is left of segments that were merged, or never finished; a page at a time."""
    with database.read() as reader:
        found = reader.all(
            """SELECT key FROM search_segments WHERE tenant = $1 AND project = $2
                AND (state = 'dead' OR (state = 'building' AND created < $3))""",
            tenant,
            project,
            time.time_ns() // 1_000_000 - _ABANDONED_MILLISECONDS,
        )
    for (key,) in found:
        with database.write() as writer:
            writer.all("UPDATE search_segments SET state = 'dead' WHERE key = $1", key)
        while _remove_page(database, key):
            pass


def _remove_page(database: Database, key: int) -> bool:
    """Remove some terms of a segment, and at last the segment; whether there are more."""
    with database.write() as writer:
        last = writer.first_row(_PAGE_END, key, _PAGE_TERMS - 1)
        if last is not None:
            writer.all("DELETE FROM search_terms WHERE segment = $1 AND term <= $2", key, last[0])
            return True
        writer.all("DELETE FROM search_terms WHERE segment = $1", key)
        writer.all("DELETE FROM search_segments WHERE key = $1", key)
    return False


_PAGE_END = "SELECT term FROM search_terms WHERE segment = $1 ORDER BY term LIMIT 1 OFFSET $2"
