"""A program that exchanges direct messages with another one, for the test that kills it.

Run as `python -m tests.bus.programs NAME OTHER ADDRESS COUNT LOG`. What it does goes into a log: a
line `handled ID` before a message is acknowledged, and `acknowledged ID` after.
"""

import sys

from loom import Loom
from loom.runtime import Task

BATCH_MESSAGES = 40


def make_message(name: str, other: str, number: int, count: int) -> Task:
    """A message; the one after the last says that all were sent."""
    return Task(
        task_id=f"{name}-{number}" if number < count else f"end of {name}",
        source_agent=name,
        target_agent=other,
        action="node.message",
        parameters={"content": f"message {number} of {name}"},
    )


def exchange(name: str, other: str, address: str, count: int, log: str) -> None:
    """Send all messages, however many were sent before, and handle what comes until all came. The
    last message is never acknowledged, so that whoever begins again finds it.
    """
    with Loom.open(address) as loom, open(log, "ab", buffering=0) as written:
        bus, sent = loom.bus, 0
        while True:
            stop = min(sent + BATCH_MESSAGES, count + 1)
            bus.publish_all(make_message(name, other, n, count) for n in range(sent, stop))
            sent = stop
            found = [task.task_id for task in bus.inbox(name, limit=BATCH_MESSAGES)]
            fresh = [each for each in found if not each.startswith("end")]
            for each in fresh:
                written.write(f"handled {each}\n".encode())
            for done in bus.acknowledge_all(fresh):
                written.write(f"acknowledged {done}\n".encode())
            if not fresh and sent > count:
                if found:
                    return
                bus.wait_for_event(0.2)


if __name__ == "__main__":
    exchange(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5])
