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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec import structs

from loom.errors import ChoiceError, StoreError
from loom.project.index.columns import Columns, Entries, drop_strings, make_columns, merge_columns
from loom.project.index.columns_file import load_columns, save_columns
from loom.project.index.entries import Entry, ReadFile, pack_entry, unpack_entry
from loom.project.index.files import (
    DIGEST_BYTES,
    FoundFile,
    digest_of,
    finish_listing,
    read_text,
    start_listing,
)
from loom.project.index.history import list_recent
from loom.project.index.index_file import IndexFile, Row, SeenFile, cache_folder
from loom.project.index.links import LinkedColumns, make_links
from loom.project.index.strings import StringTable

# nanoseconds within which two changes may have the same time on some file system
TICK_NANOSECONDS = 2 * 10**9
_BATCH_BYTES = 4 * 2**20  # of source that one transaction tells of
# files whose columns are made at each start: of more, all are written again
MAX_UNFILED = 24
_RETRY_SECONDS = 30.0

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
    """What is known of a project's files, in the order of their paths.

    `columns` are never changed, but replaced by an update that finds something new; `version` then
    grows. `entries` are the same by path. `notes` says why the index is not kept, for a person to
    read; all is right all the same. Threads may share an index.
    """

    def __init__(
        self, root: Path, file: IndexFile | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        self.root = root
        self.version = 0
        self.notes = notes
        self._file = file
        self._held: LinkedColumns | None = None  # until they are loaded
        self._entries: Mapping[str, Entry] = {}
        self._seen: dict[str, SeenFile] = {}
        self._last = 0
        # paths that the file does not know as they are here, or should no longer know
        self._unsaved: set[str] = set()
        # paths of which it does not know that they were looked at again
        self._confirmed: set[str] = set()
        # paths that the file of columns does not have as they are here
        self._unfiled: set[str] = set()
        self._recent: tuple[str, Mapping[str, int]] = ("", {})
        self._retry_at = 0.0
        self._loading = threading.Lock()
        self._updating = threading.Lock()

    @property
    def linked_columns(self) -> LinkedColumns:
        """The columns and their links. They are loaded when somebody first asks for them."""
        with self._loading:
            if self._held is None:
                self._hold(self._load())
        assert self._held is not None
        return self._held

    @property
    def columns(self) -> Columns:
        return self.linked_columns.columns

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries if self.columns else {}

    def hold(self, columns: Columns) -> None:
        """Have these files from now on."""
        self._hold(LinkedColumns(columns))

    def _hold(self, held: LinkedColumns) -> None:
        self._held, self._entries = held, Entries(held.columns)
        self.version += 1

    def update(self, progress: Progress | None = None) -> int:
        """Bring the entries up to date. How many files were read again because they are new or
        changed.

        `progress` is called with the number of files read so far, and of those to be read.
        """
        with self._updating:
            now = time.time_ns()
            with start_listing(self.root) as call:
                known = self.columns  # loaded while git works
                found = finish_listing(self.root, call)
            fresh = self._fresh(found, now)
            if fresh or len(found) != len(known.paths):
                self._read(found, fresh, now, progress)
            self._last = now
            self._save_rest()
            self._save_columns()
            return len(fresh)

    def find_recent(self, head: str) -> Mapping[str, int]:
        """The files that the last commits before and with this one touched: 0 for those of the
        newest, 1 for those of the one before. Nothing where git does not tell.
        """
        if not head or self._recent[0] == head:
            return self._recent[1] if head else {}
        found = None
        with suppress(StoreError):
            found = self._file.load_recent(head) if self._file else None
        if found is None:
            try:
                found = list_recent(self.root, head)
            except TimeoutError:  # another time it may be quicker
                return {}
            with suppress(StoreError):
                if self._file and self._may_save():
                    self._file.save_recent(head, found)
        self._recent = (head, found)
        return found

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
        from loom.project.index.workers import read_all  # here: what is as it was needs no parser

        listing = {one.path: one for one in found}
        seen = dict(self._seen)
        pieces, batch, size = [self.columns], list[ReadFile](), 0
        try:
            with closing(read_all(self.root, fresh)) as reading:
                for done, one in enumerate(reading):
                    if progress:
                        progress(done, len(fresh))
                    path = one.entry.path
                    seen[path] = self._seen_now(listing[path], one.digest, now)
                    batch.append(one)
                    size += listing[path].size
                    if size >= _BATCH_BYTES:
                        pieces.append(self._take_batch(batch, seen))
                        batch, size = [], 0
        finally:
            if batch:
                pieces.append(self._take_batch(batch, seen))
            gone = seen.keys() - listing.keys()
            self._unsaved |= gone
            self._unfiled |= gone
            self.hold(merge_columns(pieces, listing))
            self._seen = {path: seen[path] for path in self.columns.paths}
        if progress and fresh:
            progress(len(fresh), len(fresh))

    def _take_batch(self, batch: Sequence[ReadFile], seen: Mapping[str, SeenFile]) -> Columns:
        """Save what was read, as far as that can be, and make columns of it."""
        paths = {one.entry.path for one in batch}
        self._unsaved |= paths
        self._unfiled |= paths
        if self._may_save():
            rows = [
                Row(one.entry.path, seen[one.entry.path], one.data or pack_entry(one.entry))
                for one in batch
            ]
            self._save(rows, ())
        return make_columns(batch, self.columns.strings)

    def _seen_now(self, found: FoundFile, digest: bytes, now: int) -> SeenFile:
        # What is unreadable or not there for a moment may come back as it was, so having seen it
        # proves nothing.
        is_sure = digest or os.access(
            self.root / found.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids
        )
        return SeenFile(found.size, found.changed, found.noticed, now if is_sure else 0, digest)

    # On disk

    def _load(self) -> LinkedColumns:
        """The columns as they were kept."""
        empty = LinkedColumns(make_columns((), StringTable()))
        if not self._file:
            return empty
        try:
            seen = self._file.load_seen()
            stored = load_columns(_columns_path(self._file), self._file.about) or empty
            columns = stored.columns
            stale = _find_stale(columns, seen)
            read = _unpack_entries(self._file.load_data(stale), stale)
        except StoreError as error:
            self.notes = (str(error),)
            return empty
        pieces = [columns]
        if read:
            pieces.append(make_columns(read, columns.strings))
        known = {one.entry.path for one in read}
        self._unfiled |= known
        # what cannot be read is as if it were not there
        self._seen = {path: one for path, one in seen.items() if path not in stale or path in known}
        self._last = max((one.at for one in self._seen.values()), default=0)
        merged = merge_columns(pieces, self._seen)
        return stored if merged is columns else LinkedColumns(merged)

    def _save_columns(self) -> None:
        """Write all columns where many files are not in the file as they are. It only saves time,
        so it may well fail.
        """
        if not self._file or not self._may_save() or len(self._unfiled) <= MAX_UNFILED:
            return
        columns = drop_strings(self.columns)
        linked = LinkedColumns(columns, make_links(columns))
        with suppress(OSError):
            save_columns(_columns_path(self._file), linked, self._file.about)
            self._unfiled.clear()
        self._held, self._entries = linked, Entries(columns)

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


def _columns_path(file: IndexFile) -> Path:
    return file.path.with_suffix(".columns")


def _find_stale(columns: Columns, seen: Mapping[str, SeenFile]) -> dict[str, SeenFile]:
    """The files that columns do not have as they were seen."""
    digests = [one.digest.ljust(DIGEST_BYTES, b"\0") for one in seen.values()]
    if columns.paths == tuple(seen) and columns["digest"].tobytes() == b"".join(digests):
        return {}
    numbers = columns.numbers
    return {
        path: one
        for path, one in seen.items()
        if path not in numbers or columns.digest_of(numbers[path]) != one.digest
    }


def _unpack_entries(data: Mapping[str, bytes], seen: Mapping[str, SeenFile]) -> list[ReadFile]:
    """The entries that can be read."""
    found = []
    for path, packed in data.items():
        with suppress(ValueError, IndexError, msgspec.DecodeError):
            found.append(ReadFile(unpack_entry(path, packed), seen[path].digest, packed))
    return found
