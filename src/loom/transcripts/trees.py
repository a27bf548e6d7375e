"""Which kind of branching conversations a file holds, found from its content, and the trees."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from loom.conversation.checked import checks_arguments
from loom.conversation.message import Message, Text
from loom.conversation.tree import Tree
from loom.dialects.wire import Json, carry
from loom.errors import ChoiceError, TranscriptError, WireError, describe
from loom.transcripts import (
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    files,
    formats,
    gemini_cli,
    loom_tree,
    open_assistant,
    pi,
)
from loom.transcripts.linked import Record, drop_empty, grow
from loom.transcripts.loom_tree import write_trees as write_trees
from loom.transcripts.runs import Run

LOOKED_FOR = (
    "Loom's own trees, ChatGPT or Claude.ai exports, Claude Code, Gemini CLI or pi sessions, "
    "OpenAssistant trees; or, without "
    "branches, "
)
# Browser extensions that save a conversation put what the provider sent in here.
_WRAPPER = "raw_provider_payload"


class Kind(Struct, frozen=True):
    """A format in which one JSON object is a conversation, or several."""

    format: str
    matches: Callable[[Any], bool]
    trees: Callable[[Json], Iterable[Tree]]


class SessionFormat(Struct, frozen=True):
    """A format in which the lines of a file are one tree, or several."""

    format: str
    matches: Callable[[list[Any]], bool]
    trees: Callable[[Path], Iterable[Tree]]


SESSIONS = tuple(
    SessionFormat(module.FORMAT, module.matches, module.trees) for module in (pi, claude_code)
)
KINDS = tuple(
    Kind(module.FORMAT, module.matches, module.trees)
    for module in (loom_tree, chatgpt, claude_ai, open_assistant, gemini_cli)
)


@checks_arguments
def read_trees(spec: "str | PathLike[str]") -> Iterator[Tree]:
    """The trees of FILE, or the one that FILE#N names (from 0). A transcript without branches gives
    trees without them.
    """
    path, number = files.locate(fspath(spec))
    found = _trees(files.unpack_file(path))
    if number is None:
        yield from found
        return
    seen = 0
    for seen, tree in enumerate(found, 1):
        if seen > number:
            yield tree
            return
    raise ChoiceError(
        f"{path} has {seen} {'tree' if seen == 1 else 'trees'}; choose "
        f"#0{f' to #{seen - 1}' if seen > 1 else ''}, not #{number}"
    )


def tree_format(path: Path) -> str:
    """The format of a file whose conversations may have branches; "" of any other."""
    path = files.unpack_file(path)
    sample = _sample(path)
    if session := _session(sample):
        return session.format
    kind = next((_kind(value) for _, value in islice(_values(path, sample), 1)), None)
    if kind is None:
        return ""
    return kind.format


def _trees(path: Path) -> Iterator[Tree]:
    try:
        sample = _sample(path)
        if session := _session(sample):
            yield from session.trees(path)
            return
        kind = None
        for place, value in _values(path, sample):
            at = f"{path}, {place}" if place else str(path)
            before, kind = kind, _kind(value)
            if kind is None and before is None:
                break
            if kind is None:
                raise TranscriptError(
                    f"{at}: expected a conversation as before it, found {describe(value)}"
                )
            yield from _read(kind, value, at)
        if kind is None:
            yield from _without_branches(path)
    except RecursionError:
        raise TranscriptError(f"{path}: nested too deeply") from None


def _sample(path: Path) -> list[Any] | None:
    start = files.inspect(path)
    if start[:1] not in "{[":
        raise TranscriptError(
            f"{path} contains no trees: it begins with {start[:20]!r}. Looked for "
            f"{LOOKED_FOR}{formats.LOOKED_FOR}"
        )
    return files.first_lines(path)


def _session(sample: list[Any] | None) -> SessionFormat | None:
    if sample is None or codex.matches(sample):
        return None
    return next((session for session in SESSIONS if session.matches(sample)), None)


def _values(path: Path, sample: list[Any] | None) -> Iterator[tuple[str, Any]]:
    """The values that may be conversations, with their places: lines, the items of a list, or the
    whole document.
    """
    if sample is not None and len(sample) > 1:
        yield from ((f"line {number}", value) for number, value in files.lines(path))
        return
    value = sample[0] if sample else files.document(path)
    if isinstance(value, list):
        yield from ((f"[{n}]", item) for n, item in enumerate(value))
    else:
        yield "", value


def _kind(value: Any) -> Kind | None:
    return next(
        (kind for kind in KINDS if kind.matches(value) or kind.matches(_unwrap(value))), None
    )


def _unwrap(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    return value.get(_WRAPPER)


def _read(kind: Kind, value: Any, at: str) -> Iterator[Tree]:
    try:
        if not kind.matches(value):
            value = _unwrap(value)
        yield from kind.trees(value)
    except (WireError, TranscriptError) as error:
        raise TranscriptError(f"{at}: {error}") from None


def _without_branches(path: Path) -> Iterator[Tree]:
    try:
        for run in formats.read_runs(fspath(path)):
            yield _line(run, path)
    except TranscriptError as error:
        raise TranscriptError(
            str(error).replace("Looked for ", f"Looked for {LOOKED_FOR}", 1)
        ) from None


def _line(run: Run, path: Path) -> Tree:
    """A run as a tree in which each message follows the one before; what a tree has no place for is
    carried.
    """
    head = run.head
    plain = all(isinstance(part, Text) for message in head.system for part in message.parts)
    records: list[Record] = []

    def add(message: Message) -> None:
        above = records[-1].id if records else ""
        records.append(
            Record(id=str(len(records) + 1), place=run.format, messages=(message,), parent=above)
        )

    for message in () if plain else head.system:
        add(message)
    for message in run.messages():
        add(message)
    nodes, _ = grow(records)
    fields = {
        "tools": to_builtins(head.tools),
        "settings": to_builtins(head.settings),
        "max_output": head.max_output,
    }
    return Tree(
        id=f"{path.stem}#{run.number}" if run.number else path.stem,
        nodes=nodes,
        title=run.name,
        system_context="\n\n".join(message.text for message in head.system) if plain else "",
        current=nodes[-1].id if nodes else "",
        model=head.model,
        carried=carry("loom", drop_empty(fields)),
    )
