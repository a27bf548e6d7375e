"""Metadata: what a program says of a message, beside it and never in it.

It is a JSON object of bounded size. A search can filter by it. No provider gets it.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any

from loom.conversation.canonical import from_json, is_sendable, to_sorted_json
from loom.errors import ChoiceError, describe, shorten

KIND = "metadata"  # of the record that holds it
MAX_METADATA_BYTES = 16_384  # of the JSON of one message
MAX_KEY_CHARS = 200  # characters of a name in it
TERM_MARK = "="  # at the beginning of each term of an index that comes from metadata
MAX_NESTING = 8  # objects and lists inside each other

_PLAIN = (str, bool, int, float, type(None))
_LIMIT = 2**63  # whole numbers beyond this are other numbers in other programs


def write_metadata(given: object) -> str:
    """Metadata as it is stored: JSON with sorted keys; "" if there is none."""
    if given is None or given == {}:
        return ""
    if not isinstance(given, Mapping):
        raise ChoiceError(f"metadata must be an object of JSON, found {describe(given)}")
    _check_value(given, "metadata", MAX_NESTING)
    text = to_sorted_json(_to_plain(given))
    size = len(text.encode())
    if size > MAX_METADATA_BYTES:
        raise ChoiceError(
            f"the metadata of a message takes at most {MAX_METADATA_BYTES:,} bytes of JSON, found "
            f"{size:,}; keep the rest elsewhere, and its name here"
        )
    return text


def read_metadata(text: str) -> dict[str, Any]:
    """Metadata from what is stored. Raises ValueError or ChoiceError if it is damaged."""
    found = from_json(text)
    if not isinstance(found, dict) or not write_metadata(found):
        raise ValueError("it is not an object")
    return found


def find_metadata(messages: Sequence[object]) -> tuple[list[object], list[Any]]:
    """Messages without the key `metadata` of those that are mappings, and what each had there."""
    bare, found = list[object](), list[Any]()
    for message in messages:
        value = None
        if isinstance(message, Mapping) and isinstance(message.get(KIND), Mapping):
            value = message[KIND]
            message = {name: each for name, each in message.items() if name != KIND}
        bare.append(message)
        found.append(value)
    return bare, found


def check_filter(given: object) -> dict[str, Any]:
    """A filter of metadata as a caller gives it: names with the values that they must have.

    A list of values means any of them. A name may lead into an object by dots. Where the metadata
    has a list, one of its values is enough.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ChoiceError(f"a filter is names of metadata with values, found {describe(given)}")
    _check_value(given, "the filter", MAX_NESTING)
    return {name: _to_plain(each) for name, each in given.items()}


def matches_filter(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether metadata has the values that a filter wants."""
    terms = metadata_terms(metadata)
    return all(not terms.isdisjoint(choices) for choices in filter_terms(wanted))


def metadata_terms(metadata: Mapping[str, Any]) -> frozenset[str]:
    """A term for each name in metadata with its value, by which an index finds it.

    Names inside objects are joined by dots. Each value of a list is a value of its name.
    """
    return frozenset(_make_term(path, value) for path, value in _walk_values("", metadata))


def filter_terms(wanted: Mapping[str, Any]) -> list[frozenset[str]]:
    """For each name of a filter the terms of which metadata must have one."""
    return [
        frozenset(
            _make_term(name, choice) for choice in (value if isinstance(value, list) else [value])
        )
        for name, value in wanted.items()
    ]


def _walk_values(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path:
        yield path, value
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _walk_values(f"{path}.{name}" if path else name, each)
    elif isinstance(value, list):
        for each in value:
            yield path, each


def _make_term(path: str, value: Any) -> str:
    """No word of a text is such a term: it begins with a character that no word has."""
    said = to_sorted_json([path, _normal(value)]).encode()
    return TERM_MARK + blake2b(said, digest_size=9, person=b"metadata").hexdigest()


def _normal(value: Any) -> Any:
    """A value of which equal ones look the same: 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _normal(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_normal(each) for each in value]
    return value


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    return value


def _check_value(value: object, where: str, deep: int) -> None:
    """Refuse what JSON, or one of the databases, cannot hold."""
    if isinstance(value, Mapping | list | tuple):
        if not deep:
            raise ChoiceError(f"{where} is nested more than {MAX_NESTING} deep")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, each in items:
            if isinstance(value, Mapping):
                _check_key(name, where)
            _check_value(each, f"{where}.{shorten(str(name))}", deep - 1)
    elif type(value) not in _PLAIN:
        raise ChoiceError(f"{where} must be a value that JSON can express, found {describe(value)}")
    elif isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, float) and not isfinite(value):
        raise ChoiceError(f"{where} must be a number that JSON can express, found {value!r}")
    elif isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
        raise ChoiceError(f"{where} must be a number of at most 64 bits, found {describe(value)}")


def _check_key(name: object, where: str) -> None:
    if not isinstance(name, str) or not name or len(name) > MAX_KEY_CHARS:
        raise ChoiceError(
            f"each name in {where} must be a text of 1 to {MAX_KEY_CHARS} characters, found "
            f"{describe(name)}"
        )
    _check_text(name, f"the name {shorten(name)!r} in {where}")


def _check_text(text: str, where: str) -> None:
    if "\0" in text or not is_sendable(text):
        raise ChoiceError(f"{where} has a character that no database can hold: {shorten(text)!r}")
