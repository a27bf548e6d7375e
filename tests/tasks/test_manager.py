"""The context of a task: the order of the document, what stays, what it costs, and that it fits."""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import CannotFit, ChoiceError, Context, Loom, Policy, Tool
from loom.dialects import WIRES
from loom.memory import LoomMemory
from loom.memory.sources import SourceFindings
from loom.memory.task_context import MemoryContextSource, TaskContextManager, list_messages
from loom.memory.tokenizer import TokenCounter
from loom.providers.knowledge import TextKnowledgeBase
from loom.runtime import Task
from tests.shared import examples

_T = TypeVar("_T")
SYSTEM = "You are a helpful AI assistant"
START = datetime(2026, 1, 28, 9, tzinfo=UTC)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


class Knowledge:
    """A knowledge base that remembers what it was asked."""

    def __init__(self, *items: tuple[str, str]) -> None:
        self.items, self.asked = items, list[str]()

    async def query(self, text: str, limit: int = 3) -> list[dict[str, Any]]:
        self.asked.append(text)
        return [
            {"content": content, "source": source, "score": 0.9 - n / 10}
            for n, (content, source) in enumerate(self.items[:limit])
        ]


class Fixed:
    """A source that finds what it was given."""

    def __init__(self, **found: Any) -> None:
        self.found = SourceFindings(**{name: tuple(each) for name, each in found.items()})

    async def collect(self, task: Task) -> SourceFindings:
        return self.found


class CharCounter:
    """Counts each character as a token, and ten for each message."""

    def count_messages(self, messages: list[dict[str, Any]]) -> int:
        return sum(len(message["content"]) + 10 for message in messages)


class OddCounter:
    """Counts what no sum of messages is: it grows with the square of their number."""

    def count_messages(self, messages: list[dict[str, Any]]) -> int:
        return sum(len(m["content"].split()) for m in messages) + len(messages) ** 2


def execute(content: str, **fields: Any) -> Task:
    return Task(action="execute", parameters={"content": content}, **fields)


def remember(*tasks: Task) -> LoomMemory:
    memory = LoomMemory()
    for task in tasks:
        memory.add_task(task)
    return memory


def manager(memory: LoomMemory | None = None, **options: Any) -> TaskContextManager:
    sources = [MemoryContextSource(memory=memory)] if memory else []
    options.setdefault("system_prompt", SYSTEM)
    return TaskContextManager(
        token_counter=options.pop("token_counter", TokenCounter()),
        sources=options.pop("sources", sources),
        max_tokens=options.pop("max_tokens", 4000),
        **options,
    )


def shown(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["role"], (each["content"].split() or ["call"])[0]) for each in messages]


def eight(words: int = 620) -> list[Task]:
    """msg1 to msg8; the last is the current task."""
    actions = ("node.thinking", "execute")
    return [
        Task(action=actions[n % 2], parameters={"content": f"msg{n} " + "word " * words})
        for n in range(1, 8)
    ] + [execute("msg8 " + "word " * words)]


# ── what the document prints ─────────────────────────────────────────────────


def test_the_order_is_system_l1_knowledge_current_task() -> None:
    memory = remember(execute("first"), Task(action="node.thinking", parameters={"content": "hm"}))
    base = Knowledge(("Tables are locked.", "db.md"))
    asked = execute("Migrate the database")
    messages = run(manager(memory, knowledge_base=base).build_context(asked))
    assert [set(message) for message in messages] == [{"role", "content"}] * 5
    assert shown(messages) == [
        ("system", "You"),
        ("user", "first"),
        ("assistant", "hm"),
        ("system", "Knowledge"),
        ("user", "Migrate"),
    ]
    assert messages[0]["content"] == SYSTEM
    assert messages[3]["content"].endswith("> Tables are locked.\n(Source: db.md)")
    assert base.asked == ["Migrate the database"]


def test_the_printed_list_comes_out_as_printed() -> None:
    *told, current = eight()
    messages = run(manager(remember(*told), max_tokens=2500).build_context(current))
    assert shown(messages) == [
        ("system", "You"),
        ("assistant", "msg6"),
        ("user", "msg7"),
        ("user", "msg8"),
    ]
    assert messages[0]["content"] == SYSTEM
    assert [each["content"] for each in messages[1:3]] == [each.content for each in told[-2:]]


def test_prepare_says_what_was_left_out_and_brings_it_back() -> None:
    *told, current = eight()
    context = run(manager(remember(*told), max_tokens=2500).prepare(current))
    assert context.report.policy == "tasks"
    assert context.conversation.messages[0].text.startswith("[5 messages left out here; recall ~")
    [left_out] = [item for item in context.report.items if item.action == "dropped"]
    assert "msg1 word" in context.recall(left_out.handles[0])
    for wire in WIRES:
        found = wire.check(context.render(wire.name))
        assert [each for each in found if each.level == "error"] == []


def test_a_small_memory_is_shown_whole_and_nothing_is_repeated() -> None:
    memory = remember(*(execute(f"note {n}") for n in range(30)))
    current = execute("Go on")
    memory.add_task(current)
    messages = run(manager(memory).build_context(current))
    texts = [message["content"] for message in messages]
    assert texts == [SYSTEM, *(f"note {n}" for n in range(30)), "Go on"]


# ── the loop ends ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("has_parent", [True, False])
@pytest.mark.parametrize("is_added", [True, False])
def test_calls_and_results_of_the_task_in_flight_are_pairs(
    has_parent: bool, is_added: bool
) -> None:
    memory = remember(
        execute("earlier"),
        Task(action="node.tool_call", parameters={"tool_name": "old"}),
        Task(action="node.tool_result", parameters={"content": "an old result"}),
    )
    current = execute("Read data.txt", created_at=START)
    current = current.replace(created_at=datetime.now(UTC) - timedelta(milliseconds=1))
    if is_added:
        memory.add_task(current)
    parent = {"parent_task_id": current.task_id} if has_parent else {}
    later = datetime.now(UTC) + timedelta(seconds=1)
    memory.add_task(
        Task(
            action="node.tool_call",
            parameters={"tool_name": "read", "tool_call_id": "c1", "arguments": {"path": "d"}},
            created_at=later,
            **parent,
        )
    )
    memory.add_task(
        Task(
            action="node.tool_result",
            parameters={"tool_call_id": "c1", "content": "the data"},
            created_at=later,
            **parent,
        )
    )
    messages = run(manager(memory).build_context(current))
    assert shown(messages) == [
        ("system", "You"),
        ("user", "earlier"),
        ("assistant", "[Calling"),
        ("user", "Read"),
        ("assistant", "call"),
        ("tool", "the"),
    ]
    assert messages[-2]["tool_calls"][0]["id"] == messages[-1]["tool_call_id"] == "c1"
    assert "an old result" not in str(messages)


def test_results_of_finished_tasks_are_there_if_the_policy_says_so() -> None:
    memory = remember(
        execute("earlier"),
        Task(action="node.tool_call", parameters={"tool_name": "old", "tool_call_id": "o1"}),
        Task(
            action="node.tool_result",
            parameters={"content": "an old result", "tool_call_id": "o1"},
        ),
    )
    keeping = Policy.extends("tasks", name="keeping", task_results="keep")
    later = datetime.now(UTC) + timedelta(seconds=1)
    messages = run(
        manager(memory, policy=keeping).build_context(execute("Go on", created_at=later))
    )
    assert ("tool", "an") in shown(messages)


def test_a_loop_of_calls_continues_its_epoch_and_asks_knowledge_once() -> None:
    memory, base = remember(execute("earlier")), Knowledge(("A fact.", "a.md"))
    made, current = manager(memory, knowledge_base=base), execute("Read data.txt")
    memory.add_task(current)
    last: Context | None = None
    for step in range(5):
        context = run(made.prepare(current))
        if last is not None:
            before = last.conversation.messages
            assert context.report.epoch_reason == "continued"
            assert context.conversation.messages[: len(before)] == before
        last = context
        memory.add_task(
            Task(action="node.tool_call", parameters={"tool_name": "read", "call_id": f"c{step}"})
        )
        memory.add_task(
            Task(action="node.tool_result", parameters={"result": step, "call_id": f"c{step}"})
        )
    assert len(base.asked) == 1


# ── what it costs ────────────────────────────────────────────────────────────


def test_the_same_task_with_nothing_changed_costs_nothing() -> None:
    class Counting(TokenCounter):
        calls = 0

        def count_messages(self, messages: Any) -> int:
            self.calls += 1
            return super().count_messages(messages)

    memory, base, counter = remember(execute("earlier")), Knowledge(("A", "a")), Counting()
    made, current = manager(memory, knowledge_base=base, token_counter=counter), execute("Now")
    first = run(made.prepare(current))
    calls, nodes = counter.calls, len(memory.get_l1_tasks())
    assert run(made.prepare(current)) is first
    assert (counter.calls, len(base.asked)) == (calls, 1)
    assert len(memory.get_l1_tasks()) == nodes  # a request writes nothing
    memory.add_task(execute("something new"))
    assert run(made.prepare(current)) is not first


def test_a_knowledge_base_that_failed_or_changed_is_asked_again() -> None:
    class Failing(Knowledge):
        revision = 0

        async def query(self, text: str, limit: int = 3) -> list[dict[str, Any]]:
            found = await super().query(text, limit)
            if len(self.asked) == 1:
                raise OSError("no route")
            return found

    base = Failing(("A fact.", "a.md"))
    made, current = manager(knowledge_base=base), execute("Now")
    first = run(made.prepare(current))
    assert any("no route" in note for note in first.report.notes)
    assert "A fact." in str(run(made.build_context(current)))
    run(made.build_context(current))
    assert len(base.asked) == 2
    base.revision = 1
    run(made.build_context(current))
    assert len(base.asked) == 3


def test_what_is_added_to_a_knowledge_base_is_found_for_the_same_task() -> None:
    base = TextKnowledgeBase()
    base.add("The heddle is made of steel.", source="a.md")
    made, current = manager(knowledge_base=base), execute("What is the heddle made of?")
    assert "a.md" in str(run(made.build_context(current)))
    base.add("The heddle is made of wood since May.", source="b.md")
    assert "b.md" in str(run(made.build_context(current)))


# ── sessions, layers, shares ─────────────────────────────────────────────────


def test_a_task_sees_the_tasks_of_its_label_only() -> None:
    memory = remember(
        execute("mine", session_id="s-1"),
        execute("of another", session_id="s-10"),
        execute("of nobody"),
    )
    labelled = run(manager(memory).build_context(execute("Now", session_id="s-1")))
    assert [text for _, text in shown(labelled)] == ["You", "mine", "Now"]
    unnamed = run(manager(memory).build_context(execute("Now")))
    assert [each["content"] for each in unnamed[1:]] == ["of nobody", "Now"]


def test_l2_comes_where_room_is_left_the_most_important_first() -> None:
    tasks = [
        execute(f"plain {n}" + " word" * 20, created_at=START + timedelta(seconds=n))
        for n in range(8)
    ]
    tasks[1] = tasks[1].replace(metadata={"importance": 0.95})
    tasks[2] = tasks[2].replace(metadata={"importance": 0.2})
    memory = remember(*tasks)
    source = MemoryContextSource(memory=memory, l1_limit=3, l2_limit=2)
    messages = run(manager(sources=[source]).build_context(execute("Now")))
    texts = [message["content"][:7] for message in messages[1:]]
    assert texts == ["plain 1", "plain 4", "plain 5", "plain 6", "plain 7", "Now"]
    tight = run(manager(sources=[source], max_tokens=120).build_context(execute("Now")))
    texts = [message["content"][:7] for message in tight[1:]]
    assert texts == ["plain 5", "plain 6", "plain 7", "Now"]


def test_where_there_is_no_room_for_l1_the_task_is_there_alone() -> None:
    memory = remember(*(execute("word " * 100) for _ in range(5)))
    context = run(manager(memory, max_tokens=40).prepare(execute("Now")))
    assert [message.text for message in context.conversation.messages] == ["Now"]
    assert any("no room" in note for note in context.report.notes)


def test_knowledge_keeps_to_its_share_only_if_l1_needs_the_room() -> None:
    base = Knowledge(*((f"{name} " + "fact " * 1200, f"{name}.md") for name in "abc"))
    alone = run(manager(knowledge_base=base).prepare(execute("Now")))
    full = remember(*(execute(f"{n} " + "word " * 100) for n in range(40)))
    beside = run(manager(full, knowledge_base=base).prepare(execute("Now")))
    used = [context.report.zones["knowledge"]["used"] for context in (alone, beside)]
    assert used[0] > 3000
    assert 800 < used[1] <= 4000 * 0.34
    history = [item for item in beside.report.items if item.action == "kept"]
    assert len(history) > 15


def test_the_seeds_order_holds_for_events_and_direct_messages() -> None:
    event = Task(action="node.thinking", parameters={"content": "I look"}, source_agent="other")
    message = Task(
        action="node.message",
        parameters={"content": "Mind the lock", "priority": 0.9},
        source_agent="a",
        target_agent="b",
    )
    base = Knowledge(("A fact.", "a.md"))
    source = Fixed(recent=[execute("old")], events=[event], messages=[message])
    messages = run(manager(sources=[source], knowledge_base=base).build_context(execute("Now")))
    assert [message["role"] for message in messages] == [
        "system",
        "user",
        "system",
        "user",
        "user",
        "user",
    ]
    assert messages[3]["content"] == "[other, another agent: thinking]\n> I look"
    assert messages[4]["content"].startswith("[Message from a, another agent")


def test_one_direct_message_is_there_however_little_room_there_is() -> None:
    def direct(n: int) -> Task:
        return Task(
            action="node.message",
            parameters={"content": f"message {n} " + "word " * 50},
            source_agent="a",
            target_agent="b",
        )

    recent = [execute("word " * 200) for _ in range(5)]
    source = Fixed(recent=recent, messages=[direct(n) for n in range(9)])
    context = run(manager(sources=[source], max_tokens=260).prepare(execute("Now")))
    assert "message 0" in str(context.openai())
    assert "message 8" not in str(context.openai())


def test_what_is_in_memory_is_not_told_as_an_event_too() -> None:
    thought = Task(action="node.thinking", parameters={"content": "the same"})
    sources = [Fixed(recent=[thought]), Fixed(events=[thought], recent=[thought])]
    messages = run(manager(sources=sources).build_context(execute("Now")))
    assert [each["content"] for each in messages].count("the same") == 1
    assert len(messages) == 3


def test_thoughts_of_another_agent_in_memory_are_never_the_models() -> None:
    def think(who: str) -> Task:
        return Task(action="node.thinking", parameters={"content": f"I am {who}"}, source_agent=who)

    call = Task(action="node.tool_call", parameters={"tool_name": "rm"}, source_agent="other")
    elsewhere = Task(
        action="node.message",
        parameters={"content": "not for you"},
        source_agent="x",
        target_agent="y",
    )
    memory = remember(think("me"), think("other"), call, elsewhere)
    later = datetime.now(UTC) + timedelta(seconds=1)
    current = execute("Now", target_agent="me", created_at=later)
    messages = run(manager(memory).build_context(current))
    assert [(each["role"], each["content"].splitlines()[-1]) for each in messages[1:]] == [
        ("assistant", "I am me"),
        ("user", "> I am other"),
        ("user", "> [Calling rm(...)]"),
        ("user", "Now"),
    ]


def test_a_task_that_is_built_again_sees_only_what_came_before_it() -> None:
    turns = [execute(f"turn {n}") for n in range(4)]
    messages = run(manager(remember(*turns)).build_context(turns[1]))
    assert [each["content"] for each in messages[1:]] == ["turn 0", "turn 1"]


def test_purged_words_do_not_come_back_from_what_a_source_remembers() -> None:
    secret = execute("SECRET plan", session_id="s", metadata={"importance": 1.0})
    memory = remember(secret, *(execute(f"work {n}", session_id="s") for n in range(8)))
    source = MemoryContextSource(memory=memory, l1_limit=3)
    made, current = manager(sources=[source]), execute("Now", session_id="s")
    assert "SECRET" in str(run(made.build_context(current)))
    session = memory.find_session("s")
    assert session is not None
    session.purge()
    for n in range(20):
        memory.add_task(execute(f"more {n}", session_id="s"))
    assert "SECRET" not in str(run(made.build_context(current)))
    assert "SECRET" not in str(run(made.build_context(current)))


def test_a_source_that_fails_costs_a_note_and_never_the_request() -> None:
    class Broken:
        async def collect(self, task: Task) -> SourceFindings:
            raise OSError("bus down")

    context = run(
        manager(sources=[Broken(), Fixed(recent=[execute("old")])]).prepare(execute("Now"))
    )
    assert [message.text for message in context.conversation.messages] == ["old", "Now"]
    assert "Broken failed: OSError: bus down" in context.report.notes


# ── it fits ──────────────────────────────────────────────────────────────────


def random_source(random: Random) -> Fixed:
    def words() -> str:
        return "word " * random.choice([1, 5, 40, 200]) + random.choice(["", "数据库 " * 30])

    def made(action: str) -> Task:
        return Task(
            action=action,
            parameters={"content": words(), "tool_name": "read"},
            source_agent="a",
            target_agent="b",
        )

    def several(action: str) -> list[Task]:
        return [made(action) for _ in range(random.randint(0, 6))]

    flight = several("node.tool_call") + several("node.tool_result")
    return Fixed(
        recent=several("execute") + several("node.thinking"),
        important=several("execute"),
        flight=flight,
        messages=several("node.message"),
        events=several("node.thinking"),
    )


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_context_fits_by_the_given_counter_and_by_the_gate(seed: int) -> None:
    random = Random(seed)
    counter = random.choice([TokenCounter(), TokenCounter("gpt-4o"), CharCounter(), OddCounter()])
    limit = random.choice([120, 300, 1000, 4000])
    base = Knowledge(*(("fact " * random.choice([3, 300]), f"{n}.md") for n in range(3)))
    made = manager(
        sources=[random_source(random)],
        token_counter=counter,
        max_tokens=limit,
        knowledge_base=random.choice([base, None]),
        system_prompt=random.choice(["", SYSTEM]),
    )
    current = execute("Now " + "word " * random.choice([1, 20, 2000]))
    try:
        context = run(made.prepare(current))
    except CannotFit:
        assert limit <= 300
        return
    messages = run(made.build_context(current))
    assert counter.count_messages(messages) <= limit
    assert context.report.input_tokens <= limit
    roles = [message["role"] for message in messages]
    requests = [n for n, each in enumerate(messages) if each["content"].startswith("Now")]
    assert len(requests) == 1
    assert set(roles[requests[0] + 1 :]) <= {"assistant", "tool", "user"}
    for wire in WIRES:
        found = wire.check(context.render(wire.name))
        assert [each for each in found if each.level == "error"] == [], wire.name


def test_what_can_never_fit_is_an_error_that_says_so() -> None:
    with pytest.raises(CannotFit):
        run(manager(system_prompt="word " * 5000).build_context(execute("Now")))


# ── what callers get wrong ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token_counter": object()}, "count_messages"),
        ({"sources": [object()]}, "collect"),
        ({"sources": "memory"}, "list of sources"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"knowledge_base": object()}, "query"),
        ({"policy": "task"}, "tasks"),
        ({"modle": "gpt-4o"}, "model"),
    ],
)
def test_a_wrong_argument_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ChoiceError, match=message):
        manager(**options)


def test_a_counter_that_does_not_count_is_named() -> None:
    class Wrong:
        def count_messages(self, messages: list[dict[str, Any]]) -> Any:
            return "many"

    with pytest.raises(ChoiceError, match="number of tokens"):
        manager(token_counter=Wrong())


def test_tools_are_part_of_the_request() -> None:
    context = run(manager().prepare(execute("Now"), tools=[Tool("read", "Reads.", "{}")]))
    assert context.openai()["tools"][0]["function"]["name"] == "read"


def test_a_memory_over_a_store_is_read_again(tmp_path: Any) -> None:
    path = str(tmp_path / "store.db")
    with Loom.open(path) as loom:
        LoomMemory(loom).add_task(execute("kept"))
    with Loom.open(path) as loom:
        messages = run(manager(LoomMemory(loom)).build_context(execute("Now")))
    assert messages[1]["content"] == "kept"


class IntegerOfALibrary:
    """A whole number of another type, as arrays have them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return self.value == other

    def __hash__(self) -> int:
        return hash(self.value)


@pytest.mark.parametrize("form", [float, IntegerOfALibrary])
def test_a_counter_may_return_any_type_of_whole_number(form: Any) -> None:
    class Counts(CharCounter):
        def count_messages(self, messages: list[dict[str, Any]]) -> Any:
            return form(super().count_messages(messages))

    messages = run(manager(token_counter=Counts()).build_context(execute("Now")))
    assert messages == run(manager(token_counter=CharCounter()).build_context(execute("Now")))


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf"), True, -1, None])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    class Wrong:
        def count_messages(self, messages: list[dict[str, Any]]) -> Any:
            return value

    with pytest.raises(ChoiceError, match="whole number of tokens"):
        manager(token_counter=Wrong())


def test_a_counter_that_raises_is_named() -> None:
    class Broken:
        def count_messages(self, messages: list[dict[str, Any]]) -> int:
            raise RuntimeError("no tokenizer")

    with pytest.raises(ChoiceError, match=r"Broken\.count_messages failed: RuntimeError: no tok"):
        manager(token_counter=Broken())


def test_a_counter_need_not_take_an_empty_list() -> None:
    class Picky(CharCounter):
        def count_messages(self, messages: list[dict[str, Any]]) -> int:
            if not messages:
                raise TypeError("object of type 'NoneType' has no len()")
            return super().count_messages(messages)

    assert run(manager(token_counter=Picky()).build_context(execute("Now")))[-1]["content"] == "Now"


def test_max_tokens_is_no_limit_of_the_answer() -> None:
    context = run(manager(max_tokens=200).prepare(execute("Now")))
    assert context.anthropic()["max_tokens"] > 200
    assert "max_completion_tokens" not in context.openai()


@pytest.mark.parametrize("limit", range(60, 900, 70))
@pytest.mark.parametrize("answer", ["answer {}", "done"])
def test_l1_never_begins_with_an_answer_without_its_question(limit: int, answer: str) -> None:
    memory = remember(
        *(
            execute(f"question {n} " + "lorem ipsum " * 20, result=answer.format(n))
            for n in range(30)
        )
    )
    context = run(manager(memory, max_tokens=limit).prepare(execute("Now")))
    said = list_messages(context)[1:]
    assert [each["role"] for each in said] == ["user", "assistant"] * (len(said) // 2) + ["user"]
    if len(said) > 1:
        [left_out] = [item for item in context.report.items if item.action == "dropped"]
        first = 30 - len(said) // 2
        assert f"question {first - 1} " in context.recall(left_out.handles[0])
        assert said[0]["content"].startswith(f"question {first} ")


def in_flight(pairs: int) -> tuple[LoomMemory, Task]:
    current = execute("Do the job", task_id="now")
    steps = []
    for n in range(pairs):
        about = {"tool_name": "read", "tool_call_id": f"c{n}"}
        steps.append(Task(action="node.tool_call", parameters=about, parent_task_id="now"))
        found = {**about, "content": "data " * 50}
        steps.append(Task(action="node.tool_result", parameters=found, parent_task_id="now"))
    return remember(current, *steps), current


@pytest.mark.parametrize("limit", [20, 30, 60, 90, 120, 200])
def test_steps_of_the_task_go_before_it_does_not_fit(limit: int) -> None:
    memory, current = in_flight(20)
    built = manager(memory, max_tokens=limit, system_prompt=None)
    messages = run(built.build_context(current))
    assert messages[0] == {"role": "user", "content": "Do the job"}
    assert built.token_counter.count_messages(messages) <= limit
    calls = [call["id"] for each in messages for call in each.get("tool_calls", ())]
    assert calls == [each["tool_call_id"] for each in messages if each["role"] == "tool"]


def test_what_does_not_fit_says_what_takes_how_much() -> None:
    built = manager(max_tokens=10, token_counter=CharCounter())
    with pytest.raises(CannotFit) as caught:
        run(built.build_context(execute("Now")))
    said = str(caught.value)
    assert "max_tokens=10 is too small" in said
    assert f"Tokens by CharCounter: the task 13, the system prompt {len(SYSTEM) + 10}." in said
    assert "Raise max_tokens" in said
    assert "reserve" not in said


def test_what_does_not_fit_for_its_tools_names_them() -> None:
    tool = {"name": "read", "description": "Reads. " * 100, "input_schema": {}}
    with pytest.raises(CannotFit, match=r"the tools \d+"):
        run(manager(max_tokens=50).prepare(execute("Now"), tools=[tool]))
