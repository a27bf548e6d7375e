"""Urgent events reach the working state: what others publish for an agent comes up as a pending
event in the next request of its session.
"""

from typing import Literal

from loom.context import Incident, Working
from loom.conversation.events import EventFilter
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError
from loom.runtime import Task
from loom.stores import SessionRow

EVENTS_SEEN = "events"  # the kind of the state that says up to which event a session has looked
URGENT_PRIORITY = 0.9  # of a direct message, from which on it is urgent
MAX_EVENTS_READ = 200


def bring_urgent_events(
    workspace: Workspace, row: SessionRow, working: Working, seen: int
) -> tuple[Working, int]:
    """The working state with urgent events for the session's agent that came after a place, and up
    to which place this looked.
    """
    label = workspace.store.tasks.label_of(workspace.scope, row.id) or ""
    wanted = EventFilter(target=row.agent, target_node=row.agent, session=label, is_open=True)
    home = workspace.bus.home
    found, upto = home.read_after(seen, wanted, workspace.now(), MAX_EVENTS_READ)
    for event in found:
        try:
            task = Task.from_json(event.data)
        except ChoiceError:  # damaged; the doctor tells of it
            continue
        urgency = find_urgency(task)
        if urgency is not None:
            working = working.happen(
                Incident(
                    event_id=task.task_id,
                    type=task.action,
                    summary=_summarize(task),
                    urgency=urgency,
                )
            )
    return working, upto if found else seen


def find_urgency(task: Task) -> Literal["high", "critical"] | None:
    """How urgent a task is: what its parameters say, else by the priority of a direct message."""
    said = task.parameters.get("urgency")
    if said == "high" or said == "critical":
        return "high" if said == "high" else "critical"
    if said is None and task.is_direct_message and task.priority >= URGENT_PRIORITY:
        return "high"
    return None


def _summarize(task: Task) -> str:
    """Who says what; in the words of the sender, named as such."""
    what = f'message from {task.source_agent}: "{task.content}"'
    if not task.is_direct_message:
        what = f"{task.action} of {task.source_agent or 'nobody'}: {task.content or task.parent}"
    return what
