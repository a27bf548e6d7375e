"""Each rule of each wire: a request that breaks it, and that alone of the errors."""

import copy
from typing import Any

import pytest

from loom.dialects import WIRES, anthropic, dialect
from loom.dialects.anthropic.rules import check as check_anthropic
from loom.errors import WireError

USER = {"role": "user", "content": "hello"}
LONG = "x" * 65


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)} | fields


def chat_call(*ids: Any, **function: Any) -> dict[str, Any]:
    calls = [
        {"id": i, "type": "function", "function": {"name": "bash", "arguments": "{}"} | function}
        for i in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def claude(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 4096,
        "tools": [{"name": "bash", "input_schema": {}}],
        "messages": list(messages),
    } | fields


def says(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def use(call_id: str, given: Any = None) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call_id,
        "name": "bash",
        "input": {} if given is None else given,
    }


def answer(*ids: str) -> dict[str, Any]:
    return says(
        *({"type": "tool_result", "tool_use_id": i, "content": "done"} for i in ids), role="user"
    )


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | fields


def items(*given: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(given)} | fields


def call_item(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "bash", "arguments": "{}"} | fields


def output_item(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


SHORT, LASTING = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
ENABLED = {"type": "enabled", "budget_tokens": 2048}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}

BROKEN: dict[str, dict[str, Any]] = {
    "openai": {
        "unanswered-call": chat(USER, chat_call("a", "b"), chat_result("a"), USER),
        "orphan-result": chat(USER, chat_result("a")),
        "duplicate-result": chat(USER, chat_call("a"), chat_result("a"), chat_result("a")),
        "duplicate-id": chat(USER, chat_call("a", "a"), chat_result("a")),
        "reused-id": chat(USER, chat_call("a"), chat_result("a"), chat_call("a"), chat_result("a")),
        "id-length": chat(USER, chat_call(LONG), chat_result(LONG)),
        "too-many-calls": chat(
            USER, chat_call(*map(str, range(129))), *map(chat_result, map(str, range(129)))
        ),
        "empty-message": chat(USER, {"role": "assistant", "content": ""}),
        "empty-content": chat({"role": "user", "content": []}),
        "no-content": chat({"role": "user"}),
        "no-messages": chat(),
        "arguments-text": chat(USER, chat_call("a", arguments={}), chat_result("a")),
        "unknown-role": chat({"role": "wizard", "content": "x"}),
        "name-form": chat(USER | {"name": "Mary Ann"}),
        "parsed-field": chat(USER, chat_call("a", parsed_arguments={}), chat_result("a")),
        "empty-calls": chat(USER, {"role": "assistant", "content": "hi", "tool_calls": []}),
        "null-call": chat(USER, {"role": "assistant", "content": "hi", "function_call": None}),
        "answer-field": chat(
            USER, {"role": "assistant", "content": "hi", "annotations": [], "refusal": None}
        ),
        "tool-name": chat(USER, tools=[{"type": "function", "function": {"name": "a.b"}}]),
        "no-model": {"messages": [USER]},
    },
    "anthropic": {
        "unanswered-call": claude(USER, says(use("a"), use("b")), answer("a")),
        "orphan-result": claude(answer("a")),
        "duplicate-result": claude(USER, says(use("a")), answer("a", "a")),
        "results-first": claude(
            USER, says(use("a")), says(text("wait"), *answer("a")["content"], role="user")
        ),
        "server-tool-pair": claude(USER, says(SEARCH), USER),
        "duplicate-id": claude(USER, says(use("a")), answer("a"), says(use("a")), answer("a")),
        "id-form": claude(USER, says(use("a.b")), answer("a.b")),
        "id-length": claude(USER, says(use(LONG)), answer(LONG)),
        "empty-text": claude(says(text("  "), role="user")),
        "empty-message": claude({"role": "user", "content": ""}),
        "marked-empty-text": claude(says(text("", cache_control=SHORT), role="user")),
        "too-many-marks": claude(
            says(*(text("a", cache_control=SHORT) for _ in range(5)), role="user")
        ),
        "mark-order": claude(
            says(text("a", cache_control=LASTING), role="user"),
            system=[text("s", cache_control=SHORT)],
        ),
        "thinking-signed": claude(USER, says({"type": "thinking", "thinking": "hm"}, text("a"))),
        "thinking-last": claude(USER, says(text("a"), THOUGHT), USER),
        "thinking-kept": claude(USER, says(text("a"), use("a")), answer("a"), thinking=ENABLED),
        "thinking-budget": claude(USER, thinking={"type": "enabled", "budget_tokens": 4096}),
        "too-many-messages": claude(*[USER] * 100_001),
        "no-messages": claude(),
        "no-max-tokens": {"model": "m", "messages": [USER]},
        "input-object": claude(USER, says(use("a", given=[])), answer("a")),
        "unknown-role": claude({"role": "tool", "content": "x"}),
        "block-place": claude(says(THOUGHT, text("a"), role="user")),
        "parsed-field": claude(USER, says(text("{}", parsed_output={})), USER),
        "answer-field": claude(USER, says(text("hi")) | {"id": "msg_1", "usage": {}}, USER),
        "no-model": claude(USER, model=""),
        "duplicate-tool": claude(USER, tools=[{"name": "a"}, {"name": "a"}]),
        "no-tools": claude(USER, says(use("a")), answer("a"), tools=[]),
        "first-user": claude(says(text("hi")), USER),
        "trailing-space": claude(USER, says(text("hi "))),
        "prefill": claude(USER, says(text("hi"))),
    },
    "responses": {
        "unanswered-call": items(USER, call_item("a")),
        "orphan-result": items(USER, output_item("a")),
        "duplicate-result": items(USER, call_item("a"), output_item("a"), output_item("a")),
        "duplicate-id": items(
            USER, call_item("a"), output_item("a"), call_item("a"), output_item("a")
        ),
        "id-length": items(USER, call_item(LONG), output_item(LONG)),
        "reasoning-alone": items(USER, {"type": "reasoning", "id": "rs_1", "summary": []}, USER),
        "empty-content": items({"role": "user", "content": []}),
        "part-type": items({"role": "user", "content": [{"type": "output_text", "text": "x"}]}),
        "arguments-text": items(USER, call_item("a", arguments={}), output_item("a")),
        "parsed-field": items(USER, call_item("a", parsed_arguments={}), output_item("a")),
        "null-field": items(USER, call_item("a", status=None), output_item("a")),
        "no-messages": items(),
        "unknown-role": items({"role": "tool", "content": "x"}),
        "no-model": {"input": "hello"},
    },
}
# Where one mistake breaks two rules, both are true.
COMPANIONS = {
    ("openai", "duplicate-id"): {"unanswered-call"},
    ("anthropic", "marked-empty-text"): {"empty-text"},
    ("openai", "unanswered-call"): set(),
}
CASES = [(wire, rule) for wire, rules in BROKEN.items() for rule in rules]


@pytest.mark.parametrize(("wire", "rule"), CASES, ids=[f"{wire}-{rule}" for wire, rule in CASES])
def test_a_broken_rule_is_found_and_no_other_error(wire: str, rule: str) -> None:
    request = BROKEN[wire][rule]
    before = copy.deepcopy(request)
    findings = dialect(wire).check(request)
    assert rule in {finding.rule for finding in findings}
    others = {finding.rule for finding in findings if finding.level == "error"} - {rule}
    assert others <= COMPANIONS.get((wire, rule), set())
    finding = next(finding for finding in findings if finding.rule == rule)
    assert finding.place
    assert finding.way_out
    assert finding.text.startswith(dialect(wire).rules[rule].demands)
    assert request == before


@pytest.mark.parametrize("wire", [w.name for w in WIRES])
def test_every_rule_has_a_case(wire: str) -> None:
    by_comparison = {"thinking-changed"}  # needs the request that it was made from: see below
    assert set(dialect(wire).rules) - by_comparison == set(BROKEN[wire])


def test_every_rule_names_its_evidence() -> None:
    for wire in WIRES:
        for rule in wire.rules.values():
            assert rule.evidence


def test_changed_thinking_is_found_against_the_original() -> None:
    original = claude(USER, says(THOUGHT, text("a")), USER)
    changed = copy.deepcopy(original)
    changed["messages"][1]["content"][0]["thinking"] = "hm!"
    assert "thinking-changed" not in {f.rule for f in check_anthropic(original, original)}
    assert "thinking-changed" in {f.rule for f in check_anthropic(changed, original)}
    assert "thinking-changed" in {f.rule for f in check_anthropic(changed, original["messages"])}


def test_a_system_message_inside_the_conversation_is_accepted() -> None:
    request = claude(USER, {"role": "system", "content": "be brief"}, says(use("a")), answer("a"))
    assert [f.rule for f in anthropic.DIALECT.check(request)] == []


def test_the_last_message_may_leave_a_server_tool_open() -> None:
    assert "server-tool-pair" not in {
        f.rule for f in anthropic.DIALECT.check(claude(USER, says(SEARCH)))
    }
    assert "server-tool-pair" in {
        f.rule for f in anthropic.DIALECT.check(claude(USER, says(FOUND, text("a")), USER))
    }


@pytest.mark.parametrize(
    ("wire", "request_body", "place"),
    [
        ("openai", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            "openai",
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}]},
            "messages[0].tool_calls[0].function",
        ),
        ("openai", {"messages": 5}, "messages"),
        ("anthropic", {"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            "anthropic",
            {"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0]",
        ),
        (
            "anthropic",
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}
                ]
            },
            "messages[0].content",
        ),
        ("responses", {"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ("responses", {"input": [{"type": "function_call", "name": "x"}]}, "input[0].call_id"),
        ("responses", [], "request"),
    ],
)
def test_what_is_not_of_the_wires_form_is_refused_by_place(
    wire: str, request_body: Any, place: str
) -> None:
    with pytest.raises(WireError) as caught:
        dialect(wire).parse(request_body)
    assert caught.value.place == place
    assert str(caught.value).startswith(place)
