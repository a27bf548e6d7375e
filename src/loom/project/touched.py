"""What a conversation asks of a project: its request and goal, and the paths and names that it was
about.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from loom.conversation.canonical import from_json
from loom.conversation.message import Message, Part, Text, ToolCall
from loom.project.rank.ranking import MapRequest
from loom.project.rank.request import paths_in

RECENT_MESSAGES = 40  # messages at the end of a conversation that tell what it touched
MAX_TOUCHED_NAMES = 24  # paths and names
_MAX_TEXT_CHARS = 4000  # characters of a text that are looked at
_NAME = re.compile(r"[^\W\d]\w{2,99}(?:(?:\.|::|#)[^\W\d]\w{1,99})*")
_CODE = re.compile(r"`([^`\n]{3,200})`")


def asked_by(goal: str, request: str, recent: Sequence[Message]) -> MapRequest:
    """What a conversation asks of its project now. A goal says what a short request leaves out."""
    if goal and goal != request:
        query = f"{request}\n\n{goal}"
    else:
        query = request
    return MapRequest(query=query, touched=touched_names(recent))


def asked_in(messages: Sequence[Message]) -> MapRequest:
    """The same of a whole history."""
    users = [message.text for message in messages if message.role == "user" and message.text]
    return asked_by(
        users[0] if users else "", users[-1] if users else "", messages[-RECENT_MESSAGES:]
    )


def touched_names(messages: Iterable[Message]) -> tuple[str, ...]:
    """The paths and names that a model called tools with or spoke of, the newest last. What tools
    answered lists too much.
    """
    found: dict[str, None] = {}
    for message in messages:
        if message.role != "assistant":
            continue
        for part in message.parts:
            for one in _in_part(part):
                found.pop(one, None)
                found[one] = None
    return tuple(found)[-MAX_TOUCHED_NAMES:]


def _in_part(part: Part) -> Iterator[str]:
    match part:
        case ToolCall():
            return _in_arguments(part)
        case Text(text):
            return _in_words(text)
        case _:
            return iter(())


def _in_arguments(call: ToolCall) -> Iterator[str]:
    for text in _texts(_value(call.arguments)):
        if _NAME.fullmatch(text):
            yield text
        yield from paths_in(text[:_MAX_TEXT_CHARS])


def _in_words(text: str) -> Iterator[str]:
    shown = text[:_MAX_TEXT_CHARS]
    yield from paths_in(shown)
    yield from (
        name for code in _CODE.findall(shown) if _NAME.fullmatch(name := code.removesuffix("()"))
    )


def _value(arguments: str) -> object:
    try:
        return from_json(arguments)
    except ValueError:
        return arguments


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a value, however deep within reason."""
    match value:
        case str():
            yield value
        case dict() if depth < 4:
            for one in value.values():
                yield from _texts(one, depth + 1)
        case list() if depth < 4:
            for one in value[:50]:
                yield from _texts(one, depth + 1)
