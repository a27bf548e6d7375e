"""A tree is read here: which part of a path a window needs, with what records say of it, as
messages in their places.

- ranges.py: which stretches of a path are read, and what stands in for the others
- layout.py: messages in their places, with what comes in and without what is hidden
- wording.py: the words of a message, with a header, joined with its neighbour, or without roles
- rules.py: which nodes the rules of a policy keep
- style.py: how a session reads its tree, and the step from what was read to what is sent
"""

from loom.engine.reading.layout import join_neighbours
from loom.engine.reading.ranges import (
    FIRST_WINDOWS,
    MAX_FIRST_TOKENS,
    USER_SHARE,
    Known,
    Reading,
    ReadingPlan,
    holes_of,
    message_of,
    newest_reminders,
    read_less,
    read_on,
    read_ranges,
    read_same,
    read_window,
)
from loom.engine.reading.rules import kept_nodes
from loom.engine.reading.style import AssembledMessages, ReadingStyle, assemble, head_of, shape_of
from loom.engine.reading.wording import as_text, merge

__all__ = [
    "FIRST_WINDOWS",
    "MAX_FIRST_TOKENS",
    "USER_SHARE",
    "AssembledMessages",
    "Known",
    "Reading",
    "ReadingPlan",
    "ReadingStyle",
    "as_text",
    "assemble",
    "head_of",
    "holes_of",
    "join_neighbours",
    "kept_nodes",
    "merge",
    "message_of",
    "newest_reminders",
    "read_less",
    "read_on",
    "read_ranges",
    "read_same",
    "read_window",
    "shape_of",
]
