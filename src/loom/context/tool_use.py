"""What is known of the use of tools: which were called, in order, and which the model loaded.

It is carried from epoch to epoch, so that what is no longer read still counts.
"""

from collections.abc import Sequence

from msgspec import Struct

from loom.context.history.places import Places
from loom.context.tool_finder import finder_name, read_loads
from loom.conversation.message import Message, Tool
from loom.conversation.turns import Span

MAX_TRAIL_CALLS = 128  # the calls of a session that are remembered, the newest
MAX_LOADED_TOOLS = 24  # tools that stay loaded, the newest


class EpochTools(Struct, frozen=True, kw_only=True):
    """What an epoch began with: the names of its tools, whole and short; and what is known of their
    use up to the place `until` of the path.

    `selects` is False if all tools are declared.
    """

    selects: bool = False
    whole: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    order: tuple[str, ...] = ()  # the names of all tools, those of most value first
    loaded: tuple[str, ...] = ()
    trail: tuple[str, ...] = ()  # the names of the tools that were called, the newest last
    until: int = 0
    fresh: tuple[str, ...] = ()  # of those that are loaded, those that were since the last request


def follow_use(
    before: EpochTools, tools: Sequence[Tool], messages: Sequence[Message], places: Places
) -> EpochTools:
    """What is known of the use of tools, with the messages that came since."""
    messages = messages[: _find_settled(messages)]
    known, start = before, _find_first_after(messages, places, before.until)
    if start is None:  # the path is another one: what was known may not be of it
        known, start = EpochTools(), 0
    calls = [call for message in messages[start:] for call in message.calls]
    finder = finder_name(tools)
    trail = [*known.trail, *(call.name for call in calls if call.name != finder)]
    new = find_loaded(tools, messages[start:])
    loaded = dict.fromkeys((*(name for name in known.loaded if name not in new), *new))
    return EpochTools(
        loaded=tuple(loaded)[-MAX_LOADED_TOOLS:],
        trail=tuple(trail[-MAX_TRAIL_CALLS:]),
        until=_find_end(messages, places),
        fresh=tuple(dict.fromkeys(new)),
    )


def find_loaded(tools: Sequence[Tool], messages: Sequence[Message]) -> list[str]:
    """The tools that calls of `find_tools` loaded in these messages, in order."""
    finder, known = finder_name(tools), {tool.name for tool in tools}
    answered = {
        result.call_id for message in messages for result in message.results if not result.error
    }
    return [
        name
        for message in messages
        for call in message.calls
        if call.name == finder and call.id in answered
        for name in read_loads(call)
        if name in known
    ]


def _find_settled(messages: Sequence[Message]) -> int:
    """How many messages come before calls that wait for their results; all if none waits."""
    last = len(messages)
    while last and messages[last - 1].role == "tool":
        last -= 1
    if not last or not messages[last - 1].calls:
        return len(messages)
    answered = {result.call_id for message in messages[last:] for result in message.results}
    if all(call.id in answered for call in messages[last - 1].calls):
        return len(messages)
    return last - 1


def _find_first_after(messages: Sequence[Message], places: Places, until: int) -> int | None:
    """The index of the first message at this place or after it; None if the path ends before."""
    if not until:
        return 0
    if not messages or _find_end(messages, places) < until:
        return None
    first = len(messages)
    while first and places.span(Span(first - 1, first)).start >= until:
        first -= 1
    return first


def _find_end(messages: Sequence[Message], places: Places) -> int:
    if not messages:
        return 0
    return places.span(Span(len(messages) - 1, len(messages))).stop
