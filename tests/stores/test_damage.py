"""A store with a flipped byte anywhere: whoever reads it is answered or told in a typed error;
nothing else comes out.
"""

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

from loom import Context, Loom, LoomError, Message, Session, Text, ToolCall, ToolResult
from loom.cli.main import cli
from loom.context.policy import policies
from loom.context.state.working import Working
from loom.conversation.agents import Agent
from loom.conversation.canonical import to_json
from loom.conversation.message import Role
from loom.conversation.tree import Preferences, TreeHead
from loom.engine.aware import memory_of, memory_text
from loom.errors import UnreadableWarning
from loom.stores.health.doctor import examine
from tests.shared import EXAMPLES
from tests.stores.history import change, open_loom

SPEAKERS: tuple[Role, ...] = ("user", "assistant")
TABLES = (
    "trees",
    "nodes",
    "sessions",
    "views",
    "handles",
    "records",
    "settings",
    "states",
    "snapshots",
    "store",
    "bases",
    "documents",
    "chunks",
    "document_chunks",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with a row of each kind."""
    path = tmp_path_factory.mktemp("whole") / "loom.db"
    with open_loom(str(path)) as loom:
        loom.keep_agent(Agent(name="ann", kind="human"))
        loom.prefer(Preferences(token_buffer=10))
        session = loom.new(model="gpt-4o", system="You weave.")
        call = ToolCall("c1", "read", '{"path": "a.py"}')
        session.append("Fix the loom.", Message("assistant", (Text("I look."), call)))
        session.append(
            Message("tool", (ToolResult("c1", (Text("lines " * 300),)),)),
            Message("assistant", (Text("done " * 200),)),
        )
        session.append(
            Message("system", (Text("Be brief."),)),
            "And now?",
            Message("assistant", (Text("more " * 100),)),
            "Go on.",
        )
        session.keep_working(Working().assess(progress="half", plan=["look", "mend"]))
        asyncio.run(session.prepare(window=900, reserve_output=100))
        said = {"role": "assistant", "content": "an answer"}
        usage = {"prompt_tokens": 300, "completion_tokens": 5}
        session.absorb(
            {
                "id": "a",
                "model": "gpt-4o",
                "choices": [{"index": 0, "message": said}],
                "usage": usage,
            }
        )
        session.append("A last word.")
        asyncio.run(session.prepare(window=900, reserve_output=100))
        session.set_summary("What was said so far.")
        fork = session.fork(title="a fork")
        fork.append("Elsewhere.", Message("assistant", (Text("yes " * 100),)), "Go on there.")
        asyncio.run(fork.prepare(window=900, reserve_output=100))
        tree = loom.new_tree("Scarf", head=TreeHead(mode="buffer", system_context="A document."))
        first = tree.say("Which yarn?")
        tree.say("Wool.", agent="ann")
        tree.edit(first.id, "Which colour?")
        remark = tree.annotate(first.id, "a remark", agent="ann")
        tree.exclude(remark.id, on=False, agent="ann")
        tree.bookmark(first.id, "here")
        tree.link(first.id, remark.id, "see")
        loom.act(tree.id, 'Well.\n→ stash "a" "text"\n→ memory', agent="ann")
        text = "# Scarf\nUse wool.\n\n## Colour\nBlue yarn is best.\n"
        loom.knowledge.add(text, source="guide", kind="markdown")
        loom.knowledge.add("Blue yarn is rare.", source="note")
    return path


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_BUSY_SECONDS", "0.3")


def drive(path: Path) -> Iterator[Exception]:
    """Read a store by every door; errors that are none of ours are told."""
    try:
        loom = open_loom(str(path), salt="later")
    except LoomError:
        return
    except Exception as error:
        yield error
        return
    with loom:
        doors: list[Callable[[], object]] = [
            lambda: list(examine(loom.store)),
            lambda: carry(loom),
            lambda: loom.sessions(),
            lambda: loom.trees(),
            lambda: loom.agents(),
            lambda: loom.preferences,
            lambda: loom.recognise([{"role": "user", "content": "Fix the loom."}]),
            lambda: loom.knowledge.list_all(),
            lambda: loom.knowledge.query("which blue yarn is best?"),
            lambda: asyncio.run(loom.new().prepare("Which blue yarn is best?", knowledge=True)),
            lambda: loom.knowledge.add("# Scarf\nUse silk.\n", source="guide", kind="markdown"),
            lambda: loom.knowledge.remove("guide"),
        ]
        for name in ids(path, "trees"):
            doors += tree_doors(loom, name)
        for name in ids(path, "sessions"):
            doors += session_doors(loom, name)
        for door in doors:
            try:
                door()
            except LoomError:
                pass
            except Exception as error:
                yield error


def carry(loom: Loom, session: str | None = None) -> None:
    """What is exported of a store, or of a session, can be imported, whatever had to be left out of
    it.
    """
    missed: list[str] = []
    lines = list(loom.export(session, everywhere=session is None, missed=missed))
    with open_loom(":memory:", salt="carried") as other:
        try:
            other.import_lines(lines, everywhere=session is None)
        except LoomError as error:
            raise AssertionError(f"{error}; missed {missed}") from error
        problems = [problem for problem in examine(other.store) if not problem.note]
        assert problems == [], (problems, missed)


def session_doors(loom: Loom, name: str) -> list[Callable[[], object]]:
    def session() -> Session:
        return loom.session(name)

    return [
        lambda: session().conversation(),
        lambda: asyncio.run(session().prepare(window=900, reserve_output=100, preview=True)),
        lambda: asyncio.run(session().prepare(window=900, reserve_output=100)),
        lambda: asyncio.run(
            session().prepare(window=1500, reserve_output=100, policy="partitions")
        ),
        lambda: [
            recall(session(), handle)
            for handle in ids(Path(loom.store.database.address), "handles")
        ],
        lambda: session().search("lines"),
        lambda: session().resume(),
        lambda: session().summary,
        lambda: memory_text(loom.store, session().row, memory_of(loom.store, session().row.key), 1),
        lambda: carry(loom, name),
        lambda: session().response(session().path[-1].id) if session().cursor else None,
        lambda: session().undo(),
        lambda: session().append("one more"),
        lambda: session().purge(),
    ]


def recall(session: Session, handle: str) -> None:
    with suppress(LoomError):
        session.recall(handle)


def tree_doors(loom: Loom, name: str) -> list[Callable[[], object]]:
    return [
        lambda: loom.export_tree(name),
        lambda: loom.store.trees.twigs(loom.tree(name).stored.row.key),
        lambda: loom.store.trees.counts(loom.tree(name).stored.row.key),
        lambda: loom.act(name, "Well.\n→ search yarn", agent="ann"),
        lambda: loom.tree(name).position(),
        lambda: loom.act(name, "Well.\n→ memory\n→ list", agent="ann"),
    ]


def ids(path: Path, table: str) -> list[str]:
    with suppress(apsw.Error, UnicodeError):
        connection = apsw.Connection(str(path))
        try:
            column = "handle" if table == "handles" else "id"
            return [str(value) for (value,) in connection.execute(f"SELECT {column} FROM {table}")]
        finally:
            connection.close()
    return []


# ── what is flipped
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def cells(path: Path) -> list[tuple[str, str, int]]:
    """Every value of every row, by table, column and row."""
    connection = apsw.Connection(str(path))
    found = []
    for table in TABLES:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for (row,) in connection.execute(f"SELECT rowid FROM {table}"):
            found += [(table, column, row) for column in columns]
    connection.close()
    return found


def flip(path: Path, cell: tuple[str, str, int], chance: random.Random) -> None:
    """Change one byte of a value, or what kind of value it is; as a disk that forgets would."""
    table, column, row = cell
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA ignore_check_constraints = ON")
    [(value,)] = connection.execute(
        f"SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = ?", (row,)
    ).fetchall()
    [(kind,)] = connection.execute(
        f"SELECT typeof({column}) FROM {table} WHERE rowid = ?", (row,)
    ).fetchall()
    changed: Any
    if kind == "text" and value:
        data = bytearray(value)
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        changed = bytes(data)
    elif kind == "integer":
        changed = chance.choice(
            [int(value) ^ 1 << chance.choice([0, 1, 3, 20, 62]), -int(value) - 1]
        )
    else:
        changed = chance.choice([b"x", 7])
    with suppress(apsw.ConstraintError, apsw.MismatchError):
        cast = "CAST(? AS TEXT)" if isinstance(changed, bytes) else "?"
        connection.execute(f"UPDATE {table} SET {column} = {cast} WHERE rowid = ?", (changed, row))
    connection.close()


def damaged(whole: Path, folder: Path, number: int) -> Path:
    path = folder / f"{number}.db"
    shutil.copy(whole, path)
    return path


CASES = 12 * EXAMPLES or 6


def test_a_flipped_byte_in_any_column_is_told_in_a_typed_error(whole: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    all_cells = cells(whole)
    columns = sorted({cell[:2] for cell in all_cells})
    chance.shuffle(columns)
    chosen = [
        chance.choice([cell for cell in all_cells if cell[:2] == column])
        for column in columns[:CASES]
    ]
    chosen += [chance.choice(all_cells) for _ in range(CASES - len(chosen))]
    wrong: dict[str, object] = {}
    for number, cell in enumerate(chosen):
        path = damaged(whole, tmp_path, number)
        flip(path, cell, random.Random(number))
        wrong |= {
            f"{number} {cell} {type(error).__name__}: {error}": place(error)
            for error in drive(path)
        }
        path.unlink()
    assert wrong == {}


def test_a_flipped_byte_in_the_file_is_told_in_a_typed_error(whole: Path, tmp_path: Path) -> None:
    chance = random.Random(8)
    data = whole.read_bytes()
    wrong: dict[str, object] = {}
    for number in range(4 * EXAMPLES or 3):
        path = tmp_path / f"{number}.db"
        at = chance.randrange(100, len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        wrong |= {
            f"{number} {at} {type(error).__name__}: {error}": place(error) for error in drive(path)
        }
        path.unlink()
    assert wrong == {}


def place(error: Exception) -> list[str]:
    """Where an error came from."""
    frames, trace = [], error.__traceback__
    while trace:
        frames.append(
            f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} "
            f"{trace.tb_frame.f_code.co_name}"
        )
        trace = trace.tb_next
    return frames[-5:]


# ── what was found
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def begin(loom: Loom, policy: str = "default") -> Session:
    """A session that has sent a request, from which something was left out."""
    session = loom.new(model="gpt-4o", system="You weave.")
    for number in range(6):
        session.append(*(Message(role, (Text(f"{number} words " * 120),)) for role in SPEAKERS))
    ask(session, policy)
    return session


def ask(session: Session, policy: str = "default") -> Context:
    return asyncio.run(session.prepare(window=1500, reserve_output=100, policy=policy))


def fill(address: str) -> None:
    """A store with a session, its answer, what it has at hand, and an agent."""
    with open_loom(address) as loom:
        session = begin(loom)
        said = {"role": "assistant", "content": "an answer"}
        usage = {"prompt_tokens": 300, "completion_tokens": 5}
        session.absorb(
            {
                "id": "a",
                "model": "gpt-4o",
                "choices": [{"index": 0, "message": said}],
                "usage": usage,
            }
        )
        session.keep_working(Working().assess(progress="half"))
        loom.keep_agent(Agent(name="ann", kind="human"))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("answered") / "loom.db"
    fill(str(path))
    return path


@pytest.fixture
def loom(answered: Path, tmp_path: Path) -> Iterator[Loom]:
    """In a file of its own."""
    path = tmp_path / "loom.db"
    shutil.copy(answered, path)
    with open_loom(str(path), salt="again") as opened:
        yield opened


@pytest.fixture
def kept(address: str) -> Iterator[Loom]:
    """The same on both databases."""
    fill(address)
    with open_loom(address, salt="again") as opened:
        yield opened


def damage_views(loom: Loom, how: str) -> None:
    if how == "not UTF-8":
        garble(loom, "views.data")
    else:
        change(loom.store.database, f"UPDATE views SET {how}")


WAYS = [
    "data = replace(data, 'words', 'swords')",
    "data = '{'",
    "digest = 'x'",
    "data = '{}'",
    "not UTF-8",
]


def test_a_damaged_view_begins_an_epoch(address: str) -> None:
    with open_loom(address) as loom:
        name = begin(loom).id
        for number, how in enumerate(WAYS):
            before = ask(loom.session(name))
            damage_views(loom, how)
            session = loom.session(name)
            after = ask(session)
            assert (before.report.epoch, after.report.epoch) == (number, number + 1)
            assert after.report.epoch_reason == "what the store has of the last request is damaged"
            assert after.openai() == before.openai()
            again = ask(session)
            assert (again.report.epoch, again.report.epoch_reason) == (number + 1, "continued")


def test_every_policy_goes_on_with_a_damaged_view_in_the_process_and_after_it(address: str) -> None:
    names: dict[str, str] = {}
    epochs: dict[str, int] = {}
    with open_loom(address) as loom:
        sessions = {policy: begin(loom, policy) for policy in policies()}
        damage_views(loom, "data = '{'")
        for policy, session in sessions.items():
            names[policy] = session.id
            session.append("A question.")
            context = ask(session, policy)
            epochs[policy] = context.report.epoch
            assert "A question." in to_json(context.openai()["messages"])
        damage_views(loom, "data = '{'")
    assert len(names) >= 5
    with open_loom(address, salt="later") as loom:
        for policy, name in names.items():
            session = loom.session(name)
            session.append("Another.")
            context = ask(session, policy)
            assert context.report.epoch == epochs[policy] + 1
            assert context.report.epoch_reason.startswith(
                "what the store has of the last request is damaged"
            )
            assert "Another." in to_json(context.openai()["messages"])
            for handle in {handle for item in context.report.items for handle in item.handles}:
                assert session.recall(handle)


DAMAGES = {
    "a message": (
        "UPDATE nodes SET body = replace(body, '3 words', '4 words') WHERE depth = 7",
        "node",
    ),
    "a message that is none": ("UPDATE nodes SET body = '{' WHERE depth = 7", "node"),
    "a head": ("UPDATE sessions SET head = '{'", "the system text of session"),
    "system messages": ("UPDATE sessions SET asides = '{'", "the system messages in session"),
    "a calibration": ("UPDATE sessions SET calibration = '{'", "the calibration of session"),
    "a status": ("UPDATE sessions SET status = 'asleep'", "the status of session"),
    "a handle": ("UPDATE handles SET data = '{'", "handle"),
    "another handle": (
        "UPDATE handles SET handle = '~aaaaaaaaaaaa' WHERE handle = (SELECT min(handle) "
        "FROM handles)",
        "handle",
    ),
    "a tree": ("UPDATE trees SET data = '{'", "what tree"),
    "a state": (
        "UPDATE states SET data = '{' WHERE kind = 'working'",
        "the working",
    ),
    "a usage": ("UPDATE records SET data = '{' WHERE kind = 'usage'", "what session"),
}
BYTES = {
    "nodes.body": "node",
    "nodes.local": "node",
    "nodes.id": "node",
    "sessions.id": "the id of session",
    "sessions.title": "the title of session",
    "sessions.agent": "the agent of session",
    "sessions.status": "the status of session",
    "sessions.origin": "the origin of session",
    "sessions.head": "the system text of session",
    "sessions.asides": "the system messages in session",
    "sessions.calibration": "the calibration of session",
    "handles.handle": "handle ~",
    "handles.kind": "handle ~",
    "handles.data": "handle ~",
    "records.data": "the usage of node",
    "records.name": "the usage of node",
    "states.data": "the working",
    "states.name": "the working",
    "settings.data": "the agent ann",
    "settings.name": "the agent ann",
    "trees.title": "the title of tree",
    "trees.data": "what tree",
}
NOT_UTF_8 = {
    "sqlite": ["UPDATE {table} SET {column} = {column} || CAST(X'FF' AS TEXT) WHERE {where}"],
    "postgres": [  # a cast that checks nothing does what a damaged disk does
        "CREATE CAST (bytea AS text) WITHOUT FUNCTION",
        "UPDATE {table} SET {column} = (convert_to({column}, 'UTF8') || '\\xff'::bytea)::text "
        "WHERE {where}",
        "DROP CAST (bytea AS text)",
    ],
}


def garble(loom: Loom, place: str) -> None:
    """Let a text in a column be no UTF-8 any more: of a node, that of the eighth message."""
    table, column = place.split(".")
    where = "depth = 7" if table == "nodes" else "1 = 1"
    with loom.store.database.write() as writer:
        for sql in NOT_UTF_8[loom.store.database.name]:
            writer.all(sql.format(table=table, column=column, where=where))


def check_export(loom: Loom, named: str, lines: Callable[..., Iterator[str]]) -> list[str]:
    """That an export names what it leaves out, and that the rest of it can be imported."""
    missed: list[str] = []
    written = list(lines(missed=missed))
    assert [what for what in missed if what.startswith(named)], missed
    with open_loom(":memory:", salt="other") as other:
        [imported] = other.import_lines(written)
        assert imported.messages == (7 if named == "node" else 13)
        assert [problem for problem in examine(other.store) if not problem.note] == []
    with pytest.raises(LoomError, match="could not be exported"):
        list(lines())
    return missed


@pytest.mark.parametrize("name", DAMAGES)
def test_an_export_names_what_is_damaged_and_its_file_imports(loom: Loom, name: str) -> None:
    sql, named = DAMAGES[name]
    session = loom.sessions()[0].id
    change(loom.store.database, sql)
    check_export(loom, named, loom.export)
    check_export(loom, named, lambda missed=None: loom.export(session, missed=missed))


@pytest.mark.parametrize("place", ["views.data", "views.hash", "views.digest"])
def test_a_damaged_view_is_not_missed_by_an_export(kept: Loom, place: str) -> None:
    name = kept.sessions()[0].id
    written = list(kept.export())
    garble(kept, place)
    assert [
        problem for problem in examine(kept.store) if f"view 0 of session {name}" in problem.place
    ]
    assert list(kept.export()) == written
    missed: list[str] = []
    assert list(kept.export(name, missed=missed))
    assert missed == []


@pytest.mark.parametrize("place", BYTES)
def test_an_export_goes_around_bytes_that_are_no_text(loom: Loom, place: str) -> None:
    session = loom.sessions()[0].id
    garble(loom, place)
    check_export(loom, BYTES[place], loom.export)
    if place != "sessions.id" and not place.startswith("settings"):
        check_export(loom, BYTES[place], lambda missed=None: loom.export(session, missed=missed))
    problems = [problem for problem in examine(loom.store) if not problem.note]
    assert [problem for problem in problems if "cannot be" in problem.what], problems


def test_an_export_goes_around_all_of_it_at_once(kept: Loom) -> None:
    session = kept.sessions()[0].id
    places = [place for place in BYTES if place not in ("sessions.id", "nodes.id")]
    for place in places:
        garble(kept, place)
    missed: list[str] = []
    written = list(kept.export(missed=missed))
    # whose node is left out
    wanted = {BYTES[place] for place in places if not place.startswith("records")}
    assert {
        named for named in wanted if not any(what.startswith(named) for what in missed)
    } == set()
    with open_loom(":memory:", salt="other") as other:
        [imported] = other.import_lines(written)
        assert (imported.session, imported.messages) == (session, 7)
        assert [problem for problem in examine(other.store) if not problem.note] == []
    found = {
        problem.place.split(" ")[0]
        for problem in examine(kept.store)
        if "cannot be read" in problem.what
    }
    assert found >= {
        "node",
        "usage",
        "response",
        "session",
        "view",
        "handle",
        "tree",
        "agent",
        "working",
    }


def test_lists_leave_out_what_is_no_text_and_name_it(kept: Loom) -> None:
    other, tree = kept.new("other"), kept.new_tree("a tree")
    kept.keep_agent(Agent(name="bob", kind="human"))
    for place in ("sessions.title", "trees.title", "settings.data"):
        garble(kept, place)
    with kept.store.database.write() as writer:
        writer.all("UPDATE sessions SET title = 'other' WHERE id = $1", other.id)
        writer.all("UPDATE trees SET title = 'a tree' WHERE id = $1", tree.id)
        writer.all(
            "UPDATE settings SET data = $1 WHERE name = 'bob'", '{"name":"bob","kind":"human"}'
        )
    with pytest.warns(UnreadableWarning, match="session s0.* cannot be read"):
        assert [row.id for row in kept.sessions()] == [other.id]
    with pytest.warns(UnreadableWarning, match="tree s0.* cannot be read"):
        assert [listed.tree.row.id for listed in kept.trees()] == [tree.id]
    with pytest.warns(UnreadableWarning, match="agent 'ann' cannot be read"):
        assert [agent.name for agent in kept.agents()] == ["bob"]


def test_the_command_exports_what_is_left_and_its_status_says_so(
    loom: Loom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_STORE", loom.store.database.address)
    name = loom.sessions()[0].id
    assert CliRunner().invoke(cli, ["session", "export", "--all"]).exit_code == 0
    garble(loom, "sessions.head")
    garble(loom, "sessions.title")
    for chosen in ("--all", "--everywhere", name):
        file = tmp_path / "out.jsonl"
        result = CliRunner().invoke(cli, ["session", "export", chosen, "-o", str(file)])
        assert result.exit_code == 1
        assert (
            f"not exported, because it is damaged: the system text of session {name}"
            in result.stderr
        )
        assert f"not exported, because it is damaged: the title of session {name}" in result.stderr
        assert "2 things could not be exported; the rest can be imported" in result.stderr
        with open_loom(":memory:", salt="other") as other:
            [imported] = other.import_lines(
                file.read_text(encoding="utf-8").splitlines(), everywhere=chosen == "--everywhere"
            )
            assert imported.messages == 13
    result = CliRunner().invoke(cli, ["doctor"])
    assert result.exit_code == 1
    assert f"session {name} in default/default" in result.output
