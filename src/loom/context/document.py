"""A document of nodes cut between nodes, as seed 003 cuts a buffer: the same strategies as for messages, on texts."""

from collections.abc import Sequence

from msgspec import Struct

from loom.budget.counting import Counter
from loom.context.handles import SAMPLE, Archive
from loom.context.policy import Policy
from loom.context.strategies import choose
from loom.errors import CannotFit


class Document(Struct, frozen=True):
    """One text, whether anything was cut from it, how many nodes went, and the way back."""

    text: str
    truncated: bool
    dropped: int
    handles: tuple[str, ...] = ()


def fit_nodes(nodes: Sequence[str], available: int, policy: Policy, counter: Counter, archive: Archive) -> Document:
    """The nodes that fit, joined as they are, with a marker where some went. At least one node is always there."""
    sizes = list(map(counter.count_text, nodes))
    if sum(sizes) <= available:
        return Document("".join(nodes), False, 0)
    spare = counter.count_text(_marker(policy, 999_999, SAMPLE))
    chosen = choose(policy.strategy, sizes, available - spare, policy.minimum_recent_nodes, 0)
    kept = set(chosen.order[: chosen.kept])
    kept = kept or ({len(nodes) - 1} if nodes else set())
    pieces, handles, gap = list[str](), list[str](), list[int]()
    for n in range(len(nodes) + 1):
        if n < len(nodes) and n not in kept:
            gap.append(n)
            continue
        if gap:
            handle = archive.keep_text(f"nodes {gap[0]}", "".join(nodes[k] for k in gap))
            pieces.append(_marker(policy, len(gap), handle))
            handles.append(handle)
            gap = []
        if n < len(nodes):
            pieces.append(nodes[n])
    text = "".join(pieces)
    if counter.count_text(text) > available and policy.strategy != "truncate_middle":
        raise CannotFit(
            f"the newest node alone takes {sizes[-1]:,} of {available:,} tokens; choose a larger window or edit the node"
        )
    return Document(text, True, len(nodes) - len(kept), tuple(handles))


def _marker(policy: Policy, count: int, handle: str) -> str:
    return "\n" + policy.marker.format(count=f"{count:,} node{'s' if count != 1 else ''}", handle=handle) + "\n"
