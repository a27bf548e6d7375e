"""The OpenAI responses wire: a list of items, where one model message is several.

What the model wrote in a row (reasoning, text, calls) is one message of ours. A text is an item of
its own, unless it shares one: the first of a list of content parts is marked `list`, the others
`with`.
"""

from loom.dialects.responses.parse import (
    join_items,
    parse,
    parse_item,
    parse_items,
    parse_messages,
    parse_part,
    parse_tool,
)
from loom.dialects.responses.render import render, render_messages
from loom.dialects.responses.rules import (
    ITEM_FIELDS,
    NAME,
    PART_FIELDS,
    REASONING_FIELDS,
    REFUSED_FORMS,
    RULES,
    check,
    check_messages,
)
from loom.dialects.wire import Dialect

__all__ = [
    "DIALECT",
    "NAME",
    "join_items",
    "parse",
    "parse_item",
    "parse_items",
    "parse_messages",
    "parse_part",
    "parse_tool",
    "render",
    "render_messages",
]

DIALECT = Dialect(
    name=NAME,
    title="OpenAI responses",
    parse=parse,
    render=render,
    check=check,
    parse_messages=parse_messages,
    render_messages=render_messages,
    check_messages=check_messages,
    messages_key="input",
    rules=RULES,
    first_listed_system=1,
    answer_fields=ITEM_FIELDS,
    answer_part_fields=ITEM_FIELDS | PART_FIELDS | REASONING_FIELDS,
    refused_forms=REFUSED_FORMS,
)
