"""Decisions as lines of plain text, for results of tools."""

from collections.abc import Iterable, Mapping, Sequence

from loom.decisions.pulse import Pulse, PulseList
from loom.decisions.values import Decision
from loom.decisions.verdicts import Verdict

_SHOWN_OF_LIST = 5  # decisions of each list of a pulse
MAX_TITLE_CHARS = 120  # of a title in a list


def write_lines(
    decisions: Iterable[Decision], verdicts: Mapping[str, Verdict] | None = None
) -> list[str]:
    """A line for each decision, with its id. `verdicts` say what became of options."""
    return [
        f"{write_line(each)}{_name_verdict((verdicts or {}).get(each.id))}" for each in decisions
    ]


def _name_verdict(verdict: Verdict | None) -> str:
    return f" [{verdict.newest.kind}]" if verdict is not None else ""


def write_line(decision: Decision) -> str:
    """One decision on one line."""
    title = decision.title or "(purged)"
    if len(title) > MAX_TITLE_CHARS:
        title = title[: MAX_TITLE_CHARS - 1] + "…"
    line = f"{decision.id} [{decision.kind}] {title}"
    if decision.status != "active":
        line += f" [{decision.status}]"
    if decision.confidence is not None:
        line += f" (confidence: {decision.confidence}%)"
    if decision.is_uncertain:
        line += " (depends on something uncertain)"
    return line


def list_troubles(pulse: Pulse) -> Sequence[tuple[str, PulseList]]:
    """What a pulse looks at, with the words for it."""
    return (
        ("without an action or an outcome", pulse.gaps),
        ("without any edge", pulse.orphans),
        ("unchanged for 7 days", pulse.stale),
        ("with a confidence below 50", pulse.low_confidence),
    )


def write_pulse(pulse: Pulse) -> list[str]:
    """A pulse as lines."""
    lines = [f"Health: {pulse.health} of 100, {pulse.total} decisions."]
    for words, found in list_troubles(pulse):
        if found.count:
            lines.append(f"{found.count} {words}:")
            lines += [f"- {line}" for line in write_lines(found.decisions[:_SHOWN_OF_LIST])]
    return lines
