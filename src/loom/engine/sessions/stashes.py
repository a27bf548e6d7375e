"""Texts that a session keeps under labels, outside of requests."""

from collections.abc import Mapping

from loom.conversation.canonical import to_json
from loom.conversation.checked import check_text
from loom.conversation.names import check_name
from loom.engine.sessions.place import SessionPlace
from loom.errors import ChoiceError, shorten
from loom.stores import Stash

MAX_STASHES = 50  # of a session
MAX_STASH_CHARS = 100_000


def use_stash(place: SessionPlace, label: str, text: str | None) -> str:
    """Keep a text under a label, or get it back if there is no text. An empty text removes the
    label.
    """
    stashes = place.store.states.read(place.row.key, "stash", Stash)
    name = check_name("label", label).strip()
    if not name:
        raise ChoiceError("a stash needs a label that is not empty")
    if text is None:
        if name not in stashes:
            known = ", ".join(map(repr, stashes)) or "none"
            raise ChoiceError(
                f"nothing is stashed under {shorten(name)!r}; the labels are {shorten(known)}"
            )
        return stashes[name].text
    _check_stash(name, check_text("a stash", text), stashes)
    value = to_json(Stash(text)) if text.strip() else None
    place.store.states.put(place.row.key, "stash", {name: value}, place.now())
    return text


def _check_stash(label: str, text: str, stashes: Mapping[str, Stash]) -> None:
    """Refuse a text that is too long, and a label beyond those that a session may have."""
    if len(text) > MAX_STASH_CHARS:
        raise ChoiceError(
            f"a stash can have at most {MAX_STASH_CHARS:,} characters, found {len(text):,}; stash "
            "a part of it"
        )
    if label not in stashes and len(stashes) >= MAX_STASHES:
        raise ChoiceError(
            f"there are {MAX_STASHES} stashes already; remove one with an empty text first"
        )
