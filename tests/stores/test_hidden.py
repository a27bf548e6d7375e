"""What a person excludes or prunes stays hidden from models by every door; the person still sees
it.
"""

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom import CannotFit, Context, Loom, Message, Session, Text, ToolCall, ToolResult
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.canonical import to_json
from loom.conversation.tree import TreeHead
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError
from loom.providers.scripted import ScriptedModel
from loom.stores.health.doctor import examine
from loom.stores.tree.path import Node
from tests.shared import examples
from tests.stores.history import open_loom

pytestmark = pytest.mark.sqlite_first

SECRET = "the combination is heddle-42"
MODEL = Agent(name="ann", permissions=PERMISSIONS)


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def prepared(session: Session, **wishes: object) -> Context:
    return asyncio.run(session.prepare(**({"window": 900, "reserve_output": 100} | wishes)))  # type: ignore[arg-type]


def talk(
    loom: Loom, secret: str = SECRET, agent: str | None = None
) -> tuple[LoomTree, Session, Node]:
    """A tree with a secret early on its path, its session, and the node with the secret."""
    tree = loom.new_tree("Scarf")
    tree.say("What is the goal?", agent=agent)
    node = tree.say(secret, agent=agent)
    for n in range(12):
        tree.say(f"goal message {n} {'word ' * 60}", agent=agent)
    return tree, tree.session(agent), node


def ask(session: Session, name: str, **given: object) -> ToolResult:
    """What a model gets when it calls one of Loom's tools."""
    call = ToolCall("call_1", name, to_json(given))
    session.append(Message("assistant", (call,)))
    message = session.use(call).message
    assert message is not None
    return message.results[0]


def words(result: ToolResult) -> str:
    return "".join(part.text for part in result.parts if isinstance(part, Text))


def marked(context: Context) -> list[str]:
    return sorted({handle for item in context.report.items for handle in item.handles})


@pytest.mark.parametrize("how", ["exclude", "prune"])
def test_a_model_does_not_recall_what_was_hidden_since_and_a_person_does(
    loom: Loom, how: str
) -> None:
    tree, session, node = talk(loom)
    (handle,) = [handle for handle in marked(prepared(session)) if SECRET in session.recall(handle)]
    assert SECRET in words(ask(session, "recall", handle=handle))
    getattr(tree, how)(node.id)
    session = tree.session()
    told = session.recall_shown(handle) if how == "exclude" else None
    if told:
        assert SECRET not in told[0]
        assert "message 0" in told[0]
        assert told[1] == 1
        result = ask(session, "recall", handle=handle, tokens=4000)
        assert SECRET not in words(result)
        assert "1 message excluded or pruned since, and hidden" in words(result)
    else:
        with pytest.raises(ChoiceError, match="stays hidden"):
            session.recall_shown(handle)
    assert SECRET in session.recall(handle)
    assert SECRET in loom.recall(handle)
    assert list(examine(loom.store)) == []


def test_the_handle_of_one_hidden_message_tells_a_model_nothing(loom: Loom) -> None:
    tree, session, node = talk(loom, f"{SECRET} {'long ' * 600}")
    tree.pin(node.id)
    part = next(
        handle
        for handle in marked(prepared(session))
        if session.recall(handle) == f"{SECRET} {'long ' * 600}"
    )
    tree.pin(node.id, on=False)
    prepared(session)
    (hit,) = session.search("heddle", limit=1)
    tree.exclude(node.id)
    for handle in (part, hit.handle):
        result = ask(session, "recall", handle=handle)
        assert result.error
        assert "is now excluded and stays hidden" in words(result)
        assert SECRET in session.recall(handle)
    assert "No message that you no longer see" in words(
        ask(session, "search_context", query="combination heddle")
    )
    tree.exclude(node.id, on=False)
    assert SECRET in words(ask(session, "recall", handle=part))


def test_what_was_recalled_or_pinned_for_a_request_may_be_pruned(loom: Loom) -> None:
    tree, session, node = talk(loom)
    handle = marked(prepared(session))[0]
    result = ask(session, "recall", handle=handle)
    pin = session.path[-1].id
    tree.prune(session.path[4].id)
    context = prepared(session, pins=[pin])
    assert words(result) not in str(context.openai())
    assert any("pruned" in note for note in context.report.notes)
    assert node.id in {step.id for step in session.path}


def test_a_remark_that_was_read_and_then_excluded_is_not_recalled(loom: Loom) -> None:
    tree, session, node = talk(loom, "no secret")
    remark = tree.annotate(node.id, SECRET)
    tree.exclude(remark.id, on=False)
    (handle,) = [handle for handle in marked(prepared(session)) if SECRET in session.recall(handle)]
    assert SECRET in session.recall_shown(handle)[0]
    tree.exclude(remark.id)
    assert SECRET not in session.recall_shown(handle)[0]
    assert SECRET in session.recall(handle)


def test_where_the_version_that_stands_is_excluded_the_node_itself_is_hidden_too(
    loom: Loom,
) -> None:
    tree = loom.new_tree("Poem", head=TreeHead(mode="buffer"))
    node = tree.say(f"{SECRET}.")
    for n in range(12):
        tree.say(f"line {n} {'word ' * 60}")
    session = tree.session()
    (handle,) = [handle for handle in marked(prepared(session)) if SECRET in session.recall(handle)]
    version = tree.edit(node.id, "Nothing.")
    tree.exclude(version.id)
    assert SECRET not in session.recall_shown(handle)[0]


def test_tree_commands_show_a_model_no_words_that_are_hidden(loom: Loom) -> None:
    loom.keep_agent(MODEL)
    tree, session, node = talk(loom, f"{SECRET} {'long ' * 1500}", agent="ann")
    (handle,) = [handle for handle in marked(prepared(session)) if SECRET in session.recall(handle)]
    seen = loom.act(
        tree.id,
        f'→ view {node.short_id}\n→ stash "s" content-of:{node.short_id}\n→ recall "s"',
        agent="ann",
    )
    cut = str(seen).partition("recall ~")[2][:12]
    assert SECRET in session.recall(f"~{cut}")
    assert SECRET in str(prepared(tree.session("ann"), window=20_000).openai())
    tree.exclude(node.id, agent="bob")
    asked = [
        f"view {node.short_id}",
        "tree",
        'search "combination"',
        f"recall {handle}",
        f"recall ~{cut}",
        "memory",
        "memory stashed",
    ]
    asked += [
        f'stash "again" content-of:{node.short_id}',
        f"pin {node.short_id}",
        "memory",
        "pin result:1",
    ]
    for command in asked:
        assert "heddle" not in str(loom.act(tree.id, f"→ {command}", agent="ann"))
        assert "heddle" not in str(prepared(tree.session("ann"), window=20_000).openai())
    loom.keep_agent(Agent(name="bob", kind="human"))
    tree.switch(session.path[-1].id, agent="bob")
    assert SECRET in str(loom.act(tree.id, f"→ view {node.short_id}", agent="bob"))
    assert SECRET in str(loom.act(tree.id, '→ search "heddle"', agent="bob"))


def test_listed_branches_that_are_pruned_show_a_model_no_words(loom: Loom) -> None:
    loom.keep_agent(MODEL)
    tree, _, node = talk(loom, agent="ann")
    child = tree.say("below it: heddle-43", after=node.id, agent="ann")
    tree.switch(node.id, agent="ann")
    tree.prune(child.id, agent="bob")
    for command in ("list", "tree", f"view {child.short_id}", 'search "below"'):
        assert "heddle-43" not in str(loom.act(tree.id, f"→ {command}", agent="ann"))


def test_a_handoff_tells_nothing_that_is_hidden_also_if_it_was_made_before(loom: Loom) -> None:
    tree = loom.new_tree("Scarf")
    goal = tree.say(f"Do this: {SECRET}")
    tree.say("And this: weave.")
    for n in range(40):
        tree.say(f"message {n} {'word ' * 60}", role="assistant" if n % 2 else "user")
    session = tree.session()
    for _ in range(3):
        context = prepared(session, policy="partitions", window=2000)
        tree.say(f"more {'word ' * 400}")
        session = tree.session()
    assert SECRET in str(context.openai())
    assert "Handoff Document" in str(context.openai())
    tree.exclude(goal.id)
    assert SECRET not in session.resume().handoff.goal
    context = prepared(session, policy="partitions", window=2000)
    assert "Handoff Document" in str(context.openai())
    assert SECRET not in str(context.openai())
    again = prepared(session, policy="partitions", window=2000)
    assert again.report.epoch_reason == "continued"


def test_no_model_is_asked_to_sum_up_what_is_hidden(address: str) -> None:
    model = ScriptedModel.always("a summary")
    asked: list[str] = []

    async def listening(request: object) -> object:
        asked.append(str(request))
        return await model(request)

    with open_loom(address) as loom:
        loom.model = listening
        tree = loom.new_tree("Scarf")
        tree.say("Read it.")
        session = tree.session()
        call = ToolCall("c1", "read", "{}")
        session.append(Message("assistant", (call,)))
        (node,) = session.append(
            Message("tool", (ToolResult("c1", (Text(f"{SECRET} {'word ' * 4000}"),)),))
        )
        tree.exclude(node.id)
        session = tree.session()
        asyncio.run(session._summaries.make_due())
    assert SECRET not in "".join(asked)


@settings(deadline=None, max_examples=examples(18), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_handle_gives_a_model_words_that_are_hidden_and_each_gives_all_others(
    tmp_path: Path, data: st.DataObject
) -> None:
    with open_loom(str(tmp_path / f"{next(_numbers)}.db")) as loom:
        tree = loom.new_tree("Scarf")
        parents: dict[str, str] = {}
        handles: set[str] = set()
        excluded: set[str] = set()
        pruned: set[str] = set()
        for _ in range(data.draw(st.integers(4, 24))):
            node = data.draw(st.sampled_from(sorted(parents))) if parents else ""
            match data.draw(
                st.sampled_from(
                    ["say", "say", "say", "prepare", "exclude", "include", "prune", "restore"]
                )
            ):
                case "prepare" if parents:
                    session = tree.session()
                    with suppress(CannotFit, ChoiceError):
                        handles.update(marked(prepared(session, window=500, reserve_output=50)))
                        handles.update(hit.handle for hit in session.search("word", limit=2))
                case "exclude" | "include" as how if node:
                    tree.exclude(node, on=how == "exclude")
                    (excluded.add if how == "exclude" else excluded.discard)(node)
                case "prune" if node:
                    tree.prune(node)
                    pruned.add(node)
                case "restore" if node:
                    with suppress(ChoiceError):
                        tree.restore(node)
                        pruned.discard(node)
                case _:
                    with suppress(ChoiceError):
                        made = tree.say(
                            f"node{len(parents):03} {'word ' * 40}",
                            after=node if data.draw(st.booleans()) else None,
                        )
                        parents[made.id] = _above(tree, made)
        session = tree.session()
        for handle in handles:
            whole = session.recall(handle)
            told = _tokens(whole)
            hidden = {
                _token(tree, name)
                for name in parents
                if name in excluded or _is_pruned(name, parents, pruned)
            }
            try:
                shown = _tokens(session.recall_shown(handle)[0])
            except ChoiceError:
                shown = set()
            assert shown == told - hidden


_numbers = itertools.count()


def _above(tree: LoomTree, node: Node) -> str:
    return tree.read([node.parent])[node.parent].id if node.parent is not None else ""


def _is_pruned(name: str, parents: dict[str, str], pruned: set[str]) -> bool:
    while name:
        if name in pruned:
            return True
        name = parents[name]
    return False


def _token(tree: LoomTree, name: str) -> str:
    message = tree.node(name).message
    assert message is not None
    return message.text[:7]


def _tokens(text: str) -> set[str]:
    return set(re.findall(r"node\d{3}", text))
