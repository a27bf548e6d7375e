"""Which format a file has, found from its content, and its runs.

A format is a module and a row in a table: texts, files known by their first lines, JSON objects
that are a run each, and bare lists. `branching` has the table of those that may have branches. Of
each table the first row that matches reads.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, TranscriptError, UnknownFormat, WireError, describe, shorten
from loom.transcripts import (
    aider,
    benchmarks,
    branching,
    chat,
    claude_code,
    codex,
    files,
    items,
    loom_sessions,
    pi,
)
from loom.transcripts.runs import Run


class ValueFormat(Struct, frozen=True):
    """A format in which one JSON value is a run."""

    looks_like: str  # for an error that says what was looked for; "" if another row says it
    matches: Callable[[Any], bool]
    read: Callable[[int, Any, str], Run]  # the run's number, the value, and where it is


class LineFormat(Struct, frozen=True):
    """A format with one record a line, known by the first of them."""

    program: str  # whose sessions these are; "" if each line is what other rows say
    matches: Callable[[list[Any]], bool]
    read: Callable[[Path, list[Any]], Iterable[Run]]


class TextFormat(Struct, frozen=True):
    """A format that is not JSON, known by its first words."""

    program: str
    matches: Callable[[str], bool]
    read: Callable[[Path], Iterable[Run]]


TEXT_FORMATS = (TextFormat("aider", aider.matches, aider.runs),)
OBJECT_FORMATS = (
    ValueFormat("tau-bench runs", benchmarks.is_tau_bench, benchmarks.read_tau_bench),
    ValueFormat("", chat.is_request, chat.read_request),
    ValueFormat("an SWE-agent trajectory", benchmarks.is_swe_agent, benchmarks.read_swe_agent),
    ValueFormat("", items.is_request, items.read_request),
)
LIST_FORMATS = (
    ValueFormat(
        "OpenAI chat or Anthropic messages (JSON or JSON lines)",
        chat.are_messages,
        chat.read_messages,
    ),
    ValueFormat("OpenAI responses items", items.are_items, items.read_items),
)


def _begins_with_object(sample: list[Any]) -> bool:
    return _find_format(OBJECT_FORMATS, sample[0]) is not None


def _read_objects(path: Path, _sample: list[Any]) -> Iterator[Run]:
    for number, (line, value) in enumerate(files.lines(path)):
        yield _read_object(value, number, path, f"line {line}")


def _begins_with_tree(sample: list[Any]) -> bool:
    return branching.find_tree_format(sample[0]) is not None


def _read_trees(path: Path, _sample: list[Any]) -> Iterator[Run]:
    values = ((f"line {line}", value) for line, value in files.lines(path))
    return branching.tree_runs(path, values)


LINE_FORMATS = (
    LineFormat("Loom", loom_sessions.matches, loom_sessions.runs),
    LineFormat("pi", pi.matches, pi.runs),
    LineFormat("Codex", codex.matches, codex.runs),
    LineFormat("Claude Code", claude_code.matches, claude_code.runs),
    LineFormat("", _begins_with_tree, _read_trees),
    LineFormat("", _begins_with_object, _read_objects),
    LineFormat("", chat.begins_with_message, chat.runs),
    LineFormat("", codex.begins_with_items, codex.item_runs),
)


def _describe_formats() -> str:
    programs = sorted(
        (row.program for row in (*LINE_FORMATS, *TEXT_FORMATS) if row.program), key=str.casefold
    )
    lists = [row.looks_like for row in LIST_FORMATS]
    objects = sorted(row.looks_like for row in OBJECT_FORMATS if row.looks_like)
    trees = [row.looks_like for row in branching.TREE_FORMATS]
    session = f"a session of {', '.join(programs[:-1])} or {programs[-1]}"
    return ", ".join([*lists, session, *objects, *trees])


LOOKED_FOR = _describe_formats()
MAX_LISTED = 20  # runs in an error


@checks_arguments
def read_runs(spec: "str | PathLike[str]") -> Iterator[Run]:
    """The runs of FILE, or the one that FILE#N names (from 0). Of a conversation with branches, the
    branch that was last looked at is the run.
    """
    path, number = files.locate(fspath(spec))
    found: Iterator[Run] = _runs(files.unpack_file(path))
    first = next(found, None)
    if first is None:
        raise TranscriptError(f"{path} has no conversation in it")
    found = chain([first], found)
    if number is None:
        yield from found
        return
    seen: list[Run] = []
    for run in found:
        if run.number == number:
            yield run
            return
        seen.append(run)
    raise ChoiceError(
        f"{path} has {len(seen)} {'run' if len(seen) == 1 else 'runs'}; choose "
        f"{list_names((run.number, run.name) for run in seen)}, not #{number}"
    )


def list_names(named: Iterable[tuple[int, str]]) -> str:
    """The numbers to choose from, each with its name, for an error."""
    names = list(named)
    if not any(name for _, name in names):
        last = f" to #{names[-1][0]}" if len(names) > 1 else ""
        return f"#0{last}"
    listed = [f"#{n} ({shorten(' '.join(name.split()))})" if name else f"#{n}" for n, name in names]
    more = [f"… #{names[-1][0]}"] if len(names) > MAX_LISTED else []
    return ", ".join([*listed[:MAX_LISTED], *more])


def _runs(path: Path) -> Iterator[Run]:
    start = files.inspect(path)
    if start[:1] not in "{[":
        for row in TEXT_FORMATS:
            if row.matches(start):
                yield from row.read(path)
                return
        raise unknown_error(path, f"it begins with {start[:20]!r}")
    sample = files.first_lines(path)
    try:
        if sample is None and start[:1] == "[" and files.is_large(path):
            yield from _large_runs(path)
        elif sample is None:
            yield from _document_runs(path, files.document(path))
        elif len(sample) == 1 and not _is_record(sample[0]):
            yield from _document_runs(path, sample[0])
        else:
            yield from _line_runs(path, sample)
    except RecursionError:
        raise TranscriptError(f"{path}: nested too deeply") from None


def _is_record(value: Any) -> bool:
    """Whether a lone line is one record of a session rather than a whole document."""
    return (
        isinstance(value, dict)
        and chat.find_message(value) is None
        and ("messages" not in value and "type" in value)
        and not isinstance(value.get("input"), list)
    )


def _line_runs(path: Path, sample: list[Any]) -> Iterable[Run]:
    for row in LINE_FORMATS:
        if row.matches(sample):
            return row.read(path, sample)
    raise unknown_error(path, f"line 1 is {describe(sample[0])}")


def _large_runs(path: Path) -> Iterator[Run]:
    """The runs of a list that is too large for one document: each object of it must be a run."""
    objects = files.list_objects(path)
    first = next(objects, None)
    if first is not None and branching.find_tree_format(first[1]):
        yield from branching.tree_runs(path, chain([first], objects))
    elif first is not None and _find_format(OBJECT_FORMATS, first[1]):
        for number, (place, value) in enumerate(chain([first], objects)):
            yield _read_object(value, number, path, place)
    else:
        files.document(path)  # says that it is too large


def _document_runs(path: Path, value: Any) -> Iterator[Run]:
    message = chat.find_message(value)
    if message is not None:
        yield _read_list([message], 0, path, "")
    elif branching.find_tree_format(value):
        yield from branching.tree_runs(path, [("", value)])
    elif isinstance(value, list) and value and branching.find_tree_format(value[0]):
        items = ((f"[{n}]", item) for n, item in enumerate(value))
        yield from branching.tree_runs(path, items)
    elif not isinstance(value, list):
        yield _read_object(value, 0, path, "")
    elif value and _find_format(OBJECT_FORMATS, value[0]):
        for number, item in enumerate(value):
            yield _read_object(item, number, path, f"[{number}]")
    elif value and isinstance(value[0], list):
        for number, item in enumerate(value):
            yield _read_list(item, number, path, f"[{number}]")
    else:
        yield _read_list(value, 0, path, "")


def _find_format(rows: Iterable[ValueFormat], value: Any) -> ValueFormat | None:
    return next((row for row in rows if row.matches(value)), None)


def _read_object(value: Any, number: int, path: Path, place: str) -> Run:
    """A run that is one JSON object."""
    row = _find_format(OBJECT_FORMATS, value)
    if row is None:
        raise unknown_error(path, f"{place or 'it'} is {describe(value)}")
    return _read_value(row, value, number, _at(path, place))


def _read_list(value: Any, number: int, path: Path, place: str) -> Run:
    """A run that is a bare list of messages or items."""
    row = _find_format(LIST_FORMATS, value)
    if row is None:
        raise unknown_error(path, f"{place or 'it'} is {_describe_list(value)}")
    return _read_value(row, value, number, _at(path, place))


def _describe_list(value: Any) -> str:
    if value == []:
        return "an empty list"
    if isinstance(value, list):
        return f"a list that begins with {describe(value[0])}"
    return describe(value)


def _read_value(row: ValueFormat, value: Any, number: int, at: str) -> Run:
    try:
        return row.read(number, value, at)
    except WireError as error:
        raise TranscriptError(f"{at}: {error}") from None


def _at(path: Path, place: str) -> str:
    """Where in a file, for errors."""
    return ", ".join(filter(None, (str(path), place)))


def unknown_error(path: Path, found: str) -> UnknownFormat:
    return UnknownFormat(
        f"{path} is not a transcript that Loom knows: {found}. Looked for {LOOKED_FOR}"
    )
