"""The most important of many messages at once. Importance itself is in `importance.py`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom.recall.importance import MAX_USE_FACTOR, MESSAGE_HALF_LIFE_MS, USE_WEIGHT

_MIN_LOOKED_AT = 64
_ROUNDED_DIGITS = 6

Numbers = NDArray[Any]


class RankedMessages(NamedTuple):
    """Columns of messages. Equal texts have the same digest; 0 is like none."""

    keys: Numbers
    created: Numbers
    ranks: Numbers
    digests: Numbers
    ordinals: Numbers


def rank_values(bases: Numbers, moments: Numbers, uses: Numbers) -> Numbers:
    """For each message what `rank_value` gives."""
    factors = np.minimum(1 + USE_WEIGHT * np.log2(1 + uses), MAX_USE_FACTOR)
    ranks: Numbers = np.log2(np.maximum(bases, 1e-6) * factors) + moments / MESSAGE_HALF_LIFE_MS
    return np.round(ranks, _ROUNDED_DIGITS)


def choose_important(messages: RankedMessages, limit: int, repeats: bool) -> Numbers:
    """The places of the most important messages, the most important first; of equals the newer.

    Without `repeats`, of equal texts the newest is chosen, at the place of the most important. Only
    as many are put in order as are needed.
    """
    count = len(messages.keys)
    looked_at = max(_MIN_LOOKED_AT, 4 * limit)
    while True:
        order = _put_in_order(messages, min(looked_at, count))
        if not repeats:
            order = _drop_repeats(messages, order)
        if len(order) >= limit or looked_at >= count:
            chosen = order[:limit]
            return chosen if repeats else _find_newest(messages, chosen)
        looked_at *= 8


def _put_in_order(messages: RankedMessages, count: int) -> Numbers:
    """The places of the first messages, in order."""
    if not count:
        return np.empty(0, dtype=np.int64)
    ranks = messages.ranks
    places = np.arange(len(ranks))
    if count < len(ranks):
        least = np.partition(ranks, len(ranks) - count)[len(ranks) - count]
        places = np.flatnonzero(ranks >= least)  # with all that are equal to the last
    order = np.lexsort((messages.keys[places], messages.created[places], ranks[places]))[::-1]
    ordered: Numbers = places[order]
    return ordered


def _drop_repeats(messages: RankedMessages, order: Numbers) -> Numbers:
    """The places without those whose text a place before them has."""
    digests = messages.digests[order]
    names = np.where(digests == 0, -1 - order, digests)  # what has none is like no other
    _, firsts = np.unique(names, return_index=True)
    return order[np.sort(firsts)]


def _find_newest(messages: RankedMessages, chosen: Numbers) -> Numbers:
    """For each place that of the newest message with the same text."""
    digests = messages.digests[chosen]
    same = np.flatnonzero(np.isin(messages.digests, digests[digests != 0]))
    order = np.lexsort((messages.keys[same], messages.created[same]))
    newest = {int(messages.digests[at]): at for at in same[order].tolist()}
    places = [
        newest.get(digest, place)
        for digest, place in zip(digests.tolist(), chosen.tolist(), strict=True)
    ]
    return np.array(places, dtype=np.int64)
