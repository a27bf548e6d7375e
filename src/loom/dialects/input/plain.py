"""What SDKs make, as plain JSON values: objects with `model_dump`, by themselves or inside of
dictionaries and lists.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

_SCALARS = frozenset([str, int, float, bool, type(None)])
_DUMP = {"mode": "json", "exclude_unset": True, "warnings": False}


def to_plain(value: Any) -> Any:
    """A value without SDK objects in it; the value itself where there are none."""
    kind = type(value)
    if kind in _SCALARS or isinstance(value, Struct):
        return value
    if kind is dict:
        changed = {
            key: plain for key, each in value.items() if (plain := to_plain(each)) is not each
        }
        if changed:
            return {**value, **changed}
        return value
    if kind is list or kind is tuple:
        made = [to_plain(each) for each in value]
        if kind is tuple or any(a is not b for a, b in zip(made, value, strict=True)):
            return made
        return value
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return to_plain(_dump_fields(dump))
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    return value


def is_sdk_object(value: Any) -> bool:
    return callable(getattr(value, "model_dump", None)) and not isinstance(
        value, type | Mapping | Struct
    )


def _dump_fields(dump: Callable[..., Any]) -> Any:
    """The fields that were set, as JSON has them; as many of these wishes as the method takes."""
    try:
        known = inspect.signature(dump).parameters
    except (TypeError, ValueError):
        return dump()
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    return dump(**{name: wish for name, wish in _DUMP.items() if takes_all or name in known})
