"""Mend a broken agent session and send it to another provider: python examples/mend_session.py FILE"""

import json
import sys

import loom


def main(path: str) -> None:
    anthropic = loom.dialect("anthropic")
    for run in loom.read_runs(path):
        mended = loom.repair(run.conversation())
        print(f"run {run.number} ({run.format}): {len(mended.changes)} changes")
        for change in mended.changes:
            print(f"  {change.rule} at message {change.message}: {change.what}")
        request = anthropic.render(mended.conversation)
        errors = [finding for finding in anthropic.check(request.wire) if finding.level == "error"]
        print(f"  {len(json.dumps(request.wire))} bytes for Anthropic, {len(errors)} errors, {len(request.losses)} things not kept")


if __name__ == "__main__":
    main(sys.argv[1])
