"""The documents of a project: added, found, changed, removed; and never those of another."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import ChoiceError, Loom, LoomError
from loom.providers.knowledge.stored import StoredKnowledgeBase
from loom.recall.background import TEXTS
from loom.stores import Scope, examine
from tests.knowledge.test_documents import pdf_of
from tests.shared import ROOT
from tests.stores.conftest import Server


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with Loom.open(address) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of documents, below the current one."""
    monkeypatch.chdir(tmp_path)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "boat.md").write_text(
        "# Boat\nA boat floats.\n\n## Engine\nTurn the key twice to start the engine.\n\n"
        "## Anchor\nDrop the anchor in shallow water.\n"
    )
    (docs / "code.py").write_text("def sail(wind):\n    return wind * 2\n")
    (docs / "page.html").write_text("<html><title>Knots</title><h1>Bowline</h1><p>A loop.</p>")
    (docs / "picture.png").write_bytes(b"\x89PNG\0")
    return docs


def sources(base: StoredKnowledgeBase, text: str, limit: int = 3) -> list[str]:
    return [item.source for item in base.query(text, limit)]


def test_documents_of_a_folder_are_found_with_heading_and_lines(loom: Loom, folder: Path) -> None:
    told: list[tuple[int, int]] = []
    added = loom.knowledge.add_path("docs", lambda done, count: told.append((done, count)))
    assert [row.source for row in added.added] == [
        "docs/boat.md",
        "docs/code.py",
        "docs/page.html",
    ]
    assert told[-1] == (3, 3)
    [item] = loom.knowledge.query("how do I start the engine?", limit=1)
    assert item.source == "docs/boat.md:4-5"
    assert item.title == "Boat › Engine"
    assert "Turn the key" in item.content
    assert item.score > 0
    assert sources(loom.knowledge, "wind", 1) == ["docs/code.py:1-2"]
    assert loom.knowledge.query("zeppelin") == []
    assert [row.title for row in loom.knowledge.list_all()] == ["Boat", "", "Knots"]
    assert list(examine(loom.store)) == []


def test_what_changes_is_replaced_and_what_is_deleted_goes(loom: Loom, folder: Path) -> None:
    base = loom.knowledge
    base.add_path(folder)
    again = base.add_path(folder)
    assert (again.unchanged, again.added, again.changed, again.removed) == (3, (), (), ())
    (folder / "boat.md").write_text("# Boat\nA boat floats.\n\n## Sail\nHoist the sail.\n")
    (folder / "code.py").unlink()
    (folder / "new.txt").write_text("The harbour is closed.")
    third = base.add_path(folder)
    assert [row.source for row in third.changed] == ["docs/boat.md"]
    assert [row.source for row in third.added] == ["docs/new.txt"]
    assert third.removed == ("docs/code.py",)
    assert base.query("key engine twice") == []
    assert base.query("wind") == []
    assert sources(base, "hoist") == ["docs/boat.md:4-5"]
    assert list(examine(loom.store)) == []
    (folder / "new.txt").write_bytes(b"\0\1\2" * 99)  # no longer a text
    fourth = base.add_path(folder)
    assert fourth.removed == ("docs/new.txt",)
    assert "not a text" in fourth.failed[0].reason
    assert base.query("harbour") == []
    rows = [count(loom, table) for table in ("chunk_terms", "chunks", "document_chunks")]
    assert base.remove("docs") == 2
    assert min(rows) > 0
    assert [count(loom, table) for table in ("chunk_terms", "chunks", "documents")] == [0, 0, 0]
    assert list(examine(loom.store)) == []


def count(loom: Loom, table: str) -> int:
    with loom.store.database.read() as reader:
        row = reader.first_row(f"SELECT count(*) FROM {table}")
    assert row is not None
    return int(row[0])


def test_the_same_words_are_stored_and_found_once(loom: Loom, folder: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("Never sail in a storm.\n")
    base = loom.knowledge
    base.add_path(folder / "a.txt")
    before = count(loom, "chunks")
    base.add_path(folder / "b.txt")
    base.add("Never sail in a storm.", source="c")
    base.add("Never sail in a storm.", source="c")
    assert count(loom, "chunks") == before
    assert count(loom, "documents") == 3
    assert len(base.query("storm", limit=5)) == 1
    assert base.remove(folder / "a.txt") == 1
    assert sources(base, "storm") == ["docs/b.txt:1-1"]
    assert base.remove("docs/b.txt") == 1
    assert sources(base, "storm") == ["c:1-1"]
    assert base.remove("c") == 1
    base.purge()
    with pytest.raises(ChoiceError, match="no document"):
        base.remove("c")


def test_files_that_cannot_be_read_are_told_and_others_are_added(loom: Loom, folder: Path) -> None:
    pytest.importorskip("pypdf")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (folder / "good.pdf").write_bytes(pdf_of("Keep the hull clean."))
    with (folder / "large.md").open("wb") as file:
        file.truncate(100 * 2**20)
    added = loom.knowledge.add_path(folder)
    assert {failed.path for failed in added.failed} == {"docs/broken.pdf", "docs/large.md"}
    assert sources(loom.knowledge, "hull") == ["docs/good.pdf#page=1"]
    with pytest.raises(ChoiceError, match="does not exist"):
        loom.knowledge.add_path(folder / "none")


def test_sources_of_other_folders_are_whole_paths(
    loom: Loom, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    loom.knowledge.add_path(folder.parent / "docs" / "boat.md")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    loom.knowledge.add_path(folder / "boat.md")  # what it was called at first stays
    loom.knowledge.add_path(folder / "code.py")
    found = [row.source for row in loom.knowledge.list_all()]
    assert found == [f"{folder}/code.py", "boat.md"]


def test_requests_ask_the_documents_of_their_project(address: str, folder: Path) -> None:
    with Loom.open(address, knowledge=True) as loom:
        loom.knowledge.add_path(folder)
        context = asyncio.run(loom.new().prepare("How do I start the engine?", knowledge_seconds=5))
        assert "(Source: docs/boat.md:4-5)" in str(context.openai()["messages"][-1]["content"])
        assert not [note for note in context.report.notes if "knowledge" in note]


class ByFirstLetter:
    """Vectors by the letters of the alphabet that a text has."""

    dimensions = 26

    def __init__(self, name: str = "letters-1") -> None:
        self.name, self.embedded = name, 0

    def embed(self, texts: Any) -> Any:
        self.embedded += len(texts)
        rows = np.array(
            [[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts],
            dtype=np.float32,
        )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_vectors_are_made_and_made_again_for_another_embedder(loom: Loom) -> None:
    base = loom.knowledge
    for number in range(30):
        base.add(f"yyy {number}", source=f"y{number}")
    base.add("zzz zzz", source="z")
    assert base.query("zz") == []
    base.embedder = first = ByFirstLetter()
    assert base.embed_missing() == 31
    assert sources(base, "zz", 1) == ["z:1-1"]
    base.add("xxx xxx", source="x")
    # with the question; what it is compared with is embedded once in a process
    assert first.embedded - len(TEXTS) in (33, 33 - len(TEXTS))
    base.embedder = other = ByFirstLetter("letters-2")
    base.query("zz")  # vectors of others are never compared; its own are made in the background
    base.embed_missing()
    assert other.embedded in (33, 33 + len(TEXTS))
    assert sources(base, "xx", 1) == ["x:1-1"]
    base.remove("x")
    assert count(loom, "chunk_vectors") == 62


def test_an_embedder_that_fails_costs_its_part_of_the_score(loom: Loom, folder: Path) -> None:
    class Failing(ByFirstLetter):
        def embed(self, texts: Any) -> Any:
            raise OSError("no route")

    base = loom.knowledge
    base.embedder = Failing()
    assert base.add_path(folder).notes == (
        "the embedder failed, so nothing is found by meaning yet: OSError: no route",
    )
    assert sources(base, "start the engine", 1) == ["docs/boat.md:4-5"]


def test_a_store_that_closes_stops_what_goes_on_in_the_background(address: str) -> None:
    class Slow(ByFirstLetter):
        def embed(self, texts: Any) -> Any:
            if len(texts) > 1:
                time.sleep(0.05)
            return super().embed(texts)

    with Loom.open(address) as loom:
        for number in range(200):
            loom.knowledge.add(f"text {number}", source=str(number))
    with Loom.open(address, embedder=Slow()) as loom:
        loom.knowledge.query("text")
        time.sleep(0.02)
    with Loom.open(address) as loom:
        assert count(loom, "chunk_vectors") < 200
        assert list(examine(loom.store)) == []


def test_the_embedder_of_a_store_is_that_of_its_documents(address: str) -> None:
    with Loom.open(address, embedder=ByFirstLetter(), knowledge=True) as loom:
        loom.knowledge.add("zzz zzz", source="z")
        assert count(loom, "chunk_vectors") == 1


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t1", "t2"]),
            st.sampled_from(["p1", "p2"]),
            st.sampled_from(["apple", "pear", "plum", "fig"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_nothing_of_another_project_or_tenant_is_ever_found(
    steps: list[tuple[str, str, str, bool]],
) -> None:
    with Loom.open(":memory:") as first:
        bases: dict[tuple[str, str], StoredKnowledgeBase] = {}
        held: dict[tuple[str, str], set[str]] = {}
        for tenant, project, word, is_added in steps:
            scope = (tenant, project)
            base = bases.setdefault(
                scope,
                StoredKnowledgeBase(first.store.documents, Scope(tenant, project), lambda: 1),
            )
            texts = held.setdefault(scope, set())
            if is_added:
                base.add(f"The {word} is mine.", source=word)
                texts.add(word)
            elif word in texts:
                base.remove(word)
                texts.remove(word)
            for other, texts in held.items():
                found = {
                    item.source.partition(":")[0]
                    for item in bases[other].query("the apple pear plum fig is mine", limit=9)
                }
                assert found == texts
                assert {row.source for row in bases[other].list_all()} == texts
        assert list(examine(first.store)) == []


def test_statistics_are_those_of_one_project(address: str) -> None:
    """What others have changes no score."""
    with Loom.open(address, project="mine") as mine, Loom.open(address, project="other") as other:
        mine.knowledge.add("The anchor is heavy.", source="a")
        mine.knowledge.add("The sail is white.", source="b")
        before = mine.knowledge.query("heavy anchor sail")
        for n in range(20):
            other.knowledge.add(f"The anchor number {n} is heavy.", source=f"o{n}")
        assert mine.knowledge.query("heavy anchor sail") == before
        assert [item.source for item in before] == ["a:1-1", "b:1-1"]


# Export, import, doctor


def test_documents_are_exported_and_come_in_with_their_index(
    loom: Loom, folder: Path, tmp_path: Path
) -> None:
    loom.knowledge.add_path(folder)
    loom.knowledge.add("The harbour is closed.", source="note")
    loom.new().append("hello")
    lines = list(loom.export())
    assert json.loads(lines[0])["version"] == 3
    with Loom.open(tmp_path / "copy.db", project="other") as copy:
        copy.import_lines(lines)
        assert [row.digest for row in copy.knowledge.list_all()] == [
            row.digest for row in loom.knowledge.list_all()
        ]
        for question in ("start the engine", "harbour", "wind", "bowline loop"):
            assert copy.knowledge.query(question) == loom.knowledge.query(question)
        assert list(examine(copy.store)) == []
        copy.knowledge.remove("note")
        copy.import_lines(lines)  # what is here stays, what is not comes in
        assert len(copy.knowledge.list_all()) == 4
        assert len(list(copy.export())) == len(lines)
    with Loom.open(tmp_path / "all.db") as copy:
        copy.import_lines(loom.export(everywhere=True), everywhere=True)
        assert len(copy.knowledge.list_all()) == 4


def test_a_session_and_a_store_without_documents_are_exported_as_before(loom: Loom) -> None:
    session = loom.new()
    session.append("hello")
    assert json.loads(next(iter(loom.export())))["version"] == 2
    loom.knowledge.add("The harbour is closed.", source="note")
    assert "harbour" not in "".join(session.export())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", "a\0b"),
        ("chunks", [{"text": "half \ud800"}]),
        ("chunks", [{"text": "x" * 200_000}]),
        ("size", -1),
        ("more", 1),
    ],
)
def test_a_bad_document_is_refused_and_nothing_of_its_file_stays(
    loom: Loom, tmp_path: Path, field: str, value: Any
) -> None:
    loom.knowledge.add("The harbour is closed.", source="first")
    loom.knowledge.add("The anchor is heavy.", source="second")
    lines = list(loom.export())
    bad = json.loads(lines[2])
    bad[field] = value
    lines[2] = json.dumps(bad)
    with Loom.open(tmp_path / "copy.db") as copy:
        with pytest.raises(LoomError, match="line 3"):
            copy.import_lines(lines)
        assert copy.knowledge.list_all() == []


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE chunks SET text = 'other'", "its words are not those"),
        ("UPDATE bases SET terms = 1", "are told"),
        ("DELETE FROM document_chunks", "not all of them are there"),
        ("UPDATE documents SET notes = 'x'", "cannot be read"),
    ],
)
def test_the_doctor_finds_damage(loom: Loom, sql: str, what: str) -> None:
    loom.knowledge.add("The harbour is closed.", source="note")
    with loom.store.database.write() as writer:
        writer.all(sql)
    assert any(what in problem.what for problem in examine(loom.store))
    missed: list[str] = []
    lines = list(loom.export(missed=missed))
    if "bases" not in sql:
        assert missed == ["document text:" + missed[0].partition("text:")[2]]
        assert len(lines) == 2


def test_an_index_of_other_rules_is_made_again(loom: Loom) -> None:
    loom.knowledge.add("The harbour is closed.", source="note")
    before = loom.knowledge.query("harbour")
    with loom.store.database.write() as writer:
        writer.all("DELETE FROM chunk_terms")
        writer.all("UPDATE bases SET version = 0")
    assert loom.knowledge.query("harbour") == before
    assert list(examine(loom.store)) == []


def test_both_databases_find_the_same(folder: Path, tmp_path: Path, server: Server) -> None:
    name = server.new_database()
    found = []
    for address in (str(tmp_path / "same.db"), server.url(name)):
        with Loom.open(address, embedder=ByFirstLetter()) as loom:
            loom.knowledge.add_path(folder)
            for path in ("sessions.md", "weave.md", "glossary.md"):
                loom.knowledge.add_path(ROOT / "docs" / path)
            asked = ("epoch", "how is a request built", "start the engine", "summary of a session")
            found.append([loom.knowledge.query(text, limit=5) for text in asked])
    server.give_back(name)
    assert found[0] == found[1]
    assert all(found[0])


def test_all_of_it_works_in_an_asynchronous_program(address: str, folder: Path) -> None:
    async def run() -> None:
        async with await Loom.aopen(address) as loom:
            base = loom.knowledge
            assert len((await base.aadd_path(folder)).added) == 3
            await base.aadd("The harbour is closed.", source="note")
            assert (await base.aquery("harbour"))[0].source == "note:1-1"
            assert len(await base.alist_all()) == 4
            assert await base.aremove("note") == 1

    asyncio.run(run())
