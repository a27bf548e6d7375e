"""Rows that cannot be read, because a damaged disk or an older version wrote them: each is named, and none blocks the rest."""

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.tree import Preferences, TreeHead
from loom.errors import LoomError, StoreError, UnreadableWarning
from loom.stores.database import Row

UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError, msgspec.MsgspecError, LoomError)
_T = TypeVar("_T")


def name_unreadable(what: str) -> None:
    """Tell whoever looks that something is left out."""
    warnings.warn(UnreadableWarning(f"{what} cannot be read and is left out; loom doctor says more"), stacklevel=3)


def read_each(rows: Iterable[Row], read: Callable[[Row], _T], name: Callable[[Row], str]) -> list[_T]:
    """What rows hold. Those that cannot be read are named and left out."""
    made: list[_T] = []
    for row in rows:
        try:
            made.append(read(row))
        except UNREADABLE:
            name_unreadable(name(row))
    return made


def read_setting(text: str, held: type[_T], what: str) -> _T:
    """What a project settled, by its name."""
    try:
        return msgspec.convert(from_json(text), held)
    except UNREADABLE:
        raise StoreError(f"{what} cannot be read; loom doctor says more, and setting it again mends it") from None


def read_preferences(text: str, whose: str) -> Preferences:
    """Preferences, one by one where they cannot be read as a whole; written in camel case too."""
    try:
        return msgspec.convert(from_json(text), Preferences)
    except UNREADABLE:
        pass
    try:
        return _each_preference(from_json(text), whose)
    except UNREADABLE:
        name_unreadable(f"what is preferred {whose}")
        return Preferences()


def _each_preference(given: dict[str, object], whose: str) -> Preferences:
    made = Preferences()
    for name, value in given.items():
        try:
            made = Preferences.of({name: value}).over(made)
        except UNREADABLE:
            name_unreadable(f"the preference {name} {whose}")
    return made


def read_head(text: str, tree: str) -> TreeHead:
    """What a tree says of itself where it cannot be read as a whole: without the preferences in it that nobody can read."""
    try:
        given = from_json(text)
        preferences = given.pop("preferences", {})
        return replace(msgspec.convert(given, TreeHead), preferences=_each_preference(preferences, f"of tree {tree}"))
    except UNREADABLE:
        raise StoreError(f"what tree {tree} says of itself cannot be read; loom doctor says more") from None
