"""Mend a broken agent session and send it to another provider.

    python examples/mend_session.py [FILE]

FILE is any transcript that Loom reads; without one a small session is used whose second call was
never answered.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import loom

CALLS = [
    {
        "id": "call_1",
        "type": "function",
        "function": {"name": "run_step", "arguments": '{"step":1}'},
    },
    {
        "id": "call_2",
        "type": "function",
        "function": {"name": "run_step", "arguments": '{"step":2}'},
    },
]
BROKEN = {
    "model": "gpt-4o",
    "messages": [
        {"role": "user", "content": "Run both steps."},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "call_1", "content": "Step 1 is done."},
        {"role": "user", "content": "Are you still there?"},
        {
            "role": "tool",
            "tool_call_id": "call_7",
            "content": "The result of a call that nobody made.",
        },
    ],
}


def main(path: str | None = None) -> None:
    if path:
        mend(path)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "session.json"
        file.write_text(json.dumps(BROKEN))
        mend(str(file))


def mend(path: str) -> None:
    anthropic = loom.dialect("anthropic")
    for run in loom.read_runs(path):
        mended = loom.repair(run.conversation())
        print(f"run {run.number} ({run.format}): {len(mended.changes)} changes")
        for change in mended.changes:
            print(f"  {change.rule} at message {change.message}: {change.what}")
        request = anthropic.render(mended.conversation)
        errors = [finding for finding in anthropic.check(request.wire) if finding.level == "error"]
        print(
            f"  {len(json.dumps(request.wire))} bytes for Anthropic, {len(errors)} errors, {len(request.losses)} things not kept"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
