"""`loom tree`: branching conversations that are kept.

Make, find, write to at any node, edit, merge, and act as an agent.
"""

import sys
from typing import Any, Literal

import click

from loom.cli.groups import Group
from loom.cli.store.where import Where, add_scope_options, in_store
from loom.cli.table import print_table, short_ids
from loom.cli.terminal import age, clean, dim, plural, say, style
from loom.cli.text_input import parse_source, read_text
from loom.cli.tree.exchange import export_trees, import_trees
from loom.cli.tree.marks import MARKING, tell
from loom.cli.tree.settings import agent_command, set_command
from loom.cli.tree.show import show_path, show_tree
from loom.conversation.canonical import to_json
from loom.conversation.message import Role
from loom.conversation.tree import Mode, TreeHead
from loom.engine.answers import AnswerOutcome
from loom.engine.loom import Loom
from loom.errors import ChoiceError
from loom.stores import ListedTree

ROLES: dict[str, Role] = {"human": "user", "model": "assistant"}


@click.group(cls=Group)
def tree() -> None:
    """Store branching conversations, and control what is read.

    TREE is the id of a tree, or its first characters: at least 4, and enough to be unique.
    The tree of a session has the id of the session. NODE is the id of a node, as `loom tree show`
    prints it.
    Your current node is the one that you wrote last or switched to. An agent (--agent) has a
    current node of its own.
    """


# Finding and making


@tree.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="List at most N trees (default: all)."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@add_scope_options
def list_trees(where: Where, limit: int | None, as_json: bool) -> None:
    """List the trees of a project, the most recently used first.

    The list includes the trees of sessions.
    """
    listed: list[ListedTree] = []
    now = 0
    if not where.absent():
        with where.open() as loom:
            listed, now = loom.trees(limit or 0), loom.now()
    if as_json:
        say(to_json([_to_report(one) for one in listed]))
        return
    if not listed:
        say(
            f"no trees in project {clean(where.project)}" + dim("; loom tree new TITLE creates one")
        )
        return
    ids = short_ids([one.tree.row.id for one in listed])
    rows = [
        (
            short,
            one.tree.title or "(no title)",
            one.tree.head.mode,
            f"{one.nodes:,}",
            age(one.updated, now),
        )
        for short, one in zip(ids, listed, strict=True)
    ]
    print_table(("id", "title", "mode", "nodes", "last used"), rows, cut=1, right=(3, 4))


def _to_report(one: ListedTree) -> dict[str, object]:
    told: dict[str, object] = {
        "id": one.tree.row.id,
        "title": one.tree.title,
        "mode": one.tree.head.mode,
        "nodes": one.nodes,
    }
    return told | {"created": one.tree.created, "updated": one.updated}


@tree.command("new")
@click.argument("title")
@click.option(
    "--mode",
    type=click.Choice(["dialogue", "buffer"]),
    default="dialogue",
    show_default=True,
    help="How the tree is read.",
)
@click.option("--system", "system_context", default="", metavar="TEXT", help="System text.")
@click.option(
    "--description",
    default="",
    metavar="TEXT",
    help="Description for people. Models do not see it.",
)
@click.option("--model", default="", metavar="NAME", help="Model that the tree is for.")
@click.option(
    "--with-system",
    is_flag=True,
    help="Send the system text of a buffer, too. By default only its text is sent.",
)
@click.option(
    "--id",
    "identity",
    default="",
    metavar="ID",
    help="Id of the tree (default: a new id). With the same tree id, the same text gets the same "
    "node ids.",
)
@in_store(make=True)
def new_tree(
    loom: Loom, title: str, mode: Mode, with_system: bool, identity: str, **head: Any
) -> None:
    """Create a tree, and print its id.

    A dialogue is read as messages. An edit of it makes a branch.
    A buffer is one text that people and models write together. An edit of it makes a version that
    replaces the old text.
    """
    if with_system and mode == "dialogue":
        raise ChoiceError(
            "--with-system works only with --mode buffer; a dialogue always sends its system text"
        )
    described = TreeHead(mode=mode, buffer_mode_system_context=with_system, **head)
    say(loom.new_tree(title, head=described, identity=identity).id)


# Writing


@tree.command("say")
@click.argument("name", metavar="TREE")
@click.argument("text", required=False)
@click.option(
    "--as",
    "who",
    type=click.Choice(["human", "model"]),
    help="Who is speaking (default: the kind of --agent, or human).",
)
@click.option(
    "--after",
    metavar="NODE",
    help="Write after this node (default: the current node); '' makes a new root.",
)
@click.option(
    "--source",
    "sources",
    metavar="ROLE:NODE",
    multiple=True,
    help="Node that this one is based on (repeatable). ROLE is instruction, context or primary.",
)
@click.option(
    "--draft",
    is_flag=True,
    help="Put the text at the end of a buffer as a draft, without a node; '' removes the draft.",
)
@in_store()
def say_node(
    loom: Loom,
    name: str,
    text: str | None,
    who: Literal["human", "model"] | None,
    after: str | None,
    sources: tuple[str, ...],
    draft: bool,
) -> None:
    """Write a node, make it the current node, and print its id.

    Without TEXT, or with -, the text is read from standard input.

    A --source is ROLE:NODE, or ROLE:TREE/NODE for a node of another tree. An instruction is read
    with the system text.
    A context is read before the new node. A primary source is only recorded as the origin.
    """
    found = loom.tree(name)
    if draft:
        if who or after is not None or sources:
            raise ChoiceError(
                "--draft puts text at the end of a buffer, at the current node; omit --as, "
                "--after and --source"
            )
        drafted = read_text(text, "say", blank=True)
        found.session().draft(drafted)
        tell(
            found.id,
            f"ends with a draft of {plural(len(drafted), 'character')}"
            if drafted
            else "has no draft",
        )
        return
    said = read_text(
        text, "say", blank=found.head.mode == "buffer"
    )  # where a blank line is part of the text
    if not said:
        raise ChoiceError("there is nothing to say: the text is empty")
    made_from = [parse_source(loom, found, source) for source in sources]
    say(found.say(said, after=after, role=ROLES[who] if who else None, sources=made_from).short_id)


@tree.command("edit")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.argument("text", required=False)
@in_store()
def edit_node(loom: Loom, name: str, node: str, text: str | None) -> None:
    """Replace the text of a node, and print the new id.

    In a dialogue, the new text begins a branch next to the node, and becomes the current node.
    In a buffer, the new text is a version: it is read instead of the node, and what follows stays.
    To get the old text back, prune the version.
    """
    found = loom.tree(name)
    old = found.node(node)
    made = found.edit(old.id, read_text(text, "say", blank=found.head.mode == "buffer"))
    say(made.short_id)
    tell(
        made.short_id,
        f"is {'a version of' if found.head.mode == 'buffer' else 'a branch next to'} "
        f"{old.short_id}",
    )


@tree.command("merge")
@click.argument("name", metavar="TREE")
@click.argument("other")
@click.option(
    "--into",
    metavar="NODE",
    help="End of the branch that gets the digest (default: the current node).",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Largest size of the digest, in tokens.",
)
@in_store()
def merge(loom: Loom, name: str, other: str, into: str | None, tokens: int | None) -> None:
    """Write a digest of another branch, and print its id.

    OTHER is the last node of the other branch. The digest contains handles: `loom recall` prints
    the full text of each.
    """
    found = loom.tree(name)
    end = found.node(other)
    made = found.merge(end.id, into=into, tokens=tokens)
    say(made.short_id)
    tell(made.short_id, f"is a digest of the branch to {end.short_id}, and your current node")


@tree.command("switch")
@click.argument("name", metavar="TREE")
@click.argument("node")
@click.option(
    "--digest", is_flag=True, help="After NODE, write a digest of the branch that you leave."
)
@click.option(
    "--choose",
    is_flag=True,
    help="Stay at the current node. Only choose which version of a buffer's node is read.",
)
@in_store()
def switch(loom: Loom, name: str, node: str, digest: bool, choose: bool) -> None:
    """Make another node the current node.

    If NODE is a version in a buffer, that version is read from now on. If its node is on your path,
    the current node stays.
    """
    found = loom.tree(name)
    wanted = found.node(node)
    if choose:
        first = found.choose(wanted.id)
        tell(
            wanted.short_id,
            f"is read in place of {first.short_id}"
            if first.seq != wanted.seq
            else "is read as it was first written",
        )
        return
    here = found.switch(wanted.id, leave_digest=digest).cursor
    now = "is your current node"
    if loom.scope.agent:
        now = f"is the current node of {loom.scope.agent}"
    if here is None or here.seq == wanted.seq:
        tell(wanted.short_id, now)
    elif here.parent == wanted.seq:
        tell(
            here.short_id,
            f"{now}: it is a digest, after {wanted.short_id}, of the branch that was left",
        )
    else:
        tell(here.short_id, f"{now}, and the version {wanted.short_id} is read there")


# Acting as an agent


@tree.command("do")
@click.argument("name", metavar="TREE")
@click.argument("answer", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the message and all results as one JSON object."
)
@in_store()
def do(loom: Loom, name: str, answer: str | None, as_json: bool) -> None:
    """Run the → commands in the answer of an agent.

    The rest of the answer becomes a node. Then the commands run in their order, as --agent or as a
    human.
    `→ help` lists the commands. Without ANSWER, or with -, the answer is read from standard input.
    The exit status is 1 if a command was refused.
    """
    acted = loom.act(loom.tree(name).id, read_text(answer, "do"))
    if as_json:
        results = [
            {"command": each.command, "text": each.text, "failed": each.failed}
            for each in acted.results
        ]
        say(
            to_json(
                {
                    "said": acted.said,
                    "node": acted.node.short_id if acted.node else None,
                    "results": results,
                }
            )
        )
    else:
        _print_acted(acted)
    if any(result.failed for result in acted.results):
        sys.exit(1)


def _print_acted(acted: AnswerOutcome) -> None:
    if acted.node:
        say(f"said {style(acted.node.short_id, fg='blue')}")
    for result in acted.results:
        say(style(result.command, bold=True))
        for line in result.text.splitlines():
            say("  " + (style(line, fg="red") if result.failed else clean(line)))


for command in (
    show_tree,
    show_path,
    *MARKING,
    agent_command,
    set_command,
    import_trees,
    export_trees,
):
    tree.add_command(command)
