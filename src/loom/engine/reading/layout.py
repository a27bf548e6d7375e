"""Messages of a path in their places: with what comes in, without what is hidden, neighbours
joined.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from math import ceil

from msgspec.structs import replace

from loom.context import Places, Spot
from loom.conversation.message import Message
from loom.engine.reading.ranges import Reading
from loom.stores import Insertion, Node, Overlay

Write = Callable[[Node], Message]
Join = Callable[[Message, Message], Message | None]  # None if the two stay separate


def lay(reading: Reading, overlay: Overlay, write: Write) -> tuple[tuple[Message, ...], Places]:
    """The messages of a path as they are read, each written by `write`, with what comes in and
    without what is hidden.
    """
    layout = _Layout(overlay, write)
    nodes_at = {node.depth: node for node in reading.nodes}
    special = sorted({*overlay.hidden, *overlay.versions, *overlay.before, *overlay.after})
    for spot, message in zip(reading.places.spots, reading.messages, strict=True):
        inside = special[bisect_left(special, spot.start) : bisect_right(special, spot.stop - 1)]
        if not spot.unread:
            layout.at(nodes_at[spot.start].id, spot, write(nodes_at[spot.start]))
        elif inside:
            layout.apart(spot, inside)
        else:
            layout.add(spot, message)
    if not len(overlay.path):
        for insertion in overlay.before.get(0, ()):
            layout.insert(insertion, 0, "")
    return tuple(layout.messages), Places(tuple(layout.spots), frozenset(overlay.hidden))


class _Layout:
    def __init__(self, overlay: Overlay, write: Write) -> None:
        self._overlay, self._write = overlay, write
        self.messages: list[Message] = []
        self.spots: list[Spot] = []

    def add(self, spot: Spot, message: Message) -> None:
        self.spots.append(spot)
        self.messages.append(message)

    def insert(self, insertion: Insertion, depth: int, at: str, unread: bool = False) -> None:
        tokens = max(insertion.node.tokens, 1) if unread else 0
        spot = Spot(
            depth, depth + 1, ((insertion.name, insertion.name),), tokens, insertion.kind, at
        )
        self.add(spot, spot.stand_in() if unread else self._write(insertion.node))

    def at(self, name: str, spot: Spot, message: Message, unread: bool = False) -> None:
        """What is read at the place of a node: references, the node or its version, annotations."""
        for insertion in self._overlay.entries(spot.start):
            if insertion is not None:
                self.insert(insertion, spot.start, name, unread)
            elif spot.start not in self._overlay.hidden:
                self.add(spot, message)

    def apart(self, spot: Spot, special: Sequence[int]) -> None:
        """A stretch that was not read, divided at the places where something is hidden or comes
        in.
        """
        edges = {place for depth in special for place in (depth - 1, depth, depth + 1)}
        known = self._overlay.path.names_at(edges | {spot.start - 1, spot.start, spot.stop - 1})
        total = {depth: tokens for depth, (_, _, tokens) in known.items()} | {-1: 0}
        scale = spot.tokens / max(total[spot.stop - 1] - total[spot.start - 1], 1)

        def unread(start: int, stop: int) -> Spot:
            tokens = max(ceil((total[stop - 1] - total[start - 1]) * scale), 1)
            return Spot(start, stop, ((known[start][1], known[stop - 1][1]),), tokens)

        begin = spot.start
        for depth in (*special, spot.stop):
            if begin < depth:
                between = unread(begin, depth)
                self.add(between, between.stand_in())
            if depth < spot.stop:
                alone = unread(depth, depth + 1)
                self.at(known[depth][1], alone, alone.stand_in(), unread=True)
            begin = depth + 1


def join_neighbours(
    messages: Sequence[Message], places: Places, join: Join
) -> tuple[tuple[Message, ...], Places]:
    """Neighbours that `join` makes one message of, with one place for both."""
    made: list[Message] = []
    spots: list[Spot] = []
    for message, spot in zip(messages, places.spots, strict=True):
        both = None
        if made and not spot.unread and not spots[-1].unread:
            both = join(made[-1], message)
        if both is None:
            made.append(message)
            spots.append(spot)
            continue
        made[-1] = both
        before = spots[-1]
        spots[-1] = Spot(
            before.start,
            spot.stop,
            (*before.nodes, *spot.nodes),
            0,
            before.beside and spot.beside,
            spot.anchor,
        )
    return tuple(made), replace(places, spots=tuple(spots))
