"""Fields that only answers have: what providers and their SDKs say in an answer, and what no
request may say.

Which they are is in the tables of the wires (`Dialect.answer_fields`). Here they are taken from our
values, where they are carried.
"""

import re
from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.message import Carried, Message, Opaque, Part
from loom.dialects import WIRES
from loom.dialects.wire import AnswerFields, Json, answer_fields_in, carry

# By wire: the fields of a message, and those of its parts.
_FIELDS = {wire.name: (wire.answer_fields, wire.answer_part_fields) for wire in WIRES}


def _pattern(tables: Iterable[AnswerFields]) -> re.Pattern[str]:
    """What the JSON of carried fields has in it where it may have a field of these tables."""
    fields = {name: only_empty for table in tables for name, (_, only_empty) in table.items()}
    always = "|".join(name for name, only_empty in fields.items() if not only_empty)
    empty = "|".join(name for name, only_empty in fields.items() if only_empty)
    return re.compile(rf'"(?:{always})":|"(?:{empty})":(?:null|\[\])')


_NAMES = {wire: _pattern(tables) for wire, tables in _FIELDS.items()}
_NESTED = ("outer", "inner", "item", "part")  # where a dialect keeps fields one level down
_TELLING = frozenset(["annotations"])  # what says something that the message does not say elsewhere


def has_answer_fields(message: Message) -> bool:
    """Whether a message may carry fields that only answers have."""
    if message.carried is not None and _may_hold(message.carried):
        return True
    return any(
        _may_hold(part.carried)
        for part in message.parts
        if not isinstance(part, Opaque) and part.carried is not None
    )


def drop_answer_fields(
    message: Message, keep: Collection[str] = ()
) -> tuple[Message, dict[str, str]]:
    """The message without fields that only answers have, and the rule that each broke by its
    name.
    """
    if not has_answer_fields(message):
        return message, {}
    dropped: dict[str, str] = {}
    carried = _drop(message.carried, 0, keep, dropped)
    parts = tuple(_drop_of_part(part, keep, dropped) for part in message.parts)
    return (replace(message, carried=carried, parts=parts) if dropped else message), dropped


def drop_empty_answer_fields(message: Message) -> Message:
    """The message without those that say nothing new: nulls, empty lists, and what an SDK made of
    the words.
    """
    return drop_answer_fields(message, _TELLING)[0]


def drop_empty_fields_of_part(part: Part) -> Part:
    return _drop_of_part(part, _TELLING, {})


def _may_hold(carried: Carried) -> bool:
    names = _NAMES.get(carried.wire)
    return bool(carried.fields) and names is not None and names.search(carried.fields) is not None


def _drop_of_part(part: Part, keep: Collection[str], dropped: dict[str, str]) -> Part:
    if isinstance(part, Opaque) or part.carried is None:
        return part
    carried = _drop(part.carried, 1, keep, dropped)
    if carried is part.carried:
        return part
    return replace(part, carried=carried)


def _drop(
    carried: Carried | None, level: int, keep: Collection[str], dropped: dict[str, str]
) -> Carried | None:
    if carried is None or not _may_hold(carried):
        return carried
    fields: Json = from_json(carried.fields)
    gone = dict(_find_answer_fields(fields, _FIELDS[carried.wire][level], keep))
    if not gone:
        return carried
    dropped |= gone
    return carry(carried.wire, _without(fields, _FIELDS[carried.wire][level], keep), carried.form)


def _find_answer_fields(
    fields: Json, table: AnswerFields, keep: Collection[str]
) -> Iterator[tuple[str, str]]:
    for name, rule in answer_fields_in(fields, table):
        if not (name in keep and fields[name]):
            yield name, rule
    for key in _NESTED:
        if isinstance(fields.get(key), dict):
            yield from _find_answer_fields(fields[key], table, keep)


def _without(fields: Json, table: AnswerFields, keep: Collection[str]) -> Json:
    gone = {
        name for name, _ in answer_fields_in(fields, table) if not (name in keep and fields[name])
    }
    left = {key: value for key, value in fields.items() if key not in gone}
    for key in _NESTED:
        if isinstance(left.get(key), dict):
            left[key] = _without(left[key], table, keep)
            if not left[key]:
                del left[key]
    return left
