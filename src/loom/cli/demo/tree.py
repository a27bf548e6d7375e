"""The fourth part of the demo: a conversation that branches, and an agent that works in it."""

import asyncio

from loom.cli.terminal import dim, say, style
from loom.cli.tree.show import print_tree
from loom.conversation.agents import Agent
from loom.conversation.tree import TreeHead
from loom.engine.loom import Loom
from loom.engine.trees import LoomTree


def grow_tree(loom: Loom) -> LoomTree:
    """A talk in which a question was asked again in other words, and an answer was marked."""
    tree = loom.new_tree(
        "Retries", head=TreeHead(system_context="You are a careful engineer."), identity="retries"
    )
    tree.say("Why does a retry charge twice?")
    found = tree.say(
        "The key of a request is made anew for each attempt, so the second one is not known.",
        role="assistant",
    )
    asked = tree.say("Make the key from the order.")
    wrong = tree.say(
        "Done: the key is a hash of the order. But an order may be paid in parts.", role="assistant"
    )
    tree.edit(asked.id, "Keep the key of the first attempt.")
    tree.say("Done: it is stored with the attempt, and a test proves it.", role="assistant")
    tree.bookmark(found.id, "the cause")
    tree.exclude(wrong.id)
    return tree


def branch(loom: Loom) -> None:
    """Draw the tree."""
    tree = grow_tree(loom)
    here = tree.position()
    print_tree(loom, tree, tree.twigs(), here.seq if here else None)


def wander(loom: Loom) -> int:
    """Let a scripted agent act on the tree; return the number of broken promises: 0."""
    tree = loom.tree("retries")
    first = tree.session().path[0].short_id
    loom.keep_agent(Agent(name="reviewer", permissions=("loom_aware", "loom_write")))
    before = asyncio.run(tree.prepare(agent="reviewer"))
    answer = (
        'The test should pay in parts too.\n→ search "parts"\n'
        f'→ annotate {first} "see ticket 4711"\n→ view nope'
    )
    acted = loom.act(tree.id, answer, agent="reviewer")
    say(f"  {style('reviewer', fg='green')}  {acted.said}")
    for result in acted.results:
        say(f"            {style(result.command, fg='yellow')}")
        for line in result.text.splitlines():
            say(f"              {style(line, fg='red') if result.failed else dim(line)}")
    after = asyncio.run(tree.prepare(agent="reviewer"))
    stable = (
        after.conversation.messages[: len(before.conversation.messages) - 1]
        == before.conversation.messages[:-1]
    )
    if stable:
        verdict = style(
            "✓ what the agent read before is unchanged; the new results follow it", fg="green"
        )
    else:
        verdict = style("✗ what the agent read before has changed", fg="red")
    say(f"\n  {verdict}")
    return not stable
