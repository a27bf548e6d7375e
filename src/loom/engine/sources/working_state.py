"""The working state of a session: what its agent decides by, besides what was said."""

from collections.abc import Iterable

from loom.context import (
    EMPTY,
    Policy,
    Section,
    Working,
    add_errors,
    has_failed,
    render_dashboard,
    subtract_errors,
)
from loom.conversation.message import Message
from loom.engine.sources.asking import NOTHING, Asking, SourceSections, gather_whole


def is_in_requests(working: Working, policy: Policy) -> bool:
    """Whether requests show the working state, and measure it."""
    return working != EMPTY or policy.strategy == "ladder"


def gather(asking: Asking) -> SourceSections:
    if not is_in_requests(asking.working, asking.options.policy):
        return NOTHING
    return gather_whole(Section("working", render_dashboard(asking.working)))


def count_errors(working: Working, messages: Iterable[Message]) -> Working:
    """The working state with results counted that tell of an error.

    Each that does not takes one of them back, and a new request begins at 0.
    """
    for message in messages:
        if message.role == "user":
            working = add_errors(working, 0)
        for result in message.results:
            working = add_errors(working) if has_failed(result) else subtract_errors(working)
    return working
