"""What knowledge bases found for the current request. It is in the tail: the next request asks for
something else.
"""

from loom.budget.counting import gate_counter
from loom.context import Section, budget_for
from loom.engine.sources.asking import NOTHING, Asking, SourceSections
from loom.providers.knowledge import to_sections

MAX_SHARE = 8  # of what is usable: the part that an epoch leaves free for knowledge to come


def gather(asking: Asking) -> SourceSections:
    """A section for each item. If an epoch begins, room is left for what later requests find."""
    if asking.knowledge is None:
        return NOTHING
    sections = tuple(to_sections(asking.knowledge.items))
    if not asking.begins:
        return SourceSections(sections=sections)
    budget = budget_for(asking.options, asking.head)
    count = gate_counter(asking.options.model or asking.head.model or None).count_text
    used = sum(count(section.text) + Section.FRAME_TOKENS for section in sections)
    zone = min(budget.get("knowledge") or 0, budget.usable // MAX_SHARE)
    return SourceSections(sections=sections, ahead=max(zone - used, 0))
