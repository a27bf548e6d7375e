"""Loom: weave, from the transcript to the request body. Its first call finds nothing counted, its
second everything.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from timed import Message, run

try:
    from loom import weave
except ImportError:
    print(json.dumps({"failed": "not built yet"}))
    sys.exit()


def woven(messages: list[Message], budget: int) -> Callable[[], Any]:
    return lambda: weave(messages, model="gpt-4o", window=budget, reserve_output=0).openai()[
        "messages"
    ]


run("loomwright", {"weave": woven}, chat=list, times=2)
