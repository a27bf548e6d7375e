"""A row that cannot be read, as older versions could write it: it is named, the others work, and
the command can take it back.
"""

import warnings
from collections.abc import Iterator

import pytest

from loom import Agent, Loom, LoomError, Preferences, TreeHead
from loom.errors import UnreadableWarning
from tests.test_tree_cli import heard, told


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with Loom.open(address) as opened:
        yield opened


def spoil(loom: Loom, sql: str, *values: object) -> None:
    with loom.store.database.write() as writer:
        writer.all(sql, *values)


def test_a_preference_that_cannot_be_read_blocks_no_tree_and_can_be_set_again(loom: Loom) -> None:
    loom.prefer(Preferences("stop_at_limit", 3, 7))
    data = '{"truncation_strategy":"truncateMidle","minimum_recent_nodes":3,"token_buffer":"many"}'
    spoil(loom, "UPDATE settings SET data = $1 WHERE kind = 'preferences'", data)
    with pytest.warns(
        UnreadableWarning,
        match="the preference truncation_strategy in project 'default' cannot be read",
    ):
        assert loom.preferences == Preferences(None, 3, None)
    tree = loom.new_tree("t")
    tree.say("hello")
    with pytest.warns(UnreadableWarning, match="token_buffer"):
        assert tree.preferences.minimum_recent_nodes == 3
    loom.prefer({"minimumRecentNodes": 5})
    with warnings.catch_warnings(action="error"):
        assert loom.preferences == Preferences(None, 5)


def test_preferences_that_were_stored_in_camel_case_are_read(loom: Loom) -> None:
    loom.prefer(Preferences("stop_at_limit"))
    spoil(
        loom,
        "UPDATE settings SET data = $1 WHERE kind = 'preferences'",
        '{"truncation_strategy":"rollingWindow","tokenBuffer":9}',
    )
    assert loom.preferences == Preferences("rolling_window", None, 9)
    tree = loom.new_tree("t", head=TreeHead(preferences=Preferences("stop_at_limit")))
    spoil(
        loom,
        "UPDATE trees SET data = $1 WHERE id = $2",
        '{"preferences":{"truncation_strategy":"truncateMiddle"}}',
        tree.id,
    )
    assert loom.tree(tree.id).head.preferences == Preferences("truncate_middle")
    assert tree.change(preferences=Preferences()).head.preferences == Preferences()


def test_preferences_that_are_no_object_are_left_out(loom: Loom) -> None:
    loom.prefer(Preferences("stop_at_limit"))
    spoil(loom, "UPDATE settings SET data = $1 WHERE kind = 'preferences'", "[1")
    with pytest.warns(UnreadableWarning, match="what is preferred in project 'default'"):
        assert loom.preferences == Preferences()


def test_an_agent_that_cannot_be_read_is_named_and_the_others_are_listed(loom: Loom) -> None:
    loom.keep_agent(Agent(name="ann"))
    loom.keep_agent(Agent(name="bob"))
    spoil(loom, "UPDATE settings SET data = $1 WHERE name = 'bob'", '{"name":"bob","kind":"robot"}')
    with pytest.warns(UnreadableWarning, match="agent 'bob' cannot be read"):
        assert loom.agents() == [Agent(name="ann")]
    with pytest.raises(LoomError, match="agent 'bob' of project 'default' cannot be read"):
        loom.agent("bob")
    assert loom.agent("ann") == Agent(name="ann")
    loom.keep_agent(Agent(name="bob"))
    assert loom.agents() == [Agent(name="ann"), Agent(name="bob")]


def test_sessions_and_trees_that_cannot_be_read_are_named_and_the_others_are_listed(
    loom: Loom,
) -> None:
    good, bad = loom.new("good"), loom.new("bad")
    tree, lost = loom.new_tree("a tree"), loom.new_tree("a lost tree")
    spoil(
        loom,
        "UPDATE sessions SET head = $1 WHERE id = $2",
        '{"messages":[{"role":"asistant","parts":[]}]}',
        bad.id,
    )
    spoil(loom, "UPDATE trees SET data = $1 WHERE id = $2", '{"mode":"dialog"}', lost.id)
    with pytest.warns(UnreadableWarning, match=f"session {bad.id} cannot be read"):
        assert {row.id for row in loom.sessions()} == {good.id, tree.id, lost.id}
    with pytest.warns(UnreadableWarning, match=f"tree {lost.id} cannot be read"):
        assert {listed.tree.row.id for listed in loom.trees()} == {good.id, bad.id, tree.id}
    with pytest.raises(LoomError, match=f"tree {lost.id} says of itself cannot be read"):
        loom.tree(lost.id)
    good.append("it works")
    tree.say("it works")


def test_the_command_takes_back_a_preference_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("LOOM_STORE", address)
    with Loom.open(address) as loom:
        name = loom.new_tree("t").id
        loom.prefer(Preferences("stop_at_limit"))
        loom.keep_agent(Agent(name="bob"))
        spoil(
            loom,
            "UPDATE settings SET data = $1 WHERE kind = 'preferences'",
            '{"truncation_strategy":"truncateMidle"}',
        )
        spoil(
            loom,
            "UPDATE settings SET data = $1 WHERE kind = 'agent'",
            '{"name":"bob","kind":"robot"}',
        )
        spoil(
            loom,
            "UPDATE trees SET data = $1 WHERE id = $2",
            '{"preferences":{"truncation_strategy":"truncateMidle"}}',
            name,
        )
    assert f"the preference truncation_strategy of tree {name} cannot be read" in heard("set", name)
    heard("set", name, "--truncation-strategy", "default")
    heard("set", "--truncation-strategy", "default")
    heard("agent", "bob", "--kind", "human")
    held = told("tree", "set", name)["preferences"]["truncation_strategy"]
    assert held == {"value": "truncate_middle", "from": "default"}
    with Loom.open(address) as loom, warnings.catch_warnings(action="error"):
        assert loom.agents() == [Agent(name="bob", kind="human")]
        assert loom.preferences == Preferences()
