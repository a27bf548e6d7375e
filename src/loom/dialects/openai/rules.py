"""What the OpenAI chat completions wire accepts, as a table, and the checker that applies it."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from loom.conversation.message import Role
from loom.dialects.wire import (
    Finding,
    Json,
    WireRule,
    answer_fields_in,
    expect_list,
    expect_object,
    finder,
    remember,
)
from loom.errors import shorten

NAME = "openai"
MAX_ID = 40
MAX_CALLS = 128
ROLES = {*get_args(Role), "function"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_AUTHOR_CHARS = 64
_NOT_IN_AUTHORS = re.compile(r"[\s<|\\/>]+")

RULES = {
    "unanswered-call": WireRule(
        "error",
        "every tool call is answered by a tool message right after it",
        "add the missing result; `loom convert --repair` writes one that says the call was never "
        "answered",
        "agno#3105, dify#32222, litellm#10083",
    ),
    "orphan-result": WireRule(
        "error",
        "a tool message follows the assistant message that made its call",
        "drop the result, or move it to its call; `loom convert --repair` does",
        "simonw/llm#937, miurla/morphic#136, deepx-code#94",
    ),
    "duplicate-result": WireRule(
        "error",
        "each tool call has one result",
        "keep one result per call",
        "litellm factory.py, case D",
    ),
    "duplicate-id": WireRule(
        "error",
        "the ids of one message's tool calls differ",
        "give each call its own id",
        "openai-python types",
    ),
    "reused-id": WireRule(
        "warning",
        "an id belongs to one call in the whole history",
        "give each call its own id",
        "trail benchmark data",
    ),
    "id-length": WireRule(
        "error",
        f"an id has 1 to {MAX_ID} characters",
        "map the id to a shorter one; `loom convert --repair` does",
        "vercel/ai#5171, autogen#6377",
    ),
    "too-many-calls": WireRule(
        "error",
        f"a message makes at most {MAX_CALLS} tool calls",
        "split the message",
        "openai-dotnet#317",
    ),
    "empty-message": WireRule(
        "error",
        "an assistant message has content unless it makes tool calls",
        "drop the message",
        "openai SDK docstring",
    ),
    "empty-content": WireRule(
        "error",
        "a list of content parts is not empty",
        "drop the message, or send a text",
        "openai API reference",
    ),
    "no-content": WireRule(
        "error", "a message has content", "send a text, or drop the message", "openai SDK types"
    ),
    "no-messages": WireRule(
        "error", "a request has at least one message", "send a message", "openai SDK types"
    ),
    "arguments-text": WireRule(
        "error",
        "a call's arguments are a text of JSON",
        "write the arguments as a text",
        "openai SDK types",
    ),
    "unknown-role": WireRule(
        "error",
        "the role is one of developer, system, user, assistant, tool, function",
        "use one of these roles",
        "openai SDK types",
    ),
    "name-form": WireRule(
        "error",
        f"the name of who speaks has at most {MAX_AUTHOR_CHARS} characters, no white space and "
        "none of < | \\ / >",
        "write the name with underscores; `loom convert --repair` does",
        "langchain#35054, semantic-kernel#9340, fastagency#74",
    ),
    "parsed-field": WireRule(
        "error",
        "a message has no fields that only the SDK adds",
        "drop the field; Loom drops it if you pass the message",
        "openai-python#2720, SDK types: parsed and parsed_arguments are no fields of a request",
    ),
    "empty-calls": WireRule(
        "error",
        "tool_calls is left out or has at least one call",
        "leave it out",
        "openai-node#1341, chatboxai/chatbox#2079",
    ),
    "null-call": WireRule(
        "error", "function_call is left out or an object", "leave it out", "openai-python#777"
    ),
    "answer-field": WireRule(
        "warning",
        "a message has no fields that only answers have",
        "drop the field; strict servers refuse it",
        "one-api#1319 (index), OmniRoute#4350 (annotations, refusal: Mistral 422), SDK types",
    ),
    "tool-name": WireRule(
        "warning",
        "a tool's name has up to 64 letters, digits, _ and -",
        "rename the tool",
        "openai API reference",
    ),
    "no-model": WireRule(
        "warning", "a request names its model", "set `model` before sending", "openai SDK types"
    ),
}
# Fields that only answers have: the rule that each breaks, and whether it does so only where it is
# null or empty.
ANSWER_FIELDS = {
    "parsed": ("parsed-field", False),
    "tool_calls": ("empty-calls", True),
    "function_call": ("null-call", True),
    "annotations": ("answer-field", False),
    "audio": ("answer-field", True),
    "refusal": ("answer-field", True),
}
CALL_FIELDS = {"index": ("answer-field", False)}
FUNCTION_FIELDS = {"parsed_arguments": ("parsed-field", False)}
# Forms of a part that are read, and that the servers refuse.
REFUSED_FORMS = {"ToolCall": frozenset({"object", "no-arguments", "no-type"})}
_find = finder(RULES)


def is_author(name: str) -> bool:
    """Whether a message may carry this name of who speaks."""
    return 0 < len(name) <= MAX_AUTHOR_CHARS and _NOT_IN_AUTHORS.search(name) is None


def to_author(name: str) -> str:
    """The name as a message may carry it."""
    return _NOT_IN_AUTHORS.sub("_", name)[:MAX_AUTHOR_CHARS]


def check(wire: Any) -> list[Finding]:
    body = expect_object(wire, "request")
    messages = expect_list(body.get("messages"), "messages")
    if not messages:
        findings = [_find("no-messages", "messages", "")]
    else:
        findings = []
    if not body.get("model"):
        findings.append(_find("no-model", "model", ""))
    for n, tool in enumerate(expect_list(body.get("tools") or [], "tools")):
        name = "tool"
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
            name = tool["function"].get("name", "")
        if not _good_name(name):
            findings.append(_find("tool-name", f"tools[{n}].function.name", repr(name)))
    return findings + list(check_messages(messages))


def check_messages(messages: Iterable[Any]) -> Iterator[Finding]:
    # id -> place of calls still to be answered, of the last assistant message
    pending: dict[str, str] = {}
    answered: set[str] = set()
    seen: dict[str, None] = {}
    legacy = False
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if not isinstance(message, dict) or str(message.get("role")) not in ROLES:
            yield _find(
                "unknown-role",
                place,
                str(message.get("role") if isinstance(message, dict) else message)[:40],
            )
            continue
        role = message["role"]
        if role == "tool":
            call_id = _id(message.get("tool_call_id"))
            if call_id in pending:
                del pending[call_id]
                answered.add(call_id)
            elif call_id in answered:
                yield _find("duplicate-result", place, f"a second result for {call_id!r}")
            else:
                yield _find("orphan-result", place, f"no call {call_id!r} just before")
        else:
            for call_id, where in pending.items():
                yield _find("unanswered-call", where, f"no result for {call_id!r}")
            pending, answered = {}, set()
        if role == "function" and not legacy:
            yield _find("orphan-result", place, "no function_call just before")
        legacy = isinstance(message.get("function_call"), dict)
        name = message.get("name")
        if role != "tool" and isinstance(name, str) and not is_author(name):
            yield _find("name-form", f"{place}.name", shorten(repr(name)))
        yield from _check_content(message, place)
        if role == "assistant":
            yield from _check_answer_fields(message, place)
            yield from _check_calls(message.get("tool_calls"), place, pending, seen)
    for call_id, where in pending.items():
        yield _find("unanswered-call", where, f"no result for {call_id!r}")


def _id(value: Any) -> str:
    """An id to look for; one that is not a text is not a call's."""
    if isinstance(value, str):
        return value
    return f"{value!r} (no text)"


def _check_content(message: Json, place: str) -> Iterator[Finding]:
    content = message.get("content")
    acts = bool(
        message.get("tool_calls")
        or message.get("function_call")
        or message.get("audio")
        or message.get("refusal")
    )
    if message["role"] == "assistant":
        if not content and not acts:
            yield _find("empty-message", place, "")
        elif content == []:
            yield _find("empty-content", f"{place}.content", "")
    elif content == []:
        yield _find("empty-content", f"{place}.content", "")
    elif content is None and message["role"] != "function":
        yield _find("no-content", f"{place}.content", "")


def _check_answer_fields(message: Json, place: str) -> Iterator[Finding]:
    for name, rule in answer_fields_in(message, ANSWER_FIELDS):
        yield _find(rule, f"{place}.{name}", name)
    calls = message.get("tool_calls")
    for n, call in enumerate(calls if isinstance(calls, list) else ()):
        where = f"{place}.tool_calls[{n}]"
        function = None
        if isinstance(call, dict):
            function = call.get("function")
        for holder, at, table in (
            (call, where, CALL_FIELDS),
            (function, f"{where}.function", FUNCTION_FIELDS),
        ):
            if isinstance(holder, dict):
                yield from (
                    _find(rule, f"{at}.{name}", name)
                    for name, rule in answer_fields_in(holder, table)
                )


def _check_calls(
    calls: Any, place: str, pending: dict[str, str], seen: dict[str, None]
) -> Iterator[Finding]:
    if not isinstance(calls, list):
        return
    if len(calls) > MAX_CALLS:
        yield _find("too-many-calls", f"{place}.tool_calls", f"{len(calls)} calls")
    for n, call in enumerate(calls):
        where = f"{place}.tool_calls[{n}]"
        call_id = call.get("id") if isinstance(call, dict) else None
        if not isinstance(call_id, str) or not 1 <= len(call_id) <= MAX_ID:
            yield _find(
                "id-length",
                where,
                f"{call_id!r}"
                if not isinstance(call_id, str)
                else f"{call_id[:50]!r} has {len(call_id)}",
            )
        if not isinstance(call_id, str):
            continue
        if call_id in pending:
            yield _find("duplicate-id", where, repr(call_id))
        elif call_id in seen:
            yield _find("reused-id", where, repr(call_id))
        pending[call_id] = where
        remember(seen, call_id)
        function = call.get("function")
        if isinstance(function, dict):
            if not isinstance(function.get("arguments"), str):
                yield _find(
                    "arguments-text",
                    f"{where}.function.arguments",
                    type(function.get("arguments")).__name__,
                )
            if not _good_name(function.get("name")):
                yield _find("tool-name", f"{where}.function.name", repr(function.get("name")))


def _good_name(name: Any) -> bool:
    return isinstance(name, str) and _TOOL_NAME.fullmatch(name) is not None
