"""`loom tree prune`, `restore`, `bookmark`, `pin`, `exclude`, `annotate` and `link`: what is said
of a node without changing it.
"""

import click

from loom.cli.store.where import in_store
from loom.cli.terminal import clean, say, style
from loom.cli.text_input import read_text
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree
from loom.stores import Node


def tell(name: str, what: str) -> None:
    """What was done, beside standard output: that belongs to what was asked for."""
    say(f"{style(name, fg='blue')} {clean(what)}", err=True)


@click.command("prune")
@click.argument("name", metavar="TREE")
@click.argument("node")
@in_store()
def prune(loom: Loom, name: str, node: str) -> None:
    """Hide a node and everything after it.

    Nothing is deleted. `loom tree restore` brings it back.
    """
    tree, found = _find(loom, name, node)
    was = tree.marks(found).flags.pruned
    below = _below(tree.prune(found.id))
    tell(
        found.short_id,
        f"is pruned already{below}: nothing to do"
        if was
        else f"is pruned{below}; restore brings it back",
    )


@click.command("restore")
@click.argument("name", metavar="TREE")
@click.argument("node")
@in_store()
def restore(loom: Loom, name: str, node: str) -> None:
    """Bring back a pruned node and everything after it."""
    tree, found = _find(loom, name, node)
    was = tree.marks(found).flags.pruned
    below = _below(tree.restore(found.id))
    tell(found.short_id, f"is back{below}" if was else "is not pruned: nothing to do")


def _below(count: int) -> str:
    if count > 1:
        return f" with {count - 1:,} below it"
    return ""


@click.command("bookmark")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.argument("label", default="")
@click.option("--undo", is_flag=True, help="Remove the bookmark.")
@in_store()
def bookmark(loom: Loom, name: str, node: str, label: str, undo: bool) -> None:
    """Mark a node with a bookmark, and optionally a LABEL."""
    tree, found = _find(loom, name, node)
    changed = tree.bookmark(found.id, label, on=not undo)
    _tell_flag(found, "bookmarked", not undo, changed, f" as {label}" if label and not undo else "")


@click.command("pin")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.option("--undo", is_flag=True, help="Remove the pin.")
@in_store()
def pin(loom: Loom, name: str, node: str, undo: bool) -> None:
    """Keep a node in every request, however long the path gets."""
    tree, found = _find(loom, name, node)
    _tell_flag(found, "pinned", not undo, tree.pin(found.id, on=not undo))


@click.command("exclude")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.option("--undo", is_flag=True, help="Read the node again, or begin to read an annotation.")
@in_store()
def exclude(loom: Loom, name: str, node: str, undo: bool) -> None:
    """Leave a node out of every request. What follows it stays.

    Annotations are not read by default; --undo makes one readable.
    """
    tree, found = _find(loom, name, node)
    is_remark = tree.marks(found).edge_mark.edge == "annotation"
    changed = tree.exclude(found.id, on=not undo)
    if is_remark:
        _tell_flag(found, "included", undo, changed)
    else:
        _tell_flag(found, "excluded", not undo, changed)


def _tell_flag(node: Node, flag: str, on: bool, changed: bool, more: str = "") -> None:
    if changed:
        tell(node.short_id, f"is {flag}{more}" if on else f"is no longer {flag}")
    else:
        tell(
            node.short_id,
            f"is {flag}{more} already: nothing to do" if on else f"is not {flag}: nothing to do",
        )


@click.command("annotate")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.argument("text", required=False)
@in_store()
def annotate(loom: Loom, name: str, node: str, text: str | None) -> None:
    """Write an annotation on a node, and print its id.

    An annotation is not part of the conversation. Models read it only after `loom tree exclude
    --undo`.
    Without TEXT, or with -, the text is read from standard input.
    """
    tree, found = _find(loom, name, node)
    made = tree.annotate(found.id, read_text(text, "say"))
    say(made.short_id)
    tell(made.short_id, f"is an annotation on {found.short_id}")


@click.command("link")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.argument("target", metavar="NODE|TREE/NODE")
@click.option("--label", default="", metavar="TEXT", help="What the link means.")
@click.option("--undo", is_flag=True, help="Remove the link.")
@in_store()
def link(loom: Loom, name: str, node: str, target: str, label: str, undo: bool) -> None:
    """Link a node to a node of this tree or another tree."""
    tree, found = _find(loom, name, node)
    where, _, end_name = target.rpartition("/")
    other = loom.tree(where) if where else tree
    end = other.node(end_name)
    foreign = f"{other.id}/" if other.id != tree.id else ""
    held = _label_of_link(tree, found, end, other)
    target = f"{foreign}{end.short_id}"
    if undo and held is None:
        tell(found.short_id, f"is not linked to {target}: nothing to do")
    elif not undo and held == label:
        tell(found.short_id, f"is linked to {target} already: nothing to do")
    else:
        tree.link(found.id, f"{foreign}{end.id}", label, on=not undo)
        done = "is no longer linked to" if undo else "is linked to"
        reason = f" as {label}" if label and not undo else ""
        tell(found.short_id, f"{done} {target}{reason}")


def _label_of_link(tree: LoomTree, node: Node, end: Node, other: LoomTree) -> str | None:
    """The label of the link between two nodes; None if there is no link."""
    foreign = other.id if other.id != tree.id else ""
    for link_mark in tree.marks(node).links:
        if (link_mark.target, link_mark.tree) == (end.id, foreign):
            return link_mark.label
    return None


def _find(loom: Loom, name: str, node: str) -> tuple[LoomTree, Node]:
    tree = loom.tree(name)
    return tree, tree.node(node)


MARKING = (prune, restore, bookmark, pin, exclude, annotate, link)
