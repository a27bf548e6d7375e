"""The working state of a session: what its agent decides by, besides what was said."""

from loom.context import Policy, Section, Working, find_strategy
from loom.engine.sources.asking import NOTHING, Asking, SourceSections, gather_whole


def is_in_requests(working: Working, policy: Policy) -> bool:
    """Whether requests show the working state, and measure it."""
    return not working.is_empty or find_strategy(policy.strategy).climbs


def gather(asking: Asking) -> SourceSections:
    if not is_in_requests(asking.working, asking.options.policy):
        return NOTHING
    return gather_whole(Section("working", asking.working.render_dashboard()))
