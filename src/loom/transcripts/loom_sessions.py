"""Sessions that Loom exported, as runs: of each session the path to where it stands, without what
is excluded or pruned.

Only `loom session import` proves what such a file says; here it is read like any other transcript.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.canonical import from_json
from loom.conversation.message import Conversation, Message
from loom.errors import ChoiceError, TranscriptError
from loom.transcripts import files
from loom.transcripts.linked import list_of, object_of, text_of
from loom.transcripts.runs import Run

FORMAT = "sessions of Loom"
WHAT = "sessions"
_HIDING = ("excluded", "pruned")  # flags
_T = TypeVar("_T")


def matches(sample: list[Any]) -> bool:
    return isinstance(sample[0], dict) and sample[0].get("loom") == WHAT


class _ExportedSession(Struct, frozen=True):
    title: str
    cursor: str
    created: int
    head: Conversation
    asides: dict[str, list[Message]]  # system messages after nodes


class _ExportIndex(Struct, frozen=True):
    """What a file says besides the words: its sessions, what each node follows, what is hidden."""

    sessions: list[_ExportedSession]
    parents: dict[str, str]
    hidden: set[str]

    def path_to(self, node: str) -> set[str]:
        on_path = set[str]()
        while node and node not in on_path:
            on_path.add(node)
            node = self.parents.get(node, "")
        return on_path


def runs(path: Path, _sample: list[Any]) -> Iterator[Run]:
    index = _read_index(path)
    for number, session in enumerate(index.sessions):
        yield Run(
            number=number,
            format=FORMAT,
            wire="openai",
            head=session.head,
            messages=_PathReader(path, index, session).read,
            name=session.title,
            created=session.created,
        )


class _PathReader(Struct, frozen=True):
    """Reads the messages of one session. Parents come before their children in such a file."""

    path: Path
    index: _ExportIndex
    session: _ExportedSession

    def read(self) -> Iterator[Message]:
        on_path = self.index.path_to(self.session.cursor)
        for number, record in files.lines(self.path):
            node = object_of(record)
            id = text_of(node.get("id"))
            if node.get("line") != "node" or id not in on_path:
                continue
            if node.get("body") is not None and id not in self.index.hidden:
                yield _convert(node["body"], Message, self.path, number)
            yield from self.session.asides.get(id, ())


def _read_index(path: Path) -> _ExportIndex:
    index = _ExportIndex([], {}, set())
    for number, record in files.lines(path):
        match object_of(record):
            case {"line": "session"} as session:
                index.sessions.append(_read_session(session, path, number))
            case {"line": "node", "id": str(id)} as node:
                index.parents[id] = text_of(node.get("after"))
                if _is_hidden(node):
                    index.hidden.add(id)
    return index


def _read_session(line: dict[str, Any], path: Path, number: int) -> _ExportedSession:
    head = _convert(line.get("head"), Conversation, path, number)
    asides: dict[str, list[Message]] = {}
    for aside in map(object_of, list_of(line.get("asides"))):
        message = _convert(aside.get("message"), Message, path, number)
        asides.setdefault(text_of(aside.get("after")), []).append(message)
    head = replace(head, messages=(), system=(*head.system, *asides.pop("", ())))
    created = line.get("created")
    return _ExportedSession(
        text_of(line.get("title")),
        text_of(line.get("cursor")),
        created if isinstance(created, int) else 0,
        head,
        asides,
    )


def _is_hidden(node: dict[str, Any]) -> bool:
    """Whether a flag that holds hides a node: of each flag, what was said last."""
    flags: dict[str, bool] = {}
    for record in map(object_of, list_of(node.get("records"))):
        if record.get("kind") != "flag" or not isinstance(record.get("data"), str):
            continue
        try:
            mark = object_of(from_json(record["data"]))
        except ValueError:
            continue
        flags[text_of(mark.get("flag"))] = mark.get("on") is True
    return any(flags.get(flag) for flag in _HIDING)


def _convert(value: Any, kind: type[_T], path: Path, number: int) -> _T:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, ChoiceError) as error:
        reason = str(error).replace("`", "'")
        raise TranscriptError(f"{path}, line {number}: {reason[:1].lower()}{reason[1:]}") from None
