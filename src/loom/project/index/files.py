"""Which files a project has, and what is in one of them.

Git's own list is taken where there is one; elsewhere folders are walked as git would. Names that
are no text are left out, links to folders are never followed, and what lies outside of the project
is never read.
"""

import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loom.conversation.encodings import count_control_bytes, decode_marked
from loom.project.index.git import GitCall, git

MAX_FILE_BYTES = 2**20  # bytes of a file that is read
DIGEST_BYTES = 16  # of the digest of a text
MAX_WALKED_FILES = 200_000  # files that a walk finds before it stops: somebody may name their home
# Folders with what tools made or fetched.
# fmt: off
SKIPPED = frozenset((
    ".git", ".hg", ".svn", "_build", "deps", "node_modules", "bower_components", ".venv", "venv",
    "__pycache__", ".tox", ".nox", "dist", "build", "target", ".loom", ".elixir_ls", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".hypothesis", ".gradle", ".idea", ".vscode", ".next", ".nuxt",
    ".terraform", ".eggs", ".cache",
))
# fmt: on
# hidden names that are listed all the same
SHOWN = frozenset((".loom.toml", ".loom.md", ".formatter.exs", ".github"))
_GIT_SECONDS = 20
_LISTING = ("ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
_MAX_FOLLOWED_FOLDERS = 60  # folders above one another that are looked at one by one
_PROBE_BYTES = 8192
_MAX_MEAN_LINE_CHARS, _MAX_LINE_CHARS = 300, 20_000
_PROSE = frozenset((".md", ".markdown", ".rst", ".txt", ".adoc", ".tex", ".org"))


class FoundFile(Struct, frozen=True, gc=False):
    """A file of a project: its path below the root with /, its size in bytes, and when it was
    changed, in nanoseconds.

    `changed` is what programs may set as they like; `noticed` is when the system last saw a change
    of any kind.
    """

    path: str
    size: int
    changed: int
    noticed: int = 0


def list_files(root: Path) -> list[FoundFile]:
    """The files of a project, sorted by path. Nothing where the root is not a folder that can be
    read.
    """
    with start_listing(root) as call:
        return finish_listing(root, call)


def start_listing(root: Path) -> GitCall:
    """Let git begin to list the files of a project."""
    return GitCall(root, *_LISTING)


def finish_listing(root: Path, call: GitCall) -> list[FoundFile]:
    """The files of a project, as `list_files` gives them."""
    top = os.fspath(root)
    found = _list_by_git(top, call) or _walk_folders(top)
    return [found[path] for path in sorted(found)]


def read_text(root: Path, path: str) -> str | None:
    """The text of a file with \\n between its lines.

    None if it is binary, gone, unreadable, outside, or larger than MAX_FILE_BYTES.
    """
    try:
        held = _bytes_of(os.fspath(root), path)
    except (OSError, ValueError):  # a name with a NUL in it is a ValueError
        return None
    if held is None:
        return None
    text = _decode_text(held)
    if text is None or "\r" not in text:
        return text
    return text.replace("\r\n", "\n").replace("\r", "\n")


def digest_of(text: str | None) -> bytes:
    """What tells one text from another; nothing if there is none."""
    if text is None:
        return b""
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def is_generated(path: str, text: str) -> bool:
    """Whether a program wrote a file, or a person for a program: minified, locked, translated,
    drawn, or saying so at its head.
    """
    if _generated_name().search(path):
        return True
    if _generated_head().search(text, 0, 2000):
        return True
    if len(text) <= _MAX_MEAN_LINE_CHARS:
        return False
    lines = text.count("\n") + 1
    if len(text) / lines > _MAX_MEAN_LINE_CHARS and os.path.splitext(path)[1].lower() not in _PROSE:
        return True
    return len(text) > _MAX_LINE_CHARS and max(map(len, text.split("\n"))) > _MAX_LINE_CHARS


# Compiled when they are first used: a map of what did not change needs none.


@cache
def _generated_name() -> re.Pattern[str]:
    """The names of files that programs write."""
    return re.compile(
        r"""(?:[.-]min\.(?:js|mjs|cjs|css) | \.bundle\.js | \.(?:js|css|mjs|cjs|ts)\.map
        | _pb2(?:_grpc)?\.pyi? | \.pb(?:\.gw)?\.go
        | \.pb\.(?:h|cc) | \.(?:g|freezed)\.dart | \.(?:g|designer)\.cs | \.snap | \.lock | \.pot?
        | \.xliff? | \.svg
        | (?:^|/)(?:go\.sum | bun\.lockb
        | (?:package-lock | npm-shrinkwrap | packages\.lock)\.json | pnpm-lock\.ya?ml
        | package\.resolved | gradle\.lockfile))$""",
        re.VERBOSE | re.IGNORECASE,
    )


@cache
def _generated_head() -> re.Pattern[str]:
    """What programs say at the head of files that they write."""
    return re.compile(
        r"""^[ \t]*(?://+|\#+|/?\*+|--|;+|<!--|%+|"{3})[ \t!*-]*
        (?:code[ ]generated\b[^\n]*do[ ]not[ ]edit
        | [^\n]*@generated\b | <auto-generated | generated[ ]by[ ]the[ ]protocol[ ]buffer[ ]compiler
        | th(?:is|e)[ ](?:file|code|module)[ ](?:is|was|has[ ]been)[ ]
            (?:auto(?:matically)?[ -]?)?generated
        | auto-?generated[ ](?:file|code|by|from)\b
        | (?:warning[:!]?[ ])?do[ ]not[ ](?:edit|modify)\b[^\n]*\bgenerated)""",
        re.VERBOSE | re.IGNORECASE | re.MULTILINE,
    )


# Listing


def _list_by_git(root: str, call: GitCall) -> dict[str, FoundFile]:
    """What git keeps and what it does not ignore, where it was asked to list the root; nothing
    where there is no git or no repository, or where it knows of no file.
    """
    found: dict[str, FoundFile] = {}
    inside = os.path.realpath(root)
    folders = [""]  # the repository, then its submodules
    is_inside: dict[str, bool] = {}  # by folder
    while folders:
        folder = folders.pop()
        for path in _git_paths(root, folder, call):
            seen = _stat_listed(root, path, inside)
            if seen is None:
                continue
            above = path.rpartition("/")[0]
            is_here = is_inside.get(above)
            if is_here is None:
                is_here = _is_folder_inside(root, above, inside, is_inside)
            # git also lists what was behind a folder that is a link by now
            if not is_here:
                continue
            if stat.S_ISREG(seen.st_mode):
                found[path] = _describe_file(path, seen)
            elif stat.S_ISDIR(seen.st_mode) and os.path.lexists(f"{root}/{path}/.git"):
                folders.append(path)
    return found


def _is_folder_inside(root: str, folder: str, inside: str, known: dict[str, bool]) -> bool:
    """Whether a folder of the project is inside of it. What is no link is where the folder above it
    is, so most need not be followed from the root.
    """
    if folder not in known:
        is_plain = folder.count("/") < _MAX_FOLLOWED_FOLDERS and (
            bool(folder)
            and not os.path.islink(f"{root}/{folder}")
            and _is_folder_inside(root, folder.rpartition("/")[0], inside, known)
        )
        known[folder] = is_plain or _is_inside(os.path.realpath(f"{root}/{folder}"), inside)
    return known[folder]


def _git_paths(root: str, folder: str, call: GitCall) -> Iterator[str]:
    """The paths below the root that git lists from a folder on."""
    if folder:
        answer = git(os.path.join(root, folder), *_LISTING, seconds=_GIT_SECONDS)
    else:
        answer = call.answer(_GIT_SECONDS)
    for is_kept, name in _git_names(answer):
        if name.endswith("/"):
            continue  # a repository that git was not told of
        # else a folder of tools that nobody told git to ignore
        if is_kept or SKIPPED.isdisjoint(name.split("/")[:-1]):
            yield _join(folder, name)


def _stat_listed(root: str, path: str, inside: str) -> os.stat_result | None:
    """What is at a path; a link to a file is that file. None if it is gone, or leads outside."""
    try:
        seen = os.lstat(f"{root}/{path}")
        if stat.S_ISLNK(seen.st_mode):
            return _target(root, path, inside)
    except OSError:
        return None
    return seen


def _describe_file(path: str, seen: os.stat_result) -> FoundFile:
    return FoundFile(path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)


def _join(folder: str, name: str) -> str:
    if not folder:
        return name
    return f"{folder}/{name}"


def _git_names(answer: bytes) -> Iterator[tuple[bool, str]]:
    """The names that git lists, and whether it keeps them."""
    try:
        lines = answer.decode().split("\0")
    except UnicodeDecodeError:
        lines = [line.decode(errors="surrogateescape") for line in answer.split(b"\0")]
    for line in lines:
        if len(line) > 2 and _is_text(line):
            yield not line.startswith("?"), line[2:]


def _walk_folders(root: str) -> dict[str, FoundFile]:
    """What a walk finds that no .gitignore excludes. Repositories inside are listed by git, or not
    at all.
    """
    found: dict[str, FoundFile] = {}
    inside = os.path.realpath(root)
    folders: deque[tuple[str, tuple[_Rules, ...]]] = deque(
        [("", _rules(root, "", ".git/info/exclude"))]
    )
    while folders and len(found) < MAX_WALKED_FILES:
        folder, rules = folders.popleft()
        children = _children(f"{root}/{folder}")
        if folder and ".git" in children:
            found |= _list_repository(root, folder)
            continue
        if ".gitignore" in children:
            rules = _rules(root, folder, ".gitignore") + rules
        for name, entry in children.items():
            path = _join(folder, name)
            if _is_folder(entry):
                if _is_listed(name) and name not in SKIPPED and not _is_ignored(path + "/", rules):
                    folders.append((path, rules))
                continue
            seen = None
            if _is_listed(name):
                seen = _stat_entry(root, path, inside, entry)
            if seen and stat.S_ISREG(seen.st_mode) and not _is_ignored(path, rules):
                found[path] = _describe_file(path, seen)
    return found


def _children(folder: str) -> dict[str, os.DirEntry[str]]:
    """What is in a folder, by name; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry for entry in entries}
    except OSError:
        return {}


def _list_repository(root: str, folder: str) -> dict[str, FoundFile]:
    """What git lists in a repository inside of the root, by the path below the root."""
    top = f"{root}/{folder}"
    with GitCall(top, *_LISTING) as call:
        listed = _list_by_git(top, call).values()
    below = [replace(one, path=f"{folder}/{one.path}") for one in listed]
    return {one.path: one for one in below}


def _is_listed(name: str) -> bool:
    return (not name.startswith(".") or name in SHOWN) and _is_text(name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _stat_entry(
    root: str, path: str, inside: str, entry: os.DirEntry[str]
) -> os.stat_result | None:
    """What an entry is; a link to a file is that file. None if it is gone, or leads outside."""
    try:
        if entry.is_symlink():
            return _target(root, path, inside)
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _is_inside(place: str, folder: str) -> bool:
    return f"{place}{os.sep}".startswith(folder.rstrip(os.sep) + os.sep)


def _target(root: str, path: str, inside: str) -> os.stat_result:
    """The file that a link inside the project leads to. Raises OSError where that is a folder,
    gone, or outside of the project.
    """
    target = os.path.realpath(f"{root}/{path}", strict=True)
    seen = os.stat(target)
    if not _is_inside(target, inside) or not stat.S_ISREG(seen.st_mode):
        raise FileNotFoundError(path)
    return seen


def _is_text(name: str) -> bool:
    return name.isascii() or not _HALVES.search(name)


# bytes of a name that are no UTF-8 stand as halves of characters
_HALVES = re.compile("[\ud800-\udfff]")


# Ignoring


class _Rules(Struct, frozen=True):
    """The lines of one file like .gitignore, and the folder that they speak of, with / after it.

    `hint` matches whatever one of the lines matches: most paths match none, and asking line by line
    takes four times as long.
    """

    folder: str
    hint: re.Pattern[str]
    excludes: Callable[[str], bool | None]


def _rules(root: str, folder: str, name: str) -> tuple[_Rules, ...]:
    text = read_text(Path(root), _join(folder, name))
    if not text:
        return ()
    from pathspec import GitIgnoreSpec  # here, because only walks need it and it takes long to load

    def is_rule(line: str) -> bool:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:  # git does not heed such a line either
            return False
        return True

    spec = GitIgnoreSpec.from_lines(line for line in text.split("\n") if is_rule(line))
    forms = [_GROUP.sub("(?:", one.regex.pattern) for one in spec.patterns if one.regex]
    if not forms:
        return ()
    hint = re.compile("|".join(f"(?:{form})" for form in forms))
    return (_Rules(_join(folder, ""), hint, lambda path: spec.check_file(path).include),)


_GROUP = re.compile(r"\(\?P<\w+>")


def _is_ignored(path: str, rules: tuple[_Rules, ...]) -> bool:
    """Whether the innermost file that says something of a path excludes it."""
    for one in rules:
        below = path[len(one.folder) :]
        if one.hint.match(below) and (said := one.excludes(below)) is not None:
            return said
    return False


# Reading


def _bytes_of(root: str, path: str) -> bytes | None:
    """What a file holds. Pipes and devices are not opened for long enough to block."""
    place = f"{root}/{path}"
    if ".." in path.split("/"):
        return None
    if os.path.islink(place):
        _target(root, path, os.path.realpath(root))
    handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        seen = os.fstat(handle)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > MAX_FILE_BYTES:
            return None
        held = bytearray()
        while len(held) <= MAX_FILE_BYTES and (
            piece := os.read(handle, MAX_FILE_BYTES + 1 - len(held))
        ):
            held += piece
        if len(held) <= MAX_FILE_BYTES:
            return bytes(held)
        return None
    finally:
        os.close(handle)


def _decode_text(held: bytes) -> str | None:
    marked = decode_marked(held)
    if marked is not None:
        return marked
    if b"\0" in held[:_PROBE_BYTES]:
        return None
    try:
        return held.decode()
    except UnicodeDecodeError:
        if count_control_bytes(held) * 200 <= len(held):
            return held.decode("latin-1")
        return None
