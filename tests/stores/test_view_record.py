"""What is stored of a last request: the names in it stay, older records are read, later ones begin
an epoch.
"""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from loom.context.policy import Policy, find_policy
from loom.context.quotes import Quote
from loom.context.report import Item
from loom.context.request import Context
from loom.engine.sessions import Session
from loom.engine.views import restore_view, store_view
from loom.stores.health.doctor import examine
from loom.stores.view_record import VIEW_VERSION, StoredView, decode_view, encode_view
from loom.stores.views import digest_of
from tests.stores.history import open_loom, select

pytestmark = pytest.mark.sqlite_first

WINDOW = {"window": 900, "reserve_output": 100, "model": "gpt-4o"}


PLAIN = replace(find_policy("default"), name="plain", cover=0.0)  # markers, and no covers


def ask(session: Session, policy: Policy | str = "default") -> Context:
    return asyncio.run(session.prepare(policy=policy, **WINDOW))


def fill(session: Session) -> None:
    for n in range(40):
        session.append({"role": "user", "content": f"Question {n} about page_{n}.md. " * 5})
        session.append({"role": "assistant", "content": f"Answer {n}: see page_{n}.md. " * 5})


def rewrite(loom: Any, change: Any) -> None:
    """Change what is stored of the newest request, as another version of this program would have
    written it.
    """
    rows = select(loom.store.database, "SELECT session, epoch, data FROM views")
    with loom.store.database.write() as writer:
        for session, epoch, data in rows:
            record = json.loads(data)
            change(record)
            made = json.dumps(record)
            sql = "UPDATE views SET data = $1, digest = $2 WHERE session = $3 AND epoch = $4"
            writer.all(sql, made, digest_of(made), session, epoch)


def be_unversioned(record: dict[str, Any]) -> None:
    """As it was before there were versions: the values in memory, field by field."""
    del record["version"]
    record |= {"node": 0, "session": 0}
    record["epoch"] |= {"seen": 0, "history": None, "hash": "", "archive": None, "told": []}


def be_of_version_1(record: dict[str, Any]) -> None:
    """As it was when a cover was its text."""
    record["version"] = 1
    for piece in record["epoch"]["pieces"]:
        quotes = piece.pop("quotes", [])
        for message in piece["messages"] if quotes else []:
            message["parts"][0]["text"] += " In part, they said:\n[1] user\nQuestion 0"


def be_unjudged(record: dict[str, Any]) -> None:
    """As it was when a quote had no more than its lines."""
    for piece in record["epoch"]["pieces"]:
        for quote in piece.get("quotes", []):
            del quote[6:]


def be_later(record: dict[str, Any]) -> None:
    record["version"] = VIEW_VERSION + 1


def test_the_names_in_a_record_stay(address: str) -> None:
    with open_loom(address) as loom:
        session = loom.new()
        fill(session)
        ask(session)
        [(data,)] = select(loom.store.database, "SELECT data FROM views")
    record = json.loads(data)
    assert record["version"] == 2
    assert sorted(record) == [
        "as_of", "epoch", "given", "holes", "left", "map", "memory", "of", "positions", "ranges",
        "ratio", "shape", "shown", "summaries", "texts",
        "told", "total", "undone", "version",
    ]  # fmt: skip
    epoch = record["epoch"]
    assert sorted(epoch) == [
        "before_hash",
        "given_up",
        "head_hash",
        "input_window",
        "number",
        "pieces",
        "pins",
        "policy",
        "tools",
        "widened",
    ]
    cut = next(piece for piece in epoch["pieces"] if piece["messages"])
    assert sorted(cut) == ["items", "messages", "quotes", "span"]
    place, voice, speaker, about, lines, is_speech, coined, novelty = cut["quotes"][-1]
    assert (type(place), voice, speaker, about, is_speech) == (int, "user", "user", "", True)
    assert (coined, novelty) == (None, [])
    said = f"Question {place // 2} about page_{place // 2}.md. " * 5
    assert lines == [["user", said.strip()]]
    assert sorted(cut["span"]) == ["start", "stop"]
    assert set(cut["items"][0]) == set(Item.__struct_fields__)
    assert sorted(record["left"][0][2]) == ["answers", "exchanges", "messages", "own", "tokens"]
    assert encode_view(decode_view(data)) == data
    again = restore_view(StoredView(record=decode_view(data), node=1, session=2, seen=3, hash="h"))
    assert store_view(again) == StoredView(
        record=decode_view(data), node=1, session=2, seen=3, hash="h"
    )


@pytest.mark.parametrize("change", [be_unversioned, be_of_version_1])
def test_a_view_of_an_older_version_without_covers_goes_on(address: str, change: Any) -> None:
    with open_loom(address) as loom:
        session = loom.new()
        fill(session)
        before = ask(session, PLAIN)
        assert "dropped" in {item.action for item in before.report.items}
        rewrite(loom, change)
        name = session.id
    with open_loom(address, salt="later") as loom:
        after = ask(loom.session(name), PLAIN)
        assert after.report.epoch_reason == "continued"
        assert after.openai() == before.openai()
        assert [problem for problem in examine(loom.store) if not problem.note] == []


def test_a_cover_from_before_quotes_were_judged_goes_on_and_is_merged(address: str) -> None:
    with open_loom(address) as loom:
        session = loom.new()
        fill(session)
        before = ask(session)
        assert "covered" in {item.action for item in before.report.items}
        rewrite(loom, be_unjudged)
        name = session.id
    with open_loom(address, salt="later") as loom:
        session = loom.session(name)
        after = ask(session)
        assert (after.report.epoch_reason, after.openai()) == ("continued", before.openai())
        for epochs in (1, 2):
            fill(session)
            assert ask(session).report.epoch == after.report.epoch + epochs
        assert [problem for problem in examine(loom.store) if not problem.note] == []


@pytest.mark.parametrize(
    "change",
    [
        be_later,
        be_of_version_1,
        be_unversioned,
        lambda record: record.update(epoch={}),
        lambda record: record.pop("ranges"),
    ],
)
def test_a_view_that_cannot_be_read_begins_an_epoch(address: str, change: Any) -> None:
    with open_loom(address) as loom:
        session = loom.new()
        fill(session)
        before = ask(session)
        rewrite(loom, change)
        [problem] = [problem for problem in examine(loom.store) if not problem.note]
        assert (problem.what, "DELETE FROM views" in problem.remedy) == ("it cannot be read", True)
        name = session.id
    with open_loom(address, salt="later") as loom:
        after = ask(loom.session(name))
        assert (after.report.epoch, after.report.epoch_reason) == (
            1,
            "what the store has of the last request is damaged",
        )
        assert after.openai() == before.openai()
        assert ask(loom.session(name)).report.epoch_reason == "continued"


def test_a_cover_is_stored_as_its_quotes_and_stands_again_word_for_word(address: str) -> None:
    with open_loom(address) as loom:
        session = loom.new()
        fill(session)
        before = ask(session)
        name = session.id
    with open_loom(address, salt="later") as loom:
        after = ask(loom.session(name))
        assert after.report.epoch_reason == "continued"
        assert after.openai() == before.openai()
        assert quotes_of(after) == quotes_of(before) != []


def quotes_of(context: Context) -> list[Quote]:
    return [quote for piece in context.continuation.pieces for quote in piece.quotes]
