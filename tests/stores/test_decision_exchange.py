"""Decisions out of a store and back in, and what the doctor says of damaged ones."""

from collections.abc import Iterator
from typing import Any

import pytest

from loom import Loom
from loom.conversation.canonical import from_json, to_json
from loom.errors import TranscriptError
from loom.stores.health.doctor import examine
from loom.types import DecisionGraph


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with Loom.open(address) as opened:
        yield opened


def problems(loom: Loom) -> list[str]:
    return [f"{each.place}: {each.what}" for each in examine(loom.store) if not each.note]


def graph_of(loom: Loom, folder: str = "") -> DecisionGraph:
    return loom.decisions.of_folder(folder).graph()


def fill(loom: Loom) -> Any:
    """Decisions of a project, of a session and of a folder; one of them purged."""
    session = loom.new()
    session.append("We need tokens")
    goal = loom.decisions.log("Add authentication", kind="goal", confidence=85)
    old = session.decisions.log("Use cookies", parent=goal.id, rationale="they are simple")
    session.decisions.pivot(old.id, "No browser", "Use JWT \ud800", confidence=40)
    session.decisions.log("A secret", kind="option", parent=old.id, edge="rejected")
    session.decisions.purge(session.decisions.search("secret")[0].id)
    session.decisions.of_folder("/srv/\udcff").log("In a folder", metadata={"a": [1]})
    return session


def test_a_store_comes_back_as_it_was(loom: Loom) -> None:
    fill(loom)
    lines = list(loom.export())
    assert from_json(lines[0])["version"] == 5
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines)
        for folder in ("", "/srv/\udcff"):
            assert graph_of(copy, folder) == graph_of(loom, folder)
        assert len(graph_of(copy).edges) == 5, "one leads to what was purged"
        assert copy.decisions.search("JWT") == loom.decisions.search("JWT")
        assert copy.decisions.prior() == loom.decisions.prior()
        assert problems(copy) == []
        copy.import_lines(lines)
        assert graph_of(copy) == graph_of(loom)
        assert list(copy.export()) == lines
    assert list(loom.export(everywhere=True)) != lines


def test_a_session_takes_its_decisions_along_and_no_others(loom: Loom) -> None:
    session = fill(loom)
    loom.new().decisions.log("of another session")
    lines = list(session.export())
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines)
        found = {each.title for each in copy.decisions.list_all()}
        assert "Use cookies" in found
        assert "of another session" not in found
        assert "Add authentication" not in found, "that is a goal of the project"
        assert copy.decisions.of_folder("/srv/\udcff").list_all()
        assert problems(copy) == []
    loom.import_lines(lines)
    assert problems(loom) == []


def test_what_a_line_says_must_be_what_its_id_says(loom: Loom) -> None:
    fill(loom)
    lines = list(loom.export())
    at = next(n for n, line in enumerate(lines) if "Use cookies" in line)
    for changed in (
        lines[at].replace("Use cookies", "Use poison"),
        lines[at].replace('"kind":"decision"', '"kind":"nonsense"'),
    ):
        with Loom.open(":memory:") as copy:
            with pytest.raises(TranscriptError, match=f"line {at + 1}"):
                copy.import_lines([*lines[:at], changed, *lines[at + 1 :]])
            assert copy.decisions.list_all() == []
            assert problems(copy) == []


def test_an_import_adds_no_edges_between_what_is_here(loom: Loom) -> None:
    one, two = loom.decisions.log("one"), loom.decisions.log("two")
    lines = list(loom.export())
    edge = {"line": "edge", "source": one.id, "target": two.id, "kind": "blocks", "created": 1}
    end = from_json(lines[-1])
    more = [*lines[:-1], to_json(edge), to_json({**end, "lines": end["lines"] + 1})]
    loom.import_lines(more)
    assert loom.decisions.edges(one.id) == []


def test_what_is_damaged_is_named_and_left_out(loom: Loom) -> None:
    one, two = loom.decisions.log("one"), loom.decisions.log("two")
    loom.decisions.link(one.id, two.id, "requires", rationale="why")
    with loom.store.database.write() as writer:
        writer.all("UPDATE decisions SET data = $2 WHERE id = $1", one.id, '{"title":"other"}')
    assert problems(loom) == [
        f"decision {one.id} in default/default: its words are not those that were logged"
    ]
    missed: list[str] = []
    lines = list(loom.export(missed=missed))
    assert missed == [f"decision {one.id}"]
    with Loom.open(":memory:") as copy:
        copy.import_lines(lines)
        assert [each.title for each in copy.decisions.list_all()] == ["two"]
        assert problems(copy) == []
    with loom.store.database.write() as writer:
        writer.all("UPDATE decisions SET data = $2 WHERE id = $1", one.id, '{"tit')
    with pytest.warns(UserWarning, match=one.id):
        assert [each.title for each in loom.decisions.list_all()] == ["two"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM decisions WHERE id = $1", "is not there"),
        ("UPDATE decisions SET shelf = 'goal' WHERE id = $1", "not in the list"),
        ("UPDATE decisions SET graph = graph + 1 WHERE id = $1", "another project or folder"),
        ("DELETE FROM decision_terms WHERE $1 <> ''", "by its words"),
        ("UPDATE decision_edges SET kind = 'loves' WHERE $1 <> ''", "the kind loves"),
        ("UPDATE decision_graphs SET folder = '\"x\"' WHERE $1 <> ''", "by the folder"),
    ],
)
def test_the_doctor_finds_what_is_wrong(loom: Loom, damage: str, said: str) -> None:
    one, two = loom.decisions.log("one"), loom.decisions.log("two")
    loom.decisions.link(one.id, two.id)
    assert problems(loom) == []
    with loom.store.database.write() as writer:
        writer.all(damage, one.id)
    assert any(said in problem for problem in problems(loom)), problems(loom)
