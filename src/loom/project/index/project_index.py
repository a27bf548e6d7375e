"""The index of a project: what its files define and say, kept between runs and brought up to date
by what changed.

A file is read again when its size or its time of change is another. Where these prove nothing its
content decides: it was changed so shortly before it was read that it may have been changed again
within the same tick, the clock went back, or the system says that something about it changed.
What is seen of a file is seen before it is read, so a change that comes in between is found by the
next update.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import structs

from loom.errors import ChoiceError, StoreError
from loom.project.index.entries import Entry, digest_of, pack_entry, unpack_entry
from loom.project.index.files import FoundFile, list_files, read_text
from loom.project.index.git import git
from loom.project.index.index_file import IndexFile, Row, SeenFile, cache_folder
from loom.project.index.workers import Fresh, read_all

# nanoseconds within which two changes may have the same time on some file system
TICK_NANOSECONDS = 2 * 10**9
_BATCH_BYTES = 4 * 2**20  # of source that one transaction tells of
_RETRY_SECONDS = 30.0
_MAX_COMMITS = 300
_GIT_SECONDS = 2.0

Progress = Callable[[int, int], None]


def open_index(root: Path, cache: Path | None = None) -> "ProjectIndex":
    """The index of the project in a folder, as it was kept; `update` brings it up to date.

    It is kept in a file of its own in the folder `cache`, or in that of the user's caches; never
    inside the project.
    """
    root = Path(os.path.realpath(root))
    if not root.is_dir():
        raise ChoiceError(f"{root} is not a folder; name the folder of a project")
    try:
        folder = Path(os.path.realpath(cache or cache_folder() / "loom" / "maps"))
    except RuntimeError as error:  # nobody knows where this user is at home
        return ProjectIndex(
            root,
            notes=(
                f"the index is only in memory: {error}; name a folder for caches in XDG_CACHE_HOME",
            ),
        )
    if folder.is_relative_to(root):
        said = (
            f"the index is only in memory: {folder} is inside the project; name another folder "
            "for caches in XDG_CACHE_HOME"
        )
        return ProjectIndex(root, notes=(said,))
    name = blake2b(os.fsencode(root), digest_size=16).hexdigest()
    return ProjectIndex(root, IndexFile(folder / f"{name}.db", root))


class ProjectIndex:
    """What is known of a project's files, by path, in the order of paths.

    `entries` is never changed, but replaced by an update that finds something new; `version` then
    grows. `notes` says why the index is not kept, for a person to read; the entries are right all
    the same. Threads may share an index.
    """

    def __init__(
        self, root: Path, file: IndexFile | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        self.root = root
        self.entries: dict[str, Entry] = {}
        self.version = 0
        self.notes = notes
        self._file = file
        self._seen: dict[str, SeenFile] = {}
        self._last = 0
        self._words: dict[str, str] = {}
        # paths that the file does not know as they are here, or should no longer know
        self._unsaved: set[str] = set()
        # paths of which it does not know that they were looked at again
        self._confirmed: set[str] = set()
        self._retry_at = 0.0
        self._updating = threading.Lock()
        self._load()

    def update(self, progress: Progress | None = None) -> int:
        """Bring the entries up to date. How many files were read again because they are new or
        changed.

        `progress` is called with the number of files read so far, and of those to be read.
        """
        with self._updating:
            now = time.time_ns()
            found = list_files(self.root)
            fresh = self._fresh(found, now)
            if fresh or len(found) != len(self._seen):
                self._read(found, fresh, now, progress)
            self._last = now
            self._save_rest()
            return len(fresh)

    # What changed

    def _fresh(self, found: Iterable[FoundFile], now: int) -> list[FoundFile]:
        """The files that are not as they were: as far as one sees, and where that proves nothing,
        as far as one reads.
        """
        fresh = []
        went_back = now < self._last
        for one in found:
            seen = self._seen.get(one.path)
            if seen is None or seen.changed != one.changed or seen.size != one.size:
                fresh.append(one)
            elif (
                went_back or one.changed > seen.at - TICK_NANOSECONDS or one.noticed != seen.noticed
            ):
                if digest_of(read_text(self.root, one.path)) != seen.digest:
                    fresh.append(one)
                else:
                    self._confirm(one, seen, now)
        return fresh

    def _confirm(self, one: FoundFile, seen: SeenFile, now: int) -> None:
        """Note that a file was read again and is as it was."""
        # else it must be read again next time anyway
        is_old = seen.at and (one.changed <= now - TICK_NANOSECONDS or now < seen.at)
        if not is_old and one.noticed == seen.noticed:
            return
        at = now if is_old else seen.at
        self._seen[one.path] = structs.replace(seen, noticed=one.noticed, at=at)
        self._confirmed.add(one.path)

    def _read(
        self,
        found: Sequence[FoundFile],
        fresh: Sequence[FoundFile],
        now: int,
        progress: Progress | None,
    ) -> None:
        """Read the fresh files and forget those that are gone. Interrupted, it keeps what it has:
        the others are still fresh.
        """
        listing = {one.path: one for one in found}
        entries, seen = dict(self.entries), dict(self._seen)
        rows: list[Row] = []
        size = 0
        try:
            with closing(read_all(self.root, fresh, self._words)) as reading:
                for done, one in enumerate(reading):
                    if progress:
                        progress(done, len(fresh))
                    path = one.entry.path
                    entries[path], seen[path] = one.entry, self._seen_now(listing[path], one, now)
                    self._unsaved.add(path)
                    if self._may_save():
                        rows.append(Row(path, seen[path], one.data or pack_entry(one.entry)))
                    size += listing[path].size
                    if rows and size >= _BATCH_BYTES:
                        self._save(rows, ())
                        rows, size = [], 0
            if rows:
                self._save(rows, ())
        finally:
            self._unsaved |= entries.keys() - listing.keys()
            self.entries = {path: entries[path] for path in listing if path in entries}
            self._seen = {path: seen[path] for path in self.entries}
            self.version += 1
        if progress and fresh:
            progress(len(fresh), len(fresh))

    def _seen_now(self, found: FoundFile, fresh: Fresh, now: int) -> SeenFile:
        # What is unreadable or not there for a moment may come back as it was, so having seen it
        # proves nothing.
        is_sure = fresh.digest or os.access(
            self.root / found.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids
        )
        return SeenFile(
            found.size, found.changed, found.noticed, now if is_sure else 0, fresh.digest
        )

    # On disk

    def _load(self) -> None:
        if not self._file:
            return
        try:
            rows = self._file.load()
        except StoreError as error:
            self.notes = (str(error),)
            return
        for row in rows:
            # what cannot be read is as if it were not there
            with suppress(ValueError, IndexError, msgspec.DecodeError):
                self.entries[row.path] = unpack_entry(row.path, row.data or b"", self._words)
                self._seen[row.path] = row.seen
                self._last = max(self._last, row.seen.at)

    def _save_rest(self) -> None:
        # the second time where the first found the file damaged and began a new one
        for _ in range(2):
            if not self._may_save() or not (self._unsaved or self._confirmed):
                return
            known = sorted(path for path in self._unsaved if path in self._seen)
            rows = [Row(path, self._seen[path], pack_entry(self.entries[path])) for path in known]
            rows += [
                Row(path, self._seen[path], None)
                for path in self._confirmed - self._unsaved
                if path in self._seen
            ]
            if self._save(rows, self._unsaved - self._seen.keys()):
                return

    def _may_save(self) -> bool:
        return self._file is not None and time.monotonic() >= self._retry_at

    def _save(self, rows: Sequence[Row], gone: Iterable[str]) -> bool:
        """Write rows, and remove the paths that are gone. What cannot be written now is written
        later. False: all must be.
        """
        if not self._file or not self._may_save():
            return True
        try:
            is_written = self._file.save(rows, gone)
        except StoreError as error:
            self.notes = (str(error),)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return True
        if not is_written:
            self._unsaved |= self._seen.keys()
            return False
        self._unsaved -= {row.path for row in rows if row.data is not None}
        self._unsaved.difference_update(gone)
        self._confirmed -= {row.path for row in rows}
        self.notes = ()
        return True


# Git


def newest_commit(root: Path) -> str:
    """The commit that a project stands at; "" if there is none."""
    return (
        git(root, "rev-parse", "--verify", "--quiet", "HEAD", seconds=_GIT_SECONDS).decode().strip()
    )


def recency(root: Path) -> dict[str, int]:
    """The files that the last commits touched: 0 for those of the newest commit, 1 for those of the
    one before; no merges.
    """
    root = Path(os.path.realpath(root))
    head = newest_commit(root)
    try:
        if head:
            return dict(_recency(root, head))
        return {}
    except TimeoutError:  # another time it may be quicker
        return {}


@lru_cache(maxsize=64)
def _recency(root: Path, head: str) -> dict[str, int]:
    """Raises TimeoutError where git does not answer."""
    said = (
        "log",
        "-z",
        "--name-only",
        "--relative",
        "--no-renames",
        "--no-merges",
        f"-n{_MAX_COMMITS}",
        "--format=%x01%ct",
        head,
    )
    ranks: dict[str, int] = {}
    commit = -1
    answer = git(root, *said, seconds=_GIT_SECONDS)
    if not answer:
        raise TimeoutError
    for line in answer.split(b"\0"):
        line = line.removeprefix(b"\n")
        if line.startswith(b"\x01"):
            commit += 1
        elif line:
            ranks.setdefault(line.decode(errors="replace"), commit)
    return ranks
