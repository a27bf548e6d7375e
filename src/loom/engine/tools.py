"""Tools that a model may be given: bring back what was left out of its request, look for it, keep
its own working state, log what was decided (`decision_tools.py`).

Each takes what its Struct says: the schema is made from it, and arguments are checked against it.
What a model gets wrong it is told in the result, with the way out; what goes wrong in the store is
an error, for whoever runs the model.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from loom.budget.counting import gate_counter
from loom.context import Working
from loom.conversation.canonical import from_json, to_json
from loom.conversation.checked import check_flag
from loom.conversation.handles import SAMPLE
from loom.conversation.message import Message, Text, Tool, ToolCall, ToolResult
from loom.conversation.searchable import ECHOES
from loom.engine.decision_tools import DECISION_TOOLS, answer_decision_tool
from loom.engine.decisions import SessionDecisions
from loom.engine.memory import SessionMemory
from loom.engine.search import DEFAULT_HITS
from loom.engine.skills import SessionSkills
from loom.errors import ChoiceError, shorten
from loom.recall.hits import Hit

RECALLED = ECHOES  # what these bring back is not cut again at once
RECALL_TOKENS = 4000  # of what was recalled, in one result
LOAD_SKILL = "load_skill"
_LEAST = 100  # tokens of a part: of smaller ones there would be no end
_LETTERS = 12  # for a token, at most; so many are counted to find where a part ends
_HITS = 50
_HANDLE = re.compile("~[a-z2-7]+")


class Recalls(Protocol):
    """What `recall` needs: what was left out under a handle, and how much of it is hidden."""

    def recall_shown(self, handle: str, *, plain: bool = False) -> tuple[str, int]: ...


class Remembers(Recalls, Protocol):
    """What the tools need of a session."""

    @property
    def working(self) -> Working: ...
    def keep_working(self, working: Working) -> Working: ...
    def search(self, query: str, limit: int | None = None) -> list[Hit]: ...
    def pin(self, name: str, *, on: bool = True) -> int: ...
    def stash(self, label: str, text: str | None = None) -> str: ...
    @property
    def memory(self) -> SessionMemory: ...
    @property
    def skills(self) -> SessionSkills: ...
    @property
    def decisions(self) -> SessionDecisions: ...


class _Recall(Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from"}):
    handle: Annotated[str, Meta(description="The handle, from a marker or from search_context.")]
    start: (
        Annotated[int, Meta(ge=0, description="The character to continue from; a part says which.")]
        | None
    ) = None
    tokens: (
        Annotated[int, Meta(ge=_LEAST, le=RECALL_TOKENS, description="The most tokens to return.")]
        | None
    ) = None


class _SearchContext(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[
        str, Meta(description='Words, names, numbers. A "quoted phrase" must match exactly.')
    ]
    limit: (
        Annotated[
            int,
            Meta(
                ge=1, le=_HITS, description=f"The most hits to return ({DEFAULT_HITS} by default)."
            ),
        ]
        | None
    ) = None


class _AcknowledgeEvent(Struct, frozen=True, forbid_unknown_fields=True):
    event: Annotated[
        str, Meta(description="The id of the event: it is in brackets at the end of its line.")
    ]
    decision: Annotated[str, Meta(description="What you did or decided about it, in one line.")]


class _SetWorkingState(Struct, frozen=True, forbid_unknown_fields=True):
    progress: (
        Annotated[str, Meta(description="How far you are with the goal, in one line.")] | None
    ) = None
    plan: (
        Annotated[tuple[str, ...], Meta(description="The next steps. This replaces the plan.")]
        | None
    ) = None
    scratchpad: (
        Annotated[str, Meta(description="Notes for the next turns. This replaces the scratchpad.")]
        | None
    ) = None


class _Pin(Struct, frozen=True, forbid_unknown_fields=True):
    handle: Annotated[str, Meta(description="The handle of the message, from search_context.")]
    off: Annotated[bool, Meta(description="True to take the pin back.")] | None = None


class _Stash(Struct, frozen=True, forbid_unknown_fields=True):
    label: Annotated[str, Meta(description="A short name for the text.")]
    text: (
        Annotated[str, Meta(description="The text to put away. Without it, you get it back.")]
        | None
    ) = None


class _Remember(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(description="What to remember, in a sentence or two.")]
    about: Annotated[str, Meta(description="What it is about: a name or a topic.")] | None = None
    supersedes: Annotated[str, Meta(description="The id of the note that it replaces.")] | None = (
        None
    )


class _LoadSkill(Struct, frozen=True, forbid_unknown_fields=True):
    name: (
        Annotated[str, Meta(description="The name of the skill. Without it, you get the list.")]
        | None
    ) = None
    unload: (
        Annotated[str, Meta(description="The name of a skill that you no longer need.")] | None
    ) = None


class _Forget(Struct, frozen=True, forbid_unknown_fields=True):
    note: Annotated[
        str, Meta(description="The id of the note, or the handle of a message to rank lower.")
    ]


TOOLS: dict[str, tuple[type[Struct], str]] = {
    "recall": (
        _Recall,
        f"Get back what was left out of this conversation under a handle such as {SAMPLE}. Long "
        "texts come in parts.",
    ),
    "search_context": (
        _SearchContext,
        "Search the earlier messages of this conversation that you no longer see. Hits are "
        "passages with handles to recall.",
    ),
    "set_working_state": (
        _SetWorkingState,
        "Keep your own assessment up to date: how far you are, your plan, a scratchpad. You see "
        "it in every turn.",
    ),
    "acknowledge_event": (
        _AcknowledgeEvent,
        "Say that you dealt with a pending event. The event and its risk are removed from your "
        "working state.",
    ),
    "pin": (
        _Pin,
        "Keep an earlier message in every request from now on, by its handle; or stop that.",
    ),
    "stash": (
        _Stash,
        "Put a text away under a label, outside of your context, or get it back.",
    ),
    "remember": (
        _Remember,
        "Store a note about this work, so that you find it when it matters later.",
    ),
    "forget": (
        _Forget,
        "Show a note no longer, because it is wrong or no longer needed. Nothing is deleted.",
    ),
    LOAD_SKILL: (
        _LoadSkill,
        "Get the instructions of a skill by its name, before you do such work.",
    ),
    **DECISION_TOOLS,
}
_Given = TypeVar("_Given", bound=Struct)


def tools(*, decisions: bool = False) -> tuple[Tool, ...]:
    """The tools, as any provider takes them; with `decisions`, also those by which a model logs
    decisions, looks them up and pivots. `Session.use` answers all of them.
    """
    check_flag("decisions", decisions)
    left_out = () if decisions else DECISION_TOOLS
    return make_tools({name: each for name, each in TOOLS.items() if name not in left_out})


def make_tools(table: Mapping[str, tuple[type[Struct], str]]) -> tuple[Tool, ...]:
    """The tools of a table: for each name what it takes, and what it does."""
    return tuple(
        Tool(name, about, to_json(_schema(takes))) for name, (takes, about) in table.items()
    )


def _schema(takes: type[Struct]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, in the form that is refused by nobody: all are
    required, and some may be null.
    """
    _, parts = msgspec.json.schema_components([takes])
    properties = parts[takes.__name__]["properties"]
    return {
        "type": "object",
        "properties": {name: _or_null(about) for name, about in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _or_null(about: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" not in about:
        return about
    given, null = about["anyOf"]
    if "enum" in given:
        return {**given, "type": ["string", null["type"]], "enum": [*given["enum"], None]}
    return {**given, "type": [given["type"], null["type"]]}


def is_own_call(call: ToolCall, declared: Iterable[Tool] = ()) -> bool:
    """Whether a call is one of Loom's tools: by its name, unless a session declares another tool of
    that name.
    """
    own = next((tool for tool in make_tools(TOOLS) if tool.name == call.name), None)
    other = next((tool for tool in declared if tool.name == call.name), own)
    return own is not None and other is not None and _properties(other) == _properties(own)


def _properties(tool: Tool) -> set[str]:
    """The names of what a tool takes."""
    schema = from_json(tool.schema) if tool.schema else {}
    if isinstance(schema, dict):
        return set(schema.get("properties") or ())
    return set()


def carry_out(session: Remembers, call: ToolCall) -> Message:
    """What a call of one of the tools gives, as the message that answers it; what the model got
    wrong is told there.
    """
    try:
        return _answer(call, _does(session, call))
    except ChoiceError as error:
        return _answer(call, str(error), error=True)


def _answer(call: ToolCall, text: str, error: bool = False) -> Message:
    return Message("tool", (ToolResult(call.id, (Text(text),), error, kind=call.kind),))


def _does(session: Remembers, call: ToolCall) -> str:
    if call.name not in TOOLS:
        raise ChoiceError(
            f"{shorten(call.name)!r} is not a tool of Loom; its tools are {', '.join(TOOLS)}"
        )
    given = read_arguments(call, TOOLS[call.name][0])
    if call.name in DECISION_TOOLS:
        return answer_decision_tool(session.decisions, given)
    match given:
        case _Recall() as asked:
            return _recall(session, asked)
        case _SearchContext() as asked:
            return _search(session, asked)
        case _SetWorkingState() as asked:
            return _keep(session, asked)
        case _AcknowledgeEvent() as asked:
            return _acknowledge(session, asked)
        case _Pin() as asked:
            return _pin(session, asked)
        case _Stash() as asked:
            return _stash(session, asked)
        case _Remember() as asked:
            return _remember(session, asked)
        case _Forget() as asked:
            session.memory.forget(asked.note.strip())
            return "Forgotten."
        case _LoadSkill() as asked:
            return _load_skill(session.skills, asked)
    raise AssertionError(call.name)


def read_arguments(call: ToolCall, takes: type[_Given]) -> _Given:
    try:
        # A number in quotes is a number: models do write them so.
        return msgspec.convert(from_json(call.arguments.strip() or "{}"), takes, strict=False)
    except msgspec.ValidationError as error:
        wrong = str(error)
    except ValueError as error:
        wrong = f"that is not JSON ({error})"
    fields = ", ".join(
        f"{field.encode_name}{'' if field.required else ' (optional)'}"
        for field in msgspec.structs.fields(takes)
    )
    raise ChoiceError(
        f"{call.name} was called with {shorten(call.arguments, 80)}: {wrong}; it takes a JSON "
        f"object with {fields}"
    )


def answer_recall(recalls: Recalls, call: ToolCall) -> str:
    """What a call of `recall` gives."""
    return _recall(recalls, read_arguments(call, _Recall))


def _recall(session: Recalls, asked: _Recall) -> str:
    handle = "~" + asked.handle.strip().removeprefix("~")
    if not _HANDLE.fullmatch(handle):
        raise ChoiceError(
            f"{shorten(asked.handle)!r} is not a handle; handles look like {SAMPLE}, and "
            "search_context finds them"
        )
    try:
        text, hidden = session.recall_shown(handle, plain=True)
    except ChoiceError as error:
        raise ChoiceError(
            f"{error}; search_context finds messages, and their handles, by what they say"
        ) from None
    start = asked.start or 0
    if start and start >= len(text):
        raise ChoiceError(
            f"{handle} has {len(text):,} characters, and none at {start:,}; recall it without "
            "`from` to start again"
        )
    end = _end(text, start, asked.tokens or RECALL_TOKENS)
    if not start and end == len(text):
        return (text or "(an empty text)") + _hidden_note(hidden)
    more = ""
    if end != len(text):
        more = f"; continue with recall {to_json({'handle': handle, 'from': end})}"
    return (
        f"{text[start:end]}\n[characters {start:,} to {end:,} of "
        f"{len(text):,}{more}]{_hidden_note(hidden)}"
    )


def _hidden_note(count: int) -> str:
    if not count:
        return ""
    noun = "message" if count == 1 else "messages"
    return f"\n[{count:,} {noun} excluded or pruned since, and hidden]"


def _end(text: str, start: int, tokens: int) -> int:
    """Where the part of a text ends that begins here and has this many tokens; after a line, if one
    ends near.
    """
    count = gate_counter(None).count_text
    low, high = start + 1, min(len(text), start + tokens * _LETTERS)
    if high == len(text) and count(text[start:]) <= tokens:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[start:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    line = text.rfind("\n", start, low) + 1
    if line - start > (low - start) * 0.8:
        return line
    return low


def _search(session: Remembers, asked: _SearchContext) -> str:
    hits = session.search(asked.query, asked.limit or DEFAULT_HITS)
    if not hits:
        return (
            f"No message that you no longer see matches {shorten(asked.query, 80)!r}. Try other "
            "words, or no quotes."
        )
    lines = (f"{hit.handle} (message {hit.place}, {hit.role}): {hit.text}" for hit in hits)
    return "\n".join(
        ("The best hit comes first. Recall its handle to read the whole message.", *lines)
    )


def _keep(session: Remembers, asked: _SetWorkingState) -> str:
    if asked == _SetWorkingState():
        raise ChoiceError(
            "set_working_state was called with nothing to store; give progress, plan or scratchpad"
        )
    session.keep_working(
        session.working.assess(
            progress=asked.progress, plan=asked.plan, scratchpad=asked.scratchpad
        )
    )
    if asked.plan and len(asked.plan) > Working.MAX_PLAN_STEPS:
        cut = [f"the first {Working.MAX_PLAN_STEPS} steps of {len(asked.plan)}"]
    else:
        cut = []
    if asked.scratchpad and len(asked.scratchpad) > Working.MAX_SCRATCHPAD_CHARS:
        cut.append(
            f"the first {Working.MAX_SCRATCHPAD_CHARS:,} characters of {len(asked.scratchpad):,} "
            "of the scratchpad"
        )
    if cut:
        return f"Stored, but only {' and '.join(cut)}."
    return "Stored."


def _acknowledge(session: Remembers, asked: _AcknowledgeEvent) -> str:
    made = session.keep_working(
        session.working.acknowledge(asked.event.strip(), asked.decision.strip() or "done")
    )
    pending = len(made.pending_events)
    return f"Acknowledged. {pending} pending {'event is' if pending == 1 else 'events are'} left."


def _pin(session: Remembers, asked: _Pin) -> str:
    handle = "~" + asked.handle.strip().removeprefix("~")
    changed = session.pin(handle, on=not asked.off)
    if not changed:
        return "Nothing changed: it was so already."
    noun = "message is" if changed == 1 else "messages are"
    return f"{changed} {noun} {'no longer ' if asked.off else ''}pinned."


def _stash(session: Remembers, asked: _Stash) -> str:
    text = session.stash(asked.label, asked.text)
    if asked.text is None:
        return text
    if not asked.text.strip():
        return f"Removed {shorten(asked.label)!r}."
    return f"Stashed {len(text):,} characters under {shorten(asked.label)!r}."


def _load_skill(skills: SessionSkills, asked: _LoadSkill) -> str:
    lines = []
    if asked.name:
        lines.append(skills.load(asked.name))
    if asked.unload:
        lines.append(f"Skill {skills.unload(asked.unload)} is put away.")
    return "\n".join(lines) or skills.describe()


def loaded_skill(call: ToolCall) -> str:
    """The name of the skill that a call loads; "" if it loads none."""
    if call.name != LOAD_SKILL:
        return ""
    try:
        return read_arguments(call, _LoadSkill).name or ""
    except ChoiceError:
        return ""


def _remember(session: Remembers, asked: _Remember) -> str:
    note = session.memory.remember(
        asked.text, by="model", about=asked.about or "", supersedes=asked.supersedes or ""
    )
    return f"Stored as note {note.id}."
