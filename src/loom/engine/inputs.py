"""What callers give: messages, system text and tools in any form, and titles made of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from loom.context import make_conversation
from loom.conversation.message import Conversation, Message, Tool
from loom.conversation.metadata import find_metadata, write_metadata
from loom.conversation.names import flatten
from loom.dialects.input import is_sdk_object, parse_given
from loom.errors import ChoiceError, WireError, describe

Given = Any  # a text, a Message, a message in any wire's form, or an object of an SDK
MAX_TITLE_CHARS = 60  # of the first request that names a session


def parse_messages(messages: object) -> list[Message]:
    """Messages as a caller gives them: texts of the user, values, any wire's form, objects of an
    SDK.
    """
    if (
        not isinstance(messages, Iterable)
        or isinstance(messages, str | Mapping)
        or is_sdk_object(messages)
    ):
        raise ChoiceError(f"messages must be a list, found {describe(messages)}")
    given = [
        {"role": "user", "content": message} if isinstance(message, str) else message
        for message in messages
    ]
    try:
        return [_flatten_author(message) for message in parse_given(given)]
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("messages", "values that JSON can express", str(error)) from None


def parse_with_metadata(
    messages: Iterable[Given], metadata: object = None
) -> tuple[list[Message], list[str]]:
    """Messages as a caller gives them, and the metadata of each as it is stored.

    `metadata` is one object for all of them, or a list with one for each.
    """
    bare, own = find_metadata(list(messages))
    parsed = parse_messages(bare)
    if any(own) and len(parsed) != len(bare):
        raise ChoiceError(
            f"{len(bare)} values are {len(parsed)} messages, so the key `metadata` of one is of no "
            "single message; give the option `metadata`"
        )
    given = _metadata_of_each(metadata, len(parsed))
    if not any(own):
        own = [None] * len(parsed)
    return parsed, [
        write_metadata({**(first or {}), **(second or {})})
        for first, second in zip(given, own, strict=True)
    ]


def _metadata_of_each(metadata: object, count: int) -> list[Any]:
    if isinstance(metadata, list | tuple):
        if len(metadata) != count:
            raise ChoiceError(
                f"metadata must be an object, or a list with one for each message: found "
                f"{len(metadata)} for {count} messages"
            )
        given = list(metadata)
    else:
        given = [metadata] * count
    for each in given:
        write_metadata(each)
    return given


def parse_one_message(given: Given, metadata: object = None) -> tuple[Message, str]:
    """What a caller gives as one message, and its metadata as it is stored."""
    messages, beside = parse_with_metadata([given], metadata)
    if len(messages) != 1:
        raise ChoiceError(f"expected one message, found {len(messages)} in one; give each its own")
    return messages[0], beside[0]


def _flatten_author(message: Message) -> Message:
    """A message whose author's name is on one line: it is in headers, where a line break could
    forge another.
    """
    name = flatten(message.author)
    if name == message.author:
        return message
    return replace(message, author=name)


def parse_head(
    system: str | None, tools: Iterable[Tool | Mapping[str, Any]] | None
) -> Conversation:
    """The system text and the tools of a session, as a caller gives them."""
    try:
        return make_conversation((), system, tools)[0]
    except TypeError as error:  # a field that JSON cannot hold
        raise WireError("tools", "values that JSON can express", str(error)) from None


def title_of(messages: Iterable[Message]) -> str:
    """The first line of the first request."""
    return first_line(
        next(
            (
                message.text
                for message in messages
                if message.role == "user" and message.text.strip()
            ),
            "",
        )
    )


def first_line(text: str) -> str:
    """The first line of a text, short enough for a title."""
    line = "".join(c if c.isprintable() else " " for c in text.strip().partition("\n")[0]).strip()
    line = line.encode(errors="replace").decode()
    if len(line) <= MAX_TITLE_CHARS:
        return line
    return line[: MAX_TITLE_CHARS - 1] + "…"
