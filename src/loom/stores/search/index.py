"""The index of a store as a search reads it, in one snapshot: an `Index` of `loom.recall`."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from loom.conversation.searchable import searchable_text
from loom.recall.embedder import Embedder, Vector, compare_vectors
from loom.recall.index import Document, Size
from loom.recall.ranking import RankedMessages, choose_important, rank_values
from loom.stores.memory.uses import Use
from loom.stores.search.indexing import pairs_of
from loom.stores.search.scope import SearchedPath, SearchScope
from loom.stores.search.segments import (
    IndexedMessage,
    Numbers,
    Postings,
    Segment,
    decode_postings,
    decode_segment,
    find_lines,
    list_terms,
    make_segment,
)
from loom.stores.search.vectors import MAX_EMBEDDED_CHARS, EmbedderKeys, decode_vectors
from loom.stores.sessions import metadata_by_pairs
from loom.stores.sql.database import Reader
from loom.stores.sql.stored import UNREADABLE
from loom.stores.tree import nodes
from loom.stores.tree.path import OF_N, Node, ancestor, to_message, to_node

MAX_AUTHORS = 300
MAX_COMPARED_VECTORS = 2048  # the newest in the scope, that a question is compared with
_ROUNDED_DIGITS = 6


class FoundNode(Struct, frozen=True):
    """A node that a search found, on which path, and its metadata; `anchor` is the id of the node
    whose place it takes, if it is a version.
    """

    node: Node
    path: SearchedPath
    metadata: Mapping[str, Any]
    anchor: str


class SegmentCache:
    """Segments in memory, the ones used last; each as it was after its last purge."""

    def __init__(self, max_bytes: int = 96 * 2**20) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._held: dict[tuple[int, int], Segment] = {}

    def get(self, key: int, revision: int) -> Segment | None:
        found = self._held.pop((key, revision), None)
        if found is not None:
            self._held[key, revision] = found
        return found

    def put(self, key: int, revision: int, segment: Segment) -> None:
        if (key, revision) in self._held:
            return
        self._held[key, revision] = segment
        self._bytes += segment.size
        while self._bytes > self._max_bytes and len(self._held) > 1:
            oldest = next(iter(self._held))
            self._bytes -= self._held.pop(oldest).size

    def clear(self) -> None:
        self._held.clear()
        self._bytes = 0


class _Part:
    """A segment with what the scope may see of it."""

    def __init__(self, key: int, segment: Segment, visible: Numbers) -> None:
        self.key, self.segment = key, segment
        self.postings: dict[str, Postings | None] = {}
        self.show(visible)

    def show(self, visible: Numbers) -> None:
        """Let these messages be seen, by ordinal."""
        self.visible = visible
        self._shows_all = bool(visible.all())

    def ordinals(self, term: str) -> Numbers:
        found = self.postings.get(term)
        if found is None:
            return np.empty(0, dtype=np.int64)
        return found.ordinals if self._shows_all else found.ordinals[self.visible[found.ordinals]]

    def column(self, values: Numbers) -> Numbers:
        """Of a column, what belongs to messages that may be seen."""
        return values if self._shows_all else values[self.visible]

    def find(self, line: int, depths: Numbers) -> Iterator[tuple[int, int]]:
        """The depths of a line, of these, at which a message may be seen, each with its ordinal."""
        segment = self.segment
        number = int(np.searchsorted(segment.lines, line))
        start, stop = int(segment.starts[number]), int(segment.starts[number + 1])
        own = segment.depths[start:stop]
        wanted = depths.astype(own.dtype)  # of another type, all of `own` would be converted
        wanted = wanted[(wanted >= own[0]) & (wanted <= own[-1])]
        places = np.searchsorted(own, wanted)
        ordinals = segment.order[start + places]
        seen = (own[places] == wanted) & self.visible[ordinals]
        return zip(wanted[seen].tolist(), ordinals[seen].tolist(), strict=True)


_NONE: Mapping[str, int] = {}


def _count_each(part: _Part, ordinals: Numbers, terms: Sequence[str]) -> dict[int, dict[str, int]]:
    """How often each of these messages has which terms, by its row."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for term in terms:
        postings = part.postings.get(term)
        if postings is None:
            continue
        own = postings.ordinals
        wanted = ordinals.astype(own.dtype)  # of another type, all of `own` would be converted
        at = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
        rows = np.flatnonzero(own[at] == wanted)
        for row, count in zip(rows.tolist(), postings.counts[at[rows]].tolist(), strict=True):
            found[row][term] = count
    return found


class StoreIndex:
    """The messages of a scope. Keys are those of nodes. It is good for one search."""

    def __init__(
        self,
        reader: Reader,
        scope: SearchScope,
        cache: SegmentCache,
        where: Sequence[Collection[str]] = (),
        embedder: Embedder | None = None,
    ) -> None:
        self._reader, self._scope, self._embedder = reader, scope, embedder
        self._owners = _list_owners(scope.paths)
        self._sessions = [path.session for path in scope.paths]
        tail = sorted(scope.tail, key=lambda each: (each.message.created, each.message.seq))
        self._tail_paths = [each.path for each in tail]
        self._tail_trees = [each.message.tree for each in tail]
        self._tail_places = {
            (each.path, each.message.depth): ordinal for ordinal, each in enumerate(tail)
        }
        self._parts = list(_read_parts(reader, scope, cache))
        self._tail = _make_tail([each.message for each in tail])
        if self._tail is not None:
            self._parts.append(self._tail)
        if where:
            self._keep_only(where)
        self._found: dict[int, tuple[_Part, int]] = {}
        self._parts_by_line: dict[int, list[_Part]] | None = None
        self._texts: dict[int, str] = {}

    # What is in the scope

    def _keep_only(self, where: Sequence[Collection[str]]) -> None:
        """Leave out messages whose metadata lacks one of the terms of each collection."""
        self._fetch(sorted({term for choices in where for term in choices}))
        for part in self._parts:
            visible = part.visible
            for choices in where:
                passing = np.zeros(len(part.segment), dtype=bool)
                for term in choices:
                    passing[part.ordinals(term)] = True
                visible = visible & passing
            part.show(visible)

    def _fetch(self, terms: Iterable[str]) -> None:
        """Read who has these terms, in all segments at once."""
        stored = {part.key: part for part in self._parts if part is not self._tail}
        for term in terms:
            missing = [key for key, part in stored.items() if term not in part.postings]
            if not missing:
                continue
            for key in missing:
                stored[key].postings[term] = None
            for key, data in self._reader.all(_POSTINGS, str(missing), term):
                stored[key].postings[term] = decode_postings(data)

    # The protocol

    def size(self) -> Size:
        lengths = [part.column(part.segment.lengths) for part in self._parts]
        return Size(sum(map(len, lengths)), sum(int(own.sum()) for own in lengths))

    def frequencies(self, terms: Sequence[str]) -> Mapping[str, int]:
        self._fetch(terms)
        found = {term: sum(len(part.ordinals(term)) for part in self._parts) for term in terms}
        return {term: count for term, count in found.items() if count}

    def find_holding(self, term: str, limit: int) -> Sequence[int]:
        self._fetch([term])
        return self._choose_newest([(part, part.ordinals(term)) for part in self._parts], limit)

    def find_newest(self, limit: int) -> Sequence[int]:
        return self._choose_newest(
            [(part, _last_visible(part, limit)) for part in self._parts], limit
        )

    def find_important(
        self, uses: Mapping[int, Use], forgotten: Collection[int], limit: int, repeats: bool = False
    ) -> list[tuple[int, float]]:
        """The keys of the most important messages, each with its importance by kind and author, the
        most important first; of equals the newer.

        Without `repeats`, equal texts are found once: the newest, at the place of the most
        important.
        """
        ranked = [_rank_part(part, uses, forgotten) for part in self._parts]
        if not ranked:
            return []
        every = RankedMessages(*map(np.concatenate, zip(*ranked, strict=True)))
        chosen = choose_important(every, limit, repeats)
        starts = np.cumsum([0, *(len(each[0]) for each in ranked)])
        found: list[tuple[int, float]] = []
        for place in chosen.tolist():
            number = int(np.searchsorted(starts, place, side="right")) - 1
            part, ordinal = self._parts[number], int(every.ordinals[place])
            key = self._remember(part, ordinal)
            found.append((key, int(part.segment.importance[ordinal]) / 100))
        return found

    def find_between(self, start: int, stop: int, limit: int) -> Sequence[int]:
        found = list[tuple[_Part, Numbers]]()
        for part in self._parts:
            first, last = np.searchsorted(part.segment.created, [start, stop])
            found.append((part, first + np.flatnonzero(part.visible[first:last])))
        return self._choose_newest(found, limit)

    def _choose_newest(self, found: Sequence[tuple[_Part, Numbers]], limit: int) -> list[int]:
        """The keys of the newest of these messages; ordinals are by time."""
        keys, stamps, places = list[Numbers](), list[Numbers](), list[tuple[_Part, Numbers]]()
        for part, ordinals in found:
            newest = ordinals[max(len(ordinals) - limit, 0) :]
            if len(newest):
                keys.append(part.segment.seqs[newest])
                stamps.append(part.segment.created[newest])
                places.append((part, newest))
        if not keys:
            return []
        every = np.concatenate(keys)
        order = np.lexsort((every, np.concatenate(stamps)))[::-1][:limit]
        chosen: list[int] = every[order].tolist()
        owners = np.repeat(np.arange(len(places)), [len(own) for own in keys])[order].tolist()
        ordinals = np.concatenate([own for _, own in places])[order]
        for key, owner, ordinal in zip(chosen, owners, ordinals.tolist(), strict=True):
            self._found[key] = (places[owner][0], ordinal)
        return chosen

    def read(self, keys: Sequence[int], terms: Sequence[str]) -> Sequence[Document]:
        self._fetch(terms)
        return [
            document
            for part, ordinals in self._group(key for key in keys if key in self._found)
            for document in self._documents(part, ordinals, terms)
        ]

    def _documents(
        self, part: _Part, ordinals: Numbers, terms: Sequence[str]
    ) -> Iterator[Document]:
        segment = part.segment
        counts = _count_each(part, ordinals, terms)
        columns = zip(
            segment.seqs[ordinals].tolist(),
            self._places(part, ordinals),
            segment.roles(ordinals),
            segment.authors[ordinals].tolist(),
            segment.created[ordinals].tolist(),
            segment.lengths[ordinals].tolist(),
            segment.tokens[ordinals].tolist(),
            strict=True,
        )
        for row, (key, (path, depth), (role, echo), author, *others) in enumerate(columns):
            created, length, tokens = others
            yield Document(
                key,
                self._sessions[path],
                depth,
                role,
                segment.names[author],
                created,
                length,
                tokens,
                counts.get(row, _NONE),
                echo,
            )

    def find_near(self, keys: Sequence[int], distance: int) -> Mapping[int, Sequence[int]]:
        places = self._find_places(key for key in keys if key in self._found)
        wanted: dict[int, set[int]] = {}
        for path, depth in places.values():
            around = range(max(depth - distance, 0), depth + distance + 1)
            wanted.setdefault(path, set()).update(around)
        at = {path: self._find_at(path, sorted(depths)) for path, depths in wanted.items()}
        near: dict[int, Sequence[int]] = {}
        for key, (path, depth) in places.items():
            around = range(max(depth - distance, 0), depth + distance + 1)
            found = at[path]
            near[key] = [
                key if place == depth else found[place]
                for place in around
                if place == depth or place in found
            ]
        return near

    def _find_places(self, keys: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The path and the depth of each of these messages."""
        found: dict[int, tuple[int, int]] = {}
        for part, ordinals in self._group(keys):
            seqs = part.segment.seqs[ordinals].tolist()
            found.update(zip(seqs, self._places(part, ordinals), strict=True))
        return found

    def _group(self, keys: Iterable[int]) -> list[tuple[_Part, Numbers]]:
        """Messages by the part that they are in."""
        grouped: defaultdict[_Part, list[int]] = defaultdict(list)
        for key in keys:
            part, ordinal = self._found[key]
            grouped[part].append(ordinal)
        return [(part, np.array(ordinals)) for part, ordinals in grouped.items()]

    def _find_at(self, path: int, depths: Sequence[int]) -> dict[int, int]:
        """The keys of the messages at depths of a path that may be seen, by depth."""
        found: dict[int, int] = {}
        left = list[int]()
        hidden = self._scope.paths[path].hidden
        for depth in depths:
            ordinal = self._tail_places.get((path, depth))
            if ordinal is None:
                if depth not in hidden:
                    left.append(depth)
            elif self._tail is not None and self._tail.visible[ordinal]:
                found[depth] = self._remember(self._tail, ordinal)
        for line, several in self._split_by_line(path, left):
            wanted = np.array(several)
            for part in self._parts_of(line):
                for depth, ordinal in part.find(line, wanted):
                    found[depth] = self._remember(part, ordinal)
        return found

    def _remember(self, part: _Part, ordinal: int) -> int:
        key = int(part.segment.seqs[ordinal])
        self._found.setdefault(key, (part, ordinal))
        return key

    def _split_by_line(
        self, path: int, depths: Sequence[int]
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Depths of a path by the line that it has there."""
        stretches = sorted((upto, line) for line, upto in self._scope.paths[path].stretches.items())
        start = 0
        for upto, line in stretches:
            stop = bisect_right(depths, upto)
            if stop > start:
                yield line, depths[start:stop]
            start = stop

    def _parts_of(self, line: int) -> list[_Part]:
        """The parts that have messages of a line."""
        if self._parts_by_line is None:
            self._parts_by_line = {}
            for part in self._parts:
                if part is not self._tail:
                    for each in part.segment.lines.tolist():
                        self._parts_by_line.setdefault(each, []).append(part)
        return self._parts_by_line.get(line, [])

    def texts(self, keys: Sequence[int]) -> Mapping[int, str]:
        missing = [key for key in keys if key in self._found and key not in self._texts]
        if missing:
            for seq, body in self._reader.all(_BODIES, pairs_of(self._pairs(missing))):
                try:
                    self._texts[seq] = searchable_text(to_message(body))
                except UNREADABLE:  # damaged; the doctor tells of it
                    continue
        return {key: self._texts[key] for key in keys if key in self._texts}

    def authors(self) -> Sequence[str]:
        found: dict[str, None] = {}
        for part in self._parts:
            if len(part.segment.names) > 1:
                speak = np.zeros(len(part.segment.names), dtype=bool)
                speak[part.column(part.segment.authors)] = True
                for number in np.flatnonzero(speak).tolist():
                    found[part.segment.names[number]] = None
        return sorted(filter(None, found))[:MAX_AUTHORS]

    # Vectors

    def vectors(self, keys: Sequence[int], embedder: str) -> Mapping[int, Vector]:
        known = [key for key in keys if key in self._found]
        own = EmbedderKeys(self._reader).find(embedder)
        found: dict[int, Vector] = {}
        if own is not None and known:
            rows = self._reader.all(_VECTORS, pairs_of(self._pairs(known)), own)
            decoded = decode_vectors([data for _, data in rows])
            found = {seq: row for (seq, _), row in zip(rows, decoded, strict=True)}
        return {**found, **self._embed_tail(known, embedder)}

    def _embed_tail(self, keys: Sequence[int], embedder: str) -> dict[int, Vector]:
        """Vectors of messages that are not indexed yet."""
        fresh = [key for key in keys if self._found[key][0] is self._tail]
        if not fresh or self._embedder is None or self._embedder.name != embedder:
            return {}
        texts = self.texts(fresh)
        rows = self._embedder.embed([texts[key][:MAX_EMBEDDED_CHARS] for key in texts])
        return dict(zip(texts, rows, strict=True))

    def find_nearest(self, vector: Vector, embedder: str, limit: int) -> Sequence[int]:
        """Compares the newest messages of the scope, MAX_COMPARED_VECTORS of them at most."""
        newest = self.find_newest(MAX_COMPARED_VECTORS)
        found = self.vectors(newest, embedder)
        if not found:
            return []
        keys = [key for key in newest if key in found]
        scores = compare_vectors([found[key] for key in keys], vector)
        rounded = np.round(scores.astype(np.float64), _ROUNDED_DIGITS)
        order = np.argsort(-rounded, kind="stable")[:limit]  # of equals the newer
        return [keys[at] for at in order.tolist()]

    # Where messages are

    def nodes(self, keys: Iterable[int]) -> dict[int, FoundNode]:
        """The nodes of these messages, with the session in which each was found."""
        wanted = pairs_of(self._pairs(dict.fromkeys(keys)))
        metadata = metadata_by_pairs(self._reader, wanted)
        found: dict[int, FoundNode] = {}
        for row in self._reader.all(_NODES, wanted):
            node = to_node(row)
            path, depth = self._place(*self._found[node.seq])
            searched, anchor = self._scope.paths[path], ""
            if node.seq in searched.versions:
                original = ancestor(self._reader, searched.tree, searched.end, depth)
                anchor = nodes.place(self._reader, searched.tree, original).id
            found[node.seq] = FoundNode(node, searched, metadata.get(node.seq, {}), anchor)
        return found

    def _pairs(self, keys: Iterable[int]) -> list[tuple[int, int]]:
        """The tree and the key of each of these messages."""
        pairs = list[tuple[int, int]]()
        for part, ordinals in self._group(keys):
            if part is self._tail:
                trees = [self._tail_trees[ordinal] for ordinal in ordinals.tolist()]
            else:
                trees = find_lines(part.segment, ordinals)[1].tolist()
            pairs += zip(trees, part.segment.seqs[ordinals].tolist(), strict=True)
        return pairs

    def _place(self, part: _Part, ordinal: int) -> tuple[int, int]:
        """The number of the path on which a message is seen, and its depth."""
        return self._places(part, np.array([ordinal]))[0]

    def _places(self, part: _Part, ordinals: Numbers) -> list[tuple[int, int]]:
        """The same for several messages of a part."""
        numbers, _, depths = find_lines(part.segment, ordinals)
        if part is self._tail:
            paths = [self._tail_paths[ordinal] for ordinal in ordinals.tolist()]
            return list(zip(paths, depths.tolist(), strict=True))
        lines = part.segment.lines[numbers].tolist()
        return [
            (self._find_path(line, depth), depth)
            for line, depth in zip(lines, depths.tolist(), strict=True)
        ]

    def _find_path(self, line: int, depth: int) -> int:
        """The number of the first path on which a message is seen."""
        owners = self._owners[line]
        if len(owners) == 1:
            return owners[0]
        for path in owners:
            searched = self._scope.paths[path]
            if depth <= searched.stretches[line] and depth not in searched.hidden:
                return path
        raise AssertionError("a message that is seen is on a path")

    def keys_at(self, depths: Iterable[int]) -> frozenset[int]:
        """The keys of the messages at depths of the first path."""
        if not self._scope.paths:
            return frozenset()
        return frozenset(self._find_at(0, sorted(depths)).values())


_POSTINGS = """SELECT t.segment, t.data FROM {each_int:1} e CROSS JOIN search_terms t
    WHERE t.segment = e.value AND t.term = $2"""
_NODES = f"""SELECT {OF_N} FROM {{each_pair:1}} e CROSS JOIN nodes n
    WHERE n.tree = e.tree AND n.seq = e.seq AND n.body IS NOT NULL"""
_BODIES = """SELECT n.seq, n.body FROM {each_pair:1} e CROSS JOIN nodes n
    WHERE n.tree = e.tree AND n.seq = e.seq AND n.body IS NOT NULL"""
_VECTORS = """SELECT v.seq, v.data FROM {each_pair:1} e CROSS JOIN search_vectors v
    WHERE v.embedder = $2 AND v.tree = e.tree AND v.seq = e.seq"""


def _make_tail(messages: Sequence[IndexedMessage]) -> _Part | None:
    """A part of messages that are in no segment."""
    if not messages:
        return None
    part = _Part(0, make_segment(messages), np.ones(len(messages), dtype=bool))
    part.postings = {
        term: Postings(np.array(ordinals), np.array(counts))
        for term, (ordinals, counts) in list_terms(messages).items()
    }
    return part


def _rank_part(
    part: _Part, uses: Mapping[int, Use], forgotten: Collection[int]
) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
    """The messages of a part that may be seen and are not forgotten: keys, times, ranks, digests,
    ordinals.
    """
    segment = part.segment
    ordinals = np.flatnonzero(part.visible)
    keys = segment.seqs[ordinals]
    if forgotten:
        ordinals = ordinals[~np.isin(keys, np.array(sorted(forgotten)))]
        keys = segment.seqs[ordinals]
    created = segment.created[ordinals]
    moments, counts = created.copy(), np.zeros(len(keys), dtype=np.int64)
    if uses:
        for at in np.flatnonzero(np.isin(keys, np.array(sorted(uses)))).tolist():
            use = uses[int(keys[at])]
            counts[at], moments[at] = use.count, max(use.last, int(moments[at]))
    ranks = rank_values(segment.importance[ordinals] / 100, moments, counts)
    return keys, created, ranks, segment.digests[ordinals], ordinals


def _last_visible(part: _Part, limit: int) -> Numbers:
    """The ordinals of the newest messages that may be seen, not many more than asked for."""
    size = len(part.segment)
    window = limit
    while True:
        start = max(size - window, 0)
        found = start + np.flatnonzero(part.visible[start:])
        if len(found) >= limit or start == 0:
            return found
        window *= 4


def _list_owners(paths: Sequence[SearchedPath]) -> dict[int, list[int]]:
    """The numbers of the paths that have a line."""
    owners: dict[int, list[int]] = {}
    for number, path in enumerate(paths):
        for line in path.stretches:
            owners.setdefault(line, []).append(number)
    return owners


def _read_parts(reader: Reader, scope: SearchScope, cache: SegmentCache) -> Iterator[_Part]:
    """The segments that have messages of the scope."""
    if scope.tree:
        rows = reader.all(_LIVE_IN, scope.tree)
    elif scope.is_whole or len(scope.paths) > 1:
        rows = reader.all(_LIVE, scope.tenant, scope.project)
    else:
        rows = [
            row
            for path in scope.paths
            for row in reader.all(_LIVE_WITH, path.tree, str(list(path.stretches)))
        ]
    plain, special = _split_paths(scope.paths)
    for key, revision in rows:
        segment = cache.get(key, revision)
        if segment is None:
            found = reader.first_row("SELECT data FROM search_segments WHERE key = $1", key)
            segment = decode_segment(found[0] if found else b"", key)
            cache.put(key, revision, segment)
        visible = _see(segment, plain, special)
        if visible.any():
            yield _Part(key, segment, visible)


_LIVE = """SELECT key, revision FROM search_segments
    WHERE tenant = $1 AND project = $2 AND state = 'live' ORDER BY key"""
_LIVE_IN = """SELECT DISTINCT s.key, s.revision FROM search_lines l
    JOIN search_segments s ON s.key = l.segment
    WHERE l.tree = $1 AND s.state = 'live' ORDER BY s.key"""
_LIVE_WITH = """SELECT DISTINCT s.key, s.revision FROM {each_int:2} e CROSS JOIN search_lines l
    CROSS JOIN search_segments s
    WHERE l.tree = $1 AND l.line = e.value AND s.key = l.segment AND s.state = 'live'"""


def _split_paths(
    paths: Sequence[SearchedPath],
) -> tuple[tuple[Numbers, Numbers], list[SearchedPath]]:
    """How far each line is seen on paths where nothing is hidden; and the other paths."""
    furthest: dict[int, int] = {}
    special = list[SearchedPath]()
    for path in paths:
        if path.hidden:
            special.append(path)
            continue
        for line, upto in path.stretches.items():
            furthest[line] = max(upto, furthest.get(line, -1))
    lines = np.array(sorted(furthest), dtype=np.int64)
    return (lines, np.array([furthest[line] for line in lines.tolist()], dtype=np.int64)), special


def _see(
    segment: Segment, plain: tuple[Numbers, Numbers], special: Sequence[SearchedPath]
) -> Numbers:
    """Which messages of a segment are seen, by ordinal."""
    visible = np.zeros(len(segment), dtype=bool)
    lines, furthest = plain
    if len(lines):
        at = np.minimum(np.searchsorted(lines, segment.lines), len(lines) - 1)
        upto = np.where(lines[at] == segment.lines, furthest[at], -1)
        deepest = segment.depths[segment.starts[1:].astype(np.int64) - 1].astype(np.int64)
        if (deepest <= upto).all():
            visible[:] = True
        else:
            counts = np.diff(segment.starts.astype(np.int64))
            visible[segment.order] = segment.depths.astype(np.int64) <= np.repeat(upto, counts)
    for path in special:
        _see_path(segment, path, visible)
    visible &= segment.seqs != 0
    return visible


def _see_path(segment: Segment, path: SearchedPath, visible: Numbers) -> None:
    hidden = np.array(sorted(path.hidden), dtype=np.int64)
    for line, upto in path.stretches.items():
        number = int(np.searchsorted(segment.lines, line))
        if number == len(segment.lines) or int(segment.lines[number]) != line:
            continue
        start, stop = int(segment.starts[number]), int(segment.starts[number + 1])
        depths = segment.depths[start:stop].astype(np.int64)
        seen = (depths <= upto) & ~np.isin(depths, hidden)
        visible[segment.order[start:stop][seen]] = True
