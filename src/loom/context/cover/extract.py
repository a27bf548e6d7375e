"""The extractive summary: of messages that were cut, the lines that will be needed next, verbatim,
in order, within a budget.

An anchor is worth more the more often, the more recently and by the more telling voice it was
named; it fades by the inverse of its age, as memory does. Lines are then taken by what they newly
show per token. Same input, same text; no model.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby

from msgspec import Struct

from loom.context.cover.anchors import VOICES, AnchorIndex, Passage, find_anchors, passages_of
from loom.conversation.message import Message
from loom.conversation.turns import Span

FADING = 10  # messages until what was named once is worth half
SHARPNESS = 0.75  # below 1, many that may be needed weigh up one that surely is
NEWEST = 8  # mentions of an anchor that are weighed: older ones add little
MANY = 20  # anchors in a message with which half of the bonus of their kind is left
SHOWN = 0.05  # of its worth is left to an anchor that stands in what follows
AGAIN = 0.1  # of its worth is left to an anchor that was shown once; nothing after the second time
DEFINED = 1.1  # a line that defines beats one that mentions
NEAR = 3.0  # how much more is worth what was named beside what is spoken of now
BESIDE = 2.0  # and how many times that where it was in the same line
PLACES = 4  # where a thing spoken of now was named: as many messages are looked at
HOLDERS = 2  # lines that are tried for each anchor: the newest, and the shortest of a few more
SPOKEN = 100  # lines that are tried for their words: of users, and of all others
TOKENS = 10  # of the budget for each anchor that is tried
SMALLEST = 8  # tokens with which nothing more can be shown
TRIES = 24  # lines that do not fit in what is left, until no other is tried
LINE, LEAD = 2, 7  # tokens that a line and the lead of a message cost beside their words
BYTES = 3.2  # of a token, as long as a line is only compared with others


class Line(Struct, frozen=True):
    """A line that was chosen, whole or in part: the place of its message, and its number in it."""

    message: int
    line: int


class Extract(Struct, frozen=True):
    """What was chosen, as text ready to place, and its size."""

    text: str
    tokens: int
    lines: tuple[Line, ...]


def extract(
    index: AnchorIndex,
    span: Span,
    tokens: int,
    count: Callable[[str], int],
    *,
    after: Sequence[Message] | None = None,
    goal: str = "",
    name: Callable[[int], str] = str,
) -> Extract:
    """Lines of the messages of a span, verbatim, chosen within so many tokens.

    `after` is what stays verbatim behind them (what the index has behind the span, unless told
    otherwise): what it shows need not be told again, and what it speaks of is likely needed. So is
    what the `goal` names. `name` tells what a message is called in the text, by its place.
    """
    start, stop = max(0, span.start), min(span.stop, len(index))
    if start >= stop or tokens <= 0:
        return Extract("", 0, ())
    if after is None:
        spoken = index.passages[index.first[stop] :]
    else:
        spoken = [p for m in after for p in passages_of(m, index.memory)]
    worth = _worth(index, start, stop, spoken, goal)
    greedy = _Greedy(index, start, stop, worth, tokens, count, name)
    best, size, chosen = "", 0, 0
    # Lines cost less together than apart, so there is room for more when the first have been
    # counted as they stand.
    while tokens - size > max(SMALLEST, size // 100) and greedy.take(tokens - size):
        text = _text(index, greedy.chosen, name)
        if (together := count(text)) > tokens:
            break
        best, size, chosen = text, together, len(greedy.chosen)
    if not best:
        best, size, chosen = _first_that_fit(index, greedy.chosen, tokens, count, name)
    lines = sorted(
        {(index.places[number], index.passages[number].line) for number in greedy.chosen[:chosen]}
    )
    return Extract(best, size, tuple(Line(*line) for line in lines))


def _first_that_fit(
    index: AnchorIndex,
    chosen: list[int],
    tokens: int,
    count: Callable[[str], int],
    name: Callable[[int], str],
) -> tuple[str, int, int]:
    """As many of the chosen, best first, as fit where they cost more together than apart."""
    number = len(chosen)
    while number:
        text = _text(index, chosen[:number], name)
        if (size := count(text)) <= tokens:
            return text, size, number
        number = number * 7 // 8
    return "", 0, 0


def _worth(
    index: AnchorIndex, start: int, stop: int, after: Iterable[Passage], goal: str
) -> dict[str, float]:
    """What showing each anchor of the messages is worth."""
    # What each message's mentions are worth now; nothing for those that are not asked for.
    fading = [0.0] * start
    fading += [
        weight / (stop - place + FADING)
        for place, weight in enumerate(index.weights[start:stop], start)
    ]
    shown = _strongest(after)
    worth: dict[str, float] = {}
    for anchor, trace in index.traces.items():
        places = trace.messages
        if places[-1] >= stop:
            places = places[: bisect_left(places, stop)]
        value = 0.0
        for place in places[-NEWEST:]:
            value += fading[place]
        if value:
            value = value**SHARPNESS * (1 + trace.bonus / (1 + index.sizes[places[-1]] / MANY))
            if anchor in shown:
                worth[anchor] = value * SHOWN
            else:
                worth[anchor] = value
    cues = {
        anchor: VOICES["user"] for line in goal.splitlines() for _, _, anchor in find_anchors(line)
    } | shown
    for anchor, nearness in _near(index, start, stop, cues).items():
        worth[anchor] *= 1 + NEAR * min(nearness, 2.0)
    return worth


def _strongest(passages: Iterable[Passage]) -> dict[str, float]:
    """The anchors of these passages, each with its most telling voice."""
    found: dict[str, float] = {}
    for passage in passages:
        weight = VOICES[passage.voice]
        for anchor in passage.anchors:
            if found.get(anchor, 0.0) < weight:
                found[anchor] = weight
    return found


def _near(index: AnchorIndex, start: int, stop: int, cues: dict[str, float]) -> dict[str, float]:
    """How near each anchor was to what is spoken of now: named in the same messages, and those not
    about everything.
    """
    near: dict[str, float] = {}
    heat: dict[int, float] = {}
    for cue, strength in cues.items():
        if (trace := index.traces.get(cue)) is None:
            continue
        warmth = strength / VOICES["user"] / len(trace.messages)
        for place in _newest_places(trace.messages, start, stop, PLACES):
            heat[place] = heat.get(place, 0.0) + warmth
        for number in _newest_places(trace.passages, index.first[start], index.first[stop], PLACES):
            anchors = index.passages[number].anchors
            for anchor in anchors:
                near[anchor] = near.get(anchor, 0.0) + BESIDE * warmth / len(anchors) ** 0.5
    for place, warmth in heat.items():
        named = {anchor for passage in index.of_message(place) for anchor in passage.anchors}
        for anchor in named:
            near[anchor] = near.get(anchor, 0.0) + warmth / len(named) ** 0.5
    return near


def _newest_places(places: list[int], start: int, stop: int, number: int) -> list[int]:
    """The last so many of these places that lie between start and stop."""
    if places[-1] < stop:
        end = len(places)
    else:
        end = bisect_left(places, stop)
    return [place for place in places[max(0, end - number) : end] if place >= start]


class _Greedy:
    """Takes passages by what they newly show per token. That only falls as others are taken, so a
    heap need not be renewed.
    """

    def __init__(
        self,
        index: AnchorIndex,
        start: int,
        stop: int,
        worth: dict[str, float],
        tokens: int,
        count: Callable[[str], int],
        name: Callable[[int], str],
    ) -> None:
        self.chosen: list[int] = []
        self._index, self._stop, self._worth, self._count, self._name = (
            index,
            stop,
            worth,
            count,
            name,
        )
        self._shown: set[str] = set()  # the anchors of what was taken
        self._messages: set[int] = set()
        self._texts: set[str] = set()
        self._pool = _pool(index, start, stop, worth, tokens // TOKENS)
        self._heap = [(self._rank(number), -number) for number in self._pool]
        heapify(self._heap)

    def take(self, tokens: int) -> int:
        """Take passages until so many tokens are spent; how many were taken."""
        before = len(self.chosen)
        passages, places = self._index.passages, self._index.places
        too_large: list[tuple[float, int]] = []
        while self._heap and tokens > SMALLEST and len(too_large) < TRIES:
            rank, number = heappop(self._heap)
            now = self._rank(-number)
            if now > rank:
                if now < 0:
                    heappush(self._heap, (now, number))
                continue
            passage = passages[-number]
            text = passage.text[passage.start : passage.stop]
            if text in self._texts:
                continue
            cost = self._count(text) + 1 + 2 * (len(text) < len(passage.text))
            if (place := places[-number]) not in self._messages:
                cost += self._count(_lead(self._index, place, self._name, whole=True)) + 1
            if cost > tokens:
                too_large.append((rank, number))
                continue
            tokens -= cost
            self._texts.add(text)
            self._add(-number)
        for entry in too_large:
            heappush(self._heap, entry)
        return len(self.chosen) - before

    def _add(self, number: int) -> None:
        self.chosen.append(number)
        self._show(self._index.passages[number].anchors)
        place = self._index.places[number]
        if place in self._messages:
            return
        self._messages.add(place)
        origin = self._index.origins[place]
        if origin.call >= 0:
            line = f"{origin.name} {origin.about}"
            for asked in self._index.of_message(origin.call):
                if asked.text == line:
                    self._show(asked.anchors)
        # The others of its message have become cheaper: they need no lead of their own.
        first = self._index.first
        for other in range(first[place], first[place + 1]):
            if other in self._pool and (rank := self._rank(other)) < 0:
                heappush(self._heap, (rank, -other))

    def _show(self, anchors: Iterable[str]) -> None:
        for anchor in self._worth.keys() & anchors:
            self._worth[anchor] *= 0.0 if anchor in self._shown else AGAIN
            self._shown.add(anchor)

    def _rank(self, number: int) -> float:
        """What the passage shows per token, negative, so that the best is the least."""
        passage, place = self._index.passages[number], self._index.places[number]
        worth = self._worth
        gain = sum([worth[anchor] for anchor in passage.anchors])
        if passage.defines:
            gain *= DEFINED
        if passage.said:
            gain += passage.said / (self._stop - place + FADING) ** SHARPNESS
        cost = passage.size / BYTES + (LINE if place in self._messages else LINE + LEAD)
        return -round(gain / cost, 9)


def _pool(
    index: AnchorIndex, start: int, stop: int, worth: dict[str, float], anchors: int
) -> set[int]:
    """The passages that are tried: a few for each of so many anchors, and the newest of what was
    said.
    """
    low, high = index.first[start], index.first[stop]
    best = sorted(worth, key=worth.__getitem__, reverse=True)[: max(anchors, 50)]
    passages = index.passages
    pool: set[int] = set()
    for anchor in best:
        some = _newest_places(index.traces[anchor].passages, low, high, NEWEST)
        if len(some) > HOLDERS:
            pool.add(min(reversed(some), key=lambda number: passages[number].size))
        pool.update(some[-HOLDERS:])
    for spoken in (index.asked, index.told):
        pool.update(_newest_places(spoken, low, high, SPOKEN) if spoken else ())
    return pool


def _lead(index: AnchorIndex, place: int, name: Callable[[int], str], whole: bool) -> str:
    """Who speaks, and where; of a tool's answer also what it was asked, where the question does not
    stand there.
    """
    origin = index.origins[place]
    about = f" {origin.about}" if whole and origin.about else ""
    return f"[{name(place)}] {origin.name}{about}{' (error)' if origin.voice == 'error' else ''}"


def _text(index: AnchorIndex, chosen: Iterable[int], name: Callable[[int], str]) -> str:
    """The passages in order, those of one message behind its lead."""
    ordered = sorted(chosen)
    places, passages = index.places, index.passages
    asked = {places[number] for number in ordered if passages[number].voice == "call"}
    lines: list[str] = []
    for place, of_message in groupby(ordered, key=places.__getitem__):
        lines.append(_lead(index, place, name, whole=index.origins[place].call not in asked))
        for _, of_line in groupby(
            [passages[number] for number in of_message], key=lambda passage: passage.line
        ):
            lines.append(_join_passages(list(of_line)))
    return "\n".join(lines)


def _join_passages(pieces: list[Passage]) -> str:
    """Pieces of one line, with a mark where something of it is missing."""
    line = pieces[0].text
    text, end = "", 0
    for piece in pieces:
        if piece.start > end:
            text += "…"
        text += line[max(end, piece.start) : piece.stop]
        end = max(end, piece.stop)
    return text + "…" * (end < len(line))
