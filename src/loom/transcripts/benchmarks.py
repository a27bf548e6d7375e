"""Runs of benchmarks: SWE-agent trajectories and tau-bench results, both OpenAI chat with fields of
their own.
"""

from typing import Any

from msgspec.structs import replace

from loom.conversation.message import Conversation, Message, ToolResult
from loom.dialects.wire import carry, without
from loom.errors import TranscriptError
from loom.transcripts.chat import parse_list
from loom.transcripts.runs import Run, make_run

SWE_AGENT = "SWE-agent trajectory"
TAU_BENCH = "tau-bench run"
_SWE_FIELDS = (
    "agent",
    "message_type",
    "thought",
    "action",
    "tool_call_ids",
    "is_demo",
    "tags",
    "thinking_blocks",
)


def is_swe_agent(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("history"), list)


def is_tau_bench(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("traj"), list)


def read_tau_bench(number: int, value: dict[str, Any], place: str) -> Run:
    _, conversation = parse_list(value["traj"], f"{place}.traj")
    name = f"task {value.get('task_id', '?')}" + (
        f", trial {value['trial']}" if "trial" in value else ""
    )
    return make_run(number, TAU_BENCH, "openai", conversation, name)


def read_swe_agent(number: int, value: dict[str, Any], place: str) -> Run:
    return make_run(number, SWE_AGENT, "openai", _parse_swe_agent(value, place))


def _parse_swe_agent(value: dict[str, Any], place: str) -> Conversation:
    messages: list[Any] = []
    extras = []
    for n, entry in enumerate(value["history"]):
        if not isinstance(entry, dict):
            raise TranscriptError(f"{place}.history[{n}]: expected an object")
        wire = without(entry, *_SWE_FIELDS)
        ids = entry.get("tool_call_ids")
        if (
            wire.get("role") == "tool"
            and isinstance(ids, list)
            and ids
            and "tool_call_id" not in wire
        ):
            wire["tool_call_id"] = ids[0]
        if wire.get("tool_calls") is None:
            wire.pop("tool_calls", None)
        messages.append(wire)
        extras.append({key: entry[key] for key in _SWE_FIELDS if entry.get(key) is not None})
    _, conversation = parse_list(messages, f"{place}.history")
    read = (*conversation.system, *conversation.messages)
    # Anthropic blocks were divided; the client's fields have no one place then
    if len(read) != len(extras):
        return conversation
    kept = [_keep(message, fields) for message, fields in zip(read, extras, strict=True)]
    lead = len(conversation.system)
    return replace(conversation, system=tuple(kept[:lead]), messages=tuple(kept[lead:]))


def _keep(message: Message, fields: dict[str, Any]) -> Message:
    """The message with the program's own fields, and an empty result for each further
    call it answers.
    """
    if isinstance(fields.get("tool_call_ids"), list):
        ids = fields["tool_call_ids"]
    else:
        ids = []
    if message.role == "tool":
        answered = [part for part in message.parts if isinstance(part, ToolResult)]
        rest = tuple(ToolResult(str(call_id), ()) for call_id in ids[1:])
        return replace(
            message,
            parts=(*answered, *rest),
            carried=carry("swe-agent", without(fields, "tool_call_ids")),
        )
    if message.carried is None:
        return replace(message, carried=carry("swe-agent", fields))
    return message
