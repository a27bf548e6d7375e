"""Codex session files: the items of the responses wire, one a line, among records of the client's
own.
"""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from loom.conversation.message import Conversation, Message, Text
from loom.dialects import responses
from loom.dialects.wire import without
from loom.errors import TranscriptError, WireError
from loom.transcripts import files, items
from loom.transcripts.chat import is_system
from loom.transcripts.linked import moment, object_of
from loom.transcripts.runs import Run

FORMAT = "Codex session"
_BOOKKEEPING = "internal_chat_message_metadata_passthrough"


def matches(sample: list[Any]) -> bool:
    return any(
        isinstance(v, dict)
        and str(v.get("type")) in ("session_meta", "response_item")
        and isinstance(v.get("payload"), dict)
        for v in sample
    )


def runs(path: Path, sample: list[Any]) -> list[Run]:
    return [_run(path, FORMAT, sample, _session_items)]


def begins_with_items(sample: list[Any]) -> bool:
    return any(map(items.is_response_item, sample))


def item_runs(path: Path, sample: list[Any]) -> list[Run]:
    """A file with one item a line, as older sessions are."""
    return [_run(path, items.FORMAT, sample, _plain_items)]


def _run(path: Path, format: str, sample: list[Any], read_items: Any) -> Run:
    def read() -> Iterator[Message]:
        line = 0

        def numbered() -> Iterator[dict[str, Any]]:
            nonlocal line
            for line, item in read_items(path):  # noqa: B007 - the line is told when reading fails
                yield item

        try:
            yield from responses.parse_messages(numbered())
        except WireError as error:
            field = error.place.partition("].")[2] or "item"
            raise TranscriptError(
                f"{path}, line {line}: {field}: expected {error.expected}, found {error.found}"
            ) from None

    def messages() -> Iterator[Message]:
        leading = True
        for message in read():
            leading = leading and is_system(message)
            if not leading:
                yield message

    instructions, model = _head(sample)
    told = (Message("system", (Text(instructions),)),) if instructions else ()
    system = (*told, *takewhile(is_system, read()))
    head = Conversation(messages=(), system=system, model=model)
    return Run(
        number=0,
        format=format,
        wire="responses",
        head=head,
        messages=messages,
        created=_find_start(sample),
    )


def _find_start(sample: list[Any]) -> int:
    """When a session began: the first time that a record names."""
    times = (moment(object_of(record).get("timestamp")) for record in sample)
    return next(filter(None, times), 0)


def _head(sample: list[Any]) -> tuple[str, str]:
    """The client's instructions and the model, from its own records."""
    instructions = model = ""
    for record in sample:
        match record:
            case {"type": "session_meta", "payload": {"base_instructions": {"text": str(text)}}}:
                instructions = instructions or text
            case {"type": "session_meta", "payload": {"instructions": str(text)}}:
                instructions = instructions or text
            case {"type": "turn_context", "payload": {"model": str(name)}}:
                model = model or name
    return instructions, model


def _session_items(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, record in files.lines(path):
        if (
            not isinstance(record, dict)
            or record.get("type") != "response_item"
            or not isinstance(record.get("payload"), dict)
        ):
            continue
        about = record.get("metadata")
        if isinstance(about, dict) and about.get("compaction_output"):
            continue  # the client's summary of what is all still here
        yield line, without(record["payload"], _BOOKKEEPING)


def _plain_items(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, value in files.lines(path):
        if items.is_response_item(value) or (
            isinstance(value, dict) and "role" in value and "content" in value
        ):
            yield line, value
