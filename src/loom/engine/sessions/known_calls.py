"""Which calls of tools the newest messages of a session make, and which of them are answered.

A message may make a thousand calls, and each asks. So what was read once is remembered, and of a
path that grew only what is new is read.
"""

from collections.abc import Iterator
from threading import Lock

from loom.engine.pressure import LAST_MESSAGES
from loom.stores import Node, Path

READ_AT_ONCE = 100  # messages
MAX_KNOWN_CALLS = 5000  # of more, those of the newest messages are read again


class KnownCalls:
    """By the ids of calls: the ids of the newest nodes that make them, and of those that answer
    them. No words are kept. Threads may share it.
    """

    def __init__(self) -> None:
        self._callers: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._end: tuple[int, int] | None = None  # what was read: where it ends
        self._reading = Lock()
        self.started_by = ""  # the node whose calls were noted last as started

    def find(self, path: Path, call: str) -> tuple[str, str]:
        """The id of the newest node of a path that makes a call, and of the one that answers it; ""
        if there is none.
        """
        with self._reading:
            if self._end is not None and self._goes_on(path, *self._end):
                nodes = list(path[self._end[1] + 1 :])
            else:
                self._callers, self._results = {}, {}
                nodes = list(walk_back(path))[::-1]
            for node in nodes:
                self._note(node)
            self._end = (path.end.seq, path.end.depth) if path.end else None
            return self._callers.get(call, ""), self._results.get(call, "")

    def _goes_on(self, path: Path, seq: int, depth: int) -> bool:
        """Whether a path only has more than what was read."""
        return len(self._callers) <= MAX_KNOWN_CALLS and path.holds(seq, depth)

    def _note(self, node: Node) -> None:
        if node.message is None:
            return
        for made in node.message.calls:
            self._callers[made.id] = node.id
            self._results.pop(made.id, None)
        for answer in node.message.results:
            self._results[answer.call_id] = node.id


def walk_back(path: Path) -> Iterator[Node]:
    """The newest messages, the last one first: a limited number, and all results between them."""
    others, end = 0, len(path)
    while end > 0 and others < LAST_MESSAGES:
        start = max(end - READ_AT_ONCE, 0)
        for node in reversed(path[start:end]):
            yield node
            others += node.message is None or node.message.role != "tool"
        end = start
