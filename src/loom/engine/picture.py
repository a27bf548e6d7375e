"""A tree as text, for an agent: what `loom tree show` draws for people, without colours."""

from loom.conversation.message import Message
from loom.conversation.names import flatten
from loom.conversation.outline import Line, outline
from loom.engine.trees import LoomTree
from loom.errors import shorten
from loom.stores.path import Node
from loom.stores.reading import said

_WORDS = 60  # letters of what a node says


def picture(tree: LoomTree, root: Node | None, at: Node | None, depth: int, lines: int = 60) -> str:
    """What hangs on a node, or the whole tree, so deep; `*` is where the reader stands."""
    drawn = outline(tree.twigs(), at=at.seq if at else None, lines=lines, depth=depth, root=root.seq if root else None)
    read = tree.read([line.twig.key for line in drawn if line.twig])
    return "\n".join(_drawn(line, read) for line in drawn) or "(nothing is said in this tree yet)"


def _drawn(line: Line, read: dict[int, Node]) -> str:
    if line.twig is None:
        first, last = line.names
        where = f", {first} to {last}" if last else f", from {first}" if first else ""
        return f"{line.lead}{line.folded:,} more{where}"
    twig = line.twig
    flags = [name for name in ("bookmarked", "excluded", "pinned") if getattr(twig.flags, name)] + ["pruned"] * twig.pruned
    told, here = f" ({', '.join(flags)})" if flags else "", "*" if line.here else ""
    return f"{line.lead}[{twig.local}]{here} {twig.role}{told}: {words(said(read[twig.key]), _WORDS)}"


def words(message: Message, most: int) -> str:
    """What a message says, on one line."""
    text = " ".join(message.text.split())
    return shorten(text or ", ".join(f"→ {flatten(call.name)}" for call in message.calls) or "(no words)", most)
