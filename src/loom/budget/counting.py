"""Counting tokens: texts, messages, lists of messages and tools, by one profile, each message once.

Everything that travels is counted: text, reasoning, ids, names, arguments, results, what only one
wire understands, settings, and media by the provider's formula. A text is counted as it is, also
where a wire writes it in a list: what JSON escapes in it no model reads. Trigger and cutter use the
same counter: what one finds too long the other makes short enough.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from math import ceil
from typing import Any, assert_never

from msgspec.structs import replace

from loom.budget.chat import as_message, as_tool
from loom.budget.estimate import estimate_tokens
from loom.budget.fields import field_tokens, json_tokens, sealed_tokens, settings_tokens
from loom.budget.media import PLACEHOLDER_TOKENS, media_tokens
from loom.budget.profiles import (
    SEEDS,
    Characters,
    CountedBy,
    EstimatedText,
    Exact,
    Profile,
    profile,
    profile_for,
    profile_of,
)
from loom.budget.tokenizers import tokenizer
from loom.conversation.canonical import from_json, to_json
from loom.conversation.checked import check_number, checks_arguments
from loom.conversation.message import (
    Carried,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.conversation.parts import walk_parts

# Enough for the longest sessions in use to be counted twice for the price of once.
MAX_REMEMBERED_COUNTS = 131_072
# counts for models whose own tokenizer is not public, with the policy's margin
STAND_IN = "o200k_base"


class Counter:
    """Counts by one profile, corrected by one ratio, and remembers what it has counted by content.

    Both are fixed for its life: a new calibration makes a new counter, so that counts within an
    epoch agree with each other. A count is remembered under the message's hash: no words are held,
    and a count takes the same room for any message.
    """

    def __init__(
        self, profile: Profile, *, ratio: float = 1.0, remember: int = MAX_REMEMBERED_COUNTS
    ) -> None:
        self.profile = profile
        self.ratio = ratio
        self._remember = remember
        self._known: dict[int, int] = {}
        self._measure = _measure(profile.text)

    def count_text(self, text: str) -> int:
        """Tokens of a text on its own; 0 for none."""
        if text:
            return self._apply_ratio(self._measure(text))
        return 0

    def count_text_once(self, text: str) -> int:
        """Tokens of a text on its own, remembered: for what is counted again and again."""
        key = hash(("text", text))
        known = self._known.get(key)
        if known is None:
            known = self.count_text(text)
            self._remember_count(key, known)
        return known

    def count_message(self, message: Message) -> int:
        """Tokens of a message with its frame."""
        key = hash(message)
        known = self._known.get(key)
        if known is None:
            known = self._apply_ratio(_message_tokens(message, self.profile, self._measure))
            self._remember_count(key, known)
        return known

    def _remember_count(self, key: int, tokens: int) -> None:
        if len(self._known) >= self._remember:
            # The oldest eighth goes at once: forgetting one by one would cost a step per
            # message for ever after.
            for old in list(islice(self._known, max(1, self._remember // 8))):
                self._known.pop(old, None)  # another thread may do the same
        self._known[key] = tokens

    def count_messages(self, messages: Iterable[Message]) -> int:
        """Tokens of a list of messages, with what the list itself costs."""
        return sum(map(self.count_message, messages)) + self.profile.per_list

    def count_tools(self, tools: Iterable[Tool]) -> int:
        """Tokens of tool definitions: name, description and schema of each."""
        return sum(
            self._apply_ratio(_tool_tokens(tool, self.profile, self._measure)) for tool in tools
        )

    def count_settings(self, settings: Carried | None) -> int:
        """Tokens of what a request says beside messages and tools: the answer's schema, a
        prediction, and the like.
        """
        if "opaque" not in self.profile.fields:
            return 0
        return self._apply_ratio(settings_tokens(settings, self._measure))

    def _apply_ratio(self, tokens: int) -> int:
        if self.ratio == 1.0:
            return tokens
        return ceil(tokens * self.ratio)


def counter_for(model: str | None = None, *, ratio: float = 1.0) -> Counter:
    """The best counter there is for a model."""
    return Counter(profile_for(model), ratio=ratio)


def _measure(text: Exact | EstimatedText | Characters | CountedBy) -> Callable[[str], int]:
    match text:
        case Exact(encoding):
            # Looked up at each call: the vocabulary loads when the first text is counted, not when
            # a counter is made.
            return lambda counted: tokenizer(encoding)(counted)
        case EstimatedText():
            return estimate_tokens
        case Characters():
            return lambda counted: _divide(_length(counted, text), text)
        case CountedBy(function):
            return lambda counted: check_number("what a counter returns", function(counted))
        case _:
            assert_never(text)


def _length(text: str, how: Characters) -> int:
    if how.graphemes:
        return graphemes(text)
    return len(text)


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
    # Results of one message are messages of their own on wires that know no lists of them.
    frames = max(1, len(message.results))
    if isinstance(how, Characters) and how.whole:
        tokens = _divide(
            sum([_length(text, how) for text in texts]) + profile.per_message_characters * frames,
            how,
        )
    else:
        tokens = sum([measure(text) for text in texts if text])
        tokens += _listed_tokens(message, profile)
        if "opaque" in profile.fields:
            tokens += _carried_tokens(message, measure)
    tokens += profile.per_message * frames + profile.per_call * len(message.calls)
    return tokens + sum([_media_tokens(media, profile, measure) for media in _media(message)])


def _texts(message: Message, profile: Profile) -> Iterator[str]:  # noqa: C901
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
            case Reasoning(text):
                if "reasoning" in fields:
                    yield text
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
                pass  # counted by `_carried_tokens`
            case Media():
                if "opaque" in profile.fields:
                    yield part.name
                    if part.source == "text":
                        yield part.value
            case _:
                assert_never(part)


def _media(message: Message) -> Iterator[Media]:
    return (part for part in walk_parts(message.parts) if isinstance(part, Media))


def _media_tokens(media: Media, profile: Profile, measure: Callable[[str], int]) -> int:
    tokens = media_tokens(media, profile.media)
    if media.source in ("url", "id") and "opaque" in profile.fields:
        # A wire that cannot carry it gets a line with its address instead.
        return max(tokens, measure(media.value) + PLACEHOLDER_TOKENS)
    return tokens


def _listed_tokens(message: Message, profile: Profile) -> int:
    """What it adds that a content is a list: the wrapping of each part."""
    if not profile.per_listed_part:
        return 0
    listed = 0
    holders: tuple[Message | ToolResult, ...] = (message, *message.results)
    for holder in holders:
        parts = [part for part in holder.parts if isinstance(part, Text | Media | Opaque)]
        match parts:
            case [] | [Text(carried=None)] if (
                holder.carried is None or "list" not in holder.carried.form
            ):
                continue
        listed += len(parts)
    return profile.per_listed_part * listed


def _carried_tokens(message: Message, measure: Callable[[str], int]) -> int:
    """What travels beside the words: fields of one wire, pieces that only it understands, and what
    is sealed.
    """
    parts = [_beside_part(part, measure) for part in walk_parts(message.parts)]
    return _message_field_tokens(message, measure) + sum(parts)


def _message_field_tokens(message: Message, measure: Callable[[str], int]) -> int:
    carried = message.carried
    if carried is None or not carried.fields:
        return 0
    if '"reasoning_details"' not in carried.fields:
        return field_tokens(carried, measure)
    # The details hold the reasoning once more, in pieces; what is sent is about the longer of the
    # two.
    fields = from_json(carried.fields)
    details = json_tokens(to_json(fields.pop("reasoning_details", None)), measure)
    thoughts = sum(
        [measure(part.text) for part in message.parts if isinstance(part, Reasoning) and part.text]
    )
    return max(0, details - thoughts) + field_tokens(
        Carried(carried.wire, to_json(fields)), measure
    )


def _beside_part(part: Part, measure: Callable[[str], int]) -> int:
    match part:
        case Opaque():
            return json_tokens(_without_sound(part), measure)
        case Reasoning():
            return _sealed_thought_tokens(part, measure)
        case ToolCall():
            return field_tokens(part.carried, measure) + _wrapped_input_tokens(part, measure)
    if part.carried is None:
        return 0
    return field_tokens(part.carried, measure)


def _without_sound(part: Opaque) -> str:
    """The JSON of a piece; what a model said aloud is sent by its id or its transcript, never as
    sound.
    """
    if part.wire != "openai" or "audio" not in part.form:
        return part.json
    audio = from_json(part.json)
    return to_json({key: value for key, value in audio.items() if key != "data"})


def _sealed_thought_tokens(part: Reasoning, measure: Callable[[str], int]) -> int:
    """What reasoning takes beyond its text: the text may be a summary of what the signature seals,
    and fields repeat it.
    """
    beyond = max(field_tokens(part.carried, measure), sealed_tokens(part.signature))
    if beyond and part.text:
        beyond = max(0, beyond - measure(part.text))
    return beyond + sealed_tokens(part.encrypted)


def _wrapped_input_tokens(call: ToolCall, measure: Callable[[str], int]) -> int:
    """What an input that is no JSON object takes more where a wire demands one: it is put into an
    object, and escaped there.
    """
    if not call.arguments or (call.kind == "function" and call.arguments.lstrip().startswith("{")):
        return 0
    return max(0, measure(to_json({"input": call.arguments})) - measure(call.arguments))


def _tool_tokens(tool: Tool, profile: Profile, measure: Callable[[str], int]) -> int:
    texts = [text for text in (tool.name, tool.description, tool.schema) if text]
    beside = 0
    if "opaque" in profile.fields:
        beside = field_tokens(tool.carried, measure)
    how = profile.text
    if isinstance(how, Characters) and how.whole:
        return (
            _divide(sum([_length(text, how) for text in texts]) + profile.per_tool_characters, how)
            + profile.per_tool
        )
    return sum(map(measure, texts)) + beside + profile.per_tool


def graphemes(text: str) -> int:
    """How many characters a reader sees: marks, joined emoji and flags count with what they belong
    to.
    """
    if text.isascii():
        return len(text) - text.count("\r\n")
    return len(text) - sum([len(joined) for joined in _extenders().findall(text)])


@cache
def _extenders() -> re.Pattern[str]:
    marks = [
        code
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code)) in ("Mn", "Me", "Mc")
    ]
    ranges = "".join(f"{chr(code)}" for code in marks)
    return re.compile(
        f"[{ranges}\U0001f3fb-\U0001f3ff\U000e0020-\U000e01ef]"
        "|\u200d[^\\s\\w]?|\u200c|\r(?=\n)"
        "|(?<=[\U0001f1e6-\U0001f1ff])[\U0001f1e6-\U0001f1ff]"
        "(?=(?:[\U0001f1e6-\U0001f1ff]{2})*(?![\U0001f1e6-\U0001f1ff]))"
    )


@lru_cache(maxsize=16)
def gate_counter(model: str | None, ratio: float = 1.0) -> Counter:
    """The best counter for a model, kept, so that no message is counted twice."""
    made = profile_for(model)
    if not isinstance(made.text, Exact):
        made = replace(made, text=Exact(STAND_IN), name=STAND_IN)
    return Counter(made, ratio=ratio)


@lru_cache(maxsize=16)
def seed_counter(given: str | Callable[[str], int]) -> Counter:
    """The counter of a profile, by its name, or by a function; kept, so that no message is counted
    twice.
    """
    return Counter(profile(given) if isinstance(given, str) else profile_of(given))


@lru_cache(maxsize=16)
def text_counter(model: str | None, ratio: float = 1.0) -> Counter:
    """The best counter for the nodes of a document, which have no frames: they become one
    message.
    """
    return Counter(replace(gate_counter(model, ratio).profile, per_message=0), ratio=ratio)


_turns = Counter(SEEDS["turns"], remember=1)


@checks_arguments
def estimate_message_tokens(message: Message | Mapping[str, Any]) -> int:
    """Seed 002's estimate of one message: 2.5 characters a token, 12 characters of frame, 256
    tokens a media item.
    """
    return _message_tokens(as_message(message), _turns.profile, _turns.count_text)


@checks_arguments
def estimate_tool_defs_tokens(tools: Iterable[Tool | Mapping[str, Any]]) -> int:
    """Seed 002's estimate of tool definitions."""
    return _turns.count_tools(map(as_tool, tools))


@checks_arguments
def is_over_context_budget(
    context_window: int,
    messages: Iterable[Message | Mapping[str, Any]],
    tools: Iterable[Tool | Mapping[str, Any]] = (),
    max_tokens: int = 0,
) -> bool:
    """Whether messages, tools and the answer together exceed the window, by seed 002's estimate."""
    needed = (
        sum(map(estimate_message_tokens, messages)) + estimate_tool_defs_tokens(tools) + max_tokens
    )
    return needed > context_window
