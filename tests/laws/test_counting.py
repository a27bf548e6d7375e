"""The same words count the same, as a text or as a list, on every wire, in every script; and all
that a model reads is counted.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import weave
from loom.budget.counting import Counter, counter_for, gate_counter
from loom.budget.tokenizers import tokenizer
from loom.conversation.message import Conversation, Message
from loom.dialects import DIALECTS
from loom.memory.tokenizer import TokenCounter
from tests import strategies as our
from tests.shared import examples

exact = tokenizer("o200k_base")
COUNTERS = {
    "exact": gate_counter("gpt-4o"),
    "stand-in": gate_counter("claude-sonnet-4-6"),
    "estimate": counter_for("claude-3"),
}
WIRES = ("openai", "anthropic", "responses")

PASSAGES = {
    "chinese": "请先检查配置文件，然后重新运行测试；重试预算用完之前不要报告超时。",
    "arabic": (
        "لا يتم الإبلاغ عن انتهاء المهلة إلا بعد المحاولة الثالثة، وقبل ذلك تكتب الخدمة تحذيرا."
    ),
    "russian": (
        "О превышении времени сообщается только после третьей попытки, до этого лишь "
        "предупреждение."
    ),
    "hindi": "समय सीमा की सूचना केवल तीसरे प्रयास के बाद दी जाती है, उससे पहले चेतावनी लिखती है।",
    "japanese": "タイムアウトは三回目の試行の後にだけ報告されます。",
    "korean": "시간 초과는 세 번째 시도 이후에만 보고됩니다.",
    "thai": "ระบบจะแจ้งว่าหมดเวลาหลังจากลองครั้งที่สามเท่านั้น",
    "hebrew": "פסק הזמן מדווח רק לאחר הניסיון השלישי.",
    "greek": "Η λήξη χρόνου αναφέρεται μόνο μετά την τρίτη προσπάθεια.",
    "emoji": "build ✅ tests 🚀 deploy 🎉 family 👩‍👩‍👧 flag 🇩🇪 ",
    "english": (
        "The timeout is reported after the third attempt; before that there is only a warning."
    ),
    "python": Path(__file__).read_text("utf-8")[:3000],
    "quotes and breaks": 'path = "C:\\\\new"\n\t"two"\r\n' * 20,
    "controls": "a\x00b\x1b[31mred\x1b[0m\u2028end",
}
passages = st.one_of(
    st.sampled_from(list(PASSAGES.values())),
    st.lists(
        st.one_of(st.sampled_from(list(PASSAGES.values())), our.words), min_size=1, max_size=6
    ).map("\n".join),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200),
)

ASKED = {"role": "user", "content": "go on"}


def chat_call(name: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def forms(text: str) -> dict[str, dict[str, list[Any]]]:
    """The messages that say the same words, by who speaks and on which wire; the first of each is
    the plain form.
    """
    use = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}],
    }
    item = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    texts = [text, [{"type": "text", "text": text}]]
    inputs = [text, [{"type": "input_text", "text": text}]]
    replies = [text, [{"type": "output_text", "text": text, "annotations": []}]]

    def results(content: Any) -> list[Any]:
        return [
            use,
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": content}],
            },
        ]

    return {
        "user": {
            "openai": [[{"role": "user", "content": content}] for content in texts],
            "anthropic": [[{"role": "user", "content": content}] for content in texts],
            "responses": [[{"role": "user", "content": content}] for content in inputs],
        },
        "assistant": {
            "openai": [[ASKED, {"role": "assistant", "content": content}] for content in texts],
            "anthropic": [[ASKED, {"role": "assistant", "content": content}] for content in texts],
            "responses": [
                [ASKED, {"role": "assistant", "content": content}] for content in replies
            ],
        },
        "tool": {
            "openai": [
                [chat_call("look"), {"role": "tool", "tool_call_id": "call_1", "content": content}]
                for content in texts
            ],
            "anthropic": [results(content) for content in texts],
            "responses": [
                [item, {"type": "function_call_output", "call_id": "call_1", "output": content}]
                for content in inputs
            ],
        },
    }


def parse(wire: str, messages: list[Any]) -> list[Message]:
    return list(DIALECTS[wire].parse_messages(messages))


@pytest.mark.parametrize("name", COUNTERS)
@settings(max_examples=examples(120))
@given(text=passages)
def test_the_same_words_count_the_same_as_a_text_and_as_a_list_on_every_wire(
    name: str, text: str
) -> None:
    counter = COUNTERS[name]
    for speaker, by_wire in forms(text).items():
        counts = {
            (wire, place): counter.count_messages(parse(wire, said))
            for wire, spelled in by_wire.items()
            for place, said in enumerate(spelled)
        }
        plain = counts["openai", 0]
        most = counter.profile.per_listed_part
        assert all(plain <= count <= plain + most for count in counts.values()), (speaker, counts)
        assert plain >= counter.count_text(text)
        if name != "estimate":
            assert plain >= exact(text)


@pytest.mark.parametrize("kind", PASSAGES)
def test_the_estimate_holds_for_lists_too(kind: str) -> None:
    text = PASSAGES[kind] * 40
    for counter in COUNTERS.values():
        counted = {
            wire: counter.count_messages(parse(wire, forms(text)["user"][wire][1]))
            / counter.count_text(text)
            for wire in WIRES
        }
        assert max(counted.values()) <= 1.1, counted


def test_a_chinese_request_as_a_list_is_sent_whole_where_it_fits() -> None:
    text = "请检查第三次重试之后的超时处理，并写出测试。" * 420
    assert exact(text) < 10_000
    messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    context = weave(messages, model="claude-sonnet-4-6", window=32_000)
    assert context.anthropic()["messages"][0]["content"][0]["text"] == text
    assert context.report.input_tokens <= 1.1 * exact(text)


# ── all that a model reads ───────────────────────────────────────────────────

READ = (
    *("messages", "input", "system", "instructions", "tools", "functions"),
    *("response_format", "text", "prediction", "output_config"),
)
UNREAD = {
    *(
        "type",
        "role",
        "id",
        "status",
        "index",
        "logprobs",
        "cache_control",
        "signature",
        "encrypted_content",
        "format",
    ),
    *(
        "url",
        "image_url",
        "file_id",
        "file_data",
        "file_url",
        "media_type",
        "detail",
        "audio",
        "verbosity",
    ),
}


def read_by_model(wire: Any) -> list[str]:
    """The texts of a rendered request that a model reads."""
    return [text for key in READ if key in wire for text in leaves(key, wire[key], wire)]


def leaves(key: str, value: Any, holder: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, held in value.items() for text in leaves(name, held, value)]
    if isinstance(value, list):
        return [text for held in value for text in leaves(key, held, holder)]
    is_data = key == "data" and isinstance(holder, dict) and holder.get("type") != "text"
    return [value] if isinstance(value, str) and key not in UNREAD and not is_data else []


def count_request(counter: Counter, conversation: Conversation) -> int:
    messages = (*conversation.system, *conversation.messages)
    beside = counter.count_tools(conversation.tools) + counter.count_settings(conversation.settings)
    return counter.count_messages(messages) + beside


schemas = st.fixed_dictionaries(
    {
        "type": st.just("json_schema"),
        "json_schema": st.fixed_dictionaries({"name": our.names, "schema": our.objects}),
    }
)
details = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("reasoning.text"), "text": passages, "signature": our.base64}
        ),
        st.fixed_dictionaries({"type": st.just("reasoning.encrypted"), "data": our.base64}),
        st.fixed_dictionaries({"type": st.just("reasoning.summary"), "summary": passages}),
    ),
    min_size=1,
    max_size=3,
)
custom_call = st.fixed_dictionaries(
    {
        "id": our.good_ids,
        "type": st.just("custom"),
        "custom": st.fixed_dictionaries({"name": our.names, "input": passages}),
    }
)
thoughtful = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": our.texts, "reasoning_details": details},
    optional={"reasoning": our.texts, "tool_calls": st.lists(custom_call, min_size=1, max_size=2)},
)
rich_chat = st.builds(
    lambda request, said, more: {**request, **more, "messages": [*request["messages"], *said]},
    our.chat_requests,
    st.lists(thoughtful, max_size=2),
    st.fixed_dictionaries(
        {},
        optional={
            "response_format": schemas,
            "prediction": st.fixed_dictionaries({"type": st.just("content"), "content": passages}),
            "functions": st.lists(
                st.fixed_dictionaries({"name": our.names, "description": passages}), max_size=2
            ),
        },
    ),
)
rich_claude = st.builds(
    lambda request, schema: {**request, "output_config": {"format": {"schema": schema}}},
    our.claude_requests,
    our.objects,
)
rich_responses = st.builds(
    lambda request, schema: {
        **request,
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema}},
    },
    our.responses_requests,
    our.objects,
)
REQUESTS = {"openai": rich_chat, "anthropic": rich_claude, "responses": rich_responses}


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_all_that_a_model_reads_is_counted_on_every_wire(wire: str, data: st.DataObject) -> None:
    conversation = DIALECTS[wire].parse(data.draw(REQUESTS[wire]))
    counted = count_request(COUNTERS["exact"], conversation)
    for target in WIRES:
        rendered = DIALECTS[target].render(conversation).wire
        assert counted >= sum(map(exact, read_by_model(rendered))), target


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": {"title": "one two three four"}},
            },
        ),
        ("prediction", {"type": "content", "content": "one two three four five six seven"}),
        ("functions", [{"name": "look", "description": "one two three four five six"}]),
    ],
)
def test_settings_that_a_model_reads_take_room(field: str, value: Any) -> None:
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "go"}]}
    plain, rich = (
        weave(DIALECTS["openai"].parse(body)).report
        for body in (request, {**request, field: value})
    )
    assert rich.input_tokens >= plain.input_tokens + 7
    assert any(item.place == "settings" and item.after >= 7 for item in rich.items)
    assert not any(item.place == "settings" for item in plain.items)


def test_settings_that_steer_the_server_cost_nothing() -> None:
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "go"}]}
    more = {
        "temperature": 0.2,
        "metadata": {"team": "one two three"},
        "stop": ["one two three"],
        "seed": 7,
        "user": "one two",
    }
    plain, rich = (
        weave(DIALECTS["openai"].parse(body)).report for body in (request, {**request, **more})
    )
    assert rich.input_tokens == plain.input_tokens


def test_reasoning_details_are_counted_once() -> None:
    thought = "First look at the retry budget, then at the timeout. " * 20
    plain = {"role": "assistant", "content": "ok", "reasoning": thought}
    detailed = {
        **plain,
        "reasoning_details": [{"type": "reasoning.text", "text": thought, "id": "r1"}],
    }
    alone = {key: value for key, value in detailed.items() if key != "reasoning"}
    counter = COUNTERS["exact"]
    counts = [
        counter.count_message(parse("openai", [message])[0]) for message in (plain, detailed, alone)
    ]
    assert max(counts) - min(counts) <= 20
    assert min(counts) >= exact(thought)


def test_what_is_sealed_counts_by_its_length_and_not_as_words() -> None:
    sealed = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 40
    thinking = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "short", "signature": sealed}],
    }
    counted = COUNTERS["exact"].count_message(parse("anthropic", [thinking])[0])
    assert len(sealed) // 4 <= counted <= len(sealed) // 3


def test_dictionaries_are_counted_as_the_wire_reads_them() -> None:
    text = PASSAGES["chinese"]
    counter = COUNTERS["exact"]
    for said in forms(text)["user"]["openai"]:
        assert TokenCounter("gpt-4o").count_messages(said) == counter.count_messages(
            parse("openai", said)
        )


def test_a_custom_input_is_counted_as_the_wire_that_escapes_it() -> None:
    patch = '*** Begin Patch\n-\tsay("no")\n+\tsay("yes")\n' * 50
    call = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": patch}}
    message = parse("openai", [{"role": "assistant", "content": None, "tool_calls": [call]}])[0]
    wire = DIALECTS["anthropic"].render(Conversation(messages=(message,))).wire
    sent = json.dumps(wire["messages"][0]["content"][0]["input"], ensure_ascii=False)
    assert COUNTERS["exact"].count_message(message) >= exact(sent)


def test_reasoning_details_are_left_out_where_there_is_no_room_for_them() -> None:
    thought = "First look at the retry budget, then at the timeout. " * 400
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    details = [{"type": "reasoning.text", "text": thought}]
    messages = [
        {"role": "user", "content": "find the cause"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_details": details},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    ]
    wire = weave(messages, model="gpt-4o", window=2000, reserve_output=0).openai()
    assert sum(exact(text) for text in read_by_model(wire)) <= 2000
    assert any(message.get("tool_calls") for message in wire["messages"])
