"""An agent's work replayed call by call: Loom's policies, and with --peers the libraries that
manage a history.

python bench/replay.py [--peers] [--only NAME ...] [--window TOKENS] [--limit SECONDS] [--json]
[--readme] (LOOM_SHARED, or ../shared, holds transcripts and measures.)
The transcript is replay_1200: 1,200 messages, 477 model calls. Each library runs in its own
environment under .work/venvs, made on first use. Every request is judged by the shared measures and
the exact o200k tokenizer. Nothing here is a test.

re-cache    uncached tokens sent by tokens that were new: 1 is the floor, what is above it is the
price of compression recall      look-ahead recall, strict: what the agent writes again later and
the request still shows

At the end the bench judges Loom's `default` by the others of the same run: its faults, and its
ratios to the best of them.
--readme writes the rows into the table of README.md, so that no figure there is written by hand; it
needs all of them.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from one_shot import ROOT, SHARED, WORK, Peer, environment, report_of

Row = dict[str, Any]
TRANSCRIPT = "replay_1200"
POLICIES = ("default", "window", "turns", "tree", "partitions")
COLUMNS = ("over", "torn", "goal", "tokens", "cacheable", "uncached", "re-cache", "recall", "ms")


class Played(NamedTuple):
    """A variant of a peer. `carried`: the library rewrites the history of its agent, so that the
    next call begins with that.
    """

    peer: Peer
    variant: str
    carried: bool = False


LOOM = Peer("Loom", None, "loom_epochs.py", ("nothing managed", *POLICIES))
LANGCHAIN = Peer("LangChain", "langchain-core>=1.7,<2", "langchain_trim.py", ())
MIDDLEWARE = Peer("LangChainAgents", "langchain>=1.4,<2", "langchain_middleware.py", ())
PYDANTIC = Peer("PydanticAI", "pydantic-ai-harness>=0.62,<1", "pydanticai_compaction.py", ())
KERNEL = Peer("SemanticKernel", "semantic-kernel>=1.45,<2", "semantickernel_reducer.py", ())
FRAMEWORK = Peer("AgentFramework", "agent-framework-core>=1.23,<2", "agentframework_sliding.py", ())
AGENTS = Peer("OpenAIAgents", "openai-agents>=0.24,<1", "openaiagents_session.py", ())
STRANDS = Peer("Strands", "strands-agents>=1.62,<2", "strands_sliding.py", ())
OURS = tuple(Played(LOOM, variant) for variant in LOOM.variants)
THEIRS = (
    Played(LANGCHAIN, "start_on=human"),
    Played(MIDDLEWARE, "SummarizationMiddleware", carried=True),
    Played(MIDDLEWARE, "ClearToolUsesEdit"),
    Played(KERNEL, "ChatHistoryTruncationReducer", carried=True),
    Played(FRAMEWORK, "SlidingWindowStrategy"),
    Played(AGENTS, "session.get_items"),
    Played(STRANDS, "SlidingWindowConversationManager", carried=True),
    Played(PYDANTIC, "TieredCompaction", carried=True),
)


def play(played: Played, transcript: Path, window: int, limit: float) -> Row:
    """The figures that the peer's process reports, or {"failed": why}."""
    python = environment(played.peer)
    if isinstance(python, str):
        return {"failed": python}
    peers = ROOT / "bench" / "peers"
    how = "carried" if played.carried else "fresh"
    script = [str(peers / "stepped.py"), str(peers / played.peer.script)]
    command = [str(python), *script, str(transcript), str(window), played.variant, str(limit), how]
    return report_of(command, limit)


def show(name: str, row: Row) -> str:
    if "failed" in row:
        return f"{name:<52} {row['failed']}"
    recall = "–" if row["lookahead_recall"] is None else f"{row['lookahead_recall']:.1%}"
    empty = f"  ({row['near_empty']} near empty)" if row["near_empty"] else ""
    return (
        f"{name:<52} {row['over_budget']:>5} {row['torn_pairs']:>5} {row['goal_missing']:>5} "
        f"{row['mean_tokens']:>9,.0f} "
        f"{row['cacheable_share']:>9.3f} {row['uncached_per_call']:>9,.0f} "
        f"{row['recache_factor']:>9.2f} {recall:>9} "
        f"{row['ms_per_call']:>9.1f}{empty}"
    )


# What README.md calls the rows that it shows.
README_NAMES = {
    ("Loom", "default"): "**Loom** {version}",
    ("LangChainAgents", "SummarizationMiddleware"): "LangChain {version} `SummarizationMiddleware`",
    ("PydanticAI", "TieredCompaction"): "Pydantic AI harness {version}, tiered",
    ("SemanticKernel", "ChatHistoryTruncationReducer"): "Semantic Kernel {version} reducer",
    ("Strands", "SlidingWindowConversationManager"): "Strands {version} sliding window",
    ("OpenAIAgents", "session.get_items"): "OpenAI Agents {version} session limit",
}
README_HEAD = """\
| | calls over / torn / goal lost | mean tokens | re-cache factor | look-ahead recall |
|---|---|---|---|---|
"""
README_BEGIN, README_END = (
    "<!-- bench/replay.py --readme writes this table -->\n",
    "<!-- to here -->\n",
)


def readme_table(rows: list[Row]) -> str:
    """The rows that README.md shows, as a table."""
    found = {(row["peer"], row["variant"]): row for row in rows}
    table = README_HEAD
    for key, name in README_NAMES.items():
        row = found[key]
        faults = f"{row['over_budget']} / {row['torn_pairs']} / {row['goal_missing']}"
        recall = (
            "–" if row["lookahead_recall"] is None else f"{100 * row['lookahead_recall']:.1f} %"
        )
        title = name.format(version=row["version"])
        table += (
            f"| {title} | {faults} | {row['mean_tokens']:,.0f} | {row['recache_factor']:.2f} | "
            f"{recall} |\n"
        )
    return table


def write_readme(rows: list[Row]) -> None:
    played = {(row["peer"], row["variant"]) for row in rows if "failed" not in row}
    if missing := [
        f"{peer} {variant}" for peer, variant in README_NAMES if (peer, variant) not in played
    ]:
        sys.exit(
            f"README.md stays as it is, without rows for {', '.join(missing)}; play all with "
            "--peers"
        )
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        sys.exit(
            f"README.md has no place for the table: {README_BEGIN.strip()} … {README_END.strip()}"
        )
    readme.write_text(f"{before}{begin}{readme_table(rows)}{end}{after}", encoding="utf-8")


def judge(rows: list[Row]) -> str:
    """Loom's `default` by the best of the others that made no fault, and whether it made one
    itself.
    """
    played = [row for row in rows if "failed" not in row and row["variant"] != "nothing managed"]
    ours = next(
        (row for row in played if (row["peer"], row["variant"]) == ("Loom", "default")), None
    )
    if ours is None:
        return "nothing to judge: Loom's default was not played"
    faults = ours["over_budget"] + ours["torn_pairs"] + ours["goal_missing"]
    lines = [f"Loom's default made {faults} faults in {ours['calls']} calls"]
    others = [row for row in played if row["peer"] != "Loom"]
    for field, title, best in (
        ("lookahead_recall", "recall", max),
        ("recache_factor", "re-cache", min),
    ):
        known = [row for row in others if row[field]]
        if known and ours[field]:
            other = best(known, key=lambda row: row[field])
            lines.append(
                f"{title}: {ours[field] / other[field]:.2f} of {other['peer']} "
                f"{other['variant']}, the best of the others"
            )
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(
        description="An agent's work replayed call by call, by Loom and by its peers."
    )
    options.add_argument(
        "--peers", action="store_true", help="play the peers too, each in an environment of its own"
    )
    options.add_argument(
        "--only",
        nargs="+",
        choices=sorted({one.peer.name for one in (*OURS, *THEIRS)}),
        help="play these alone",
    )
    options.add_argument(
        "--window", type=int, default=16_000, help="tokens of usable input (16000)"
    )
    options.add_argument(
        "--limit", type=float, default=300.0, help="seconds after which a peer is abandoned (300)"
    )
    options.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    options.add_argument(
        "--readme", action="store_true", help="write the rows into the table of README.md as well"
    )
    chosen = options.parse_args()
    folder = WORK / "transcripts"
    subprocess.run([sys.executable, SHARED / "transcripts.py", folder], check=True)
    wanted = [
        one
        for one in (*OURS, *THEIRS)
        if (one.peer.name in chosen.only if chosen.only else one in OURS or chosen.peers)
    ]
    rows: list[Row] = []
    if not chosen.json:
        print(
            f"{TRANSCRIPT} at {chosen.window:,} tokens: calls over budget, with a torn pair, "
            "without the current request; means"
        )
        print(
            f"{'':<52} {' '.join(f'{name:>{5 if n < 3 else 9}}' for n, name in enumerate(COLUMNS))}"
        )
    for one in wanted:
        row = play(one, folder / f"{TRANSCRIPT}.json", chosen.window, chosen.limit)
        rows.append({"peer": one.peer.name, "variant": one.variant, **row})
        if not chosen.json:
            version = f" {row['version']}" if "version" in row else ""
            print(show(f"{one.peer.name}{version} {one.variant}", row), flush=True)
    if chosen.json:
        print(
            json.dumps({"transcript": TRANSCRIPT, "window": chosen.window, "rows": rows}, indent=1)
        )
    else:
        print(judge(rows))
    if chosen.readme:
        write_readme(rows)


if __name__ == "__main__":
    main()
