"""What the peer scripts share: a transcript in, the trimming call timed alone, one line of JSON
out.

python bench/peers/SCRIPT.py TRANSCRIPT BUDGET VARIANT LIMIT_SECONDS     (bench/one_shot.py calls it
so; `measures` is on the path) A variant takes the chat messages and the budget, does whatever need
not be timed, and returns the call to time.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measures import message_tokens
from splintr import Tokenizer

Message = dict[str, Any]
Variant = Callable[[list[Message], int], Callable[[], Any]]

# Two messages that any of them can trim: what a library imports, loads or builds at its first call
# is not timed. The odd word is in no vocabulary: splintr builds its table of merges, a sixth of a
# second, when it first meets one.
_READY: list[Message] = [
    {"role": "system", "content": "Be ready."},
    {"role": "user", "content": "Ready, qzxvkj?"},
]
_O200K = Tokenizer.from_pretrained("o200k_base")


class Abandoned(BaseException):
    """Not an Exception: a library that catches those would swallow the alarm and run on."""


def encode(text: str) -> list[int]:
    return _O200K.encode_ordinary(text)


@cache
def count(text: str) -> int:
    """o200k tokens. Cached by content, so that from the second call on a peer's own work is timed
    and not the tokenizer.
    """
    return len(encode(text))


def tokens(messages: list[Message]) -> int:
    return sum(message_tokens(message, count) for message in messages)


def split_system(messages: list[Message]) -> tuple[list[Message], list[Message]]:
    """For peers that keep the system prompt apart from the history."""
    leading = 1 if messages[0]["role"] == "system" else 0
    return messages[:leading], messages[leading:]


def run(
    distribution: str,
    variants: Mapping[str, Variant],
    chat: Callable[[Any], list[Message]],
    times: int = 3,
) -> None:
    path, budget, variant, limit = sys.argv[1:]
    messages: list[Message] = json.loads(Path(path).read_text(encoding="utf-8"))["messages"]
    variants[variant](_READY, int(budget))()
    took, result = _timed(lambda: variants[variant](messages, int(budget)), times, float(limit))
    report = {
        "version": version(distribution),
        "first": took[0] if took else None,
        "seconds": min(took, default=None),
        "messages": chat(result) if took else None,
    }
    print(json.dumps(report))


def _timed(
    ready: Callable[[], Callable[[], Any]], times: int, limit: float
) -> tuple[list[float], Any]:
    """The limit is for all calls together: one that finished is reported, however many were meant
    to follow.
    """
    took: list[float] = []
    result: Any = None
    signal.signal(signal.SIGALRM, _abandon)
    try:
        for _ in range(times):
            call = ready()
            signal.setitimer(signal.ITIMER_REAL, max(limit - sum(took), 0.001))
            start = time.perf_counter()
            result = call()
            took.append(time.perf_counter() - start)
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Abandoned:
        pass
    return took, result


def _abandon(*_: object) -> None:
    raise Abandoned
