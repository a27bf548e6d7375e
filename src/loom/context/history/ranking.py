"""Ranking: what the policy's strategy would choose from a history, by its own counter and by sizes
alone.
"""

from collections.abc import Sequence

from msgspec import Struct

from loom.context.history.fitting import Fitting
from loom.context.history.strategies import Units, find_strategy
from loom.conversation.turns import Span, exchanges, turns


class RankedUnits(Struct, frozen=True):
    """What a strategy chooses: exchanges and their sizes, those that it takes at once, and the
    order, of which some are kept.
    """

    spans: list[Span]
    weights: list[int]  # of exchanges
    groups: list[list[int]]
    sizes: list[int]  # of groups
    picked: tuple[int, ...]  # groups, in their order
    order: list[int]
    together: list[list[int]]  # the groups that are kept, the newest exchange of each first

    @property
    def kept_units(self) -> int:
        return sum(map(len, self.together))


def rank(fitting: Fitting, start: int = 0) -> RankedUnits:
    """What the strategy chooses from a place on, by its own counter."""
    policy, own = fitting.policy, fitting.own
    spans = [
        Span(start + span.start, start + span.stop) for span in exchanges(fitting.history[start:])
    ]
    groups = _group(fitting, spans)
    costs = fitting.own_costs
    weights = [sum(costs[span.start : span.stop]) for span in spans]
    sizes = [sum(weights[unit] for unit in group) for group in groups]
    units = Units(
        sizes=sizes,
        available=_available(fitting),
        minimum_recent=policy.minimum_recent_nodes,
        marker=own.count_text(policy.marker),
        messages=lambda: [fitting.messages(span) for span in spans],
    )
    picked = find_strategy(policy.strategy).choose(units)
    order = [unit for group in picked.order for unit in reversed(groups[group])]
    together = [groups[group][::-1] for group in picked.order[: picked.kept]]
    return RankedUnits(spans, weights, groups, sizes, tuple(picked.order), order, together)


def _group(fitting: Fitting, spans: Sequence[Span]) -> list[list[int]]:
    """What a strategy takes at once: exchanges, or the exchanges of a turn."""
    if not find_strategy(fitting.policy.strategy).takes_turns:
        return [[n] for n in range(len(spans))]
    starts = {turn.start for turn in turns(fitting.history)}
    groups: list[list[int]] = []
    for n, span in enumerate(spans):
        if not groups or span.start in starts:
            groups.append([])
        groups[-1].append(n)
    return groups


def _available(fitting: Fitting) -> int:
    """What the strategy may fill, by the policy's own counter."""
    if fitting.policy.history == "zone":
        return fitting.zone
    if fitting.fills is not None:
        return int(fitting.fills * fitting.refill)
    if fitting.has_best_counter:
        return fitting.room
    return fitting.rest
