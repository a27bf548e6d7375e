"""What a session hands on: to a fresh window, to files beside the store, and to whoever continues
after a crash.
"""

from msgspec import Struct
from msgspec.structs import replace

from loom.context import Handoff, Working, open_calls
from loom.conversation.message import ToolCall
from loom.engine.pressure import hidden_names, make_handoff
from loom.engine.purging import keep_snapshot
from loom.engine.sessions.known_calls import walk_back
from loom.engine.sessions.place import SessionPlace
from loom.errors import StoreError
from loom.stores import Path


class ResumePoint(Struct, frozen=True):
    """What is needed to continue after a crash: a handoff, the working state, and calls that were
    made and never answered.

    `restored`: the store had no working state, and it came back from the files of the last
    snapshot.
    """

    handoff: Handoff
    working: Working
    pending: tuple[ToolCall, ...]
    restored: bool


def find_handoff(place: SessionPlace, path: Path, working: Working) -> tuple[Handoff | None, bool]:
    """The handoff with which the window last began again, and whether it is a new one.

    It is made again if what is hidden has changed since.
    """
    handoff, hidden = place.state.handoff, hidden_names(path, place.overlay(path))
    if handoff is None or hidden == place.state.hidden_from_handoff:
        return handoff, False
    again = hand_on(place, path, working, None)
    return replace(again, sprint=handoff.sprint, handoff_ts=handoff.handoff_ts), True


def hand_on(place: SessionPlace, path: Path, working: Working, before: Handoff | None) -> Handoff:
    """The handoff of this moment."""
    return make_handoff(place.overlay(path), working, before, place.now())


def write_snapshot(place: SessionPlace, handoff: Handoff, working: Working) -> None:
    """Write a handoff and the working state to files, if the store has a folder for them."""
    if not place.workspace.snapshots:
        return
    try:
        keep_snapshot(place.store, place.row, place.workspace.snapshots, working, handoff)
    # the store has it; a full disk elsewhere must not stop the agent
    except StoreError as error:
        reason = "the snapshot could not be written"
        place.emit("compressed", path="renewal", reason=reason, failures=(str(error),))


def find_resume_point(place: SessionPlace) -> ResumePoint:
    """What is needed to continue after a crash. If the store has no working state, it is restored
    from the last snapshot.
    """
    working, before, restored = place.state.working, place.state.handoff, False
    snapshots = place.workspace.snapshots
    found = None
    if snapshots and (working.is_empty or before is None):
        found = snapshots.read(place.id)
    if found:
        before = before or found[1]
        if working.is_empty and not found[0].is_empty:
            working, restored = place.keep_working(found[0]), True
    handoff = hand_on(place, place.path, working, before)
    newest = [node.message for node in walk_back(place.path) if node.message]
    pending = open_calls(reversed(newest))
    return ResumePoint(
        replace(handoff, sprint=before.sprint if before else 0), working, pending, restored
    )
