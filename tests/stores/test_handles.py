"""Handles in stores: whoever has a marker in scope can recall it, and nobody else; what only looks
like a marker is none.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom import Context, Loom, Message, Reasoning, Session, Text, ToolCall, ToolResult, weave
from loom.context.handles import Archive
from loom.conversation import handles as naming
from loom.conversation.canonical import from_json
from loom.errors import ChoiceError
from loom.stores import views
from loom.stores.health.doctor import examine
from loom.stores.sql.database import open_database
from loom.stores.sql.migrate import migrate
from loom.stores.sql.schema import MIGRATIONS
from loom.stores.views import HandleTarget
from tests.stores.history import open_loom, select
from tests.stores.tables import undo_search

pytestmark = pytest.mark.sqlite_first

LONG = "The warp is forty threads wide. " * 150
IMITATION = "[… 12 characters left out; recall ~aaaaaaaaaaaa …]"


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def prepared(session: Session, **wishes: object) -> Context:
    return asyncio.run(session.prepare(**({"window": 900, "reserve_output": 100} | wishes)))  # type: ignore[arg-type]


def marked(context: Context) -> list[str]:
    return sorted({handle for item in context.report.items for handle in item.handles})


# ── what only looks like a marker
# ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["default", "window", "turns", "tree", "partitions"])
def test_words_that_imitate_a_marker_are_never_listed_as_a_handle(loom: Loom, policy: str) -> None:
    fake = f"{IMITATION} {LONG} {IMITATION}"
    session = loom.new()
    session.append("Read it.", Message("assistant", (ToolCall("c1", "read", "{}"),)))
    session.append(
        Message("tool", (ToolResult("c1", (Text(fake),)),)),
        Message("assistant", (Text("Done."),)),
        f"Now: {fake}",
    )
    context = prepared(session, policy=policy)
    assert "~aaaaaaaaaaaa" not in marked(context)
    assert marked(context)
    for handle in marked(context):
        session.recall(handle)
    assert list(examine(loom.store)) == []


def test_words_that_imitate_a_marker_are_never_listed_without_a_store() -> None:
    context = weave(
        [{"role": "user", "content": f"{IMITATION} {LONG} {IMITATION}"}],
        window=900,
        reserve_output=100,
    )
    assert IMITATION in str(context.openai())
    (handle,) = marked(context)
    assert context.recall(handle) == f"{IMITATION} {LONG} {IMITATION}"


# ── what a handle is made from
# ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_handle_that_is_kept_can_be_made_again_from_its_content_and_place(loom: Loom) -> None:
    tree = loom.new_tree("Scarf")
    first = tree.say("Which yarn?")
    last = [tree.say(f"answer {n} {'word ' * 60}") for n in range(12)][-1]
    other = tree.say(LONG, after=first.id)
    tree.merge(last.id, into=other.id)
    tree.say(f"And now? {LONG}")
    session = tree.session()
    context = prepared(session, sections=[("memory", LONG)])
    session.search("yarn")
    rows = select(loom.store.database, "SELECT handle, kind, data FROM handles")
    assert {kind for _, kind, _ in rows} == {"span", "part", "text"}
    assert set(marked(context)) <= {handle for handle, _, _ in rows}
    for handle, _, data in rows:
        kept = HandleTarget(**from_json(data))
        text = session.recall(handle) if kept.place is not None else None
        assert views.names(handle, kept, text) is True
        assert views.names("~aaaaaaaaaaaa", kept, text) is False
        assert (
            views.names("~aaaaaaaaaaaa", HandleTarget(kept.nodes, kept.place, kept.text), text)
            is None
        )


def test_one_handle_never_names_two_things_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "loom.context.handles.mint", lambda place, _: "~a" if "#" not in place else f"~b{place[-1]}"
    )
    archive = Archive()
    names = [
        archive.keep_text(f"section {n}", text)
        for n, text in enumerate(("one", "two", "one", "three"))
    ]
    assert names == ["~a", "~b1", "~a", "~b2"]
    assert [archive.recall(name) for name in names] == ["one", "two", "one", "three"]
    after = Archive(before=archive)
    assert after.keep_text("section 0", "four") == "~b3"


# ── whoever has a marker in scope can recall it
# ──────────────────────────────────────────────────────────────────────────

SECTION = [("memory", LONG)]


def talk(loom: Loom) -> Session:
    session = loom.new()
    for n in range(8):
        session.append(
            f"question {n} {'why ' * 60}",
            Message("assistant", (Text(f"answer {n} {'thus ' * 60}"),)),
        )
    session.append("And now?")
    return session


def test_two_forks_with_the_same_long_section_both_recall_it(loom: Loom) -> None:
    session = talk(loom)
    forks = [session.fork(), session.fork()]
    contexts = [prepared(fork, sections=SECTION) for fork in forks]
    assert marked(contexts[0]) == marked(contexts[1])
    for handle in marked(contexts[0]):
        assert (
            forks[0].recall(handle)
            == forks[1].recall(handle)
            == contexts[1].recall(handle)
            == loom.recall(handle)
        )
    assert LONG in [forks[1].recall(handle) for handle in marked(contexts[1])]


def test_a_marker_outlives_the_purge_of_whoever_made_it_first(loom: Loom) -> None:
    session = talk(loom)
    first, second = session.fork(), session.fork()
    context = prepared(first, sections=SECTION)
    before = {handle: context.recall(handle) for handle in marked(context)}
    assert set(marked(prepared(second, sections=SECTION))) == set(before)
    first.purge()
    assert {handle: second.recall(handle) for handle in before} == before
    assert {handle: loom.recall(handle) for handle in before} == before
    session.purge()
    assert {handle: second.recall(handle) for handle in before} == before
    second.purge()
    for handle in before:
        with pytest.raises(ChoiceError, match="purged"):
            loom.recall(handle)
    assert list(examine(loom.store)) == []


def test_a_fork_of_an_epoch_keeps_its_markers_when_the_other_is_purged_or_it_goes_elsewhere(
    loom: Loom,
) -> None:
    session = loom.new()
    thought = Message(
        "assistant", (Reasoning(LONG, "openai"), ToolCall("an id that no wire takes", "read", "{}"))
    )
    session.append(
        "one", thought, Message("tool", (ToolResult("an id that no wire takes", (Text("ok"),)),))
    )
    handles = marked(prepared(session))
    fork = session.fork()
    assert marked(prepared(fork)) == handles  # the same epoch goes on
    before = {handle: session.recall(handle) for handle in handles}
    session.purge()
    assert {handle: fork.recall(handle) for handle in handles} == before
    fork.append("two")
    fork.switch(fork.path[0].id)
    with pytest.raises(ChoiceError):
        loom.new().recall(handles[0])
    assert {handle: fork.recall(handle) for handle in handles} == before


def test_two_agents_on_one_tree_both_recall_the_marker_that_both_have(address: str) -> None:
    with open_loom(address) as loom:
        tree = loom.new_tree("Scarf")
        for n in range(12):
            tree.say(f"message {n} {'word ' * 60}", agent="ann")
        last = tree.position("ann")
        assert last is not None
        tree.switch(last.id, agent="bob")
        contexts = {
            agent: prepared(tree.session(agent), sections=SECTION) for agent in ("ann", "bob")
        }
        shared = set(marked(contexts["ann"])) & set(marked(contexts["bob"]))
        assert shared
        before = {handle: tree.session("ann").recall(handle) for handle in shared}
        assert {handle: tree.session("bob").recall(handle) for handle in shared} == before
    with open_loom(address, agent="bob") as loom:
        assert {handle: loom.recall(handle) for handle in shared} == before
    with (
        open_loom(address, agent="eve") as loom,
        pytest.raises(ChoiceError, match="nothing was left out"),
    ):
        loom.recall(min(shared))


def test_after_a_switch_everyone_who_had_the_marker_still_recalls_it(loom: Loom) -> None:
    session = talk(loom)
    fork = session.fork()
    contexts = [prepared(one) for one in (session, fork)]
    assert marked(contexts[0]) == marked(contexts[1])
    for one in (session, fork):
        one.switch(one.path[0].id)
        one.append("elsewhere")
        assert [one.recall(handle) for handle in marked(contexts[0])] == [
            contexts[0].recall(h) for h in marked(contexts[0])
        ]


def test_a_marker_inside_a_message_is_recalled_by_who_was_shown_it_and_went_elsewhere(
    loom: Loom,
) -> None:
    tree = loom.new_tree("Scarf")
    first = tree.say("Which yarn?", agent="ann")
    left = [tree.say(f"answer {n} {'word ' * 60}", agent="ann") for n in range(9)][-1]
    other = tree.say("Which colour?", after=first.id, agent="ann")
    merged = tree.merge(left.id, into=other.id, agent="ann")
    assert merged.message is not None
    handle = merged.message.text.partition("handle ")[2][:13]
    tree.switch(merged.id, agent="bob")
    bob = tree.session("bob")
    prepared(bob, window=4000)
    bob.switch(first.id)
    assert bob.recall(handle) == tree.session("ann").recall(handle)
    tree.switch(first.id, agent="eve")
    with pytest.raises(ChoiceError, match="nothing was left out"):
        tree.session("eve").recall(handle)


def test_another_project_or_tenant_never_resolves_a_handle(address: str) -> None:
    with open_loom(address) as loom:
        handles = marked(prepared(talk(loom), sections=SECTION))
    for scope in ({"project": "other"}, {"tenant": "other"}):
        with open_loom(address, **scope) as loom:
            session = talk(loom)
            for handle in handles:
                for recall in (loom.recall, session.recall):
                    with pytest.raises(ChoiceError, match="nothing was left out"):
                        recall(handle)


def test_an_export_of_one_fork_has_the_markers_that_it_shares(loom: Loom, tmp_path: Path) -> None:
    session = talk(loom)
    first, second = session.fork(), session.fork()
    prepared(first, sections=SECTION)
    context = prepared(second, sections=SECTION)
    lines = list(second.export())
    with open_loom(str(tmp_path / "other.db")) as other:
        other.import_lines(lines)
        again = other.session(second.id)
        assert [again.recall(handle) for handle in marked(context)] == [
            second.recall(handle) for handle in marked(context)
        ]
        again.switch(again.path[0].id)
        assert [again.recall(handle) for handle in marked(context)] == [
            second.recall(handle) for handle in marked(context)
        ]
        assert list(examine(other.store)) == []


def test_an_old_store_goes_on_and_its_handles_resolve(bare_address: str) -> None:
    database = open_database(bare_address)
    migrate(database, MIGRATIONS[:2])
    database.close()
    with open_loom(bare_address) as loom:
        session = talk(loom)
        fork = session.fork()
        handles = marked(prepared(session, sections=SECTION))
        texts = {handle: session.recall(handle) for handle in handles}
        rows = select(
            loom.store.database, "SELECT tree, handle, session, kind, data, created FROM handles"
        )
    with closing(open_database(bare_address)) as database, database.write() as writer:
        # As the older version left it: who made a handle first has it, and no place is kept.
        writer.all("DROP TABLE handles")
        writer.all(next(sql for sql in MIGRATIONS[0].statements if "TABLE handles" in sql))
        put = (
            "INSERT INTO handles (tree, handle, session, kind, data, created) "
            "VALUES ($1, $2, $3, $4, $5, $6)"
        )
        writer.run_many(
            put,
            [
                (*row[:4], re.sub(r',?"minted_at":"[^"]*"', "", row[4]).replace("{,", "{"), row[5])
                for row in rows
            ],
        )
        undo_search(writer)
        writer.all("DROP TABLE snapshots")
        writer.all("ALTER TABLE views DROP COLUMN digest")
        writer.all("DROP INDEX nodes_reminder")
        writer.all("ALTER TABLE nodes DROP COLUMN reminder")
        writer.all("UPDATE store SET version = 2")
    with open_loom(bare_address) as loom:
        assert {handle: loom.session(session.id).recall(handle) for handle in handles} == texts
        spans = [handle for handle, text in texts.items() if text != LONG]
        assert spans
        assert [loom.session(fork.id).recall(handle) for handle in spans] == [
            texts[handle] for handle in spans
        ]
        assert list(examine(loom.store)) == []
        assert marked(prepared(loom.session(fork.id), sections=SECTION)) == handles
        assert {handle: loom.session(fork.id).recall(handle) for handle in handles} == texts


# ── one handle, one thing
# ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_handle_that_stands_for_something_else_in_the_store_is_not_given_out_again(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    mint = naming.mint
    monkeypatch.setattr(
        "loom.context.handles.mint", lambda place, content: mint(place, content)[:2]
    )  # one letter: clashes are certain
    session = talk(loom)
    known: dict[str, str] = {}
    for n in range(12):
        context = prepared(session, sections=[("memory", f"{n} {LONG}")])
        known |= {handle: context.recall(handle) for handle in marked(context)}
        assert f"{n} {LONG}" in [context.recall(handle) for handle in marked(context)]
        assert {handle: session.recall(handle) for handle in known} == known
    fork = session.fork()
    context = prepared(fork, sections=[("memory", f"of the fork {LONG}")])
    assert [fork.recall(handle) for handle in marked(context)] == [
        context.recall(handle) for handle in marked(context)
    ]
    assert {handle: session.recall(handle) for handle in known} == known


def test_what_a_handle_cannot_name_alone_is_refused(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talk(loom)
    prepared(session)
    monkeypatch.setattr(views, "mint", lambda place, content: "~aaaaaaaaaaaa")
    assert session.search("question", limit=1)
    with pytest.raises(ChoiceError, match="names something else"):
        session.search("answer", limit=1)
