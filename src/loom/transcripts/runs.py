"""A run: one conversation in a file, its messages read only when asked for."""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.message import Conversation, Message

SAMPLE_ITEMS = 100  # values of a list that are looked at to tell what it is


class Run(Struct, frozen=True, kw_only=True):
    """`head` is all but the messages; `messages()` reads them again each time, in bounded memory
    where the file is JSON lines.
    """

    number: int
    format: str
    wire: str
    head: Conversation
    messages: Callable[[], Iterator[Message]]
    name: str = ""
    streams: bool = True
    created: int = 0  # milliseconds since 1970 when it began; 0 if the file does not say
    # The messages, each with when it was said, if the file says so of each.
    timed: Callable[[], Iterator[tuple[Message, int]]] | None = None

    def dated_messages(self) -> Iterator[tuple[Message, int]]:
        """The messages, each with when it was said, in milliseconds since 1970; 0 if the file does
        not say.
        """
        if self.timed is not None:
            yield from self.timed()
            return
        for message in self.messages():
            yield message, self.created

    def conversation(self) -> Conversation:
        return replace(self.head, messages=tuple(self.messages()))


def make_run(
    number: int,
    format: str,
    wire: str,
    conversation: Conversation,
    name: str = "",
    created: int = 0,
) -> Run:
    """A run whose messages are already here."""
    head = replace(conversation, messages=())
    return Run(
        number=number,
        format=format,
        wire=wire,
        head=head,
        messages=lambda: iter(conversation.messages),
        name=name,
        streams=False,
        created=created,
    )
