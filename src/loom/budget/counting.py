"""Counting tokens: texts, messages, lists of messages and tools, by one profile, each message once.

Everything that travels is counted: text, reasoning, ids, names, arguments, results, what only one wire understands, and media
by the provider's formula. Trigger and cutter use the same counter: what one finds too long the other makes short enough.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from math import ceil
from typing import Any, assert_never

from loom.budget.chat import as_message, as_tool
from loom.budget.estimate import estimate_tokens
from loom.budget.media import media_tokens
from loom.budget.profiles import SEEDS, Characters, Estimated, Exact, Profile, profile_for
from loom.budget.tokenizers import tokenizer
from loom.conversation.message import Media, Message, Opaque, Reasoning, Text, Tool, ToolCall, ToolResult

# Enough for the longest sessions in use to be counted twice for the price of once.
REMEMBERED = 131_072


class Counter:
    """Counts by one profile, corrected by one ratio, and remembers what it has counted by content.

    Both are fixed for its life: a new calibration makes a new counter, so that counts within an epoch agree with each other.
    A count is remembered under the message's hash: no words are held, and a count takes the same room for any message.
    """

    def __init__(self, profile: Profile, *, ratio: float = 1.0, remember: int = REMEMBERED) -> None:
        self.profile = profile
        self.ratio = ratio
        self._remember = remember
        self._known: dict[int, int] = {}
        self._measure = _measure(profile.text)

    def count_text(self, text: str) -> int:
        """Tokens of a text on its own; 0 for none."""
        return self._corrected(self._measure(text)) if text else 0

    def count_message(self, message: Message) -> int:
        """Tokens of a message with its frame."""
        key = hash(message)
        known = self._known.get(key)
        if known is None:
            known = self._corrected(_message_tokens(message, self.profile, self._measure))
            if len(self._known) >= self._remember:
                # The oldest eighth goes at once: forgetting one by one would cost a step per message for ever after.
                for old in list(islice(self._known, max(1, self._remember // 8))):
                    self._known.pop(old, None)  # another thread may do the same
            self._known[key] = known
        return known

    def count_messages(self, messages: Iterable[Message]) -> int:
        """Tokens of a list of messages, with what the list itself costs."""
        return sum(map(self.count_message, messages)) + self.profile.per_list

    def count_tools(self, tools: Iterable[Tool]) -> int:
        """Tokens of tool definitions: name, description and schema of each."""
        return sum(self._corrected(_tool_tokens(tool, self.profile, self._measure)) for tool in tools)

    def _corrected(self, tokens: int) -> int:
        return tokens if self.ratio == 1.0 else ceil(tokens * self.ratio)


def counter_for(model: str | None = None, *, ratio: float = 1.0) -> Counter:
    """The best counter there is for a model."""
    return Counter(profile_for(model), ratio=ratio)


def _measure(text: Exact | Estimated | Characters) -> Callable[[str], int]:
    match text:
        case Exact(encoding):
            # Looked up at each call: the vocabulary loads when the first text is counted, not when a counter is made.
            return lambda counted: tokenizer(encoding)(counted)
        case Estimated():
            return estimate_tokens
        case Characters():
            return lambda counted: _divide(_length(counted, text), text)
        case _:
            assert_never(text)


def _length(text: str, how: Characters) -> int:
    return graphemes(text) if how.graphemes else len(text)


def _divide(characters: int, how: Characters) -> int:
    match how.rounding:
        case "floor":
            return characters * how.tokens // how.characters
        case "ceil":
            return -(-characters * how.tokens // how.characters)
        case "at least one":
            return max(1, characters * how.tokens // how.characters)
        case _:
            assert_never(how.rounding)


def _message_tokens(message: Message, profile: Profile, measure: Callable[[str], int]) -> int:
    texts = list(_texts(message, profile))
    how = profile.text
    if isinstance(how, Characters) and how.whole:
        tokens = _divide(sum([_length(text, how) for text in texts]) + profile.per_message_characters, how)
    else:
        tokens = sum([measure(text) for text in texts if text])
        if profile.per_listed_part:
            tokens += _listed_tokens(message, profile, measure)
    # Results of one message are messages of their own on wires that know no lists of them.
    frames = max(1, len(message.results))
    tokens += profile.per_message * frames + profile.per_call * len(message.calls)
    return tokens + sum([media_tokens(media, profile.media) for media in _media(message)])


def _texts(message: Message, profile: Profile) -> Iterator[str]:
    fields = profile.fields
    if "role" in fields:
        yield message.role
    if "author" in fields and message.author:
        yield message.author
    for part in message.parts:
        match part:
            case Text(text):
                if "content" in fields:
                    yield text
            case Reasoning(text, encrypted=encrypted):
                if "reasoning" in fields:
                    yield text
                    if "opaque" in fields:
                        # What is encrypted is opened by the provider, to about a token for four letters: three digits are one.
                        yield "0" * (3 * len(encrypted) // 4)
            case ToolCall():
                if "call" in fields:
                    yield part.id
                    yield part.name
                    yield part.arguments
                    if isinstance(profile.text, Characters):
                        yield part.kind
            case ToolResult():
                if "result_id" in fields:
                    yield part.call_id
                if "author" in fields:
                    yield part.name
                yield from _inner(part.parts, profile)
            case Media():
                yield from _inner((part,), profile)
            case Opaque():
                yield from _inner((part,), profile)
            case _:
                assert_never(part)


def _inner(parts: Iterable[Text | Media | Opaque], profile: Profile) -> Iterator[str]:
    for part in parts:
        match part:
            case Text(text):
                if "content" in profile.fields:
                    yield text
            case Opaque():
                if "opaque" in profile.fields:
                    yield part.json
            case Media():
                if "opaque" in profile.fields:
                    yield part.name
                    if part.source == "text":
                        yield part.value
            case _:
                assert_never(part)


def _media(message: Message) -> Iterator[Media]:
    for part in message.parts:
        if isinstance(part, Media):
            yield part
        elif isinstance(part, ToolResult):
            yield from (inner for inner in part.parts if isinstance(inner, Media))


def _listed_tokens(message: Message, profile: Profile, measure: Callable[[str], int]) -> int:
    """What it adds that a content is a list of parts: the wrapping, and what JSON escapes in the texts."""
    extra = 0
    holders: tuple[Message | ToolResult, ...] = (message, *message.results)
    for holder in holders:
        parts = [part for part in holder.parts if isinstance(part, Text | Media | Opaque)]
        match parts:
            case [] | [Text(carried=None)] if holder.carried is None or "list" not in holder.carried.form:
                continue
        extra += profile.per_listed_part * len(parts)
        for part in parts:
            if isinstance(part, Text):
                extra += max(0, measure(json.dumps(part.text)) - measure(part.text))
            if not isinstance(part, Opaque) and part.carried is not None:
                extra += measure(part.carried.fields)
    return extra


def _tool_tokens(tool: Tool, profile: Profile, measure: Callable[[str], int]) -> int:
    texts = [text for text in (tool.name, tool.description, tool.schema) if text]
    if tool.carried is not None and tool.carried.fields and "opaque" in profile.fields:
        texts.append(tool.carried.fields)
    how = profile.text
    if isinstance(how, Characters) and how.whole:
        return _divide(sum([_length(text, how) for text in texts]) + profile.per_tool_characters, how) + profile.per_tool
    return sum(map(measure, texts)) + profile.per_tool


def graphemes(text: str) -> int:
    """How many characters a reader sees: marks, joined emoji and flags count with what they belong to."""
    if text.isascii():
        return len(text) - text.count("\r\n")
    return len(text) - sum([len(joined) for joined in _extenders().findall(text)])


@cache
def _extenders() -> re.Pattern[str]:
    marks = [code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)) in ("Mn", "Me", "Mc")]
    ranges = "".join(f"{chr(code)}" for code in marks)
    return re.compile(
        f"[{ranges}\U0001f3fb-\U0001f3ff\U000e0020-\U000e01ef]"
        "|\u200d[^\\s\\w]?|\u200c|\r(?=\n)"
        "|(?<=[\U0001f1e6-\U0001f1ff])[\U0001f1e6-\U0001f1ff](?=(?:[\U0001f1e6-\U0001f1ff]{2})*(?![\U0001f1e6-\U0001f1ff]))"
    )


_turns = Counter(SEEDS["turns"], remember=1)


def estimate_message_tokens(message: Message | Mapping[str, Any]) -> int:
    """Seed 002's estimate of one message: 2.5 characters a token, 12 characters of frame, 256 tokens a media item."""
    return _message_tokens(as_message(message), _turns.profile, _turns.count_text)


def estimate_tool_defs_tokens(tools: Iterable[Tool | Mapping[str, Any]]) -> int:
    """Seed 002's estimate of tool definitions."""
    return _turns.count_tools(map(as_tool, tools))


def is_over_context_budget(
    context_window: int,
    messages: Iterable[Message | Mapping[str, Any]],
    tools: Iterable[Tool | Mapping[str, Any]] = (),
    max_tokens: int = 0,
) -> bool:
    """Whether messages, tools and the answer together exceed the window, by seed 002's estimate."""
    needed = sum(map(estimate_message_tokens, messages)) + estimate_tool_defs_tokens(tools) + max_tokens
    return needed > context_window
