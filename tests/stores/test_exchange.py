"""Sessions leave a store and come back as they were; what is bad, foreign or purged does not come
in.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import CannotFit, Loom, LoomError, Message, Session, StoreError, Text
from loom.errors import ChoiceError, Diverged, TranscriptError
from loom.stores.health.doctor import examine
from loom.stores.transfer.exchange import ImportedSession, is_export
from tests import strategies as our
from tests.shared import examples
from tests.stores.history import answer, change, live, open_loom, select

Opener = Callable[..., Loom]
_numbers = itertools.count()


@pytest.fixture
def opener(address: str) -> Iterator[Opener]:
    """Opens the store of a test from a scope."""
    opened: list[Loom] = []

    def open_(**scope: str) -> Loom:
        opened.append(open_loom(address, **scope))
        return opened[-1]

    yield open_
    for loom in opened:
        loom.close()


@pytest.fixture
def loom(opener: Opener) -> Loom:
    return opener()


@pytest.fixture
def elsewhere() -> Iterator[Loom]:
    """Another store, of the other kind where the first is PostgreSQL."""
    with open_loom(":memory:", salt="elsewhere") as loom:
        yield loom


def talk(loom: Loom, *said: str) -> Session:
    session = loom.new(model="gpt-4o", system="You weave.")
    session.append(*said)
    return session


def rows(loom: Loom) -> int:
    """How much there is in a store."""
    tables = ("trees", "nodes", "sessions", "views", "handles", "records", "settings", "states")
    return sum(
        select(loom.store.database, f"SELECT count(*) FROM {table}")[0][0] for table in tables
    )


def whole(loom: Loom) -> bool:
    return list(examine(loom.store)) == []


def undamaged(loom: Loom) -> bool:
    """Whether nothing is wrong; what is named and stayed behind is noted."""
    return all(problem.note for problem in examine(loom.store))


# ── out, in, and out again
# ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_that_left_and_came_back_leaves_the_same_again(
    loom: Loom, opener: Opener, elsewhere: Loom, seed: int
) -> None:
    live(loom, seed, 40, purges=2)
    lines = list(loom.export())
    told = elsewhere.import_lines(lines)
    assert list(elsewhere.export()) == lines
    other = opener(project="other")
    assert other.import_lines(elsewhere.export()) == told
    assert list(other.export()) == lines
    assert whole(loom)
    assert whole(elsewhere)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_session_that_left_alone_is_the_same_elsewhere(loom: Loom, seed: int) -> None:
    for session in live(loom, seed, 60, purges=1)[-5:]:
        with open_loom(":memory:") as elsewhere:
            lines = list(session.export())
            assert [told.session for told in elsewhere.import_lines(lines)] == [session.id]
            same = elsewhere.session(session.id)
            assert list(same.export()) == lines
            assert list(elsewhere.export()) == lines
            assert same.conversation() == session.conversation()
            assert (
                recalled(same, lines).items() >= recalled(loom.session(session.id), lines).items()
            )
            for agent in loom.agents():
                elsewhere.keep_agent(agent)
            for window in (700, 1500, 4000):
                begin_epochs(loom, elsewhere)
                assert requested(same, window) == requested(loom.session(session.id), window)
            assert undamaged(elsewhere)


def begin_epochs(*looms: Loom) -> None:
    """Let the next request of every session begin an epoch, and let what was recalled go with the
    last one.
    """
    for loom in looms:
        with loom.store.database.write() as writer:
            writer.all("DELETE FROM views")
            writer.all("DELETE FROM states WHERE kind = 'recalled'")


def recalled(session: Session, lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for handle in (
        line["handle"]
        for line in map(json.loads, lines)
        if line.get("line") == "handle" and "kept" in line
    ):
        # of a branch that was merged and purged since, or that it no longer stands on
        with suppress(ChoiceError):
            found[handle] = session.recall(handle)
    return found


def requested(session: Session, window: int) -> Any:
    if session.cursor is None:
        return None
    try:
        context = asyncio.run(session.prepare(window=window, reserve_output=100))
    except CannotFit as error:
        return str(error)
    return context.openai(), context.report.as_dict()


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_tree_keeps_its_ids(data: st.DataObject, address: str) -> None:
    with (
        open_loom(address, project=f"project {next(_numbers)}") as loom,
        open_loom(":memory:") as elsewhere,
    ):
        sessions = [loom.new()]
        for history in data.draw(st.lists(our.histories(2), min_size=1, max_size=4)):
            session = data.draw(st.sampled_from(sessions))
            at = data.draw(st.integers(-1, len(session.path) - 1))
            if at >= 0 and data.draw(st.booleans()):
                session = session.fork(at=session.path[at].id)
                sessions.append(session)
            session.append(*history)
        lines = list(loom.export())
        elsewhere.import_lines(lines)
        assert list(elsewhere.export()) == lines
        for session in sessions:
            same = elsewhere.session(session.id)
            names = [
                (node.id, node.short_id, node.total, node.generation, node.created)
                for node in session.path
            ]
            assert [
                (node.id, node.short_id, node.total, node.generation, node.created)
                for node in same.path
            ] == names
            assert same.conversation() == session.conversation()
        assert whole(elsewhere)


def test_all_that_belongs_to_a_session_comes_along(loom: Loom, opener: Opener) -> None:
    session = talk(loom, "Weave a scarf.")
    asyncio.run(session.prepare())
    (node,) = session.absorb(answer(random.Random(1)) | {"id": "chat-1"})
    session.append(Message("system", (Text("Be brief."),)), "Thanks.", generation="again")
    session.change(title="A scarf", archived=True)
    other = opener(project="other")
    lines = list(session.export())
    assert other.import_lines(lines) == [ImportedSession(session.id, 4, 4)]
    same = other.session(session.id)
    row, before = same.row, session.refresh().row
    for name in (
        "title",
        "status",
        "origin",
        "head",
        "asides",
        "usage",
        "calibration",
        "created",
        "updated",
        "model",
        "agent",
    ):
        assert getattr(row, name) == getattr(before, name), name
    assert row.calibration
    assert row.status == "archived"
    assert same.response(node.id) == session.response(node.id) is not None
    assert [one.generation for one in same.path] == ["", "chat-1", "again", "again"]
    assert [one.role for one in same.path] == ["user", "assistant", "system", "user"]
    assert [one.created for one in same.path] == [one.created for one in session.path]


def test_short_names_keep_their_meaning(loom: Loom, elsewhere: Loom) -> None:
    first = talk(loom, "one", "two")
    second = first.fork(at=first.path[0].id)
    second.append("three")
    # As if the usual name had been taken by a node that stays behind.
    node = second.path[1]
    change(
        loom.store.database,
        "UPDATE nodes SET local = $2 WHERE tree = $3 AND seq = $1",
        node.seq,
        node.id[2:9],
        second.row.tree.key,
    )
    elsewhere.import_lines(second.export())
    assert elsewhere.session(second.id).path[1].short_id == node.id[2:9]
    elsewhere.import_lines(first.export())
    assert [one.short_id for one in elsewhere.session(first.id).path] == [
        one.short_id for one in first.path
    ]


def test_what_was_purged_comes_as_what_is_left_of_it(loom: Loom, elsewhere: Loom) -> None:
    first = talk(loom, "kept by both", "secret")
    second = first.fork(at=first.path[0].id)
    gone = first.path[1]
    first.purge()
    lines = list(loom.export())
    assert not any("secret" in line for line in lines)
    elsewhere.import_lines(lines)
    assert list(elsewhere.export()) == lines
    assert elsewhere.session(second.id).conversation() == second.conversation()
    left = elsewhere.store.sessions.node(elsewhere.session(second.id).row, gone.id)
    assert (left.message, left.tokens, left.role) == (None, gone.tokens, "user")
    with pytest.raises(ChoiceError, match="purged"):
        elsewhere.session(first.id).append("anything")


def test_a_session_alone_takes_nothing_of_others_along(loom: Loom) -> None:
    origin = talk(loom, "shared words", "words of the origin")
    fork = origin.fork(at=origin.path[0].id)
    fork.append("words of the fork")
    origin.append("later words")
    lines = "\n".join(fork.export())
    assert "shared words" in lines
    assert "words of the fork" in lines
    assert "words of the origin" not in lines
    assert "later words" not in lines


def test_nodes_beside_the_path_come_along_with_what_they_stand_on(
    loom: Loom, elsewhere: Loom
) -> None:
    origin = talk(loom, "shared", "of the origin", "of the origin too")
    fork = origin.fork(at=origin.path[0].id)
    fork.switch(origin.path[1].id)
    fork.append("beside")
    beside = fork.path[2].id
    fork.switch(origin.path[0].id)
    lines = list(fork.export())
    assert not any("of the origin too" in line for line in lines)
    elsewhere.import_lines(lines)
    same = elsewhere.session(fork.id)
    assert len(same.path) == 1
    assert [message.text for message in same.switch(beside).conversation().messages] == [
        "shared",
        "of the origin",
        "beside",
    ]


def test_half_of_a_surrogate_pair_comes_through(loom: Loom, elsewhere: Loom) -> None:
    session = loom.new()
    session.append(Message("user", (Text("half \ud83e and \x00"),)))
    lines = list(session.export())
    elsewhere.import_lines(lines)
    assert elsewhere.session(session.id).conversation() == session.conversation()
    assert list(elsewhere.export()) == lines


def test_lines_are_taken_as_they_come(loom: Loom, elsewhere: Loom) -> None:
    session = loom.new()
    session.append(*(f"message {n}" for n in range(2500)))
    read: list[int] = []
    seen: list[tuple[int, int, str]] = []

    def lines() -> Iterator[str]:
        for number, line in enumerate(session.export()):
            read.append(number)
            yield line + "\n"

    def progress(done: int) -> None:
        seen.append((done, len(read), elsewhere.session(session.id).row.status))

    elsewhere.import_lines(lines(), progress=progress)
    assert [status for _, _, status in seen] == ["importing"] * (len(seen) - 1) + ["active"]
    assert seen[-1][0] == 2500
    assert all(taken - done < 10 for done, taken, _ in seen)


# ── again, and what is here already
# ──────────────────────────────────────────────────────────────────────────────────────


def test_what_is_there_is_not_written_again(loom: Loom, opener: Opener) -> None:
    live(loom, 5, 30, purges=1)
    lines = list(loom.export())
    before = rows(loom)
    assert {told.new for told in loom.import_lines(lines)} == {0}
    assert rows(loom) == before
    assert list(loom.export()) == lines


def test_a_session_that_went_on_here_stays_as_it_is(loom: Loom) -> None:
    session = talk(loom, "one")
    lines = list(session.export())
    session.append("two")
    session.change(title="Two")
    assert loom.import_lines(lines) == [ImportedSession(session.id, 1, 0)]
    assert len(loom.session(session.id).path) == 2
    assert loom.session(session.id).row.title == "Two"


@pytest.mark.parametrize("here", [[], ["another way"]])
def test_a_session_that_went_on_in_the_file_is_refused(
    loom: Loom, elsewhere: Loom, here: list[str]
) -> None:
    session = talk(loom, "one")
    elsewhere.import_lines(session.export())
    session.append("two")
    same = elsewhere.session(session.id)
    if here:
        same.append(*here)
    before = list(elsewhere.export())
    with pytest.raises(
        Diverged, match=rf"line \d+: session {session.id} is already stored and differs"
    ) as error:
        elsewhere.import_lines(session.export())
    assert error.value.session == session.id
    assert list(elsewhere.export()) == before
    assert whole(elsewhere)


def test_a_file_does_not_touch_another_session_of_the_same_id(loom: Loom, opener: Opener) -> None:
    session = talk(loom, "one")
    text = "\n".join(session.export()).replace(
        f'"tree","id":"{session.id}"', '"tree","id":"another"'
    )
    nodeless = [line for line in text.split("\n") if '"line":"node"' not in line]
    nodeless = [
        json.dumps(json.loads(line) | {"cursor": ""}) if '"session"' in line[:20] else line
        for line in nodeless
    ]
    nodeless[-1] = '{"line":"end","sessions":1,"nodes":0,"lines":2}'
    with pytest.raises(Diverged, match="another session here has the same id"):
        loom.import_lines(nodeless)


def test_a_purge_is_final(loom: Loom, opener: Opener) -> None:
    session = talk(loom, "one")
    fork = session.fork()
    fork.append("two")
    lines = list(fork.export())
    fork.purge()
    with pytest.raises(
        ChoiceError,
        match=(
            r"line 3: session .* was purged here, and a purge is final; import it into another "
            r"project"
        ),
    ):
        loom.import_lines(lines)
    other = opener(project="other")
    assert other.import_lines(lines) == [ImportedSession(fork.id, 2, 2)]
    third = opener(project="third")
    third.import_lines(lines)
    third.session(fork.id).purge()
    renamed = [
        line.replace(f'"session","id":"{fork.id}"', '"session","id":"another"') for line in lines
    ]
    with pytest.raises(
        ChoiceError,
        match=(
            r"line 4: message .* was purged here, and a purge is final; import it into another "
            r"project"
        ),
    ):
        third.import_lines(renamed)


def test_another_project_has_a_copy_of_its_own(loom: Loom, opener: Opener) -> None:
    session = talk(loom, "one", "two")
    other = opener(project="other")
    other.import_lines(session.export())
    assert session.purge() == (2, 0)
    same = other.session(session.id)
    assert [message.text for message in same.conversation().messages] == ["one", "two"]
    assert other.recognise([Message("user", (Text("one"),))])[1] == 1
    assert loom.recognise([Message("user", (Text("one"),))])[1] == 0


def test_words_that_others_hold_go_with_the_last_of_them(loom: Loom, elsewhere: Loom) -> None:
    origin = talk(loom, "shared words")
    fork = origin.fork()
    elsewhere.import_lines(fork.export())
    elsewhere.import_lines(origin.export())
    for store in (loom, elsewhere):
        assert store.session(origin.id).purge()[0] == 0
        assert store.session(fork.id).purge()[0] == 1
        assert not any("shared words" in line for line in store.export())
        assert whole(store)


def test_the_usage_of_an_answer_goes_to_its_session_when_that_comes(
    loom: Loom, elsewhere: Loom
) -> None:
    origin = talk(loom, "one")
    origin.absorb(answer(random.Random(2)))
    fork = origin.fork()
    fork.append("two")
    elsewhere.import_lines(fork.export())
    assert elsewhere.session(fork.id).row.usage.prompt == 0
    assert whole(elsewhere)
    elsewhere.import_lines(origin.export())
    assert elsewhere.session(origin.id).row.usage == origin.refresh().row.usage
    assert whole(elsewhere)


# ── scopes
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_scope_exports_only_its_own(loom: Loom, opener: Opener) -> None:
    talk(loom, "of the default project")
    talk(opener(project="other"), "of the other project")
    agent = opener(agent="ann")
    mine = talk(agent, "of ann")
    shared = opener().session(mine.id)
    shared.append("also of ann")
    assert "other" not in "".join(loom.export())
    lines = "".join(agent.export())
    assert "of ann" in lines
    assert "also of ann" in lines
    assert "default" not in lines


def test_an_agent_exports_its_sessions_of_a_tree_that_others_use(
    loom: Loom, opener: Opener, elsewhere: Loom
) -> None:
    session = talk(loom, "shared")
    lines = list(session.export())
    agent = opener(agent="ann", project="other")
    agent.import_lines(lines)
    (row,) = agent.sessions()
    assert row.agent == "ann"
    fork = agent.session(session.id).fork()
    fork.append("of ann")
    change(
        loom.store.database,
        "UPDATE sessions SET agent = 'bob' WHERE id = $1 AND project = 'other'",
        session.id,
    )
    exported = list(agent.export())
    elsewhere.import_lines(exported)
    assert [one.id for one in elsewhere.sessions()] == [fork.id]
    assert list(elsewhere.export()) == exported
    with pytest.raises(LoomError, match="another session here has the same id"):
        agent.import_lines(lines)


def test_everything_goes_back_to_where_it_came_from(
    loom: Loom, opener: Opener, elsewhere: Loom
) -> None:
    live(loom, 6, 15)
    live(opener(tenant="acme", project="web"), 7, 15)
    lines = list(loom.export(everywhere=True))
    with pytest.raises(ChoiceError, match=r"line 1: .* every tenant and project"):
        elsewhere.import_lines(lines)
    assert rows(elsewhere) == 0
    elsewhere.import_lines(lines, everywhere=True)
    assert list(elsewhere.export(everywhere=True)) == lines
    assert list(elsewhere.export()) == list(loom.export())
    assert whole(elsewhere)


# ── bad files
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_of_ours_is_known_by_its_first_line() -> None:
    assert is_export('{"loom":"sessions","version":1}\n')
    assert is_export('\ufeff{"loom": "sessions", "version": 99}')
    for line in (
        "",
        "{",
        "[1]",
        '{"role":"user","content":"loom"}',
        '{"loom":"policy","version":1}',
    ):
        assert not is_export(line)


def altered(kind: str, /, **fields: Any) -> Callable[[list[str]], list[str]]:
    """A change to the last line of a kind."""

    def alter(lines: list[str]) -> list[str]:
        at = max(n for n, line in enumerate(lines) if json.loads(line).get("line") == kind)
        return [*lines[:at], json.dumps(json.loads(lines[at]) | fields), *lines[at + 1 :]]

    return alter


def tooled(schema: str) -> Callable[[list[str]], list[str]]:
    """A session with a tool of this schema."""
    return altered(
        "session",
        head={"messages": [], "tools": [{"name": "f", "description": "", "schema": schema}]},
    )


def moved(kind: str, to: int) -> Callable[[list[str]], list[str]]:
    def move(lines: list[str]) -> list[str]:
        at = max(n for n, line in enumerate(lines) if json.loads(line).get("line") == kind)
        rest = [*lines[:at], *lines[at + 1 :]]
        return [*rest[:to], lines[at], *rest[to:]]

    return move


def recorded(kind: str, data: str) -> Callable[[list[str]], list[str]]:
    """Something else beside the last node."""
    return altered("node", records=[{"kind": kind, "data": data, "created": 1}])


def settled(at: int, **fields: Any) -> Callable[[list[str]], list[str]]:
    """An agent at this line, which the end does not count."""
    line = {
        "line": "setting",
        "kind": "agent",
        "name": "ann",
        "data": '{"name":"ann"}',
        "updated": 1,
    } | fields
    return lambda lines: [*lines[:at], json.dumps(line), *lines[at:]]


NOWHERE = "1:" + "a" * 32
SAID = {"role": "user", "parts": [{"type": "text", "text": "never said"}]}
BAD: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "nothing": (lambda _: [], "line 1: there is nothing to import"),
    "a transcript": (lambda _: ['{"role":"user"}'], "line 1: not a file of exported sessions"),
    "a newer file": (
        lambda lines: ['{"loom":"sessions","version":6}', *lines[1:]],
        "line 1: .*newer Loom.*version 6",
    ),
    "a version before all": (
        lambda lines: ['{"loom":"sessions","version":0}', *lines[1:]],
        "line 1: .*int.*>= 1",
    ),
    "an odd first line": (
        lambda lines: ['{"loom":"sessions","version":"x"}', *lines[1:]],
        "line 1: expected 'int'",
    ),
    "no JSON": (lambda lines: [*lines[:5], "{", *lines[5:]], "line 6: "),
    "not an object": (lambda lines: [*lines[:5], "[]", *lines[5:]], "line 6: expected"),
    "an unknown line": (altered("handle", line="hurdle"), r"line \d+: invalid value 'hurdle'"),
    "an unknown field": (altered("node", colour="red"), "line .*unknown field 'colour'"),
    "a missing field": (
        lambda lines: [*lines[:3], '{"line":"node"}', *lines[4:]],
        "line 4: object missing required field",
    ),
    "a number past all": (
        altered("node", created=2**63),
        "line .*int.*253402300799999|line .*out of range",
    ),
    "a number below all": (altered("handle", created=-3), "line .*int.*>= 0"),
    "other words": (altered("node", body=SAID), "line .*the content does not match its id"),
    "another id": (altered("node", id=NOWHERE), "line .*the content does not match its id 1:aaaa"),
    "another generation": (
        altered("node", generation="x"),
        "line .*the content does not match its id",
    ),
    "no words and no tombstone": (altered("node", body=None), "line .*neither a message nor"),
    "a tombstone of nothing": (
        altered("node", body=None, id="x", role="user", local="x"),
        "line .*neither a message nor",
    ),
    "another's short name": (altered("node", local="zzzz"), "line .*'zzzz' cannot be a short name"),
    "a node of nobody here": (altered("node", by="who"), "line .*no session 'who' in its tree"),
    "a node without its parent": (
        moved("node", 3),
        "line 4: node .* comes after .* which is not in the file before it",
    ),
    "a node before its tree": (moved("node", 1), "line 2: out of order"),
    "a session behind its nodes": (moved("session", 7), r"line \d+: out of order"),
    "two trees": (lambda lines: [*lines[:2], lines[1], *lines[2:]], "line 3: .*has no session"),
    "a tree that is nowhere": (altered("tree", tenant="acme", project="web"), "line 2: .*tenant"),
    "a tree without a name": (altered("tree", id=""), "line 2: the tree has no id"),
    "a tree of no mode": (
        altered("tree", data='{"mode":"maze"}'),
        "line 2: what tree .* says of itself cannot be read",
    ),
    "a tree that says no JSON": (
        altered("tree", data="{"),
        "line 2: what tree .* says of itself cannot be read",
    ),
    "a title of a tree past all": (
        altered("tree", title="x" * 201),
        "line 2: a title must be a text of at most 200",
    ),
    "a setting that is none": (
        settled(1, data='{"name":1}'),
        "line 2: the agent 'ann' cannot be read",
    ),
    "a setting that cannot be": (
        settled(1, data='{"name":"ann","window":0}'),
        "line 2: the agent 'ann' cannot be read",
    ),
    "a setting of another name": (
        settled(1, data='{"name":"bob"}'),
        "line 2: the agent 'ann' has the name 'bob'",
    ),
    "a setting of elsewhere": (
        settled(1, tenant="acme", project="web"),
        "line 2: a setting names its tenant",
    ),
    "a setting behind a tree": (settled(4), "line 5: out of order; settings come before the trees"),
    "a setting, and a file that ends badly": (settled(1), "line .*the file should have"),
    "a session twice": (
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        "line 4: session .* comes twice",
    ),
    "a session without a name": (altered("session", id=""), "line 3: the session has no id"),
    "a title past all": (
        altered("session", title="x" * 201),
        "line 3: a title must be a text of at most 200",
    ),
    "a status past all": (altered("session", status="asleep"), "line 3: invalid"),
    "a session at no node": (
        altered("session", cursor=NOWHERE),
        "line 3: session .* names the node 1:aaa",
    ),
    "an aside at no node": (
        altered("session", asides=[{"after": NOWHERE, "message": SAID | {"role": "system"}}]),
        "line 3: session .* names the node",
    ),
    "something at hand that is none": (
        altered("session", states=[{"kind": "pin", "data": "{", "updated": 1}]),
        "line 3: the pin of session .* cannot be read",
    ),
    "something at hand of the purged": (
        altered("session", states=[{"kind": "pin", "data": "{}", "updated": 1}], status="purged"),
        "line 3: session .* was purged, but the file still has content of it",
    ),
    "a flag that is none": (
        recorded("flag", '{"flag":"lost","on":true}'),
        r"line \d+: the flag of node .* cannot be read",
    ),
    "an edge that is none": (
        recorded("edge", "[]"),
        r"line \d+: the edge of node .* cannot be read",
    ),
    "sources that are none": (
        recorded("sources", "{"),
        r"line \d+: the sources of node .* cannot be read",
    ),
    "a link of no JSON": (
        recorded("link", "half \ud83e"),
        r"line \d+: the link of node .* cannot be read",
    ),
    "a handle at no node": (
        altered("handle", kept={"text": "x", "at": NOWHERE}),
        "line .*names the node 1:aaa",
    ),
    "a handle to no node": (
        altered("handle", kept={"nodes": [[NOWHERE, NOWHERE]]}),
        "line .*names the node 1:aaa",
    ),
    "a handle of no kind": (altered("handle", kind="door"), "line .*invalid"),
    "a line too deep": (
        lambda lines: [*lines[:3], '{"a":' * 5000 + "1" + "}" * 5000, *lines[4:]],
        "line 4: .*nested too deeply",
    ),
    "a first line too deep": (
        lambda lines: ['{"a":' * 5000 + "1" + "}" * 5000, *lines[1:]],
        "line 1: ",
    ),
    "half a letter in a place": (
        altered("handle", kept={"text": "x", "minted_at": "\ud800"}),
        r"line \d+: handle ~\w+ cannot be proved: what it names cannot be read",
    ),
    "a schema that is no JSON": (tooled('{"type":NaN}'), "line 3: .*tool.schema"),
    "a schema too deep": (tooled('{"a":' * 990 + "1" + "}" * 990), "line 3: .*tool.schema"),
    "cut short": (lambda lines: lines[:-1], r"line \d+: the file ends too early"),
    "cut off": (lambda lines: [*lines[:6], lines[6][:50]], "line 7: "),
    "a line is missing": (
        lambda lines: [line for line in lines if '"line":"handle"' not in line],
        "line .*and has",
    ),
    "two files in one": (lambda lines: lines + lines, r"line \d+: something comes after the end"),
}


@pytest.fixture(scope="module")
def exported() -> list[str]:
    with open_loom(":memory:") as loom:
        session = talk(loom, "one", "two " * 2000)
        session.append(Message("assistant", (Text("three"),)), "four")
        asyncio.run(session.prepare(window=900, reserve_output=100))
        lines = list(session.export())
        assert {json.loads(line).get("line") for line in lines[1:]} == {
            "tree",
            "session",
            "node",
            "handle",
            "end",
        }
        return lines


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_by_its_line_and_leaves_nothing(
    name: str, exported: list[str], elsewhere: Loom
) -> None:
    change_lines, told = BAD[name]
    with pytest.raises(LoomError, match=told):
        elsewhere.import_lines(change_lines(list(exported)))
    assert rows(elsewhere) == 0
    elsewhere.import_lines(exported)


def test_a_file_that_goes_bad_late_leaves_nothing(loom: Loom, elsewhere: Loom) -> None:
    here = talk(loom, "here before")
    before = rows(loom)
    session = elsewhere.new()
    session.append(*(f"message {n}" for n in range(1500)))
    lines = [*here.export()][:-1] + [*session.export()][1:-1]
    seen: list[int] = []
    with pytest.raises(TranscriptError, match=r"line \d+: "):
        loom.import_lines([*lines, "{"], progress=lambda done: seen.append(rows(loom)))
    assert max(seen) > before
    assert rows(loom) == before


def test_an_import_that_was_interrupted_goes_on(loom: Loom, opener: Opener) -> None:
    session = opener(project="source").new()
    session.append(*(f"message {n}" for n in range(1500)))
    lines = list(session.export())

    def failing() -> Iterator[str]:
        yield from lines[:1300]
        raise StoreError("the server is away")

    with pytest.raises(StoreError, match="away"):
        loom.import_lines(failing())
    assert loom.session(session.id).row.status == "importing"
    assert [problem.note for problem in examine(loom.store, loom.now() + 10**8)] == [True]
    assert list(examine(loom.store, loom.now())) == []
    (told,) = loom.import_lines(lines)
    assert (told.messages, loom.session(session.id).row.status) == (1500, "active")
    assert 0 < told.new < 1500
    assert list(loom.export()) == lines


@pytest.mark.long
def test_a_large_tree_leaves_in_its_order(loom: Loom, elsewhere: Loom) -> None:
    session, other = loom.new(), loom.new()
    for start in range(0, 22_000, 1000):
        session.append(*(f"message {n}" for n in range(start, start + 1000)))
        other.append(f"between {start}")
    fork = session.fork(at=session.path[11_000].id)
    fork.append("forked")
    lines = list(loom.export())
    elsewhere.import_lines(lines)
    assert list(elsewhere.export()) == lines
    alone = list(fork.export())
    assert len(alone) == 11_002 + 4
    assert list(elsewhere.session(fork.id).export()) == alone
    assert whole(elsewhere)
