"""Programs that the kill tests start: writers that are ended in the middle of what they do, and
writers that meet.

Run as `python -m tests.stores.writers killed|together …`. What was acknowledged goes into a log
outside of the store.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from hashlib import sha256

from loom import Conflict, Loom
from loom.budget.counting import gate_counter


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def write(url: str, name: str, log: str, seed: int) -> None:
    """Append, absorb, prepare and fork for ever; log each thing when the call that made it has
    returned.
    """
    chance = random.Random(seed)
    with Loom.open(url) as loom, open(log, "ab", buffering=0) as acknowledged:

        def acknowledge(**what: str) -> None:
            acknowledged.write(json.dumps(what).encode() + b"\n")

        session = loom.session(name)
        acknowledge(begun=str(seed))
        for step in range(100_000):
            what = chance.random()
            if what < 0.5:
                said = f"{seed}.{step} " + "lorem " * chance.randrange(1, 200)
                calls = [
                    {
                        "id": f"c{seed}_{step}",
                        "type": "function",
                        "function": {"name": "sh", "arguments": "{}"},
                    }
                ]
                nodes = session.append(
                    said,
                    {"role": "assistant", "content": None, "tool_calls": calls},
                    {
                        "role": "tool",
                        "tool_call_id": f"c{seed}_{step}",
                        "content": "x" * chance.randrange(1, 4000),
                    },
                )
                for node in nodes:
                    acknowledge(session=session.id, node=node.id)
            elif what < 0.7:
                answer = {
                    "id": f"answer {seed}.{step}",
                    "choices": [{"message": {"role": "assistant", "content": "yes"}}],
                }
                usage = {"prompt_tokens": 10, "completion_tokens": 1}
                (node,) = session.absorb(answer | {"usage": usage})
                acknowledge(session=session.id, node=node.id, answered="yes")
            elif what < 0.95 and session.cursor:
                context = asyncio.run(
                    session.prepare(window=3000, reserve_output=500, model="gpt-4o")
                )
                for item in context.report.items:
                    for handle in item.handles:
                        acknowledge(
                            session=session.id, handle=handle, text=digest(context.recall(handle))
                        )
            elif session.cursor:
                fork = session.fork()
                acknowledge(session=fork.id, node=fork.cursor.id if fork.cursor else "")


def killed(url: str, name: str, log: str, rounds: int) -> None:
    """Start a writer and end it without warning, again and again."""
    gate_counter(None).count_text("loaded once, for all writers")
    for seed in range(rounds):
        before = os.path.getsize(log)
        child = os.fork()
        if child == 0:
            try:
                write(url, name, log, seed)
            finally:
                os._exit(1)
        # Let it write for a while, then end it anywhere: within a call, or between two.
        chance = random.Random(-seed)
        enough = before + chance.randrange(100, 4000)
        while os.path.getsize(log) < enough and os.waitpid(child, os.WNOHANG)[0] == 0:
            time.sleep(0.0005)
        time.sleep(chance.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"the writer of round {seed} ended by itself")


def together(url: str, name: str, log: str, writer: int, count: int) -> None:
    """Write to a session that others write to as well: after a conflict look again, then repeat."""
    with Loom.open(url) as loom, open(log, "ab", buffering=0) as acknowledged:
        session = loom.session(name)
        # All have looked before the first one writes, so that they do meet, on a quick machine too.
        open(f"{log}.{writer}", "w").close()
        while not all(os.path.exists(f"{log}.{other}") for other in range(8)):
            time.sleep(0.001)
        for number in range(count):
            while True:
                try:
                    (node,) = session.append(f"{writer} says {number}")
                except Conflict:
                    acknowledged.write(json.dumps({"conflict": writer}).encode() + b"\n")
                    session.refresh()
                else:
                    acknowledged.write(
                        json.dumps({"node": node.id, "writer": writer, "number": number}).encode()
                        + b"\n"
                    )
                    break


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "killed":
        killed(*arguments[:3], int(arguments[3]))
    else:
        together(*arguments[:3], int(arguments[3]), int(arguments[4]))
