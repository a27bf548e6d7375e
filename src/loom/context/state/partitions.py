"""Partitions: zones grouped by how they are protected. What is less protected gives way first."""

from typing import Literal

Protection = Literal["never", "own size", "last", "on demand", "first"]

# The most protected first: its zones, and when what is in them may be shrunk.
PARTITIONS: dict[str, tuple[tuple[str, ...], Protection]] = {
    "system": (("system_prompt", "rules", "handoff"), "never"),
    "working": (("working",), "own size"),
    "memory": (
        ("memory", "decision_context", "repo_map", "knowledge", "recalled", "messages", "events"),
        "last",
    ),
    "skill": (("skills", "tool_definitions"), "on demand"),
    "history": (("summary", "history"), "first"),
}
_OF = {zone: name for name, (zones, _) in PARTITIONS.items() for zone in zones}


def partition_of(zone: str) -> str:
    """The partition that a zone belongs to; what nobody knows is protected like memory."""
    return _OF.get(zone, "memory")
