"""Learning from the usage that providers report how far a counter is off, model by model."""

from msgspec import Struct

# Beyond these a report says more about a mistake (another request, a hidden prompt) than about the
# tokenizer.
MIN_RATIO, MAX_RATIO = 0.5, 2.0

# The newest report weighs at least one part in this many, so that a provider's change of tokenizer
# is followed.
_MEMORY = 20


class ModelRatio(Struct, frozen=True):
    """The running ratio of reported to counted tokens of one model, and from how many reports."""

    model: str
    ratio: float
    reports: int


class Calibration(Struct, frozen=True):
    """What is known of each model; an immutable value that `observe` makes anew."""

    models: tuple[ModelRatio, ...] = ()

    def ratio(self, model: str) -> float:
        """What counts for this model are to be multiplied by; 1.0 where nothing was reported
        yet.
        """
        return next((seen.ratio for seen in self.models if seen.model == model), 1.0)


def observe(calibration: Calibration, model: str, *, counted: int, reported: int) -> Calibration:
    """The calibration after a provider reported `reported` input tokens for a request counted,
    uncorrected, as `counted`.
    """
    if counted <= 0 or not MIN_RATIO <= reported / counted <= MAX_RATIO:
        return calibration
    sample = reported / counted
    before = next(
        (seen for seen in calibration.models if seen.model == model), ModelRatio(model, sample, 0)
    )
    weight = 1 / min(before.reports + 1, _MEMORY)
    # Rounded, so that the same reports give the same bytes on every machine.
    after = ModelRatio(
        model, round(before.ratio + (sample - before.ratio) * weight, 6), before.reports + 1
    )
    others = [seen for seen in calibration.models if seen.model != model]
    return Calibration(tuple(sorted([*others, after], key=lambda seen: seen.model)))
