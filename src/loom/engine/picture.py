"""A tree as text, for an agent: what `loom tree show` draws for people, without colours."""

from loom.conversation.message import Message
from loom.conversation.names import flatten
from loom.conversation.outline import OutlineLine, outline
from loom.engine.reading import message_of
from loom.engine.trees import LoomTree
from loom.errors import shorten
from loom.stores import Node

_WORDS = 60  # characters of what a node says
_LINES = 60


def picture(
    tree: LoomTree, root: Node | None, at: Node | None, depth: int, model: bool
) -> tuple[str, list[str]]:
    """What is attached to a node, or the whole tree, so deep, and the nodes whose words are in it;
    `*` is where the reader stands.

    A model sees no words that are hidden.
    """
    drawn = outline(
        tree.twigs(),
        at=at.seq if at else None,
        lines=_LINES,
        depth=depth,
        root=root.seq if root else None,
    )
    twigs = [line.twig for line in drawn if line.twig]
    read = tree.read(
        [twig.key for twig in twigs if not (model and (twig.flags.excluded or twig.pruned))]
    )
    text = (
        "\n".join(_draw_line(line, read) for line in drawn) or "(nothing is said in this tree yet)"
    )
    return text, [node.id for node in read.values()]


def _stretch(first: str, last: str) -> str:
    """Where a stretch of nodes begins and ends, as far as that is known."""
    if last:
        return f", {first} to {last}"
    if first:
        return f", from {first}"
    return ""


def _draw_line(line: OutlineLine, read: dict[int, Node]) -> str:
    if line.twig is None:
        return f"{line.lead}{line.folded:,} more{_stretch(*line.names)}"
    twig = line.twig
    flags = [name for name in ("bookmarked", "excluded", "pinned") if getattr(twig.flags, name)] + [
        "pruned"
    ] * twig.pruned
    told, here = f" ({', '.join(flags)})" if flags else "", "*" if line.here else ""
    head = f"{line.lead}[{twig.short_id}]{here} {twig.role}{told}"
    if twig.key in read:
        return f"{head}: {words(message_of(read[twig.key]), _WORDS)}"
    return head


def words(message: Message, most: int) -> str:
    """What a message says, on one line."""
    text = " ".join(message.text.split())
    return shorten(
        text or ", ".join(f"→ {flatten(call.name)}" for call in message.calls) or "(no words)", most
    )
