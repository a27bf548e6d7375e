"""What becomes of a session: it is forked, changed, archived and continued, undone, purged."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from loom.context import find_policy, policies
from loom.conversation.checked import check_flag
from loom.conversation.message import Conversation, Message, Tool
from loom.conversation.names import check_name
from loom.conversation.system_messages import SYSTEM_ROLES
from loom.engine.inputs import parse_head
from loom.engine.purging import what_remains
from loom.engine.session_state import remembered_values, text_values
from loom.engine.sessions.place import SessionPlace
from loom.errors import Unfinished
from loom.stores import NewSession, Node, SessionRow, StateValues


def create_fork(place: SessionPlace, at: str | None, title: str) -> tuple[SessionRow, Node | None]:
    """Create a session that shares the messages up to a node. Returns its row and that node."""
    node = place.path.end if at is None else place.node(at)
    identity, title = place.workspace.fresh_id(), title or place.row.title
    scope = place.workspace.scope
    return place.store.sessions.fork(scope, place.row, node, identity, title, place.now()), node


def list_inherited(place: SessionPlace) -> list[StateValues]:
    """What a fork has at hand of what this session has: the same path is read the same way."""
    versions = [text_values("version", name, chosen) for name, chosen in place.versions.items()]
    return [*versions, *place.state.copied_values()]


def switch_to(place: SessionPlace, to: str) -> None:
    """Make another node of the tree the current node."""
    node = place.node(to)
    place.move(place.store.sessions.switch(place.row, node, place.now()), [node])


def change_session(
    place: SessionPlace,
    *,
    title: str | None = None,
    archived: bool | None = None,
    model: str | None = None,
    system: str | None = None,
    tools: Iterable[Tool | Mapping[str, Any]] | None = None,
) -> None:
    """Change the title or the head of a session; archive it, or make it active again."""
    before = place.read_row().head
    head = _change_head(before, model, system, tools)
    status: Literal["active", "archived"] | None = None
    if archived is not None:
        check_flag("archived", archived)
        status = "archived" if archived else "active"
    remembered = place.state.remembered_options
    if model is not None and remembered.model is not None:
        place.keep_states(remembered_values(replace(remembered, model=None)))
    changed = head if head is not before else None
    row = place.store.sessions.change(
        place.row, now=place.now(), title=title, status=status, head=changed
    )
    place.move(row)


def _change_head(
    head: Conversation,
    model: str | None,
    system: str | None,
    tools: Iterable[Tool | Mapping[str, Any]] | None,
) -> Conversation:
    if model is not None:
        head = replace(head, model=check_name("model", model))
    if system is not None:
        head = replace(head, system=parse_head(system, None).system)
    if tools is not None:
        head = replace(head, tools=parse_head(None, tools).tools)
    return head


def create_successor(place: SessionPlace) -> SessionRow:
    """Create an empty session with the system text, tools and model of this one."""
    return place.store.sessions.create(
        replace(place.workspace.scope, agent=place.row.agent),
        NewSession(
            id=place.workspace.fresh_id(),
            title=f"Continue: {place.row.title}"[:200],
            head=place.row.head,
            origin=place.id,
        ),
        now=place.now(),
    )


def undo_epoch(place: SessionPlace) -> int:
    """Continue the epoch before the last one, with its policy if that ships. Returns its new
    number.
    """
    place.keep_states(place.state.unlimited_values())
    number, began = place.store.views.undo(place.row, place.path, place.now())
    place.store.summaries.retire(place.row, began, place.now())
    view = place.store.views.read_newest(place.row, place.path)
    if view and view.epoch.policy in policies():
        place.keep_states(*place.state.policy_values(find_policy(view.epoch.policy)))
    return number


def purge_session(place: SessionPlace, notes: bool) -> tuple[int, int]:
    """Delete for good what only this session contains."""
    check_flag("notes", notes)
    workspace, store = place.workspace, place.store
    gone, kept = store.sessions.purge(place.row, place.now(), notes)
    workspace.caches.clear()
    workspace.pulses.clear()
    workspace.recaller.forget()
    store.forget()
    remains = what_remains(store, place.row, workspace.snapshots)
    left_alone = store.snapshots.unproven(place.row)
    if not remains:
        store.sessions.purge_ended(place.row)
    place.emit("purged", gone=gone, kept=kept, remains=remains, left_alone=left_alone)
    if remains:
        raise Unfinished(place.id, tuple(remains))
    return gone, kept


def read_conversation(place: SessionPlace) -> Conversation:
    """Every message in its place, including system messages."""
    asides: dict[str, list[Message]] = {}
    for aside in place.store.sessions.on_path(place.row, place.path):
        asides.setdefault(aside.after, []).append(aside.message)
    said = list(asides.pop("", []))
    for node in place.path:
        said += [node.message] if node.message else []
        said += asides.get(node.id, [])
    lead = next((n for n, m in enumerate(said) if m.role not in SYSTEM_ROLES), len(said))
    head = place.row.head
    return replace(head, system=(*head.system, *said[:lead]), messages=tuple(said[lead:]))
