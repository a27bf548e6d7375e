"""What was done and why: a line for every item in a request and every span left out of it."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from loom.context.handles import Archive
from loom.context.history.outlook import Outlook
from loom.context.history.places import Places, Stretch
from loom.context.history.reasons import ALONE, EpochReason
from loom.context.quotes import Quote, introduce_quotes, render_quotes
from loom.context.tool_use import EpochTools
from loom.conversation.message import Message, Text, Tool
from loom.conversation.turns import Span, exchanges
from loom.errors import ChoiceError

Action = Literal["kept", "shrunk", "covered", "dropped", "repaired", "hidden"]


# what is not in the request itself; of what is covered, some lines are
LEFT_OUT: tuple[Action, ...] = ("dropped", "covered")
CUT: tuple[Action, ...] = (*LEFT_OUT, "shrunk")


class Item(Struct, frozen=True, omit_defaults=True):
    """One thing: where it is, what was done to it by which rule, its tokens before and after,
    and the way back.

    `returns_at` is the window at which it would be complete again: all that outranks it, itself,
    and the reserve.
    """

    place: str
    zone: str
    action: Action
    rule: str
    before: int
    after: int
    handles: tuple[str, ...] = ()
    returns_at: int = 0

    @property
    def is_left_out(self) -> bool:
        """Whether it is not in the request itself; of what is covered, some lines are."""
        return self.action in LEFT_OUT


class Piece(Struct, frozen=True):
    """A stretch of the history as it will be sent."""

    span: Span
    messages: tuple[Message, ...]
    items: tuple[Item, ...]
    quotes: tuple[Quote, ...] = ()  # what a cover says

    @property
    def action(self) -> Action:
        """What was done to it; where it is a message or more that are in the request, to the first
        of them.
        """
        return self.items[0].action

    @property
    def is_left_out(self) -> bool:
        """Whether the request has a marker or a cover in its place."""
        return self.items[0].is_left_out

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in the request as it was said."""
        return all(item.action == "kept" for item in self.items)

    @property
    def without_quotes(self) -> tuple[Message, ...]:
        """Its messages; of a cover, the marker alone."""
        if not self.quotes:
            return self.messages
        text = self.messages[0].text
        marker = text.removesuffix(introduce_quotes(self.quotes))
        return (replace(self.messages[0], parts=(Text(marker),)),)

    @property
    def introduction(self) -> str:
        """What a cover says before its quotes."""
        return self.messages[0].text.removesuffix(self.text_of_quotes).rstrip()

    @property
    def text_of_quotes(self) -> str:
        """What a cover says after its introduction."""
        return render_quotes(self.quotes)

    def with_quotes(self, quotes: tuple[Quote, ...]) -> "Piece":
        """A marker with quotes after it."""
        if not quotes:
            return self
        text = self.messages[0].text + introduce_quotes(quotes)
        message = replace(self.messages[0], parts=(Text(text),))
        return replace(self, messages=(message,), quotes=quotes)

    @property
    def tokens(self) -> int:
        return sum(item.after for item in self.items)

    @property
    def tokens_before(self) -> int:
        return sum(item.before for item in self.items)


class Returns:
    """The windows at which what was cut in an epoch that continues would be complete again, by
    place.

    What came since is shown before it. To find them takes as long as to begin an epoch, so they are
    found when somebody asks.
    """

    def __init__(self, find: Callable[[], Mapping[str, int]]) -> None:
        self._find = find

    @cached_property
    def windows(self) -> Mapping[str, int]:
        return self._find()


class Continuation(Struct, frozen=True, kw_only=True):
    """What the next call needs to continue an epoch, and what only this process knows of a request:
    its history in pieces.
    """

    pieces: tuple[Piece, ...]
    head_hash: str
    before_hash: str = ""  # of the sections before the request, with its place
    history: tuple[Message, ...]
    pins: tuple[int, ...]
    archive: Archive
    places: Places
    given_up: tuple[int, ...]  # sections for which there was no room
    # zones of the system text that have some of what was free when the epoch began
    widened: dict[str, int]
    # what may still come in before history gives way, by the policy's own counter
    own_room: int | None
    section_items: tuple[Item, ...] = ()
    is_continued: bool = False  # the request only grew at its end
    reason: EpochReason = ALONE  # why the epoch began, or that it goes on
    returns: Returns | None = None
    input_window: int = 0  # what requests could take when the epoch began
    tools: EpochTools = EpochTools()  # which tools the epoch declares
    all_tools: tuple[Tool, ...] = ()  # those of the caller

    def left_out(
        self, best: Callable[[Message], int], own: Callable[[Message], int]
    ) -> tuple[tuple[int, int, Stretch], ...]:
        """Where each stretch that was left out begins and ends, and what is known of it: its tokens
        by the best counter and by the policy's own.
        """
        places, history = self.places, self.history
        tokens = places.costs(history, best)
        own_tokens = places.costs(history, own, own != best)
        begins = {span.start for span in exchanges(history)}
        made: list[tuple[int, int, Stretch]] = []
        for piece in self.pieces:
            if not piece.is_left_out:
                continue
            inside, at = range(piece.span.start, piece.span.stop), places.span(piece.span)
            unread = [(n, places.unread(n)) for n in inside]
            stretch = Stretch(
                sum(map(places.count, inside)),
                sum(tokens[n] for n in inside),
                sum(own_tokens[n] for n in inside),
                sum(spot.exchanges if spot else n in begins for n, spot in unread),
                sum(spot.answers if spot else history[n].role == "assistant" for n, spot in unread),
            )
            made.append((at.start, at.stop, stretch))
        return tuple(made)


class Report(Struct, frozen=True, kw_only=True, dict=True):
    """What is in a request, what was left out of it, and why. All sizes are in tokens."""

    # Name of the policy.
    policy: str
    # Name of the model; "" if none is named.
    model: str
    # Name of the counter that measured the request.
    counter: str
    # Size of the whole window.
    window: int
    # Part of the window that is reserved for the answer.
    reserved_output: int
    # Size of the request.
    input_tokens: int
    # Part of the window that stays free, because the model's own tokenizer is not public.
    margin: int = 0
    # For each zone, how much it may use and how much it uses.
    zones: dict[str, dict[str, int]]
    # The items, as they were when the epoch began. Read `items` instead.
    lines: tuple[Item, ...]
    # How many messages were left out.
    dropped: int
    # Whether anything was left out or shrunk.
    truncated: bool
    # How much of the request a provider can cache: tools, system text and history, without the
    # tail.
    prefix_tokens: int
    # A hash of that part. If two requests have the same one, the second can use the cache.
    prefix_hash: str
    # Number of the epoch. An epoch is a series of requests that only grow at their end.
    epoch: int
    # Why the epoch began, or that it continues.
    epoch_reason: str
    # How many calls are expected, and whether a new epoch would pay.
    outlook: Outlook = Outlook(1)
    # Whether this request hands the work over to a fresh window.
    renewed: bool = False
    # The pressure that the steps of a ladder compare; None if the policy has no ladder.
    rho: float | None = None
    # What the reader should know, in sentences.
    notes: tuple[str, ...] = ()
    # Ids of tool calls that the repair changed: the new id, and the one that was given.
    ids: dict[str, str] = {}

    @property
    def continuation(self) -> Continuation:
        """What the next call needs to continue this epoch. A report that was read back from JSON
        does not have it.
        """
        if not isinstance(found := self.__dict__.get(_CONTINUATION), Continuation):
            raise ChoiceError(
                "this report has no context any more, so no epoch can continue from it; give the "
                "context itself"
            )
        return found

    def attach(self, continuation: Continuation) -> None:
        """Attach what the next call needs to continue this epoch. It is not a field and not part of
        the JSON.
        """
        self.__dict__[_CONTINUATION] = continuation

    @property
    def items(self) -> tuple[Item, ...]:
        """One item for each part of the request, and for each span that was left out."""
        continuation = self.__dict__.get(_CONTINUATION)
        if continuation is None or continuation.returns is None:
            return self.lines
        windows = continuation.returns.windows
        return tuple(
            replace(line, returns_at=windows[line.place])
            if line.action in CUT and line.place in windows
            else line
            for line in self.lines
        )

    @property
    def usable(self) -> int:
        """The window without what is reserved for the answer."""
        return self.window - self.reserved_output

    @property
    def pressure(self) -> float:
        """The size of the request divided by `usable`. A policy with a ladder measures it with its
        own counter.
        """
        if self.rho is not None:
            return round(self.rho, 4)
        if self.usable > 0:
            return round(self.input_tokens / self.usable, 4)
        return 1.0

    def as_dict(self) -> dict[str, Any]:
        """The report as values that JSON can express."""
        fields = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("lines", "rho")
        }
        return fields | {
            "outlook": asdict(self.outlook),
            "pressure": self.pressure,
            "items": self._describe_items(),
        }

    def _describe_items(self) -> list[dict[str, Any]]:
        """The items, and what covers quote."""
        found = self.__dict__.get(_CONTINUATION)
        pieces = found.pieces if isinstance(found, Continuation) else ()
        quotes = {piece.items[0].place: piece.quotes for piece in pieces if piece.quotes}
        described = [asdict(item) for item in self.items]
        for item in described:
            if item["action"] == "covered" and item["place"] in quotes:
                item["quotes"] = [quote.as_dict() for quote in quotes[item["place"]]]
        return described


_CONTINUATION = "_continuation"
