"""Messages that stay in every request of a path."""

from loom.conversation.checked import check_flag
from loom.engine.sessions.place import SessionPlace
from loom.errors import ChoiceError
from loom.stores import FlagMark, Marks, Node

MAX_PINNED_MESSAGES = 8  # by one handle


def pin_messages(place: SessionPlace, name: str, on: bool) -> int:
    """Pin what a name or a handle stands for, or stop that. Returns how many messages changed."""
    check_flag("on", on)
    place.read_row().check_alive()
    nodes = _find_nodes(place, name)
    marks = place.store.trees.marks(place.row.tree.key, [node.seq for node in nodes])
    changed = [node for node in nodes if marks.get(node.seq, Marks()).flags.pinned != on]
    flag = FlagMark("pinned", on, "")
    if changed:
        place.store.growth.mark(place.row, [(node.seq, flag) for node in changed], place.now())
    for node in changed:
        place.emit("marked", marked=node.id)
    return len(changed)


def _find_nodes(place: SessionPlace, name: str) -> list[Node]:
    """The nodes of the path that a name or a handle stands for."""
    path = place.path
    if not name.startswith("~"):
        return [place.node_to_pin(path, name)]
    stretches = [
        (place.node_to_pin(path, first).depth, place.node_to_pin(path, last).depth + 1)
        for first, last in place.store.views.target(place.row, path, name).nodes
    ]
    count = sum(stop - start for start, stop in stretches)
    if not 0 < count <= MAX_PINNED_MESSAGES:
        raise ChoiceError(
            f"{name} stands for {count:,} messages, and at most {MAX_PINNED_MESSAGES} can be "
            "pinned at once; search finds handles of single messages"
        )
    return [node for start, stop in stretches for node in path[start:stop]]
