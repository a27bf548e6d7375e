"""How a session reads its tree: as a dialogue or as a document, for an agent or for none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Places
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, Text
from loom.conversation.system_messages import order_behind_results
from loom.conversation.tree import Reference
from loom.engine.reading.layout import join_neighbours, lay
from loom.engine.reading.ranges import Reading, message_of
from loom.engine.reading.wording import BETWEEN, add_header, as_text, merge
from loom.stores import Aside, Insertion, Node, Overlay, Path, SessionRow, StoredTree

Headers = Callable[[Sequence[Node], int], Mapping[int, str]]  # of nodes, as they were at a time


class ReadingStyle(Struct, frozen=True, kw_only=True):
    """How a session reads its tree: for which agent, with which versions, and what the next node is
    made from.

    `buffer` is the text at its end that is not committed. An agent that knows the loom gets
    `headers` and an `addendum`. `now` is when an epoch begins that begins with this request.
    """

    tree: StoredTree
    now: int
    agent: Agent | None = None
    chosen: Mapping[str, str] = {}
    sources: tuple[Reference, ...] = ()
    include: frozenset[str] = frozenset()
    buffer: str = ""
    headers: Headers | None = None
    addendum: str = ""

    @property
    def document(self) -> bool:
        return self.tree.head.mode == "buffer"

    def overlay(self, path: Path) -> Overlay:
        """What is hidden from a path, and what comes in."""
        return Overlay.read(
            path, self.tree.row, self.tree.head.mode, self.chosen, self.sources, self.include
        )


class AssembledMessages(Struct, frozen=True):
    """The messages of a request with their places."""

    messages: tuple[Message, ...]
    places: Places


def assemble(
    style: ReadingStyle, reading: Reading, overlay: Overlay, as_of: int, merging: bool
) -> AssembledMessages:
    """What was read as it is sent."""
    if style.document:
        messages, places = lay(reading, overlay, lambda node: as_text(message_of(node)))
        return AssembledMessages(messages, places)
    above: Mapping[int, str] = {}
    if style.headers:
        above = style.headers(list(_shown_nodes(reading, overlay)), as_of)

    def write(node: Node) -> Message:
        message = message_of(node)
        if node.seq in above and message.role in ("user", "assistant"):
            return add_header(message, above[node.seq])
        return message

    messages, places = _move_behind_results(*lay(reading, overlay, write))
    if merging:
        return AssembledMessages(*join_neighbours(messages, places, merge))
    return AssembledMessages(messages, places)


def _move_behind_results(
    messages: tuple[Message, ...], places: Places
) -> tuple[tuple[Message, ...], Places]:
    """The messages in the order that wires demand. Places count on in that order, so that an epoch
    knows them again.
    """
    order = order_behind_results(messages)
    spots = tuple(
        replace(places.spots[n], start=spot.start, stop=spot.stop)
        for n, spot in zip(order, places.spots, strict=True)
    )
    return tuple(messages[n] for n in order), replace(places, spots=spots)


def _shown_nodes(reading: Reading, overlay: Overlay) -> Iterable[Node]:
    yield from (node for node in reading.nodes if node.depth not in overlay.hidden)
    yield from (insertion.node for insertion in overlay.insertions() if not insertion.tree)


def shape_of(overlay: Overlay) -> str:
    """A digest of what is hidden from a path and what comes in; "" if nothing is."""
    versions = sorted((depth, version.name) for depth, version in overlay.versions.items())
    shape = [sorted(overlay.hidden), versions, _names(overlay.before), _names(overlay.after)]
    if any(shape):
        return blake2b(to_json(shape).encode(), digest_size=8).hexdigest()
    return ""


def _names(insertions: Mapping[int, Sequence[Insertion]]) -> list[tuple[int, list[str]]]:
    return sorted(
        (depth, [insertion.name for insertion in several]) for depth, several in insertions.items()
    )


def head_of(
    row: SessionRow, style: ReadingStyle, overlay: Overlay, asides: Iterable[Aside]
) -> Conversation:
    """The conversation but for its messages. System text is the agent's, the session's, the tree's,
    then instructions.

    Of the `asides` those are in it that were said before the first message; in a text, which has
    no roles, all of them.
    """
    head, tree, agent = row.head, style.tree.head, style.agent
    if agent:
        agent_model, agent_prompt = agent.model, agent.system_prompt
    else:
        agent_model, agent_prompt = "", ""
    head = replace(head, model=head.model or agent_model or tree.model)
    if style.document and not tree.buffer_mode_system_context:
        return replace(head, system=())
    instructions = (message_of(node).text for node in overlay.instructions)
    before = list(filter(None, [agent_prompt]))
    after = list(filter(None, [tree.system_context, *instructions, style.addendum]))
    if before or after:
        system = _join_system(before, head.system, after)
    else:
        system = head.system
    leading = [aside.message for aside in asides if style.document or not aside.after]
    return replace(head, system=(*system, *leading))


def _join_system(
    before: list[str], system: tuple[Message, ...], after: list[str]
) -> tuple[Message, ...]:
    """One system message of all texts, where the session's own are texts; providers refuse
    several.
    """
    if all(
        isinstance(part, Text) and part.carried is None
        for message in system
        for part in message.parts
    ):
        return _system_text([*before, *(message.text for message in system), *after])
    return (*_system_text(before), *system, *_system_text(after))


def _system_text(texts: list[str]) -> tuple[Message, ...]:
    if texts:
        return (Message("system", (Text(BETWEEN.join(texts)),)),)
    return ()
