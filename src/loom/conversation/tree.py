"""A branching conversation as a value: what was said after what, what was said about it, and how it
is read.
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from loom.conversation.checked import MAX_NUMBER, CheckedStruct, check_fields
from loom.conversation.message import Carried, Message

Mode = Literal["dialogue", "buffer"]
Edge = Literal["continuation", "annotation", "version"]
ReferenceRole = Literal["instruction", "context", "primary"]  # in the order in which they are read
_REFERENCE_ROLES = frozenset(get_args(ReferenceRole))
Truncation = Literal["truncate_middle", "rolling_window", "stop_at_limit"]
TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)


class Reference(CheckedStruct, frozen=True, omit_defaults=True):
    """A node that another was made from, besides its parent; of another tree where one is named."""

    node: str
    role: ReferenceRole = "primary"
    tree: str = ""

    def __post_init__(self) -> None:
        if (
            not type(self.node) is type(self.role) is type(self.tree) is str
            or self.role not in _REFERENCE_ROLES
        ):
            check_fields(self)


class Flags(CheckedStruct, frozen=True, omit_defaults=True):
    """What people and agents say about a node without changing it. An annotation is read only where
    it is `included`.
    """

    bookmarked: bool = False
    label: str = ""
    pruned: bool = False
    excluded: bool = False
    pinned: bool = False
    included: bool = False

    def __post_init__(self) -> None:
        if (
            not type(self.bookmarked)
            is type(self.pruned)
            is type(self.excluded)
            is type(self.pinned)
            is bool
        ):
            check_fields(self)
        if type(self.included) is not bool or type(self.label) is not str:
            check_fields(self)


# the same object wherever there are none: what is the default by identity is left out of JSON
NO_FLAGS = Flags()


class TreeNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message at its place. `parent` is "" for a root; `author` an agent's name, "" for whoever
    the message's role says.

    `edge` tells how it hangs there: it continues, it is a remark on its parent, or it is another
    version of `edited_from`. `response` is the provider's answer that made it, as it came, as JSON;
    "" if there was none. Times are milliseconds since 1970, UTC; 0 where nobody knows.
    """

    id: str
    message: Message
    parent: str = ""
    author: str = ""
    edge: Edge = "continuation"
    sources: tuple[Reference, ...] = ()
    edited_from: str = ""
    generation: str = ""
    flags: Flags = NO_FLAGS
    created: int = 0
    response: str = ""

    def __post_init__(self) -> None:
        if (
            self.edge != "continuation"
            or self.sources
            or type(self.message) is not Message
            or type(self.flags) is not Flags
            or not type(self.id)
            is type(self.parent)
            is type(self.author)
            is type(self.edited_from)
            is type(self.generation)
            is str
            or type(self.created) is not int
            or type(self.response) is not str
            or not -MAX_NUMBER <= self.created <= MAX_NUMBER
        ):
            check_fields(self)


class Link(CheckedStruct, frozen=True, omit_defaults=True):
    """From a node to a node, of another tree where one is named, with a word on why."""

    source: str
    target: str
    tree: str = ""
    label: str = ""


class ChosenVersion(CheckedStruct, frozen=True):
    """Which version of a node of a buffer is read: one of its versions, or the node itself as it
    was first written.
    """

    node: str
    version: str


class Preferences(CheckedStruct, frozen=True, omit_defaults=True):
    """How what is too long is cut: for all trees of a project, or for one; where nothing is said,
    as the policy `tree` says.
    """

    truncation_strategy: Truncation | None = None
    minimum_recent_nodes: Annotated[int, Meta(ge=1)] | None = None
    token_buffer: Annotated[int, Meta(ge=0)] | None = None

    def over(self, other: "Preferences") -> "Preferences":
        """These, and the other's where these say nothing."""
        return Preferences(
            self.truncation_strategy or other.truncation_strategy,
            other.minimum_recent_nodes
            if self.minimum_recent_nodes is None
            else self.minimum_recent_nodes,
            other.token_buffer if self.token_buffer is None else self.token_buffer,
        )


NO_PREFERENCES = Preferences()


class TreeHead(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tree says of itself besides its title and its nodes."""

    description: str = ""
    mode: Mode = "dialogue"
    system_context: str = ""
    buffer_mode_system_context: bool = False
    preferences: Preferences = NO_PREFERENCES
    model: str = ""
    carried: Carried | None = None
    # As they came, where a list or a database cannot hold them.
    full_title: str = ""
    full_id: str = ""


class Tree(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole tree. Parents come before their children; `current` is the node that whoever wrote
    it last looked at.

    `chosen` are the versions that are read at its nodes, where that is not the latest.
    `carried` is what the file it came from says of the conversation beyond these fields.
    """

    id: str
    nodes: tuple[TreeNode, ...]
    title: str = ""
    description: str = ""
    mode: Mode = "dialogue"
    system_context: str = ""
    buffer_mode_system_context: bool = False
    preferences: Preferences = NO_PREFERENCES
    links: tuple[Link, ...] = ()
    current: str = ""
    model: str = ""
    created: int = 0
    carried: Carried | None = None
    chosen: tuple[ChosenVersion, ...] = ()

    def wrong_choice(self) -> int | None:
        """The first choice that names no version of its node; None if all are right."""
        nodes = {node.id: node for node in self.nodes}
        chosen = set[str]()
        for n, choice in enumerate(self.chosen):
            found, passed = nodes.get(choice.version), set[str]()
            while found and found.edge == "version" and found.id not in passed:
                passed.add(found.id)
                found = nodes.get(found.edited_from)
            if (
                self.mode != "buffer"
                or not found
                or found.id != choice.node
                or choice.node in chosen
            ):
                return n
            chosen.add(choice.node)
        return None

    @property
    def branch_points(self) -> int:
        """How many nodes have more than one continuation."""
        children: dict[str, int] = {}
        for node in self.nodes:
            if node.parent and node.edge == "continuation":
                children[node.parent] = children.get(node.parent, 0) + 1
        return sum(count > 1 for count in children.values())
