"""Weave random transcripts under random budgets and policies, and let others judge: `python
bench/fuzz.py [TRIPLES]`.

Nothing of ours judges: tokens and torn pairs are counted by shared/bench/measures.py with the exact
tokenizer, requests for Anthropic by the small independent reading below, and one in fifty chat
requests by mistral-common's validator where it is installed. Prints how many triples were woven,
refused (CannotFit) and wrong; ends with status 1 if any was wrong.
"""

import copy
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from splintr import Tokenizer

import loom
from loom.context.policy import policies

ROOT = Path(__file__).resolve().parent.parent
SHARED = (ROOT / os.environ.get("LOOM_SHARED", "../shared")).resolve()
sys.path.insert(0, str(SHARED / "bench"))
import measures  # noqa: E402 - it lies beside the shared data
import transcripts  # noqa: E402

TEXTS = [
    "retry budget",
    "重试预算改成遵守截止时间",
    "مرحبا بالعالم",
    "🧵👩‍👩‍👧",
    "0x7f3a9c1e",
    "eyJhbGciOiJIUzI1NiJ9",
    "\n\n\t{}",
    "नमस्ते दुनिया",
]


def sources() -> list[list[dict[str, Any]]]:
    """Recorded and synthetic histories as chat messages."""
    found = []
    for path in sorted((SHARED / "data" / "agents").glob("*")):
        for run in list(loom.read_runs(str(path)))[:12]:
            found.append(loom.dialect("openai").render(run.conversation()).wire["messages"])
    for seed in range(3):
        found.append(transcripts.session(160, "agentic", seed)[0])
        found.append(transcripts.session(160, "chat", seed)[0])
    return [*found, *transcripts.adversarial().values()]


def mutate(rng: random.Random, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A slice of a history after some accidents."""
    start = rng.randrange(len(messages))
    messages = copy.deepcopy(messages[start : start + rng.choice([3, 10, 30, 90])])
    for _ in range(rng.choice([0, 0, 1, 3, 6])):
        at = rng.randrange(len(messages)) if messages else 0
        match rng.randrange(8):
            case 0 if messages:
                del messages[at]
            case 1 if messages:
                messages.insert(rng.randrange(len(messages) + 1), copy.deepcopy(messages[at]))
            case 2 if messages:
                messages.insert(rng.randrange(len(messages)), messages.pop(at))
            case 3:
                messages.insert(
                    at, {"role": "user", "content": rng.choice(TEXTS) * rng.choice([1, 40, 900])}
                )
            case 4 if messages and messages[at]["role"] == "tool":
                messages[at]["content"] = rng.choice(TEXTS) * rng.choice([0, 3, 300, 4000])
            case 5 if messages and messages[at].get("tool_calls"):
                call = rng.choice(messages[at]["tool_calls"])
                call["function"]["arguments"] = rng.choice(
                    ["", "{", json.dumps({"text": rng.choice(TEXTS) * 500, "n": [1] * 50})]
                )
            case 6 if messages and messages[at].get("tool_calls"):
                messages[at]["tool_calls"] = [
                    dict(c, id=f"{c['id']}-{n}")
                    for n in range(rng.choice([1, 3, 130]))
                    for c in messages[at]["tool_calls"][:1]
                ]
            case 7 if messages:
                messages[at] = {
                    "role": "assistant",
                    "content": rng.choice(["", " ", rng.choice(TEXTS) * 50]),
                }
    return messages


def torn_in_anthropic(body: dict[str, Any]) -> list[str]:
    """An independent reading of the rules that matter most on Anthropic's wire."""
    wrong, waiting, marks = [], set[str](), json.dumps(body).count('"cache_control"')
    if marks > 4:
        wrong.append(f"{marks} marks")
    for message in [*body["messages"], {"role": "end", "content": []}]:
        blocks = (
            message["content"]
            if isinstance(message["content"], list)
            else [{"type": "text", "text": message["content"]}]
        )
        answers = [b["tool_use_id"] for b in blocks if b.get("type") == "tool_result"]
        if sorted(answers) != sorted(waiting):
            wrong.append(f"asked {sorted(waiting)[:3]}, answered {sorted(answers)[:3]}")
        waiting = {b["id"] for b in blocks if b.get("type") == "tool_use"}
        if any(b.get("type") == "text" and not b["text"].strip() for b in blocks):
            wrong.append("an empty text")
    return wrong


def work(task: tuple[int, int]) -> Counter[str]:
    first, count = task
    rng = random.Random(first)
    encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
    given = sources()
    names = list(policies())
    found: Counter[str] = Counter()
    for n in range(count):
        messages = mutate(rng, rng.choice(given))
        window = int(2 ** rng.uniform(7.5, 15))
        policy = rng.choice(names)
        found["triples"] += 1
        try:
            context = loom.weave(
                messages, model="gpt-4o", window=window, reserve_output=0, policy=policy
            )
        except loom.CannotFit:
            found["refused"] += 1
            continue
        sent = context.openai()["messages"]
        used = sum(measures.message_tokens(m, lambda text: len(encode(text))) for m in sent)
        if used > window:
            found[f"over budget: {policy} {used} of {window}, seed {first} #{n}"] += 1
        if measures.torn_pairs(sent):
            found[f"torn pair: {policy} {window}, seed {first} #{n}"] += 1
        for wrong in torn_in_anthropic(context.anthropic()):
            found[f"anthropic: {wrong}, seed {first} #{n}"] += 1
        asked = [
            m["content"]
            for m in messages
            if m["role"] == "user" and isinstance(m["content"], str) and m["content"].strip()
        ]
        if asked and measures.goal_missing(sent, asked[-1][:12]):
            found[f"goal missing: {policy} {window}, seed {first} #{n}"] += 1
        if n % 50 == 0 and (refusal := mistral_refuses(sent)):
            found[f"mistral: {refusal}, seed {first} #{n}"] += 1
        found["woven"] += 1
    return found


def mistral_refuses(messages: list[dict[str, Any]]) -> str:
    """What mistral-common's validator says of the pairs; its own rules (ids, who speaks first and
    last) are stepped around.
    """
    try:
        from mistral_common.protocol.instruct.request import ChatCompletionRequest
        from mistral_common.protocol.instruct.validator import (
            MistralRequestValidatorV13,
            ValidationMode,
        )
    except ImportError:
        return ""
    names: dict[str, str] = {}
    told = [m for m in copy.deepcopy(messages) if m["role"] != "system"]
    for m in told:
        for call in m.get("tool_calls") or []:
            call["id"] = names.setdefault(call["id"], f"{len(names):09d}")
        if m["role"] == "tool":
            m["tool_call_id"] = names[m["tool_call_id"]]
            m["content"] = m["content"] or "-"
    told = [{"role": "user", "content": "begin"}, *told, {"role": "user", "content": "go on"}]
    try:
        request = ChatCompletionRequest.from_openai(messages=told)
        MistralRequestValidatorV13(mode=ValidationMode.serving).validate_messages(request.messages)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:120]}"
    return ""


def main(triples: int) -> int:
    started = time.monotonic()
    chunk = 500
    tasks = [(seed, chunk) for seed in range(triples // chunk)]
    total: Counter[str] = Counter()
    with multiprocessing.Pool(2) as pool:
        for done, found in enumerate(pool.imap_unordered(work, tasks)):
            total += found
            if done % 20 == 0:
                wrong = sum(v for k, v in total.items() if k not in ("triples", "woven", "refused"))
                print(
                    f"{total['triples']:>8,} triples, {wrong} wrong, "
                    f"{time.monotonic() - started:.0f} s",
                    flush=True,
                )
    wrong = {k: v for k, v in total.items() if k not in ("triples", "woven", "refused")}
    woven = f"{total['woven']:,} woven, {total['refused']:,} refused with CannotFit"
    print(f"{total['triples']:,} triples: {woven}, {sum(wrong.values())} wrong")
    for what, times in sorted(wrong.items())[:40]:
        print(f"  {what} ×{times}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
