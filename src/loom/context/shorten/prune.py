"""Prune JSON until it fits: still JSON, of the same shape and with the same blanks, with how much
is missing.

A part is the further from the point the deeper it lies, the longer it is and the more items stand
between it and both ends of its list. Parts are taken from the point outwards, the telling fields
first, and only so many are visited as could fit.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from msgspec import Struct

from loom.context.shorten.cut import BYTES_PER_TOKEN, cut_marker, fill, from_ends, guess, shorten
from loom.context.shorten.kinds import SAMPLE_CHARS
from loom.conversation.canonical import from_json

PIECE_CHARS = 120  # characters by which texts grow
FEW_ITEMS, SMALL_CHARS = 8, 100  # items or fields, and characters in all, that are taken at once
MAX_FIELDS = 1_000  # of an object that are looked at, or as many as there are tokens
VISITS_PER_TOKEN = 16  # parts that are looked at for each token
NAME = 80  # characters of a field's name
# How much further from the point: a level deeper, a character longer, a field that does not tell.
DEPTH_FACTOR, LENGTH_FACTOR, SILENT_FACTOR = 0.1, 0.001, 0.5
# the next item of a list; the next piece of a text is as far as an item
PLAIN_ITEM, SMALL_ITEM, ITEM = 0.1, 0.2, 1.0
MAX_LEVELS = 40  # levels that are written

_TELLING = re.compile(
    r"err|messag|msg|reason|status|state|code|\bid|id$|name|title|path|file|url|type|detail",
    re.IGNORECASE,
)
_SPACED = re.compile(r"[\]}\"\w], [\"\[{\w-]")
_INDENT = re.compile(r"\s*[\[{]\s*?\n([ \t]+)")

# From a value to a part of it: the places and the names of fields, "" for items of lists.
_Path = tuple[tuple[int, str], ...]


class _Leaf(Struct):
    """What is taken at once, a plain value, a small list or object or a piece of a text, and what
    it may cost in tokens.
    """

    path: _Path
    cost: int


def parse(text: str) -> list[Any] | dict[str, Any] | None:
    """The list or the object that a text is, or none."""
    try:
        value = from_json(text)
    except ValueError:
        return None
    if isinstance(value, list | dict):
        return value
    return None


def prune(text: str, tokens: int, count: Callable[[str], int], handle: str) -> str | None:
    """As much of a JSON text as fits, and the marker in a line of its own; none if it is not JSON
    or too little would be left.
    """
    value = parse(text)

    def marked(written: str) -> str:
        return f"{written}\n{cut_marker(max(len(text) - len(written), 0), handle)}"

    written = None
    if value is not None:
        written = _largest(value, text[:SAMPLE_CHARS], tokens, lambda made: count(marked(made)))
    if written is None:
        return None
    return marked(written)


def prune_line(line: str, longest: int) -> str:
    """A line of JSON in this many characters, as JSON if that is possible."""
    value = None if len(line) <= longest else parse(line)
    written = None
    if value is not None:
        written = _largest(value, line[:SAMPLE_CHARS], longest, len)
    if written is None:
        return shorten(line, longest)
    return written


def _largest(
    value: list[Any] | dict[str, Any], sample: str, most: int, size: Callable[[str], int]
) -> str | None:
    """As much of the value as is not larger than this."""
    write = _writer(sample)
    leaves: list[_Leaf] = []
    cost = 0
    for leaf in _Walk(value, most):
        leaves.append(leaf)
        cost += leaf.cost
        if cost > 2 * most:
            break

    def compose(taken: Iterable[int]) -> str:
        return write(_prune_value(value, _build_choice(leaves[place].path for place in taken)))

    return fill([leaf.cost for leaf in leaves], most, size, compose)


class _Walk:
    """The leaves of a value, from the point outwards."""

    def __init__(self, value: list[Any] | dict[str, Any], most: int) -> None:
        self._most = most
        self._serial = 0
        # How far a part is, in which order it was found, its path, the part, how far it is by its
        # lists alone, and which of its items or pieces comes next.
        self._heap: list[tuple[float, int, _Path, Any, float, int]] = []
        self._push(0.0, (), value, 0.0)

    def _push(self, distance: float, path: _Path, part: Any, far: float, nth: int = 0) -> None:
        self._serial += 1
        heappush(self._heap, (distance, self._serial, path, part, far, nth))

    def __iter__(self) -> Iterator[_Leaf]:
        for _ in range(VISITS_PER_TOKEN * self._most + MAX_FIELDS):
            if not self._heap:
                return
            _, _, path, part, far, nth = heappop(self._heap)
            name = path[-1][1][:NAME] if path else ""
            if isinstance(part, str):
                yield _Leaf(
                    path,
                    guess(part[nth * PIECE_CHARS : (nth + 1) * PIECE_CHARS])
                    + (0 if nth else guess(name)),
                )
                if (nth + 1) * PIECE_CHARS < len(part):
                    further = far + (nth + 1) * ITEM * (0.5 if _tells(name) else 1.0)
                    self._push(further, path, part, far, nth + 1)
            elif not isinstance(part, list | dict) or (path and _is_small(part)):
                yield _Leaf(path, _letters(part) // BYTES_PER_TOKEN + guess(name) + 1)
            elif part and len(path) < MAX_LEVELS:
                self._open(path, part, far, nth)

    def _open(self, path: _Path, part: list[Any] | dict[str, Any], far: float, nth: int) -> None:
        deep = min(DEPTH_FACTOR * len(path), 4 * DEPTH_FACTOR)
        if isinstance(part, list):
            place = from_ends(nth, len(part))
            step = _step(part[place])
            self._push(far + step * nth + deep, (*path, (place, "")), part[place], far + step * nth)
            if nth + 1 < len(part):
                self._push(far + step * (nth + 1), path, part, far, nth + 1)
            return
        names = list(islice(part, max(MAX_FIELDS, self._most)))
        for turn in range(len(names)):
            place = from_ends(turn, len(names))
            inner = part[names[place]]
            # What comes first in an object most often says which one it is.
            if place == 0 or _tells(names[place][:NAME]):
                silent = 0.0
            else:
                silent = SILENT_FACTOR
            self._push(
                far + deep + LENGTH_FACTOR * _letters(inner) + silent,
                (*path, (place, names[place])),
                inner,
                far,
            )


@lru_cache(maxsize=4096)
def _tells(name: str) -> bool:
    """Whether a field of this name says what its object is or what went wrong with it."""
    return _TELLING.search(name) is not None


def _step(item: Any) -> float:
    """How much further from the point such an item makes the next."""
    if not isinstance(item, list | dict):
        return PLAIN_ITEM
    if _is_small(item):
        return SMALL_ITEM
    return ITEM


def _is_small(part: Any) -> bool:
    """Whether it is taken at once: to tell what is missing of it would be as long."""
    return _letters(part) <= SMALL_CHARS


def _letters(part: Any, levels: int = 2) -> int:
    """How many characters a part takes when it is first shown, nearly."""
    if isinstance(part, str):
        return min(len(part), PIECE_CHARS)
    if not isinstance(part, list | dict):
        return 5
    if len(part) > FEW_ITEMS or not levels:
        return PIECE_CHARS
    inside = (*part, *part.values()) if isinstance(part, dict) else part
    return min(sum(_letters(inner, levels - 1) for inner in inside), PIECE_CHARS)


def _build_choice(paths: Iterable[_Path]) -> dict[tuple[int, str], Any]:
    """The paths as a tree: for each part of a value what is chosen of it, and at the leaves how
    many times.
    """
    root: dict[tuple[int, str], Any] = {}
    for path in paths:
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = node.get(path[-1], 0) + 1
    return root


def _prune_value(part: Any, chosen: Any) -> Any:
    """The part with only what is chosen of it, and where something is missing, how much."""
    if isinstance(part, str):
        return shorten(part, chosen * PIECE_CHARS)
    if not isinstance(chosen, dict):
        return part
    if isinstance(part, dict):
        return _pruned_object(part, chosen)
    made: list[Any] = []
    at = 0
    for place, _ in (*sorted(chosen), (len(part), "")):
        if place > at:
            made.append(f"… {place - at:,} more")
        if place < len(part):
            made.append(_prune_value(part[place], chosen[place, ""]))
        at = place + 1
    return made


def _pruned_object(part: dict[str, Any], chosen: dict[tuple[int, str], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for at, (place, name) in enumerate((*sorted(chosen), (len(part), ""))):
        if place > at:  # told where the first is missing: no object has two fields of one name
            made["…"] = f"{len(part) - len(chosen):,} more"
        if place < len(part):
            made[shorten(name, NAME)] = _prune_value(part[name], chosen[place, name])
    return made


def _writer(sample: str) -> Callable[[Any], str]:
    """Writes JSON with the blanks that the sample has, so that what is kept is there as it
    stood.
    """
    found = _INDENT.match(sample)
    indent = found[1] if found else None
    signs = (
        "," if indent is not None or not _SPACED.search(sample) else ", ",
        ": " if '": ' in sample else ":",
    )

    def write(value: Any) -> str:
        written = json.dumps(value, indent=indent, separators=signs, ensure_ascii="\\u" in sample)
        try:
            written.encode()
        except UnicodeEncodeError:
            # Half of a surrogate pair stood there as an escape, and must not be there otherwise.
            return json.dumps(value, indent=indent, separators=signs)
        return written

    return write
