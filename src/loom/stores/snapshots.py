"""Which snapshots this store wrote to folders that other stores may write to as well: a purge
deletes those, and no others.

Only the engine puts rows here, when it writes files. They are in no export, and no import makes
any.
"""

import os
from collections.abc import Collection
from pathlib import Path

from loom.stores.health.purge import FOLDERS
from loom.stores.sessions import SessionRow, lock_alive
from loom.stores.sql.database import Database

SUFFIX = ".sessions"


def folder_beside(database: Database) -> Path | None:
    """Where the snapshots of a store that is a file stand: in a folder next to it, to which no
    other store writes.
    """
    is_file = database.name == "sqlite" and os.path.isabs(database.address)  # and not :memory:
    if is_file:
        return Path(os.path.realpath(database.address) + SUFFIX)
    return None


class WrittenSnapshots:
    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, row: SessionRow, folder: str, generation: str) -> None:
        """That a generation is going to be written; before it is, so that a crash leaves nothing
        unknown.
        """
        with self._database.write() as writer:
            lock_alive(writer, row.key)
            writer.all(
                "INSERT INTO snapshots (session, folder, generation) VALUES ($1, $2, $3) ON "
                "CONFLICT DO NOTHING",
                row.key,
                folder,
                generation,
            )

    def check(self, row: SessionRow) -> None:
        """Raises if the session was purged; who wrote files meanwhile takes them away again."""
        with self._database.write() as writer:
            lock_alive(writer, row.key)

    def folders(self, row: SessionRow) -> dict[str, set[str]]:
        """The generations that were written, by folder."""
        found: dict[str, set[str]] = {}
        with self._database.read() as reader:
            for folder, generation in reader.all(
                "SELECT folder, generation FROM snapshots WHERE session = $1", row.key
            ):
                found.setdefault(folder, set()).add(generation)
        return found

    def forget(self, row: SessionRow, folder: str, generations: Collection[str]) -> None:
        """That these are there no more."""
        with self._database.write() as writer:
            writer.run_many(
                "DELETE FROM snapshots WHERE session = $1 AND folder = $2 AND generation = $3",
                [(row.key, folder, generation) for generation in generations],
            )

    def unproven(self, row: SessionRow) -> list[str]:
        """Folders that older versions, or files that they imported, named for this session, and
        that are not the store's own.
        """
        own = folder_beside(self._database)
        with self._database.read() as reader:
            found = reader.all(
                "SELECT name FROM states WHERE session = $1 AND kind = $2 ORDER BY name",
                row.key,
                FOLDERS,
            )
            return [name for (name,) in found if not is_inside(name, own)]


def is_inside(name: str, folder: Path | None) -> bool:
    """Whether a path names this folder or something in it, as it is spelled."""
    return (
        folder is not None
        and (Path(name) == folder or folder in Path(name).parents)
        and ".." not in Path(name).parts
    )
