"""Handles: short names, made from content and place, for what was left out; and the way back."""

from base64 import b32encode
from collections.abc import Iterable
from hashlib import blake2b

from loom.conversation.canonical import to_json
from loom.conversation.message import Message
from loom.errors import ChoiceError

LENGTH = 13  # "~" and twelve letters: its length is fixed, so that a marker's size is known before it is made
SAMPLE = "~q7zx3wk5vj2p"  # as long in tokens as handles get: nothing in it is a word


def to_lines(messages: Iterable[Message]) -> str:
    """Messages as canonical JSON lines."""
    return "".join(to_json(message) + "\n" for message in messages)


def mint(place: str, content: str) -> str:
    digest = blake2b(content.encode(errors="surrogatepass"), digest_size=16, person=place.encode()[:16]).digest()
    return "~" + b32encode(blake2b(place.encode() + digest, digest_size=8).digest()).decode().lower()[: LENGTH - 1]


class Archive:
    """What was left out of one request, by handle: the text of a part, or the messages of a span as canonical JSON lines."""

    def __init__(self) -> None:
        self._kept: dict[str, str | tuple[Message, ...]] = {}

    def keep_text(self, place: str, text: str) -> str:
        handle = mint(place, text)
        self._kept[handle] = text
        return handle

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
