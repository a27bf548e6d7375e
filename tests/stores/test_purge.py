"""What is purged leaves no word behind, whoever else had seen it; and a few things that a session must survive."""

import asyncio
from base64 import b32encode
from collections.abc import Iterator
from hashlib import blake2b

import pytest

from loom import Loom, Message, Reasoning, Text, ToolCall, ToolResult
from loom.conversation.identity import _hash
from loom.stores.doctor import examine
from tests.stores.history import open_loom, select

SECRET = "the secret word is heddle " * 200


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def words(loom: Loom) -> str:
    """Everything in the store that somebody said."""
    columns = {"nodes": "body", "records": "data", "handles": "data", "views": "data", "sessions": "head || asides || title"}
    return "".join(
        str(value) for table, column in columns.items() for (value,) in select(loom.store.database, f"SELECT {column} FROM {table}")
    )


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
    thought = Message("assistant", (Reasoning(SECRET, "openai"), ToolCall("an id that no wire takes", "read", "{}")))
    session.append("one", thought, Message("tool", (ToolResult("an id that no wire takes", (Text("ok"),)),)))
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


@pytest.mark.parametrize("size", [15, 20])
def test_ids_are_base_32(size: int) -> None:
    for text in ("", "a", "糸", "half \ud83e", *(str(n) for n in range(100))):
        digest = blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()
        assert _hash(text, size) == b32encode(digest).decode().lower()
