"""Renewal: what an agent takes along when its window begins again, as a document for the
model.

Rules of this file:
- The document holds only what was so at the moment of renewal: it is the same text in every call of
  the epoch.
- Everything is bounded; what is longer ends in "…".
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from loom.context.state.failures import is_failure
from loom.context.state.working import MAX_ENTRY_CHARS, Working
from loom.conversation.canonical import from_json
from loom.conversation.checked import CheckedStruct
from loom.conversation.message import Message, Text, ToolCall, ToolResult
from loom.dialects.repair import UNANSWERED

MAX_GOAL_CHARS, MAX_PROGRESS_CHARS = 2000, 2000  # characters of each
MAX_FILES, MAX_PENDING_CALLS = 40, 20  # files that are named, and calls
MAX_CALL_CHARS = 160  # characters of a call

_DEEP = 4  # objects inside objects in which arguments name files
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# What the name of a tool, or its argument `command`, says that it does.
_WRITES = frozenset({
    "append", "apply", "applypatch", "copy", "create", "edit", "insert", "modify", "move",
    "multiedit", "overwrite", "patch", "put", "rename", "replace", "save", "strreplace", "update",
    "write",
})  # fmt: skip
_PATCHES = frozenset({"applypatch", "patch"})
_MOVES, _COPIES = frozenset({"move", "rename"}), frozenset({"copy"})
_DELETES, _WHOLE = (
    frozenset({"delete", "remove", "rm", "unlink"}),
    frozenset({"file", "files", "fs", "path"}),
)
_LOOKS = frozenset({"dir", "directory", "folder", "get", "list", "read", "show", "undo", "view"})
_VERBS = ("command", "action", "operation")
# tools that share an open file: the second need not name it
_OPENS, _EDITS_OPEN = ("open", "create"), "edit"

# Which argument names the file; characters only, so that filePath, file_path and FilePath are one.
_PATHS = frozenset({
    "absolutepath", "file", "filename", "filepath", "fullpath", "notebookpath", "outputfile",
    "outputpath", "path", "relativepath", "relativeworkspacepath", "targetfile", "targetnotebook",
    "targetpath",
})  # fmt: skip
_FROM = _PATHS | {"from", "oldpath", "source", "sourcepath", "src"}
_TO = frozenset(
    {
        "dest",
        "destination",
        "destinationpath",
        "destpath",
        "dst",
        "newpath",
        "target",
        "targetpath",
        "to",
    }
)

_PATCH = "*** Begin Patch"
_PATCHED = re.compile(r"^\*\*\* (?:(Add|Update|Delete) File|(Move) to): (.+)$", re.MULTILINE)


class Handoff(CheckedStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What is handed to whoever continues. `pending` are calls that were made and not answered;
    `handoff_ts` is milliseconds, UTC.
    """

    goal: str
    sprint: int
    progress_summary: str
    produced_artifacts: tuple[str, ...]
    open_tasks: tuple[str, ...]
    pending: tuple[str, ...] = ()
    rho: float
    error_count: int
    depth: int
    handoff_ts: int

    @classmethod
    def make(
        cls,
        working: Working,
        goal: str,
        messages: Iterable[Message],
        sprint: int,
        at: int,
        progress: str = "",
    ) -> "Handoff":
        """The handoff of this moment. The model's own assessment counts first, then `progress`,
        then the last thing it said.
        """
        seen = _WorkTrace(messages)
        board = working.dashboard
        told = (board.goal_progress, working.scratchpad, progress, seen.said)
        return cls(
            goal=_shorten_text(goal, MAX_GOAL_CHARS),
            sprint=sprint,
            progress_summary=_shorten_text(
                next((text for text in told if text.strip()), ""), MAX_PROGRESS_CHARS
            ),
            produced_artifacts=tuple(seen.files),
            open_tasks=tuple(
                _line(task, MAX_ENTRY_CHARS) for task in working.plan[: Working.MAX_PLAN_STEPS]
            ),
            pending=seen.pending(),
            rho=board.rho,
            error_count=board.error_count,
            depth=board.depth,
            handoff_ts=at,
        )

    def with_files_of(self, earlier: "Handoff | None") -> "Handoff":
        """The same with the files that an earlier handoff named, before its own."""
        if earlier is None:
            return self
        own = self.produced_artifacts
        files = (*(file for file in earlier.produced_artifacts if file not in own), *own)
        return replace(self, produced_artifacts=files[-MAX_FILES:])

    def to_system_prompt(self) -> str:
        """The handoff as the model reads it."""
        lines = [f"# Handoff Document (Sprint {self.sprint})"]
        for title, told in (
            ("Goal", [self.goal or "(not stated)"]),
            ("Progress Summary", [self.progress_summary or "(not assessed)"]),
            ("Produced Artifacts", _list_entries(self.produced_artifacts)),
            ("Open Tasks", _list_entries(self.open_tasks)),
            ("Pending", _list_entries(self.pending) if self.pending else []),
            (
                "Context Snapshot",
                [
                    f"- rho: {self.rho:.2f}",
                    f"- error_count: {self.error_count}",
                    f"- depth: {self.depth}",
                ],
            ),
        ):
            if told:
                lines += ["", f"## {title}", *told]
        return "\n".join(lines)


def artifacts(messages: Iterable[Message]) -> tuple[str, ...]:
    """The files that tool calls wrote, each once and the one written last at the end. What failed
    or was deleted is not there.
    """
    return tuple(_WorkTrace(messages).files)


def open_calls(messages: Iterable[Message]) -> tuple[ToolCall, ...]:
    """The calls that were made last and not answered, with the ids by which a result answers
    them.
    """
    return tuple(_WorkTrace(messages).waiting())


def pending(messages: Iterable[Message]) -> tuple[str, ...]:
    """The calls that wait for an answer: made when the model spoke last, and not answered."""
    return _WorkTrace(messages).pending()


def _list_entries(entries: Iterable[str]) -> list[str]:
    return [f"- {entry}" for entry in entries] or ["(none)"]


def _shorten_text(text: str, limit: int) -> str:
    text = text.strip()
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def _line(text: str, limit: int) -> str:
    return _shorten_text(" ".join(text[: 2 * limit].split()), limit)


# What the messages tell


class _WorkTrace:
    """What one pass over messages leaves: the files that were written, the calls that are open, the
    last thing the model said.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self.files: dict[str, None] = {}
        self.said = ""
        # the newest call of each id, and when it was made
        self._open: dict[str, tuple[int, ToolCall]] = {}
        self._round, self._speaking = 0, False
        self._opened = ""
        for message in messages:
            if message.role == "assistant":
                self._speak(message)
            elif message.role in ("user", "tool"):
                self._speaking = False
                for result in message.results:
                    self._answer(result)

    def waiting(self) -> list[ToolCall]:
        # Once the model continues without a result, nobody waits for it any more.
        return [call for made, call in self._open.values() if made == self._round]

    def pending(self) -> tuple[str, ...]:
        return tuple(
            _line(f"{call.name} {call.arguments[: 2 * MAX_CALL_CHARS]}", MAX_CALL_CHARS)
            for call in self.waiting()[:MAX_PENDING_CALLS]
        )

    def _speak(self, message: Message) -> None:
        if not self._speaking:
            self._round, self._speaking = self._round + 1, True
        if message.text.strip():
            self.said = message.text
        for call in message.calls:
            self._open.pop(call.id, None)
            self._open[call.id] = self._round, call

    def _answer(self, result: ToolResult) -> None:
        text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
        if result.call_id not in self._open or text == UNANSWERED:
            return
        call = self._open.pop(result.call_id)[1]
        if result.error or is_failure(text):
            return
        if call.name in _OPENS:
            self._opened = next(_find_names(_arguments(call), _PATHS), "")
        for path, written in _find_changes(call, self._opened):
            self.files.pop(path, None)
            if written:
                self.files[path] = None
        while len(self.files) > MAX_FILES:
            del self.files[next(iter(self.files))]


def _find_changes(call: ToolCall, opened: str) -> list[tuple[str, bool]]:
    """The files that a call changes, and whether they are there afterwards."""
    words = _words(call.name)
    is_patch = _is_patch(call, words)
    if not is_patch and not _may_change(call, words):
        return []
    given = _arguments(call)
    found: list[tuple[str, bool]] = []
    if is_patch:
        found = [change for text in _texts(given) for change in _in_patch(text)]
    elif isinstance(given, dict):
        found = _by_argument(_find_verbs(given) or words, given)
    if not found and opened and call.name == _EDITS_OPEN:
        found = [(opened, True)]
    clean = [(path.strip().removeprefix("./"), written) for path, written in found]
    return [
        (path, written)
        for path, written in clean
        if 0 < len(path) <= MAX_ENTRY_CHARS and path.isprintable()
    ]


def _is_patch(call: ToolCall, words: frozenset[str]) -> bool:
    """Whether a call applies a patch: by its name, or by a command that it runs."""
    if _PATCH not in call.arguments:
        return False
    return bool(words & _PATCHES) or (words.isdisjoint(_WRITES) and "apply_patch" in call.arguments)


def _may_change(call: ToolCall, words: frozenset[str]) -> bool:
    """Whether a call may change files: by its name, or by the command that it is given."""
    return not words.isdisjoint(_WRITES | _DELETES) or any(
        verb in call.arguments for verb in _VERBS
    )


def _arguments(call: ToolCall) -> object:
    """What a call was given; the text itself where it is not JSON, as a custom tool's."""
    try:
        return from_json(call.arguments)
    except ValueError:
        return call.arguments


def _words(name: str) -> frozenset[str]:
    """The words of a name, however they are joined: write_file, WriteFile, mcp__fs__writefile."""
    words = {word.lower() for word in _WORD.findall(name)}
    return frozenset(
        words
        | {part for word in words if word.endswith("file") for part in (word[:-4], "file") if part}
    )


def _find_verbs(given: dict[str, Any]) -> frozenset[str]:
    """What is done by an editor with several commands: the command says it."""
    for verb in _VERBS:
        said = given.get(verb)
        if not isinstance(said, str) or not said.replace("_", "").isalpha():
            continue
        words = _words(said)
        if words & (_WRITES | _DELETES | _LOOKS):
            return words
    return frozenset()


def _by_argument(words: frozenset[str], given: dict[str, Any]) -> list[tuple[str, bool]]:
    """The files that arguments name, and whether they are there afterwards; by what these words say
    is done.
    """
    if words & _LOOKS:
        return []
    if words & _DELETES:
        is_whole = words & _WHOLE or words <= _DELETES  # not a few lines of a file
        if is_whole:
            return [(path, False) for path in _find_names(given, _PATHS)]
        return []
    if words.isdisjoint(_WRITES):
        return []
    if words & (_MOVES | _COPIES):
        targets = list(_find_names(given, _TO))
    else:
        targets = []
    if not targets:
        return [(path, True) for path in _find_names(given, _PATHS)]
    if words & _MOVES:
        gone = [path for path in _find_names(given, _FROM) if path not in targets]
    else:
        gone = []
    return [*((path, False) for path in gone), *((path, True) for path in targets)]


def _find_names(given: object, keys: frozenset[str], depth: int = 0) -> Iterator[str]:
    """What these arguments name; where none stands outside, those of the objects inside, as of
    several edits in one call.
    """
    if isinstance(given, dict):
        found = [
            value
            for key, value in given.items()
            if isinstance(value, str) and _letters(key) in keys
        ]
        if found:
            yield from found
            return
    if depth < _DEEP and isinstance(given, dict | list):
        for inner in given.values() if isinstance(given, dict) else given:
            yield from _find_names(inner, keys, depth + 1)


def _letters(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEP and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, depth + 1)


def _in_patch(text: str) -> Iterator[tuple[str, bool]]:
    if f"{_PATCH}\\n" in text:  # in a program that calls the tool, line breaks are still escaped
        text = text.replace("\\n", "\n")
    before = ""
    for kind, moved, path in _PATCHED.findall(text):
        if moved and before:
            yield before, False
        yield path, kind != "Delete"
        before = path.strip()
