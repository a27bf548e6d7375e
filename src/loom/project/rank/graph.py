"""How much each file matters by who uses it: PageRank, from everywhere or from what was asked
for.
"""

import numpy as np

from loom.project.index.links import Links
from loom.project.index.strings import Floats

BACKWARD_FACTOR = 0.6  # how much a file that uses something gets from it, next to what it gives
_ROUNDS = 12


def rank_links(
    links: Links,
    wanted: Floats,
    follow: float,
    *,
    back: float = BACKWARD_FACTOR,
    only_sure: bool = False,
) -> Floats:
    """How much each file matters, in their order, to one who begins at the wanted ones and follows
    links with this chance, and goes back along them.
    """
    size, total = len(wanted), wanted.sum()
    if not size or not total:
        return np.zeros(size)
    start = wanted / total
    sources, targets = links.users, links.used
    weights = links.sure_weights if only_sure else links.weights
    if back:
        sources, targets = np.concatenate((sources, targets)), np.concatenate((targets, sources))
        weights = np.concatenate((weights, back * weights))
    given = np.bincount(sources, weights, size)
    weights = weights / np.where(given > 0, given, 1)[sources]
    here: Floats = start
    for _ in range(_ROUNDS):
        here = (1 - follow) * start + follow * np.bincount(targets, here[sources] * weights, size)
    return here
