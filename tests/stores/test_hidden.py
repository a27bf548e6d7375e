"""What a person excludes or prunes stays hidden from models by every door; the person still sees it."""

import asyncio
from collections.abc import Iterator

import pytest

from loom import Context, Loom, Message, Session, Text, ToolCall, ToolResult
from loom.conversation.agents import PERMISSIONS, Agent
from loom.conversation.canonical import to_json
from loom.conversation.tree import TreeHead
from loom.engine.trees import LoomTree
from loom.errors import ChoiceError
from loom.providers.scripted import ScriptedModel
from loom.stores.doctor import examine
from loom.stores.path import Node
from tests.stores.history import open_loom

SECRET = "the combination is heddle-42"
MODEL = Agent(name="ann", permissions=PERMISSIONS)


@pytest.fixture
def loom(address: str) -> Iterator[Loom]:
    with open_loom(address) as loom:
        yield loom


def prepared(session: Session, **wishes: object) -> Context:
    return asyncio.run(session.prepare(**({"window": 900, "reserve_output": 100} | wishes)))  # type: ignore[arg-type]


def talk(loom: Loom, secret: str = SECRET, agent: str | None = None) -> tuple[LoomTree, Session, Node]:
    """A tree with a secret early on its path, its session, and the node with the secret."""
    tree = loom.new_tree("Scarf")
    tree.say("What is the goal?", agent=agent)
    node = tree.say(secret, agent=agent)
    for n in range(12):
        tree.say(f"message {n} {'word ' * 60}", agent=agent)
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
def test_a_model_does_not_recall_what_was_hidden_since_and_a_person_does(loom: Loom, how: str) -> None:
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
    part = next(handle for handle in marked(prepared(session)) if session.recall(handle) == f"{SECRET} {'long ' * 600}")
    tree.pin(node.id, on=False)
    prepared(session)
    (hit,) = session.search("heddle", limit=1)
    tree.exclude(node.id)
    for handle in (part, hit.handle):
        result = ask(session, "recall", handle=handle)
        assert result.error
        assert "is excluded by now and stays hidden" in words(result)
        assert SECRET in session.recall(handle)
    assert "Nothing that you no longer see" in words(ask(session, "search_context", query="combination heddle"))
    tree.exclude(node.id, on=False)
    assert SECRET in words(ask(session, "recall", handle=part))


def test_a_remark_that_was_read_and_then_excluded_is_not_recalled(loom: Loom) -> None:
    tree, session, node = talk(loom, "no secret")
    remark = tree.annotate(node.id, SECRET)
    tree.exclude(remark.id, on=False)
    (handle,) = [handle for handle in marked(prepared(session)) if SECRET in session.recall(handle)]
    assert SECRET in session.recall_shown(handle)[0]
    tree.exclude(remark.id)
    assert SECRET not in session.recall_shown(handle)[0]
    assert SECRET in session.recall(handle)


def test_where_the_version_that_stands_is_excluded_the_node_itself_is_hidden_too(loom: Loom) -> None:
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
    seen = loom.act(tree.id, f'→ view {node.local}\n→ stash "s" content-of:{node.local}\n→ recall "s"', agent="ann")
    cut = str(seen).partition("recall ~")[2][:12]
    assert SECRET in session.recall(f"~{cut}")
    assert SECRET in str(prepared(tree.session("ann"), window=20_000).openai())
    tree.exclude(node.id, agent="bob")
    asked = [f"view {node.local}", "tree", 'search "combination"', f"recall {handle}", f"recall ~{cut}", "memory", "memory stashed"]
    asked += [f'stash "again" content-of:{node.local}', f"pin {node.local}", "memory", "pin result:1"]
    for command in asked:
        assert "heddle" not in str(loom.act(tree.id, f"→ {command}", agent="ann"))
        assert "heddle" not in str(prepared(tree.session("ann"), window=20_000).openai())
    loom.keep_agent(Agent(name="bob", kind="human"))
    tree.switch(session.path[-1].id, agent="bob")
    assert SECRET in str(loom.act(tree.id, f"→ view {node.local}", agent="bob"))
    assert SECRET in str(loom.act(tree.id, '→ search "heddle"', agent="bob"))


def test_listed_branches_that_are_pruned_show_a_model_no_words(loom: Loom) -> None:
    loom.keep_agent(MODEL)
    tree, _, node = talk(loom, agent="ann")
    child = tree.say("below it: heddle-43", after=node.id, agent="ann")
    tree.switch(node.id, agent="ann")
    tree.prune(child.id, agent="bob")
    for command in ("list", "tree", f"view {child.local}", 'search "below"'):
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
        (node,) = session.append(Message("tool", (ToolResult("c1", (Text(f"{SECRET} {'word ' * 4000}"),)),)))
        tree.exclude(node.id)
        session = tree.session()
        asyncio.run(session._sum_up_what_is_due())
    assert SECRET not in "".join(asked)
