"""How long the first map of a project takes: Loom's, and that of aider's RepoMap; and the next.

python bench/cold_map.py FOLDER [FOLDER ...] [--times N] [--tokens N] [--json]

Each FOLDER is a checkout of a git repository. The files that git lists are copied into a temporary
folder, and nothing is known of them: no index, no cache of tags. Both make one map of the same
size, without a request, in a process that has loaded its modules and its tokenizer, in turns. Of
N tries the one that took the least processor time counts, for each.

wall         seconds until the map is there. Loom uses all cores, aider one
processor    seconds of all cores that the process and its helpers took, their start and their
             imports too: what does not depend on what else the machine does
command      the same for the whole command `loom map`, beginning with the start of Python
again        seconds of the same command with its index there, the best of TIMES_AGAIN
edit         seconds in one process after a file was changed, the best of TIMES_AGAIN

aider is installed into an environment of its own under .work/venvs. Where it cannot be, only Loom
is measured. Nothing here is a test.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from one_shot import ROOT, environment, last_line, report_of
from repomap import AIDER, LIMIT, Row

_COMMAND = "from loom.cli.main import run; run()"
TIMES_AGAIN = 7


# Loom, in a process of its own


def map_once(root: Path, tokens: int, cache: Path) -> Row:
    """What the first map costs."""
    from loom.budget.tokenizers import tokenizer
    from loom.project.draw.render import render_map
    from loom.project.index.project_index import open_index
    from loom.project.index.workers import end_idle
    from loom.project.rank.ranking import MapRequest, rank_files

    count = tokenizer("o200k_base")
    count("Ready, qzxvkj?")
    used, started = _processor_seconds(), time.perf_counter()
    index = open_index(root, cache)
    index.update()
    render_map(rank_files(index, MapRequest()), tokens, count)
    wall = time.perf_counter() - started
    end_idle()  # the time of a helper counts when it has ended
    found: Row = {
        "wall": wall,
        "processor": _processor_seconds() - used,
        "files": len(index.entries),
    }
    counts = index.columns["definitions"].tolist()
    edited = root / index.columns.paths[counts.index(max(counts))]
    times = []
    for number in range(TIMES_AGAIN):
        edited.write_text(edited.read_text("utf-8") + "\n" * (number + 1), "utf-8")
        started = time.perf_counter()
        index.update()
        render_map(rank_files(index, MapRequest()), tokens, count)
        times.append(time.perf_counter() - started)
    end_idle()
    return {**found, "edit": min(times)}


def _processor_seconds() -> float:
    """What this process has used, and its helpers that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


# One project


def measure(folder: Path, times: int, tokens: int) -> dict[str, list[Row]]:
    """What each try of each cost."""
    found: dict[str, list[Row]] = {}
    for _ in range(times):
        for who, one in (("aider", by_aider), ("Loom", by_loom), ("command", by_command)):
            with tempfile.TemporaryDirectory() as work:
                root = Path(work) / folder.name
                copy_project(folder, root)
                found.setdefault(who, []).append(one(root, tokens, Path(work)))
    return found


def copy_project(folder: Path, root: Path) -> None:
    """The files that git lists, in a repository of their own without a history."""
    listed = _git(folder, "ls-files", "-z").split(b"\0")
    for name in filter(None, listed):
        path = os.fsdecode(name)
        if (folder / path).is_file():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / path, root / path)
    _git(root, "init", "--quiet")
    _git(root, "add", "--all", "--force")


def _git(folder: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True)
    return done.stdout


def by_aider(root: Path, tokens: int, work: Path) -> Row:
    python = environment(AIDER)
    if isinstance(python, str):
        return {"failed": python}
    request = work / "request.txt"
    request.write_text("", encoding="utf-8")
    script = ROOT / "bench" / "peers" / AIDER.script
    row = report_of([str(python), str(script), str(root), str(request), str(tokens)], LIMIT)
    if "failed" in row:
        return row
    return {"wall": row["cold"], "processor": row["cold processor"], "files": row["indexed"]}


def by_loom(root: Path, tokens: int, work: Path) -> Row:
    asked = [str(root), str(tokens), str(work / "cache")]
    command = [sys.executable, __file__, "--map", *asked]
    done = subprocess.run(command, capture_output=True, text=True)
    found: Row = {"failed": last_line(done.stderr)} if done.returncode else json.loads(done.stdout)
    return found


def by_command(root: Path, tokens: int, work: Path) -> Row:
    """The command as a user calls it; its store and its cache are new too."""
    homes = {f"XDG_{kind}_HOME": str(work / kind) for kind in ("CACHE", "DATA", "CONFIG")}
    used, times = _processor_seconds(), list[float]()
    first = 0.0
    for _ in range(1 + TIMES_AGAIN):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, "map", str(root), "--tokens", str(tokens)],
            env={**os.environ, **homes},
            capture_output=True,
            text=True,
        )
        times.append(time.perf_counter() - started)
        if done.returncode:
            return {"failed": last_line(done.stderr)}
        first = first or _processor_seconds() - used
    return {"wall": times[0], "processor": first, "again": min(times[1:])}


# Showing


def best(rows: Sequence[Row]) -> Row:
    """The try with the least processor time, or why all failed."""
    whole = [row for row in rows if "failed" not in row]
    if whole:
        return min(whole, key=lambda row: float(row["processor"]))
    return rows[0]


def show(name: str, tries: dict[str, list[Row]]) -> None:
    aider, ours, command = (best(tries[who]) for who in ("aider", "Loom", "command"))
    failed = [row["failed"] for row in (ours, command) if "failed" in row]
    if failed:
        print(f"{name:<14}{failed[0]}")
        return
    line = f"{name:<14}{ours['files']:>6}"
    if "failed" in aider:
        line += f"{'':>34}"
    else:
        line += f"{aider['wall']:>9.2f}{aider['processor']:>9.2f}"
    line += f"{ours['wall']:>9.2f}{ours['processor']:>9.2f}"
    line += f"{command['wall']:>9.2f}{command['processor']:>9.2f}"
    line += f"{command['again']:>7.2f}{ours['edit']:>7.2f}"
    if "failed" not in aider:
        line += (
            f"{aider['wall'] / ours['wall']:>8.1f}{aider['processor'] / ours['processor']:>11.1f}"
        )
    print(line + f"{os.getloadavg()[0]:>7.1f}", flush=True)
    if "failed" in aider:
        print(f"{'':<14}aider {aider['failed']}")


def main() -> None:
    options = argparse.ArgumentParser(description="How long the first map of a project takes.")
    options.add_argument("folders", nargs="*", type=Path, help="checkouts of git repositories")
    options.add_argument("--times", type=int, default=3, help="tries of each")
    options.add_argument("--tokens", type=int, default=1024, help="the size of the map")
    options.add_argument("--json", action="store_true", help="print every try as JSON instead")
    options.add_argument("--map", nargs=3, metavar="TEXT", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.map:
        root, tokens, cache = chosen.map
        print(json.dumps(map_once(Path(root), int(tokens), Path(cache))))
        return
    if not chosen.folders:
        options.error("of which projects? name their folders")
    if not chosen.json:
        print(f"{'':<20}{'aider':>18}{'Loom':>18}{'loom map':>18}{'':>14}{'aider / Loom':>19}")
        print(
            f"{'':<14}{'files':>6}"
            + f"{'wall':>9}{'proc.':>9}" * 3
            + f"{'again':>7}{'edit':>7}"
            + f"{'wall':>8}{'proc.':>11}{'load':>7}"
        )
    for folder in chosen.folders:
        tries = measure(folder.resolve(), chosen.times, chosen.tokens)
        if chosen.json:
            print(json.dumps({"project": folder.name, **tries}), flush=True)
        else:
            show(folder.name, tries)


if __name__ == "__main__":
    main()
