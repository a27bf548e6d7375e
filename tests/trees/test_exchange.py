"""Trees come into a store and go out as they came; brought again, only what is new is written."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from loom import Loom, Message, Text, read_trees, write_trees
from loom.conversation.tree import ChosenVersion, Flags, Link, Tree, TreeHead, TreeNode
from loom.errors import ChoiceError, LoomError, StoreError, WireError
from loom.stores.health.doctor import examine
from loom.transcripts.loom_tree import trees
from tests.shared import SHARED, examples, needs_shared
from tests.test_tree_files import trees as any_trees
from tests.trees.making import told, woven

EXPORTS = SHARED / "data" / "exports"
ASSISTANT = SHARED / "data" / "trees" / "oasst_en_100_tree.jsonl"


def as_it_came(tree: Tree) -> Tree:
    """Links said twice are said once, and stand in the order of their nodes."""
    places = {node.id: n for n, node in enumerate(tree.nodes)}
    links = sorted(dict.fromkeys(tree.links), key=lambda link: places[link.source])
    return replace(tree, links=tuple(links))


@given(any_trees())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_tree_goes_out_as_it_came(tree: Tree) -> None:
    with Loom.open(":memory:") as loom:
        stored, made = loom.import_tree(tree)
        assert made == len(tree.nodes)
        assert loom.export_tree(stored.id) == as_it_came(tree)
        assert loom.import_tree(tree)[1] == 0
        assert [problem for problem in examine(loom.store) if not problem.note] == []


@needs_shared
def test_the_openassistant_trees_come_in_whole_and_go_out_byte_for_byte(loom: Loom) -> None:
    given_trees = list(read_trees(str(ASSISTANT)))
    for tree in given_trees:
        loom.import_tree(tree)
    listed = loom.trees()
    assert (len(listed), sum(each.nodes for each in listed)) == (100, 1167)
    out = [loom.export_tree(tree.id) for tree in given_trees]
    assert sum(tree.branch_points for tree in out) == 260
    assert list(write_trees(out)) == list(write_trees(given_trees))
    with Loom.open(":memory:") as other:
        for tree in out:
            other.import_tree(tree)
        assert list(write_trees(other.export_tree(tree.id) for tree in out)) == list(
            write_trees(out)
        )
    assert list(examine(loom.store)) == []


@needs_shared
@pytest.mark.parametrize("name", [path.name for path in sorted(EXPORTS.glob("*sample*.json"))])
def test_the_sample_exports_come_in_and_can_be_woven(loom: Loom, name: str) -> None:
    for tree in read_trees(str(EXPORTS / name)):
        stored, made = loom.import_tree(tree)
        assert made == len(tree.nodes)
        assert loom.export_tree(stored.id) == as_it_came(tree)
        assert told(woven(stored))
    assert list(examine(loom.store)) == []


def line(count: int, start: int = 0, parent: str = "") -> list[TreeNode]:
    nodes = []
    for n in range(start, start + count):
        nodes.append(
            TreeNode(id=f"n{n}", message=Message("user", (Text(f"text {n}"),)), parent=parent)
        )
        parent = f"n{n}"
    return nodes


def test_brought_again_a_tree_gets_what_is_new(loom: Loom) -> None:
    first, _ = loom.import_tree(Tree(id="t", nodes=tuple(line(3)), current="n2"))
    again, made = loom.import_tree(
        Tree(id="t", nodes=(*line(3), *line(2, 10, "n1")), current="n11")
    )
    assert (again.id, made) == (first.id, 2)
    assert len(loom.export_tree("t").nodes) == 5
    assert loom.export_tree("t").current == "n2", "where somebody stands stays"


def test_brought_again_a_tree_gets_nothing_said_of_what_is_here(loom: Loom) -> None:
    nodes = line(3)
    loom.import_tree(Tree(id="t", nodes=tuple(nodes)))
    here = loom.export_tree("t")
    marked = (
        replace(nodes[0], flags=Flags(bookmarked=True, label="theirs", pinned=True)),
        replace(nodes[1], flags=Flags(excluded=True)),
        replace(nodes[2], flags=Flags(pruned=True)),
    )
    loom.import_tree(Tree(id="t", nodes=marked, links=(Link("n0", "n2", "", "see"),)))
    assert loom.export_tree("t") == here


def test_new_branches_come_with_all_that_is_said_of_them(loom: Loom) -> None:
    loom.import_tree(Tree(id="t", nodes=tuple(line(3)), current="n2"))
    branch = line(1200, 10, "n1")
    remark = TreeNode(
        id="r",
        message=Message("user", (Text("hm"),)),
        parent="n11",
        edge="annotation",
        flags=Flags(included=True),
    )
    marked = [replace(branch[0], flags=Flags(excluded=True)), *branch[1:], remark]
    loom.import_tree(
        Tree(
            id="t",
            nodes=(*line(3), *marked),
            links=(Link("n1100", "n0", "", "see"),),
            current="n11",
        )
    )
    brought = {node.id: node for node in loom.export_tree("t").nodes}
    assert (brought["n10"].flags, brought["r"].flags) == (
        Flags(excluded=True),
        Flags(included=True),
    )
    assert loom.export_tree("t").links == (Link("n1100", "n0", "", "see"),)
    assert loom.export_tree("t").current == "n2"


def test_an_import_that_was_killed_goes_on(loom: Loom, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(id="t", nodes=tuple(line(2500)))
    insert_nodes, discard = loom.store.growth.insert_nodes, loom.store.sessions.discard
    calls = itertools.count()

    def dies(*given: Any) -> int:
        if next(calls):
            raise KeyboardInterrupt
        return insert_nodes(*given)

    monkeypatch.setattr(loom.store.growth, "insert_nodes", dies)
    # as if nobody were left to take it back
    monkeypatch.setattr(loom.store.sessions, "discard", lambda tree: None)
    with pytest.raises(KeyboardInterrupt):
        loom.import_tree(tree)
    monkeypatch.setattr(loom.store.growth, "insert_nodes", insert_nodes)
    monkeypatch.setattr(loom.store.sessions, "discard", discard)
    with pytest.raises(ChoiceError, match="its import was cut short; import its file again"):
        loom.tree("t").say("hello")
    stored, made = loom.import_tree(tree)
    assert made == 1500
    assert [row.id for row in loom.sessions()] == ["t"]
    assert loom.export_tree(stored.id) == tree


def test_another_tree_of_the_same_id_becomes_a_tree_of_its_own(loom: Loom) -> None:
    loom.import_tree(Tree(id="session", nodes=tuple(line(3))))
    other, made = loom.import_tree(Tree(id="session", nodes=tuple(line(2, 50))))
    assert made == 2
    assert other.id.startswith("session-")
    assert loom.import_tree(Tree(id="session", nodes=tuple(line(2, 50))))[1] == 0, (
        "and is found again"
    )


def test_siblings_that_say_the_same_stay_two(loom: Loom) -> None:
    same = Message("assistant", (Text("Yes."),))
    nodes = (*line(1), *(TreeNode(id=name, message=same, parent="n0") for name in ("a", "b")))
    stored, made = loom.import_tree(Tree(id="t", nodes=nodes))
    assert made == 3
    assert loom.export_tree(stored.id).nodes == nodes


def test_versions_that_are_said_to_be_of_each_other_do_no_harm(loom: Loom) -> None:
    first, second, third = line(3)
    nodes = (
        replace(first, edge="version", edited_from="n1"),
        replace(second, parent="", edge="version", edited_from="n0"),
    )
    tree, _ = loom.import_tree(
        Tree(id="t", nodes=(*nodes, replace(third, parent="n1")), mode="buffer", current="n2")
    )
    assert woven(tree).document().endswith("text 2")
    tree.switch(tree.session().path[0].id)
    assert len(tree.twigs()) == 3
    assert list(examine(loom.store)) == []


def test_a_tree_that_cannot_be_written_to_its_end_leaves_nothing(
    loom: Loom, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = itertools.count()
    insert_nodes = loom.store.growth.insert_nodes

    def fails(*given: Any) -> int:
        if next(calls):
            raise StoreError("the disk is full")
        return insert_nodes(*given)

    monkeypatch.setattr(loom.store.growth, "insert_nodes", fails)
    with pytest.raises(StoreError, match="the disk is full"):
        loom.import_tree(Tree(id="t", nodes=tuple(line(2500))))
    assert loom.trees() == []
    assert list(examine(loom.store)) == []


def test_10_000_nodes_with_1_000_branches_come_in_and_are_woven(loom: Loom) -> None:
    nodes = line(1000)
    for branch in range(999):
        nodes += line(9, 1000 + branch * 9, f"n{branch}")
    stored, made = loom.import_tree(Tree(id="big", nodes=tuple(nodes)))
    assert made == len(nodes) == 9991
    assert loom.store.trees.counts(stored.stored.row.key) == (9991, 1000)
    context = woven(stored, window=8000)
    assert context.report.input_tokens <= 8000


# What was chosen, and what providers sent


def answer(text: str) -> dict[str, object]:
    return {
        "id": "r1",
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
    }


def test_chosen_versions_and_raw_responses_travel_with_a_tree(loom: Loom) -> None:
    tree = loom.new_tree("Letter", head=TreeHead(mode="buffer"))
    first = tree.say("Dear Anna, ")
    tree.edit(first.id, "Hello Anna, ")
    tree.edit(first.id, "Hi Anna, ")
    tree.choose(first.id)
    made = tree.absorb(answer("thank you.")).node
    assert made is not None
    text = woven(tree).document()
    assert text == "Dear Anna, thank you."
    [line] = write_trees([loom.export_tree(tree.id)])
    with Loom.open(":memory:") as other:
        [tree_again] = trees(json.loads(line))
        stored, _ = other.import_tree(tree_again)
        assert woven(stored).document() == text, "the same version is read"
        assert stored.session().response(stored.node(made.id).id) == tree.session().response(
            made.id
        )
        assert list(write_trees([other.export_tree(stored.id)])) == [line]
        assert list(examine(other.store)) == []
        stored.choose(stored.children(None)[0].id)
        other.import_tree(tree_again)
        assert woven(stored).document() == text, "what was chosen here stays"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda tree: tree["nodes"][1].update(response="[]"),
            "response: expected the JSON text of a provider's answer",
        ),
        (lambda tree: tree["nodes"][1].update(response='{"a":1}'), "nodes\\[1\\].response"),
        (lambda tree: tree["nodes"][1].update(response=7), "response"),
        (
            lambda tree: tree["chosen"][0].update(version="nowhere"),
            "chosen\\[0\\]: expected a node of a buffer and a version",
        ),
        (lambda tree: tree["chosen"][0].update(version=tree["nodes"][2]["id"]), "chosen\\[0\\]"),
        (lambda tree: tree["chosen"].append(tree["chosen"][0]), "chosen\\[1\\]"),
        (lambda tree: tree.update(mode="dialogue"), "chosen\\[0\\]"),
    ],
)
def test_what_a_file_claims_of_choices_and_responses_is_proved(
    loom: Loom, change: Any, reason: str
) -> None:
    tree = loom.new_tree("Letter", head=TreeHead(mode="buffer"))
    first = tree.say("Dear Anna, ")
    tree.edit(first.id, "Hello Anna, ")
    tree.absorb(answer("thank you."))
    [line] = write_trees([loom.export_tree(tree.id)])
    value = json.loads(line)
    assert value["version"] == 2, "an older reader would read another version"
    change(value["trees"][0])
    with pytest.raises(LoomError, match=reason):
        list(trees(value))


def test_a_tree_made_by_hand_is_proved_too(loom: Loom) -> None:
    tree = loom.new_tree("Letter", head=TreeHead(mode="buffer"))
    tree.say("Dear Anna, ")
    value = loom.export_tree(tree.id)
    with pytest.raises(ChoiceError, match="'x' is not a version of 'y'"):
        loom.import_tree(replace(value, id="other", chosen=(ChosenVersion("y", "x"),)))
    wrong = replace(value.nodes[0], response="nothing")
    with pytest.raises(WireError, match="response"):
        loom.import_tree(replace(value, id="other", nodes=(wrong,)))
