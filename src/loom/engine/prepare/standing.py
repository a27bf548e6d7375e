"""What of the last epoch still stands, and its place in what was read now."""

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from loom.budget.counting import Counter, gate_counter, seed_counter, text_counter
from loom.context import EpochEnds, Options, Piece
from loom.conversation.turns import Span
from loom.engine.reading import AssembledMessages, Known
from loom.engine.views import View
from loom.stores import Node, Path

# a piece of the last epoch, and where on the path it begins and ends
Standing = tuple[Piece, int, int]
# windows of new text that can still be appended; no tokenizer counts so much less than another
_MAX_NEW_WINDOWS = 3


def counters(options: Options, model: str) -> tuple[Counter, Counter]:
    """The best counter for a model, and the policy's own."""
    best = (text_counter if options.document else gate_counter)(model or None, options.ratio)
    return best, best if options.policy.counter == "best" else seed_counter(options.policy.counter)


def known_stretches(view: View, options: Options) -> tuple[Known, ...]:
    """What a view of the same policy knows of what it left out, as it is counted now."""
    if view.epoch.policy != options.policy.name:
        return ()
    if view.ratio == options.ratio:
        return view.left
    factor = options.ratio / view.ratio
    return tuple(
        (start, stop, replace(known, tokens=ceil(known.tokens * factor)))
        for start, stop, known in view.left
    )


def shown_stretches(view: View | None, length: int) -> list[tuple[int, int]]:
    """The stretches of a path of this length that the last request showed word by word. All that
    came after them it showed too.
    """
    if view is None:
        return []
    pieces = zip(view.epoch.pieces, view.positions, strict=False)
    shown = [place for piece, place in pieces if not piece.is_left_out]
    return [*shown, (view.positions[-1][1] if view.positions else 0, length)]


def shown_on(view: View | None, path: Path, usable: int) -> list[tuple[int, int]]:
    """The stretches of a path that the last request showed, and what has come since, unless that is
    far too much.
    """
    shown = [
        (start, min(stop, len(path)))
        for start, stop in shown_stretches(view, len(path))
        if start < len(path)
    ]
    if view is not None and is_too_much(view, path, usable):
        return [(start, stop) for start, stop in shown if stop < len(path)]
    return shown


def dropped_on(view: View, path: Path, most: int) -> list[tuple[int, int]]:
    """The stretches of a path that the last request left out without a word in their place, the
    newest of them, up to so many tokens.
    """
    tokens = {(start, stop): known.tokens for start, stop, known in view.left}
    found: list[tuple[int, int]] = []
    placed = zip(view.epoch.pieces, view.positions, strict=False)
    for place in reversed([place for piece, place in placed if piece.action == "dropped"]):
        most -= tokens.get(place, 0)
        if most < 0 or place[1] > len(path):
            break
        found.append(place)
    return found


def is_too_much(view: View, path: Path, usable: int) -> bool:
    """Whether more has come since an epoch began than could be appended to it."""
    assert path.end is not None
    return (path.end.total - view.total) * min(view.ratio, 1) > _MAX_NEW_WINDOWS * usable


def standing_pieces(
    view: View | None, options: Options, shape: str, ends: EpochEnds | None
) -> list[Standing]:
    """The pieces of the last epoch that still stand, with their places on the path; none if what is
    hidden has changed.
    """
    if (
        view is None
        or ends is None
        or view.shape != shape
        or view.epoch.policy != options.policy.name
    ):
        return []
    placed = zip(view.epoch.pieces, view.positions, strict=False)
    return [(piece, *place) for piece, place in placed if ends.holds(piece)]


def place_pieces(standing: Sequence[Standing], assembled: AssembledMessages) -> tuple[Piece, ...]:
    """Those pieces by their places in what was read now, up to the first that has no place of its
    own.
    """
    index = PathIndex(assembled)
    made: list[Piece] = []
    for piece, start, stop in standing:
        first, last = index.at(start), index.at(stop)
        begin = made[-1].span.stop if made else 0
        if first is None or last is None or first == last:
            break
        if made and first > begin:  # repair left nothing of what is between them
            made[-1] = replace(made[-1], span=Span(made[-1].span.start, first))
        elif first != begin:
            break
        if not piece.is_left_out and any(assembled.places.unread(n) for n in range(first, last)):
            break
        made.append(replace(piece, span=Span(first, last)))
    return tuple(made)


class PathIndex:
    """Where places on the path stand among what was read."""

    def __init__(self, assembled: AssembledMessages) -> None:
        self._spots = assembled.places.spots
        self._starts = [spot.start for spot in self._spots]

    def at(self, place: int) -> int | None:
        """The first message at a place or after it; None if the place is inside of a stretch that
        was not read.
        """
        found = bisect_left(self._starts, place)
        if not found or self._spots[found - 1].stop <= place:
            return found
        return None


def first_after(assembled: AssembledMessages, depth: int) -> int:
    """The place of the first message that stands at this depth of the path or after it."""
    spots = assembled.places.spots
    return next((n for n, spot in enumerate(spots) if spot.start >= depth), len(spots))


def place_pins(pins: Sequence[Node], assembled: AssembledMessages) -> list[int]:
    """Where what is pinned is in what was read."""
    at: dict[str, int] = {}
    for n, spot in enumerate(assembled.places.spots):
        if not spot.unread:
            at.setdefault(spot.anchor, n)
            at |= {first: n for first, last in spot.nodes if first == last}
    return [at[pin.id] for pin in pins if pin.id in at]
