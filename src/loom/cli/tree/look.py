"""How a node of a tree looks on one line: who speaks, what was said of it, and its words."""

import click

from loom.cli.terminal import one_line, style
from loom.cli.transcript.show import look
from loom.conversation.message import Reasoning
from loom.conversation.tree import Flags
from loom.stores import Node

MIN_TEXT_COLUMNS = 16  # columns of text that are left to a line, however far it is indented
LABEL_COLUMNS = 24  # columns of a bookmark's label
_SPEAKERS = {"user": "human", "assistant": "model", "developer": "system"}


def speaker(role: str) -> str:
    """Who speaks in this role, where nobody is named."""
    return _SPEAKERS.get(role, role)


def marks_of(flags: Flags, pruned: bool, room: int = 2 * LABEL_COLUMNS) -> tuple[str, str]:
    """What was said of a node, in small marks: plain, and coloured.

    A label takes at most half of the room, if that is enough.
    """
    label = "★"
    if flags.label and room >= LABEL_COLUMNS:
        label = f"★ {one_line(flags.label, min(room // 2, LABEL_COLUMNS))} ·"
    shown = [
        (mark, colour)
        for is_on, mark, colour in (
            (flags.bookmarked, label, "yellow"),
            (flags.pinned, "⚲", "magenta"),
            (flags.excluded, "⊘", "red"),
            (flags.included, "⊕", "green"),
            (pruned, "✂", "red"),
        )
        if is_on
    ]
    return "".join(f"{mark} " for mark, _ in shown), "".join(
        f"{style(mark, fg=colour)} " for mark, colour in shown
    )


def words_of(node: Node) -> str:
    """What a node says, its parts with the marks of their kinds; what was thought only where
    nothing else was said.
    """
    if node.message is None:
        return "(purged)"
    parts = [
        part for part in node.message.parts if not isinstance(part, Reasoning)
    ] or node.message.parts
    return (
        " ".join(click.unstyle(mark) + text for mark, text in map(look, parts)).strip()
        or "(no words)"
    )
