"""Tools for the files of a project: they read, list, search, write and edit in its folder only, and
run commands there.

On Linux a command can change files in the folder only. Elsewhere it is not held there: whoever lets
a model run one has to look at it first.
"""

import asyncio
import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from loom.errors import ChoiceError, shorten
from loom.loop import confine, find_lines
from loom.loop.functions import Function
from loom.loop.values import Permission
from loom.providers.http.presets import PRESETS

MAX_FILE_BYTES = 5_000_000  # of a file that is read; a search reads larger ones
MAX_LINES = 2_000  # of a file, in one result
MAX_FOUND = 200  # lines of a search, names of a folder
MAX_OUTPUT_BYTES = 100_000  # of a command: half of it from the start, half from the end
MAX_SECONDS = 600
SEARCH_SECONDS = 20  # of one search
DRAIN_SECONDS = 0.5  # for output that is still on its way when a command has ended
SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache"})
# What a command may write to besides the project. They keep nothing, or nothing for long.
DEVICES = ("null", "zero", "full", "tty", "ptmx", "pts", "shm")  # in /dev
ABOUT_CONFINED = "It can change files in the project and in $TMPDIR only."
_Path = Annotated[str, Meta(description="Path in the project.")]


class ProjectTools:
    """The tools for one folder. `reading` never changes anything, `writing` and `running` do."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        permit: Permission | None = None,
        confined: bool = True,
    ) -> None:
        """`permit` says which files must not be read: a search passes over them. Give it to the
        loop, too, which asks it about each call.

        Commands that are `confined` change files in the folder only, where the system can see to it
        (`is_confined`), and do not get the keys of model providers.
        """
        self.root = Path(os.path.realpath(folder))
        self._permit = permit
        self._hides_keys = confined
        self.is_confined = confined and bool(sys.executable) and confine.can_confine()
        if not self.root.is_dir():
            raise ChoiceError(f"{folder} is not a folder; give the root folder of a project")

    def functions(self) -> tuple[Function, ...]:
        """All tools."""
        return (*self.reading(), *self.writing(), *self.running())

    def reading(self) -> tuple[Function, ...]:
        return tuple(
            Function(run, operation="file_read", target=self._name_paths, repeatable=True)
            for run in (self.read_file, self.list_folder, self.search_files)
        )

    def writing(self) -> tuple[Function, ...]:
        return tuple(
            Function(run, operation="file_write", target=self._name_paths)
            for run in (self.write_file, self.edit_file)
        )

    def running(self) -> tuple[Function, ...]:
        about = inspect.cleandoc(self.run_command.__doc__ or "")
        if self.is_confined:
            about = f"{about} {ABOUT_CONFINED}"
        return (
            Function(
                self.run_command,
                about=about,
                operation="shell",
                target=lambda given: given["command"],
            ),
        )

    # Reading

    def read_file(
        self,
        path: _Path,
        first_line: Annotated[int, Meta(ge=1)] = 1,
        lines: Annotated[int, Meta(ge=1, le=MAX_LINES)] = 400,
    ) -> str:
        """Read lines of a text file."""
        found = self.read_text(path).splitlines()
        shown = found[first_line - 1 : first_line - 1 + lines]
        if not shown:
            return f"({path} has {len(found):,} lines, and none at {first_line:,})"
        last = first_line + len(shown) - 1
        if first_line == 1 and last == len(found):
            return "\n".join(shown)
        return "\n".join((*shown, f"[lines {first_line:,} to {last:,} of {len(found):,}]"))

    def list_folder(self, path: _Path = ".") -> str:
        """List the files and folders in a folder."""
        folder = self._find(path)
        if not folder.is_dir():
            raise ChoiceError(f"{path} is not a folder")
        names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in folder.iterdir())
        return _list(names, "names") or "(empty)"

    def search_files(
        self,
        pattern: Annotated[str, Meta(description="Text to find, or a regular expression.")],
        path: _Path = ".",
    ) -> str:
        """Search the lines of text files."""
        files = list[str]()
        denied = 0
        for file in self._walk(self._find(path)):
            if self._is_denied(file):
                denied += 1
            else:
                files.append(str(file))
        found = self._find_lines(pattern, files)
        if denied and len(found) <= MAX_FOUND:
            found.append(f"[the rules of the project deny {denied:,} files here]")
        return _list(found, "lines") or f"(nothing matches {shorten(pattern)!r})"

    def _find_lines(self, pattern: str, files: list[str]) -> list[str]:
        asked = {"pattern": pattern, "files": files, "root": str(self.root), "most": MAX_FOUND}
        done = subprocess.run(
            [sys.executable, "-I", "-S", find_lines.__file__, str(SEARCH_SECONDS)],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=SEARCH_SECONDS + 5,
        )
        if done.returncode:
            raise ChoiceError(
                f"the search for {shorten(pattern)!r} did not end within {SEARCH_SECONDS} seconds; "
                "search for a plain text, or in a smaller folder"
            )
        found: list[str] = json.loads(done.stdout)
        return found

    # Writing

    def write_file(self, path: _Path, text: str) -> str:
        """Write a whole file. Folders are made where there are none."""
        file = self._find_writable(path)
        if file.is_dir():
            raise ChoiceError(f"{path} is a folder")
        existed = file.exists()
        if existed and not file.is_file():
            raise ChoiceError(f"{shorten(path, 80)} is not a file")
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_whole(file, text)
        return f"{'Replaced' if existed else 'Wrote'} {path}, {len(text.splitlines()):,} lines."

    def edit_file(
        self,
        path: _Path,
        old: Annotated[str, Meta(description="Text to replace. It must be there exactly once.")],
        new: str,
    ) -> str:
        """Replace a piece of text in a file."""
        file = self._find_writable(path)
        try:
            text = self._read_bytes(path).decode()
        except UnicodeDecodeError:
            raise ChoiceError(
                f"{shorten(path, 80)} is not UTF-8, and an edit would damage it; it stays as it is"
            ) from None
        if text.count("\r\n") == text.count("\n") > 0:  # the model saw lines, not how they end
            old, new = _end_lines(old), _end_lines(new)
        count = text.count(old) if old else 0
        if count != 1:
            raise ChoiceError(
                f"the old text is in {path} {count} times; give text that is there once"
            )
        _write_whole(file, text.replace(old, new, 1))
        return f"Changed {path}."

    # Running

    async def run_command(
        self, command: str, seconds: Annotated[int, Meta(ge=1, le=MAX_SECONDS)] = 60
    ) -> str:
        """Run a command of the shell in the project, and get what it prints. What it leaves in the
        background is ended with it.
        """
        with tempfile.TemporaryDirectory(
            prefix="loom-", ignore_cleanup_errors=True
        ) as temporary_folder:
            return await self._run(command, seconds, temporary_folder)

    async def _run(self, command: str, seconds: int, temporary_folder: str) -> str:
        process = subprocess.Popen(
            self._name_program(command, temporary_folder),
            cwd=self.root,
            env=self._make_environment(temporary_folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output = _CommandOutput(process)
        try:
            has_ended = await _wait_until(lambda: process.poll() is not None, seconds)
            if has_ended:
                # Others may hold the output open: what it left in the background.
                await _wait_until(output.is_complete, DRAIN_SECONDS)
        finally:  # also if nobody waits for it any more
            _kill(process)
        ending = f"[ended after {seconds} seconds]"
        if has_ended:
            ending = f"[exit status {process.returncode}]"
        return f"{output.text.rstrip()}\n{ending}".lstrip()

    def _name_program(self, command: str, temporary_folder: str) -> list[str]:
        """The program that runs a command of the shell, and its arguments."""
        if not self.is_confined:
            return ["/bin/sh", "-c", command]
        devices = (f"/dev/{name}" for name in DEVICES)
        return [
            *(sys.executable, "-I", "-S", confine.__file__),
            *(command, str(self.root), temporary_folder, *devices),
        ]

    def _make_environment(self, temporary_folder: str) -> dict[str, str]:
        hidden = {preset.key_variable for preset in PRESETS.values()} if self._hides_keys else set()
        known = {name: value for name, value in os.environ.items() if name not in hidden}
        return {**known, "TMPDIR": temporary_folder}

    # Paths

    def _find(self, path: str, must_exist: bool = True) -> Path:
        """A path in the project, without links that lead out of it."""
        if "\0" in path:
            raise ChoiceError("a path has no character 0")
        found = Path(os.path.realpath(self.root / path))
        if not found.is_relative_to(self.root):
            raise ChoiceError(f"{shorten(path, 80)} is outside of the project, and stays untouched")
        if must_exist and not found.exists():
            raise ChoiceError(f"there is no {shorten(path, 80)} in the project")
        return found

    def _find_writable(self, path: str) -> Path:
        file = self._find(path, must_exist=False)
        # What stands in it, such as hooks, is run by git later, outside of all that holds a tool.
        if ".git" in file.relative_to(self.root).parts:
            raise ChoiceError(f"{shorten(path, 80)} belongs to git; change it with commands of git")
        return file

    def _name_paths(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """What the rules look at: a path as it is written, and where its links lead."""
        path = arguments["path"]
        written = os.path.normpath(path)
        try:
            real = os.path.relpath(self._find(path, must_exist=False), self.root)
        except ChoiceError:  # the tool says why
            return (written,)
        return (written, real)

    def _is_denied(self, file: Path) -> bool:
        if self._permit is None:
            return False
        said = self._permit("file_read", str(file.relative_to(self.root)))
        return bool(said) if isinstance(said, str) else said is not True

    def read_text(self, path: str) -> str:
        """The text of a file in the project."""
        return self._read_bytes(path).decode(errors="replace")

    def _read_bytes(self, path: str) -> bytes:
        file = self._find(path)
        if not file.is_file():
            raise ChoiceError(f"{shorten(path, 80)} is not a file")
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ChoiceError(
                f"{path} has {size:,} bytes, and at most {MAX_FILE_BYTES:,} are read; search it"
            )
        data = file.read_bytes()
        if b"\0" in data[: find_lines.HEAD_BYTES]:
            raise ChoiceError(f"{shorten(path, 80)} is not a text")
        return data

    def _walk(self, start: Path) -> Iterator[Path]:
        if start.is_file():
            yield start
            return
        for folder, folders, files in os.walk(start):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(files):
                file = Path(folder) / name
                if file.is_file() and not file.is_symlink():
                    yield file


def _list(lines: list[str], what: str) -> str:
    if len(lines) <= MAX_FOUND:
        return "\n".join(lines)
    return "\n".join((*lines[:MAX_FOUND], f"[there are more than {MAX_FOUND} {what}]"))


def _end_lines(text: str) -> str:
    """A text whose lines end as those of Windows do."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _write_whole(file: Path, text: str) -> None:
    """Write a file that appears whole, with the rights that it had."""
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=file.parent, prefix=f".{file.name}.", delete=False, newline=""
    ) as held:
        try:
            held.write(text)
            held.flush()
            os.fsync(held.fileno())
            if file.exists():
                os.chmod(held.name, file.stat().st_mode & 0o777)
            else:
                os.chmod(held.name, 0o644)
            os.replace(held.name, file)
        except BaseException:
            os.unlink(held.name)
            raise


class _CommandOutput:
    """What a command prints, without the middle of what is too much. A thread reads it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._start, self._end, self._total = b"", b"", 0
        self._thread = threading.Thread(
            target=self._read, args=(process,), name="loom-output", daemon=True
        )
        self._thread.start()

    def is_complete(self) -> bool:
        return not self._thread.is_alive()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        half = MAX_OUTPUT_BYTES // 2
        with process.stdout:
            while chunk := os.read(process.stdout.fileno(), 65536):
                self._total += len(chunk)
                if len(self._start) < half:
                    taken = half - len(self._start)
                    self._start, chunk = self._start + chunk[:taken], chunk[taken:]
                self._end = (self._end + chunk)[-half:]

    @property
    def text(self) -> str:
        left_out = self._total - len(self._start) - len(self._end)
        middle = f"\n[{left_out:,} bytes left out here]\n".encode() if left_out > 0 else b""
        return (self._start + middle + self._end).decode(errors="replace")


async def _wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Whether something has become so in time."""
    end, pause = time.monotonic() + seconds, 0.005
    while not is_so():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return True


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it began."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
