"""Archives: what a request left out, by handle, and the way back."""

from collections.abc import Callable, Collection, Mapping
from itertools import count
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from loom.context.history.places import Places, Spot
from loom.conversation.canonical import to_json
from loom.conversation.handles import mint, to_lines
from loom.conversation.message import Message
from loom.errors import ChoiceError

NONE: Mapping[str, str] = MappingProxyType({})


class Cut(Struct, frozen=True):
    """What a handle stands for where messages have ids: stretches of nodes (first and last id), a
    text of one node, or a text.

    `at` is the node of the path after which all of it stands, where that is not the last of the
    nodes. `minted_at` is the place from which the handle was made.
    """

    kind: Literal["span", "part", "text"]
    nodes: tuple[tuple[str, str], ...] = ()
    text: str = ""
    at: str = ""
    minted_at: str = ""


class Archive:
    """What was left out of one request, by handle: the text of a part, or the messages of a span as
    canonical JSON lines.

    One handle never names two things: where the words of `before` (the last request), or `taken` by
    others, have it already, the place is numbered until the handle is free.
    """

    def __init__(
        self,
        digests: Mapping[str, str] = NONE,
        before: "Archive | None" = None,
        taken: Collection[str] = frozenset(),
    ) -> None:
        self._kept: dict[str, str | tuple[Message, ...]] = {}
        self._named: dict[str, object] = {}  # what each handle stands for, to tell two things apart
        self._parts: dict[int, set[str]] = {}  # the handles of parts, by the index of their message
        self._earlier = before._named if before else {}
        self._taken = taken
        self.digests = digests  # what a model said of large texts, by the text
        # messages, by index, that a rule of the policy changed
        self.originals: Mapping[int, Message] = MappingProxyType({})
        self.cuts: dict[str, Cut] = {}  # by handle, where messages have ids

    def keep_text(self, place: str, text: str) -> str:
        handle, _ = self._name(place, text, text)
        self._kept[handle] = text
        return handle

    def keep_part(self, index: int, path: str, text: str) -> str:
        """A text of the message at this index."""
        handle = self.keep_text(f"{index}{path and '.'}{path}", text)
        self._parts.setdefault(index, set()).add(handle)
        return handle

    def keep_span(self, start: int, messages: tuple[Message, ...]) -> str:
        messages = tuple(
            self.originals.get(start + n, message) for n, message in enumerate(messages)
        )
        # Hashing the hashes of messages would be cheaper, but the handle must be the same from any
        # process.
        handle, _ = self._name(f"span {start}", to_lines(messages), messages)
        self._kept[handle] = messages
        return handle

    def _name(self, place: str, content: str, thing: object) -> tuple[str, str]:
        """A handle that names this and nothing else, and the place from which it was made."""
        for attempt in count():
            minted_at = f"{place} #{attempt}" if attempt else place
            handle = mint(minted_at, content)
            if (
                handle not in self._taken
                and self._named.get(handle, self._earlier.get(handle, thing)) == thing
            ):
                self._named[handle] = thing
                return handle, minted_at
        raise AssertionError("a handle is free after finitely many attempts")

    def parts_of(self, index: int) -> Collection[str]:
        """The handles under which texts of the message at this index were kept. Its own words may
        only look like some.
        """
        return self._parts.get(index, ())

    def add(self, other: "Archive") -> None:
        """What another call of the same epoch left out can be recalled here too."""
        self._kept |= other._kept
        self._named |= other._named

    def recall(self, handle: str) -> str:
        found = self.find(handle)
        return found if isinstance(found, str) else to_lines(found)

    def find(self, handle: str) -> str | tuple[Message, ...]:
        """What was left out under a handle: a text, or messages."""
        if handle not in self._kept:
            raise ChoiceError(
                f"nothing was left out under {handle!r}; there are {len(self._kept)} handles, see "
                "the report"
            )
        return self._kept[handle]

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(self._kept)


class PathArchive(Archive):
    """The archive of a stored history. Handles are made from ids, so what was not read need not be;
    `fetch` brings it back.
    """

    def __init__(
        self,
        places: Places,
        fetch: Callable[[str], str],
        digests: Mapping[str, str] = NONE,
        taken: Collection[str] = frozenset(),
    ) -> None:
        super().__init__(digests, None, taken)
        self._places, self._fetch = places, fetch
        held = (range(spot.start, spot.stop) for spot in places.spots if not spot.unread)
        self._held = {place for stretch in held for place in stretch} | places.hidden

    def keep_text(self, place: str, text: str) -> str:
        handle, minted_at = self._name(place, text, text)
        self._kept[handle] = text
        self.cuts.setdefault(handle, Cut("text", (), text, minted_at=minted_at))
        return handle

    def keep_part(self, index: int, path: str, text: str) -> str:
        spot = self._places.spots[index]
        handle, minted_at = self._name(f"{spot.nodes[0][0]}.{path}", text, text)
        self._kept[handle] = text
        self._parts.setdefault(index, set()).add(handle)
        self.cuts[handle] = Cut("part", spot.nodes, text, spot.at, minted_at)
        return handle

    def keep_span(self, start: int, messages: tuple[Message, ...]) -> str:
        nodes: list[tuple[str, str]] = []
        last: Spot | None = None
        for spot in sorted(
            dict.fromkeys(self._places.spots[start : start + len(messages)]),
            key=lambda spot: spot.start,
        ):
            # Between two that were left out there may be only what repair dropped as empty.
            if (
                last
                and not last.beside
                and not spot.beside
                and self._held.isdisjoint(range(last.stop, spot.start))
            ):
                nodes[-1:] = [(nodes[-1][0], spot.nodes[0][1]), *spot.nodes[1:]]
            else:
                nodes += spot.nodes
            last = spot
        assert last is not None
        handle, minted_at = self._name("span", to_json(nodes), tuple(nodes))
        at = "" if last.anchor == nodes[-1][1] else last.anchor
        self.cuts[handle] = Cut("span", tuple(nodes), "", at, minted_at)
        return handle

    def recall(self, handle: str) -> str:
        kept = self._kept.get(handle)
        if isinstance(kept, str):
            return kept
        return self._fetch(handle)

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(self.cuts)
