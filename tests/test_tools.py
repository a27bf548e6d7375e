"""Tools for agents: what they take, what they give, and what a model is told that gets them
wrong.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Conversation, Loom, Message, Session, Text, ToolCall, ToolResult, weave
from loom.budget.counting import gate_counter
from loom.context.state.working import Incident, Working
from loom.conversation.canonical import to_json
from loom.conversation.handles import to_lines
from loom.dialects import WIRES
from loom.dialects.input import parse_tool
from loom.engine.tools import RECALL_TOKENS, RECALLED, carry_out, tools
from loom.errors import ChoiceError
from loom.stores.views import HandleTarget
from tests.shared import examples

HANDLE = re.compile(r"~[a-z2-7]{12}")


@pytest.fixture
def session() -> Iterator[Session]:
    with Loom.open(":memory:") as loom:
        yield loom.new("Weave", model="gpt-4o")


def call(session: Session, name: str, arguments: Any) -> ToolResult:
    """What a call gives; the message that answers it is of the right form."""
    given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    answer = carry_out(session, ToolCall("call_1", name, given))
    [result] = answer.results
    assert (answer.role, result.call_id, result.name, result.kind) == (
        "tool",
        "call_1",
        "",
        "function",
    )
    assert answer.parts == (result,)
    return result


def done(session: Session, name: str, arguments: Any) -> str:
    result = call(session, name, arguments)
    assert not result.error
    return text_of(result)


def refused(session: Session, name: str, arguments: Any) -> str:
    result = call(session, name, arguments)
    assert result.error
    assert "\n" not in text_of(result)
    return text_of(result)


def text_of(result: ToolResult) -> str:
    [part] = result.parts
    assert isinstance(part, Text)
    assert part.text
    return part.text


def keep(session: Session, text: str, handle: str = "~aaaaaaaaaaaa") -> str:
    """Let a text be what was left out under a handle."""
    session._store.views.keep(session.row, [(handle, HandleTarget(text=text))], 1)
    return handle


# What they are


def test_the_tools_are_strict_and_every_provider_takes_them() -> None:
    assert [tool.name for tool in tools()] == [
        "recall",
        "search_context",
        "set_working_state",
        "acknowledge_event",
        "pin",
        "stash",
        "remember",
        "forget",
        "load_skill",
    ]
    more = [tool.name for tool in tools(decisions=True)][len(tools()) :]
    assert sorted(more) == ["decision_log", "decision_query", "pivot_decision"]
    assert set(RECALLED) < {tool.name for tool in tools()}
    for tool in tools(decisions=True):
        schema = json.loads(tool.schema)
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
        assert all(about["description"] for about in schema["properties"].values())
        assert len(tool.description) < 130
        assert parse_tool(tool, "tools[0]") == tool
    said = (Message("user", (Text("hi"),)),)
    for wire in WIRES:
        rendered = wire.render(
            Conversation(messages=said, tools=tools(decisions=True), model="some-model")
        )
        assert not rendered.losses
        assert not list(wire.check(rendered.wire))
        assert [tool.schema for tool in wire.parse(rendered.wire).tools] == [
            tool.schema for tool in tools(decisions=True)
        ]


# Pins, stashes, notes


def test_a_pinned_message_stays_in_every_request_until_the_pin_is_taken_back(
    session: Session,
) -> None:
    session.append("the goal", "PASSWORD is swordfish", *("word " * 60 for _ in range(60)))
    asyncio.run(session.prepare(window=1500, reserve_output=200, policy="window"))
    handle = session.search("PASSWORD")[0].handle

    def sent() -> str:
        context = asyncio.run(session.prepare(window=1500, reserve_output=200, policy="window"))
        return json.dumps(context.openai())

    assert "swordfish" not in sent()
    assert done(session, "pin", {"handle": handle}) == "1 message is pinned."
    assert "swordfish" in sent()
    assert done(session, "pin", {"handle": handle}) == "Nothing changed: it was so already."
    assert done(session, "pin", {"handle": handle[1:], "off": True}).endswith("no longer pinned.")
    assert "swordfish" not in sent()


def test_a_handle_of_many_messages_is_not_pinned_at_once(session: Session) -> None:
    session.append("the goal", *(f"number {n}: " + "word " * 40 for n in range(60)))
    context = asyncio.run(session.prepare(window=1500, reserve_output=200, policy="window"))
    handle = HANDLE.findall(json.dumps(context.openai()))[0]
    assert "at most 8 can be pinned" in refused(session, "pin", {"handle": handle})
    assert "aaaaaaaaaaaa" in refused(session, "pin", {"handle": "~aaaaaaaaaaaa"})
    kept = keep(session, "a text of no message")
    assert "0 messages" in refused(session, "pin", {"handle": kept})


def test_a_text_is_put_away_and_comes_back(session: Session) -> None:
    assert "labels are none" in refused(session, "stash", {"label": "plan"})
    said = done(session, "stash", {"label": "plan", "text": "warp, then weft"})
    assert said == "Stashed 15 characters under 'plan'."
    assert done(session, "stash", {"label": "plan", "text": None}) == "warp, then weft"
    assert "labels are 'plan'" in refused(session, "stash", {"label": "plans"})
    assert done(session, "stash", {"label": "plan", "text": ""}) == "Removed 'plan'."
    assert "at most 100,000" in refused(session, "stash", {"label": "x", "text": "y" * 100_001})
    for n in range(50):
        done(session, "stash", {"label": f"s{n}", "text": "t"})
    assert "50 stashes already" in refused(session, "stash", {"label": "one more", "text": "t"})


def test_a_note_is_stored_as_the_models_and_forgotten_by_its_id(session: Session) -> None:
    session.append("The deploy runs at noon.")
    said = done(session, "remember", {"text": "Deploys run at noon.", "about": "deploys"})
    [note] = session.memory.notes()
    assert (note.text, note.about, note.by) == ("Deploys run at noon.", "deploys", "model")
    assert said == f"Stored as note {note.id}."
    assert done(session, "forget", {"note": note.id}) == "Forgotten."
    assert session.memory.notes() == []
    assert "nothing" in refused(session, "remember", {"text": " "})
    assert refused(session, "forget", {"note": "unknown"})


# Recall


def test_a_handle_gives_back_what_was_left_out(session: Session) -> None:
    session.append("the goal", *(f"number {n}: " + "word " * 40 for n in range(60)))
    context = asyncio.run(session.prepare(window=1500, reserve_output=200, policy="window"))
    handle = HANDLE.findall(json.dumps(context.openai()))[0]
    whole, _ = session.recall_shown(handle, plain=True)
    assert done(session, "recall", {"handle": handle}) == whole
    for same in (
        {"handle": handle[1:]},
        {"handle": f" {handle}\n", "from": None, "tokens": None},
        {"handle": handle, "from": "0"},
    ):
        assert done(session, "recall", same) == whole
    assert done(session, "recall", {"handle": keep(session, "")}) == "(an empty text)"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n}: the heddle moved\n" for n in range(3000)),
        "织机" * 8000,
        "🧵👩‍🚀\udc80" * 2000,
        "a" * 60_000 + "\n" + "b" * 9,
    ],
    ids=["lines", "chinese", "emoji", "one line"],
)
@pytest.mark.parametrize("tokens", [None, 700])
def test_a_long_text_comes_in_parts_that_make_it_whole(
    session: Session, text: str, tokens: int | None
) -> None:
    handle = keep(session, text)
    count = gate_counter(None).count_text
    parts, start = [], 0
    while start < len(text):
        page = done(session, "recall", {"handle": handle, "from": start, "tokens": tokens})
        part, _, told = page.rpartition("\n")
        found = re.fullmatch(
            r"\[characters ([\d,]+) to ([\d,]+) of ([\d,]+)(?:; continue with recall (.*))?\]", told
        )
        assert found, told
        begin, end, whole = (int(number.replace(",", "")) for number in found.groups()[:3])
        assert (begin, whole) == (start, len(text))
        assert count(part) <= (tokens or RECALL_TOKENS)
        assert (
            json.loads(found[4]) == {"handle": handle, "from": end}
            if end < whole
            else found[4] is None
        )
        parts.append(part)
        start = end
    assert "".join(parts) == text
    assert len(parts) > 1
    assert "none at 99,999,999; recall it without `from`" in refused(
        session, "recall", {"handle": handle, "from": 99_999_999}
    )


def test_a_part_ends_with_a_line_where_it_can(session: Session) -> None:
    handle = keep(session, "".join(f"{n}: the heddle moved\n" for n in range(3000)))
    assert (
        done(session, "recall", {"handle": handle, "tokens": 500})
        .rpartition("\n")[0]
        .endswith("the heddle moved\n")
    )


def test_a_model_reads_messages_as_text_and_people_get_them_exactly(session: Session) -> None:
    made = ToolCall("c1", "bash", '{"command":"ls -l \\"a b\\"","timeout":5}')
    edits = (
        '{"path":"a.py","edits":[{"old":"if a:\\n\\treturn \\"ü\\"","new":""}],'
        '"lines":["one","two\\nthree"],"tags":["x"],"env":{}}'
    )
    said = (
        Message("user", (Text('say "hello"\nin two lines'),)),
        Message("assistant", (Text("I look."), made)),
        Message("tool", (ToolResult("c1", (Text("    a.py\nb.py"),)),)),
        Message("assistant", (ToolCall("c2", "edit", edits), ToolCall("c3", "run", "not JSON"))),
        Message("tool", (ToolResult("c2", (Text("no such text"),), error=True, name="edit"),)),
    )
    nodes = session.append(*said, "and now?")
    handle = "~aaaaaaaaaaaa"
    session._store.views.keep(
        session.row, [(handle, HandleTarget(nodes=((nodes[0].id, nodes[4].id),)))], 1
    )
    assert done(session, "recall", {"handle": handle}) == (
        '## user\n\nsay "hello"\nin two lines\n\n'
        '## assistant\n\nI look.\n\n→ bash\ncommand: ls -l "a b"\ntimeout: 5\n\n'
        "## tool\n\n← result\n    a.py\nb.py\n\n"
        '## assistant\n\n→ edit\npath: a.py\nedits[0].old:\nif a:\n\treturn "ü"\nedits[0].new: \n'
        'lines[0]: one\nlines[1]:\ntwo\nthree\ntags: ["x"]\nenv: {}\n\n→ run\nnot JSON\n\n'
        "## tool\n\n✗ edit\nno such text\n\n"
    )
    assert session.recall(handle) == session.recall_shown(handle)[0] == to_lines(said)
    assert session.recall(handle, plain=True) == done(session, "recall", {"handle": handle})


def test_a_call_that_is_used_twice_has_one_result(session: Session) -> None:
    made = ToolCall("c1", "search_context", '{"query":"heddle"}')
    session.append("find the heddle", Message("assistant", (made,)))
    first, again = session.use(made), session.use(made)
    assert first is not None
    assert again is not None
    assert again.id == first.id
    assert sum(bool(node.message and node.message.results) for node in session.path) == 1
    session.append("and again", Message("assistant", (made,)))  # a provider that uses its ids again
    other = session.use(made)
    assert other is not None
    assert other.id != first.id


def test_a_call_that_the_session_does_not_hold_is_refused(session: Session) -> None:
    session.append("find the heddle")
    with pytest.raises(
        ChoiceError,
        match=r"no call 'c9' is among the last 400 messages of session .*; absorb the answer",
    ):
        session.use(ToolCall("c9", "recall", "{}"))
    assert len(session.path) == 1


# Search


def test_what_was_lost_is_found_and_recalled(session: Session) -> None:
    lost = "The checksum of the release is 99-ZX-4711."
    session.append("the goal", lost, *(f"number {n}: " + "word " * 40 for n in range(60)))
    context = asyncio.run(session.prepare(window=1500, reserve_output=200, policy="window"))
    assert "4711" not in json.dumps(context.openai())
    asked = ToolCall("s", "search_context", '{"query":"checksum release"}')
    session.append(Message("assistant", (asked,)))
    [part] = carry_out(session, asked).results[0].parts
    assert isinstance(part, Text)
    _, line = part.text.splitlines()
    [handle] = HANDLE.findall(line)
    assert line == f"{handle} (message 1, user): {lost}", (
        "and not the call itself, which was just made"
    )
    assert done(session, "recall", {"handle": handle}) == f"## user\n\n{lost}\n\n"
    assert (
        len(done(session, "search_context", {"query": "number word", "limit": 3}).splitlines()) == 4
    )
    assert done(session, "search_context", {"query": "heddle"}).startswith(
        "No message that you no longer see matches 'heddle'. Try"
    )


# Working state


def test_a_model_keeps_its_own_assessment(session: Session) -> None:
    assert (
        done(session, "set_working_state", {"progress": "half", "plan": ["test", "fix"]})
        == "Stored."
    )
    assert (
        done(session, "set_working_state", {"progress": None, "plan": None, "scratchpad": "hm"})
        == "Stored."
    )
    state = session.working
    assert (state.dashboard.goal_progress, state.plan, state.scratchpad) == (
        "half",
        ("test", "fix"),
        "hm",
    )
    done(session, "set_working_state", {"plan": []})
    assert session.working.plan == ()
    long = {
        "plan": [str(n) for n in range(Working.MAX_PLAN_STEPS + 3)],
        "scratchpad": "x" * (Working.MAX_SCRATCHPAD_CHARS + 1),
    }
    assert done(session, "set_working_state", long) == (
        "Stored, but only the first 20 steps of 23 and the first 4,000 characters of 4,001 of "
        "the scratchpad."
    )


def test_a_model_acknowledges_the_events_that_it_dealt_with(session: Session) -> None:
    for n in range(3):
        event = Incident(
            event_id=f"ci:{n}",
            type="ci",
            summary=f"build {n} broke",
            urgency="high" if n else "normal",
        )
        session.keep_working(session.working.happen(event))
    told = done(
        session, "acknowledge_event", {"event": " ci:1 ", "decision": "The test was wrong."}
    )
    assert told == "Acknowledged. 2 pending events are left."
    state = session.working
    assert [event.event_id for event in state.pending_events] == ["ci:0", "ci:2"]
    assert [event.event_id for event in state.active_risks] == ["ci:2"]
    assert state.recent_event_decisions == ("The test was wrong.",)
    assert not state.dashboard.interrupt_requested
    done(session, "acknowledge_event", {"event": "ci:0", "decision": ""})
    assert session.working.recent_event_decisions == ("The test was wrong.", "done")
    wrong = refused(session, "acknowledge_event", '{"event":"ci:9","decision":"x"}')
    assert wrong == "there is no pending event 'ci:9'; there are ci:2"
    done(session, "acknowledge_event", {"event": "ci:2", "decision": "fixed"})
    assert "there is none at all" in refused(
        session, "acknowledge_event", '{"event":"ci:2","decision":"x"}'
    )


# What a model gets wrong


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (
            "recal",
            "{}",
            "'recal' is not a tool of Loom; its tools are recall, search_context, "
            "set_working_state, acknowledge_event",
        ),
        (
            "recall",
            "",
            "Object missing required field `handle`; it takes a JSON object with handle, from "
            "(optional), tokens (opt",
        ),
        ("recall", '{"handle":', "that is not JSON"),
        ("recall", "[1]", "Expected `object`, got `array`"),
        ("recall", '{"handle":7}', "Expected `str`, got `int` - at `$.handle`"),
        ("recall", '{"handle":"~a","from":-1}', "Expected `int` >= 0 - at `$.from`"),
        ("recall", '{"handle":"~a","tokens":4001}', "Expected `int` <= 4000 - at `$.tokens`"),
        ("recall", '{"handle":"~a","page":2}', "Object contains unknown field `page`"),
        ("recall", '{"handle":"~zzzzzzzzzzzz"}', "nothing was left out under '~zzzzzzzzzzzz'"),
        ("recall", '{"handle":"~zzzzzzzzzzzz"}', "search_context finds messages"),
        (
            "recall",
            '{"handle":"\\ud800\\u0000"}',
            "is not a handle; handles look like ~q7zx3wk5vj2p, and search_context finds them",
        ),
        ("search_context", "{}", "Object missing required field `query`"),
        ("search_context", '{"query":" "}', "a search needs words to look for"),
        ("search_context", '{"query":"a","limit":51}', "Expected `int` <= 50"),
        ("set_working_state", "{}", "nothing to store; give progress, plan or scratchpad"),
        ("acknowledge_event", '{"event":"e1"}', "Object missing required field `decision`"),
        ("set_working_state", '{"plan":"one"}', "Expected `array | null`, got `str` - at `$.plan`"),
    ],
)
def test_a_model_is_told_what_it_got_wrong(
    session: Session, name: str, arguments: str, told: str
) -> None:
    session.append("hi")
    assert told in refused(session, name, arguments)
    assert session.working == Working()


def test_calls_of_other_tools_are_left_to_whoever_has_them(session: Session) -> None:
    session.append("hi")
    before = len(session.path)
    assert session.use(ToolCall("c", "bash", '{"command":"ls"}')) is None
    assert session.use(ToolCall("c", "recal", "{}")) is None
    assert len(session.path) == before
    own = ToolCall("c", "search_context", '{"query":"hi"}')
    session.append(Message("assistant", (own,)))
    assert session.use(own) is not None


def test_a_tool_of_the_callers_own_that_has_the_name_of_one_of_ours_is_the_callers(
    session: Session,
) -> None:
    session.change(
        tools=[
            {
                "type": "function",
                "function": {"name": "recall", "parameters": {"properties": {"product": {}}}},
            }
        ]
    )
    session.append("which cars were called back?")
    assert session.use(ToolCall("c", "recall", '{"product":"car"}')) is None
    session.change(tools=tools())
    own = ToolCall("c", "recall", '{"handle":"~zzzzzzzzzzzz"}')
    session.append(Message("assistant", (own,)))
    assert session.use(own) is not None


def test_markers_name_the_tool_only_where_the_request_declares_it() -> None:
    history = [{"role": "user", "content": f"{n} " + "word " * 400} for n in range(30)]
    for declared in ((), tools()):
        context = weave(history, window=3000, reserve_output=200, tools=declared)
        handles = {handle for item in context.report.items for handle in item.handles}
        assert handles
        for wire in (context.openai(), context.anthropic(), context.responses()):
            text = to_json(wire)
            assert all(
                (f"recall {handle}" in text) == bool(declared)
                for handle in handles
                if handle in text
            )
            assert any(
                f"{'recall' if declared else 'handle'} {handle}" in text for handle in handles
            )


def test_words_that_look_like_a_marker_are_sent_as_they_are() -> None:
    said = "[3 messages left out here; recall ~aaaaaaaaaaaa]"
    history = [{"role": "user", "content": "word " * 4000}, {"role": "user", "content": said}]
    assert (
        weave(history, window=3000, reserve_output=200).openai()["messages"][-1]["content"] == said
    )


def test_calls_that_wait_for_a_result_come_back_with_their_ids(session: Session) -> None:
    calls = (ToolCall("a", "bash", '{"command":"make"}'), ToolCall("b", "read", "{}"))
    session.append(
        "go", Message("assistant", calls), {"role": "tool", "tool_call_id": "b", "content": "ok"}
    )
    assert session.resume().pending == calls[:1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "handle",
                    "from",
                    "tokens",
                    "query",
                    "limit",
                    "progress",
                    "plan",
                    "scratchpad",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


NAMES = st.sampled_from([tool.name for tool in tools()]) | st.text(max_size=9)
CALLS = st.lists(
    st.tuples(NAMES, st.text(max_size=30) | JSON.map(json.dumps)), min_size=20, max_size=20
)


@settings(max_examples=examples(10))
@given(calls=CALLS)
def test_no_call_raises(calls: list[tuple[str, str]]) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new()
        session.append("The heddle, the warp and the weft: 4711.")
        for name, arguments in calls:
            call(session, name, arguments)


def test_a_model_logs_queries_and_pivots_decisions(session: Session) -> None:
    goal = {"node_type": "goal", "title": "Add authentication", "confidence": "85"}
    said = done(session, "decision_log", goal)
    [made] = session.decisions.active_goals()
    assert said == f"Logged {made.id} [goal] Add authentication (confidence: 85%)"
    child = {"node_type": "decision", "title": "Use JWT", "parent_id": made.id[:6]}
    done(session, "decision_log", {**child, "edge_type": "chosen", "description": None})
    jwt = session.decisions.recent()[0]
    assert [edge.kind for edge in session.decisions.edges(jwt.id)] == ["chosen"]
    assert jwt.session == session.id
    goals = done(session, "decision_query", {"query_type": "active_goals"})
    assert goals == f"{made.id} [goal] Add authentication (confidence: 85%)"
    recent = {"query_type": "recent_decisions", "search_term": None, "limit": 1}
    assert done(session, "decision_query", recent) == f"{jwt.id} [decision] Use JWT"
    found = {"query_type": "search", "search_term": "jwt"}
    assert done(session, "decision_query", found) == f"{jwt.id} [decision] Use JWT"
    assert done(session, "decision_query", {"query_type": "pulse"}).startswith("Health: 80 of 100")
    pivot = {"old_node_id": jwt.id, "observation": "no", "new_approach": "Use mTLS"}
    assert "[decision] Use mTLS" in done(session, "pivot_decision", pivot)
    assert session.decisions.decision(jwt.id).status == "superseded"
    for tool, takes, why in (
        ("decision_log", {"node_type": "gaol", "title": "x"}, "the nearest is goal"),
        ("decision_log", {"node_type": "goal", "title": " "}, "needs a title"),
        ("decision_log", {**child, "parent_id": "zzzz"}, "no decision"),
        ("decision_query", {"query_type": "search"}, "search_term"),
        ("pivot_decision", {**pivot, "new_approach": "again"}, "superseded by"),
    ):
        assert why in refused(session, tool, takes)
