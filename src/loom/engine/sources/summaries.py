"""What summaries tell in the system text."""

from loom.context import Section
from loom.engine.sources.asking import NOTHING, Asking, SourceSections


def gather(asking: Asking) -> SourceSections:
    if not asking.summary:
        return NOTHING
    text = asking.options.policy.summary_text.format(text=asking.summary)
    return SourceSections(sections=(Section("summary", text, "summaries"),))
