"""What a file may say of a tree that is here already. Imports of sessions and of whole trees both
ask here.

Nothing comes in that others here would read. A file may add messages as new branches. Of a message
that was here before, nothing more is said; a new remark on one gets no flags, so that nobody reads
it who does not ask for it; and no new version stands for one.
"""

from collections.abc import Iterable

from msgspec import Struct

from loom.stores.tree.path import nodes_by

FIND_PLACES = (
    "SELECT n.id, n.seq, n.depth, CASE WHEN n.body IS NULL THEN 1 ELSE 0 END, "
    f"n.session FROM {nodes_by('id')}"
)


class Place(Struct, frozen=True):
    """Where a node stands that is here, whether its words are gone, and who wrote it."""

    seq: int
    depth: int
    gone: int
    session: int


class Newcomers(Struct, frozen=True):
    """The sessions that a file brings, and nodes that it brought for others, by their keys.

    An import that was interrupted may have written for these sessions before.
    """

    sessions: set[int]
    nodes: set[int] = set()

    def are_guests_at(self, place: Place | None) -> bool:
        """Whether a node was here before the file."""
        return (
            place is not None and place.session not in self.sessions and place.seq not in self.nodes
        )

    def may_say(self, kind: str, place: Place | None, edge: str, above: Place | None) -> bool:
        """Whether a record of this kind is taken. `place` is that of its node, if that is here, and
        `above` that of its parent.
        """
        if self.are_guests_at(place):
            return False
        is_remark_on_others = edge == "annotation" and self.are_guests_at(above)
        return not (is_remark_on_others and kind == "flag")

    def may_stand_for(self, edge: str, originals: Iterable[Place | None]) -> bool:
        """Whether a new node may hang so in the tree: as a version it would be read in the place of
        these.
        """
        return edge != "version" or not any(map(self.are_guests_at, originals))


class Keys:
    """Keys of nodes: a bit each, for a file may hold a long path."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}

    def add(self, key: int) -> None:
        page, bit = divmod(key, _PAGE_BITS)
        self._pages[page] = self._pages.get(page, 0) | 1 << bit

    def __contains__(self, key: int) -> bool:
        page, bit = divmod(key, _PAGE_BITS)
        return bool(self._pages.get(page, 0) >> bit & 1)


_PAGE_BITS = 1024
