"""`loom tree show --node`: one node in full, with what it was made from, what is attached to it,
and who said what of it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from loom.cli import terminal
from loom.cli.terminal import COLOURS, age, clean, columns_of, dim, one_line, plural, say, style
from loom.cli.transcript.show import look
from loom.cli.tree.look import MIN_TEXT_COLUMNS, marks_of, speaker, words_of
from loom.conversation.canonical import to_json
from loom.conversation.message import Text
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError
from loom.stores import FlagMark, LinkMark, Mark, Marks, Node

_WIDE = 11


class _Near(Struct, frozen=True):
    """What is known of a node, and what stands around it."""

    node: Node
    marks: Marks
    author: str
    pruned: bool
    above: Node | None
    continuations: Sequence[Node]
    annotations: Sequence[Node]
    versions: Sequence[Node]
    history: Sequence[Mark]


def show_node(loom: Loom, tree: LoomTree, node: Node, as_json: bool) -> None:
    near = _look_around(loom, tree, node)
    if as_json:
        say(to_json(_report(tree, near)))
    else:
        _print(loom, tree, near)


def _look_around(loom: Loom, tree: LoomTree, node: Node) -> _Near:
    marks, agents = tree.marks(node), loom.store.trees.agents_of(tree.stored.row.key)
    above = None
    if node.parent is not None:
        above = tree.read([node.parent])[node.parent]
    below = _by_edge(loom, tree, node)
    versions = [
        made for made, edges in _by_edge(loom, tree, above) if edges == ("version", node.id)
    ]
    return _Near(
        node=node,
        marks=marks,
        author=marks.origin.author
        or (node.message.author if node.message else "")
        or agents.get(node.session, ""),
        pruned=any(twig.pruned for twig in tree.twigs() if twig.key == node.seq),
        above=above,
        continuations=[made for made, (edge, _) in below if edge == "continuation"],
        annotations=[made for made, (edge, _) in below if edge == "annotation"],
        versions=versions,
        history=[
            mark for mark in tree.history(node.id) if isinstance(mark.data, FlagMark | LinkMark)
        ],
    )


def _by_edge(loom: Loom, tree: LoomTree, node: Node | None) -> list[tuple[Node, tuple[str, str]]]:
    """The children of a node, or the roots: each with its edge and the node that it was edited
    from.
    """
    children = loom.store.trees.children(tree.stored.row.key, node)
    marks = loom.store.trees.marks(tree.stored.row.key, [child.seq for child in children])
    edges = [marks.get(child.seq, Marks()).edge_mark for child in children]
    return [
        (child, (how.edge, how.edited_from)) for child, how in zip(children, edges, strict=True)
    ]


def _report(tree: LoomTree, near: _Near) -> dict[str, Any]:
    node, marks = near.node, near.marks
    return {
        "id": node.id,
        "local": node.short_id,
        "tree": tree.id,
        "parent": near.above.short_id if near.above else None,
        "role": node.role,
        "author": near.author,
        "edge": marks.edge_mark.edge,
        "edited_from": marks.edge_mark.edited_from,
        "tokens": node.tokens,
        "created": node.created,
        "flags": to_builtins(marks.flags),
        "pruned": near.pruned,
        "sources": to_builtins(marks.sources),
        "links": [
            {"target": link.target, "tree": link.tree, "label": link.label} for link in marks.links
        ],
        "continuations": [other.short_id for other in near.continuations],
        "annotations": [other.short_id for other in near.annotations],
        "versions": [other.short_id for other in near.versions],
        "message": to_builtins(node.message) if node.message else None,
        "history": [
            {"author": mark.author, "created": mark.created, **to_builtins(mark.data)}
            for mark in near.history
        ],
    }


def _print(loom: Loom, tree: LoomTree, near: _Near) -> None:
    node, marks, now = near.node, near.marks, loom.now()
    who = style(near.author or speaker(node.role), fg=COLOURS.get(node.role), bold=True)
    when = f" · {age(node.created, now)}" if node.created else ""
    looks = marks_of(marks.flags, near.pruned)[1]
    say(
        f"{style(node.short_id, fg='blue', bold=True)} {who}  "
        f"{looks}{dim(plural(node.tokens, 'token') + when)}"
    )
    say(dim(node.id))
    say()
    for line in _body(node):
        say(f"  {line}")
    say()
    _print_nodes("after", [near.above] if near.above else [])
    if marks.edge_mark.edited_from:
        _print_nodes(
            "version of" if marks.edge_mark.edge == "version" else "edit of",
            [tree.node(marks.edge_mark.edited_from)],
        )
    for source in marks.sources:
        _print_end(loom, tree, source.role, source.node, source.tree)
    for link in marks.links:
        _print_end(loom, tree, "link", link.target, link.tree, link.label)
    _print_nodes("versions", near.versions)
    _print_nodes("annotations", near.annotations)
    _print_nodes("then", near.continuations)
    for n, mark in enumerate(near.history):
        _print_line(
            "history" if n == 0 else "",
            f"{mark.author or 'human'} {_describe_mark(loom, tree, mark)}",
            age(mark.created, now),
        )


def _body(node: Node) -> Iterable[str]:
    if node.message is None or not node.message.parts:
        yield dim("(empty)" if node.message else "(purged)")
        return
    for part in node.message.parts:
        mark, text = look(part)
        if not isinstance(part, Text):
            yield mark.rstrip()
        yield from (clean(line) for line in text.splitlines())


def _print_line(what: str, text: str, more: str = "") -> None:
    say(f"  {dim(f'{what:<{_WIDE}}')}  {clean(text)}{dim(f'  {more}') if more else ''}")


def _print_nodes(what: str, nodes: Sequence[Node]) -> None:
    for n, node in enumerate(nodes):
        words = one_line(
            words_of(node), max(terminal.width() - len(node.short_id) - _WIDE - 6, MIN_TEXT_COLUMNS)
        )
        lead = "" if n else what
        say(f"  {dim(f'{lead:<{_WIDE}}')}  {style(node.short_id, fg='blue')}  {words}")


def _print_end(
    loom: Loom, tree: LoomTree, what: str, name: str, other: str, label: str = ""
) -> None:
    """The other end of a link or of a source; what is not here is only named."""
    node = _find_node(loom, tree, name, other)
    where = (f"{other}/" if other else "") + (node.short_id if node else name)
    told = f"{label}  " if label else ""
    room = max(terminal.width() - columns_of(where + told) - _WIDE - 6, MIN_TEXT_COLUMNS)
    if node:
        words = one_line(words_of(node), room)
    else:
        words = dim("(not here)")
    say(
        f"  {dim(f'{what:<{_WIDE}}')}  {style(where, fg='blue')}  {style(told, fg='yellow')}{words}"
    )


def _find_node(loom: Loom, tree: LoomTree, name: str, other: str) -> Node | None:
    try:
        return (loom.tree(other) if other else tree).node(name)
    except ChoiceError:
        return None


def _describe_mark(loom: Loom, tree: LoomTree, mark: Mark) -> str:
    match mark.data:
        case FlagMark("pruned", False):
            return "restored it"
        case FlagMark("bookmarked", True, label) if label:
            return f"bookmarked it as {label}"
        case FlagMark(flag, True):
            return f"{flag} it"
        case FlagMark(flag, False):
            return f"removed the mark {flag}"
        case LinkMark(target, other, label, on):
            node = _find_node(loom, tree, target, other)
            end = (f"{other}/" if other else "") + (node.short_id if node else target)
            if not on:
                return f"removed the link to {end}"
            if label:
                return f"linked it to {end} as {label}"
            return f"linked it to {end}"
    return mark.kind
