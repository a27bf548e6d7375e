"""Every command that reads a FILE reads every format that any command reads."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loom import Loom, Message, Text, read_runs, read_trees, write_trees
from loom.cli.main import cli
from loom.errors import TranscriptError
from loom.transcripts import files
from tests.shared import FIXTURES, SHARED

EXPORTS = SHARED / "data" / "exports"

AIDER = "# aider chat started at 2026-03-04 09:15:00\n\n#### Where is the heddle?  \n\nThere.\n"
CHAT = [
    {"role": "user", "content": "Where is the heddle?"},
    {"role": "assistant", "content": "There."},
]


def chatgpt(*said: str) -> dict[str, Any]:
    names = [f"n{n}" for n in range(len(said))]
    mapping: dict[str, Any] = {}
    for n, (name, text) in enumerate(zip(names, said, strict=True)):
        role = "assistant" if n % 2 else "user"
        mapping[name] = {
            "id": name,
            "parent": names[n - 1] if n else None,
            "children": names[n + 1 : n + 2],
            "message": {"author": {"role": role}, "content": {"parts": [text]}},
        }
    about = {"id": said[0], "title": f"About {said[0]}"}
    return {**about, "mapping": mapping, "current_node": names[-1]}


def exported(path: Path) -> str:
    with Loom.open(":memory:") as loom:
        loom.new("Looms").append("Where is the heddle?", Message("assistant", (Text("There."),)))
        return "".join(f"{line}\n" for line in loom.export())


def trees(path: Path) -> str:
    path.write_text(json.dumps(CHAT))
    return "".join(f"{line}\n" for line in write_trees(read_trees(path)))


def make(kind: str, folder: Path) -> Path:
    """A small file of a format."""
    path = folder / f"{kind}.json"
    packed = kind.endswith(".gz")
    text = {
        "aider": lambda: AIDER,
        "chat": lambda: json.dumps(CHAT),
        "chat lines": lambda: "".join(json.dumps(message) + "\n" for message in CHAT),
        "chat.gz": lambda: json.dumps(CHAT),
        "chatgpt": lambda: json.dumps(chatgpt("Where is the heddle?", "There.")),
        "chatgpt list": lambda: json.dumps([chatgpt("Where is the heddle?", "There.")], indent=1),
        "chatgpt lines": lambda: (json.dumps(chatgpt("Where is the heddle?", "There.")) + "\n") * 2,
        "chatgpt.gz": lambda: json.dumps([chatgpt("Where is the heddle?", "There.")]),
        "claude.ai": lambda: json.dumps(
            {
                "uuid": "u",
                "name": "T",
                "chat_messages": [
                    {"uuid": "1", "sender": "human", "text": "Where is the heddle?"},
                    {"uuid": "2", "sender": "assistant", "text": "There."},
                ],
            }
        ),
        "gemini": lambda: json.dumps(
            {
                "sessionId": "s",
                "startTime": "2026-03-04T09:15:00Z",
                "messages": [
                    {"id": "1", "type": "user", "content": "Where is the heddle?"},
                    {"id": "2", "type": "gemini", "content": "There."},
                ],
            }
        ),
        "open assistant": lambda: json.dumps(
            {
                "message_tree_id": "a",
                "prompt": {
                    "message_id": "a",
                    "role": "prompter",
                    "text": "Where is the heddle?",
                    "replies": [{"message_id": "b", "role": "assistant", "text": "There."}],
                },
            }
        ),
        "sessions": lambda: exported(path),
        "trees": lambda: trees(path),
    }[kind]()
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


KINDS = (
    "aider",
    "chat",
    "chat lines",
    "chat.gz",
    "chatgpt",
    "chatgpt list",
    "chatgpt lines",
    "chatgpt.gz",
    "claude.ai",
    "gemini",
    "open assistant",
    "sessions",
    "trees",
)


@pytest.mark.parametrize("kind", KINDS)
def test_runs_say_what_the_file_says(tmp_path: Path, kind: str) -> None:
    run, *_ = read_runs(make(kind, tmp_path))
    assert [(message.role, message.text) for message in run.messages()] == [
        ("user", "Where is the heddle?"),
        ("assistant", "There."),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("convert", "--to", "anthropic"),
        ("count",),
        ("explain", "--model", "gpt-4o"),
        ("replay", "--model", "gpt-4o"),
        ("show",),
        ("weave", "--model", "gpt-4o"),
        ("session", "import", "--store", "{store}"),
        ("tree", "import", "--store", "{store}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_every_command_reads_it(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    path = make(kind, tmp_path)
    given = [word.format(store=tmp_path / "loom.db") for word in words]
    result = CliRunner().invoke(cli, [*given, str(path)])
    assert result.exit_code == 0, result.output


def test_a_branch_that_was_left_is_not_read_and_neither_is_what_is_hidden(tmp_path: Path) -> None:
    given = chatgpt("a", "b", "c")
    given["mapping"]["other"] = {
        "id": "other",
        "parent": "n0",
        "children": [],
        "message": {"author": {"role": "assistant"}, "content": {"parts": ["another b"]}},
    }
    given["mapping"]["n0"]["children"].append("other")
    given["mapping"]["n1"]["message"]["weight"] = 0
    path = tmp_path / "chatgpt.json"
    path.write_text(json.dumps(given))
    [run] = read_runs(path)
    assert [message.text for message in run.messages()] == ["a", "c"]
    given["current_node"] = "other"
    path.write_text(json.dumps(given))
    [run] = read_runs(path)
    assert [message.text for message in run.messages()] == ["a", "another b"]


def test_exported_sessions_are_read_as_their_paths(tmp_path: Path) -> None:
    with Loom.open(":memory:") as loom:
        session = loom.new("Looms", system="Be brief.", model="gpt-4o")
        nodes = session.append("one", "two", "three")
        fork = session.fork(at=nodes[1].id)
        fork.append("four")
        loom.tree(session.id).exclude(nodes[0].id)
        path = tmp_path / "sessions.jsonl"
        path.write_text("".join(f"{line}\n" for line in loom.export()))
    runs = {run.number: run for run in read_runs(path)}
    said = sorted([message.text for message in run.messages()] for run in runs.values())
    assert said == [["two", "four"], ["two", "three"]]
    assert runs[0].head.model == "gpt-4o"
    assert [message.text for message in runs[0].head.system] == ["Be brief."]


def test_several_conversations_are_listed_by_name(tmp_path: Path) -> None:
    path = tmp_path / "chatgpt.json"
    path.write_text(json.dumps([chatgpt(f"heddle {n}", "yes") for n in range(30)]))
    result = CliRunner().invoke(cli, ["weave", f"{path}#30"])
    assert result.exit_code == 2
    assert "has 30 runs; choose #0 (About heddle 0), #1 (About heddle 1), " in result.output
    assert "… #29, not #30" in result.output
    shown = CliRunner().invoke(cli, ["show", str(path)]).output
    assert "About heddle 29" in shown
    store = str(tmp_path / "loom.db")
    made = CliRunner().invoke(cli, ["session", "new", "--store", store]).output.strip()
    append = ["session", "append", made, "--store", store, "--file"]
    wrong = CliRunner().invoke(cli, [*append, str(path)])
    assert "has several runs; choose one as" in wrong.output
    assert "#0 (About heddle 0), #1" in wrong.output
    assert CliRunner().invoke(cli, [*append, f"{path}#3"]).exit_code == 0


@pytest.mark.parametrize("folder", [EXPORTS, FIXTURES])
def test_recorded_files_are_read_by_both_readers(folder: Path) -> None:
    if not folder.exists():
        pytest.skip("the shared data is not here")
    found = [path for path in sorted(folder.glob("*.json*")) if "schema" not in path.name]
    assert found
    for path in found:
        runs = [list(run.messages()) for run in read_runs(path)]
        assert any(runs)
        assert list(read_trees(path))


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_conversations_may_be_larger_than_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None
) -> None:
    said = 'a \\ "quoted" [text] {here}, ü \U0001f9f5'
    given = [chatgpt(f"{said} {n}", "yes") for n in range(20)]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(given, indent=indent))
    whole = [list(run.messages()) for run in read_runs(path)]
    expected = list(read_trees(path))
    monkeypatch.setattr(files, "MAX_DOCUMENT", 2000)
    monkeypatch.setattr(files, "_READ_BYTES", 50)
    assert [list(run.messages()) for run in read_runs(path)] == whole
    assert list(read_trees(path)) == expected
    requests = [{"messages": CHAT, "model": "m"}] * 40
    path.write_text(json.dumps(requests, indent=indent))
    assert [len(list(run.messages())) for run in read_runs(path)] == [2] * 40
    path.write_text(json.dumps(given, indent=indent)[:-40])
    with pytest.raises(TranscriptError, match="not valid JSON: the list does not end"):
        list(read_trees(path))
    path.write_text(json.dumps(CHAT * 40, indent=indent))
    with pytest.raises(TranscriptError, match="is one JSON document of"):
        list(read_runs(path))
    path.write_text(json.dumps([chatgpt("x" * 3000)], indent=indent))
    with pytest.raises(TranscriptError, match="an object of the list is longer than"):
        list(read_runs(path))
