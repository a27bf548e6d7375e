"""What a wire says beyond words: carried fields, pieces of one provider, and settings, counted by
what a model reads of them.

Keys, texts and numbers are counted one by one, as they are and never as JSON writes them, so that a
text costs the same wherever it stands. What is sealed (signatures, encrypted thoughts and search
results) is opened by the provider, to about a token for four characters.
"""

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from loom.conversation.canonical import from_json
from loom.conversation.message import WIRE_NAMES, Carried

Measure = Callable[[str], int]

MEMBER_TOKENS = 3  # quotes, colon and comma around a key and its value, or around an item of a list
SEALED_CHARACTERS_PER_TOKEN = 4

# What is sent back for the provider's bookkeeping. No model reads it.
UNREAD_FIELDS = frozenset(("cache_control", "id", "index", "logprobs", "status", "type"))

# Settings that steer the server and are no words to the model. What is not in this list is counted:
# schemas, predictions, prompts.
UNREAD_SETTINGS = frozenset(
    (
        *(
            "audio",
            "background",
            "betas",
            "cache_control",
            "compaction",
            "container",
            "context_management",
            "conversation",
        ),
        *(
            "diagnostics",
            "fallbacks",
            "frequency_penalty",
            "include",
            "inference_geo",
            "logit_bias",
            "logprobs",
            "max_tool_calls",
        ),
        *(
            "max_completion_tokens",
            "max_output_tokens",
            "max_tokens",
            "metadata",
            "modalities",
            "model",
            "moderation",
            "n",
        ),
        *(
            "parallel_tool_calls",
            "presence_penalty",
            "previous_response_id",
            "prompt_cache_key",
            "prompt_cache_options",
        ),
        *(
            "prompt_cache_retention",
            "reasoning_effort",
            "safety_identifier",
            "seed",
            "service_tier",
            "speed",
            "stop",
        ),
        *(
            "stop_sequences",
            "store",
            "stream",
            "stream_options",
            "temperature",
            "thinking",
            "thread",
            "top_k",
            "top_logprobs",
        ),
        *("top_p", "truncation", "user", "verbosity"),
    )
)

_SEALED = re.compile(r"[A-Za-z0-9+/_=-]{64,}")
_LEVELS = ("outer", "inner", "item", "part")
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_SEALED_KEYS = frozenset(
    ("data", "encrypted_content", "encrypted_index", "signature", "thought_signature")
)


def sealed_tokens(sealed: str) -> int:
    """Tokens of what only the provider can open."""
    return -(-len(sealed) // SEALED_CHARACTERS_PER_TOKEN)


def field_tokens(
    carried: Carried | None, measure: Measure, unread: Collection[str] = UNREAD_FIELDS
) -> int:
    """Tokens of the fields that were carried beside a value, without those that no model reads.

    What a program's file said beside its messages is sent on no wire.
    """
    if carried is None or not carried.fields or carried.wire not in WIRE_NAMES:
        return 0
    return json_tokens(carried.fields, measure, unread)


def settings_tokens(settings: Carried | None, measure: Measure) -> int:
    """Tokens of the settings of a request that a model reads: the schema of the answer, a
    prediction, a prompt.
    """
    return field_tokens(settings, measure, UNREAD_SETTINGS)


def json_tokens(text: str, measure: Measure, unread: Collection[str] = ()) -> int:
    """Tokens of JSON: its keys, texts and numbers, without the members of these names."""
    value = from_json(text)
    if isinstance(value, dict):
        members = list(_members(value, unread))
    else:
        members = [("", value)]
    keys = sum(
        [MEMBER_TOKENS + measure(key) for key, held in members if key and held not in _EMPTY]
    )
    return keys + _value_tokens(members, measure)


def _members(fields: dict[str, Any], unread: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The fields that are read. Those of two levels of a wire are carried under names of our own,
    which are not sent.
    """
    for key, held in fields.items():
        if key in _LEVELS and isinstance(held, dict):
            yield from _members(held, unread)
        elif key not in unread:
            yield key, held


def _value_tokens(members: list[tuple[str, Any]], measure: Measure) -> int:
    """Tokens of what stands under these keys, however deep, without the keys themselves."""
    tokens = 0
    left = members
    while left:
        key, held = left.pop()
        if isinstance(held, dict):
            tokens += sum(
                [
                    MEMBER_TOKENS + measure(name)
                    for name, inside in held.items()
                    if inside not in _EMPTY
                ]
            )
            left += held.items()
        elif isinstance(held, list):
            tokens += MEMBER_TOKENS * len(held)
            left += [(key, item) for item in held]
        elif isinstance(held, str):
            is_sealed = key in _SEALED_KEYS and _SEALED.fullmatch(held) is not None
            tokens += sealed_tokens(held) if is_sealed else measure(held)
        elif held is not None:
            tokens += measure(str(held))
    return tokens
