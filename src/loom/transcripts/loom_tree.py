"""Trees in our own form: a JSON document that says what it is, and holds trees as they are.

Rules: ids are texts and unique in their tree; a parent comes before its children; what a node, a
link or `current` names is in the tree, unless another tree is named. A change that an older Loom
would read wrongly gets a new version.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Any

import msgspec

from loom.conversation.canonical import from_json, to_json
from loom.conversation.checked import checks_arguments, to_snake_case
from loom.conversation.message import Carried, Message, Opaque, Reasoning, ToolCall, ToolResult
from loom.conversation.tree import TRUNCATIONS, Preferences, Tree, TreeNode
from loom.dialects.input import check_kept_answer
from loom.dialects.wire import Json, expect_list
from loom.errors import ChoiceError, TranscriptError, WireError

FORMAT = "Loom trees"
WHAT = "tree"
VERSION = 2
_WITHOUT_CHOICES = 1  # a version that says the same of a tree in which no version was chosen
_MAX_MILLISECONDS = 2**63  # what a database can hold


@checks_arguments
def write_trees(trees: Iterable[Tree]) -> Iterator[str]:
    """A line for each tree, each a document of its own."""
    for tree in trees:
        version = VERSION if tree.chosen else _WITHOUT_CHOICES
        yield to_json({"loom": WHAT, "version": version, "trees": [tree]})


def matches(value: Any) -> bool:
    return isinstance(value, dict) and value.get("loom") == WHAT


def trees(value: Json) -> Iterator[Tree]:
    version = value.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise WireError("version", "a number from 1", version)
    if version > VERSION:
        raise WireError(
            "version",
            f"at most {VERSION}; a newer Loom wrote this, and a newer Loom reads it",
            version,
        )
    for n, given in enumerate(expect_list(value.get("trees"), "trees")):
        try:
            tree = msgspec.convert(_in_snake_case(given), Tree)
        except msgspec.ValidationError as error:
            what, _, at = str(error).partition(" - at `$")
            raise TranscriptError(
                f"trees[{n}]{at.rstrip('`')}: {what[:1].lower()}{what[1:].replace('`', '')}"
            ) from None
        except ChoiceError as error:  # a value that checks itself
            raise TranscriptError(f"trees[{n}]: {error}") from None
        _check(tree, f"trees[{n}]")
        yield tree


def _in_snake_case(given: Any) -> Any:
    """A tree whose head and preferences may be written in camel case, by hand or by another
    program.
    """
    if not isinstance(given, dict):
        return given
    named = {_field(name, Tree.__struct_fields__): value for name, value in given.items()}
    preferences = named.get("preferences")
    if isinstance(preferences, dict):
        preferred = {
            _field(name, Preferences.__struct_fields__): value
            for name, value in preferences.items()
        }
        strategy = preferred.get("truncation_strategy")
        if isinstance(strategy, str):
            preferred["truncation_strategy"] = _field(strategy, TRUNCATIONS)
        named["preferences"] = preferred
    return named


def _field(name: Any, known: tuple[str, ...]) -> Any:
    if not isinstance(name, str):
        return name
    spelt = to_snake_case(name)
    if spelt in known:
        return spelt
    return name


def _check(tree: Tree, place: str) -> None:
    if not tree.id:
        raise WireError(f"{place}.id", "an id", tree.id)
    _check_moment(tree.created, f"{place}.created")
    here: set[str] = set()
    for n, node in enumerate(tree.nodes):
        _check_node(node, here, f"{place}.nodes[{n}]")
        here.add(node.id)
    for where, id in _named_nodes(tree):
        if id not in here:
            raise WireError(f"{place}.{where}", "the id of a node of this tree", id)
    wrong = tree.wrong_choice()
    if wrong is not None:
        raise WireError(
            f"{place}.chosen[{wrong}]",
            "a node of a buffer and a version of it, once",
            tree.chosen[wrong].version,
        )
    _check_carried(tree.carried, f"{place}.carried")


def _check_moment(created: int, place: str) -> None:
    if not 0 <= created < _MAX_MILLISECONDS:
        raise WireError(place, "milliseconds since 1970", created)


def _check_node(node: TreeNode, before: Container[str], place: str) -> None:
    if not node.id or node.id in before:
        raise WireError(f"{place}.id", "an id of its own", node.id)
    if node.parent and node.parent not in before:
        raise WireError(f"{place}.parent", "the id of a node before it", node.parent)
    _check_moment(node.created, f"{place}.created")
    _check_message(node.message, f"{place}.message")
    if node.response:
        check_kept_answer(node.response, f"{place}.response")


def _named_nodes(tree: Tree) -> Iterator[tuple[str, str]]:
    """The nodes of a tree that it names, each with the place."""
    if tree.current:
        yield "current", tree.current
    for n, node in enumerate(tree.nodes):
        if node.edited_from:
            yield f"nodes[{n}].edited_from", node.edited_from
    for n, node in enumerate(tree.nodes):
        for m, source in enumerate(node.sources):
            if source.tree in ("", tree.id):
                yield f"nodes[{n}].sources[{m}].node", source.node
    for n, link in enumerate(tree.links):
        yield f"links[{n}].source", link.source
    for n, link in enumerate(tree.links):
        if link.tree in ("", tree.id):
            yield f"links[{n}].target", link.target


def _check_message(message: Message, place: str) -> None:
    _check_carried(message.carried, f"{place}.carried")
    for n, part in enumerate(message.parts):
        at = f"{place}.parts[{n}]"
        if isinstance(part, ToolResult) and message.role != "tool":
            raise WireError(at, "a result only in a message of the role tool", message.role)
        if isinstance(part, ToolCall | Reasoning) and message.role != "assistant":
            raise WireError(
                at, "calls and reasoning only in a message of the assistant", message.role
            )
        for piece in (part, *part.parts) if isinstance(part, ToolResult) else (part,):
            if isinstance(piece, Opaque):
                _check_object(piece.json, f"{at}.json")
            else:
                _check_carried(piece.carried, f"{at}.carried")


def _check_carried(carried: Carried | None, place: str) -> None:
    if carried is not None and carried.fields:
        _check_object(carried.fields, f"{place}.fields")


def _check_object(text: str, place: str) -> None:
    try:
        value = from_json(text)
    except ValueError:
        value = text
    if not isinstance(value, dict):
        raise WireError(place, "the JSON text of an object", text)
