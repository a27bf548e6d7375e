"""The section of a decision graph of 50,000 decisions: how long it takes to write it.

    python bench/decision_context.py [--decisions N] [--asks N] [--store URL]

A tenth of the decisions are active goals, a tenth are superseded or abandoned, and one session has
a fifth of them. Titles are words of a made language, in which few words are said often. Each
question has words of a decision and common ones. Nothing is remembered from one question to the
next.

Target: the median of the questions under 20 ms of processor time.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from loom import Loom
from loom.context.caches import Caches
from loom.context.options import check_options
from loom.conversation.message import Conversation
from loom.decisions.values import DecisionBody, NewDecision, decision_id
from loom.engine.sources.decisions import DecisionQuestion, write_decisions
from loom.stores import DecisionScope, GraphWriter
from loom.stores.decisions.rows import decision_terms
from loom.stores.decisions.writing import insert_decision

LIMIT_MS = 20.0
KINDS = ("decision", "option", "action", "outcome", "observation")
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]


def make_titles(count: int, chance: random.Random) -> list[str]:
    """Titles whose words are said as often as in a language: the n-th about 1/n as often."""
    words = list(dict.fromkeys("".join(chance.choices(SYLLABLES, k=3)) for _ in range(20_000)))
    ends, total = [], 0.0
    for rank in range(len(words)):
        total += 1 / (rank + 2)
        ends.append(total)
    return [
        " ".join((*chance.choices(words, cum_weights=ends, k=chance.randint(3, 9)), f"item_{n}"))
        for n in range(count)
    ]


def fill(loom: Loom, session: str, titles: list[str], chance: random.Random) -> DecisionScope:
    """Write a decision for each title, the oldest first."""
    scope = DecisionScope(loom.scope.tenant, loom.scope.project)
    now = loom.now()

    def write(graph: GraphWriter) -> None:
        terms = []
        for n, title in enumerate(titles):
            body = DecisionBody(title=title, description=" ".join(reversed(title.split())))
            new = NewDecision(
                body=body,
                kind="goal" if n % 10 == 0 else chance.choice(KINDS),
                confidence=n % 101,
                session=session if n % 5 == 0 else "",
            )
            status = "abandoned" if n % 10 == 3 else "active"
            moment = now - 60_000 * (len(titles) - n)
            key = insert_decision(graph.writer, graph.key, decision_id(new), new, status, moment)
            terms += [(graph.key, term, key) for term in decision_terms(body)]
        graph.writer.run_many(
            "INSERT INTO decision_terms (graph, term, decision) VALUES ($1, $2, $3)", terms
        )
        graph.count_change()

    loom.store.decisions.write(scope, now, write)
    return scope


def measure(
    loom: Loom, session: str, scope: DecisionScope, questions: list[str]
) -> list[tuple[float, float]]:
    """The milliseconds of each question, of the processor and of the clock, with nothing
    remembered.
    """
    took = []
    for policy in ("default", "window"):
        for asked in questions:
            options = check_options(policy=policy, model="gpt-4o")
            options = replace(options, caches=Caches())
            begun, worked = time.perf_counter(), time.process_time()
            made = write_decisions(
                loom.store,
                DecisionQuestion(scope, session, asked),
                options,
                Conversation(messages=()),
            )
            worked = time.process_time() - worked
            took.append((worked * 1000, (time.perf_counter() - begun) * 1000))
            assert made.text
            assert made.note
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=50_000)
    parser.add_argument("--asks", type=int, default=50)
    parser.add_argument("--store")
    given = parser.parse_args()
    chance = random.Random(1)
    titles = make_titles(given.decisions, chance)
    asked = [" ".join(chance.choice(titles).split()[:4]) for _ in range(given.asks)]
    with (
        tempfile.TemporaryDirectory() as folder,
        Loom.open(given.store or Path(folder) / "loom.db") as loom,
    ):
        session = loom.new().id
        begun = time.perf_counter()
        scope = fill(loom, session, titles, chance)
        print(f"{given.decisions:,} decisions written in {time.perf_counter() - begun:.1f} s")
        questions = [f"What about {words}? Please look at it again." for words in asked]
        took = measure(loom, session, scope, questions)
    for what, values in zip(("processor", "clock"), zip(*took, strict=True), strict=True):
        late = sorted(values)[int(len(values) * 0.95)]
        print(f"{what}: median {statistics.median(values):.1f} ms, 95 of 100 within {late:.1f} ms")
    median = statistics.median(worked for worked, _ in took)
    print(f"target: median under {LIMIT_MS:.0f} ms: {'met' if median < LIMIT_MS else 'missed'}")


if __name__ == "__main__":
    main()
