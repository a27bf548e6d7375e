"""Exchanges and turns: where a history may be cut.

A turn begins at each user message. An exchange is a model message with its tool calls and all their
results, the smallest thing that may be dropped whole; every other message stands alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom.conversation.checked import checks_arguments
from loom.conversation.message import Message, ToolCall, ToolResult


class Span(Struct, frozen=True):
    """Messages `start` up to, not including, `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@checks_arguments
def exchanges(history: Sequence[Message]) -> list[Span]:
    """The history as spans that must stay whole, in order and without gaps.

    A result that stands apart from its call stretches the span to hold both, so a cut between spans
    never tears a pair.
    """
    made: dict[str, int] = {}  # the newest call of each id: providers use ids again
    reach = list(range(1, len(history) + 1))
    for index, message in enumerate(history):
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in made:
                    reach[made[part.call_id]] = index + 1
        elif message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolCall):
                    made[part.id] = index
    spans: list[Span] = []
    start = stop = 0
    for index, end in enumerate(reach):
        stop = max(stop, end)
        if stop == index + 1:
            spans.append(Span(start, stop))
            start = stop
    return spans


@checks_arguments
def turns(history: Sequence[Message]) -> list[Span]:
    """The turns in order; what comes before the first user message is a turn of its own."""
    if not history:
        return []
    starts = parse_turn_boundaries(history)
    if not starts or starts[0] > 0:
        starts.insert(0, 0)
    return [
        Span(start, stop) for start, stop in zip(starts, [*starts[1:], len(history)], strict=True)
    ]


@checks_arguments
def parse_turn_boundaries(history: Sequence[Message | Mapping[str, Any]]) -> list[int]:
    """The index at which each turn starts: the user messages. Takes messages or chat
    dictionaries.
    """
    return [index for index, message in enumerate(history) if _starts_turn(message)]


@checks_arguments
def find_safe_boundary(history: Sequence[Message | Mapping[str, Any]], target: int) -> int:
    """The cut nearest to `target` that tears no turn: the last turn start at or before it, else the
    first after it, else 0.
    """
    if target <= 0:
        return 0
    if target >= len(history):
        return len(history)
    starts = parse_turn_boundaries(history)
    if not starts:
        return target
    before = [start for start in starts if 0 < start <= target]
    if before:
        return before[-1]
    return next((start for start in starts if start > target), 0)


def newer_half(history: Sequence[Message]) -> int:
    """Where the half begins that seed 002 keeps of a history that was too long; its length where
    only the last request stays.

    Turns stay whole: of several the newer half stays, of one what a safe boundary leaves. Two
    messages are left alone.
    """
    if len(history) <= 2:
        return 0
    starts = parse_turn_boundaries(history)
    if len(starts) > 1:
        return starts[len(starts) // 2]
    return find_safe_boundary(history, len(history) // 2) or len(history)


def in_flight(history: Sequence[Message]) -> bool:
    """Whether the newest thing said is a call that has not been answered yet; once somebody
    continues without it, it is dead.
    """
    answered: set[str] = set()
    for message in reversed(history):
        if message.role == "tool":
            answered.update(part.call_id for part in message.parts if isinstance(part, ToolResult))
            continue
        return any(isinstance(part, ToolCall) and part.id not in answered for part in message.parts)
    return False


def _starts_turn(message: Message | Mapping[str, Any]) -> bool:
    if isinstance(message, Message):
        return message.role == "user"
    content = message.get("content")
    answers = isinstance(content, list) and any(
        isinstance(b, Mapping) and b.get("type") == "tool_result" for b in content
    )
    return message.get("role") == "user" and not answers
