"""System messages that older sessions keep besides what was said."""

from loom.context import Section
from loom.engine.sources.asking import NOTHING, Asking, SourceSections


def gather(asking: Asking) -> SourceSections:
    if not asking.asides:
        return NOTHING
    text = asking.options.policy.separator.join(aside.message.text for aside in asking.asides)
    return SourceSections(sections=(Section("system_messages", text, "system messages"),))
