"""What of a path a window needs: its end, the first goal, the current request and pins; between them stretches not read."""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.context.places import Places, Spot, stand_in
from loom.conversation.message import Message, Text
from loom.stores.path import Node, Path

_AHEAD = 64  # nodes read at once where it is not known how many are needed

Count = Callable[[Message], int]
Range = tuple[int, int]


class Reading(Struct, frozen=True):
    """The messages that were read, with one that stands in for each stretch that was not, and where all of them stand."""

    messages: tuple[Message, ...]
    places: Places
    ranges: tuple[Range, ...]
    nodes: tuple[Node, ...]


def read_window(
    path: Path,
    tokens: int,
    pins: Iterable[Node],
    from_start: bool,
    count: Count,
    hidden: Collection[int] = (),
    also: Iterable[Range] = (),
) -> tuple[Range, ...]:
    """The stretches of a path that a window of so many tokens can hold anything of, its last one open to the end.

    What is at the places `hidden` is not shown: it is no goal, no request, and fills nothing. `also` is read in any case.
    """
    if path.end is None:
        return ()
    must = _asked(path, hidden)
    wanted = [(depth, depth + 1) for depth in sorted(must)]
    for start, stop in also:  # of an exchange all or nothing: half of one would be mended
        if start < len(path):
            wanted.append((_exchange(path, start)[0], _exchange(path, min(stop, len(path)) - 1)[1]))
    wanted += [_exchange(path, pin.depth) for pin in pins]
    if not must:
        wanted.append(_exchange(path, next((n for n in range(len(path)) if n not in hidden), 0)))
    # What must be in, and the newest exchange, may be cut to almost nothing: it is what is beside them that fills a window.
    fills = _Filler(count, [*wanted, _exchange(path, len(path) - 1)], hidden)
    if from_start:
        wanted.append((0, _head(path, tokens, fills)))
    wanted.append((_tail(path, tokens, fills), len(path)))
    return _merged(wanted)


def _asked(path: Path, hidden: Collection[int]) -> set[int]:
    """Where the first goal and the newest request stand, of those that are shown."""
    assert path.end is not None
    found = {node.seq: node.depth for node in path.nodes([seq for seq in (path.end.goal, path.end.request) if seq is not None])}
    if path.end.goal is None or path.end.request is None:
        return set()
    goal, request = found[path.end.goal], found[path.end.request]
    while request in hidden:  # each node knows the newest request at or above it
        above = path[request - 1].request if request else None
        if above is None:
            return set()
        request = path.nodes([above])[0].depth
    while goal in hidden:
        more = path[goal + 1 : min(goal + 1 + _AHEAD, request + 1)]
        goal = next((node.depth for node in more if node.role == "user" and node.depth not in hidden), goal + len(more))
    return {goal, request}


class _Filler:
    """Counts what is not spared."""

    def __init__(self, count: Count, spared: Iterable[Range], hidden: Collection[int]) -> None:
        self._count = count
        self._spared = {position for start, stop in spared for position in range(start, stop)} | set(hidden)

    def tokens(self, nodes: Iterable[Node]) -> int:
        return sum(self._count(said(node)) for node in nodes if node.depth not in self._spared)


def read_ranges(path: Path, ranges: Sequence[Range], count: Count | None = None) -> Reading:
    """Read these stretches. `count` is the counter in use: what was not read is told in its tokens."""
    messages: list[Message] = []
    spots: list[Spot] = []
    read: list[Node] = []
    before = after = None  # the last node of the stretch before, and the one behind it
    for start, stop in ranges:
        # One node more at each end tells what the stretches between are called and what they take.
        found = path.read(max(start - 1, 0), min(stop + 1, len(path)))
        if (hole := start - (before.depth + 1 if before else 0)) > 0:
            first = after or path[start - hole]
            tokens = found[0].total - (before.total if before else 0)
            spots.append(Spot(start - hole, start, ((first.id, found[0].id),), max(tokens, 1)))
            messages.append(stand_in(spots[-1]))
        inside = [node for node in found if start <= node.depth < stop]
        for node in inside:
            spots.append(_spot(node))
            messages.append(said(node))
        read += inside
        before, after = inside[-1], found[-1]
    if count is not None and len(spots) > len(read):
        factor = sum(count(said(node)) for node in read) / max(sum(node.tokens for node in read), 1)
        spots = [replace(spot, tokens=ceil(spot.tokens * factor)) if spot.unread else spot for spot in spots]
    return Reading(tuple(messages), Places(tuple(spots)), tuple(ranges), tuple(read))


def read_on(reading: Reading, path: Path) -> Reading | None:
    """The same reading with what has come since; none where it is of another path."""
    fresh = path.since(reading.nodes[-1])
    if fresh is None:
        return None
    spots = (_spot(node) for node in fresh)
    return Reading(
        (*reading.messages, *map(said, fresh)),
        Places((*reading.places.spots, *spots)),
        (*reading.ranges[:-1], (reading.ranges[-1][0], len(path))),
        (*reading.nodes, *fresh),
    )


def _spot(node: Node) -> Spot:
    return Spot(node.depth, node.depth + 1, ((node.id, node.id),))


def said(node: Node) -> Message:
    """What a node says; of a purged one, that it was."""
    return node.message or Message("user", (Text("[a message was purged here]"),))


def _tail(path: Path, tokens: int, fills: _Filler) -> int:
    """Where the newest messages begin that fill the window by the counter in use."""
    asked = tokens
    while True:
        found = path.tail(asked)
        if found[0].depth == 0 or fills.tokens(found) >= tokens:
            return found[0].depth
        asked *= 2


def _head(path: Path, tokens: int, fills: _Filler) -> int:
    """Where the oldest messages end that fill a window."""
    used = 0
    for start in range(0, len(path), _AHEAD):
        for node in path[start : start + _AHEAD]:
            if used > tokens and node.role != "tool":
                return node.depth
            used += fills.tokens([node])
    return len(path)


def _exchange(path: Path, position: int) -> Range:
    """The model's message and its results around a position; any other message alone."""
    start = stop = position
    while start > 0 and path[start].role == "tool":
        before = path[max(start - _AHEAD, 0) : start]
        start = next((node.depth for node in reversed(before) if node.role != "tool"), before[0].depth)
    while True:
        more = path[stop + 1 : stop + 1 + _AHEAD]
        results = next((n for n, node in enumerate(more) if node.role != "tool"), len(more))
        stop += results
        if results < _AHEAD:
            return start, stop + 1


def _merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    made: list[Range] = []
    for start, stop in sorted(ranges):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return tuple(made)
