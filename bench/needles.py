"""A hundred identifiers planted in 5,000 messages: how many still stand in a context of 32,000
tokens, and how long that takes.

python bench/needles.py [--json]     (shared definitions: LOOM_SHARED, or ../shared)
The context is an extract in 60 % of the tokens and the newest messages verbatim in the rest.
Nothing here is a test.

index    seconds to take in all messages, one by one
extract  seconds to choose and write the lines, the best of three; the index is there
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from loom.budget.tokenizers import tokenizer
from loom.context.cover.anchors import AnchorIndex
from loom.context.cover.extract import extract
from loom.conversation.turns import Span
from loom.dialects import DIALECTS

SHARED = Path(
    os.environ.get("LOOM_SHARED", Path(__file__).resolve().parent.parent / ".." / "shared")
).resolve()
if not (SHARED / "bench" / "transcripts.py").exists():
    sys.exit(f"no bench/transcripts.py in {SHARED}: set LOOM_SHARED to the folder that holds it")
sys.path.insert(0, str(SHARED / "bench"))

import measures  # noqa: E402 - it lies beside the shared data
import transcripts  # noqa: E402

BUDGET = 32_000
EXTRACT = 0.6  # of the budget
WANTED = 60

Row = dict[str, Any]
count = tokenizer("o200k_base")


def newest(messages: list[Row], budget: int) -> int:
    """Where the newest messages begin that fit."""
    start = len(messages)
    while start and (cost := measures.message_tokens(messages[start - 1], count)) <= budget:
        start, budget = start - 1, budget - cost
    return start


def visible(planted: list[str], text: str) -> int:
    return sum(needle in text for needle in planted)


def flat(messages: list[Row]) -> str:
    return "\n".join(text for _, text in measures.flatten(messages))


def measure(name: str, shape: str) -> Row:
    wire, planted = transcripts.session(5000, shape)
    conversation = DIALECTS["openai"].parse({"model": "any", "messages": wire})
    said = wire[len(conversation.system) :]
    assert len(said) == len(conversation.messages)
    started = time.perf_counter()
    index = AnchorIndex()
    for message in conversation.messages:
        index.add(message)
    indexed = time.perf_counter() - started
    room = int(BUDGET * EXTRACT)
    start = newest(said, BUDGET - room)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        made = extract(index, Span(0, start), room - 4, count)
        times.append(time.perf_counter() - started)
    tail = flat(said[start:])
    tokens = (
        4 + made.tokens + sum(measures.message_tokens(message, count) for message in said[start:])
    )
    return {
        "transcript": name,
        "messages": len(said),
        "planted": len(planted),
        "tokens": tokens,
        "over_budget": tokens > BUDGET,
        "index": indexed,
        "extract": min(times),
        "lines": len(made.lines),
        "recency": visible(planted, flat(said[newest(said, BUDGET) :])),
        "visible": visible(planted, f"{made.text}\n{tail}"),
    }


def show(rows: list[Row]) -> None:
    print(
        f"{'':<14} {'messages':>9} {'tokens':>8} {'index s':>8} {'extract s':>10} {'lines':>6} {'recency':>8} {'visible':>8}"
    )
    for row in rows:
        times = f"{row['index']:>8.2f} {row['extract']:>10.3f}"
        found = f"{row['recency']:>8} {row['visible']:>8} of {row['planted']} (wanted {WANTED})"
        print(
            f"{row['transcript']:<14} {row['messages']:>9,} {row['tokens']:>8,} {times} {row['lines']:>6} {found}"
        )


def main() -> None:
    options = argparse.ArgumentParser(
        description="How many planted identifiers a squeezed history still shows."
    )
    options.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    chosen = options.parse_args()
    rows = [measure(f"{shape}_5000", shape) for shape in ("chat", "agentic")]
    if chosen.json:
        print(json.dumps({"budget": BUDGET, "rows": rows}, indent=1))
        return
    show(rows)


if __name__ == "__main__":
    main()
