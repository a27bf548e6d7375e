"""`loom tree show` and `loom tree path`: a tree as a picture, one of its nodes in full, and a path
as it is read.
"""

from typing import Any

import click
from msgspec import to_builtins

from loom.cli import terminal
from loom.cli.store.where import in_store
from loom.cli.terminal import (
    COLOURS,
    age,
    clean,
    columns_of,
    dim,
    fit_columns,
    one_line,
    plural,
    say,
    style,
)
from loom.cli.tree.look import MIN_TEXT_COLUMNS, marks_of, speaker, words_of
from loom.cli.tree.node import show_node
from loom.conversation.canonical import to_json
from loom.conversation.outline import OutlineLine, OutlineNode, Sizes, outline, sizes
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree, Step
from loom.errors import ChoiceError
from loom.stores import Node, SessionRow

MAX_PICTURE_LINES, LAST_NODES = 200, 50  # of a picture, of a path
MAX_JSON_CHARS = 200  # of what a node says, in JSON
MAX_SESSIONS = 6  # sessions that a head names
AUTHOR_COLUMNS = 16  # columns of who speaks
MIN_WORD_COLUMNS = 4  # columns of words, however far a line is indented
HERE = "◀ here"


@click.command("show")
@click.argument("name", metavar="TREE")
@click.option(
    "--node",
    "only",
    metavar="NODE",
    help="Show one node in full: its text, what is attached to it, and its history.",
)
@click.option(
    "--at", metavar="NODE", help="Draw the tree as seen from this node (default: the current node)."
)
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show N levels below the root, and the path to the current node.",
)
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    default=MAX_PICTURE_LINES,
    show_default=True,
    metavar="N",
    help="Print at most N lines.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Print everything. Only what is more than 12 forks deep stays folded.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the tree with all its nodes, or the node of --node, as a JSON object.",
)
@in_store()
def show_tree(
    loom: Loom, name: str, only: str | None, at: str | None, as_json: bool, **limits: Any
) -> None:
    """Draw a tree, or show one node in full.

    Nodes that follow each other are drawn downwards. Branches are indented. The line ╌ leads to an
    annotation, ≈ to a version.
    If the tree is too long, the nodes that are farthest from the current node are folded.

    Marks: ★ bookmarked, ⚲ pinned, ⊘ excluded, ✂ pruned, ⊕ annotation that is read.
    """
    lines = None if limits["every"] else limits["lines"]
    depth = limits["depth"]
    if only is not None and (at is not None or depth is not None or limits["every"]):
        raise ChoiceError("--node shows one node; --at, --depth and --all are for the picture")
    tree = loom.tree(name)
    if only is not None:
        show_node(loom, tree, tree.node(only), as_json)
        return
    twigs = tree.twigs()
    standing = loom.store.sessions.on_tree(
        tree.stored.row, loom.scope.agent
    ) or loom.store.sessions.on_tree(tree.stored.row, "")
    here = tree.node(at).seq if at is not None else _standing_at(tree, standing)
    if as_json:
        say(to_json(_tree_report(loom, tree, twigs, here)))
        return
    print_tree(loom, tree, twigs, here, lines, depth)
    _print_draft(tree.session(standing.agent).draft_text if standing else "")


def _standing_at(tree: LoomTree, standing: SessionRow | None) -> int | None:
    """Where a session stands, else the newest end."""
    if standing is not None and standing.cursor is not None:
        return standing.cursor
    return next(reversed(tree.ends()), None)


def _print_draft(drafted: str) -> None:
    """What stands at the end of a buffer and is not a node yet."""
    if drafted:
        say(
            f"{style('┆', fg='yellow')} {dim('not committed')}  "
            f"{one_line(drafted, max(terminal.width() - 17, MIN_TEXT_COLUMNS))}"
        )


# The picture


def print_tree(
    loom: Loom,
    tree: LoomTree,
    twigs: list[OutlineNode],
    here: int | None,
    lines: int | None = MAX_PICTURE_LINES,
    depth: int | None = None,
) -> None:
    """A tree from its head to its last branch, seen from a node."""
    _print_head(loom, tree, sizes(twigs))
    drawn = outline(twigs, at=here, lines=lines, depth=depth)
    read = tree.read([line.twig.key for line in drawn if line.twig])
    for line in drawn:
        say(_draw_line(line, read))
    if not drawn:
        say(dim(f"the tree is empty; loom tree say {tree.id} TEXT writes its first node"))


def _print_head(loom: Loom, tree: LoomTree, size: Sizes) -> None:
    room = max(terminal.width() - len(tree.id) - 2, MIN_TEXT_COLUMNS)
    say(
        f"{style(one_line(tree.title or '(no title)', room), bold=True)}  "
        f"{style(tree.id, fg='blue')}"
    )
    told = [
        tree.head.mode,
        plural(size.nodes, "node"),
        plural(size.branches, "branch", "branches"),
        f"depth {size.depth:,}",
    ]
    told += [
        plural(count, noun)
        for count, noun in ((size.annotations, "annotation"), (size.versions, "version"))
        if count
    ]
    say(dim(" · ".join(told)))
    if tree.head.description:
        say(dim(one_line(tree.head.description, terminal.width())))
    now, stand = loom.now(), loom.store.trees.sessions_on(tree.stored.row.key)
    places = [
        f"{agent or 'human'} at {short_id} ({age(updated, now)})"
        for _, agent, short_id, updated in stand
        if short_id
    ]
    more = ""
    if len(places) > MAX_SESSIONS:
        more = f" and {len(places) - MAX_SESSIONS} more"
    if places:
        say(dim(one_line(", ".join(places[:MAX_SESSIONS]) + more, terminal.width())))
    say()


def _draw_line(line: OutlineLine, read: dict[int, Node]) -> str:
    if line.twig is None:
        return dim(
            line.lead
            + one_line(
                _describe_fold(line),
                max(terminal.width() - columns_of(line.lead), MIN_WORD_COLUMNS),
            )
        )
    twig, node = line.twig, read[line.twig.key]
    lead = dim(line.lead)
    left = terminal.width() - columns_of(line.lead + twig.short_id)
    who = one_line(
        twig.author or speaker(twig.role), max(min(left // 3, AUTHOR_COLUMNS), MIN_WORD_COLUMNS)
    )
    here = f"  {HERE}" if line.here else ""
    room = left - columns_of(f" {who}  {here}")
    marks, looks = marks_of(twig.flags, twig.pruned, room)
    words = one_line(words_of(node), max(room - columns_of(marks), MIN_WORD_COLUMNS))
    if twig.pruned:
        faint = (
            click.style(f"{clean(who)}  ", dim=True)
            + marks
            + click.style(words, dim=True, strikethrough=True)
        )
        return f"{lead}{dim(twig.short_id)} {faint}{style(here, fg='yellow', bold=True)}"
    bright = {"bold": True} if line.on_path else {}
    name = style(twig.short_id, fg="blue", **bright)
    role = style(who, fg=COLOURS.get(twig.role), **bright)
    return (
        f"{lead}{name} {role}  {looks}{style(words, **bright)}{style(here, fg='yellow', bold=True)}"
    )


def _describe_fold(line: OutlineLine) -> str:
    """`14 more, k3mq to zz41`."""
    first, last = line.names
    branches = ""
    if line.branches > 1:
        branches = f" in {line.branches:,} branches"
    return f"{line.folded:,} more{branches}, {f'{first} to {last}' if last else f'from {first}'}"


# As JSON


def _tree_report(
    loom: Loom, tree: LoomTree, twigs: list[OutlineNode], here: int | None
) -> dict[str, Any]:
    read = tree.read([twig.key for twig in twigs])
    short_id = {twig.key: twig.short_id for twig in twigs}
    standing = loom.store.trees.sessions_on(tree.stored.row.key)
    return {
        "id": tree.id,
        "title": tree.title,
        "mode": tree.head.mode,
        "description": tree.head.description,
        "sizes": to_builtins(sizes(twigs)),
        "sessions": [
            {"id": s, "agent": agent, "at": at, "updated": updated}
            for s, agent, at, updated in standing
        ],
        "at": short_id.get(here) if here is not None else None,
        "nodes": [
            {
                "id": read[twig.key].id,
                "local": twig.short_id,
                "parent": short_id.get(twig.parent) if twig.parent is not None else None,
                "role": twig.role,
                "author": twig.author,
                "edge": twig.edge,
                "flags": to_builtins(twig.flags),
                "pruned": twig.pruned,
                "text": words_of(read[twig.key])[:MAX_JSON_CHARS],
            }
            for twig in twigs
        ],
    }


# A path


@click.command("path")
@click.argument("name", metavar="TREE")
@click.option(
    "--at", metavar="NODE", help="Show the path to this node (default: the current node)."
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=LAST_NODES,
    show_default=True,
    metavar="N",
    help="Show the newest N nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the nodes of the path as JSON.")
@in_store()
def show_path(loom: Loom, name: str, at: str | None, last: int, as_json: bool) -> None:
    """Show the path to a node, as a model reads it.

    Hidden nodes are dim, with the reason. Nodes that are added to the path name their kind: a
    version, an annotation or a source.
    """
    tree = loom.tree(name)
    steps, count = tree.path(at, last=last)
    agents = loom.store.trees.agents_of(tree.stored.row.key)
    drafted = tree.session().draft_text if at is None else ""
    if as_json:
        told = {
            "tree": tree.id,
            "nodes": count,
            "steps": [_step_report(step, agents) for step in steps],
            "draft": drafted,
        }
        say(to_json(told))
        return
    if not steps and not drafted:
        say(dim(f"tree {tree.id} is empty"))
    if count > last:
        say(dim(f"{plural(count - last, 'earlier node')}; --last {count} shows all"))
    wide = max((len(step.node.short_id) for step in steps), default=0)
    whose = [
        one_line(_author(step, agents) or speaker(step.node.role), AUTHOR_COLUMNS) for step in steps
    ]
    most = max(map(columns_of, whose), default=0)
    for step, who in zip(steps, whose, strict=True):
        say(_step_line(step, fit_columns(who, most), wide))
    _print_draft(drafted)


def _step_line(step: Step, who: str, wide: int) -> str:
    node = step.node
    why = step.hidden or step.beside
    marks, looks = marks_of(step.marks.flags, step.hidden == "pruned")
    reason = f"({why}) " if why else ""
    words = one_line(
        words_of(node),
        max(terminal.width() - wide - columns_of(who + marks + reason) - 4, MIN_TEXT_COLUMNS),
    )
    if step.hidden:
        return dim(f"{node.short_id:<{wide}}  {who}  {marks}{reason}{words}")
    colour = COLOURS.get(node.role)
    return (
        f"{style(f'{node.short_id:<{wide}}', fg='blue')}  {style(who, fg=colour)}  "
        f"{looks}{style(reason, fg='yellow')}{words}"
    )


def _author(step: Step, agents: dict[int, str]) -> str:
    said = step.node.message.author if step.node.message else ""
    return step.marks.origin.author or said or agents.get(step.node.session, "")


def _step_report(step: Step, agents: dict[int, str]) -> dict[str, Any]:
    node = step.node
    told = {
        "id": node.id,
        "local": node.short_id,
        "role": node.role,
        "author": _author(step, agents),
        "hidden": step.hidden,
    }
    return told | {
        "beside": step.beside,
        "flags": to_builtins(step.marks.flags),
        "tokens": node.tokens,
        "text": words_of(node),
    }
