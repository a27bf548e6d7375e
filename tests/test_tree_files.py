"""Whole branching conversations come in from every program's files, and go out and in again
unchanged.
"""

import copy
import gzip
import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom import Loom
from loom.conversation.message import (
    Carried,
    Media,
    Message,
    Opaque,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from loom.conversation.tree import Flags, Link, Preferences, Reference, Tree, TreeNode
from loom.errors import LoomError, TranscriptError
from loom.transcripts import files, loom_tree
from loom.transcripts.formats import read_runs
from loom.transcripts.trees import read_trees, tree_format, write_trees
from tests import strategies as our
from tests.shared import FIXTURES, ROOT, SHARED, examples, needs_shared

EXPORTS = SHARED / "data" / "exports"
TREES = SHARED / "data" / "trees"


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def read(path: Path, *values: Any) -> Tree:
    """The one tree of a file with these values, a line for each."""
    [tree] = read_trees(str(write(path / "file", *values)))
    return sound(tree)


def sound(tree: Tree) -> Tree:
    """The tree, after a look at what every tree keeps: our own form, which refuses anything else,
    gives it back unchanged.
    """
    assert list(again([tree])) == [tree]
    return tree


def again(trees: Iterable[Tree]) -> Iterator[Tree]:
    for line in write_trees(trees):
        yield from loom_tree.trees(json.loads(line))


def outcome(path: Path) -> tuple[list[Tree], str]:
    """The trees of a file, or why there are none."""
    try:
        return list(read_trees(str(path))), ""
    except LoomError as error:
        return [], str(error)


def shape(tree: Tree) -> list[str]:
    """A line for each node: its id, what it hangs on, who speaks and what."""
    return [
        f"{node.id} < {node.parent or '-'} {node.message.role}: "
        f"{' '.join(map(say, node.message.parts))}".rstrip()
        for node in tree.nodes
    ]


def say(part: Any) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"{part.name}[{part.id}]({part.arguments})"
        case ToolResult():
            return f"[{part.call_id}]={' '.join(map(say, part.parts))}"
        case Reasoning():
            return f"({part.text})"
        case Media():
            return f"<{part.kind} {part.source} {part.value}>"
    return "?"


def path_to(tree: Tree, id: str) -> list[Message]:
    nodes = {node.id: node for node in tree.nodes}
    way = []
    while id:
        way.append(nodes[id].message)
        id = nodes[id].parent
    return way[::-1]


# ── ChatGPT ──────────────────────────────────────────────────────────────────


def said(role: str, *parts: Any, kind: str = "text", **fields: Any) -> dict[str, Any]:
    author = {"role": role, "name": fields.pop("name", None), "metadata": {}}
    content = fields.pop("content", {"parts": list(parts)})
    return {
        "author": author,
        "content": {"content_type": kind, **content},
        "weight": 1.0,
        "recipient": "all",
        "metadata": {},
        **fields,
    }


def chatgpt(*nodes: tuple[str, str | None, Any], **fields: Any) -> dict[str, Any]:
    """A conversation of (id, parent, message); children are listed in this order."""
    mapping: dict[str, Any] = {
        id: {"id": id, "parent": parent, "children": [], "message": said}
        for id, parent, said in nodes
    }
    for id, parent, _ in nodes:
        if parent in mapping:
            mapping[parent]["children"].append(id)
    return {"id": "c", "title": "T", "create_time": 1700000000.5, "mapping": mapping, **fields}


CHATGPT = chatgpt(
    ("root", None, None),
    ("sys", "root", said("system", "be brief")),
    (
        "u",
        "sys",
        said(
            "user",
            "draw",
            {
                "content_type": "image_asset_pointer",
                "asset_pointer": "file-service://f1",
                "width": 8,
            },
        ),
    ),
    (
        "t",
        "u",
        said(
            "assistant",
            kind="thoughts",
            content={"thoughts": [{"summary": "s", "content": "hm", "chunks": []}]},
        ),
    ),
    (
        "code",
        "t",
        said(
            "assistant",
            kind="code",
            content={"language": "python", "text": "1+1"},
            recipient="python",
        ),
    ),
    ("out", "code", said("tool", kind="execution_output", content={"text": "2"}, name="python")),
    (
        "a",
        "out",
        said(
            "assistant", "two", metadata={"model_slug": "gpt-x", "k": [1]}, create_time=1700000001
        ),
    ),
    ("b", "u", said("assistant", "", metadata={})),
    ("b2", "b", said("user", "again", weight=0)),
    current_node="b",
    default_model_slug="gpt-x",
    is_archived=False,
)


def test_a_chatgpt_conversation_keeps_its_branches_calls_and_settings(tmp_path: Path) -> None:
    tree = read(tmp_path, CHATGPT)
    assert shape(tree) == [
        "u < - user: draw <image id file-service://f1>",
        "t < u assistant: (hm)",
        "code < t assistant: python[code](1+1)",
        "out < code tool: [code]=2",
        "a < out assistant: two",
        "b2 < u user: again",
    ]
    assert (tree.id, tree.title, tree.system_context, tree.model, tree.created) == (
        "c",
        "T",
        "be brief",
        "gpt-x",
        1700000000500,
    )
    assert tree.current == "u", "the current node says nothing and is passed over"
    assert tree.branch_points == 1
    nodes = {node.id: node for node in tree.nodes}
    assert [node.id for node in tree.nodes if node.flags.excluded] == ["b2"]
    assert (nodes["a"].author, nodes["a"].created) == ("gpt-x", 1700000001000)
    assert json.loads(nodes["a"].message.carried.fields) == {"metadata": {"k": [1]}}
    assert nodes["code"].message.calls[0].kind == nodes["out"].message.results[0].kind == "custom"
    assert json.loads(nodes["code"].message.carried.fields)["content"] == {
        "content_type": "code",
        "language": "python",
    }
    assert json.loads(tree.carried.fields) == {"is_archived": False}


def test_branches_of_chatgpt_stand_in_the_order_of_the_children(tmp_path: Path) -> None:
    value = chatgpt(
        ("q", None, said("user", "q")), *((name, "q", said("assistant", name)) for name in "abc")
    )
    value["mapping"]["q"]["children"] = ["c", "a", "b"]
    assert [node.id for node in read(tmp_path, value).nodes] == ["q", "c", "a", "b"]


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("text", {"parts": ["a", "b"]}, "a b"),
        (
            "multimodal_text",
            {"parts": [{"content_type": "audio_transcription", "text": "hello"}]},
            "hello",
        ),
        (
            "multimodal_text",
            {
                "parts": [
                    {
                        "content_type": "real_time",
                        "audio_asset_pointer": {"asset_pointer": "sediment://x"},
                    }
                ]
            },
            "<file id sediment://x>",
        ),
        ("code", {"text": "print()"}, "print()"),
        ("tether_browsing_display", {"result": "a page", "summary": "s"}, "a page"),
        ("tether_quote", {"text": "quoted", "url": "u"}, "quoted"),
        (
            "execution_output",
            {"text": "2", "assets": [{"asset_pointer": "p", "content_type": "image"}]},
            "2 <image id p>",
        ),
        (
            "computer_output",
            {"screenshot": {"asset_pointer": "p", "content_type": "image"}},
            "<image id p>",
        ),
        ("user_editable_context", {"user_profile": "me", "user_instructions": "you"}, "me you"),
        ("brand_new", {"parts": [{"x": 1}]}, "?"),
        ("reasoning_recap", {"content": "Thought for 5s"}, "Thought for 5s"),
    ],
)
def test_every_content_of_chatgpt_says_its_words(
    tmp_path: Path, kind: str, content: dict[str, Any], expected: str
) -> None:
    value = chatgpt(("u", None, said("user", kind=kind, content=content)))
    assert shape(read(tmp_path, value)) == [f"u < - user: {expected}"]


def test_a_tool_of_chatgpt_may_answer_twice_not_at_all_or_nobody(tmp_path: Path) -> None:
    value = chatgpt(
        ("lone", None, said("tool", "a file", name="myfiles")),
        ("c", "lone", said("assistant", '{"q":1}', recipient="web.run")),
        ("r1", "c", said("tool", "", name="web.run")),
        ("r2", "r1", said("tool", "more", name="web.run")),
        ("d", "r2", said("assistant", "remember", recipient="bio")),
    )
    tree = read(tmp_path, value)
    assert shape(tree) == [
        "lone < - tool: [lone]=a file",
        'c < lone assistant: web.run[c]({"q":1})',
        "r1 < c tool: [c]=",
        "r2 < r1 tool: [c]=more",
        "d < r2 assistant: remember",
    ]
    assert tree.nodes[1].message.calls[0].kind == "function"
    assert json.loads(tree.nodes[4].message.carried.fields) == {"recipient": "bio"}


def test_files_that_came_with_a_message_are_in_it(tmp_path: Path) -> None:
    attached = [
        {"id": "f9", "name": "a.pdf", "mimeType": "application/pdf"},
        {"id": "f1", "name": "seen.png"},
    ]
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f1"}
    tree = read(
        tmp_path, chatgpt(("u", None, said("user", picture, metadata={"attachments": attached})))
    )
    assert tree.nodes[0].message.parts[1] == Media("file", "id", "f9", "application/pdf", "a.pdf")
    assert len(tree.nodes[0].message.parts) == 2


def test_system_text_stays_in_its_place_where_branches_differ_and_later_on(tmp_path: Path) -> None:
    apart = chatgpt(
        ("s1", None, said("system", "one")),
        ("u1", "s1", said("user", "a")),
        ("s2", None, said("system", "two")),
        ("u2", "s2", said("user", "b")),
        (
            "s3",
            "u2",
            said("system", "three", metadata={"is_visually_hidden_from_conversation": True}),
        ),
    )
    tree = read(tmp_path, apart)
    assert tree.system_context == ""
    assert [node.id for node in tree.nodes if node.message.role == "system"] == ["s1", "s2", "s3"]
    assert [node.parent for node in tree.nodes].count("") == 2
    assert [node.id for node in tree.nodes if node.flags.excluded] == ["s3"]


def test_what_the_user_tells_every_conversation_is_system_text(tmp_path: Path) -> None:
    about = {"is_user_system_message": True, "is_visually_hidden_from_conversation": True}
    older = about | {
        "user_context_message_data": {"about_user_message": "me", "about_model_message": "you"}
    }
    newer = said(
        "user",
        kind="user_editable_context",
        content={"user_profile": "I", "user_instructions": "do"},
        metadata=about,
    )
    value = chatgpt(
        ("r", None, said("system", "")),
        ("o", "r", said("system", "", metadata=older)),
        ("n", "o", newer),
        ("u", "n", said("user", "hi")),
    )
    tree = read(tmp_path, value)
    assert (tree.system_context, shape(tree)) == ("me\nyou\n\nI\ndo", ["u < - user: hi"])


@needs_shared
@pytest.mark.parametrize(
    ("name", "nodes", "branches"),
    [
        ("chatgpt_sample-00.json", 3, 1),
        ("chatgpt_sample-01.json", 4, 1),
        ("claude-ai_sample-00.json", 3, 0),
        ("claude-ai_sample-01.json", 6, 0),
    ],
)
def test_the_sample_exports_are_read(name: str, nodes: int, branches: int) -> None:
    [tree] = read_trees(str(EXPORTS / name))
    sound(tree)
    value = json.loads((EXPORTS / name).read_text())
    assert (len(tree.nodes), tree.branch_points) == (nodes, branches)
    assert tree.id in (value.get("id"), value.get("uuid"))
    for node in tree.nodes:
        if "mapping" in value:
            assert node.message.text == "\n".join(
                value["mapping"][node.id]["message"]["content"]["parts"]
            )
        else:
            [wire] = (wire for wire in value["chat_messages"] if wire["uuid"] == node.id)
            assert node.message.text == wire["text"]


# ── Claude.ai ────────────────────────────────────────────────────────────────


def chat(uuid: str, sender: str, *content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "sender": sender,
        "text": "",
        "content": list(content),
        "created_at": "2025-01-02T03:04:05Z",
        **fields,
    }


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "citations": []}


NOBODY = "00000000-0000-4000-8000-000000000000"
CLAUDE_AI = {
    "uuid": "c",
    "name": "T",
    "summary": "S",
    "created_at": "2025-01-02T03:04:05.5+00:00",
    "current_leaf_message_uuid": "a1",
    "account": {"uuid": "me"},
    "chat_messages": [
        chat("u", "human", block("hi"), parent_message_uuid=NOBODY),
        chat(
            "a1",
            "assistant",
            {"type": "thinking", "thinking": "hm", "signature": None, "cut_off": False},
            {"type": "tool_use", "id": None, "name": "f", "input": {"x": 1}, "message": "Calling"},
            {"type": "tool_use", "id": "own", "name": "g", "input": {}},
            {
                "type": "tool_result",
                "tool_use_id": None,
                "name": "f",
                "content": [block("F")],
                "is_error": True,
            },
            {"type": "tool_result", "tool_use_id": "own", "name": "g", "content": "G"},
            block("done"),
            {"type": "token_budget"},
            parent_message_uuid="u",
        ),
        chat("a2", "assistant", block("other"), parent_message_uuid="u"),
    ],
}


def test_a_claude_ai_conversation_keeps_its_branches_and_calls(tmp_path: Path) -> None:
    tree = read(tmp_path, CLAUDE_AI)
    assert shape(tree) == [
        "u < - user: hi",
        'a1.1 < u assistant: (hm) f[a1-1]({"x":1}) g[own]({})',
        "a1.2 < a1.1 tool: [a1-1]=F [own]=G",
        "a1 < a1.2 assistant: done ?",
        "a2 < u assistant: other",
    ]
    assert (tree.title, tree.description, tree.current, tree.created) == (
        "T",
        "S",
        "a1",
        1735787045500,
    )
    assert [result.error for result in tree.nodes[2].message.results] == [True, False]
    assert tree.branch_points == 1


def test_claude_ai_messages_that_name_no_parents_follow_each_other(tmp_path: Path) -> None:
    for fields in ({}, {"parent_message_uuid": None}):
        messages = [
            chat("1", "human", text="old form", **fields),
            chat("2", "assistant", block("b"), text="b", **fields),
        ]
        tree = read(tmp_path, {"uuid": "c", "name": "", "chat_messages": messages})
        assert shape(tree) == ["1 < - user: old form", "2 < 1 assistant: b"]
        assert tree.current == "2"


def test_what_was_attached_to_a_claude_ai_message_is_in_it(tmp_path: Path) -> None:
    attached = {
        "file_name": "a.md",
        "file_type": "text/markdown",
        "file_size": 3,
        "extracted_content": "abc",
    }
    files = [
        {"file_name": "b.png", "file_uuid": "f", "file_kind": "image"},
        {"file_name": "nowhere"},
    ]
    tree = read(
        tmp_path,
        {
            "uuid": "c",
            "chat_messages": [
                chat("1", "human", block("see"), attachments=[attached], files=files)
            ],
        },
    )
    first, second, third, text = tree.nodes[0].message.parts
    assert first == Media(
        "file",
        "text",
        "abc",
        "text/plain",
        "a.md",
        Carried("claude.ai", '{"file_type":"text/markdown","file_size":3}'),
    )
    assert second == Media(
        "image", "id", "f", name="b.png", carried=Carried("claude.ai", '{"file_kind":"image"}')
    )
    assert third == Opaque("claude.ai", '{"file_name":"nowhere"}')
    assert text == Text("see")


# ── Claude Code ──────────────────────────────────────────────────────────────


def line(uuid: str, parent: str | None, kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content} | (
        {"id": fields.pop("of", uuid), "model": "m"} if kind == "assistant" else {}
    )
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "message": message,
        **fields,
    }


def call(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {}}


def result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": id.upper()}


CLAUDE_CODE = [
    {"type": "summary", "summary": "T", "leafUuid": "x"},
    line("u", None, "user", "go"),
    {"type": "progress", "uuid": "p", "parentUuid": "u"},
    line("a1", "p", "assistant", [call("a")], of="m1"),
    line("ra", "a1", "user", [result("a")]),
    line("a2", "a1", "assistant", [call("b")], of="m1"),
    line("rb", "a2", "user", [result("b")]),
    line("e", "ra", "assistant", [{"type": "text", "text": "end"}]),
    line("v", None, "user", "another root"),
    line("w", "u", "user", "or so"),
    {"type": "last-prompt", "leafUuid": "e"},
]


def test_blocks_of_a_claude_code_message_are_one_node_and_its_results_follow_each_other(
    tmp_path: Path,
) -> None:
    tree = read(tmp_path, *CLAUDE_CODE)
    assert shape(tree) == [
        "u < - user: go",
        "a2 < u assistant: f[a]({}) f[b]({})",
        "ra < a2 tool: [a]=A",
        "rb < ra tool: [b]=B",
        "e < rb assistant: end",
        "w < u user: or so",
        "v < - user: another root",
    ]
    assert (tree.id, tree.title, tree.current, tree.model, tree.branch_points) == (
        "s",
        "T",
        "e",
        "m",
        1,
    )


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("cc_*.jsonl")))
def test_the_way_to_the_current_node_of_a_session_is_its_live_branch(name: str) -> None:
    [tree] = read_trees(str(FIXTURES / name))
    [run] = read_runs(str(FIXTURES / name))
    assert path_to(sound(tree), tree.current) == list(run.messages())
    assert tree.branch_points == (name == "cc_resumed_fork.jsonl")


@needs_shared
def test_the_way_to_the_current_node_of_a_pi_session_is_its_live_branch() -> None:
    path = str(SHARED / "data" / "agents" / "pi_large_session.jsonl")
    [tree] = read_trees(path)
    [run] = read_runs(path)
    assert path_to(tree, tree.current) == list(run.messages())


def test_a_call_that_was_answered_twice_makes_branches(tmp_path: Path) -> None:
    tree = read(
        tmp_path,
        line("u", None, "user", "go"),
        line("a", "u", "assistant", [call("a")]),
        line("r1", "a", "user", [result("a")]),
        line("e1", "r1", "assistant", "one"),
        line("r2", "a", "user", [result("a")]),
        line("e2", "r2", "assistant", "two"),
    )
    assert [(node.id, node.parent) for node in tree.nodes][2:] == [
        ("r1", "a"),
        ("e1", "r1"),
        ("r2", "a"),
        ("e2", "r2"),
    ]


def test_a_sub_agent_is_a_branch_where_it_hangs_on_the_session_and_else_a_tree(
    tmp_path: Path,
) -> None:
    lines = [
        line("u", None, "user", "go"),
        line("s1", "u", "user", "aside", isSidechain=True),
        line("s2", "s1", "assistant", "mine", isSidechain=True),
        line("x1", None, "user", "alone", isSidechain=True, agentId="x"),
        line("y1", None, "user", "nameless", isSidechain=True),
        line("x2", "x1", "assistant", "too", isSidechain=True, agentId="x"),
        line("e", "u", "assistant", "end"),
    ]
    main, x, y = read_trees(str(write(tmp_path / "s.jsonl", *lines)))
    assert [node.id for node in main.nodes] == ["u", "s1", "s2", "e"]
    assert [node.flags.label for node in main.nodes] == ["", "a sub-agent", "", ""]
    assert (x.id, x.title, [node.id for node in x.nodes], x.current) == (
        "x",
        "a sub-agent",
        ["x1", "x2"],
        "x2",
    )
    assert (y.id, main.id, main.current) == ("y1", "s", "e")


def test_a_compaction_is_told_where_what_it_stands_for_is_elsewhere(tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "parentUuid": None,
        "logicalParentUuid": "u",
    }
    after = [
        boundary,
        line("c", "b", "user", "summary", isCompactSummary=True),
        line("v", "c", "user", "on"),
    ]
    assert shape(read(tmp_path, line("u", None, "user", "go"), *after)) == [
        "u < - user: go",
        "v < u user: on",
    ]
    assert shape(read(tmp_path, *after)) == ["c < - user: summary", "v < c user: on"]


def test_claude_code_lines_that_lost_their_parents_or_were_written_twice_are_kept(
    tmp_path: Path,
) -> None:
    hook = {"type": "saved_hook_context", "uuid": "h"}
    tree = read(
        tmp_path,
        hook | {"parentUuid": None},
        line("u", "h", "user", "go"),
        hook | {"parentUuid": "u"},  # seen in the wild: one uuid for all of them
        line("v", "h", "user", "on"),
        *[line("u", "gone", "user", "go")] * 2,
        line("w", "u", "user", "after"),
        line("u", "w", "user", "other words"),
        line("z", "never written", "user", "still here"),
    )
    assert shape(tree) == [
        "u < - user: go",
        "v < u user: on",
        "w < u user: after",
        "u.2 < w user: other words",
        "z < - user: still here",
    ]


# ── OpenAssistant, Gemini CLI, and transcripts without branches ──────────────


@needs_shared
@pytest.mark.parametrize("packed", [False, True])
def test_the_openassistant_trees_are_100_with_1167_nodes_and_260_branch_points(
    tmp_path: Path, packed: bool
) -> None:
    path = TREES / "oasst_en_100_tree.jsonl"
    if packed:
        path = tmp_path / "trees.jsonl.gz"
        path.write_bytes(gzip.compress((TREES / "oasst_en_100_tree.jsonl").read_bytes()))
    trees = [sound(tree) for tree in read_trees(str(path))]
    assert len(trees) == 100
    assert sum(len(tree.nodes) for tree in trees) == 1167
    assert sum(tree.branch_points for tree in trees) == 260
    assert tree_format(path) == "OpenAssistant tree"


OPEN_ASSISTANT = {
    "message_tree_id": "t",
    "tree_state": "ready_for_export",
    "prompt": {
        "message_id": "t",
        "text": "q",
        "role": "prompter",
        "lang": "en",
        "replies": [
            {
                "message_id": "b",
                "parent_id": "t",
                "text": "B",
                "role": "assistant",
                "rank": 1,
                "deleted": True,
                "replies": [],
            },
            {
                "message_id": "a",
                "text": "A",
                "role": "assistant",
                "rank": 0,
                "labels": {"x": {"value": 1}},
                "model_name": "m",
            },
        ],
    },
}


def test_an_openassistant_tree_keeps_the_order_the_ranks_and_what_was_deleted(
    tmp_path: Path,
) -> None:
    tree = read(tmp_path, OPEN_ASSISTANT)
    assert shape(tree) == ["t < - user: q", "b < t assistant: B", "a < t assistant: A"]
    assert [node.flags.pruned for node in tree.nodes] == [False, True, False]
    assert tree.nodes[2].message.carried == Carried(
        "openassistant", '{"rank":0,"labels":{"x":{"value":1}}}'
    )
    assert tree.nodes[2].author == "m"
    assert tree.carried == Carried("openassistant", '{"tree_state":"ready_for_export"}')


GEMINI_CLI = {
    "sessionId": "s",
    "projectHash": "h",
    "startTime": "2026-03-01T00:00:00.000Z",
    "kind": "main",
    "summary": "T",
    "messages": [
        {
            "id": "1",
            "type": "user",
            "content": [{"text": "hi"}],
            "timestamp": "2026-03-01T00:00:01.000Z",
        },
        {"id": "2", "type": "info", "content": "updated"},
        {
            "id": "3",
            "type": "gemini",
            "content": "look",
            "model": "gemini-x",
            "tokens": {"input": 1},
            "thoughts": [{"subject": "S", "description": "D"}],
            "toolCalls": [
                {
                    "id": "c",
                    "name": "f",
                    "args": {"x": 1},
                    "status": "success",
                    "result": [
                        {
                            "functionResponse": {
                                "id": "c",
                                "name": "f",
                                "response": {"output": "out"},
                            }
                        }
                    ],
                }
            ],
        },
        {"id": "4", "type": "gemini", "content": "done"},
    ],
}


def test_a_gemini_cli_session_is_one_line(tmp_path: Path) -> None:
    tree = read(tmp_path, GEMINI_CLI)
    assert shape(tree) == [
        "1 < - user: hi",
        "2 < 1 system: updated",
        '3.1 < 2 assistant: (S\nD) look f[c]({"x":1})',
        "3 < 3.1 tool: [c]=out",
        "4 < 3 assistant: done",
    ]
    assert [node.flags.excluded for node in tree.nodes] == [False, True, False, False, False]
    assert (tree.title, tree.model, tree.current) == ("T", "gemini-x", "4")


def test_a_transcript_without_branches_is_a_tree_without_them(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    tree = read(tmp_path, {"model": "m", "messages": messages, "tools": tools})
    assert shape(tree) == ["1 < - user: hi", "2 < 1 assistant: yes"]
    assert (tree.id, tree.system_context, tree.model, tree.current) == ("file", "brief", "m", "2")
    assert json.loads(tree.carried.fields) == {"tools": [{"name": "f"}]}
    assert tree_format(tmp_path / "file") == ""
    [codex] = read_trees(str(FIXTURES / "codex_parallel_reasoning.jsonl"))
    [run] = read_runs(str(FIXTURES / "codex_parallel_reasoning.jsonl"))
    assert [node.message for node in codex.nodes] == list(run.messages())


# ── files ────────────────────────────────────────────────────────────────────

OURS = {"loom": "tree", "version": 1, "trees": []}
FORMATS = {
    "ChatGPT export": CHATGPT,
    "Claude.ai export": CLAUDE_AI,
    "OpenAssistant tree": OPEN_ASSISTANT,
    "Gemini CLI session": GEMINI_CLI,
}


@pytest.mark.parametrize("name", FORMATS)
def test_conversations_come_alone_in_a_list_a_line_each_spread_out_and_wrapped(
    tmp_path: Path, name: str
) -> None:
    value = FORMATS[name]
    expected = read(tmp_path, value)
    for form in ([value, value], [[value, value]], [[{"raw_provider_payload": value}] * 2]):
        path = write(tmp_path / "form", *form)
        assert list(read_trees(str(path))) == [expected, expected]
        assert list(read_trees(f"{path}#1")) == [expected]
        assert tree_format(path) == name
    path.write_text(json.dumps([value, value], indent=1))
    assert list(read_trees(str(path))) == [expected, expected]
    with pytest.raises(LoomError, match=r"has 2 trees; choose #0.*#1.*, not #2"):
        list(read_trees(f"{path}#2"))


def chain(kind: str, count: int) -> list[Any]:
    """A line of nodes as each format writes it, the last one first where the format does not
    mind.
    """
    names = [f"n{n}" for n in range(count)]
    above: list[Any] = [None, *names[:-1]]
    if kind == "chatgpt":
        nodes = [
            (name, parent, said("user", name)) for name, parent in zip(names, above, strict=True)
        ]
        value = chatgpt(*nodes)
        value["mapping"] = dict(reversed(value["mapping"].items()))
        return [value]
    if kind == "claude.ai":
        messages = [
            chat(name, "human", block(name), parent_message_uuid=up)
            for name, up in zip(names, above, strict=True)
        ]
        return [{"uuid": "c", "chat_messages": messages[::-1]}]
    if kind == "claude code":
        return [line(name, up, "user", name) for name, up in zip(names, above, strict=True)][::-1]
    if kind == "gemini":
        return [
            {
                "sessionId": "s",
                "startTime": "",
                "messages": [{"id": name, "type": "user", "content": name} for name in names],
            }
        ]
    message = {"role": "user", "parts": [{"type": "text", "text": "x"}]}
    nodes = [
        {"id": name, "parent": up or "", "message": message}
        for name, up in zip(names, above, strict=True)
    ]
    return [OURS | {"trees": [{"id": "t", "nodes": nodes}]}]


@pytest.mark.parametrize("kind", ["chatgpt", "claude.ai", "claude code", "gemini", "ours"])
def test_a_line_of_ten_thousand_nodes_is_read(tmp_path: Path, kind: str) -> None:
    [tree] = read_trees(str(write(tmp_path / "deep", *chain(kind, 10_000))))
    assert [node.id for node in tree.nodes] == [f"n{n}" for n in range(10_000)]
    assert [node.parent for node in tree.nodes] == ["", *(f"n{n}" for n in range(9_999))]


def test_replies_nested_deeper_than_json_is_read_are_refused(tmp_path: Path) -> None:
    reply = '{"message_id":"%s","text":"x","role":"prompter","replies":[%s]}'

    def nested(count: int, text: str) -> Path:
        opened = [reply.partition("%s]}")[0] % n for n in range(count)]
        path = tmp_path / "nested"
        path.write_text(f'{{"message_tree_id":"{text}","prompt":{"".join(opened)}{"]}" * count}}}')
        return path

    [tree] = read_trees(str(nested(300, "t")))
    assert (len(tree.nodes), tree.branch_points) == (300, 0)
    # what can just be read may still be too deep to be looked through for half characters
    for count in (480, 10_000):
        with pytest.raises(TranscriptError, match="nested too deeply"):
            list(read_trees(str(nested(count, "\\ud83d"))))


RING = [("a", "b", said("user", "a")), ("b", "a", said("user", "b"))]
BAD: dict[str, tuple[list[Any], str]] = {
    "a ring": (
        [chatgpt(*RING)],
        r"mapping\.b: expected a parent that is not below it, found the text 'a'",
    ),
    "its own parent": (
        [chatgpt(("a", "a", said("user", "a")))],
        r"mapping\.a: expected a parent that is not below it",
    ),
    "a ring of lines": (
        [line("a", "b", "user", "a"), line("b", "a", "user", "b")],
        r"line 1: expected a parent that is not below it",
    ),
    "an id twice": (
        [
            {
                "uuid": "c",
                "chat_messages": [chat("1", "human", block("a")), chat("1", "human", block("b"))],
            }
        ],
        r"chat_messages\[1\]: expected an id of its own, found the text '1'",
    ),
    "an unknown role": (
        [chatgpt(("a", None, said("wizard", "a")))],
        r"mapping\.a\.message\.author\.role: expected user, assistant, system or tool, found "
        r"the text 'wizard'",
    ),
    "an unknown sender": (
        [{"uuid": "c", "chat_messages": [chat("1", "cat")]}],
        r"chat_messages\[0\]\.sender: expected human or assi",
    ),
    "a part of the wrong type": (
        [chatgpt(("a", None, said("user", 5)))],
        r"content\.parts\[0\]: expected a text or an object, found 5",
    ),
    "a node of the wrong type": (
        [chatgpt() | {"mapping": {"a": 5}}],
        r"mapping\.a: expected an object, found 5",
    ),
    "the second of a list": (
        [[CLAUDE_AI, {"uuid": "c", "chat_messages": [5]}]],
        r"\[1\]: chat_messages\[0\]: expected an object, found 5",
    ),
    "a line of another kind": (
        [OPEN_ASSISTANT, {"a": 1}],
        "line 2: expected a conversation as before it, found an object with the k",
    ),
    "a reply without text": (
        [{"message_tree_id": "t", "prompt": OPEN_ASSISTANT["prompt"] | {"text": None}}],  # type: ignore[operator]
        r"prompt\.text: expected a text, found nothing",
    ),
    "an unknown type of message": (
        [GEMINI_CLI | {"messages": [{"id": "1", "type": "tool"}]}],
        r"messages\[0\]\.type: expected user, gemini, info, warning or error, found the text "
        r"'tool'",
    ),
    "a bad block of a session": (
        [line("a", None, "user", [{"type": 5}])],
        r"line 1\.content\[0\]\.type: expected the name of a block",
    ),
    "a session that says nothing": (
        [{"type": "progress", "uuid": "a", "sessionId": "s"}],
        "a Claude Code session without a message",
    ),
    "an empty list": ([[]], "an empty list. Looked for OpenAI chat"),
    "another object": (
        [{"a": 1}],
        "an object with the keys a. Looked for OpenAI chat",
    ),
    "prose": (["Dear diary"], "begins with '\"Dear diary\"'. Looked for OpenAI chat"),
    "a newer version": (
        [OURS | {"version": 3}],
        "version: expected at most 2; a newer Loom wrote this, and a newer Loom reads it, found 3",
    ),
    "no version": ([{"loom": "tree"}], "version: expected a number from 1, found nothing"),
    "no trees": ([{"loom": "tree", "version": 1}], "trees: expected a list, found nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_in_one_line_that_says_where(
    tmp_path: Path, name: str
) -> None:
    values, reason = BAD[name]
    path = write(tmp_path / "file.json", *values)
    with pytest.raises(TranscriptError, match=reason) as caught:
        list(read_trees(str(path)))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_parents_make_roots(tmp_path: Path) -> None:
    tree = read(
        tmp_path,
        chatgpt(
            ("a", "gone", said("user", "a")),
            ("b", "a", said("user", "b")),
            ("c", None, said("user", "c")),
        ),
    )
    assert [(node.id, node.parent) for node in tree.nodes] == [("a", ""), ("b", "a"), ("c", "")]


def test_files_past_the_limits_and_broken_packed_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "packed.gz"
    packed = gzip.compress(json.dumps(CHATGPT).encode() * 2)
    path.write_bytes(packed[:-20])
    with pytest.raises(TranscriptError, match=r"packed.gz is a damaged gzip file"):
        list(read_trees(str(path)))
    monkeypatch.setattr(files, "MAX_UNPACKED", 1000)
    path.write_bytes(packed)
    with pytest.raises(TranscriptError, match=r"packed.gz unpacks to more than"):
        list(read_trees(str(path)))
    monkeypatch.setattr(files, "MAX_DOCUMENT", 1000)
    path.write_text(json.dumps([CHATGPT], indent=1))
    with pytest.raises(TranscriptError, match="an object of the list is longer than"):
        list(read_trees(str(path)))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_no_damage_to_a_file_makes_more_than_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ours = json.loads(next(write_trees([GOLDEN])))
    values: list[Any] = copy.deepcopy(
        data.draw(st.sampled_from([*([value] for value in (*FORMATS.values(), ours)), CLAUDE_CODE]))
    )
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] = data.draw(our.damaged(values[at]))
    path = write(tmp_path_factory.getbasetemp() / "damaged-tree", *values)
    trees, refused = outcome(path)
    assert "\n" not in refused
    assert list(again(trees)) == trees


# ── our own form ─────────────────────────────────────────────────────────────


def text(role: Any, words: str) -> Message:
    return Message(role, (Text(words),))


GOLDEN = Tree(
    id="t1",
    title="A pound of flour",
    system_context="Answer in one sentence.",
    current="n5",
    model="some-model",
    created=1763190000000,
    nodes=(
        TreeNode(id="n1", message=text("user", "How many grams are in a pound?")),
        TreeNode(
            id="n2",
            parent="n1",
            author="some-model",
            message=text("assistant", "About 450."),
            flags=Flags(pruned=True),
        ),
        TreeNode(
            id="n3",
            parent="n1",
            author="some-model",
            message=Message("assistant", (ToolCall("c1", "convert", '{"pounds":1}'),)),
        ),
        TreeNode(
            id="n4", parent="n3", message=Message("tool", (ToolResult("c1", (Text("453.592"),)),))
        ),
        TreeNode(
            id="n5",
            parent="n4",
            author="some-model",
            message=text("assistant", "A pound has 453.592 grams."),
            sources=(Reference("n4", "context"),),
            flags=Flags(bookmarked=True, label="the answer"),
            created=1763190004000,
        ),
        TreeNode(
            id="n6", parent="n5", edge="annotation", author="ann", message=text("user", "Checked.")
        ),
    ),
    links=(Link("n5", "n9", "t2", "the recipe"),),
)


def test_the_documented_example_is_what_is_written_and_read(tmp_path: Path) -> None:
    [shown] = re.findall(
        r"```json\n(.*?)```", (ROOT / "docs" / "trees-exchange.md").read_text(), re.DOTALL
    )
    assert json.loads(shown) == json.loads(next(write_trees([GOLDEN])))
    path = tmp_path / "example.json"
    path.write_text(shown)
    assert list(read_trees(str(path))) == [GOLDEN]
    assert GOLDEN.branch_points == 1
    assert tree_format(path) == "Loom trees"


def test_the_documented_names_are_those_of_the_values() -> None:
    page = (ROOT / "docs" / "trees-exchange.md").read_text()
    for kind in (Tree, TreeNode, Flags, Reference):
        for field in kind.__struct_fields__:
            assert f"`{field}`" in page, field


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    messages = draw(st.one_of(our.histories(2), our.recorded_slices, st.just([])))[:8]
    ids = draw(st.lists(our.words, min_size=len(messages), max_size=len(messages), unique=True))
    some = st.sampled_from(ids) if ids else st.just("")
    flags = st.builds(Flags, st.booleans(), our.words, st.booleans(), st.booleans(), st.booleans())
    roles = st.sampled_from(["instruction", "context", "primary"])
    sources = st.lists(
        st.one_of(
            st.builds(Reference, some, roles),
            st.builds(Reference, our.words, roles, st.just("elsewhere")),
        ),
        max_size=2,
    )
    carried = st.one_of(
        st.none(), st.builds(Carried, our.words, our.objects.map(json.dumps), st.tuples(our.words))
    )
    nodes = [
        TreeNode(
            id=id,
            message=message,
            parent=draw(st.sampled_from(["", *ids[:n]])),
            author=draw(st.sampled_from(["", "an agent"])),
            edge=draw(st.sampled_from(["continuation", "annotation", "version"])),
            sources=tuple(draw(sources)),
            edited_from=draw(st.sampled_from(["", *ids])),
            generation=draw(st.sampled_from(["", "g"])),
            flags=draw(flags),
            created=draw(st.integers(0, 2**53)),
        )
        for n, (id, message) in enumerate(zip(ids, messages, strict=True))
    ]
    links = st.lists(st.builds(Link, some, some, st.just(""), our.words), max_size=2 if ids else 0)
    return Tree(
        id=draw(our.words),
        nodes=tuple(nodes),
        title=draw(our.texts),
        description=draw(st.sampled_from(["", "d"])),
        mode=draw(st.sampled_from(["dialogue", "buffer"])),
        system_context=draw(st.sampled_from(["", "be brief"])),
        buffer_mode_system_context=draw(st.booleans()),
        preferences=draw(st.sampled_from([Preferences(), Preferences("rolling_window", 3, 100)])),
        links=tuple(draw(links)),
        current=draw(st.sampled_from(["", *ids])),
        model=draw(st.sampled_from(["", "m"])),
        created=draw(st.integers(0, 2**53)),
        carried=draw(carried),
    )


@settings(max_examples=examples(40), deadline=None)
@given(given_trees=st.lists(trees(), min_size=1, max_size=2))
def test_any_trees_go_out_and_come_in_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, given_trees: list[Tree]
) -> None:
    path = tmp_path_factory.getbasetemp() / "trees.jsonl"
    lines = list(write_trees(given_trees))
    path.write_text("\n".join(lines), encoding="utf-8")
    assert list(read_trees(str(path))) == given_trees
    whole = OURS | {"trees": [tree for line in lines for tree in json.loads(line)["trees"]]}
    path.write_text(json.dumps(whole, indent=2))
    assert list(read_trees(str(path))) == given_trees


SAID = {"role": "user", "parts": [{"type": "text", "text": "x"}]}
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a type": (
        {"nodes": [{"id": 5, "message": SAID}]},
        r"trees\[0\]\.nodes\[0\]\.id: expected str, got int",
    ),
    "no message": (
        {"nodes": [{"id": "1"}]},
        r"trees\[0\]\.nodes\[0\]: object missing required field message",
    ),
    "no id": ({"id": ""}, r"trees\[0\]\.id: expected an id, found the text ''"),
    "an id twice": (
        {"nodes": [{"id": "1", "message": SAID}] * 2},
        r"nodes\[1\]\.id: expected an id of its own, found the text '1'",
    ),
    "a later parent": (
        {"nodes": [{"id": "1", "parent": "2", "message": SAID}, {"id": "2", "message": SAID}]},
        r"nodes\[0\]\.parent: expected the id of a node before it, found the text '2'",
    ),
    "a current node": ({"current": "1"}, r"current: expected the id of a node of this tree"),
    "a source": (
        {"nodes": [{"id": "1", "message": SAID, "sources": [{"node": "2"}]}]},
        r"nodes\[0\]\.sources\[0\]\.node: expected the id of a node of this tree",
    ),
    "a link": (
        {"links": [{"source": "", "target": "x"}]},
        r"links\[0\]\.source: expected the id of a node of this tree",
    ),
    "a role": (
        {"nodes": [{"id": "1", "message": {"role": "cat", "parts": []}}]},
        r"nodes\[0\]\.message\.role: invalid enum value 'cat'",
    ),
    "a result of the user": (
        {
            "nodes": [
                {
                    "id": "1",
                    "message": {
                        "role": "user",
                        "parts": [{"type": "result", "call_id": "c", "parts": []}],
                    },
                }
            ]
        },
        r"message\.parts\[0\]: expected a result only in a message of the role tool, found the "
        r"text 'user'",
    ),
    "a call of the user": (
        {
            "nodes": [
                {
                    "id": "1",
                    "message": {
                        "role": "user",
                        "parts": [{"type": "call", "id": "c", "name": "f", "arguments": ""}],
                    },
                }
            ]
        },
        r"message\.parts\[0\]: expected calls and reasoning only in a message of the assistant",
    ),
    "a text that is no JSON": (
        {"nodes": [{"id": "1", "message": SAID | {"carried": {"wire": "w", "fields": "[]"}}}]},
        r"trees\[0\]: Carried\.fields: expected the text of a JSON object, found the text '\[\]'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_tree_of_ours_that_breaks_a_rule_is_refused(tmp_path: Path, name: str) -> None:
    fields, reason = BROKEN[name]
    path = write(tmp_path / "file", OURS | {"trees": [{"id": "t", "nodes": []} | fields]})
    with pytest.raises(TranscriptError, match=reason):
        list(read_trees(str(path)))


# ── what the schemas of real exports allow ───────────────────────────────────

SCHEMAS = sorted(path.name for path in EXPORTS.glob("*.schema.json.gz"))
# nearly always there
NEEDED = {"mapping", "message", "author", "role", "sender", "type", "uuid", "content", "payload"}
FRESH = {"id", "uuid", "sessionId", "conversation_id"}
USUAL = {
    "sender": ["human", "assistant"],
    "isSidechain": [False, False, True],
    "recipient": ["all", "all", "python"],
}
USUAL_OF = {
    "chatgpt": {
        "role": ["user", "assistant", "system", "tool"],
        "content_type": [
            "text",
            "code",
            "multimodal_text",
            "execution_output",
            "thoughts",
            "image_asset_pointer",
        ],
    },
    "claude-ai": {"type": ["text", "tool_use", "tool_result", "thinking"]},
    "claude-code": {
        "type": ["user", "assistant", "progress", "system", "text"],
        "role": ["user", "assistant"],
    },
    "codex": {
        "type": ["session_meta", "response_item", "message", "event_msg"],
        "role": ["user", "assistant"],
    },
    "gemini-cli": {"type": ["user", "gemini", "info"]},
}
WORDS = ["", "synthetic", "a\nb", "重试", "{}"]


class Maker:
    """Random values that satisfy a JSON Schema, with ids that refer to each other as in a real
    file, if not always.
    """

    def __init__(self, seed: int, program: str) -> None:
        self._random = random.Random(seed)
        self._ids: list[str] = []
        self._usual = USUAL | USUAL_OF[program]

    def make(self, schema: dict[str, Any], name: str = "", depth: int = 0) -> Any:
        schema = self._random.choice(schema["anyOf"]) if "anyOf" in schema else schema
        kinds = schema.get("type", "null")
        kind = self._random.choice(kinds) if isinstance(kinds, list) else kinds
        if name in self._usual and kind in ("string", "boolean") and self._random.random() < 0.97:
            return self._random.choice(self._usual[name])
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                inner = schema.get("items")
                count = self._random.choice([0, 1, 2, 5]) if depth < 8 else 0
                return (
                    [self.make(inner, name.rstrip("s"), depth + 1) for _ in range(count)]
                    if isinstance(inner, dict)
                    else []
                )
            case "string":
                return self._text(schema, name)
            case "integer":
                return self._random.choice([0, 1, 7, 1_700_000_000])
            case "number":
                return self._random.choice([0, 1, 0.5, 1_700_000_000.25, -3])
            case "boolean":
                return self._random.random() < 0.5
        return None

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        chance = 0.9 if len(properties) < 20 else 0.6 if depth < 4 else 0.1
        made = {
            key: self.make(inner, key, depth + 1)
            for key, inner in properties.items()
            if key in required
            or (depth < 8 and self._random.random() < (0.97 if key in NEEDED else chance))
        }
        free = schema.get("additionalProperties")
        for _ in range(self._random.randint(0, 5) if isinstance(free, dict) and depth < 8 else 0):
            made[self._fresh()] = self.make(free, "", depth + 1)
        return made

    def _text(self, schema: dict[str, Any], name: str) -> str:
        if name in FRESH and self._random.random() < 0.97:
            return self._fresh()
        if (
            name in ("parent", "current_node", "child", "children")
            or "parent" in name
            or name.endswith("Uuid")
        ):
            return self._random.choice(self._ids[-6:] or ["none"])
        if schema.get("x-polylogue-values") and self._random.random() < 0.97:
            return str(self._random.choice(schema["x-polylogue-values"]))
        if schema.get("x-polylogue-format") == "iso8601":
            return self._random.choice(["2026-03-01T00:00:00.000Z", "2026-03-01T00:00:00", "then"])
        return self._random.choice(WORDS)

    def _fresh(self) -> str:
        self._ids.append(f"id-{len(self._ids)}")
        return self._ids[-1]

    def rewired(self, value: Any) -> Any:
        """A mapping whose parents and children agree, as a program writes it; most of the time."""
        mapping = value.get("mapping") if isinstance(value, dict) else None
        if isinstance(mapping, dict) and self._random.random() < 0.9:
            ids = list(mapping)
            for n, id in enumerate(ids):
                mapping[id] |= {
                    "id": id,
                    "parent": self._random.choice([None, *ids[:n]]) if n else None,
                    "children": [],
                }
                if mapping[id]["parent"]:
                    mapping[mapping[id]["parent"]]["children"].append(id)
        return value


@needs_shared
@pytest.mark.parametrize("name", SCHEMAS)
def test_documents_that_a_schema_allows_are_read_or_refused_with_a_reason(
    tmp_path: Path, name: str
) -> None:
    schema = json.loads(gzip.decompress((EXPORTS / name).read_bytes()))
    count, read = examples(40), 0
    for seed in range(count):
        maker = Maker(seed, name.partition("_")[0])
        values = [maker.rewired(maker.make(schema)) for _ in range(8 if "stream" in name else 1)]
        path = write(tmp_path / "document", *values)
        trees, refused = outcome(path)
        assert not refused or re.match(rf"{re.escape(str(path))}[:, ][^\n]+$", refused)
        assert list(again(trees)) == trees
        with Loom.open(":memory:") as loom:
            for tree in trees:
                assert loom.import_tree(tree)[1] == len(tree.nodes)
        read += any(tree.nodes for tree in trees)
    assert read > count / 4, (
        f"{read} of {count} were read: the documents are too strange to prove much"
    )
