"""Search over what was said: on the path of a session, or in all sessions of a scope.

Rules of this file:
- Only paths are searched, and nothing that is hidden on them. Where a version stands for a node,
  that is what is read.
- A hit has a handle that brings back its message; the same message has the same one each time.
- An embedder that fails costs its part of the score, never the search.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.conversation.message import Message
from loom.conversation.metadata import check_filter, filter_terms
from loom.errors import ChoiceError, StoreError, describe
from loom.recall.hits import Hit, Match, Neighbour
from loom.recall.question import read_question
from loom.stores import (
    FoundHandle,
    HandleTarget,
    Node,
    Overlay,
    Scope,
    SessionRow,
    Store,
    ViewRecord,
)

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder, Vectors
    from loom.recall.room import RecallRoom
    from loom.stores import FoundNode, StoreIndex

DEFAULT_HITS = 10  # hits, if nobody says how many, nor how many tokens


class CheckedSearch(Struct, frozen=True):
    """What is searched for, checked; `where` are terms of metadata, of each collection one."""

    query: str
    tokens: int | None
    limit: int | None
    where: tuple[frozenset[str], ...]
    now: int


def check_search(
    query: object, tokens: object, limit: object, where: object, now: int
) -> CheckedSearch:
    """A search as a caller asks for it. Without `tokens` and `limit`, a few hits are found."""
    read_question(query)
    for what, number in (("tokens", tokens), ("limit", limit)):
        if number is not None and (type(number) is not int or number < 1):
            raise ChoiceError(
                f"the {what} of a search must be a whole number from 1, found {describe(number)}"
            )
    if tokens is None and limit is None:
        limit = DEFAULT_HITS
    assert isinstance(query, str)
    assert tokens is None or isinstance(tokens, int)
    assert limit is None or isinstance(limit, int)
    return CheckedSearch(query, tokens, limit, tuple(filter_terms(check_filter(where))), now)


def search_session(
    store: Store,
    row: SessionRow,
    overlay: Overlay,
    request: CheckedSearch,
    shown: frozenset[int] = frozenset(),
    embedder: "Embedder | None" = None,
) -> list[Hit]:
    """The messages of a path that say most of a query, best first, without those at the places
    `shown`.

    `overlay` is the path with what bears on it: what is hidden from it never shows up. Handles are
    kept for the session `row`.
    """
    row.check_alive()
    asking = embed_question(request, embedder)
    with store.search.read_session(row, overlay, request.where, asking) as index:
        matches = find_matches(index, request, asking, index.keys_at(shown))
        hits, handles = _make_hits(index, matches)
    store.views.keep_found(handles, request.now)
    return hits


def search_tree(
    store: Store,
    row: SessionRow,
    request: CheckedSearch,
    is_model: bool,
    embedder: "Embedder | None" = None,
) -> list[tuple[Node, str]]:
    """The nodes of the tree of a session that say most of a query, on all branches, best first,
    each with the passage that says most of it.
    """
    row.check_alive()
    asking = embed_question(request, embedder)
    with store.search.read_tree(row, is_model, asking) as index:
        matches = find_matches(index, request, asking)
        keys = [match.key for match in matches]
        found, texts = index.nodes(keys), index.texts(keys)
    return [
        (found[match.key].node, texts[match.key][slice(*match.passage)])
        for match in matches
        if match.key in found
    ]


def search_project(
    store: Store, scope: Scope, request: CheckedSearch, embedder: "Embedder | None" = None
) -> list[Hit]:
    """The messages in all sessions of a scope that say most of a query, best first."""
    asking = embed_question(request, embedder)
    with store.search.read_project(scope, request.where, asking) as index:
        matches = find_matches(index, request, asking)
        hits, handles = _make_hits(index, matches)
    store.views.keep_found(handles, request.now)
    return hits


class RecalledMessage(Struct, frozen=True):
    """A message that matters to a request: where it is, its node, its handle, and the part that
    matters.
    """

    place: int
    seq: int
    handle: str
    message: Message
    text: str


def search_relevant(
    store: Store,
    row: SessionRow,
    overlay: Overlay,
    request: CheckedSearch,
    shown: frozenset[int],
    room: "RecallRoom",
) -> list[RecalledMessage]:
    """The messages of a path that clearly matter to a request, best first, without those at the
    places `shown`. What was said after the path does not change what is found.
    """
    from loom.recall.relevance import find_relevant
    from loom.recall.search import SearchRequest

    with store.search.read_session(row, overlay) as index:
        looked = SearchRequest(request.query, excluded=index.keys_at(shown))
        chosen = find_relevant(index, looked, room)
        found = index.nodes([each.key for each in chosen])
    handles = {key: _make_handle(each) for key, each in found.items()}
    with suppress(StoreError):  # a store that can only be read will do for a look
        store.views.keep_found(list(handles.values()), request.now)
    made: list[RecalledMessage] = []
    for each in chosen:
        node = found[each.key].node if each.key in found else None
        if node is not None and node.message is not None:
            handle = handles[each.key].handle
            made.append(RecalledMessage(node.depth, node.seq, handle, node.message, each.text))
    return made


def find_matches(
    index: "StoreIndex",
    request: CheckedSearch,
    embedder: "Embedder | None",
    excluded: frozenset[int] = frozenset(),
) -> list[Match]:
    # Scoring needs numpy, which only a search loads.
    from loom.recall.choosing import Room
    from loom.recall.search import SearchRequest, search

    room = Room(tokens=request.tokens, limit=request.limit)
    return search(index, SearchRequest(request.query, room, excluded, request.now), embedder)


class _AskingEmbedder:
    """An embedder that has embedded the question already. What it cannot embed later is zeros."""

    def __init__(self, embedder: "Embedder", question: str) -> None:
        from loom.recall.background import embed_background

        self._embedder, self._question = embedder, question
        self._vectors = embedder.embed([question])
        embed_background(embedder)  # made here once, not while the store is read

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    def embed(self, texts: Sequence[str]) -> "Vectors":
        if list(texts) == [self._question]:
            return self._vectors
        try:
            return self._embedder.embed(texts)
        except Exception as error:  # the words are enough to find messages
            _warn(error)
            return self._vectors.repeat(len(texts), axis=0) * 0


def embed_question(request: CheckedSearch, embedder: "Embedder | None") -> "_AskingEmbedder | None":
    """The embedder for one search, asked before anything is read; None if it fails."""
    if embedder is None:
        return None
    try:
        return _AskingEmbedder(embedder, request.query)
    except Exception as error:  # the words are enough to find messages
        _warn(error)
        return None


def _warn(error: Exception) -> None:
    warnings.warn(
        f"the embedder failed, so this search goes by words alone: {error!r}",
        RuntimeWarning,
        stacklevel=4,
    )


def _make_hits(
    index: "StoreIndex", matches: Sequence[Match]
) -> tuple[list[Hit], list[FoundHandle]]:
    """Hits from matches, and the handles that they have."""
    keys = [key for match in matches for key in (match.key, *match.before, *match.after)]
    found = index.nodes(keys)
    texts = index.texts([match.key for match in matches])
    handles = {key: _make_handle(each) for key, each in found.items()}
    hits = [
        _make_hit(match, found, handles, texts.get(match.key, ""))
        for match in matches
        if match.key in found
    ]
    return hits, list(handles.values())


def _make_handle(found: "FoundNode") -> FoundHandle:
    handle, target = _name_alone(found.node, found.anchor)
    return FoundHandle(found.path.tree, found.path.key, handle, target)


def make_found_handle(node: Node, anchor: str, row: SessionRow) -> FoundHandle:
    """The handle of a message for a session. `anchor` is the id of the node that it replaces."""
    handle, target = _name_alone(node, anchor)
    return FoundHandle(row.tree.key, row.key, handle, target)


def _name_alone(node: Node, anchor: str) -> tuple[str, HandleTarget]:
    """Made as the handle of a marker for this message alone would be."""
    return HandleTarget.of_nodes("span", ((node.id, node.id),), at=anchor)


def _make_hit(
    match: Match,
    found: "Mapping[int, FoundNode]",
    handles: Mapping[int, FoundHandle],
    text: str,
) -> Hit:
    own = found[match.key]
    start, stop = match.passage
    assert own.node.message is not None
    return Hit(
        handle=handles[match.key].handle,
        node=own.node.short_id,
        place=own.node.depth,
        role=own.node.role,
        score=match.score,
        text=text[start:stop],
        session=own.path.session,
        created=own.node.created,
        message=own.node.message,
        metadata=own.metadata,
        neighbours=tuple(
            _make_neighbour(found[key], handles[key].handle)
            for key in (*match.before, *match.after)
            if key in found
        ),
        tokens=match.tokens,
        reason=match.reason,
    )


def _make_neighbour(found: "FoundNode", handle: str) -> Neighbour:
    node = found.node
    assert node.message is not None
    return Neighbour(handle, node.short_id, node.depth, node.role, node.message)


def shown_in(view: ViewRecord | None, length: int) -> frozenset[int]:
    """The places on a path of this many nodes that are complete in its last request, and those that
    have come since.
    """
    if view is None:
        return frozenset()
    shown = set(range(view.positions[-1][1] if view.positions else view.ranges[-1][0], length))
    for piece, (start, stop) in zip(view.epoch.pieces, view.positions, strict=False):
        kept = [item.action == "kept" for item in piece.items]
        if len(kept) == stop - start:
            shown.update(start + n for n, is_kept in enumerate(kept) if is_kept)
        elif all(kept):  # several nodes that were joined to one message
            shown.update(range(start, stop))
    return frozenset(shown)
