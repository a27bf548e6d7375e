"""Does the epoch go on? What the last request showed still stands, and what is new fits after it;
or the reason why not.
"""

from collections.abc import Sequence

from loom.context.history.covering import verbatim_tokens
from loom.context.history.epochs import Epoch, EpochEnds, hash_of
from loom.context.history.filling import evicts
from loom.context.history.fitting import Fitting
from loom.context.history.outlook import Outlook, Standing, calls_to_come, weigh
from loom.context.history.pieces import cost_of, up_to_last_cover
from loom.context.history.reasons import EpochReason
from loom.context.history.whole_turns import own_tokens
from loom.context.report import Piece
from loom.conversation.turns import exchanges

HEAD_CHANGED = EpochReason("head")
BEFORE_CHANGED = EpochReason("before_request")


def find_change(fitting: Fitting, epoch: Epoch) -> EpochEnds | None:
    """What keeps an epoch from going on before anything is counted: what is ahead of the history,
    the history itself, its pins.
    """
    if epoch.policy != fitting.policy.name:
        return EpochEnds(HEAD_CHANGED, 0)
    is_same = _is_history_same(fitting, epoch)
    if is_same:
        solid = epoch.seen
    else:
        solid = _find_unchanged(fitting, epoch)
    if epoch.head_hash != fitting.head_hash:
        return EpochEnds(HEAD_CHANGED, solid)
    if not is_same:
        return EpochEnds(EpochReason("history"), solid)
    if epoch.before_hash != fitting.before_hash:
        return EpochEnds(BEFORE_CHANGED, epoch.seen)
    if not _stand_whole(epoch, fitting.pins):
        return EpochEnds(EpochReason("pin"), epoch.seen)
    if fitting.floor and fitting.compacted is not None and fitting.compacted >= epoch.seen:
        return EpochEnds(EpochReason("compacted"), epoch.seen)
    return None


def find_growth(fitting: Fitting, epoch: Epoch) -> EpochEnds | None:
    """That the window is so much larger than when the epoch began that another one should begin,
    which nothing of the last one stands in.
    """
    if not epoch.has_outgrown(fitting.input_window):
        return None
    figures = {"before": epoch.input_window, "now": fitting.input_window}
    return EpochEnds(EpochReason("larger_window", figures), 0)


def _is_history_same(fitting: Fitting, epoch: Epoch) -> bool:
    """Whether the history is what it was. Where that is not at hand, its hash is."""
    before = fitting.history[: epoch.seen]
    if epoch.history is None:
        return hash_of(before) == epoch.hash
    return before == epoch.history


def _find_unchanged(fitting: Fitting, epoch: Epoch) -> int:
    """How far a history that changed is what it was: the exchange that was seen last may have been
    repaired otherwise since.

    Where the history of then is not at hand, its messages are known by their places on a path, on
    which nothing ever changes.
    """
    before = fitting.history[: epoch.seen]
    last = exchanges(before)[-1].start if before else 0
    if epoch.history is None or before[:last] == epoch.history[:last]:
        return last
    return 0


def _stand_whole(epoch: Epoch, pins: Sequence[int]) -> bool:
    """Whether all that is newly pinned stands whole in the previous request, or is new."""
    fresh = {pin for pin in pins if pin < epoch.seen and pin not in epoch.pins}
    if not fresh:
        return True
    whole = set(range(epoch.pieces[-1].span.stop, epoch.seen))
    for piece in epoch.pieces:
        if piece.is_whole:
            whole.update(range(piece.span.start, piece.span.stop))
    return fresh <= whole


def find_end(
    fitting: Fitting, epoch: Epoch, pieces: Sequence[Piece], outlook: Outlook
) -> EpochEnds | None:
    """What keeps an epoch from going on with these pieces: they no longer fit, the policy leaves
    out more, or a new one pays.
    """
    tokens, own = (
        cost_of(pieces),
        own_tokens(pieces, fitting.own) if fitting.formula is not None else 0,
    )
    if fitting.formula is not None and own > fitting.formula:
        figures = {"tokens": own, "room": fitting.formula}
        return EpochEnds(EpochReason("formula", figures), epoch.seen)
    if tokens > fitting.room:
        figures = {"tokens": tokens, "room": fitting.room}
        return EpochEnds(EpochReason("room", figures), epoch.seen)
    if evicts(fitting, pieces):
        reason = EpochReason("eviction", {"policy": fitting.policy.name})
        return EpochEnds(reason, epoch.seen)
    if outlook.pays:
        figures = {"saved": outlook.saved, "recached": outlook.recached}
        return EpochEnds(EpochReason("pays", figures), epoch.seen, early=True)
    return None


def expect(fitting: Fitting) -> Outlook:
    """How many calls are expected to come."""
    return Outlook(calls_to_come(_count_calls(fitting)))


def _count_calls(fitting: Fitting) -> int:
    """How often a model was asked; of what was never read, every other message is taken to be its
    answer.
    """
    calls = 0
    for n, message in enumerate(fitting.history):
        spot = fitting.places.unread(n)
        calls += spot.answers if spot else message.role == "assistant"
    return calls


def weigh_new_epoch(fitting: Fitting, pieces: Sequence[Piece], calls: int) -> Outlook:
    """What an epoch that began now would bring, where the policy lets one begin before it must and
    no call is in flight.
    """
    policy, room, tokens = fitting.policy, fitting.room, cost_of(pieces)
    early = policy.cold if fitting.cold else policy.early
    # Where all of it would fit, a new epoch would leave nothing out.
    whole = sum(piece.tokens_before for piece in pieces)
    if fitting.busy or early >= 1 or tokens < room * early or whole <= room:
        return Outlook(calls)
    standing = cost_of(up_to_last_cover(pieces))
    after, shared = _size_new_epoch(fitting, standing)
    said = sum(message.role == "assistant" for piece in pieces for message in piece.messages)
    growth = (tokens - standing) // max(said, 1)
    now = Standing(
        now=tokens, after=after, shared=shared, room=room, growth=growth, cold=fitting.cold
    )
    return weigh(now, calls, fitting.prices)


def _size_new_epoch(fitting: Fitting, standing: int) -> tuple[int, int]:
    """What an epoch that began now would take, and how much of that a provider has in its cache."""
    policy, room = fitting.policy, fitting.room
    if not policy.cover:
        return int(room * policy.refill), 0
    if standing + room * policy.cover > room * policy.covers:  # covers become one
        return int(room * policy.covers / 2) + verbatim_tokens(fitting), 0
    return int(standing + room * policy.cover) + verbatim_tokens(fitting), standing
