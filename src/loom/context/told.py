"""Summaries in a request: what tells of a stretch of the history in a few words, in its place or before the first gap."""

from collections.abc import Callable, Sequence
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from loom.context.cut import shrink_text
from loom.context.gate import Fitted, Room, Work, costs_of, marker_for, stays
from loom.context.report import Item, Piece
from loom.conversation.message import Message, Text
from loom.conversation.turns import Span, exchanges
from loom.errors import CannotFit

_FRAME = 8  # tokens for what joins a summary to its marker


class Told(Struct, frozen=True):
    """A summary of a stretch of the history, and who made it."""

    span: Span
    text: str
    by: str


def lay_summaries(told: Sequence[Told], work: Work, pins: Sequence[int]) -> tuple[Piece, ...]:
    """The history up to the last summary as pieces: each summary stands for what it tells of, but what must be in stands whole.

    None at all where they do not follow one another from the beginning, or one would tear an exchange.
    """
    if not told or any(one.span.start != stop for one, stop in zip(told, (0, *(each.span.stop for each in told)), strict=False)):
        return ()
    stop = told[-1].span.stop
    must = stays(work, pins)
    costs = costs_of(work.history, work.places, work.counter)
    units = exchanges(work.history)
    if stop >= len(work.history) or not {one.span.stop for one in told} <= {unit.stop for unit in units}:
        return ()
    whole_at = ceil((sum(costs) + work.room.beside) / (1 - work.room.margin)) + work.room.reserve + 1
    pieces: list[Piece] = []
    at = 0
    for one in told:
        text = one.text
        gap = Span(one.span.start, one.span.start)
        while gap.start < one.span.stop:
            unit = units[at] if at < len(units) and units[at].start < one.span.stop else None
            rule = next((must[n] for n in range(unit.start, unit.stop) if n in must), "") if unit else ""
            if unit and not rule:
                gap, at = Span(gap.start, unit.stop), at + 1
                continue
            if len(gap):
                pieces.append(_told(gap, text, one.by, work, sum(costs[gap.start : gap.stop]), whole_at))
                text = ""
            if unit:
                pieces.append(_whole(unit, rule, work, costs))
                at += 1
            gap = Span(unit.stop if unit else one.span.stop, unit.stop if unit else one.span.stop)
    return tuple(pieces)


def _told(span: Span, text: str, by: str, work: Work, before: int, whole_at: int) -> Piece:
    handle = work.archive.keep_span(span.start, work.messages(span))
    count = sum(map(work.places.count, range(span.start, span.stop)))
    marker = marker_for(work.policy, count, handle)
    message = Message("user", (Text(f"{marker} In short, for reference only:\n{text}" if text else marker),))
    at, after = work.places.span(span), work.counter.count_message(message)
    item = Item(f"messages[{at.start}:{at.stop}]", "history", "covered", f"summary by {by}", before, after, (handle,), whole_at)
    return Piece(span, (message,), (item,))


def _whole(span: Span, rule: str, work: Work, costs: Sequence[int]) -> Piece:
    items = [
        Item(work.places.label(Span(n, n + 1)), "history", "kept", rule, costs[n], costs[n]) for n in range(span.start, span.stop)
    ]
    return Piece(span, work.messages(span), tuple(items))


def told_first(fill: Callable[[Room], Fitted], work: Work, told: Sequence[Told]) -> Fitted:
    """What is filled in, with all that summaries tell as one message where something was first left out."""
    fitted = fill(work.room)
    if not told or work.policy.summary != "message" or _first_gap(fitted) is None:
        return fitted
    said = work.policy.summary_text.format(text="\n\n".join(one.text for one in told))
    most = work.room.tokens // 2  # what tells of the history must not take its room
    if work.counter.count_text(said) + _FRAME > most:
        said = shrink_text(said, most - _FRAME, work.counter.count_text, work.archive.keep_text("summary", said))
    cost = work.counter.count_text(said) + _FRAME
    try:
        fitted = fill(replace(work.room, tokens=work.room.tokens - cost))
    except CannotFit:
        return fitted
    first = _first_gap(fitted)
    assert first is not None
    piece = fitted.pieces[first]
    # As the model's own words, as seed 000 has it; but no wire lets a model speak first.
    message = Message("assistant" if first else "user", (Text(f"{said}\n{piece.messages[0].text}"),))
    after = work.counter.count_message(message)
    item = replace(piece.items[0], action="covered", rule=f"summary by {told[-1].by}", after=after)
    pieces = (*fitted.pieces[:first], Piece(piece.span, (message,), (item,)), *fitted.pieces[first + 1 :])
    return Fitted(pieces, fitted.tokens + after - piece.items[0].after, fitted.dropped)


def _first_gap(fitted: Fitted) -> int | None:
    return next((n for n, piece in enumerate(fitted.pieces) if piece.items[0].action == "dropped"), None)
