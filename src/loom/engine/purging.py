"""The files of a session: written so that this store knows them, and deleted when it is purged,
those and no others.

The folder next to a store's file is its own. Of any other folder the store remembers what it wrote
there (stores/snapshots.py).
"""

import os
from collections.abc import Callable
from pathlib import Path

from loom.context import Handoff, Working
from loom.engine.snapshots import Snapshots, new_generation
from loom.errors import ChoiceError, StoreError
from loom.stores import SessionRow, Store


def keep_snapshot(
    store: Store, row: SessionRow, snapshots: Snapshots, working: Working, handoff: Handoff
) -> None:
    """Write a snapshot of a session. Where it is purged meanwhile, nothing of it stays."""
    if snapshots.alone:
        snapshots.write(row.id, working, handoff)
        _check_alive(store, row, snapshots, None)
        return
    folder, generation = os.path.realpath(snapshots.folder), new_generation(handoff)
    store.snapshots.begin(row, folder, generation)
    known = store.snapshots.folders(row).get(folder, set())
    snapshots.write(row.id, working, handoff, generation, ours=known | {generation})
    _check_alive(store, row, snapshots, {generation})
    store.snapshots.forget(row, folder, known - snapshots.generations(row.id) - {generation})


def _check_alive(
    store: Store, row: SessionRow, snapshots: Snapshots, ours: set[str] | None
) -> None:
    try:
        store.snapshots.check(row)
    except ChoiceError:
        snapshots.remove(row.id, ours)
        raise


def what_remains(store: Store, row: SessionRow, snapshots: Snapshots | None) -> list[str]:
    """Delete what is on disk of a session that was purged; what could not be deleted yet, each with
    the reason.
    """
    remains: list[str] = []
    if snapshots and snapshots.alone:
        remains += _try_step(lambda: snapshots.remove(row.id))
    for folder, generations in store.snapshots.folders(row).items():
        left = _remove(folder, row.id, generations)
        remains += left
        if not left:
            store.snapshots.forget(row, folder, generations)
    return remains + _try_step(store.database.shed)


def _remove(folder: str, session: str, generations: set[str]) -> list[str]:
    if os.path.realpath(folder) != folder:
        return [
            f"{folder} now leads elsewhere, and snapshots that were written there are left as "
            "they are"
        ]
    place = Path(folder)
    if not place.exists() and not (place.name.startswith("@") and place.parent.exists()):
        return [
            f"{folder}, to which snapshots were written, is not on this machine; make it available"
        ]
    return _try_step(lambda: Snapshots.at(place).remove(session, generations))


def _try_step(step: Callable[[], None]) -> list[str]:
    try:
        step()
    except StoreError as error:
        return [str(error)]
    return []
