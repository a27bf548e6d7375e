"""Token-aware selection of tools: what is left out, what never is, and the way back."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loom import (
    Context,
    Conversation,
    Loom,
    Message,
    Policy,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    weave,
)
from loom.budget.counting import gate_counter
from loom.context.tool_choice import shorten_tool
from loom.context.tool_finder import first_sentence
from loom.conversation.message import Carried
from loom.dialects import WIRES
from tests.shared import examples

ZONE = 2048
MODEL = "gpt-4o"
SUBJECTS = [
    "flight",
    "hotel",
    "invoice",
    "ticket",
    "song",
    "recipe",
    "contract",
    "server",
    "camera",
]
VERBS = ["get", "list", "create", "cancel", "export", "archive"]
LONG = " It is described at length, so that the definition takes room in a request." * 9


def make_tool(name: str, about: str) -> Tool:
    schema = {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "A text that says what it is."},
            "amount": {"type": "integer", "description": f"How many.{LONG}", "minimum": 1},
        },
        "required": ["description"],
    }
    return Tool(name, f"{about}.{LONG}", json.dumps(schema))


TOOLS = tuple(
    make_tool(f"{verb}_{subject}{n or ''}", f"{verb.title()} the {subject} {n or ''}")
    for n in range(3)
    for subject in SUBJECTS
    for verb in VERBS
)


def say(text: str, role: Any = "user") -> Message:
    return Message(role, (Text(text),))


def use(name: str, number: int, arguments: str = "{}", result: str = "done") -> list[Message]:
    call = ToolCall(f"call_{number}", name, arguments)
    return [Message("assistant", (call,)), Message("tool", (ToolResult(call.id, (Text(result),)),))]


def load(*names: str, number: int = 1) -> list[Message]:
    return use("find_tools", number, json.dumps({"query": None, "load": names}), "Loaded.")


def select(messages: Sequence[Message], **options: Any) -> Context:
    given = {"tools": TOOLS, "zones": {"tool_definitions": ZONE}, "model": MODEL}
    return weave(list(messages), **{**given, **options})


def names(context: Context) -> list[str]:
    return [tool.name for tool in context.conversation.tools]


def tokens(tools: Sequence[Tool]) -> int:
    return gate_counter(MODEL).count_tools(tools)


def test_many_tools_are_fitted_into_their_zone_with_the_one_that_is_asked_for() -> None:
    assert tokens(TOOLS) > 20 * ZONE
    context = select([say("Please cancel my flight to Oslo")])
    assert "cancel_flight" in names(context)
    assert tokens(context.conversation.tools) <= ZONE
    assert names(context)[-1] == "find_tools"
    assert context.report.zones["tool_definitions"]["used"] <= ZONE


def test_tools_that_fit_stay_as_they_are() -> None:
    few = TOOLS[:4]
    context = select([say("Hello")], tools=few)
    assert context.conversation.tools == few
    assert not [item for item in context.report.items if item.place.startswith("tools[")]


def test_default_leaves_tools_whole_up_to_a_share_of_the_window() -> None:
    few = TOOLS[:30]
    assert tokens(few) > 3 * ZONE
    assert weave([say("Hello")], tools=few, window=128_000).conversation.tools == few
    small = weave([say("Hello")], tools=few, window=16_000)
    assert tokens(small.conversation.tools) <= 4_096


@pytest.mark.parametrize("policy", ["turns", "tree", "partitions", "tasks"])
def test_other_policies_declare_all_tools(policy: str) -> None:
    context = select([say("Hello")], policy=policy, window=400_000)
    assert context.conversation.tools == TOOLS


def test_a_policy_may_declare_all_tools() -> None:
    policy = Policy.extends("default", name="all tools", tools="all")
    assert select([say("Hello")], policy=policy).conversation.tools == TOOLS


def test_each_tool_that_is_cut_has_a_line_and_a_handle() -> None:
    context = select([say("Please cancel my flight")])
    lines = {i.place: i for i in context.report.items if i.place.startswith("tools[")}
    sent = {tool.name: tool for tool in context.conversation.tools}
    for n, tool in enumerate(TOOLS):
        if sent.get(tool.name) == tool:
            assert f"tools[{n}]" not in lines
            continue
        line = lines[f"tools[{n}]"]
        assert line.action == ("shrunk" if tool.name in sent else "dropped")
        assert tool.name in line.rule
        assert json.loads(context.recall(line.handles[0]))["name"] == tool.name
        assert line.before == tokens([tool])
    total = sum(i.after for i in context.report.items if i.zone == "tool_definitions")
    assert total == tokens(context.conversation.tools)
    assert any("find_tools lists and loads them" in note for note in context.report.notes)


def test_a_line_tells_the_window_at_which_a_tool_is_whole() -> None:
    few = TOOLS[:40]
    context = weave([say("Hello")], tools=few, window=16_000, model=MODEL, reserve_output=1000)
    lines = [i for i in context.report.items if i.place.startswith("tools[")]
    assert lines
    for line in (min(lines, key=lambda i: i.returns_at), max(lines, key=lambda i: i.returns_at)):
        larger = weave(
            [say("Hello")], tools=few, window=line.returns_at, model=MODEL, reserve_output=1000
        )
        assert few[int(line.place[6:-1])] in larger.conversation.tools


def test_a_short_definition_takes_the_same_arguments() -> None:
    schema = {
        "type": "object",
        "title": "Arguments",
        "properties": {
            "description": {"type": "string", "description": "A text."},
            "title": {"enum": ["description", {"title": "x"}], "default": {"description": "y"}},
            "list": {"type": "array", "items": {"$ref": "#/$defs/one", "description": "One."}},
        },
        "$defs": {
            "one": {"anyOf": [{"const": {"description": "z"}}, {"title": "t", "type": "null"}]}
        },
        "additionalProperties": False,
    }
    tool = Tool("f", "It does this. And more.", json.dumps(schema), carried=Carried("openai", "{}"))
    short = shorten_tool(tool)
    assert short.description == "It does this. …"
    assert short.carried == tool.carried
    assert json.loads(short.schema) == {
        "type": "object",
        "properties": {
            "description": {"type": "string"},
            "title": {"enum": ["description", {"title": "x"}], "default": {"description": "y"}},
            "list": {"type": "array", "items": {"$ref": "#/$defs/one"}},
        },
        "$defs": {"one": {"anyOf": [{"const": {"description": "z"}}, {"type": "null"}]}},
        "additionalProperties": False,
    }
    assert shorten_tool(Tool("g", "Short.")) == Tool("g", "Short.")


def test_what_providers_run_and_what_tool_choice_names_stays() -> None:
    server = Tool("web_search", kind="web_search_20250305", carried=Carried("anthropic", "{}"))
    said = Conversation(
        messages=(say("Please cancel my flight"),),
        tools=(*TOOLS, server),
        settings=Carried(
            "openai",
            json.dumps(
                {"tool_choice": {"type": "function", "function": {"name": "export_camera2"}}}
            ),
        ),
    )
    context = weave(said, zones={"tool_definitions": ZONE}, model=MODEL)
    assert {"web_search", "export_camera2"} <= set(names(context))
    assert server in context.conversation.tools


def test_tools_that_texts_of_loom_name_stay() -> None:
    own = [make_tool(name, "Something else") for name in ("recall", "load_skill")]
    assert {"recall", "load_skill"} <= set(names(select([say("Hello")], tools=(*TOOLS, *own))))


def test_what_is_left_of_a_large_zone_makes_tools_whole() -> None:
    limit = tokens(TOOLS) * 9 // 10
    context = select([say("Hello")], zones={"tool_definitions": limit}, window=400_000)
    used = tokens(context.conversation.tools)
    assert limit * 0.97 <= used <= limit
    assert sum(tool in TOOLS for tool in context.conversation.tools) > len(TOOLS) * 0.75


def test_a_tool_of_the_caller_may_have_the_name_of_the_finder() -> None:
    own = Tool("find_tools", "Find screwdrivers.", '{"type":"object","properties":{"size":{}}}')
    context = select([say("Hello")], tools=(own, *TOOLS))
    assert names(context)[-1] == "find_more_tools"
    call = ToolCall("a", "find_tools", "{}")
    assert context.use(call) is None
    assert context.use(replace(call, name="find_more_tools")) is not None


# ── the tool that finds others ───────────────────────────────────────────────


def test_find_tools_lists_what_matches_and_loads_what_is_named() -> None:
    context = select([say("Hello")])
    answer = context.use(ToolCall("a", "find_tools", '{"query":"export a recipe","load":null}'))
    assert answer is not None
    assert "- export_recipe: Export the recipe" in answer.results[0].parts[0].text
    wrong = context.use(ToolCall("b", "find_tools", '{"query":null,"load":["export_recipes"]}'))
    assert wrong is not None
    assert wrong.results[0].error
    assert "There is no tool 'export_recipes'" in wrong.results[0].parts[0].text
    broken = context.use(ToolCall("c", "find_tools", "{"))
    assert broken is not None
    assert broken.results[0].error
    everything = context.use(ToolCall("d", "find_tools", "{}"))
    assert everything is not None
    assert f"{len(TOOLS)} tools" in everything.results[0].parts[0].text


def test_a_loaded_tool_begins_an_epoch_that_says_so_and_stays() -> None:
    said = [say("Please cancel my flight")]
    first = select(said)
    assert not {"export_camera2", "list_song1"} & set(names(first))
    said += load("export_camera2", "list_song1")
    second = select(said, previous=first)
    assert second.report.epoch == first.report.epoch + 1
    assert second.report.epoch_reason == "find_tools loaded export_camera2, list_song1"
    assert {TOOLS[TOOLS.index(t)] for t in TOOLS if t.name in ("export_camera2", "list_song1")} <= {
        *second.conversation.tools
    }
    said += [say("Loaded.", "assistant"), say("Now an invoice")]
    third = select(said, previous=second)
    assert third.report.epoch_reason == "continued"
    assert third.conversation.tools == second.conversation.tools
    # also without the last report, and in epochs that begin for other reasons
    assert {"export_camera2", "list_song1"} <= set(names(select(said)))
    other = select(said, previous=third, system="Another system text.")
    assert other.report.epoch > third.report.epoch
    assert {"export_camera2", "list_song1"} <= set(names(other))


@pytest.mark.parametrize("size", [ZONE, 100_000])
def test_a_tool_that_is_given_twice_is_declared_once(size: int) -> None:
    messages = [Message("user", (Text("Cancel the flight."),))]
    other = replace(TOOLS[3], description="Something else.")
    given = [*TOOLS[:30], other, *TOOLS[3:]]
    context = weave(messages, tools=given, model=MODEL, zones={"tool_definitions": size})
    plain = weave(messages, tools=TOOLS, model=MODEL, zones={"tool_definitions": size})
    for wire in WIRES:
        assert context.render(wire.name)["tools"] == plain.render(wire.name)["tools"]
    repaired = [item.rule for item in context.report.items if item.action == "repaired"]
    assert f"duplicate-tool: dropped another definition of {TOOLS[3].name}" in repaired
    assert len(repaired) == 28


def test_a_zone_of_0_declares_what_is_in_use_and_find_tools() -> None:
    messages = [Message("user", (Text("Cancel the flight."),))]
    context = weave(messages, tools=TOOLS[:5], model=MODEL, zones={"tool_definitions": 0})
    assert [each["function"]["name"] for each in context.openai()["tools"]] == ["find_tools"]


def test_find_tools_stays_declared_where_the_history_calls_it() -> None:
    said = [say("Please cancel my flight"), *load("export_camera2"), say("And now?")]
    context = select(said, zones={"tool_definitions": 100_000}, window=400_000)
    assert context.conversation.tools[:-1] == TOOLS
    assert names(context)[-1] == "find_tools"
    assert not [note for note in context.report.notes if "left out" in note]
    said += [say("Then this.", "assistant"), say("More")]
    more = select(said, zones={"tool_definitions": 100_000}, window=400_000, previous=context)
    assert more.report.epoch_reason == "continued"
    assert more.conversation.tools == context.conversation.tools


def test_a_load_that_failed_or_waits_loads_nothing() -> None:
    call = ToolCall("a", "find_tools", '{"query":null,"load":["export_camera2"]}')
    said = [say("Hello"), Message("assistant", (call,))]
    assert "export_camera2" not in names(select(said))
    first = select(said)
    refused = Message("tool", (ToolResult("a", (Text("no"),), True),))
    assert "export_camera2" not in names(select([*said, refused]))
    answered = Message("tool", (ToolResult("a", (Text("yes"),)),))
    assert "export_camera2" in names(select([*said, answered], previous=first))


def test_a_call_of_a_tool_that_is_left_out_begins_an_epoch_with_it() -> None:
    said = [say("Please cancel my flight")]
    first = select(said)
    said += use("export_camera2", 1)
    second = select(said, previous=first)
    assert "a tool was called that the request left out" in second.report.epoch_reason
    assert "export_camera2" in names(second)


def test_a_tool_that_was_used_in_what_is_left_out_is_of_more_value() -> None:
    said = [say("Begin"), *use("export_camera2", 1, result="word " * 6000)]
    for n in range(2, 8):
        said += [say(f"Number {n}. " + "filler " * 1500), say("Understood.", "assistant")]
    said += [say("Go on")]
    context = select(said, window=12_000, reserve_output=500)
    assert "export_camera2" in names(context)


def test_the_first_sentence_of_a_description() -> None:
    assert first_sentence("Does it. Then more.") == "Does it."
    assert first_sentence("One line\nanother") == "One line"
    assert first_sentence("") == ""
    assert len(first_sentence("word " * 100)) <= 160


# ── laws ─────────────────────────────────────────────────────────────────────


def make_history(random: Random, steps: int) -> list[Message]:
    said: list[Message] = []
    for n in range(steps):
        tool = random.choice(TOOLS)
        match random.randrange(5):
            case 0 | 1:
                said.append(say(f"{random.choice(VERBS)} a {random.choice(SUBJECTS)}"))
                said.append(say("Yes.", "assistant"))
            case 2:
                said += [say("Then"), *use(tool.name, n, result="word " * random.randrange(400))]
            case 3:
                said += [say("More"), *load(tool.name, random.choice(TOOLS).name, number=n)]
            case _:
                said.append(say("filler " * random.randrange(600)))
                said.append(say("Good.", "assistant"))
    return [*said, say(f"Please {random.choice(VERBS)} the {random.choice(SUBJECTS)}")]


def check_laws(context: Context, window: int, reserve: int) -> None:
    sent = set(names(context))
    # it fits
    assert context.report.input_tokens + reserve <= window
    # never one in use
    shown = {call.name for message in context.conversation.messages for call in message.calls}
    assert shown <= sent
    # every definition takes what it took
    given = {tool.name: tool for tool in TOOLS}
    for tool in context.conversation.tools[:-1]:
        assert tool in (given[tool.name], shorten_tool(given[tool.name]))
    # every tool is sent whole, or has a line
    whole = {tool.name for tool in TOOLS if tool in context.conversation.tools}
    cut = [item for item in context.report.items if item.place.startswith("tools[")]
    assert len(whole) + len(cut) == len(TOOLS)
    total = sum(item.after for item in context.report.items if item.zone == "tool_definitions")
    assert total == tokens(context.conversation.tools)
    # every wire takes it
    for wire in WIRES:
        found = wire.check(context.render(wire.name))
        assert not [finding for finding in found if finding.level == "error"]


@settings(max_examples=examples(5), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([9_000, 20_000, 60_000]))
def test_the_laws_hold_for_each_step_of_a_session(seed: int, window: int) -> None:
    random = Random(seed)
    said = make_history(random, random.randrange(2, 14))
    previous: Context | None = None
    for stop in [n + 1 for n, message in enumerate(said) if message.role in ("user", "tool")]:
        options: dict[str, Any] = {"window": window, "reserve_output": 500}
        context = select(said[:stop], previous=previous, **options)
        check_laws(context, window, 500)
        again = select(said[:stop], previous=previous, **options)
        assert again.openai() == context.openai()
        if previous and context.report.epoch == previous.report.epoch:
            assert context.conversation.tools == previous.conversation.tools
        elif previous and context.conversation.tools != previous.conversation.tools:
            assert context.report.epoch_reason != "continued"
        previous = context


@settings(max_examples=examples(3), deadline=None)
@given(st.integers(0, 2**32))
def test_a_session_declares_what_a_call_that_continues_declares(seed: int) -> None:
    random = Random(seed)
    said = make_history(random, random.randrange(2, 8))
    options: dict[str, Any] = {"window": 40_000, "reserve_output": 500}
    options["zones"] = {"tool_definitions": ZONE}
    previous: Context | None = None
    with Loom.open(":memory:") as loom:
        session = loom.new(model=MODEL, tools=TOOLS)
        for n, message in enumerate(said):
            session.append(message)
            if message.role not in ("user", "tool"):
                continue
            made = asyncio.run(session.prepare(**options))
            previous = weave(said[: n + 1], tools=TOOLS, model=MODEL, previous=previous, **options)
            assert made.conversation.tools == previous.conversation.tools
            assert made.report.epoch_reason == previous.report.epoch_reason or n < 2


# ── sessions ─────────────────────────────────────────────────────────────────


def test_a_session_answers_the_tool_and_remembers_the_choice_after_a_restart(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"zones": {"tool_definitions": ZONE}, "window": 60_000}
    url = str(tmp_path / "kept.db")
    with Loom.open(url) as loom:
        session = loom.new(model=MODEL, tools=TOOLS)
        first = asyncio.run(session.prepare("Please cancel my flight", **options))
        assert "export_camera2" not in names(first)
        call = ToolCall("a", "find_tools", '{"query":"camera","load":["export_camera2"]}')
        session.absorb(Message("assistant", (call,)))
        node = session.use(call)
        assert node is not None
        assert node.message is not None
        assert "Loaded" in node.message.results[0].parts[0].text
        assert session.use(call) == node
    with Loom.open(url) as loom:
        session = loom.session(session.id)
        second = asyncio.run(session.prepare(**options))
        assert second.report.epoch_reason == "find_tools loaded export_camera2"
        session.absorb(say("I see.", "assistant"))
        left_out = next(i for i in second.report.items if i.place.startswith("tools["))
    with Loom.open(url) as loom:
        session = loom.session(session.id)
        third = asyncio.run(session.prepare("Now a song", **options))
        assert third.report.epoch_reason == "continued"
        assert third.conversation.tools == second.conversation.tools
        assert "name" in session.recall(left_out.handles[0])
        fork = session.fork()
        again = asyncio.run(fork.prepare(**options))
        assert again.conversation.tools == third.conversation.tools


def test_a_tree_selects_tools_too() -> None:
    options: dict[str, Any] = {"zones": {"tool_definitions": ZONE}, "window": 60_000}
    with Loom.open(":memory:") as loom:
        session = loom.new(model=MODEL, tools=TOOLS)
        start = session.append(say("Please cancel my flight"))[-1]
        one = asyncio.run(session.prepare(**options))
        session.append(say("Which one?", "assistant"))
        session.append(say("Export the camera"))
        asyncio.run(session.prepare(**options))
        session.switch(start.id)
        back = asyncio.run(session.prepare(**options))
        assert names(back)[-1] == "find_tools"
        assert "cancel_flight" in names(back)
        assert "cancel_flight" in names(one)
