"""The extractive summary: of messages that were cut, the lines that will be needed next, verbatim,
in order, within a budget.

An anchor is worth more the more often, the more recently and by the more telling voice it was
named; it fades by the inverse of its age, as memory does. Lines are then taken by what they newly
show per token. What the model said comes first, in a share of the budget: by what it coined, and by
how new its words were. Same input, same text; no model.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from loom.context.cover.anchors import (
    BONUS,
    FIRST_VOICES,
    SPEAKING,
    VOICES,
    AnchorIndex,
    Clock,
    Passage,
    find_anchors,
    passages_of,
)
from loom.context.quotes import Quote, Voice, render_quotes
from loom.conversation.message import Message
from loom.conversation.turns import Span

FADING_MESSAGES = 10  # messages until what was named once is worth half
MANY_ANCHORS = 20  # anchors in a message with which half of the bonus of their kind is left
LASTING_POWER = 0.5  # the power of its age by which what the model said fades
NOVELTY_POWER = 3  # the power of its novelty by which a line of the model is worth more
SAID_FACTOR = 3.0  # times as much as later, a line is worth for its words where the model is first
WORTH_POWER = 0.75  # below 1, many that may be needed weigh up one that surely is
MAX_MENTIONS = 8  # mentions of an anchor that are weighed: older ones add little
SHOWN_FACTOR = 0.05  # of its worth is left to an anchor that stands in what follows
# of its worth is left to an anchor that was shown once; nothing after the second time
REPEATED_FACTOR = 0.1
DEFINITION_FACTOR = 1.1  # a line that defines beats one that mentions
NEARNESS_WEIGHT = 3.0  # how much more is worth what was named beside what is spoken of now
SAME_LINE_FACTOR = 2.0  # and how many times that where it was in the same line
MAX_CUE_PLACES = 4  # where a thing spoken of now was named: as many messages are looked at
MAX_HOLDERS = 2  # lines that are tried for each anchor: the newest, and the shortest of a few more
MAX_SPOKEN_LINES = 100  # lines of each voice that are tried for their words
MODEL_SHARE = 0.6  # of the tokens, for what the model said before all else
# in a smaller room for history that share is smaller, too: the work at hand comes first
FULL_MODEL_ROOM_TOKENS = 24_000
MODEL_POWER = 1.5
TOKENS_PER_ANCHOR = 10  # of the budget for each anchor that is tried
MIN_LEFT_TOKENS = 8  # tokens with which nothing more can be shown
MAX_MISFITS = 24  # lines that do not fit in what is left, until no other is tried
LINE_TOKENS, LABEL_TOKENS = (
    3,
    7,
)  # tokens that a line and the lead of a message cost beside their words
BYTES_PER_TOKEN = 3.2  # of a token, as long as a line is only compared with others


class Line(Struct, frozen=True):
    """A line that was chosen, whole or in part: the place of its message, and its number in it."""

    message: int
    line: int


class Extract(Struct, frozen=True):
    """What was chosen, by message, and the tokens of its text."""

    quotes: tuple[Quote, ...]
    tokens: int
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        return render_quotes(self.quotes)


class Focus(Struct, frozen=True):
    """What a choice of lines looks at beside the messages themselves.

    `after` is what stays verbatim after them: what it shows need not be quoted again, and what it
    speaks of is likely needed. So is what the `goal` names. `places` are the numbers by which
    messages are called; their own indexes if there are none. `quoted` are the messages that are
    quoted whole in any case. `room` is what all of history may take, in tokens.
    """

    after: Sequence[Message] | None = None
    goal: str = ""
    places: Sequence[int] = ()
    quoted: frozenset[int] = frozenset()
    room: int = 0


NO_FOCUS = Focus()


def extract(
    index: AnchorIndex,
    span: Span,
    tokens: int,
    count: Callable[[str], int],
    focus: Focus = NO_FOCUS,
) -> Extract:
    """Lines of the messages of a span, verbatim, chosen within so many tokens.

    Where `focus` does not say what stays after them, it is what the index has after the span.
    """
    start, stop = max(0, span.start), min(span.stop, len(index))
    if start >= stop or tokens <= 0:
        return Extract((), 0, ())
    greedy = _Greedy(index, count, focus)
    best, size = 0, 0
    for planned in _plan_rounds(index, start, stop, tokens, focus):
        greedy.open(planned)
        limit = planned.limit
        # Lines cost less together than apart, so there is room for more when the first have been
        # counted as they stand.
        while limit - size > max(MIN_LEFT_TOKENS, size // 100) and greedy.take(limit - size):
            together = count(render_quotes(quote_passages(index, greedy.chosen, focus)))
            if together > tokens:
                break
            best, size = len(greedy.chosen), together
    if not best:
        best, size = _count_fitting(index, greedy.chosen, tokens, count, focus)
    chosen = greedy.chosen[:best]
    lines = sorted({(index.places[number], index.passages[number].line) for number in chosen})
    quotes = _judge_quotes(index, chosen, quote_passages(index, chosen, focus))
    return Extract(quotes, size, tuple(Line(*line) for line in lines))


def _count_fitting(
    index: AnchorIndex,
    chosen: list[int],
    tokens: int,
    count: Callable[[str], int],
    focus: Focus,
) -> tuple[int, int]:
    """How many of the chosen, best first, fit where they cost more together than apart; and their
    tokens.
    """
    number = len(chosen)
    while number:
        size = count(render_quotes(quote_passages(index, chosen[:number], focus)))
        if size <= tokens:
            return number, size
        number = number * 7 // 8
    return 0, 0


class _Worth(Struct, frozen=True):
    """What showing each anchor of the messages is worth: for the work at hand, and, of those that
    somebody coined, for what was said. And how old each message is for both.
    """

    work: dict[str, float]
    coined: dict[str, float]
    work_ages: list[float]
    coined_ages: list[float]


def _find_worth(index: AnchorIndex, start: int, stop: int, focus: Focus) -> _Worth:
    ages = _age(index, start, stop)
    fading = _fade(index, start, ages)
    # What was coined stays worth saying for longer: it can be found nowhere else.
    lasting_ages = [
        FADING_MESSAGES + max(age - FADING_MESSAGES, 0) ** LASTING_POWER
        for age in _age_by_voice(index, start, stop)
    ]
    lasting = _fade(index, start, lasting_ages)
    shown = _strongest(_passages_shown(index, stop, focus))
    work: dict[str, float] = {}
    coined: dict[str, float] = {}
    for anchor, trace in index.traces.items():
        places = trace.messages
        if places[-1] >= stop:
            places = places[: bisect_left(places, stop)]
        named = places[-MAX_MENTIONS:]
        value = 0.0
        for place in named:
            value += fading[place]
        if not value:
            continue
        value **= WORTH_POWER
        if trace.kind:
            value *= 1 + BONUS[trace.kind] / (1 + index.sizes[places[-1]] / MANY_ANCHORS)
        work[anchor] = value * SHOWN_FACTOR if anchor in shown else value
        if trace.is_coined and anchor not in shown:
            lasts = sum([lasting[place] for place in named]) ** WORTH_POWER
            coined[anchor] = lasts * (1 + index.rarity(trace.kind, named))
    cues = {
        anchor: VOICES["user"]
        for line in focus.goal.splitlines()
        for _, _, anchor in find_anchors(line)
    } | shown
    for anchor, nearness in _near(index, start, stop, cues).items():
        work[anchor] *= 1 + NEARNESS_WEIGHT * min(nearness, 2.0)
    return _Worth(work, coined, ages, lasting_ages)


def _passages_shown(index: AnchorIndex, stop: int, focus: Focus) -> Iterator[Passage]:
    """What the request shows in any case."""
    if focus.after is None:
        yield from index.passages[index.first[stop] :]
    else:
        for message in focus.after:
            yield from passages_of(message, index.memory)
    for place in focus.quoted:
        yield from index.of_message(place)


def _fade(index: AnchorIndex, start: int, ages: Sequence[float]) -> list[float]:
    """What each message's mentions are worth now; nothing for those that are not asked for."""
    stop = len(ages)
    return [0.0] * start + [
        weight / age for weight, age in zip(index.weights[start:stop], ages[start:], strict=True)
    ]


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
        for place in _newest_places(trace.messages, start, stop, MAX_CUE_PLACES):
            heat[place] = heat.get(place, 0.0) + warmth
        for number in _newest_places(
            trace.passages, index.first[start], index.first[stop], MAX_CUE_PLACES
        ):
            anchors = index.passages[number].anchors
            for anchor in anchors:
                near[anchor] = (
                    near.get(anchor, 0.0) + SAME_LINE_FACTOR * warmth / len(anchors) ** 0.5
                )
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
        count: Callable[[str], int],
        focus: Focus,
    ) -> None:
        self.chosen: list[int] = []
        self._index, self._count, self._focus = index, count, focus
        self._worth: dict[str, float] = {}
        self._said: dict[int, float] = {}
        self._novelty: dict[int, float] = {}
        self._shown: set[str] = set()  # the anchors of what was taken
        self._messages: set[int] = set()
        self._texts: set[str] = set()
        self._pool: set[int] = set()
        self._heap: list[tuple[float, int]] = []

    def open(self, planned: "_Round") -> None:
        """Choose among these passages from now on, by what their anchors are worth."""
        self._worth, self._said, self._novelty = planned.worth, planned.said, planned.novelty
        for anchor in self._worth.keys() & self._shown:
            self._worth[anchor] *= REPEATED_FACTOR
        places, quoted = self._index.places, self._focus.quoted
        self._pool = {number for number in planned.pool if places[number] not in quoted}
        self._heap = [(self._rank(number), -number) for number in self._pool]
        heapify(self._heap)

    def take(self, tokens: int) -> int:
        """Take passages until so many tokens are spent; how many were taken."""
        before = len(self.chosen)
        passages, places = self._index.passages, self._index.places
        too_large: list[tuple[float, int]] = []
        while self._heap and tokens > MIN_LEFT_TOKENS and len(too_large) < MAX_MISFITS:
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
            cost = self._count(text) + LINE_TOKENS + 2 * (len(text) < len(passage.text))
            if (place := places[-number]) not in self._messages:
                cost += self._count(_quote_nothing(self._index, place, self._focus).label) + 1
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
            self._worth[anchor] *= 0.0 if anchor in self._shown else REPEATED_FACTOR
            self._shown.add(anchor)

    def _rank(self, number: int) -> float:
        """What the passage shows per token, negative, so that the best is the least."""
        passage, place = self._index.passages[number], self._index.places[number]
        worth = self._worth
        gain = sum([worth.get(anchor, 0.0) for anchor in passage.anchors])
        if passage.defines:
            gain *= DEFINITION_FACTOR
        gain += self._said.get(number, 0.0)
        gain *= self._novelty.get(number, 1.0)
        cost = passage.size / BYTES_PER_TOKEN + (
            LINE_TOKENS if place in self._messages else LINE_TOKENS + LABEL_TOKENS
        )
        return -round(gain / cost, 9)


class _Round(NamedTuple):
    """What lines are chosen by: what anchors are worth, the passages that are tried, what each of
    them is worth for its words, and by how much its novelty changes all that; and up to how many
    tokens.
    """

    worth: dict[str, float]
    pool: set[int]
    said: dict[int, float]
    novelty: dict[int, float]
    limit: int


def _plan_rounds(
    index: AnchorIndex, start: int, stop: int, tokens: int, focus: Focus
) -> list[_Round]:
    """First what the model said, in a share of the tokens; then all by anchors."""
    worth = _find_worth(index, start, stop, focus)
    numbers = Span(index.first[start], index.first[stop])
    most = max(tokens // TOKENS_PER_ANCHOR, 50)
    said = _find_holders(index, numbers, worth.coined, most)
    for voice in FIRST_VOICES:
        if voice in index.spoken:
            said.update(_newest_places(index.spoken[voice], numbers.start, numbers.stop, most))
    said.update(number for number in index.judged if numbers.start <= number < numbers.stop)
    passages = index.passages
    said = {number for number in said if passages[number].voice in FIRST_VOICES}
    pool = _find_holders(index, numbers, worth.work, most)
    for spoken in index.spoken.values():
        pool.update(_newest_places(spoken, numbers.start, numbers.stop, MAX_SPOKEN_LINES))
    room = focus.room or tokens
    share = MODEL_SHARE * min(1.0, room / FULL_MODEL_ROOM_TOKENS) ** MODEL_POWER
    novelty = {number: index.novelty(number) ** NOVELTY_POWER for number in said}
    first = _weigh_words(index, said, worth.coined_ages, SAID_FACTOR)
    then = _weigh_words(index, pool, worth.work_ages, 1.0)
    return [
        _Round(worth.coined, said, first, novelty, int(tokens * share)),
        _Round(worth.work, pool, then, {}, tokens),
    ]


def _weigh_words(
    index: AnchorIndex, numbers: Iterable[int], ages: Sequence[float], factor: float
) -> dict[int, float]:
    """What passages are worth for their words alone, those that are worth anything."""
    passages, places = index.passages, index.places
    return {
        number: factor * passages[number].said / ages[places[number]] ** WORTH_POWER
        for number in numbers
        if passages[number].said
    }


def _find_holders(
    index: AnchorIndex, numbers: Span, worth: dict[str, float], most: int
) -> set[int]:
    """A few passages for each of so many anchors, the most worth of all."""
    best = sorted(worth, key=worth.__getitem__, reverse=True)[:most]
    passages = index.passages
    found: set[int] = set()
    for anchor in best:
        some = _newest_places(
            index.traces[anchor].passages, numbers.start, numbers.stop, MAX_MENTIONS
        )
        if len(some) > MAX_HOLDERS:
            found.add(min(reversed(some), key=lambda number: passages[number].size))
        found.update(some[-MAX_HOLDERS:])
    return found


def _age(index: AnchorIndex, start: int, stop: int) -> list[float]:
    """How old each message is: by the messages since. What was quoted before does not count."""
    found = [0.0] * stop
    age = FADING_MESSAGES
    for place in range(stop - 1, start - 1, -1):
        age += index.clocks[place] != "quotes"
        found[place] = age
    return found


def _age_by_voice(index: AnchorIndex, start: int, stop: int) -> list[float]:
    """How old each message is by the clock of its voice: no work of tools makes words old."""
    ages: dict[Clock, int] = {}
    found = [0.0] * stop
    for place in range(stop - 1, start - 1, -1):
        clock = index.clocks[place]
        ages[clock] = ages.get(clock, 0) + (clock != "quotes")
        found[place] = ages[clock] + FADING_MESSAGES
    return found


def _quote_nothing(index: AnchorIndex, place: int, focus: Focus) -> Quote:
    """The quote of a message with no line in it yet."""
    origin = index.origins[place]
    number = focus.places[place] if focus.places else place
    return Quote(number, origin.voice, origin.name, origin.about, ())


def quote_passages(index: AnchorIndex, chosen: Iterable[int], focus: Focus) -> tuple[Quote, ...]:
    """The passages in order, those of one message under its label.

    What a tool was asked is on the label, unless the question itself is quoted.
    """
    ordered = sorted(chosen)
    places, passages = index.places, index.passages
    asked = {places[number] for number in ordered if passages[number].voice == "call"}
    quotes: list[Quote] = []
    for place, of_message in groupby(ordered, key=places.__getitem__):
        quote = _quote_nothing(index, place, focus)
        if index.origins[place].call in asked:
            quote = replace(quote, about="")
        lines: list[tuple[Voice, str]] = []
        for _, of_line in groupby(
            [passages[number] for number in of_message], key=lambda passage: passage.line
        ):
            pieces = list(of_line)
            lines.append((pieces[0].voice, _join_passages(pieces)))
        quotes.append(replace(quote, lines=tuple(lines)))
    return tuple(quotes)


def _judge_quotes(
    index: AnchorIndex, chosen: Iterable[int], quotes: Iterable[Quote]
) -> tuple[Quote, ...]:
    """The quotes of these passages, with what is known now of what was said in them."""
    groups = groupby(sorted(chosen), key=index.places.__getitem__)
    return tuple(
        [
            _judge_quote(index, list(numbers), quote)
            for (_, numbers), quote in zip(groups, quotes, strict=True)
        ]
    )


def _judge_quote(index: AnchorIndex, numbers: list[int], quote: Quote) -> Quote:
    passages = index.passages
    spoken = [number for number in numbers if passages[number].voice in SPEAKING]
    if not spoken:
        return quote
    lines = groupby(numbers, key=lambda number: passages[number].line)
    novelty = [round(max(map(index.novelty, of_line)), 3) for _, of_line in lines]
    return replace(quote, coined=index.find_coined(spoken), novelty=tuple(novelty))


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
