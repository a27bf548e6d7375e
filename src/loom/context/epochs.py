"""Epochs: what must be known of the last request to go on from it, or to begin anew beside what stands."""

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from loom.context.handles import Archive, to_lines
from loom.context.report import Piece, Report
from loom.context.told import Told
from loom.conversation.message import Message
from loom.conversation.turns import Span


class Epoch(Struct, frozen=True, kw_only=True):
    """What must be known of the last request to go on from it: its pieces, and that history has not changed up to `seen`.

    Where the history itself is not at hand, its hash is; a piece without messages stands as it is in the history.
    """

    number: int
    policy: str
    head_hash: str
    pieces: tuple[Piece, ...]
    seen: int
    pins: tuple[int, ...] = ()
    history: tuple[Message, ...] | None = None
    hash: str = ""
    archive: Archive | None = None
    given_up: tuple[int, ...] = ()  # sections for which there was no room
    only: bool = False  # where it cannot go on, say so (EpochEnds) rather than begin another


class EpochEnds(Exception):
    """The last epoch does not go on; the reason is its text. For callers that read the history anew. `early`: it could have."""

    def __init__(self, reason: str, early: bool = False) -> None:
        super().__init__(reason)
        self.early = early


class Renewal(Struct, frozen=True):
    """That an epoch begins, its number and why: the caller knows that the last one cannot go on, and read the history anew.

    `before` are the pieces of the last one up to its last cover, by their places in what was read now, and `told` the summaries
    that there are. After an overflow, `floor` is the place before which nothing stands that need not. `early`: all would still fit.
    """

    number: int
    reason: str
    before: tuple[Piece, ...] = ()
    told: tuple[Told, ...] = ()
    floor: int = 0
    early: bool = False
    renew: bool = False  # that a fresh window begins is settled


def mended(renewal: Renewal, origins: Sequence[int], history: Sequence[Message]) -> Renewal:
    """The same, by places in the history as repair left it; `origins` tells where each message of that comes from.

    What stood word by word must still be what stands there, else nothing of the last epoch stands.
    """
    if any(later < earlier for earlier, later in pairwise(origins)):
        return replace(renewal, before=(), told=(), floor=min(renewal.floor, len(history)))

    def moved(span: Span) -> Span:
        return Span(bisect_left(origins, span.start), bisect_left(origins, span.stop))

    before: list[Piece] = []
    for piece in renewal.before:
        span = moved(piece.span)
        said = tuple(history[span.start : span.stop])
        whole = all(item.action == "kept" for item in piece.items)
        if piece.items[0].action != "covered" and (len(said) != len(piece.items) or (whole and piece.messages not in ((), said))):
            before = []
            break
        before.append(replace(piece, span=span, messages=said if whole else piece.messages))
    told = tuple(replace(one, span=moved(one.span)) for one in renewal.told)
    return replace(renewal, before=tuple(before), told=told, floor=bisect_left(origins, renewal.floor))


def epoch_of(report: Report) -> Epoch:
    return Epoch(
        number=report.epoch,
        policy=report.policy,
        head_hash=report.head_hash,
        pieces=report.pieces,
        seen=len(report.history),
        pins=report.pins,
        history=report.history,
        archive=report.archive,
        given_up=report.given_up,
    )


def hash_of(history: Sequence[Message]) -> str:
    return blake2b(to_lines(history).encode(errors="surrogatepass"), digest_size=12).hexdigest()
