"""One long transcript into one small window: Loom beside the libraries that trim without a model,
on the same messages.

python bench/one_shot.py [--json] [--only NAME ...] [--limit SECONDS]     (shared definitions:
LOOM_SHARED, or ../shared) Each library runs in its own environment under .work/venvs, made on first
use; one at a time, for the machine is small. Every result is judged by the shared measures and the
exact o200k tokenizer, never by the library's own count. Nothing here is a test.

first    seconds of the first call: no message counted yet; tokenizer and library loaded and tried
on two messages again    the best of three (for Loom the second call): counts cached wherever the
library's interface lets them be
"""

import argparse
import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from splintr import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("LOOM_SHARED", ROOT / ".." / "shared")).resolve() / "bench"
WORK = ROOT / ".work"
TOKENIZER = "splintr-rs>=0.22,<0.23"
BUDGETS = {
    "chat_5000": 32_000,
    "agentic_5000": 32_000,
    "giant_result": 8_000,
    "long_turn": 8_000,
    "parallel_calls": 8_000,
}
LINEAR = ("agentic_5000", "agentic_50000")

Row = dict[str, Any]


class Peer(NamedTuple):
    name: str
    requirement: str | None
    script: str
    variants: tuple[str, ...]


LOOM = Peer("Loom", None, "loom_weave.py", ("weave",))
PEERS = (
    LOOM,
    Peer(
        "LangChain",
        "langchain-core>=1.7,<2",
        "langchain_trim.py",
        ("start_on=human", "no start_on"),
    ),
    Peer(
        "LlamaIndex",
        "llama-index-core>=0.14.20,<0.15",
        "llamaindex_memory.py",
        ("ChatMemoryBuffer", "Memory"),
    ),
    Peer(
        "PydanticAI",
        "pydantic-ai-harness>=0.62,<1",
        "pydanticai_compaction.py",
        ("SlidingWindowCompaction", "TieredCompaction"),
    ),
    Peer(
        "SemanticKernel",
        "semantic-kernel>=1.45,<2",
        "semantickernel_reducer.py",
        ("ChatHistoryTruncationReducer",),
    ),
    Peer(
        "OpenAIAgents",
        "openai-agents>=0.24,<1",
        "openaiagents_session.py",
        ("session.get_items", "Runner.run"),
    ),
)


def shared(name: str) -> ModuleType:
    spec = spec_from_file_location(name, SHARED / f"{name}.py")
    if spec is None or spec.loader is None or not (SHARED / f"{name}.py").exists():
        sys.exit(f"no {name}.py in {SHARED}: set LOOM_SHARED to the folder that holds bench/")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def environment(peer: Peer) -> Path | str:
    """The peer's python, or why there is none. Installs on first use and when the table above has
    changed.
    """
    if peer.requirement is None:
        return Path(sys.executable)
    home = WORK / "venvs" / peer.name
    python, installed = home / "bin" / "python", home / "installed"
    wanted = f"{peer.requirement}\n{TOKENIZER}\n"
    if installed.exists() and installed.read_text() == wanted:
        return python
    print(f"installing {peer.requirement} ...", file=sys.stderr)
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *wanted.split(),
    ]
    for command in ([sys.executable, "-m", "venv", str(home)], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"cannot be installed: {last_line(done.stderr)}"
    installed.write_text(wanted)
    return python


def trim(peer: Peer, variant: str, transcript: Path, budget: int, limit: float) -> Row:
    """What the peer's script reports, or {"failed": why}."""
    python = environment(peer)
    if isinstance(python, str):
        return {"failed": python}
    command = [
        str(python),
        str(ROOT / "bench" / "peers" / peer.script),
        str(transcript),
        str(budget),
        variant,
        str(limit),
    ]
    return report_of(command, limit)


def report_of(command: list[str], limit: float) -> Row:
    """What a peer's process prints last, or {"failed": why}."""
    # Beside the limit on the calls, time to import and convert; a library that holds the alarm back
    # ends here.
    grace = 3 * limit + 300
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=grace,
            env={**os.environ, "PYTHONPATH": str(SHARED)},
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {grace:.0f} s"}
    if done.returncode:
        return {"failed": last_line(done.stderr)}
    report: Row = json.loads(last_line(done.stdout))
    return report


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]


class Judge:
    """Measures a result against its transcript."""

    def __init__(
        self, measures: ModuleType, original: list[Row], budget: int, needles: list[str]
    ) -> None:
        encode = Tokenizer.from_pretrained("o200k_base").encode_ordinary
        self.measures, self.budget, self.needles = measures, budget, needles
        self.count = lambda text: len(encode(text))
        self.goal = [text for role, text in measures.flatten(original) if role == "user"][-1]
        self.about = {
            "messages": len(original),
            "tokens": self.tokens(original),
            "planted": len(needles),
        }

    def tokens(self, messages: list[Row]) -> int:
        return sum(self.measures.message_tokens(message, self.count) for message in messages)

    def row(self, report: Row) -> Row:
        messages = report.pop("messages", None)
        if messages is None:
            return report
        text = "\n".join(text for _, text in self.measures.flatten(messages))
        tokens = self.tokens(messages)
        return report | {
            "tokens": tokens,
            "over_budget": tokens > self.budget,
            "torn_pairs": self.measures.torn_pairs(messages),
            "goal_missing": self.measures.goal_missing(messages, self.goal),
            "needles": sum(needle in text for needle in self.needles) if self.needles else None,
            "kept": len(messages),
        }


def write_transcripts() -> Path:
    folder = WORK / "transcripts"
    transcripts = shared("transcripts")
    subprocess.run([sys.executable, SHARED / "transcripts.py", folder], check=True)
    messages, _ = transcripts.session(50_000, "agentic")
    (folder / f"{LINEAR[1]}.json").write_text(json.dumps({"messages": messages}))
    return folder


def one_shot(folder: Path, name: str, peers: list[Peer], limit: float) -> Row:
    budget = BUDGETS[name]
    planted = folder / f"{name}.needles.json"
    original = json.loads((folder / f"{name}.json").read_text())["messages"]
    judge = Judge(
        shared("measures"),
        original,
        budget,
        json.loads(planted.read_text()) if planted.exists() else [],
    )
    rows: list[Row] = []
    for peer in peers:
        for variant in peer.variants:
            print(f"{name}: {peer.name} {variant}", file=sys.stderr)
            report = judge.row(trim(peer, variant, folder / f"{name}.json", budget, limit))
            rows.append({"peer": peer.name, "variant": variant, **report})
    loom: Row = next((row for row in rows if row["peer"] == LOOM.name), {})
    for row in rows:
        row["first_to_loom"] = ratio(row.get("first"), loom.get("first"))
        row["again_to_loom"] = ratio(row.get("seconds"), loom.get("seconds"))
    return {"transcript": name, "budget": budget, **judge.about, "rows": rows}


def linearity(folder: Path, limit: float) -> Row:
    """Ten times the messages: a linear weave takes ten times the time. Each time is the best of
    three processes.
    """
    best: dict[str, Row] = {}
    for name in LINEAR:
        runs = [
            trim(LOOM, "weave", folder / f"{name}.json", BUDGETS[LINEAR[0]], limit)
            for _ in range(3)
        ]
        for run in runs:
            if run.get("seconds") is None:
                return {"failed": run.get("failed", f"{name}: > {limit:.0f} s")}
        best[name] = {key: min(run[key] for run in runs) for key in ("first", "seconds")}
    small, large = (best[name] for name in LINEAR)
    return {
        "first": large["first"] / small["first"],
        "again": large["seconds"] / small["seconds"],
        "best": best,
    }


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def show(result: Row, limit: float) -> None:
    size = (
        f"{result['messages']:,} messages, {result['tokens']:,} tokens, {result['planted']} planted"
    )
    print(f"\n{result['transcript']} into {result['budget']:,} tokens  ({size})")
    print(f"{'':<44}   first s   ×Loom   again s   ×Loom   tokens      torn    goal planted   kept")
    for row in result["rows"]:
        print(f"{row['peer'] + ' ' + row['variant']:<44} {cells(row, limit)}")


def cells(row: Row, limit: float) -> str:
    if "failed" in row:
        return str(row["failed"])
    if row["seconds"] is None:
        return f"> {limit:.0f} s"
    times = (
        f"{row['first']:>9.4f} {factor(row['first_to_loom'])} {row['seconds']:>9.4f} "
        f"{factor(row['again_to_loom'])}"
    )
    over, goal = "over" if row["over_budget"] else "", "missing" if row["goal_missing"] else "kept"
    needles = "–" if row["needles"] is None else row["needles"]
    return (
        f"{times} {row['tokens']:>8,} {over:<4} {row['torn_pairs']:>4} {goal:>7} {needles:>7} "
        f"{row['kept']:>6,}"
    )


def factor(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.2f}':>7}"


def show_linearity(found: Row) -> None:
    print(f"\nLoom, {LINEAR[1]} to {LINEAR[0]} (linear is 10, at most 12 wanted): ", end="")
    print(
        found.get("failed") or f"first {found['first']:.1f} times, again {found['again']:.1f} times"
    )


def main() -> None:
    options = argparse.ArgumentParser(
        description="Loom and its peers, one long transcript into one small window."
    )
    options.add_argument(
        "--json", action="store_true", help="print one JSON object instead of tables"
    )
    options.add_argument(
        "--only", nargs="+", choices=[peer.name for peer in PEERS], help="run these alone"
    )
    options.add_argument(
        "--limit",
        type=float,
        default=120.0,
        help="seconds after which a peer's calls are abandoned (120)",
    )
    chosen = options.parse_args()
    peers = [peer for peer in PEERS if not chosen.only or peer.name in chosen.only]
    folder = write_transcripts()
    results = [one_shot(folder, name, peers, chosen.limit) for name in BUDGETS]
    found = linearity(folder, chosen.limit) if LOOM in peers else None
    rows = [row for result in results for row in result["rows"]]
    versions = {
        peer.name: next(
            (row["version"] for row in rows if row["peer"] == peer.name and "version" in row), None
        )
        for peer in peers
    }
    if chosen.json:
        print(json.dumps({"versions": versions, "results": results, "linearity": found}, indent=1))
        return
    for peer in peers:
        print(
            f"{peer.name:<15} {versions[peer.name] or '–':<10} "
            f"{peer.requirement or 'this environment'}"
        )
    for result in results:
        show(result, chosen.limit)
    if found:
        show_linearity(found)


if __name__ == "__main__":
    main()
