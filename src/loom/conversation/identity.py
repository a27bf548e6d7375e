"""What makes a node that node: its id, made from what it says and where it is, and the key by
which a resent one is known.

Rules of this file:
- An id is `1:` and a hash of tree, parent, speaker, canonical parts and generation key. The `1` is
  the version of these rules.
- Canonical parts are what was said. What only one wire spells (carried fields, forms) is next to
  it, never inside.
- A match key also leaves out what clients shuffle when they send a history again: reasoning, the
  whitespace of arguments, the
  order of their keys, names of results. Tenant and project are inside it, tree and generation are
  not.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from loom.conversation.canonical import from_json, to_sorted_json
from loom.conversation.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)

VERSION = "1:"
MIN_ID_CHARS = 4  # characters of a short id
_FORM = re.compile(f"{VERSION}[a-z2-7]{{32}}")


def node_id(tree: str, parent: str, message: Message, generation: str = "") -> str:
    """The id of a message at a place. `generation` tells identical regenerations apart; it is empty
    for a plain append.
    """
    said = [
        tree,
        parent,
        message.role,
        message.author,
        [_canonical(part) for part in message.parts],
        generation,
    ]
    return VERSION + _hash(to_sorted_json(said), 20)


def root_key(tenant: str, project: str) -> str:
    """The match key of an empty path."""
    return _hash(to_sorted_json([tenant, project]), 15)


def match_key(before: str, message: Message) -> str:
    """The match key of a path that ends in this message; a message that clients may drop whole
    leaves it as it was.
    """
    kept = [_loose(part) for part in message.parts if not isinstance(part, Reasoning)]
    if message.parts and not kept:
        return before
    return _hash(to_sorted_json([before, message.role, message.author, kept]), 15)


def lost_key(before: str, identity: str) -> str:
    """The match key of a path that ends in a message whose words are gone: no history that is sent
    again has it.
    """
    return _hash(to_sorted_json([before, identity]), 15)


def short_ids(identity: str) -> Iterator[str]:
    """The names by which a node may be called in its tree, the shortest first; the last is the
    whole hash.
    """
    letters = identity.removeprefix(VERSION)
    for length in range(MIN_ID_CHARS, len(letters) + 1):
        yield letters[:length]


def is_node_id(text: str) -> bool:
    """Whether a text has the form of an id."""
    return _FORM.fullmatch(text) is not None


def is_short_id(name: str, identity: str) -> bool:
    """Whether a node of this id may be called so in its tree."""
    return len(name) >= MIN_ID_CHARS and identity.removeprefix(VERSION).startswith(name)


def _canonical(part: Part) -> list[Any]:
    match part:
        case Text():
            return ["text", part.text]
        case Media():
            return [
                "media",
                part.kind,
                part.source,
                _hash(part.value, 20),
                part.media_type,
                part.name,
            ]
        case Reasoning():
            return ["reasoning", part.text, part.origin, part.signature, part.encrypted]
        case ToolCall():
            return ["call", part.id, part.name, part.arguments, part.kind]
        case ToolResult():
            return [
                "result",
                part.call_id,
                [_canonical(inner) for inner in part.parts],
                part.error,
                part.name,
                part.kind,
            ]
        case Opaque():
            return ["opaque", part.wire, part.json, part.call_id, part.answers]


def _loose(part: Part) -> list[Any]:
    match part:
        case ToolCall():
            return ["call", part.id, part.name, _loose_json(part.arguments), part.kind]
        case ToolResult():
            return [
                "result",
                part.call_id,
                [_loose(inner) for inner in part.parts],
                part.error,
                part.kind,
            ]
        case Opaque():
            return ["opaque", part.wire, _loose_json(part.json)]
        case _:
            return _canonical(part)


def _loose_json(text: str) -> str:
    try:
        return to_sorted_json(from_json(text))
    except ValueError:
        return text.strip()


def _hash(text: str, size: int) -> str:
    """A hash of 15 or 20 bytes in base 32, small letters."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()
    spread = int.from_bytes(digest) << 8 * (_LONGEST - size)
    for high, low, by in _SPREAD:
        spread = (spread & high) << by | spread & low
    return spread.to_bytes(32).translate(_LETTERS).decode()[: size * 8 // 5]


def _spreading() -> Iterator[tuple[int, int, int]]:
    """How 32 times five bits are moved apart until each five are in a byte of their own: in
    halves, quarters and so on.
    """
    starts = [0]
    for wide in (80, 40, 20, 10, 5):
        low = sum((1 << wide) - 1 << start for start in starts)
        yield low << wide, low, wide // 5 * 3
        starts = [place for start in starts for place in (start, start + wide // 5 * 8)]


# The library's own base 32 takes most of the time that it takes to make an id.
_LONGEST = 20
_SPREAD = tuple(_spreading())
_LETTERS = (b"abcdefghijklmnopqrstuvwxyz234567" * 8)[:256]
