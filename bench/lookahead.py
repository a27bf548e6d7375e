"""Look-ahead recall: how much of what an agent names next is in the request that Loom sends
(TARGETS.md 4).

python bench/lookahead.py [--only NAME ...] [--each] [--json]     (shared definitions and data:
LOOM_SHARED, or ../shared) Each history is woven as a user would do it: `weave(messages,
window=budget, reserve_output=0)`, rendered for OpenAI chat, checked by the rules of that wire, and
counted by the shared measure and o200k. Two simple ways stand beside it, in the same budget:
`recency` is the newest messages that fit, whole; `lines` is the newest lines that name something,
each once (it is no request: it has no roles, no calls and no goal). Figures are strict recall in
percent, means over cuts of three or more to recall. `ratio` is Loom by the better of the two: where
it is below 1 a simple way does better, and the bench ends with an error that says so. The first
half of the large session was tuned on; look at the second. Nothing here is a test.
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
from loom.budget.tokenizers import tokenizer
from loom.conversation.message import Message, Reasoning, Text
from loom.dialects import DIALECTS
from loom.errors import CannotFit

SHARED = Path(
    os.environ.get("LOOM_SHARED", Path(__file__).resolve().parent.parent / ".." / "shared")
).resolve()
if not (SHARED / "bench" / "measures.py").exists():
    sys.exit(f"no bench/measures.py in {SHARED}: set LOOM_SHARED to the folder that holds it")
sys.path.insert(0, str(SHARED / "bench"))

import measures  # noqa: E402 - it lies beside the shared data

MIN_GOLD = 3
BUDGETS = (2_000, 8_000, 16_000)
WAYS = ("recency", "lines", "loom")
PUBLISHED = {
    "recency": (40.5, 62.7, 71.8),
    "lines chosen by anchors": (55.4, 82.0, 94.1),
    "wanted of Loom": (62, 86, 96),
}

Row = dict[str, Any]
Cut = tuple[int, set[str], dict[str, set[str]]]
count = tokenizer("o200k_base")


def chat(message: Message) -> Row:
    """A message as the measures read it: OpenAI chat."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    for result in message.results:
        texts += [part.text for part in result.parts if isinstance(part, Text)]
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning)]
    calls = [
        {"function": {"name": call.name, "arguments": call.arguments}} for call in message.calls
    ]
    return {
        "role": message.role,
        "content": "\n".join(texts),
        "reasoning": "\n".join(thoughts) or None,
        "tool_calls": calls,
    }


def size(messages: Sequence[Message]) -> int:
    return sum(measures.message_tokens(chat(message), count) for message in messages)


def flat(chats: Sequence[Row]) -> str:
    return "\n".join(text for _, text in measures.flatten(chats))


def cuts_of(messages: list[Message], first: int, step: int) -> list[Cut]:
    """The places to cut at, with what is to be recalled and the passages that count as recalling
    it.
    """
    texts = measures.flatten([chat(message) for message in messages])
    found = []
    for cut in range(first, len(messages), step):
        gold = measures.lookahead_gold(texts, cut)
        if len(gold) >= MIN_GOLD:
            found.append((cut, gold, measures.strict_windows(texts[:cut], gold)))
    return found


def recency(messages: Sequence[Message], budget: int) -> str:
    start = len(messages)
    while start and (cost := size(messages[start - 1 : start])) <= budget:
        start, budget = start - 1, budget - cost
    return flat([chat(message) for message in messages[start:]])


def lines(messages: Sequence[Message], budget: int) -> str:
    """The newest lines that name something, each once, until the budget is full."""
    kept: dict[str, None] = {}
    for message in reversed(messages):
        for line in map(str.strip, reversed(flat([chat(message)]).splitlines())):
            if line in kept or not measures.anchors(line):
                continue
            budget -= count(line) + 1
            if budget < 0:
                return "\n".join(reversed(kept))
            kept[line] = None
    return "\n".join(reversed(kept))


def woven(messages: Sequence[Message], budget: int, times: list[float]) -> str:
    """What a model reads of the request that Loom sends."""
    started = time.perf_counter()
    try:
        sent = loom.weave(messages, model="gpt-4o", window=budget, reserve_output=0).openai()
    except CannotFit:
        return ""
    finally:
        times.append(time.perf_counter() - started)
    total = sum(measures.message_tokens(message, count) for message in sent["messages"])
    broken = [
        finding.text for finding in DIALECTS["openai"].check(sent) if finding.level == "error"
    ]
    if total > budget or broken:
        sys.exit(f"{total} tokens where {budget} were allowed; rules broken: {broken}")
    return flat(sent["messages"])


def recalls(
    messages: list[Message], cuts: list[Cut], budgets: Sequence[int], times: list[float]
) -> list[Row]:
    """What each way recalls, for each cut and budget."""
    rows = []
    for cut, gold, windows in cuts:
        before = messages[:cut]
        for budget in budgets:
            texts = {
                "recency": recency(before, budget),
                "lines": lines(before, budget),
                "loom": woven(before, budget, times),
            }
            found = {
                name: 100 * measures.strict_recall(text, windows, gold)
                for name, text in texts.items()
            }
            rows.append({"cut": cut, "gold": len(gold), "budget": budget} | found)
    return rows


def measure(title: str, runs: list[tuple[list[Message], list[Cut]]], budgets: Sequence[int]) -> Row:
    times: list[float] = []
    rows = [row for messages, cuts in runs for row in recalls(messages, cuts, budgets, times)]
    means = {
        name: [mean([row[name] for row in rows if row["budget"] == budget]) for budget in budgets]
        for name in WAYS
    }
    best = [max(pair) for pair in zip(means["recency"], means["lines"], strict=True)]
    ratios = [
        ours / other if other else 1.0 for ours, other in zip(means["loom"], best, strict=True)
    ]
    cuts = sum(len(cuts) for _, cuts in runs)
    return {
        "session": title,
        "cuts": cuts,
        "budgets": list(budgets),
        **means,
        "ratio": ratios,
        "ms": 1000 * mean(times),
        "rows": rows,
    }


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def read(name: str) -> list[list[Message]]:
    return [list(run.messages()) for run in loom.read_runs(str(SHARED / "data" / "agents" / name))]


def large_session() -> list[Row]:
    large = read("pi_large_session.jsonl")[0]
    usual, close = cuts_of(large, 100, 80), cuts_of(large, 100, 20)
    half, budgets = len(usual) // 2, BUDGETS
    middle = usual[half][0]
    return [
        measure("pi: all cuts", [(large, usual)], budgets),
        measure("pi: first half (tuned on)", [(large, usual[:half])], budgets),
        measure("pi: second half", [(large, usual[half:])], budgets),
        measure(
            "pi: second half, every 20",
            [(large, [cut for cut in close if cut[0] >= middle])],
            budgets,
        ),
    ]


LARGE = ("pi_large_session.jsonl", 100, 80, BUDGETS)
# The others are short: they are cut closer, and squeezed harder. Title: pattern, first cut, step,
# budgets.
SHORT = {
    "trail": ("trail_*.json", 8, 4, (1_000, 2_000, 4_000)),
    "taubench": ("taubench_*.json", 8, 6, (500, 1_000, 2_000)),
    "sweagent": ("sweagent_*.traj", 3, 1, (300, 600, 900)),
}


def short_sessions(title: str) -> Row:
    pattern, first, step, budgets = SHORT[title]
    files = sorted((SHARED / "data" / "agents").glob(pattern))
    runs = [
        (messages, cuts_of(messages, first, step)) for file in files for messages in read(file.name)
    ]
    return measure(title, [run for run in runs if run[1]], budgets)


def each_session(titles: Sequence[str]) -> list[Row]:
    """A row for each recorded file, all at the same budgets; what fits whole is recalled whole."""
    rows = []
    for title in titles:
        pattern, first, step, _ = LARGE if title == "pi" else SHORT[title]
        for file in sorted((SHARED / "data" / "agents").glob(pattern)):
            runs = [(messages, cuts_of(messages, first, step)) for messages in read(file.name)]
            rows.append(measure(file.stem, [run for run in runs if run[1]], BUDGETS))
    return rows


def show(found: list[Row]) -> None:
    columns = (*WAYS, "ratio")
    print(
        f"{'strict recall, %':<28} {'cuts':>5}  {'budgets':<20} "
        + " ".join(f"{name:<18}" for name in columns)
        + f" {'ms':>5}"
    )
    for row in found:
        budgets = " ".join(f"{budget:>5}" for budget in row["budgets"])
        if not row["cuts"]:
            print(f"{row['session']:<28} {0:>5}  no cut with {MIN_GOLD} or more to recall")
            continue
        figures = [" ".join(f"{value:>5.1f}" for value in row[name]) for name in WAYS]
        figures.append(" ".join(f"{value:>5.2f}" for value in row["ratio"]))
        print(
            f"{row['session']:<28} {row['cuts']:>5}  {budgets:<20} "
            + " ".join(f"{text:<18}" for text in figures),
            end="",
        )
        print(f" {row['ms']:>5.0f}")
    print("\npublished for real coding sessions at 2k, 8k, 16k (TARGETS.md 4)")
    for name, values in PUBLISHED.items():
        print(f"{name:<28} " + " ".join(f"{value:>5.1f}" for value in values))


def judge(found: list[Row]) -> str:
    """Where a simple way does better than Loom; nothing where none does."""
    missed = [
        f"{row['session']} at {budget:,}: {ratio:.2f}"
        for row in found
        for budget, ratio in zip(row["budgets"], row["ratio"], strict=True)
        if row["cuts"] and ratio < 1
    ]
    return f"a simple way recalls more than Loom: {'; '.join(missed)}" if missed else ""


def main() -> None:
    options = argparse.ArgumentParser(
        description="How much of what an agent names next is in the request that Loom sends."
    )
    options.add_argument("--only", nargs="+", choices=("pi", *SHORT), help="measure these alone")
    options.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead of a table, each cut in it",
    )
    options.add_argument(
        "--each", action="store_true", help="a row for each file, at 2,000, 8,000 and 16,000 tokens"
    )
    chosen = options.parse_args()
    wanted = chosen.only or ("pi", *SHORT)
    if chosen.each:
        found = each_session(wanted)
    else:
        found = [
            row
            for name in wanted
            for row in (large_session() if name == "pi" else [short_sessions(name)])
        ]
    if chosen.json:
        print(json.dumps({"published": PUBLISHED, "sessions": found}, indent=1))
    else:
        show(found)
    if verdict := judge(found):
        sys.exit(verdict)


if __name__ == "__main__":
    main()
