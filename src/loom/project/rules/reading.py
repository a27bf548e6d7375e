"""Read one file of rules: bounded, from within the project, without signs that hide something."""

import os
import re
import stat
import time
from collections.abc import MutableMapping
from hashlib import blake2b
from typing import Any
from unicodedata import category

from msgspec import Struct

from loom.project.decoding import decode_text

MAX_FILE_BYTES = 256 * 1024  # of a file that are read
# of files that a link or another file may lead to: nobody should be led to keys and data
DOCUMENT_ENDINGS = (".md", ".mdc", ".markdown", ".txt", ".rst", ".cursorrules")
MAX_TICKS = 16  # backquotes in a row: a longer row would need a fence that takes the whole budget
_SETTLED_SECONDS = 0.1  # a file that is younger may change again without another time of change
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_TICKS = re.compile(f"`{{{MAX_TICKS + 1},}}")
_JOINERS = "\u200c\u200d"  # they are part of words and of emoji
_HIDDEN = ("Cc", "Cf", "Cs", "Co")
_SELECTORS = ("\U000e0100", "\U000e01ef")  # signs of no width in which a text can be hidden

Signature = tuple[int, int, int, int, int]


class RulesFile(Struct, frozen=True):
    """A file of rules: its path in the project, its text, and its size on disk.

    `problem` says why it was not read; then it has no text. `flaw` says what is wrong with a text
    that was read. `signature` tells whether the file changed.
    """

    path: str
    text: str = ""
    size: int = 0
    problem: str = ""
    signature: Signature = (0, 0, 0, 0, 0)
    digest: str = ""
    flaw: str = ""

    @property
    def unread_bytes(self) -> int:
        """The bytes at the end of the file that were not read."""
        return max(self.size - MAX_FILE_BYTES, 0) if not self.problem else 0


# what was read, by the path on disk; its owner decides how long it is kept
ReadFiles = MutableMapping[str, Any]


def read_rules_file(root: str, path: str, read: ReadFiles | None = None) -> RulesFile | None:
    """A file of a project; None if there is none. `root` is the real path of the project's folder.

    What was `read` before and is unchanged is not read again.
    """
    place = os.path.join(root, path)
    try:
        found = os.stat(place)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _find_broken_link(place, path)
    except OSError as error:
        return RulesFile(path, problem=f"it cannot be read: {error.strerror or error}")
    signature = _sign(found)
    known = read.get(place) if read is not None else None
    if isinstance(known, RulesFile) and known.signature == signature and known.path == path:
        return known
    made = _read(root, place, path, signature)
    if read is not None and _is_settled(found) and not made.problem:
        read[place] = made
    return made


def sign_settled_file(place: str) -> Signature | None:
    """What tells whether a file changed; None if there is no file, or if it may just be
    changing.
    """
    try:
        found = os.stat(place)
    except (OSError, ValueError):
        return None
    return _sign(found) if _is_settled(found) else None


def _is_settled(found: os.stat_result) -> bool:
    return time.time() - max(found.st_mtime, found.st_ctime) > _SETTLED_SECONDS


def is_within(root: str, place: str) -> bool:
    """Whether a real path is in a folder, or is the folder."""
    return place == root or place.startswith(root.rstrip(os.sep) + os.sep)


def _sign(found: os.stat_result) -> Signature:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _find_broken_link(place: str, path: str) -> RulesFile | None:
    try:
        is_link = os.path.islink(place)
    except ValueError:
        return None
    if is_link:
        return RulesFile(path, problem="it is a link to a file that does not exist")
    return None


def _read(root: str, place: str, path: str, signature: Signature) -> RulesFile:
    real = os.path.realpath(place)
    if not is_within(root, real):
        return RulesFile(path, problem="it is a link to a place outside of the project")
    name = os.path.basename(real)
    if name != os.path.basename(place) and not name.lower().endswith(DOCUMENT_ENDINGS):
        return RulesFile(path, problem="it is a link to a file that is no document")
    try:
        opened = os.open(real, _OPEN_FLAGS)
    except OSError as error:
        return RulesFile(path, problem=f"it cannot be read: {error.strerror or error}")
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            return RulesFile(path, problem="it is not a regular file")
        content = _read_bytes(opened)
    except OSError as error:
        return RulesFile(path, problem=f"it cannot be read: {error.strerror or error}")
    finally:
        os.close(opened)
    decoded = decode_text(content)
    if not decoded.is_text:
        return RulesFile(path, problem=decoded.problem)
    digest = blake2b(content + b"%d" % found.st_size, digest_size=8).hexdigest()
    text = clean_text(decoded.text)
    return RulesFile(path, text, found.st_size, "", signature, digest, decoded.problem)


def _read_bytes(opened: int) -> bytes:
    parts: list[bytes] = []
    left = MAX_FILE_BYTES
    while left > 0:
        part = os.read(opened, left)
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def clean_text(text: str) -> str:
    """The text in lines, without control characters and other signs that nobody sees."""
    text = _LINE_ENDS.sub("\n", text)
    if not text.isprintable():
        hidden = {ord(sign): None for sign in set(text) if _is_hidden(sign)}
        text = text.translate(hidden)
    text = _TICKS.sub("`" * MAX_TICKS, text)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def on_one_line(text: str) -> str:
    """A name or a value as one line."""
    return " ".join(clean_text(text).split())


def _is_hidden(sign: str) -> bool:
    if sign in "\n\t" or sign in _JOINERS:
        return False
    return category(sign) in _HIDDEN or _SELECTORS[0] <= sign <= _SELECTORS[1]
