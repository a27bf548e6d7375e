"""Which format a file has, found from its content, and its runs."""

from collections.abc import Iterator
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from loom.conversation.checked import checks_arguments
from loom.dialects import responses
from loom.dialects.input import is_item
from loom.errors import ChoiceError, TranscriptError, WireError, describe
from loom.transcripts import benchmarks, chat, claude_code, codex, files, pi
from loom.transcripts.runs import Run, make_run

LOOKED_FOR = (
    "OpenAI chat or Anthropic messages (JSON or one a line), OpenAI responses items, a Claude "
    "Code, Codex or pi session, "
    "an SWE-agent trajectory, tau-bench runs"
)


CHAT_FORMATS = {"anthropic": "Anthropic messages JSON", "openai": "OpenAI chat JSON"}  # by the wire
SAMPLE_ITEMS = 100  # values of a list that are looked at to tell what it is
_ANSWER_BLOCKS = {
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
}


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
    if sample is not None and len(sample) == 1 and (said := _find_message(sample[0])) is not None:
        yield _list_run([said], 0, path, "")
    elif sample is None or (len(sample) == 1 and not _is_record(sample[0])):
        yield from _document_runs(path, files.document(path))
    else:
        yield from _line_runs(path, sample)


def _find_message(value: Any) -> Any:
    """The message in a provider's answer, or a message that stands alone."""
    match value:
        case {"choices": [{"message": dict(message)}, *_]}:
            return message
        case {"type": "message", "role": "assistant", "content": list(blocks)} if all(
            map(_is_answer_block, blocks)
        ):
            return {"role": "assistant", "content": blocks}
    if chat.is_message(value) and "type" not in value:
        return value
    return None


def _is_answer_block(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("type")) in _ANSWER_BLOCKS


def _is_record(value: Any) -> bool:
    """Whether a lone line is one record of a session rather than a whole document."""
    return isinstance(value, dict) and (
        "messages" not in value and "type" in value and not isinstance(value.get("input"), list)
    )


def _line_runs(path: Path, sample: list[Any]) -> Iterator[Run]:
    if pi.matches(sample):
        yield from pi.runs(path, sample)
    elif codex.matches(sample):
        yield from codex.runs(path, sample)
    elif claude_code.matches(sample):
        yield from claude_code.runs(path)
    elif _is_run(sample[0]):
        for number, (line, value) in enumerate(files.lines(path)):
            yield _read_value(value, number, path, f"line {line}")
    elif chat.is_message(sample[0]) and "type" not in sample[0]:
        yield chat.from_lines(path, 0, sample)
    elif any(map(codex.is_response_item, sample)):
        yield from codex.item_runs(path, sample)
    else:
        raise _unknown(path, f"line 1 is {describe(sample[0])}")


def _document_runs(path: Path, value: Any) -> Iterator[Run]:
    if (said := _find_message(value)) is not None:
        yield _list_run([said], 0, path, "")
    elif not isinstance(value, list):
        yield _read_value(value, 0, path, "")
    elif value and _is_run(value[0]):
        for number, item in enumerate(value):
            yield _read_value(item, number, path, f"[{number}]")
    elif value and isinstance(value[0], list):
        for number, item in enumerate(value):
            yield _list_run(item, number, path, f"[{number}]")
    else:
        yield _list_run(value, 0, path, "")


def _is_run(value: Any) -> bool:
    """Whether a value is a whole run: a request, a trajectory, a result."""
    if not isinstance(value, dict):
        return False
    asks = isinstance(value.get("input"), list) or (
        isinstance(value.get("input"), str) and "model" in value
    )
    answers = value.get("object") == "response" and isinstance(value.get("output"), list)
    return (
        isinstance(value.get("messages"), list)
        or asks
        or answers
        or benchmarks.is_tau_bench(value)
        or benchmarks.is_swe_agent(value)
    )


def _read_value(value: Any, number: int, path: Path, place: str) -> Run:
    """A run that is one JSON object."""
    at = _at(path, place)
    if not _is_run(value):
        raise _unknown(path, f"{place or 'it'} is {describe(value)}")
    try:
        if benchmarks.is_tau_bench(value):
            conversation, name = benchmarks.parse_tau_bench(value, at)
            return make_run(number, benchmarks.TAU_BENCH, "openai", conversation, name)
        if isinstance(value.get("messages"), list):
            wire, conversation = chat.parse_request(value)
            return make_run(number, CHAT_FORMATS[wire], wire, conversation)
        if benchmarks.is_swe_agent(value):
            return make_run(
                number, benchmarks.SWE_AGENT, "openai", benchmarks.parse_swe_agent(value, at)
            )
        if value.get("object") == "response" and "input" not in value:
            value = {"model": value.get("model", ""), "input": value["output"]}
        return make_run(number, "OpenAI responses JSON", "responses", responses.parse(value))
    except WireError as error:
        raise TranscriptError(f"{at}: {error}") from None


def _list_run(value: Any, number: int, path: Path, place: str) -> Run:
    """A run that is a bare list of messages or items."""
    at = _at(path, place)
    if _are_messages(value):
        wire, conversation = chat.from_list(value, at)
        return make_run(number, CHAT_FORMATS[wire], wire, conversation)
    if isinstance(value, list) and any(
        codex.is_response_item(v) for v in islice(value, SAMPLE_ITEMS)
    ):
        try:
            return make_run(
                number, codex.ITEMS_FORMAT, "responses", responses.parse({"input": value})
            )
        except WireError as error:
            raise TranscriptError(f"{at}: {error}") from None
    what = describe(value)
    if value == []:
        what = "an empty list"
    elif isinstance(value, list):
        what = f"a list that begins with {describe(value[0])}"
    raise _unknown(path, f"{place or 'it'} is {what}")


def _are_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    is_chat = all(
        chat.is_message(v) and v.get("type", "message") == "message"
        for v in islice(value, SAMPLE_ITEMS)
    )
    return is_chat and not any(map(is_item, value))


def _at(path: Path, place: str) -> str:
    """Where in a file, for errors."""
    return ", ".join(filter(None, (str(path), place)))


def _unknown(path: Path, found: str) -> TranscriptError:
    return TranscriptError(
        f"{path} is none of the transcripts known here: {found}. Looked for {LOOKED_FOR}"
    )
