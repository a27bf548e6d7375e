"""What a session brings back: what was left out under a handle, and what a search finds."""

from collections.abc import Mapping
from typing import Any

from loom.conversation.handles import to_lines
from loom.dialects.document import to_plain_text
from loom.engine.search import check_search, search_session, shown_in
from loom.engine.sessions.place import SessionPlace
from loom.recall.hits import Hit


def recall_text(place: SessionPlace, handle: str, plain: bool) -> str:
    """What was left out under a handle, for people: with what was excluded since then."""
    write = to_plain_text if plain else to_lines
    text = place.store.views.recall(place.row, place.path, handle, write)
    _note_recall(place, handle, text)
    return text


def recall_shown_text(place: SessionPlace, handle: str, plain: bool) -> tuple[str, int]:
    """What was left out under a handle, for a model: without messages that are excluded or pruned
    now. Returns how many are missing too.
    """
    overlay = place.overlay(place.path)
    depths = [depth for depth, why in overlay.hidden.items() if why == "excluded"]
    hidden = {seq for seq, _, _ in overlay.path.names_at(depths).values()}
    write = to_plain_text if plain else to_lines
    text, missing = place.store.views.recall_shown(place.row, place.path, handle, hidden, write)
    _note_recall(place, handle, text)
    return text, missing


def _note_recall(place: SessionPlace, handle: str, text: str) -> None:
    place.workspace.open_handle(handle, place.row)
    place.emit("recalled", handle=handle, characters=len(text))


def search_messages(
    place: SessionPlace,
    query: str,
    limit: int | None,
    tokens: int | None,
    shown: bool,
    where: Mapping[str, Any] | None,
) -> list[Hit]:
    """Messages of the session; without those that the last request contains, unless `shown`."""
    request = check_search(query, tokens, limit, where, place.now())
    places = frozenset[int]()
    if not shown:
        newest = place.store.views.read_newest(place.row, place.path)
        places = shown_in(newest, len(place.path))
    indexer = place.workspace.indexer
    indexer.catch_up(place.row.tree.key)
    return search_session(
        place.store, place.row, place.overlay(place.path), request, places, indexer.embedder
    )
