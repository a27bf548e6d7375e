"""A search over a whole tree finds what is said on any branch, and nothing that is hidden from who
asks.
"""

import random
from collections.abc import Iterator

import pytest

from loom import Loom
from loom.conversation.agents import Agent
from loom.engine.search import check_search, search_tree
from loom.engine.trees import LoomTree
from tests.stores.conftest import address as address
from tests.stores.conftest import server as server
from tests.stores.history import open_loom

pytestmark = pytest.mark.sqlite_first


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def find(loom: Loom, tree: LoomTree, query: str, is_model: bool = True) -> set[str]:
    """The first words of what is found."""
    row = tree.session().row
    request = check_search(query, None, 1000, None, 1)
    found = search_tree(loom.store, row, request, is_model)
    return {node.message.text.split()[0] for node, _ in found if node.message}


def grow(
    loom: Loom, shuffled: random.Random, count: int
) -> tuple[LoomTree, dict[str, str], dict[str, str]]:
    """A tree of many branches; for the name of each node its id, and the name of its parent."""
    tree = loom.new_tree("Looms")
    ids: dict[str, str] = {}
    parents: dict[str, str] = {}
    for number in range(count):
        name = f"n{number}"
        above = shuffled.choice(list(ids)) if ids and shuffled.random() < 0.9 else ""
        if shuffled.random() < 0.5 and ids:
            above = list(ids)[-1]
        node = tree.say(f"{name} says warp {number}", after=ids[above] if above else "")
        ids[name], parents[name] = node.id, above
    return tree, ids, parents


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_indexed", [False, True])
def test_models_see_what_is_not_hidden_and_people_see_all(
    loom: Loom, seed: int, is_indexed: bool
) -> None:
    shuffled = random.Random(seed)
    tree, ids, parents = grow(loom, shuffled, 40)
    if is_indexed:
        loom.index()
    excluded = set(shuffled.sample(sorted(parents), 4))
    pruned = set(shuffled.sample(sorted(parents), 3))
    for name in excluded:
        tree.exclude(ids[name])
    for name in pruned:
        tree.prune(ids[name])
    gone = set(pruned)
    for name, above in parents.items():  # parents come first
        if above in gone:
            gone.add(name)
    assert find(loom, tree, "warp") == set(parents) - gone - excluded
    assert find(loom, tree, "warp", is_model=False) == set(parents)
    loom.new_tree("Other").say("other warp")
    if is_indexed:
        loom.index(again=True)
    assert "other" not in find(loom, tree, "warp", is_model=False)
    some = sorted(set(parents) - gone - excluded)[0]
    assert find(loom, tree, f'"{some} says"') == {some}


def test_an_agent_finds_passages_by_any_form_of_a_word(loom: Loom) -> None:
    tree = loom.new_tree("Looms")
    first = tree.say("Beginning.\n" + "Nothing here. " * 60 + "The heddles lift the threads.")
    tree.say("Another branch about heddles.", after="")
    loom.keep_agent(Agent(name="bot", permissions=("loom_aware",)))
    tree.session("bot")
    report = str(loom.act(tree.id, '→ search "lifting heddle"', agent="bot"))
    assert f"[{first.short_id}]" in report
    assert "The heddles lift the threads." in report, "the passage, not how the message begins"
    assert "Another branch about heddles." in report
    assert "no nodes with 'zebra'" in str(loom.act(tree.id, '→ search "zebra"', agent="bot"))
    assert "INVALID_SYNTAX" in str(loom.act(tree.id, '→ search "…"', agent="bot"))
