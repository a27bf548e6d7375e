"""Epochs: what must be known of the last request to go on from it, or to begin another next to what
stands.
"""

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from loom.context.handles import Archive
from loom.context.history.outlook import Outlook
from loom.context.history.pieces import FittedHistory
from loom.context.history.reasons import EpochReason
from loom.context.history.summary_covers import SummarySpan
from loom.context.report import Piece, Report, Returns
from loom.context.tool_use import EpochTools
from loom.conversation.handles import to_lines
from loom.conversation.message import Message
from loom.conversation.turns import Span

# times as large as when an epoch began a window must be for what was left out to return
GROWN_WINDOW = 1.5


class Epoch(Struct, frozen=True, kw_only=True):
    """What must be known of the last request to go on from it: its pieces, and that history has not
    changed up to `seen`.

    Where the history itself is not at hand, its hash is; a piece without messages stands as it is
    in the history.
    """

    number: int
    policy: str
    head_hash: str
    before_hash: str = ""  # of the sections before the request, with its place
    pieces: tuple[Piece, ...]
    seen: int
    pins: tuple[int, ...] = ()
    history: tuple[Message, ...] | None = None
    hash: str = ""
    archive: Archive | None = None
    given_up: tuple[int, ...] = ()  # sections for which there was no room
    # zones of the system text that have some of what was free when it began
    widened: dict[str, int] = {}
    summaries: tuple[SummarySpan, ...] = ()  # those that there are, for the epoch that may begin
    # tokens that requests could take when it began; 0 if that is not known
    input_window: int = 0
    tools: EpochTools = EpochTools()

    def has_outgrown(self, input_window: int) -> bool:
        """Whether a window is so much larger than when the epoch began that what was left out or
        shrunk may return.
        """
        if not 0 < self.input_window * GROWN_WINDOW <= input_window:
            return False
        return any(not piece.is_whole for piece in self.pieces)

    @classmethod
    def of(cls, report: Report) -> "Epoch":
        """The epoch that the next call may continue."""
        found = report.continuation
        return cls(
            number=report.epoch,
            policy=report.policy,
            head_hash=found.head_hash,
            before_hash=found.before_hash,
            pieces=found.pieces,
            seen=len(found.history),
            pins=found.pins,
            history=found.history,
            archive=found.archive,
            given_up=found.given_up,
            widened=found.widened,
            input_window=found.input_window,
            tools=found.tools,
        )

    def for_store(self) -> "Epoch":
        """The same without its archive, which the store has, and with the hash of its history."""
        return replace(self, archive=None, hash=hash_of(self.history or ()))


class EpochEnds(Struct, frozen=True):
    """Why the last epoch does not go on. Another begins, next to what still stands.

    `solid` is how far its pieces still stand for what they did; None is all the way. It is less
    where what was seen last was repaired otherwise since, and nothing in another policy's epoch.
    `early`: the epoch could have gone on.
    """

    reason: EpochReason
    solid: int | None = None
    early: bool = False

    def holds(self, piece: Piece) -> bool:
        """Whether a piece of the last epoch still stands for what it did."""
        return self.solid is None or piece.span.stop <= self.solid


class Selection(Struct, frozen=True):
    """What of the history goes in, in which epoch, why, and what is expected of it."""

    fitted: FittedHistory
    number: int
    reason: EpochReason
    outlook: Outlook
    is_continued: bool = False
    renewed: bool = False
    rho: float | None = None  # by which a ladder was climbed, as it is now
    returns: Returns | None = None
    # what requests could take when the epoch began; 0 under a ladder, which is climbed each time
    input_window: int = 0


class Renewal(Struct, frozen=True):
    """That an epoch begins, its number and why: the last one cannot go on.

    `before` are the pieces of the last one that still stand, by their places in what was read now,
    and `summaries` those that there are. After an overflow, `floor` is the place before which
    nothing stands that need not. `early`: all would still fit.
    """

    number: int
    reason: EpochReason
    before: tuple[Piece, ...] = ()
    summaries: tuple[SummarySpan, ...] = ()
    floor: int = 0
    early: bool = False
    renew: bool = False  # that a fresh window begins is settled
    archive: Archive | None = None  # what the last epoch left out, where no store has it
    repaired: bool = False  # places are already those of the history as repair left it
    dropped: int = 0  # messages that the last epoch left out
    tools: EpochTools = EpochTools()  # what is known of the use of tools


def begin_after(epoch: Epoch, ends: EpochEnds) -> Renewal:
    """The epoch that begins where this one ends, of the same history; by places in it as repair
    left it.
    """
    return Renewal(
        epoch.number + 1,
        ends.reason,
        before=tuple(piece for piece in epoch.pieces if ends.holds(piece)),
        summaries=epoch.summaries,
        early=ends.early,
        archive=epoch.archive,
        repaired=True,
        dropped=sum(len(piece.span) for piece in epoch.pieces if piece.is_left_out),
        tools=epoch.tools,
    )


def place_after_repair(
    renewal: Renewal, origins: Sequence[int], history: Sequence[Message]
) -> Renewal:
    """The same, by places in the history as repair left it; `origins` tells where each message of
    that comes from.

    What stood word by word, or cut, must still be as many messages; from where it is not, nothing
    of the last epoch stands.
    """
    if renewal.repaired:
        return renewal
    if any(later < earlier for earlier, later in pairwise(origins)):
        return replace(renewal, before=(), summaries=(), floor=min(renewal.floor, len(history)))

    def move(span: Span) -> Span:
        return Span(bisect_left(origins, span.start), bisect_left(origins, span.stop))

    before: list[Piece] = []
    for piece in renewal.before:
        span = move(piece.span)
        if piece.is_left_out and not len(span):  # repair left nothing that it stands for
            continue
        messages = tuple(history[span.start : span.stop])
        if not piece.is_left_out and len(messages) != len(piece.items):
            break
        before.append(
            replace(piece, span=span, messages=messages if piece.is_whole else piece.messages)
        )
    summaries = tuple(replace(summary, span=move(summary.span)) for summary in renewal.summaries)
    return replace(
        renewal,
        before=tuple(before),
        summaries=summaries,
        floor=bisect_left(origins, renewal.floor),
    )


def hash_of(history: Sequence[Message]) -> str:
    return blake2b(to_lines(history).encode(errors="surrogatepass"), digest_size=12).hexdigest()
