"""What of a path a window needs: its end, the first goal, the current request and pins; between
them stretches not read.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Places, Spot, Stretch
from loom.conversation.message import Message, Text
from loom.conversation.system_messages import SYSTEM_ROLES, order_behind_results
from loom.conversation.turns import exchanges
from loom.stores import Node, Path

_AHEAD = 64  # nodes read at once where it is not known how many are needed
_KINDS = 256  # of system messages, of which the newest are looked for
_OF_A_KIND = 64  # of a tree, the newest, among which one is on a path

_WITHIN = ("tool", *SYSTEM_ROLES)  # what stands between a call and the end of its results

Count = Callable[[Message], int]
Range = tuple[int, int]
# a stretch that was not read: where it begins and ends, its tokens, what else is known
Hole = tuple[int, int, int, Stretch | None]
Known = tuple[int, int, Stretch]  # a stretch of the path, and what is known of it


class Reading(Struct, frozen=True):
    """The messages that were read, with one that stands in for each stretch that was not, and where
    all of them stand.
    """

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
    """The stretches of a path that a window of this many tokens can hold anything of, its last one
    open to the end.

    What is at the places `hidden` is not shown: it is no goal, no request, and fills nothing.
    `also` is read in any case.
    """
    if path.end is None:
        return ()
    must = _find_requests(path, hidden)
    wanted = [(depth, depth + 1) for depth in sorted(must)]
    for start, stop in also:  # of an exchange all or nothing: half of one would be repaired
        if start < len(path):
            wanted.append((_exchange(path, start)[0], _exchange(path, min(stop, len(path)) - 1)[1]))
    wanted += [_exchange(path, pin.depth) for pin in pins]
    if not must:
        wanted.append(_exchange(path, next((n for n in range(len(path)) if n not in hidden), 0)))
    # What must be in, and the newest exchange, may be cut to almost nothing: it is what is beside
    # them that fills a window.
    fills = _Filler(count, [*wanted, _exchange(path, len(path) - 1)], hidden)
    if from_start:
        wanted.append((0, _head(path, tokens, fills)))
    tail = _tail(path, tokens, fills)
    if path[tail].role in SYSTEM_ROLES:  # it may stand between a call and its result
        tail = _exchange(path, tail)[0]
    wanted.append((tail, len(path)))
    return _merge_ranges(wanted)


def newest_reminders(path: Path, hidden: Collection[int], all_of_them: bool) -> list[Node]:
    """The newest system message of each kind on a path, as far as they are shown; or all of
    them.
    """
    if all_of_them:
        found = path.system_nodes()
    else:
        found = path.reminders(_KINDS, _OF_A_KIND)
    return [node for node in found if node.depth not in hidden]


def _find_requests(path: Path, hidden: Collection[int]) -> set[int]:
    """Where the first goal and the newest request stand, of those that are shown."""
    assert path.end is not None
    found = {
        node.seq: node.depth
        for node in path.nodes(
            [seq for seq in (path.end.goal, path.end.request) if seq is not None]
        )
    }
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
        goal = next(
            (node.depth for node in more if node.role == "user" and node.depth not in hidden),
            goal + len(more),
        )
    return {goal, request}


class _Filler:
    """Counts what is not spared."""

    def __init__(self, count: Count, spared: Iterable[Range], hidden: Collection[int]) -> None:
        self._count = count
        self._spared = {
            position for start, stop in spared for position in range(start, stop)
        } | set(hidden)

    def tokens(self, nodes: Iterable[Node]) -> int:
        return sum(
            self._count(message_of(node)) for node in nodes if node.depth not in self._spared
        )


def read_ranges(
    path: Path,
    ranges: Sequence[Range],
    count: Count | None = None,
    known: Sequence[Known] = (),
    own: Count | None = None,
) -> Reading:
    """Read these stretches. `count` is the counter in use: what was never read is told in its
    tokens.

    `known` is what is known of stretches that were left out before: each that is not read again
    stands for itself.
    """
    messages: list[Message] = []
    spots: list[Spot] = []
    read: list[Node] = []
    end = 0
    for start, stop in ranges:
        # One node more at each end tells what the stretches between are called and what they take.
        found = path.read(max(start - 1, 0), min(stop + 1, len(path)))
        for first, last in _parts(end, start, known):
            spots.append(_hole(path, first, last))
            messages.append(spots[-1].stand_in())
        inside = [node for node in found if start <= node.depth < stop]
        spots += map(_spot, inside)
        messages += map(message_of, inside)
        read += inside
        end = stop
    if count is not None and len(spots) > len(read):
        factor = sum(count(message_of(node)) for node in read) / max(
            sum(node.tokens for node in read), 1
        )
        spots = [
            replace(spot, tokens=ceil(spot.tokens * factor)) if spot.unread else spot
            for spot in spots
        ]
        spots = _with_known(spots, read, known, count, own or count)
    return Reading(tuple(messages), Places(tuple(spots)), tuple(ranges), tuple(read))


def read_same(path: Path, ranges: Sequence[Range], holes: Sequence[Hole]) -> Reading:
    """Read what was read for a request before, with the same said of what was not."""
    if not holes:
        return read_ranges(path, ranges)
    reading = read_ranges(
        path, ranges, known=[(start, stop, _NOTHING) for start, stop, _, _ in holes]
    )
    told = {(start, stop): (tokens, stretch) for start, stop, tokens, stretch in holes}
    spots = []
    for spot in reading.places.spots:
        if spot.unread and (spot.start, spot.stop) in told:
            tokens, stretch = told[spot.start, spot.stop]
            spot = replace(spot, tokens=tokens, stretch=stretch)
        spots.append(spot)
    return replace(reading, places=Places(tuple(spots)))


def holes_of(reading: Reading) -> tuple[Hole, ...]:
    """What a reading says of what was not read."""
    return tuple(
        (spot.start, spot.stop, spot.tokens, spot.stretch)
        for spot in reading.places.spots
        if spot.unread
    )


_NOTHING = Stretch(0, 0, 0, 0, 0)


def _parts(start: int, stop: int, known: Sequence[Known]) -> Iterator[Range]:
    """A stretch that is not read, divided where something that is known of begins or ends."""
    edges = {edge for first, last, _ in known for edge in (first, last) if start < edge < stop}
    return pairwise(sorted({start, stop, *edges}))


def _hole(path: Path, start: int, stop: int) -> Spot:
    first, last = path[start], path[stop - 1]
    return Spot(
        start, stop, ((first.id, last.id),), max(last.total - first.total + first.tokens, 1)
    )


def _with_known(
    spots: Sequence[Spot], read: Sequence[Node], known: Sequence[Known], count: Count, own: Count
) -> list[Spot]:
    """The spots with what is known of each; of a stretch that is read in part, less what was
    read.
    """
    made = list(spots)
    starts = [spot.start for spot in spots]
    depths = [node.depth for node in read]
    messages = [message_of(node) for node in read]
    # as requests show them, and count them
    messages = [messages[n] for n in order_behind_results(messages)]
    for start, stop, stretch in known:
        inside = range(bisect_left(starts, start), bisect_left(starts, stop))
        holes = [n for n in inside if made[n].unread]
        if len(holes) != 1 or made[holes[0]].start < start or made[holes[0]].stop > stop:
            continue
        again = messages[bisect_left(depths, start) : bisect_left(depths, stop)]
        left = Stretch(
            max(stretch.messages - len(again), 1),
            max(stretch.tokens - sum(map(count, again)), 1),
            max(stretch.own - sum(map(own, again)), 0),
            max(stretch.exchanges - len(exchanges(again)), 0),
            max(stretch.answers - sum(message.role == "assistant" for message in again), 0),
        )
        made[holes[0]] = replace(made[holes[0]], tokens=left.tokens, stretch=left)
    return made


def read_on(reading: Reading, path: Path) -> Reading | None:
    """The same reading with what has come since; none if it is of another path."""
    fresh = path.since(reading.nodes[-1])
    if fresh is None:
        return None
    spots = (_spot(node) for node in fresh)
    return Reading(
        (*reading.messages, *map(message_of, fresh)),
        Places((*reading.places.spots, *spots)),
        (*reading.ranges[:-1], (reading.ranges[-1][0], len(path))),
        (*reading.nodes, *fresh),
    )


def _spot(node: Node) -> Spot:
    return Spot(node.depth, node.depth + 1, ((node.id, node.id),))


def message_of(node: Node) -> Message:
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
            if used > tokens and node.role != "tool" and node.role not in SYSTEM_ROLES:
                return node.depth
            used += fills.tokens([node])
    return len(path)


def _exchange(path: Path, position: int) -> Range:
    """The model's message and its results around a position, with system messages among them; any
    other message alone.
    """
    start = stop = position
    if path[position].role in SYSTEM_ROLES and not _leads_to_result(path, position):
        return position, position + 1
    while start > 0 and path[start].role in _WITHIN:
        before = path[max(start - _AHEAD, 0) : start]
        start = next(
            (node.depth for node in reversed(before) if node.role not in _WITHIN), before[0].depth
        )
    while True:
        more = path[stop + 1 : stop + 1 + _AHEAD]
        inside = next((n for n, node in enumerate(more) if node.role not in _WITHIN), len(more))
        results = max(
            (n for n, node in enumerate(more[:inside], 1) if node.role == "tool"), default=0
        )
        stop += results
        if results < _AHEAD:
            return start, stop + 1


def _leads_to_result(path: Path, position: int) -> bool:
    """Whether the next message that is no system message is the result of a tool."""
    more = path[position + 1 : position + 1 + _AHEAD]
    return next((node.role == "tool" for node in more if node.role not in SYSTEM_ROLES), False)


def _merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    made: list[Range] = []
    for start, stop in sorted(ranges):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(stop, made[-1][1]))
        else:
            made.append((start, stop))
    return tuple(made)
