"""Tasks in a store: one node for each id, records of what became of it, exact labels."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from loom import ChoiceError, Loom
from loom.runtime import Task
from loom.stores.health.doctor import examine

AT = datetime(2026, 1, 28, 9, 30, tzinfo=UTC)


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with Loom.open(address) as opened:
        yield opened
        assert list(examine(opened.store)) == []


def task(content: str, **fields: Any) -> Task:
    return Task(action="execute", parameters={"content": content}, **fields)


def contents(loom: Loom, **where: Any) -> list[str]:
    return [entry.task.content for entry in loom.tasks(**where)]


def test_a_task_delivered_twice_is_one_node_and_two_equal_tasks_are_two(loom: Loom) -> None:
    first = task("Read the file.", task_id="t1")
    entry = loom.add_task(first)
    assert loom.add_task(first) == entry
    other = loom.add_task(task("Read the file.", task_id="t2"))
    assert other.node != entry.node
    assert loom.session(entry.session).path[-1].generation == "t2"
    assert contents(loom) == ["Read the file."] * 2
    assert loom.task("t1") == entry
    assert entry.task == first


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"content": ""},
        {"content": "x" * 5000, "more": [1, {"a": None}]},
        {"content": "half \ud800 and zero \0", "n": 2**70},
        {"content": {"not": "a text"}},
        {"tool_name": "read_file", "arguments": {"path": "a"}, "call_id": "c1"},
        {"tool_name": "read_file", "content": "words", "result": "found"},
    ],
)
@pytest.mark.parametrize(
    "action", ["execute", "node.thinking", "node.tool_call", "node.tool_result", "node.planning"]
)
def test_every_task_is_read_back_as_it_was(
    loom: Loom, action: str, parameters: dict[str, Any]
) -> None:
    given = Task(
        action=action,
        parameters=parameters,
        source_agent="a",
        target_agent="b",
        metadata={"m": 1},
        result={"r": [1]},
        error="no",
        status="failed",
        parent_task_id="p",
        session_id="s",
        created_at=AT,
    )
    loom.add_task(given)
    found = loom.task(given.task_id)
    assert found is not None
    assert found.task == given


def test_the_newest_outcome_wins_however_it_comes(loom: Loom) -> None:
    first = task("Build it.", task_id="t", created_at=AT)
    done = first.replace(
        status="completed", result={"ok": True}, updated_at=AT + timedelta(seconds=5)
    )
    loom.add_task(first)
    assert loom.add_task(done).task.status == "completed"
    assert loom.add_task(first).task == done  # delivered late
    late = first.replace(status="running", updated_at=AT + timedelta(seconds=3))
    assert loom.add_task(late).task == done
    same_time = first.replace(status="running", updated_at=done.updated_at)
    assert loom.add_task(same_time).task == done
    changed = loom.update_task("t", status="failed", error="it broke")
    assert (changed.task.status, changed.task.result) == ("failed", {"ok": True})
    assert changed.task.error == "it broke"
    assert changed.task.updated_at > done.updated_at
    assert len(loom.tasks()) == 1
    with pytest.raises(ChoiceError, match="no task"):
        loom.update_task("nobody", status="failed")
    with pytest.raises(ChoiceError, match="status"):
        loom.update_task("t", status="done")  # type: ignore[arg-type]


def test_a_task_that_is_made_and_delivered_again_undoes_nothing(loom: Loom) -> None:
    def deliver(**fields: Any) -> Task:
        return loom.add_task(task("Do it.", task_id="t", **fields)).task

    deliver(created_at=AT)
    loom.update_task("t", status="completed", result="found")
    for fields in ({}, {"status": "running"}, {"created_at": AT + timedelta(days=9999)}):
        again = deliver(**fields)
        assert (again.status, again.result) == ("completed", "found")
    late = datetime.now(UTC) + timedelta(days=1)
    done = deliver(status="completed", result="better", updated_at=late)
    assert done.result == "better"
    assert deliver(status="failed", error="no", updated_at=late).status == "completed"
    with pytest.raises(ChoiceError, match="other words"):
        loom.add_task(task("Do something else.", task_id="t"))
    assert contents(loom) == ["Do it."]


def test_the_status_says_what_holds_of_an_outcome(loom: Loom) -> None:
    loom.add_task(task("Try.", task_id="t"))
    loom.update_task("t", status="failed", error="timeout")
    done = loom.update_task("t", status="completed", result=42).task
    assert (done.status, done.result, done.error) == ("completed", 42, None)
    again = loom.update_task("t", status="running").task
    assert (again.status, again.result, again.error) == ("running", None, None)
    with pytest.raises(ChoiceError, match="no error"):
        loom.update_task("t", status="completed", error="still")
    assert (
        loom.add_task(
            task(
                "Try.",
                task_id="t",
                status="failed",
                error="no",
                updated_at=AT + timedelta(days=9999),
            )
        ).task.error
        == "no"
    )


def test_an_id_in_two_sessions_is_updated_where_one_says(loom: Loom) -> None:
    for label in ("one", "two"):
        loom.add_task(task(f"in {label}", task_id="t", session_id=label))
    with pytest.raises(ChoiceError, match="several sessions"):
        loom.update_task("t", status="completed")
    loom.update_task("t", session_id="one", status="completed")
    for label, status in (("one", "completed"), ("two", "pending")):
        found = loom.task("t", session_id=label)
        assert found is not None
        assert (found.task.status, found.task.session_id) == (status, label)
    assert loom.task("t", session_id="") is None


def test_a_label_is_matched_exactly_and_a_task_without_one_is_in_the_unnamed_session(
    loom: Loom,
) -> None:
    labels = ["s", "session-1", "session-10", "session", "S", " s", "a\nb", "%", "ß" * 400]
    for label in labels:
        loom.add_task(task(f"in {label!r}", session_id=label))
    loom.add_task(task("unnamed"))
    for label in labels:
        assert contents(loom, session_id=label) == [f"in {label!r}"]
    assert contents(loom) == contents(loom, session_id="") == ["unnamed"]
    for unknown in ("sess", "session-", "session-1 ", "ss"):
        assert contents(loom, session_id=unknown) == []
    assert len(loom.tasks(every_session=True)) == len(labels) + 1
    assert contents(loom, every_session=True, limit=1) == ["unnamed"]
    assert len(loom.sessions()) == len(labels) + 1


def test_two_agents_share_a_label_without_conflict(address: str) -> None:
    with Loom.open(address, agent="a") as first, Loom.open(address, agent="b") as second:
        one = first.add_task(task("of a", session_id="shared", task_id="t"))
        two = second.add_task(task("of b", session_id="shared", task_id="t"))
        assert one.session != two.session
        assert contents(first, session_id="shared") == ["of a"]
        assert contents(second, session_id="shared") == ["of b"]
        with Loom.open(address) as all_agents:
            assert contents(all_agents, session_id="shared") == ["of b", "of a"]
        with Loom.open(address, project="other") as other:
            assert contents(other, session_id="shared") == []
            assert other.task("t") is None


def test_writers_that_meet_make_one_session_and_lose_nothing(address: str) -> None:
    def write(number: int) -> None:
        with Loom.open(address) as loom:
            for n in range(10):
                loom.add_task(task(f"{number}.{n}", task_id=f"{number}.{n}", session_id="s"))
                loom.add_task(task(f"shared {n}", task_id=f"shared {n}", session_id="s"))

    Loom.open(address).close()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Loom.open(address) as loom:
        assert len(loom.sessions()) == 1
        said = contents(loom, session_id="s")
        assert len(said) == len(set(said)) == 50
        for number in range(4):
            own = [text for text in reversed(said) if text.startswith(f"{number}.")]
            assert own == [f"{number}.{n}" for n in range(10)]
        assert list(examine(loom.store)) == []


def test_a_purge_takes_the_tasks_of_a_session_and_its_label(loom: Loom) -> None:
    entry = loom.add_task(task("a secret", session_id="secret label", task_id="t"))
    loom.session(entry.session).purge()
    assert contents(loom, session_id="secret label") == []
    assert loom.task("t") is None
    assert not any("secret" in line for line in loom.export())
    again = loom.add_task(task("new words", session_id="secret label", task_id="t"))
    assert again.session != entry.session
    assert contents(loom, session_id="secret label") == ["new words"]


def test_tasks_and_labels_travel_with_an_export(loom: Loom) -> None:
    given = task("Plan it.", session_id="s", task_id="t", status="running")
    loom.add_task(given)
    loom.update_task("t", status="completed", result="done")
    lines = list(loom.export())
    with Loom.open(":memory:") as other:
        other.import_lines(lines)
        assert other.tasks(session_id="s")[0].task == loom.tasks(session_id="s")[0].task
        other.add_task(given)
        assert len(other.tasks(session_id="s")) == 1
        assert len(other.sessions()) == 1
        assert list(examine(other.store)) == []


def test_tasks_are_found_by_their_words(loom: Loom) -> None:
    loom.add_task(task("Migrate the zebra database.", task_id="t"))
    [hit] = loom.search("zebra")
    entry = loom.task_at(hit.session, hit.node)
    assert entry is not None
    assert entry.task.task_id == "t"
    assert loom.task_at(hit.session, entry.node) == entry
    assert loom.task_at(hit.session, "nobody") is None
