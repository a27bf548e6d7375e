"""The memory of an agent, as tasks: what was recent, what was important, short summaries, and a
search across sessions.

The four layers are queries over one record: a task is stored once, and no layer holds a copy. A
session is a label of the caller's, matched exactly. The first three layers show one session; the
search is across all sessions of the agent's scope.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from weakref import finalize

from msgspec import Struct

from loom.conversation.canonical import to_sorted_json
from loom.conversation.checked import check_number, checks_arguments
from loom.engine.loom import Loom
from loom.engine.sessions import Session
from loom.engine.tasks import TaskEntry, leave_out_hidden
from loom.errors import ChoiceError, describe
from loom.memory.converter import describe_call
from loom.memory.importance import MIN_IMPORTANCE, check_importance, importance_of
from loom.memory.shortening import shorten_line
from loom.recall.hits import Hit
from loom.runtime import Task
from loom.runtime.messages import TOOL_CALL
from loom.runtime.threads import async_form

L1_TASKS = 50  # tasks that the first layer shows if nobody says how many: those of a request
L2_SCANNED_TASKS = 500  # of a session, the newest ones among which the important ones are found
SCANNED_FOR_SESSIONS = 500  # tasks of a label, the newest ones, whose sessions are known by them
MAX_SUMMARY_CHARS = 200  # of the parameters, and of the result
HITS_PER_TASK = 3  # that are asked for first: some may be messages that are no tasks
MAX_HITS = 2000  # among which tasks are looked for
_T = TypeVar("_T")


class TaskSummary(Struct, frozen=True, kw_only=True):
    """What a task was, in short; or a summary that was written of a stretch of the session.

    `parameters` and `result` are cut to 200 characters. `task_id` is empty for a written summary,
    and `result` holds its words.
    """

    task_id: str
    action: str
    parameters: str = ""
    result: str = ""
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    session_id: str | None = None
    kind: Literal["task", "summary"] = "task"


class LoomMemory:
    """The memory of an agent: tasks in four layers.

    Without a `Loom` it lives in memory only, and ends with the object.
    """

    def __init__(self, loom: Loom | None = None) -> None:
        if loom is not None and not isinstance(loom, Loom):
            raise ChoiceError(f"LoomMemory takes a Loom, or nothing; found {describe(loom)}")
        self._is_own = loom is None
        self.loom = loom or Loom.open(":memory:")
        if self._is_own:
            self._end = finalize(self, _close_own, self.loom)
            self._end.atexit = False  # what is in memory ends with the process

    def add_task(self, task: Task | Mapping[str, Any]) -> Task:
        """Add a task. One whose id is there already is not written again; what became of it is, if
        that is newer.
        """
        task = Task.of(task)
        check_importance(task)
        return self.loom.add_task(task).task

    @checks_arguments
    def get_l1_tasks(self, limit: int = L1_TASKS, session_id: str | None = None) -> list[Task]:
        """The newest tasks of a session, the oldest of them first. Without a label, those of the
        unnamed session.
        """
        return [entry.task for entry in self._list_newest(limit, session_id)]

    @checks_arguments
    def get_l2_tasks(self, limit: int = 10, session_id: str | None = None) -> list[Task]:
        """The important tasks of a session, the most important first; of equals, the newer
        first.
        """
        check_number("limit", limit, 1)
        return [entry.task for entry in self._list_important(session_id)[:limit]]

    @checks_arguments
    def get_l3_summaries(self, limit: int = 20, session_id: str | None = None) -> list[TaskSummary]:
        """Summaries of a session, the newest first: those that were written, then each task in
        short.
        """
        check_number("limit", limit, 1)
        written = [
            TaskSummary(
                task_id="",
                action="summary",
                result=item.text,
                importance=item.importance,
                session_id=session_id or None,
                kind="summary",
            )
            for session in self.find_sessions(session_id)
            for item in session.memory.summaries(limit)
        ]
        entries = _drop_equal(self._list_shown(limit * 4, session_id))
        return [*written, *(summarize_task(entry.task) for entry in entries)][:limit]

    @checks_arguments
    def get_tasks(self, ids: Sequence[str], session_id: str | None = None) -> list[Task]:
        """The tasks of these ids in a session, as they are now, in the order of the ids. Those that
        are gone or hidden are left out.
        """
        found = [self.loom.task(name) for name in ids]
        entries = [each for each in found if each is not None]
        shown = leave_out_hidden(self.loom, entries)
        return [each.task for each in shown if (each.task.session_id or "") == (session_id or "")]

    @checks_arguments
    def search_tasks(self, query: str, limit: int = 5, session_id: str | None = None) -> list[Task]:
        """The tasks that say most of a query, the best first, each once. Without a label, all
        sessions in scope are searched.
        """
        check_number("limit", limit, 1)
        found: dict[str, Task] = {}
        asked = limit * HITS_PER_TASK
        while True:  # what is no task may fill the first hits, so more are asked for
            hits = self._search(query, asked, session_id)
            for hit in hits:
                entry = self.loom.task_at(hit.session, hit.node)
                if entry is not None:
                    found.setdefault(entry.task.task_id, entry.task)
            if len(found) >= limit or len(hits) < asked or asked >= MAX_HITS:
                return list(found.values())[:limit]
            asked = min(asked * 4, MAX_HITS)

    def close(self) -> None:
        """Close the store, if it is this object's own."""
        if self._is_own:
            self._end.detach()
            self.loom.close()

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """What work returns, which may read the store, off the event loop."""
        return await self.loom.run_off_loop(work)

    def _list_newest(self, limit: int, session_id: str | None) -> list[TaskEntry]:
        """The newest tasks of a session, in their order."""
        check_number("limit", limit, 1)
        return self._list_shown(limit, session_id)[::-1]

    def _list_shown(self, limit: int, session_id: str | None) -> list[TaskEntry]:
        """The newest tasks of a session that requests may show, the newest first."""
        return leave_out_hidden(self.loom, self.loom.tasks(session_id=session_id, limit=limit))

    def _list_important(self, session_id: str | None) -> list[TaskEntry]:
        """The tasks of a session that are important and not forgotten, the most important first."""
        entries = self._list_shown(L2_SCANNED_TASKS, session_id)
        if not entries:
            return []
        used = self.loom.store.uses.read(self.loom.session(entries[0].session).row)
        important = [
            entry
            for entry in entries
            if importance_of(entry.task) > MIN_IMPORTANCE and entry.place not in used.forgotten
        ]
        important.sort(key=lambda entry: -round(importance_of(entry.task), 6))
        return _drop_equal(important)

    @checks_arguments
    def find_session(self, session_id: str | None = None) -> Session | None:
        """The session of a label that belongs to the agent of this memory, or to no agent if it has
        none; None if no task of its own named the label yet.
        """
        row = self.loom.store.tasks.session_of(self.loom.scope, session_id or "")
        return None if row is None else self.loom.session(row.id)

    def find_sessions(self, session_id: str | None) -> list[Session]:
        """The sessions of a label in scope. Without an agent, each agent may have one."""
        entries = self.loom.tasks(session_id=session_id, limit=SCANNED_FOR_SESSIONS)
        return [self.loom.session(name) for name in dict.fromkeys(e.session for e in entries)]

    def _search(self, query: str, limit: int, session_id: str | None) -> list[Hit]:
        if session_id is None:
            return self.loom.search(query, limit=limit)
        hits = [
            hit
            for session in self.find_sessions(session_id)
            for hit in session.search(query, limit=limit, shown=True)
        ]
        return sorted(hits, key=lambda hit: -hit.score)

    aadd_task = async_form(add_task)
    aget_tasks = async_form(get_tasks)
    aget_l1_tasks = async_form(get_l1_tasks)
    aget_l2_tasks = async_form(get_l2_tasks)
    aget_l3_summaries = async_form(get_l3_summaries)
    asearch_tasks = async_form(search_tasks)


def _drop_equal(entries: Sequence[TaskEntry]) -> list[TaskEntry]:
    """Tasks in their order; of those that say the same and came to the same, the first."""
    found: dict[tuple[str, str, str], TaskEntry] = {}
    for entry in entries:
        task = entry.task
        said = (task.action, to_sorted_json(task.parameters), describe_result(task))
        found.setdefault(said, entry)
    return list(found.values())


def _close_own(loom: Loom) -> None:
    """Close a store that nobody uses any more. The garbage collector calls this in any thread, also
    in one that holds a lock; so another thread does the work.
    """
    threading.Thread(target=loom.close, name="close-memory", daemon=True).start()


def summarize_task(task: Task) -> TaskSummary:
    """A task in short."""
    return TaskSummary(
        task_id=task.task_id,
        action=task.action,
        parameters=shorten_line(describe_parameters(task), MAX_SUMMARY_CHARS),
        result=shorten_line(describe_result(task), MAX_SUMMARY_CHARS),
        tags=find_tags(task),
        importance=importance_of(task),
        session_id=task.session_id,
    )


def find_tags(task: Task) -> tuple[str, ...]:
    """The tags of a task, as its metadata names them."""
    found = task.notes.get("tags")
    return tuple(tag for tag in found if isinstance(tag, str)) if isinstance(found, list) else ()


def describe_result(task: Task) -> str:
    """What came of a task, as a text."""
    if task.error:
        return f"failed: {task.error}"
    if task.result is None or isinstance(task.result, str):
        return task.result or ""
    return to_sorted_json(task.result)


def describe_parameters(task: Task) -> str:
    """What a task was given, as a text."""
    if task.content:
        return task.content
    if task.action == TOOL_CALL:
        return describe_call(task)
    return to_sorted_json(task.parameters) if task.parameters else ""
