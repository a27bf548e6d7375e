"""A conversation that branches, and an agent that works in it: what it reads, what it does, and the
results.

    python examples/branching_agent.py

The agent is scripted. For a real one, send `context.openai()` (or another dialect) to a provider,
and give the answer to `store.act`.
"""

import asyncio

import loom


def main() -> None:
    with loom.Loom.open(":memory:") as store:
        tree = store.new_tree("Selvedges", head=loom.TreeHead(system_context="You teach weaving."))
        tree.say("My selvedges pucker. What do I do?")
        answer = tree.say("Loosen the weft at the edge.", role="assistant")
        asked = tree.say("And with linen?")
        tree.say("Wet it first.", role="assistant")
        tree.edit(asked.short_id, "And with silk?")  # a branch next to it; nothing is lost

        store.keep_agent(loom.Agent(name="tutor", permissions=("loom_aware", "loom_write")))
        script = [
            f"→ tree\n→ view {answer.short_id}\n→ think Silk slips. ←",
            "Use a temple, and beat gently.\n→ bookmark "
            + answer.short_id
            + ' "the rule"\n→ stash "next" "ask about the sett"',
            '→ continue\n→ annotate nope "x"\n→ memory',
        ]
        for turn, scripted in enumerate(script, 1):
            context = asyncio.run(tree.prepare(agent="tutor", model="gpt-4o"))
            print(
                f"── turn {turn}: the agent reads {context.report.input_tokens} tokens, which "
                "end with\n"
            )
            print(context.conversation.messages[-1].text)
            print("\n── its commands return\n")
            print(store.act(tree.id, scripted, agent="tutor"), end="\n\n")


if __name__ == "__main__":
    main()
