"""A bounded digest of what a branch holds: its first and last lines, a handle for what is between,
a handle for all of it.
"""

from collections.abc import Sequence

from loom.budget.counting import gate_counter
from loom.conversation.handles import SAMPLE
from loom.conversation.names import flatten
from loom.engine.reading import message_of
from loom.errors import ChoiceError, shorten
from loom.stores import HandleTarget, Node, Overlay

MAX_DIGEST_TOKENS, MIN_DIGEST_TOKENS = (
    400,
    120,
)  # that a digest takes at most, and that it may be asked to
_LINE = 200  # characters of a message in it
_READ = 32  # messages at each end that are looked at

Handles = list[tuple[str, HandleTarget]]


def digest(
    overlay: Overlay, start: int, place: str, tokens: int = MAX_DIGEST_TOKENS
) -> tuple[str, Handles]:
    """What a path holds from a depth on, and what its handles stand for; `place` is where it will
    stand.
    """
    path, hidden = overlay.path, overlay.hidden
    if len(path) <= start:
        raise ChoiceError(
            "there is nothing to summarize: the other branch has no messages of its own"
        )
    shown = _looked_at(overlay, start)
    if not shown:
        raise ChoiceError(
            "there is nothing to summarize: all messages of the other branch are excluded"
        )
    count = gate_counter(None).count_text
    lines = [(depth, _line(_node_at(overlay, depth))) for depth in shown]
    total = len(path) - start - sum(depth >= start for depth in hidden)
    whole, all_of_it = HandleTarget.of_nodes(
        f"branch {place}", _stretches(overlay, start, len(path))
    )
    handles: Handles = [(whole, all_of_it)]
    noun = "message" if total == 1 else "messages"
    head = (
        f"[{total:,} {noun} of the branch to {path[len(path) - 1].short_id}; handle {whole} "
        "brings them back]"
    )
    room = tokens - count(head)
    sizes = [count(line) + 1 for _, line in lines]
    if len(lines) == total and sum(sizes) <= room:
        return "\n".join((head, *_texts(lines))), handles
    room -= count(_marker(9_999_999, SAMPLE))
    first, last = _fit_ends(sizes, room)
    opening, ending = lines[:first], lines[len(lines) - last :]
    begin = opening[-1][0] + 1 if opening else start
    end = ending[0][0] if ending else len(path)
    middle, between = HandleTarget.of_nodes(f"between {place}", _stretches(overlay, begin, end))
    handles.append((middle, between))
    marker = _marker(total - first - last, middle)
    return "\n".join((head, *_texts(opening), marker, *_texts(ending))), handles


def _texts(lines: Sequence[tuple[int, str]]) -> list[str]:
    return [line for _, line in lines]


def _node_at(overlay: Overlay, depth: int) -> Node:
    """What is read at a place: the node, or the version that replaces it."""
    version = overlay.versions.get(depth)
    if version:
        return version.node
    return overlay.path[depth]


def digest_nodes(overlay: Overlay, start: int) -> list[str]:
    """The nodes whose words may be in a digest."""
    return [_node_at(overlay, depth).id for depth in _looked_at(overlay, start)]


def _looked_at(overlay: Overlay, start: int) -> list[int]:
    length = len(overlay.path)
    ends = (
        range(start, min(start + _READ, length)),
        range(max(start + _READ, length - _READ), length),
    )
    return [depth for stretch in ends for depth in stretch if depth not in overlay.hidden]


def _fit_ends(sizes: Sequence[int], room: int) -> tuple[int, int]:
    """How many lines are taken from the beginning and from the end, in turns; what a branch came to
    is told first.
    """
    first = last = 0
    while first + last < len(sizes) - 1:
        from_end = last <= first
        if from_end:
            size = sizes[len(sizes) - 1 - last]
        else:
            size = sizes[first]
        if size > room:
            break
        room -= size
        if from_end:
            last = last + 1
        else:
            first = first + 1
    return first, last


def _line(node: Node) -> str:
    message = message_of(node)
    text = (
        " ".join(message.text.split())
        or ", ".join(f"→ {flatten(call.name)}" for call in message.calls)
        or "(no words)"
    )
    return f"- [{node.short_id}] {flatten(message.author) or message.role}: {shorten(text, _LINE)}"


def _marker(count: int, handle: str) -> str:
    return f"[{count:,} more between; handle {handle}]"


def _stretches(overlay: Overlay, start: int, stop: int) -> tuple[tuple[str, str], ...]:
    """A part of a path as it is read, as stretches: without what is hidden in it, and with the
    versions that stand.
    """
    edges = sorted(depth for depth in {*overlay.hidden, *overlay.versions} if start <= depth < stop)
    bounds = list(zip([start, *(depth + 1 for depth in edges)], [*edges, stop], strict=True))
    known = overlay.path.names_at({place for a, b in bounds if a < b for place in (a, b - 1)})
    nodes: list[tuple[str, str]] = []
    for a, b in bounds:
        nodes += [(known[a][1], known[b - 1][1])] if a < b else []
        if b in overlay.versions and b < stop:
            nodes.append((overlay.versions[b].node.id, overlay.versions[b].node.id))
    return tuple(nodes)
