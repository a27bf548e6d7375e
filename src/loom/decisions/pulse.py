"""How healthy a decision graph is, as a number and as lists of what to look at."""

from collections.abc import Mapping

from msgspec import Struct

from loom.decisions.values import Decision

STALE_MS = 7 * 24 * 3_600_000  # since the last change of what is still open
MAX_LISTED = 20  # decisions of each kind of trouble; all are counted
# What each decision of a list costs, and what the whole list costs at most.
GAP_COST, MAX_GAP_COST = 10, 50
ORPHAN_COST, MAX_ORPHAN_COST = 5, 30
LOW_COST, MAX_LOW_COST = 3, 20


class PulseList(Struct, frozen=True):
    """How many decisions have a trouble, and the oldest of them."""

    count: int = 0
    decisions: tuple[Decision, ...] = ()


class Pulse(Struct, frozen=True, kw_only=True):
    """The state of a decision graph.

    `gaps`: active goals and decisions from which no edge leads to an action or an outcome.
    `orphans`: active decisions of other kinds than goals without any edge. `stale`: active goals,
    decisions and revisits that did not change for 7 days. `low_confidence`: active ones below 50.
    `health` is from 0 to 100; what is stale does not count.
    """

    health: int
    gaps: PulseList
    orphans: PulseList
    stale: PulseList
    low_confidence: PulseList
    by_kind: Mapping[str, int]
    by_status: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many decisions there are."""
        return sum(self.by_kind.values())


def compute_health(gaps: int, orphans: int, low_confidence: int) -> int:
    """The health of a graph with so many troubles."""
    return (
        100
        - min(GAP_COST * gaps, MAX_GAP_COST)
        - min(ORPHAN_COST * orphans, MAX_ORPHAN_COST)
        - min(LOW_COST * low_confidence, MAX_LOW_COST)
    )
