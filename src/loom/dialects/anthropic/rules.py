"""What Anthropic's messages wire accepts, as a table, and the checker that applies it."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

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

NAME = "anthropic"
MAX_MARKS = 4
MAX_MESSAGES = 100_000
MIN_THINKING = 1024
# Tokens of an answer beyond which Anthropic's own client raises an error unless the answer is
# streamed: it takes 128,000 tokens for an hour and allows ten minutes (SDK 2.8.0, _base_client.py);
# of the first models of Opus 4 it allows less (_constants.py).
MAX_UNSTREAMED = 128_000 // 6
UNSTREAMED_MODELS = ((re.compile(r"opus-4(?:-[01])?(?:$|[-@]20\d{6})|claude-4-opus"), 8_192),)
ID = re.compile(r"[a-zA-Z0-9_-]+")

RULES = {
    "unanswered-call": WireRule(
        "error",
        "every tool_use is answered by a tool_result in the next message",
        "add the missing result; `loom convert --repair` writes one that says the call was never "
        "answered",
        "claude-code#8210, #5060, #2697",
    ),
    "orphan-result": WireRule(
        "error",
        "every tool_result answers a tool_use of the message before",
        "drop the result, or move it to its call; `loom convert --repair` does",
        "claude-code#13460, #18947",
    ),
    "duplicate-result": WireRule(
        "error",
        "each tool_use has a single result",
        "keep one result per call",
        "litellm factory.py, case D",
    ),
    "results-first": WireRule(
        "error",
        "a message that answers calls begins with their results",
        "put the results before anything else in the message",
        "apify/tester-mcp-client#12",
    ),
    "server-tool-pair": WireRule(
        "error",
        "a server tool's result has its server_tool_use, and the reverse, in the same message",
        "send both or neither",
        "claude-code#64383",
    ),
    "duplicate-id": WireRule(
        "error",
        "tool_use ids are unique",
        "give each call its own id",
        "trycua/cua#524, litellm#23510",
    ),
    "id-form": WireRule(
        "error",
        "a tool_use id has only letters, digits, _ and -",
        "map the id to one of that form; `loom convert --repair` does",
        "litellm factory.py",
    ),
    "id-length": WireRule(
        "warning",
        "an id has at most 64 characters on Bedrock",
        "map the id to a shorter one",
        "litellm factory.py",
    ),
    "empty-text": WireRule(
        "error", "a text block is not empty", "drop the block", "claude-code#59812, #23440"
    ),
    "empty-message": WireRule(
        "error", "a message is not empty", "drop the message", "anthropic API error text"
    ),
    "marked-empty-text": WireRule(
        "error",
        "cache_control is not set on an empty text block",
        "drop the block",
        "hermes-agent PR#1216, gptme PR#653",
    ),
    "too-many-marks": WireRule(
        "error",
        f"at most {MAX_MARKS} blocks have cache_control, in tools, system and messages together",
        "remove the marks that are furthest from a stable boundary",
        "continue PR#6937, leviath#12",
    ),
    "mark-order": WireRule(
        "error",
        "a cache mark never outlives one before it (tools, system, messages)",
        "give earlier marks the longer ttl",
        "vellum PR#22191, gptel#977",
    ),
    "thinking-signed": WireRule(
        "error", "a thinking block carries its signature", "drop the block", "anthropic SDK types"
    ),
    "thinking-last": WireRule(
        "error",
        "the final block of an assistant message is not thinking",
        "drop the trailing thinking",
        "forgecode#2107",
    ),
    "thinking-kept": WireRule(
        "error",
        "with thinking enabled, the assistant message whose results end the request begins with "
        "thinking",
        "send the thinking back with the call, or disable thinking",
        "claude-code#11978, Bedrock guide",
    ),
    "thinking-changed": WireRule(
        "error",
        "thinking in the latest assistant message is byte for byte what the model wrote",
        "send the message as it was received",
        "claude-code#63284, #13201",
    ),
    "thinking-budget": WireRule(
        "error",
        f"thinking.budget_tokens is at least {MIN_THINKING} and less than max_tokens",
        "raise max_tokens or change the budget",
        "anthropic SDK thinking_config_enabled_param.py",
    ),
    "too-many-messages": WireRule(
        "error",
        f"a request has at most {MAX_MESSAGES:,} messages",
        "leave out old ones",
        "anthropic SDK docstring",
    ),
    "no-messages": WireRule(
        "error", "a request has at least one message", "send a message", "anthropic API error text"
    ),
    "no-max-tokens": WireRule(
        "error", "a request has max_tokens", "set max_tokens", "anthropic SDK types"
    ),
    "input-object": WireRule(
        "error",
        "a tool_use input is an object",
        "write the input as an object",
        "anthropic SDK types",
    ),
    "unknown-role": WireRule(
        "error",
        "the role is user, assistant or system",
        "use one of these roles",
        "anthropic SDK docstring",
    ),
    "block-place": WireRule(
        "error",
        "calls and thinking are in assistant messages, results in user messages",
        "move the block",
        "anthropic SDK types",
    ),
    "parsed-field": WireRule(
        "error",
        "a block has no fields that only the SDK adds",
        "drop the field; Loom drops it if you pass the block",
        "claude-code#4378 (extra inputs in blocks are refused), SDK types: parsed_output is no "
        "field of a request",
    ),
    "answer-field": WireRule(
        "error",
        "a message has a role and content, and no fields that only answers have",
        "drop the field; Loom drops it if you pass the message",
        "any-llm#832: extra inputs are not permitted in a message",
    ),
    "no-model": WireRule(
        "warning", "a request names its model", "set `model` before sending", "anthropic SDK types"
    ),
    "duplicate-tool": WireRule(
        "error",
        "tool names are unique",
        "declare each tool once; `loom convert --repair` does",
        "claude-code#10687, microsoft/vscode#276110, LibreChat#13162",
    ),
    "no-tools": WireRule(
        "warning",
        "a request with tool blocks defines tools (Bedrock demands it)",
        "add the tool definitions",
        "commonly stated",
    ),
    "first-user": WireRule(
        "warning", "the first message is the user's", "begin with a user message", "commonly stated"
    ),
    "trailing-space": WireRule(
        "warning",
        "a final assistant text does not end in white space",
        "strip the text",
        "commonly stated",
    ),
    "prefill": WireRule(
        "warning",
        "the last message is not the assistant's (some models refuse it)",
        "end on a user message",
        "SDK docstring",
    ),
}
# Fields that only answers have: the rule that each breaks, and whether it does so only where it is
# null.
ANSWER_FIELDS = dict.fromkeys(
    (
        *("id", "type", "model", "stop_reason", "stop_sequence", "stop_details"),
        *("usage", "container", "context_management", "diagnostics"),
    ),
    ("answer-field", False),
)
BLOCK_FIELDS = {
    "parsed_output": ("parsed-field", False),
    **dict.fromkeys(("caller", "toolset_name"), ("answer-field", True)),
}
# Forms of a part that are read, and that the servers refuse.
REFUSED_FORMS = {"ToolCall": frozenset({"raw"})}
_find = finder(RULES)


def check(wire: Any, original: Any = None) -> list[Finding]:
    """What is wrong with a request. `original`, the request or messages it was made from, lets
    changed thinking be seen.
    """
    body = expect_object(wire, "request")
    messages = expect_list(body.get("messages"), "messages")
    if not messages:
        findings = [_find("no-messages", "messages", "")]
    else:
        findings = []
    if not body.get("model"):
        findings.append(_find("no-model", "model", ""))
    if not isinstance(body.get("max_tokens"), int):
        findings.append(_find("no-max-tokens", "max_tokens", ""))
    marks = _Marks()
    findings += marks.see(_head_marks(body))
    findings += _check_tools(body.get("tools"))
    findings += _check_system(body.get("system"))
    findings += check_messages(messages, marks)
    findings += _check_thinking(body, messages)
    if original is not None:
        findings += _check_unchanged(
            messages, original["messages"] if isinstance(original, dict) else original
        )
    if not body.get("tools") and any(
        b.get("type") == "tool_use" for m in messages for b in _blocks(m)
    ):
        findings.append(_find("no-tools", "tools", ""))
    return findings


def _check_tools(tools: Any) -> Iterator[Finding]:
    seen: set[str] = set()
    for n, tool in enumerate(tools if isinstance(tools, list) else ()):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            continue
        if name in seen:
            yield _find("duplicate-tool", f"tools[{n}]", repr(name))
        seen.add(name)


def check_messages(  # noqa: C901
    messages: Iterable[Any], marks: "_Marks | None" = None
) -> Iterator[Finding]:
    marks = marks or _Marks()
    pending: dict[str, str] = {}  # id -> place of the calls that the next message must answer
    seen: dict[str, None] = {}
    held: list[Finding] = []  # what is wrong only if another message follows
    index, role = -1, None
    message: Any = None
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        role = None
        if isinstance(message, dict):
            role = message.get("role")
        if not isinstance(role, str) or role not in ("user", "assistant", "system"):
            yield _find("unknown-role", place, repr(role))
            continue
        if index == 0 and role == "assistant":
            yield _find("first-user", place, "")
        if index == MAX_MESSAGES:
            yield _find("too-many-messages", place, "")
        yield from held
        held = []
        blocks = _blocks(message)
        yield from marks.see(_block_marks(blocks, place))
        # A system message may stand between a call and its result: real clients send it so.
        if role != "system":
            yield from _check_results(blocks, place, pending)
            pending = {}
        if not blocks:
            empty = _find("empty-message", place, "")
            if role == "assistant":
                held.append(empty)
            else:
                yield empty
        yield from _check_texts(blocks, f"{place}.content")
        yield from _check_places(blocks, role, place)
        yield from _check_answer_fields(message, blocks, place)
        if role == "assistant":
            yield from _check_calls(blocks, place, pending, seen)
            if blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):
                yield _find("thinking-last", f"{place}.content[{len(blocks) - 1}]", "")
            unpaired, open_calls = _server_pairs(blocks, place)
            yield from unpaired
            held += open_calls
    for call_id, where in pending.items():
        yield _find("unanswered-call", where, f"no result for {call_id!r}")
    if role == "assistant":
        yield _find("prefill", f"messages[{index}]", "")
        last = _blocks(message)[-1:]
        if (
            last
            and last[0].get("type") == "text"
            and str(last[0].get("text", "")) != str(last[0].get("text", "")).rstrip()
        ):
            yield _find("trailing-space", f"messages[{index}].content", "")


def _check_answer_fields(message: Json, blocks: list[Json], place: str) -> Iterator[Finding]:
    yield from (
        _find(rule, f"{place}.{name}", name)
        for name, rule in answer_fields_in(message, ANSWER_FIELDS)
    )
    for n, block in enumerate(blocks):
        at = f"{place}.content[{n}]"
        yield from (
            _find(rule, f"{at}.{name}", name)
            for name, rule in answer_fields_in(block, BLOCK_FIELDS)
        )


def _id(value: Any) -> str:
    """An id to look for; one that is not a text is written so that no other is taken for it."""
    if isinstance(value, str):
        return value
    return f"{value!r} (no text)"


def _blocks(message: Any) -> list[Json]:
    content = None
    if isinstance(message, dict):
        content = message.get("content")
    if isinstance(content, str):
        if content:
            return [{"type": "text", "text": content}]
        return []
    if isinstance(content, list):
        return [block for block in content or () if isinstance(block, dict)]
    return []


def _check_results(blocks: list[Json], place: str, pending: dict[str, str]) -> Iterator[Finding]:
    """The results of a message against the calls of the message before; what is left of `pending`
    is unanswered.
    """
    answered: set[Any] = set()
    other_first = False
    for n, block in enumerate(blocks):
        where = f"{place}.content[{n}]"
        if block.get("type") != "tool_result":
            other_first = True
            continue
        call_id = _id(block.get("tool_use_id"))
        if call_id in pending and call_id not in answered:
            answered.add(call_id)
            if other_first:
                yield _find("results-first", where, "something comes before the result")
        elif call_id in answered:
            yield _find("duplicate-result", where, f"a second result for {call_id!r}")
        else:
            yield _find("orphan-result", where, f"no call {call_id!r} in the message before")
    for call_id, where in pending.items():
        if call_id not in answered:
            yield _find("unanswered-call", where, f"no result for {call_id!r}")


def _check_calls(
    blocks: list[Json], place: str, pending: dict[str, str], seen: dict[str, None]
) -> Iterator[Finding]:
    for n, block in enumerate(blocks):
        if block.get("type") != "tool_use":
            continue
        where, call_id = f"{place}.content[{n}]", _id(block.get("id"))
        if not ID.fullmatch(call_id):
            yield _find("id-form", where, repr(block.get("id"))[:60])
        elif len(call_id) > 64:
            yield _find("id-length", where, f"{call_id[:20]!r}… has {len(call_id)}")
        if not isinstance(block.get("input"), dict):
            yield _find("input-object", f"{where}.input", type(block.get("input")).__name__)
        if call_id in seen:
            yield _find("duplicate-id", where, repr(call_id))
        pending[call_id] = where
        remember(seen, call_id)


def _server_pairs(blocks: list[Json], place: str) -> tuple[list[Finding], list[Finding]]:
    """Results of server tools without their use; and uses without a result, which only a last
    message may have.
    """
    uses: dict[str, str] = {}
    orphans = []
    for n, block in enumerate(blocks):
        kind = str(block.get("type"))
        if kind.endswith("_tool_use"):
            uses[_id(block.get("id"))] = f"{place}.content[{n}]"
        elif (
            kind.endswith("_tool_result") and uses.pop(_id(block.get("tool_use_id")), None) is None
        ):
            orphans.append(
                _find(
                    "server-tool-pair",
                    f"{place}.content[{n}]",
                    f"no use {block.get('tool_use_id')!r}",
                )
            )
    return orphans, [
        _find("server-tool-pair", where, f"no result for {use!r}") for use, where in uses.items()
    ]


def _check_texts(blocks: list[Json], place: str) -> Iterator[Finding]:
    for n, block in enumerate(blocks):
        if block.get("type") == "text" and not str(block.get("text", "")).strip():
            yield _find(
                "empty-text", f"{place}[{n}]", "only white space" if block.get("text") else ""
            )
            if block.get("cache_control"):
                yield _find("marked-empty-text", f"{place}[{n}]", "")
        if block.get("type") == "thinking" and not block.get("signature"):
            yield _find("thinking-signed", f"{place}[{n}]", "")
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield from _check_texts(
                [b for b in block["content"] if isinstance(b, dict)], f"{place}[{n}].content"
            )


def _check_places(blocks: list[Json], role: str, place: str) -> Iterator[Finding]:
    for n, block in enumerate(blocks):
        kind = block.get("type")
        if (kind in ("tool_use", "thinking", "redacted_thinking") and role != "assistant") or (
            kind == "tool_result" and role != "user"
        ):
            yield _find(
                "block-place", f"{place}.content[{n}]", f"{kind} in a message of the {role}"
            )


def _check_system(system: Any) -> Iterator[Finding]:
    if isinstance(system, list):
        yield from _check_texts([block for block in system if isinstance(block, dict)], "system")


class _Marks:
    """The cache marks met so far, in the order in which the provider reads them: tools, system,
    messages.
    """

    def __init__(self) -> None:
        self.count = 0
        self.short = ""

    def see(self, found: Iterable[tuple[str, Json]]) -> Iterator[Finding]:
        for place, mark in found:
            self.count += 1
            if self.count == MAX_MARKS + 1:
                yield _find("too-many-marks", place, "this is the fifth")
            if mark.get("ttl") == "1h" and self.short:
                yield _find("mark-order", place, f"1h comes after the 5m mark at {self.short}")
            elif mark.get("ttl") != "1h":
                self.short = self.short or place


def _head_marks(body: Json) -> Iterator[tuple[str, Json]]:
    tools, system = body.get("tools"), body.get("system")
    for n, tool in enumerate(tools if isinstance(tools, list) else ()):
        yield from _marks_of(tool, f"tools[{n}]")
    for n, block in enumerate(system if isinstance(system, list) else ()):
        yield from _marks_of(block, f"system[{n}]")


def _block_marks(blocks: list[Json], place: str) -> Iterator[tuple[str, Json]]:
    for n, block in enumerate(blocks):
        inner = None
        if block.get("type") == "tool_result":
            inner = block.get("content")
        for k, nested in enumerate(inner if isinstance(inner, list) else ()):
            yield from _marks_of(nested, f"{place}.content[{n}].content[{k}]")
        yield from _marks_of(block, f"{place}.content[{n}]")


def _marks_of(holder: Any, place: str) -> Iterator[tuple[str, Json]]:
    if isinstance(holder, dict) and isinstance(holder.get("cache_control"), dict):
        yield place, holder["cache_control"]


def _check_thinking(body: Json, messages: list[Any]) -> Iterator[Finding]:
    thinking = body.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
    if (
        not isinstance(budget, int)
        or budget < MIN_THINKING
        or (isinstance(limit, int) and budget >= limit)
    ):
        yield _find(
            "thinking-budget", "thinking.budget_tokens", f"{budget} with max_tokens {limit}"
        )
    # Real clients send system messages between; the rule looks past them.
    spoken = [
        (n, m) for n, m in enumerate(messages) if isinstance(m, dict) and m.get("role") != "system"
    ]
    if len(spoken) >= 2 and any(b.get("type") == "tool_result" for b in _blocks(spoken[-1][1])):
        index, message = spoken[-2]
        first = _blocks(message)[:1]
        if (
            message.get("role") == "assistant"
            and first
            and first[0].get("type") not in ("thinking", "redacted_thinking")
        ):
            yield _find(
                "thinking-kept", f"messages[{index}].content[0]", f"found {first[0].get('type')}"
            )


def _check_unchanged(messages: list[Any], original: list[Any]) -> Iterator[Finding]:
    def latest(of: list[Any]) -> tuple[int, list[Json]]:
        index = max(
            (n for n, m in enumerate(of) if isinstance(m, dict) and m.get("role") == "assistant"),
            default=-1,
        )
        kinds = ("thinking", "redacted_thinking")
        return index, [
            b for b in _blocks(of[index]) if b.get("type") in kinds
        ] if index >= 0 else []

    index, now = latest(messages)
    if now != latest(original)[1]:
        yield _find("thinking-changed", f"messages[{index}].content", "")
