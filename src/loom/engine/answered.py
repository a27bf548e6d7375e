"""An answer and what came of it: what it says, and the `→` commands that were in it."""

from collections.abc import Iterable
from hashlib import blake2b
from textwrap import indent

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.commands import Found, limit_batch, parse_commands
from loom.conversation.message import Message, Part, Text
from loom.engine.aware import Result
from loom.errors import Conflict
from loom.stores.path import Node


class Order(Struct, frozen=True):
    """The commands of an answer, in their order. `at` is the node where the agent knows itself to stand, if it looked.

    `conflict` says why its words were not written, if they were not.
    """

    commands: tuple[Found, ...]
    at: str | None = None
    conflict: Conflict | None = None


class Acted(Struct, frozen=True):
    """What came of an answer: what it says beside its commands, the nodes that say it, and what came of its commands."""

    said: str
    nodes: tuple[Node, ...] = ()
    results: tuple[Result, ...] = ()

    @property
    def node(self) -> Node | None:
        """The last node that was written; None where the answer was only commands, or was not written."""
        return self.nodes[-1] if self.nodes else None

    def __str__(self) -> str:
        said = [self.said] if self.said else []
        return "\n".join((*said, *(f"{result.command}\n{indent(result.text, '  ')}" for result in self.results)))


def digest_of(raw: str) -> str:
    """A short name of a response as it came; "" where there was none."""
    return blake2b(raw.encode(errors="surrogatepass"), digest_size=16).hexdigest() if raw else ""


def take_out_commands(messages: Iterable[Message]) -> tuple[tuple[Message, ...], tuple[Found, ...]]:
    """The messages without their `→` commands, and those commands. Calls, reasoning and all else stay as they came."""
    left: list[Message] = []
    found: list[Found] = []
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            text, commands = parse_commands(part.text) if isinstance(part, Text) else ("", ())
            found += commands
            if not isinstance(part, Text) or not commands:
                parts.append(part)
            elif text.strip():
                parts.append(replace(part, text=text))
        if len(parts) == len(message.parts) or parts:
            left.append(message if tuple(parts) == message.parts else replace(message, parts=tuple(parts)))
    return tuple(left), limit_batch(found)
