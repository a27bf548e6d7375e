"""Snapshots as files: whole or not at all, whoever crashes, writes at the same time, fills the disk
or has an odd name.
"""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.context.state.renewal import Handoff
from loom.context.state.working import Working
from loom.engine import snapshots
from loom.engine.snapshots import Snapshots, default_folder, folder_name
from loom.errors import ChoiceError, StoreError
from loom.stores.sessions import Scope
from tests.shared import ROOT, examples

STEPS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir")


def working(number: int, size: int = 0) -> Working:
    return Working().assess(
        progress=f"at {number}",
        plan=[f"step {number}"],
        scratchpad=f"{number} " + "x" * size,
    )


def handoff(number: int) -> Handoff:
    return Handoff(
        goal="Fix it.",
        sprint=number,
        progress_summary=f"at {number}",
        produced_artifacts=(f"{number}.py",),
        open_tasks=(f"step {number}",),
        rho=0.5,
        error_count=0,
        depth=0,
        handoff_ts=number,
    )


def keep(kept: Snapshots, number: int, session: str = "s") -> Path:
    return kept.write(session, working(number), handoff(number))


def read(kept: Snapshots, session: str = "s") -> int | None:
    """Which snapshot is current; all of its files tell of the same one."""
    found = kept.read(session)
    if found is None:
        return None
    state, handed = found
    number = handed.sprint
    assert (state, handed) == (working(number), handoff(number))
    return number


@pytest.fixture
def kept(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path / "loom.db.sessions")


# What is there


def test_a_snapshot_is_six_files_that_people_and_programs_can_read(kept: Snapshots) -> None:
    folder = keep(kept, 3)
    assert folder.parent == kept.folder / "s"
    assert {path.name for path in folder.iterdir()} == {
        *Working.FILE_NAMES,
        "handoff.json",
        "handoff.md",
    }
    assert (folder / "handoff.md").read_text() == handoff(3).to_system_prompt() + "\n"
    assert (folder / "plan_state.json").read_text() == '{\n  "plan": [\n    "step 3"\n  ]\n}\n'
    assert (folder.parent / "current").read_text() == folder.name
    assert read(kept) == 3


def test_the_last_snapshot_counts_and_the_one_before_is_gone(kept: Snapshots) -> None:
    assert read(kept) is None
    assert not kept.folder.exists(), "looking makes nothing"
    for number in range(4):
        folder = keep(kept, number)
        assert read(kept) == number
        assert sorted(path.name for path in kept.place("s").iterdir()) == sorted(
            [folder.name, "current"]
        )


def test_sessions_and_projects_are_kept_apart(kept: Snapshots) -> None:
    whose = [
        Scope(),
        Scope(project="shop"),
        Scope(tenant="shop"),
        Scope(tenant="shop", project="shop"),
        Scope(tenant="@shop"),
        Scope(project="../default"),
    ]
    places = [(scope, session) for scope in whose for session in ("a", "b")]
    for number, (scope, session) in enumerate(places):
        keep(Snapshots(kept.folder, scope), number, session)
    assert [read(Snapshots(kept.folder, scope), session) for scope, session in places] == list(
        range(12)
    )
    assert Snapshots(kept.folder, Scope(agent="coder")).folder == kept.folder, (
        "an id is unique among the agents of a project"
    )


def test_only_the_owner_can_read_them(kept: Snapshots) -> None:
    folder = keep(kept, 1)
    for path in (kept.folder, folder.parent, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in (*folder.iterdir(), folder.parent / "current")
    } == {0o600}


def test_half_a_character_can_be_kept(kept: Snapshots) -> None:
    state = Working().assess(scratchpad="a\udc80b 重试 🧵")
    folder = kept.write("s", state, handoff(1))
    found = kept.read("s")
    assert found
    assert found[0] == state
    (folder / "handoff.md").read_text(encoding="utf-8")


def test_what_is_removed_is_gone(kept: Snapshots) -> None:
    keep(kept, 1)
    keep(kept, 2, "other")
    kept.remove("s")
    assert read(kept) is None
    assert not kept.place("s").exists()
    assert read(kept, "other") == 2
    kept.remove("s")
    keep(kept, 3)
    assert read(kept) == 3


# Where


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/loom.db", "/data/loom.db.sessions"),
        ("sqlite:////data/loom.db", "/data/loom.db.sessions"),
        (":memory:", None),
        ("sqlite://:memory:", None),
        ("postgres://loom@localhost/loom", None),
        ("postgresql://loom@localhost/loom", None),
    ],
)
def test_snapshots_stand_beside_the_file_of_a_store(url: str, folder: str | None) -> None:
    if url.startswith("postgres"):
        pytest.importorskip("asyncpg")
    assert default_folder(url) == (Path(folder) if folder else None)


def test_who_names_no_store_has_the_folder_of_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "mine.db"))
    assert default_folder() == tmp_path / "mine.db.sessions"
    assert not (tmp_path / "mine.db").exists()


ODD = [
    "..", ".", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "a:b", "con", "CON", "nul",
    "com1", "a.", "a ", " ", "-", "%",
    "%%", "%2e", "current", "Current", "CURRENT", "ß", "SS", "ss", "é", "e\u0301", "K", "k", "İ",
    "重试", "🧵", "a\udc80b", "a\nb",
    "~", "x" * 5000, "x" * 4999 + "y", "é" * 200, "@default@default", '*?<>|"',
]  # fmt: skip


def test_odd_ids_lead_nowhere_else_and_meet_nowhere(kept: Snapshots) -> None:
    for number, name in enumerate(ODD):
        keep(kept, number, name)
    assert [read(kept, name) for name in ODD] == list(range(len(ODD)))
    assert len({kept.place(name).name.casefold() for name in ODD}) == len(ODD)
    for name in ODD:
        assert kept.place(name).resolve().parent == kept.folder.resolve()


def test_a_usual_id_is_its_own_folder_and_no_id_has_none(kept: Snapshots) -> None:
    assert folder_name("k3v7abcdefgh2345") == "k3v7abcdefgh2345"
    assert folder_name("my-session_2") == "my-session_2"
    with pytest.raises(ChoiceError, match="without an id"):
        kept.read("")


names = st.text(min_size=1, max_size=40)


@given(names, names)
@settings(max_examples=examples(100))
def test_two_ids_have_two_folders(one: str, other: str) -> None:
    first, second = folder_name(one), folder_name(other)
    assert (first == second) == (one == other)
    for name in (first, second):
        assert name.isascii()
        assert name == name.lower()
        assert 0 < len(name) <= 100
        assert not set(name) & set('/\\.:*?"<>| @')


# Crashes


class Crash(BaseException):
    """What ends a process: nothing of ours is run after it."""


@contextmanager
def failing(
    at: int, error: Callable[[], BaseException], halfway: bool = False
) -> Iterator[list[str]]:
    """Let the system's `at`-th call fail, and every later one too; the list tells which were made.
    Writes may be torn.
    """
    made: list[str] = []
    usual = {name: getattr(os, name) for name in STEPS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            made.append(name)
            if len(made) > at:
                if halfway and name == "write" and len(made) == at + 1:
                    usual["write"](arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise error()
            return usual[name](*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, wrapped(name))
        yield made


def steps(kept: Snapshots) -> list[str]:
    """What the system is asked for to replace one snapshot by another."""
    keep(kept, 0)
    with failing(10_000, Crash) as made:
        keep(kept, 1)
    return made


def test_a_crash_at_any_step_leaves_a_whole_snapshot(tmp_path: Path) -> None:
    made = steps(Snapshots(tmp_path / "counted"))
    assert made.count("replace") == 1
    assert made[-1] == "rmdir", "the old one is removed last"
    seen = set()
    for at in range(len(made)):
        for halfway in (False, True):
            kept = Snapshots(tmp_path / f"{at}{halfway}")
            keep(kept, 0)
            with failing(at, Crash, halfway), pytest.raises(Crash):
                keep(kept, 1)
            found = read(kept)
            assert found == (1 if at > made.index("replace") else 0), (at, made[at])
            seen.add(found)
            keep(kept, 2)
            assert read(kept) == 2, "and another can be written"
    assert seen == {0, 1}


def test_a_crash_at_any_step_of_the_first_leaves_none_or_all(tmp_path: Path) -> None:
    for at in range(100):
        kept = Snapshots(tmp_path / f"{at}" / "deep")
        try:
            with failing(at, Crash):
                keep(kept, 1)
        except Crash:
            assert read(kept) in (None, 1)
            keep(kept, 2)
            assert read(kept) == 2
        else:
            break
    else:
        raise AssertionError("it never came to its end")
    assert at > 20


def test_everything_is_on_disk_before_it_is_made_current(
    kept: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kept, 0)
    opened: dict[int, str] = {}
    log: list[tuple[str, str]] = []
    usual_open, usual_sync, usual_replace = os.open, os.fsync, os.replace

    def watched_open(path: Any, *rest: Any, **options: Any) -> int:
        found = usual_open(path, *rest, **options)
        opened[found] = os.path.basename(path)
        log.append(("open", os.path.basename(path)))
        return found

    def watched_replace(source: Any, target: Any) -> None:
        log.append(("replace", os.path.basename(target)))
        usual_replace(source, target)

    def watched_sync(file: int) -> None:
        log.append(("sync", opened[file]))
        usual_sync(file)

    monkeypatch.setattr(os, "open", watched_open)
    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(os, "fsync", watched_sync)
    generation = keep(kept, 1)
    at = log.index(("replace", "current"))
    synced = [name for what, name in log[:at] if what == "sync"]
    assert set(synced) == {
        *Working.FILE_NAMES,
        "handoff.json",
        "handoff.md",
        "current",
        generation.name,
        "s",
    }
    assert synced[-2:] == [generation.name, "s"], "folders when all is in them"
    assert log[at + 1 : at + 3] == [("open", "s"), ("sync", "s")]


def test_what_was_left_long_ago_is_removed_and_what_is_new_stays(kept: Snapshots) -> None:
    current = keep(kept, 1)
    place = current.parent
    dead, busy, stranger = place / f"0007-{'a' * 16}", place / f"0008-{'b' * 16}", place / "notes"
    long_ago = time.time() - 2 * snapshots.ABANDONED_SECONDS
    for folder in (dead, busy, stranger):
        folder.mkdir()
        (folder / "handoff.md").write_text("half")
    for folder in (dead, stranger):
        os.utime(folder, (long_ago, long_ago))
    mine = keep(kept, 2)
    assert {path.name for path in place.iterdir()} == {mine.name, busy.name, "notes", "current"}


WRITER = """
import sys, time
from pathlib import Path
from tests.test_snapshots import Snapshots, handoff, working
kept, first, until = Snapshots(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
print("ready", flush=True)
number, end = first, time.monotonic() + until
while time.monotonic() < end:
    kept.write("s", working(number), handoff(number))
    print(number, flush=True)
    number += 1
"""


def writer(folder: Path, first: int, seconds: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(seconds)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.long)])
def test_a_writer_that_is_killed_loses_nothing_that_it_acknowledged(
    kept: Snapshots, rounds: int
) -> None:
    for attempt in range(rounds):
        running = writer(kept.folder, attempt * 100_000, 60)
        assert running.stdout
        running.stdout.readline()
        time.sleep(0.03 + 0.017 * (attempt % 7))
        running.send_signal(signal.SIGKILL)
        told = running.communicate()[0].split()
        found = read(kept)
        if told:
            assert found is not None
            assert found in (int(told[-1]), int(told[-1]) + 1), (
                "the last one that was told of, or the one after it"
            )


# Several at once


def test_of_several_writers_the_last_wins_whole_and_readers_see_whole_ones(kept: Snapshots) -> None:
    keep(kept, 0)
    stop = threading.Event()
    problems: list[BaseException] = []
    seen: set[int | None] = set()

    def look() -> None:
        while not stop.is_set():
            try:
                seen.add(read(kept))
            except BaseException as error:
                problems.append(error)
                return

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    writers = [writer(kept.folder, 100_000 * number, 1.0) for number in (1, 2, 3)]
    told = [running.communicate() for running in writers]
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []
    assert [errors for _, errors in told] == ["", "", ""]
    last = {int(out.split()[-1]) for out, _ in told}
    assert read(kept) in last
    assert len(seen) > 3
    left = sum(path.is_dir() for path in kept.place("s").iterdir())
    assert left <= 3 + sum(len(out.split()) for out, _ in told) // 4, "what was superseded goes"


def test_threads_that_write_at_once_do_not_disturb_each_other(kept: Snapshots) -> None:
    problems: list[BaseException] = []

    def write(first: int) -> None:
        for number in range(first, first + 10):
            try:
                keep(kept, number)
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=write, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert read(kept) in {1000 * number + 9 for number in range(4)}


# What goes wrong


@pytest.mark.parametrize(
    ("number", "way_out"),
    [
        (errno.ENOSPC, "cannot grow: No space left on device; free some space and try again"),
        (errno.EACCES, "cannot be used: Permission denied; give yourself the right"),
        (errno.EROFS, "cannot be used: Read-only file system; give yourself the right"),
        (
            errno.EIO,
            "cannot be read or written: Input/output error; look at the folder and its disk",
        ),
    ],
)
def test_an_error_at_any_step_names_the_folder_and_the_way_out_and_the_last_snapshot_stands(
    tmp_path: Path, number: int, way_out: str
) -> None:
    made = steps(Snapshots(tmp_path / "counted"))
    for at in range(made.index("replace") + 1):
        kept = Snapshots(tmp_path / f"{at}")
        keep(kept, 0)
        with (
            failing(at, lambda: OSError(number, os.strerror(number)), halfway=True),
            pytest.raises(StoreError) as caught,
        ):
            keep(kept, 1)
        assert str(caught.value).startswith(f"{kept.place('s')} {way_out}")
        assert str(caught.value).endswith("; the last snapshot was not changed")
        assert read(kept) == 0


def test_a_disk_that_is_full_for_a_moment_leaves_nothing_behind(
    kept: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = keep(kept, 0)
    usual = os.write
    calls = 0

    def full(file: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(file, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="free some space"):
        keep(kept, 1)
    assert {path.name for path in kept.place("s").iterdir()} == {first.name, "current"}
    keep(kept, 2)
    assert read(kept) == 2


def test_a_disk_that_writes_little_at_a_time_writes_all(
    kept: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = os.write
    monkeypatch.setattr(os, "write", lambda file, data: usual(file, data[:7]))
    keep(kept, 5)
    assert read(kept) == 5


def test_an_old_snapshot_that_cannot_be_removed_is_no_error(
    kept: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kept, 1)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "in use")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuse)
        patch.setattr(os, "unlink", refuse)
        keep(kept, 2)
    assert read(kept) == 2


def test_a_folder_system_that_cannot_sync_folders_will_do(
    kept: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = os.fsync

    def only_files(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        usual(file)

    monkeypatch.setattr(os, "fsync", only_files)
    keep(kept, 1)
    assert read(kept) == 1


def test_a_file_where_the_folder_should_be_is_an_error(kept: Snapshots) -> None:
    kept.folder.write_text("a file")
    for call in (lambda: keep(kept, 1), lambda: read(kept), lambda: kept.remove("s")):
        with pytest.raises(
            StoreError, match=r"loom\.db\.sessions/s cannot be read or written: Not a directory"
        ):
            call()
    assert kept.folder.read_text() == "a file"


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("handoff.json", None, "handoff.json is missing"),
        ("handoff.json", "{", "handoff.json is not JSON"),
        ("handoff.json", '{"goal": 3}', "handoff.json: Expected `str`, got `int`"),
        ("plan_state.json", "", "plan_state.json is not JSON"),
        ("plan_state.json", '{"plan": 3}', "plan_state.json is not a working state"),
        ("../current", "../../../etc", "current names no generation"),
        ("../current", "\x00\xff", "current names no generation"),
        ("../current", f"0009-{'a' * 16}", "handoff.json is missing"),
    ],
)
def test_a_damaged_snapshot_is_named_and_can_be_written_anew(
    kept: Snapshots, file: str, content: str | None, what: str
) -> None:
    folder = keep(kept, 1)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(
        StoreError, match=r"the snapshot in .*sessions/s is damaged: " + what
    ) as caught:
        kept.read("s")
    assert str(caught.value).endswith("remove that folder, the session itself is in the store")
    keep(kept, 2)
    assert read(kept) == 2


def test_a_missing_state_file_is_an_empty_part_of_the_state(kept: Snapshots) -> None:
    folder = keep(kept, 1)
    (folder / "plan_state.json").unlink()
    found = kept.read("s")
    assert found == (working(1).assess(plan=[]), handoff(1))
