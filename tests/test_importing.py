"""Any run of any file becomes a session that says the same, in batches, all of it or nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from loom import Conversation, Loom, Message, Text, read_runs, read_trees
from loom.conversation.tree import Tree, TreeNode
from loom.engine.importing import Importer, import_run
from loom.errors import TranscriptError
from loom.stores import ImportedSession
from loom.stores.health.doctor import examine
from loom.transcripts.branching import current_branch
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


# None twice


def bring(loom: Loom, run: Run, file: str = "a.jsonl") -> ImportedSession:
    made = Importer(loom).import_run(run, file)
    assert made is not None
    return made


def texts(loom: Loom, session: str) -> list[str]:
    return [node.message.text for node in loom.session(session).path if node.message]


def test_a_run_is_imported_once_whatever_its_file_is_called(loom: Loom) -> None:
    run = run_of([user("one"), user("two")])
    first = bring(loom, run)
    assert (first.messages, first.new) == (2, 2)
    for file in ("a.jsonl", "b.jsonl"):
        assert bring(loom, run, file) == ImportedSession(first.session, 2, 0)
    assert len(loom.sessions()) == 1
    assert Importer(loom).import_run(run_of([]), "a.jsonl") is None
    assert list(examine(loom.store)) == []
    assert len(list(loom.export())) == 6, "where it came from stays in its store"


def test_a_file_that_grew_continues_its_session(loom: Loom) -> None:
    messages = [Message("system", (Text("be brief"),)), *(user(f"{n}") for n in range(5))]
    importer = Importer(loom)
    first = importer.import_run(run_of(messages[:3]), "a.jsonl")
    assert first is not None
    again = importer.import_run(run_of(messages), "a.jsonl")
    assert again == ImportedSession(first.session, 6, 3)
    assert texts(loom, first.session) == ["0", "1", "2", "3", "4"]
    assert bring(loom, run_of(messages)).new == 0
    assert list(examine(loom.store)) == []


def test_a_file_that_grew_after_somebody_continued_here_is_a_session_of_its_own(
    loom: Loom,
) -> None:
    first = bring(loom, run_of([user("one")]))
    loom.session(first.session).append("mine")
    second = bring(loom, run_of([user("one"), user("two")]))
    assert second.session != first.session
    assert texts(loom, first.session) == ["one", "mine"]
    assert texts(loom, second.session) == ["one", "two"]


def test_another_file_that_begins_alike_is_another_session(loom: Loom) -> None:
    first = bring(loom, run_of([user("one")]), "a.jsonl")
    second = bring(loom, run_of([user("one"), user("two")]), "b.jsonl")
    third = bring(loom, run_of([user("ONE"), user("two")]), "a.jsonl")
    assert len({first.session, second.session, third.session}) == 3


def test_other_projects_and_agents_import_it_too(address: str) -> None:
    run = run_of([user("one")])
    with open_loom(address) as loom:
        bring(loom, run)
    for scope in ({"project": "other"}, {"tenant": "other"}, {"agent": "other"}):
        with Loom.open(address, **scope) as loom:
            assert bring(loom, run).new == 1
            assert bring(loom, run).new == 0


def test_what_was_purged_may_be_imported_again(loom: Loom) -> None:
    run = run_of([user("one")])
    first = bring(loom, run)
    loom.session(first.session).purge()
    assert bring(loom, run).session != first.session


def test_a_conversation_with_branches_is_imported_once_with_all_of_them(loom: Loom) -> None:
    nodes = (
        TreeNode(id="a", message=user("one")),
        TreeNode(id="b", message=user("two"), parent="a"),
        TreeNode(id="c", message=user("three"), parent="a"),
    )
    tree = Tree(id="t", nodes=nodes, title="Looms")
    first = Importer(loom).import_tree(tree)
    assert first is not None
    assert (first.messages, first.new) == (3, 3)
    assert texts(loom, first.session) == ["one", "three"]
    assert Importer(loom).import_tree(tree) == ImportedSession(first.session, 3, 0)
    assert Importer(loom).import_tree(Tree(id="u", nodes=())) is None
    nameless = Importer(loom).import_tree(Tree(id="v", nodes=nodes))
    assert nameless is not None
    assert loom.session(nameless.session).row.title == "one"


def test_messages_keep_the_times_at_which_they_were_said(loom: Loom) -> None:
    [run] = read_runs(FIXTURES / "cc_parallel_thinking.jsonl")
    [tree] = read_trees(FIXTURES / "cc_parallel_thinking.jsonl")
    made = bring(loom, run)
    told = [node.created for node in loom.session(made.session).path]
    assert told == [node.created for node in current_branch(tree)]
    assert all(told)
    [codex] = read_runs(FIXTURES / "codex_simple.jsonl")
    assert codex.created
    made = bring(loom, codex)
    assert {node.created for node in loom.session(made.session).path} == {codex.created}
    before = loom.now()
    made = bring(loom, run_of([user("nobody knows when")]))
    assert all(node.created >= before for node in loom.session(made.session).path)


@needs_shared
def test_a_long_session_keeps_its_times(loom: Loom) -> None:
    [run] = read_runs(AGENTS / "pi_large_session.jsonl")
    [tree] = read_trees(AGENTS / "pi_large_session.jsonl")
    assert list(run.dated_messages()) == [
        (node.message, node.created) for node in current_branch(tree)
    ]
