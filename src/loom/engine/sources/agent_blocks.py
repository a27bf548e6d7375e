"""For an agent that knows the loom: its operational memory, and where in the tree it stands."""

from loom.engine.aware import blocks
from loom.engine.sources.asking import NOTHING, Asking, SourceSections, room_for


def gather(asking: Asking) -> SourceSections:
    style, agent = asking.style, asking.style.agent
    if agent is None or not agent.loom_aware or (style.document and agent.kind != "model"):
        return NOTHING
    memory, place = blocks(asking.store, asking.row, style.tree, agent, asking.path, style.now)
    return SourceSections(sections=(memory, place), rooms=room_for(memory))
