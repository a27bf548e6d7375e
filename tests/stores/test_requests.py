"""What is kept of a request is one transaction."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loom import Loom
from loom.context.state.working import Working
from loom.errors import ChoiceError
from loom.stores.requests import SavedRequest
from tests.stores.history import select

pytestmark = pytest.mark.sqlite_first

FRAME_HEADER_BYTES, WAL_HEADER_BYTES = 24, 32


def count_commits(database: Path) -> int:
    """Transactions in the write-ahead log: the last frame of each says how large the database is
    after it.
    """
    log = Path(f"{database}-wal").read_bytes()
    page = int.from_bytes(log[8:12], "big")
    salt, step = log[16:24], FRAME_HEADER_BYTES + page
    frames = [
        log[at : at + FRAME_HEADER_BYTES] for at in range(WAL_HEADER_BYTES, len(log) - page, step)
    ]
    return sum(frame[8:16] == salt and frame[4:8] != bytes(4) for frame in frames)


def fill(loom: Loom) -> Any:
    session = loom.new()
    session.append("Repair the loom.", *(f"note {n}: " + "word " * 60 for n in range(40)))
    session.keep_working(Working(plan=("look", "repair")))
    return session


@pytest.mark.parametrize("policy", ["default", "partitions", "turns", "tree"])
def test_a_request_is_kept_in_one_transaction(tmp_path: Path, policy: str) -> None:
    path = tmp_path / "loom.db"
    with Loom.open(str(path)) as loom:
        session = fill(loom)
        for _ in range(3):
            before = count_commits(path)
            asyncio.run(
                session.prepare(policy=policy, model="gpt-4o", window=1500, reserve_output=100)
            )
            assert count_commits(path) == before + 1
            [(states,)] = select(
                loom.store.database,
                "SELECT count(*) FROM states WHERE kind IN ('working', 'policy')",
            )
            assert states == 2
            before = count_commits(path)
            asyncio.run(
                session.prepare(preview=True, model="gpt-4o", window=1500, reserve_output=100)
            )
            assert count_commits(path) <= before + 1
            session.append("and more " * 20)


def test_of_a_session_that_was_purged_nothing_is_kept(address: str) -> None:
    with Loom.open(address, tenant=address[-20:]) as loom:
        session = fill(loom)
        row = session.row
        session.purge()
        request = SavedRequest(
            view=None, handles={}, inherited=(), states=(("policy", {"": '"default"'}),)
        )
        with pytest.raises(ChoiceError, match="purged"):
            loom.store.requests.save(row, request, 1)
        assert (
            select(
                loom.store.database,
                "SELECT kind FROM states WHERE session = $1 AND kind = 'policy'",
                row.key,
            )
            == []
        )
