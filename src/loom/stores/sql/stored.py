"""What is read back from a store: as it was written, or a typed error that names what cannot be
read.

Rows that cannot be read, because a disk is damaged or an older version wrote them, block no others:
lists name them and leave them out.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.tree import Preferences, TreeHead
from loom.errors import ChoiceError, LoomError, StoreError, UnreadableWarning
from loom.stores.sql.database import GarbledText, Reader, Row

_T = TypeVar("_T")
UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    msgspec.MsgspecError,
    ChoiceError,
)
PAGE_ROWS = 200  # rows read at once
_ADVICE = "loom doctor says more"


class DamagedError(StoreError):
    """What a store holds makes no sense; other things in it may."""


def damage_error(what: str, advice: str = _ADVICE) -> DamagedError:
    return DamagedError(f"{what} cannot be read; {advice}")


def is_damage(error: LoomError) -> bool:
    """Whether what was read is damaged, not the way to it: whoever goes around it may read on."""
    return isinstance(error, DamagedError | ChoiceError) or (
        isinstance(error, StoreError) and is_text_damaged(error)
    )


def is_text_damaged(error: StoreError) -> bool:
    """Whether a row could not be read because a text in it is not UTF-8; others can be."""
    return isinstance(error.__cause__, UnicodeDecodeError)


def decode_stored(text: Any, kind: type[_T]) -> _T:
    """A value from its JSON in a column. Raises one of UNREADABLE."""
    try:
        value: _T = _decoder(cast(Hashable, kind)).decode(text)
        return value
    except UNREADABLE:  # damaged, or halves of surrogate pairs
        return msgspec.convert(from_json(text), kind)


def read_stored(text: Any, kind: type[_T], what: str, advice: str = _ADVICE) -> _T:
    """A value from its JSON in a column; `what` names it in the error."""
    try:
        return decode_stored(text, kind)
    except UNREADABLE:
        raise damage_error(what, advice) from None


def is_garbled(row: Iterable[object]) -> bool:
    return any(isinstance(value, GarbledText) for value in row)


def read_rows(reader: Reader, sql: str, *values: Any) -> list[Row]:
    """The rows of a statement; a text that is not UTF-8 is Garbled."""
    try:
        return reader.all(sql, *values)
    except StoreError as error:
        if not is_text_damaged(error):
            raise
    return reader.all_garbled(sql, *values)


def read_paged(reader: Reader, sql: str, start: Row, *values: Any) -> Iterator[Row]:
    """The rows of a statement that ends with a limit of PAGE rows and continues after `start`, its
    first parameters.

    Those are the first columns of its rows, by which it is ordered.
    """
    skipped = 0
    paged = f"{sql} OFFSET ${len(start) + len(values) + 1}"
    while True:
        rows = read_rows(reader, paged, *start, *values, skipped)
        yield from rows
        if len(rows) < PAGE_ROWS:
            return
        start, skipped = go_on_after(rows, start, skipped)


def go_on_after(rows: Sequence[Row], start: Row, skipped: int) -> tuple[Row, int]:
    """Where the next page begins: the last place that is not garbled, and how many rows after it
    were read.
    """
    for after, row in enumerate(reversed(rows)):
        place = row[: len(start)]
        if not is_garbled(place):
            return place, after
    return start, skipped + len(rows)


@cache
def _decoder(kind: Hashable) -> Any:
    return msgspec.json.Decoder(cast(Any, kind))


def name_unreadable(what: str) -> None:
    """Warn that something is left out."""
    warnings.warn(
        UnreadableWarning(f"{what} cannot be read and is left out; {_ADVICE}"), stacklevel=3
    )


def read_each(
    rows: Iterable[Row], read: Callable[[Row], _T], name: Callable[[Row], str]
) -> list[_T]:
    """What rows hold. Those that cannot be read are named and left out."""
    made: list[_T] = []
    for row in rows:
        try:
            if is_garbled(row):
                raise ValueError("a text in it is not UTF-8")
            made.append(read(row))
        except (*UNREADABLE, StoreError):
            name_unreadable(name(row))
    return made


def read_preferences(text: str, whose: str) -> Preferences:
    """Preferences, one by one where they cannot be read as a whole; written in camel case too."""
    try:
        return decode_stored(text, Preferences)
    except UNREADABLE:
        pass
    try:
        return _read_each_preference(from_json(text), whose)
    except UNREADABLE:
        name_unreadable(f"what is preferred {whose}")
        return Preferences()


def _read_each_preference(given: dict[str, object], whose: str) -> Preferences:
    made = Preferences()
    for name, value in given.items():
        try:
            made = Preferences.of({name: value}).over(made)
        except UNREADABLE:
            name_unreadable(f"the preference {name} {whose}")
    return made


def read_head(text: str, tree: str) -> TreeHead:
    """What a tree says of itself; without those of its preferences that cannot be read."""
    try:
        return decode_stored(text, TreeHead)
    except UNREADABLE:
        pass
    try:
        given = from_json(text)
        preferences = given.pop("preferences", {})
        return replace(
            msgspec.convert(given, TreeHead),
            preferences=_read_each_preference(preferences, f"of tree {tree}"),
        )
    except UNREADABLE:
        raise damage_error(f"what tree {tree} says of itself") from None
