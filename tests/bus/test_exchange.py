"""Two programs exchange direct messages through a store, and one of them is killed meanwhile."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loom import Loom, StoreError
from loom.stores.health.doctor import examine
from tests.bus.test_contract import message
from tests.bus.test_contract import wait_until as wait_for
from tests.shared import ROOT
from tests.stores.conftest import Server
from tests.stores.conftest import address as address
from tests.stores.conftest import mortal as mortal
from tests.stores.conftest import server as server


def start(name: str, other: str, address: str, count: int, log: Path) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "tests.bus.programs", name, other, address]
    return subprocess.Popen([*program, str(count), str(log)], cwd=ROOT)


def lines(log: Path, word: str) -> list[str]:
    if not log.exists():
        return []
    whole = log.read_text().rpartition("\n")[0]  # the last line may be torn
    said = [line.split() for line in whole.splitlines()]
    return [each[1] for each in said if len(each) == 2 and each[0] == word]


def wait_until(is_so: Callable[[], bool], program: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 300
    while not is_so() and program.poll() is None:
        assert time.monotonic() < end, "nothing moves"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("count", "kills"), [(300, 1), pytest.param(5000, 12, marks=pytest.mark.long)]
)
def test_messages_are_exchanged_though_a_program_is_killed(
    address: str, tmp_path: Path, count: int, kills: int
) -> None:
    """`count` messages in each direction."""
    logs = {name: tmp_path / f"{name}.log" for name in ("a", "b")}
    Loom.open(address).close()
    steady = start("a", "b", address, count, logs["a"])
    for kill in range(kills):
        mortal = start("b", "a", address, count, logs["b"])
        wanted = count * (kill + 1) // (kills + 2)
        wait_until(lambda n=wanted, m=mortal: len(lines(logs["b"], "handled")) >= n, mortal)  # type: ignore[misc]
        mortal.kill()
        mortal.wait()
        with logs["b"].open("ab") as torn:
            torn.write(b"\n")
    mortal = start("b", "a", address, count, logs["b"])
    assert (mortal.wait(300), steady.wait(300)) == (0, 0)
    for name, other in (("a", "b"), ("b", "a")):
        expected = [f"{other}-{number}" for number in range(count)]
        assert list(dict.fromkeys(lines(logs[name], "handled"))) == expected, "lost or out of order"
        done = lines(logs[name], "acknowledged")
        assert len(done) == len(set(done)), "acknowledged twice"
        assert set(done) <= set(expected)
    assert lines(logs["a"], "acknowledged") == [f"b-{number}" for number in range(count)]
    with Loom.open(address) as loom:
        for name, other in (("a", "b"), ("b", "a")):
            assert [task.task_id for task in loom.bus.inbox(name)] == [f"end of {other}"]
        assert list(examine(loom.store)) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:events cannot be read")
def test_a_subscriber_goes_on_after_the_server_was_away(mortal: Server) -> None:
    heard: list[str] = []
    with Loom.open(mortal.url(mortal.new_database())) as loom:
        with loom.bus.subscribe(lambda task: heard.append(task.task_id)):
            loom.bus.publish(message("before"))
            wait_for(lambda: heard == ["before"])
            mortal.kill()
            with pytest.raises(StoreError):
                loom.bus.publish(message("lost"))
            time.sleep(0.5)
            mortal.start()
            loom.bus.publish(message("after"))
            wait_for(lambda: heard == ["before", "after"])
        assert [task.task_id for task in loom.bus.inbox("b")] == ["before", "after"]
