"""Judges that are not ours agree with what is rendered after repair, and with what the checkers
call an error.

mistral-common validates a chat request, litellm converts one to Anthropic's wire, the SDKs of both
providers type all three. Where a judge demands what is only its own, a named step leads around that
one rule and the rest of the request is judged.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.conversation.message import Conversation
from loom.dialects import DIALECTS, WIRES
from loom.dialects.repair import repair
from tests import strategies as our
from tests.laws.test_round_trip import STAND_IN
from tests.shared import AGENTS, FIXTURES, examples

Json = dict[str, Any]
JUDGED = 0.6  # the share of cases that a judge must really have seen

torn = our.broken_histories.map(lambda history: Conversation(messages=tuple(history)))
requests = st.one_of(our.conversations(), torn)


def recordings() -> Iterator[Conversation]:
    """The requests of real clients and the shared transcripts, whole."""
    for path in sorted(FIXTURES.glob("wire_*.json")):
        yield DIALECTS["anthropic" if "wire_cc" in path.name else "responses"].parse(
            json.loads(path.read_text())
        )
    for path in sorted(AGENTS.glob("trail_*.json")):
        yield DIALECTS["openai"].parse(json.loads(path.read_text()))


def chat(conversation: Conversation) -> Json:
    return deepcopy(DIALECTS["openai"].render(conversation).wire)


def errors(conversation: Conversation, *wires: str) -> set[str]:
    """The rules that our checkers call broken."""
    found = [f for d in WIRES if d.name in wires for f in d.check(d.render(conversation).wire)]
    return {finding.rule for finding in found if finding.level == "error"}


def judge_all(judge: Callable[[Conversation], bool], usual: int) -> None:
    """Show a judge drawn and recorded requests after repair; it says of each whether there was
    something to judge.
    """
    seen: Counter[bool] = Counter()

    @settings(max_examples=examples(usual))
    @given(conversation=requests)
    def drawn(conversation: Conversation) -> None:
        seen[judge(repair(conversation).conversation)] += 1

    drawn()
    for conversation in recordings():
        assert judge(repair(conversation).conversation)
    assert seen[True] >= JUDGED * seen.total(), seen


class Step(NamedTuple):
    """A way around one rule that is a judge's own, and why it is no rule of the wire."""

    rule: str
    why: str
    around: Callable[[Json], None]


def each_message(change: Callable[[Json], Any], *roles: str) -> Callable[[Json], None]:
    def around(wire: Json) -> None:
        for message in wire["messages"]:
            if message["role"] in roles:
                change(message)

    return around


def each_part(change: Callable[[Json], Json]) -> Callable[[Json], None]:
    def around(wire: Json) -> None:
        for message in wire["messages"]:
            if isinstance(message.get("content"), list):
                message["content"] = [change(part) for part in message["content"]]

    return around


def each_call(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    return each_message(
        lambda message: [change(call) for call in message.get("tool_calls") or ()], "assistant"
    )


def drop(*keys: str) -> Callable[[Json], None]:
    def around(wire: Json) -> None:
        for key in keys:
            wire.pop(key, None)

    return around


def call_custom_as_function(call: Json) -> None:
    if call["type"] == "custom":
        custom = call.pop("custom")
        call |= {
            "type": "function",
            "function": {
                "name": custom["name"],
                "arguments": json.dumps({"input": custom["input"]}),
            },
        }


CUSTOM = (
    "OpenAI's custom tools take a text; the judge knows functions only, so the text goes under "
    "`input`"
)
DEVELOPER = "OpenAI's newer word for system"
rename_developer = each_message(lambda message: message.update(role="system"), "developer")


# ── mistral-common: is this chat request one that a server may take? ─────────


def open_with_user(wire: Json) -> None:
    if wire["messages"][0]["role"] not in ("user", "system"):
        wire["messages"].insert(0, {"role": "user", "content": "begin"})


def close_with_user(wire: Json) -> None:
    if wire["messages"][-1]["role"] == "assistant":
        wire["messages"].append({"role": "user", "content": "go on"})


def turn_late_system_to_user(wire: Json) -> None:
    for before, message in zip(wire["messages"], wire["messages"][1:], strict=False):
        if message["role"] == "system" and before["role"] in ("assistant", "tool"):
            message["role"] = "user"


def shorten_ids(wire: Json) -> None:
    names: dict[str, str] = {}

    def named(call_id: str) -> str:
        return names.setdefault(call_id, f"{len(names):09d}")

    each_call(lambda call: call.update(id=named(call["id"])))(wire)
    each_message(
        lambda message: message.update(tool_call_id=named(message["tool_call_id"])), "tool"
    )(wire)


def empty_schemas(wire: Json) -> None:
    for tool in wire.get("tools", ()):
        tool["function"].get("parameters", {})["properties"] = {}


def known(*kinds: str) -> Callable[[Json], Json]:
    return lambda part: (
        part if part["type"] in kinds else {"type": "text", "text": f"[{part['type']}]"}
    )


def drop_words_beside_calls(message: Json) -> None:
    if message.get("tool_calls"):
        message["content"] = None


MISTRAL = (
    Step(
        "call ids of 9 letters and digits",
        "Mistral's form; each of ours stands for one of theirs",
        shorten_ids,
    ),
    Step("no role developer", DEVELOPER, rename_developer),
    Step("no custom calls", CUSTOM, each_call(call_custom_as_function)),
    Step(
        "no file parts",
        "Mistral has text, image_url and input_audio",
        each_part(known("text", "image_url", "input_audio")),
    ),
    Step(
        "schemas of draft 7",
        "our random tools have any JSON for properties; the rest of a tool is judged",
        empty_schemas,
    ),
    Step(
        "user first",
        "the judge passes over the first message, calls and all; on the wire anyone may begin",
        open_with_user,
    ),
    Step(
        "no system behind assistant or tool",
        "clients send it; as the user's it still parts the same",
        turn_late_system_to_user,
    ),
    Step(
        "assistant not last",
        "a transcript may end so; on Anthropic's wire a warning says it",
        close_with_user,
    ),
)
MISTRAL_V3 = (
    *MISTRAL,
    Step("no audio", "for later models", each_part(known("text", "image_url"))),
    Step(
        "no thinking",
        "for later models",
        each_message(drop("reasoning_content", "reasoning"), "assistant"),
    ),
    Step(
        "words or calls, not both",
        "for later models",
        each_message(drop_words_beside_calls, "assistant"),
    ),
)
# Only the first refuses an assistant without words; only the others pair calls and results by id,
# V11 in Mistral's form.
VALIDATORS = {"V3": MISTRAL_V3, "V11": MISTRAL, "V15": MISTRAL}


@pytest.fixture(scope="module")
def mistral() -> Callable[[Json, str], str]:
    """What mistral-common has against a chat request, seen by one of its versions; nothing where it
    accepts it.
    """
    pytest.importorskip(
        "mistral_common",
        reason="the judge mistral-common is not installed; pip install -e '.[judges]'",
    )
    from mistral_common.exceptions import MistralCommonException
    from mistral_common.protocol.instruct import validator
    from mistral_common.protocol.instruct.request import ChatCompletionRequest

    serving = {
        v: getattr(validator, f"MistralRequestValidator{v}")(validator.ValidationMode.serving)
        for v in VALIDATORS
    }

    def refusal(wire: Json, version: str) -> str:
        for step in VALIDATORS[version]:
            step.around(wire)
        try:
            request = ChatCompletionRequest.from_openai(
                wire["messages"], wire.get("tools"), model="m"
            )
            serving[version].validate_request(request)
        except (MistralCommonException, ValueError) as error:
            return str(error) or type(error).__name__
        return ""

    return refusal


def test_mistral_accepts_what_is_repaired(mistral: Callable[[Json, str], str]) -> None:
    def judge(conversation: Conversation) -> bool:
        wire = chat(conversation)
        if not wire["messages"]:
            return False  # nothing was left, which only the caller can mend
        for version in VALIDATORS:
            assert mistral(deepcopy(wire), version) == "", (version, wire)
        return True

    judge_all(judge, 100)


PAIRING = {"unanswered-call", "orphan-result", "duplicate-result", "duplicate-id"}


def test_mistral_refuses_what_our_checker_refuses_and_nothing_else(
    mistral: Callable[[Json, str], str],
) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=examples(150))
    @given(conversation=torn)
    def law(conversation: Conversation) -> None:
        wire = chat(conversation)
        if not wire["messages"]:
            return
        broken = errors(conversation, "openai")
        refused = mistral(deepcopy(wire), "V15")
        assert bool(refused) == bool(broken & PAIRING), (broken, refused, wire)
        if "empty-message" in broken:
            assert mistral(deepcopy(wire), "V3"), wire
        seen.update(broken or ["sound"])

    law()
    assert seen.keys() >= {"unanswered-call", "orphan-result", "sound"}, seen


@pytest.mark.parametrize(
    ("rule", "messages"),
    [
        ("unanswered-call", "ask call1 ask"),
        ("unanswered-call", "ask call1"),
        ("unanswered-call", "ask call1 say"),
        ("unanswered-call", "ask call1 ask result1"),
        ("orphan-result", "result1 ask"),
        ("orphan-result", "ask result1"),
        ("orphan-result", "ask say result1"),
        ("orphan-result", "ask call1 result1 result2 ask"),
        ("duplicate-result", "ask call1 result1 result1"),
    ],
)
def test_both_refuse_a_torn_pair(
    mistral: Callable[[Json, str], str], rule: str, messages: str
) -> None:
    wire: Json = {"messages": []}
    for word in messages.split():
        call_id = word.strip("acelrstu")
        call = {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        message = {
            "ask": {"role": "user", "content": "hello"},
            "say": {"role": "assistant", "content": "hello"},
            f"call{call_id}": {"role": "assistant", "content": None, "tool_calls": [call]},
            f"result{call_id}": {"role": "tool", "content": "done", "tool_call_id": call_id},
        }[word]
        wire["messages"].append(message)
    assert rule in {finding.rule for finding in DIALECTS["openai"].check(wire)}
    assert mistral(deepcopy(wire), "V11")
    assert mistral(deepcopy(wire), "V15")
    mended = repair(DIALECTS["openai"].parse(wire)).conversation
    assert mistral(chat(mended), "V15") == ""


# ── litellm: does another converter arrive at the same Anthropic request? ────


def use_https(part: Json) -> Json:
    if part["type"] == "image_url":
        part["image_url"]["url"] = part["image_url"]["url"].replace("http://", "https://", 1)
    return part


LITELLM = (
    Step("no role developer", DEVELOPER, rename_developer),
    Step("no custom calls", CUSTOM, each_call(call_custom_as_function)),
    Step("http pictures are fetched", "the judge would call the network", each_part(use_https)),
)


@pytest.fixture(scope="module")
def litellm() -> Iterator[SimpleNamespace]:
    """litellm's converter of chat messages to Anthropic's, and its own repair of chat messages."""
    with pytest.MonkeyPatch.context() as patch:
        # it would fetch a price list
        patch.setitem(os.environ, "LITELLM_LOCAL_MODEL_COST_MAP", "True")
        # it reports each argument that it closes a bracket of
        patch.setattr(logging.getLogger("LiteLLM"), "disabled", True)
        module = pytest.importorskip(
            "litellm", reason="the judge litellm is not installed; pip install -e '.[judges]'"
        )
        from litellm.litellm_core_utils.prompt_templates import factory

        def convert(messages: list[Json]) -> list[Json]:
            return factory.anthropic_messages_pt(messages, model="claude", llm_provider="anthropic")

        def sanitize(messages: list[Json]) -> list[Json]:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(module, "modify_params", True)
                return factory.sanitize_messages_for_tool_calling(messages)

        yield SimpleNamespace(convert=convert, sanitize=sanitize)


class Piece(NamedTuple):
    """What both converters must agree on: who said it, its kind, and its content."""

    role: str
    kind: str
    content: Any


def pieces(messages: list[Json]) -> list[Piece]:
    """What an Anthropic request says, in order, however it is cut into messages: the judge joins
    those of one role.
    """
    found: list[Piece] = []
    for message in messages:
        content, role = message["content"], message["role"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block:
                # Media that one of the wires cannot hold is a stand-in on the other, or nothing.
                case {"type": "text", "text": text} if not STAND_IN.fullmatch(text):
                    found.append(Piece(role, "text", text))
                case {"type": "tool_use"}:
                    found.append(Piece(role, "call", (block["id"], block["name"], block["input"])))
                case {"type": "tool_result"}:
                    inner = block.get("content") or []
                    words = (
                        [inner]
                        if isinstance(inner, str)
                        else [b["text"] for b in inner if b["type"] == "text"]
                    )
                    words = [text for text in words if text and not STAND_IN.fullmatch(text)]
                    found.append(Piece(role, "result", (block["tool_use_id"], words)))
                case {"type": "image", "source": source}:
                    where = source.get("data") or source.get("url", "").replace(
                        "http://", "https://", 1
                    )
                    found.append(Piece(role, "image", where))
    return found


def strip_end(found: list[Piece]) -> list[Piece]:
    """Without white space at the end of texts that the assistant has the last word with: litellm
    strips all of them.
    """
    spoken = list(found)
    for n in reversed(range(len(spoken))):
        if spoken[n].role != "assistant":
            break
        if spoken[n].kind == "text":
            spoken[n] = spoken[n]._replace(content=spoken[n].content.rstrip())
    return spoken


def as_object(arguments: str) -> Any:
    """How our converter writes arguments that are no JSON object: the judge closes open brackets
    and lets lists pass.
    """
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"input": arguments}


def answered_in_the_next(messages: list[Json]) -> bool:
    spoken = [m["content"] for m in messages if m["role"] != "system"]
    for n, content in enumerate(spoken):
        blocks = content if isinstance(content, list) else []
        after = spoken[n + 1] if n + 1 < len(spoken) and isinstance(spoken[n + 1], list) else []
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in after if block["type"] == "tool_result"]
        first = [block["type"] for block in after[: len(results)]]
        if sorted(calls) != sorted(results) or set(first) - {"tool_result"}:
            return False
    return True


def test_litellm_arrives_at_our_anthropic_request(litellm: SimpleNamespace) -> None:
    def judge(conversation: Conversation) -> bool:
        wire = chat(conversation)
        # they have a field of their own in both requests
        wire["messages"] = wire["messages"][len(conversation.system) :]
        if not wire["messages"]:
            return False
        for step in LITELLM:
            step.around(wire)
        given = {
            call["id"]: call["function"]["arguments"]
            for m in wire["messages"]
            for call in m.get("tool_calls") or ()
        }
        theirs = litellm.convert(wire["messages"])
        ours = DIALECTS["anthropic"].render(conversation).wire["messages"]
        assert answered_in_the_next(theirs), theirs
        assert answered_in_the_next(ours), ours
        agreed = [
            piece._replace(content=(*piece.content[:2], as_object(given[piece.content[0]])))
            if piece.kind == "call"
            else piece
            for piece in pieces(theirs)
        ]
        assert strip_end(pieces(ours)) == strip_end(agreed)
        return True

    judge_all(judge, 100)


def test_litellm_has_nothing_to_repair_after_us(litellm: SimpleNamespace) -> None:
    def judge(conversation: Conversation) -> bool:
        messages = chat(conversation)["messages"]
        assert litellm.sanitize(deepcopy(messages)) == messages
        return bool(messages)

    judge_all(judge, 80)


@settings(max_examples=examples(80))
@given(conversation=torn)
def test_litellm_repairs_only_what_our_checkers_refuse(
    litellm: SimpleNamespace, conversation: Conversation
) -> None:
    messages = chat(conversation)["messages"]
    if litellm.sanitize(deepcopy(messages)) != messages:
        assert errors(conversation, "openai", "anthropic"), messages


# ── the SDKs: is every value of the type that the provider publishes? ────────


def eager(schema: Any) -> Any:
    """A pydantic schema that looks into every list, where pydantic puts it off, and knows no fields
    but those it names.
    """
    if isinstance(schema, list | tuple):
        return type(schema)(map(eager, schema))
    if not isinstance(schema, dict):
        return schema
    inner = {key: eager(value) for key, value in schema.items()}
    # what the provider answers may be sent back as an object; ours are plain JSON
    if inner.get("type") == "model":
        return {"type": "is-instance", "cls": inner["cls"]} | (
            {"ref": inner["ref"]} if "ref" in inner else {}
        )
    if inner.get("type") == "generator" and "items_schema" in inner:
        return {"type": "list", "items_schema": inner["items_schema"]}
    return inner | {"extra_behavior": "forbid"} if inner.get("type") == "typed-dict" else inner


@pytest.fixture(scope="module")
def types() -> dict[str, Any]:
    """For each wire, a validator of the SDK's type of a whole request."""
    for name in ("openai", "anthropic", "pydantic"):
        pytest.importorskip(
            name, reason=f"the judge {name} is not installed; pip install -e '.[judges]'"
        )
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    published = {
        "openai": CompletionCreateParamsNonStreaming,
        "responses": ResponseCreateParamsNonStreaming,
        "anthropic": MessageCreateParamsNonStreaming,
    }
    return {
        name: SchemaValidator(eager(TypeAdapter(kind).core_schema))
        for name, kind in published.items()
    }


def drop_strange(wire: Json) -> None:
    """Pieces that our random histories invent, and that a provider's next version might."""
    if "input" in wire:
        wire["input"] = [item for item in wire["input"] if item.get("type") != "strange"]
    for message in wire.get("messages") or wire.get("input", ()):
        if isinstance(message.get("content"), list):
            message["content"] = [part for part in message["content"] if part["type"] != "strange"]


def complete_server_tools(block: Json) -> Json:
    return {"server_tool_use": {"input": {}}, "web_search_tool_result": {"content": []}}.get(
        block["type"], {}
    ) | block


def drop_from_items(wire: Json) -> None:
    for item in wire["input"]:
        match item:
            case {"type": "message", "role": "user" | "system" | "developer"}:
                item.pop("id", None)
            case {"type": "reasoning", "content": None}:
                del item["content"]
            case {"type": "custom_tool_call"}:
                item.pop("status", None)


def drop_from_search(wire: Json) -> None:
    for tool in wire.get("tools", ()):
        if tool["type"] == "web_search":
            drop("external_web_access", "search_content_types")(tool)


STRANGE = Step("no unknown pieces", "they pass through on their own wire", drop_strange)
STREAM = Step("stream", "judged as a request that does not stream", drop("stream"))
TYPES = {
    "openai": (
        STRANGE,
        STREAM,
        Step(
            "no name in tool messages",
            "the server takes it, from the days of functions",
            each_message(drop("name"), "tool"),
        ),
        Step(
            "no reasoning",
            "a field of compatible providers",
            each_message(drop("reasoning_content", "reasoning"), "assistant"),
        ),
    ),
    "responses": (
        STRANGE,
        STREAM,
        Step("no client_metadata", "Codex sends it", drop("client_metadata")),
        Step(
            "no id of a user's message, null content or status of a custom call",
            "Codex sends them",
            drop_from_items,
        ),
        Step(
            "no external_web_access or search_content_types", "Codex sends them", drop_from_search
        ),
    ),
    "anthropic": (
        STRANGE,
        STREAM,
        Step(
            "no context_management",
            "a beta field that Claude Code sends",
            drop("context_management"),
        ),
        Step(
            "whole server tool blocks",
            "our random histories leave out their content",
            each_part(complete_server_tools),
        ),
    ),
}


def complaint(types: dict[str, Any], name: str, wire: Json) -> str:
    """The SDK's innermost objection to a request; a union objects once for each of its members."""
    from pydantic import ValidationError

    try:
        types[name].validate_python(wire, strict=True)
    except ValidationError as error:
        deepest = max(error.errors(), key=lambda found: len(found["loc"]))
        return (
            f"{deepest['msg']} at {deepest['loc'][:1]}…{deepest['loc'][-2:]}: {deepest['input']!r}"
        )
    return ""


@pytest.mark.parametrize("name", TYPES)
def test_the_types_of_the_sdk_hold_what_is_rendered(types: dict[str, Any], name: str) -> None:
    def judge(conversation: Conversation) -> bool:
        wire = {"model": "some-model", **deepcopy(DIALECTS[name].render(conversation).wire)}
        for step in TYPES[name]:
            step.around(wire)
        assert complaint(types, name, wire) == ""
        return bool(conversation.messages)

    judge_all(judge, 80)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("openai", [{"role": "user", "content": [{"type": "text"}]}]),
        (
            "openai",
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "bash"}}],
                }
            ],
        ),
        (
            "openai",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
                    ],
                }
            ],
        ),
        (
            "responses",
            [{"type": "message", "role": "user", "content": [{"type": "text", "text": "hi"}]}],
        ),
        (
            "responses",
            [{"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text"}]}],
        ),
        (
            "anthropic",
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text"}]}
                    ],
                }
            ],
        ),
        (
            "anthropic",
            [{"role": "user", "content": [{"type": "text", "text": "hi", "name": "ann"}]}],
        ),
    ],
)
def test_the_types_are_held_to_the_innermost_piece(
    types: dict[str, Any], name: str, messages: list[Json]
) -> None:
    wire = {"model": "m", DIALECTS[name].messages_key: messages} | (
        {"max_tokens": 1} if name == "anthropic" else {}
    )
    assert complaint(types, name, wire)


@pytest.mark.parametrize("strict", [None, False, True])
@pytest.mark.parametrize("source", TYPES)
def test_a_tool_is_as_strict_on_every_wire(
    types: dict[str, Any], source: str, strict: bool | None
) -> None:
    said = {} if strict is None else {"strict": strict}
    function = {"name": "bash", **said}
    given = {
        "openai": {"messages": [], "tools": [{"type": "function", "function": function}]},
        "responses": {"input": [], "tools": [{"type": "function", "parameters": None, **function}]},
        "anthropic": {"messages": [], "tools": [{"input_schema": {"type": "object"}, **function}]},
    }[source]
    for target in TYPES:
        wire = DIALECTS[target].render(DIALECTS[source].parse(given))
        tool = wire.wire["tools"][0]
        assert wire.losses == ()
        # What a responses request leaves open stays open there: its server tries strict first.
        assert tool.get("function", tool).get("strict", False) is (strict or False)
        if source != "responses" or strict is not None:
            assert complaint(types, target, {"model": "m", **wire.wire}) == ""
