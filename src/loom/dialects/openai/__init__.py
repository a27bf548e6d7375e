"""The OpenAI chat completions wire."""

from loom.dialects.openai.parse import parse, parse_message, parse_messages, parse_part, parse_tool
from loom.dialects.openai.render import render, render_messages
from loom.dialects.openai.rules import (
    ANSWER_FIELDS,
    CALL_FIELDS,
    FUNCTION_FIELDS,
    NAME,
    REFUSED_FORMS,
    RULES,
    check,
    check_messages,
)
from loom.dialects.wire import Dialect

__all__ = [
    "DIALECT",
    "NAME",
    "parse",
    "parse_message",
    "parse_messages",
    "parse_part",
    "parse_tool",
    "render",
    "render_messages",
]

DIALECT = Dialect(
    name=NAME,
    title="OpenAI chat completions",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="messages",
    rules=RULES,
    first_listed_system=0,
    answer_fields=ANSWER_FIELDS,
    answer_part_fields=CALL_FIELDS | FUNCTION_FIELDS,
    refused_forms=REFUSED_FORMS,
)
