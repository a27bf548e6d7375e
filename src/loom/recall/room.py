"""The room that old messages have which come back into a request."""

from collections.abc import Callable

from msgspec import Struct

MIN_SHOWN_CHARS = 12  # shorter lines are everywhere


class RecallRoom(Struct, frozen=True):
    """How many tokens all that comes back may have, with so many for the frame of each; how they
    are counted; and whether a line is in the request already.
    """

    tokens: int
    frame: int
    count: Callable[[str], int]
    is_shown: Callable[[str], bool]

    def hides(self, line: str) -> bool:
        """Whether a line must not come back because it is in the request already."""
        line = line.strip()
        return len(line) >= MIN_SHOWN_CHARS and self.is_shown(line)
