"""Ten thousand requests of mixed sizes through one process: memory is flat after the first
thousand.

python bench/memory.py [--requests 10000]
Two thirds go through `weave` (new conversations of a few bytes to a megabyte, and conversations
that grow call by call), a third through sessions of a store. It prints the resident memory as it
goes, and ends with status 1 where the most after the first tenth is more than a tenth above what it
was there (and 16 MB more).
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loom import Loom, weave
from loom.context.report import Report
from scale import OUTPUT, PROSE

WINDOWS = (4_000, 16_000, 64_000)
MODELS = ("gpt-4o", "claude-sonnet-4-5", "llama-3-8b", "")
SLACK_BYTES = 16_000_000
MARKS = 20


def resident() -> int:
    """Bytes of memory that this process takes now."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def conversation(rng: random.Random) -> list[dict[str, Any]]:
    """A few messages or many, small or large; now and then one of a megabyte."""
    size = min(1_000_000, int(200 * 1.5 ** rng.uniform(0, 21)))
    said: list[dict[str, Any]] = [{"role": "system", "content": "You work on a service."}]
    left = size
    while left > 0:
        length = min(left, rng.choice((40, 400, 4_000, 40_000)))
        said.append({"role": "user", "content": cut(PROSE, length, rng)})
        said.append({"role": "assistant", "content": cut(OUTPUT, length, rng)})
        left -= 2 * length
    return [*said, {"role": "user", "content": f"And {rng.randrange(10**9)}?"}]


def cut(pool: str, length: int, rng: random.Random) -> str:
    start = rng.randrange(max(1, len(pool) - length))
    return f"{rng.randrange(10**9)} {pool[start : start + length]}"


def new_conversations(rng: random.Random) -> Iterator[None]:
    while True:
        weave(
            conversation(rng),
            model=rng.choice(MODELS),
            window=rng.choice(WINDOWS),
            reserve_output=500,
        )
        yield


def growing_conversations(rng: random.Random) -> Iterator[None]:
    """Each goes on for sixty calls, from report to report."""
    while True:
        said = conversation(rng)[:100]
        report: Report | None = None
        for _ in range(60):
            report = weave(
                said, model="gpt-4o", window=16_000, reserve_output=500, previous=report
            ).report
            said = [
                *said,
                {"role": "assistant", "content": cut(OUTPUT, 800, rng)},
                {"role": "user", "content": cut(PROSE, 80, rng)},
            ]
            yield


def kept_sessions(loom: Loom, rng: random.Random) -> Iterator[None]:
    while True:
        session = loom.new(model="gpt-4o")
        session.append(*conversation(rng)[1:200])
        for _ in range(40):
            asyncio.run(session.prepare(window=16_000))
            session.absorb(
                {"choices": [{"message": {"role": "assistant", "content": cut(OUTPUT, 800, rng)}}]}
            )
            session.append(cut(PROSE, 80, rng))
            yield
        session.purge()


def main() -> int:
    options = argparse.ArgumentParser(description="Memory over many requests in one process.")
    options.add_argument("--requests", type=int, default=10_000)
    count = options.parse_args().requests
    rng = random.Random(7)
    start, taken = resident(), list[int]()
    print(f"start {start / 1e6:,.0f} MB", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="loom-memory-") as folder,
        Loom.open(Path(folder) / "loom.db") as loom,
    ):
        kinds = [new_conversations(rng), growing_conversations(rng), kept_sessions(loom, rng)]
        for number in range(1, count + 1):
            next(kinds[number % 3])
            if number % max(1, count // 100) == 0:
                taken.append(resident())
            if number % max(1, count // MARKS) == 0:
                print(f"{number:>8,} requests {taken[-1] / 1e6:>8,.0f} MB", flush=True)
    early, most = max(taken[: len(taken) // 10]), max(taken)
    print(
        f"most in the first tenth {early / 1e6:,.0f} MB, afterwards {most / 1e6:,.0f} MB "
        f"({most / early:.2f})"
    )
    wrong: list[str] = []
    if most > 1.1 * early + SLACK_BYTES:
        wrong.append("memory grows with the number of requests")
    print("\n".join(f"wrong: {what}" for what in wrong) or "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
