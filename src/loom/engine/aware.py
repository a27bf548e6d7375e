"""What an agent that knows the loom is told: a header above each node, and at the end its memory
and where it is.

Headers are part of what a provider caches, so ages and counts in them are those of the beginning of
an epoch. What changes from call to call comes after the history.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files

from msgspec import Struct

from loom.context import Section
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.names import flatten
from loom.errors import ChoiceError
from loom.stores import Action as Action
from loom.stores import (
    Kin,
    Marks,
    Node,
    Path,
    SessionRow,
    Store,
    StoredTree,
)
from loom.stores import Pin as Pin
from loom.stores import Result as Result
from loom.stores import Stash as Stash

MAX_TRACED_ACTIONS = 10  # actions that are shown
_UNITS = ((60, 1, "s"), (3600, 60, "m"), (86_400, 3600, "h"), (86_400 * 60, 86_400, "d"))


class AgentMemory(Struct, frozen=True):
    """The operational memory of an agent on a tree."""

    pins: dict[str, Pin]
    stashes: dict[str, Stash]
    results: dict[str, Result]
    actions: dict[str, Action]


def memory_of(store: Store, session: int) -> AgentMemory:
    states = store.states
    return AgentMemory(
        pins=states.read(session, "pin", Pin),
        stashes=states.read(session, "stash", Stash),
        results=states.read(session, "result", Result),
        actions=states.read(session, "action", Action),
    )


def addendum() -> str:
    return files("loom.engine").joinpath("addendum.txt").read_text(encoding="utf-8").strip()


def age(then: int, now: int) -> str:
    """How long ago something was, in one unit."""
    seconds = max(now - then, 0) // 1000
    if then <= 0:
        return "long ago"
    for most, length, unit in _UNITS:
        if seconds < most:
            if seconds >= 10:
                return f"{seconds // length}{unit} ago"
            return "just now"
    if seconds < 86_400 * 730:
        return f"{seconds // 86_400 // 30}mo ago"
    return f"{seconds // 86_400 // 365}y ago"


def author_of(node: Node, marks: Marks, agents: Mapping[int, str]) -> str:
    """Who wrote a node: a name, or what kind of author."""
    kind = {"user": "human", "assistant": "model"}.get(node.role, node.role)
    name = (
        marks.origin.author
        or (node.message.author if node.message else "")
        or agents.get(node.session, "")
    )
    name = flatten(name)  # a line break in it could begin the header of another node
    if name:
        return f"{name} ({kind})"
    return kind


def connections(marks: Marks, kin: Kin) -> str:
    """What is attached to a node and what was said of it; nothing of what is none."""
    counted = (
        (kin.continuations, "continuation"),
        (kin.annotations, "annotation"),
        (len(marks.links), "link"),
    )
    told = [_count_noun(count, noun, f"{noun}s") for count, noun in counted if count]
    if marks.flags.bookmarked:
        label = flatten(marks.flags.label)
        told.append(f'bookmarked "{label}"' if label else "bookmarked")
    told += [flag for flag in ("pinned", "excluded", "pruned") if getattr(marks.flags, flag)]
    return " · ".join(told)


def header(node: Node, marks: Marks, kin: Kin, agents: Mapping[int, str], as_of: int) -> str:
    """`[a7x2] human · 3m ago`, a line of what is attached to it, and a rule."""
    lines = [
        f"[{node.short_id}] {author_of(node, marks, agents)} · {age(node.created, as_of)}",
        connections(marks, kin),
        "---",
    ]
    return "\n".join(line for line in lines if line) + "\n"


def headers_from(store: Store, row: SessionRow) -> Callable[[Sequence[Node], int], dict[int, str]]:
    """Headers for nodes of a session's tree, as they were at a time."""

    def headers(nodes: Sequence[Node], as_of: int) -> dict[int, str]:
        tree, seqs = row.tree.key, [node.seq for node in nodes]
        marks, kin = store.trees.marks(tree, seqs, as_of), store.trees.kin(tree, seqs, as_of)
        agents = store.trees.agents_of(tree)
        return {
            node.seq: header(
                node, marks.get(node.seq, Marks()), kin.get(node.seq, Kin()), agents, as_of
            )
            for node in nodes
        }

    return headers


def blocks(
    store: Store, row: SessionRow, tree: StoredTree, agent: Agent, path: Path, now: int
) -> list[Section]:
    """The operational memory, and the loom context that ends a request."""
    return [
        Section("operational_memory", memory_text(store, row, memory_of(store, row.key), now)),
        Section("loom_context", context_text(store, row, tree, agent, path, now)),
    ]


def memory_text(store: Store, row: SessionRow, memory: AgentMemory, now: int) -> str:
    lines = ["=== Operational Memory ==="]
    if memory.pins:
        lines.append("Pinned:")
        for name, pin in memory.pins.items():
            if pin.node:
                text = _pinned_text(store, row, pin.node)
            else:
                text = still_shown(store, row, pin)
            lines += _indent_entry(f"[{flatten(name)}]", text)
    recalled = {label: stash for label, stash in memory.stashes.items() if stash.recalled}
    if recalled:
        lines.append("Recalled:")
        for label, stash in recalled.items():
            lines += _indent_entry(f'"{flatten(label)}"', still_shown(store, row, stash))
    if memory.results:
        lines.append("Results (shown once; → pin result:N keeps one):")
        for number, result in memory.results.items():
            lines += _indent_entry(
                f"{int(number)}. {flatten(result.command)}",
                still_shown(store, row, result),
                below=True,
            )
    if memory.actions:
        lines.append("Recent actions:")
        for action in list(memory.actions.values())[-MAX_TRACED_ACTIONS:]:
            lines.append(
                f"  {'✗ ' if action.failed else ''}{flatten(action.command)} · "
                f"{age(action.at, now)}"
            )
    away = [f'"{flatten(label)}"' for label, stash in memory.stashes.items() if not stash.recalled]
    if away:
        lines.append(f"Stashed (not in context): {', '.join(away)}")
    if len(lines) > 1:
        return "\n".join((*lines, "==="))
    return ""


def _pinned_text(store: Store, row: SessionRow, name: str) -> str:
    """What a pinned node says, as long as nobody has kept it from being read."""
    node = store.trees.node(row.tree.key, name)
    if node.message is None:
        return "(purged)"
    why = store.trees.kept_from_models(row.tree.key, [node]).get(node.seq)
    if why:
        return f"({why})"
    return node.message.text


def still_shown(store: Store, row: SessionRow, held: Pin | Stash | Result) -> str:
    """A text that shows the words of nodes, as long as nobody has kept one of them from being
    read.
    """
    nodes: list[Node] = []
    for name in held.shows:
        # it stayed behind when the session was exported alone, so nobody hid it here
        with suppress(ChoiceError):
            nodes.append(store.trees.node(row.tree.key, name))
    why = store.trees.kept_from_models(row.tree.key, nodes)
    hidden = [
        f"[{node.short_id}] is {why.get(node.seq, 'purged')}"
        for node in nodes
        if node.seq in why or node.message is None
    ]
    if hidden:
        return f"(no longer shown: {', '.join(hidden)})"
    return held.text


def _indent_entry(lead: str, text: str, below: bool = False) -> list[str]:
    first, *rest = text.splitlines() or [""]
    if below:
        return [f"  {lead}", *(f"     {line}" for line in (first, *rest))]
    return [f"  {lead} {first}", *(f"    {line}" for line in rest)]


def context_text(
    store: Store, row: SessionRow, tree: StoredTree, agent: Agent, path: Path, now: int
) -> str:
    nodes, branches = store.trees.counts(row.tree.key)
    lines = [
        "=== Loom Context ===",
        f'Tree "{flatten(tree.title or tree.row.id)}" ({tree.head.mode})',
        f"{_count_noun(nodes, 'node', 'nodes')} · {_count_noun(branches, 'branch', 'branches')} · "
        f"depth: {len(path)}",
    ]
    if path.end is not None:
        kin = store.trees.kin(
            row.tree.key,
            [path.end.seq, *([path.end.parent] if path.end.parent is not None else [])],
            now,
        )
        siblings = max(kin.get(path.end.parent or 0, Kin()).continuations - 1, 0)
        here = connections(Marks(), kin.get(path.end.seq, Kin()))
        beside = ""
        if siblings:
            beside = _count_noun(siblings, "sibling", "siblings")
        told = ", ".join(text for text in (beside, here) if text)
        lines.append(f"Position: [{path.end.short_id}]{f' ({told})' if told else ''}")
    else:
        lines.append("Position: at the beginning")
    lines.append(
        "Permissions: "
        f"{', '.join(name for name in PERMISSIONS if name in agent.granted_permissions)}"
    )
    others = [
        f"{whose or 'human'} at [{short_id}] · {age(updated, now)}"
        if short_id
        else f"{whose or 'human'} at the beginning"
        for name, whose, short_id, updated in store.trees.sessions_on(row.tree.key)
        if name != row.id
    ]
    if others:
        lines.append(
            "Others: "
            f"{'; '.join(others[:5])}{f' and {len(others) - 5} more' if len(others) > 5 else ''}"
        )
    return "\n".join((*lines, "==="))


def _count_noun(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
