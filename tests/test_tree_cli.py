"""The commands on kept trees: what each prints, what it keeps, and how it refuses."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loom.cli import terminal
from loom.cli.tree.commands import tree as group
from loom.conversation.commands import SPECS
from loom.conversation.message import Message, Text
from loom.conversation.tree import Flags, Tree, TreeNode
from loom.engine.loom import Loom
from loom.transcripts.trees import read_trees, write_trees
from tests.shared import FIXTURES, ROOT, SHARED, needs_shared
from tests.test_session_cli import invoke, refused, run, told

EXPORTS = SHARED / "data" / "exports"
OPEN_ASSISTANT = SHARED / "data" / "trees" / "oasst_en_100_tree.jsonl"
ON_A_NODE = ("prune", "restore", "bookmark", "pin", "exclude", "switch", "merge")


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The store of whoever names none: a file in a folder that does not exist yet."""
    for variable in ("LOOM_MODELS", "LOOM_PROJECT", "LOOM_TENANT", "COLUMNS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "deep" / "loom.db"
    monkeypatch.setenv("LOOM_STORE", str(path))
    return path


def tree(*arguments: object, given: str | bytes | None = None) -> str:
    """What `loom tree …` writes to standard output, without its last line break."""
    return run("tree", *arguments, given=given).removesuffix("\n")


def heard(*arguments: object) -> str:
    """What it says beside that."""
    result = invoke("tree", *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stderr.strip()


def wrong(*arguments: object) -> str:
    return refused("tree", *arguments)


def shown(name: str, *options: object) -> dict[str, Any]:
    """The nodes of a tree by their short ids."""
    return {node["local"]: node for node in told("tree", "show", name, *options)["nodes"]}


def flour() -> tuple[str, str, str, str]:
    """A tree with a question, its answer, and the same question asked in another way; you stand at
    the last.
    """
    name = tree("new", "A pound of flour", "--system", "Be brief.", "--model", "gpt-4o")
    question = tree("say", name, "How many grams are in a pound?")
    answer = tree("say", name, "About 450.", "--as", "model")
    return name, question, answer, tree("edit", name, question, "How many grams are in a cup?")


# Finding and making


def test_a_store_that_does_not_exist_has_no_trees_and_is_not_made_by_looking(store: Path) -> None:
    assert tree("list") == "no trees in project default; loom tree new TITLE creates one"
    assert told("tree", "list") == []
    for command in (
        ("show", "abcd"),
        ("say", "abcd", "hi"),
        ("path", "abcd"),
        ("agent",),
        ("set",),
        ("export", "--all"),
    ):
        assert f"there is no store at {store} yet" in wrong(*command)
    assert not store.parent.exists()


def test_a_list_shows_trees_and_sessions_the_one_used_last_first() -> None:
    first = tree("new", "First")
    second = run("session", "new", "A session").strip()
    third = tree("new", "A letter", "--mode", "buffer")
    lines = tree("list").splitlines()
    assert lines[0].split() == ["id", "title", "mode", "nodes", "last", "used"]
    assert lines[1].split() == [third[:8], "A", "letter", "buffer", "0", "now"]
    tree("say", first, "hello")
    listed = told("tree", "list")
    assert {one["id"] for one in listed} == {first, second, third}
    assert listed[0].keys() == {"id", "title", "mode", "nodes", "created", "updated"}
    assert (listed[0]["id"], listed[0]["nodes"]) == (first, 1)
    assert [one["id"] for one in told("tree", "list", "--limit", 1)] == [first]


@pytest.mark.parametrize("columns", [60, 100])
def test_tables_and_pictures_fit_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = tree("new", "重试预算" * 20)
    long = "a word and 另一个 " * 30
    first = tree("say", name, long)
    for n in range(4):
        tree("say", name, f"{n} {long}", "--after", first, "--as", "model")
    tree("bookmark", name, first, "a label that is rather long for a label")
    tree("annotate", name, first, long)
    for command in (("list",), ("show", name), ("path", name), ("show", name, "--lines", 3)):
        for line in tree(*command).splitlines():
            assert terminal.columns_of(line) <= columns, line


def test_a_picture_of_many_forks_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    nodes: list[TreeNode] = []
    for fork in range(20):
        parent = nodes[-2].id if nodes else ""
        for way in "ab":
            flags = Flags(bookmarked=True, label="a long label " * 3, pinned=True)
            message = Message("assistant", (Text(f"words {fork} {way} " * 20),))
            nodes.append(
                TreeNode(
                    id=f"{fork}{way}",
                    parent=parent,
                    message=message,
                    flags=flags,
                    author="a-very-long-author-name",
                )
            )
    store.parent.mkdir()
    with Loom.open(str(store)) as loom:
        loom.import_tree(Tree(id="many-forks", nodes=tuple(nodes), current="5a"))
    lines = tree("show", "many-forks", "--all").splitlines()
    assert max(map(terminal.columns_of, lines)) <= 60
    assert any("◀ here" in line for line in lines)


def test_a_tree_is_found_by_the_beginning_of_its_id(store: Path) -> None:
    with Loom.open(str(store), fresh_id=iter(("abcdefghij", "abcdefghkl")).__next__) as loom:
        loom.new_tree("one")
        loom.new_tree("two")
    assert tree("show", "abcdefghi").startswith("one  abcdefghij")
    assert "matches several trees" in wrong("show", "abcd")
    assert "there is no tree 'nope'" in wrong("show", "nope")
    assert "there is no tree 'abcdefghij' in project 'shop'" in wrong(
        "show", "abcdefghij", "--project", "shop"
    )


def test_new_says_what_the_tree_is() -> None:
    name = tree(
        "new",
        "Letter",
        "--mode",
        "buffer",
        "--system",
        "S",
        "--description",
        "D",
        "--model",
        "M",
        "--with-system",
    )
    held = told("tree", "set", name)
    assert (held["title"], held["mode"], held["system"], held["description"]) == (
        "Letter",
        "buffer",
        "S",
        "D",
    )
    assert (held["model"], held["with_system"]) == ("M", True)
    assert "--with-system works only with --mode buffer" in wrong("new", "x", "--with-system")
    assert invoke("tree", "new").exit_code == 2
    assert invoke("tree", "new", "x", "--mode", "poem").exit_code == 2


# Writing


def test_say_writes_where_you_stand_or_behind_a_node() -> None:
    name = tree("new", "t")
    first = tree("say", name, "one")
    second = tree("say", name, "-", "--as", "model", given="two\n")
    branch = tree("say", name, "three", "--after", first)
    root = tree("say", name, "--after", "", given="another beginning")
    nodes = shown(name)
    assert [(node["parent"], node["role"], node["text"]) for node in nodes.values()] == [
        (None, "user", "one"),
        (first, "assistant", "two"),
        (first, "user", "three"),
        (None, "user", "another beginning"),
    ]
    assert list(nodes) == [first, second, branch, root]
    assert told("tree", "show", name)["at"] == root


def test_what_cannot_be_said_is_one_line() -> None:
    name = tree("new", "t")
    assert "there is nothing to say: the text is blank" in wrong("say", name, " ")
    assert "there is no node 'zzzz'" in wrong("say", name, "hi", "--after", "zzzz")
    assert "there is no tree" in wrong("say", "zzzz", "hi")
    assert "dialogue mode" in wrong("say", name, "hi", "--draft")
    for source in ("context", "friend:abcd", "context:", "abcd"):
        assert "--source takes ROLE:NODE" in wrong("say", name, "hi", "--source", source)
    assert "there is no node 'zzzz'" in wrong("say", name, "hi", "--source", "context:zzzz")
    assert "there is no tree 'nope'" in wrong("say", name, "hi", "--source", "context:nope/zzzz")
    assert shown(name) == {}
    letter = tree("new", "Letter", "--mode", "buffer")
    assert "the text is empty" in wrong("say", letter, "")
    assert "the text is empty" in refused("tree", "say", letter, "-", given="\n")
    assert tree("say", letter, "\n"), "in a document a line break says something"


def test_sources_of_this_tree_and_another_are_kept_and_read() -> None:
    name, _question, answer, other = flour()
    notes = tree("new", "Notes")
    fact = tree("say", notes, "A cup of flour is 120 grams.")
    made = tree(
        "say",
        name,
        "120.",
        "--as",
        "model",
        "--source",
        f"context:{notes[:6]}/{fact}",
        "--source",
        f"primary:{answer}",
    )
    sources = told("tree", "show", name, "--node", made)["sources"]
    assert [source["role"] for source in sources if "role" in source] == ["context"]
    steps = told("tree", "path", name)["steps"]
    assert [(step["local"], step["beside"]) for step in steps] == [
        (fact, "context"),
        (other, ""),
        (made, ""),
    ]
    shown_node = tree("show", name, "--node", made)
    assert f"{notes}/{fact}" in shown_node
    assert "A cup of flour is 120 grams." in shown_node
    assert "(context)" in tree("path", name)


def test_an_edit_of_a_dialogue_is_a_branch_and_of_a_buffer_a_version() -> None:
    name, question, answer, branch = flour()
    nodes = shown(name)
    assert (nodes[branch]["parent"], nodes[branch]["edge"]) == (None, "continuation")
    assert "already has this text" in wrong(
        "edit", name, question, "How many grams are in a pound?"
    )
    assert heard("edit", name, answer, "454.").endswith(f"is a branch next to {answer}")
    letter = tree("new", "Letter", "--mode", "buffer")
    first, last = tree("say", letter, "Dear Anna, "), tree("say", letter, "thank you.")
    result = invoke("tree", "edit", letter, first, given="Dear Bob, ")
    version = result.stdout.strip()
    assert result.stderr == f"{version} is a version of {first}\n"
    assert [(step["local"], step["beside"]) for step in told("tree", "path", letter)["steps"]] == [
        (version, "version"),
        (last, ""),
    ]
    assert told("weave", "--tree", letter)["request"] == "Dear Bob, thank you."
    tree("prune", letter, version)
    assert told("weave", "--tree", letter)["request"] == "Dear Anna, thank you."


def test_a_draft_stands_at_the_end_of_a_buffer_until_something_is_said() -> None:
    letter = tree("new", "Letter", "--mode", "buffer")
    tree("say", letter, "Dear Anna, ")
    assert heard("say", letter, "thank", "--draft") == f"{letter} ends with a draft of 5 characters"
    assert "┆ not committed  thank" in tree("show", letter)
    assert "┆ not committed  thank" in tree("path", letter)
    assert told("tree", "path", letter)["draft"] == "thank"
    assert told("weave", "--tree", letter)["request"] == "Dear Anna, thank"
    assert len(shown(letter)) == 1
    assert "omit --as" in wrong("say", letter, "x", "--draft", "--as", "model")
    assert heard("say", letter, "", "--draft") == f"{letter} has no draft"
    heard("say", letter, " ", "--draft")
    tree("say", letter, "yours")
    assert [node["text"] for node in shown(letter).values()] == [
        "Dear Anna,",
        "(no words)",
        "yours",
    ]
    assert told("weave", "--tree", letter)["request"] == "Dear Anna,  yours"


def test_merge_tells_one_branch_what_another_found() -> None:
    name, _question, answer, branch = flour()
    result = invoke("tree", "merge", name, answer, "--tokens", 200)
    made = result.stdout.strip()
    assert result.stderr == f"{made} is a digest of the branch to {answer}, and your current node\n"
    node = told("tree", "show", name, "--node", made)
    assert (node["parent"], node["links"][0]["label"]) == (branch, "merged")
    assert "About 450." in node["message"]["parts"][0]["text"]
    handle = re.search(r"~[a-z2-7]+", node["message"]["parts"][0]["text"])
    assert handle
    assert "About 450." in run("recall", handle[0])
    assert "is on the path to" in wrong("merge", name, branch, "--into", made)
    assert "there is no node" in wrong("merge", name, "zzzz")


def test_switch_goes_to_a_node_and_may_tell_there_what_was_left() -> None:
    name, _question, answer, branch = flour()
    assert heard("switch", name, answer) == f"{answer} is your current node"
    assert told("tree", "show", name)["at"] == answer
    said = heard("switch", name, branch, "--digest")
    made = told("tree", "show", name)["at"]
    assert said == (
        f"{made} is your current node: it is a digest, after {branch}, of the branch that was left"
    )
    assert (
        heard("switch", name, branch, "--agent", "coder")
        == f"{branch} is the current node of coder"
    )
    assert told("tree", "show", name)["at"] == made
    assert told("tree", "show", name, "--agent", "coder")["at"] == branch
    assert f"coder at {branch}" in tree("show", name)


def test_to_go_to_a_version_is_to_choose_it() -> None:
    letter = tree("new", "Letter", "--mode", "buffer")
    first = tree("say", letter, "one")
    second, third = tree("edit", letter, first, "two"), tree("edit", letter, first, "three")
    assert told("weave", "--tree", letter)["request"] == "three"
    assert (
        heard("switch", letter, second)
        == f"{first} is your current node, and the version {second} is read there"
    )
    assert told("weave", "--tree", letter)["request"] == "two"
    assert f"≈ {third}" in tree("show", letter)
    assert heard("switch", letter, first, "--choose") == f"{first} is read as it was first written"
    assert told("weave", "--tree", letter)["request"] == "one"
    assert heard("switch", letter, second, "--choose") == f"{second} is read in place of {first}"
    heard("switch", letter, third, "--agent", "coder")
    assert [
        told("weave", "--tree", letter, "--agent", who)["request"] for who in ("", "coder")
    ] == ["two", "three"]


# Saying something of a node


def test_marks_are_told_on_standard_error_and_saying_them_again_is_nothing_to_do() -> None:
    name, question, answer, _ = flour()
    for command, flag in (
        (("bookmark", "the answer"), "bookmarked"),
        (("pin",), "pinned"),
        (("exclude",), "excluded"),
    ):
        verb, *label = command
        named = " as the answer" if label else ""
        assert heard(verb, name, answer, *label) == f"{answer} is {flag}{named}"
        assert (
            heard(verb, name, answer, *label) == f"{answer} is {flag}{named} already: nothing to do"
        )
        assert shown(name)[answer]["flags"][flag] is True
        assert heard(verb, name, answer, "--undo") == f"{answer} is no longer {flag}"
        assert heard(verb, name, answer, "--undo") == f"{answer} is not {flag}: nothing to do"
        assert shown(name)[answer]["flags"] == {}
        assert tree(verb, name, question) == ""


def test_prune_takes_what_is_below_along_and_restore_brings_it_back() -> None:
    name, question, answer, _ = flour()
    assert heard("restore", name, question) == f"{question} is not pruned: nothing to do"
    assert (
        heard("prune", name, question)
        == f"{question} is pruned with 1 below it; restore brings it back"
    )
    assert (
        heard("prune", name, question)
        == f"{question} is pruned already with 1 below it: nothing to do"
    )
    assert shown(name)[answer]["pruned"] is True
    assert f"was pruned with {question}" in wrong("restore", name, answer)
    heard("prune", name, answer)
    assert f"was pruned with {question}" in wrong("restore", name, answer)
    assert "all of the path is pruned" in refused("weave", "--tree", name, "--at", answer)
    assert heard("restore", name, question) == f"{question} is back with 1 below it"
    assert shown(name)[answer]["pruned"] is True, "it was pruned by itself too"
    heard("restore", name, answer)
    assert shown(name)[answer]["pruned"] is False


def test_an_annotation_is_read_only_where_it_is_included() -> None:
    name, _, _, branch = flour()
    result = invoke("tree", "annotate", name, branch, "Checked with scales.")
    remark = result.stdout.strip()
    assert result.stderr == f"{remark} is an annotation on {branch}\n"
    assert "Checked" not in run("weave", "--tree", name, "--json")
    assert "Checked" in run("weave", "--tree", name, "--include", remark, "--json")
    assert heard("exclude", name, remark) == f"{remark} is not included: nothing to do"
    assert heard("exclude", name, remark, "--undo") == f"{remark} is included"
    assert "Checked" in run("weave", "--tree", name, "--json")
    assert ("annotation" in tree("path", name), "⊕" in tree("show", name)) == (True, True)
    assert heard("exclude", name, remark) == f"{remark} is no longer included"
    assert "nothing to say" in wrong("annotate", name, branch, "")


def test_links_lead_to_nodes_of_this_tree_and_of_others() -> None:
    name, question, answer, branch = flour()
    notes = tree("new", "Notes")
    fact = tree("say", notes, "A fact")
    assert (
        heard("link", name, branch, question, "--label", "as before")
        == f"{branch} is linked to {question} as as before"
    )
    assert heard("link", name, branch, question, "--label", "as before").endswith(
        "already: nothing to do"
    )
    assert (
        heard("link", name, branch, f"{notes[:5]}/{fact}")
        == f"{branch} is linked to {notes}/{fact}"
    )
    links = told("tree", "show", name, "--node", branch)["links"]
    assert [(link["tree"], link["label"]) for link in links] == [("", "as before"), (notes, "")]
    assert (
        heard("link", name, branch, question, "--undo")
        == f"{branch} is no longer linked to {question}"
    )
    assert (
        heard("link", name, branch, question, "--undo")
        == f"{branch} is not linked to {question}: nothing to do"
    )
    assert heard("link", name, branch, answer, "--undo").endswith("nothing to do")
    assert "cannot be linked to itself" in wrong("link", name, branch, f"{name}/{branch}")
    assert "there is no tree 'nope'" in wrong("link", name, branch, "nope/abcd")
    page = tree("show", name, "--node", branch)
    assert f"human linked it to {question} as as before" in page
    assert f"human removed the link to {question}" in page


@pytest.mark.parametrize("command", ON_A_NODE)
def test_a_node_or_a_tree_that_is_not_there_is_one_line(command: str) -> None:
    name, *_ = flour()
    assert "there is no node 'zzzz'" in wrong(command, name, "zzzz")
    assert "there is no tree 'nope'" in wrong(command, "nope", "zzzz")
    assert invoke("tree", command, name).exit_code == 2


# Looking


def test_a_picture_shows_branches_marks_and_where_you_stand() -> None:
    name, question, answer, branch = flour()
    tree("bookmark", name, answer, "the answer")
    tree("pin", name, branch)
    tree("exclude", name, question)
    remark = tree("annotate", name, branch, "Which cup?")
    reply = tree("say", name, "About 120.", "--as", "model", "--agent", "coder")
    tree("prune", name, answer)
    assert tree("show", name).splitlines() == [
        f"A pound of flour  {name}",
        "dialogue · 5 nodes · 2 branches · depth 2 · 1 annotation",
        f"human at {reply} (now), coder at {reply} (now)",
        "",
        f"├─ {question} human  ⊘ How many grams are in a pound?",
        f"│  {answer} model  ★ the answer · ✂ About 450.",
        f"└─ {branch} human  ⚲ How many grams are in a cup?",
        f"   ╌ {remark} human  Which cup?",
        f"   {reply} coder  About 120.  ◀ here",
    ]
    assert tree("show", name, "--at", reply).endswith(f"{reply} coder  About 120.  ◀ here")
    assert f"┄ 1 more, from {answer}" in tree("show", name, "--depth", 0)


def test_a_picture_of_an_empty_tree_says_how_to_begin() -> None:
    name = tree("new", "Nothing", "--description", "For later")
    assert tree("show", name).splitlines()[1:] == [
        "dialogue · 0 nodes · 0 branches · depth 0",
        "For later",
        "",
        f"the tree is empty; loom tree say {name} TEXT writes its first node",
    ]
    assert tree("path", name) == f"tree {name} is empty"
    assert told("tree", "path", name) == {"tree": name, "nodes": 0, "steps": [], "draft": ""}


def test_what_was_purged_or_put_away_is_still_drawn() -> None:
    name = run("session", "new", "Secret").strip()
    run("session", "append", name, "a secret")
    run("session", "archive", name)
    assert "a secret  ◀ here" in tree("show", name)
    assert "has no active session" in wrong("say", name, "hi")
    run("session", "purge", name, "--yes")
    assert "(purged)" in tree("show", name)
    assert "(purged)" in tree("show", name, "--node", next(iter(shown(name))))


def test_calls_and_results_are_drawn_by_their_marks() -> None:
    run("session", "import", FIXTURES / "cc_parallel_thinking.jsonl")
    [listed] = told("tree", "list")
    picture = tree("show", listed["id"])
    for piece in ("→ Bash", "← ", "Echo printed a"):
        assert piece in picture
    call = next(node["local"] for node in shown(listed["id"]).values() if "→ Bash" in node["text"])
    assert "→ Bash" in tree("show", listed["id"], "--node", call)


def test_a_tree_as_json_holds_every_node() -> None:
    name, question, answer, branch = flour()
    report = told("tree", "show", name)
    assert report.keys() == {
        "id",
        "title",
        "mode",
        "description",
        "sizes",
        "sessions",
        "at",
        "nodes",
    }
    assert report["sizes"] == {
        "nodes": 3,
        "branches": 2,
        "depth": 2,
        "annotations": 0,
        "versions": 0,
    }
    assert [(one["agent"], one["at"]) for one in report["sessions"]] == [("", branch)]
    node = report["nodes"][1]
    assert node.keys() == {
        "id",
        "local",
        "parent",
        "role",
        "author",
        "edge",
        "flags",
        "pruned",
        "text",
    }
    assert (node["local"], node["parent"], node["role"], node["text"]) == (
        answer,
        question,
        "assistant",
        "About 450.",
    )


def test_a_node_in_full_tells_what_is_around_it_and_who_said_what_of_it() -> None:
    name, question, answer, branch = flour()
    tree("pin", name, question, "--agent", "coder")
    tree("prune", name, question)
    tree("restore", name, question)
    tree("bookmark", name, question, "begin")
    remark = tree("annotate", name, question, "Good question.")
    page = tree("show", name, "--node", question)
    for piece in (
        f"{question} human  ★ begin · ⚲",
        "  How many grams are in a pound?",
        f"annotations  {remark}  Good question.",
        f"then         {answer}  About 450.",
        "history      coder pinned it  now",
        "human pruned it  now",
        "human restored it  now",
        "human bookmarked it as begin  now",
    ):
        assert piece in page, page
    report = told("tree", "show", name, "--node", question)
    assert (report["continuations"], report["annotations"], report["parent"]) == (
        [answer],
        [remark],
        None,
    )
    assert next((mark["author"], mark.get("flag")) for mark in report["history"]) == (
        "coder",
        "pinned",
    )
    assert f"edit of      {question}" in tree("show", name, "--node", branch)
    assert "--node shows one node" in wrong("show", name, "--node", question, "--all")


def test_a_path_tells_what_is_hidden_and_why() -> None:
    name = tree("new", "t")
    one, two, three = (tree("say", name, text) for text in ("one", "two", "three"))
    tree("exclude", name, two)
    assert tree("path", name).splitlines() == [
        f"{one}  human  one",
        f"{two}  human  ⊘ (excluded) two",
        f"{three}  human  three",
    ]
    tree("prune", name, three)
    assert tree("path", name).splitlines()[-1] == f"{three}  human  ✂ (pruned) three"
    assert tree("path", name, "--at", one) == f"{one}  human  one"
    assert tree("path", name, "--last", 1).splitlines()[0] == "2 earlier nodes; --last 3 shows all"
    steps = told("tree", "path", name)["steps"]
    assert [(step["local"], step["hidden"]) for step in steps] == [
        (one, ""),
        (two, "excluded"),
        (three, "pruned"),
    ]


def test_a_tree_of_10000_nodes_is_drawn_at_once(store: Path) -> None:
    nodes: list[TreeNode] = []
    for branch in range(1000):
        parent = f"n{branch * 7 % len(nodes)}" if nodes else ""
        for step in range(10):
            message = Message(
                "assistant" if step % 2 else "user", (Text(f"words of {branch} {step} " * 5),)
            )
            nodes.append(
                TreeNode(
                    id=f"n{len(nodes)}",
                    parent=parent,
                    message=message,
                    flags=Flags(bookmarked=branch == 500),
                )
            )
            parent = nodes[-1].id
    store.parent.mkdir()
    with Loom.open(str(store)) as loom:
        loom.import_tree(
            Tree(id="a-large-tree", title="Large", nodes=tuple(nodes), current="n5000")
        )
    begun = time.process_time()
    lines = tree("show", "a-large-tree").splitlines()
    assert time.process_time() - begun < 2
    assert "10,000 nodes" in lines[1]
    assert len(lines) <= 204
    assert any("more in" in line for line in lines)
    assert len(tree("show", "a-large-tree", "--lines", 40).splitlines()) <= 44
    assert len(tree("show", "a-large-tree", "--all").splitlines()) > 500


def test_a_picture_on_a_terminal_is_coloured() -> None:
    name, _, answer, _ = flour()
    tree("prune", name, answer)
    parent, child = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {
        "COLUMNS": "80",
        "TERM": "xterm",
    }
    arguments = [sys.executable, "-c", "from loom.cli.main import run; run()", "tree", "show", name]
    with subprocess.Popen(arguments, stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                piece = os.read(parent, 4096)
            except OSError:  # what a terminal says when the other side is gone
                break
            if not piece:
                break
            shown += piece
    os.close(parent)
    assert process.returncode == 0
    assert b"\x1b[1m" in shown, "the path is bright"
    assert b"\x1b[9m" in shown, "what is pruned is struck out"


# Coming and going


@needs_shared
def test_the_100_trees_of_open_assistant_come_and_go_unchanged(tmp_path: Path) -> None:
    counted = {"trees": 100, "nodes": 1167, "branch_points": 260}
    assert told("tree", "import", OPEN_ASSISTANT) == counted
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert tree("export", "--all", "-o", first) == ""
    assert first.read_text() == "".join(
        line + "\n" for line in write_trees(read_trees(str(OPEN_ASSISTANT)))
    )
    assert told("tree", "import", first, "--store", tmp_path / "other.db") == counted
    tree("export", "--all", "-o", second, "--store", tmp_path / "other.db")
    assert second.read_bytes() == first.read_bytes()
    again = tree("import", first).splitlines()
    assert again[-1] == "100 trees, 1,167 nodes, 260 branch points"
    assert all("already stored" in line for line in again[:-1])


@needs_shared
@pytest.mark.parametrize("name", sorted(path.name for path in EXPORTS.glob("*sample*.json")))
def test_exports_of_other_programs_come_in_and_are_drawn(name: str, tmp_path: Path) -> None:
    [brought] = read_trees(str(EXPORTS / name))
    report = told("tree", "import", EXPORTS / name)
    assert report == {
        "trees": 1,
        "nodes": len(brought.nodes),
        "branch_points": brought.branch_points,
    }
    [listed] = told("tree", "list")
    assert listed["nodes"] == len(brought.nodes)
    assert len(shown(listed["id"])) == len(brought.nodes)
    assert "◀ here" in tree("show", listed["id"])
    assert tree("path", listed["id"])
    assert tree("export", listed["id"]).splitlines() == list(write_trees([brought]))


def test_a_file_that_cannot_be_read_makes_no_store(store: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert "is not a transcript that Loom knows" in wrong("import", tmp_path / "text")
    assert "does not exist" in wrong("import", tmp_path / "none")
    assert not store.exists()
    (tmp_path / "no trees").write_text('{"loom": "tree", "version": 1, "trees": []}')
    assert told("tree", "import", tmp_path / "no trees") == {
        "trees": 0,
        "nodes": 0,
        "branch_points": 0,
    }


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_trees_before_a_bad_one_stay(options: tuple[str, ...], tmp_path: Path) -> None:
    node = TreeNode(id="n", message=Message("user", (Text("hi"),)))
    lines = list(write_trees(Tree(id=f"tree-{n}", nodes=(node,)) for n in range(3)))
    file = tmp_path / "file.jsonl"
    file.write_text("\n".join([*lines, lines[0].replace('"role":"user"', '"role":"cook"')]))
    result = invoke("tree", "import", file, *options)
    assert result.exit_code == 2
    assert re.fullmatch(r"loom: .*line 4: .*; imported before it: 3 trees\n", result.stderr)
    assert len(result.stdout.splitlines()) == (0 if options else 3)
    assert len(told("tree", "list")) == 3
    assert told("tree", "import", f"{file}#1") == {"trees": 1, "nodes": 1, "branch_points": 0}


def test_export_takes_names_or_all() -> None:
    one, two = tree("new", "One"), tree("new", "Two")
    tree("say", two, "hi")
    assert [
        json.loads(line)["trees"][0]["title"] for line in tree("export", two, one[:6]).splitlines()
    ] == ["Two", "One"]
    assert [
        json.loads(line)["trees"][0]["title"] for line in tree("export", "--all").splitlines()
    ] == ["One", "Two"]
    assert "name the trees to export, or give --all" in wrong("export")
    assert "name the trees to export, or give --all" in wrong("export", one, "--all")
    assert "there is no tree" in wrong("export", "nope")


# Agents and settings


def test_agents_are_made_shown_changed_and_listed() -> None:
    tree("new", "t")
    assert (
        tree("agent") == "no agents in this project; loom tree agent NAME --kind model creates one"
    )
    assert (
        heard("agent", "coder", "--kind", "model")
        == "coder is created: a model that may only speak"
    )
    assert heard("agent", "ann", "--kind", "human").startswith(
        "ann is created: a human with loom_aware, loom_write"
    )
    options = (
        "--system",
        "You code.",
        "--model",
        "gpt-4o",
        "--window",
        8000,
        "--allow",
        "loom_write",
        "--allow",
        "loom_aware",
    )
    assert (
        heard("agent", "coder", *options) == "coder is changed: a model with loom_aware, loom_write"
    )
    assert told("tree", "agent", "coder") == {
        "name": "coder",
        "kind": "model",
        "system_prompt": "You code.",
        "model": "gpt-4o",
        "window": 8000,
        "permissions": ["loom_aware", "loom_write"],
    }
    assert [agent["name"] for agent in told("tree", "agent")] == ["ann", "coder"]
    assert tree("agent").splitlines()[2].split() == [
        "coder",
        "model",
        "gpt-4o",
        "8,000",
        "loom_aware",
        "loom_write",
    ]
    assert "You code." in tree("agent", "coder")
    heard("agent", "coder", "--window", 0)
    assert told("tree", "agent", "coder")["window"] is None
    assert told("tree", "agent", "coder", "--deny", "all", "--allow", "doc_read")[
        "permissions"
    ] == ["doc_read"]
    assert len(told("tree", "agent", "coder", "--allow", "all")["permissions"]) == 5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ("coder", "--allow", "loom_write"),
            "loom_write requires loom_aware, which is missing; grant both or neither",
        ),
        (
            ("coder", "--allow", "doc_read", "--deny", "doc_read"),
            "doc_read is both allowed and denied; give only one of them",
        ),
        (("ann", "--deny", "loom_aware"), "loom_write requires loom_aware"),
        (("nobody",), "there is no agent 'nobody' in project 'default'; --kind model creates one"),
        (("--kind", "human"), "give the NAME of the agent to create or change"),
        ((" ", "--kind", "human"), "an agent must have a name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_grants_that_cannot_be_are_refused(options: tuple[str, ...], why: str) -> None:
    tree("new", "t")
    heard("agent", "ann", "--kind", "human")
    assert why in wrong("agent", *options)
    assert [agent["name"] for agent in told("tree", "agent")] == ["ann"]


def test_preferences_come_from_the_tree_the_project_or_the_default() -> None:
    name = tree("new", "t")
    assert told("tree", "set")["preferences"] == {
        "truncation_strategy": {"value": "truncate_middle", "from": "default"},
        "minimum_recent_nodes": {"value": 4, "from": "default"},
        "token_buffer": {"value": 1024, "from": "default"},
    }
    heard("set", "--minimum-recent-nodes", 6, "--token-buffer", 2000)
    heard("set", name, "--token-buffer", 0, "--truncation-strategy", "rollingWindow")
    shown = tree("set", name)
    for piece in ("rolling_window  (tree)", "6  (project)", "0  (tree)"):
        assert piece in shown
    heard("set", name, "--token-buffer", "default")
    assert told("tree", "set", name)["preferences"]["token_buffer"] == {
        "value": 2000,
        "from": "project",
    }
    tree("say", name, "hi")
    assert told("weave", "--tree", name)["report"]["policy"] == "tree rolling_window 6 2000"
    assert told("weave", "--tree", name, "--policy", "turns")["report"]["policy"] == "turns"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("truncateMiddle", "truncate_middle"),
        ("rollingWindow", "rolling_window"),
        ("stopAtLimit", "stop_at_limit"),
        ("stop-at-limit", "stop_at_limit"),
        ("rolling_window", "rolling_window"),
    ],
)
def test_strategies_may_be_spelled_as_others_spell_them(given: str, meant: str) -> None:
    tree("new", "t")
    assert (
        told("tree", "set", "--truncation-strategy", given)["preferences"]["truncation_strategy"][
            "value"
        ]
        == meant
    )


def test_options_of_preferences_may_be_spelled_in_camel_case() -> None:
    tree("new", "t")
    held = told(
        "tree",
        "set",
        "--truncationStrategy",
        "stopAtLimit",
        "--minimumRecentNodes",
        "2",
        "--tokenBuffer",
        "7",
    )
    assert [each["value"] for each in held["preferences"].values()] == ["stop_at_limit", 2, 7]
    assert "the nearest is rolling_window" in wrong("set", "--truncation-strategy", "rolingWindow")


@pytest.mark.parametrize(
    "options",
    [
        ("--truncation-strategy", "nonsense"),
        ("--minimum-recent-nodes", "0"),
        ("--minimum-recent-nodes", "-1"),
        ("--token-buffer", "many"),
        ("--token-buffer", "9" * 30),
        ("--title", "of no tree"),
    ],
    ids=" ".join,
)
def test_settings_that_cannot_be_are_one_line(options: tuple[str, ...]) -> None:
    tree("new", "t")
    wrong("set", *options)
    assert told("tree", "set")["preferences"]["token_buffer"]["from"] == "default"


def test_a_tree_is_described_anew() -> None:
    name = tree("new", "Old", "--mode", "buffer")
    options = (
        "--title",
        "New",
        "--description",
        "D",
        "--system",
        "S",
        "--model",
        "gpt-4o",
        "--with-system",
    )
    assert heard("set", name, *options) == f"{name} is set"
    held = told("tree", "set", name)
    assert [held[key] for key in ("title", "description", "system", "model", "with_system")] == [
        "New",
        "D",
        "S",
        "gpt-4o",
        True,
    ]
    assert (
        told("tree", "set", name, "--without-system", "--description", "")["with_system"] is False
    )
    assert told("tree", "set", name)["description"] == ""
    assert "is a dialogue" in wrong("set", tree("new", "x"), "--with-system")


# Acting


def test_do_carries_out_commands_and_tells_what_came_of_them() -> None:
    name, _question, answer, _branch = flour()
    result = invoke(
        "tree", "do", name, f'Let me look.\n→ view {answer}\n→ bookmark {answer} "that one"'
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("said ")
    assert lines[1] == f"→ view {answer}"
    assert lines[2].startswith(f"  [{answer}] model")
    assert shown(name)[answer]["flags"]["label"] == "that one"
    report = told("tree", "do", name, "→ help view")
    assert (report["said"], report["node"]) == ("", None)
    assert report["results"][0]["failed"] is False


def test_do_ends_with_1_where_a_command_is_refused() -> None:
    name, _, answer, _ = flour()
    result = invoke("tree", "do", name, "-", given="→ veiw abcd\n→ help view\n")
    assert result.exit_code == 1
    assert "✗ INVALID_SYNTAX: there is no command 'veiw'" in result.stdout
    assert SPECS["view"].about in result.stdout
    heard("agent", "coder", "--allow", "loom_aware")
    result = invoke("tree", "do", name, f"→ prune {answer}", "--agent", "coder", "--json")
    assert result.exit_code == 1
    assert "PERMISSION_DENIED" in json.loads(result.stdout)["results"][0]["text"]
    assert "there is no agent 'nobody'" in wrong("do", name, "→ tree", "--agent", "nobody")
    assert "there is nothing to do" in wrong("do", name, " ")
    heard("agent", "parrot", "--kind", "model")
    assert told("tree", "do", name, "→ tree", "--agent", "parrot")["said"] == "→ tree", (
        "to who is not aware, an arrow is an arrow"
    )


# Weaving


def test_a_tree_is_woven_to_where_you_stand_or_to_another_node() -> None:
    name, _question, answer, branch = flour()
    request = told("weave", "--tree", name)["request"]
    assert [message["content"] for message in request["messages"]] == [
        "Be brief.",
        "How many grams are in a cup?",
    ]
    request = told("weave", "--tree", name, "--at", answer)["request"]
    assert [message["content"] for message in request["messages"]][1:] == [
        "How many grams are in a pound?",
        "About 450.",
    ]
    assert told("weave", "--tree", name, "--dialect", "anthropic")["request"]["system"]
    assert told("tree", "show", name)["at"] == branch
    report = run("weave", "--tree", name)
    assert f"tree {name}" in report
    assert "as OpenAI chat completions" in report
    assert "as plain document" in run("weave", "--tree", name, "--dialect", "document")


def test_what_is_hidden_is_told() -> None:
    name = tree("new", "t")
    nodes = [tree("say", name, text) for text in ("one", "two", "three")]
    tree("exclude", name, nodes[1])
    for command in ("weave", "explain"):
        printed = run(command, "--tree", name)
        assert "hidden   messages[1]" in printed
        assert "excluded" in printed
        assert "1 hidden" in printed
    assert [
        item["place"]
        for item in told("explain", "--tree", name)["items"]
        if item["action"] == "hidden"
    ] == ["messages[1]"]


def test_a_tree_is_woven_with_references_and_pins() -> None:
    name, question, answer, branch = flour()
    woven = run(
        "weave",
        "--tree",
        name,
        "--source",
        f"context:{answer}",
        "--source",
        f"instruction:{question}",
        "--json",
    )
    assert "About 450." in woven
    assert told("weave", "--tree", name, "--pin", branch)["request"]
    assert "cannot be pinned" in refused("weave", "--tree", name, "--pin", answer)
    assert "there is no node 'zzzz'" in refused("weave", "--tree", name, "--source", "context:zzzz")
    assert "--source takes ROLE:NODE" in refused("weave", "--tree", name, "--source", "zzzz")


@pytest.mark.parametrize("command", ["weave", "explain"])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "give a FILE or --session ID or --tree TREE"),
        (("FILE", "--tree", "TREE"), "not both FILE and --tree"),
        (("--session", "TREE", "--tree", "TREE"), "not both --session and --tree"),
        (("FILE", "--at", "abcd"), "--at names a node of a tree; add --tree TREE"),
        (("--at", "abcd"), "--at names a node of a tree; add --tree TREE"),
        (("--session", "TREE", "--include", "abcd"), "--include names a node of a tree"),
        (("--session", "TREE", "--source", "context:abcd"), "--source names a node of a tree"),
        (("--tree", "nope"), "there is no tree 'nope'"),
        (("--tree", "TREE", "--at", "zzzz"), "there is no node 'zzzz'"),
        (("--tree", "TREE", "--include", "zzzz"), "there is no node 'zzzz'"),
        (("--tree", "TREE", "--window", "5"), "larger window"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_woven_is_one_line(command: str, options: tuple[str, ...], why: str) -> None:
    name, *_ = flour()
    names = {"TREE": name, "FILE": str(ROOT / "README.md")}
    assert why in refused(command, *(names.get(option, option) for option in options))


def test_an_agent_that_knows_the_loom_reads_headers_and_where_it_stands() -> None:
    name, _, _, branch = flour()
    heard("agent", "coder", "--allow", "loom_aware", "--system", "You code.")
    text = run("weave", "--tree", name, "--agent", "coder", "--json")
    for piece in ("You code.", f"[{branch}] human", "=== Loom Context ==="):
        assert piece in text


def test_help_of_every_command_is_there() -> None:
    for name, command in group.commands.items():
        printed = run("tree", name, "--help")
        assert "--store" in printed
        assert (command.help or "").split("\n")[0].rstrip(".") in " ".join(printed.split())


def test_preferences_for_all_projects_hold_where_neither_project_nor_tree_says_otherwise() -> None:
    first = tree("new", "First", "--project", "one")
    second = tree("new", "Second", "--project", "two")
    tree("set", "--all-projects", "--token-buffer", "3000", "--minimum-recent-nodes", "7")
    tree("set", "--project", "two", "--token-buffer", "2000")
    for name, project, expected in (
        (first, "one", [("all projects", 3000)]),
        (second, "two", [("project", 2000)]),
    ):
        held = json.loads(tree("set", name, "--project", project, "--json"))["preferences"]
        assert [(held["token_buffer"]["from"], held["token_buffer"]["value"])] == expected
        assert held["minimum_recent_nodes"] == {"value": 7, "from": "all projects"}
    tree("set", "--all-projects", "--token-buffer", "default")
    held = json.loads(tree("set", first, "--project", "one", "--json"))["preferences"]
    assert held["token_buffer"] == {"value": 1024, "from": "default"}
    assert "omit TREE" in refused(
        "tree", "set", first, "--project", "one", "--all-projects", "--token-buffer", "1"
    )
