"""Tools with which a model looks into its memory: the four layers, one door to all of them, and the
tools of `loom.tools()`.

All are in one table, each under one name. A session is a label, matched exactly; the one that
`MemoryTools` was made for, if a call names none. The fourth layer is across sessions, unless a call
names one. A session that nobody wrote to has an empty memory.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct

from loom.conversation.canonical import to_json
from loom.conversation.checked import check_text
from loom.conversation.message import Text, Tool, ToolCall
from loom.engine.tools import TOOLS as SESSION_TOOLS
from loom.engine.tools import answer_recall, carry_out, make_tools, read_arguments
from loom.engine.tools import tools as session_tools
from loom.errors import ChoiceError, describe, shorten
from loom.memory.importance import importance_of
from loom.memory.loom_memory import (
    LoomMemory,
    TaskSummary,
    describe_parameters,
    describe_result,
    find_tags,
)
from loom.memory.shortening import shorten_line
from loom.runtime import Task

MAX_LIMIT = 50
L1_LIMIT, L2_LIMIT, L3_LIMIT, L4_LIMIT = 10, 10, 20, 5  # if a call does not say how many
STATEMENT_CHARS, RESULT_CHARS = 50, 100  # of what L2 and L4 tell of a task
SUMMARY_CHARS = 50  # of a result, in L3
MAX_TAGS = 3
MAX_VALUE_CHARS = 4000  # of one text of a task that L1 shows
MAX_VALUES = 100  # of one list
# Tools that only read: in a session that nobody wrote to, they find nothing.
READING = ("recall", "search_context")

_Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="The most items to return.")]
_Session = Annotated[
    str, Meta(description="The label of the session. Without it, the current session.")
]
_AnySession = Annotated[
    str, Meta(description="The label of one session. Without it, all sessions.")
]


class _QueryL1(Struct, frozen=True, forbid_unknown_fields=True):
    limit: _Limit | None = None
    session_id: _Session | None = None


class _QueryL2(_QueryL1, frozen=True, forbid_unknown_fields=True):
    pass


class _QueryL3(_QueryL1, frozen=True, forbid_unknown_fields=True):
    pass


class _QueryL4(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="Words to search for.")]
    limit: _Limit | None = None
    session_id: _AnySession | None = None


class _QueryMemory(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description="Words to search for.")] | None = None
    layer: (
        Annotated[
            Literal["auto", "l1", "l2", "l3", "l4"],
            Meta(
                description="auto: this session first, then all sessions; l1: recent; "
                "l2: important; l3: summaries; l4: all sessions."
            ),
        ]
        | None
    ) = None
    limit: _Limit | None = None
    session_id: _Session | None = None


QUERIES: dict[str, tuple[type[Struct], str]] = {
    "query_l1_memory": (_QueryL1, "The newest tasks of a session, in full."),
    "query_l2_memory": (_QueryL2, "The most important tasks of a session, in a line each."),
    "query_l3_memory": (_QueryL3, "Short summaries of a session, the newest first."),
    "query_l4_memory": (_QueryL4, "Search the tasks of all sessions by what they say."),
    "query_memory": (_QueryMemory, "Look into the memory: by words, or one layer of it."),
}
TOOLS = {**QUERIES, **SESSION_TOOLS}
Items = list[dict[str, Any]]


class MemoryTools:
    """Runs the tools with which a model looks into a memory.

    `session_id` is the label of the session that calls are about if they name none. `recall` finds
    what a request left out under a handle, as `TaskContextManager.recall` does; the session is
    asked if it raises `ChoiceError`.
    """

    def __init__(
        self,
        memory: LoomMemory,
        *,
        session_id: str | None = None,
        recall: Callable[[str], str] | None = None,
    ) -> None:
        if not isinstance(memory, LoomMemory):
            raise ChoiceError(f"MemoryTools takes a LoomMemory, found {describe(memory)}")
        self.memory, self._recall = memory, recall
        self.session_id = None if session_id is None else check_text("session_id", session_id)

    def tools(self) -> tuple[Tool, ...]:
        """The tools, as any provider takes them."""
        return (*make_tools(QUERIES), *session_tools())

    async def execute(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """Run a tool: a list of items from `query_…`, a text from the other tools.

        Raises `ChoiceError` for a tool or an argument that is wrong.
        """
        call = _make_call(name, arguments)
        return await self.memory.run_off_loop(lambda: self._run(call))

    def _run(self, call: ToolCall) -> Items | str:
        if call.name in SESSION_TOOLS:
            return self._use_session(call)
        match read_arguments(call, QUERIES[call.name][0]):
            case _QueryL4() as asked:
                return self._search(asked.query, asked.limit or L4_LIMIT, asked.session_id)
            case _QueryMemory() as asked:
                return self._query(asked)
            case _QueryL2() as asked:
                return self._list_important(asked.limit, self._label(asked.session_id))
            case _QueryL3() as asked:
                return self._list_summaries(asked.limit, self._label(asked.session_id))
            case _QueryL1() as asked:
                return self._list_newest(asked.limit, self._label(asked.session_id))
        raise AssertionError(call.name)

    def _label(self, given: str | None) -> str | None:
        return self.session_id if given is None else given

    def _list_newest(self, limit: int | None, label: str | None) -> Items:
        tasks = self.memory.get_l1_tasks(limit or L1_LIMIT, label)
        return [_cut_texts(task.to_dict()) for task in tasks]

    def _list_important(self, limit: int | None, label: str | None) -> Items:
        return [
            {**_state(task), "importance": importance_of(task)}
            for task in self.memory.get_l2_tasks(limit or L2_LIMIT, label)
        ]

    def _list_summaries(self, limit: int | None, label: str | None) -> Items:
        return list(map(_sum_up, self.memory.get_l3_summaries(limit or L3_LIMIT, label)))

    def _search(self, query: str, limit: int, label: str | None) -> Items:
        if not query.strip():
            raise ChoiceError("query is empty; give words to search for")
        found = self.memory.search_tasks(query, limit, label)
        return [{**_state(task), "session_id": task.session_id} for task in found]

    def _query(self, asked: _QueryMemory) -> Items:
        """One layer; or this session first, then all others, each task once."""
        label, layer = self._label(asked.session_id), asked.layer or "auto"
        if layer == "auto" and not asked.query:
            layer = "l1"
        match layer:
            case "l1":
                return self._list_newest(asked.limit, label)
            case "l2":
                return self._list_important(asked.limit, label)
            case "l3":
                return self._list_summaries(asked.limit, label)
            case "l4":
                return self._search(asked.query or "", asked.limit or L4_LIMIT, asked.session_id)
        limit = asked.limit or L4_LIMIT
        assert asked.query is not None
        found: dict[str, dict[str, Any]] = {}
        for where in (label or "", None):
            for item in self._search(asked.query, limit, where):
                found.setdefault(item["task_id"], item)
        return list(found.values())[:limit]

    def _use_session(self, call: ToolCall) -> str:
        """What a tool of a session gives, in the session of the label."""
        read_arguments(call, SESSION_TOOLS[call.name][0])
        if call.name == "recall" and self._recall is not None:
            with contextlib.suppress(ChoiceError):
                return answer_recall(_RequestRecall(self._recall), call)
        session = self.memory.find_session(self.session_id)
        if session is None and call.name in READING:
            session = next(iter(self.memory.find_sessions(self.session_id)), None)
        if session is None:
            if call.name in READING:
                return ""
            raise ChoiceError(
                f"the session {shorten(self.session_id or '')!r} has no task of this agent yet, "
                f"so {call.name} has nothing to work on; add a task first, or open the store with "
                "the agent whose session it is"
            )
        [result] = carry_out(session, call).results
        text = "".join(part.text for part in result.parts if isinstance(part, Text))
        if result.error:
            raise ChoiceError(text)
        return text


class _RequestRecall(Struct, frozen=True):
    """What requests left out, as `recall` asks for it."""

    recall: Callable[[str], str]

    def recall_shown(self, handle: str, *, plain: bool = False) -> tuple[str, int]:
        return self.recall(handle), 0


def _make_call(name: object, arguments: object) -> ToolCall:
    if not isinstance(name, str) or name not in TOOLS:
        raise ChoiceError(
            f"{shorten(str(name))!r} is not a tool of the memory; its tools are {', '.join(TOOLS)}"
        )
    if arguments is None:
        arguments = {}
    if isinstance(arguments, Mapping):
        try:
            arguments = to_json(dict(cast("Mapping[str, Any]", arguments)))
        except (TypeError, ValueError, RecursionError):
            raise ChoiceError(
                f"{name}: arguments must be a JSON object, found {describe(arguments)}"
            ) from None
    if not isinstance(arguments, str):
        raise ChoiceError(f"{name}: arguments must be a JSON object, found {describe(arguments)}")
    return ToolCall("memory", name, arguments)


def _cut_texts(value: Any) -> Any:
    """A value of JSON whose texts are cut: a model gets no more than it can read."""
    if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
        return f"{value[:MAX_VALUE_CHARS]}… [{len(value) - MAX_VALUE_CHARS:,} more characters]"
    if isinstance(value, dict):
        return {name: _cut_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        more = [f"[{len(value) - MAX_VALUES:,} more]"] if len(value) > MAX_VALUES else []
        return [*map(_cut_texts, value[:MAX_VALUES]), *more]
    return value


def _state(task: Task) -> dict[str, Any]:
    """A task in one line."""
    said = f"{task.action}: {shorten_line(describe_parameters(task), STATEMENT_CHARS)}".rstrip(": ")
    result = shorten_line(describe_result(task), RESULT_CHARS)
    return {
        "task_id": task.task_id,
        "statement": f"{said} -> {result}" if result else said,
        "tags": list(find_tags(task)[:MAX_TAGS]),
    }


def _sum_up(summary: TaskSummary) -> dict[str, Any]:
    if summary.kind == "summary":
        return {"kind": "summary", "summary": summary.result, "tags": []}
    words = summary.result or summary.parameters
    return {
        "kind": "task",
        "task_id": summary.task_id,
        "summary": f"{summary.action}: {shorten_line(words, SUMMARY_CHARS)}".rstrip(": "),
        "tags": list(summary.tags[:MAX_TAGS]),
    }
