"""Whole trees in and out of a store. What comes in keeps the ids it had besides its own, so it goes
out as it came.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.counting import Counter, gate_counter
from loom.conversation.identity import node_id
from loom.conversation.names import plain_name
from loom.conversation.tree import (
    NO_FLAGS,
    NO_PREFERENCES,
    ChosenVersion,
    Link,
    Reference,
    Tree,
    TreeHead,
    TreeNode,
)
from loom.dialects.input import check_kept_answer
from loom.engine.inputs import first_line
from loom.engine.reading import message_of
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, StoreError, shorten
from loom.stores import (
    EdgeMark,
    FlagMark,
    LinkMark,
    MarkData,
    Marks,
    Newcomers,
    NewSession,
    Node,
    Origin,
    PlannedNode,
    SessionRow,
    Store,
    StoredTree,
    damage_error,
    read_stored,
)

_NODES = 1000  # in one transaction: between two of them other writers have their turn


class _Coming(Struct, frozen=True):
    """A node that comes in: its id here, that of its parent, and the generation that makes it what
    it is here.
    """

    node: TreeNode
    id: str
    above: str
    generation: str

    def marks(self, there: "_OtherNames") -> Iterator[MarkData]:
        node = self.node
        if node.edge != "continuation" or node.edited_from:
            yield EdgeMark(node.edge, there.name(node.edited_from) if node.edited_from else "")
        if node.sources:
            yield tuple(
                Reference(there.name(source.node, source.tree), source.role, source.tree)
                for source in node.sources
            )
        yield from FlagMark.of_flags(node.flags)
        origin = Origin(
            node.id if node.id != self.id else "",
            node.author,
            node.generation if node.generation != self.generation else None,
        )
        if origin != Origin():
            yield origin


class _OtherNames(Struct, frozen=True):
    """What nodes are called on the other side; those of other trees are called as they are."""

    tree: str
    names: dict[str, str]

    def name(self, name: str, tree: str = "") -> str:
        if tree in ("", self.tree):
            return self.names.get(name, name)
        return name


def import_tree(workspace: Workspace, tree: Tree) -> tuple[StoredTree, int]:
    """Write a tree as one of the project; how many nodes were new. Where it cannot be written to
    its end, nothing of it stays.

    A tree that is here already gets new branches; what is here is not changed, and nothing comes in
    that its path would read.
    """
    _check(tree)
    store, scope = workspace.store, replace(workspace.scope, agent="")
    name = _free_name(workspace, tree)
    here = [stored for stored in store.trees.find_titled(scope, name) if stored.row.id == name]
    row = store.sessions.on_tree(here[0].row, "") if here else None
    begun = row is None
    if row is None and here:  # an import that was cut short continues
        row = store.sessions.on_tree(here[0].row, "", importing=True)
    if row is None:
        row = store.sessions.create(
            scope,
            NewSession(
                id=workspace.fresh_id() if store.sessions.exists(scope, name) else name,
                title=first_line(tree.title),
                status="importing",
            ),
            now=workspace.now(),
            tree=name,
            about=_head(tree),
            made=tree.created,
        )
    try:
        made = _plant(workspace, row, tree, Newcomers({row.key} if begun else set()))
        if begun:
            store.sessions.change(row, now=workspace.now(), status="active")
    except BaseException:
        if begun:
            # the first error is the one to hear of; `loom doctor` finds what could not be taken
            # back
            with suppress(StoreError):
                store.sessions.discard(row.tree.key)
        raise
    workspace.emit("created", row.id, "", title=tree.title, messages=made)
    return store.trees.head(row.tree), made


def _check(tree: Tree) -> None:
    wrong = tree.wrong_choice()
    if wrong is not None:
        choice = tree.chosen[wrong]
        raise ChoiceError(
            f"tree {shorten(tree.id)!r}: {shorten(choice.version)!r} is not a version of "
            f"{shorten(choice.node)!r}"
        )
    for n, node in enumerate(tree.nodes):
        if node.response:
            check_kept_answer(node.response, f"nodes[{n}].response")


def _head(tree: Tree) -> TreeHead:
    return TreeHead(
        description=tree.description,
        mode=tree.mode,
        system_context=tree.system_context,
        buffer_mode_system_context=tree.buffer_mode_system_context,
        preferences=tree.preferences,
        model=tree.model,
        carried=tree.carried,
        full_title=tree.title if tree.title != first_line(tree.title) else "",
        full_id=tree.id if tree.id != plain_name(tree.id) else "",
    )


def _free_name(workspace: Workspace, tree: Tree) -> str:
    """The id of the tree; where another tree that began otherwise has it already, one made from its
    own beginning.
    """
    name, store = plain_name(tree.id), workspace.store
    for stored in store.trees.find_titled(workspace.scope, name):
        roots = {node.id for node in store.trees.children(stored.row.key, None)}
        ours = [coming.id for coming in _coming(tree, name) if not coming.above]
        if stored.row.id == name and ours and roots.isdisjoint(ours):
            return f"{name}-{ours[0][2:8]}"
    return name


def _coming(tree: Tree, name: str) -> Iterator[_Coming]:
    """The nodes with their ids here. Siblings that say the same are told apart by what they were
    called.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for node in tree.nodes:
        above, generation = ids[node.parent] if node.parent else "", plain_name(node.generation)
        identity = node_id(name, above, node.message, generation)
        if identity in taken:
            generation = plain_name(node.id)
            identity = node_id(name, above, node.message, generation)
        taken.add(identity)
        ids[node.id] = identity
        yield _Coming(node, identity, above, generation)


def _plant(workspace: Workspace, row: SessionRow, tree: Tree, newcomers: Newcomers) -> int:
    coming = list(_coming(tree, row.tree.id))
    there = _OtherNames(tree.id, {each.node.id: each.id for each in coming})
    versions = {
        each.id: there.name(each.node.edited_from) for each in coming if each.node.edge == "version"
    }
    workspace.store.growth.check_versions(row, versions, newcomers)
    count = Counter(gate_counter(None).profile, remember=_NODES).count_message
    made = 0
    for start in range(0, len(coming), _NODES):
        batch = coming[start : start + _NODES]
        planned = [_plan_node(each, row.key, count(each.node.message)) for each in batch]
        marks = {each.id: list(each.marks(there)) for each in batch}
        responses = {each.id: each.node.response for each in batch if each.node.response}
        made += workspace.store.growth.insert_nodes(
            row, planned, marks, workspace.now(), responses, newcomers
        )
    links: dict[str, list[MarkData]] = {}
    for link in tree.links:
        mark = LinkMark(there.name(link.target, link.tree), link.tree, link.label)
        links.setdefault(there.name(link.source), []).append(mark)
    chosen = {there.name(choice.node): there.name(choice.version) for choice in tree.chosen}
    workspace.store.growth.settle(
        row,
        links,
        there.name(tree.current) if tree.current else "",
        workspace.now(),
        chosen,
        newcomers,
    )
    return made


def _plan_node(coming: _Coming, session: int, tokens: int) -> PlannedNode:
    message, created = coming.node.message, coming.node.created
    return PlannedNode(
        coming.id, coming.above, message.role, message, coming.generation, tokens, session, created
    )


def export_tree(store: Store, stored: StoredTree) -> Tree:
    """A whole tree, its nodes by the ids with which they came."""
    nodes, marks, agents = store.trees.read_all(stored.row.key)
    usual, head = Marks(), stored.head
    names = {node.seq: marks.get(node.seq, usual).origin.id or node.id for node in nodes}
    there = _OtherNames(stored.row.id, {node.id: names[node.seq] for node in nodes})
    links = [
        Link(names[node.seq], there.name(link.target, link.tree), link.tree, link.label)
        for node in nodes
        for link in marks.get(node.seq, usual).links
    ]
    own = store.sessions.on_tree(stored.row, "")
    responses = store.trees.responses(stored.row.key)
    if own and head.mode == "buffer":
        chosen = store.states.all(own.key, "version")
    else:
        chosen = {}
    made = Tree(
        id=head.full_id or stored.row.id,
        nodes=tuple(
            _make_tree_node(node, marks.get(node.seq, usual), names, agents, there, responses)
            for node in nodes
        ),
        title=head.full_title or stored.title,
        description=head.description,
        mode=head.mode,
        system_context=head.system_context,
        buffer_mode_system_context=head.buffer_mode_system_context,
        preferences=head.preferences if head.preferences != NO_PREFERENCES else NO_PREFERENCES,
        links=tuple(links),
        current=names.get(own.cursor, "") if own and own.cursor is not None else "",
        model=head.model,
        created=stored.created,
        carried=head.carried,
        chosen=tuple(
            ChosenVersion(there.name(name), there.name(_version(data)))
            for name, data in sorted(chosen.items())
        ),
    )
    # what no reader could make anything of stays behind
    while (wrong := made.wrong_choice()) is not None:
        made = replace(made, chosen=(*made.chosen[:wrong], *made.chosen[wrong + 1 :]))
    return made


def _make_tree_node(
    node: Node,
    mark: Marks,
    names: dict[int, str],
    agents: dict[int, str],
    there: _OtherNames,
    responses: dict[int, str],
) -> TreeNode:
    message = message_of(node)
    agent = agents.get(node.session, "")
    return TreeNode(
        id=names[node.seq],
        message=message,
        parent=_parent(node, names),
        author=mark.origin.author or (agent if agent != message.author else ""),
        edge=mark.edge_mark.edge,
        sources=tuple(_sources(mark.sources, there)),
        edited_from=there.name(mark.edge_mark.edited_from) if mark.edge_mark.edited_from else "",
        generation=node.generation if mark.origin.generation is None else mark.origin.generation,
        flags=mark.flags if mark.flags != NO_FLAGS else NO_FLAGS,
        created=node.created,
        response=responses.get(node.seq, ""),
    )


def _version(data: str) -> str:
    return read_stored(data, str, "which version is chosen")


def _parent(node: Node, names: dict[int, str]) -> str:
    if node.parent is not None and node.parent not in names:
        raise damage_error(f"the node that {node.short_id} comes after")
    if node.parent is None:
        return ""
    return names[node.parent]


def _sources(sources: Iterable[Reference], there: _OtherNames) -> Iterator[Reference]:
    for source in sources:
        yield Reference(there.name(source.node, source.tree), source.role, source.tree)
