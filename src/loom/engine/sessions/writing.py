"""What is said is written: messages after the current node, a node anywhere, a draft."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from loom.budget.counting import gate_counter
from loom.conversation.message import Message, Text
from loom.conversation.names import check_name
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.engine.inputs import Given, parse_with_metadata, title_of
from loom.engine.knowledge import learn_cited
from loom.engine.sessions.place import SessionPlace
from loom.errors import ChoiceError, Conflict
from loom.providers.knowledge import find_cited
from loom.stores import Addition, Draft, NewNode, Node


def append_given(
    place: SessionPlace,
    messages: Sequence[Given],
    after: str | None = None,
    generation: str = "",
    metadata: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
) -> list[Node]:
    """Append messages as callers give them."""
    behind = place.path.end
    if after is not None:
        behind = place.node(after) if after else None
    parsed, beside = parse_with_metadata(messages, metadata)
    nodes = append_messages(
        place, parsed, behind, check_name("generation", generation), metadata=beside
    )
    note_cited(place, "\n".join(each.text for each in parsed if each.role == "assistant"))
    place.emit("appended", messages=len(nodes))
    return nodes


def append_messages(
    place: SessionPlace,
    messages: Sequence[Message],
    behind: Node | None,
    generation: str,
    added: Addition | None = None,
    move: bool = True,
    metadata: Sequence[str] = (),
) -> list[Node]:
    """Write messages after a node, with what is added to them, and move there if asked."""
    drafts, asides = _split_asides(place, messages, behind, generation, metadata)
    now, title = place.now(), title_of(messages)
    try:
        added = replace(added or Addition(), title=title, asides=asides)
        row, nodes = place.store.sessions.append(
            place.row, behind, drafts, now=now, added=added, move=move
        )
    except Conflict as conflict:
        place.emit("conflict", expected=conflict.expected, found=conflict.found)
        raise
    place.move(row, nodes)
    place.workspace.indexer.count_written(len(nodes))
    if any(message.role == "user" or message.results for message in messages):
        _count_errors(place, messages)
    return nodes


def _split_asides(
    place: SessionPlace,
    messages: Sequence[Message],
    behind: Node | None,
    generation: str,
    metadata: Sequence[str],
) -> tuple[list[Draft], list[tuple[int, Message]]]:
    """What becomes a node, and the system messages that become system text, each with how many
    nodes are before it.
    """
    count = gate_counter(None).count_message
    drafts: list[Draft] = []
    asides: list[tuple[int, Message]] = []
    for message, beside in zip_longest(messages, metadata, fillvalue=""):
        assert isinstance(message, Message)
        if message.role in SYSTEM_ROLES and ((behind is None and not drafts) or place.is_text()):
            if beside:
                raise ChoiceError(
                    "a system message that becomes system text has no metadata; give a list "
                    "with one for each message, and None for this one"
                )
            asides.append((len(drafts), message))
        else:
            drafts.append(Draft(message, count(message), generation, beside))
    return drafts, asides


def _count_errors(place: SessionPlace, messages: Sequence[Message]) -> None:
    """Count results that tell of an error in the working state, if there is one."""
    state = place.state.working
    if state.is_empty:
        return
    counted = state.count_errors(messages)
    if counted != state:
        place.keep_working(counted)


def note_cited(place: SessionPlace, words: str) -> None:
    """Remember what an answer cites of the evidence that its request had."""
    if place.is_guest or not find_cited(words):
        return
    working = place.state.working
    learnt = learn_cited(working, place.state.offered_evidence, words)
    if learnt != working:
        place.keep_working(learnt)


def make_draft(message: Message, generation: str = "") -> Draft:
    """A message that becomes a node, with its tokens."""
    return Draft(message, gate_counter(None).count_message(message), generation)


def append_node(
    place: SessionPlace,
    new: NewNode,
    behind: Node | None,
    *,
    move: bool,
    seen: int | None = None,
    commits: bool = False,
) -> Node:
    """Write a node after any node. What `commits` is the text that was not committed."""
    try:
        row, node = place.store.growth.append_at(
            place.row, behind, new, now=place.now(), move=move, seen=seen, commits=commits
        )
    except Conflict as conflict:
        place.emit("conflict", expected=conflict.expected, found=conflict.found)
        raise
    place.move(row, [node])
    place.emit("appended", messages=1)
    return node


def commit_draft(place: SessionPlace) -> Node | None:
    """Make a node of the draft, if there is one."""
    text = place.draft_text
    if not text:
        return None
    draft = make_draft(Message("user", (Text(text),), place.row.agent))
    return append_node(place, NewNode(draft), place.path.end, move=True, commits=True)
