"""A peer's script played call by call: before every model message it makes a request, which the
shared measures judge.

python bench/peers/stepped.py SCRIPT TRANSCRIPT BUDGET VARIANT LIMIT_SECONDS fresh|carried
(bench/replay.py calls it so) `fresh` gives it the whole history each time. `carried` gives it what
it made last time and what came since, as libraries do that rewrite the history of their agent. Only
the making is timed. One line of JSON out.
"""

import json
import runpy
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import measures
import timed
from timed import Message, Variant, count

Row = dict[str, Any]
FIRST_CUT, CUTS_APART, LEAST_GOLD = 100, 80, 3


def stepped(
    distribution: str,
    variants: Mapping[str, Variant],
    chat: Callable[[Any], list[Message]],
    times: int = 0,
) -> None:
    """Takes the place of `timed.run` in the peer's script; how often a call is repeated does not
    matter here.
    """
    _, transcript, budget, variant, limit, how = sys.argv[1:]
    messages: list[Message] = json.loads(Path(transcript).read_text(encoding="utf-8"))["messages"]
    variants[variant](timed._READY, int(budget))()
    row = play(
        messages,
        int(budget),
        lambda given: variants[variant](given, int(budget)),
        chat,
        how == "carried",
        float(limit),
    )
    print(json.dumps({"version": version(distribution), **row}))


def play(
    messages: list[Message],
    budget: int,
    make: Callable[[list[Message]], Callable[[], Any]],
    chat: Callable[[Any], list[Message]],
    carried: bool,
    limit: float,
) -> Row:
    calls = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    texts = measures.flatten(messages)
    functions = {
        call["id"]: call["function"]
        for message in messages
        for call in message.get("tool_calls", ())
    }
    measured = {
        min(calls, key=lambda call: abs(call - cut))
        for cut in range(FIRST_CUT, len(messages), CUTS_APART)
    }
    row: Row = dict.fromkeys(
        ("over_budget", "torn_pairs", "goal_missing", "near_empty", "tokens", "shared", "seconds"),
        0,
    )
    recalls: list[float] = []
    before: list[Message] = []
    seen = 0
    for number in calls:
        given = [*before, *messages[seen:number]] if carried else messages[:number]
        ready = make(given)
        start = time.perf_counter()
        made = ready()
        row["seconds"] += time.perf_counter() - start
        if row["seconds"] > limit:
            return {"failed": f"> {limit:.0f} s"}
        request = [_as_written(message, functions) for message in chat(made)]
        tokens = timed.tokens(request)
        goal = next(text for role, text in reversed(texts[:number]) if role == "user")
        row["tokens"] += tokens
        row["over_budget"] += tokens > budget
        row["near_empty"] += tokens < budget / 20 and timed.tokens(messages[:number]) > budget
        row["torn_pairs"] += measures.torn_pairs(request) > 0
        row["goal_missing"] += measures.goal_missing(request, goal)
        row["shared"] += measures.shared_prefix_tokens(before, request, count)
        if number in measured:
            recalls += _recall(texts, number, request)
        before, seen = request, number
    sent = len(calls)
    uncached = row["tokens"] - row["shared"]
    return row | {
        "calls": sent,
        "mean_tokens": row["tokens"] / sent,
        "cacheable_share": row["shared"] / row["tokens"],
        "uncached_per_call": uncached / sent,
        "recache_factor": uncached / timed.tokens(messages[: calls[-1]]),
        "lookahead_recall": sum(recalls) / len(recalls) if recalls else None,
        "ms_per_call": row["seconds"] / sent * 1000,
    }


def _as_written(message: Message, functions: dict[str, Message]) -> Message:
    """A result with the name of its tool, and arguments with the white space they came with:
    libraries spell both their way.
    """
    if message["role"] == "tool":
        return {"name": functions[message["tool_call_id"]]["name"], **message}
    if not message.get("tool_calls"):
        return message
    calls = [dict(call) for call in message["tool_calls"]]
    for call in calls:
        function = functions[call["id"]]
        if json.loads(call["function"]["arguments"]) == json.loads(function["arguments"]):
            call["function"] = function
    return {**message, "tool_calls": calls}


def _recall(texts: list[tuple[str, str]], cut: int, request: list[Message]) -> list[float]:
    gold = measures.lookahead_gold(texts, cut)
    if len(gold) < LEAST_GOLD:
        return []
    kept = "\n".join(text for _, text in measures.flatten(request))
    return [measures.strict_recall(kept, measures.strict_windows(texts[:cut], gold), gold)]


if __name__ == "__main__":
    timed.run = stepped
    runpy.run_path(sys.argv[1])
