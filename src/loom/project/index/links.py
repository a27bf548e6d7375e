"""Which files use names that others define.

There is an edge from each file that uses a name to each that defines it. A name that few define
says more, so it is worth more. How sure it is that one file means the other by a name depends on
how much else it uses of it, and on whether the name is any word.
"""

from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.project.index.columns import IS_FIRST, IS_OWN, IS_WORD, Columns, Rows, number_rows
from loom.project.index.strings import Floats

MAX_DEFINERS = 15  # files that define a name; what more of them define is everybody's word
# that a name is the one that is defined here, and not one of a library; that one of one word is
DOUBT, WORD = 4.0, 0.3


class Links(Struct, frozen=True):
    """The ways from files to others: who uses, what is used, how much that is worth, and how much
    of that is sure. Several names between two files are one way.
    """

    users: Rows
    used: Rows
    weights: Floats
    sure_weights: Floats


class LinkedColumns(NamedTuple):
    """Columns, and the links between their files where they are at hand."""

    columns: Columns
    links: Links | None = None


class _Edges(Struct, frozen=True):
    """One name that one file uses and another defines."""

    users: Rows
    used: Rows
    names: NDArray[np.int32]
    weights: Floats
    is_word: NDArray[np.bool_]


def make_links(columns: Columns) -> Links:
    edges = _make_edges(columns)
    size = max(1, len(columns.paths))
    pairs, pair, shared = np.unique(
        edges.users * size + edges.used, return_inverse=True, return_counts=True
    )
    users, used = np.divmod(pairs, size)
    sure = _be_sure(shared[pair], edges.is_word)
    return Links(
        users,
        used,
        add_up(pair, edges.weights, len(pairs)),
        add_up(pair, edges.weights * sure, len(pairs)),
    )


def count_users(columns: Columns) -> Floats:
    """For each definition how many files use its name, those that are sure."""
    edges, names = _make_edges(columns), len(columns.strings)
    size = max(1, len(columns.paths))
    _, pair, shared = np.unique(
        edges.users * size + edges.used, return_inverse=True, return_counts=True
    )
    keys, place = np.unique(edges.used * names + edges.names, return_inverse=True)
    sums = add_up(place, _be_sure(shared[pair], edges.is_word), len(keys))
    wanted = number_rows(columns["definitions"]) * names + columns["of_name"]
    if not len(keys):
        return np.zeros(len(wanted))
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Floats = np.where(keys[at] == wanted, sums[at], 0.0)
    return found


def _make_edges(columns: Columns) -> _Edges:
    definer, first, definers = _find_definers(columns)
    used, flags = columns["of_reference"], columns["reference_flags"]
    is_telling = (definers[used] > 0) & (definers[used] <= MAX_DEFINERS)
    is_telling &= (flags & IS_OWN) == 0
    user = number_rows(columns["references"])[is_telling]
    used, flags = used[is_telling], flags[is_telling]
    times = definers[used]
    place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    counts = columns["reference_count"][is_telling].astype(np.float64)
    return _Edges(
        np.repeat(user, times),
        definer[np.repeat(first[used], times) + place],
        np.repeat(used, times),
        np.repeat(np.sqrt(counts) / times**2, times),
        np.repeat((flags & IS_WORD) > 0, times),
    )


def _find_definers(columns: Columns) -> tuple[Rows, Rows, Rows]:
    """The files that define names, by name; for each name where its files begin, and how many there
    are.
    """
    is_first = (columns["flags"] & IS_FIRST) > 0
    defined = columns["of_name"][is_first]
    definer = number_rows(columns["definitions"])[is_first]
    definers = np.bincount(defined, minlength=len(columns.strings))
    first = np.cumsum(definers) - definers
    return definer[np.argsort(defined, kind="stable")], first, definers


def _be_sure(shared: Rows, is_word: NDArray[np.bool_]) -> Floats:
    squared = shared**2.0
    found: Floats = squared / (squared + DOUBT) * np.where(is_word, WORD, 1.0)
    return found


def add_up(rows: Rows, values: NDArray[Any], size: int) -> Floats:
    """The sum of values for each of so many rows."""
    # where there are none it would count in whole numbers
    return np.bincount(rows, values, size).astype(np.float64, copy=False)
