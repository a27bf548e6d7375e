"""Tasks of agents in a store: added, found again, and what became of them.

What a task says is a node in the session of its label. Status, result and error are records beside
it; the newest holds.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from loom.budget.counting import gate_counter
from loom.engine.workspace import Workspace
from loom.errors import ChoiceError, shorten
from loom.runtime.checks import check_label, from_milliseconds, to_milliseconds
from loom.runtime.messages import (
    change_outcome,
    newer_outcome,
    read_task,
    to_message,
    write_outcome,
    write_task,
)
from loom.runtime.task import Task, TaskStatus
from loom.stores import NewTask, Overlay, StoredTask, damage_error


class TaskEntry(Struct, frozen=True):
    """A task in a store: the ids of its session and its node, the session's agent, and the tokens
    of what it says. `place` orders tasks by when they came.
    """

    task: Task
    session: str
    node: str
    agent: str
    tokens: int
    place: int


def add_task(workspace: Workspace, task: Task) -> TaskEntry:
    """Write a task, or find it if it is there already. What became of it is written if it is
    newer.
    """
    message = to_message(task)
    data, outcome = write_task(task, message)
    new = NewTask(
        id=task.task_id,
        label=task.session_id or "",
        message=message,
        tokens=gate_counter(None).count_message(message),
        data=data,
        outcome=outcome,
        created=max(to_milliseconds(task.created_at), 0),
    )
    stored, is_new = workspace.store.tasks.add(workspace.scope, new, workspace.now())
    if is_new:
        workspace.indexer.count_written(1)
        workspace.emit("appended", stored.session, stored.node.id, messages=1, task=task.task_id)
        return _to_entry(stored)
    return _settle(workspace, stored, task)


def find_task(
    workspace: Workspace, task_id: str, session_id: str | None = None
) -> TaskEntry | None:
    """The task of this id in scope, or in a session; the newest, if several sessions have one."""
    stored = workspace.store.tasks.get(workspace.scope, *_check_names(task_id, session_id))
    return None if stored is None else _to_entry(stored)


def _check_names(task_id: str, session_id: str | None) -> tuple[str, str | None]:
    label = None if session_id is None else check_label("session_id", session_id)
    return check_label("task_id", task_id), label


def list_tasks(
    workspace: Workspace, session_id: str | None, every_session: bool, limit: int
) -> list[TaskEntry]:
    """The newest tasks of a session, or of all of them, the newest first."""
    label = None if every_session else check_label("session_id", session_id or "")
    found = workspace.store.tasks.list_newest(workspace.scope, label, limit)
    return list(map(_to_entry, found))


def leave_out_hidden(workspace: Workspace, entries: Sequence[TaskEntry]) -> list[TaskEntry]:
    """The tasks that requests may show: without those that a person excluded or pruned."""
    hidden = {name: _find_hidden(workspace, name) for name in {each.session for each in entries}}
    return [each for each in entries if not hidden[each.session](each.place)]


def _find_hidden(workspace: Workspace, session: str) -> Callable[[int], bool]:
    """Whether the node of a number is hidden in a session."""
    sessions = workspace.store.sessions
    row = sessions.get(workspace.scope, session)
    overlay = Overlay.read(sessions.path(row), row.tree, "dialogue", {})
    end = overlay.path.end
    last = 0 if end is None else end.seq
    hidden = {seq for seq, _, _ in overlay.path.names_at(list(overlay.hidden)).values()}
    return lambda seq: seq > last or seq in hidden


def find_task_at(workspace: Workspace, session: str, node: str) -> TaskEntry | None:
    """The task at a node of a session."""
    for what, name in (("session", session), ("node", node)):
        check_label(what, name)
    stored = workspace.store.tasks.at(workspace.scope, session, node)
    return None if stored is None else _to_entry(stored)


def update_task(
    workspace: Workspace,
    task_id: str,
    session_id: str | None,
    status: TaskStatus | None,
    result: Any,
    error: str | None,
) -> TaskEntry:
    """Write what became of a task; what is None stays as it was."""
    name, label = _check_names(task_id, session_id)
    found = workspace.store.tasks.get_all(workspace.scope, name, label)
    if not found:
        raise ChoiceError(
            f"there is no task {shorten(task_id)!r} in project {workspace.scope.project!r}"
        )
    if len(found) > 1:
        where = ", ".join(f"{each.label!r} of agent {each.agent!r}" for each in found[:4])
        raise ChoiceError(
            f"task {shorten(task_id)!r} is in several sessions ({where}); give session_id, or "
            "open the store with agent"
        )
    stored = found[0]
    while True:
        known = _to_entry(stored).task
        now = max(from_milliseconds(workspace.now()), known.updated_at)
        changed = change_outcome(known, status, result, error, now)
        if _put(workspace, stored, write_outcome(changed)):
            return _to_entry(_again(workspace, stored))
        stored = _again(workspace, stored)


def _settle(workspace: Workspace, stored: StoredTask, task: Task) -> TaskEntry:
    """Write what a task that was there already says of its outcome, unless that is older."""
    known = _to_entry(stored).task
    if (known.action, known.parameters.get("content")) != (
        task.action,
        task.parameters.get("content"),
    ):
        raise ChoiceError(
            f"there is a task {shorten(task.task_id)!r} with other words already; give this one "
            "another id"
        )
    while outcome := newer_outcome(_to_entry(stored).task, task):
        is_written = _put(workspace, stored, outcome)
        stored = _again(workspace, stored)
        if is_written:
            break
    return _to_entry(stored)


def _put(workspace: Workspace, stored: StoredTask, outcome: str) -> bool:
    return workspace.store.tasks.put_outcome(workspace.scope, stored, outcome, workspace.now())


def _again(workspace: Workspace, stored: StoredTask) -> StoredTask:
    found = workspace.store.tasks.get(workspace.scope, stored.id, stored.label)
    if found is None:
        raise ChoiceError(f"task {shorten(stored.id)!r} was purged meanwhile")
    return found


def _to_entry(stored: StoredTask) -> TaskEntry:
    assert stored.node.message is not None
    try:
        task = read_task(stored.node.message, stored.data, stored.outcome)
    except (ValueError, TypeError, AttributeError, ChoiceError):
        raise damage_error(f"task {stored.id}") from None
    return TaskEntry(
        task, stored.session, stored.node.id, stored.agent, stored.node.tokens, stored.node.seq
    )
