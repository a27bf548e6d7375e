"""Every seed's estimate to the token, everything that travels counted, nothing counted twice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.budget.calibration import Calibration, observe
from loom.budget.chat import as_message
from loom.budget.counting import (
    Counter,
    counter_for,
    estimate_message_tokens,
    estimate_tool_defs_tokens,
    graphemes,
    is_over_context_budget,
)
from loom.budget.profiles import EstimatedText, Exact, Profile, profile
from loom.budget.tokenizers import tokenizer
from loom.conversation.message import (
    Carried,
    Media,
    Message,
    Opaque,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.dialects import openai
from loom.errors import ChoiceError
from loom.memory.tokenizer import TokenCounter
from tests import strategies
from tests.budget.test_estimate import shared_bench
from tests.shared import AGENTS, needs_shared

exact = tokenizer("o200k_base")
USER = Message("user", (Text("Add error handling"),))  # 18 characters
CALL = Message("assistant", (Text("ok"), ToolCall("call_1", "read_file", '{"path":"a.py"}')))
RESULT = Message("tool", (ToolResult("call_1", (Text("File edited"),)),))  # 11 characters
SEEN = Message("user", (Text("what is this?"), Media("image", "url", "https://example.org/a.png")))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("window", [18 // 4 + 4, 0 + 4, 11 // 4 + 4, 13 // 4 + 4]),
        ("partitions", [18 // 4, 0, 11 // 4, 13 // 4]),
        (
            "turns",
            [
                (18 + 12) * 2 // 5,
                (2 + 6 + 8 + 9 + 15 + 12) * 2 // 5,
                (11 + 6 + 12) * 2 // 5,
                (13 + 12) * 2 // 5 + 256,
            ],
        ),
        ("tree", [5, 1, 3, 4]),
        ("tasks", [4 + 4 + 1, 1 + 4 + 2, 2 + 4 + 1, 3 + 4 + 1]),
        ("tasks-tiktoken", [3 + 3, 1 + 3, 2 + 3, 4 + 3]),
        ("tasks-anthropic", [5 + 3, 0 + 3, 3 + 3, 3 + 3]),
    ],
)
def test_each_seed_counts_as_it_prints(name: str, expected: list[int]) -> None:
    counter = Counter(profile(name))
    assert [counter.count_message(message) for message in (USER, CALL, RESULT, SEEN)] == expected
    assert counter.count_messages([USER, RESULT]) == expected[0] + expected[2] + (
        3 if name == "tasks-tiktoken" else 0
    )


def test_the_window_seed_counts_what_a_reader_sees_as_one_character() -> None:
    assert graphemes("e\u0301a") == 2
    assert graphemes("👩‍👩‍👧 🇩🇪🇫🇷 👍🏽") == 6
    assert graphemes("a\r\nb") == 3
    assert graphemes("नमस्ते") < len("नमस्ते")
    assert Counter(profile("window")).count_text("e\u0301" * 8) == 2
    assert Counter(profile("partitions")).count_text("e\u0301" * 8) == 4


def test_the_turns_seed_counts_reasoning_and_tools() -> None:
    thinking = Message("assistant", (Reasoning("let me see", "anthropic"), Text("yes")))
    assert estimate_message_tokens(thinking) == (10 + 3 + 12) * 2 // 5
    tool = {
        "type": "function",
        "function": {"name": "bash", "description": "Run it", "parameters": {"type": "object"}},
    }
    assert estimate_tool_defs_tokens([tool]) == (4 + 6 + len('{"type":"object"}') + 20) * 2 // 5
    assert estimate_tool_defs_tokens(
        [Tool("bash", "Run it", '{"type":"object"}')] * 2
    ) == 2 * estimate_tool_defs_tokens([tool])


def test_over_budget_means_more_than_the_window() -> None:
    chat = [{"role": "user", "content": "x" * 88}]  # 40 tokens
    assert not is_over_context_budget(100, chat, [], 60)
    assert is_over_context_budget(100, chat, [], 61)
    assert is_over_context_budget(100, [as_message(chat[0])], [Tool("t")], 60)


def test_chat_dictionaries_and_messages_count_the_same() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "read_file", "arguments": '{"path":"a.py"}'},
    }
    chat = [
        {"role": "user", "content": "Add error handling"},
        {"role": "assistant", "content": "ok", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "File edited"},
    ]
    assert list(map(as_message, chat)) == [USER, CALL, RESULT]
    assert (
        TokenCounter().count_messages(chat)
        == TokenCounter().count_messages([USER, CALL, RESULT])
        > 0
    )
    assert TokenCounter("gpt-4o").count_messages(chat) == counter_for("gpt-4o").count_messages(
        [USER, CALL, RESULT]
    )


BASE = Message("assistant", (Text("x"),))
EXTRA = "one two three four five"


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-6"])
@pytest.mark.parametrize(
    "richer",
    [
        Message("assistant", (Text("x " + EXTRA),)),
        Message("assistant", (Text("x"),), author=EXTRA),
        Message("assistant", (Text("x"), Reasoning(EXTRA, "anthropic"))),
        Message("assistant", (Text("x"), Reasoning("", "responses", encrypted="QUJD" * 20))),
        Message("assistant", (Text("x"), ToolCall(EXTRA, "", ""))),
        Message("assistant", (Text("x"), ToolCall("", EXTRA, ""))),
        Message("assistant", (Text("x"), ToolCall("", "", EXTRA))),
        Message("assistant", (Text("x"), Opaque("anthropic", json.dumps({"type": EXTRA})))),
        Message("tool", (ToolResult(EXTRA, (Text("x"),)),)),
        Message("tool", (ToolResult("", (Text("x " + EXTRA),)),)),
        Message("user", (Text("x"), Media("image", "url", "https://example.org"))),
        Message("user", (Text("x"), Media("file", "text", EXTRA, name="notes.txt"))),
    ],
)
def test_everything_that_travels_is_counted(model: str, richer: Message) -> None:
    counter = counter_for(model)
    assert counter.count_message(richer) >= counter.count_message(BASE) + 5


def test_a_message_is_measured_once() -> None:
    counter = Counter(Profile(name="probe", text=EstimatedText()))
    measured: list[str] = []
    counter._measure = lambda text: measured.append(text) or 1  # type: ignore[func-returns-value]
    again = Message("user", (Text("Add error handling"),))
    assert counter.count_messages([USER, again, USER]) == 3
    assert measured == ["Add error handling"]


def test_what_is_remembered_is_bounded() -> None:
    counter = Counter(profile("partitions"), remember=16)
    messages = [Message("user", (Text("word " * n),)) for n in range(100)]
    assert [counter.count_message(message) for message in messages] == [
        5 * n // 4 for n in range(100)
    ]
    assert len(counter._known) <= 16


def openai_chats() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in sorted(AGENTS.glob("trail_*.json")):
        yield path.name, json.loads(path.read_text())["messages"]
    for path in sorted(AGENTS.glob("*.traj")):
        yield path.name, json.loads(path.read_text())["history"]
    for run in json.loads((AGENTS / "taubench_airline_60.json").read_text()):
        yield f"taubench {run['task_id']}", run["traj"]
    yield (
        "pi",
        [
            pi
            for line in (AGENTS / "pi_large_session.jsonl").open()
            if (pi := from_pi(json.loads(line)))
        ],
    )


def from_pi(line: dict[str, Any]) -> dict[str, Any] | None:
    message = line.get("message") or {}
    if message.get("role") not in ("user", "assistant", "toolResult"):
        return None
    blocks = (
        message["content"]
        if isinstance(message["content"], list)
        else [{"type": "text", "text": message["content"]}]
    )
    chat: dict[str, Any] = {
        "role": message["role"],
        "content": "\n".join(b["text"] for b in blocks if b["type"] == "text"),
    }
    if message["role"] == "toolResult":
        chat |= {"role": "tool", "tool_call_id": message["toolCallId"]}
    calls = [
        {
            "id": b["id"],
            "type": "function",
            "function": {"name": b["name"], "arguments": json.dumps(b["arguments"])},
        }
        for b in blocks
        if b["type"] == "toolCall"
    ]
    return chat | ({"tool_calls": calls} if calls else {})


@needs_shared
def test_no_message_of_the_real_transcripts_is_counted_below_the_shared_measure() -> None:
    measures = shared_bench("measures")
    counter = counter_for("gpt-4o")
    compared = 0
    for name, chat in openai_chats():
        for message in chat:
            counted = counter.count_message(as_message(message))
            assert counted >= measures.message_tokens(message, exact), (name, message)
            compared += 1
    assert compared > 2000


def words_of(content: Any) -> Any:
    """The words of a content: the shared measure would count a list with the escapes of ASCII JSON,
    which no model reads.
    """
    if not isinstance(content, list):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


@needs_shared
@given(strategies.conversations())
def test_a_rendered_request_is_never_counted_below_the_shared_measure(conversation: Any) -> None:
    measures = shared_bench("measures")
    counter = counter_for("gpt-4o")
    messages = [*conversation.system, *conversation.messages]
    wire = [
        message | {"content": words_of(message.get("content"))}
        for message in openai.render_messages(messages, [])
    ]
    measured = sum(
        measures.message_tokens(message, exact)
        for message in wire
        if "function" in str(message.get("tool_calls", "function"))
    )
    assert counter.count_messages(messages) >= measured


def test_exact_profiles_load_nothing_until_they_count() -> None:
    counter = Counter(Profile(name="none", text=Exact("no such vocabulary")))
    assert counter.count_text("") == 0
    with pytest.raises(ValueError, match="no such vocabulary"):
        counter.count_text("x")


@pytest.mark.parametrize("name", ["estimate", "o200k_base", "cl100k_base"])
def test_a_profile_is_found_by_name(name: str) -> None:
    assert profile(name).name == name


def test_an_unknown_profile_is_a_choice_with_the_way_out() -> None:
    with pytest.raises(
        ChoiceError, match="no counter named 'nope'; choose one of window, partitions"
    ):
        profile("nope")


def test_a_list_of_parts_costs_its_wrapping() -> None:
    counter = counter_for("gpt-4o")
    plain = Message("user", (Text("hello"),))
    listed = Message("user", (Text("hello"),), carried=Carried("openai", form=("list",)))
    assert counter.count_message(listed) >= counter.count_message(plain) + 9


def test_what_a_file_says_beside_a_message_is_sent_to_nobody_and_costs_nothing() -> None:
    counter = counter_for("gpt-4o")
    plain = Message("user", (Text("hello"),))
    fields = '{"usage":{"input":12345},"provider":"somebody","stamp":"2026-11-16"}'
    kept = Message("user", (Text("hello"),), carried=Carried("pi", fields))
    sent = Message("user", (Text("hello"),), carried=Carried("openai", fields))
    assert counter.count_message(kept) == counter.count_message(plain)
    assert counter.count_message(sent) > counter.count_message(plain)


def test_calibration_follows_reports_within_bounds() -> None:
    calibration = Calibration()
    assert calibration.ratio("m") == 1.0
    calibration = observe(calibration, "m", counted=1000, reported=1200)
    assert calibration.ratio("m") == 1.2
    calibration = observe(calibration, "m", counted=1000, reported=1000)
    assert calibration.ratio("m") == 1.1
    assert observe(calibration, "m", counted=0, reported=9) == calibration
    # Beyond the bounds a report says more about a mistake than about the tokenizer.
    assert observe(calibration, "m", counted=10, reported=9000) == calibration
    assert observe(calibration, "m", counted=9000, reported=10) == calibration
    assert observe(Calibration(), "m", counted=10, reported=20).ratio("m") == 2.0
    assert observe(calibration, "n", counted=10, reported=12).ratio("m") == 1.1


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=40))
def test_calibration_never_leaves_its_bounds(reports: list[tuple[int, int]]) -> None:
    calibration = Calibration()
    for counted, reported in reports:
        calibration = observe(calibration, "m", counted=counted, reported=reported)
    assert 0.5 <= calibration.ratio("m") <= 2.0


def test_a_calibrated_counter_counts_by_the_ratio() -> None:
    plain, raised = counter_for("claude-sonnet-4-6"), counter_for("claude-sonnet-4-6", ratio=1.5)
    assert raised.count_message(CALL) == -(-plain.count_message(CALL) * 3 // 2)
    assert raised.count_tools([Tool("bash", "Run")]) > plain.count_tools([Tool("bash", "Run")])
