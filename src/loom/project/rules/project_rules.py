"""The rules of a project, from the files that it has for them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.budget.tokenizers import tokenizer
from loom.config.project_file import (
    IGNORE_PROJECT_VARIABLE,
    PROJECT_FILE,
    ProjectFile,
    list_folders_above,
    read_project_file,
)
from loom.conversation.checked import checks_arguments
from loom.errors import ChoiceError, describe, shorten
from loom.project.rules.blocks import SaidText, closes_fence, drop_repeats
from loom.project.rules.carried import CarriedTexts
from loom.project.rules.loom_file import LoomFile, parse_loom_file
from loom.project.rules.operations import (
    OperationVerdict,
    Patterns,
    judge_operation,
    place_operation,
)
from loom.project.rules.pieces import Count, RulesPiece, write_pieces
from loom.project.rules.reading import (
    DOCUMENT_ENDINGS,
    MAX_FILE_BYTES,
    ReadFiles,
    RulesFile,
    Signature,
    on_one_line,
    read_rules_file,
    sign_settled_file,
)

DEFAULT_TOKENS = 2048  # of all rules as one text
LOOM_FILES = ("LOOM.md", ".loom.md", "loom.md")
AGENTS = "AGENTS.md"
# The files that have a convention, by its name; the first that exists is taken.
CONVENTIONS: Mapping[str, tuple[str, ...]] = {
    AGENTS: ("AGENTS.md", ".github/AGENTS.md"),
    "CLAUDE.md": ("CLAUDE.md", ".github/CLAUDE.md", ".claude/CLAUDE.md"),
    "COPILOT.md": ("COPILOT.md", ".github/COPILOT.md", ".github/copilot-instructions.md"),
    "CURSOR.md": ("CURSOR.md", ".github/CURSOR.md", ".cursorrules"),
    "CONTRIBUTING.md": ("CONTRIBUTING.md", ".github/CONTRIBUTING.md"),
}
NESTED = (AGENTS, "CLAUDE.md")  # these may be in any folder, for what is in it
WEIGHTS = {"CONTRIBUTING.md": 1, "COPILOT.md": 2, "CURSOR.md": 2}
OWN_WEIGHT = 8  # of what is written for Loom
MAX_FOLDERS = 64  # folders at work that are looked into
MAX_DEPTH = 16  # folders below the project
MAX_IMPORTS = 16
MAX_IMPORT_DEPTH = 5
MAX_PROBLEMS = 5  # lines of a file that are told of
MAX_NAMED_CHARS = 100  # of a path that is named in a note
MAX_SETTINGS = 200  # values in `[rules]`
# Folders with the work of others, whose rules are not those of the project.
FOREIGN = frozenset(
    {".git", "node_modules", "site-packages", "vendor", "third_party", ".venv", "venv"}
)
SHOWN_FOLDERS = (".github", ".claude", ".cursor")  # hidden ones that have documents
_IMPORT = re.compile(r"\s*@([^\s@`]{1,400})\s*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class RulesSource(Struct, frozen=True):
    """A file of rules, the convention that it follows, and the folder that it is for ("" for the
    whole project).
    """

    file: RulesFile
    name: str
    folder: str = ""
    is_memory: bool = False


class ProjectRules(Struct, frozen=True, kw_only=True):
    """What the files of a project tell an agent.

    `settings` are the lines of `[rules]` in `.loom.toml`. `instructions`, `rules`, `allowed` and
    `denied` are from `LOOM.md`; the latter two are patterns by category. `sources` are the files
    that were found, also those that could not be read, and `notes` what is to be known of them.
    `hidden_operations` says why it is not known what is denied; then no operation is allowed.
    `above` are the rules of the folders around the project in its repository, the outermost first;
    their files are among the sources.
    """

    folder: str
    settings: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    rules: tuple[str, ...] = ()
    allowed: Patterns = {}
    denied: Patterns = {}
    sources: tuple[RulesSource, ...] = ()
    notes: tuple[str, ...] = ()
    hidden_operations: str = ""
    above: tuple["ProjectRules", ...] = ()

    @staticmethod
    @checks_arguments
    def load(folder: str | PathLike[str], *, touched: Sequence[str] = ()) -> "ProjectRules":
        """The rules of a project. `touched` are paths in it that one works on: the folders that
        they are in may have rules of their own.
        """
        return load_rules(folder, touched)

    def format_for_prompt(self, tokens: int = DEFAULT_TOKENS, count: Count | None = None) -> str:
        """All rules as one text of at most this many tokens; "" if there are none."""
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise ChoiceError(f"tokens must be a number, 0 or more, found {describe(tokens)}")
        pieces, _ = make_pieces(self)
        return write_pieces(pieces, tokens, count or tokenizer("o200k_base")).text

    @checks_arguments
    def judge(self, category: str, operation: str) -> OperationVerdict:
        """Whether an operation is allowed, and why. Deny wins. If a category has allowed patterns,
        one of them must match. If `LOOM.md` cannot be read, nothing is allowed. What is allowed
        here must be allowed by the folders above, too.
        """
        verdict = self._judge_alone(category, operation)
        placed = place_operation(category, operation, self.folder)
        outer = [each._judge_alone(category, placed) for each in self.above]
        denying = (each for each in (verdict, *outer) if not each.is_allowed)
        deciding = (each for each in (verdict, *outer) if each.pattern)
        return next(denying, None) or next(deciding, verdict)

    def _judge_alone(self, category: str, operation: str) -> OperationVerdict:
        if self.hidden_operations:
            return OperationVerdict(False, "", self.hidden_operations)
        return judge_operation(category, operation, self.allowed, self.denied, self.folder)

    def is_allowed(self, category: str, operation: str) -> bool:
        """Whether an operation of a category is allowed (`"shell"`, `"git push"`)."""
        return self.judge(category, operation).is_allowed


def load_rules(
    folder: str | PathLike[str],
    touched: Iterable[str] = (),
    read: ReadFiles | None = None,
    project_file: ProjectFile | None = None,
) -> ProjectRules:
    """The rules of a folder. What was `read` before and is unchanged is not read again.

    `project_file` is its configuration, if that was read already.
    """
    finder = _Finder(folder, read)
    if not os.path.isdir(finder.root):
        raise ChoiceError(f"{folder} is not a folder; give the root folder of a project")
    configured = _find_settings(finder.root, read, project_file)
    notes = list(configured.notes)
    if configured.problem:
        finder.add(
            RulesSource(RulesFile(configured.path, problem=configured.problem), PROJECT_FILE)
        )
    if configured.lines:
        text = "\n".join(f"- {name}: {value}" for name, value in configured.lines)
        digest = blake2b(text.encode(), digest_size=8).hexdigest()
        file = RulesFile(configured.path, text, len(text), digest=digest)
        finder.add(RulesSource(file, PROJECT_FILE))
    above = _load_above(finder.root, read)
    outer = tuple(source for each in above for source in each.sources)
    own = finder.find_loom_file()
    for name, paths in CONVENTIONS.items():
        finder.find(paths, name)
    for place in find_work_folders(finder.root, str(folder), touched):
        for name in NESTED:
            finder.find((f"{place}/{name}",), name, place)
    return ProjectRules(
        folder=finder.root,
        settings=configured.lines,
        instructions=own.instructions,
        rules=own.rules,
        allowed=own.allowed,
        denied=own.denied,
        sources=(*outer, *finder.sources),
        notes=(*notes, *(note for each in above for note in each.notes), *finder.list_notes()),
        hidden_operations=finder.tell_hidden_operations(),
        above=above,
    )


def _load_above(root: str, read: ReadFiles | None) -> tuple[ProjectRules, ...]:
    """The rules of the folders around a project in its repository: those that are for all that is
    below them.
    """
    made: list[ProjectRules] = []
    for place in list_folders_above(Path(root))[-MAX_DEPTH:]:
        prefix = os.path.relpath(place, root).replace(os.sep, "/")
        finder = _Finder(place, read, prefix)
        own = finder.find_loom_file()
        for name in NESTED:
            finder.find(CONVENTIONS[name], name)
        if finder.sources:
            made.append(
                ProjectRules(
                    folder=finder.root,
                    instructions=own.instructions,
                    rules=own.rules,
                    allowed=own.allowed,
                    denied=own.denied,
                    sources=tuple(finder.sources),
                    notes=finder.list_notes(),
                    hidden_operations=finder.tell_hidden_operations(),
                )
            )
    return tuple(made)


class _Finder:
    """Looks for the files of a project, each once. `prefix` is the way there from the project, for
    a folder above it.
    """

    def __init__(
        self, folder: str | PathLike[str], read: ReadFiles | None, prefix: str = ""
    ) -> None:
        try:
            self.root = os.path.realpath(os.path.expanduser(folder))
        except ValueError:
            raise ChoiceError(f"{describe(folder)} is not a folder") from None
        self.sources: list[RulesSource] = []
        self._read, self._prefix = read, prefix
        self._imports = 0
        self._refused: list[str] = []
        self._problems: list[str] = []

    def add(self, source: RulesSource) -> None:
        self.sources.append(source)

    def find_loom_file(self) -> LoomFile:
        """What `LOOM.md` says; nothing if there is none."""
        found = self.find(LOOM_FILES, LOOM_FILES[0])
        if found is None:
            return LoomFile()
        made = parse_loom_file(found.file.text)
        path = found.file.path
        self._problems += [f"{path}, {problem}" for problem in made.problems[:MAX_PROBLEMS]]
        if len(made.problems) > MAX_PROBLEMS:
            more = len(made.problems) - MAX_PROBLEMS
            self._problems.append(f"{path}: {more:,} more lines that are not understood")
        return made

    def find(self, paths: Iterable[str], name: str, folder: str = "") -> RulesSource | None:
        """The first of these files that can be read. Those before it that cannot are noted."""
        for path in paths:
            file = read_rules_file(self.root, path, self._read)
            if file is None:
                continue
            source = self._add_file(file, name, folder, is_memory=name == AGENTS)
            if not file.problem:
                if name in NESTED:
                    self._import(source, file, 1)
                return source
        return None

    def _add_file(self, file: RulesFile, name: str, folder: str, is_memory: bool) -> RulesSource:
        """Add a file under the path that it has from the project on."""
        if self._prefix:
            file = replace(file, path=f"{self._prefix}/{file.path}")
        source = RulesSource(file, name, folder or self._prefix, is_memory)
        self.add(source)
        return source

    def _import(self, source: RulesSource, naming: RulesFile, depth: int) -> None:
        """The files that a file names on lines of their own, as `@path`."""
        for path in dict.fromkeys(find_imports(naming)):
            named = f"{self._prefix}/{path}" if self._prefix else path
            known = any(each.file.path == named for each in self.sources)
            if known or _is_convention(path):
                continue
            problem = self._find_refusal(path, depth)
            file = None if problem else read_rules_file(self.root, path, self._read)
            if file is None:
                self._refuse(source, path, problem)
                continue
            self._imports += 1
            made = self._add_file(file, path, source.folder, source.is_memory)
            self._import(made, file, depth + 1)

    def list_notes(self) -> tuple[str, ...]:
        """What is to be known of the files."""
        told = (note for source in self.sources for note in _tell_problems(source))
        return (*self._problems, *told, *self._tell_refused())

    def tell_hidden_operations(self) -> str:
        """Why it is not known what is denied; "" if it is."""
        hiding = (_tell_unread(each) for each in self.sources if _denies(each))
        return next(filter(None, hiding), "")

    def _tell_refused(self) -> list[str]:
        """A note for each file that another one names and that was not read."""
        notes = list(dict.fromkeys(self._refused))
        if len(notes) <= MAX_PROBLEMS:
            return notes
        more = len(notes) - MAX_PROBLEMS
        return [*notes[:MAX_PROBLEMS], f"{more:,} more files were named as @path and not read"]

    def _find_refusal(self, path: str, depth: int) -> str:
        """Why a file is not read though another one names it; "" if it may be."""
        if path.startswith(("/", "~", "../")):
            return "it is outside of the project"
        if not _is_document(path):
            return "it is not a document, or is in a hidden folder"
        if self._imports >= MAX_IMPORTS or depth > MAX_IMPORT_DEPTH:
            return f"at most {MAX_IMPORTS} files are read this way, {MAX_IMPORT_DEPTH} deep"
        return ""

    def _refuse(self, source: RulesSource, path: str, problem: str) -> None:
        """Note that a file is not read. Names that need not be those of files are not noted."""
        if not problem and path.lower().endswith(DOCUMENT_ENDINGS):
            problem = "there is no such file"
        is_outside = path.startswith(("/", "~", "../"))
        if not problem or not (is_outside or _is_document(path) or self._is_there(path)):
            return
        named = f"@{shorten(on_one_line(path), MAX_NAMED_CHARS)}"
        self._refused.append(f"{on_one_line(source.file.path)}: {named} was not read: {problem}")

    def _is_there(self, path: str) -> bool:
        try:
            return os.path.lexists(os.path.join(self.root, path))
        except ValueError:
            return False


def find_imports(file: RulesFile) -> Iterator[str]:
    """The paths that a file names on lines of their own, as `@path`, from the project on. Those of
    the whole machine, or of a home folder, are as they are named.
    """
    here = os.path.dirname(file.path)
    for _, name in _import_lines(file.text):
        if name.startswith(("~", "/")):
            yield name
        else:
            yield os.path.normpath(os.path.join(here, name)).replace("\\", "/")


def _is_document(path: str) -> bool:
    """Whether a path is that of a text for readers in the project, in no hidden folder: `.env` is
    none.
    """
    parts = path.split("/")
    hidden = [part for part in parts if part.startswith(".") and part not in SHOWN_FOLDERS]
    return not hidden and path.lower().endswith(DOCUMENT_ENDINGS)


def _import_lines(text: str) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(text.split("\n")):
        opened = _FENCE.match(line)
        if fence:
            if closes_fence(line, fence):
                fence = ""
        elif opened:
            fence = opened[1]
        else:
            found = _IMPORT.fullmatch(line)
            if found:
                yield number, found[1]


def find_work_folders(root: str, given: str, touched: Iterable[str]) -> list[str]:
    """The folders below the project that paths are in, the nearest to its root first."""
    found: dict[str, None] = {}
    for name in touched:
        path = _place_in_project(root, given, name)
        parts = path.split("/") if path else []
        if FOREIGN.intersection(parts):
            continue
        for depth in range(1, min(len(parts), MAX_DEPTH) + 1):
            place = "/".join(parts[:depth])
            found.pop(place, None)
            found[place] = None
    newest = list(found)[-MAX_FOLDERS:]
    return sorted(newest, key=lambda place: (place.count("/"), place))


def _place_in_project(root: str, given: str, name: str) -> str:
    """A path from the root of the project on; "" if it is not in it."""
    if not name or len(name) > 1000 or "\0" in name or "\n" in name:
        return ""
    path = os.path.normpath(name.replace("\\", "/"))
    for base in (root, os.path.abspath(os.path.expanduser(given))):
        if path.startswith(f"{base}{os.sep}"):
            path = os.path.relpath(path, base)
            break
    if os.path.isabs(path) or path.startswith("..") or path in (".", ""):
        return ""
    return path.replace(os.sep, "/")


# `[rules]` of `.loom.toml`


class RulesTable(Struct, frozen=True):
    """`[rules]` of a settings file: the path of that from the project on, the lines that the table
    becomes, and what is wrong in it. `problem` says why there are none.
    """

    path: str
    lines: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    signature: Signature | None = None


def _find_settings(
    root: str, read: ReadFiles | None, given: ProjectFile | None = None
) -> RulesTable:
    """The rules in the settings of a project. A file that is unchanged is not read again."""
    if given is not None:
        return _make_table(root, given, None)
    if os.environ.get(IGNORE_PROJECT_VARIABLE):
        return RulesTable(PROJECT_FILE)
    key = os.path.join(root, f"{PROJECT_FILE}#rules")
    known = read.get(key) if read is not None else None
    if isinstance(known, RulesTable) and _is_unchanged(root, known):
        return known
    found = read_project_file(root)
    signature = sign_settled_file(found.path)
    made = _make_table(root, found, signature)
    if read is not None and signature and found.file:
        read[key] = made
    return made


def _make_table(root: str, found: ProjectFile, signature: Signature | None) -> RulesTable:
    lines, notes = _read_settings(found)
    path = os.path.relpath(found.path, root).replace(os.sep, "/")
    problem = str(found.problem) if found.problem and not found.file else ""
    return RulesTable(path, tuple(lines), tuple(notes), problem, signature)


def _is_unchanged(root: str, known: RulesTable) -> bool:
    """Whether the file is as it was, and no other is nearer."""
    nearer = (f"{'../' * n}{PROJECT_FILE}" for n in range(known.path.count("../")))
    if any(os.path.lexists(os.path.join(root, path)) for path in nearer):
        return False
    return sign_settled_file(os.path.join(root, known.path)) == known.signature


def _read_settings(found: ProjectFile) -> tuple[list[tuple[str, str]], list[str]]:
    """The lines that `[rules]` becomes, and what is wrong in it."""
    notes = [str(found.problem)] if found.problem else []
    said = found.table.get("rules")
    if said is not None and not isinstance(said, dict):
        notes.append(str(found.error(f"rules must be a table, found {describe(said)}", "rules")))
    lines = list(_list_settings(found.rules, ()))
    if len(lines) > MAX_SETTINGS:
        notes.append(f"{found.place('rules')}: only {MAX_SETTINGS} of {len(lines)} rules are used")
    return lines[:MAX_SETTINGS], notes


def _list_settings(value: Any, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """A line for each value: names in words, the first with a capital letter."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _list_settings(inner, (*names, str(name)))
        case list():
            for inner in value:
                yield from _list_settings(inner, names)
        case _:
            text = on_one_line(str(value).lower() if isinstance(value, bool) else str(value))
            words = on_one_line(" ".join(names).replace("_", " ").replace("-", " "))
            if text and words:
                yield words[0].upper() + words[1:], text


# Pieces


def make_pieces(
    rules: ProjectRules,
    said: Iterable[str] = (),
    only: Iterable[RulesSource] | None = None,
    carried: CarriedTexts | None = None,
) -> tuple[list[RulesPiece], list[str]]:
    """The rules in pieces, and notes of those that are left out because they are said already: in
    these texts, in a piece before, or by a message that carries the whole file.
    """
    known = SaidText(said)
    pieces: list[RulesPiece] = []
    notes: list[str] = []
    for source in rules.sources if only is None else only:
        if source.file.problem:
            continue
        if carried is not None and carried.has(source.file.text):
            known.add(source.file.text)
            path = on_one_line(source.file.path)
            notes.append(f"{path}: a message of the conversation has the same text already")
            continue
        made = [piece for piece in _pieces_of(rules, source) if piece.body.strip()]
        for piece in made:
            body = drop_repeats(piece.body, known)
            known.add(piece.body)
            if body != piece.body:
                notes.append(_tell_repeat(piece, body))
            if body:
                pieces.append(replace(piece, body=body))
    return pieces, notes


def _pieces_of(rules: ProjectRules, source: RulesSource) -> Iterator[RulesPiece]:
    path = on_one_line(source.file.path)
    if source.name == PROJECT_FILE:
        yield _list_piece(path, "## Project Rules", source.file.text.split("\n"))
    elif source.name == LOOM_FILES[0]:
        own = next((each for each in rules.above if source in each.sources), rules)
        whose, lead = "this project", ""
        if own.folder != rules.folder:
            whose = "the repository"
            lead = f"From the file {path}, for {whose}:"
        yield RulesPiece(
            path,
            "## Project Instructions",
            f"Instructions of {whose}, from the file {path}. Keep to them; what the user asks "
            "comes first.",
            own.instructions,
            weight=OWN_WEIGHT,
            unread_bytes=source.file.unread_bytes,
        )
        yield _list_piece(path, "## Rules", [f"- {rule}" for rule in own.rules], lead)
        for title, patterns in (("Allowed", own.allowed), ("Denied", own.denied)):
            lines = [f"- {name}: {', '.join(found)}" for name, found in patterns.items()]
            yield _list_piece(path, f"## {title} Operations", lines, lead)
    else:
        yield _convention_piece(path, source)


def _list_piece(path: str, heading: str, lines: Sequence[str], lead: str = "") -> RulesPiece:
    body = "\n".join(lines).replace("```", "'''")  # a list opens no fence
    return RulesPiece(path, heading, lead, body, is_fenced=False, weight=OWN_WEIGHT)


def _convention_piece(path: str, source: RulesSource) -> RulesPiece:
    name, scope = source.name, "this project"
    if source.folder:
        name, scope = path, f"files in {on_one_line(source.folder)}/"
    if source.folder.startswith(".."):
        scope = "the repository"
    return RulesPiece(
        path,
        f"## Project Convention: {on_one_line(name)}",
        f"Rules for {scope}, from the file {path}. Keep to them; what the user asks comes first.",
        _without_known_imports(source.file),
        weight=WEIGHTS.get(source.name, 4),
        unread_bytes=source.file.unread_bytes,
        is_memory=source.is_memory,
    )


def _without_known_imports(file: RulesFile) -> str:
    """The text without lines that only name another file of rules: that has a piece of its own."""
    text = file.text
    if "@" not in text:
        return text
    here = os.path.dirname(file.path)
    gone = {
        number
        for number, name in _import_lines(text)
        if _is_convention(os.path.normpath(os.path.join(here, name)).replace("\\", "/"))
    }
    lines = [line for number, line in enumerate(text.split("\n")) if number not in gone]
    return "\n".join(lines).strip("\n")


def _is_convention(path: str) -> bool:
    """Whether a file is read as one of the conventions, of the project or of a folder."""
    return os.path.basename(path) in NESTED or any(path in paths for paths in CONVENTIONS.values())


def _tell_repeat(piece: RulesPiece, left: str) -> str:
    if left:
        return f"{piece.path}: what is said elsewhere already was left out of it"
    return f"{piece.path}: it says nothing that is not said already, and was left out"


def _denies(source: RulesSource) -> bool:
    """Whether a file may deny operations."""
    return source.name == LOOM_FILES[0]


def _tell_problems(source: RulesSource) -> Iterator[str]:
    """What is to be known of a file. What is wrong with settings was said."""
    file = source.file
    path = on_one_line(file.path)
    if source.name == PROJECT_FILE:
        return
    if unread := _tell_unread(source):
        yield unread
    if file.flaw:
        yield f"{path}: {file.flaw}"


def _tell_unread(source: RulesSource) -> str:
    """Why a file is not read, or not to its end; "" if it is."""
    file = source.file
    path = on_one_line(file.path)
    way_out = ""
    if _denies(source):
        way_out = "; no operation is allowed until all of it can be read, for it may deny any"
    if file.problem:
        return f"{path} was not read: {file.problem}{way_out}"
    if file.unread_bytes:
        read = f"{MAX_FILE_BYTES:,} of {file.size:,} bytes"
        return f"{path}: only the first {read} were read{way_out}"
    return ""
