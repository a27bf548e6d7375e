"""Tasks as messages that a model reads.

Rules of this file:
- `execute` is what a user says. Thoughts, plans and calls of tools are what the agent says.
- Words of another agent are fenced: they name who says them, each line is quoted, and they never
  have the role of the model.
- Calls of a finished task are one line each. Their results are left out, unless the policy keeps
  them; then both travel as a call and its result.
- Calls and results of the task in flight always travel as calls and results: a model that never
  sees the answer of a tool would call it for ever.
- Every other action is left out, and so is a task that says nothing.
"""

from collections.abc import Iterable, Sequence

from loom.conversation.canonical import from_json, to_json, to_sorted_json
from loom.conversation.message import Message, Role, Text, ToolCall, ToolResult
from loom.conversation.names import flatten
from loom.memory.shortening import shorten_line
from loom.runtime import Task
from loom.runtime.messages import (
    REQUEST,
    TOOL_CALL,
    TOOL_RESULT,
    call_id,
    media_of,
    result_text,
    tool_arguments,
    tool_name,
)

EXECUTE, THINKING, PLANNING = "execute", "node.thinking", "node.planning"
DIRECT_MESSAGE = "node.message"
MAX_ARGUMENT_CHARS = 80  # of one argument of a call that is told in a line
MAX_ARGUMENTS_CHARS = 240  # of all of them
MAX_FENCED_CHARS = 4000  # of what another agent says, in one message
UNKNOWN_TOOL = "tool"  # the name of a tool whose result comes without its call
# What an agent does itself: of another agent, it is never told as the model's own.
_DEEDS = frozenset({THINKING, PLANNING, TOOL_CALL, TOOL_RESULT})
_DELEGATIONS = {
    "node.delegation_request": "Delegation request",
    "node.delegation_response": "Delegation response",
}


def convert_task(task: Task) -> dict[str, str] | None:
    """A finished task as one chat message, `{"role": …, "content": …}`. None if it is left out."""
    found = to_message(task)
    if found is None:
        return None
    return {"role": found.role, "content": found.text}


def to_message(task: Task) -> Message | None:
    """What a finished task says, as one message of words. None if it is left out."""
    match task.action:
        case "execute" | "node.request":
            return _say("user", task.content)
        case "node.thinking":
            return _say("assistant", task.content)
        case "node.tool_call":
            return _say("assistant", describe_call(task))
        case "node.planning":
            return _say("assistant", _describe_plan(task))
        case "node.message":
            return _say("user", fence("Message", task))
        case "node.delegation_request" | "node.delegation_response":
            return _say("user", fence(_DELEGATIONS[task.action], task))
    return None


def to_messages(
    tasks: Iterable[Task], *, keep_results: bool = False, reader: str = ""
) -> list[Message]:
    """What finished tasks say, in their order. A task that was executed is followed by what came of
    it.

    With a `reader`, what another agent thought or called is fenced, and direct messages for others
    are left out.
    """
    listed = [task for task in tasks if not _is_for_another(task, reader)]
    if reader:
        return _for_reader(listed, keep_results, reader)
    if keep_results:
        return _with_results(listed)
    made: list[Message] = []
    for task in listed:
        made += _finished_messages(task)
    return made


def _is_for_another(task: Task, reader: str) -> bool:
    targets = (task.target_agent, task.target_node_id)
    return bool(reader) and task.action == DIRECT_MESSAGE and reader not in targets


def _for_reader(tasks: Sequence[Task], keep_results: bool, reader: str) -> list[Message]:
    """The messages of runs of the reader's own tasks, with what others did fenced in between."""
    made: list[Message] = []
    own: list[Task] = []
    for task in tasks:
        is_foreign = task.source_agent not in ("", reader) and task.action in _DEEDS
        if not is_foreign:
            own.append(task)
            continue
        made += to_messages(own, keep_results=keep_results)
        own = []
        words = describe_call(task) if task.action == TOOL_CALL else task.content
        if task.action != TOOL_RESULT and words.strip():
            label = task.action.removeprefix("node.").replace("_", " ").capitalize()
            made.append(Message("user", (Text(fence(label, task, words)),)))
    return made + to_messages(own, keep_results=keep_results)


def to_current_message(task: Task) -> Message:
    """What the current task asks for, as the request. A task without content is told by its action
    and its parameters.
    """
    text = task.content
    if not text.strip():
        text = task.action
        if task.parameters:
            text = f"{task.action}: {to_sorted_json(task.parameters)}"
    return Message("user", (Text(text),))


def to_flight_messages(tasks: Sequence[Task]) -> list[Message]:
    """What happened in the task in flight: thoughts, and calls with their results.

    Calls that follow each other are one message, as a model makes them at once. A result without
    its call gets one.
    """
    made: list[Message] = []
    open_calls: dict[str, ToolCall] = {}
    names = {task.task_id: call_id(task) for task in tasks if task.action == TOOL_CALL}
    for task in _order_results(tasks):
        if task.action == TOOL_CALL and tool_name(task):
            call = ToolCall(call_id(task), tool_name(task), tool_arguments(task))
            open_calls[call.id] = call
            _add_call(made, call, task.content)
        elif task.action == TOOL_RESULT:
            _add_result(made, task, open_calls, names)
        elif task.action == REQUEST:
            made += _request_messages(task)
        else:
            made += _finished_messages(task)
    return made


def _order_results(tasks: Sequence[Task]) -> list[Task]:
    """The same, with each result after the call that it names, whatever the clocks of their agents
    say.
    """
    called = {call_id(task) for task in tasks if task.action == TOOL_CALL}
    made: list[Task] = []
    seen: set[str] = set()
    early: dict[str, list[Task]] = {}
    for task in tasks:
        name = call_id(task)
        if task.action == TOOL_RESULT and name in called - seen:
            early.setdefault(name, []).append(task)
            continue
        made.append(task)
        if task.action == TOOL_CALL:
            seen.add(name)
            made += early.pop(name, [])
    return made


def describe_call(task: Task) -> str:
    """The line that tells of a call: `[Calling read_file(path="data.txt")]`; `(...)` if it has no
    arguments.
    """
    name = tool_name(task)
    return f"[Calling {name}({_describe_arguments(tool_arguments(task))})]" if name else ""


def fence(label: str, task: Task, words: str = "") -> str:
    """What another agent says, as a quotation under a label. It is bounded, and says so."""
    words = words or task.content
    if not words.strip():
        return ""
    more = len(words) - MAX_FENCED_CHARS
    lines = [f"> {line}".rstrip() for line in words[:MAX_FENCED_CHARS].splitlines()]
    if more > 0:
        lines.append(f"[{more:,} more characters are in task {task.task_id}]")
    sender = name_agent(task.source_agent)
    return "\n".join((f"[{label} from {sender}, another agent; its words are quoted]", *lines))


def name_agent(name: str) -> str:
    """The name of an agent on one line, without signs that would end a label."""
    return " ".join(flatten(name).translate(_NO_BRACKETS).split()) or "an agent"


_NO_BRACKETS = str.maketrans("[]", "  ")


def _say(role: Role, text: str) -> Message | None:
    return Message(role, (Text(text),)) if text.strip() else None


def _finished_messages(task: Task) -> list[Message]:
    found = [to_message(task)]
    if task.action == EXECUTE:
        found.append(_say("assistant", _describe_outcome(task)))
    return [message for message in found if message is not None]


def _request_messages(task: Task) -> list[Message]:
    """What a user added while a task was carried out."""
    words = (Text(task.content),) if task.content.strip() else ()
    parts = (*words, *media_of(task))
    return [Message("user", parts)] if parts else []


def _describe_outcome(task: Task) -> str:
    """What came of a task that was executed; "" if nothing is known of it."""
    if task.error:
        return f"[The task failed: {task.error}]"
    if isinstance(task.result, str):
        return task.result
    return "" if task.result is None else to_sorted_json(task.result)


def _with_results(tasks: Sequence[Task]) -> list[Message]:
    """The same with calls and results as such. Each run of them is within one task, so the order in
    which they came is kept.
    """
    made: list[Message] = []
    run: list[Task] = []
    for task in tasks:
        if task.action in (TOOL_CALL, TOOL_RESULT, THINKING):
            run.append(task)
            continue
        made += to_flight_messages(run)
        run = []
        made += _finished_messages(task)
    return [*made, *to_flight_messages(run)]


def _add_call(made: list[Message], call: ToolCall, words: str) -> None:
    """Add a call: to the message before it, if that has calls that nothing has answered yet."""
    if made and made[-1].calls and not words:
        made[-1] = Message("assistant", (*made[-1].parts, call))
        return
    parts = (Text(words), call) if words else (call,)
    made.append(Message("assistant", parts))


def _add_result(
    made: list[Message], task: Task, open_calls: dict[str, ToolCall], names: dict[str, str]
) -> None:
    answered = _find_call(task, open_calls, names)
    if answered is None:
        answered = ToolCall(call_id(task), tool_name(task) or UNKNOWN_TOOL, tool_arguments(task))
        made.append(Message("assistant", (answered,)))
    open_calls.pop(answered.id, None)
    failed = task.parameters.get("is_error") is True or bool(task.error)
    result = ToolResult(answered.id, (Text(result_text(task)), *media_of(task)), failed)
    made.append(Message("tool", (result,)))


def _find_call(
    task: Task, open_calls: dict[str, ToolCall], names: dict[str, str]
) -> ToolCall | None:
    """The call that a result answers: the one that it names, else the first open one of its
    tool.
    """
    if call_id(task) != task.task_id:
        return open_calls.get(call_id(task))
    if task.parent in names:
        return open_calls.get(names[task.parent])
    name = tool_name(task)
    return next((call for call in open_calls.values() if name in ("", call.name)), None)


def _describe_plan(task: Task) -> str:
    """A plan: its words, or its goal and steps."""
    goal, steps = task.parameters.get("goal"), task.parameters.get("steps")
    lines = [task.content] if task.content else []
    if isinstance(goal, str) and goal:
        lines.append(f"Goal: {goal}")
    if isinstance(steps, list):
        lines += [f"{n}. {step}" for n, step in enumerate(steps, 1) if isinstance(step, str)]
    return "\n".join(("[Plan]", *lines)) if lines else ""


def _describe_arguments(arguments: str) -> str:
    try:
        given = from_json(arguments)
    except ValueError:
        given = arguments
    if given in ({}, "", None):
        return "..."
    if not isinstance(given, dict):
        return shorten_line(
            given if isinstance(given, str) else to_json(given), MAX_ARGUMENTS_CHARS
        )
    named = (
        f"{name}={shorten_line(to_json(value), MAX_ARGUMENT_CHARS)}"
        for name, value in given.items()
    )
    return shorten_line(", ".join(named), MAX_ARGUMENTS_CHARS)
