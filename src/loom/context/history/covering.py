"""Covering: what is chosen of a history, with telling lines in the place of what is left out.

Rules of this file:
- Summaries stand first. Covers of the last epoch stand as they stood. What is left out after them
  gets one more cover.
- Once all of them take too much, they become one.
- An epoch that nothing of another one stands in is filled up to the policy's `refill`.
- Covers give way to what must be in, and to the newest exchange.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.context.cover.lines import cover as tell_lines
from loom.context.history.filling import fill
from loom.context.history.fitting import Fitting
from loom.context.history.gate import SMALLEST_SHARE
from loom.context.history.pieces import (
    MARKER_FRAME,
    FittedHistory,
    cost_of,
    cover,
    lay,
    longest_marker,
    recount,
    up_to_last_cover,
)
from loom.context.history.point import POINT, cut_of_point, must_and_reminders
from loom.context.history.summary_covers import SummarySpan, cover_first_gap, lay_summaries
from loom.context.report import Piece
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span, exchanges
from loom.errors import CannotFit

VERBATIM_TOKENS = 2500  # of the newest that stay as they are after a cover, where there is room
# of a history of so many rooms the first cover tells at once as much as it would have come to
LONG_HISTORY_ROOMS = 3
# times that the size of a cover is found again once it is known what it has to tell of
MAX_TRIES = 6
_FRAME = 16  # tokens for what leads a cover in


class _Covers(Struct, frozen=True):
    """What tells of what is left out: the pieces of the last request, those of them that stand, and
    the tokens for a new cover.
    """

    before: Sequence[Piece]
    standing: tuple[Piece, ...]
    tokens: int
    once: bool  # for a call that is its own

    @property
    def stop(self) -> int:
        if self.standing:
            return self.standing[-1].span.stop
        return 0

    def give(self, lack: int) -> "_Covers | None":
        """With so many tokens less: of the new cover, or of one in place of them all; None where
        there is no room for one.
        """
        if lack < self.tokens:
            return replace(self, tokens=self.tokens - lack)
        left = self.tokens + cost_of(self.standing) - lack
        if self.standing and left > 0:
            return replace(self, standing=(), tokens=left)
        return None


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
    laid = _lay_summaries(fitting, summaries, standing)
    if laid:
        before = standing = laid
    standing = tuple(recount(fitting, piece) for piece in standing)
    if fitting.refill == 1:  # to tell of what must go, no more than as much again should go
        return _Covers(before, standing, min(int(room * policy.once), total - room), once=True)
    tokens = int(room * policy.cover)
    is_first_of_much = not standing and total > LONG_HISTORY_ROOMS * room
    if cost_of(standing) + tokens > room * policy.covers or is_first_of_much:
        return _Covers(before, (), int(room * policy.covers / 2), once=False)
    return _Covers(before, standing, tokens, once=False)


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
        covers = replace(covers, tokens=min(lost // 2, covers.tokens - 1))
    return _cover(fitting, fitted, covers, yields)


def _without_covers(fitting: Fitting, planned: _Covers) -> Fitting:
    """The fitting of a request without covers. What would be told of at another window is not
    known, but not more than this.
    """
    policy = fitting.policy
    return replace(fitting, cover_share=policy.once if planned.once else policy.covers)


def _beside_covers(fitting: Fitting, covers: _Covers) -> Fitting:
    """The fitting of what covers leave."""
    room = fitting.room - cost_of(covers.standing) - covers.tokens
    share = 1.0
    if not covers.once:
        verbatim = max(verbatim_tokens(fitting), _tokens_above_floor(fitting))
        if not covers.before:  # no provider has any of it yet, so it may be as full as an epoch can
            verbatim = max(verbatim, int(fitting.room * fitting.policy.refill) - covers.tokens)
        share = min(1.0, verbatim / max(room, 1))
    return replace(_without_covers(fitting, covers), room=room, refill=share)


def _fill_without(fitting: Fitting, planned: _Covers) -> FittedHistory:
    """What is in without covers, where half or less is then cut of goal, request and pins; else
    covers stay as planned.
    """
    plain = fill(_without_covers(fitting, planned))
    if not _cut_of(plain):
        return plain
    covered = _fill_next_to(fitting, planned, yields=False)
    if 2 * _cut_of(plain) <= _cut_of(covered):
        return plain
    return covered


def _cover(fitting: Fitting, fitted: FittedHistory, covers: _Covers, yields: bool) -> FittedHistory:
    """What was filled in, with the covers that stand before it, and a cover in each gap of it."""
    free = fitting.room - cost_of(covers.standing) - fitted.tokens
    filled = _cover_gaps(fitting, fitted.pieces, covers, free)
    used = cost_of(filled) - fitted.tokens + _FRAME
    # Lines that are few leave room to messages.
    if covers.once and covers.tokens - used >= max(SMALLEST_SHARE, covers.tokens // 2):
        return _fill_next_to(fitting, replace(covers, tokens=used), yields)
    return lay(fitting, (*covers.standing, *filled))


def _tokens_above_floor(fitting: Fitting) -> int:
    """What all takes that stands after the floor, and what must be in before it: after an overflow
    that stays as it is.
    """
    if not fitting.floor:
        return 0
    before = [n for n in must_and_reminders(fitting) if n < fitting.floor]
    marker = fitting.counter.count_message(longest_marker(fitting)) + MARKER_FRAME
    kept = sum(fitting.costs[fitting.floor :]) + sum(fitting.costs[n] for n in before)
    return kept + (len(before) + 3) * marker


def _cut_of(fitted: FittedHistory) -> int:
    """How many tokens of goal, request and pins are cut."""
    return cut_of_point(item for piece in fitted.pieces for item in piece.items)


def find_lack(fitted: FittedHistory, fitting: Fitting, most: int) -> int:
    """How many tokens goal, request and pins lack to stand whole; and the newest exchange, where it
    would fit, else to be there.
    """
    cut, last = _cut_of(fitted), fitted.pieces[-1]
    if last.items[0].rule in POINT:
        return cut
    newest, gone = exchanges(fitting.history)[-1], last.action == "dropped"
    size = sum(map(fitting.counter.count_message, fitting.messages(newest)))
    lack = size if gone else size - last.tokens
    # it would leave little room for all else
    if size > fitting.room // 2 and size > SMALLEST_SHARE:
        lack = 0
    for missing in (lack, SMALLEST_SHARE if gone else 0):
        if fitted.tokens + cut + missing <= most:
            return cut + missing
    return cut


def _cover_gaps(
    fitting: Fitting, pieces: Sequence[Piece], covers: _Covers, free: int
) -> tuple[Piece, ...]:
    """The pieces with telling lines of what was left out in each gap, in at most so many tokens in
    all.
    """
    gaps = [n for n, piece in enumerate(pieces) if piece.action == "dropped"]
    lost = max(sum(pieces[n].tokens_before for n in gaps), 1)
    made, left = list(pieces), min(free, covers.tokens)
    for n in gaps:
        share = min(left, round(covers.tokens * pieces[n].tokens_before / lost)) - _FRAME
        after = [
            message
            for later in pieces[n + 1 :]
            if later.action != "dropped"
            for message in later.messages
        ]
        sources = _find_sources(fitting, pieces[n].span, covers.before)
        text = tell_lines(
            sources, after, share, fitting.counter.count_text, fitting.goal, fitting.caches.indexes
        )
        if not text:
            continue
        covered = cover(
            fitting, pieces[n], f"{pieces[n].messages[0].text} In part, they said:\n{text}"
        )
        more = covered.tokens - pieces[n].tokens
        if more <= left:
            left -= more
            made[n] = covered
    return tuple(made)


def _find_sources(
    fitting: Fitting, span: Span, before: Sequence[Piece]
) -> list[tuple[int, Message]]:
    """What a cover is made from, with the place of each: messages that were read; of what was
    covered before, the cover.
    """
    sources: list[tuple[int, Message]] = []
    at = span.start
    for piece in before:
        if piece.action != "covered" or not span.start <= piece.span.start < span.stop:
            continue
        sources += _read_messages(fitting, Span(at, piece.span.start))
        lines = piece.messages[0].text.partition("\n")[2]  # without its marker, which nobody said
        if lines:
            sources.append((fitting.places.span(piece.span).start, Message("user", (Text(lines),))))
        at = piece.span.stop
    return [*sources, *_read_messages(fitting, Span(at, span.stop))]


def _read_messages(fitting: Fitting, span: Span) -> list[tuple[int, Message]]:
    """The messages of a span that were read, with their places on the path."""
    places, inside = fitting.places, range(span.start, span.stop)
    if not places.spots:
        return [(n, fitting.history[n]) for n in inside]
    return [(places.spots[n].start, fitting.history[n]) for n in inside if not places.unread(n)]
