"""A task: what an agent is asked, does, thinks or says to another agent, as one value."""

from collections.abc import Mapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Literal, Self, cast, get_args

from msgspec import Struct, field
from msgspec.structs import asdict, force_setattr, replace

from loom.conversation.canonical import from_json, to_json
from loom.conversation.checked import choose
from loom.conversation.names import MAX_NAME_CHARS, plain_name
from loom.errors import ChoiceError, describe
from loom.runtime.checks import check_label, check_time, copy_json, read_time, refuse, write_time

TaskStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
STATUSES: tuple[TaskStatus, ...] = get_args(TaskStatus)
DIRECT_MESSAGE = "node.message"
DEFAULT_PRIORITY = 0.5
MAX_TTL_SECONDS = 10**10  # some 300 years


def _fresh_task_id() -> str:
    return f"task-{token_hex(10)}"


class Task(Struct, frozen=True, kw_only=True):
    """What an agent is asked, does, thinks or says to another agent.

    `parameters`, `result` and `metadata` are values that JSON can express. They are copied when the
    task is made. `session_id` is a label of the caller's. Times are UTC, in whole milliseconds.
    A direct message (`node.message`) names its sender, its target and its content.
    """

    action: str
    parameters: dict[str, Any] = field(default_factory=dict)
    # Made if it is not given.
    task_id: str = field(default_factory=_fresh_task_id)
    # A label of the caller's, matched exactly. None, or an empty text: the unnamed session.
    session_id: str | None = None
    source_agent: str = ""
    target_agent: str = ""
    status: TaskStatus = "pending"
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    # As `created_at`, if it is not given.
    updated_at: datetime = cast(datetime, None)
    result: Any = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    parent_task_id: str | None = None

    def __post_init__(self) -> None:
        for name, value in _checked_fields(self).items():
            force_setattr(self, name, value)
        for name in ("metadata", "parent_task_id"):
            _refuse_both(self, name)
        if self.is_direct_message:
            _check_direct_message(self)

    @classmethod
    def of(cls, given: "Task | Mapping[str, Any]") -> Self:
        """The task itself, or one made from a mapping, such as the JSON of a task. Times may be
        texts of ISO 8601.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ChoiceError(
                f"expected a Task or a mapping with its fields, found {describe(given)}"
            )
        names = cls.__struct_fields__
        fields = {choose("a field of Task", name, names): each for name, each in given.items()}
        if "action" not in fields:
            raise refuse("Task.action", "a text", None)
        for name in ("created_at", "updated_at"):
            if isinstance(fields.get(name), str):
                fields[name] = read_time(f"Task.{name}", fields[name])
        return cls(**fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A task from its JSON."""
        try:
            found = from_json(text)
        except ValueError as error:
            raise ChoiceError(f"a task cannot be read: {error}") from None
        return cls.of(found)

    def to_dict(self) -> dict[str, Any]:
        """The task as plain values of JSON, without the fields that say nothing."""
        made = asdict(self)
        for name, each in asdict(self).items():
            if each is None or (name != "result" and each in ("", {})):
                del made[name]
            elif name in ("parameters", "metadata", "result"):
                made[name] = copy_json(name, each)
        for time in ("created_at", "updated_at"):
            made[time] = write_time(made[time])
        return made

    def to_json(self) -> str:
        """The task as JSON."""
        return to_json(self.to_dict())

    def replace(self, **changes: Any) -> Self:
        """The same task with some fields changed."""
        return replace(self, **changes)

    @property
    def content(self) -> str:
        """The text of `parameters["content"]`, or an empty one."""
        found = self.parameters.get("content")
        return found if isinstance(found, str) else ""

    @property
    def is_direct_message(self) -> bool:
        """Whether it is a message from one agent to another."""
        return self.action == DIRECT_MESSAGE

    @property
    def node_id(self) -> str:
        """The node that it comes from: `parameters["node_id"]`, else its source agent."""
        return _text_in(self, "node_id") or self.source_agent

    @property
    def target_node_id(self) -> str:
        """The node that a direct message is for, if it names one."""
        return _text_in(self, "target_node_id")

    @property
    def parent(self) -> str:
        """The id of the task that it belongs to, from where it was given."""
        return self.parent_task_id or _text_in(self, "parent_task_id")

    @property
    def notes(self) -> dict[str, Any]:
        """Its metadata, from where it was given: on the task or in `parameters`."""
        found = self.metadata or self.parameters.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def priority(self) -> float:
        """The priority of a direct message: 0 to 1, 0.5 if it names none."""
        found = self.parameters.get("priority") if self.is_direct_message else None
        return DEFAULT_PRIORITY if found is None else float(found)

    @property
    def ttl_seconds(self) -> float | None:
        """How long a direct message is seen after it was made; None means for ever."""
        found = self.parameters.get("ttl_seconds") if self.is_direct_message else None
        return None if found is None else float(found)


def _checked_fields(task: Task) -> dict[str, Any]:
    """The fields of a task as they are kept: copied, and in one form."""
    made: dict[str, Any] = {}
    for name in ("action", "task_id"):
        made[name] = _check_name(f"Task.{name}", getattr(task, name))
        if not made[name]:
            raise refuse(f"Task.{name}", "a text that is not empty", made[name])
    for name in ("source_agent", "target_agent"):
        made[name] = _check_name(f"Task.{name}", getattr(task, name))
    for name in ("session_id", "parent_task_id"):
        given = getattr(task, name)
        made[name] = None if given is None else check_label(f"Task.{name}", given) or None
    made["status"] = choose("Task.status", task.status, STATUSES)
    made["created_at"] = check_time("Task.created_at", task.created_at)
    made["updated_at"] = made["created_at"]
    if task.updated_at is not None:
        made["updated_at"] = check_time("Task.updated_at", task.updated_at)
    for name in ("parameters", "metadata"):
        made[name] = _copy_object(f"Task.{name}", getattr(task, name))
    for name in ("node_id", "target_node_id", "parent_task_id"):  # names, shown next to words
        if isinstance(made["parameters"].get(name), str):
            _check_name(f"Task.parameters.{name}", made["parameters"][name])
    made["result"] = copy_json("Task.result", task.result)
    if task.error is not None and not isinstance(task.error, str):
        raise refuse("Task.error", "a text", task.error)
    return made


def _check_name(place: str, given: object) -> str:
    """A text of one line, which is shown in lists."""
    text = check_label(place, given)
    if plain_name(text) != text:
        expected = f"a text of one line with at most {MAX_NAME_CHARS} characters"
        raise refuse(place, expected, text)
    return text


def _copy_object(place: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise refuse(place, "an object of JSON", given)
    return cast(dict[str, Any], copy_json(place, given))


def _refuse_both(task: Task, name: str) -> None:
    """Refuse what is said on the task and in its parameters: one of the two would be lost."""
    if getattr(task, name) and task.parameters.get(name):
        raise ChoiceError(
            f"Task.{name} and Task.parameters.{name} are both given; give it in one of the two"
        )


def _check_direct_message(task: Task) -> None:
    """Refuse a direct message without a sender, a target or words, or with a wrong field."""
    for name in ("source_agent", "target_agent"):
        if not getattr(task, name):
            raise refuse(f"Task.{name}", f"an agent, because {DIRECT_MESSAGE} needs one", None)
    given = task.parameters
    content = given.get("content")
    if not isinstance(content, str) or not content.strip():
        raise refuse("Task.parameters.content", "the text of the message", content)
    _check_number("priority", given.get("priority"), 1)
    _check_number("ttl_seconds", given.get("ttl_seconds"), MAX_TTL_SECONDS)
    for name in ("target_node_id", "parent_task_id"):
        if given.get(name) is not None:
            check_label(f"Task.parameters.{name}", given[name])
    metadata = given.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise refuse("Task.parameters.metadata", "an object of JSON", metadata)


def _check_number(name: str, given: object, most: int) -> None:
    if given is None:
        return
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= cast(float, given) <= most:
        raise refuse(f"Task.parameters.{name}", f"a number from 0 to {most:,}", given)


def _text_in(task: Task, name: str) -> str:
    found = task.parameters.get(name)
    return found if isinstance(found, str) else ""
