"""Which operations a project allows, for an agent loop to obey.

Rules of this file:
- A denied pattern wins over an allowed one.
- If a category has allowed patterns, an operation of it must match one of them. If it has none, it
  is allowed unless a pattern denies it. The category `*` stands for all categories.
- In a pattern `*` stands for any characters, `/` and blanks included, `?` for one, `[abc]` for one
  of these. A pattern also matches what is under it: `src` matches `src/a.py`, and `git` matches
  `git push`.
- A path is compared as it is and without its detours (`a/../b`); a command is compared part by
  part: each part must be allowed, and no part may be denied.
- This is no sandbox: a command that is allowed may do anything.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

ANY = "*"  # the category of what is said of all categories
COMMANDS = frozenset({"bash", "command", "commands", "exec", "run", "sh", "shell", "terminal"})
MAX_OPERATION_CHARS = 100_000
_SIGNS = frozenset("();|&\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ROUGH_SIGNS = re.compile(r"[();|&\n`]")
_SUBSTITUTION = re.compile(r"\$\(|`|[<>]\(")

Patterns = Mapping[str, tuple[str, ...]]


class OperationVerdict(Struct, frozen=True):
    """Whether an operation is allowed, the pattern that decided, and why as a sentence."""

    is_allowed: bool
    pattern: str
    why: str


def name_category(category: str) -> str:
    """A category as it is compared: `File Write` and `file-write` are `file_write`."""
    return re.sub(r"[\s-]+", "_", category.strip().lower())


def judge_operation(
    category: str, operation: str, allowed: Patterns, denied: Patterns, folder: str = ""
) -> OperationVerdict:
    """Whether an operation of a category is allowed. Paths in `folder` count from there."""
    category = name_category(category)
    if len(operation) > MAX_OPERATION_CHARS:
        return OperationVerdict(False, "", f"it has more than {MAX_OPERATION_CHARS:,} characters")
    parts = [operation]
    if category in COMMANDS:
        parts = list(dict.fromkeys((operation, *_split_command(operation))))
    for part in parts:
        forms = set(_spell(part, category, folder))
        for pattern in _patterns(denied, category):
            if any(_matches(form, pattern) for form in forms):
                return OperationVerdict(False, pattern, f"{category}: {pattern} is denied")
    patterns = _patterns(allowed, category)
    if not patterns:
        return OperationVerdict(True, "", f"nothing is said of {category} operations like this")
    used = ""
    for part in parts[1:] or parts:
        shown = _resolve(part, category, folder)
        used = next((each for each in patterns if _matches(shown, each)), "")
        if not used:
            return OperationVerdict(
                False, "", f"no allowed pattern of {category} matches: {', '.join(patterns)}"
            )
    return OperationVerdict(True, used, f"{category}: {used} is allowed")


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


def _spell(part: str, category: str, folder: str) -> Iterator[str]:
    """The ways to write an operation that mean the same."""
    yield part
    words = part.split()
    yield " ".join(words)
    yield _resolve(part, category, folder)
    if category not in COMMANDS:
        return
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("sudo", "command", "exec", "env")):
        words = words[1:]
        yield " ".join(words)
    if words:
        yield " ".join((posixpath.basename(words[0]), *words[1:]))


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


def _split_command(command: str) -> list[str]:
    """The commands in a command line. What a shell would run inside of another counts too."""
    parts: list[str] = []
    words: list[str] = []
    try:
        lexer = shlex.shlex(command.replace("\n", " ; "), posix=False, punctuation_chars="();|&")
        lexer.whitespace_split = True
        lexer.commenters = ""
        for word in lexer:
            if word and set(word) <= _SIGNS:
                parts.append(" ".join(words))
                words = []
                continue
            words.append(word)
    except ValueError:  # a quotation that does not end
        return _split_roughly(command)
    parts.append(" ".join(words))
    found = [part for part in parts if part]
    inner = [part for part in found if not _is_quoted_plainly(part)]
    for part in inner:
        found += _split_roughly(part)
    return found


def _is_quoted_plainly(part: str) -> bool:
    """Whether nothing in a part is run by the shell before it."""
    return _SUBSTITUTION.search(re.sub(r"'[^']*'", "", part)) is None


def _split_roughly(command: str) -> list[str]:
    parts = (part.strip().strip("\"'$<> ") for part in _ROUGH_SIGNS.split(command))
    return [part for part in parts if part]
