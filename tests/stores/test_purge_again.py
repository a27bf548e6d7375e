"""A purge can be repeated until nothing is left, says what remains, deletes only files of this
store, and keeps writers out.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loom import Loom, Message, Session, Text, ToolCall
from loom.context.state.renewal import Handoff
from loom.context.state.working import Working
from loom.conversation.tree import TreeHead
from loom.engine import snapshots
from loom.engine.purging import keep_snapshot
from loom.engine.snapshots import Snapshots, new_generation
from loom.engine.workspace import Event
from loom.errors import ChoiceError, StoreError, Unfinished
from loom.stores.health.doctor import examine
from loom.stores.snapshots import folder_beside
from tests.stores.history import change, open_loom, select

SECRET = "the secret word is heddle "
HANDOFF = Handoff(
    goal=SECRET,
    sprint=1,
    progress_summary="",
    produced_artifacts=(),
    open_tasks=(),
    rho=0.5,
    error_count=0,
    depth=0,
    handoff_ts=1,
)
PLANTED = (
    "INSERT INTO states (session, kind, name, data, updated) "
    "VALUES ($1, 'snapshots', $2, 'true', 1)"
)


@pytest.fixture
def loom(address: str, tmp_path: Path) -> Iterator[Loom]:
    """A store whose snapshots are in a folder that others may write to as well."""
    with open_with(address, tmp_path / "shared") as loom:
        yield loom


def open_with(address: str, folder: Path | None, **more: Any) -> Loom:
    return Loom.open(address, snapshots=folder, now=lambda: 1_700_000_000_000, **more)


def written(loom: Loom, session: Session) -> Path:
    """A snapshot of a session, and the folder in which it is."""
    assert loom.snapshots
    session.keep_working(Working().assess(progress=SECRET))
    keep_snapshot(loom.store, session.row, loom.snapshots, session.working, HANDOFF)
    return loom.snapshots.place(session.id)


def talk(loom: Loom) -> Session:
    session = loom.new("A title.")
    session.append(SECRET, Message("assistant", (Text("yes"),)))
    return session


def stranger(folder: Path) -> dict[str, bytes]:
    """What somebody else has in a folder, laid out as a snapshot would be."""
    generation = folder / f"0001-{'a' * 16}"
    generation.mkdir(parents=True)
    for file in (
        generation / "handoff.json",
        generation / "notes.txt",
        folder / "current",
        folder / "thesis.md",
    ):
        file.write_text("mine")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ── only files that this store wrote
# ─────────────────────────────────────────────────────────────────────────────────────


def test_a_session_file_cannot_name_a_folder_that_a_purge_then_empties(
    loom: Loom, tmp_path: Path
) -> None:
    session = talk(loom)
    mine = stranger(tmp_path / "home" / "thesis")
    lines = [json.loads(line) for line in session.export()]
    lines[2]["id"] = "thesis"
    lines[2]["states"] = [
        {"kind": "snapshots", "name": str(tmp_path / "home"), "data": "true", "updated": 1}
    ]
    with open_with(":memory:", None) as victim:
        victim.import_lines(map(json.dumps, lines))
        assert select(victim.store.database, "SELECT count(*) FROM states") == [(0,)]
        victim.session("thesis").purge()
    assert contents(tmp_path / "home" / "thesis") == mine


def test_the_folders_of_a_store_are_in_no_export(loom: Loom) -> None:
    session = talk(loom)
    written(loom, session)
    change(loom.store.database, PLANTED, session.row.key, "/somewhere")
    assert "snapshots" not in "".join(session.export())
    assert "shared" not in "".join(loom.export(everywhere=True))


def test_a_folder_that_was_planted_before_is_noticed_and_left_alone(
    loom: Loom, tmp_path: Path
) -> None:
    session = talk(loom)
    mine = stranger(tmp_path / "home" / session.id)
    change(loom.store.database, PLANTED, session.row.key, str(tmp_path / "home"))
    [problem] = examine(loom.store)
    assert "cannot prove that it wrote there" in problem.what
    assert not problem.note
    events: list[Event] = []
    loom.listen(events.append)
    session.purge()
    assert events[-1].what["left_alone"] == [str(tmp_path / "home")]
    assert contents(tmp_path / "home" / session.id) == mine
    assert list(examine(loom.store)) == []


def test_what_another_store_wrote_to_the_same_folder_stays(loom: Loom, tmp_path: Path) -> None:
    session = talk(loom)
    place = written(loom, session)
    other = Snapshots(tmp_path / "shared").write(session.id, Working(), HANDOFF, ours=())
    (place / "notes").mkdir()
    session.purge()
    assert {path.name for path in place.iterdir()} == {other.name, "current", "notes"}
    assert Snapshots(tmp_path / "shared").read(session.id)


def test_only_the_files_of_a_snapshot_go_and_the_folder_if_it_is_empty(loom: Loom) -> None:
    session = talk(loom)
    place = written(loom, session)
    [generation] = [path for path in place.iterdir() if path.is_dir()]
    (generation / "mine.txt").write_text("mine")
    session.purge()
    assert contents(place) == {f"{generation.name}/mine.txt": b"mine"}


@pytest.mark.parametrize("linked", ["session", "generation", "file", "root"])
def test_links_lead_a_purge_nowhere(loom: Loom, tmp_path: Path, linked: str) -> None:
    session = talk(loom)
    place = written(loom, session)
    [generation] = [path for path in place.iterdir() if path.is_dir()]
    home = tmp_path / "home"
    mine = stranger(home)
    replaced = {
        "session": place,
        "generation": generation,
        "file": generation / "handoff.json",
        "root": tmp_path / "shared",
    }[linked]
    target = home if linked != "file" else home / "thesis.md"
    replaced.rename(tmp_path / "moved")
    replaced.symlink_to(target)
    if linked == "root":
        with pytest.raises(Unfinished, match="now leads elsewhere"):
            session.purge()
    else:
        session.purge()
    assert contents(home) == mine
    assert replaced.is_symlink()


@pytest.mark.parametrize("identity", ["..", ".", "../../etc", "/etc", "a/b", "current", "~"])
def test_a_hostile_id_leads_nowhere(tmp_path: Path, identity: str) -> None:
    mine = stranger(tmp_path / "home")
    with open_with(str(tmp_path / "home" / "loom.db"), None) as loom:
        lines = [json.loads(line) for line in talk(loom).export()]
        lines[2]["id"] = identity
    with open_with(str(tmp_path / "home" / "other.db"), None) as loom:
        loom.import_lines(map(json.dumps, lines))
        session = loom.session(identity)
        place = written(loom, session)
        assert place.parent == folder_beside(loom.store.database)
        session.purge()
        assert not place.exists()
    kept = contents(tmp_path / "home")
    assert {name: data for name, data in kept.items() if ".db" not in name} == mine


def test_what_an_older_version_wrote_beside_the_store_goes_too(tmp_path: Path) -> None:
    with open_with(str(tmp_path / "loom.db"), None) as loom:
        session = talk(loom)
        assert loom.snapshots
        folder = loom.snapshots.write(session.id, Working(), HANDOFF)
        change(loom.store.database, PLANTED, session.row.key, str(loom.snapshots.folder))
        assert list(examine(loom.store)) == []
        session.purge()
        assert not folder.parent.exists()


# ── again, until nothing is left
# ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_purge_that_meets_a_reader_says_so_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.05")
    path = tmp_path / "loom.db"
    with open_with(str(path), None) as loom, open_with(str(path), None) as other:
        session = talk(loom)
        place = written(loom, session)
        with other.store.database.read() as reader:
            assert reader.first_row("SELECT count(*) FROM nodes") == (2,)
            with pytest.raises(
                Unfinished, match="another process is reading deleted data"
            ) as caught:
                session.purge()
        assert caught.value.session == session.id
        assert len(caught.value.remains) == 1
        assert f"loom session purge {session.id}" in str(caught.value)
        assert not place.exists(), "what can go goes at once"
        [note] = examine(loom.store)
        assert note.note
        assert "did not come to its end" in note.what
        assert loom.session(session.id).purge() == (0, 0)
        assert list(examine(loom.store)) == []
        left = b"".join(file.read_bytes() for file in tmp_path.iterdir() if file.is_file())
        assert b"heddle" not in left


@pytest.mark.parametrize("step", ["shed", "remove", "purge_ended"])
def test_a_purge_that_is_killed_at_any_step_is_repeated(
    loom: Loom, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    session = talk(loom)
    place = written(loom, session)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        where = {
            "shed": loom.store.database,
            "remove": Snapshots,
            "purge_ended": loom.store.sessions,
        }[step]
        patch.setattr(where, step, killed)
        with pytest.raises(KeyboardInterrupt):
            session.purge()
    assert [problem.note for problem in examine(loom.store)] == [True]
    loom.session(session.id).purge()
    assert not place.exists()
    assert list(examine(loom.store)) == []
    assert select(loom.store.database, "SELECT count(*) FROM snapshots") == [(0,)]


def test_a_snapshot_that_cannot_be_deleted_is_named_until_it_can(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talk(loom)
    place = written(loom, session)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            with pytest.raises(
                Unfinished, match=r"Permission denied.*still contains a snapshot"
            ) as caught:
                session.purge()
        assert str(place) in caught.value.remains[0]
    session.purge()
    assert not place.exists()


def test_a_folder_that_is_not_on_this_machine_is_remembered(loom: Loom, tmp_path: Path) -> None:
    session = talk(loom)
    place = written(loom, session)
    (tmp_path / "shared").rename(tmp_path / "elsewhere")
    with pytest.raises(Unfinished, match="is not on this machine"):
        session.purge()
    (tmp_path / "elsewhere").rename(tmp_path / "shared")
    session.purge()
    assert not place.exists()


def test_a_generation_that_is_superseded_is_forgotten(loom: Loom) -> None:
    session = talk(loom)
    for _ in range(3):
        place = written(loom, session)
    [(generation,)] = select(loom.store.database, "SELECT generation FROM snapshots")
    assert (place / generation).is_dir()


# ── who writes into what was purged
# ──────────────────────────────────────────────────────────────────────────────────────


def answered(session: Session) -> object:
    said = {"role": "assistant", "content": SECRET}
    return session.absorb(
        {"id": "a", "model": "gpt-4o", "choices": [{"index": 0, "message": said}], "usage": {}}
    )


WRITES: dict[str, Callable[[Session], object]] = {
    "append": lambda session: session.append(SECRET),
    "absorb": answered,
    "prepare": lambda session: asyncio.run(session.prepare(window=3000)),
    "prepare a request": lambda session: asyncio.run(session.prepare(SECRET, window=3000)),
    "preview": lambda session: asyncio.run(session.prepare(window=3000, preview=True)),
    "working state": lambda session: session.keep_working(Working().assess(progress=SECRET)),
    "a summary": lambda session: session.set_summary(SECRET),
    "no summary": lambda session: session.set_summary(""),
    "a tool": lambda session: session.use(
        ToolCall("c", "set_working_state", '{"progress": "at 1"}')
    ),
    "fork": lambda session: session.fork(),
    "switch": lambda session: session.switch(session.path[0].id),
    "change": lambda session: session.change(title=SECRET),
    "carry on": lambda session: session.carry_on(),
    "choose": lambda session: session.choose("1:" + "a" * 32, "1:" + "b" * 32),
    "undo": lambda session: session.undo(),
    "a snapshot": lambda session: written(session._workspace, session),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("verb", WRITES)
def test_a_session_that_was_purged_meanwhile_takes_nothing_any_more(
    address: str, tmp_path: Path, verb: str
) -> None:
    with (
        open_with(address, tmp_path / "shared") as loom,
        open_with(address, tmp_path / "shared") as other,
    ):
        stale = talk(loom)
        stale.append(
            *(
                Message(role, (Text("words " * 30),))
                for _ in range(6)
                for role in ("user", "assistant")
            )
        )  # type: ignore[arg-type]
        asyncio.run(stale.prepare(window=3000))
        len(list(stale.path))
        other.session(stale.id).purge()
        before = rows(loom)
        with pytest.raises(
            (ChoiceError, StoreError), match=r"purged|too short for a summary|there is no node"
        ):
            WRITES[verb](stale)
        assert rows(loom) == before
        assert list(examine(loom.store)) == []
        assert not list((tmp_path / "shared").rglob("*.json"))


def rows(loom: Loom) -> list[object]:
    tables = (
        "trees",
        "nodes",
        "sessions",
        "views",
        "handles",
        "records",
        "settings",
        "states",
        "snapshots",
    )
    return [
        select(loom.store.database, f"SELECT * FROM {table} ORDER BY 1, 2, 3") for table in tables
    ]


def test_a_draft_of_a_purged_document_is_refused(address: str) -> None:
    with open_loom(address) as loom:
        tree = loom.new_tree("A document.", head=TreeHead(mode="buffer"))
        stale = tree.session()
        loom.session(stale.id).purge()
        with pytest.raises(ChoiceError, match="purged"):
            stale.draft(SECRET)
        with pytest.raises(ChoiceError, match="purged"):
            tree.change(description=SECRET)
        assert list(examine(loom.store)) == []


def test_a_snapshot_that_is_written_while_its_session_is_purged_does_not_stay(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talk(loom)
    written(loom, session)
    usual = Snapshots.write

    def write_slowly(self: Snapshots, *given: Any, **more: Any) -> Path:
        loom.session(session.id).purge()
        return usual(self, *given, **more)

    monkeypatch.setattr(Snapshots, "write", write_slowly)
    assert loom.snapshots
    with pytest.raises(ChoiceError, match="purged"):
        keep_snapshot(loom.store, session.row, loom.snapshots, Working(), HANDOFF)
    assert not list(loom.snapshots.folder.rglob("*.json"))


def test_a_generation_has_a_name_of_its_own_whatever_the_sprint() -> None:
    for sprint in (-1, 0, 7, 10**18):
        assert snapshots._GENERATION.fullmatch(new_generation(replace(HANDOFF, sprint=sprint)))
