"""What belongs to trees and projects leaves a store and comes back: what is said of nodes,
settings, what sessions have at hand.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loom import Loom
from loom.conversation.agents import Agent
from loom.conversation.tree import Mode, Preferences, Reference, TreeHead
from loom.stores.health.doctor import examine
from tests.stores.history import open_loom, select
from tests.stores.test_exchange import altered, requested, talk, whole


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


@pytest.fixture
def elsewhere() -> Iterator[Loom]:
    """Another store, of the other kind where the first is PostgreSQL."""
    with open_loom(":memory:", salt="elsewhere") as loom:
        yield loom


def test_a_file_of_the_first_version_is_read(loom: Loom) -> None:
    lines = Path(__file__).with_name("exported_v1.jsonl").read_text(encoding="utf-8").splitlines()
    assert [told.messages for told in loom.import_lines(lines)] == [4, 0, 2]
    first, *rest = loom.export()
    assert lines[0] == '{"loom":"sessions","version":1}'
    assert first == '{"loom":"sessions","version":2}'
    *written, end = map(json.loads, rest)
    told = [line for line in map(json.loads, lines[1:-1]) if line["line"] != "view"]
    assert written == told, "views are caches and stay behind"
    assert end == json.loads(lines[-1]) | {"lines": len(told)}
    assert select(loom.store.database, "SELECT count(*) FROM views") == [(0,)]
    assert whole(loom)


# ── trees, settings, and what is at hand
# ─────────────────────────────────────────────────────────────────────────────────


def lines_of(kind: str, lines: Iterable[str]) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, lines) if line.get("line") == kind]


def test_what_a_project_settles_comes_first_and_once(loom: Loom, elsewhere: Loom) -> None:
    for word in ("one", "two"):
        talk(loom, word)
    loom.prefer(Preferences(token_buffer=7))
    loom.keep_agent(Agent(name="ann", system_prompt="Be kind."))
    lines = list(loom.export())
    assert [json.loads(line)["line"] for line in lines[1:5]] == [
        "setting",
        "setting",
        "tree",
        "session",
    ]
    assert [(line["kind"], line.get("name", "")) for line in lines_of("setting", lines)] == [
        ("agent", "ann"),
        ("preferences", ""),
    ]
    elsewhere.import_lines(lines)
    assert elsewhere.agents() == loom.agents()
    assert elsewhere.preferences == loom.preferences
    assert list(elsewhere.export()) == lines
    assert whole(elsewhere)


def test_a_project_without_sessions_still_tells_what_it_settles(
    loom: Loom, elsewhere: Loom
) -> None:
    loom.prefer(Preferences(token_buffer=7))
    assert elsewhere.import_lines(loom.export()) == []
    assert elsewhere.preferences.token_buffer == 7


def test_what_is_settled_here_stays(loom: Loom, elsewhere: Loom) -> None:
    loom.keep_agent(Agent(name="ann", system_prompt="Be kind."))
    loom.keep_agent(Agent(name="bob"))
    elsewhere.keep_agent(Agent(name="ann", system_prompt="Be strict."))
    elsewhere.import_lines(loom.export())
    assert [agent.system_prompt for agent in elsewhere.agents()] == ["Be strict.", ""]


def test_a_session_alone_and_another_agent_bring_no_settings_of_others(
    loom: Loom, address: str
) -> None:
    session = talk(loom, "one")
    loom.prefer(Preferences(token_buffer=7))
    for name in ("ann", "bob"):
        loom.keep_agent(Agent(name=name))
    assert lines_of("setting", session.export()) == []
    with open_loom(address, agent="ann") as ann:
        assert [line.get("name", "") for line in lines_of("setting", ann.export())] == ["ann", ""]


def test_settings_of_everything_go_back_to_their_project(
    loom: Loom, address: str, elsewhere: Loom
) -> None:
    with open_loom(address, tenant="acme", project="web") as other:
        other.keep_agent(Agent(name="ann"))
    loom.keep_agent(Agent(name="bob"))
    lines = list(loom.export(everywhere=True))
    elsewhere.import_lines(lines, everywhere=True)
    assert [agent.name for agent in elsewhere.agents()] == ["bob"]
    assert list(elsewhere.export(everywhere=True)) == lines


def test_what_a_session_has_at_hand_comes_with_it_and_only_then(
    loom: Loom, elsewhere: Loom
) -> None:
    tree = loom.new_tree(head=TreeHead(mode="buffer"))
    tree.say("one")
    session = tree.session()
    assert "states" not in lines_of("session", session.export())[0]
    session.draft("not yet")
    lines = list(session.export())
    elsewhere.import_lines(lines)
    same = elsewhere.session(session.id)
    assert same.draft_text == "not yet"
    assert list(elsewhere.export()) == lines
    same.draft("something else")
    elsewhere.import_lines(lines)
    assert elsewhere.session(session.id).draft_text == "something else"


def test_what_is_said_of_nodes_comes_along(loom: Loom, elsewhere: Loom) -> None:
    tree = loom.new_tree("Scarf", head=TreeHead(description="A scarf.", system_context="Be kind."))
    one, two = tree.say("one"), tree.say("two")
    tree.annotate(one.id, "a remark", agent="ann")
    tree.bookmark(one.id, "begin")
    tree.bookmark(one.id, "beginning")
    tree.link(two.id, one.id, "see")
    tree.edit(two.id, "two, better")
    elsewhere.import_lines(loom.export())
    same = elsewhere.tree(tree.id)
    assert (same.title, same.head) == (tree.title, tree.head)
    assert [same.marks(same.node(node.id)) for node in (one, two)] == [
        tree.marks(node) for node in (one, two)
    ]
    assert [(twig.short_id, twig.edge, twig.author) for twig in same.twigs()] == [
        (twig.short_id, twig.edge, twig.author) for twig in tree.twigs()
    ]
    assert [mark.created for mark in same.history(one.id)] == [
        mark.created for mark in tree.history(one.id)
    ]
    assert whole(elsewhere)


def test_records_of_a_kind_that_nobody_knows_stay_as_they_are(loom: Loom, elsewhere: Loom) -> None:
    odd = {"kind": "aroma", "data": "not even JSON", "created": 1}
    elsewhere.import_lines(altered("node", records=[odd])(list(talk(loom, "one").export())))
    assert lines_of("node", elsewhere.export())[-1]["records"] == [odd]


def test_a_branch_that_another_merged_comes_along_and_can_be_recalled(
    loom: Loom, elsewhere: Loom
) -> None:
    tree = loom.new_tree()
    one = tree.say("one")
    found = tree.say("what bob found", after=one.id, agent="bob")
    tree.say("the main road", after=one.id, agent="ann")
    merged = tree.merge(found.id, agent="ann")
    reader = tree.session("carol").switch(merged.id)
    (handle,) = select(loom.store.database, "SELECT handle FROM handles")[0]
    lines = list(reader.export())
    elsewhere.import_lines(lines)
    assert elsewhere.session(reader.id).recall(handle) == reader.recall(handle)
    assert "what bob found" in reader.recall(handle)
    assert list(elsewhere.export()) == lines
    assert whole(elsewhere)


@pytest.mark.parametrize("mode", ["dialogue", "buffer"])
def test_a_session_alone_reads_the_same_beside_its_path(
    loom: Loom, elsewhere: Loom, mode: Mode
) -> None:
    tree = loom.new_tree(head=TreeHead(mode=mode))
    one, two = tree.say("one"), tree.say("two")
    unread = tree.annotate(one.id, "unread", agent="ann")
    tree.exclude(tree.annotate(one.id, "a remark", agent="ann").id, on=False)
    first = tree.edit(two.id, "two, better", agent="ann")
    tree.edit(first.id, "two, best", agent="ann")
    root = tree.say("a root", after="", agent="ann")
    tree.say("three", sources=[Reference(root.id, "context")])
    session = tree.session("")
    lines = list(session.export())
    assert not any(unread.id in line for line in lines)
    elsewhere.import_lines(lines)
    assert list(elsewhere.export()) == lines
    assert requested(elsewhere.session(session.id), 3000) == requested(
        loom.session(session.id), 3000
    )
    assert "a root" in str(requested(elsewhere.session(session.id), 3000))


def test_a_session_alone_does_not_read_what_another_excluded_in_another_version(
    loom: Loom, elsewhere: Loom
) -> None:
    tree = loom.new_tree(head=TreeHead(mode="buffer"))
    one = tree.say("one")
    tree.say("two")
    tree.exclude(tree.edit(one.id, "one, better", agent="ann").id, agent="ann")
    session = tree.session("")
    elsewhere.import_lines(session.export())
    assert requested(elsewhere.session(session.id), 3000) == requested(
        loom.session(session.id), 3000
    )


def test_what_stays_behind_is_noted_and_no_damage(loom: Loom, elsewhere: Loom) -> None:
    tree, other = loom.new_tree(), loom.new_tree()
    there = other.say("of another tree " * 300)
    one = tree.say("one")
    old = tree.say("two", agent="ann")
    tree.edit(old.id, "two, better", agent="")
    tree.link(one.id, old.id)
    tree.say("three", sources=[Reference(there.id, "context", other.id), Reference(old.id)])
    session = tree.session("")
    asyncio.run(session.prepare(window=900, reserve_output=100))
    assert whole(loom)
    lines = list(session.export())
    kept = [line["kept"] for line in lines_of("handle", lines)]
    assert any(
        name.startswith(f"{other.id}/")
        for one in kept
        for stretch in one["nodes"]
        for name in stretch
    )
    elsewhere.import_lines(lines)
    assert list(elsewhere.export()) == lines
    notes = list(examine(elsewhere.store))
    assert all(note.note for note in notes)
    assert {note.place.split(" ")[0] for note in notes} == {"edge", "link", "sources", "handle"}
    requested(elsewhere.session(session.id), 900)
