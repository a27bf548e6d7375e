"""`loom session import`: exported sessions, transcripts, and folders of them become sessions."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from os import fspath
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from loom.cli import terminal
from loom.cli.progress import Progress
from loom.cli.store.where import Where, add_scope_options
from loom.cli.terminal import clean, dim, one_line, plural, say, style
from loom.conversation.canonical import to_json
from loom.engine.importing import Importer
from loom.engine.loom import Loom
from loom.errors import ChoiceError, LoomError, UnknownFormat
from loom.stores import ImportedSession, is_export
from loom.transcripts import files
from loom.transcripts.folders import find_files
from loom.transcripts.formats import read_runs
from loom.transcripts.trees import is_branching, read_trees

SKIPPED = 1  # status if a file that was named could not be imported
MAX_SKIPPED_LINES = 10  # files that are listed for each reason
UNKNOWN = "not a transcript that Loom knows"


class SkippedFile(Struct, frozen=True):
    """A file that was not imported, and why."""

    file: str
    reason: str
    is_named: bool  # the caller named it, and not only a folder with it


@click.command(
    "import", context_settings={"ignore_unknown_options": True}
)  # -#N names a run of standard input
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--everywhere",
    is_flag=True,
    help="Put each session of an export into the tenant and project that it came from.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each session and its number of messages as JSON; for a folder, also what was "
    "skipped.",
)
@add_scope_options
def import_command(where: Where, names: tuple[str, ...], everywhere: bool, as_json: bool) -> None:
    """Import exported sessions, or any transcript, into the store.

    FILE may be a folder: then every file in it is imported, and in the folders below it. What was
    skipped is listed at the end.

    Sessions from `loom session export` keep their ids. Each run of a transcript becomes a session.
    FILE#N imports run N of a file with several runs. A single - is standard input.

    No session is imported twice. If a transcript has grown, its session gets what is new.
    """
    chosen = list(_choose(names))
    is_single = len(names) == 1 and not (chosen and chosen[0].in_folder)
    size = 0 if is_single else sum(each.size for each in chosen)
    with _Import(where, everywhere, as_json, size) as running:
        for each in chosen:
            running.bring(each, is_single)
        running.tell(is_single)


class _ChosenFile(Struct, frozen=True):
    """A file to import, as the caller named it or as it was found in a folder."""

    name: str
    path: Path
    run: int | None
    in_folder: bool

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


def _choose(names: tuple[str, ...]) -> Iterator[_ChosenFile]:
    for name in names:
        path, run = files.locate(name)
        if path.is_dir() and run is None:
            yield from (_ChosenFile(fspath(file), file, None, True) for file in find_files(path))
        else:
            yield _ChosenFile(name, path, run, False)


class _Import:
    """An import that runs. The store is opened, and made where there is none, when the first file
    turns out to be a transcript.
    """

    def __init__(self, where: Where, everywhere: bool, as_json: bool, size: int) -> None:
        self._where, self._everywhere, self._as_json = where, everywhere, as_json
        self._open = ExitStack()
        self._progress = self._open.enter_context(Progress(size))
        self._importer: tuple[Loom, Importer] | None = None
        self._messages = self._files = 0
        self._done: list[dict[str, Any]] = []
        self._known: Counter[str] = Counter()
        self._skipped: list[SkippedFile] = []

    def __enter__(self) -> "_Import":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def bring(self, file: _ChosenFile, is_single: bool) -> None:
        """Import a file. A file that was named alone raises what is wrong with it; of several, it
        is remembered.
        """
        try:
            count = 0
            for imported in self._imports(file):
                if imported is not None:
                    self._note(file, imported, is_single)
                    count += 1
            if not count:
                self._skip(file, "no message in it")
            self._files += bool(count)
        except LoomError as error:
            if is_single:
                raise
            self._skip(file, UNKNOWN if isinstance(error, UnknownFormat) else str(error))
        except OSError as error:
            if is_single:
                raise
            self._skip(file, error.strerror or str(error))
        if not is_single:
            self._progress.pass_over(file.size)
            self._progress.tell(self._messages)

    def _skip(self, file: _ChosenFile, reason: str) -> None:
        place = str(file.path)
        short = reason.removeprefix(place).lstrip(":, ").removeprefix("is ")
        self._skipped.append(SkippedFile(file.name, short, not file.in_folder))

    def _imports(self, file: _ChosenFile) -> Iterator[ImportedSession | None]:
        path = files.unpack_file(file.path)
        files.inspect(path)
        exported = is_export(_first_line(path))
        if exported and file.run is not None:
            raise ChoiceError(
                f"{path} is an export, which is imported as a whole; omit #{file.run}, which "
                "selects a run of a transcript"
            )
        if self._everywhere and not exported:
            raise ChoiceError(
                f"{path} is a transcript, which names no project; --everywhere works only with "
                "files of loom session export"
            )
        if exported:
            yield from self._import_export(path)
        else:
            yield from self._import_transcript(path, file)

    def _import_export(self, path: Path) -> list[ImportedSession]:
        loom, _ = self._open_store()
        with Progress(path.stat().st_size) as progress:
            return loom.import_lines(
                progress.reading(path), everywhere=self._everywhere, progress=progress.tell
            )

    def _import_transcript(self, path: Path, file: _ChosenFile) -> Iterator[ImportedSession | None]:
        spec = fspath(path) if file.run is None else f"{fspath(path)}#{file.run}"
        if is_branching(path):
            for tree in read_trees(spec):
                yield self._open_store()[1].import_tree(tree)
            return
        for run in read_runs(spec):
            yield self._open_store()[1].import_run(run, file.path.name, self._tell_more)

    def _tell_more(self, count: int) -> None:
        """Draw how far the import is, with this many messages of the file that is read."""
        self._progress.tell(self._messages + count)

    def _open_store(self) -> tuple[Loom, Importer]:
        if self._importer is None:
            loom = self._open.enter_context(self._where.open(make=True))
            self._importer = loom, Importer(loom)
        return self._importer

    def _note(self, file: _ChosenFile, imported: ImportedSession, is_single: bool) -> None:
        self._messages += imported.messages
        about: dict[str, Any] = {"session": imported.session, "messages": imported.messages}
        self._done.append(about if is_single else {**about, "new": imported.new, "file": file.name})
        if not imported.new and not is_single:
            self._known[file.name] += 1
        elif not self._as_json:
            title = ""
            if not self._everywhere:
                title = self._open_store()[0].session(imported.session).row.title
            self._progress.clear()
            _print_import(imported, title)

    def tell(self, is_single: bool) -> None:
        """Say what was done: a list for a file, and a summary for several."""
        if is_single:
            if self._as_json:
                say(to_json(self._done[0] if len(self._done) == 1 else self._done))
            return
        if self._as_json:
            skipped = [{"file": each.file, "reason": each.reason} for each in self._skipped]
            say(to_json({"sessions": self._done, "skipped": skipped}))
        else:
            self._progress.clear()
            self._print_summary()
        if any(each.is_named for each in self._skipped):
            raise SystemExit(SKIPPED)

    def _print_summary(self) -> None:
        known = sum(self._known.values())
        fresh = len(self._done) - known
        text = f"{plural(fresh, 'session')} imported from {plural(self._files, 'file')}"
        if known:
            text += f", {known:,} already stored"
        say(dim(text))
        if self._skipped:
            say(dim(f"{plural(len(self._skipped), 'file')} skipped:"))
        reasons = Counter(each.reason for each in self._skipped)
        for reason, count in reasons.most_common():
            self._print_skipped(reason, count)

    def _print_skipped(self, reason: str, count: int) -> None:
        skipped = [each.file for each in self._skipped if each.reason == reason]
        room = terminal.width() - 4
        say(f"  {style('–', fg='yellow')} {one_line(f'{count:,} × {reason}', room)}")
        for name in skipped[:MAX_SKIPPED_LINES]:
            say(dim(f"      {clean(name)}"))
        if count > MAX_SKIPPED_LINES:
            say(dim(f"      and {count - MAX_SKIPPED_LINES:,} more (all with --json)"))


def _print_import(imported: ImportedSession, title: str) -> None:
    """A session that was imported, on one line."""
    size = f"{plural(imported.messages, 'message'):>15}"
    known = imported.messages - imported.new
    if known:
        size += dim(f", {plural(known, 'was', 'were')} already stored")
    title = one_line(title, max(terminal.width() - 40, 20))
    say(f"{style(imported.session, fg='blue')}{size}  {title}".rstrip())


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return file.readline(1000).decode("utf-8-sig", errors="replace")
