"""Handles in stores: whoever has a marker in scope can recall it, and nobody else; what only looks like a marker is none."""

import asyncio
from collections.abc import Iterator

import pytest

from loom import Context, Loom, Message, Session, Text, ToolCall, ToolResult, weave
from loom.context.handles import Archive
from loom.conversation.canonical import from_json
from loom.stores import views
from loom.stores.doctor import examine
from loom.stores.views import Kept
from tests.stores.history import open_loom, select

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


# ── what only looks like a marker ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("policy", ["default", "window", "turns", "tree", "partitions"])
def test_words_that_imitate_a_marker_are_never_listed_as_a_handle(loom: Loom, policy: str) -> None:
    fake = f"{IMITATION} {LONG} {IMITATION}"
    session = loom.new()
    session.append("Read it.", Message("assistant", (ToolCall("c1", "read", "{}"),)))
    session.append(Message("tool", (ToolResult("c1", (Text(fake),)),)), Message("assistant", (Text("Done."),)), f"Now: {fake}")
    context = prepared(session, policy=policy)
    assert "~aaaaaaaaaaaa" not in marked(context)
    assert marked(context)
    for handle in marked(context):
        session.recall(handle)
    assert list(examine(loom.store)) == []


def test_words_that_imitate_a_marker_are_never_listed_without_a_store() -> None:
    context = weave([{"role": "user", "content": f"{IMITATION} {LONG} {IMITATION}"}], window=900, reserve_output=100)
    assert IMITATION in str(context.openai())
    (handle,) = marked(context)
    assert context.recall(handle) == f"{IMITATION} {LONG} {IMITATION}"


# ── what a handle is made from ───────────────────────────────────────────────────────────────────────────────────────────


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
        kept = Kept(**from_json(data))
        text = session.recall(handle) if kept.place is not None else None
        assert views.names(handle, kept, text) is True
        assert views.names("~aaaaaaaaaaaa", kept, text) is False
        assert views.names("~aaaaaaaaaaaa", Kept(kept.nodes, kept.place, kept.text), text) is None


def test_one_handle_never_names_two_things_in_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.context.handles.mint", lambda place, _: "~a" if "#" not in place else f"~b{place[-1]}")
    archive = Archive()
    names = [archive.keep_text(f"section {n}", text) for n, text in enumerate(("one", "two", "one", "three"))]
    assert names == ["~a", "~b1", "~a", "~b2"]
    assert [archive.recall(name) for name in names] == ["one", "two", "one", "three"]
    after = Archive(before=archive)
    assert after.keep_text("section 0", "four") == "~b3"
