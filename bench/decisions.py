"""How long the questions to a large decision graph take.

python bench/decisions.py [--count 50000] [--store URL]
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from loom import Loom
from loom.decisions.values import KINDS, DecisionBody, NewDecision, NewEdge
from loom.stores import GraphWriter
from loom.types import ProjectDecisions

WORDS = (
    *("token", "cache", "retry", "parser", "index", "schema", "login", "queue", "export", "budget"),
    *("window", "policy", "router", "worker", "metric", "config", "search", "report", "stream"),
)
BATCH = 2000


def fill(loom: Loom, count: int, sessions: list[str]) -> None:
    """Log this many decisions with about as many edges."""
    dice = random.Random(1)
    scope, now = loom.decisions.scope, 1_800_000_000_000
    for start in range(0, count, BATCH):
        with loom.store.database.write() as writer:
            graph = GraphWriter(writer, scope, now + start)
            parent = ""
            for number in range(start, min(start + BATCH, count)):
                title = f"{' '.join(dice.sample(WORDS, 4))} {number}"
                new = NewDecision(
                    body=DecisionBody(title=title, description=" ".join(dice.sample(WORDS, 8))),
                    kind=dice.choice(KINDS),
                    confidence=dice.choice((None, 30, 80)),
                    session=dice.choice(sessions),
                    parent=parent,
                )
                made = graph.log(new, NewEdge()).decision
                parent = made.id if dice.random() < 0.7 else ""
                if dice.random() < 0.2:
                    graph.abandon(made.id, {})


def measure(work: Callable[[], object], rounds: int = 21) -> float:
    """The median of the times of a question, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def questions(decisions: ProjectDecisions, session: str) -> dict[str, Callable[[], object]]:
    """What requests ask at every turn, and the others."""
    return {
        "active_goals(10)": lambda: decisions.active_goals(10),
        "recent(5)": lambda: decisions.recent(5),
        "of_session(20)": lambda: decisions.of_session(session, 20),
        "prior(10)": lambda: decisions.prior(10),
        "revision": lambda: decisions.revision,
        "search": lambda: decisions.search("retry the login queue 4711", 10),
        "pulse (cached)": decisions.pulse,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000, help="decisions in the graph")
    parser.add_argument("--store", help="an empty store (default: a new file)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.store or str(Path(folder) / "loom.db")
        with Loom.open(url, now=lambda: 1_800_000_100_000) as loom:
            sessions = [loom.new().id for _ in range(100)]
            start = time.perf_counter()
            fill(loom, given.count, sessions)
            taken = time.perf_counter() - start
            print(f"{given.count:,} decisions logged in {taken:.1f} s")
            start = time.perf_counter()
            loom.decisions.pulse()
            print(f"{'pulse (first)':<18} {(time.perf_counter() - start) * 1000:8.2f} ms")
            for name, work in questions(loom.decisions, sessions[7]).items():
                print(f"{name:<18} {measure(work):8.2f} ms")


if __name__ == "__main__":
    main()
