"""`.loom.toml`, the file in which a project says how Loom works in it.

Nobody vouches for a project's file: it is read within limits, and only from the project.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom.config.toml_files import TomlFile, parse_toml, read_toml_file
from loom.errors import ConfigError

PROJECT_FILE = ".loom.toml"
IGNORE_PROJECT_VARIABLE = "LOOM_IGNORE_PROJECT_FILE"
WAY_OUT = f"correct it, or set {IGNORE_PROJECT_VARIABLE}=1 to work without it"


class ProjectFile(Struct, frozen=True):
    """What was found for a folder: the project's file, or nothing, or what is wrong with it.

    `root` is the folder that the file is in, or the folder that was asked for.
    """

    root: Path
    file: TomlFile | None = None
    problem: ConfigError | None = None

    @property
    def path(self) -> str:
        """The path of the file, also if there is none."""
        return str(self.root / PROJECT_FILE)

    @property
    def rules(self) -> Mapping[str, Any]:
        """The table `[rules]`; empty if there is none, or if it is not a table."""
        found = self.table.get("rules", {})
        return found if isinstance(found, dict) else {}

    @property
    def table(self) -> Mapping[str, Any]:
        """All values of the file; empty if there is no file, or if it is not valid."""
        return self.file.table if self.file else {}

    def place(self, *key: str | int) -> str:
        """File and line of a key, as `FILE:LINE`; "" without a file."""
        return self.file.place(*key) if self.file else ""

    def error(self, text: str, *key: str | int) -> ConfigError:
        """An error about a key of the file. It names the file and the line."""
        if self.file is None:
            return ConfigError(text, self.root / PROJECT_FILE)
        return self.file.error(text, *key)


def read_project_file(folder: str | PathLike[str]) -> ProjectFile:
    """The file `.loom.toml` of the project that a folder belongs to.

    It is looked for in the folder and the folders above it, up to the root of the repository; if
    there is no repository, up to the home folder; elsewhere only in the folder itself. Nothing is
    raised: what is wrong with the file is its `problem`.
    """
    start = Path(os.path.realpath(folder))
    for place in _folders_to_search(start):
        path = place / PROJECT_FILE
        try:
            found = read_toml_file(path, within=place)
        except ConfigError as error:
            return ProjectFile(place, problem=error.extend(WAY_OUT))
        if found is not None:
            return ProjectFile(place, found)
    return ProjectFile(start)


def restore_project_file(found: ProjectFile, text: str) -> ProjectFile | None:
    """A project's file with the text that it had before; None if that cannot be read either."""
    try:
        return replace(found, file=parse_toml(Path(found.path), text))
    except ConfigError:
        return None


def list_folders_above(folder: Path) -> list[Path]:
    """The folders above a folder that are in the same repository, the outermost first."""
    above = [folder, *folder.parents]
    top = _find_repository(above)
    return above[above.index(top) : 0 : -1] if top else []


def _find_repository(folders: Sequence[Path]) -> Path | None:
    """The first of these folders that is the root of a repository."""
    return next((folder for folder in folders if os.path.lexists(folder / ".git")), None)


def _folders_to_search(start: Path) -> Iterator[Path]:
    above = [start, *start.parents]
    top = _find_repository(above)
    if top is None:
        home = Path(os.path.realpath(os.path.expanduser("~")))
        top = home if home in above else start
    yield from above[: above.index(top) + 1]
