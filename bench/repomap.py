"""Does the map show the file and the function that the work will touch? 30 issues of four projects
(TARGETS.md 5).

python bench/repomap.py [--repos FOLDER] [--only TEXT ...] [--aider] [--json]     (shared data:
LOOM_SHARED, or ../shared) The repositories with their histories lie in FOLDER (or LOOM_REPOS) as
OWNER+NAME/repo, OWNER+NAME, OWNER/NAME or NAME. Each issue's project is checked out as it was
before the fix, into a temporary folder. The issue is the request, budgets are o200k tokens.

file        a file that the fix edits is listed with at least one symbol
function    a function that it edits is a listed symbol of its file, by its last name; issues
without one count for files only over        maps above their budget, by the exact tokenizer
cold        seconds for the first map: nothing is indexed yet; program and tokenizer are loaded.
Beside it the files of the project warm        seconds for a map in a process that has the index,
the list of files looked through again; the best of three changed     the same after one file was
edited; in brackets the index alone MB          the most memory that the process took

Weights were tuned on flask, requests, seaborn and every other issue of pytest: look at `the rest`.
`--aider` runs aider's RepoMap on the same checkouts in an environment of its own under .work/venvs;
its times are for the map alone. Nothing here is a test.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from one_shot import ROOT, Peer, environment, last_line, report_of

SHARED = Path(os.environ.get("LOOM_SHARED", ROOT / ".." / "shared")).resolve()
BUDGETS = (1_000, 2_000, 4_000)
AIDER = Peer(
    "aider", "aider-chat==0.86.2 tree-sitter-language-pack==0.13.0", "aider_map.py", ("map",)
)
LIMIT = 600.0
TIMES = 3

Row = dict[str, Any]


# One project, in a process of its own


def mapped(root: Path, request: Path, edited: str, cache: Path) -> Row:
    """The maps of a project for a request, and what they cost."""
    from loom.budget.tokenizers import tokenizer
    from loom.project.draw.render import Map, render_map
    from loom.project.index.project_index import open_index
    from loom.project.rank.ranking import MapRequest, rank_files

    count = tokenizer("o200k_base")
    count("Ready, qzxvkj?")
    asked = MapRequest(query=request.read_text(encoding="utf-8"))
    clock = time.perf_counter
    started = clock()
    index = open_index(root, cache)

    def made(budget: int) -> Map:
        index.update()
        return render_map(rank_files(index, asked), budget, count)

    maps = {BUDGETS[0]: made(BUDGETS[0])}
    cold = clock() - started
    maps |= {budget: made(budget) for budget in BUDGETS[1:]}
    warm = min(_seconds(lambda: made(BUDGETS[1])) for _ in range(TIMES))
    indexed, changed = _after_a_change(root / edited, index.update, lambda: made(BUDGETS[1]))
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    shown = {}
    for budget, one in maps.items():
        shown[budget] = {
            "tokens": count(one.text),
            "files": {file.path: list(file.symbols) for file in one.files},
        }
    times = {"cold": cold, "warm": warm, "changed": changed, "index": indexed}
    return {"maps": shown, "indexed": len(index.entries), **times, "MB": peak / 1024}


def _after_a_change(
    file: Path, update: Callable[[], object], made: Callable[[], object]
) -> tuple[float, float]:
    """Seconds for the index and for the whole map after an edit; the best of a few. The file is as
    before at the end.
    """
    before = file.read_bytes()
    try:
        found = []
        for number in range(TIMES):
            file.write_bytes(before + b"\n\n# edited %d\n" % number)
            indexed = _seconds(update)
            found.append((indexed, indexed + _seconds(made)))
    finally:
        file.write_bytes(before)
    return min(indexed for indexed, _ in found), min(whole for _, whole in found)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# Judging


def judged(instance: Row, shown: dict[str, Row]) -> dict[str, list[bool]]:
    """For each budget whether the file, the function, and too much is shown."""
    gold = [spelled.rsplit(":", 1) for spelled in instance["gold_functions"] or ()]
    found: dict[str, list[bool]] = {"file": [], "over": [], **({"function": []} if gold else {})}
    for budget in BUDGETS:
        made = shown[str(budget)]
        listed = {
            path: {symbol.rsplit(".", 1)[-1] for symbol in symbols}
            for path, symbols in made["files"].items()
            if symbols
        }
        found["file"].append(any(path in listed for path in instance["gold_files"]))
        found["over"].append(made["tokens"] > budget)
        if gold:
            found["function"].append(
                any(name.rsplit(".", 1)[-1] in listed.get(path, ()) for path, name in gold)
            )
    return found


def symbols_of(text: str, paths: set[str]) -> dict[str, list[str]]:
    """What a map of aider shows: it prints lines of code, so any whole name in those under a path
    counts as a symbol of it.
    """
    found: dict[str, list[str]] = {}
    here: list[str] = []
    for line in text.split("\n"):
        if (path := line.removesuffix(":")) in paths:
            here = found.setdefault(path, [])
        elif line.startswith("│"):
            here += re.findall(r"\w+", line)
    return found


def measured(instance: Row, repos: Path, work: Path, with_aider: bool) -> dict[str, Row]:
    """What Loom's map shows of one project, and aider's."""
    root, request = work / instance["instance_id"], work / f"{instance['instance_id']}.txt"
    request.write_text(instance["problem_statement"], encoding="utf-8")
    git = ["git", "--git-dir", str(repository(repos, instance["repo"])), "worktree"]
    subprocess.run(
        [*git, "add", "--quiet", "--detach", "--force", str(root), instance["base_commit"]],
        check=True,
    )
    try:
        found = {"Loom": by_loom(root, request, instance["gold_files"][0], work / "cache")}
        if with_aider:
            found["aider"] = by_aider(root, request)
    finally:
        subprocess.run([*git, "remove", "--force", str(root)], check=False)
    for row in found.values():
        if "failed" not in row:
            row |= judged(instance, row.pop("maps"))
    return found


def by_loom(root: Path, request: Path, edited: str, cache: Path) -> Row:
    command = [sys.executable, __file__, "--map", str(root), str(request), edited, str(cache)]
    done = subprocess.run(command, capture_output=True, text=True)
    found: Row = {"failed": last_line(done.stderr)} if done.returncode else json.loads(done.stdout)
    return found


def by_aider(root: Path, request: Path) -> Row:
    python = environment(AIDER)
    if isinstance(python, str):
        return {"failed": python}
    script = ROOT / "bench" / "peers" / AIDER.script
    row = report_of([str(python), str(script), str(root), str(request), *map(str, BUDGETS)], LIMIT)
    if "failed" not in row:
        paths = set(row.pop("paths"))
        for made in row["maps"].values():
            made["files"] = symbols_of(made.pop("text"), paths)
    return row


def repository(repos: Path, name: str) -> Path:
    joined = name.replace("/", "+")
    tried = [repos / joined / "repo", repos / joined, repos / name, repos / name.rsplit("/", 1)[-1]]
    for folder in tried:
        for git in (folder / ".git", folder):
            if (git / "HEAD").exists():
                return git
    sys.exit(
        f"no repository of {name} in {repos}: bring it with its history, or name another "
        "folder with --repos"
    )


# Showing


def groups(instances: Sequence[Row]) -> dict[str, list[str]]:
    """The instances of each repository, those that weights were tuned on and the rest, and all."""
    found: dict[str, list[str]] = {}
    tuned = set()
    for instance in instances:
        mates = found.setdefault(instance["repo"].rsplit("/", 1)[-1], [])
        if not instance["repo"].endswith("pytest") or len(mates) % 2 == 0:
            tuned.add(instance["instance_id"])
        mates.append(instance["instance_id"])
    names = [instance["instance_id"] for instance in instances]
    halves = {
        "tuned on": [name for name in names if name in tuned],
        "the rest": [name for name in names if name not in tuned],
    }
    return found | halves | {"all": names}


def summary(rows: list[Row]) -> Row:
    whole = [row for row in rows if "failed" not in row]
    found: Row = {"n": len(rows), "failed": len(rows) - len(whole)}
    for name in ("file", "function", "over"):
        given = [row[name] for row in whole if name in row]
        found[name] = (
            [100 * sum(row[place] for row in given) / len(given) for place in range(len(BUDGETS))]
            if given
            else []
        )
    for name in ("indexed", "cold", "warm", "changed", "index", "MB"):
        given = [row[name] for row in whole if name in row]
        found[name] = sum(given) / len(given) if given else None
        found[f"most {name}"] = max(given, default=None)
    return found


def show(results: dict[str, dict[str, Row]], instances: Sequence[Row]) -> None:
    print(
        f"budgets {' '.join(f'{budget:,}' for budget in BUDGETS)} (o200k); percent; seconds: "
        "the mean, of warm also the most"
    )
    heads: tuple[tuple[str, int], ...]
    heads = (
        ("", -18),
        ("n", 4),
        ("", 2),
        ("file", -18),
        ("function", -18),
        ("over", -17),
        ("files", 6),
        ("cold", 7),
        ("warm", 7),
    )
    heads += (("most", 7), ("changed", 15), ("MB", 6))
    print("".join(f"{head:{'<' if width < 0 else '>'}{abs(width)}}" for head, width in heads))
    for who, rows in results.items():
        for name, members in groups(instances).items():
            row = summary([rows[member] for member in members])
            shares = " ".join(
                f"{' '.join(f'{share:5.1f}' for share in row[kind]):<17}"
                for kind in ("file", "function", "over")
            )
            times = f"{_figure(row['cold'])}{_figure(row['warm'])}{_figure(row['most warm'])}"
            changed = (
                f"{_figure(row['changed'])} ({_figure(row['index']).strip()})"
                if row["changed"] is not None
                else ""
            )
            files, memory = (
                f"{row[kind]:.0f}" if row[kind] else "" for kind in ("indexed", "most MB")
            )
            failed = f"  {row['failed']} failed" if row["failed"] else ""
            print(
                f"{who:<8}{name:<10}{row['n']:>4}  {shares}{files:>6}{times}"
                f"{changed:>15}{memory:>6}{failed}"
            )
        for reason in sorted({row["failed"] for row in rows.values() if "failed" in row}):
            print(f"{who:<8}{reason}")


def _figure(seconds: float | None) -> str:
    return " " * 7 if seconds is None else f"{seconds:>7.3f}"


def main() -> None:
    options = argparse.ArgumentParser(
        description="Does the map show the file and the function that the work will touch?"
    )
    options.add_argument(
        "--repos",
        type=Path,
        default=os.environ.get("LOOM_REPOS"),
        help="where the repositories lie (LOOM_REPOS)",
    )
    options.add_argument(
        "--data",
        type=Path,
        default=SHARED / "data" / "repomap" / "swe_lite_dev.json",
        help="the issues",
    )
    options.add_argument("--only", nargs="+", help="only issues with one of these in their names")
    options.add_argument("--aider", action="store_true", help="run aider's RepoMap beside it")
    options.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead of a table, each issue in it",
    )
    options.add_argument("--map", nargs=4, metavar="TEXT", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.map:
        root, request, edited, cache = chosen.map
        print(json.dumps(mapped(Path(root), Path(request), edited, Path(cache))))
        return
    if not chosen.repos:
        options.error(
            "where are the repositories? name their folder with --repos, or in LOOM_REPOS"
        )
    instances = json.loads(chosen.data.read_text(encoding="utf-8"))
    if chosen.only:
        instances = [
            one for one in instances if any(name in one["instance_id"] for name in chosen.only)
        ]
    results: dict[str, dict[str, Row]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for instance in instances:
            print(f"{instance['instance_id']} ...", file=sys.stderr)
            for who, row in measured(instance, chosen.repos, Path(folder), chosen.aider).items():
                results.setdefault(who, {})[instance["instance_id"]] = row
    if chosen.json:
        print(json.dumps(results, indent=1))
        return
    show(results, instances)


if __name__ == "__main__":
    main()
