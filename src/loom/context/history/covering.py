"""Covering: what is chosen of a history, with telling lines in the place of what is left out.

Rules of this file:
- Summaries stand first. Covers of the last epoch stand as they stood. What is left out after them
  gets one more cover.
- A cover quotes what users said, whole while all of it fits their share of the window, and lines of
  all others.
- Once lines or users' words take too much, all covers become one.
- An epoch that nothing of another one stands in is filled up to the policy's `refill`.
- Covers give way to what must be in, and to the newest exchange.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from loom.context.cover.extract import Focus
from loom.context.cover.lines import MIN_COVER_TOKENS, forget_printed, quote_lines
from loom.context.cover.speech import Source, choose_speech, count_quote, find_speech
from loom.context.history.filling import fill
from loom.context.history.fitting import MAX_WORDS_ONCE, WORDS_BEYOND, Fitting
from loom.context.history.gate import SMALLEST_SHARE
from loom.context.history.pieces import (
    MARKER_FRAME,
    FittedHistory,
    cost_of,
    cover_with_quotes,
    keep,
    lay,
    longest_marker,
    recount,
    up_to_last_cover,
)
from loom.context.history.point import (
    BACKGROUND,
    BACKGROUND_SHARE,
    POINT,
    cut_of_point,
    find_must,
    must_and_reminders,
)
from loom.context.history.summary_covers import SummarySpan, cover_first_gap, lay_summaries
from loom.context.quotes import Quote
from loom.context.report import Piece
from loom.conversation.message import Message
from loom.conversation.turns import Span, exchanges
from loom.errors import CannotFit

VERBATIM_TOKENS = 2000  # of the newest that stay as they are after a cover, where there is room
# of a history of so many rooms the first cover tells at once as much as it would have come to
LONG_HISTORY_ROOMS = 3
# times that the size of a cover is found again once it is known what it has to tell of
MAX_TRIES = 6
BY_PROVIDER = "the provider"
_FRAME = 20  # tokens for what leads a cover in
# of their share, what users' words may take when covers become one because they exceed it
WORDS_AFTER_MERGE = 0.85
# what lines of a new cover may take in any window: a stretch that no cover tells of is forgotten
MIN_LINES_TOKENS = MIN_COVER_TOKENS + _FRAME
# of what lines may take later, what they take in the first cover of a long history, and how much
# of the room is then full: most of it is told of once, and there are no requests to continue
LINES_AT_FIRST = 1.25
FULL_AT_FIRST = 0.82
LINES_AFTER_MERGE = 0.33  # of what lines may take, what they take when covers become one


class _Covers(Struct, frozen=True):
    """What tells of what is left out: the pieces of the last request, those of them that stand, and
    the tokens that a new cover may take for lines and for users' words.
    """

    before: Sequence[Piece]
    standing: tuple[Piece, ...]
    lines: int
    words: int
    most_words: int  # what users' words may take of the tokens where they are more than expected
    standing_words: int  # tokens of users' words in what stands
    once: bool  # for a call that is its own
    spoken: int  # tokens of all users' words that are left out

    @property
    def tokens(self) -> int:
        return self.lines + self.words

    @property
    def stop(self) -> int:
        if self.standing:
            return self.standing[-1].span.stop
        return 0

    def limit(self, tokens: int) -> "_Covers":
        """With at most so many tokens for a new cover: lines give way before words."""
        words = min(self.words, tokens)
        return replace(self, lines=min(self.lines, tokens - words), words=words)

    def give(self, lack: int) -> "_Covers | None":
        """With so many tokens less: of the new cover, or of one in place of them all; None where
        there is no room for one.
        """
        if lack < self.tokens:
            return self.limit(self.tokens - lack)
        left = self.tokens + cost_of(self.standing) - lack
        if not self.standing or left <= 0:
            return None
        words = min(left, self.words + self.standing_words)
        return replace(
            self,
            standing=(),
            lines=left - words,
            words=words,
            most_words=self.most_words + self.standing_words,
            standing_words=0,
        )


def choose(
    fitting: Fitting, before: Sequence[Piece] = (), summaries: Sequence[SummarySpan] = ()
) -> FittedHistory:
    """Let the policy's strategy choose by its own counter, and the gate fill by the best one.

    What was left out is covered, if the policy says so. `before` are the pieces of the last
    request.
    """
    if not fitting.policy.cover:
        return cover_first_gap(fill, fitting, summaries)
    if sum(fitting.costs) <= fitting.room and not fitting.floor:
        return fill(fitting)
    return _fill_next_to(fitting, _plan_covers(fitting, before, summaries))


def _plan_covers(
    fitting: Fitting, before: Sequence[Piece], summaries: Sequence[SummarySpan]
) -> _Covers:
    """Which covers stand, and how large the new one may be."""
    policy, room, total = fitting.policy, fitting.room, sum(fitting.costs)
    standing = up_to_last_cover(_without_pinned(before, fitting.pins))
    laid = _lay_summaries(fitting, _with_compaction(fitting, summaries), standing)
    if laid:
        before = standing = laid
    standing = tuple(recount(fitting, piece) for piece in standing)
    stood = _count_speech(fitting, [quote for piece in standing for quote in piece.quotes])
    stop = standing[-1].span.stop if standing else 0
    newest = max(stop, find_newest(fitting), fitting.floor)
    spoken = stood + _count_words(fitting, Span(stop, newest), ())
    most = int(fitting.window * policy.words)
    if fitting.refill == 1:  # to tell of what must go, no more than as much again should go
        tokens = min(int(room * policy.once), total - room)
        words = min(spoken - stood, most, int(tokens * MAX_WORDS_ONCE))
        tokens = min(tokens + int(words * WORDS_BEYOND), total - room)
        return _Covers(
            before, standing, tokens - words, words, most - stood, stood, once=True, spoken=spoken
        )
    lines = max(int(room * policy.cover), MIN_LINES_TOKENS)
    line_room = int(room * policy.covers)
    is_first_of_much = not standing and total > LONG_HISTORY_ROOMS * room
    is_too_much = cost_of(standing) - stood + lines > line_room or spoken > most
    if not is_too_much and not is_first_of_much:
        words = spoken - stood
        return _Covers(
            before, standing, lines, words, most - stood, stood, once=False, spoken=spoken
        )
    spoken = _count_words(fitting, Span(0, newest), before)
    if spoken > most:
        spoken = most = int(most * WORDS_AFTER_MERGE)
    merged = int(line_room * LINES_AFTER_MERGE)
    if is_first_of_much:
        stays = max(verbatim_tokens(fitting), _tokens_above_floor(fitting))
        left = int(room * FULL_AT_FIRST) - spoken - stays
        merged = min(int(line_room * LINES_AT_FIRST), left)
    return _Covers(before, (), max(lines, merged), spoken, most, 0, once=False, spoken=spoken)


def _count_words(fitting: Fitting, span: Span, before: Sequence[Piece]) -> int:
    """The tokens of what users said in a span, where the policy quotes it whole; without what has
    to be in the request itself.
    """
    if not fitting.policy.words:
        return 0
    places = fitting.places
    must = find_must(fitting)
    in_request = {places.span(Span(n, n + 1)).start for n in must}
    sources = _find_sources(fitting, span, before)
    left_out = [(place, source) for place, source in sources if place not in in_request]
    return _count_speech(fitting, find_speech(left_out).values())


def _count_speech(fitting: Fitting, quotes: Iterable[Quote]) -> int:
    """The tokens of users' words among these quotes."""
    count = fitting.counter.count_text_once
    return sum([count_quote(quote, count) for quote in quotes if quote.is_speech])


def _lay_summaries(
    fitting: Fitting, summaries: Sequence[SummarySpan], standing: tuple[Piece, ...]
) -> tuple[Piece, ...]:
    """The pieces of summaries, and covers that follow on them. What there is room for stays as it
    is.
    """
    if not summaries:
        return ()
    newest = max(find_newest(fitting), fitting.floor)
    shortened = [
        replace(summary, span=Span(summary.span.start, min(summary.span.stop, newest)))
        for summary in summaries
        if summary.span.start < newest
    ]
    laid = lay_summaries(shortened, fitting)
    if not laid:
        return ()
    after = [piece for piece in standing if piece.span.start >= laid[-1].span.stop]
    follows = bool(after) and after[0].span.start == laid[-1].span.stop
    if follows:
        return (*laid, *after)
    return laid


def _with_compaction(fitting: Fitting, summaries: Sequence[SummarySpan]) -> Sequence[SummarySpan]:
    """The summaries, or in their place the compaction of the provider, if it tells of more. It says
    itself what it sums up, so nothing else does.
    """
    stop = fitting.compacted
    if not stop or (summaries and summaries[-1].span.stop > stop):
        return summaries
    return (SummarySpan(Span(0, stop), "", BY_PROVIDER),)


def _without_pinned(pieces: Sequence[Piece], pins: Sequence[int]) -> Sequence[Piece]:
    """The pieces up to the first that leaves out something that is pinned now."""
    for n, piece in enumerate(pieces):
        if piece.is_left_out and any(piece.span.start <= pin < piece.span.stop for pin in pins):
            return pieces[:n]
    return pieces


def find_newest(fitting: Fitting) -> int:
    """Where the newest exchanges begin that stay as they are after covers."""
    left, begin = verbatim_tokens(fitting), len(fitting.history)
    for span in reversed(exchanges(fitting.history)):
        left -= fitting.cost(span)
        if left < 0:
            break
        begin = span.start
    return begin


def verbatim_tokens(fitting: Fitting) -> int:
    """How much stays as it is after covers."""
    return max(int(fitting.room * fitting.policy.verbatim), min(VERBATIM_TOKENS, fitting.room // 2))


def _fill_next_to(fitting: Fitting, planned: _Covers, yields: bool = True) -> FittedHistory:
    """Fill the room that covers leave. They give way to what must be in, and to the newest
    exchange.

    They do not where that would hardly help: where most of what is cut of goal, request and pins is
    cut in any case.
    """
    covers, without = planned, _without_covers(fitting, planned)
    for _ in range(MAX_TRIES):
        try:
            fitted = fill(_beside_covers(fitting, covers), covers.stop)
        except CannotFit:
            return fill(without)
        lack = 0
        if yields:
            lack = find_lack(fitted, fitting, fitting.room - cost_of(covers.standing))
        if lack:
            less = covers.give(lack)
            if less is None:
                return _fill_without(fitting, planned)
            covers = less
            continue
        lost = sum(piece.tokens_before for piece in fitted.pieces if piece.action == "dropped")
        if not lost and not covers.standing:  # nothing to tell of
            return fill(without)
        if not lost or covers.tokens <= lost // 2 or not covers.once:
            break
        # What tells of little must not take the room of much.
        covers = covers.limit(min(lost // 2, covers.tokens - 1))
    return _cover(fitting, fitted, covers, yields)


def _without_covers(fitting: Fitting, planned: _Covers) -> Fitting:
    """The fitting of a request without covers. What would be told of at another window is not
    known, but not more than this.
    """
    policy = fitting.policy
    beyond = int(planned.spoken * WORDS_BEYOND) + 1
    share = policy.once if planned.once else policy.covers
    return replace(fitting, cover_share=share, cover_beyond=beyond)


def _beside_covers(fitting: Fitting, covers: _Covers) -> Fitting:
    """The fitting of what covers leave."""
    room = fitting.room - cost_of(covers.standing) - covers.tokens
    share = 1.0
    if not covers.once:
        verbatim = max(verbatim_tokens(fitting), _tokens_above_floor(fitting))
        if not covers.before:  # no provider has any of it yet, so it may be as full as an epoch can
            verbatim = max(verbatim, int(fitting.room * fitting.policy.refill) - covers.tokens)
        share = min(1.0, verbatim / max(room, 1))
    return replace(
        _without_covers(fitting, covers),
        room=room,
        room_with_covers=fitting.room,
        refill=share,
    )


def _fill_without(fitting: Fitting, planned: _Covers) -> FittedHistory:
    """What is in without covers, where half or less is then cut of goal, request and pins; else
    covers stay as planned.
    """
    plain = fill(_without_covers(fitting, planned))
    if _cut_of(plain):
        covered = _fill_next_to(fitting, planned, yields=False)
        if 2 * _cut_of(plain) > _cut_of(covered):
            return covered
    # What is free after all may tell something.
    most_words = planned.most_words + planned.standing_words
    covers = replace(planned, standing=(), most_words=most_words, standing_words=0)
    return lay(fitting, _cover_gaps(fitting, plain.pieces, covers, fitting.room - plain.tokens))


def _cover(fitting: Fitting, fitted: FittedHistory, covers: _Covers, yields: bool) -> FittedHistory:
    """What was filled in, with the covers that stand before it, and a cover in each gap of it."""
    free = fitting.room - cost_of(covers.standing) - fitted.tokens
    filled = _cover_gaps(fitting, fitted.pieces, covers, free)
    used = cost_of(filled) - fitted.tokens + _FRAME
    # Lines that are few leave room to messages.
    if covers.once and covers.tokens - used >= max(SMALLEST_SHARE, covers.tokens // 2):
        return _fill_next_to(fitting, covers.limit(used), yields)
    return lay(fitting, (*_forget_printed(fitting, fitted.pieces, covers), *filled))


def _forget_printed(
    fitting: Fitting, filled: Sequence[Piece], covers: _Covers
) -> tuple[Piece, ...]:
    """What stands, with the same words. What tools print in what is covered now is no longer taken
    for coined by whom a cover of before quotes.
    """
    sources = [
        source
        for piece in filled
        if piece.action == "dropped"
        for source in _find_sources(fitting, piece.span, covers.before)
    ]
    quotes = [quote for piece in covers.standing for quote in piece.quotes]
    known = iter(forget_printed(quotes, sources, fitting.caches.indexes))
    return tuple(
        [
            replace(piece, quotes=tuple(islice(known, len(piece.quotes))))
            for piece in covers.standing
        ]
    )


def _tokens_above_floor(fitting: Fitting) -> int:
    """What all takes that stands after the floor, and what must be in before it: after an overflow
    that stays as it is.
    """
    if not fitting.floor:
        return 0
    before = [n for n in must_and_reminders(fitting) if n < fitting.floor]
    marker = fitting.counter.count_message(longest_marker(fitting)) + MARKER_FRAME
    kept = sum(fitting.costs[fitting.floor :]) + sum(fitting.costs[n] for n in before)
    return kept + (len(before) + 5) * marker


def _cut_of(fitted: FittedHistory) -> int:
    """How many tokens of goal, request and pins are cut."""
    return cut_of_point(item for piece in fitted.pieces for item in piece.items)


def find_lack(fitted: FittedHistory, fitting: Fitting, most: int) -> int:
    """How many tokens goal, request and pins lack to stand whole, and what the request leans on to
    have its share; and the newest exchange, where it would fit, else to be there.
    """
    cut, last = _cut_of(fitted) + _find_lack_of_background(fitted, fitting), fitted.pieces[-1]
    if last.items[0].rule in POINT:
        return cut
    newest, gone = exchanges(fitting.history)[-1], last.action == "dropped"
    size = sum(map(fitting.counter.count_message, fitting.messages(newest)))
    wanted: list[int] = []
    # larger, it would leave little room for all else
    if size <= max(fitting.room // 2, SMALLEST_SHARE):
        wanted.append(size if gone else size - last.tokens)
    if gone:
        wanted.append(SMALLEST_SHARE)
    for missing in wanted:
        if fitted.tokens + cut + missing <= most:
            return cut + missing
    return cut


def _find_lack_of_background(fitted: FittedHistory, fitting: Fitting) -> int:
    """How many tokens are lacking to what the request leans on, and to the current goal, where the
    room left no place or little to them.
    """
    why = find_must(fitting)
    most, lack = int(fitting.room * BACKGROUND_SHARE), 0
    for unit in exchanges(fitting.history):
        if unit.start < fitted.pieces[0].span.start:
            continue
        if not any(why.get(n) in BACKGROUND for n in range(unit.start, unit.stop)):
            continue
        wanted = min(fitting.cost(unit), most)
        there = [piece for piece in fitted.pieces if piece.span == unit and not piece.is_left_out]
        lacking = wanted - cost_of(there)
        if lacking > wanted // 2:
            lack += lacking
    return lack


def _cover_gaps(
    fitting: Fitting, pieces: Sequence[Piece], covers: _Covers, free: int
) -> tuple[Piece, ...]:
    """The pieces with quotes of what was left out in each gap, in at most so many tokens in all."""
    gaps = [n for n, piece in enumerate(pieces) if piece.action == "dropped"]
    if not gaps:
        return tuple(pieces)
    sources = {n: _find_sources(fitting, pieces[n].span, covers.before) for n in gaps}
    speech = _choose_speech(fitting, sources, max(covers.words, covers.most_words), free)
    words = sum([_count_speech(fitting, speech[n].values()) for n in gaps])
    left = min(free, covers.lines + words + _FRAME * len(gaps))
    if covers.once:  # what no message fits into is free for lines
        left = free
    lines = max(left - words, 0)
    quotes = _quote_gaps(fitting, pieces, sources, speech, lines - _FRAME * len(gaps))
    made = list(pieces)
    for n in gaps:
        covered = pieces[n]
        if quotes[n]:
            covered = cover_with_quotes(fitting, pieces[n], quotes[n])
        covered = _keep_if_smaller(fitting, covered)
        more = covered.tokens - pieces[n].tokens
        if more <= left:
            left -= more
            made[n] = covered
    return tuple(made)


def _quote_gaps(
    fitting: Fitting,
    pieces: Sequence[Piece],
    sources: Mapping[int, Sequence[tuple[int, Source]]],
    speech: Mapping[int, Mapping[int, Quote]],
    tokens: int,
) -> dict[int, tuple[Quote, ...]]:
    """What the cover of each gap quotes. Lines are chosen among all gaps at once, so that they are
    where the most is to be told.
    """
    together: list[tuple[int, Source]] = []
    words: dict[int, Quote] = {}
    for n, given in sources.items():
        words |= {len(together) + index: quote for index, quote in speech[n].items()}
        together += given
    after = _messages_after(pieces, next(iter(sources)))
    focus = Focus(after=after, goal=fitting.goal, room=fitting.room)
    count, indexes = fitting.counter.count_text, fitting.caches.indexes
    quotes = quote_lines(together, words, tokens, count, focus, indexes)
    gap_of = {place: n for n, given in sources.items() for place, _ in given}
    made: dict[int, list[Quote]] = {n: [] for n in sources}
    for quote in quotes:
        made[gap_of[quote.place]].append(quote)
    return {n: tuple(chosen) for n, chosen in made.items()}


def _keep_if_smaller(fitting: Fitting, left_out: Piece) -> Piece:
    """What was left out as it was said, where that takes no more than what would stand for it."""
    span = left_out.span
    is_read = not any(fitting.places.unread(n) for n in range(span.start, span.stop))
    if is_read and fitting.cost(span) <= left_out.tokens:
        return keep(fitting, span, left_out.items[0].rule)
    return left_out


def _messages_after(pieces: Sequence[Piece], gap: int) -> list[Message]:
    """What is in the request after a gap."""
    kept = [piece for piece in pieces[gap + 1 :] if piece.action != "dropped"]
    return [message for piece in kept for message in piece.messages]


def _choose_speech(
    fitting: Fitting, sources: Mapping[int, Sequence[tuple[int, Source]]], most: int, free: int
) -> dict[int, dict[int, Quote]]:
    """Of each gap, the users' words that are quoted whole, by their index in its sources; at most
    so many tokens, and with what leads them in no more than are free.
    """
    found = {n: find_speech(given) if most > 0 else {} for n, given in sources.items()}
    tokens = min(most, free - _FRAME * sum(map(bool, found.values())))
    spoken = [(n, index) for n, given in found.items() for index in given]
    numbered = {number: found[n][index] for number, (n, index) in enumerate(spoken)}
    chosen: dict[int, dict[int, Quote]] = {n: {} for n in sources}
    for number, quote in choose_speech(numbered, tokens, fitting.counter.count_text_once).items():
        n, index = spoken[number]
        chosen[n][index] = quote
    return chosen


def _find_sources(
    fitting: Fitting, span: Span, before: Sequence[Piece]
) -> list[tuple[int, Source]]:
    """What a cover is made from, with the place of each: messages that were read; of what was
    covered before, its quotes. A cover of before may reach beyond the span.
    """
    sources: list[tuple[int, Source]] = []
    if not span:
        return sources
    at, inside = span.start, fitting.places.span(span)
    for piece in before:
        if piece.action != "covered" or piece.span.stop <= at or piece.span.start >= span.stop:
            continue
        sources += _read_messages(fitting, Span(at, piece.span.start))
        quotes = [quote for quote in piece.quotes if inside.start <= quote.place < inside.stop]
        sources += [(quote.place, quote) for quote in quotes]
        at = piece.span.stop
    return [*sources, *_read_messages(fitting, Span(at, span.stop))]


def _read_messages(fitting: Fitting, span: Span) -> list[tuple[int, Source]]:
    """The messages of a span that were read, with their places on the path."""
    places, inside = fitting.places, range(span.start, span.stop)
    if not places.spots:
        return [(n, fitting.history[n]) for n in inside]
    return [(places.spots[n].start, fitting.history[n]) for n in inside if not places.unread(n)]
