"""How fast transcripts are read, checked, mended and rendered, beside plain JSON decoding of the
same bytes.

python bench/read.py [FILE ...]    (default: the shared agent transcripts, LOOM_SHARED or ../shared)
Prints megabytes a second and the ratio to json.loads; nothing here is a test.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import loom
from loom.dialects import WIRES


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The best of several runs: the others were disturbed."""
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def plain(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


def main(paths: list[Path]) -> None:
    print(
        f"{'file':<40} {'MB':>6} {'json':>7} {'read':>7} {'repair':>7} {'render+check ×3':>16} "
        f"{'read/json':>10}"
    )
    for path in paths:
        size = path.stat().st_size / 1e6
        runs = list(loom.read_runs(str(path)))
        conversations = [run.conversation() for run in runs]
        mended = [loom.repair(conversation).conversation for conversation in conversations]
        base = seconds(lambda path=path: plain(path))
        read = seconds(lambda path=path: [run.conversation() for run in loom.read_runs(str(path))])
        repair = seconds(
            lambda given=conversations: [loom.repair(conversation) for conversation in given]
        )
        render = seconds(
            lambda given=mended: [wire.check(wire.render(c).wire) for c in given for wire in WIRES]
        )
        speeds = " ".join(f"{size / t:>7.0f}" for t in (base, read, repair))
        print(f"{path.name:<40} {size:>6.2f} {speeds} {size / render:>16.0f} {read / base:>10.2f}")
    print("MB/s; read/json: time to read as messages by the time of json.loads")


if __name__ == "__main__":
    shared = Path(os.environ.get("LOOM_SHARED", "../shared")) / "data" / "agents"
    given = [Path(argument) for argument in sys.argv[1:]] or sorted(shared.glob("*"))
    if not given:
        sys.exit(f"no transcripts: name files, or set LOOM_SHARED (looked in {shared})")
    main(given)
