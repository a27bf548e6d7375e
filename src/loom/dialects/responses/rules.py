"""What the OpenAI responses wire accepts, as a table, and the checker that applies it."""

from collections.abc import Iterable, Iterator
from typing import Any

from loom.dialects.wire import (
    Finding,
    Json,
    WireRule,
    answer_fields_in,
    expect_object,
    finder,
    remember,
)

NAME = "responses"
MAX_ID = 64

# How each kind of call says its name and what it is called with, and what its answer is called.
CALLS = {
    "function_call": ("function", "arguments", "function_call_output"),
    "custom_tool_call": ("custom", "input", "custom_tool_call_output"),
    "local_shell_call": ("local_shell", "action", "local_shell_call_output"),
    "shell_call": ("shell", "action", "shell_call_output"),
    "apply_patch_call": ("apply_patch", "operation", "apply_patch_call_output"),
    "computer_call": ("computer", "action", "computer_call_output"),
}
BY_KIND = {kind: (call, key, output) for call, (kind, key, output) in CALLS.items()}
KIND_OF_OUTPUT = {output: kind for kind, _, output in CALLS.values()}
USER_ITEMS = {"mcp_approval_response"}

RULES = {
    "unanswered-call": WireRule(
        "error",
        "every call has its output",
        "add the missing output; `loom convert --repair` writes one that says the call was never "
        "answered",
        "server text: No tool output found for function call",
    ),
    "orphan-result": WireRule(
        "error",
        "every output follows the call it answers",
        "drop the output, or move it to its call; `loom convert --repair` does",
        "server text: No tool call found for function call output",
    ),
    "duplicate-result": WireRule(
        "error",
        "each call has one output",
        "keep one output per call",
        "litellm factory.py, case D",
    ),
    "duplicate-id": WireRule(
        "error", "a call_id names one call", "give each call its own id", "trail benchmark data"
    ),
    "id-length": WireRule(
        "error",
        f"a call_id has 1 to {MAX_ID} characters",
        "map the id to a shorter one",
        "openai API error text",
    ),
    "reasoning-alone": WireRule(
        "error",
        "a reasoning item is followed by what it led to",
        "drop the reasoning item, or send its message or call with it",
        "vercel/ai#7099, TanStack/ai#1212",
    ),
    "empty-content": WireRule(
        "error", "a message has content", "drop the message", "openai API reference"
    ),
    "part-type": WireRule(
        "error",
        "assistant content is output_text or refusal, other content input_*",
        "rename the type of the part",
        "openai API error text",
    ),
    "arguments-text": WireRule(
        "error",
        "a call's arguments are a text",
        "write the arguments as a text",
        "openai SDK types",
    ),
    "parsed-field": WireRule(
        "error",
        "an item has no fields that only the SDK adds",
        "drop the field; Loom drops it if you pass the item",
        "openai-python#2720: Unknown parameter 'input[2].parsed_arguments'",
    ),
    "null-field": WireRule(
        "error",
        "a field that an answer leaves empty is left out",
        "leave the field out; Loom does if you pass the item",
        "litellm#13420, openai-python#3053: Unknown parameter 'input[1].status'",
    ),
    "no-messages": WireRule("error", "a request has input", "send a message", "openai SDK types"),
    "unknown-role": WireRule(
        "error",
        "the role is user, assistant, system or developer",
        "use one of these roles",
        "openai SDK types",
    ),
    "no-model": WireRule(
        "warning", "a request names its model", "set `model` before sending", "openai SDK types"
    ),
}
# Fields that only answers have: the rule that each breaks, and whether it does so only where it is
# null.
ITEM_FIELDS = {
    "parsed_arguments": ("parsed-field", False),
    **dict.fromkeys(
        (
            "id",
            "status",
            "phase",
            "caller",
            "namespace",
            "encrypted_content",
            "actions",
            "created_by",
        ),
        ("null-field", True),
    ),
}
REASONING_FIELDS = {"content": ("null-field", True)}
PART_FIELDS = {"parsed": ("parsed-field", False), "logprobs": ("null-field", True)}
# Forms of a part that are read, and that the servers refuse.
REFUSED_FORMS = {
    "ToolCall": frozenset({"object", "no-arguments"}),
    "Text": frozenset({"as input_text", "as output_text", "as text"}),
}
_find = finder(RULES)


def check(wire: Any) -> list[Finding]:
    body = expect_object(wire, "request")
    if not body.get("model"):
        findings = [_find("no-model", "model", "")]
    else:
        findings = []
    given = body.get("input")
    if not given and not any(
        key in body for key in ("prompt", "conversation", "previous_response_id")
    ):
        return [_find("no-messages", "input", ""), *findings]
    if isinstance(given, list):
        findings += check_messages(given)
    return findings


def check_messages(messages: Iterable[Any]) -> Iterator[Finding]:
    pending: dict[str, str] = {}
    answered: dict[str, None] = {}
    thought = ""
    for index, item in enumerate(messages):
        place = f"input[{index}]"
        if not isinstance(item, dict):
            yield _find("unknown-role", place, type(item).__name__)
            continue
        kind = str(item.get("type", "message"))
        model_side = kind != "message" and kind not in KIND_OF_OUTPUT and kind not in USER_ITEMS
        if thought and not (model_side or item.get("role") == "assistant"):
            yield _find("reasoning-alone", thought, "")
        thought = place if kind == "reasoning" else ""
        if kind == "reasoning":
            fields = ITEM_FIELDS | REASONING_FIELDS
        else:
            fields = ITEM_FIELDS
        yield from (
            _find(rule, f"{place}.{name}", name) for name, rule in answer_fields_in(item, fields)
        )
        if kind == "message":
            yield from _check_message(item, place)
        elif kind in CALLS:
            yield from _check_call(item, place, pending, answered)
        elif kind in KIND_OF_OUTPUT:
            call_id = _id(item)
            if call_id in pending:
                del pending[call_id]
                remember(answered, call_id)
            elif call_id in answered:
                yield _find("duplicate-result", place, f"a second output for {call_id!r}")
            else:
                yield _find("orphan-result", place, f"no call {call_id!r} before")
    if thought:
        yield _find("reasoning-alone", thought, "")
    for call_id, where in pending.items():
        yield _find("unanswered-call", where, f"no output for {call_id!r}")


def _check_message(item: Json, place: str) -> Iterator[Finding]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in ("user", "assistant", "system", "developer"):
        yield _find("unknown-role", place, repr(role))
        return
    if not content and content != "":
        yield _find("empty-content", place, "")
    for n, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict):
            at = f"{place}.content[{n}]"
            yield from (
                _find(rule, f"{at}.{name}", name)
                for name, rule in answer_fields_in(part, PART_FIELDS)
            )
        kind = ""
        if isinstance(part, dict):
            kind = str(part.get("type"))
        if kind.startswith("input_") if role == "assistant" else kind in ("output_text", "refusal"):
            yield _find("part-type", f"{place}.content[{n}]", f"{kind} in a message of the {role}")


def _check_call(
    item: Json, place: str, pending: dict[str, str], answered: dict[str, None]
) -> Iterator[Finding]:
    call_id = _id(item)
    if not 1 <= len(call_id) <= MAX_ID:
        yield _find("id-length", place, repr(call_id)[:60])
    if call_id in pending or call_id in answered:
        yield _find("duplicate-id", place, repr(call_id))
    pending[call_id] = place
    answered.pop(call_id, None)
    if item.get("type") == "function_call" and not isinstance(item.get("arguments"), str):
        yield _find("arguments-text", f"{place}.arguments", type(item.get("arguments")).__name__)


def _id(item: Json) -> str:
    """The id that pairs a call and its output; older items have it under another name."""
    for key in ("call_id", "id"):
        given = item.get(key)
        if isinstance(given, str):
            return given
    return f"{item.get('call_id')!r} (no text)"
