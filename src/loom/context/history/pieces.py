"""Pieces: what is sent in the place of each stretch of a history, with its line in the report.
Nobody else makes them.

Rules of this file:
- A stretch is kept message by message, or one message stands for all of it: a marker, or a cover.
- A marker is worded by the policy and names the handle under which the stretch comes back.
"""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom.context.handles import Archive
from loom.context.history.fitting import Fitting
from loom.context.policy import Policy
from loom.context.quotes import Quote, introduce_quotes
from loom.context.report import Action, Item, Piece
from loom.conversation.handles import HANDLE_CHARS, SAMPLE
from loom.conversation.message import Message, Role, Text, ToolCall, ToolResult
from loom.conversation.turns import Span

MARKER_FRAME = 4  # tokens that a marker may take beyond the longest one
_HANDLE = re.compile(rf"recall (~[a-z2-7]{{{HANDLE_CHARS - 1}}})")


class FittedHistory(Struct, frozen=True):
    """The history as it will be sent, in pieces that stand for all of it."""

    pieces: tuple[Piece, ...]
    tokens: int
    dropped: int  # messages that are not in the request themselves


def lay(fitting: Fitting, pieces: Sequence[Piece]) -> FittedHistory:
    """The pieces with what they take, and how many messages they leave out."""
    dropped = sum(fitting.count(piece.span) for piece in pieces if piece.is_left_out)
    return FittedHistory(tuple(pieces), cost_of(pieces), dropped)


def cost_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.tokens for piece in pieces)


def keep(fitting: Fitting, span: Span, rule: str) -> Piece:
    """A stretch as it was said."""
    return keep_as(fitting, span, fitting.messages(span), rule)


def keep_as(
    fitting: Fitting, span: Span, messages: tuple[Message, ...], rule: str, returns_at: int = 0
) -> Piece:
    """A stretch with its messages as they are now; some of them may have been shrunk."""
    items = []
    for index, message in zip(range(span.start, span.stop), messages, strict=True):
        place, said = fitting.places.label(Span(index, index + 1)), fitting.history[index]
        before, after = fitting.counter.count_message(said), fitting.counter.count_message(message)
        if message is said:
            items.append(Item(place, "history", "kept", rule, before, after))
        else:
            handles = own_handles(fitting.archive, index, message)
            items.append(Item(place, "history", "shrunk", rule, before, after, handles, returns_at))
    return Piece(span, messages, tuple(items))


def leave_out(fitting: Fitting, span: Span, rule: str, before: int, returns_at: int = 0) -> Piece:
    """A marker in the place of a stretch."""
    handle = fitting.archive.keep_span(span.start, fitting.messages(span))
    message = Message("user", (Text(marker_for(fitting.policy, fitting.count(span), handle)),))
    place, after = fitting.places.span(span), fitting.counter.count_message(message)
    item = Item(
        f"messages[{place.start}:{place.stop}]",
        "history",
        "dropped",
        rule,
        before,
        after,
        (handle,),
        returns_at,
    )
    return Piece(span, (message,), (item,))


def cover(
    fitting: Fitting, left_out: Piece, text: str, rule: str = "", role: Role = "user"
) -> Piece:
    """The piece of a stretch that was left out, with words in the place of its marker."""
    message = Message(role, (Text(text),))
    item = left_out.items[0]
    covered: Action = "covered"
    after = fitting.counter.count_message(message)
    return Piece(
        left_out.span,
        (message,),
        (replace(item, action=covered, rule=rule or item.rule, after=after),),
    )


def cover_with_quotes(fitting: Fitting, left_out: Piece, quotes: tuple[Quote, ...]) -> Piece:
    """The piece of a stretch that was left out, with quotes after its marker."""
    text = left_out.messages[0].text + introduce_quotes(quotes)
    return replace(cover(fitting, left_out, text), quotes=quotes)


def recount(fitting: Fitting, piece: Piece) -> Piece:
    """A piece of the last epoch as it is counted now."""
    costs = [fitting.counter.count_message(message) for message in piece.messages]
    if len(costs) < len(piece.items):
        return piece
    return replace(
        piece,
        items=tuple(
            replace(item, after=cost) for item, cost in zip(piece.items, costs, strict=True)
        ),
    )


def revive(fitting: Fitting, pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of the last epoch with their messages: what is whole has them only in the history."""
    return [
        piece if piece.messages else replace(piece, messages=fitting.messages(piece.span))
        for piece in pieces
    ]


def up_to_last_cover(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces up to the last cover among them."""
    last = max((n for n, piece in enumerate(pieces) if piece.action == "covered"), default=-1)
    return tuple(pieces[: last + 1])


def marker_for(policy: Policy, count: int, handle: str) -> str:
    """What stands where so many messages were left out."""
    return policy.marker.format(
        count=f"{count:,} message{'s' if count != 1 else ''}", handle=handle
    )


def longest_marker(fitting: Fitting) -> Message:
    """A marker as long as any of this history can be."""
    count = max(len(fitting.history), fitting.places.end) + 1000
    return Message("user", (Text(marker_for(fitting.policy, count, SAMPLE)),))


def own_handles(archive: Archive, index: int, made: Message) -> tuple[str, ...]:
    """The handles of what was cut from the message at this index; what its own words look like does
    not count.
    """
    return tuple(sorted(handles_in(made).intersection(archive.parts_of(index))))


def handles_in(message: Message) -> set[str]:
    """The handles that a message names, in markers and in words that look like one."""
    found: set[str] = set()
    for part in message.parts:
        match part:
            case Text():
                found.update(_HANDLE.findall(part.text))
            case ToolCall():
                found.update(_HANDLE.findall(part.arguments))
            case ToolResult():
                for inner in part.parts:
                    if isinstance(inner, Text):
                        found.update(_HANDLE.findall(inner.text))
    return found


def shrink(fitting: Fitting, piece: Piece, messages: Sequence[Message], rule: str) -> Piece:
    """The piece with other messages in the place of its own, each where it is smaller."""
    made, items = list(piece.messages), list(piece.items)
    for n, message in enumerate(messages):
        after = fitting.counter.count_message(message)
        if message == made[n] or after >= items[n].after:
            continue
        handles = {*items[n].handles, *own_handles(fitting.archive, piece.span.start + n, message)}
        shrunk: Action = "shrunk"
        items[n] = replace(
            items[n], action=shrunk, rule=rule, after=after, handles=tuple(sorted(handles))
        )
        made[n] = message
    return replace(piece, messages=tuple(made), items=tuple(items))
