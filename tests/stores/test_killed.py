"""A writer that is killed loses nothing acknowledged; writers that meet see conflicts, and lose
nothing either.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loom import Loom, StoreError
from loom.stores.health.doctor import examine
from tests.stores.conftest import Server
from tests.stores.writers import digest

ROOT = Path(__file__).parents[2]


def program(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.writers", *map(str, arguments)], cwd=ROOT
    )


def acknowledged(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def check(url: str, log: Path) -> int:
    """Whatever was acknowledged is there, and the store is sound. How many nodes there were."""
    with Loom.open(url) as loom:
        problems = [problem for problem in examine(loom.store) if "importing" not in problem.what]
        assert problems == []
        sessions = {}
        count = 0
        for told in acknowledged(log):
            if "session" not in told:
                continue
            session = sessions.setdefault(told["session"], loom.session(told["session"]))
            if "node" in told:
                node = loom.store.sessions.node(session.row, told["node"])
                assert session.path.holds(node.seq, node.depth), (
                    "acknowledged, and not on the session's path"
                )
                count += 1
                if "answered" in told:
                    assert session.response(node.id) is not None
            else:
                assert digest(session.recall(told["handle"])) == told["text"]
    return count


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.long)])
def test_a_killed_writer_loses_nothing_acknowledged(
    address: str, tmp_path: Path, rounds: int
) -> None:
    log = tmp_path / "acknowledged"
    log.touch()
    with Loom.open(address) as loom:
        name = loom.new("killed").id
    assert program("killed", address, name, log, rounds).wait() == 0
    assert sum("begun" in told for told in acknowledged(log)) == rounds
    assert check(address, log) > rounds


@pytest.mark.parametrize("each", [4, pytest.param(60, marks=pytest.mark.long)])
def test_eight_writers_on_one_session_see_conflicts_and_lose_nothing(
    address: str, tmp_path: Path, each: int
) -> None:
    log = tmp_path / "acknowledged"
    log.touch()
    with Loom.open(address) as loom:
        name = loom.new("together").id
    writers = [program("together", address, name, log, writer, each) for writer in range(8)]
    assert [writer.wait() for writer in writers] == [0] * 8
    told = acknowledged(log)
    with Loom.open(address) as loom:
        session = loom.session(name)
        said = [node.message.text for node in session.path if node.message]
        assert Counter(said) == Counter(
            f"{writer} says {number}" for writer in range(8) for number in range(each)
        )
        for writer in range(8):
            assert [text for text in said if text.startswith(f"{writer} ")] == [
                f"{writer} says {n}" for n in range(each)
            ]
        assert {node.id for node in session.path} == {
            line["node"] for line in told if "node" in line
        }
        assert any("conflict" in line for line in told), "eight writers never met"
        assert list(examine(loom.store)) == []


def test_a_server_that_vanishes_loses_nothing_acknowledged(mortal: Server) -> None:
    url = mortal.url(mortal.new_database())
    with Loom.open(url) as loom:
        session = loom.new("on a server that dies")
        nodes = session.append("kept", {"role": "assistant", "content": "also kept"})
        mortal.kill()
        with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
            session.append("not acknowledged")
        with pytest.raises(StoreError, match="nothing that was acknowledged is lost"):
            loom.session(session.id)
        mortal.start()
        again = loom.session(session.id)
        assert [node.id for node in again.path] == [node.id for node in nodes]
        session.append("now it is")
        assert session.refresh().path[-1].message.text == "now it is"  # type: ignore[union-attr]
        assert list(examine(loom.store)) == []
