"""Which operations a project allows, for an agent loop to obey.

Rules of this file:
- A denied pattern wins over an allowed one.
- If a category has allowed patterns, an operation of it must match one of them. If it has none, it
  is allowed unless a pattern denies it. The category `*` stands for all categories.
- In a pattern `*` stands for any characters, `/` and blanks included, `?` for one, `[abc]` for one
  of these. A pattern also matches what is under it: `src` matches `src/a.py`, and `git` matches
  `git push`.
- A path is compared as it is and without its detours (`a/../b`).
- A command line is compared command by command: each must be allowed, and none may be denied. To
  find what is denied, it is read as the shell reads it (`shell_words.py`): without quotes, past
  words such as `sudo`, `env`, `then` and options before the next word, and into `sh -c "…"`. What
  only the shell knows, such as the value of a variable, may be what is denied, and then it is.
- This is no sandbox: a command that is allowed may do anything.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from loom.project.rules.shell_words import (
    MAX_DEPTH,
    SHELLS,
    WILD,
    WILD_WORD,
    ShellCommand,
    read_commands,
)

ANY = "*"  # the category of what is said of all categories
COMMANDS = frozenset({"bash", "command", "commands", "exec", "run", "sh", "shell", "terminal"})
MAX_OPERATION_CHARS = 100_000
MAX_FORMS = 1_000  # ways to write the commands of a line: one that has more is denied
MAX_OPTIONS = 32  # of a command, before its next word
MAX_WILD_CHARS = 300  # of a command with words that only the shell knows: its start is compared
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
# Words of the shell before a command.
_KEYWORDS = frozenset(
    [
        "!",
        "{",
        "}",
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "coproc",
        "time",
    ]
)
# Programs that run the command after them, and how many words of their own come before it.
_WRAPPERS = {
    **dict.fromkeys(
        [
            "builtin",
            "busybox",
            "command",
            "doas",
            "env",
            "exec",
            "ionice",
            "nice",
            "nohup",
            "parallel",
            "setsid",
            "stdbuf",
            "strace",
            "sudo",
            "time",
            "unbuffer",
            "watch",
            "xargs",
        ],
        0,
    ),
    **dict.fromkeys(["chroot", "flock", "taskset", "timeout"], 1),
}
_ADDS_WORDS = frozenset({"parallel", "xargs"})
_RUNS_NEXT = frozenset({"-exec", "-execdir", "-ok", "-okdir"})  # of `find`

# Words of categories whose operations are paths.
_PATH_WORDS = frozenset(
    ["create", "delete", "directory", "edit", "file", "files", "folder", "path", "read", "write"]
)

Patterns = Mapping[str, tuple[str, ...]]


class OperationVerdict(Struct, frozen=True):
    """Whether an operation is allowed, the pattern that decided, and why as a sentence."""

    is_allowed: bool
    pattern: str
    why: str


def name_category(category: str) -> str:
    """A category as it is compared: `File Write` and `file-write` are `file_write`."""
    return re.sub(r"[\s-]+", "_", category.strip().lower())


def place_operation(category: str, operation: str, folder: str) -> str:
    """An operation as it is named outside of a folder: a path of it is a whole one."""
    if _PATH_WORDS.isdisjoint(name_category(category).split("_")) or "://" in operation:
        return operation
    return posixpath.join(folder.replace("\\", "/"), operation.replace("\\", "/"))


def judge_operation(
    category: str, operation: str, allowed: Patterns, denied: Patterns, folder: str = ""
) -> OperationVerdict:
    """Whether an operation of a category is allowed. Paths in `folder` count from there."""
    category = name_category(category)
    if len(operation) > MAX_OPERATION_CHARS:
        return OperationVerdict(False, "", f"it has more than {MAX_OPERATION_CHARS:,} characters")
    parts = [operation]
    commands: list[ShellCommand] = []
    if category in COMMANDS:
        commands = read_commands(operation)
        parts = [command.text for command in commands] or parts
    forms = set(_spell(operation, category, folder))
    spelled = (form for command in commands for form in _spell_command(command.words))
    forms.update(islice(spelled, MAX_FORMS))
    for pattern in _patterns(denied, category):
        found = next((form for form in forms if _may_match(form, pattern)), None)
        if found is not None:
            return OperationVerdict(False, pattern, _say_denied(category, pattern, found))
    if _patterns(denied, category) and next(spelled, None) is not None:
        return OperationVerdict(False, "", "it is too long to be compared with what is denied")
    patterns = _patterns(allowed, category)
    if not patterns:
        return OperationVerdict(True, "", f"nothing is said of {category} operations like this")
    used = ""
    for part in parts:
        shown = _resolve(part, category, folder)
        used = next((each for each in patterns if _matches(shown, each)), "")
        if not used:
            return OperationVerdict(
                False, "", f"no allowed pattern of {category} matches: {', '.join(patterns)}"
            )
    return OperationVerdict(True, used, f"{category}: {used} is allowed")


def _say_denied(category: str, pattern: str, form: str) -> str:
    if _is_wild(form):
        return f"{category}: {pattern} is denied, and only the shell knows whether this is that"
    return f"{category}: {pattern} is denied"


def _is_wild(form: str) -> bool:
    return WILD in form or WILD_WORD in form


def _patterns(given: Patterns, category: str) -> tuple[str, ...]:
    own = given.get(category, ())
    return own if category == ANY else (*own, *given.get(ANY, ()))


def _matches(form: str, pattern: str) -> bool:
    bare = pattern.rstrip("/")
    return (
        fnmatchcase(form, pattern)
        or fnmatchcase(form, bare)
        or fnmatchcase(form, f"{bare}/*")
        or fnmatchcase(form, f"{bare} *")
    )


def _may_match(form: str, pattern: str) -> bool:
    """Whether a form matches a pattern, or may, if only the shell knows some of its words."""
    if not _is_wild(form):
        return _matches(form, pattern)
    start = form[:MAX_WILD_CHARS]
    if len(start) < len(form):
        start += WILD
    bare = pattern.rstrip("/")
    return any(_can_meet(start, each) for each in (pattern, f"{bare}/*", f"{bare} *"))


@lru_cache(maxsize=1024)
def _can_meet(form: str, pattern: str) -> bool:
    """Whether some text is what both the form, with its wild parts, and the pattern describe."""
    pattern = re.sub(r"\[[^\]]*\]", "?", pattern)
    reached = {0}  # places in the pattern, before the next sign of the form
    reached |= _pass_stars(reached, pattern)
    for sign in form:
        if sign == WILD:
            reached = set(range(min(reached), len(pattern) + 1))
            continue
        if sign == WILD_WORD:
            reached = {end for at in reached for end in _pass_word(at, pattern)}
            continue
        following = {at for at in reached if at < len(pattern) and pattern[at] == "*"}
        following |= {at + 1 for at in reached if at < len(pattern) and pattern[at] in (sign, "?")}
        reached = following | _pass_stars(following, pattern)
        if not reached:
            return False
    return len(pattern) in reached


def _pass_word(at: int, pattern: str) -> range:
    """The places of a pattern that a word without blanks may reach."""
    blank = pattern.find(" ", at)
    return range(at, (len(pattern) if blank < 0 else blank) + 1)


def _pass_stars(places: set[int], pattern: str) -> set[int]:
    passed: set[int] = set()
    for at in places:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            passed.add(at)
    return passed


def _spell(operation: str, category: str, folder: str) -> Iterator[str]:
    """An operation as it is written, with single blanks, and without detours."""
    yield operation
    yield " ".join(operation.split())
    yield _resolve(operation, category, folder)


def _spell_command(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """The ways to write a command that mean the same, and what it runs in turn."""
    start = next((n for n, word in enumerate(words) if not _is_before_command(word)), None)
    if start is None or depth > MAX_DEPTH:
        yield " ".join(words)
        return
    if words[start] in (WILD, WILD_WORD) or not _is_wild(words[start]):
        yield " ".join(words)
    program, rest = posixpath.basename(words[start]), words[start + 1 :]
    for at in _skip_options(rest):
        yield " ".join((program, *rest[at:]))
    if words[start] == WILD:  # it may be nothing
        yield from _spell_command(rest, depth + 1)
    for inner in _find_inner(program, rest):
        yield from _spell_command(inner, depth + 1)


def _is_before_command(word: str) -> bool:
    return word in _KEYWORDS or _ASSIGNMENT.match(word) is not None


def _skip_options(words: Sequence[str]) -> list[int]:
    """Where the words after the options of a program may begin. An option may have a value."""
    places, reached = [0], {0}
    for at in places:
        if at >= min(len(words), MAX_OPTIONS) or not words[at].startswith(("-", WILD)):
            continue
        for following in (at + 1, at + 2):
            if following <= len(words) and following not in reached:
                reached.add(following)
                places.append(following)
    return places


def _find_inner(program: str, words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The commands that a program runs in turn: `sudo`, `sh -c`, `find -exec`."""
    lines: list[str] = []
    if program in _WRAPPERS:
        for at in _skip_options(words):
            inner = words[at + _WRAPPERS[program] :]
            if inner and program in _ADDS_WORDS:
                inner = (*inner, WILD)
            yield inner
        lines = [word for word in words if " " in word]  # env -S "…"
    elif program in SHELLS:
        lines = [*words, " ".join(words)]
    elif program == "find":
        for at, word in enumerate(words):
            if word in _RUNS_NEXT:
                yield words[at + 1 :]
    for line in lines:
        for command in read_commands(line):
            yield command.words


def _resolve(part: str, category: str, folder: str) -> str:
    """A command with single blanks; a path without detours, from the folder of the project on."""
    if category in COMMANDS:
        return " ".join(part.split())
    path = part.strip().replace("\\", "/")
    if not path or "://" in path:
        return path
    path = posixpath.normpath(path)
    root = folder.replace("\\", "/").rstrip("/")
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    return path
