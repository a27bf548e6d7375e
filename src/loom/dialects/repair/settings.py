"""Put right what a request says besides its words: tools that are declared twice, and for
Anthropic's wire cache marks and thinking.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from loom.conversation.canonical import from_json, to_json
from loom.conversation.message import Carried, Conversation, Message, Opaque, Part, Tool, ToolResult
from loom.conversation.parts import walk_parts
from loom.dialects import anthropic
from loom.dialects.anthropic.rules import MAX_MARKS, MAX_UNSTREAMED, MIN_THINKING, UNSTREAMED_MODELS
from loom.dialects.settings import thinking_tokens
from loom.dialects.wire import Json, carried_fields, carry

Changes = list[tuple[str, str]]
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def mend_settings(
    conversation: Conversation, marked: bool | None = None
) -> tuple[Conversation, Changes]:
    """The conversation with each tool declared once, at most four cache marks in a lawful order,
    and thinking off where it cannot be on.

    `marked` says whether its messages carry marks, where that is known.
    """
    changes: Changes = []
    conversation = _mend_limit(conversation, changes)
    conversation = _mend_tools(conversation, changes)
    if marked or has_marks(conversation if marked is None else replace(conversation, messages=())):
        conversation = _mend_marks(conversation, changes)
    return _mend_thinking(conversation, changes), changes


def has_marks(conversation: Conversation) -> bool:
    """Whether anything in it carries a cache mark."""
    return any(_carries_mark(tool.carried) for tool in conversation.tools) or marks_in(
        (*conversation.system, *conversation.messages)
    )


def marks_in(messages: Iterable[Message]) -> bool:
    """Whether a part of these messages carries a cache mark."""
    for message in messages:
        for part in walk_parts(message.parts):
            if _is_marked(part):
                return True
    return False


def _is_marked(part: Part) -> bool:
    if isinstance(part, Opaque):
        return part.wire == anthropic.NAME and '"cache_control"' in part.json
    return part.carried is not None and _carries_mark(part.carried)


def _carries_mark(carried: Carried | None) -> bool:
    return (
        carried is not None
        and carried.wire == anthropic.NAME
        and '"cache_control"' in carried.fields
    )


def _mend_limit(conversation: Conversation, changes: Changes) -> Conversation:
    """Without an output limit that is not a number."""
    settings = conversation.settings
    if settings is None or not any(f'"{key}"' in settings.fields for key in _LIMITS):
        return conversation
    fields: Json = from_json(settings.fields)
    for key in _LIMITS:
        if fields.get(key) is not None and not isinstance(fields[key], int):
            changes.append(("no-max-tokens", f"dropped {key}, which is not a number"))
            del fields[key]
    return replace(conversation, settings=carry(settings.wire, fields, settings.form))


def _mend_tools(conversation: Conversation, changes: Changes) -> Conversation:
    """Without functions that have the name of one before them."""
    names = [tool.name for tool in conversation.tools if tool.kind == "function"]
    if len(set(names)) == len(names):
        return conversation
    left: list[Tool] = []
    seen: set[str] = set()
    for tool in conversation.tools:
        if tool.kind == "function" and tool.name in seen:
            changes.append(("duplicate-tool", f"dropped another definition of {tool.name}"))
            continue
        seen.add(tool.name if tool.kind == "function" else "")
        left.append(tool)
    return replace(conversation, tools=tuple(left))


def _mend_marks(conversation: Conversation, changes: Changes) -> Conversation:
    found: list[Json] = []

    def look(mark: Json) -> Json:
        found.append(mark)
        return mark

    _rewrite(conversation, look)
    surplus = len(found) - MAX_MARKS
    long_after_short = False
    short = False
    for mark in found[max(surplus, 0) :]:
        long_after_short |= short and mark.get("ttl") == "1h"
        short |= mark.get("ttl") != "1h"
    if surplus <= 0 and not long_after_short:
        return conversation
    seen, short = 0, False

    def mend(mark: Json) -> Json | None:
        nonlocal seen, short
        seen += 1
        # a later mark covers all that comes before it, so the first ones are missed least
        if seen <= surplus:
            changes.append(("too-many-marks", "removed a cache mark"))
            return None
        if mark.get("ttl") != "1h":
            short = True
        elif short:
            changes.append(("mark-order", "shortened a cache mark from 1h to 5m"))
            return mark | {"ttl": "5m"}
        return mark

    return _rewrite(conversation, mend)


def mend_marks_as_they_pass(messages: Iterable[Message], changes: Changes) -> Iterator[Message]:
    """A stream with its first four cache marks in a lawful order and no more: what comes later
    cannot be known.
    """
    seen, short = 0, False

    def mend(mark: Json) -> Json | None:
        nonlocal seen, short
        seen += 1
        if seen > MAX_MARKS:
            changes.append(("too-many-marks", "removed a cache mark"))
            return None
        if mark.get("ttl") == "1h" and short:
            changes.append(("mark-order", "shortened a cache mark from 1h to 5m"))
            return mark | {"ttl": "5m"}
        short |= mark.get("ttl") != "1h"
        return mark

    for message in messages:
        yield _rewrite(Conversation(messages=(message,)), mend).messages[0]


def _rewrite(conversation: Conversation, change: Callable[[Json], Json | None]) -> Conversation:
    """The conversation with each cache mark replaced, in the order in which the provider reads
    them.
    """
    tools = tuple([_rewrite_carried(tool, change) for tool in conversation.tools])
    system = tuple([_rewrite_message(message, change) for message in conversation.system])
    messages = tuple([_rewrite_message(message, change) for message in conversation.messages])
    return replace(conversation, tools=tools, system=system, messages=messages)


def _rewrite_message(message: Message, change: Callable[[Json], Json | None]) -> Message:
    parts = tuple([_rewrite_part(part, change) for part in message.parts])
    if _are_same(parts, message.parts):
        return message
    return replace(message, parts=parts)


def _rewrite_part(part: Part, change: Callable[[Json], Json | None]) -> Part:
    if isinstance(part, Opaque):
        if part.wire != anthropic.NAME or '"cache_control"' not in part.json:
            return part
        return replace(part, json=_rewrite_fields(part.json, change))
    if isinstance(part, ToolResult):
        inner: Any = tuple([_rewrite_part(each, change) for each in part.parts])
        if not _are_same(inner, part.parts):
            part = replace(part, parts=inner)
    return _rewrite_carried(part, change)


_Bearer = TypeVar("_Bearer", Tool, Part)


def _rewrite_carried(bearer: _Bearer, change: Callable[[Json], Json | None]) -> _Bearer:
    """A tool or a part with the mark that it carries replaced; the very same where nothing
    changes.
    """
    carried: Carried | None = getattr(bearer, "carried", None)
    if carried is None or carried.wire != anthropic.NAME or '"cache_control"' not in carried.fields:
        return bearer
    fields = _rewrite_fields(carried.fields, change)
    if fields == carried.fields:
        return bearer
    changed = carry(carried.wire, from_json(fields) if fields else None, carried.form)
    return replace(bearer, carried=changed)


def _rewrite_fields(text: str, change: Callable[[Json], Json | None]) -> str:
    fields: Json = from_json(text)
    # Media keep their block's fields one level down.
    if isinstance(fields.get("outer"), dict):
        holder = fields["outer"]
    else:
        holder = fields
    if isinstance(holder.get("cache_control"), dict):
        mark = change(holder.pop("cache_control"))
        if mark is not None:
            holder["cache_control"] = mark
    if fields:
        return to_json(fields)
    return ""


def _are_same(made: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    """Whether these are the very same objects."""
    return all(a is b for a, b in zip(made, given, strict=True))


def _mend_thinking(conversation: Conversation, changes: Changes) -> Conversation:
    settings = conversation.settings
    if settings is None or settings.wire != anthropic.NAME or '"thinking"' not in settings.fields:
        return conversation
    broken = [
        f
        for f in anthropic.DIALECT.check(anthropic.render(conversation).wire)
        if f.rule in ("thinking-budget", "thinking-kept")
    ]
    if not broken:
        return conversation
    fields: Json = from_json(settings.fields)
    budget, limit = thinking_tokens(settings), conversation.max_output or 0
    if [finding.rule for finding in broken] == [
        "thinking-budget"
    ] and budget >= limit > MIN_THINKING:
        lowered = max(MIN_THINKING, limit // 2)
        fields["thinking"]["budget_tokens"] = lowered
        changes.append(
            (
                "thinking-budget",
                f"lowered thinking from {budget:,} to {lowered:,} tokens: the answer may take "
                f"{limit:,}",
            )
        )
    else:
        del fields["thinking"]
        changes += [(finding.rule, "turned thinking off") for finding in broken]
    return replace(conversation, settings=carry(settings.wire, fields, settings.form))


def limit_unstreamed(conversation: Conversation) -> Conversation:
    """The conversation with an answer that Anthropic's client accepts without streaming, unless it
    streams or thinks for longer.
    """
    most = next(
        (tokens for name, tokens in UNSTREAMED_MODELS if name.search(conversation.model)),
        MAX_UNSTREAMED,
    )
    settings = conversation.settings
    is_streamed = (
        settings is not None and carried_fields(settings, settings.wire).get("stream") is True
    )
    if is_streamed or (conversation.max_output or 0) <= most or thinking_tokens(settings) >= most:
        return conversation
    return replace(conversation, max_output=most)
