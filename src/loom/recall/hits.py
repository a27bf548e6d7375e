"""What a search finds: for the engine a `Match` by key, for callers a `Hit` with its message."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from loom.conversation.message import Message


class Match(Struct, frozen=True):
    """A document that was chosen: its key and score, why, and the keys of the documents around it
    that come with it, before and after, in order of place.

    `passage` is where in the text most of the question is said: from here to there, in characters.
    If it `is_whole`, the document is the result, else the passage is, for the document is too large
    for the budget. `tokens` is the price of the result and of what comes with it.
    """

    key: int
    score: float
    reason: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    passage: tuple[int, int]
    is_whole: bool
    tokens: int


class Neighbour(Struct, frozen=True):
    """A message next to a hit, which helps to understand it."""

    handle: str
    node: str
    place: int
    role: str
    message: Message


class Hit(Struct, frozen=True):
    """A message that says something of a query.

    `text` is the passage that says most of it, `message` the whole message. `neighbours` are
    messages around it that came with it, in order of place. `tokens` counts the message and its
    neighbours. `created` is in milliseconds since 1970. `reason` says why it was chosen.
    """

    handle: str
    node: str
    place: int
    role: str
    score: float
    text: str
    session: str
    created: int
    message: Message
    metadata: Mapping[str, Any] = field(default_factory=dict)
    neighbours: tuple[Neighbour, ...] = ()
    tokens: int = 0
    reason: str = ""
