"""Which format a file has, found from its content, and its runs.

A format is a module and a row in one of three tables: files known by their first lines, JSON
objects that are a run each, and bare lists. Of each table the first row that matches reads.
"""

from collections.abc import Callable, Iterable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from msgspec import Struct

from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, TranscriptError, WireError, describe
from loom.transcripts import benchmarks, chat, claude_code, codex, files, items, pi
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


LINE_FORMATS = (
    LineFormat("pi", pi.matches, pi.runs),
    LineFormat("Codex", codex.matches, codex.runs),
    LineFormat("Claude Code", claude_code.matches, claude_code.runs),
    LineFormat("", _begins_with_object, _read_objects),
    LineFormat("", chat.begins_with_message, chat.runs),
    LineFormat("", codex.begins_with_items, codex.item_runs),
)


def _describe_formats() -> str:
    programs = sorted((row.program for row in LINE_FORMATS if row.program), key=str.casefold)
    lists = [row.looks_like for row in LIST_FORMATS]
    objects = sorted(row.looks_like for row in OBJECT_FORMATS if row.looks_like)
    session = f"a {', '.join(programs[:-1])} or {programs[-1]} session"
    return ", ".join([*lists, session, *objects])


LOOKED_FOR = _describe_formats()


@checks_arguments
def read_runs(spec: "str | PathLike[str]") -> Iterator[Run]:
    """The runs of FILE, or the one that FILE#N names (from 0)."""
    path, number = files.locate(fspath(spec))
    start = files.inspect(path)
    if start[:1] not in "{[":
        raise _unknown(path, f"it begins with {start[:20]!r}")
    found = _runs(path)
    if number is None:
        yield from found
        return
    seen = 0
    for run in found:
        if run.number == number:
            yield run
            return
        seen += 1
    raise ChoiceError(
        f"{path} has {seen} {'run' if seen == 1 else 'runs'}; choose "
        f"#0{f' to #{seen - 1}' if seen > 1 else ''}, not #{number}"
    )


def _runs(path: Path) -> Iterator[Run]:
    sample = files.first_lines(path)
    if sample is not None and len(sample) == 1:
        message = chat.find_message(sample[0])
        if message is not None:
            yield _read_list([message], 0, path, "")
            return
    if sample is None or (len(sample) == 1 and not _is_record(sample[0])):
        yield from _document_runs(path, files.document(path))
    else:
        yield from _line_runs(path, sample)


def _is_record(value: Any) -> bool:
    """Whether a lone line is one record of a session rather than a whole document."""
    return isinstance(value, dict) and (
        "messages" not in value and "type" in value and not isinstance(value.get("input"), list)
    )


def _line_runs(path: Path, sample: list[Any]) -> Iterable[Run]:
    for row in LINE_FORMATS:
        if row.matches(sample):
            return row.read(path, sample)
    raise _unknown(path, f"line 1 is {describe(sample[0])}")


def _document_runs(path: Path, value: Any) -> Iterator[Run]:
    message = chat.find_message(value)
    if message is not None:
        yield _read_list([message], 0, path, "")
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
        raise _unknown(path, f"{place or 'it'} is {describe(value)}")
    return _read_value(row, value, number, _at(path, place))


def _read_list(value: Any, number: int, path: Path, place: str) -> Run:
    """A run that is a bare list of messages or items."""
    row = _find_format(LIST_FORMATS, value)
    if row is None:
        raise _unknown(path, f"{place or 'it'} is {_describe_list(value)}")
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


def _unknown(path: Path, found: str) -> TranscriptError:
    return TranscriptError(
        f"{path} is not a transcript that Loom knows: {found}. Looked for {LOOKED_FOR}"
    )
