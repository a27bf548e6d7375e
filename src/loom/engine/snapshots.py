"""Snapshots: a session's working state and handoff as files, for people, other programs and a
restart.

`FOLDER/SESSION/current` names a generation, `FOLDER/SESSION/GENERATION/` holds its files. An id is
unique in its project only, so sessions of another tenant or project than `default` are in a
folder of their own.

Rules of this file:
- A generation is written whole and is on disk before one rename makes it current; it is never
  changed after that.
- Writers do not wait for each other: the last to become current counts, whole. Each removes the one
  that it found current.
- What writers that were killed left is removed by a later one, when no writer can still be at work
  on it.
- Only what this store wrote is ever deleted: files of a snapshot by their names, in generations
  that the caller knows to be its
  own, then folders that are empty. Links are not followed and not deleted.
"""

import errno
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from loom.context import Handoff, Working
from loom.conversation.canonical import from_json, to_json
from loom.errors import ChoiceError, StoreError
from loom.stores import Scope, folder_beside, open_database

HANDOFF, DOCUMENT = "handoff.json", "handoff.md"
CURRENT = "current"
NAMES = (*Working.FILE_NAMES, HANDOFF, DOCUMENT, CURRENT)  # what a generation may hold
# seconds after which nobody is still writing a generation; it takes a few hundredths of one
ABANDONED_SECONDS = 3600.0
_TRIES = 100  # generations that may go while one is read
_LONGEST = 100  # characters of a folder's name
_GENERATION = re.compile(r"[0-9]{4,20}-[0-9a-f]{16}")
_PLAIN = re.compile(r"[a-z0-9_-]")
# names that Windows keeps for itself
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])")


def default_folder(url: str | None = None) -> Path | None:
    """Where the snapshots of a store stand: next to the file; of one that is not a file, nowhere
    unless the caller says where.
    """
    database = open_database(url)
    try:
        return folder_beside(database)
    finally:
        database.close()


class Snapshots:
    """The snapshots of one scope in a folder. Nothing is made before the first is written."""

    def __init__(self, folder: Path, scope: Scope | None = None, alone: bool = True) -> None:
        scope = scope or Scope()
        own = (scope.tenant, scope.project) == ("default", "default")
        if own:
            self.folder = folder
        else:
            self.folder = folder / f"@{folder_name(scope.tenant)}@{folder_name(scope.project)}"
        self.alone = alone  # that only one store writes to this folder

    @classmethod
    def at(cls, folder: Path) -> "Snapshots":
        """Those of a folder that is one scope's own, and that other stores may write to."""
        found = cls(folder, alone=False)
        found.folder = folder
        return found

    def place(self, session: str) -> Path:
        """The folder of a session."""
        return self.folder / folder_name(session)

    def generations(self, session: str) -> set[str]:
        """The generations that are there, whoever wrote them."""
        place = self.place(session)
        try:
            return set(_generations(place))
        except OSError as error:
            raise StoreError(f"{place} {_explain_error(error)}") from error

    def write(
        self,
        session: str,
        working: Working,
        handoff: Handoff,
        generation: str = "",
        ours: Collection[str] | None = None,
    ) -> Path:
        """Keep a snapshot in place of the last one, and say in which folder its files are. Should
        it fail, the last one stands.

        `generation` is its name, else a new one. `ours` are the generations that may be removed
        when they are old; else all.
        """
        place = self.place(session)
        files = {name: _document(content) for name, content in working.to_files().items()}
        files[HANDOFF] = _document(handoff)
        files[DOCUMENT] = f"{handoff.to_system_prompt()}\n".encode(errors="replace")
        try:
            return _write(place, generation or new_generation(handoff), files, ours)
        except OSError as error:
            raise StoreError(
                f"{place} {_explain_error(error)}; the last snapshot was not changed"
            ) from error

    def read(self, session: str) -> tuple[Working, Handoff] | None:
        """The last snapshot, if there is one."""
        place = self.place(session)
        try:
            files = _read(place)
        except OSError as error:
            raise StoreError(f"{place} {_explain_error(error)}") from error
        if files is None:
            return None
        if HANDOFF not in files:
            raise _damage_error(place, f"{HANDOFF} is missing")
        contents = {}
        for name, data in files.items():
            try:
                contents[name] = from_json(data)
            except ValueError as error:
                raise _damage_error(place, f"{name} is not JSON: {error}") from None
        try:
            return Working.from_files(contents), msgspec.convert(contents[HANDOFF], Handoff)
        except ChoiceError as error:
            raise _damage_error(place, str(error)) from None
        except msgspec.ValidationError as error:
            raise _damage_error(place, f"{HANDOFF}: {error}") from None

    def remove(self, session: str, ours: Collection[str] | None = None) -> None:
        """Take a session's snapshots away, as when it is purged: these generations, or all. What
        else is there stays.
        """
        place = self.place(session)
        try:
            _remove(place, ours)
        except OSError as error:
            raise StoreError(
                f"{place} {_explain_error(error)}; it still contains a snapshot of session "
                f"{session}"
            ) from error


def new_generation(handoff: Handoff) -> str:
    """A name that no generation has."""
    return f"{min(max(handoff.sprint, 0), 10**20 - 1):04}-{os.urandom(8).hex()}"


def folder_name(name: str) -> str:
    """A name as that of a folder: other names give other folders, also where capitals do not count,
    and none leads elsewhere.
    """
    if not name:
        raise ChoiceError("a session without an id has no folder; give the id of a stored session")
    data = name.encode(errors="surrogatepass")
    quoted = "".join(chr(byte) if _PLAIN.match(chr(byte)) else f"%{byte:02x}" for byte in data)
    if _DEVICE.fullmatch(quoted):
        quoted = f"%{data[0]:02x}{quoted[1:]}"
    if len(quoted) > _LONGEST:  # %% is in no name that was quoted whole
        digest = blake2b(data, digest_size=16).hexdigest()
        quoted = f"{quoted[: _LONGEST - len(digest) - 2]}%%{digest}"
    return quoted


# On disk


def _write(place: Path, name: str, files: dict[str, bytes], ours: Collection[str] | None) -> Path:
    _make(place)
    generation = place / name
    os.mkdir(generation, 0o700)
    try:
        for file, data in files.items():
            _put(generation / file, data)
        # It stands inside: should somebody take the generation for abandoned, it can no longer
        # become current.
        _put(generation / CURRENT, name.encode())
        _sync(generation)
        _sync(place)
        before = _current(place)
        os.replace(generation / CURRENT, place / CURRENT)
    except OSError:
        with suppress(OSError):
            _remove_generation(generation)
        raise
    _sync(place)
    with suppress(OSError):  # what stays will be removed by a later one
        _tidy(place, name, before, ours)
    return generation


def _tidy(place: Path, mine: str, before: str, ours: Collection[str] | None) -> None:
    """Remove what is not current: the last generation, and what was left so long ago that its
    writer must have been killed.
    """
    found = _generations(place)
    now = found.get(mine, 0.0)  # by the clock of the disk, which may not be ours
    kept = {mine, _current(place)}
    for name, changed in found.items():
        if (
            name not in kept
            and (ours is None or name in ours)
            and (name == before or now - changed > ABANDONED_SECONDS)
        ):
            with suppress(OSError):
                _remove_generation(place / name)


def _generations(place: Path) -> dict[str, float]:
    """The generations of a session, each with when it was last changed. Links are none."""
    if place.is_symlink():
        return {}
    try:
        with os.scandir(place) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_mtime
                for entry in entries
                if _GENERATION.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return {}


def _remove(place: Path, ours: Collection[str] | None) -> None:
    going = [name for name in _generations(place) if ours is None or name in ours]
    if not place.is_symlink() and (_current(place) in going or (ours is None and _current(place))):
        _unlink(place / CURRENT)  # first: half a snapshot must not be taken for one
        _sync(place)
    for name in going:
        _remove_generation(place / name)
    if not place.is_symlink():
        _remove_if_empty(place)


def _remove_generation(folder: Path) -> None:
    for name in NAMES:
        _unlink(folder / name)
    _remove_if_empty(folder)


def _unlink(file: Path) -> None:
    """Delete a file; what is there and is none was put there by somebody else."""
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(file).st_mode):
            os.unlink(file)


def _remove_if_empty(folder: Path) -> None:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _read(place: Path) -> dict[str, bytes] | None:
    """The files of the current generation, all of the same one; a missing one is left out. None
    where there is no snapshot.
    """
    for _ in range(_TRIES):
        name = _current(place)
        if not name:
            return None
        if not _GENERATION.fullmatch(name):
            raise _damage_error(place, f"{CURRENT} names no generation")
        files = {}
        for file in (*Working.FILE_NAMES, HANDOFF):
            with suppress(FileNotFoundError):
                files[file] = (place / name / file).read_bytes()
        if len(files) == len(Working.FILE_NAMES) + 1 or _current(place) == name:
            return files
    raise StoreError(f"{place} is written so often that it cannot be read; try again")


def _current(place: Path) -> str:
    try:
        return (place / CURRENT).read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _make(place: Path) -> None:
    missing = [folder for folder in (place, *place.parents) if not folder.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another writer was quicker
            os.mkdir(folder, 0o700)
        _sync(folder.parent)


def _put(path: Path, data: bytes) -> None:
    """A new file that only its owner can read, on disk when this returns."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(opened, rest) :]
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync(folder: Path) -> None:
    """Have on disk which files a folder holds, where the system can do that."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(opened)


def _document(content: object) -> bytes:
    text = to_json(content)
    with suppress(msgspec.DecodeError):  # half of a surrogate pair cannot be laid out for people
        text = msgspec.json.format(text, indent=2)
    return f"{text}\n".encode()


def _explain_error(error: OSError) -> str:
    what = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"cannot grow: {what}; free some space and try again"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"cannot be used: {what}; give yourself the right to read and write there, or "
                "name another folder"
            )
        case _:
            return (
                f"cannot be read or written: {what}; look at the folder and its disk and try again"
            )


def _damage_error(place: Path, what: str) -> StoreError:
    return StoreError(
        f"the snapshot in {place} is damaged: {what}; remove that folder, the session itself is "
        "in the store"
    )
