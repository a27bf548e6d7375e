"""Events between agents as they are kept: columns to look for, and the event as JSON.

Whatever the home, the same events are seen: `EventFilter.takes` says which, and `sort_urgent` in
which order. Times are milliseconds since 1970.
"""

from collections.abc import Iterable

from msgspec import Struct

from loom.conversation.canonical import from_json, is_sendable

# What became of an event. Only a direct message that nobody acknowledged is open.
OPEN, NOTICE, ACKNOWLEDGED, EXPIRED = 0, 1, 2, 3
MAX_HISTORY_EVENTS = 1000  # that a home keeps, besides open ones
FOUND_BY = ("id", "target", "target_node", "node", "parent")  # columns that are looked for
MAX_COLUMN_CHARS = 400  # of a name that is looked for
MAX_REMEMBERED_IDS = 100_000  # by which an event that comes again is known


class EventRow(Struct, frozen=True, kw_only=True):
    """An event. `node` is where it comes from, `parent` the task that it belongs to, `session` the
    label of a session ("" for none). It is not seen after `expires`.
    """

    id: str
    action: str
    source: str = ""
    node: str = ""
    target: str = ""
    target_node: str = ""
    parent: str = ""
    session: str = ""
    priority: float = 0.5
    created: int = 0
    expires: int | None = None
    state: int = NOTICE
    data: str = ""
    seq: int = 0

    def has_expired(self, now: int) -> bool:
        return self.expires is not None and now > self.expires


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events are asked for. What is empty is not looked at.

    An event is for a target if it names the agent or the node. It belongs to a task that it is, or
    that is its parent. `session` None means every session; otherwise an event with a label is seen
    under that label only, and one without under every label.
    """

    target: str = ""
    target_node: str = ""
    task: str = ""
    node: str = ""
    actions: tuple[str, ...] = ()
    session: str | None = ""
    is_open: bool = False

    def names(self) -> list[tuple[str, str]]:
        """The columns to look at, each with what it must hold: what one of them holds is asked
        for, unless `takes` says otherwise.
        """
        if self.task:
            return [("id", self.task), ("parent", self.task)]
        names = (
            ("target", self.target),
            ("target_node", self.target_node),
            ("node", self.node),
        )
        return [(column, name) for column, name in names if name]

    def takes(self, event: EventRow) -> bool:
        """Whether an event that has not expired is asked for."""
        return (
            self._takes_target(event)
            and (not self.task or self.task in (event.id, event.parent))
            and (not self.node or self.node == event.node)
            and (not self.actions or event.action in self.actions)
            and (self.session is None or event.session in ("", self.session))
            and (not self.is_open or event.state in (OPEN, NOTICE))
        )

    def _takes_target(self, event: EventRow) -> bool:
        if not (self.target or self.target_node):
            return True
        is_agent = bool(self.target) and event.target == self.target
        is_node = bool(self.target_node) and event.target_node == self.target_node
        return is_agent or is_node


def check_event(event: EventRow) -> None:
    """Raises ValueError if the columns of an event are not those of the task in its data."""
    task = from_json(event.data)
    if not isinstance(task, dict):
        raise ValueError("it is not a task")
    said = {
        "task_id": event.id,
        "action": event.action,
        "source_agent": event.source,
        "target_agent": event.target,
        "session_id": event.session,
    }
    for name, column in said.items():
        if task.get(name, "") != column:
            raise ValueError(f"its {name} is {task.get(name, '')!r:.80} and {column!r:.80}")
    columns = [event.id, event.action, event.node, event.target_node, event.parent]
    for text in (*columns, event.source, event.target, event.session):
        if len(text) > MAX_COLUMN_CHARS or "\0" in text or not is_sendable(text):
            raise ValueError("it has a name that no column holds")
    if not event.id or event.state not in (OPEN, NOTICE, ACKNOWLEDGED, EXPIRED):
        raise ValueError(f"its state is {event.state}")


def sort_urgent(events: Iterable[EventRow], limit: int) -> list[EventRow]:
    """The most urgent first, then the newest."""
    ordered = sorted(events, key=lambda each: (each.priority, each.created, each.seq))
    return ordered[::-1][:limit]
