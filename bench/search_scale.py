"""Search in a store of a million messages: how fast, how large the index, and what appending costs.

    python bench/search_scale.py [--messages N] [--sessions N] [--quick] [--store URL]

One session has a fifth of all messages; the others share the rest. Texts are words of a made
language, in which few words are said often and most seldom (as in every language), with numbers and
names. Questions are taken from messages: two rare words of one, and one to three that are common.

Targets at 1,000,000 messages: 95 of 100 searches in a session under 100 ms, and of those across all
sessions under 300 ms.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom import Loom, Message, Text
from loom.engine import indexer
from loom.stores.sql.database import open_database

SESSION_LIMIT_MS, ALL_LIMIT_MS = 100.0, 300.0
CHUNK = 100  # messages in one append
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "is")]


def make_words(count: int, chance: random.Random) -> list[str]:
    """Different words, the ones that are said most often first."""
    words: dict[str, None] = {}
    while len(words) < count:
        words["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4)))] = None
    return list(words)


class Texts:
    """Texts whose words are said as often as in a language: the n-th about 1/n as often."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._words = make_words(60_000, chance)
        total, self._ends = 0.0, []
        for rank in range(1, len(self._words) + 1):
            total += 1 / (rank + 2)
            self._ends.append(total)

    def make(self, number: int) -> str:
        size = min(max(int(self._chance.lognormvariate(3.6, 0.9)), 4), 600)
        words = self._chance.choices(self._words, cum_weights=self._ends, k=size)
        words[self._chance.randrange(size)] = f"item_{number}"
        return " ".join(words)

    def ask(self, text: str) -> str:
        words = sorted(set(text.split()), key=self.rank, reverse=True)
        picked = words[:2] + self._chance.sample(self._words[:200], self._chance.randint(1, 3))
        self._chance.shuffle(picked)
        return " ".join(picked)

    def rank(self, word: str) -> int:
        if not hasattr(self, "_ranks"):
            self._ranks = {each: rank for rank, each in enumerate(self._words)}
        return self._ranks.get(word, len(self._words))


def chunks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, CHUNK):
        yield start, min(start + CHUNK, count)


def messages_of(texts: Texts, start: int, stop: int) -> list[Message]:
    roles = ("user", "assistant")
    return [Message(roles[n % 2], (Text(texts.make(n)),)) for n in range(start, stop)]


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)] * 1000


def fill(loom: Loom, texts: Texts, count: int, sessions: int) -> tuple[list[str], float]:
    """Write the messages; the sessions, the long one first, and the seconds that appending took."""
    made = [loom.new(f"session {number}") for number in range(sessions)]
    spent = 0.0
    for number, (start, stop) in enumerate(chunks(count)):
        session = made[0 if number % 5 == 0 else 1 + number % (sessions - 1)]
        messages = messages_of(texts, start, stop)
        begun = time.perf_counter()
        session.append(*messages)
        spent += time.perf_counter() - begun
    return [session.id for session in made], spent


def measure(search: Any, questions: list[str]) -> dict[str, float]:
    times, used, hits = list[float](), list[float](), 0
    for question in questions:
        begun, busy = time.perf_counter(), time.process_time()
        hits += len(search(question))
        times.append(time.perf_counter() - begun)
        used.append(time.process_time() - busy)
    return {
        "p50_ms": round(percentile(times, 0.5), 1),
        "p95_ms": round(percentile(times, 0.95), 1),
        "p95_cpu_ms": round(percentile(used, 0.95), 1),
        "most_ms": round(max(times) * 1000, 1),
        "hits": round(hits / len(questions), 1),
    }


def first_search(store: str, session: str, question: str) -> dict[str, float]:
    """The first search of a process that was just started."""
    code = (
        "import sys, time\n"
        "from loom import Loom\n"
        "loom = Loom.open(sys.argv[1])\n"
        "begun = time.perf_counter()\n"
        "found = loom.session(sys.argv[2]) if sys.argv[2] else loom\n"
        "found.search(sys.argv[3])\n"
        "print(round((time.perf_counter() - begun) * 1000, 1))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, store, session, question],
        capture_output=True,
        text=True,
        check=True,
    )
    return {"ms": float(found.stdout)}


def sizes_of(store: str) -> tuple[float, float]:
    """Megabytes of the messages, with all that is stored for them, and of the index."""
    database = open_database(store)
    try:
        with database.read() as reader:
            rows = reader.all(_SIZES[database.name])
    finally:
        database.close()
    index = sum(size for name, size in rows if "search_" in name or name == "nodes_tree")
    return (sum(size for _, size in rows) - index) / 2**20, index / 2**20


_SIZES = {
    "sqlite": "SELECT name, sum(pgsize) FROM dbstat GROUP BY name",
    "postgres": "SELECT relname::text, pg_total_relation_size(oid) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = to_regnamespace(current_schema())",
}


def tell(figures: dict[str, Any], name: str, value: Any) -> None:
    figures[name] = value
    print(f"{time.strftime('%H:%M:%S')} {name}: {json.dumps(value)}", flush=True)


def run(store: str, count: int, sessions: int, asked: int) -> dict[str, Any]:
    texts = Texts(random.Random(17))
    figures: dict[str, Any] = {"messages": count, "sessions": sessions}
    wanted, indexer.MIN_WRITTEN = indexer.MIN_WRITTEN, 1 << 60
    with Loom.open(store) as loom:
        names, seconds = fill(loom, texts, count, sessions)
        tell(figures, "append_per_s", round(count / seconds))
    indexer.MIN_WRITTEN = wanted
    with Loom.open(store) as loom:
        begun = time.perf_counter()
        loom.index()
        tell(figures, "index_per_s", round(count / (time.perf_counter() - begun)))
    messages_mb, index_mb = sizes_of(store)
    tell(figures, "messages_mb", round(messages_mb, 1))
    tell(figures, "index_mb", round(index_mb, 1))
    tell(figures, "index_share", round(index_mb / messages_mb, 3))
    with Loom.open(store) as loom:
        long, short = loom.session(names[0]), loom.session(names[1])
        said = [
            session.path[random.Random(n).randrange(len(session.path))].message
            for n in range(asked)
            for session in (long, short)
        ]
        questions = [texts.ask(message.text) for message in said if message is not None]
        tell(figures, "long_session_messages", len(long.path))
        tell(figures, "first_in_session", first_search(store, short.id, questions[0]))
        tell(figures, "first_across", first_search(store, "", questions[0]))
        tell(figures, "long_session", measure(long.search, questions[:asked]))
        tell(figures, "short_session", measure(short.search, questions[:asked]))
        tell(figures, "across", measure(loom.search, questions[:asked]))
        more = min(20_000, count)
        with_index = loom.new("more")
        seconds = 0.0
        for start, stop in chunks(more):
            messages = messages_of(texts, start, stop)
            begun = time.perf_counter()
            with_index.append(*messages)
            seconds += time.perf_counter() - begun
        tell(figures, "append_while_indexing_per_s", round(more / seconds))
        loom.indexer.wait()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="20,000 messages in 50 sessions")
    parser.add_argument("--store", help="a new store (default: a file that is removed)")
    given = parser.parse_args()
    count, sessions = given.messages, given.sessions
    if given.quick:
        count, sessions = 20_000, 50
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or os.fspath(Path(folder) / "loom.db")
        figures = run(store, count, sessions, given.questions)
    slow = (
        max(figures["long_session"]["p95_ms"], figures["short_session"]["p95_ms"])
        > SESSION_LIMIT_MS
        or figures["across"]["p95_ms"] > ALL_LIMIT_MS
    )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
