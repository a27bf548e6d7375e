"""OpenAssistant trees: a prompt with its replies, and they with theirs."""

from collections.abc import Iterator
from typing import Any

from loom.conversation.message import Message, Role, Text
from loom.conversation.tree import Flags, Tree
from loom.dialects.wire import Json, carry, expect_list, expect_object, expect_text, without
from loom.errors import WireError
from loom.transcripts.linked import Record, drop_empty, grow, moment, text_of

FORMAT = "OpenAssistant tree"
NAME = "openassistant"
_ROLES: dict[str, Role] = {"prompter": "user", "assistant": "assistant"}
_READ = ("message_id", "parent_id", "text", "role", "replies", "deleted", "model_name")


def matches(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("prompt"), dict)
        and ("message_tree_id" in value or _is_message(value))
    )


def _is_message(value: Json) -> bool:
    return "message_id" in value["prompt"]


def trees(value: Json) -> Iterator[Tree]:
    records = _records(value["prompt"])
    nodes, _ = grow(records)
    yield Tree(
        id=text_of(value.get("message_tree_id")) or records[0].id,
        nodes=nodes,
        created=nodes[0].created,
        carried=carry(NAME, drop_empty(without(value, "message_tree_id", "prompt"))),
    )


def _records(prompt: Json) -> list[Record]:
    records: list[Record] = []
    waiting: list[tuple[Any, str, str]] = [(prompt, "", "prompt")]
    while waiting:
        given, parent, place = waiting.pop()
        wire = expect_object(given, place)
        id = expect_text(wire.get("message_id"), f"{place}.message_id")
        role = _ROLES.get(str(wire.get("role")))
        if role is None:
            raise WireError(f"{place}.role", "prompter or assistant", wire.get("role"))
        replies = expect_list(wire.get("replies") or [], f"{place}.replies")
        fields = without(wire, *_READ)
        if created := moment(wire.get("created_date")):
            del fields["created_date"]
        text = Text(expect_text(wire.get("text"), f"{place}.text"))
        records.append(
            Record(
                id=id,
                place=place,
                messages=(Message(role, (text,), carried=carry(NAME, drop_empty(fields))),),
                parent=parent,
                author=text_of(wire.get("model_name")),
                flags=Flags(pruned=wire.get("deleted") is True),
                created=created,
            )
        )
        waiting += [
            (reply, id, f"{place}.replies[{n}]") for n, reply in reversed(list(enumerate(replies)))
        ]
    return records
