"""What became of options: the edges `chosen` and `rejected` that lead to them."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from loom.decisions.values import DecisionEdge

JUDGING = ("chosen", "rejected")


class Verdict(Struct, frozen=True):
    """The newest edge that judges an option, and the newest one that says the opposite; None if no
    edge does.
    """

    newest: DecisionEdge
    opposite: DecisionEdge | None = None

    @property
    def is_rejected(self) -> bool:
        return self.newest.kind == "rejected"

    def name_sources(self) -> tuple[str, ...]:
        """The ids of the decisions that judge differently; none if all agree."""
        if self.opposite is None:
            return ()
        return self.newest.source, self.opposite.source

    def describe(self, titles: Mapping[str, str]) -> str:
        """Both judgements in words, the newer first; "" if all agree. `titles` are those of the
        decisions that judge.
        """
        if self.opposite is None:
            return ""
        if self.newest.source == self.opposite.source:
            whose, before = "", " before"
        else:
            whose, before = (
                f" for {titles.get(edge.source) or 'another'}"
                for edge in (self.newest, self.opposite)
            )
        return f"{_describe(self.newest, whose)}; {_describe(self.opposite, before)}"


def _describe(edge: DecisionEdge, whose: str) -> str:
    reason = f": {edge.rationale}" if edge.rationale else ""
    return f"{edge.kind}{whose}{reason}"


def find_verdicts(edges: Iterable[DecisionEdge], options: Collection[str]) -> dict[str, Verdict]:
    """What became of these options, by their ids. Of edges that were drawn at once, the later one
    in the list is the newer.
    """
    found: dict[str, dict[str, DecisionEdge]] = {}
    judging = [edge for edge in edges if edge.kind in JUDGING and edge.target in options]
    for edge in sorted(judging, key=lambda each: each.created):
        newest = found.setdefault(edge.target, {})
        newest.pop(edge.kind, None)  # so that the newest comes last
        newest[edge.kind] = edge
    return {option: Verdict(*reversed(each.values())) for option, each in found.items()}
