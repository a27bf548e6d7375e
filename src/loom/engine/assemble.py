"""From a path of a tree to the messages of a request: as a dialogue or as a document, for an agent or for none."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from loom.context.assembly import BETWEEN, as_text, headed, merge
from loom.context.places import Places
from loom.context.policy import Policy, policy
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.message import Conversation, Message, Text
from loom.conversation.system_messages import order_behind_results
from loom.conversation.tree import Preferences, Source
from loom.stores.bearing import Bearing, bearing, joined, lay
from loom.stores.path import Node, Path
from loom.stores.reading import Reading, said
from loom.stores.sessions import Aside, SessionRow
from loom.stores.trees import StoredTree

Headers = Callable[[Sequence[Node], int], Mapping[int, str]]  # of nodes, as they were at a time


class Manner(Struct, frozen=True, kw_only=True):
    """How a session reads its tree: for which agent, which versions stand, what the next node is made from, what is at its end.

    `headers` are given to an agent that knows the loom; `now` is when an epoch that begins is said to begin.
    """

    tree: StoredTree
    now: int
    agent: Agent | None = None
    chosen: Mapping[str, str] = {}
    sources: tuple[Source, ...] = ()
    include: frozenset[str] = frozenset()
    buffer: str = ""
    headers: Headers | None = None
    addendum: str = ""

    @property
    def document(self) -> bool:
        return self.tree.head.mode == "buffer"

    def bears(self, path: Path) -> Bearing:
        return bearing(path, self.tree.row, self.tree.head.mode, self.chosen, self.sources, self.include)


class Assembled(Struct, frozen=True):
    """The messages of a request with their places."""

    messages: tuple[Message, ...]
    places: Places


def assemble(manner: Manner, reading: Reading, bears: Bearing, as_of: int, merging: bool) -> Assembled:
    """What was read as it is sent."""
    if manner.document:
        messages, places = lay(reading, bears, lambda node: as_text(said(node)))
        return Assembled(messages, places)
    above: Mapping[int, str] = {}
    if manner.headers:
        above = manner.headers(list(_shown(reading, bears)), as_of)

    def write(node: Node) -> Message:
        message = said(node)
        return headed(message, above[node.seq]) if node.seq in above and message.role in ("user", "assistant") else message

    messages, places = _move_behind_results(*lay(reading, bears, write))
    return Assembled(*joined(messages, places, merge)) if merging else Assembled(messages, places)


def _move_behind_results(messages: tuple[Message, ...], places: Places) -> tuple[tuple[Message, ...], Places]:
    """The messages in the order that wires demand. Places count on in that order, so that an epoch knows them again."""
    order = order_behind_results(messages)
    spots = tuple(replace(places.spots[n], start=spot.start, stop=spot.stop) for n, spot in zip(order, places.spots, strict=True))
    return tuple(messages[n] for n in order), replace(places, spots=spots)


def _shown(reading: Reading, bears: Bearing) -> Iterable[Node]:
    yield from (node for node in reading.nodes if node.depth not in bears.hidden)
    for extras in (*bears.before.values(), *bears.behind.values()):
        yield from (extra.node for extra in extras if not extra.tree)


def shape_of(bears: Bearing) -> str:
    """A mark that changes where something else is hidden from a path, or comes in beside it."""
    told = [
        sorted(bears.hidden),
        sorted((depth, extra.name) for depth, extra in bears.versions.items()),
        *(sorted((depth, [extra.name for extra in extras]) for depth, extras in of.items()) for of in (bears.before, bears.behind)),
    ]
    return blake2b(to_json(told).encode(), digest_size=8).hexdigest() if any(told) else ""


def head_of(row: SessionRow, manner: Manner, bears: Bearing, asides: Iterable[Aside]) -> Conversation:
    """The conversation but for its messages. System text is the agent's, the session's, the tree's, then instructions.

    Of the `asides` those stand in it that were said before the first message; in a text, which has no roles, all of them.
    """
    head, tree, agent = row.head, manner.tree.head, manner.agent
    told = [aside.message for aside in asides if manner.document or not aside.after]
    if manner.document and not tree.buffer_mode_system_context:
        return replace(head, system=(), model=head.model or (agent.model if agent else "") or tree.model)
    before = [agent.system_prompt] if agent and agent.system_prompt else []
    behind = [text for text in (tree.system_context, *(said(node).text for node in bears.instructions), manner.addendum) if text]
    system = _joined(before, head.system, behind) if before or behind else head.system
    return replace(head, system=(*system, *told), model=head.model or (agent.model if agent else "") or tree.model)


def _joined(before: list[str], system: tuple[Message, ...], behind: list[str]) -> tuple[Message, ...]:
    """One system message of all texts, where the session's own are texts; providers refuse several."""
    if all(isinstance(part, Text) and part.carried is None for message in system for part in message.parts):
        return (Message("system", (Text(BETWEEN.join((*before, *(message.text for message in system), *behind))),)),)
    first = (Message("system", (Text(BETWEEN.join(before)),)),) if before else ()
    last = (Message("system", (Text(BETWEEN.join(behind)),)),) if behind else ()
    return (*first, *system, *last)


def preferred(preferences: Preferences) -> Policy:
    """The policy `tree` with these preferences."""
    usual = policy("tree")
    made = replace(
        usual,
        strategy=preferences.truncation_strategy or usual.strategy,
        minimum_recent_nodes=preferences.minimum_recent_nodes or usual.minimum_recent_nodes,
        reserve=usual.reserve if preferences.token_buffer is None else preferences.token_buffer,
    )
    if made == usual:
        return usual
    return replace(made, name=f"tree {made.strategy} {made.minimum_recent_nodes} {made.reserve}")
