"""The memory as tasks in four layers, and the tools that look into it."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import ChoiceError, Conversation, Loom, Message, Text, tools
from loom.dialects import WIRES
from loom.memory import LoomMemory
from loom.memory.tools import QUERIES, MemoryTools
from loom.runtime import Task
from tests.shared import examples


def execute(content: str, **fields: Any) -> Task:
    return Task(action="execute", parameters={"content": content}, **fields)


def run(given: MemoryTools, name: str, arguments: Any = None) -> Any:
    return asyncio.run(given.execute(name, arguments))


@pytest.fixture
def memory() -> LoomMemory:
    made = LoomMemory()
    made.add_task(execute("Refactor the memory layer", session_id="s-1", result="done"))
    made.add_task(
        Task(
            action="node.thinking",
            parameters={"content": "The heddle is loose"},
            session_id="s-1",
        )
    )
    made.add_task(
        execute(
            "Fix the shuttle",
            session_id="s-1",
            error="no thread",
            status="failed",
            metadata={"tags": ["loom", "repair", "now", "extra"]},
        )
    )
    made.add_task(execute("Paint the heddle", session_id="s-2"))
    return made


# ── the layers ───────────────────────────────────────────────────────────────


def test_l1_has_the_newest_in_their_order_and_matches_labels_exactly(memory: LoomMemory) -> None:
    assert [task.content for task in memory.get_l1_tasks(2, "s-1")] == [
        "The heddle is loose",
        "Fix the shuttle",
    ]
    for label in ("s", "s-", "S-1", "s-10", None):
        assert memory.get_l1_tasks(10, label) == []


def test_l2_has_what_is_important_and_of_equals_the_newer_first(memory: LoomMemory) -> None:
    assert [task.content for task in memory.get_l2_tasks(session_id="s-1")] == [
        "Fix the shuttle",  # it failed
        "Refactor the memory layer",
    ]
    for n in range(5):
        memory.add_task(execute(f"equal {n}", session_id="s-3"))
    assert [task.content for task in memory.get_l2_tasks(2, "s-3")] == ["equal 4", "equal 3"]


def test_l3_sums_up_each_task_once(memory: LoomMemory) -> None:
    found = memory.get_l3_summaries(session_id="s-1")
    assert [summary.parameters for summary in found] == [
        "Fix the shuttle",
        "The heddle is loose",
        "Refactor the memory layer",
    ]
    assert found[0].result == "failed: no thread"
    assert found[0].tags == ("loom", "repair", "now", "extra")
    memory.add_task(execute("word " * 500, session_id="s-1"))
    assert len(memory.get_l3_summaries(1, "s-1")[0].parameters) == 200


def test_a_summary_that_was_written_comes_first_in_l3(memory: LoomMemory) -> None:
    session = memory.find_session("s-1")
    assert session is not None
    for n in range(8):
        memory.add_task(execute(f"more {n}", session_id="s-1"))
    session.refresh().set_summary("They repaired the loom.")
    first = memory.get_l3_summaries(session_id="s-1")[0]
    assert (first.kind, first.result) == ("summary", "They repaired the loom.")


def test_l4_searches_all_sessions_unless_one_is_named(memory: LoomMemory) -> None:
    found = {task.content for task in memory.search_tasks("heddle")}
    assert found == {"The heddle is loose", "Paint the heddle"}
    assert [task.content for task in memory.search_tasks("heddle", session_id="s-2")] == [
        "Paint the heddle"
    ]
    assert memory.search_tasks("heddle", session_id="unknown") == []


def test_a_task_delivered_twice_is_one_and_two_equal_tasks_are_two() -> None:
    memory, task = LoomMemory(), execute("the same")
    memory.add_task(task)
    memory.add_task(task.replace(status="completed", result="done"))
    assert [each.result for each in memory.get_l1_tasks()] == ["done"]
    memory.add_task(execute("the same"))
    assert len(memory.get_l1_tasks()) == 2


def test_a_memory_over_a_store_belongs_to_its_agent_and_stays_open(tmp_path: Any) -> None:
    path = str(tmp_path / "store.db")
    with Loom.open(path, agent="a") as first, Loom.open(path, agent="b") as second:
        LoomMemory(first).add_task(execute("of a", session_id="shared"))
        LoomMemory(second).add_task(execute("of b", session_id="shared"))
        memory = LoomMemory(first)
        assert [task.content for task in memory.get_l1_tasks(10, "shared")] == ["of a"]
        memory.close()
        assert first.sessions()
    with pytest.raises(ChoiceError, match="Loom"):
        LoomMemory("store.db")  # type: ignore[arg-type]


def test_what_was_forgotten_is_not_important_and_stays_stored(memory: LoomMemory) -> None:
    executor = MemoryTools(memory, session_id="s-1")
    found = run(executor, "search_context", {"query": "shuttle"})
    handle = found.splitlines()[1].partition(" ")[0]
    assert run(executor, "forget", {"note": handle}) == "Forgotten."
    assert [task.content for task in memory.get_l2_tasks(session_id="s-1")] == [
        "Refactor the memory layer"
    ]
    assert len(memory.get_l1_tasks(10, "s-1")) == 3


def test_what_a_person_excluded_or_pruned_is_in_no_layer(memory: LoomMemory) -> None:
    session = memory.find_session("s-1")
    assert session is not None
    tree = memory.loom.tree(session.row.tree.id)
    first, _, third = session.path[:]
    tree.exclude(first.id)
    assert [task.content for task in memory.get_l1_tasks(10, "s-1")] == [
        "The heddle is loose",
        "Fix the shuttle",
    ]
    tree.prune(third.id)
    assert [task.content for task in memory.get_l1_tasks(10, "s-1")] == ["The heddle is loose"]
    assert memory.get_l2_tasks(10, "s-1") == []
    assert len(memory.get_l3_summaries(10, "s-1")) == 1
    assert memory.search_tasks("Refactor") == []


def test_a_task_is_found_where_other_sessions_talk_a_lot(memory: LoomMemory) -> None:
    session = memory.loom.new("talk")
    session.append(*(f"zebra zebra {n}" for n in range(60)))
    memory.add_task(execute("Feed the zebra"))
    assert [task.content for task in memory.search_tasks("zebra")] == ["Feed the zebra"]


def test_a_tool_gives_no_more_than_a_model_can_read(memory: LoomMemory) -> None:
    memory.add_task(execute("x" * 1_000_000, session_id="big", result=["y"] * 5000))
    found = run(MemoryTools(memory), "query_l1_memory", {"session_id": "big"})
    assert len(json.dumps(found)) < 10_000
    assert "996,000 more characters" in found[0]["parameters"]["content"]


# ── the tools ────────────────────────────────────────────────────────────────


def test_the_calls_that_the_document_prints(memory: LoomMemory) -> None:
    executor = MemoryTools(memory)
    second = run(executor, "query_l2_memory", {"limit": 10, "session_id": "s-1"})
    assert second[0] == {
        "task_id": second[0]["task_id"],
        "statement": "execute: Fix the shuttle -> failed: no thread",
        "tags": ["loom", "repair", "now"],
        "importance": 0.9,
    }
    third = run(executor, "query_l3_memory", {"limit": 20, "session_id": "s-1"})
    assert [item["summary"] for item in third] == [
        "execute: failed: no thread",
        "node.thinking: The heddle is loose",
        "execute: done",
    ]


def test_l1_gives_tasks_in_full_and_l4_a_line_of_each(memory: LoomMemory) -> None:
    executor = MemoryTools(memory, session_id="s-1")
    assert run(executor, "query_l1_memory", {"limit": 1}) == [
        memory.get_l1_tasks(1, "s-1")[0].to_dict()
    ]
    [found] = run(executor, "query_l4_memory", {"query": "paint"})
    assert (found["statement"], found["session_id"]) == ("execute: Paint the heddle", "s-2")


def test_one_door_to_all_layers_looks_into_this_session_first(memory: LoomMemory) -> None:
    executor = MemoryTools(memory, session_id="s-1")
    found = run(executor, "query_memory", {"query": "heddle"})
    assert [item["session_id"] for item in found] == ["s-1", "s-2"]
    assert run(executor, "query_memory") == run(executor, "query_l1_memory")
    for layer in ("l1", "l2", "l3"):
        assert run(executor, "query_memory", {"layer": layer}) == run(
            executor, f"query_{layer}_memory"
        )
    assert run(executor, "query_memory", {"layer": "l4", "query": "paint"}) == run(
        executor, "query_l4_memory", {"query": "paint"}
    )


@pytest.mark.parametrize("name", list(QUERIES))
def test_an_unknown_session_has_an_empty_memory(memory: LoomMemory, name: str) -> None:
    arguments = {"session_id": "nobody", "query": "heddle"}
    if "query" not in QUERIES[name][0].__struct_fields__:
        del arguments["query"]
    if name == "query_memory":
        arguments["layer"] = "l2"
    assert run(MemoryTools(memory), name, arguments) == []


def test_the_tools_of_a_session_work_on_the_session_of_the_label(memory: LoomMemory) -> None:
    executor = MemoryTools(memory, session_id="s-1")
    found = run(executor, "search_context", {"query": "heddle"})
    assert "The heddle is loose" in found
    handle = found.splitlines()[1].partition(" ")[0]
    assert "The heddle is loose" in run(executor, "recall", {"handle": handle})
    assert run(executor, "pin", {"handle": handle}) == "1 message is pinned."
    run(executor, "stash", {"label": "plan", "text": "warp"})
    assert run(executor, "stash", {"label": "plan"}) == "warp"
    stored = run(executor, "remember", {"text": "The heddle breaks often."})
    assert run(executor, "forget", {"note": stored.split()[-1].rstrip(".")}) == "Forgotten."


def test_in_an_unknown_session_reading_finds_nothing_and_writing_says_why() -> None:
    executor = MemoryTools(LoomMemory(), session_id="new")
    assert run(executor, "search_context", {"query": "heddle"}) == ""
    assert run(executor, "recall", {"handle": "~aaaaaaaaaaaa"}) == ""
    with pytest.raises(ChoiceError, match="add a task first"):
        run(executor, "remember", {"text": "something"})


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("query_l5_memory", {}, "its tools are query_l1_memory"),
        ("query_l1_memory", {"limit": 0}, "limit"),
        ("query_l1_memory", {"limit": "many"}, "limit"),
        ("query_l1_memory", {"limmit": 3}, "limmit"),
        ("query_l1_memory", {"session_id": 7}, "session_id"),
        ("query_l4_memory", {}, "query"),
        ("query_l4_memory", {"query": " "}, "query is empty"),
        ("query_memory", {"layer": "l9"}, "layer"),
        ("query_memory", [], "JSON object"),
        ("query_memory", "{not json", "not JSON"),
        ("query_memory", {"query": object()}, "JSON object"),
        ("recall", {"handle": "no handle"}, "not a handle"),
        ("stash", {"text": "x"}, "label"),
    ],
)
def test_a_wrong_call_is_an_error_that_names_what_is_wrong(
    memory: LoomMemory, name: str, arguments: Any, message: str
) -> None:
    with pytest.raises(ChoiceError, match=message):
        run(MemoryTools(memory, session_id="s-1"), name, arguments)


def test_there_is_one_table_with_one_name_each_and_every_wire_takes_it(
    memory: LoomMemory,
) -> None:
    declared = MemoryTools(memory).tools()
    names = [tool.name for tool in declared]
    assert len(set(names)) == len(names)
    assert names == [*QUERIES, *(tool.name for tool in tools())]
    for tool in declared:
        schema = json.loads(tool.schema)
        assert schema["required"] == list(schema["properties"])
        assert all(about["description"] for about in schema["properties"].values())
    said = (Message("user", (Text("hi"),)),)
    for wire in WIRES:
        rendered = wire.render(Conversation(messages=said, tools=declared, model="some-model"))
        assert not rendered.losses
        assert not list(wire.check(rendered.wire))


LABELS = [None, "a", "ab", "A", "a b", "%", "a_", "日本"]


@settings(max_examples=examples(12), deadline=None)
@given(labels=st.lists(st.sampled_from(LABELS), min_size=1, max_size=12))
def test_session_filters_hold_for_every_query(labels: list[str | None]) -> None:
    memory = LoomMemory()
    for n, label in enumerate(labels):
        memory.add_task(execute(f"heddle {n}", session_id=label))
    for label in LABELS:
        wanted = [f"heddle {n}" for n, each in enumerate(labels) if each == label]
        assert [task.content for task in memory.get_l1_tasks(50, label)] == wanted
        assert [task.content for task in memory.get_l2_tasks(50, label)] == wanted[::-1]
        third = memory.get_l3_summaries(50, label)
        assert [summary.parameters for summary in third] == wanted[::-1]
        if label is not None:
            found = memory.search_tasks("heddle", 50, label)
            assert sorted(task.content for task in found) == sorted(wanted)
        executor = MemoryTools(memory, session_id=label)
        assert len(run(executor, "query_l2_memory", {"limit": 50})) == len(wanted)
    assert len(memory.search_tasks("heddle", 50)) == len(labels)
    memory.close()


def test_two_agents_under_one_label_are_both_found_and_not_written_to(tmp_path: Any) -> None:
    path = str(tmp_path / "store.db")
    with Loom.open(path, agent="a") as a, Loom.open(path, agent="b") as b, Loom.open(path) as both:
        for loom, words in ((a, "apple"), (b, "banana")):
            said = {"content": words}
            LoomMemory(loom).add_task(Task(action="execute", session_id="s", parameters=said))
        memory = LoomMemory(both)
        for words in ("apple", "banana"):
            assert memory.search_tasks(words, 5, "s")[0].content == words
        assert len(memory.get_l3_summaries(5, "s")) == 2
        tools = MemoryTools(memory, session_id="s")
        with pytest.raises(ChoiceError, match="no task of this agent"):
            asyncio.run(tools.execute("remember", {"text": "Zinc is blue"}))
        own = Task(action="execute", session_id="s", parameters={"content": "cherry"})
        memory.add_task(own)
        asyncio.run(tools.execute("remember", {"text": "Zinc is blue"}))
        for loom in (a, b):
            session = loom.session(loom.tasks(session_id="s")[0].session)
            assert list(session.memory.notes()) == []


def test_equal_tasks_are_told_once_and_what_the_user_asked_comes_first() -> None:
    memory = LoomMemory()
    memory.add_task(Task(action="node.tool_call", parameters={"tool_name": "read"}))
    for _ in range(5):
        memory.add_task(Task(action="execute", parameters={"content": "go"}, result="done"))
    assert [each.action for each in memory.get_l2_tasks()] == ["execute", "node.tool_call"]
    assert len(memory.get_l3_summaries()) == 2


@pytest.mark.parametrize("given", [5, -1, "high", True])
def test_an_importance_out_of_range_is_refused(given: object) -> None:
    with pytest.raises(ChoiceError, match="from 0 to 1"):
        LoomMemory().add_task(Task(action="execute", metadata={"importance": given}))
