"""Which kind of branching conversations a file holds, found from its content, and the trees."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from loom.conversation.checked import checks_arguments
from loom.conversation.message import Message, Text
from loom.conversation.tree import Tree
from loom.dialects.wire import carry
from loom.errors import ChoiceError, TranscriptError
from loom.transcripts import claude_code, codex, files, formats, pi
from loom.transcripts.branching import Placed, find_tree_format, value_trees
from loom.transcripts.linked import Record, drop_empty, grow
from loom.transcripts.loom_tree import write_trees as write_trees
from loom.transcripts.runs import Run


class SessionFormat(Struct, frozen=True):
    """A format in which the lines of a file are one tree, or several."""

    format: str
    matches: Callable[[list[Any]], bool]
    trees: Callable[[Path], Iterable[Tree]]


SESSIONS = tuple(
    SessionFormat(module.FORMAT, module.matches, module.trees) for module in (pi, claude_code)
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
    seen: list[str] = []
    for tree in found:
        if len(seen) == number:
            yield tree
            return
        seen.append(tree.title)
    raise ChoiceError(
        f"{path} has {len(seen)} {'tree' if len(seen) == 1 else 'trees'}; choose "
        f"{formats.list_names(enumerate(seen))}, not #{number}"
    )


def tree_format(path: Path) -> str:
    """The format of a file whose conversations may have branches; "" of any other."""
    path = files.unpack_file(path)
    sample = _sample(path)
    if session := _session(sample):
        return session.format
    found = next((find_tree_format(value) for _, value in _values(path, sample)), None)
    if found is None:
        return ""
    return found.format


def is_branching(path: Path) -> bool:
    """Whether each conversation of a file is one JSON value that may have branches."""
    sample = _sample(path)
    if _session(sample):
        return False
    return any(find_tree_format(value) for _, value in islice(_values(path, sample), 1))


def _trees(path: Path) -> Iterator[Tree]:
    try:
        sample = _sample(path)
        if session := _session(sample):
            yield from session.trees(path)
            return
        values = _values(path, sample)
        first = next(values, None)
        if first is not None and find_tree_format(first[1]):
            yield from (tree for _, tree in value_trees(path, chain([first], values)))
        else:
            yield from (_line(run, path) for run in formats.read_runs(fspath(path)))
    except RecursionError:
        raise TranscriptError(f"{path}: nested too deeply") from None


def _sample(path: Path) -> list[Any] | None:
    """The first values of a file of JSON lines; an empty list of a text, and None of a document
    that is spread over several lines.
    """
    if files.inspect(path)[:1] not in "{[":
        return []
    return files.first_lines(path)


def _session(sample: list[Any] | None) -> SessionFormat | None:
    if not sample or codex.matches(sample):
        return None
    return next((session for session in SESSIONS if session.matches(sample)), None)


def _values(path: Path, sample: list[Any] | None) -> Iterator[Placed]:
    """The values that may be conversations, with their places: lines, the items of a list, or the
    whole document.
    """
    if sample is not None and len(sample) > 1:
        yield from ((f"line {number}", value) for number, value in files.lines(path))
        return
    if sample == []:
        return
    if sample is None and files.is_large(path) and files.inspect(path).startswith("["):
        yield from files.list_objects(path)
        return
    value = sample[0] if sample else files.document(path)
    if isinstance(value, list):
        yield from ((f"[{n}]", item) for n, item in enumerate(value))
    else:
        yield "", value


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
            Record(
                id=str(len(records) + 1),
                place=run.format,
                messages=(message,),
                parent=above,
                created=run.created,
            )
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
        created=run.created,
        carried=carry("loom", drop_empty(fields)),
    )
