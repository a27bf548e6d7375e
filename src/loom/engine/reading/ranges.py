"""What of a path a window needs: its end, the first goal, the current request, pins and messages of
the user; between them stretches not read.

Rules of this file:
- The newest messages that fill a window are read, and what the last epoch showed.
- Where nothing tells of what is older (a first request on a path, or one that nothing of the last
  epoch stands in), more of it is read once: FIRST_WINDOWS windows, at most MAX_FIRST_TOKENS tokens
  and MAX_FIRST_MESSAGES messages. So a first reading takes longer, but never longer than that.
- Of older messages of the user, the newest are read, each alone: up to USER_SHARE of the window.
- All else is one stretch that was not read.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.context import MAX_GOAL_REQUESTS, Places, Spot, Stretch
from loom.conversation.message import Message, Text
from loom.conversation.system_messages import SYSTEM_ROLES, order_behind_results
from loom.conversation.turns import exchanges
from loom.stores import Node, Path

# What a first reading reads at most, of a path of which nothing is known: windows, tokens and
# messages. What is older stays one stretch that was not read.
FIRST_WINDOWS = 30
MAX_FIRST_TOKENS = 1_000_000
MAX_FIRST_MESSAGES = 10_000
# Of messages of the user that are older than what a window holds:
USER_SHARE = 0.5  # of the window, what is read of them
MIN_LARGE_REQUESTS = 8  # as many are read, however large they are
MAX_REQUESTS = 500

_AHEAD = 64  # nodes read at once where it is not known how many are needed
_KINDS = 256  # of system messages, of which the newest are looked for
_OF_A_KIND = 64  # of a tree, the newest, among which one is on a path

_MANY_RANGES = 8
_ANY_TOKENS = 1 << 62

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


class ReadingPlan(Struct, frozen=True, kw_only=True):
    """What of a path is read. `tokens` is what the newest messages must fill, by `count`.

    What is at the places `hidden` is not shown: it is no goal, no request, and fills nothing.
    `also` is read in any case. `first_tokens` is more than 0 where nothing stands that tells of
    older messages: then so much is read, as the store counts it. `user_tokens` is how much is read
    of the messages of the user that are older than all this.
    """

    tokens: int
    count: Count
    pins: Sequence[Node] = ()
    hidden: Collection[int] = ()
    also: Sequence[Range] = ()
    from_start: bool = False
    first_tokens: int = 0
    user_tokens: int = 0


def read_window(path: Path, plan: ReadingPlan) -> tuple[Range, ...]:
    """The stretches of a path that a window can hold anything of, its last one open to the end."""
    if path.end is None:
        return ()
    must = _find_requests(path, plan.hidden)
    wanted = [(depth, depth + 1) for depth in must]
    for start, stop in plan.also:  # of an exchange all or nothing: half of one would be repaired
        if start < len(path):
            wanted.append((_exchange(path, start)[0], _exchange(path, min(stop, len(path)) - 1)[1]))
    wanted += [_exchange(path, pin.depth) for pin in plan.pins]
    if not must:
        shown = next((n for n in range(len(path)) if n not in plan.hidden), 0)
        wanted.append(_exchange(path, shown))
    # What must be in, and the newest exchange, may be cut to almost nothing: it is what is beside
    # them that fills a window.
    fills = _Filler(plan.count, [*wanted, _exchange(path, len(path) - 1)], plan.hidden)
    if plan.from_start:
        wanted.append((0, _head(path, plan.tokens, fills)))
    tail = _tail(path, plan.tokens, fills)
    if plan.first_tokens:
        tail = min(tail, _first_tail(path, plan.first_tokens))
    if path[tail].role in _WITHIN:  # it may stand between a call and its result
        tail = _exchange(path, tail)[0]
    wanted += _user_messages(path, tail, plan)
    wanted.append((tail, len(path)))
    return _merge_ranges(wanted)


def _first_tail(path: Path, tokens: int) -> int:
    """Where the messages begin that a first reading reads."""
    return path.tail(tokens, max(len(path) - MAX_FIRST_MESSAGES, 0))[0].depth


def _user_messages(path: Path, tail: int, plan: ReadingPlan) -> list[Range]:
    """Messages of the user that are older than a tail, the newest of them, with what those in the
    tail leave of the tokens.
    """
    if not tail or plan.user_tokens <= 0:
        return []
    largest = max(plan.user_tokens // MIN_LARGE_REQUESTS, 1)
    inside = [min(node.tokens, largest) for node in path[tail:] if node.role == "user"]
    asked, _ = path.requests(
        plan.user_tokens - sum(inside),
        largest,
        MAX_REQUESTS - len(inside),
        below=path[tail - 1],
    )
    return [
        (node.depth, node.depth + 1)
        for node in asked
        if node.message is not None and node.depth not in plan.hidden
    ]


def newest_reminders(path: Path, hidden: Collection[int], all_of_them: bool) -> list[Node]:
    """The newest system message of each kind on a path, as far as they are shown; or all of
    them.
    """
    if all_of_them:
        found = path.system_nodes()
    else:
        found = path.reminders(_KINDS, _OF_A_KIND)
    return [node for node in found if node.depth not in hidden]


def _find_requests(path: Path, hidden: Collection[int]) -> list[int]:
    """Where the first messages of the user and the newest one are, of those that are shown. One of
    the first is the goal.
    """
    newest = _find_newest_request(path, hidden)
    if newest is None:
        return []
    assert path.end is not None
    assert path.end.goal is not None
    found: list[int] = []
    node: Node | None = path.nodes([path.end.goal])[0]
    while node is not None and node.depth < newest and len(found) < MAX_GOAL_REQUESTS:
        if node.depth not in hidden:
            found.append(node.depth)
        node = path.request_after(node.depth)
    return [*found, newest]


def _find_newest_request(path: Path, hidden: Collection[int]) -> int | None:
    """Where the newest message of the user is that is shown; None if there is none."""
    assert path.end is not None
    asked = path.end.request
    while asked is not None:  # each node knows the newest request at or above it
        depth = path.nodes([asked])[0].depth
        if depth not in hidden:
            return depth
        asked = path[depth - 1].request if depth else None
    return None


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
    if len(ranges) > _MANY_RANGES:  # most are single messages of the user: read them at once
        path.requests(_ANY_TOKENS, _ANY_TOKENS, len(ranges), below=path[ranges[-1][0]])
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


def read_less(reading: Reading, left: Sequence[Known]) -> Reading:
    """The same reading without stretches that a request left out: what is known of each stands in
    for its messages.

    So the next requests of an epoch do not read them again. If the end of the path was left out,
    all stays as it is.
    """
    starts = [start for start, _, _ in left]
    spots: list[Spot] = []
    messages: list[Message] = []
    for spot, message in zip(reading.places.spots, reading.messages, strict=True):
        at = bisect_right(starts, spot.start) - 1
        if at < 0 or spot.start >= left[at][1]:
            spots.append(spot)
            messages.append(message)
            continue
        start, stop, stretch = left[at]
        if spot.stop > stop:
            return reading
        if spots and spots[-1].start == start:
            first, last = spots.pop().nodes[0][0], spot.nodes[-1][1]
            messages.pop()
        else:
            first, last = spot.nodes[0][0], spot.nodes[-1][1]
        spots.append(Spot(start, stop, ((first, last),), max(stretch.tokens, 1), stretch=stretch))
        messages.append(spots[-1].stand_in())
    if not spots or spots[-1].unread:
        return reading
    ranges = _merge_ranges((spot.start, spot.stop) for spot in spots if not spot.unread)
    held = {spot.start for spot in spots if not spot.unread}
    nodes = tuple(node for node in reading.nodes if node.depth in held)
    return Reading(tuple(messages), Places(tuple(spots)), ranges, nodes)


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
        if not holes or made[holes[0]].start < start or made[holes[-1]].stop > stop:
            continue
        again = messages[bisect_left(depths, start) : bisect_left(depths, stop)]
        left = Stretch(
            max(stretch.messages - len(again), len(holes)),
            max(stretch.tokens - sum(map(count, again)), len(holes)),
            max(stretch.own - sum(map(own, again)), 0),
            max(stretch.exchanges - len(exchanges(again)), 0),
            max(stretch.answers - sum(message.role == "assistant" for message in again), 0),
        )
        for n, part in zip(holes, _divide(left, [made[n] for n in holes]), strict=True):
            made[n] = replace(made[n], tokens=part.tokens, stretch=part)
    return made


def _divide(stretch: Stretch, holes: Sequence[Spot]) -> Iterator[Stretch]:
    """What is known of several stretches together, divided among them by their sizes. No part is
    without messages or tokens.
    """
    sizes = [hole.stop - hole.start for hole in holes]
    extra = len(holes)  # each has at least one
    shares = (
        _divide_number(stretch.messages - extra, [size - 1 for size in sizes]),
        _divide_number(stretch.tokens - extra, [hole.tokens for hole in holes]),
        _divide_number(stretch.own, [hole.tokens for hole in holes]),
        _divide_number(stretch.exchanges, sizes),
        _divide_number(stretch.answers, sizes),
    )
    for messages, tokens, own, spans, answers in zip(*shares, strict=True):
        yield Stretch(messages + 1, tokens + 1, own, spans, answers)


def _divide_number(number: int, sizes: Sequence[int]) -> list[int]:
    """A number in parts that are as large as these sizes are to each other."""
    total = max(sum(sizes), 1)
    edges = [number * size // total for size in accumulate(sizes, initial=0)]
    edges[-1] = number
    return [stop - start for start, stop in pairwise(edges)]


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
