"""How messages leave the index: with all of their words, when they are purged."""

from collections.abc import Collection, Mapping

import numpy as np
from msgspec.structs import replace

from loom.conversation.canonical import to_json
from loom.conversation.searchable import searchable_text
from loom.recall.index import MAX_TEXT_CHARS
from loom.stores.search.indexing import (
    count_terms,
    drop_segments,
    each_page,
    is_outdated,
)
from loom.stores.search.segments import (
    Numbers,
    Segment,
    decode_postings,
    decode_segment,
    encode_postings,
    encode_segment,
)
from loom.stores.sessions import metadata_of
from loom.stores.sql.database import Writer
from loom.stores.sql.stored import UNREADABLE
from loom.stores.tree.nodes import TreeRow
from loom.stores.tree.path import BY_SEQ, to_message

_PAGE_NODES = 500


def forget_nodes(writer: Writer, tree: TreeRow, gone: Collection[int]) -> None:
    """Take nodes of a tree out of the index. Their words must still be there.

    Segments that others are building may hold words of them, so these are given up.
    """
    writer.all(
        """UPDATE search_segments SET state = 'dead', created = 0
            WHERE tenant = $1 AND project = $2 AND state = 'building'""",
        tree.tenant,
        tree.project,
    )
    _remove_dead_terms(writer, tree)
    if not gone:
        return
    if is_outdated(writer, tree.tenant, tree.project):
        drop_segments(writer, tree.tenant, tree.project)
        return
    segments = writer.all(_SEGMENTS_OF, tree.key)
    if segments:
        found = _find_terms(writer, tree.key, gone)
        if found is None:
            drop_segments(writer, tree.tenant, tree.project)
            return
        for key, data in segments:
            _forget_in(writer, key, decode_segment(data, key), found)
    for page in each_page(sorted(gone), _PAGE_NODES):
        writer.all(
            "DELETE FROM search_vectors WHERE tree = $1 AND seq IN {each_int:2}",
            tree.key,
            str(list(page)),
        )


_SEGMENTS_OF = """SELECT s.key, s.data FROM search_segments s
    WHERE s.key IN (SELECT l.segment FROM search_lines l WHERE l.tree = $1) ORDER BY s.key {lock}"""


def _remove_dead_terms(writer: Writer, tree: TreeRow) -> None:
    """Terms of segments that nobody reads any more are words all the same."""
    for (key,) in writer.all(
        "SELECT key FROM search_segments WHERE tenant = $1 AND project = $2 AND state = 'dead'",
        tree.tenant,
        tree.project,
    ):
        writer.all("DELETE FROM search_terms WHERE segment = $1", key)


def _find_terms(
    writer: Writer, tree: int, gone: Collection[int]
) -> dict[int, Collection[str]] | None:
    """The terms of nodes, by their keys; None if some cannot be read."""
    found: dict[int, Collection[str]] = {}
    for page in each_page(sorted(gone), _PAGE_NODES):
        metadata = metadata_of(writer, tree, page)
        for seq, body in writer.all(f"SELECT n.seq, n.body FROM {BY_SEQ}", tree, str(list(page))):
            try:
                if body is not None:
                    text = searchable_text(to_message(body))[:MAX_TEXT_CHARS]
                    found[seq] = count_terms(text, metadata.get(seq, {}))[1].keys()
            except UNREADABLE:
                return None
    return found


def _forget_in(
    writer: Writer, key: int, segment: Segment, terms: Mapping[int, Collection[str]]
) -> None:
    """Take messages out of one segment, or remove it if none is left."""
    ordinals = [(ordinal, seq) for ordinal, seq in enumerate(segment.seqs.tolist()) if seq in terms]
    if not ordinals:
        return
    kept = segment.seqs.copy()
    kept[[ordinal for ordinal, _ in ordinals]] = 0
    if not kept.any():
        for table in ("search_terms", "search_lines", "search_embedded"):
            writer.all(f"DELETE FROM {table} WHERE segment = $1", key)
        writer.all("DELETE FROM search_segments WHERE key = $1", key)
        return
    by_term: dict[str, list[int]] = {}
    for ordinal, seq in ordinals:
        for term in terms[seq]:
            by_term.setdefault(term, []).append(ordinal)
    for page in each_page(sorted(by_term), _PAGE_NODES):
        _forget_terms(writer, key, {term: by_term[term] for term in page})
    authors = segment.authors.copy()
    authors[kept == 0] = segment.names.index("")
    names = tuple(
        name if name == "" or np.any(authors == number) else ""
        for number, name in enumerate(segment.names)
    )
    digests = segment.digests.copy()  # of few words, these could be guessed
    digests[kept == 0] = 0
    changed = replace(segment, seqs=kept, authors=authors, names=names, digests=digests)
    writer.all(
        "UPDATE search_segments SET data = $2, revision = revision + 1 WHERE key = $1",
        key,
        encode_segment(changed),
    )


def _forget_terms(writer: Writer, key: int, ordinals: Mapping[str, list[int]]) -> None:
    empty, changed = list[tuple[int, str]](), list[tuple[int, str, bytes]]()
    for term, data in writer.all(_TERMS, key, to_json(list(ordinals))):
        postings = decode_postings(data)
        left: Numbers = ~np.isin(postings.ordinals, np.array(ordinals[term], dtype="<u2"))
        if left.any():
            kept = encode_postings(postings.ordinals[left], postings.counts[left])
            changed.append((key, term, kept))
        else:
            empty.append((key, term))
    writer.run_many("DELETE FROM search_terms WHERE segment = $1 AND term = $2", empty)
    writer.run_many("UPDATE search_terms SET data = $3 WHERE segment = $1 AND term = $2", changed)


_TERMS = """SELECT t.term, t.data FROM {each:2} e CROSS JOIN search_terms t
    WHERE t.segment = $1 AND t.term = e.value"""
