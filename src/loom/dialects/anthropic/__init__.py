"""The Anthropic messages wire.

Here tool results are in user messages. A run of our `tool` messages becomes one of them; what a
user said in the same wire message is our next message, marked `joined`.
"""

from loom.dialects.anthropic.parse import (
    parse,
    parse_block,
    parse_message,
    parse_messages,
    parse_tool,
)
from loom.dialects.anthropic.render import render, render_messages
from loom.dialects.anthropic.rules import (
    ANSWER_FIELDS,
    BLOCK_FIELDS,
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
    "parse_block",
    "parse_message",
    "parse_messages",
    "parse_tool",
    "render",
    "render_messages",
]

DIALECT = Dialect(
    name=NAME,
    title="Anthropic messages",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="messages",
    rules=RULES,
    model_words=("claude",),
    answer_fields=ANSWER_FIELDS,
    answer_part_fields=BLOCK_FIELDS,
    refused_forms=REFUSED_FORMS,
)
