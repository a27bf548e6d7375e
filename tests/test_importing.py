"""Any run of any file becomes a session that says the same, in batches, all of it or nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from loom import Conversation, Loom, Message, Text, read_runs
from loom.engine.importing import import_run
from loom.errors import TranscriptError
from loom.stores.health.doctor import examine
from loom.transcripts.runs import Run, make_run
from tests import strategies as our
from tests.shared import AGENTS, FIXTURES, examples, needs_shared
from tests.stores.conftest import address as address
from tests.stores.conftest import server as server
from tests.stores.history import open_loom, select

FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.suffix in (".json", ".jsonl") and ".meta" not in path.name
)
SHARED = sorted(AGENTS.iterdir()) if AGENTS.is_dir() else []


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def run_of(messages: list[Message], name: str = "") -> Run:
    return make_run(0, "test", "openai", Conversation(messages=tuple(messages)), name)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def same(loom: Loom, path: Path) -> int:
    count = 0
    for run in read_runs(str(path)):
        session = import_run(loom, run)
        assert session.conversation() == run.conversation()
        assert loom.session(session.id).conversation() == run.conversation()
        assert session.row.status == "active"
        count += 1
    return count


def test_every_recording_becomes_what_it_says(loom: Loom) -> None:
    assert sum(same(loom, path) for path in FILES) >= len(FILES)
    assert list(examine(loom.store)) == []


@needs_shared
@pytest.mark.parametrize("path", SHARED, ids=lambda path: path.name)
def test_every_shared_run_becomes_what_it_says(loom: Loom, path: Path) -> None:
    assert same(loom, path)
    assert list(examine(loom.store)) == []


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(conversation=our.conversations())
def test_any_conversation_becomes_what_it_says(conversation: Conversation) -> None:
    with open_loom(":memory:") as loom:
        session = import_run(loom, make_run(0, "test", "openai", conversation))
        assert session.conversation() == conversation


def test_system_messages_keep_their_place(loom: Loom) -> None:
    system = [Message("system", (Text(f"aside {n}"),)) for n in range(3)]
    run = run_of([user("one"), system[0], system[1], user("two"), system[2]])
    session = import_run(loom, run)
    assert [node.message and node.message.text for node in session.path] == [
        "one",
        "aside 0",
        "aside 1",
        "two",
        "aside 2",
    ]
    assert session.conversation() == run.conversation()
    session.append("three")
    assert session.conversation().messages[4:] == (system[2], user("three"))


def test_a_run_without_messages_becomes_a_session_without_any(loom: Loom) -> None:
    session = import_run(loom, run_of([]))
    assert (session.row.status, session.cursor, session.row.title) == ("active", None, "")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("", "the first request"),
        ("task 7", "task 7"),
        ("a\nb\x00", "a"),
        ("x" * 300, "x" * 59 + "…"),
        ("half \ud83e pair", "half   pair"),
    ],
)
def test_the_title_is_the_name_of_the_run_or_its_first_request(
    loom: Loom, name: str, title: str
) -> None:
    messages = [
        Message("assistant", (Text("hello"),)),
        user("the first request\nand more"),
        user("the second"),
    ]
    assert import_run(loom, run_of(messages, name)).row.title == title


def test_batches_make_one_session(loom: Loom) -> None:
    said = [
        Message("system" if n % 7 == 3 else "user", (Text(f"message {n}"),)) for n in range(2300)
    ]
    seen: list[tuple[int, str]] = []
    run = run_of(said)
    session = import_run(loom, run, lambda done: seen.append((done, loom.sessions()[0].status)))
    assert [done for done, _ in seen] == [1000, 2000, 2300]
    assert {status for _, status in seen} == {"importing"}
    assert session.conversation() == run.conversation()
    assert [node.depth for node in session.path] == list(range(len(session.path)))
    assert list(examine(loom.store)) == []


def test_others_write_between_two_batches(loom: Loom, address: str) -> None:
    with open_loom(address, project="other") as other:
        session = other.new()
        import_run(
            loom,
            run_of([user(f"message {n}") for n in range(2300)]),
            lambda done: session.append(f"at {done}"),
        )
        assert [node.message and node.message.text for node in session.path] == [
            "at 1000",
            "at 2000",
            "at 2300",
        ]


def test_a_run_that_breaks_off_leaves_nothing(loom: Loom) -> None:
    def broken() -> Iterator[Message]:
        yield from (user(f"message {n}") for n in range(1500))
        raise TranscriptError("line 1501: not valid JSON")

    run = Run(
        number=0, format="test", wire="openai", head=Conversation(messages=()), messages=broken
    )
    before = loom.new("before")
    with pytest.raises(TranscriptError, match="line 1501"):
        import_run(loom, run)
    assert [row.id for row in loom.sessions()] == [before.id]
    for table, count in {"trees": 1, "sessions": 1, "nodes": 0}.items():
        assert select(loom.store.database, f"SELECT count(*) FROM {table}")[0][0] == count


def test_a_listener_hears_of_it_once(loom: Loom) -> None:
    heard: list[tuple[str, object]] = []
    loom.listen(lambda event: heard.append((event.kind, event.what.get("messages"))))
    import_run(loom, run_of([user("one"), user("two")]))
    assert heard == [("created", 2)]
