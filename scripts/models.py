"""Make the snapshot of model limits and prices that Loom ships, from the data in litellm's wheel:
figures only.

    python scripts/models.py [WHEEL]

Without a wheel it downloads one with pip. Run by `make models`; look at what it prints before
committing the snapshot.
"""

import gzip
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

SNAPSHOT = (
    Path(__file__).resolve().parent.parent / "src" / "loom" / "budget" / "data" / "models.json.gz"
)
MEMBER = "litellm/model_prices_and_context_window_backup.json"
MODES = ("chat", "responses", "completion", "embedding")
PRICES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)


def figures(entry: dict[str, Any]) -> list[float | int | None] | None:
    """Window, most output, and four prices per million tokens; None where the window is not
    known.
    """
    window = entry.get("max_input_tokens") or entry.get("max_tokens")
    if entry.get("mode") not in MODES or not isinstance(window, int) or window <= 0:
        return None
    output = entry.get("max_output_tokens")
    prices = [
        round(entry[key] * 1_000_000, 6) if isinstance(entry.get(key), int | float) else None
        for key in PRICES
    ]
    row: list[float | int | None] = [
        window,
        output if isinstance(output, int) and output > 0 else None,
        *prices,
    ]
    while row[-1] is None:
        row.pop()
    return row


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if arguments:
            wheel = Path(arguments[0])
        else:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--dest",
                folder,
                "litellm",
            ]
            subprocess.run(command, check=True)
            wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            entries = json.loads(archive.read(MEMBER))
    table = {
        name.lower(): row for name, entry in sorted(entries.items()) if (row := figures(entry))
    }
    before = json.loads(gzip.decompress(SNAPSHOT.read_bytes())) if SNAPSHOT.exists() else {}
    text = json.dumps(table, separators=(",", ":"), sort_keys=True)
    # No time in the header: the same data gives the same file.
    SNAPSHOT.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    changed = sum(before[name] != table[name] for name in before.keys() & table.keys())
    added, gone = len(table.keys() - before.keys()), len(before.keys() - table.keys())
    print(
        f"{len(table)} models, {SNAPSHOT.stat().st_size} bytes: {added} new, {changed} "
        f"changed, {gone} gone"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
