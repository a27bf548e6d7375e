"""Several agents and persons talk on one tree: each goes on from what was said last, unless it
switched away.
"""

import asyncio
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import Conflict, Loom, Message, Text
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.commands import LONGEST_BATCH
from loom.conversation.tree import Reference, TreeHead
from loom.engine.session_state import STATE_KINDS
from loom.engine.sessions import Session
from loom.engine.trees import LoomTree
from loom.errors import WireError
from loom.stores.health.doctor import examine
from loom.stores.sessions import Scope, Usage
from loom.stores.store import Store
from loom.stores.tree.path import Node
from tests.shared import examples

pytestmark = pytest.mark.sqlite_first

_numbers = itertools.count()


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = Store(address, STATE_KINDS)
    yield opened
    opened.close()


def opened(store: Store) -> Loom:
    """A tenant of its own, with the agents that the tests speak as."""
    ticks, ids = itertools.count(1_700_000_000_000, 1000), itertools.count()
    kept = Loom(
        store, Scope(f"tenant {next(_numbers)}"), lambda: next(ticks), lambda: f"tree{next(ids):06}"
    )
    kept.keep_agent(Agent(name="coder"))
    kept.keep_agent(Agent(name="critic", permissions=PERMISSIONS))
    kept.keep_agent(Agent(name="ann", kind="human"))
    return kept


@pytest.fixture
def loom(store: Store) -> Loom:
    return opened(store)


def prepare(tree: LoomTree, **options: Any) -> str:
    """All that a request says."""
    return str(asyncio.run(tree.prepare(model="gpt-4o", **options)).openai()["messages"])


def response(*choices: str, name: str = "r1", **message: Any) -> dict[str, Any]:
    said = [
        {"index": n, "message": {"role": "assistant", "content": text, **message}}
        for n, text in enumerate(choices)
    ]
    return {
        "id": name,
        "model": "gpt-4o",
        "choices": said,
        "usage": {"prompt_tokens": 70, "completion_tokens": 20},
    }


def texts(tree: LoomTree, agent: str) -> list[str]:
    return [node.message.text for node in tree.session(agent).path if node.message]


# Dialogues


def test_a_person_and_a_named_agent_hold_a_dialogue(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    loom.act(tree.id, "A1", agent="coder")
    tree.say("Q2")
    assert "Q2" in prepare(tree, agent="coder")
    loom.act(tree.id, "A2", agent="coder")
    assert texts(tree, "coder") == texts(tree, "") == ["Q1", "A1", "Q2", "A2"]


def test_who_switched_away_goes_on_alone_and_comes_back_by_switching(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    answer = tree.say("A1", agent="coder")
    tree.switch(first.id, agent="coder")
    tree.say("B1", agent="coder")
    question = tree.say("Q2")
    assert texts(tree, "coder") == ["Q1", "B1"]
    assert tree.siblings(answer.id)[0].message.text == "B1"  # type: ignore[union-attr]
    tree.switch(question.id, agent="coder")
    tree.say("A2", agent="coder")
    assert texts(tree, "") == ["Q1", "A1", "Q2", "A2"]


def test_those_who_meet_on_another_branch_talk_there(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    tree.say("A1", agent="coder")
    for agent in ("ann", "critic"):
        tree.switch(first.id, agent=agent)
    tree.say("Why?", agent="ann")
    tree.say("Because.", agent="critic")
    assert texts(tree, "ann") == texts(tree, "critic") == ["Q1", "Why?", "Because."]
    assert texts(tree, "") == texts(tree, "coder") == ["Q1", "A1"]


def test_the_trees_own_session_takes_along_who_stands_with_it(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    tree.say("A1", agent="coder")
    tree.edit(first.id, "Q1, but better")
    assert "but better" in prepare(tree, agent="coder")


def test_a_forked_session_goes_its_own_way(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    fork = tree.session().fork()
    tree.say("A1", agent="coder")
    assert [node.short_id for node in fork.refresh().path] == [
        node.short_id for node in tree.session().path
    ][:1]
    fork.append("elsewhere")
    assert texts(tree, "") == ["Q1", "A1"]


SPEAKERS = ("", "ann", "coder", "critic")
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(SPEAKERS), st.just(0.0)),
        st.tuples(st.just("say"), st.sampled_from(SPEAKERS), st.just(0.0)),
        st.tuples(st.just("act"), st.sampled_from(SPEAKERS), st.just(0.0)),
        st.tuples(st.just("answer"), st.sampled_from(SPEAKERS), st.just(0.0)),
        st.tuples(st.just("switch"), st.sampled_from(SPEAKERS), st.floats(0, 1)),
        st.tuples(st.just("after"), st.sampled_from(SPEAKERS), st.floats(0, 1)),
        st.tuples(st.just("edit"), st.sampled_from(SPEAKERS), st.floats(0, 1)),
    ),
    max_size=14,
)


class Places:
    """A plain model of who stands where: by the index of a node, and what each node follows."""

    def __init__(self) -> None:
        self.parents: list[int | None] = []
        self.stands: dict[str, int | None] = {}

    def at(self, agent: str) -> int | None:
        return self.stands.setdefault(agent, self.stands.get(""))

    def move(self, agent: str, to: int, places: tuple[int | None, ...]) -> None:
        self.stands = {
            who: to if who == agent or place in places else place
            for who, place in self.stands.items()
        }

    def say(self, agent: str, after: int | None) -> int:
        here = self.at(agent)
        self.parents.append(after)
        self.move(
            agent, len(self.parents) - 1, (after, here) if not agent or here is None else (after,)
        )
        return after if after is not None else -1


@given(done=deeds)
@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_whoever_speaks_goes_on_from_what_was_said_last_unless_it_switched_away(
    store: Store, done: list[Any]
) -> None:
    tree, model = opened(store).new_tree("Talk"), Places()
    nodes: list[Node] = [tree.say("word 0")]
    model.at("")
    model.say("", None)
    for number, (deed, agent, share) in enumerate(done, 1):
        chosen = nodes[int(share * (len(nodes) - 1))]
        here = model.at(agent)
        match deed:
            case "switch":
                tree.switch(chosen.id, agent=agent)
                model.move(agent, nodes.index(chosen), () if agent else (here,))
                continue
            case "say":
                made = tree.say(f"word {number}", agent=agent)
            case "act":
                made = tree.absorb(f"word {number}", agent=agent).node  # type: ignore[assignment]
            case "answer":
                prepare(tree, agent=agent)
                made = tree.absorb(response(f"word {number}", name=f"r{number}"), agent=agent).node  # type: ignore[assignment]
            case "after":
                made, here = (
                    tree.say(f"word {number}", agent=agent, after=chosen.id),
                    nodes.index(chosen),
                )
            case _:
                made, here = (
                    tree.edit(chosen.id, f"word {number}", agent=agent),
                    model.parents[nodes.index(chosen)],
                )
        nodes.append(made)
        model.say(agent, here)
        assert made.parent == (nodes[here].seq if here is not None else None)
    for agent, place in model.stands.items():
        position = tree.position(agent)
        assert position is not None
        assert place is not None
        assert position.seq == nodes[place].seq


# Two at once


def test_an_answer_that_comes_late_stands_beside_what_was_said_meanwhile(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    prepare(tree, agent="coder")
    tree.say("Never mind.")
    late = tree.absorb(response("A1"), agent="coder").node
    assert late is not None
    assert late.parent == first.seq, "it answers what its request ended with"
    assert texts(tree, "coder") == ["Q1", "Never mind."], (
        "and the agent is still in the conversation"
    )
    assert list(examine(loom.store)) == []


def test_an_agent_that_knows_the_loom_is_told_that_others_went_on_and_its_cost_is_counted(
    loom: Loom,
) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    prepare(tree, agent="critic")
    newer = tree.say("Never mind.")
    acted = tree.absorb(
        response('A1\n→ bookmark NODE "late"'.replace("NODE", first.short_id)), agent="critic"
    )
    assert acted.node is None
    assert [result.failed for result in acted.results] == [True, False], (
        "its commands are carried out all the same"
    )
    assert (
        f"somebody continued after {first.short_id} with {newer.short_id}" in acted.results[0].text
    )
    assert tree.session("critic").row.usage.prompt == 70
    assert tree.absorb("A1", agent="critic").node is not None, "who has been told may say it again"
    assert list(examine(loom.store)) == []


def test_two_who_speak_at_once_are_never_put_one_behind_the_other(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    stale = tree.session("coder")
    mine = tree.session()
    tree.say("I was quicker.", agent="ann")
    for session in (stale, mine):
        with pytest.raises(Conflict):
            session.append("me too")
    assert texts(tree, "coder") == ["Q1", "I was quicker."]


# One door for an answer


def test_commands_of_an_answer_are_carried_out_and_response_usage_and_calls_are_kept(
    loom: Loom,
) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    prepare(tree, agent="critic")
    calls = [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}]
    given = response(f'Looking.\n→ bookmark {first.short_id} "start"\n→ nonsense', tool_calls=calls)
    acted = tree.absorb(given, agent="critic")
    assert acted.node is not None
    assert acted.node.message is not None
    assert (acted.said, acted.node.message.text) == ("Looking.", "Looking.")
    assert [call.name for call in acted.node.message.calls] == ["run"]
    assert [result.failed for result in acted.results] == [False, True]
    session = tree.session("critic")
    assert "nonsense" in (session.response(acted.node.id) or "")
    assert (session.row.usage.prompt, session.row.usage.completion) == (70, 20)
    assert tree.marks(first).flags.label == "start"
    again = tree.absorb(given, agent="critic")
    assert ([node.seq for node in again.nodes], again.results) == ([acted.node.seq], ()), (
        "the same answer is taken once"
    )
    assert tree.session("critic").row.usage.prompt == 70
    tree.say({"role": "tool", "tool_call_id": "c1", "content": "done"}, agent="critic")
    assert "tool_calls" in prepare(tree, agent="critic")
    assert list(examine(loom.store)) == []


def test_a_session_of_an_agent_that_knows_the_loom_carries_out_commands_too(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    session = tree.session("critic")
    asyncio.run(session.prepare(model="gpt-4o"))
    [node] = session.absorb(response(f"Yes.\n→ pin {first.short_id}"))
    assert node.message is not None
    assert node.message.text == "Yes."
    assert "pinned [" in prepare(tree, agent="critic"), "the agent is told in its next request"


def test_an_answer_of_nothing_but_commands_keeps_its_response_and_its_cost(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    prepare(tree, agent="critic")
    given = response(f"→ switch {first.short_id}\n→ list")
    for _ in range(2):
        assert tree.absorb(given, agent="critic").nodes == ()
    assert tree.session("critic").row.usage.prompt == 70
    kept = [line for line in loom.export() if '"line":"node"' in line and "→ switch" in line]
    assert len(kept) == 1, "the response as it came is kept with what it answers"
    assert tree.session("critic").response(first.id) is None, "but it did not make that node"
    assert list(examine(loom.store)) == []


def test_commands_in_many_texts_of_one_answer_are_bounded(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    blocks = [{"type": "text", "text": "→ list\n" * 8} for _ in range(5)]
    given = {"id": "m1", "role": "assistant", "content": blocks, "model": "claude-sonnet-4-5"}
    acted = tree.absorb(given, agent="critic")
    assert len(acted.results) == LONGEST_BATCH + 1
    assert "20 more were not run" in acted.results[-1].text


def test_an_arrow_of_a_model_that_does_not_know_the_loom_is_text(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    for agent in ("", "coder"):
        node = tree.absorb(response("→ view abcd", name=agent), agent=agent).node
        assert node is not None
        assert node.message is not None
        assert node.message.text == "→ view abcd"


def test_a_response_costs_once_and_its_choices_stand_beside_each_other(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    prepare(tree)
    given = response("one", "two", "three")
    made = [tree.absorb(given, choice=choice).node for choice in (0, 1, 2, 1)]
    assert [node.short_id for node in tree.children(first.id)] == [
        node.short_id for node in made[:3] if node
    ]
    assert made[3] == made[1]
    assert tree.session().row.usage == Usage(70, 20, 0, tree.session().row.usage.cost)
    assert texts(tree, "") == ["Q1", "one"]
    plain = loom.new("plain")
    plain.append("Q1")
    [node] = plain.absorb(given)
    for _ in range(2):
        [other] = loom.session(plain.id).absorb(given, choice=2)
        assert other.parent == node.parent
    assert loom.session(plain.id).row.usage.prompt == 70
    assert list(examine(loom.store)) == []


def test_sources_of_a_request_are_kept_with_its_answer_whoever_takes_it(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    rule = tree.say("In verse.")
    tree.switch(tree.say("Q1", after="").id)
    sources = [Reference(rule.id, "instruction")]
    assert "In verse." in prepare(tree, sources=sources)
    made = tree.absorb(response("roses")).node
    assert made is not None
    assert tree.marks(made).sources == tuple(sources)
    assert "In verse." in prepare(tree)
    plain = loom.session(tree.id)
    asyncio.run(plain.prepare("Q2", model="gpt-4o", sources=sources))
    [node] = loom.session(tree.id).absorb(response("violets", name="r2"))
    assert tree.marks(node).sources == tuple(sources), "also of a session that was opened again"


def test_what_is_not_committed_comes_before_the_answer_to_it(loom: Loom) -> None:
    tree = loom.new_tree("Letter", head=TreeHead(mode="buffer"))
    tree.say("Dear Anna, ")
    tree.session().draft("thank you ")
    asyncio.run(tree.prepare(model="gpt-4o"))
    tree.absorb(response("for the flour."))
    assert texts(tree, "") == ["Dear Anna, ", "thank you ", "for the flour."]


def test_children_and_siblings_are_what_goes_on(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    left, right = tree.say("A1", after=first.id), tree.say("A2", after=first.id)
    tree.annotate(first.id, "a remark")
    assert [node.seq for node in tree.children()] == [first.seq]
    assert [node.seq for node in tree.children(first.id)] == [left.seq, right.seq]
    assert [node.seq for node in tree.siblings(left.id)] == [right.seq]
    assert tree.siblings(first.id) == []


def test_all_options_of_a_request_have_names_and_types() -> None:
    options = {kind: inspect.signature(kind.prepare).parameters for kind in (LoomTree, Session)}
    for parameters in options.values():
        assert all(
            each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            for each in parameters.values()
        )
        assert [name for name, each in parameters.items() if each.annotation is each.empty] == [
            "self"
        ]
    assert set(options[LoomTree]) == {*options[Session], "agent"}


class SdkResponse:
    """What the SDKs of providers give: an object that can be turned into JSON."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self._value


def test_an_answer_may_be_an_object_of_an_sdk_or_a_message(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    first = tree.say("Q1")
    acted = tree.absorb(SdkResponse(response(f"Yes.\n→ pin {first.short_id}")), agent="critic")
    assert (acted.said, len(acted.results), tree.session("critic").row.usage.prompt) == (
        "Yes.",
        1,
        70,
    )
    acted = tree.absorb(Message("assistant", (Text("No.\n→ list"),)), agent="critic")
    assert (acted.said, len(acted.results)) == ("No.", 1)
    with pytest.raises(WireError, match="role: expected assistant"):
        tree.absorb(Message("user", (Text("Hm?"),)), agent="critic")


# Stores from elsewhere and from before


def test_a_dialogue_goes_on_where_its_store_was_brought_to(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    tree.say("A1", agent="coder")
    with Loom.open(":memory:") as other:
        other.import_lines(loom.export())
        assert list(examine(other.store)) == []
        there = other.tree(tree.id)
        there.say("Q2")
        there.say("A2", agent="coder")
        assert texts(there, "") == ["Q1", "A1", "Q2", "A2"]


def test_agents_of_a_store_that_did_not_know_who_takes_part_take_part(loom: Loom) -> None:
    tree = loom.new_tree("Code")
    tree.say("Q1")
    tree.say("A1", agent="coder")
    with loom.store.database.write() as writer:
        writer.all("DELETE FROM states WHERE kind = 'joined'")
    tree.say("Q2")
    tree.say("A2", agent="coder")
    assert texts(tree, "coder") == texts(tree, "") == ["Q1", "A1", "Q2", "A2"]


def test_chosen_versions_and_responses_of_a_tree_come_into_any_database(loom: Loom) -> None:
    with Loom.open(":memory:") as other:
        made = other.new_tree("Letter", head=TreeHead(mode="buffer"))
        first = made.say("Dear Anna, ")
        made.edit(first.id, "Hello Anna, ")
        made.choose(first.id)
        node = made.absorb(response("thank you.")).node
        value = other.export_tree(made.id)
    assert node is not None
    tree, _ = loom.import_tree(value)
    for _ in range(2):
        assert tree.session().versions() == {first.id: first.id}
        assert '"prompt_tokens":70' in (tree.session().response(node.id) or "")
        assert loom.export_tree(tree.id) == value
        loom.import_tree(value)
    assert list(examine(loom.store)) == []
