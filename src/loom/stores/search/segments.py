"""The form of a segment: columns of numbers for its messages, and for each term who has it.

The ordinal of a message is its place in the segment, by time. Columns are by ordinal, but for
`order` and `depths`, which are by line and depth.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from loom.conversation.message import ROLES
from loom.conversation.words import SPLITTER_VERSION
from loom.stores.sql.stored import damage_error

# Of what a segment holds, and of the rules that make its terms; another one means that the index
# is made again.
INDEX_VERSION = SPLITTER_VERSION * 100 + 1
MAX_SEGMENT_DOCUMENTS = 32_768
MAX_COUNT = 255  # of one term in one message
_MAX_UINT = 2**32 - 1
_ECHO_BIT = 0x80
_UNKNOWN_IMPORTANCE = 50

Numbers = NDArray[Any]


class IndexedMessage(Struct, frozen=True):
    """A message that goes into the index. `counts` has its terms and those of its metadata."""

    seq: int
    tree: int
    line: int
    depth: int
    created: int
    tokens: int
    role: str
    author: str
    is_echo: bool
    length: int
    counts: Mapping[str, int]
    importance: int = 50  # in hundredths, by kind and author
    digest: int = 0  # by which equal texts are known; 0 is like none


class Segment(Struct, frozen=True, eq=False):
    """The messages of a segment. One that was purged has the key 0."""

    seqs: Numbers
    created: Numbers
    lengths: Numbers
    tokens: Numbers
    kinds: Numbers
    authors: Numbers
    importance: Numbers
    digests: Numbers
    names: tuple[str, ...]
    lines: Numbers
    trees: Numbers
    starts: Numbers
    order: Numbers
    depths: Numbers
    places: Numbers  # where each ordinal is in `order`; not stored

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(each.nbytes for each in _columns(self).values())

    def roles(self, ordinals: Numbers) -> list[tuple[str, bool]]:
        """The role of each of these messages, and whether it is an echo."""
        kinds: list[int] = self.kinds[ordinals].tolist()
        return [_ROLES[kind] for kind in kinds]


def _columns(segment: Segment) -> dict[str, Numbers]:
    return {name: getattr(segment, name) for name in _TYPES}


_ROLES = {
    number | bit: (role, bool(bit)) for number, role in enumerate(ROLES) for bit in (0, _ECHO_BIT)
}
_TYPES = {
    "seqs": "<i8",
    "created": "<i8",
    "lengths": "<u4",
    "tokens": "<u4",
    "kinds": "<u1",
    "authors": "<u2",
    "importance": "<u1",
    "digests": "<i8",
    "lines": "<i8",
    "trees": "<i8",
    "starts": "<u4",
    "order": "<u2",
    "depths": "<u4",
}


def encode_segment(segment: Segment) -> bytes:
    columns = {name: getattr(segment, name).tobytes() for name in _TYPES}
    return msgspec.msgpack.encode({**columns, "names": segment.names})


def decode_segment(data: bytes, name: object) -> Segment:
    try:
        found = msgspec.msgpack.decode(data)
        _add_missing(found)
        columns = {
            column: np.frombuffer(found[column], dtype=kind) for column, kind in _TYPES.items()
        }
        segment = Segment(
            **columns, names=tuple(found["names"]), places=_find_places(columns["order"])
        )
        _check_segment(segment)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise damage_error(
            f"segment {name} of the search index", "build the index again: Loom.index(again=True)"
        ) from error
    return segment


def _add_missing(found: dict[str, Any]) -> None:
    """Fill in what a segment of an older version lacks, until the index is made again."""
    if "importance" not in found:
        count = len(found["kinds"])
        found["importance"] = bytes([_UNKNOWN_IMPORTANCE]) * count
        found["digests"] = bytes(8 * count)


def _check_segment(segment: Segment) -> None:
    count, lines = len(segment.seqs), len(segment.lines)
    by_document = {*_TYPES} - {"lines", "trees", "starts"}
    if any(len(getattr(segment, name)) != count for name in by_document):
        raise ValueError("its columns differ in length")
    if len(segment.trees) != lines or len(segment.starts) != lines + 1:
        raise ValueError("its lines differ in length")
    if count and (
        int(segment.starts[-1]) != count
        or int(segment.order.max()) >= count
        or int(segment.authors.max()) >= len(segment.names)
        or int((segment.kinds & ~np.uint8(_ECHO_BIT)).max()) >= len(ROLES)
    ):
        raise ValueError("its columns name what is not there")


def make_segment(messages: Sequence[IndexedMessage]) -> Segment:
    """The columns of messages that are in order of time."""
    names = tuple(dict.fromkeys(["", *(each.author for each in messages)]))
    numbers = {name: number for number, name in enumerate(names)}
    kinds = [ROLES.index(each.role) | (_ECHO_BIT if each.is_echo else 0) for each in messages]
    return arrange_lines(
        {
            "seqs": _column("seqs", [each.seq for each in messages]),
            "created": _column("created", [each.created for each in messages]),
            "lengths": _column("lengths", [each.length for each in messages]),
            "tokens": _column("tokens", [min(each.tokens, _MAX_UINT) for each in messages]),
            "kinds": _column("kinds", kinds),
            "authors": _column("authors", [numbers[each.author] for each in messages]),
            "importance": _column("importance", [each.importance for each in messages]),
            "digests": _column("digests", [each.digest for each in messages]),
        },
        names,
        _column("lines", [each.line for each in messages]),
        _column("trees", [each.tree for each in messages]),
        _column("depths", [each.depth for each in messages]),
    )


def arrange_lines(
    columns: dict[str, Numbers],
    names: tuple[str, ...],
    lines: Numbers,
    trees: Numbers,
    depths: Numbers,
) -> Segment:
    """A segment from its columns, and for each message its line, tree and depth."""
    order = np.lexsort((depths, lines))
    every, starts = np.unique(lines[order], return_index=True)
    return Segment(
        **columns,
        names=names,
        lines=every,
        trees=trees[order][starts],
        starts=np.append(starts, len(order)).astype(_TYPES["starts"]),
        order=order.astype(_TYPES["order"]),
        depths=depths[order].astype(_TYPES["depths"]),
        places=_find_places(order),
    )


def _find_places(order: Numbers) -> Numbers:
    places = np.empty(len(order), dtype=_TYPES["order"])
    places[order] = np.arange(len(order))
    return places


def _column(name: str, values: Iterable[int]) -> Numbers:
    return np.array(list(values), dtype=_TYPES[name])


def spread_lines(segment: Segment) -> tuple[Numbers, Numbers, Numbers]:
    """For each message by ordinal: the number of its line in the segment, its tree, its depth."""
    return find_lines(segment, np.arange(len(segment)))


def find_lines(segment: Segment, ordinals: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The same for these messages."""
    places = segment.places[ordinals]
    numbers = np.searchsorted(segment.starts, places, side="right") - 1
    return numbers, segment.trees[numbers], segment.depths[places].astype(np.int64)


# Who has a term


class Postings(Struct, frozen=True, eq=False):
    """The ordinals of messages with a term, in order, and how often each has it."""

    ordinals: Numbers
    counts: Numbers


def encode_postings(ordinals: Numbers, counts: Numbers) -> bytes:
    """One byte says whether a term occurs more than once in some message; then come the ordinals,
    and the counts only in that case.
    """
    listed = ordinals.astype("<u2").tobytes()
    if int(counts.max()) == 1:
        return b"\0" + listed
    return b"\1" + listed + counts.astype("<u1").tobytes()


def decode_postings(data: bytes) -> Postings:
    if data[0]:
        size = (len(data) - 1) // 3
        return Postings(
            np.frombuffer(data, dtype="<u2", count=size, offset=1),
            np.frombuffer(data, dtype="<u1", offset=1 + 2 * size),
        )
    ordinals = np.frombuffer(data, dtype="<u2", offset=1)
    return Postings(ordinals, np.ones(len(ordinals), dtype=np.uint8))


def list_terms(messages: Sequence[IndexedMessage]) -> dict[str, tuple[list[int], list[int]]]:
    """For each term the ordinals of the messages that have it, and how often."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for ordinal, message in enumerate(messages):
        for term, count in message.counts.items():
            known = found.get(term)
            if known is None:
                found[term] = ([ordinal], [min(count, MAX_COUNT)])
            else:
                known[0].append(ordinal)
                known[1].append(min(count, MAX_COUNT))
    return found


def encode_terms(messages: Sequence[IndexedMessage]) -> list[tuple[str, bytes]]:
    """The terms of messages in order, as they are stored."""
    return [
        (term, _encode_lists(ordinals, counts))
        for term, (ordinals, counts) in sorted(list_terms(messages).items())
    ]


def _encode_lists(ordinals: list[int], counts: list[int]) -> bytes:
    """As `encode_postings`; most terms are in few messages."""
    listed = _LITTLE.pack(ordinals[0])
    if len(ordinals) > 1:
        listed = np.array(ordinals, dtype="<u2").tobytes()
    if max(counts) == 1:
        return b"\0" + listed
    return b"\1" + listed + bytes(counts)


_LITTLE = struct.Struct("<H")
