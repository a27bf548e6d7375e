"""The handoff with which the window last began again."""

from loom.context import Section
from loom.engine.sources.asking import NOTHING, Asking, SourceSections, gather_whole


def gather(asking: Asking) -> SourceSections:
    if asking.handoff is None:
        return NOTHING
    return gather_whole(Section("handoff", asking.handoff.to_system_prompt()))
