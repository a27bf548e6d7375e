"""Claude Code session files: a tree of lines, linked by parentUuid, of which the live branch is read.

One line holds one block of a model message, so the lines of one message id are one message. Parallel calls hang on each
other and each result on its own call: walking up from the leaf alone would lose all calls but one. So what is read is the
way up from the leaf, the other lines of each message on it, and the results of every call made there.
"""

from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.message import Conversation, Message, Part
from loom.dialects import anthropic
from loom.errors import TranscriptError, WireError
from loom.transcripts import files
from loom.transcripts.runs import Run

FORMAT = "Claude Code session"
_TYPES = {
    "user",
    "assistant",
    "system",
    "attachment",
    "summary",
    "queue-operation",
    "last-prompt",
    "mode",
    "file-history-snapshot",
    "progress",
}


def matches(sample: list[Any]) -> bool:
    return any(
        isinstance(v, dict) and str(v.get("type")) in _TYPES and ("parentUuid" in v or "leafUuid" in v or "sessionId" in v)
        for v in sample
    )


class _Index(Struct):
    """What the lines of a file say about each other, in numbers: a few dozen bytes a line whatever the lines hold."""

    uuids: "array[int]"
    parents: "array[int]"
    messages: "array[int]"
    threads: "array[int]"  # 0: the main thread; else the side thread a line belongs to
    calls: dict[int, int]  # call -> the line that makes it
    answers: dict[int, list[int]]  # line -> the calls it answers
    leaf: int = 0
    model: str = ""
    name: str = ""


def _number(text: Any) -> int:
    """A text as 63 bits; 0 for none."""
    return (
        int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest()) >> 1 if isinstance(text, str) and text else 0
    )


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records that are links of the tree, with their line numbers."""
    for number, record in files.lines(path):
        if isinstance(record, dict) and isinstance(record.get("uuid"), str):
            yield number, record


def runs(path: Path) -> list[Run]:
    index = _read_index(path)
    found: list[Run] = []
    for thread in dict.fromkeys(index.threads):
        chosen = _choose(index, thread)
        reader = _reader(path, chosen, _is_complete(index, chosen))
        if next(reader(), None) is not None:
            head = Conversation(messages=(), model=index.model)
            name = index.name if thread == 0 else "a sub-agent"
            found.append(Run(number=len(found), format=FORMAT, wire="anthropic", head=head, name=name, messages=reader))
    if not found:
        raise TranscriptError(f"{path}: a Claude Code session without a message")
    return found


def _read_index(path: Path) -> _Index:
    index = _Index(array("q"), array("q"), array("q"), array("q"), {}, {})
    for _, record in files.lines(path):
        if not isinstance(record, dict):
            continue
        kind = record.get("type")
        if kind == "summary" and isinstance(record.get("summary"), str):
            index.name = record["summary"]
        if kind == "last-prompt":
            index.leaf = _number(record.get("leafUuid")) or index.leaf
        if isinstance(record.get("uuid"), str):
            _add(index, record, kind)
    return index


def _add(index: _Index, record: dict[str, Any], kind: Any) -> None:
    message = record.get("message")
    if not isinstance(message, dict):
        message = {}
    line = len(index.uuids)
    index.uuids.append(_number(record["uuid"]))
    index.parents.append(_number(record.get("parentUuid")) or _number(record.get("logicalParentUuid")))
    index.messages.append(_number(message.get("id")) if kind == "assistant" else 0)
    index.threads.append(_number(record.get("agentId") or "side") if record.get("isSidechain") else 0)
    if kind in ("user", "assistant") and not record.get("isSidechain"):
        index.leaf = index.uuids[-1]  # the newest word is the live branch, unless the client says otherwise behind it
    if kind == "assistant" and not index.model and isinstance(message.get("model"), str) and message["model"] != "<synthetic>":
        index.model = message["model"]
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "tool_use":
            index.calls[_number(block.get("id"))] = line
        elif isinstance(block, dict) and block.get("type") == "tool_result":
            index.answers.setdefault(line, []).append(_number(block.get("tool_use_id")))


def _choose(index: _Index, thread: int) -> bytearray:
    """Which lines are read: the way up from the leaf, and what belongs to the messages on it."""
    chosen = bytearray(len(index.uuids))
    mine = [n for n in range(len(chosen)) if index.threads[n] == thread]
    wanted = index.leaf if any(index.uuids[n] == index.leaf for n in mine) else index.uuids[mine[-1]]
    for n in reversed(mine):
        if index.uuids[n] == wanted:
            chosen[n] = 1
            wanted = index.parents[n]
    parts_of = {index.messages[n] for n in mine if chosen[n]} - {0}
    for n in mine:
        chosen[n] |= index.messages[n] in parts_of
    for n in mine:
        chosen[n] |= any(chosen[index.calls[call]] for call in index.answers.get(n, ()) if call in index.calls)
    return chosen


def _is_complete(index: _Index, chosen: bytearray) -> bool:
    """Whether the way up reaches a beginning; after a compaction it may end at what another file holds."""
    return index.parents[chosen.index(1)] == 0


def _reader(path: Path, chosen: bytearray, complete: bool) -> Callable[[], Iterator[Message]]:
    def read() -> Iterator[Message]:
        written: list[Part] = []  # the parts of the model message being read
        answers: list[Message] = []  # results that came while it was still being written
        current = None
        for n, (number, record) in enumerate(_records(path)):
            wire = record.get("message")
            if not chosen[n] or record.get("type") not in ("user", "assistant") or not isinstance(wire, dict):
                continue
            # The client's own words in the model's name; and the text of a compaction, where all that it stands for is here.
            if wire.get("model") == "<synthetic>" or (record.get("isCompactSummary") and complete):
                continue
            try:
                parsed = anthropic.parse_message({"role": wire.get("role"), "content": wire.get("content")}, f"line {number}")
            except WireError as error:
                raise TranscriptError(f"{path}, {error}") from None
            if written and all(message.role == "tool" for message in parsed):
                answers += parsed
                continue
            if record["type"] == "assistant" and written and current is not None and wire.get("id") == current:
                written += parsed[0].parts
                continue
            if written:
                yield Message("assistant", tuple(written))
            yield from answers
            written, answers = [], []
            if record["type"] == "assistant":
                written, current = list(parsed[0].parts), wire.get("id")
            else:
                yield from parsed
        if written:
            yield Message("assistant", tuple(written))
        yield from answers

    return read
