"""Which nodes of a path the rules of a policy keep."""

from collections.abc import Collection, Sequence

from loom.context import Rule, find_kept
from loom.engine.reading.ranges import message_of
from loom.stores import Node, Path


def kept_nodes(path: Path, hidden: Collection[int], rules: Sequence[Rule]) -> list[Node]:
    """The nodes that must be read because a rule keeps them. To find them, all of the path is
    read.
    """
    if all(rule.keep is None for rule in rules):
        return []
    nodes = [node for node in path[: len(path)] if node.depth not in hidden]
    return [nodes[index] for index in find_kept(rules, [message_of(node) for node in nodes])]
