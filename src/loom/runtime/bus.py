"""`EventBus`: tasks that agents publish, and that other agents see.

Rules: an event is kept once for each id. Events are in the order in which they were published. The
history is bounded, but a direct message stays until it is acknowledged or expires. What has expired
is never seen again. Who publishes waits for no handler.
"""

import asyncio
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from loom.conversation.checked import check_number, checks_arguments
from loom.conversation.events import MAX_HISTORY_EVENTS, NOTICE, OPEN, EventFilter, EventRow
from loom.errors import ChoiceError, UnreadableWarning, describe
from loom.runtime.checks import check_label, to_milliseconds
from loom.runtime.home import EventHome, MemoryHome
from loom.runtime.subscription import Handler, Subscription
from loom.runtime.task import DIRECT_MESSAGE, Task
from loom.runtime.threads import async_form

DEFAULT_LIMIT = 50
Actions = str | Sequence[str] | None
_T = TypeVar("_T")


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class EventBus:
    """Events of one process, or of a project in a store (`Loom.bus`).

    Verbs that ask take a session: an event with a label is seen under that label only, and one
    without a label under every label. `session_id=None` sees only those without, and
    `every_session=True` sees all. Each verb has a form that begins with `a` for asynchronous
    programs.
    """

    def __init__(
        self,
        home: EventHome | None = None,
        *,
        history: int = MAX_HISTORY_EVENTS,
        now: Callable[[], int] = _milliseconds,
    ) -> None:
        """`history` is how many events are kept in this process, besides open direct messages;
        `home` is another place for them. `now` is a clock: milliseconds since 1970.
        """
        check_number("history", history)
        self.home: EventHome = MemoryHome(history) if home is None else home
        self._now = now
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    def __enter__(self) -> "EventBus":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def run_off_loop(self, work: Callable[[], _T]) -> _T:
        """Run work on the events in a thread, and wait for it without blocking the event loop."""
        return await asyncio.to_thread(work)

    def publish(self, task: Task | Mapping[str, Any]) -> bool:
        """Publish a task. Returns False if one of its id was published before: that one stays."""
        return self.publish_all([task]) == 1

    def publish_all(self, tasks: Iterable[Task | Mapping[str, Any]]) -> int:
        """Publish tasks in their order, all or none. Returns how many are new."""
        if isinstance(tasks, Task | Mapping | str | bytes) or not isinstance(tasks, Iterable):
            raise ChoiceError(f"publish_all takes a list of tasks, found {describe(tasks)}")
        now = self._now()
        return self.home.append([to_event(Task.of(task), now) for task in tasks], now)

    @checks_arguments
    def subscribe(
        self,
        handler: Handler,
        *,
        action: Actions = None,
        target: str = "",
        session_id: str | None = None,
        every_session: bool = False,
        since: Literal["now", "unread"] = "now",
        acknowledge: bool = False,
    ) -> Subscription:
        """Call `handler` with each event from now on, in order, in a thread of its own.

        With `since="unread"`, direct messages that were not acknowledged come first. With
        `acknowledge`, a direct message is acknowledged when the handler has returned. A handler
        that raises is reported as a warning. It may be a coroutine function: then it runs in the
        event loop that subscribed.
        """
        if since not in ("now", "unread"):
            raise ChoiceError(f"since must be now or unread, found {since!r}")
        wanted = _make_filter(session_id, every_session, action, target=target, target_node=target)
        start = 0
        if since == "now":
            start = self.home.last()
        else:
            wanted = _make_filter(
                session_id, every_session, action, target=target, target_node=target, is_open=True
            )
        made = Subscription(self.home, wanted, handler, self._now, start, acknowledge)
        self._subscriptions.add(made)
        return made

    @checks_arguments
    def query_by_target(
        self,
        target_agent: str = "",
        target_node_id: str = "",
        *,
        session_id: str | None = None,
        every_session: bool = False,
        action: Actions = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Task]:
        """The events for an agent or for a node: those with the highest priority first, of these
        the newest. Direct messages that were acknowledged are left out.
        """
        if not target_agent and not target_node_id:
            return []
        wanted = _make_filter(
            session_id,
            every_session,
            action,
            target=target_agent,
            target_node=target_node_id,
            is_open=True,
        )
        return self._to_tasks(self.home.find_urgent(wanted, self._now(), _check_limit(limit)))

    @checks_arguments
    def query_by_task(
        self,
        task_id: str,
        *,
        session_id: str | None = None,
        every_session: bool = False,
        action: Actions = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Task]:
        """The task of this id and those whose parent it is, the newest first."""
        wanted = _make_filter(session_id, every_session, action, task=task_id)
        return self._find(wanted, limit) if task_id else []

    @checks_arguments
    def query_by_node(
        self,
        node_id: str,
        *,
        session_id: str | None = None,
        every_session: bool = False,
        action: Actions = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Task]:
        """What comes from a node, the newest first: `parameters["node_id"]` of a task, else its
        source agent.
        """
        wanted = _make_filter(session_id, every_session, action, node=node_id)
        return self._find(wanted, limit) if node_id else []

    @checks_arguments
    def recent(
        self,
        *,
        session_id: str | None = None,
        every_session: bool = False,
        action: Actions = None,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Task]:
        """The newest events, the newest first."""
        return self._find(_make_filter(session_id, every_session, action), limit)

    @checks_arguments
    def inbox(
        self,
        target_agent: str,
        *,
        session_id: str | None = None,
        every_session: bool = False,
        limit: int = DEFAULT_LIMIT,
    ) -> list[Task]:
        """The direct messages for an agent, or for the node of this name, that were not
        acknowledged, in the order in which they were published.
        """
        if not target_agent:
            return []
        wanted = _make_filter(
            session_id,
            every_session,
            DIRECT_MESSAGE,
            target=target_agent,
            target_node=target_agent,
            is_open=True,
        )
        found, _ = self.home.read_after(0, wanted, self._now(), _check_limit(limit))
        return self._to_tasks(found)

    @checks_arguments
    def acknowledge(self, task_id: str) -> bool:
        """Acknowledge a direct message: nobody gets it again. Returns True for whoever is first,
        False if it was acknowledged before, has expired, or is not a direct message.
        """
        return bool(self.acknowledge_all([task_id]))

    @checks_arguments
    def acknowledge_all(self, task_ids: Sequence[str]) -> list[str]:
        """Acknowledge direct messages. Returns the ids of those that were open until now."""
        names = [check_label("task_id", name) for name in task_ids]
        return self.home.acknowledge(names, self._now()) if names else []

    @checks_arguments
    def wait_for_event(self, seconds: float = 1.0) -> bool:
        """Wait until something is published, at most so long. Returns whether something was."""
        return self.home.wait(self.home.last(), seconds)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in list(self._subscriptions):
            subscription.close()
        self.home.close()

    def _find(self, wanted: EventFilter, limit: int) -> list[Task]:
        return self._to_tasks(self.home.find(wanted, self._now(), _check_limit(limit)))

    @staticmethod
    def _to_tasks(events: Iterable[EventRow]) -> list[Task]:
        made = []
        for event in events:
            try:
                made.append(Task.from_json(event.data))
            except ChoiceError as error:
                warnings.warn(
                    UnreadableWarning(f"event {event.id} cannot be read and is left out: {error}"),
                    stacklevel=3,
                )
        return made

    apublish = async_form(publish)
    apublish_all = async_form(publish_all)
    aquery_by_target = async_form(query_by_target)
    aquery_by_task = async_form(query_by_task)
    aquery_by_node = async_form(query_by_node)
    arecent = async_form(recent)
    ainbox = async_form(inbox)
    aacknowledge = async_form(acknowledge)
    aacknowledge_all = async_form(acknowledge_all)
    await_for_event = async_form(wait_for_event)


def to_event(task: Task, now: int) -> EventRow:
    """A task as a home keeps it. A direct message lives from when it was made, or from now on if
    that is in the future: clocks differ.
    """
    created = to_milliseconds(task.created_at)
    expires = None
    if task.ttl_seconds is not None:
        expires = min(created, now) + int(1000 * task.ttl_seconds)
    return EventRow(
        id=task.task_id,
        action=task.action,
        source=task.source_agent,
        node=check_label("Task.parameters.node_id", task.node_id),
        target=task.target_agent,
        target_node=check_label("Task.parameters.target_node_id", task.target_node_id),
        parent=check_label("Task.parameters.parent_task_id", task.parent),
        session=task.session_id or "",
        priority=task.priority,
        created=created,
        expires=expires,
        state=OPEN if task.is_direct_message else NOTICE,
        data=task.to_json(),
    )


def _make_filter(
    session_id: str | None, every_session: bool, action: Actions, **wanted: Any
) -> EventFilter:
    actions = (action,) if isinstance(action, str) else tuple(action or ())
    for name in (*actions, *(each for each in wanted.values() if isinstance(each, str))):
        check_label("a name", name)
    session = None if every_session else check_label("session_id", session_id or "")
    return EventFilter(actions=actions, session=session, **wanted)


def _check_limit(limit: int) -> int:
    return check_number("limit", limit)
