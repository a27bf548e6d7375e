"""Handles: short names, made from content and place, for what was left out of a request."""

import re
from base64 import b32encode
from collections.abc import Iterable, Iterator
from hashlib import blake2b

import msgspec

from loom.conversation.canonical import to_json
from loom.conversation.message import Media, Message, Text, ToolCall, ToolResult

# "~" and twelve characters: its length is fixed, so that a marker's size is known before it is made
HANDLE_CHARS = 13
SAMPLE = "~q7zx3wk5vj2p"  # as long in tokens as handles get: nothing in it is a word
_FORM = re.compile(f"~[a-z2-7]{{{HANDLE_CHARS - 1}}}")
_encode_lines = msgspec.json.Encoder().encode_lines


def to_lines(messages: Iterable[Message]) -> str:
    """Messages as canonical JSON lines."""
    messages = list(messages)
    try:
        return _encode_lines(messages).decode()  # the same lines as below, all at once
    except (UnicodeEncodeError, RecursionError):
        return "".join(to_json(message) + "\n" for message in messages)


def mint(place: str, content: str) -> str:
    """The handle of this content at this place; the same from any process."""
    digest = blake2b(
        content.encode(errors="surrogatepass"), digest_size=16, person=place.encode()[:16]
    ).digest()
    return (
        "~"
        + b32encode(blake2b(place.encode() + digest, digest_size=8).digest())
        .decode()
        .lower()[: HANDLE_CHARS - 1]
    )


def is_handle(text: str) -> bool:
    """Whether a text has the form of a handle."""
    return _FORM.fullmatch(text) is not None


def texts_of(message: Message) -> Iterator[tuple[str, str]]:
    """Every text of a message that can be cut, by its place in it; the whole message has the place
    "".
    """
    for n, part in enumerate(message.parts):
        match part:
            case Text():
                yield f"{n}", part.text
            case Media():
                yield f"{n}", to_json(part)
            case ToolCall():
                yield f"{n}", part.arguments
            case ToolResult():
                for k, inner in enumerate(part.parts):
                    if isinstance(inner, Text):
                        yield f"{n}.{k}", inner.text
                    elif isinstance(inner, Media):
                        yield f"{n}.{k}", to_json(inner)
    yield "", to_json(message)
