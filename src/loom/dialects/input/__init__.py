"""What callers and transcripts hand over, in any form: messages, tools, answers, SDK objects."""

from loom.dialects.input.answers import Answer, StopReason, check_kept_answer, parse_answer
from loom.dialects.input.mixed import (
    is_item,
    parse_call,
    parse_given,
    parse_one,
    parse_placed,
    parse_tool,
    speaks_anthropic,
    speaks_openai,
)
from loom.dialects.input.parsed import ParsedLists
from loom.dialects.input.plain import is_sdk_object

__all__ = [
    "Answer",
    "ParsedLists",
    "StopReason",
    "check_kept_answer",
    "is_item",
    "is_sdk_object",
    "parse_answer",
    "parse_call",
    "parse_given",
    "parse_one",
    "parse_placed",
    "parse_tool",
    "speaks_anthropic",
    "speaks_openai",
]
