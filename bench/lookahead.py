"""Look-ahead recall: an agent's history squeezed into a few tokens; how much of what it names again is still there (TARGETS.md 4).

python bench/lookahead.py [--json]     (shared definitions and data: LOOM_SHARED, or ../shared)
The context is an extract of all but the last four messages, and those verbatim (shrunk only where they alone are too large), both
counted together by o200k. Recency is the newest messages that fit, whole. Figures are strict recall in percent, means over cuts of
three or more to recall. The first half of the large session was tuned on; look at the second. Nothing here is a test.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loom
from loom.budget.counting import counter_for
from loom.budget.tokenizers import tokenizer
from loom.context.anchors import AnchorIndex
from loom.context.extract import extract
from loom.context.handles import Archive
from loom.context.shrink import shrink_messages
from loom.conversation.message import Message, Reasoning, Text

SHARED = Path(os.environ.get("LOOM_SHARED", Path(__file__).resolve().parent.parent / ".." / "shared")).resolve()
if not (SHARED / "bench" / "measures.py").exists():
    sys.exit(f"no bench/measures.py in {SHARED}: set LOOM_SHARED to the folder that holds it")
sys.path.insert(0, str(SHARED / "bench"))

import measures  # noqa: E402 - it lies beside the shared data

LAST = 4  # messages that stay verbatim
LEAST = 100  # tokens that an extract needs to be of use
GOLD = 3
PUBLISHED = {"recency": (40.5, 62.7, 71.8), "lines chosen by anchors": (55.4, 82.0, 94.1), "wanted of Loom": (62, 86, 96)}

Row = dict[str, Any]
Cut = tuple[int, set[str], dict[str, set[str]]]
count = tokenizer("o200k_base")
counter = counter_for("gpt-4o")


def chat(message: Message) -> Row:
    """A message as the measures read it: OpenAI chat."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    for result in message.results:
        texts += [part.text for part in result.parts if isinstance(part, Text)]
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning)]
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in message.calls]
    return {"role": message.role, "content": "\n".join(texts), "reasoning": "\n".join(thoughts) or None, "tool_calls": calls}


def size(messages: Sequence[Message]) -> int:
    return sum(measures.message_tokens(chat(message), count) for message in messages)


def flat(messages: Sequence[Message]) -> str:
    return "\n".join(text for _, text in measures.flatten([chat(message) for message in messages]))


def cuts_of(messages: list[Message], first: int, step: int) -> list[Cut]:
    """The places to cut at, with what is to be recalled and the passages that count as recalling it."""
    texts = measures.flatten([chat(message) for message in messages])
    found = []
    for cut in range(first, len(messages), step):
        gold = measures.lookahead_gold(texts, cut)
        if len(gold) >= GOLD:
            found.append((cut, gold, measures.strict_windows(texts[:cut], gold)))
    return found


def recency(messages: Sequence[Message], budget: int) -> str:
    start = len(messages)
    while start and (cost := size(messages[start - 1 : start])) <= budget:
        start, budget = start - 1, budget - cost
    return flat(messages[start:])


def squeezed(index: AnchorIndex, messages: Sequence[Message], budget: int, times: list[float]) -> str:
    """The extract and the last messages, together within the budget."""
    stop = max(0, len(messages) - LAST)
    last = tuple(messages[stop:])
    if size(last) > budget - LEAST:
        last = shrink_messages(last, budget * 3 // 4, stop, counter, Archive()) or ()
    started = time.perf_counter()
    made = extract(index, 0, stop, budget - size(last) - 4, count, after=last)
    times.append(time.perf_counter() - started)
    total = measures.message_tokens({"role": "user", "content": made.text}, count) + size(last)
    if total > budget:
        sys.exit(f"{total} tokens where {budget} were allowed")
    return f"{made.text}\n{flat(last)}"


def recalls(messages: list[Message], cuts: list[Cut], budgets: Sequence[int], times: list[float]) -> list[Row]:
    """For each cut and budget what recency and what the extract recalls. The index grows along: it never sees what comes later."""
    index, rows = AnchorIndex(), []
    for cut, gold, windows in cuts:
        for message in messages[len(index) : cut]:
            index.add(message)
        before = messages[:cut]
        for budget in budgets:
            texts = {"recency": recency(before, budget), "loom": squeezed(index, before, budget, times)}
            rows.append({"cut": cut, "gold": len(gold), "budget": budget} | recall(texts, windows, gold))
    return rows


def recall(texts: dict[str, str], windows: dict[str, set[str]], gold: set[str]) -> Row:
    return {name: 100 * measures.strict_recall(text, windows, gold) for name, text in texts.items()}


def measure(title: str, runs: list[tuple[list[Message], list[Cut]]], budgets: Sequence[int]) -> Row:
    times: list[float] = []
    rows = [row for messages, cuts in runs for row in recalls(messages, cuts, budgets, times)]
    means = {
        name: [mean([row[name] for row in rows if row["budget"] == budget]) for budget in budgets] for name in ("recency", "loom")
    }
    cuts = sum(len(cuts) for _, cuts in runs)
    return {"session": title, "cuts": cuts, "budgets": list(budgets), **means, "ms": 1000 * mean(times), "rows": rows}


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def read(name: str) -> list[list[Message]]:
    return [list(run.messages()) for run in loom.read_runs(str(SHARED / "data" / "agents" / name))]


def sessions() -> list[Row]:
    large = read("pi_large_session.jsonl")[0]
    usual, close = cuts_of(large, 100, 80), cuts_of(large, 100, 20)
    half, budgets = len(usual) // 2, (2_000, 8_000, 16_000)
    middle = usual[half][0]
    found = [
        measure("pi: all cuts", [(large, usual)], budgets),
        measure("pi: first half (tuned on)", [(large, usual[:half])], budgets),
        measure("pi: second half", [(large, usual[half:])], budgets),
        measure("pi: second half, every 20", [(large, [cut for cut in close if cut[0] >= middle])], budgets),
    ]
    # The others are short: they are cut closer, and squeezed harder.
    for title, pattern, first, step, small in (
        ("trail", "trail_*.json", 8, 4, (1_000, 2_000, 4_000)),
        ("taubench", "taubench_*.json", 8, 6, (500, 1_000, 2_000)),
        ("sweagent", "sweagent_*.traj", 3, 1, (300, 600, 900)),
    ):
        files = sorted((SHARED / "data" / "agents").glob(pattern))
        runs = [(messages, cuts_of(messages, first, step)) for file in files for messages in read(file.name)]
        found.append(measure(title, [run for run in runs if run[1]], small))
    return found


def show(found: list[Row]) -> None:
    print(f"{'strict recall, %':<28} {'cuts':>5}  {'budgets':<20} {'recency':<20} {'loom':<20} {'ms':>5}")
    for row in found:
        figures = [" ".join(f"{value:>5.1f}" for value in row[name]) for name in ("recency", "loom")]
        budgets = " ".join(f"{budget:>5}" for budget in row["budgets"])
        if not row["cuts"]:
            print(f"{row['session']:<28} {0:>5}  no cut with {GOLD} or more to recall")
            continue
        print(f"{row['session']:<28} {row['cuts']:>5}  {budgets:<20} {figures[0]:<20} {figures[1]:<20} {row['ms']:>5.0f}")
    print("\npublished for real coding sessions at 2k, 8k, 16k (TARGETS.md 4)")
    for name, values in PUBLISHED.items():
        print(f"{name:<28} " + " ".join(f"{value:>5.1f}" for value in values))


def main() -> None:
    options = argparse.ArgumentParser(description="How much of what an agent names next is left in a squeezed history.")
    options.add_argument("--json", action="store_true", help="print one JSON object instead of a table, each cut in it")
    chosen = options.parse_args()
    found = sessions()
    if chosen.json:
        print(json.dumps({"published": PUBLISHED, "sessions": found}, indent=1))
        return
    show(found)


if __name__ == "__main__":
    main()
