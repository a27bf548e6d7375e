"""Repair a broken agent session, and write it for another provider.

    python examples/mend_session.py [FILE]

FILE is any transcript that Loom reads. Without it, a small session is used; its second call was
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
        repair_file(path)
        return
    with TemporaryDirectory() as folder:
        file = Path(folder) / "session.json"
        file.write_text(json.dumps(BROKEN))
        repair_file(str(file))


def repair_file(path: str) -> None:
    anthropic = loom.dialect("anthropic")
    for run in loom.read_runs(path):
        repaired = loom.repair(run.conversation())
        print(f"run {run.number} ({run.format}): {len(repaired.changes)} changes")
        for change in repaired.changes:
            print(f"  {change.rule} at message {change.message}: {change.what}")
        request = anthropic.render(repaired.conversation)
        errors = [finding for finding in anthropic.check(request.wire) if finding.level == "error"]
        print(
            f"  {len(json.dumps(request.wire))} bytes for Anthropic, {len(errors)} errors, "
            f"{len(request.losses)} losses"
        )


if __name__ == "__main__":
    main(*sys.argv[1:2])
