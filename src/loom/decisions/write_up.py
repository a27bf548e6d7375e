"""A decision graph in words: what a reader of a pull request wants to know.

For each goal: which options there were, which were chosen or rejected and why, what was done, and
what came of it. Titles and descriptions are quoted so that they cannot pass for headings.
"""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from loom.decisions.values import Decision, DecisionEdge, DecisionGraph
from loom.decisions.verdicts import JUDGING, Verdict, find_verdicts

MAX_DESCRIPTION_CHARS = 600
MAX_CHARS = 60_000  # of a write-up; the text of a pull request has at most 65,536
_SIGNS = re.compile(r"([\\`*_\[\]<>#|~!&@$])")
_PLAIN_EDGES = ("leads_to", "chosen", "rejected")
_CHOICES = ("decision", "option")


class _IndexedGraph(Struct, frozen=True):
    """A graph, by what is asked of it; its decisions in their order."""

    decisions: dict[str, Decision]
    outgoing: dict[str, list[DecisionEdge]]
    incoming: dict[str, list[DecisionEdge]]


def write_up(graph: DecisionGraph, title: str = "Decisions") -> str:
    """The Markdown text of a graph."""
    place = _index(graph)
    goals = [each for each in graph.decisions if each.kind == "goal"]
    blocks, told = [f"# {escape_markdown(title)}"], set[str]()
    if not graph.decisions:
        blocks.append("Nothing was decided.")
    for goal in goals:
        if goal.id in told:
            continue
        below = _below(place, goal.id, told)
        told.update(each.id for each in below)
        blocks += [f"## Goal: {_name(goal)}", *_describe(goal), *_write_group(place, below[1:])]
    rest = [each for each in graph.decisions if each.id not in told]
    if rest:
        blocks += ["## Other decisions" if goals else "## What was decided"]
        blocks += _write_group(place, rest)
    if graph.left_out:
        blocks.append(f"*{graph.left_out:,} more decisions are left out.*")
    return _join(blocks)


def _join(blocks: Sequence[str]) -> str:
    """The blocks that fit, with a note of how many do not."""
    room, kept = MAX_CHARS - 100, list[str]()
    for block in blocks:
        room -= len(block) + 2
        if room < 0:
            kept.append(f"*{len(blocks) - len(kept):,} more paragraphs are left out.*")
            break
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def _index(graph: DecisionGraph) -> _IndexedGraph:
    place = _IndexedGraph({each.id: each for each in graph.decisions}, {}, {})
    for edge in graph.edges:
        place.outgoing.setdefault(edge.source, []).append(edge)
        place.incoming.setdefault(edge.target, []).append(edge)
    return place


def _below(place: _IndexedGraph, start: str, told: set[str]) -> list[Decision]:
    """A decision and what it leads to; not what belongs to another goal."""
    seen, queue = {start: None}, [start]
    for name in queue:
        for edge in place.outgoing.get(name, ()):
            found = place.decisions.get(edge.target)
            if found is None or found.id in seen or found.id in told or found.kind == "goal":
                continue
            seen[found.id] = None
            queue.append(found.id)
    others = [each for name, each in place.decisions.items() if name in seen and name != start]
    return [place.decisions[start], *others]


def _write_group(place: _IndexedGraph, decisions: Iterable[Decision]) -> list[str]:
    found = list(decisions)
    groups = (
        ("Decided", [each for each in found if _is_taken(place, each)]),
        ("Not taken", [each for each in found if _is_rejected(place, each)]),
        ("Observed", [each for each in found if each.kind in ("observation", "revisit")]),
        ("Done", [each for each in found if each.kind == "action"]),
        ("Came of it", [each for each in found if each.kind == "outcome"]),
    )
    blocks: list[str] = []
    for heading, members in groups:
        if members:
            lines = [line for each in members for line in _write_entry(place, each)]
            blocks.append("\n".join((f"**{heading}**", "", *lines)))
    return blocks


def _is_rejected(place: _IndexedGraph, decision: Decision) -> bool:
    """Whether a decision or an option does not hold: it was rejected, or given up."""
    if decision.kind not in _CHOICES:
        return False
    verdict = _find_verdict(place, decision)
    return decision.status != "active" or (verdict is not None and verdict.is_rejected)


def _find_verdict(place: _IndexedGraph, decision: Decision) -> Verdict | None:
    return find_verdicts(place.incoming.get(decision.id, ()), (decision.id,)).get(decision.id)


def _is_taken(place: _IndexedGraph, decision: Decision) -> bool:
    return decision.kind in _CHOICES and not _is_rejected(place, decision)


def _write_entry(place: _IndexedGraph, decision: Decision) -> list[str]:
    lines = [f"- {_label(place, decision)}{_name(decision)}"]
    lines += [f"  {line}" for line in _quote(decision.description)]
    lines += _write_reasons(place, decision)
    for edge in place.outgoing.get(decision.id, ()):
        target = place.decisions.get(edge.target)
        if edge.kind == "supersedes" and target is not None:
            why = f": {_one_line(edge.rationale)}" if edge.rationale else ""
            lines.append(f"  - superseded by {escape_markdown(target.title)}{why}")
    reason = decision.metadata.get("abandoned_because")
    if isinstance(reason, str) and reason:
        lines.append(f"  - abandoned: {_one_line(reason)}")
    if decision.commits:
        lines.append(f"  - commits: {', '.join(f'`{each[:12]}`' for each in decision.commits)}")
    return lines


def _write_reasons(place: _IndexedGraph, decision: Decision) -> list[str]:
    """Why a decision came from others. If it was chosen and rejected, both are one line."""
    lines: list[str] = []
    verdict = _find_verdict(place, decision)
    is_disputed = verdict is not None and verdict.opposite is not None
    if verdict is not None and is_disputed:
        known = (place.decisions.get(name) for name in verdict.name_sources())
        titles = {each.id: each.title for each in known if each is not None}
        lines.append(f"  - {_one_line(verdict.describe(titles))}")
    for edge in place.incoming.get(decision.id, ()):
        is_told = is_disputed and edge.kind in JUDGING
        if not edge.rationale or edge.kind == "supersedes" or is_told:
            continue
        if edge.source in place.decisions:
            words = "because" if edge.kind in _PLAIN_EDGES else edge.kind.replace("_", " ")
            lines.append(f"  - {words}: {_one_line(edge.rationale)}")
    return lines


def _label(place: _IndexedGraph, decision: Decision) -> str:
    if decision.kind in ("observation", "action", "outcome"):
        return ""
    if decision.status != "active":
        return f"{decision.status}: "
    verdict = _find_verdict(place, decision)
    if verdict is not None:
        return f"{verdict.newest.kind}: "
    return "option: " if decision.kind == "option" else ""


def _name(decision: Decision) -> str:
    name = f"**{escape_markdown(decision.title or 'purged')}**"
    if decision.kind == "goal" and decision.status != "active":
        name += f" ({decision.status})"
    if decision.confidence is not None:
        name += f" ({decision.confidence}%)"
    return name


def _describe(goal: Decision) -> list[str]:
    quoted = _quote(goal.description)
    return ["\n".join(quoted)] if quoted else []


def _quote(text: str) -> list[str]:
    """A text as a quotation, cut if it is long."""
    if len(text) > MAX_DESCRIPTION_CHARS:
        text = text[: MAX_DESCRIPTION_CHARS - 1].rstrip() + "…"
    return [f"> {escape_markdown(line.strip())}" for line in text.splitlines() if line.strip()]


def _one_line(text: str) -> str:
    return escape_markdown(" ".join(text.split()))


def escape_markdown(text: str) -> str:
    """A text without anything that Markdown or HTML would read."""
    return _SIGNS.sub(r"\\\1", text)
