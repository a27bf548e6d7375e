"""What a task may hold: labels that both databases can keep, times of UTC, values of JSON."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from loom.conversation.canonical import is_sendable
from loom.errors import ChoiceError, describe, shorten

MAX_LABEL_CHARS = 400  # of an id, an agent or a session's label; an index of PostgreSQL holds them
MAX_NESTING = 64  # objects and lists inside each other

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def refuse(place: str, expected: str, found: object) -> ChoiceError:
    """The error for a field that is missing or wrong."""
    return ChoiceError(f"{place}: expected {expected}, found {describe(found)}")


def check_label(place: str, given: object) -> str:
    """A text that is kept in a column and compared exactly."""
    if not isinstance(given, str):
        raise refuse(place, "a text", given)
    if len(given) > MAX_LABEL_CHARS:
        raise ChoiceError(
            f"{place}: expected at most {MAX_LABEL_CHARS} characters, found {len(given):,}"
        )
    if "\0" in given or not is_sendable(given):
        raise ChoiceError(f"{place} has a character that no database can hold: {shorten(given)!r}")
    return str.__getitem__(given, slice(None))  # without what a subclass adds


def check_time(place: str, given: object) -> datetime:
    """A time with a time zone, as UTC in whole milliseconds."""
    if not isinstance(given, datetime):
        raise refuse(place, "a time", given)
    if given.utcoffset() is None:
        raise ChoiceError(
            f"{place}: expected a time with a time zone, found {given.isoformat()} without one; "
            "use datetime.now(UTC)"
        )
    try:
        made = given.astimezone(UTC)
    except OverflowError:
        raise refuse(place, "a time of UTC from the year 1 to 9999", given.isoformat()) from None
    return made.replace(microsecond=made.microsecond // 1000 * 1000)


def read_time(place: str, text: str) -> datetime:
    """A time from a text of ISO 8601."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise refuse(place, "a time such as 2026-01-28T09:30:00Z", text) from None


def write_time(time: datetime) -> str:
    """A time of UTC as a text of ISO 8601."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_milliseconds(time: datetime) -> int:
    """Milliseconds since 1970."""
    return (time - EPOCH) // _MILLISECOND


def from_milliseconds(count: int) -> datetime:
    """The time that is that many milliseconds after 1970, within what a calendar holds."""
    try:
        return EPOCH + timedelta(milliseconds=count)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if count > 0 else datetime.min.replace(tzinfo=UTC)


def copy_json(place: str, value: object, deep: int = MAX_NESTING) -> Any:
    """A copy of a value that JSON can express, in plain types."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__getitem__(value, slice(None))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)
    if isinstance(value, Mapping | list | tuple):
        if not deep:
            raise ChoiceError(f"{place} is nested more than {MAX_NESTING} deep")
        return _copy_each(place, value, deep - 1)
    raise refuse(place, "a value that JSON can express", value)


def _copy_each(
    place: str, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], deep: int
) -> Any:
    if not isinstance(value, Mapping):
        return [copy_json(f"{place}[{n}]", each, deep) for n, each in enumerate(value)]
    made = {}
    for name, each in value.items():
        if not isinstance(name, str):
            raise refuse(f"the name of a value in {place}", "a text", name)
        made[str.__getitem__(name, slice(None))] = copy_json(f"{place}.{shorten(name)}", each, deep)
    return made
