"""A task as the message that its node holds, and back.

The words of a task are in the node, where a search finds them; the rest of it is in a record. What
the node says already is not said again there.
"""

import contextlib
from datetime import datetime
from typing import Any

import msgspec

from loom.conversation.canonical import from_json, to_json, to_sorted_json
from loom.conversation.message import Media, Message, Role, Text, ToolCall, ToolResult
from loom.errors import ChoiceError
from loom.runtime.task import DIRECT_MESSAGE, Task, TaskStatus

TOOL_CALL, TOOL_RESULT = "node.tool_call", "node.tool_result"
REQUEST = "node.request"  # what a user adds while a task is carried out
# Who says what; everything else is said by the agent.
_USER_ACTIONS = frozenset({"execute", DIRECT_MESSAGE, REQUEST})
_OUTCOME = ("status", "result", "error", "updated_at")
_OPEN_STATUSES = ("pending", "running")
_IN_NODE = "content_in_node"


def to_message(task: Task) -> Message:
    """What a task says, as a message: a call of a tool, a result of one, or words."""
    author = task.source_agent
    if task.action == TOOL_CALL and tool_name(task):
        call = ToolCall(call_id(task), tool_name(task), tool_arguments(task))
        words = (Text(task.content),) if task.content else ()
        return Message("assistant", (*words, call), author)
    if task.action == TOOL_RESULT:
        failed = task.parameters.get("is_error") is True or bool(task.error)
        result = ToolResult(call_id(task), (Text(result_text(task)),), failed, name=tool_name(task))
        return Message("tool", (result,), author)
    role: Role = "user" if task.action in _USER_ACTIONS else "assistant"
    return Message(role, (Text(task.content or _describe(task)),), author)


def tool_name(task: Task) -> str:
    """The tool that a task calls, or whose result it is."""
    return _first_text(task, "tool_name", "name")


def call_id(task: Task) -> str:
    """The id by which a call and its result belong together; the task's own if it names none."""
    return _first_text(task, "tool_call_id", "call_id") or task.task_id


def tool_arguments(task: Task) -> str:
    """The arguments of a call as JSON; "{}" if there are none."""
    for name in ("arguments", "tool_args", "args"):
        given = task.parameters.get(name)
        if isinstance(given, str):
            return given
        if given is not None:
            return to_sorted_json(given)
    return "{}"


def result_text(task: Task) -> str:
    """What a tool answered, as a text."""
    for given in (task.parameters.get("content"), task.parameters.get("result"), task.result):
        if isinstance(given, str):
            return given
        if given is not None:
            return to_sorted_json(given)
    return task.error or ""


def media_of(task: Task) -> tuple[Media, ...]:
    """The images and files of a request or of a result, as `parameters["media"]` has them."""
    given = task.parameters.get("media")
    if not isinstance(given, list):
        return ()
    found: list[Media] = []
    for each in given:
        with contextlib.suppress(msgspec.ValidationError, ChoiceError):
            found.append(msgspec.convert(each, Media))
    return tuple(found)


def write_task(task: Task, message: Message) -> tuple[str, str]:
    """The JSON of what a task is, and of what became of it."""
    data = task.to_dict()
    outcome = {name: data.pop(name) for name in _OUTCOME if name in data}
    if task.content and task.content == _words_in(message):
        del data["parameters"]["content"]
        data[_IN_NODE] = True
    return to_json(data), to_json(outcome)


def read_task(message: Message, data: str, outcome: str) -> Task:
    """A task from its node and its records."""
    fields: dict[str, Any] = from_json(data)
    if fields.pop(_IN_NODE, False):
        fields["parameters"] = {**fields.get("parameters", {}), "content": _words_in(message)}
    return Task.of({**fields, **(from_json(outcome) if outcome else {})})


def newer_outcome(known: Task, given: Task) -> str:
    """The JSON of what became of a task, if a delivery says something newer than is known; else "".

    Who delivers a task again may have made it anew, with a new time. So an end is only replaced by
    a later end, and a delivery that says nothing of an outcome changes nothing.
    """
    same = all(getattr(known, name) == getattr(given, name) for name in _OUTCOME[:3])
    says_nothing = given.status == "pending" and given.result is None and given.error is None
    if same or says_nothing or given.updated_at < known.updated_at:
        return ""
    if known.status not in _OPEN_STATUSES:
        is_later_end = given.updated_at > known.updated_at and given.status not in _OPEN_STATUSES
        if not is_later_end:
            return ""
    return write_outcome(given)


def change_outcome(
    known: Task, status: TaskStatus | None, result: Any, error: str | None, at: datetime
) -> Task:
    """A task with another outcome; what is None stays as it was, unless the status says otherwise:
    a task that completed has no error, and one that begins again has neither error nor result.
    """
    changes: dict[str, Any] = {"updated_at": at}
    if status is not None:
        changes["status"] = status
        if status == "completed" or status in _OPEN_STATUSES:
            changes["error"] = None
        if status in _OPEN_STATUSES:
            changes["result"] = None
    for name, value in (("result", result), ("error", error)):
        if value is not None:
            changes[name] = value
    changed = known.replace(**changes)
    if changed.status == "completed" and changed.error:
        raise ChoiceError("a task that completed has no error; give another status, or no error")
    return changed


def write_outcome(task: Task) -> str:
    """The JSON of what became of a task."""
    data = task.to_dict()
    if task.status == "completed":
        data.pop("error", None)
    return to_json({name: data[name] for name in _OUTCOME if name in data})


def _words_in(message: Message) -> str:
    for part in message.parts:
        inner = part.parts[0] if isinstance(part, ToolResult) and part.parts else part
        if isinstance(inner, Text):
            return inner.text
    return ""


def _first_text(task: Task, *names: str) -> str:
    found = (task.parameters.get(name) for name in names)
    return next((each for each in found if isinstance(each, str) and each), "")


def _describe(task: Task) -> str:
    """A task without content: its action, and its parameters as JSON."""
    if task.parameters:
        return f"{task.action}: {to_sorted_json(task.parameters)}"
    return task.action
