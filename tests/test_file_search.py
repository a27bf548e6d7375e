"""`loom search` over transcripts as they lie in their folders, and the index that it keeps."""

import json
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from loom import Message, Text, write_trees
from loom.budget.counting import gate_counter
from loom.cli.main import cli
from loom.conversation.tree import Flags, Tree, TreeNode
from loom.engine.file_search.database import IndexDatabase
from loom.engine.file_search.index import FilesIndex
from loom.engine.file_search.library import TranscriptLibrary
from loom.errors import EmbedderError, StoreError
from loom.recall.choosing import Room
from loom.recall.corpus import Corpus, CorpusEntry
from loom.recall.embedder import Vectors
from loom.recall.search import SearchRequest, search
from tests.shared import AGENTS, FIXTURES, needs_shared

WORDS = [
    *("warp", "weft", "heddle", "shuttle", "reed", "beam"),
    *("cloth", "loom", "thread", "密码", "芝麻", "Faden", "naïve"),
]
ECHO = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "recall", "arguments": '{"q":"warp"}'}}
    ],
}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOOM_STORE", str(tmp_path / "store" / "loom.db"))
    return tmp_path / "store" / "loom.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "transcripts"
    made.mkdir()
    write(made / "chat.json", "Where is the heddle?", "The heddle lifts the warp threads.")
    write(made / "other.json", "What is a reed?", "A comb that beats the weft.")
    (made / "note.txt").write_text("Dear diary")
    return made


def write(path: Path, *said: str) -> None:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    path.write_text(json.dumps(messages))


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def told(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# The index


def make_trees(shuffled: random.Random, count: int) -> list[Tree]:
    trees = []
    for number in range(count):
        nodes = []
        for place in range(shuffled.randrange(1, 20)):
            text = " ".join(shuffled.choices(WORDS, k=shuffled.randrange(1, 12)))
            nodes.append(
                TreeNode(
                    id=f"{place}",
                    message=Message(shuffled.choice(("user", "assistant")), (Text(text),)),
                    parent=f"{place - 1}" if place else "",
                    created=shuffled.randrange(1, 10**12),
                )
            )
        trees.append(Tree(id=f"t{number}", nodes=tuple(nodes), current=nodes[-1].id))
    return trees


@pytest.mark.parametrize("seed", range(6))
def test_it_answers_as_documents_in_memory_do(tmp_path: Path, seed: int) -> None:
    shuffled = random.Random(seed)
    paths, corpus, key = [], Corpus(), 0
    count = gate_counter(None).count_message
    for number in range(3):
        trees = make_trees(shuffled, shuffled.randrange(1, 4))
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("".join(f"{line}\n" for line in write_trees(trees)))
        for tree in trees:
            for place, node in enumerate(tree.nodes):
                key += 1
                session = f"{number} {tree.id}"
                message = node.message
                corpus.add(
                    [
                        CorpusEntry(
                            key,
                            session,
                            place,
                            message.text,
                            count(message),
                            message.role,
                            "",
                            node.created,
                        )
                    ]
                )
    with TranscriptLibrary(tmp_path / "index") as library:
        assert library.update(paths) == []
        index = FilesIndex(library._database)
        assert index.size() == corpus.size()
        terms = [term for word in WORDS for term in (word, word.lower())]
        assert index.frequencies(terms) == corpus.frequencies(terms)
        assert index.find_newest(7) == corpus.find_newest(7)
        assert index.find_between(10**11, 5 * 10**11, 5) == corpus.find_between(
            10**11, 5 * 10**11, 5
        )
        for term in WORDS:
            assert index.find_holding(term, 4) == corpus.find_holding(term, 4)
        keys = list(corpus.find_newest(12))
        assert index.find_near(keys, 2) == corpus.find_near(keys, 2)
        assert index.texts(keys) == corpus.texts(keys)
        ours = {each.key: each for each in index.read(keys, ["warp", "weft"])}
        for theirs in corpus.read(keys, ["warp", "weft"]):
            mine = ours[theirs.key]
            assert (mine.place, mine.role, mine.created, mine.length, mine.tokens, mine.counts) == (
                theirs.place,
                theirs.role,
                theirs.created,
                theirs.length,
                theirs.tokens,
                theirs.counts,
            )
        for query in ("warp and weft", "heddle", '"reed beam"', "密码"):
            asked = SearchRequest(query, Room(limit=5))
            assert search(index, asked) == search(corpus, asked)


def test_only_what_changed_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = TranscriptLibrary._read_again

    def note(self: TranscriptLibrary, name: bytes, path: Path, state: Any) -> None:
        read.append(path.name)
        real(self, name, path, state)

    monkeypatch.setattr(TranscriptLibrary, "_read_again", note)
    assert len(told("search", "heddle", folder)) == 2
    assert sorted(read) == ["chat.json", "note.txt", "other.json"]
    read.clear()
    assert len(told("search", "heddle", folder)) == 2
    assert read == []
    write(folder / "other.json", "What is a reed?", "Not a heddle.", "Ah, another one.")
    assert {hit["session"] for hit in told("search", "heddle", folder)} == {
        str(folder / "chat.json"),
        str(folder / "other.json"),
    }
    assert read == ["other.json"]
    os.unlink(folder / "chat.json")
    assert [hit["session"] for hit in told("search", "heddle", folder)] == [
        str(folder / "other.json")
    ]
    with TranscriptLibrary(tmp_path / "store" / "loom.db.transcripts") as library:
        found = library._database.all("SELECT path FROM files")
        assert sorted(Path(os.fsdecode(name)).name for (name,) in found) == [
            "note.txt",
            "other.json",
        ]
        assert library._database.all("SELECT DISTINCT file FROM terms") != []
        [(rows,)] = library._database.all(
            "SELECT count(*) FROM documents WHERE file NOT IN (SELECT key FROM files)"
        )
        assert rows == 0


def test_the_index_is_made_again_if_it_is_damaged_or_of_another_version(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"not a database " * 100)
    with TranscriptLibrary(path) as library:
        library.update([folder / "chat.json"])
        assert len(library.search(SearchRequest("heddle"))) == 2
    assert path.stat().st_mode & 0o077 == 0, "only its owner reads it"
    database = IndexDatabase(path)
    database.all("UPDATE about SET format = '0'")
    database.close()
    with TranscriptLibrary(path) as library:
        assert library._database.all("SELECT * FROM files") == []
    with pytest.raises(StoreError, match="cannot be read or written"):
        TranscriptLibrary(folder)


def test_what_is_hidden_or_only_repeats_is_not_found(tmp_path: Path) -> None:
    nodes = (
        TreeNode(id="a", message=Message("user", (Text("the warp"),))),
        TreeNode(id="b", message=Message("user", (Text("warp b"),)), parent="a"),
        TreeNode(
            id="c", message=Message("user", (Text("warp c"),)), parent="a", flags=Flags(pruned=True)
        ),
        TreeNode(
            id="d",
            message=Message("user", (Text("warp d"),)),
            parent="a",
            flags=Flags(excluded=True),
        ),
        TreeNode(id="e", message=Message("user", (Text("warp e"),)), parent="a"),
    )
    path = tmp_path / "tree.jsonl"
    tree = Tree(id="t", nodes=nodes, current="e")
    path.write_text("".join(f"{line}\n" for line in write_trees([tree])))
    found = told("search", "warp", path)
    assert {hit["text"] for hit in found} == {"the warp", "warp b", "warp e"}
    assert {hit["text"]: hit["place"] for hit in found}["warp b"] > 100, "not on the current branch"
    echo = tmp_path / "echo.json"
    answer = {"role": "tool", "tool_call_id": "c", "content": "warp!"}
    echo.write_text(json.dumps([{"role": "user", "content": "good morning"}, ECHO, answer]))
    assert told("search", "warp", echo) == []


class Meanings:
    """An embedder that knows which words mean the same."""

    name, dimensions = "meanings", 2

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.embedded += texts
        near = [any(word in text for word in ("comb", "reed", "rake")) for text in texts]
        return np.array([(1.0, 0.0) if each else (0.0, 1.0) for each in near], np.float32)


class Broken(Meanings):
    def embed(self, texts: Sequence[str]) -> Vectors:
        raise EmbedderError("the embedder does not answer")


def test_messages_are_found_by_meaning_and_embedded_once(folder: Path, tmp_path: Path) -> None:
    embedder = Meanings()
    write(folder / "long.json", *(f"{n} about the weather" for n in range(80)))
    paths = [folder / name for name in ("chat.json", "long.json", "other.json")]
    with TranscriptLibrary(tmp_path / "index", embedder) as library:
        library.update(paths)
        library.embed(10)
        assert len(embedder.embedded) == 84
        hits = library.search(SearchRequest("a rake", Room(limit=2)))
        assert {hit.text for hit in hits} == {"What is a reed?", "A comb that beats the weft."}
        index = FilesIndex(library._database)
        near = index.find_nearest(np.array((1.0, 0.0), np.float32), "meanings", 2)
        assert {index.texts([key])[key] for key in near} == {hit.text for hit in hits}
        assert index.vectors(list(near), "another") == {}
    again = Meanings()
    with TranscriptLibrary(tmp_path / "index", again) as library:
        write(folder / "chat.json", "Only this is new.")
        library.update(paths)
        library.embed(10)
        assert again.embedded == ["Only this is new."]
        assert library._database.all("SELECT count(*) FROM vectors") == [(83,)]


def test_an_embedder_that_fails_costs_only_its_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.cli.request.search.choose_embedder", lambda _: Broken())
    result = run("search", "heddle", folder, "--json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 2)
    assert "searching by words alone: the embedder does not answer" in result.stderr

    def refuse(_: str) -> None:
        raise EmbedderError("minilm is not installed")

    monkeypatch.setattr("loom.cli.request.search.choose_embedder", refuse)
    result = run("search", "heddle", folder, "--embedder", "minilm", "--json")
    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 2)
    assert "searching by words alone: minilm is not installed" in result.stderr


def test_the_bundled_embedder_is_used_unless_another_is_named(folder: Path, store: Path) -> None:
    assert len(told("search", "heddle", folder)) == 2
    with TranscriptLibrary(Path(f"{store}.transcripts")) as library:
        [(name, count)] = library._database.all(
            "SELECT embedder, count(*) FROM vectors GROUP BY embedder"
        )
    assert name.startswith("loom-static")
    assert count == 4
    assert "no embedder is called" in run("search", "x", folder, "--embedder", "magic").stderr
    assert len(told("search", "heddle", folder, "--embedder", "none")) == 2


def test_what_is_poisoned_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned = tmp_path / "poisoned"
    poisoned.mkdir()
    write(poisoned / "lines.json", "x\n" * 1_000_000, "The warp is under tension here.")
    write(poisoned / "word.json", "warp" * 500_000)
    (poisoned / "deep.json").write_text("[" * 100_000)
    (poisoned / "half.json").write_text('[{"role":"user","content":"warp \\ud83d"}]')
    (poisoned / "latin.json").write_bytes('[{"role":"user","content":"wärp"}]'.encode("latin-1"))
    write(poisoned / "large.json", "warp " * 100_000)
    monkeypatch.setattr("loom.engine.file_search.library.MAX_FILE_BYTES", 4_000_000)
    result = run("search", "warp", poisoned, "--json")
    assert result.exit_code == 0, result.output
    names = [Path(hit["session"]).name for hit in json.loads(result.stdout)]
    assert {"lines.json", "half.json", "large.json"} <= set(names)
    assert "deep.json" in result.stderr
    monkeypatch.setattr("loom.engine.file_search.library.MAX_FILE_BYTES", 100)
    (poisoned / "large.json").touch()
    assert "large.json: it is larger than 0 MiB" in run("search", "warp", poisoned).stderr
    assert "No such option" in run("search", "warp", poisoned, "--limt", 3).stderr


# The command


def test_a_hit_says_where_it_is_and_can_be_recalled(folder: Path) -> None:
    first, second = told("search", "heddle warp", folder)
    assert set(first) >= {"handle", "session", "place", "role", "text", "message", "score"}
    assert (first["role"], first["place"]) == ("assistant", 1)
    assert first["session"] == str(folder / "chat.json")
    assert run("recall", first["handle"]).stdout == f"## assistant\n\n{first['text']}\n\n"
    exact = json.loads(run("recall", first["handle"], "--json").stdout)
    assert exact == first["message"]
    assert run("recall", "~aaaaaaaaaaaa").exit_code == 2
    assert second["place"] == 0


def test_it_is_printed_for_people(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.chdir(folder)
    shown = CliRunner().invoke(cli, ["search", "heddles", "."], color=True).stdout
    assert "\x1b[1mheddle\x1b[0m" in shown, "what was looked for is bold, in any form"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 60
    assert re.search(r"^~[a-z2-7]{12}  user  message 0  \d{4}-\d\d-\d\d\n  chat.json$", plain, re.M)
    assert "2 messages in 1 session" in plain
    assert run("search", "nothing", ".").stdout == "no message matches 'nothing'\n"


def test_long_passages_are_cut_to_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    path = tmp_path / "a long name of a file that no terminal can show.json"
    write(path, "\n".join(f"{'芝' * 40} line {n} \x1b[31m warp" for n in range(50)))
    shown = run("search", "warp", path, "--tokens", 4000).stdout
    lines = shown.splitlines()
    assert len(lines) <= 12
    assert "\x1b" not in shown
    assert lines[1].endswith("a long name of a file that no terminal can show.json"[-47:])
    assert "  …" in lines


def test_standard_input_is_searched_and_not_kept(store: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "the warp"}])
    result = CliRunner().invoke(cli, ["search", "warp", "-", "--json"], input=chat)
    assert [hit["text"] for hit in json.loads(result.stdout)] == ["the warp"]
    assert not store.parent.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("x", "{folder}", "--all"), "give FILEs, --session ID or --all"),
        (("x", "--session", "abc", "--all"), "give FILEs, --session ID or --all"),
        (("x", "{folder}/note.txt"), "note.txt: it is not a transcript in a format that Loom"),
        (("x", "{folder}/gone.json"), "gone.json: does not exist"),
        (("x", "{folder}/chat.json#0"), "a search reads whole files; omit #0"),
        (("…", "{folder}"), "there are no words in '…'"),
        (("x", "{folder}", "--where", "a=b"), "--where works only with stored sessions"),
        (("x" * 501, "{folder}"), "a search takes at most 500 characters"),
        (("x",), "there is no store at"),
    ],
)
def test_what_it_cannot_do_is_told_in_one_line(
    folder: Path, words: tuple[str, ...], line: str
) -> None:
    result = run("search", *(word.format(folder=folder) for word in words))
    assert result.exit_code == 2
    assert line in result.stderr
    assert len(result.stderr.splitlines()) <= 2


@needs_shared
def test_the_shared_sessions_are_searched_with_the_recordings() -> None:
    found = told(
        "search", "compensation for the delayed flight", AGENTS, FIXTURES, "--tokens", 2000
    )
    assert found
    assert sum(hit["tokens"] for hit in found) <= 2000
    assert "taubench" in found[0]["session"]
    assert len({hit["handle"] for hit in found}) == len(found)
