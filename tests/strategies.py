"""Random conversations: valid ones, broken ones in every way the rules name, and wire requests with
every optional field.

A strategy is made once, outside of what draws from it: to make one and to check it takes longer
than to draw from it.
"""

import base64 as b64
import copy
import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from loom.conversation.message import (
    Carried,
    Conversation,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from loom.dialects import DIALECTS
from tests.shared import AGENTS, FIXTURES

SCRIPTS = [
    "hello",
    "重试预算",
    "مرحبا",
    "नमस्ते",
    "привет",
    "🧵👩‍👩‍👧",
    "e\u0301",
    "ไทย",
    "\u202eabc",
    "a\u0000b",
    "line\nbreak",
    '"q"\\',
]
words = st.one_of(
    st.sampled_from(SCRIPTS),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
)
texts = st.lists(words, min_size=1, max_size=3).map(" ".join).filter(str.strip)
blanks = st.sampled_from(["", " ", "\n\t"])
names = st.sampled_from(["bash", "read_file", "grep-2", "Search"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    words,
)
objects = st.dictionaries(
    words,
    st.one_of(scalars, st.lists(scalars, max_size=2), st.dictionaries(words, scalars, max_size=2)),
    max_size=3,
)
good_ids = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789_-", min_size=1, max_size=40)
bad_ids = st.one_of(
    st.just(""),
    st.just("has space"),
    st.just("x" * 65),
    st.just("функция"),
    st.just("call.1:2"),
    st.just("call_0"),
)
base64 = st.binary(min_size=1, max_size=24).map(lambda data: b64.b64encode(data).decode())
urls = st.sampled_from(["https://example.org/a.png", "http://example.org/пример?q=1"])
flags = st.booleans()


@functools.cache
def upto(last: int, first: int = 0) -> st.SearchStrategy[int]:
    return st.integers(first, last)


# ── conversations ────────────────────────────────────────────────────────────


_media_kinds = st.sampled_from(["image", "file", "audio"])


@st.composite
def _media(draw: st.DrawFn) -> Media:
    kind = draw(_media_kinds)
    if kind == "audio":
        return Media("audio", "data", draw(base64), "audio/wav")
    if draw(flags):
        return Media(
            kind,
            "data",
            draw(base64),
            "image/png" if kind == "image" else "application/pdf",
            "" if kind == "image" else "a.pdf",
        )
    return Media(kind, "url", draw(urls))


media = _media()
marks = st.sampled_from(
    [
        None,
        None,
        None,
        '{"cache_control":{"type":"ephemeral"}}',
        '{"cache_control":{"type":"ephemeral","ttl":"1h"}}',
    ]
)
marked = st.builds(
    lambda text, mark: Text(text, Carried("anthropic", mark) if mark else None), texts, marks
)


@functools.cache
def reasoning(signed: bool = True) -> st.SearchStrategy[Reasoning]:
    theirs = st.builds(
        Reasoning, texts, st.just("anthropic"), st.just("c2ln") if signed else st.just("")
    )
    hidden = st.builds(lambda data: Reasoning("", "anthropic", encrypted=data), base64)
    item = Carried("responses", '{"id":"rs_1","summary":[{"type":"summary_text","text":"s"}]}')
    ours = st.builds(lambda data: Reasoning("s", "responses", encrypted=data, carried=item), base64)
    chat = st.builds(lambda text: Reasoning(text, "openai"), texts)
    return st.one_of(theirs, hidden, ours, chat)


arguments = st.one_of(
    objects.map(json.dumps), st.just("{}"), st.just(""), st.just('{"a": 1'), st.just("[1]")
)


_signed = st.lists(reasoning(), max_size=1)
_marked_parts = st.lists(marked, max_size=2)
_calls = st.tuples(names, arguments)
_call_counts = st.sampled_from([0, 1, 1, 2, 3])
_answers = st.tuples(st.lists(st.one_of(texts.map(Text), media), max_size=2), flags, flags)


class _Spoken(NamedTuple):
    """A model message without its calls, and its calls and their answers, which have no ids yet."""

    parts: list[Part]
    calls: list[tuple[str, str]]
    answers: list[tuple[list[Any], bool, bool]]
    reverse: bool
    apart: bool

    def messages(self, ids: Iterator[str]) -> list[Message]:
        """The message and, where it makes calls, the messages that answer them."""
        calls = [ToolCall(next(ids), *call) for call in self.calls]
        answers = [
            ToolResult(call.id, tuple(parts), error, call.name if named else "")
            for call, (parts, error, named) in zip(calls, self.answers, strict=True)
        ]
        if self.reverse:
            answers.reverse()
        apart = [Message("tool", (answer,)) for answer in answers]
        together = [Message("tool", tuple(answers))] if answers else []
        said = Message("assistant", (*self.parts, *calls))
        return [said, *(apart if self.apart else together)]


@st.composite
def _spoken(draw: st.DrawFn) -> _Spoken:
    parts: list[Part] = draw(_signed) + draw(_marked_parts)
    count = draw(_call_counts)
    calls = [draw(_calls) for _ in range(count)]
    if not calls and not any(isinstance(part, Text) for part in parts):
        parts.append(Text(draw(texts)))
    answers = [draw(_answers) for _ in range(count)]
    return _Spoken(parts, calls, answers, draw(flags), draw(flags))


_model_says = _spoken()
_user_parts = st.lists(st.one_of(marked, media), min_size=1, max_size=2)
_authors = st.sampled_from(["", "", "ann"])


@functools.cache
def histories(max_turns: int = 4) -> st.SearchStrategy[list[Message]]:
    """A history that every wire accepts."""
    return _histories(max_turns)


@st.composite
def _histories(draw: st.DrawFn, max_turns: int) -> list[Message]:
    stem = draw(good_ids)[:36]
    ids = (f"{stem}_{n}" for n in itertools.count())
    history: list[Message] = []
    for _ in range(draw(upto(max_turns, 1))):
        history.append(Message("user", tuple(draw(_user_parts)), draw(_authors)))
        if draw(upto(5)) == 0:
            history.append(Message("system", (Text(draw(texts)),)))
        for _ in range(draw(upto(3))):
            history += draw(_model_says).messages(ids)
    return history


tools = st.builds(
    lambda name, description, schema: Tool(
        name, description, json.dumps({"type": "object", "properties": schema})
    ),
    names,
    texts,
    objects,
)


_system_texts = st.lists(texts, max_size=2)
_tool_lists = st.lists(tools, max_size=2, unique_by=lambda tool: tool.name)
_models = st.sampled_from(["", "some-model"])
_limits = st.sampled_from([None, 4096])


@functools.cache
def conversations(history: Any = None) -> st.SearchStrategy[Conversation]:
    return _conversations(histories() if history is None else history)


@st.composite
def _conversations(draw: st.DrawFn, history: Any) -> Conversation:
    return Conversation(
        messages=tuple(draw(history)),
        system=tuple(Message("system", (Text(text),)) for text in draw(_system_texts)),
        tools=tuple(draw(_tool_lists)),
        model=draw(_models),
        max_output=draw(_limits),
    )


# ── broken histories ─────────────────────────────────────────────────────────


def _map_part(message: Message, at: int, change: Any) -> Message:
    parts = tuple(
        change(part) if n == at % max(len(message.parts), 1) else part
        for n, part in enumerate(message.parts)
    )
    return Message(message.role, parts, message.author, message.carried)


def _rename(part: Part, new: str) -> Part:
    if isinstance(part, ToolCall):
        return ToolCall(new, part.name, part.arguments, part.kind, part.carried)
    if isinstance(part, ToolResult):
        return ToolResult(new, part.parts, part.error, part.name, part.kind, part.carried)
    return part


_roles = st.sampled_from(["user", "assistant", "system", "developer"])
_speakers = st.sampled_from(["user", "assistant"])
_server_kinds = st.sampled_from(["server_tool_use", "web_search_tool_result"])
_wires = st.sampled_from(["openai", "responses", "anthropic"])


@st.composite
def broken(draw: st.DrawFn, source: Any) -> list[Message]:
    """A history after some of the accidents that happen to histories."""
    history = list(draw(source))
    for _ in range(draw(upto(5, 1))):
        if not history:
            break
        at, to = draw(upto(len(history) - 1)), draw(upto(len(history)))
        message = history[at]
        accident = draw(upto(15))
        if accident == 0:
            del history[at]
        elif accident == 1:
            history.insert(to, message)
        elif accident == 2:
            history.insert(to, history.pop(at))
        elif accident == 3:
            del history[:at]
        elif accident == 4:
            del history[at:]
        elif accident == 5:
            history.insert(to, Message(draw(_roles), ()))
        elif accident == 6 and message.role != "tool":
            history[at] = Message(
                message.role, (*message.parts, Text(draw(blanks))), message.author
            )
        elif accident == 7 and message.role == "assistant":
            history[at] = Message("assistant", (*message.parts, draw(reasoning(draw(flags)))))
        elif accident == 8 and message.role == "assistant":
            history[at] = Message("assistant", (draw(reasoning(False)), *message.parts))
        elif accident == 9:
            new = draw(bad_ids)
            history[at] = _map_part(message, to, lambda part, new=new: _rename(part, new))
        elif accident == 10:
            old, new = draw(bad_ids), draw(bad_ids)
            ids = {part.id for m in history for part in m.calls}
            chosen = sorted(ids)[to % len(ids)] if ids else old
            swap = lambda p, c=chosen, n=new: (  # noqa: E731
                _rename(p, n) if c in (getattr(p, "id", 0), getattr(p, "call_id", 0)) else p
            )
            history = [
                Message(m.role, tuple(map(swap, m.parts)), m.author, m.carried) for m in history
            ]
        elif accident == 11:
            results = [part for m in history for part in m.results]
            if results:
                history.insert(to, Message("tool", (results[at % len(results)],)))
        elif accident == 12:
            many = [ToolCall(f"m{at}_{n}", "bash", "{}") for n in range(130)]
            history.insert(to, Message("assistant", (*many,)))
        elif accident == 13 and message.role == "tool":
            words_missing = draw(blanks)
            blank = lambda p, t=words_missing: ToolResult(  # noqa: E731
                p.call_id, (*p.parts, Text(t)), p.error, p.name
            )
            history[at] = _map_part(message, 0, blank)
        elif accident == 14 and message.role == "assistant":
            kind = draw(_server_kinds)
            key = "id" if kind == "server_tool_use" else "tool_use_id"
            piece = Opaque(
                "anthropic",
                json.dumps({"type": kind, key: "srv_1", "name": "web_search"}),
                "srv_1",
                key != "id",
            )
            history[at] = Message("assistant", (*message.parts, piece))
        elif accident == 15:
            piece = Opaque(draw(_wires), '{"type":"strange"}')
            history.insert(to, Message(draw(_speakers), (piece,)))
    return history


@functools.cache
def recorded() -> list[list[Message]]:
    """The messages of recorded files, ours and the shared ones, that came broken."""
    found = []
    for path in sorted(FIXTURES.glob("wire_cc_*.json")):
        found.append(list(DIALECTS["anthropic"].parse(json.loads(path.read_text())).messages))
    for path in sorted(FIXTURES.glob("wire_codex_*.json")):
        found.append(list(DIALECTS["responses"].parse(json.loads(path.read_text())).messages))
    for path in sorted(AGENTS.glob("trail_*.json")):
        found.append(list(DIALECTS["openai"].parse(json.loads(path.read_text())).messages))
    return found


_recorded_histories = st.deferred(lambda: st.sampled_from(recorded()))


@st.composite
def _recorded_slices(draw: st.DrawFn) -> list[Message]:
    """A piece of a recorded history, cut where it may hurt."""
    history = draw(_recorded_histories)
    start = draw(upto(len(history) - 1))
    return history[start : start + draw(upto(12, 1))]


recorded_slices = _recorded_slices()
broken_histories = st.one_of(broken(histories()), broken(recorded_slices), recorded_slices)


# ── wire requests ────────────────────────────────────────────────────────────

extra = st.dictionaries(
    st.sampled_from(["x_unknown", "index", "logprobs", "annotations"]), scalars, max_size=2
)


def _merge(fixed: Any, *optional: Any) -> Any:
    return st.builds(
        lambda *dicts: {k: v for d in reversed(dicts) for k, v in d.items()}, fixed, *optional
    )


def maybe(**fields: Any) -> Any:
    return st.fixed_dictionaries({}, optional=fields)


cache = maybe(
    cache_control=st.sampled_from([{"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}])
)

chat_part = st.one_of(
    _merge(
        st.fixed_dictionaries({"type": st.just("text"), "text": st.one_of(texts, blanks)}), extra
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("image_url"),
            "image_url": _merge(
                st.fixed_dictionaries(
                    {
                        "url": st.one_of(
                            urls,
                            base64.map(lambda d: f"data:image/png;base64,{d}"),
                            base64.map(lambda d: f"data:image/png;charset=x;base64,{d}"),
                            st.just("data:,hello"),
                        )
                    }
                ),
                maybe(detail=st.just("low")),
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("input_audio"),
            "input_audio": st.fixed_dictionaries(
                {"data": base64, "format": st.sampled_from(["wav", "mp3"])}
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("file"),
            "file": st.one_of(
                st.fixed_dictionaries({"file_id": words}),
                _merge(
                    st.fixed_dictionaries(
                        {
                            "file_data": st.one_of(
                                base64, base64.map(lambda d: f"data:application/pdf;base64,{d}")
                            )
                        }
                    ),
                    maybe(filename=words),
                ),
            ),
        }
    ),
    _merge(st.fixed_dictionaries({"type": st.just("brand_new"), "value": scalars}), extra),
)
chat_content = st.one_of(texts, blanks, st.lists(chat_part, max_size=3))
chat_call = st.one_of(
    _merge(
        st.fixed_dictionaries(
            {
                "id": good_ids,
                "type": st.just("function"),
                "function": _merge(
                    st.fixed_dictionaries(
                        {"name": names, "arguments": st.one_of(arguments, words)}
                    ),
                    extra,
                ),
            }
        ),
        extra,
    ),
    st.fixed_dictionaries(
        {
            "id": good_ids,
            "type": st.just("custom"),
            "custom": st.fixed_dictionaries({"name": names, "input": words}),
        }
    ),
)
chat_message = st.one_of(
    _merge(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "system", "developer"]), "content": chat_content}
        ),
        maybe(name=words),
        extra,
    ),
    _merge(
        st.fixed_dictionaries({"role": st.just("assistant")}),
        maybe(
            content=st.one_of(st.none(), chat_content),
            tool_calls=st.one_of(st.none(), st.lists(chat_call, max_size=3)),
            name=words,
            refusal=st.one_of(st.none(), texts),
            reasoning_content=texts,
            audio=st.one_of(st.none(), st.just({"id": "audio_1"})),
            function_call=st.one_of(
                st.none(), st.fixed_dictionaries({"name": names, "arguments": arguments})
            ),
        ),
        extra,
    ),
    _merge(
        st.fixed_dictionaries(
            {"role": st.just("tool"), "tool_call_id": good_ids, "content": chat_content}
        ),
        maybe(name=words),
        extra,
    ),
    st.fixed_dictionaries(
        {"role": st.just("function"), "name": names, "content": st.one_of(st.none(), texts)}
    ),
)
chat_tool = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": _merge(
                st.fixed_dictionaries({"name": names}),
                maybe(
                    description=st.one_of(texts, st.just("")),
                    parameters=objects,
                    strict=st.booleans(),
                ),
            ),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("custom"), "custom": st.fixed_dictionaries({"name": names})}
    ),
)
chat_requests = _merge(
    st.fixed_dictionaries({"model": words, "messages": st.lists(chat_message, max_size=6)}),
    maybe(
        tools=st.lists(chat_tool, max_size=2),
        max_tokens=st.one_of(st.none(), st.integers(1, 9999)),
        max_completion_tokens=st.integers(1, 9999),
        temperature=st.floats(0, 2),
        stop=st.one_of(words, st.lists(words)),
        tool_choice=st.sampled_from(["auto", {"type": "function"}]),
        stream=st.booleans(),
        metadata=objects,
        response_format=objects,
    ),
)

claude_source = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("base64"), "media_type": st.just("image/png"), "data": base64}
    ),
    st.fixed_dictionaries({"type": st.just("url"), "url": urls}),
    st.fixed_dictionaries({"type": st.just("file"), "file_id": words}),
    st.fixed_dictionaries(
        {"type": st.just("text"), "media_type": st.just("text/plain"), "data": texts}
    ),
    st.fixed_dictionaries({"type": st.just("content"), "content": texts}),
)
claude_text = _merge(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.one_of(texts, blanks)}), cache, extra
)
claude_image = _merge(
    st.fixed_dictionaries({"type": st.just("image"), "source": claude_source}), cache
)
claude_document = _merge(
    st.fixed_dictionaries({"type": st.just("document"), "source": claude_source}),
    cache,
    maybe(
        title=st.one_of(st.none(), words, st.just("")),
        context=words,
        citations=st.just({"enabled": True}),
    ),
)
claude_inner = st.one_of(
    texts, blanks, st.lists(st.one_of(claude_text, claude_image, claude_document), max_size=2)
)
claude_result = _merge(
    st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": good_ids}),
    cache,
    maybe(content=claude_inner, is_error=st.booleans()),
)
claude_use = _merge(
    st.fixed_dictionaries(
        {"type": st.just("tool_use"), "id": good_ids, "name": names, "input": objects}
    ),
    cache,
)
claude_thought = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("thinking"),
            "thinking": st.one_of(texts, blanks),
            "signature": st.one_of(base64, st.just("")),
        }
    ),
    st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": base64}),
)
claude_server = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("server_tool_use"),
            "id": good_ids,
            "name": st.just("web_search"),
            "input": objects,
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("web_search_tool_result"),
            "tool_use_id": good_ids,
            "content": st.lists(objects, max_size=1),
        }
    ),
)
claude_message = st.one_of(
    _merge(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "system"]),
                "content": st.one_of(
                    texts,
                    blanks,
                    st.lists(st.one_of(claude_text, claude_image, claude_document), max_size=3),
                ),
            }
        ),
        extra,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "role": st.just("user"),
                "content": st.lists(
                    st.one_of(claude_result, claude_result, claude_text, claude_image),
                    min_size=1,
                    max_size=4,
                ),
            }
        ),
        extra,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "role": st.just("assistant"),
                "content": st.one_of(
                    texts,
                    blanks,
                    st.lists(
                        st.one_of(claude_text, claude_use, claude_thought, claude_server),
                        max_size=4,
                    ),
                ),
            }
        ),
        extra,
    ),
)
claude_tool = st.one_of(
    _merge(
        st.fixed_dictionaries({"name": names, "input_schema": objects}),
        cache,
        maybe(description=st.one_of(texts, st.just("")), type=st.just("custom")),
    ),
    st.fixed_dictionaries({"name": st.just("web_search"), "type": st.just("web_search_20250305")}),
)
claude_requests = _merge(
    st.fixed_dictionaries(
        {
            "model": words,
            "max_tokens": st.integers(1, 9999),
            "messages": st.lists(claude_message, max_size=6),
        }
    ),
    maybe(
        system=st.one_of(texts, st.just(""), st.lists(claude_text, max_size=2)),
        tools=st.lists(claude_tool, max_size=2),
        thinking=st.just({"type": "enabled", "budget_tokens": 1024}),
        stop_sequences=st.lists(words),
        metadata=st.just({"user_id": "u"}),
    ),
)

item_fields = maybe(id=words, status=st.sampled_from(["completed", "incomplete"]))
reply_part = st.one_of(
    _merge(
        st.fixed_dictionaries({"type": st.just("output_text"), "text": st.one_of(texts, blanks)}),
        maybe(annotations=st.just([])),
        extra,
    ),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": texts}),
    st.fixed_dictionaries({"type": st.just("brand_new"), "value": scalars}),
)
input_part = st.one_of(
    _merge(
        st.fixed_dictionaries({"type": st.just("input_text"), "text": st.one_of(texts, blanks)}),
        extra,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "type": st.just("input_image"),
                "image_url": st.one_of(urls, base64.map(lambda d: f"data:image/png;base64,{d}")),
            }
        ),
        maybe(detail=st.sampled_from(["auto", "low"])),
    ),
    st.fixed_dictionaries(
        {"type": st.just("input_image"), "file_id": words, "detail": st.just("auto")}
    ),
    _merge(
        st.one_of(
            st.fixed_dictionaries({"type": st.just("input_file"), "file_id": words}),
            st.fixed_dictionaries({"type": st.just("input_file"), "file_url": urls}),
            st.fixed_dictionaries(
                {"type": st.just("input_file"), "file_data": st.one_of(base64, st.just(""))}
            ),
        ),
        maybe(filename=words),
    ),
    st.fixed_dictionaries({"type": st.just("brand_new"), "value": scalars}),
)
output = st.one_of(texts, blanks, st.lists(input_part, max_size=2), objects)
item = st.one_of(
    _merge(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "system", "developer"]),
                "content": st.one_of(texts, blanks, st.lists(input_part, max_size=3)),
            }
        ),
        maybe(type=st.just("message")),
        item_fields,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "role": st.just("assistant"),
                "content": st.one_of(texts, blanks, st.lists(reply_part, max_size=3)),
            }
        ),
        maybe(type=st.just("message")),
        item_fields,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "type": st.just("reasoning"),
                "id": words,
                "summary": st.lists(
                    st.fixed_dictionaries({"type": st.just("summary_text"), "text": texts}),
                    max_size=2,
                ),
            }
        ),
        maybe(encrypted_content=st.one_of(st.none(), base64, st.just(""))),
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "type": st.just("function_call"),
                "call_id": good_ids,
                "name": names,
                "arguments": arguments,
            }
        ),
        item_fields,
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "type": st.just("custom_tool_call"),
                "call_id": good_ids,
                "name": names,
                "input": words,
            }
        ),
        item_fields,
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("local_shell_call"),
            "id": words,
            "call_id": good_ids,
            "action": objects,
            "status": st.just("completed"),
        }
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("apply_patch_call"),
            "call_id": good_ids,
            "operation": objects,
            "status": st.just("completed"),
        }
    ),
    _merge(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(
                    ["function_call_output", "custom_tool_call_output", "shell_call_output"]
                ),
                "call_id": good_ids,
                "output": output,
            }
        ),
        item_fields,
    ),
    st.fixed_dictionaries(
        {"type": st.just("local_shell_call_output"), "id": good_ids, "output": texts}
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["web_search_call", "item_reference", "compaction"]), "id": words}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("mcp_approval_response"),
            "approval_request_id": words,
            "approve": st.booleans(),
        }
    ),
)
item_tool = st.one_of(
    _merge(
        st.fixed_dictionaries({"type": st.just("function"), "name": names}),
        maybe(description=st.one_of(texts, st.just("")), parameters=objects, strict=st.booleans()),
    ),
    st.fixed_dictionaries({"type": st.just("custom"), "name": names}),
    st.fixed_dictionaries({"type": st.just("web_search")}),
)
responses_requests = _merge(
    st.fixed_dictionaries({"model": words}),
    maybe(
        input=st.one_of(texts, st.just(""), st.lists(item, max_size=7)),
        instructions=st.one_of(st.none(), texts, st.just("")),
        tools=st.lists(item_tool, max_size=2),
        max_output_tokens=st.integers(1, 9999),
        reasoning=st.just({"effort": "high"}),
        text=st.just({"verbosity": "low"}),
        store=st.booleans(),
        include=st.lists(words),
        prompt_cache_key=words,
    ),
)

WIRE_REQUESTS = {
    "openai": chat_requests,
    "anthropic": claude_requests,
    "responses": responses_requests,
}


# ── accidents on the wire ────────────────────────────────────────────────────

_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    words,
    st.just([]),
    st.just({}),
    st.just(["x"]),
    st.just({"type": ["x"]}),
    st.just([5]),
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in pairs:
        found.append((value, key))
        found += _places(inner)
    return found


@st.composite
def damaged(draw: st.DrawFn, wire: Any) -> Any:
    """A request with any JSON value in any place, or a field gone."""
    wire = copy.deepcopy(wire)
    for _ in range(draw(upto(3, 1))):
        places = _places(wire)
        if not places:
            break
        holder, key = places[draw(upto(len(places) - 1))]
        if isinstance(holder, dict) and draw(upto(4)) == 0:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw(_ODD))
    return wire


_MISSPELLINGS: dict[str, list[tuple[str, Any]]] = {
    "openai": [
        *(("arguments", value) for value in ({"a": 1}, None)),
        *(("content", value) for value in (None, [], [{"type": "text", "text": " "}])),
        *((key, value) for key in ("id", "tool_call_id") for value in (5, None)),
        ("type", None),
    ],
    "anthropic": [
        ("input", [1]),
        ("input", "text"),
        ("content", ""),
        ("content", []),
        ("signature", None),
        ("max_tokens", "5"),
    ],
    "responses": [
        *(("arguments", value) for value in ({"a": 1}, None)),
        *(("type", value) for value in ("input_text", "output_text")),
        ("content", []),
        ("output", None),
    ],
}


_MISSPELT_FIELDS = {name: st.sampled_from(fields) for name, fields in _MISSPELLINGS.items()}


@st.composite
def misspelt(draw: st.DrawFn, name: str, wire: Any) -> Any:
    """A request in which some fields are spelt as programs in a hurry spell them."""
    wire = copy.deepcopy(wire)
    for _ in range(draw(upto(4, 1))):
        key, value = draw(_MISSPELT_FIELDS[name])
        holders = [holder for holder, k in _places(wire) if k == key and isinstance(holder, dict)]
        if key == "type" and value is not None:
            holders = [h for h in holders if h.get("type") in ("input_text", "output_text")]
        if not holders:
            continue
        holder = holders[draw(upto(len(holders) - 1))]
        if value is None and draw(flags):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(value)
    return wire
