"""Where the context of a task comes from: what an agent remembers, and what happens on a bus."""

from collections import OrderedDict
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, Protocol

from msgspec import Struct

from loom.conversation.checked import check_number
from loom.errors import ChoiceError, describe
from loom.memory.converter import DIRECT_MESSAGE, PLANNING, THINKING
from loom.memory.event_ranking import event_words, rank_events
from loom.runtime import Task
from loom.runtime.messages import REQUEST, TOOL_CALL, TOOL_RESULT

L1_TASKS = 50
L2_TASKS = 10
MAX_READ_TASKS = 4096  # of a session, in search of what happened in the task in flight
MAX_REMEMBERED_TASKS = 64  # whose important tasks a source remembers
MAX_DIRECT_MESSAGES = 50
MAX_EVENTS = 10  # of others, that are shown at most
RECENT_EVENTS = 200  # among which these are found
# What happens while a task is carried out.
FLIGHT_ACTIONS = frozenset({THINKING, PLANNING, TOOL_CALL, TOOL_RESULT, REQUEST})
# What an agent may learn of others by the bus; results of their tools are not for it.
SHOWN_ACTIONS = frozenset({THINKING, PLANNING, TOOL_CALL, "node.error"})
READ_ACTIONS = tuple(sorted(SHOWN_ACTIONS | FLIGHT_ACTIONS))
NO_READER = (
    "no direct messages: nobody is named who reads them; give node_id= to EventBusContextSource, "
    "or a target_agent to the task"
)


class SourceFindings(Struct, frozen=True, kw_only=True):
    """What a source found for a task.

    `recent` and `flight` are in the order in which they happened, `messages`, `important` and
    `events` have the most important first.
    """

    recent: tuple[Task, ...] = ()  # L1
    important: tuple[Task, ...] = ()  # L2, without what is in L1
    flight: tuple[Task, ...] = ()  # what happened in the task itself
    messages: tuple[Task, ...] = ()  # direct messages to the reader
    events: tuple[Task, ...] = ()  # of other agents
    notes: tuple[str, ...] = ()


class ContextSource(Protocol):
    """Anything that finds something for a task."""

    async def collect(self, task: Task) -> SourceFindings: ...


class TaskMemory(Protocol):
    """What a source needs of a memory. Verbs may be awaitable."""

    def get_l1_tasks(self, limit: int, session_id: str | None) -> Any: ...
    def get_l2_tasks(self, limit: int, session_id: str | None) -> Any: ...


class MemoryContextSource:
    """What an agent remembers in the session of a task: L1, the newest tasks, then L2, the
    important ones that are older.
    """

    def __init__(
        self, memory: TaskMemory, *, l1_limit: int = L1_TASKS, l2_limit: int = L2_TASKS
    ) -> None:
        if not callable(getattr(memory, "get_l1_tasks", None)):
            raise ChoiceError(f"memory must have get_l1_tasks, found {describe(memory)}")
        self.memory = memory
        self.l1_limit = check_number("l1_limit", l1_limit, 1)
        self.l2_limit = check_number("l2_limit", l2_limit, 0)
        self._important: OrderedDict[tuple[str, str | None], list[str]] = OrderedDict()

    async def collect(self, task: Task) -> SourceFindings:
        """What is remembered for a task."""
        count, has_older = self.l1_limit, True
        flight: list[Task] = []
        rest: list[Task] = []
        while has_older and len(rest) <= self.l1_limit and count < MAX_READ_TASKS:
            count *= 2
            found = await _ask(self.memory, "get_l1_tasks", count, task.session_id)
            flight, rest = split_flight(task, found)
            has_older = len(found) >= count
        recent = rest[-self.l1_limit :]
        important: list[Task] = []
        if len(rest) > len(recent):
            important = await self._find_important(task, [*recent, *flight])
        return SourceFindings(
            recent=tuple(recent), important=tuple(important), flight=tuple(flight)
        )

    async def _find_important(self, task: Task, shown: Sequence[Task]) -> list[Task]:
        """The important tasks that are not shown otherwise, the most important first. Which ones is
        found once for a task; what they say is read each time, so nothing outlives a purge here.
        """
        if not self.l2_limit or not hasattr(self.memory, "get_l2_tasks"):
            return []
        ids = {task.task_id, *(each.task_id for each in shown)}
        key = (task.task_id, task.session_id)
        known = self._important.get(key)
        if known is not None:
            wanted = [name for name in known if name not in ids]
            return await _ask(self.memory, "get_tasks", wanted, task.session_id)
        limit = self.l2_limit + len(ids)
        found = await _ask(self.memory, "get_l2_tasks", limit, task.session_id)
        chosen = [each for each in found if each.task_id not in ids][: self.l2_limit]
        if hasattr(self.memory, "get_tasks"):
            self._important[key] = [each.task_id for each in chosen]
            while len(self._important) > MAX_REMEMBERED_TASKS:
                self._important.popitem(last=False)
        return chosen


class EventBusContextSource:
    """What happens on a bus: thoughts and calls of other agents, ranked by how much they matter for
    the task, and direct messages to the reader.

    The reader is `node_id`, else the `target_agent` of the task, else its `parameters["node_id"]`.
    """

    def __init__(
        self, event_bus: Any, *, node_id: str | None = None, limit: int = MAX_EVENTS
    ) -> None:
        if not callable(getattr(event_bus, "query_by_target", None)):
            raise ChoiceError(f"event_bus must have query_by_target, found {describe(event_bus)}")
        self.event_bus = event_bus
        self.node_id = node_id
        self.limit = check_number("limit", limit, 0)

    def find_reader(self, task: Task) -> str:
        """Who reads; "" if nobody is named."""
        named = task.parameters.get("node_id")
        return self.node_id or task.target_agent or (named if isinstance(named, str) else "")

    async def collect(self, task: Task) -> SourceFindings:
        """What a bus has for a task, in its session."""
        reader, label = self.find_reader(task), task.session_id
        ask = self.event_bus
        messages: list[Task] = []
        if reader:
            messages = await _ask(
                ask,
                "query_by_target",
                reader,
                reader,
                session_id=label,
                action=DIRECT_MESSAGE,
                limit=MAX_DIRECT_MESSAGES,
            )
        recent = await _ask(
            ask, "recent", session_id=label, action=READ_ACTIONS, limit=RECENT_EVENTS
        )
        of_task = await _ask(
            ask, "query_by_task", task.task_id, session_id=label, limit=MAX_READ_TASKS
        )
        # from the oldest on, in the order in which they were published
        newest = _ids(recent)
        older = [each for each in of_task if each.task_id not in newest]
        events = [*reversed(older), *reversed(recent)]
        flight = [
            each
            for each in split_flight(task, events)[0]
            if each.parent == task.task_id or each.node_id in ("", reader)
        ]
        of_others = self._select_others(task, events, reader, flight)
        return SourceFindings(
            flight=tuple(flight),
            messages=tuple(messages),
            events=tuple(rank_events(task, of_others, reader)[: self.limit]),
            notes=() if reader else (NO_READER,),
        )

    def _select_others(
        self, task: Task, events: Sequence[Task], reader: str, flight: Sequence[Task]
    ) -> list[Task]:
        own = {task.task_id, *(each.task_id for each in flight)}
        return [
            each
            for each in events
            if each.action in SHOWN_ACTIONS
            and each.task_id not in own
            and not (reader and each.node_id == reader)
            and event_words(each).strip()
        ]


def split_flight(task: Task, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """What happened in a task, and everything else but the task itself, both in their order.

    What names the task as its parent happened in it. So did what names no parent and came after it.
    Other tasks that came after it are left out: they are not its past.
    """
    at = next((n for n, each in enumerate(tasks) if each.task_id == task.task_id), None)
    flight: list[Task] = []
    rest: list[Task] = []
    for n, each in enumerate(tasks):
        if each.task_id == task.task_id:
            continue
        is_later = each.created_at > task.created_at if at is None else n > at
        belongs = each.parent == task.task_id or (is_later and not each.parent)
        if each.action in FLIGHT_ACTIONS and (belongs or each.parent in _ids(flight)):
            flight.append(each)
        elif at is None or n < at:
            rest.append(each)
    return flight, rest


def _ids(tasks: Sequence[Task]) -> set[str]:
    return {task.task_id for task in tasks}


def merge_collected(parts: Sequence[SourceFindings]) -> SourceFindings:
    """What several sources found, each task once: a direct message is one before it is part of L1,
    and what is remembered is not told as an event.
    """
    flight = _merge_flight(parts)
    messages = _drop_repeats(each for part in parts for each in part.messages)
    taken = _ids([*flight, *messages])
    recent = [
        each
        for each in _drop_repeats(each for part in parts for each in part.recent)
        if each.task_id not in taken
    ]
    taken |= _ids(recent)
    important = [
        each
        for each in _drop_repeats(each for part in parts for each in part.important)
        if each.task_id not in taken
    ]
    taken |= _ids(important)
    events = [
        each
        for each in _drop_repeats(each for part in parts for each in part.events)
        if each.task_id not in taken
    ]
    return SourceFindings(
        recent=tuple(recent),
        important=tuple(important),
        flight=tuple(flight),
        messages=tuple(messages),
        events=tuple(events),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _merge_flight(parts: Sequence[SourceFindings]) -> list[Task]:
    """What happened in a task, from all sources, in its order. One source alone knows the order
    best.
    """
    found = [part.flight for part in parts if part.flight]
    merged = _drop_repeats(each for flight in found for each in flight)
    if len(found) > 1:
        merged.sort(key=lambda each: each.created_at)
    return merged


def _drop_repeats(tasks: Any) -> list[Task]:
    return list({task.task_id: task for task in tasks}.values())


async def _ask(asked: Any, verb: str, *args: Any, **options: Any) -> list[Task]:
    """What a verb returns: its form for asynchronous programs, if there is one."""
    form = getattr(asked, f"a{verb}", None) or getattr(asked, verb)
    found = form(*args, **options)
    if isawaitable(found):
        found = await found
    return list(found)
