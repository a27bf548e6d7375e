"""Formats in which one JSON value is a conversation that may have branches, or several of them; and
the branch that is read where only one can be.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.message import Conversation, Message, Text
from loom.conversation.tree import Tree, TreeNode
from loom.dialects.wire import Json
from loom.errors import TranscriptError, WireError, describe
from loom.transcripts import chatgpt, claude_ai, gemini_cli, loom_tree, open_assistant
from loom.transcripts.runs import Run, make_run

# Browser extensions that save a conversation put what the provider sent in here.
_WRAPPER = "raw_provider_payload"


class TreeFormat(Struct, frozen=True):
    """A format in which one JSON object is a conversation, or several."""

    format: str
    looks_like: str  # for an error that says what was looked for
    wire: str  # the dialect that is nearest to it
    matches: Callable[[Any], bool]
    trees: Callable[[Json], Iterable[Tree]]


TREE_FORMATS = tuple(
    TreeFormat(module.FORMAT, looks_like, wire, module.matches, module.trees)
    for module, looks_like, wire in (
        (loom_tree, "trees of Loom", "openai"),
        (chatgpt, "a ChatGPT export", "openai"),
        (claude_ai, "a Claude.ai export", "anthropic"),
        (open_assistant, "OpenAssistant trees", "openai"),
        (gemini_cli, "a Gemini CLI session", "openai"),
    )
)


def find_tree_format(value: Any) -> TreeFormat | None:
    """The format of a value that is a conversation, or has one inside."""
    return next(
        (row for row in TREE_FORMATS if row.matches(value) or row.matches(_unwrap(value))), None
    )


def _unwrap(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    return value.get(_WRAPPER)


Placed = tuple[str, Any]  # where a value is in its file, and the value


def value_trees(path: Path, values: Iterable[Placed]) -> Iterator[tuple[TreeFormat, Tree]]:
    """The trees of values that are conversations, each with its format."""
    for place, value in values:
        at = f"{path}, {place}" if place else str(path)
        row = find_tree_format(value)
        if row is None:
            raise TranscriptError(
                f"{at}: expected a conversation as before it, found {describe(value)}"
            )
        try:
            if not row.matches(value):
                value = _unwrap(value)
            yield from ((row, tree) for tree in row.trees(value))
        except (WireError, TranscriptError) as error:
            raise TranscriptError(f"{at}: {error}") from None


def tree_runs(path: Path, values: Iterable[Placed]) -> Iterator[Run]:
    """The current branch of each conversation, as a run."""
    for number, (row, tree) in enumerate(value_trees(path, values)):
        yield tree_run(tree, number, row)


def tree_run(tree: Tree, number: int, row: TreeFormat) -> Run:
    """The current branch of a tree as a run."""
    system: tuple[Message, ...] = ()
    if tree.system_context:
        system = (Message("system", (Text(tree.system_context),)),)
    messages = tuple(node.message for node in current_branch(tree))
    said = Conversation(messages=messages, system=system, model=tree.model)
    return make_run(number, row.format, row.wire, said, tree.title, tree.created)


def current_branch(tree: Tree) -> list[TreeNode]:
    """The nodes from the beginning to where the tree was last looked at, as they are read: without
    what is excluded or pruned, and in a text with the versions that are chosen.
    """
    nodes = {node.id: node for node in tree.nodes}
    at, branch = nodes.get(current_node(tree)), list[TreeNode]()
    while at is not None:
        branch.append(at)
        at = nodes.get(at.parent)
    versions = _versions(tree, nodes)
    read = (versions.get(node.id, node) for node in reversed(branch))
    return [node for node in read if not (node.flags.excluded or node.flags.pruned)]


def current_node(tree: Tree) -> str:
    """The id of the node where a tree was last looked at; where no one says, of its newest
    continuation; "" of an empty tree.
    """
    if tree.current:
        return tree.current
    return next((node.id for node in reversed(tree.nodes) if node.edge == "continuation"), "")


def _versions(tree: Tree, nodes: dict[str, TreeNode]) -> dict[str, TreeNode]:
    """What is read in the place of which node: the version that is chosen, or else the latest."""
    if tree.mode != "buffer":
        return {}
    found = {_first_version(node, nodes): node for node in tree.nodes if node.edge == "version"}
    return found | {choice.node: nodes[choice.version] for choice in tree.chosen}


def _first_version(node: TreeNode, nodes: dict[str, TreeNode]) -> str:
    """The node that this is a version of, or a version of a version."""
    passed = set[str]()
    while node.edge == "version" and node.edited_from in nodes and node.id not in passed:
        passed.add(node.id)
        node = nodes[node.edited_from]
    return node.id
