"""Handles: short names, made from content and place, for what was left out; and the way back."""

from base64 import b32encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from loom.context.places import Places, Spot
from loom.conversation.canonical import to_json
from loom.conversation.message import Media, Message, Text, ToolCall, ToolResult
from loom.errors import ChoiceError

LENGTH = 13  # "~" and twelve letters: its length is fixed, so that a marker's size is known before it is made
SAMPLE = "~q7zx3wk5vj2p"  # as long in tokens as handles get: nothing in it is a word
NONE: Mapping[str, str] = MappingProxyType({})
_encode_lines = msgspec.json.Encoder().encode_lines


def to_lines(messages: Iterable[Message]) -> str:
    """Messages as canonical JSON lines."""
    messages = list(messages)
    try:
        return _encode_lines(messages).decode()  # the same lines as below, all at once
    except (UnicodeEncodeError, RecursionError):
        return "".join(to_json(message) + "\n" for message in messages)


def mint(place: str, content: str) -> str:
    digest = blake2b(content.encode(errors="surrogatepass"), digest_size=16, person=place.encode()[:16]).digest()
    return "~" + b32encode(blake2b(place.encode() + digest, digest_size=8).digest()).decode().lower()[: LENGTH - 1]


class Cut(Struct, frozen=True):
    """What a handle stands for where messages have ids: stretches of nodes (first and last id), a text of one node, or a text.

    `at` is the node of the path behind which all of it stands, where that is not the last of the nodes.
    """

    kind: Literal["span", "part", "text"]
    nodes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    at: str = ""


class Archive:
    """What was left out of one request, by handle: the text of a part, or the messages of a span as canonical JSON lines."""

    def __init__(self, digests: Mapping[str, str] = NONE) -> None:
        self._kept: dict[str, str | tuple[Message, ...]] = {}
        self.digests = digests  # what a model said of large texts, by the text

    def keep_text(self, place: str, text: str) -> str:
        handle = mint(place, text)
        self._kept[handle] = text
        return handle

    def keep_part(self, index: int, path: str, text: str) -> str:
        """A text of the message at this index."""
        return self.keep_text(f"{index}{path and '.'}{path}", text)

    def keep_span(self, start: int, messages: tuple[Message, ...]) -> str:
        # Hashing the hashes of messages would be cheaper, but the handle must be the same from any process.
        handle = mint(f"span {start}", to_lines(messages))
        self._kept[handle] = messages
        return handle

    def add(self, other: "Archive") -> None:
        """What another call of the same epoch left out can be recalled here too."""
        self._kept |= other._kept

    def recall(self, handle: str) -> str:
        if handle not in self._kept:
            raise ChoiceError(f"nothing was left out under {handle!r}; there are {len(self._kept)} handles, see the report")
        kept = self._kept[handle]
        return kept if isinstance(kept, str) else to_lines(kept)

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(self._kept)


class PathArchive(Archive):
    """The archive of a stored history. Handles are made from ids, so what was not read need not be; `fetch` brings it back."""

    def __init__(self, places: Places, fetch: Callable[[str], str], digests: Mapping[str, str] = NONE) -> None:
        super().__init__(digests)
        self._places, self._fetch = places, fetch
        held = (range(spot.start, spot.stop) for spot in places.spots if not spot.unread)
        self._held = {place for stretch in held for place in stretch} | places.hidden
        self.cuts: dict[str, Cut] = {}

    def keep_text(self, place: str, text: str) -> str:
        handle = super().keep_text(place, text)
        self.cuts.setdefault(handle, Cut("text", (), text))
        return handle

    def keep_part(self, index: int, path: str, text: str) -> str:
        spot = self._places.spots[index]
        handle = self.keep_text(f"{spot.nodes[0][0]}.{path}", text)
        self.cuts[handle] = Cut("part", spot.nodes, text, spot.at)
        return handle

    def keep_span(self, start: int, messages: tuple[Message, ...]) -> str:
        nodes: list[tuple[str, str]] = []
        last: Spot | None = None
        for spot in sorted(dict.fromkeys(self._places.spots[start : start + len(messages)]), key=lambda spot: spot.start):
            # Between two that were left out there may be only what repair dropped as empty.
            if last and not last.beside and not spot.beside and self._held.isdisjoint(range(last.stop, spot.start)):
                nodes[-1:] = [(nodes[-1][0], spot.nodes[0][1]), *spot.nodes[1:]]
            else:
                nodes += spot.nodes
            last = spot
        assert last is not None
        handle = mint("span", to_json(nodes))
        at = "" if last.anchor == nodes[-1][1] else last.anchor
        self.cuts[handle] = Cut("span", tuple(nodes), "", at)
        return handle

    def recall(self, handle: str) -> str:
        kept = self._kept.get(handle)
        return kept if isinstance(kept, str) else self._fetch(handle)

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(self.cuts)


def texts_of(message: Message) -> Iterator[tuple[str, str]]:
    """Every text of a message that can be cut, by its place in it; the whole message has the place ""."""
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
