"""What is purged leaves no word behind, whoever else had seen it; and a few things that a session
must survive.
"""

import asyncio
from base64 import b32encode
from collections.abc import Iterator
from hashlib import blake2b

import pytest

from loom import Loom, Message, Reasoning, Text, ToolCall, ToolResult
from loom.conversation.identity import _hash
from loom.conversation.tree import Reference, TreeHead
from loom.stores.health.doctor import examine
from tests.stores.history import WORDS, live, open_loom, select

SECRET = "the secret word is heddle " * 200


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def words(loom: Loom) -> str:
    """Everything in the store that somebody said."""
    columns = {
        "nodes": "body || author",
        "records": "coalesce(data, '') || author",
        "handles": "data",
        "views": "data",
    }
    columns |= {
        "sessions": "head || asides || title",
        "trees": "title || data",
        "states": "name || data",
    }
    return "".join(
        str(value)
        for table, column in columns.items()
        for (value,) in select(loom.store.database, f"SELECT {column} FROM {table}")
    )


def test_nothing_is_left_when_all_are_purged(loom: Loom) -> None:
    live(loom, 2, 40, purges=2)
    for row in loom.sessions():
        loom.session(row.id).purge()
    left = words(loom)
    # ids may hold short ones
    assert [word for word in WORDS if word in left and (len(word) > 4 or not word.isascii())] == []
    assert list(examine(loom.store)) == []


def test_what_another_session_saw_and_left_is_purged_from_its_views_too(loom: Loom) -> None:
    session = loom.new()
    session.append("one", Message("assistant", (Text(SECRET),)), "two")
    fork = session.fork()
    asyncio.run(fork.prepare(window=900, reserve_output=100))
    fork.switch(session.path[0].id)
    assert "heddle" in words(loom)
    session.purge()
    assert "heddle" not in words(loom)
    assert list(examine(loom.store)) == []


def test_the_last_that_holds_a_message_takes_it_along(loom: Loom) -> None:
    session = loom.new()
    session.append(SECRET)
    fork, second = session.fork(), session.fork()
    assert [one.purge() for one in (session, fork)] == [(0, 1), (0, 1)]
    assert "heddle" in words(loom)
    assert second.purge() == (1, 0)
    assert "heddle" not in words(loom)


def test_what_repair_changed_before_it_was_cut_is_purged(loom: Loom) -> None:
    session = loom.new()
    thought = Message(
        "assistant",
        (Reasoning(SECRET, "openai"), ToolCall("an id that no wire takes", "read", "{}")),
    )
    session.append(
        "one", thought, Message("tool", (ToolResult("an id that no wire takes", (Text("ok"),)),))
    )
    fork = session.fork()
    asyncio.run(fork.prepare(window=900, reserve_output=100))
    ((handle, kind),) = select(loom.store.database, "SELECT handle, kind FROM handles")
    assert kind == "text"
    assert "heddle" in session.recall(handle)
    fork.switch(session.path[0].id)
    session.purge()
    assert "heddle" not in words(loom)
    assert list(examine(loom.store)) == []


def test_an_answer_is_paid_for_once_however_it_came_in(loom: Loom) -> None:
    answer = {
        "choices": [{"message": {"role": "assistant", "content": "yes"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 1},
    }
    session = loom.new()
    session.append("one", Message("assistant", (Text("yes"),)))
    for _ in range(2):
        session.switch(session.path[0].id)
        session.absorb(answer)
        assert session.row.usage.prompt == 10
    assert list(examine(loom.store)) == []


def test_a_request_can_be_prepared_after_going_far_back(loom: Loom) -> None:
    session = loom.new()
    session.append(*(f"message {n} {'word ' * 50}" for n in range(40)))
    asyncio.run(session.prepare(window=900, reserve_output=100))
    for at in (3, 0):
        session.switch(session.path[at].id)
        context = asyncio.run(session.prepare(window=900, reserve_output=100))
        assert f"message {at} " in str(context.openai())


# ── trees
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_go_with_the_session_that_wrote_them_and_what_they_stood_on_stays(
    loom: Loom,
) -> None:
    tree = loom.new_tree("Scarf")
    one, two = (tree.say(word) for word in ("one", "two"))
    tree.bookmark(one.id, "heddle", agent="ann")
    tree.link(one.id, two.id, "heddle too", agent="ann")
    tree.link(two.id, one.id, "see above")
    ann = tree.session("ann")
    asyncio.run(tree.session("").prepare())
    ann.purge()
    assert "heddle" not in words(loom)
    marks = tree.marks(one)
    assert (marks.flags.bookmarked, marks.flags.label) == (True, "")
    assert [(link.target, link.label) for link in marks.links] == [(two.id, "")]
    assert tree.marks(two).links[0].label == "see above"
    assert list(examine(loom.store)) == []


def test_what_a_tree_says_of_itself_goes_with_the_last_of_its_sessions(loom: Loom) -> None:
    tree = loom.new_tree(
        "heddle", head=TreeHead(mode="buffer", description="heddle", system_context="heddle")
    )
    tree.say("one")
    ann = tree.session("ann")
    tree.session("").purge()
    assert loom.tree(tree.id).head.description == "heddle"
    ann.purge()
    assert "heddle" not in words(loom)
    assert loom.tree(tree.id).head == TreeHead(mode="buffer")
    assert list(examine(loom.store)) == []


def test_what_a_session_has_at_hand_goes_with_it(loom: Loom) -> None:
    tree = loom.new_tree(head=TreeHead(mode="buffer"))
    session = tree.session()
    session.draft("heddle")
    loom.store.states.put(session.row.key, "stash", {"heddle": '{"text":"heddle"}'}, loom.now())
    session.purge()
    assert "heddle" not in words(loom)
    assert list(examine(loom.store)) == []


@pytest.mark.parametrize("how", ["annotation", "version", "source", "source of another tree"])
def test_what_was_read_beside_a_path_is_purged_from_views_and_texts(loom: Loom, how: str) -> None:
    tree = loom.new_tree(head=TreeHead(mode="buffer" if how == "version" else "dialogue"))
    one = tree.say("one")
    ann = tree.session("ann")
    if how == "annotation":
        tree.exclude(tree.annotate(one.id, SECRET, agent="ann").id, on=False, agent="ann")
    elif how == "version":
        tree.edit(one.id, SECRET, agent="ann")
    elif how == "source":
        secret = tree.say(SECRET, after="", agent="ann")
        tree.say("two", sources=[Reference(secret.id, "context")], agent="")
    else:
        other = loom.new_tree()
        secret = other.say(SECRET)
        tree.say("two", sources=[Reference(secret.id, "context", other.id)])
        ann = other.session()
    reader = tree.session("")
    context = asyncio.run(reader.prepare(window=700, reserve_output=100))
    assert "heddle" in str(context.openai())
    handles = [handle for item in context.report.items for handle in item.handles]
    assert any("heddle" in reader.recall(handle) for handle in handles)
    ann.purge()
    assert "heddle" not in words(loom)
    assert "heddle" not in str(
        asyncio.run(tree.session("").prepare(window=700, reserve_output=100)).openai()
    )
    assert list(examine(loom.store)) == []


def test_a_purged_remark_is_still_a_remark(loom: Loom) -> None:
    tree = loom.new_tree()
    one = tree.say("one")
    remark = tree.annotate(one.id, "heddle", agent="ann")
    tree.bookmark(remark.id, "heddle")
    tree.session("ann").purge()
    assert "heddle" not in words(loom)
    assert tree.marks(remark).edge_mark.edge == "annotation"
    assert not tree.marks(remark).flags.bookmarked
    assert tree.ends() == [one.seq]
    assert list(examine(loom.store)) == []


def test_what_nobody_stands_on_any_more_goes_with_the_next_purge(loom: Loom) -> None:
    session = loom.new()
    session.append("one", SECRET)
    fork = session.fork()
    session.purge()
    fork.switch(fork.path[0].id)
    assert "heddle" in words(loom)
    fork.purge()
    assert "heddle" not in words(loom)


@pytest.mark.parametrize("size", [15, 20])
def test_ids_are_base_32(size: int) -> None:
    for text in ("", "a", "糸", "half \ud83e", *(str(n) for n in range(100))):
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()
        assert _hash(text, size) == b32encode(digest).decode().lower()
