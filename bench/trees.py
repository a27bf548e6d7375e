"""What large trees cost: python bench/trees.py [--nodes 10000] [--store URL]

Prints, for a tree of N nodes in N/10 branches and for one ten times smaller, the time to bring it
in, to draw it, to weave a request at the end of a branch (also for an agent that knows the loom),
and to carry out commands; with the ratio of the two.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from loom import Agent, Loom, LoomTree, Message, Text, Tree
from loom.conversation.outline import outline
from loom.conversation.tree import Flags, TreeNode

WORDS = ["warp", "weft", "shuttle", "reed", "heddle", "selvedge", "pick", "shed", "beam", "sett"]


def grown(nodes: int) -> Tree:
    """A trunk of a tenth of the nodes, with a branch of nine at each of its nodes; a few are
    excluded or bookmarked.
    """
    chance = random.Random(nodes)
    made: list[TreeNode] = []

    def add(number: int, parent: int | None) -> None:
        text = " ".join(chance.choices(WORDS, k=chance.randrange(5, 80)))
        message = Message("assistant" if len(made) % 2 else "user", (Text(f"{number} {text}"),))
        flags = Flags(excluded=chance.random() < 0.02, bookmarked=chance.random() < 0.02)
        made.append(
            TreeNode(
                id=f"n{number}",
                message=message,
                parent="" if parent is None else f"n{parent}",
                flags=flags,
            )
        )

    trunk = nodes // 10
    for number in range(trunk):
        add(number, number - 1 if number else None)
    for branch in range(trunk):
        for step in range(9):
            number = trunk + branch * 9 + step
            add(number, branch if step == 0 else number - 1)
    return Tree(id=f"tree{nodes}", nodes=tuple(made), current=f"n{nodes - 1}")


def best(run: Callable[[], object], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begin)
    return min(taken) * 1000


def draw(tree: LoomTree) -> None:
    here = tree.position()
    lines = outline(tree.twigs(), at=here.seq if here else None)
    tree.read([line.twig.key for line in lines if line.twig])


def measured(loom: Loom, nodes: int) -> dict[str, float]:
    value = grown(nodes)
    begin = time.perf_counter()
    tree, _ = loom.import_tree(value)
    taken = {
        "bring it in": (time.perf_counter() - begin) * 1000,
        "draw it": best(lambda: draw(tree)),
    }

    def weave(agent: str) -> Callable[[], object]:
        return lambda: asyncio.run(
            tree.prepare(agent=agent, window=16_000, model="gpt-4o", preview=True)
        )

    taken["a request of 16k"] = best(weave(""))
    taken["the same for an agent"] = best(weave("bot"))
    taken["→ tree, → list, → search"] = best(
        lambda: loom.act(tree.id, '→ tree\n→ list\n→ search "selvedge"', agent="bot")
    )
    taken["take it out"] = best(lambda: loom.export_tree(tree.id), 2)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--store", help="where; a file in a temporary folder by default")
    asked = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        Loom.open(asked.store or Path(folder) / "trees.db") as loom,
    ):
        loom.keep_agent(Agent(name="bot", permissions=("loom_aware",)))
        small, large = measured(loom, asked.nodes // 10), measured(loom, asked.nodes)
    print(f"{'milliseconds':28} {asked.nodes // 10:>9,} {asked.nodes:>9,}  ratio")
    for name, taken in large.items():
        print(f"{name:28} {small[name]:>9.1f} {taken:>9.1f}  {taken / small[name]:5.1f}")


if __name__ == "__main__":
    main()
