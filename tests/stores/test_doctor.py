"""The doctor finds every kind of damage, says where, and finds none in a store that has only
lived.
"""

import asyncio
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom import Loom, Message, Session, StoreError, Text
from loom.conversation.agents import Agent
from loom.conversation.tree import Preferences, Reference
from loom.engine.session_state import STATE_KINDS
from loom.stores.health.doctor import examine
from loom.stores.sessions import Addition, NewSession
from loom.stores.store import Store
from loom.stores.tree.marks import Origin
from tests.stores.conftest import Server
from tests.stores.history import answer, change, live, open_loom, select


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)],
)
def test_a_store_that_has_only_lived_is_well(loom: Loom, address: str, seed: int) -> None:
    sessions = live(loom, seed, 100, purges=3)
    with (
        open_loom(address, project="whole") as whole,
        open_loom(address, project="single") as single,
    ):
        whole.import_lines(loom.export())
        for session in sessions:
            single.import_lines(session.export())
        live(single, seed, 20, purges=1)
    found = examine(loom.store)
    # Of sessions that came alone, what they name may have stayed behind.
    assert [
        problem
        for problem in found
        if not (problem.note and problem.place.endswith("default/single"))
    ] == []
    for kind in ("nodes", "records", "sessions", "views", "handles", "trees", "settings", "states"):
        assert (
            found.looked[kind]
            == select(loom.store.database, f"SELECT count(*) FROM {kind}")[0][0]
            > 0
        )


def test_a_new_store_is_well(loom: Loom) -> None:
    assert list(examine(loom.store)) == []


# ── damage
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def fall_ill(loom: Loom) -> str:
    """A session with something of every kind: seven messages, an answer, asides, a fork, a purged
    one, views, handles, remarks.
    """
    session = loom.new(model="gpt-4o", system="You weave.")
    session.append("one", Message("assistant", (Text("two " * 2000),)))
    # As older versions wrote a system message inside a conversation.
    aside = Message("system", (Text("aside"),))
    loom.store.sessions.append(
        session.row, session.path.end, [], now=loom.now(), added=Addition(asides=[(0, aside)])
    )
    session.refresh().append("three")
    asyncio.run(session.prepare(window=900, reserve_output=100))
    session.absorb(answer(random.Random(1)))
    session.append("five", Message("assistant", (Text("six"),)), "seven")
    gone = session.fork()
    gone.append("to be purged")
    gone.absorb(answer(random.Random(2)))
    gone.purge()
    tree = loom.tree(session.row.tree.id)
    tree.annotate(session.path[0].id, "a remark")
    tree.bookmark(session.path[0].id, "here")
    tree.link(session.path[0].id, session.path[1].id, "see")
    told = Reference(session.path[0].id, "context")
    loom.store.growth.mark(
        session.row,
        [(session.path[6].seq, (told,)), (session.path[5].seq, Origin("m5"))],
        loom.now(),
    )
    loom.store.states.put(session.row.key, "stash", {"a": '{"text":"words"}'}, loom.now())
    loom.keep_agent(Agent(name="ann"))
    loom.prefer(Preferences(token_buffer=7))
    assert list(examine(loom.store)) == []
    return session.id


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def ill(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Callable[[], str], str]]:
    """Gives the address of a new copy of a store with a patient, as often as it is called; and the
    patient's id.
    """
    copies = itertools.count()
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("ill")
        with open_loom(str(folder / "loom.db")) as loom:
            name = fall_ill(loom)
        yield lambda: str(shutil.copy(folder / "loom.db", folder / f"{next(copies)}.db")), name
        return
    server: Server = request.getfixturevalue("server")
    first = server.new_database()
    with open_loom(server.url(first)) as loom:
        name = fall_ill(loom)

    def copied() -> str:
        number = next(copies)
        server.run(f"CREATE DATABASE {first}_{number} TEMPLATE {first}")
        return server.url(f"{first}_{number}")

    yield copied, name
    server.run(
        *(f"DROP DATABASE {first}_{number} WITH (FORCE)" for number in range(next(copies))),
        f"DROP DATABASE {first}",
    )


@pytest.fixture
def ward(ill: tuple[Callable[[], str], str]) -> Iterator[Loom]:
    """A store with a patient in it."""
    with open_loom(ill[0](), salt="ward") as loom:
        yield loom


@pytest.fixture
def patient(ward: Loom, ill: tuple[Callable[[], str], str]) -> Session:
    return ward.session(ill[1])


# The session's own nodes, from 1; the purged ones are 8 and 9.
NODE = "(SELECT min(seq) + {} - 1 FROM nodes)"
LIVING = "(SELECT key FROM sessions WHERE status = 'active')"
DEAD = "(SELECT key FROM sessions WHERE status = 'purged')"
NOWHERE = "1:" + "a" * 32


def session(column: str, value: str) -> str:
    return f"UPDATE sessions SET {column} = {value} WHERE key = {LIVING}"


def node(number: int, column: str, value: str) -> str:
    return f"UPDATE nodes SET {column} = {value} WHERE seq = {NODE.format(number)}"


def record(kind: str, value: str) -> str:
    return f"UPDATE records SET data = {value} WHERE kind = '{kind}'"


DAMAGE: dict[str, tuple[str, str, str]] = {
    "other words": (
        node(5, "body", """replace(body, 'five', 'fife')"""),
        "node",
        "its id does not match its content",
    ),
    "no JSON": (node(5, "body", "'{'"), "node", "what was said cannot be read"),
    "no message": (node(5, "body", "'[1]'"), "node", "what was said cannot be read"),
    "another id": (node(7, "id", f"'{NOWHERE}'"), "node", "its id does not match its content"),
    "another generation": (
        node(4, "generation", "'x'"),
        "node",
        "its id does not match its content",
    ),
    "another parent": (
        node(7, "parent", NODE.format(5)),
        "node",
        "its id does not match its content",
    ),
    "no parent": (
        node(7, "parent", "999999"),
        "node",
        "the node that it comes after, 999999, is not in its tree",
    ),
    "a later parent": (node(5, "parent", NODE.format(7)), "node", "which was written later"),
    "another role": (node(6, "role", "'tool'"), "node", "stored as said by tool"),
    "another author": (node(6, "author", "'Eve'"), "node", "stored as said by assistant 'Eve'"),
    "another key": (node(6, "known", "'x'"), "node", "the key by which it is recognized"),
    "another name": (
        node(6, "local", "'zzzz'"),
        "node",
        "its short name 'zzzz' is not a beginning of its id",
    ),
    "too short a name": (node(6, "local", "substr(local, 1, 3)"), "node", "its short name"),
    "another depth": (node(6, "depth", "9"), "node", "its depth is 9, and should be 5"),
    "a root that is deep": (node(1, "depth", "1"), "node", "its depth is 1, and should be 0"),
    "another jump": (node(6, "jump", NODE.format(1)), "node", "its jump is"),
    "no jump": (node(6, "jump", "NULL"), "node", "its jump is None"),
    "a root's jump": (node(1, "jump", "0"), "node", "its jump is 0"),
    "another goal": (node(6, "goal", NODE.format(3)), "node", "its goal is"),
    "another request": (node(6, "request", NODE.format(1)), "node", "its request is"),
    "another total": (node(6, "total", "total + 1"), "node", "its total is"),
    "other tokens": (node(6, "tokens", "tokens + 1"), "node", "its total is"),
    "no tree": (node(6, "tree", "99"), "node", "its tree, 99, is not there"),
    "no writer": (node(6, "session", "99"), "node", "the session that wrote it is not there"),
    "words of a purged node": (
        node(8, "author", "'Eve'"),
        "node",
        "it was purged, but a part of it is still there",
    ),
    "a record of a purged node": (
        f"UPDATE records SET data = 'x' WHERE node = {NODE.format(9)} AND kind = 'response'",
        "response of node",
        "its node was purged, and its words are still there",
    ),
    "a record of no node": (
        "UPDATE records SET node = 9999 WHERE kind = 'usage' AND data IS NOT NULL",
        "usage of node 9999",
        "is not there",
    ),
    "a record of no session": (
        "UPDATE records SET session = 99 WHERE kind = 'usage'",
        "usage of node",
        "the session that it belongs to",
    ),
    "usage that is none": (
        "UPDATE records SET data = '[]' WHERE kind = 'usage' AND data IS NOT NULL",
        "usage of node",
        "the usage cannot be read",
    ),
    "an edge that is none": (
        record("edge", '\'{"edge":"door"}\''),
        "edge of node",
        "the edge cannot be read",
    ),
    "sources that are none": (
        record("sources", "'{}'"),
        "sources of node",
        "the sources cannot be read",
    ),
    "a flag that is none": (record("flag", "'{'"), "flag of node", "the flag cannot be read"),
    "a link that is none": (record("link", "'[]'"), "link of node", "the link cannot be read"),
    "an origin that is none": (
        record("origin", "'[]'"),
        "origin of node",
        "the origin cannot be read",
    ),
    "a summary that is none": (
        "INSERT INTO records (tree, node, kind, name, session, author, data, created) "
        "SELECT tree, node, 'summary', 'x', session, '', '[]', created FROM records "
        "WHERE kind = 'flag'",
        "summary of node",
        "the summary cannot be read",
    ),
    "a summary of a purged session": (
        "INSERT INTO records (tree, node, kind, name, session, author, data, created) "
        f"SELECT tree, node, 'summary', 'x', {DEAD}, '', "
        f'\'{{"text":"x","start":0,"stop":1,"by":"x"}}\', created '
        "FROM records WHERE kind = 'flag'",
        "summary of node",
        "its session was purged, and its words are still there",
    ),
    "a label of a purged session": (
        f"UPDATE records SET session = {DEAD} WHERE kind = 'flag'",
        "flag of node",
        "its session was purged, and its label is still there",
    ),
    "a flag of a purged node": (
        f"UPDATE records SET node = {NODE.format(9)} WHERE kind = 'flag'",
        "flag of node",
        "its node was purged, and its words are still there",
    ),
    "another sum": (session("prompt", "prompt + 1"), "session", "its usage is"),
    "another cost": (session("cost", "cost + 0.001"), "session", "its usage is"),
    "no such status": (session("status", "'asleep'"), "session", "its status is 'asleep'"),
    "a session without its tree": (session("tree", "99"), "session", "its tree, 99, is not there"),
    "another's tree": (
        session("project", "'other'"),
        "session",
        "its tree belongs to default/default",
    ),
    "no cursor": (session("cursor", "9999"), "session", "its current node, 9999"),
    "no head": (session("head", "'x'"), "session", "its system text, tools and settings"),
    "an odd head": (session("head", "'[]'"), "session", "its system text, tools and settings"),
    "another model": (
        session("model", "'x'"),
        "session",
        "its model is stored as 'x' and as 'gpt-4o'",
    ),
    "no asides": (
        session("asides", "'[1]'"),
        "session",
        "its later system messages",
    ),
    "an aside nowhere": (
        session("asides", "replace(asides, '1:', '1:x')"),
        "session",
        "a system message follows the node 1:x",
    ),
    "odd calibration": (session("calibration", "'['"), "session", "what it has learnt"),
    "a purged title": (
        f"UPDATE sessions SET title = 'words' WHERE key = {DEAD}",
        "session",
        "it was purged, and its words",
    ),
    "a purged head": (
        f"""UPDATE sessions SET head = '{{"messages":[],"model":"x"}}' WHERE key = {DEAD}""",
        "session",
        "it was purged, and its words are still there",
    ),
    "a view of no session": (
        "UPDATE views SET session = 99",
        "view 0 of session 99",
        "its session is not there",
    ),
    "a view of a purged session": (
        f"UPDATE views SET session = {DEAD}",
        "view 0 of session",
        "its session was purged",
    ),
    "a view of no node": (
        "UPDATE views SET node = 9999",
        "view 0 of session",
        "the node that it goes up to, 9999",
    ),
    "a view that is none": (
        "UPDATE views SET data = '{}'",
        "view 0 of session",
        "it cannot be read",
    ),
    "another epoch": ("UPDATE views SET epoch = 7", "view 7 of session", "it cannot be read"),
    "a marker of nothing": (
        "DELETE FROM handles",
        "view 0 of session",
        "the meaning of its marker",
    ),
    "a handle that is none": (
        "UPDATE handles SET data = '[]'",
        "handle ~",
        "what it names cannot be read",
    ),
    "a handle without a text": (
        "UPDATE handles SET data = NULL",
        "handle ~",
        "what it names is missing",
    ),
    "another kind": (
        "UPDATE handles SET kind = 'text'",
        "handle ~",
        "what it names cannot be read",
    ),
    "no such kind": (
        "UPDATE handles SET kind = 'door'",
        "handle ~",
        "what it names cannot be read",
    ),
    "a handle of no session": (
        "UPDATE handles SET session = 99",
        "handle ~",
        "the session that it belongs to",
    ),
    "a handle to no node": (
        f"""UPDATE handles SET data = '{{"nodes":[["{NOWHERE}","{NOWHERE}"]]}}', kind = 'span'""",
        "handle ~",
        "it names the node 1:aaa",
    ),
    "a handle at no node": (
        f"""UPDATE handles SET data = '{{"text":"x","at":"{NOWHERE}"}}', kind = 'text'""",
        "handle ~",
        "it was left out at the node 1:aaa",
    ),
    "a tree of no mode": (
        'UPDATE trees SET data = \'{"mode":"maze"}\'',
        "tree s0",
        "what it says of itself cannot be read",
    ),
    "words of a purged tree": (
        "UPDATE sessions SET status = 'purged'; UPDATE trees SET title = 'words'",
        "tree s0",
        "all of its sessions were purged, and its words are still there",
    ),
    "an agent that is none": (
        "UPDATE settings SET data = '{}' WHERE kind = 'agent'",
        "agent ann in default/default",
        "what is settled cannot be read",
    ),
    "an agent that cannot be": (
        """UPDATE settings SET data = '{"name":"ann","window":-1}' WHERE kind = 'agent'""",
        "agent ann in default/default",
        "what is settled cannot be read",
    ),
    "an agent of another name": (
        "UPDATE settings SET name = 'bob' WHERE kind = 'agent'",
        "agent bob in default/default",
        "what is settled cannot be read",
    ),
    "preferences that are none": (
        "UPDATE settings SET data = '[' WHERE kind = 'preferences'",
        "preferences in default/default",
        "what is settled cannot be read",
    ),
    "something at hand of no session": (
        "UPDATE states SET session = 99 WHERE kind = 'stash'",
        "stash a of session 99",
        "its session is not there",
    ),
    "something at hand of a purged session": (
        f"UPDATE states SET session = {DEAD} WHERE kind = 'stash'",
        "stash a of session s0",
        "its session was purged, and it is still there",
    ),
    "something at hand that is none": (
        "UPDATE states SET data = '{' WHERE kind = 'stash'",
        "stash a of session s0",
        "a state of the session cannot be read",
    ),
    "a place that is none": (
        """UPDATE handles SET data = replace(data, '"place":"0"', '"place":"7"')""",
        "handle ~",
        "it names the text '7'",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_placed(patient: Session, ward: Loom, name: str) -> None:
    sql, place, what = DAMAGE[name]
    for statement in sql.split("; "):
        change(ward.store.database, statement)
    found = list(examine(ward.store))
    told = [problem for problem in found if what in problem.what]
    assert told, found
    assert all(
        problem.place.startswith(place) and problem.remedy and not problem.note for problem in told
    )


NAMED = {
    "edge": f'{{"edge":"version","edited_from":"{NOWHERE}"}}',
    "sources": f'[{{"node":"{NOWHERE}"}}]',
    "link": f'{{"target":"{NOWHERE}"}}',
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_a_record_names_and_is_not_there_is_a_note(
    patient: Session, ward: Loom, kind: str
) -> None:
    change(ward.store.database, "UPDATE records SET data = $1 WHERE kind = $2", NAMED[kind], kind)
    (note,) = examine(ward.store)
    assert note.note
    assert note.place.startswith(f"{kind} of node")
    assert f"the node {NOWHERE}, which is not there" in note.what


def test_a_link_that_was_taken_back_or_leads_to_another_tree_is_well(
    patient: Session, ward: Loom
) -> None:
    for more in ('"on":false', '"tree":"elsewhere"'):
        change(
            ward.store.database,
            "UPDATE records SET data = $1 WHERE kind = 'link'",
            f'{{"target":"{NOWHERE}",{more}}}',
        )
        assert list(examine(ward.store)) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_handle_into_another_tree_is_noted_where_that_is_not_here(
    patient: Session, ward: Loom, there: bool
) -> None:
    other = ward.new_tree(identity="an/other")
    name = f"an/other/{other.say('one').id if there else NOWHERE}"
    change(
        ward.store.database,
        "UPDATE handles SET kind = 'span', data = $1",
        json.dumps({"nodes": [[name, name]]}),
    )
    notes = list(examine(ward.store))
    assert all(
        note.note and f"it names the node {name}, which is not here" in note.what for note in notes
    )
    assert bool(notes) is not there


def test_the_words_of_a_purged_node_of_another_tree_are_found(patient: Session, ward: Loom) -> None:
    other = ward.new_tree()
    name = f"{other.id}/{other.say('one').id}"
    other.session().purge()
    data = json.dumps({"nodes": [[name, name]], "text": "words"})
    change(ward.store.database, "UPDATE handles SET kind = 'text', data = $1", data)
    assert any(
        problem.what == "what it names was purged, and its words are still there"
        for problem in examine(ward.store)
    )


def test_the_place_names_tree_and_node(patient: Session, ward: Loom) -> None:
    short_id = patient.path[5].short_id
    change(ward.store.database, node(6, "depth", "9"))
    assert (
        next(examine(ward.store)).place
        == f"node {short_id} of tree {patient.row.tree.id} in default/default"
    )


def test_nodes_that_come_after_each_other_do_not_hold_it_up(patient: Session, ward: Loom) -> None:
    data = json.dumps({"nodes": [[patient.path[0].id, patient.path[6].id]]})
    change(ward.store.database, "UPDATE handles SET kind = 'span', data = $1", data)
    change(
        ward.store.database,
        f"UPDATE nodes SET parent = {NODE.format(7)}, jump = {NODE.format(7)}, depth = 9 "
        "WHERE depth > 0",
    )
    assert any("which was written later" in problem.what for problem in examine(ward.store))


def test_a_handle_whose_nodes_are_on_no_path(patient: Session, ward: Loom) -> None:
    first, last = patient.path[3].id, patient.path[1].id
    data = json.dumps({"nodes": [[first, last]]})
    change(ward.store.database, "UPDATE handles SET kind = 'span', data = $1", data)
    assert any("which are on no path" in problem.what for problem in examine(ward.store))


def test_the_words_of_a_purged_text_are_found(patient: Session, ward: Loom) -> None:
    change(
        ward.store.database,
        f"""UPDATE handles SET kind = 'text', data = '{{"text":"words"}}', session = {DEAD}""",
    )
    assert any(
        problem.what == "what it names was purged, and its words are still there"
        for problem in examine(ward.store)
    )


def test_what_a_tree_gives_to_another_project_is_found(patient: Session, ward: Loom) -> None:
    change(ward.store.database, "UPDATE trees SET project = 'other'")
    what = {problem.what for problem in examine(ward.store)}
    assert "its tree belongs to default/other" in what
    assert "the key by which it is recognized is wrong" in what


def test_a_session_whose_origin_is_gone_is_well(patient: Session, ward: Loom) -> None:
    change(ward.store.database, "UPDATE sessions SET origin = 'nowhere'")
    assert list(examine(ward.store)) == []


def test_a_long_import_is_a_note(loom: Loom) -> None:
    row = loom.store.sessions.create(
        loom.scope, NewSession(id="half", status="importing"), now=loom.now()
    )
    assert list(examine(loom.store, row.updated + 1000)) == []
    (note,) = examine(loom.store, row.updated + 3 * 3_600_000)
    assert note.note
    assert "3 hours ago" in note.what
    assert "loom session purge half" in note.remedy


def test_an_empty_purged_session_and_a_moved_one_are_well(loom: Loom) -> None:
    loom.new().purge()
    session = loom.new()
    session.append("one", "two")
    session.fork().switch(session.path[0].id)
    assert list(examine(loom.store)) == []


# ── pages that cannot be read
# ────────────────────────────────────────────────────────────────────────────────────────────


def full(path: Path) -> tuple[int, int]:
    """A store of some pages in one file; its size and that of a page."""
    with Loom.open(str(path)) as loom:
        session = loom.new()
        session.append(*(f"message {n} {'word ' * 100}" for n in range(400)))
        loom.store.database.shed()
        return path.stat().st_size, select(loom.store.database, "PRAGMA page_size")[0][0]


def spoil(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("part", range(1, 10))
def test_the_rest_of_a_damaged_file_is_looked_at(tmp_path: Path, part: int) -> None:
    path = tmp_path / "loom.db"
    size, page = full(path)
    spoil(path, size * part // 10 // page * page, b"\xff" * page)
    store = Store(str(path), STATE_KINDS)
    try:
        found = examine(store)
        problems = list(found)
    finally:
        store.close()
    assert problems
    assert all(problem.remedy for problem in problems)
    is_lost = any(problem.place.startswith("sessions after") for problem in problems)
    assert found.looked["sessions"] == (0 if is_lost else 1)
    if any(problem.place.startswith("nodes behind") for problem in problems):
        assert 300 < found.looked["nodes"] < 400


def test_a_text_that_is_no_text_is_gone_around(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    full(path)
    spoil(path, path.read_bytes().index(b"message 200 word"), b"\xff")
    store = Store(str(path), STATE_KINDS)
    with store.database.read() as reader:
        [(name, tree)] = reader.all(
            "SELECT n.local, t.id FROM nodes n JOIN trees t ON t.key = n.tree WHERE n.depth = 200"
        )
    problems = list(examine(store))
    store.close()
    assert [problem.place for problem in problems] == [
        f"node {name} of tree {tree} in default/default"
    ]
    assert problems[0].what == "its body cannot be read: the bytes are not UTF-8"


def test_a_value_of_another_kind_is_told(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    full(path)
    store = Store(str(path), STATE_KINDS)
    change(store.database, "UPDATE nodes SET total = 'many' WHERE depth = 200")
    problems = list(examine(store))
    store.close()
    assert any(problem.what.startswith("its row is not valid") for problem in problems)


def test_a_store_that_is_gone_is_an_error_and_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    full(path)
    store = Store(str(path), STATE_KINDS)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        list(examine(store))
