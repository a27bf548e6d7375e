"""The layers of a session's memory, as questions to the messages and summaries that there are.

L1 is what was said last, L2 what is most important, L3 the summaries. L4, across sessions, is a
search of the project. No layer shows what is hidden on the path, and none shows a text twice.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from loom.budget.counting import gate_counter
from loom.conversation.message import Message
from loom.conversation.repeats import text_digest
from loom.conversation.searchable import searchable_text
from loom.engine.search import CheckedSearch, embed_question, find_matches, make_found_handle
from loom.errors import StoreError
from loom.recall.importance import PLANNING, base_importance, current_importance
from loom.stores import (
    FoundHandle,
    HandleTarget,
    Node,
    Overlay,
    SessionRow,
    Store,
    Use,
    UsedNodes,
)

if TYPE_CHECKING:
    from loom.recall.embedder import Embedder

_CHUNK_NODES = 64
_READ_BACK = 1000  # nodes beyond the limit that are read for texts that were not said before
SUMMARY_IMPORTANCE = PLANNING


class MemoryItem(Struct, frozen=True):
    """A message or a summary in a layer of memory.

    `importance` is from 0 to 1, as it is now. `uses` counts how often it was opened or pinned. A
    summary has no message; its handle brings back what it summarizes. `created` is in milliseconds
    since 1970.
    """

    handle: str
    node: str
    place: int
    role: str
    text: str
    session: str
    created: int
    importance: float
    uses: int = 0
    tokens: int = 0
    message: Message | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class LayerScope(Struct, frozen=True):
    """Whose memory is meant: a session, its path with what bears on it, and the time."""

    store: Store
    row: SessionRow
    overlay: Overlay
    now: int


def list_recent(where: LayerScope, limit: int, repeats: bool) -> list[MemoryItem]:
    """L1: the newest messages, the newest first."""
    nodes = _read_back(where.overlay, limit, repeats)
    seqs = [node.seq for node, _ in nodes]
    metadata = where.store.sessions.metadata(where.row.tree, seqs) if seqs else {}
    used = where.store.uses.read(where.row)
    items = [
        _make_item(where, node, anchor, metadata.get(node.seq, {}), used) for node, anchor in nodes
    ]
    return _keep_handles(where, items)


def _read_back(overlay: Overlay, limit: int, repeats: bool) -> list[tuple[Node, str]]:
    """The newest nodes that are seen, each with the id of the node that it replaces, if any."""
    path, seen = overlay.path, set[int]()
    found: list[tuple[Node, str]] = []
    stop = len(path)
    least = max(stop - limit - _READ_BACK, 0)
    while stop > least and len(found) < limit:
        start = max(stop - max(_CHUNK_NODES, limit), least)
        for node in reversed(path.read(start, stop)):
            if node.depth in overlay.hidden:
                continue
            version = overlay.versions.get(node.depth)
            shown = version.node if version else node
            if shown.message is None or not _is_new(shown.message, seen, repeats):
                continue
            found.append((shown, node.id if version else ""))
        stop = start
    return found[:limit]


def _is_new(message: Message, seen: set[int], repeats: bool) -> bool:
    """Whether a text was not seen before; now it was."""
    text = searchable_text(message)
    if repeats or not text.strip():
        return True
    digest = text_digest(message.role, text)
    if digest in seen:
        return False
    seen.add(digest)
    return True


def list_important(where: LayerScope, limit: int, repeats: bool) -> list[MemoryItem]:
    """L2: the most important messages that are not forgotten, the most important first."""
    used = where.store.uses.read(where.row)
    with where.store.search.read_session(where.row, where.overlay) as index:
        ranked = index.find_important(used.uses, used.forgotten, limit, repeats)
        found = index.nodes([key for key, _ in ranked])
    items = [
        _make_item(where, found[key].node, found[key].anchor, found[key].metadata, used, base)
        for key, base in ranked
        if key in found
    ]
    if not repeats:
        items = _drop_equal(items)
    return _keep_handles(where, items)


def search_important(
    where: LayerScope, request: CheckedSearch, limit: int, embedder: "Embedder | None"
) -> list[MemoryItem]:
    """L2 for a question: the messages that say something of it, by how much they say and how
    important they are.
    """
    used = where.store.uses.read(where.row)
    asking = embed_question(request, embedder)
    with where.store.search.read_session(where.row, where.overlay, (), asking) as index:
        matches = [
            match
            for match in find_matches(index, request, asking)
            if match.key not in used.forgotten
        ]
        found = index.nodes([match.key for match in matches])
    best = max((match.score for match in matches), default=0.0) or 1.0
    scored: list[tuple[float, tuple[MemoryItem, FoundHandle]]] = []
    for match in matches:
        if match.key in found:
            each = found[match.key]
            made = _make_item(where, each.node, each.anchor, each.metadata, used)
            worth = match.score / best * (0.5 + made[0].importance / 2)
            scored.append((round(worth, 4), made))
    scored.sort(key=lambda each: (each[0], each[1][0].created, each[1][0].place), reverse=True)
    return _keep_handles(where, _drop_equal([item for _, item in scored])[:limit])


def list_summaries(where: LayerScope, limit: int) -> list[MemoryItem]:
    """L3: the summaries of the path, the newest first."""
    path, hidden = where.overlay.path, where.overlay.hidden
    count = gate_counter(None).count_text
    items: list[tuple[MemoryItem, FoundHandle]] = []
    for summary in reversed(where.store.summaries.on_path(where.row, path, hidden)[-limit:]):
        first, last = path[summary.start], path[summary.stop - 1]
        handle, target = HandleTarget.of_nodes("span", ((first.id, last.id),))
        age = where.now - last.created
        item = MemoryItem(
            handle=handle,
            node=last.short_id,
            place=last.depth,
            role="summary",
            text=summary.text,
            session=where.row.id,
            created=last.created,
            importance=current_importance(SUMMARY_IMPORTANCE, age),
            tokens=count(summary.text),
        )
        items.append((item, FoundHandle(where.row.tree.key, where.row.key, handle, target)))
    return _keep_handles(where, items)


def _make_item(
    where: LayerScope,
    node: Node,
    anchor: str,
    metadata: Mapping[str, Any],
    used: UsedNodes,
    base: float | None = None,
) -> tuple[MemoryItem, FoundHandle]:
    message = node.message
    assert message is not None
    if base is None:
        base = base_importance(message, False, metadata)
    use = used.uses.get(node.seq, Use(0, 0))
    found = make_found_handle(node, anchor, where.row)
    item = MemoryItem(
        handle=found.handle,
        node=node.short_id,
        place=node.depth,
        role=node.role,
        text=searchable_text(message),
        session=where.row.id,
        created=node.created,
        importance=current_importance(base, where.now - max(node.created, use.last), use.count),
        uses=use.count,
        tokens=node.tokens,
        message=message,
        metadata=metadata,
    )
    return item, found


def _drop_equal(
    items: Sequence[tuple[MemoryItem, FoundHandle]],
) -> list[tuple[MemoryItem, FoundHandle]]:
    """The items without those whose text one before them has."""
    seen = set[int]()
    return [
        each
        for each in items
        if each[0].message is None or _is_new(each[0].message, seen, repeats=False)
    ]


def _keep_handles(
    where: LayerScope, items: Sequence[tuple[MemoryItem, FoundHandle]]
) -> list[MemoryItem]:
    """The items. Their handles are kept; a store that can only be read will do for a look."""
    with suppress(StoreError):
        where.store.views.keep_found([handle for _, handle in items], where.now)
    return [item for item, _ in items]
